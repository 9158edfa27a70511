//! The threads that write: what each has dirtied, the locks that they hold, and the level that they made.

use super::super::writeback::Machine;
use super::Call;
use super::history::LevelHistory;
use super::inode_lock::{InodeLocks, LockHold, LockTime};
use super::tasks::Tasks;
use crate::cause::Cause;
use crate::units::{Pages, Seconds};

/// All threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    pub(super) tasks: Tasks,
    pub(super) locks: InodeLocks,
    pub(super) history: LevelHistory,
    /// Pages after which a task is checked, whatever its quota.
    pub(super) check_interval: u64,
}

impl Writers {
    /// A thread's call begins at this moment.
    pub(super) fn begin(&mut self, thread: (u32, u32), at: Seconds) {
        self.tasks.switch(thread);
        self.locks.begin(thread, at);
        if self.tasks.several {
            self.history.prune(at);
        }
    }

    /// Lets time pass, and notes the level for calls that overlap this one.
    pub(super) fn pass_to(&mut self, machine: &mut Machine, at: Seconds) {
        machine.advance(at);
        if self.tasks.several {
            let level = Pages::of(machine.level_now());
            self.history.note(machine.now, level);
        }
    }

    /// The call takes the lock of its file, for which it may have to wait. Not noted as long as one thread is
    /// the only one: that would take 7 ns of each call, and only the second thread's first call can miss it.
    #[inline]
    pub(super) fn lock(&mut self, machine: &mut Machine, call: &mut Call, shared: bool) {
        if !self.tasks.several {
            return;
        }
        let came = call.at;
        if !self.locks.holds.is_empty() {
            self.wait_for_lock(machine, call, shared);
        }
        let (taken, end) = (call.at, call.at);
        let held = call.locked.get_or_insert(LockTime { shared, came, taken, end, length: Seconds::ZERO });
        held.shared &= shared;
        held.taken = taken;
    }

    fn wait_for_lock(&mut self, machine: &mut Machine, call: &mut Call, shared: bool) {
        let wait = self.locks.free_at(call.file, shared, call.began, call.at) - call.at;
        if wait > Seconds::ZERO {
            call.spend(Cause::Lock, wait);
            self.pass_to(machine, call.at);
        }
    }

    /// The call is over at `until`. One that goes on after it released the lock has released it
    /// when the model says so.
    #[inline]
    pub(super) fn over(&mut self, call: &Call, until: Seconds) {
        let Some(LockTime { shared, came, end, length, .. }) = call.locked else { return };
        let until = if call.at > end { until.min(end) } else { until };
        let (file, thread, began) = (call.file, call.thread, call.began);
        self.locks.add(LockHold { file, thread, shared, began, came, length, until });
    }
}
