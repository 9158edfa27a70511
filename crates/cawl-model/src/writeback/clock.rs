//! Time passes: what is due happens.

use super::Machine;
use super::device::TIMER;
use crate::units::Seconds;

impl Machine {
    /// Lets time pass up to `to`; the past is left alone.
    #[inline]
    pub fn advance(&mut self, to: Seconds) {
        // Seldom, and asked for several times a call.
        if self.next <= to {
            self.live_through(to);
        }
        if to > self.now {
            self.now = to;
        }
    }

    /// What is due up to `to` happens.
    #[cold]
    #[inline(never)]
    fn live_through(&mut self, to: Seconds) {
        while self.next <= to {
            self.now = self.now.max(self.next);
            for at in 0..self.devices.len() {
                if self.devices[at].next <= self.now {
                    self.happen(at);
                }
            }
            self.schedule();
        }
    }

    /// Something is due on a device: a commit begins or ends, the flusher wakes up, or its queue has room.
    fn happen(&mut self, at: usize) {
        let now = self.now;
        if self.devices[at].held_until.is_some_and(|until| until <= now) {
            self.devices[at].held_until = None;
        }
        self.drain(at);
        if self.devices[at].commit_at.is_some_and(|due| due <= now) {
            let device = &mut self.devices[at];
            if device.held(now) {
                // One transaction after the other.
                device.overdue = true;
                device.commit_at = device.held_until;
                device.schedule();
            } else if device.overdue || device.in_flight > 0 && !device.traits.completes_extents {
                // The queue was filled up while the extent was written.
                self.flush(at);
                if self.devices[at].commit_at.is_some_and(|due| due <= now) {
                    self.begin_commit(at);
                }
            } else {
                // Each extent that is written changes its inode; else jbd2's timer starts it.
                device.overdue = true;
                device.commit_at = Some(now + device.extent_left().unwrap_or(TIMER / 2.0));
                device.schedule();
            }
        }
        let device = &self.devices[at];
        if device.held(now) || device.next > now {
            return;
        }
        if device.work.is_some() {
            self.flush(at);
        } else if device.wakeup_at.is_some_and(|due| due <= now) {
            self.run(at);
        } else {
            self.devices[at].schedule();
        }
    }

    /// Drops from the cache what calls have taken beyond the memory that there is. Where all that could be
    /// dropped is dirty, the flusher writes it (`shrink_inactive_list`).
    #[inline]
    pub fn reclaim(&mut self) {
        if self.cache.is_short() {
            self.reclaim_now();
        }
    }

    #[cold]
    fn reclaim_now(&mut self) {
        self.level();
        let devices = &self.devices;
        self.cache.reclaim(|file| {
            let device = &devices[file.device];
            file.submitted.saturating_sub(device.written).min(device.in_flight)
        });
        if self.cache.is_short() {
            (0..self.devices.len()).for_each(|at| self.start_all(at));
        }
    }
}
