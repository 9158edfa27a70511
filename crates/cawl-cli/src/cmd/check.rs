//! `check`: whether pages would keep what several processes write to them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cawl_core::sharing::{Sharing, Verdict};
use cawl_core::{HostFacts, Record, Time};

use super::are_same;
use super::saved::SavedTrace;
use crate::args::{CheckArgs, ModelArgs};
use crate::render::check::{Answer, TraceRead};
use crate::{exit, render};

/// Records of a trace that are read at a time.
const BATCH: usize = 4096;
/// Two clocks of a host are the same one if their begins differ by no more: the time of day is told in whole
/// seconds.
const SAME_CLOCK: i128 = 2_000_000_000;

pub fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    for (at, path) in args.traces.iter().enumerate() {
        if args.traces[..at].iter().any(|before| are_same(before, path)) {
            let why = format!("the trace {} is named twice", path.display());
            return Err(exit::Usage(why).into());
        }
    }
    let mut sources = Vec::new();
    for path in &args.traces {
        sources.push(Source::open(path)?);
    }
    let host = sources[0].host.clone();
    sources.iter_mut().for_each(|source| source.set_clock(host.as_ref()));
    let name = |source: &Source| source.host.as_ref().map(|host| host.host.clone());
    let is_one_host = name(&sources[0]).is_some() && sources.iter().all(|s| name(s) == name(&sources[0]));
    let by_path = sources.len() > 1 && !is_one_host;
    let mut sharing = Sharing::new(by_path);
    merge(&mut sources, |trace, record| sharing.take(trace, record))?;
    let report = sharing.report();
    let traces = sources.into_iter().map(Source::into_read).collect();
    let mut answer = Answer { report, files_by: if by_path { "path" } else { "identity" }, traces };
    let is_whole = answer.is_whole();
    // What is missing may be what is not safe.
    if !is_whole && answer.report.verdict != Verdict::NotSafe {
        answer.report.verdict = Verdict::NotJudged;
    }
    let is_safe = is_whole && answer.report.verdict != Verdict::NotSafe;
    let printed = render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))?;
    Ok(if is_safe { printed } else { ExitCode::from(exit::FAILED) })
}

/// Gives the records of all traces in the order of time.
fn merge(sources: &mut [Source], mut take: impl FnMut(u32, &Record)) -> anyhow::Result<()> {
    let mut turns = BinaryHeap::new();
    for (at, source) in sources.iter_mut().enumerate() {
        turns.extend(source.turn()?.map(|time| Reverse((time, at))));
    }
    while let Some(Reverse((_, at))) = turns.pop() {
        // The others' turn comes at this time.
        let until = turns.peek().map_or(Time(u64::MAX), |Reverse((time, _))| *time);
        let source = &mut sources[at];
        while let Some(time) = source.turn()? {
            if time > until {
                turns.push(Reverse((time, at)));
                break;
            }
            if let Some(record) = source.next() {
                take(at as u32, &record);
            }
        }
    }
    Ok(())
}

/// A trace that is read.
struct Source {
    path: PathBuf,
    trace: SavedTrace,
    host: Option<HostFacts>,
    records: VecDeque<Record>,
    /// What its clock lacks to that of the first trace, in ns.
    shift: i128,
    calls: u64,
}

impl Source {
    fn open(path: &Path) -> anyhow::Result<Source> {
        let trace = SavedTrace::open(path, &ModelArgs::default())?;
        let host = trace.host().cloned();
        let (path, records) = (path.to_owned(), VecDeque::new());
        Ok(Source { path, trace, host, records, shift: 0, calls: 0 })
    }

    /// Its times are on the clock of this host from now on. Another host's differ by what their times of day
    /// say.
    fn set_clock(&mut self, first: Option<&HostFacts>) {
        let begin =
            |host: &HostFacts| i128::from(host.wall_clock) * 1_000_000_000 - i128::from(host.started.0);
        let (Some(first), Some(own)) = (first, &self.host) else { return };
        let shift = begin(own) - begin(first);
        if first.host != own.host || shift.abs() > SAME_CLOCK {
            self.shift = shift;
        }
    }

    fn shifted(&self, time: u64) -> u64 {
        u64::try_from((i128::from(time) + self.shift).max(0)).unwrap_or(u64::MAX)
    }

    /// The time of the next record; 0 of one that only tells what something is.
    fn turn(&mut self) -> anyhow::Result<Option<Time>> {
        while self.records.is_empty() {
            let mut read = Vec::new();
            self.trace.read(&mut read, BATCH)?;
            if read.is_empty() {
                return Ok(None);
            }
            for mut record in read {
                match &mut record {
                    Record::Event(event) => {
                        self.calls += 1;
                        event.start = self.shifted(event.start);
                    }
                    Record::End(end) => end.at = Time(self.shifted(end.at.0)),
                    Record::Session(session) => session.started = Time(self.shifted(session.started.0)),
                    Record::File(_) | Record::Note(_) | Record::Outcome(_) => {}
                    _ => continue,
                }
                self.records.push_back(record);
            }
        }
        Ok(self.records.front().map(|record| match record {
            Record::Event(event) => Time(event.start),
            Record::End(end) => end.at,
            _ => Time(0),
        }))
    }

    fn next(&mut self) -> Option<Record> {
        self.records.pop_front()
    }

    fn into_read(self) -> TraceRead {
        TraceRead {
            path: self.path.display().to_string(),
            host: self.host.map(|host| host.host),
            calls: self.calls,
            damage: self.trace.reader.damage().describe(),
        }
    }
}
