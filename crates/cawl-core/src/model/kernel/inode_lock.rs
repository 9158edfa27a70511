//! The lock of an inode (`i_rwsem`): a write to a file that another thread writes to waits.
//!
//! The law: a write through the page cache has the lock for itself while it copies, its pauses included
//! (`ext4_buffered_write_iter`, `xfs_file_buffered_write`, 6.18). What makes it synchronous comes after that
//! (`generic_write_sync`). A direct write has the lock until it is over: shared if it writes over blocks that
//! the file has, for itself if it extends the file or fills a hole (`ext4_dio_write_checks`). fsync does not
//! take it. Calls get the lock in the order of their begins.
//!
//! Three moments count of a call that holds it: when the call began, when it releases the lock by the model,
//! and when it is known to be over. In open loop the last two are one. In lockstep a call that began earlier
//! and is not over has the lock or waits for it. If it should have released it by then, another one overtook
//! it, or it was delayed: it will take as long as its whole time with the lock. So a call waits for the work
//! of those before it, not for what delays them, and never for one that is over.

use super::tasks::Key;
use super::{Call, Kernel};
use crate::cause::Cause;

/// Calls that are remembered at a time, of all files: the latest ones.
const MOST: usize = 64;

/// A call that has the lock of a file, or will have it.
#[derive(Clone, Copy, Debug)]
struct Hold {
    file: u32,
    thread: Key,
    shared: bool,
    /// When the call began, in seconds.
    began: f64,
    /// When it releases the lock by the model, and how long it has it, in seconds.
    end: f64,
    length: f64,
    /// When it is known to have released it, in seconds.
    until: f64,
}

/// The time that a call has the lock of its file, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    shared: bool,
    taken: f64,
    end: f64,
    length: f64,
}

/// Calls that may still hold the lock of their file, in the order in which they are shown to the model.
#[derive(Clone, Debug, Default)]
pub(super) struct InodeLocks {
    holds: Vec<Hold>,
}

impl InodeLocks {
    /// A thread's call begins `at` this moment: what was over then is forgotten.
    pub(super) fn begin(&mut self, thread: Key, at: f64) {
        self.holds.retain(|hold| hold.until > at && hold.thread != thread);
    }

    /// When a call gets the lock of a file that began at `began` and comes to the lock at `at`, in seconds.
    fn free_at(&self, file: u32, shared: bool, began: f64, at: f64) -> f64 {
        let mut free = at;
        let before = |hold: &&Hold| hold.file == file && hold.began <= began && hold.until > at;
        for hold in self.holds.iter().filter(before) {
            free = match (hold.shared, shared) {
                (true, true) => free,
                // Those who share it have it side by side.
                (true, false) if hold.end > at => free.max(hold.end),
                (true, false) => free.max(at + hold.length),
                (false, _) if hold.end > free => hold.end,
                (false, _) => free + hold.length,
            };
        }
        free
    }

    fn add(&mut self, hold: Hold) {
        if self.holds.len() == MOST {
            self.holds.remove(0);
        }
        self.holds.push(hold);
    }
}

impl Kernel {
    /// The call takes the lock of its file, for which it may have to wait.
    pub(super) fn lock(&mut self, call: &mut Call, shared: bool) {
        let free = self.locks.free_at(call.file, shared, call.began, call.at);
        if free > call.at {
            let wait = free - call.at;
            call.pass(wait);
            call.spent[Cause::Lock] += wait;
            self.pass_to(call.at);
        }
        let held = call.locked.get_or_insert(Held { shared, taken: call.at, end: call.at, length: 0.0 });
        held.shared &= shared;
        held.taken = call.at;
    }

    /// The call releases the lock of its file.
    pub(super) fn unlock(&self, call: &mut Call) {
        if let Some(held) = &mut call.locked {
            held.length += call.at - held.taken;
            held.end = call.at;
        }
    }

    /// The call is over at `until`, in seconds. One that goes on after it released the lock has released it
    /// when the model says so.
    pub(super) fn over(&mut self, call: &Call, until: f64) {
        let Some(Held { shared, end, length, .. }) = call.locked else { return };
        let until = if call.at > end { until.min(end) } else { until };
        let (file, thread, began) = (call.file, call.thread, call.began);
        self.locks.add(Hold { file, thread, shared, began, end: end.min(until), length, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(tid: u32, began: f64, end: f64, until: f64) -> Hold {
        Hold { file: 1, thread: (1, tid), shared: false, began, end, length: 2.0, until }
    }

    fn shared(hold: Hold) -> Hold {
        Hold { shared: true, ..hold }
    }

    fn locks(holds: &[Hold]) -> InodeLocks {
        InodeLocks { holds: holds.to_vec() }
    }

    #[test]
    fn calls_get_it_one_after_the_other() {
        let two = locks(&[hold(1, 0.0, 2.0, 2.0), hold(2, 1.0, 4.0, 4.0)]);
        assert_eq!(two.free_at(1, false, 1.5, 1.5), 4.0);
        assert_eq!(two.free_at(1, true, 1.5, 1.5), 4.0);
        assert_eq!(two.free_at(2, false, 1.5, 1.5), 1.5, "another file");
        assert_eq!(two.free_at(1, false, 0.5, 0.5), 2.0, "the second began later");
    }

    #[test]
    fn those_who_share_it_wait_for_nobody_but_one_who_has_it_alone() {
        let mut both = locks(&[shared(hold(1, 0.0, 3.0, 3.0)), shared(hold(2, 1.0, 2.0, 2.0))]);
        assert_eq!(both.free_at(1, true, 1.0, 1.0), 1.0);
        assert_eq!(both.free_at(1, false, 1.0, 1.0), 3.0);
        both.add(hold(3, 1.0, 5.0, 5.0));
        assert_eq!(both.free_at(1, true, 1.5, 1.5), 5.0);
    }

    #[test]
    fn one_that_is_late_needs_its_time_with_the_lock() {
        let late = locks(&[hold(1, 0.0, 2.0, 9.0), hold(2, 0.0, 4.0, 9.0)]);
        assert_eq!(late.free_at(1, false, 3.0, 3.0), 7.0, "both, though the second was to be over at 4");
        assert_eq!(late.free_at(1, false, 8.0, 8.0), 12.0);
        let mut late = late;
        late.begin((1, 3), 9.0);
        assert_eq!(late.free_at(1, false, 9.0, 9.0), 9.0, "what is over is over");
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let mut locks = locks(&[hold(1, 0.0, 2.0, 9.0)]);
        locks.begin((1, 1), 1.0);
        assert_eq!(locks.free_at(1, false, 1.0, 1.0), 1.0);
    }

    #[test]
    fn as_many_are_remembered_as_overlap_and_no_more() {
        let mut locks = InodeLocks::default();
        for tid in 0..10 * MOST as u32 {
            locks.add(hold(tid, 0.0, 1.0, f64::INFINITY));
            assert!(locks.holds.len() <= MOST);
        }
        locks.begin((1, 0), f64::INFINITY);
        assert!(locks.holds.is_empty());
    }
}
