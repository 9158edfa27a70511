//! Calls of a trace in the formats of other programs: tables (csv, JSON, Parquet), timelines (Perfetto,
//! Chrome), and what other recorders write (Darshan, DFTracer, strace, fio).
//!
//! The law: **a call is written when it has been analysed, and forgotten.** What an exporter keeps grows with
//! the number of files, threads and processes, not with the number of calls.

mod chrome;
mod darshan;
mod dftracer;
mod fio;
mod otlp;
mod perfetto;
mod stacks;
mod strace;
mod text;
mod timeline;
mod traffic;

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use cawl_core::{AnalysisOptions, HostFacts, HostProfile, Record, Report};
use cawl_table::{Call, Columns, Parquet, header};

use crate::args::ExportFormat;
use chrome::Chrome;
use darshan::Darshan;
use dftracer::DfTracer;
use fio::Fio;
use otlp::Otlp;
use perfetto::Perfetto;
use stacks::Stacks;
use strace::Strace;
use text::{Csv, Json};
use timeline::Timeline;

pub type Output = BufWriter<File>;

pub struct About<'a> {
    /// The models, in the order of predictions.
    pub models: Vec<&'static str>,
    pub options: &'a AnalysisOptions,
    pub profile: &'a HostProfile,
    /// The machine that was traced, where that is known.
    pub host: Option<&'a HostFacts>,
    /// The output's name says that it is gzipped.
    pub packed: bool,
}

impl About<'_> {
    /// Facts for the formats that have a place for them, by name.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("cawl_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("model", self.models.join(",")),
            ("mode", self.options.mode.name().to_owned()),
            ("learn", self.options.learn.to_string()),
            ("profile", self.profile.name.clone()),
            ("page_bytes", self.profile.kernel.page.0.to_string()),
        ];
        if let Some(host) = self.host {
            facts.extend([
                ("host", host.host.clone()),
                ("kernel", host.kernel.clone()),
                ("cpus", host.cpus.to_string()),
                ("memory_bytes", host.memory.0.to_string()),
                ("traced_at_ns", host.started.0.to_string()),
                ("traced_at_unix_s", host.wall_clock.to_string()),
            ]);
        }
        facts
    }
}

/// Writes a trace in one format.
pub trait Exporter {
    /// A record that is no call, in the order of the trace.
    fn record(&mut self, _record: &Record) -> io::Result<()> {
        Ok(())
    }

    /// A call, in the order of the trace.
    fn call(&mut self, call: &Call<'_>) -> io::Result<()>;

    /// The end; `notes` is what a reader must know: damage, losses.
    fn finish(&mut self, report: &Report, notes: &[String]) -> io::Result<()>;

    /// After the end: what of the calls the format could not hold, a line for each kind.
    fn losses(&self) -> Vec<String> {
        Vec::new()
    }
}

/// True of a file that an exporter wrote, which begins and ends so.
pub fn is_one(head: &str, tail: &str) -> bool {
    let of_json = ["{\"call\":", "\"start_ns\":", "\"duration_ns\":", "\"op\":\""];
    head.strip_prefix(&header()).is_some_and(|more| more.starts_with(','))
        || head.split(',').zip(of_json).filter(|(cell, begin)| cell.starts_with(begin)).count()
            == of_json.len()
        || head.starts_with(chrome::BEGIN) && head.contains(timeline::PAGE_CACHE)
        || head.starts_with("PAR1") && tail.ends_with("PAR1") && tail.contains("cawl.cawl_version")
        || stacks::is_one(head)
        || darshan::is_one(head, tail)
        || dftracer::is_one(head)
        || strace::is_one(head)
        || otlp::is_one(head)
        || head.starts_with(fio::BEGIN)
        || head.starts_with('\n') && head.contains(timeline::PAGE_CACHE) && head.contains("cawl_version")
}

pub fn exporter(format: ExportFormat, out: Output, about: &About<'_>) -> io::Result<Box<dyn Exporter>> {
    let (columns, page) = (Columns::new(&about.models), about.profile.kernel.page);
    Ok(match format {
        ExportFormat::Folded | ExportFormat::Pprof | ExportFormat::Speedscope => {
            Box::new(Stacks { format, out })
        }
        ExportFormat::Csv => Box::new(Csv::new(columns, out)?),
        ExportFormat::Json => Box::new(Json { columns, out }),
        ExportFormat::Parquet => {
            Box::new(Parquet::new(Arc::new(columns), out, about.facts(), Parquet::<Output>::GROUP)?)
        }
        ExportFormat::Chrome => Box::new(Timeline::new(Chrome::new(columns, out, about)?, page)),
        ExportFormat::Perfetto => Box::new(Timeline::new(Perfetto::new(columns, out, about)?, page)),
        ExportFormat::Darshan => Box::new(Darshan::new(out, about)?),
        ExportFormat::Dftracer => Box::new(DfTracer::new(out, about)?),
        ExportFormat::Strace => Box::new(Strace::new(out, about)),
        ExportFormat::FioIolog => Box::new(Fio::new(out)?),
        ExportFormat::Otlp => Box::new(Otlp::new(out, about)),
    })
}

impl Exporter for Parquet<Output> {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        Parquet::call(self, call)
    }

    fn finish(&mut self, _report: &Report, notes: &[String]) -> io::Result<()> {
        let notes = (!notes.is_empty()).then(|| ("notes", notes.join("\n")));
        Parquet::finish(self, notes.into_iter().collect()).map(drop)
    }
}
