//! The lock of an inode (`i_rwsem`): a write to a file that another thread writes to waits.
//!
//! The law: a write through the page cache has the lock for itself while it copies, its pauses included
//! (`ext4_buffered_write_iter`, `xfs_file_buffered_write`, 6.18). What makes it synchronous comes after that
//! (`generic_write_sync`). A direct write has the lock until it is over: shared if it writes over blocks that
//! the file has, for itself if it extends the file or fills a hole (`ext4_dio_write_checks`). fsync does not
//! take it. Calls get the lock in the order of their begins.
//!
//! In open loop a call has released the lock when the model says so. In lockstep the observed ends are known:
//! when one is over, the next has the lock from that moment on, and a call that has begun and is not over has
//! the lock or waits for it. If by the model it should have released it, something delayed it, and it will
//! take as long as its whole time with the lock. So a call waits for the work of those before it, as far as
//! that is not done, and never beyond their observed ends; not for what delays or overtakes them.

use super::tasks::Key;
use crate::units::Seconds;

/// Calls that are remembered at a time, of all files: the latest ones.
const MAX_HOLDS: usize = 64;

/// A call that has the lock of a file, or will have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockHold {
    pub(super) file: u32,
    pub(super) thread: Key,
    pub(super) shared: bool,
    /// When the call began.
    pub(super) began: Seconds,
    /// When it came to the lock, or could have it since another call was over.
    pub(super) came: Seconds,
    /// How long it has the lock by the model.
    pub(super) length: Seconds,
    /// When it is known to have released it.
    pub(super) until: Seconds,
}

/// The time that a call has the lock of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockTime {
    pub(super) shared: bool,
    pub(super) came: Seconds,
    pub(super) taken: Seconds,
    pub(super) end: Seconds,
    pub(super) length: Seconds,
}

/// Calls that may still hold the lock of their file, in the order in which they are shown to the model.
#[derive(Clone, Debug, Default)]
pub(super) struct InodeLocks {
    pub(super) holds: Vec<LockHold>,
}

impl InodeLocks {
    /// A thread's call begins `at` this moment: what is over is forgotten.
    #[inline]
    pub(super) fn begin(&mut self, thread: Key, at: Seconds) {
        let is_over = |hold: &LockHold| hold.until <= at || hold.thread == thread;
        match &self.holds[..] {
            [] => {}
            // Most programs write in one thread at a time.
            [one] if is_over(one) => self.holds.clear(),
            _ => {
                for number in (0..self.holds.len()).rev() {
                    if is_over(&self.holds[number]) {
                        self.release(number, at);
                    }
                }
            }
        }
    }

    /// A call is over: those that could not have the lock beside it have it later.
    fn release(&mut self, number: usize, at: Seconds) {
        let over = self.holds.remove(number);
        for hold in &mut self.holds {
            if hold.file == over.file && !(hold.shared && over.shared) {
                hold.came = hold.came.max(over.until.min(at));
            }
        }
    }

    /// When a call gets the lock of a file that began at `began` and comes to the lock at `at`.
    pub(super) fn free_at(&self, file: u32, shared: bool, began: Seconds, at: Seconds) -> Seconds {
        let before = |hold: &&LockHold| hold.file == file && hold.began <= began && hold.until > at;
        // When those are done that have it for themselves, and those that share it.
        let (mut alone, mut together) = (Seconds::NEG_INFINITY, Seconds::NEG_INFINITY);
        for hold in self.holds.iter().filter(before) {
            let free = if hold.shared { alone } else { alone.max(together) };
            let end = hold.came.max(free) + hold.length;
            let late = end <= at;
            let end = if late { at + hold.length } else { end }.min(hold.until);
            let of_its_kind = if hold.shared { &mut together } else { &mut alone };
            *of_its_kind = of_its_kind.max(end);
        }
        at.max(alone).max(if shared { at } else { together })
    }

    pub(super) fn add(&mut self, hold: LockHold) {
        if self.holds.len() == MAX_HOLDS {
            self.holds.remove(0);
        }
        self.holds.push(hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that has the lock for 2 s.
    fn hold(tid: u32, began: f64, until: f64) -> LockHold {
        let (began, until) = (Seconds(began), Seconds(until));
        LockHold { file: 1, thread: (1, tid), shared: false, began, came: began, length: Seconds(2.0), until }
    }

    fn free_at(locks: &InodeLocks, file: u32, shared: bool, began: f64, at: f64) -> f64 {
        locks.free_at(file, shared, Seconds(began), Seconds(at)).0
    }

    fn shared(hold: LockHold) -> LockHold {
        LockHold { shared: true, ..hold }
    }

    fn locks(holds: &[LockHold]) -> InodeLocks {
        InodeLocks { holds: holds.to_vec() }
    }

    #[test]
    fn calls_get_it_one_after_the_other() {
        let two = locks(&[hold(1, 0.0, 2.0), hold(2, 1.0, 4.0)]);
        assert_eq!(free_at(&two, 1, false, 1.5, 1.5), 4.0);
        assert_eq!(free_at(&two, 1, true, 1.5, 1.5), 4.0);
        assert_eq!(free_at(&two, 2, false, 1.5, 1.5), 1.5, "another file");
        assert_eq!(free_at(&two, 1, false, 0.5, 0.5), 2.0, "the second began later");
    }

    #[test]
    fn those_who_share_it_wait_for_nobody_but_one_who_has_it_alone() {
        let mut both = locks(&[shared(hold(1, 0.0, 9.0)), shared(hold(2, 1.0, 9.0))]);
        assert_eq!(free_at(&both, 1, true, 1.0, 1.0), 1.0);
        assert_eq!(free_at(&both, 1, false, 1.0, 1.0), 3.0);
        both.add(hold(3, 1.0, 9.0));
        assert_eq!(free_at(&both, 1, true, 1.5, 1.5), 5.0);
    }

    #[test]
    fn the_next_has_it_when_one_is_observed_to_be_over() {
        let mut two = locks(&[hold(1, 0.0, 3.0), hold(2, 0.5, 9.0), hold(3, 0.6, 9.0)]);
        two.begin((1, 4), Seconds(3.1));
        assert_eq!(free_at(&two, 1, false, 3.1, 3.1), 7.0, "one after the other from 3 on");
        let mut fast = locks(&[hold(1, 0.0, 1.0), hold(2, 0.5, 9.0)]);
        fast.begin((1, 4), Seconds(1.5));
        assert_eq!(free_at(&fast, 1, false, 1.5, 1.5), 3.0);
        assert_eq!(free_at(&fast, 1, false, 1.5, 9.0), 9.0, "what is over is over");
    }

    #[test]
    fn one_that_is_late_needs_its_time_with_the_lock() {
        let late = locks(&[hold(1, 0.0, 9.0), hold(2, 0.0, 9.0)]);
        assert_eq!(free_at(&late, 1, false, 3.0, 3.0), 7.0, "both, though the second had it since 2");
        assert_eq!(free_at(&late, 1, false, 8.0, 8.0), 9.0, "until they are observed to be over");
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let mut locks = locks(&[hold(1, 0.0, 9.0)]);
        locks.begin((1, 1), Seconds(1.0));
        assert_eq!(free_at(&locks, 1, false, 1.0, 1.0), 1.0);
    }

    #[test]
    fn as_many_are_remembered_as_overlap_and_no_more() {
        let mut locks = InodeLocks::default();
        for tid in 0..10 * MAX_HOLDS as u32 {
            locks.add(hold(tid, 0.0, f64::INFINITY));
            assert!(locks.holds.len() <= MAX_HOLDS);
        }
        locks.begin((1, 0), Seconds::INFINITY);
        assert!(locks.holds.is_empty());
    }
}
