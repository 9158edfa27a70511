//! A run to a database, by `cawl-ship`, so that this program has no database's library.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, anyhow};
use cawl_core::Record;
use cawl_host::spool::shipper;
use cawl_host::trace::TraceReader;
use serde_json::{Map, Value};

use super::saved::SavedTrace;

/// `cawl-ship`, which reads a csv and then the run's facts, without which it keeps nothing.
pub struct ToDatabase {
    run: String,
    child: Child,
    csv: Option<ChildStdin>,
}

impl ToDatabase {
    pub fn open(trace: &SavedTrace, address: &str) -> anyhow::Result<ToDatabase> {
        let program = shipper().context("a database needs it")?;
        let run = name(trace)?;
        let mut command = Command::new(&program);
        // A process list shows arguments, and an address may have a password.
        command.args(["-", "--run", &run]).env("CAWL_SHIP_TO", address).stdin(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let csv = child.stdin.take();
        Ok(ToDatabase { run, child, csv })
    }

    /// Where the csv goes.
    pub fn file(&self) -> io::Result<File> {
        let csv = self.csv.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(File::from(csv.as_fd().try_clone_to_owned()?))
    }

    /// Ends the csv with the run's facts; returns the name of the run, which is in the database then.
    pub fn keep(
        mut self,
        calls: u64,
        facts: Vec<(&'static str, String)>,
        notes: &[String],
    ) -> anyhow::Result<String> {
        let mut all: Map<String, Value> =
            facts.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        all.insert("calls".to_owned(), calls.into());
        if !notes.is_empty() {
            all.insert("notes".to_owned(), notes.join("\n").into());
        }
        let told = self.csv.take().map(|mut csv| writeln!(csv, "#end {}", Value::Object(all)));
        let ended = self.child.wait()?;
        if !ended.success() {
            return Err(failed());
        }
        told.transpose()?;
        Ok(std::mem::take(&mut self.run))
    }
}

impl Drop for ToDatabase {
    /// What was not kept is not in the database.
    fn drop(&mut self) {
        if !self.run.is_empty() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// `cawl-ship` has said why.
fn failed() -> anyhow::Error {
    anyhow!("the run is not in the database: nothing of it was kept")
}

/// The run's name, by what the trace says: a trace that has grown keeps it, and so does one with other
/// models.
fn name(trace: &SavedTrace) -> anyhow::Result<String> {
    let about = || trace.about();
    let mut first = 0;
    for record in TraceReader::open(trace.path()).with_context(about)? {
        if let Record::Event(event) = record.with_context(about)? {
            first = event.start;
            break;
        }
    }
    let of_host = trace.host().map(|host| format!("{}-{}-{}", host.host, host.wall_clock, host.started.0));
    let of_file = || trace.path().file_name().map(|name| name.to_string_lossy().into_owned());
    let begin = of_host.or_else(of_file).unwrap_or_default();
    Ok(format!("{begin}-{first}"))
}
