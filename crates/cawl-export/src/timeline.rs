//! What the two timelines share: a track for each thread, and the counters of dirty pages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use cawl_core::{Bytes, Cause, Record, Report, Sample, named};
use cawl_wire::Op;
use rustc_hash::FxHashMap;

use super::{Call, Exporter};

/// What has the counters.
pub const PAGE_CACHE: &str = "page cache";

named! {
    /// A counter of pages, in the order of timelines.
    Counter {
        /// The kernel's dirty level.
        Dirty = "dirty, sampled",
        /// The dirty level of the first model.
        Modelled = "dirty, modelled",
        Background = "background limit",
        Hard = "hard limit",
        /// Bytes made dirty per second.
        Dirtied = "dirtied",
        /// Bytes written back per second.
        Written = "written back",
    }
}

impl Counter {
    /// True for a level, in bytes; else it is a rate, in bytes per second.
    pub const fn is_level(self) -> bool {
        !matches!(self, Counter::Dirtied | Counter::Written)
    }
}

/// Where calls of a thread are drawn. Those that overlap and do not lie one in the other, as of an imported
/// table without threads, have further tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadTrack {
    pub pid: u32,
    pub tid: u32,
    /// 0 for the thread's own track.
    pub number: u32,
}

pub trait Format {
    /// There is this track; the thread's own comes first.
    fn track(&mut self, track: ThreadTrack) -> io::Result<()>;

    fn call(&mut self, track: ThreadTrack, call: &Call<'_>) -> io::Result<()>;

    /// From `at` on a counter has this value.
    fn counter(&mut self, counter: Counter, at: u64, value: u64) -> io::Result<()>;

    /// What a process ran last; told at the end, since Perfetto keeps the first name that it is told.
    fn program(&mut self, pid: u32, program: &str) -> io::Result<()>;

    /// The end, at this time.
    fn finish(&mut self, at: u64, notes: &[String]) -> io::Result<()>;
}

/// Name of a call in a timeline, which is also its colour: the operation, and what took most of its time.
pub fn slice_name(op: Op, cause: Option<Cause>) -> Cow<'static, str> {
    match cause {
        Some(cause) => format!("{} · {}", op.name(), cause.name()).into(),
        None => op.name().into(),
    }
}

pub fn category(cause: Option<Cause>) -> &'static str {
    cause.map_or("none", Cause::name)
}

/// Least time between two values of the modelled level, in ns: finer than the kernel's samples.
const APART: u64 = 1_000_000;

pub struct Timeline<F> {
    format: F,
    page: Bytes,
    programs: BTreeMap<u32, String>,
    threads: FxHashMap<(u32, u32), Vec<OpenCalls>>,
    latest: Option<Sample>,
    modelled: Option<u64>,
    end: u64,
}

/// The calls of a track that are not over: each lies in the one before.
#[derive(Default)]
struct OpenCalls {
    began: u64,
    ends: Vec<u64>,
}

impl OpenCalls {
    /// Takes the call if it overlaps no other, or lies in one.
    fn takes(&mut self, start: u64, end: u64) -> bool {
        let open = self.ends.iter().rposition(|open| *open > start).map_or(0, |last| last + 1);
        let fits = start >= self.began && open.checked_sub(1).is_none_or(|last| end <= self.ends[last]);
        if fits {
            self.ends.truncate(open);
            self.ends.push(end);
            self.began = start;
        }
        fits
    }
}

impl<F: Format> Timeline<F> {
    /// A timeline in this format, of a machine with pages of this many bytes.
    pub fn new(format: F, page: Bytes) -> Timeline<F> {
        Timeline {
            format,
            page,
            programs: BTreeMap::new(),
            threads: FxHashMap::default(),
            latest: None,
            modelled: None,
            end: 0,
        }
    }

    /// The track for a call, which is told first if it is new.
    fn track(&mut self, pid: u32, tid: u32, start: u64, end: u64) -> io::Result<ThreadTrack> {
        let tracks = self.threads.entry((pid, tid)).or_default();
        let found = tracks.iter_mut().position(|open| open.takes(start, end));
        let number = found.unwrap_or_else(|| {
            tracks.push(OpenCalls { began: start, ends: vec![end] });
            tracks.len() - 1
        });
        let track = ThreadTrack { pid, tid, number: number as u32 };
        if found.is_none() {
            self.format.track(track)?;
        }
        Ok(track)
    }
}

impl<F: Format> Timeline<F> {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        let (at, page) = (sample.time.0, self.page);
        let limits = sample.limits(page);
        for (counter, value) in [
            (Counter::Dirty, sample.dirty_bytes(page)),
            (Counter::Background, limits.background),
            (Counter::Hard, limits.hard),
        ] {
            self.format.counter(counter, at, value.0)?;
        }
        // A rate holds from the sample before on.
        if let Some(before) = self.latest.replace(*sample)
            && let Some(span) = at.checked_sub(before.time.0).filter(|span| *span > 0)
        {
            for (counter, pages) in [
                (Counter::Dirtied, sample.dirtied.checked_sub(before.dirtied)),
                (Counter::Written, sample.written.checked_sub(before.written)),
            ] {
                let bytes = pages.unwrap_or(0) as f64 * page.as_f64();
                self.format.counter(counter, before.time.0, (bytes * 1e9 / span as f64) as u64)?;
            }
        }
        self.end = self.end.max(at);
        Ok(())
    }
}

impl<F: Format> Exporter for Timeline<F> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Session(session) => drop(self.programs.insert(session.pid, session.program.clone())),
            Record::Sample(sample) => self.sample(sample)?,
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let event = call.event;
        let track = self.track(event.pid, event.tid, event.start, event.end())?;
        self.format.call(track, call)?;
        self.end = self.end.max(event.end());
        if let Some(prediction) = call.prediction()
            && self.modelled.is_none_or(|told| event.end() >= told.saturating_add(APART))
        {
            self.modelled = Some(event.end());
            self.format.counter(Counter::Modelled, event.end(), prediction.dirty.0)?;
        }
        Ok(())
    }

    fn finish(&mut self, _report: &Report, notes: &[String]) -> io::Result<()> {
        for (pid, program) in &self.programs {
            self.format.program(*pid, program)?;
        }
        self.format.finish(self.end, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_track_lie_beside_or_in_one_another() {
        let mut open = OpenCalls::default();
        for (start, end, fits) in [
            (10, 20, true),
            (20, 30, true),
            // In the call before, and in that one.
            (22, 28, true),
            (23, 23, true),
            (24, 28, true),
            // Over the end of one that is not over.
            (27, 29, false),
            (28, 31, false),
            (28, 30, true),
            (30, 31, true),
            // Before the latest.
            (29, 30, false),
            (30, 40, false),
        ] {
            assert_eq!(open.takes(start, end), fits, "{start} to {end}");
        }
    }
}
