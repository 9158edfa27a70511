//! The influence of other programs on a measurement.
//!
//! The law: **waits for a processor are not measured.** The kernel counts for each thread the time it was
//! runnable and not running (`run_delay`, /proc/thread-self/schedstat); a [`Stopwatch`] subtracts it. Other
//! effects cannot be subtracted: a flusher without a processor, shared caches and memory, and a faster
//! answer of processors that other work keeps awake. So the time other programs computed is reported.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use cawl_core::{Nanos, Time, host_text};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

thread_local! {
    static SCHEDULED: Option<File> = File::open("/proc/thread-self/schedstat").ok();
}

/// The time this thread has waited for a processor; zero where the kernel does not count it.
pub fn waited() -> Nanos {
    let mut text = [0; 128];
    let read = |file: &File| {
        let length = file.read_at(&mut text, 0).ok()?;
        host_text::schedstat(std::str::from_utf8(&text[..length]).ok()?).map(|(_, delayed)| delayed)
    };
    SCHEDULED.with(|file| file.as_ref().and_then(read)).unwrap_or_default()
}

/// Times this thread's work, without its waits for a processor.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    waited: Nanos,
    start: Time,
}

impl Stopwatch {
    /// From now on.
    pub fn start() -> Stopwatch {
        // In this order, so that reading the counter is not timed.
        let waited = waited();
        Stopwatch { waited, start: cawl_host::now() }
    }

    /// Time until now, in ns.
    pub fn elapsed(&self) -> f64 {
        let took = cawl_host::now().since(self.start);
        without(took, waited().saturating_sub(self.waited)).get()
    }
}

/// The time a measurement took, without the waits. A longer wait lies partly outside the measurement.
pub fn without(took: Nanos, waited: Nanos) -> Nanos {
    if waited < took { took.saturating_sub(waited) } else { took }
}

/// Processors used by other programs from which on a measurement counts as disturbed.
const BUSY: f64 = 0.15;
/// Part of the time spent waiting for a processor from which on it does.
const WAITING: f64 = 0.02;

/// The activity of other programs during a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    begun: Time,
    waited: Nanos,
    others: Option<Nanos>,
}

impl Watch {
    /// Starts now; `disturbed` must be called by the same thread.
    pub fn begin() -> Watch {
        Watch { begun: cawl_host::now(), waited: waited(), others: others() }
    }

    /// The processors that other programs kept busy until now, if enough to disturb.
    pub fn disturbed(&self) -> Option<f64> {
        let time = cawl_host::now().since(self.begun);
        let others = others().zip(self.others).map_or(Nanos::ZERO, |(now, then)| now.saturating_sub(then));
        let waited = waited().saturating_sub(self.waited);
        disturbed(time, others, waited)
    }
}

fn disturbed(time: Nanos, others: Nanos, waited: Nanos) -> Option<f64> {
    (others > time * BUSY || waited > time * WAITING).then(|| others / time)
}

/// User time of all other programs. System time is left out, since it may be work for this one, as the
/// flusher's.
fn others() -> Option<Nanos> {
    let all = host_text::user_time(&fs::read_to_string("/proc/stat").ok()?)?;
    let of = |who| getrusage(who).map(|usage| Nanos::new(usage.user_time().num_nanoseconds() as f64));
    let own = of(UsageWho::RUSAGE_SELF).ok()? + of(UsageWho::RUSAGE_CHILDREN).ok()?;
    Some(all.saturating_sub(own))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_busy_neighbour_or_waiting_disturbs() {
        let s = Nanos::seconds;
        assert_eq!(disturbed(s(10.0), s(1.0), s(0.1)), None);
        assert_eq!(disturbed(s(10.0), s(9.0), s(0.1)), Some(0.9));
        assert_eq!(disturbed(s(10.0), s(0.0), s(0.3)), Some(0.0));
    }

    #[test]
    fn waits_are_subtracted() {
        let s = Nanos::seconds;
        assert_eq!(without(s(3.0), s(0.0)), s(3.0));
        assert_eq!(without(s(3.0), s(1.0)), s(2.0));
        assert_eq!(without(s(3.0), s(3.5)), s(3.0));
    }

    /// Two threads on one processor: each waits for the other.
    #[test]
    fn waiting_for_a_processor_is_not_timed() {
        let thread = nix::unistd::gettid().to_string();
        let taskset = std::process::Command::new("taskset").args(["-p", "-c", "0", &thread]).output();
        if fs::metadata("/proc/self/schedstat").is_err() || !taskset.is_ok_and(|done| done.status.success()) {
            println!("SKIPPED: the kernel does not count waiting, or there is no taskset");
            return;
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Spawned by a pinned thread, so pinned too.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let mut watch = Stopwatch::start();
            // A wait between the two readings of a start lies outside the measurement.
            while waited() > watch.waited {
                watch = Stopwatch::start();
            }
            let counted = || waited().saturating_sub(watch.waited);
            // Computes until it has waited, however long that takes.
            while counted() < Nanos::millis(1.0) {
                assert!(cawl_host::now().since(watch.start) < Nanos::seconds(300.0), "no wait was counted");
            }
            let (counted, found) = (counted(), watch.elapsed());
            let took = cawl_host::now().since(watch.start);
            over.store(true, Ordering::Relaxed);
            assert!(found <= took.saturating_sub(counted).get(), "{found} ns of {took}, {counted} waited");
        });
    }
}
