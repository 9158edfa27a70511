//! Exporters: calls in the formats of other programs. Tables (csv, JSON, Parquet), timelines (Perfetto,
//! Chrome), stacks, OpenTelemetry, and what other recorders write (Darshan, DFTracer, strace, fio).
//!
//! The law of this crate: **a call is written when it has been analysed, and forgotten.** What an exporter
//! keeps grows with the number of files, threads and processes, not with the number of calls. The daemon
//! writes tables and spans, too: by the same [`Columns`] and [`otlp::Spans`].
#![forbid(unsafe_code)]

mod call;
mod chrome;
mod columns;
mod darshan;
mod dftracer;
mod fio;
pub mod otlp;
mod parquet;
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

pub use call::{Call, Told, folded_way, unnamed};
use chrome::Chrome;
pub use columns::{Column, Columns, Kind, Value, header};
use darshan::Darshan;
use dftracer::DfTracer;
use fio::Fio;
use otlp::Otlp;
pub use parquet::Parquet;
use perfetto::Perfetto;
use stacks::{Stacks, folded, pprof, speedscope};
use strace::Strace;
use text::{Csv, Json};
use timeline::{PAGE_CACHE, Timeline};

/// The file that is written.
pub type Output = BufWriter<File>;

/// What formats tell beside calls.
pub struct About<'a> {
    /// The models, in the order of predictions.
    pub models: Vec<&'static str>,
    /// How the calls are analysed.
    pub options: &'a AnalysisOptions,
    /// The profile that they are analysed by.
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

    fn columns(&self) -> Columns {
        Columns::new(&self.models)
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

/// A format of an export.
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// What it is, and for which programs.
    pub what: &'static str,
    /// False if it is text.
    pub is_binary: bool,
    /// True if it has the time by stack, not each call.
    pub by_stack: bool,
    /// True of a file of this format that we wrote, which begins and ends so.
    is: fn(&str, &str) -> bool,
    make: fn(Output, &About<'_>) -> io::Result<Box<dyn Exporter>>,
}

impl Format {
    const fn new(
        (name, what): (&'static str, &'static str),
        is: fn(&str, &str) -> bool,
        make: fn(Output, &About<'_>) -> io::Result<Box<dyn Exporter>>,
    ) -> Format {
        Format { name, what, is_binary: false, by_stack: false, is, make }
    }

    const fn binary(self) -> Format {
        Format { is_binary: true, ..self }
    }

    const fn by_stack(self) -> Format {
        Format { by_stack: true, ..self }
    }

    /// Begins a file.
    pub fn begin(&self, out: Output, about: &About<'_>) -> io::Result<Box<dyn Exporter>> {
        (self.make)(out, about)
    }
}

/// All formats.
pub static FORMATS: [Format; 13] = [
    Format::new(
        ("perfetto", "Timeline for ui.perfetto.dev and trace_processor"),
        |head, _| head.starts_with('\n') && head.contains(PAGE_CACHE) && head.contains("cawl_version"),
        |out, about| timeline(Perfetto::new(about.columns(), out, about)?, about),
    )
    .binary(),
    Format::new(
        ("chrome", "Timeline as JSON, for chrome://tracing and many others"),
        |head, _| head.starts_with(chrome::BEGIN) && head.contains(PAGE_CACHE),
        |out, about| timeline(Chrome::new(about.columns(), out, about)?, about),
    ),
    Format::new(
        ("csv", "Table with a header; `import` reads it"),
        |head, _| head.strip_prefix(&header()).is_some_and(|more| more.starts_with(',')),
        |out, about| Ok(Box::new(Csv::new(about.columns(), out)?)),
    ),
    Format::new(
        ("json", "Table, one object a line"),
        |head, _| text::is_json(head),
        |out, about| Ok(Box::new(Json { columns: about.columns(), out })),
    ),
    Format::new(
        ("parquet", "Table for DuckDB, pandas and others"),
        |head, tail| head.starts_with("PAR1") && tail.ends_with("PAR1") && tail.contains("cawl.cawl_version"),
        |out, about| {
            let (columns, facts) = (Arc::new(about.columns()), about.facts());
            Ok(Box::new(Parquet::new(columns, Box::new(out), facts, Parquet::GROUP)?))
        },
    )
    .binary(),
    Format::new(
        ("folded", "Time by stack (`run --stacks`), a line each, for flamegraph.pl and inferno"),
        |head, _| stacks::is_folded(head),
        |out, _| Ok(Box::new(Stacks { out, write: folded })),
    )
    .by_stack(),
    Format::new(
        ("pprof", "Time by stack, for pprof"),
        |head, _| head.starts_with('\u{1f}') && head.contains(stacks::PPROF),
        |out, _| Ok(Box::new(Stacks { out, write: pprof })),
    )
    .by_stack()
    .binary(),
    Format::new(
        ("speedscope", "Time by stack, for speedscope.app"),
        |head, _| {
            head.starts_with("{\"$schema\":\"https://www.speedscope.app")
                && head.contains("\"exporter\":\"cawl-cli")
        },
        |out, _| Ok(Box::new(Stacks { out, write: speedscope })),
    )
    .by_stack(),
    Format::new(
        ("darshan", "A log of Darshan with DXT, for PyDarshan and darshan-parser"),
        darshan::is_one,
        |out, about| Ok(Box::new(Darshan::new(out, about)?)),
    )
    .binary(),
    Format::new(
        ("dftracer", "DFTracer's JSON lines, for DFAnalyzer; -o FILE.pfw.gz is gzipped"),
        |head, _| dftracer::is_one(head),
        |out, about| Ok(Box::new(DfTracer::new(out, about)?)),
    ),
    Format::new(
        ("strace", "Lines of `strace -f -ttt -T -y`; `import` reads them"),
        |head, _| strace::is_one(head),
        |out, about| Ok(Box::new(Strace::new(out, about))),
    ),
    Format::new(
        ("fio-iolog", "fio's log, version 3, for `fio --read_iolog`"),
        |head, _| head.starts_with(fio::BEGIN),
        |out, _| Ok(Box::new(Fio::new(out)?)),
    ),
    Format::new(
        ("otlp", "OpenTelemetry's traces as JSON (OTLP): processes, and the calls that lost most"),
        |head, _| head.starts_with("{\"resourceSpans\":") && head.contains("\"cawl."),
        |out, about| Ok(Box::new(Otlp::new(out, about))),
    ),
];

fn timeline(format: impl timeline::Format + 'static, about: &About<'_>) -> io::Result<Box<dyn Exporter>> {
    Ok(Box::new(Timeline::new(format, about.profile.kernel.page)))
}

/// True of a file that an exporter wrote, which begins and ends so.
pub fn is_one(head: &str, tail: &str) -> bool {
    FORMATS.iter().any(|format| (format.is)(head, tail))
}
