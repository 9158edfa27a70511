//! Where in the program the time went, for the viewers of profiles: folded lines, pprof, speedscope.
//!
//! In all of them a way through the program is its functions, then the operation, then a cause of its time.

use std::collections::BTreeMap;
use std::io::{self, Write};

use cawl_core::{Cause, Frame, Report, StackReport, StackRow};
use flate2::{Compression, GzBuilder};
use prost::Message;
use serde_json::json;

use super::{Call, Exporter, Output, folded_way};

/// Stands in the head of a packed profile.
pub const PPROF: &str = "cawl-cli pprof";

/// True of folded lines that begin so.
pub fn is_folded(head: &str) -> bool {
    let told = || {
        let (way, ns) = head.lines().next()?.rsplit_once("] ")?;
        let cause = way.rsplit_once(";[")?.1;
        Some(cause.parse::<Cause>().is_ok() && ns.parse::<u64>().is_ok())
    };
    told() == Some(true)
}

/// Writes the sums by stack when all calls are known.
pub struct Stacks {
    pub out: Output,
    pub write: fn(&mut Output, &Report, &StackReport, &[String]) -> io::Result<()>,
}

impl Exporter for Stacks {
    fn call(&mut self, _call: &Call<'_>) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, report: &Report, notes: &[String]) -> io::Result<()> {
        let none = StackReport::default();
        let stacks = report.explain.as_ref().and_then(|explain| explain.stacks.as_ref()).unwrap_or(&none);
        (self.write)(&mut self.out, report, stacks, notes)?;
        self.out.flush()
    }
}

/// The time of a row by cause, in ns, largest first.
fn causes(row: &StackRow) -> Vec<(&'static str, u64)> {
    let ns = |cause: &Cause| (row.causes.get(cause.name()).copied().unwrap_or(0.0) * 1e9).round() as u64;
    let parts = Cause::ALL.iter().map(|cause| (cause.name(), ns(cause)));
    let mut parts: Vec<_> = parts.filter(|(_, ns)| *ns > 0).collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    parts
}

/// A line for each way and cause, with ns at its end: for flamegraph.pl, inferno and others.
pub fn folded(out: &mut Output, _: &Report, stacks: &StackReport, _: &[String]) -> io::Result<()> {
    for row in &stacks.rows {
        let way = folded_way(&row.frames, row.truncated);
        let way = if way.is_empty() { String::new() } else { way + ";" };
        for (cause, ns) in causes(row) {
            writeln!(out, "{way}{};[{cause}] {ns}", row.op)?;
        }
    }
    Ok(())
}

/// The format of <https://www.speedscope.app>: what the calls took, and what they lost.
pub fn speedscope(out: &mut Output, report: &Report, stacks: &StackReport, _: &[String]) -> io::Result<()> {
    let mut numbers: BTreeMap<Frame, usize> = BTreeMap::new();
    let mut frames = Vec::new();
    let mut number = |frame: &Frame| {
        *numbers.entry(Frame { module: None, inlined: false, ..frame.clone() }).or_insert_with(|| {
            frames.push(json!({ "name": frame.name(), "file": frame.file, "line": frame.line }));
            frames.len() - 1
        })
    };
    let leaf = |name: &str| Frame { function: Some(name.to_owned()), ..Frame::default() };
    let (mut ways, mut times, mut whole, mut losses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in &stacks.rows {
        let cut = row.truncated.then(|| leaf("[truncated]"));
        let way: Vec<usize> = cut
            .iter()
            .chain(row.frames.iter().rev().filter(|frame| !frame.is_start()))
            .chain([&leaf(&row.op)])
            .map(&mut number)
            .collect();
        for (cause, ns) in causes(row) {
            ways.push([&way[..], &[number(&leaf(&format!("[{cause}]")))]].concat());
            times.push(ns);
        }
        losses.push((row.lost_s.max(0.0) * 1e9).round() as u64);
        whole.push(way);
    }
    let profile = |name: &str, samples: Vec<Vec<usize>>, weights: Vec<u64>| {
        let end = weights.iter().sum::<u64>();
        json!({
            "type": "sampled", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": end,
            "samples": samples, "weights": weights,
        })
    };
    let profiles = [profile("time in calls", ways, times), profile("time lost", whole, losses)];
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": report.command,
        "exporter": concat!("cawl-cli ", env!("CARGO_PKG_VERSION")),
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    Ok(serde_json::to_writer(out, &file)?)
}

/// The format of <https://github.com/google/pprof> (proto/profile.proto), gzipped: calls, time, and time
/// lost. A sample has its cause as the label `cause`; calls and what was lost are under the largest one.
pub fn pprof(out: &mut Output, report: &Report, stacks: &StackReport, notes: &[String]) -> io::Result<()> {
    let mut made = Maker::default();
    made.string("");
    let kinds = [("calls", "count"), ("time", "nanoseconds"), ("lost", "nanoseconds")];
    let sample_type =
        kinds.map(|(kind, unit)| ValueType { kind: made.string(kind), unit: made.string(unit) });
    let key = made.string("cause");
    let mut samples = Vec::new();
    for row in &stacks.rows {
        let op = Frame { function: Some(row.op.clone()), ..Frame::default() };
        let location_id: Vec<u64> = [&op]
            .into_iter()
            .chain(row.frames.iter().filter(|frame| !frame.is_start()))
            .map(|frame| made.location(frame))
            .collect();
        for (at, (cause, ns)) in causes(row).into_iter().enumerate() {
            let (calls, lost) = if at == 0 { (row.calls, row.lost_s.max(0.0) * 1e9) } else { (0, 0.0) };
            let value = vec![calls as i64, ns as i64, lost as i64];
            let label = vec![Label { key, text: made.string(cause) }];
            samples.push(Sample { location_id: location_id.clone(), value, label });
        }
    }
    let comment = notes.iter().map(|note| made.string(note)).collect();
    let started = report.host.as_ref().map_or(0, |host| host.wall_clock as i64 * 1_000_000_000);
    let default_sample_type = made.string("time");
    let profile = Profile {
        sample_type: sample_type.into(),
        sample: samples,
        location: made.locations,
        function: made.functions,
        string_table: made.strings,
        time_nanos: started,
        duration_nanos: (report.span_s * 1e9) as i64,
        comment,
        default_sample_type,
    };
    let mut packed = GzBuilder::new().comment(PPROF).write(out, Compression::default());
    packed.write_all(&profile.encode_to_vec())?;
    packed.finish().map(drop)
}

/// What a profile's messages refer to by number.
#[derive(Default)]
struct Maker {
    strings: Vec<String>,
    texts: BTreeMap<String, i64>,
    functions: Vec<Function>,
    locations: Vec<Location>,
    known: BTreeMap<Frame, u64>,
}

impl Maker {
    fn string(&mut self, text: &str) -> i64 {
        let next = self.strings.len() as i64;
        let number = *self.texts.entry(text.to_owned()).or_insert(next);
        if number == next {
            self.strings.push(text.to_owned());
        }
        number
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(id) = self.known.get(frame) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        let name = self.string(&frame.name());
        let filename = self.string(frame.file.as_deref().or(frame.module.as_deref()).unwrap_or(""));
        self.functions.push(Function { id, name, system_name: name, filename });
        let line = Line { function_id: id, line: frame.line.unwrap_or(0).into() };
        self.locations.push(Location { id, line: vec![line] });
        self.known.insert(frame.clone(), id);
        id
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_break_its_line() {
        let frame = |name: &str| Frame { function: Some(name.to_owned()), ..Frame::default() };
        let frames = [frame("a;b\nc"), frame("main")];
        assert_eq!(folded_way(&frames, false), "main;a:b c");
        assert_eq!(folded_way(&frames, true), "[truncated];main;a:b c");
    }

    #[test]
    fn strings_and_locations_are_told_once() {
        let mut made = Maker::default();
        assert_eq!([made.string(""), made.string("x"), made.string(""), made.string("x")], [0, 1, 0, 1]);
        let frame = Frame { function: Some("x".to_owned()), line: Some(7), ..Frame::default() };
        assert_eq!([made.location(&frame), made.location(&frame)], [1, 1]);
        assert_eq!((made.locations.len(), made.functions.len(), made.locations[0].line[0].line), (1, 1, 7));
    }
}
