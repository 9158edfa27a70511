//! What every cost model is, and the list of them.
//!
//! A model is a machine that is shown the program's calls one after another. Before it learns how long a
//! call took, it says how long it should take ([`CostModel::step`]); between calls it is told that time
//! passes ([`CostModel::advance`]). It has no other source of time, and never looks at an event's
//! duration in `step`.

mod block;
mod cache;
pub mod cawl;
mod folios;
pub mod kernel;
mod lru;
mod memory;
pub mod naive;
mod open_loop;
mod pages;
mod readahead;
mod share;
mod sparse;
mod stdio;
mod throttle;
mod writeback;

pub(crate) use cache::Map;
use cawl_wire::{Event, FileId};
pub use lru::LruMap;
pub use open_loop::OpenLoop;
pub(crate) use pages::PageSet;
use serde::{Deserialize, Serialize};
pub(crate) use stdio::Streams;

use crate::cause::{Cause, CostParts};
use crate::limits::DirtyLimits;
use crate::named::named;
use crate::profile::HostProfile;
use crate::record::{Filesystem, MemoryFacts};
use crate::units::{Bytes, Nanos, Rate, Time};

/// Longest pause that the kernel imposes at a time (`MAX_PAUSE`).
pub(crate) const LONGEST_PAUSE: Nanos = Nanos::millis(200.0);

/// A model of what writes cost.
pub trait CostModel: Send {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Predicts the cost of a call and takes over its effects, as if it took as long as predicted.
    ///
    /// `event.start` is the model's own time: in lockstep the observed start, in open loop the end of
    /// the thread's previous call as predicted, plus think time. Calls of other threads may overlap, so
    /// starts arrive in order but a call may begin before another's predicted end. None: the model has
    /// no opinion on the cost of this call (its effects still count).
    ///
    /// Must not read `event.duration`.
    fn step(&mut self, event: &Event) -> Option<Prediction>;

    /// A file that a call is about to be made on has this length. A model without a law of lengths ignores it.
    fn meet_file(&mut self, _file: FileId, _length: Bytes) {}

    /// Neither a name nor a descriptor leads to this file any more: what is dirty of it is never written.
    fn gone(&mut self, _file: FileId) {}

    /// Lets time pass up to `to`: the flusher works, pages expire. A moment in the past does nothing.
    /// Advancing in many small steps or one large one comes to the same, up to rounding.
    fn advance(&mut self, to: Time);

    /// Predicts the cost of a call as [`CostModel::step`] does, then takes over its effects as it really
    /// went: it was over at `end`. What the call was predicted to wait beyond that, it did not wait, and the
    /// model's clock does not go there.
    ///
    /// The prediction is made before `end` is looked at.
    fn follow(&mut self, event: &Event, end: Time) -> Option<Prediction>;

    /// Writers to this device are let through `factor` times as fast as the model thinks while they are
    /// throttled: the kernel's base rate is not what the model has in its place.
    fn correct_throttle(&mut self, _device: u64, _factor: f64) {}

    /// The dirty limits of the machine are now these.
    fn set_limits(&mut self, limits: DirtyLimits);

    /// The kernel counts other dirty pages than this model does: untraced writers, and what the
    /// model is wrong about. They count towards the limits and in [`ModelState::dirty`] from now on, until
    /// told otherwise; the model's own files stay as they are. A model without limits ignores it.
    fn disturb(&mut self, _disturbance: Disturbance) {}

    /// The disturbance as of `at`.
    fn disturbance(&self, at: Time) -> Disturbance {
        Disturbance { at, ..Disturbance::default() }
    }

    /// Bytes of the disturbance that the model has made its own since it was last asked: they are no longer in
    /// what it was told, and count as they did.
    fn take_adopted(&mut self) -> Bytes {
        Bytes::ZERO
    }

    /// The kernel has begun to write this many bytes back in the `span` before `at`. A model without a flusher
    /// ignores it.
    fn begun(&mut self, _at: Time, _bytes: f64, _span: Nanos) {}

    /// The machine has these filesystems; a model without laws of theirs ignores it.
    fn meet_filesystems(&mut self, _mounts: &[Filesystem]) {}

    /// The constants of memory, devices and calls are now those of this profile; what the model knows of the
    /// machine's state stays.
    fn recalibrate(&mut self, profile: &HostProfile);

    /// Bytes made dirty since the beginning by the calls it was shown; zero for a model that does not count.
    fn dirtied(&self) -> Bytes {
        Bytes::ZERO
    }

    /// The host has to supply the memory of new pages now, or has not, whatever the model thinks of that;
    /// None: it is not known better than by the model. One that does not tell such pages apart ignores it.
    fn supply(&mut self, _cold: Option<bool>) {}

    /// Free memory was found so. A model that does not tell cold pages apart ignores it.
    fn free_memory(&mut self, _facts: &MemoryFacts) {}

    /// What the cold pages that are free would cost in addition; None where that is not known.
    fn cold_left(&self) -> Option<Nanos> {
        None
    }

    /// This copy looks ahead: calls write no more than this at a time, however large the pieces that it is
    /// shown, and come cold as free memory lies, whatever the latest call was like.
    fn in_calls_of(&mut self, _chunk: Bytes) {}

    /// Where the modelled machine stands, at the time it was last stepped or advanced to.
    fn state(&self) -> ModelState;

    /// [`ModelState::dirty`] alone, in bytes: it is asked for before and after every call.
    fn dirty_level(&self) -> Bytes {
        self.state().dirty
    }

    /// An independent copy, for looking ahead without touching this one.
    fn fork(&self) -> Box<dyn CostModel>;

    /// This copy is asked what comes of seconds of writing, not about a moment: it may let the flusher work
    /// in larger pieces. A model that has no use for that ignores it.
    fn coarsen(&mut self) {}
}

/// Dirty bytes that a model's own files do not explain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// The moment this is true of.
    pub at: Time,
    /// Dirty bytes in the kernel less those in the model; negative where the model has too many.
    pub offset: f64,
    /// How fast the offset grows, in bytes per second; taken to do so for [`Disturbance::LASTS`] at most.
    pub drift: f64,
}

impl Disturbance {
    /// For how long a drift is believed without being confirmed.
    pub const LASTS: Nanos = Nanos::millis(200.0);

    /// The offset at a moment, in bytes.
    pub fn offset_at(&self, moment: Time) -> f64 {
        self.offset + self.drift * moment.since(self.at).min(Disturbance::LASTS).as_seconds()
    }
}

/// What a call should cost, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Its whole cost.
    pub cost: Nanos,
    /// What determined most of it.
    pub state: CallState,
    /// Where the time goes; the parts add up to `cost`.
    pub parts: CostParts,
    /// Modelled dirty bytes (dirty and under writeback) when the call ends.
    pub dirty: Bytes,
    /// 10th and 90th percentile of the cost, where the profile's uncertainties allow to tell.
    pub interval: Option<(Nanos, Nanos)>,
    /// The dirty level is one at which the kernel may make the call pause.
    pub may_pause: bool,
    /// The flusher works on the call's device.
    pub flushing: bool,
    /// A periodic commit of the journal may be under way during the call.
    pub may_commit: bool,
    /// What the call had to do, for learning constants from it; nothing where a model does not say.
    #[serde(skip)]
    pub work: Work,
}

/// What a call has to do: how often each constant counts in its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Entries into the kernel.
    pub calls: f64,
    /// Bytes copied into the page cache, while the flusher is idle and while it works; bytes that come from
    /// the processor's cache count in part.
    pub copied: [f64; 2],
    /// Bytes that count as dirty because of it.
    pub dirtied: f64,
    /// Bytes of pages allocated, while the flusher is idle and while it works.
    pub fresh: [f64; 2],
    /// Bytes that count as dirty with their folio, while the flusher is idle and while it works.
    pub padded: [f64; 2],
    /// Clean folios made dirty, while the flusher is idle and while it works.
    pub clean: [f64; 2],
    /// New folios, while the flusher is idle and while it works.
    pub folios: [f64; 2],
    /// Seconds of what is not learned, new pages apart from the latest ones and pages written over first,
    /// while the flusher is idle and while it works.
    pub believed: [f64; 2],
    /// Calls into the C library's streams.
    pub stream_calls: f64,
    /// Bytes copied into a stream's buffer.
    pub stream_bytes: f64,
    /// Bytes written to the device while the call waits.
    pub transferred: f64,
    /// Clean inodes made dirty.
    pub inodes: f64,
    /// Square root of the milliseconds since the thread's previous call into the kernel, for each way through
    /// it that the call takes anew: the copy, and new pages.
    pub away: f64,
    /// Waits for data that were submitted just before.
    pub latencies: f64,
    /// Synchronous writes waited for.
    pub syncs: f64,
    /// Of these, those that allocated blocks.
    pub allocated: f64,
    /// Commits waited for; where the cost of a flush of the device's cache is not known, that is a part of
    /// one.
    pub fsyncs: f64,
    /// Flushes of the device's cache waited for.
    pub flushes: f64,
    /// Square root of the milliseconds for which the device was idle before a wait.
    pub idle: f64,
    /// Accesses away from the previous one.
    pub seeks: f64,
    /// Requests that it made and waited for, beyond the first.
    pub requests: f64,
    /// Folios that it handed over and waited for, beyond the first.
    pub handed: f64,
    /// Seconds more that it takes if the source of a copy, or what it reads, is not cached.
    pub source: f64,
    /// Seconds more, or less if negative, that it takes if the device reads at the other of its speeds: from
    /// its own cache, or from its medium.
    pub other_speed: f64,
    /// Pages that it takes out of the cache; those of a folio beyond its first count in part.
    pub freed: f64,
    /// 1 if it frees a file of which it is not known what was cached before its first call; else 0.
    pub frees_unknown: f64,
    /// Pages that it wrote into the cache, by what it found there.
    pub met: Met,
    /// What it reads, opens and closes.
    pub read: ReadWork,
}

/// What a call has to do that reads, opens or closes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadWork {
    /// Reads that enter the kernel.
    pub calls: f64,
    /// Bytes copied out of the page cache, those from the processor's cache in part.
    pub bytes: f64,
    /// Folios beyond the first, in the processor's cache and in memory.
    pub folios: [f64; 2],
    /// Bytes of pages allocated.
    pub fresh: f64,
    /// Bytes of such pages that the device has filled and that the processor touches first.
    pub arrived: f64,
    /// Pages of the program's memory touched first.
    pub faults: f64,
    /// Square root of the milliseconds since the thread's previous call.
    pub away: f64,
    /// If it waits, it is for the transfers counted below and nothing else.
    pub told: bool,
    /// Waits for the device that no read before has begun.
    pub latencies: f64,
    /// Bytes waited for that were read past the cache.
    pub transferred: f64,
    /// Bytes waited for that were read ahead.
    pub ahead: f64,
    /// Seconds that its last request takes which is not the first of its window, if one comes after the
    /// other.
    pub later: f64,
    /// Seconds that its window takes, if it is the window's first page and a reader has waited for another
    /// since that was asked for.
    pub again: f64,
    /// Seconds before the call for which the device was busy with what it waits for.
    pub since: f64,
    /// Seconds before the call for which all was there, if it waits for nothing.
    pub there: f64,
    /// Files opened.
    pub opens: f64,
    /// Files created.
    pub creates: f64,
    /// Files closed.
    pub closes: f64,
}

impl Work {
    /// It does not enter the kernel: the bytes stay in a stream's buffer.
    pub(crate) fn stays_in_stream(&self) -> bool {
        self.stream_calls > 0.0 && self.calls == 0.0
    }

    /// It waits for a commit of the journal; a part of one is a flush whose cost is not known.
    pub(crate) fn commits(&self) -> bool {
        self.syncs + self.fsyncs >= 1.0
    }
}

/// A read that was not to wait has waited if it takes this long, in seconds, and so many times its cost.
const LATE: (f64, f64) = (20e-6, 2.0);

/// A read that took less than this part of the wait that was predicted has not met what came.
const MET: f64 = 0.1;

/// A read that `took` these seconds has waited, though it was not predicted to.
pub(crate) fn is_late(took: f64, prediction: &Prediction) -> bool {
    took > LATE.0 + LATE.1 * prediction.cost.as_seconds()
}

impl ReadWork {
    /// A read that `took` these seconds has waited for the work that it tells of, as predicted or not. What
    /// was long there is not late because of a moment; what it takes to hand a window over is no wait.
    pub(crate) fn has_waited(&self, took: f64, prediction: &Prediction) -> bool {
        let late = is_late(took, prediction);
        let waited = match self.there > 0.0 {
            true => late && took - prediction.cost.as_seconds() > self.there * MET,
            false => late || prediction.parts[Cause::Read] > Nanos::ZERO,
        };
        self.told && waited
    }

    /// A read that `took` these seconds waited over `MET` of what was predicted; else it tells a bound.
    pub(crate) fn has_met(&self, took: f64, prediction: &Prediction) -> bool {
        let waited = prediction.parts[Cause::Read].as_seconds();
        took - (prediction.cost.as_seconds() - waited) > waited * MET
    }
}

/// Pages written into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Those that had to be allocated.
    pub fresh: u32,
    /// Those that were cached and clean.
    pub cached: u32,
    /// Those that were dirty.
    pub dirty: u32,
}

impl Met {
    /// Adds so many pages, of which some had to be allocated and some were clean.
    fn add(&mut self, pages: u64, fresh: u64, cached: u64) {
        self.fresh += fresh as u32;
        self.cached += cached as u32;
        self.dirty += pages.saturating_sub(fresh + cached) as u32;
    }
}

named! {
    /// What determined the cost of a call.
    #[derive(Default, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    CallState {
        /// Into the page cache, nothing in the way.
        #[default]
        Free = "free",
        /// Into the page cache while the flusher writes back.
        Flush = "flush",
        /// Held back by the kernel because too much is dirty.
        Throttle = "throttle",
        /// Waited for the device: O_SYNC, O_DIRECT, fsync and relatives.
        Sync = "sync",
        /// Waited for the device to read what was not cached.
        Read = "read",
        /// Only into the stream's buffer in user space.
        Buffered = "buffered",
    }
}

/// The regime of the whole machine, in order of severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// No writeback going on.
    #[default]
    Free,
    /// The flusher works in the background.
    Flush,
    /// Writers are being throttled.
    Throttle,
}

/// Where the modelled machine stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelState {
    /// The moment this is true of.
    pub time: Time,
    /// Dirty bytes, those under writeback included.
    pub dirty: Bytes,
    /// The regime.
    pub regime: Regime,
    /// The limits in force.
    pub limits: DirtyLimits,
    /// Rate at which dirty pages are being cleaned, if they are.
    pub writeback: Option<Rate>,
    /// Rate at which writers are let through, if they are throttled.
    pub throttled: Option<Rate>,
}

/// Names of the models, in the order of reports; the first is the one that states and advice come from.
pub const MODELS: &[&str] = &["kernel", "cawl", "naive"];

/// The model of this name, for this machine.
pub fn build(name: &str, profile: &HostProfile) -> Option<Box<dyn CostModel>> {
    Some(match name {
        "kernel" => Box::new(kernel::Kernel::new(profile)),
        "cawl" => Box::new(cawl::Cawl::new(profile)),
        "naive" => Box::new(naive::Naive::new(profile)),
        _ => return None,
    })
}
