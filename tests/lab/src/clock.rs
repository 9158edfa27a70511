//! Waiting to the microsecond.

use cawl_core::{Nanos, Time};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

/// How long before a moment the sleep ends and the waiting is done awake: longer than it takes a processor
/// to wake up.
const AWAKE: Nanos = Nanos::new(60e3);

/// Returns at `moment`, or at once if that is past.
pub fn wait_until(moment: Time) {
    let now = cawl_host::now();
    if now + AWAKE < moment {
        let early = moment.0 - AWAKE.get() as u64;
        let early = TimeSpec::new((early / 1_000_000_000) as i64, (early % 1_000_000_000) as i64);
        // If a signal ends it early, the rest is waited awake.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &early);
    }
    while cawl_host::now() < moment {
        std::hint::spin_loop();
    }
}

/// Lets the sleeps of this thread, and of threads it starts, end when they should and not up to 50 µs later.
pub fn wake_precisely() {
    // Without it sleeps are longer; the awake part covers that.
    let _ = nix::sys::prctl::set_timerslack(1);
}
