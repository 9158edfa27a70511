//! The sums of calls, and the rate of the latest seconds.

use cawl_client::protocol::{CauseSeconds, Cost, Sort};
use cawl_core::{CallSums, Time};

pub(super) const SECOND: u64 = 1_000_000_000;

/// Calls, and their bytes of the latest seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// The sums since the start.
    pub sums: CallSums,
    late: Late,
}

impl Account {
    pub(super) fn add(&mut self, calls: &CallSums, second: u64) {
        self.sums.add_all(calls);
        if calls.count.bytes > 0 {
            self.late.add(second, calls.count.bytes);
        }
    }

    /// Bytes per second over the latest seconds.
    pub fn rate(&self, now: Time) -> f64 {
        self.late.rate(now)
    }

    /// The costs for an answer.
    pub fn cost(&self, now: Time) -> Cost {
        Cost {
            observed_s: self.sums.observed.as_seconds(),
            predicted_s: self.sums.predicted.as_seconds(),
            throttled_s: self.sums.throttled.as_seconds(),
            sync_s: self.sums.sync.as_seconds(),
            lost_s: self.sums.time.lost().as_seconds(),
            rate: self.rate(now),
        }
    }

    /// The observed time by cause, for an answer.
    pub fn causes_s(&self) -> CauseSeconds {
        CauseSeconds::from(self.sums.time.observed())
    }

    pub(super) fn key(&self, sort: Sort, now: Time) -> f64 {
        match sort {
            Sort::Lost => self.sums.time.lost().get(),
            Sort::Throttled => self.sums.throttled.get(),
            Sort::Sync => self.sums.sync.get(),
            Sort::Observed => self.sums.observed.get(),
            Sort::Bytes => self.sums.count.bytes as f64,
            Sort::Calls => self.sums.count.calls as f64,
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
