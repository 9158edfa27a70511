//! Calls of one thread on one file: made and timed, shown to the models, and both set side by side.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_console::compact;
use cawl_core::{Density, HostProfile, MODELS, Nanos, OpenLoop, quantile};
use cawl_host::direct::AlignedBuffer;
use cawl_measure::interrupt::Interrupted;
use cawl_wire::{ADVICE_DONTNEED, Event, FileKind, Op};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::{Serialize, Serializer};

use super::Bench;

/// Bytes of a write that makes a file, unless its calls are the study's.
pub const PIECE: u64 = 1 << 20;
/// Fewest calls of a cell in a repetition, whatever they take.
pub const FEWEST: usize = 8;
/// Fewest calls from which on modes of their cost are told.
const MODES_OF: usize = 100;
/// Ranges of a file that [`Op::Resident`] tells of, and the unit of their length.
const RANGES: u64 = 64;
const PAGE: u64 = 4096;

/// Writes a file in calls of `size`.
pub fn fill(bench: &Bench, file: &File, length: u64, size: u64) -> anyhow::Result<()> {
    let data = AlignedBuffer::new(size as usize);
    for at in (0..length).step_by(size as usize) {
        if at % PIECE == 0 {
            Interrupted::by(bench.signal)?;
        }
        file.write_all_at(data.bytes(), at)?;
    }
    Ok(())
}

/// Drops a file that was synchronised from the page cache.
pub fn drop_cached(file: &File) -> anyhow::Result<()> {
    Ok(posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

/// Makes calls at these places for `seconds`, at least [`FEWEST`]; the time of each, in ns.
pub fn timed(
    bench: &Bench,
    offsets: &[u64],
    seconds: f64,
    mut call: impl FnMut(u64) -> std::io::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let started = cawl_host::now();
    let mut times = Vec::with_capacity(offsets.len());
    for at in offsets {
        if times.len() >= FEWEST && cawl_host::now().since(started).as_seconds() > seconds {
            break;
        }
        Interrupted::by(bench.signal)?;
        let start = cawl_host::now();
        call(*at)?;
        times.push(cawl_host::now().since(start).get());
    }
    Ok(times)
}

/// What was made of a cell; None if O_DIRECT is not supported, or not for blocks of this size.
pub fn unless_refused<T>(made: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    let code = |error: &anyhow::Error| error.downcast_ref::<std::io::Error>()?.raw_os_error();
    let refusals = [nix::Error::EINVAL, nix::Error::EOPNOTSUPP].map(|refusal| Some(refusal as i32));
    match made {
        Err(error) if refusals.contains(&code(&error)) => Ok(None),
        made => made.map(Some),
    }
}

/// What a model predicts of one thread's calls on a file, in open loop.
pub struct Shown(OpenLoop);

impl Shown {
    /// Nothing, yet, to the model of this name.
    pub fn to(model: &str, profile: &HostProfile) -> anyhow::Result<Shown> {
        OpenLoop::new(model, profile).map(Shown).context("there is no such model")
    }

    /// What the next call takes, in ns.
    pub fn step(&mut self, event: Event) -> f64 {
        self.0.cost(event).get()
    }

    /// Writes a file in calls of `size`.
    pub fn fill(&mut self, length: u64, size: u64, flags: u32) {
        for at in (0..length).step_by(size as usize) {
            self.step(write(at, size, flags));
        }
    }

    /// Synchronises the file.
    pub fn sync(&mut self) -> f64 {
        self.step(call(Op::Fsync))
    }

    /// Tells what of the file is cached, all or nothing, as the tracer does before the first read.
    pub fn tell(&mut self, length: u64, is_cached: bool) {
        let pages = length.div_ceil(PAGE).div_ceil(RANGES);
        let (ranges, bytes) = if is_cached { (u64::MAX, length as i64) } else { (0, 0) };
        self.step(Event { offset: pages * PAGE, requested: ranges, returned: bytes, ..call(Op::Resident) });
    }

    /// Drops it from the page cache.
    pub fn drop_cached(&mut self) {
        self.step(Event { aux: ADVICE_DONTNEED, ..call(Op::Advise) });
    }
}

/// A call on the file.
pub fn call(op: Op) -> Event {
    let mut event = Event::new(op);
    (event.dev, event.ino, event.pid, event.tid) = (1, 1, 1, 1);
    (event.kind, event.offset) = (FileKind::Regular, 0);
    event
}

pub fn read(offset: u64, bytes: u64, flags: u32) -> Event {
    Event { offset, requested: bytes, returned: bytes as i64, flags, ..call(Op::Pread) }
}

pub fn write(offset: u64, bytes: u64, flags: u32) -> Event {
    Event { op: Op::Pwrite, ..read(offset, bytes, flags) }
}

/// A figure of each model, in the order of reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ByModel(Vec<f64>);

impl ByModel {
    pub fn of(figure: impl FnMut(&'static str) -> anyhow::Result<f64>) -> anyhow::Result<ByModel> {
        MODELS.iter().copied().map(figure).collect::<anyhow::Result<_>>().map(ByModel)
    }

    /// That of a model; not a number if there is no such model.
    pub fn get(&self, model: &str) -> f64 {
        self.iter().find(|(name, _)| *name == model).map_or(f64::NAN, |(_, figure)| figure)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        MODELS.iter().copied().zip(self.0.iter().copied())
    }
}

impl Serialize for ByModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The calls of a cell, observed and predicted, in ns.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    pub calls: usize,
    /// Median.
    pub observed: f64,
    p10: f64,
    p90: f64,
    pub mean: f64,
    #[serde(flatten)]
    pub predicted: ByModel,
    /// Where each mode of the observed times is highest, and its share of the calls.
    pub modes: Vec<(f64, f64)>,
}

impl Timed {
    /// Modes are those of the times over `unit`.
    pub fn new(times: &[f64], mean: f64, unit: f64, predicted: ByModel) -> Timed {
        let at = |part| quantile(times, part).unwrap_or(f64::NAN);
        let over_unit = times.iter().map(|time| Nanos::new(*time / unit));
        let density = if times.len() >= MODES_OF { Density::of(over_unit) } else { None };
        let modes = density.map(|density| density.modes).unwrap_or_default();
        Timed {
            calls: times.len(),
            observed: at(0.5),
            p10: at(0.1),
            p90: at(0.9),
            mean,
            predicted,
            modes: modes.iter().map(|mode| (mode.peak, mode.share)).collect(),
        }
    }

    /// What `kernel` predicts.
    pub fn kernel(&self) -> f64 {
        self.predicted.get("kernel")
    }

    /// First decile, median and last decile, in µs.
    pub fn spread(&self) -> [String; 3] {
        [self.p10, self.observed, self.p90].map(micros)
    }

    /// The modes, each as `peak` tells it, with its share.
    pub fn modes(&self, peak: impl Fn(f64) -> String) -> String {
        let told = self.modes.iter().map(|(at, share)| format!("{} {:.0} %", peak(*at), share * 100.0));
        told.collect::<Vec<_>>().join(", ")
    }
}

/// A time in ns as µs.
pub fn micros(ns: f64) -> String {
    compact::three(ns / 1e3)
}

/// How far one figure is above another one.
pub fn off(one: f64, other: f64) -> String {
    format!("{:+.0} %", (one / other - 1.0) * 100.0)
}

/// The header of a table with two columns for each model.
pub fn with_models(head: &[&str], rest: &[&str]) -> Vec<String> {
    let models = MODELS.iter().flat_map(|model| [*model, "off"]);
    head.iter().copied().chain(models).chain(rest.iter().copied()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_failures() {
        let made = |error: anyhow::Error| unless_refused(Err::<(), _>(error));
        let of = |code: nix::Error| {
            made(
                anyhow::Error::from(std::io::Error::from_raw_os_error(code as i32)).context("cannot open it"),
            )
        };
        assert!(of(nix::Error::EINVAL).unwrap().is_none() && of(nix::Error::EOPNOTSUPP).unwrap().is_none());
        assert!(of(nix::Error::ENOSPC).is_err() && made(anyhow::anyhow!("something else")).is_err());
        assert!(unless_refused(Ok(())).unwrap().is_some());
    }
}
