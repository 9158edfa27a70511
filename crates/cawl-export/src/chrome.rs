//! The JSON of Chrome's trace viewer: complete events (X), counters (C) and names (M).

use std::io::{self, Write};

use serde_json::{Map, json};

use super::timeline::{Counter, Format, PAGE_CACHE, ThreadTrack, category, slice_name};
use super::{About, Call, Columns, Output, Value};

/// How the file begins.
pub const BEGIN: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
/// The process that has the counters.
const MACHINE: u32 = 0;
/// More than any thread's number: that of a further track is the thread's plus a multiple of this.
const THREADS: u64 = 1 << 22;

/// A timeline for chrome://tracing and for what else reads its JSON.
pub struct Chrome {
    columns: Columns,
    out: Output,
    facts: Map<String, serde_json::Value>,
}

impl Chrome {
    pub fn new(columns: Columns, mut out: Output, about: &About<'_>) -> io::Result<Chrome> {
        out.write_all(BEGIN.as_bytes())?;
        let facts = about.facts().into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let mut chrome = Chrome { columns, out, facts: facts.collect() };
        // The first event is the only one without a comma before it.
        let machine = json!({
            "ph": "M", "name": "process_name", "pid": MACHINE, "tid": 0, "args": { "name": PAGE_CACHE }
        });
        write!(chrome.out, "{machine}")?;
        Ok(chrome)
    }

    fn event(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(b",\n")?;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }

    fn name(&mut self, what: &str, pid: u32, tid: u64, name: &str) -> io::Result<()> {
        self.event(&json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } }))
    }
}

impl Format for Chrome {
    fn track(&mut self, track: ThreadTrack) -> io::Result<()> {
        let ThreadTrack { pid, tid, number } = track;
        if number == 0 {
            return Ok(());
        }
        let name = format!("{tid}, overlapping calls {number}");
        self.name("thread_name", pid, thread_number(track), &name)
    }

    fn program(&mut self, pid: u32, program: &str) -> io::Result<()> {
        self.name("process_name", pid, pid.into(), program)?;
        self.name("thread_name", pid, pid.into(), program)
    }

    fn call(&mut self, track: ThreadTrack, call: &Call<'_>) -> io::Result<()> {
        let event = call.event;
        let cause = call.causes.map(|causes| causes.main());
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"{}\",\"cat\":\"{}\",\"args\":{{",
            track.pid,
            thread_number(track),
            Micros(event.start),
            Micros(event.duration),
            slice_name(event.op, cause),
            category(cause),
        )?;
        for (at, (name, value)) in self.columns.arguments(call).enumerate() {
            write!(self.out, "{}\"{name}\":", if at == 0 { "" } else { "," })?;
            match value {
                Value::Null => self.out.write_all(b"null")?,
                Value::Int(value) => write!(self.out, "{value}")?,
                Value::Bool(value) => write!(self.out, "{value}")?,
                Value::Text(text) => serde_json::to_writer(&mut self.out, text)?,
            }
        }
        self.out.write_all(b"}}")
    }

    fn counter(&mut self, counter: Counter, at: u64, value: u64) -> io::Result<()> {
        let (name, unit) = (counter.name(), if counter.is_level() { "bytes" } else { "bytes/s" });
        write!(
            self.out,
            ",\n{{\"ph\":\"C\",\"pid\":{MACHINE},\"ts\":{},\"name\":\"{name}\",\"args\":{{\"{unit}\":{value}}}}}",
            Micros(at)
        )
    }

    fn finish(&mut self, _at: u64, notes: &[String]) -> io::Result<()> {
        if !notes.is_empty() {
            self.facts.insert("notes".to_owned(), notes.into());
        }
        self.out.write_all(b"\n],\"otherData\":")?;
        serde_json::to_writer(&mut self.out, &self.facts)?;
        self.out.write_all(b"}\n")?;
        self.out.flush()
    }
}

fn thread_number(track: ThreadTrack) -> u64 {
    u64::from(track.tid) + u64::from(track.number) * THREADS
}

/// Nanoseconds, shown in microseconds without loss.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
