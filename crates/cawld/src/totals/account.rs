//! The sum of calls: counts, bytes, times, and the rate of the latest seconds.

use cawl_client::protocol::{Cost, Sort};
use cawl_core::{CallState, Cause, Causes, Nanos, Prediction, Time, TimeSums};
use cawl_wire::ring::CoalescedCalls;
use cawl_wire::{Event, flag};

pub(super) const SECOND: u64 = 1_000_000_000;

/// A call with what the answering model makes of it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The call.
    pub event: &'a Event,
    /// Its prediction, if it has one.
    pub prediction: Option<&'a Prediction>,
    /// Its time by cause, if it has a cost or was a discard.
    pub causes: Option<Causes<'a>>,
}

/// Observed and predicted cost of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Calls.
    pub calls: u64,
    /// Bytes.
    pub bytes: u64,
    /// Inferred bytes among them: stores to mappings, shared extents.
    pub estimated: u64,
    /// Time of modelled calls.
    pub observed: Nanos,
    /// Their predicted time.
    pub predicted: Nanos,
    /// Observed time that the model attributes to throttling, at most the kernel's pauses if known.
    pub throttled: Nanos,
    /// Observed time of calls that waited for the device.
    pub sync: Nanos,
    /// Time of calls that have a cost, and of writes to /dev/null, by cause: observed, and undisturbed.
    pub time: TimeSums,
    late: Late,
}

impl Account {
    /// Adds a call that wrote these bytes, of whose time so much was throttling; but for its time.
    #[inline]
    pub(super) fn add(&mut self, call: &Call<'_>, bytes: u64, throttled: Nanos) {
        let Call { event, prediction, causes } = *call;
        self.calls += 1;
        self.bytes += bytes;
        if event.has(flag::ESTIMATED) {
            self.estimated += bytes;
        }
        if let Some(prediction) = prediction {
            let observed = Nanos::new(event.duration as f64);
            self.observed += observed;
            self.predicted += prediction.cost;
            if prediction.state == CallState::Sync {
                self.sync += observed;
            }
            self.throttled += throttled;
        }
        if let Some(causes) = causes {
            self.time.add(causes);
        }
    }

    /// Adds calls of this second, of which so many bytes count here.
    pub(super) fn add_all(&mut self, calls: &Account, second: u64, bytes: u64) {
        self.calls += calls.calls;
        self.bytes += bytes;
        self.estimated += calls.estimated.min(bytes);
        if bytes > 0 {
            self.late.add(second, bytes);
        }
        self.observed += calls.observed;
        self.predicted += calls.predicted;
        self.throttled += calls.throttled;
        self.sync += calls.sync;
        self.time.add_all(&calls.time);
    }

    /// Adds coalesced calls that wrote these bytes in sum; `discarded` if to /dev/null.
    pub(super) fn add_coalesced(&mut self, calls: &CoalescedCalls, bytes: u64, discarded: bool) {
        self.calls += calls.calls;
        self.bytes += bytes;
        if bytes > 0 {
            self.late.add(calls.last / SECOND, bytes);
        }
        if discarded {
            self.time.add_calls(Cause::Discard, calls.duration);
        }
    }

    /// Bytes per second over the latest seconds.
    pub fn rate(&self, now: Time) -> f64 {
        self.late.rate(now)
    }

    /// The costs for an answer.
    pub fn cost(&self, now: Time) -> Cost {
        Cost {
            observed_s: self.observed.as_seconds(),
            predicted_s: self.predicted.as_seconds(),
            throttled_s: self.throttled.as_seconds(),
            sync_s: self.sync.as_seconds(),
            lost_s: self.time.lost() / 1e9,
            rate: self.rate(now),
        }
    }

    pub(super) fn key(&self, sort: Sort, now: Time) -> f64 {
        match sort {
            Sort::Lost => self.time.lost(),
            Sort::Throttled => self.throttled.get(),
            Sort::Sync => self.sync.get(),
            Sort::Observed => self.observed.get(),
            Sort::Bytes => self.bytes as f64,
            Sort::Calls => self.calls as f64,
            Sort::Rate => self.rate(now),
        }
    }
}

/// Bytes in each of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    second: u64,
    bytes: [u64; Late::SECONDS as usize],
}

impl Late {
    const SECONDS: u64 = 4;

    fn add(&mut self, second: u64, bytes: u64) {
        if second > self.second {
            for passed in 1..=(second - self.second).min(Late::SECONDS) {
                self.bytes[((self.second + passed) % Late::SECONDS) as usize] = 0;
            }
            self.second = second;
        }
        if second + Late::SECONDS > self.second {
            self.bytes[(second % Late::SECONDS) as usize] += bytes;
        }
    }

    /// Over the last two whole seconds and the current one.
    fn rate(&self, now: Time) -> f64 {
        let second = now.0 / SECOND;
        let of = |second: u64| {
            let known = second <= self.second && second + Late::SECONDS > self.second;
            if known { self.bytes[(second % Late::SECONDS) as usize] } else { 0 }
        };
        let bytes: u64 = (second.saturating_sub(2)..=second).map(of).sum();
        bytes as f64 / (2.0 + (now.0 % SECOND) as f64 / SECOND as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_latest_seconds() {
        let mut late = Late::default();
        for second in 100..110 {
            late.add(second, 1000);
        }
        assert_eq!(late.rate(Time(110 * SECOND)), 1000.0);
        // Late calls count in their own second, as long as it is kept.
        late.add(108, 500);
        assert_eq!(late.rate(Time(110 * SECOND)), 1250.0);
        late.add(50, 1 << 40);
        assert_eq!(late.rate(Time(110 * SECOND)), 1250.0);
        assert_eq!(late.rate(Time(113 * SECOND)), 0.0);
    }
}
