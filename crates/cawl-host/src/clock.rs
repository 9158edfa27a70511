//! Times that are unaffected by clock steps and suspends.
//!
//! Events have CLOCK_MONOTONIC, which stops during a suspend; CLOCK_REALTIME may be set to anything at any
//! time. The history of a day uses CLOCK_BOOTTIME, which never jumps and includes suspends, and is converted
//! to the time of day only for an answer: a step of the clock then moves the whole history and changes no
//! span.

use cawl_core::Time;
use nix::time::{ClockId, clock_gettime};

/// Now, on one clock.
pub(crate) fn read(clock: ClockId) -> Time {
    let time = clock_gettime(clock).map(|t| Time(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64));
    time.unwrap_or_default()
}

/// Processor time of this thread.
pub fn thread_time() -> Time {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// One time on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_MONOTONIC, the clock of events.
    pub monotonic: Time,
    /// CLOCK_BOOTTIME: since the machine started, suspends included.
    pub boot: Time,
    /// CLOCK_REALTIME: since 1970-01-01 UTC.
    pub real: Time,
}

impl Clocks {
    /// Now.
    pub fn now() -> Clocks {
        Clocks {
            monotonic: read(ClockId::CLOCK_MONOTONIC),
            boot: read(ClockId::CLOCK_BOOTTIME),
            real: read(ClockId::CLOCK_REALTIME),
        }
    }

    /// Time of day, in seconds since 1970-01-01 UTC.
    pub fn unix(&self) -> f64 {
        self.real.0 as f64 / 1e9
    }

    /// Time of day of a moment of CLOCK_BOOTTIME, by the clock as it is set now.
    pub fn unix_of_boot(&self, boot: Time) -> f64 {
        (self.real.0 as f64 - self.boot.0 as f64 + boot.0 as f64) / 1e9
    }

    /// Time of day of a recent moment of CLOCK_MONOTONIC, since which the machine was not suspended.
    pub fn unix_of_monotonic(&self, monotonic: Time) -> f64 {
        (self.real.0 as f64 - self.monotonic.0 as f64 + monotonic.0 as f64) / 1e9
    }
}

/// Year, month, day, hour, minute and second of a time of day, in seconds since 1970-01-01 UTC. One before
/// that is taken for the first second of it, so that no part is negative.
pub fn utc(unix: i64) -> [i64; 6] {
    let (days, second) = (unix.max(0) / 86_400, unix.max(0) % 86_400);
    // Years begin with March, so that the leap day is the last one of a year.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    [era * 400 + year + later, month, day, second / 3600, second / 60 % 60, second % 60]
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn the_time_of_day_is_that_of_date() {
        for (unix, expected) in [
            (-5, [1970, 1, 1, 0, 0, 0]),
            (951_782_399, [2000, 2, 28, 23, 59, 59]),
            (951_782_400, [2000, 2, 29, 0, 0, 0]),
            (1_709_251_199, [2024, 2, 29, 23, 59, 59]),
            (1_795_962_663, [2026, 11, 29, 14, 31, 3]),
            (4_107_542_400, [2100, 3, 1, 0, 0, 0]),
        ] {
            assert_eq!(utc(unix), expected, "{unix}");
        }
    }
}
