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
