//! Waits that are exact to a microsecond.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use cawl_core::{Nanos, Time};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

/// The last part of a wait is spent spinning, for longer than a processor takes to wake up.
const AWAKE: Nanos = Nanos::new(60e3);

/// Returns at `moment`, or at once if that is past.
pub fn wait_until(moment: Time) {
    let now = cawl_host::now();
    if now + AWAKE < moment {
        let early = moment.0 - AWAKE.get() as u64;
        let early = TimeSpec::new((early / 1_000_000_000) as i64, (early % 1_000_000_000) as i64);
        // If a signal ends the sleep early, the rest is spent spinning.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &early);
    }
    while cawl_host::now() < moment {
        std::hint::spin_loop();
    }
}

/// Makes the sleeps of this thread, and of threads it starts, end on time and not up to 50 µs later.
pub fn wake_precisely() {
    // On an error sleeps are longer, which the spinning covers.
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Keeps idle processors from sleeping as long as the file is open (the kernel's pm_qos): who waits for an
/// answer is then woken in a few µs, by whichever processor, and not in 10 or 40.
pub fn keep_awake() -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}
