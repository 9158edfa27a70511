//! How long writers are held back, where the model's pauses do not show it.
//!
//! The law: the kernel's throttling makes a task sleep in proportion to the pages it dirties, `pages /
//! task_ratelimit` (`balance_dirty_pages`), whenever the level is above freerun. Where a device takes
//! hundreds of megabytes at once and completes them all together, the level crosses freerun and falls again
//! within some ten milliseconds: faster than samples come, at moments that cannot be foretold. But how long
//! writers sleep for a byte that they make dirty is the same from one second to the next.
//!
//! So while the flusher is at work, pauses are predicted in several ways side by side: by the model, and by
//! the seconds a dirty byte has cost of late, with memories of different length. The way whose errors, summed
//! over blocks of observed time, are least [leads](crate::leader); the model,
//! unless another is clearly better.

use crate::cause::Cause;
use crate::leader::{Leader, WAYS};
use crate::limits::DirtyLimits;
use crate::model::{CallState, Disturbance, LONGEST_PAUSE, Prediction};
use crate::units::{Bytes, Nanos, Time};

/// Seconds of calls that a way of predicting remembers.
const MEMORIES: [f64; WAYS - 1] = [0.3, 3.0, 30.0];
/// Seconds of calls over which errors are summed.
const BLOCK: f64 = 0.3;
/// What a device completes at once: the level may have been this much higher than where it was last seen.
const AT_ONCE: Bytes = Bytes::mib(256);
/// Part of the model's score that another way must stay below to be preferred.
const BETTER: f64 = 0.8;

/// Held back or not, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    /// Seconds slept and bytes made dirty, by memory.
    sums: [(f64, f64); MEMORIES.len()],
    /// Of the model, then of each memory.
    leader: Leader,
    /// The latest look at the kernel's level, and bytes made dirty since.
    level: Bytes,
    since: f64,
    /// When the flusher was last seen at work.
    flushed: Option<Time>,
}

/// What was predicted of a call's pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// What each way says, in seconds.
    told: [f64; WAYS],
    /// Seconds of the prediction that are no pause.
    rest: f64,
    dirtied: f64,
}

impl Hold {
    /// The kernel counts `level` dirty bytes; its flusher was at work or not.
    pub(super) fn sample(&mut self, at: Time, level: Bytes, flushing: bool) {
        (self.level, self.since) = (level, 0.0);
        if flushing {
            self.flushed = Some(at);
        }
    }

    /// Writers may be held back now: the flusher works, or the limit from which on it does is passed, and
    /// what was written since the latest look at the level, and completed before it, may have been over
    /// freerun.
    fn is_likely(&self, at: Time, limits: DirtyLimits) -> bool {
        let level = self.level.as_f64() + self.since;
        let highest = level + AT_ONCE.as_f64();
        let flushes = self.flushed.is_some_and(|then| at.since(then) < Disturbance::LASTS)
            || level > limits.background.as_f64();
        flushes && highest > limits.freerun().as_f64()
    }

    /// Corrects the prediction of a call at `at`. What it returns is for [`Hold::learn`], once the call's
    /// cost is known; None if nothing is to be learned from the call.
    pub(super) fn correct(
        &mut self,
        at: Time,
        prediction: &mut Prediction,
        limits: DirtyLimits,
    ) -> Option<Pause> {
        let dirtied = prediction.work.dirtied;
        let waits = prediction.parts.device() + prediction.parts[Cause::Lock];
        if dirtied <= 0.0 || waits > Nanos::ZERO {
            return None;
        }
        let likely = self.is_likely(at, limits);
        self.since += dirtied;
        prediction.may_pause |= likely;
        if !likely {
            return None;
        }
        let law = prediction.parts[Cause::Throttle].as_seconds();
        let told = self.ways(law, dirtied);
        let rest = prediction.cost.as_seconds() - law;
        if self.leader.leads > 0 {
            prediction.parts[Cause::Throttle] = Nanos::seconds(told[self.leader.leads]);
            prediction.cost = prediction.parts.total();
            prediction.state = match prediction.state {
                _ if told[self.leader.leads] > rest => CallState::Throttle,
                // It is the flusher's work that makes pauses likely.
                CallState::Throttle => CallState::Flush,
                state => state,
            };
            let cost = prediction.cost;
            prediction.interval = prediction.interval.map(|(low, high)| (low.min(cost), high.max(cost)));
        }
        Some(Pause { told, rest, dirtied })
    }

    /// What each way says of a call that makes `dirtied` bytes dirty, where the model says `law`, in seconds.
    fn ways(&self, law: f64, dirtied: f64) -> [f64; WAYS] {
        let mut told = [law; WAYS];
        for (told, (slept, bytes)) in told[1..].iter_mut().zip(&self.sums) {
            *told = if *bytes > 0.0 { (slept / bytes).max(0.0) * dirtied } else { law };
        }
        told
    }

    /// The call took `observed`.
    pub(super) fn learn(&mut self, pause: &Pause, observed: Nanos) {
        let Pause { told, rest, dirtied } = pause;
        // A stall has other reasons.
        let most = LONGEST_PAUSE.as_seconds().max(4.0 * told[self.leader.leads]);
        let slept = (observed.as_seconds() - rest).min(most);
        let weight = (rest + slept).max(0.0);
        for ((sum, bytes), memory) in self.sums.iter_mut().zip(MEMORIES) {
            let kept = (-weight / memory).exp();
            (*sum, *bytes) = (*sum * kept + slept, *bytes * kept + dirtied);
        }
        let factors = std::array::from_fn(|way| if way == 0 { BETTER } else { 1.0 });
        self.leader.judge(told.map(|told| slept - told), weight, BLOCK, factors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::CostParts;
    use crate::model::Work;

    const LIMITS: DirtyLimits = DirtyLimits { background: Bytes::mib(600), hard: Bytes::mib(680) };

    /// A call of a mebibyte that takes 0.2 ms to copy; the model says that it sleeps `law` seconds.
    fn call(law: f64) -> Prediction {
        let parts =
            CostParts::from([(Cause::Copy, Nanos::millis(0.2)), (Cause::Throttle, Nanos::seconds(law))]);
        let work = Work { dirtied: 1048576.0, ..Work::default() };
        Prediction { cost: parts.total(), parts, work, ..Prediction::default() }
    }

    fn take(hold: &mut Hold, at: Time, prediction: &mut Prediction, took: Nanos) {
        if let Some(pause) = hold.correct(at, prediction, LIMITS) {
            hold.learn(&pause, took);
        }
    }

    /// Calls of which one in twenty sleeps 10 ms: observed and predicted seconds of the later half.
    fn bursts(law: impl Fn(u64) -> f64, flushing: bool) -> (f64, f64) {
        let mut hold = Hold::default();
        let (mut now, mut observed, mut predicted) = (Time(0), 0.0, 0.0);
        for n in 0..4000 {
            hold.sample(now, Bytes::mib(450), flushing);
            let mut prediction = call(law(n));
            let took = Nanos::millis(if n % 20 == 7 { 10.2 } else { 0.2 });
            take(&mut hold, now, &mut prediction, took);
            assert_eq!(prediction.cost, prediction.parts.total());
            now = now + took;
            if n >= 2000 {
                (observed, predicted) =
                    (observed + took.as_seconds(), predicted + prediction.cost.as_seconds());
            }
        }
        (observed, predicted)
    }

    #[test]
    fn pauses_between_samples_are_predicted_by_the_byte() {
        let (observed, predicted) = bursts(|_| 0.0, true);
        assert!((predicted / observed - 1.0).abs() < 0.05, "{predicted} of {observed}");
        // A model that has them all wrong is not believed, either.
        let (observed, predicted) = bursts(|_| 0.01, true);
        assert!((predicted / observed - 1.0).abs() < 0.05, "{predicted} of {observed}");
    }

    #[test]
    fn whoever_is_held_back_by_the_byte_is_throttled() {
        // Pauses of 10 ms for one call in `every`, by memory once the model has missed enough of them.
        for (every, law, state) in [
            (20, CallState::Flush, CallState::Throttle),
            (100, CallState::Flush, CallState::Flush),
            (100, CallState::Throttle, CallState::Flush),
        ] {
            let mut hold = Hold::default();
            let mut last = Prediction::default();
            for n in 0..4000 {
                hold.sample(Time(n * 1_000_000), Bytes::mib(450), true);
                last = Prediction { state: law, ..call(if law == CallState::Throttle { 0.01 } else { 0.0 }) };
                let took = Nanos::millis(if n % every == 7 { 10.2 } else { 0.2 });
                take(&mut hold, Time(n * 1_000_000), &mut last, took);
            }
            assert_eq!((last.state, hold.leader.leads > 0), (state, true), "one in {every}, {law:?}");
        }
    }

    #[test]
    fn a_model_that_is_right_goes_on_speaking() {
        let (observed, predicted) = bursts(|n| if n % 20 == 7 { 0.01 } else { 0.0 }, true);
        assert!((predicted / observed - 1.0).abs() < 1e-9, "{predicted} of {observed}");
    }

    #[test]
    fn nobody_is_held_back_while_the_flusher_is_idle() {
        let (_, predicted) = bursts(|_| 0.0, false);
        assert!((predicted / (2000.0 * 0.2e-3) - 1.0).abs() < 1e-9, "{predicted}");
    }

    #[test]
    fn nobody_is_held_back_far_below_freerun() {
        let mut hold = Hold::default();
        for n in 0..1000 {
            hold.sample(Time(n), Bytes::mib(300), true);
            let mut prediction = call(0.0);
            assert!(hold.correct(Time(n), &mut prediction, LIMITS).is_none() && !prediction.may_pause);
        }
        // What was written since may be more than was seen.
        for _ in 0..100 {
            hold.correct(Time(1000), &mut call(0.0), LIMITS);
        }
        assert!(hold.correct(Time(1000), &mut call(0.0), LIMITS).is_some());
    }

    #[test]
    fn a_stall_says_nothing_of_the_next_call() {
        let mut hold = Hold::default();
        for n in 0..100u64 {
            hold.sample(Time(n * 1_000_000), Bytes::mib(450), true);
            let mut prediction = call(0.0);
            let took = if n == 50 { Nanos::seconds(2.0) } else { Nanos::millis(0.2) };
            take(&mut hold, Time(n * 1_000_000), &mut prediction, took);
            assert!(prediction.cost < Nanos::millis(0.21), "{n}: {:?}", prediction.cost);
        }
    }
}
