//! A call under way: where its time goes, and what determines its cost.

use std::sync::Arc;

use super::inode_lock::LockTime;
use super::tasks::Key;
use crate::CallState;
use crate::cause::{ByCause, Cause};
use crate::constants::Constants;
use crate::units::Seconds;
use crate::work::Work;

/// What it costs in addition to do something for the first time; taken when that is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surcharge {
    /// Of each way through the kernel that the call has not taken yet: square root of milliseconds.
    pub(super) away: f64,
    /// Of pages allocated apart from the latest ones of the file.
    pub(super) jump: Seconds,
    /// Of pages written over for the first time.
    pub(super) over: Seconds,
    /// Of its first wait, since the device was idle: square root of milliseconds.
    pub(super) idle: f64,
}

/// How far off its cost may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    /// Of copying, down and up.
    pub(super) copied: (Seconds, Seconds),
    /// Copying that is assumed to come from the processor's cache, and how much more it takes if that does
    /// not.
    pub(super) doubt: (Seconds, Seconds),
    /// The longest of its pauses.
    pub(super) pause: Seconds,
    /// What of its waiting for the device were pauses, or waits for a log.
    pub(super) held: Seconds,
}

/// A call under way.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The model's time in the call.
    pub(super) at: Seconds,
    /// When it began.
    pub(super) began: Seconds,
    pub(super) thread: Key,
    /// When the call is known to have been over; infinite if that is to be predicted.
    pub(super) until: Seconds,
    /// The observation contradicts the model: the call went on where the model would not let it.
    pub(super) unlikely: bool,
    pub(super) file: u32,
    pub(super) device: usize,
    /// What calls on the device's files cost.
    pub(super) constants: Arc<Constants>,
    /// The largest folio that it allocates, in pages.
    pub(super) folio: u64,
    /// Where the time goes.
    pub(super) spent: ByCause<Seconds>,
    /// What it writes comes from the processor's cache.
    pub(super) hot: bool,
    pub(super) spread: Spread,
    /// It changes the file's time stamps even within a tick.
    pub(super) stamps: bool,
    pub(super) surcharge: Surcharge,
    /// How many times it may yet find no room after a pause.
    pub(super) patience: u32,
    /// Runs of pages that it has handed to the device.
    pub(super) runs: u64,
    pub(super) work: Work,
    /// Its time with the lock of its file, if it took that.
    pub(super) locked: Option<LockTime>,
    /// The flusher was at work when it copied.
    pub(super) flushing: bool,
    /// The flusher was at work when it began.
    pub(super) met_flusher: bool,
    /// Deleted inodes that the file which it made passed over.
    pub(super) passed: f64,
    /// A commit that nobody waits for may begin while it goes on.
    pub(super) may_commit: bool,
}

impl Call {
    /// Most pauses of a call. After these it goes on though there is no room: a limit of nothing would hold
    /// it for ever.
    pub(super) const PATIENCE: u32 = 100_000;

    /// Time passes in the call, until it is over.
    pub(super) fn pass(&mut self, time: Seconds) {
        // By comparison: `min` asks of both whether they are numbers, and every part of a call comes here.
        let at = self.at + time;
        self.at = if at < self.until { at } else { self.until };
    }

    /// Time passes in the call for this cause.
    pub(super) fn spend(&mut self, cause: Cause, time: Seconds) {
        self.pass(time);
        self.spent[cause] += time;
    }

    /// It takes longer after other work before, by `paths` times what a write does. Not learned.
    pub(super) fn come_back(&mut self, paths: f64) {
        let time = std::mem::take(&mut self.surcharge.away) * paths * self.constants.away;
        self.spend(Cause::Call, time);
        self.work.read.believed += time;
    }

    /// Time passes for a call of the kernel, which is an example of what others cost.
    pub(super) fn spend_call(&mut self, time: Seconds) {
        self.spend(Cause::Call, time);
        self.work.calls += 1.0;
    }

    /// It releases the lock of its file.
    #[inline]
    pub(super) fn unlock(&mut self) {
        if let Some(held) = &mut self.locked {
            held.length += self.at - held.taken;
            held.end = self.at;
        }
    }

    pub(super) fn state(&self) -> CallState {
        let (spent, device) = (&self.spent, self.spent.device());
        if spent[Cause::Read] > device / 2.0 {
            CallState::Read
        } else if device > Seconds::ZERO && device >= spent[Cause::Throttle] {
            CallState::Sync
        } else if spent[Cause::Throttle] > Seconds::ZERO {
            CallState::Throttle
        } else if self.flushing {
            CallState::Flush
        } else if spent[Cause::Stream] > Seconds::ZERO && spent[Cause::Call] <= Seconds::ZERO {
            CallState::Buffered
        } else {
            CallState::Free
        }
    }
}
