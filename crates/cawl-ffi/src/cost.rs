//! What the library answers, as structs of the caller's.

use cawl_model::{CallState, Cause, CostModel, Prediction, Regime};

use crate::cause::{CAWL_CAUSES, PLACE};
use crate::status::{Failure, Outcome, cawl_status::*};

/// What determined most of a call's cost.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum cawl_state {
    /// The model has no opinion on such calls: their cost is 0.
    CAWL_STATE_NONE = 0,
    /// Into or out of the page cache, nothing in the way.
    CAWL_STATE_FREE = 1,
    /// Into the page cache while the flusher writes back.
    CAWL_STATE_FLUSH = 2,
    /// Held back by the kernel because too much is dirty.
    CAWL_STATE_THROTTLE = 3,
    /// Waited for the device: O_SYNC, O_DIRECT, fsync and relatives.
    CAWL_STATE_SYNC = 4,
    /// Waited for the device to read what was not cached.
    CAWL_STATE_READ = 5,
    /// Only into the stream's buffer.
    CAWL_STATE_BUFFERED = 6,
}
use cawl_state::*;

/// The regime of a whole machine.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum cawl_regime {
    /// No writeback going on.
    CAWL_REGIME_FREE = 0,
    /// The flusher works in the background.
    CAWL_REGIME_FLUSH = 1,
    /// Writers are being throttled.
    CAWL_REGIME_THROTTLE = 2,
}

/// Bit of `flags`: low_ns and high_ns are known.
pub const CAWL_HAS_INTERVAL: u32 = 1;
/// Bit of `flags`: the dirty level is one at which the kernel may make the call pause.
pub const CAWL_MAY_PAUSE: u32 = 2;
/// Bit of `flags`: the flusher works on the call's device.
pub const CAWL_FLUSHING: u32 = 4;
/// Bit of `flags`: a periodic commit of the journal may be under way during the call.
pub const CAWL_MAY_COMMIT: u32 = 8;

/// What a call costs. Set `size` once; the library fills in the rest at each call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct cawl_cost {
    /// To be set by the caller: sizeof(cawl_cost). Later versions may be longer.
    pub size: u32,
    /// A `cawl_state`.
    pub state: u32,
    /// Bits CAWL_HAS_INTERVAL, …
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// The whole cost in ns; 0 if `state` is CAWL_STATE_NONE.
    pub cost_ns: f64,
    /// 10th percentile of the cost in ns, where the profile's uncertainties allow to tell; else `cost_ns`.
    pub low_ns: f64,
    /// 90th percentile, likewise.
    pub high_ns: f64,
    /// When the call ends, in ns: its begin and the cost, rounded. The thread's next call begins then, or
    /// later.
    pub end_ns: u64,
    /// Bytes that the call moved: fewer than asked for where a file to read ends.
    pub bytes: u64,
    /// Dirty bytes of the machine when the call ends, those under writeback included.
    pub dirty_bytes: u64,
    /// The parts of the cost in ns, by `cawl_cause`. They add up to it, up to rounding.
    pub parts_ns: [f64; CAWL_CAUSES],
}

/// Where a machine stands. Set `size` before; the library fills in the rest.
#[derive(Default)]
#[repr(C)]
pub struct cawl_levels {
    /// To be set by the caller: sizeof(cawl_levels). Later versions may be longer.
    pub size: u32,
    /// A `cawl_regime`.
    pub regime: u32,
    /// The moment that this is true of, in ns: the end of the latest call as predicted, or what the machine
    /// was advanced to.
    pub time_ns: u64,
    /// Dirty bytes, those under writeback included.
    pub dirty_bytes: u64,
    /// Dirty bytes from which on the flusher works.
    pub background_bytes: u64,
    /// Dirty bytes that writers are held below.
    pub hard_bytes: u64,
    /// Bytes per second that are being cleaned; 0 if none are.
    pub writeback_bytes_per_s: f64,
    /// Bytes per second at which the writers are let through; 0 if they are not throttled.
    pub throttled_bytes_per_s: f64,
}

/// Structs of an answer begin with their size. No version has been longer than this, in bytes.
const LONGEST: u32 = 4096;

/// The caller's struct, if it has all that this version fills in.
///
/// # Safety
///
/// `answer` is NULL, or leads to a `T` of the caller's, of which the first field, its size, is initialized,
/// and that nobody else uses during the call.
#[inline(always)]
pub unsafe fn answer<'a, T>(answer: *mut T) -> Outcome<&'a mut T> {
    if answer.is_null() || !answer.is_aligned() {
        return Err(CAWL_ERROR_NULL.into());
    }
    // SAFETY: the first field of either struct is a u32, which the caller has initialized.
    let size = unsafe { answer.cast::<u32>().read() };
    if !(size_of::<T>() as u32..=LONGEST).contains(&size) {
        return Err(Failure::new(CAWL_ERROR_SIZE, format!("size is {size}, not {}", size_of::<T>())));
    }
    if size > size_of::<T>() as u32 {
        // SAFETY: so many bytes lie behind what this version knows, by the size that the caller has set.
        unsafe { answer.add(1).cast::<u8>().write_bytes(0, size as usize - size_of::<T>()) };
    }
    // SAFETY: the struct is the caller's and at least as long as a T, as it has just said. All of its fields
    // are numbers, of which only `size` is read.
    Ok(unsafe { &mut *answer })
}

impl cawl_cost {
    /// Fills in what came of a call that began at `now`, in ns, and moved so many bytes.
    #[inline(always)]
    pub fn fill(&mut self, prediction: Option<&Prediction>, now: u64, bytes: u64) {
        (self.flags, self.reserved, self.bytes, self.end_ns) = (0, 0, bytes, now);
        let Some(prediction) = prediction else {
            (self.state, self.dirty_bytes) = (CAWL_STATE_NONE as u32, 0);
            (self.cost_ns, self.low_ns, self.high_ns) = (0.0, 0.0, 0.0);
            self.parts_ns = [0.0; CAWL_CAUSES];
            return;
        };
        self.state = match prediction.state {
            CallState::Free => CAWL_STATE_FREE,
            CallState::Flush => CAWL_STATE_FLUSH,
            CallState::Throttle => CAWL_STATE_THROTTLE,
            CallState::Sync => CAWL_STATE_SYNC,
            CallState::Read => CAWL_STATE_READ,
            CallState::Buffered => CAWL_STATE_BUFFERED,
        } as u32;
        let bits = [
            (prediction.interval.is_some(), CAWL_HAS_INTERVAL),
            (prediction.may_pause, CAWL_MAY_PAUSE),
            (prediction.flushing, CAWL_FLUSHING),
            (prediction.may_commit, CAWL_MAY_COMMIT),
        ];
        self.flags = bits.iter().map(|(is_set, bit)| u32::from(*is_set) * bit).sum();
        let (low, high) = prediction.interval.unwrap_or((prediction.cost, prediction.cost));
        (self.cost_ns, self.low_ns, self.high_ns) = (prediction.cost.get(), low.get(), high.get());
        // Rounded, up to 292 years: that of `Time` calls a function.
        self.end_ns = now.saturating_add((self.cost_ns + 0.5) as i64 as u64);
        self.dirty_bytes = prediction.dirty.0;
        self.parts_ns = [0.0; CAWL_CAUSES];
        // All of them: a copy of known length takes less than finding out which are not 0.
        for (cause, place) in Cause::ALL.into_iter().zip(PLACE) {
            self.parts_ns[usize::from(place)] = prediction.parts[cause].get();
        }
    }
}

impl cawl_levels {
    /// Fills in where the model stands.
    pub fn fill(&mut self, model: &dyn CostModel) {
        let state = model.state();
        self.regime = match state.regime {
            Regime::Free => cawl_regime::CAWL_REGIME_FREE,
            Regime::Flush => cawl_regime::CAWL_REGIME_FLUSH,
            Regime::Throttle => cawl_regime::CAWL_REGIME_THROTTLE,
        } as u32;
        (self.time_ns, self.dirty_bytes) = (state.time.0, state.dirty.0);
        (self.background_bytes, self.hard_bytes) = (state.limits.background.0, state.limits.hard.0);
        let per_second = |rate: Option<cawl_model::Rate>| rate.map_or(0.0, |rate| rate.get());
        self.writeback_bytes_per_s = per_second(state.writeback);
        self.throttled_bytes_per_s = per_second(state.throttled);
    }
}

#[cfg(test)]
mod tests {
    use cawl_model::{Bytes, CostParts, Nanos};

    use super::*;

    #[test]
    fn all_of_a_prediction_is_passed_on() {
        let parts = Cause::ALL.map(|cause| (cause, Nanos::new(1.0 + f64::from(cause as u32))));
        let prediction = Prediction {
            cost: Nanos::new(253.5),
            state: CallState::Throttle,
            parts: CostParts::from(parts),
            dirty: Bytes(7),
            interval: Some((Nanos::new(1.0), Nanos::new(999.0))),
            may_pause: true,
            flushing: true,
            may_commit: true,
            ..Prediction::default()
        };
        let mut cost = cawl_cost { parts_ns: [9.0; CAWL_CAUSES], ..cawl_cost::default() };
        cost.fill(Some(&prediction), 1000, 5);
        assert_eq!((cost.state, cost.flags, cost.bytes), (CAWL_STATE_THROTTLE as u32, 15, 5));
        assert_eq!((cost.cost_ns, cost.low_ns, cost.high_ns), (253.5, 1.0, 999.0));
        assert_eq!((cost.end_ns, cost.dirty_bytes, cost.parts_ns.iter().sum()), (1254, 7, 253.0));
        cost.fill(None, 1000, 0);
        assert_eq!(cost, cawl_cost { end_ns: 1000, ..cawl_cost::default() });
    }
}
