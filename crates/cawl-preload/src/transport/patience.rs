//! How long the process waits for a daemon that takes nothing, where the user wants no event lost.
//!
//! The law of this module: **all waits together end.** A standstill of more than a moment counts once,
//! however many threads wait in it; after [`PATIENCE`] of that nothing waits any more, and what finds no
//! room is dropped and counted as without `--lossless`.

use crate::base::settings;
use crate::base::sys;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// All the time, in ns, that a process stands still for a daemon.
const PATIENCE: u64 = 10_000_000_000;
/// A daemon takes nothing for so long, in ns, while others have the processor.
const MOMENT: u64 = 1_000_000_000;

static SPENT: AtomicU64 = AtomicU64::new(0);
/// What was before is in [`SPENT`].
static COUNTED_TO: AtomicU64 = AtomicU64::new(0);

/// True if the user would rather wait than lose an event, and waiting has had a purpose.
pub fn lossless() -> bool {
    settings::lossless() && SPENT.load(Relaxed) < PATIENCE
}

/// What is left, in ms.
pub fn left() -> u64 {
    PATIENCE.saturating_sub(SPENT.load(Relaxed)) / 1_000_000
}

/// In a copy of the process.
pub fn forget() {
    SPENT.store(0, Relaxed);
}

pub struct Wait {
    progress: u64,
    since: u64,
}

impl Wait {
    /// Begins where the daemon has come so far.
    pub fn begin(progress: u64) -> Wait {
        Wait { progress, since: sys::nanoseconds() }
    }

    /// True if it goes on, now that the daemon has come so far.
    pub fn goes_on(&mut self, progress: u64) -> bool {
        let now = sys::nanoseconds();
        if progress != self.progress {
            *self = Wait { progress, since: now };
        } else if now.saturating_sub(self.since) > MOMENT {
            let from = COUNTED_TO.fetch_max(now, Relaxed).max(self.since);
            SPENT.fetch_add(now.saturating_sub(from), Relaxed);
        }
        lossless()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are the process's, so this is the only test of them.
    #[test]
    fn a_standstill_counts_once_and_all_of_them_end() {
        let spent = || SPENT.load(Relaxed);
        let ago = |seconds: u64| sys::nanoseconds() - seconds * 1_000_000_000;
        let mut moving = Wait { progress: 1, since: ago(5) };
        moving.goes_on(2);
        Wait::begin(7).goes_on(7);
        assert_eq!(spent(), 0);
        // Two threads in the same four seconds.
        let mut waits = [Wait { progress: 1, since: ago(4) }, Wait { progress: 1, since: ago(4) }];
        assert!(waits.iter_mut().all(|wait| wait.goes_on(1) == settings::lossless()));
        assert!((4_000_000_000..4_500_000_000).contains(&spent()), "{}", spent());
        assert!((5500..=6000).contains(&left()));
        Wait { progress: 1, since: ago(4) }.goes_on(1);
        assert!(spent() < 4_500_000_000, "{}", spent());
        forget();
        assert_eq!(left(), 10_000);
    }
}
