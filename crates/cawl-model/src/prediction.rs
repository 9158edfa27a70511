//! What a model says of a call.

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CostParts};
use crate::named::named;
use crate::units::{Bytes, Nanos, Seconds};
use crate::work::Work;

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

/// A read that was not to wait has waited if it takes this long, and so many times its cost.
const LATE: (Seconds, f64) = (Seconds(20e-6), 2.0);

/// A read that took less than this part of the wait that was predicted has not met what came.
const MET: f64 = 0.1;

impl Prediction {
    /// A read that `took` so long has waited, though it was not predicted to.
    pub fn is_late(&self, took: Seconds) -> bool {
        took > LATE.0 + LATE.1 * Seconds::from(self.cost)
    }

    /// A read that `took` so long has waited for what its work tells of, as predicted or not. What
    /// was long there is not late because of a moment; what it takes to hand a window over is no wait.
    pub fn has_waited(&self, took: Seconds) -> bool {
        let read = &self.work.read;
        let waited = match read.there > Seconds::ZERO {
            true => self.is_late(took) && took - Seconds::from(self.cost) > read.there * MET,
            false => self.is_late(took) || self.parts[Cause::Read] > Nanos::ZERO,
        };
        read.told && waited
    }

    /// A read that `took` so long waited over `MET` of what was predicted; else it tells a bound.
    pub fn has_met(&self, took: Seconds) -> bool {
        let waited = Seconds::from(self.parts[Cause::Read]);
        took - (Seconds::from(self.cost) - waited) > waited * MET
    }
}
