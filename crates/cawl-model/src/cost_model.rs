//! What every cost model is.
//!
//! A model is a machine that is shown the program's calls one after another. Before it learns how long a
//! call took, it says how long it should take ([`CostModel::step`]); between calls it is told that time
//! passes ([`CostModel::advance`]). It has no other source of time, and never looks at an event's
//! duration in `step`.

use cawl_wire::{Event, FileId};
use serde::{Deserialize, Serialize};

use crate::limits::DirtyLimits;
use crate::prediction::Prediction;
use crate::profile::HostProfile;
use crate::record::{DeletedFacts, Filesystem, MemoryFacts};
use crate::units::{Bytes, Nanos, Rate, Time};

/// Longest pause that the kernel imposes at a time (`MAX_PAUSE`).
pub const LONGEST_PAUSE: Nanos = Nanos::millis(200.0);

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

    /// Bytes of the disturbance that the model has made its own since it was last asked: they are no longer
    /// in what it was told, and count as they did.
    fn take_adopted(&mut self) -> Bytes {
        Bytes::ZERO
    }

    /// The kernel has begun to write this many bytes back in the `span` before `at`. A model without a
    /// flusher ignores it.
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

    /// Inodes deleted before the first call were found at this moment. A model without the law ignores it.
    fn found_deleted(&mut self, _facts: &DeletedFacts, _at: Time) {}

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
