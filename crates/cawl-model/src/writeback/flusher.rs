//! The flusher of a device, as `wb_writeback` (fs/fs-writeback.c, 6.18): which inodes it takes, how much of
//! each, and when it rests.

use super::Machine;
use super::device::{BATCH, Why, Work};
use super::{Thresholds, threshold};
use crate::units::{Pages, Seconds};

impl Machine {
    /// `wb_over_bg_thresh`: there is enough dirty to write in the background. `metadata` are dirty pages in
    /// addition to those of files: a flusher that wakes up finds at least one of the inodes it is to write.
    pub fn over_background(&self, at: usize, metadata: u64) -> bool {
        let own = Pages::of(self.devices.iter().map(|d| d.dirty).sum());
        // Of the group's device the kernel knows what is dirty now (`wb_bg_dirty_limits`).
        let in_group = self.counted.map_or(own, |counted| counted.1.max(own));
        self.machine_over_background(at, metadata)
            || self.group.as_ref().is_some_and(|group| self.over(at, group, in_group, metadata))
    }

    /// The same of the machine alone, by which a writer starts the flusher.
    pub fn machine_over_background(&self, at: usize, metadata: u64) -> bool {
        let own = Pages::of(self.devices.iter().map(|d| d.dirty).sum());
        self.over(at, &self.global, (own + self.foreign_at(self.now)).max(Pages::ZERO), metadata)
    }

    fn over(&self, at: usize, thresholds: &Thresholds, dirty: Pages, metadata: u64) -> bool {
        let device = &self.devices[at];
        if self.devices.iter().any(|d| d.dirty > 0) && dirty + Pages::of(metadata) > thresholds.background {
            return true;
        }
        if self.devices.len() == 1 && !device.bounds.strict && device.bounds.max >= 1.0 {
            return false;
        }
        let reserved = self.written_to().map(|d| d.bounds.min).sum();
        let level = if self.laws.grants_room { dirty } else { thresholds.background };
        let share = threshold(thresholds.background, level, self.fraction(at), device.bounds, reserved);
        Pages::of(device.dirty) > share
    }

    /// `wb_start_background_writeback`, unless the flusher is at work.
    pub fn start_background(&mut self, at: usize) {
        if self.devices[at].work.is_none() {
            self.run(at);
            self.schedule();
        }
    }

    /// `wakeup_flusher_threads`: all that is dirty is written, whatever the limits.
    pub fn start_all(&mut self, at: usize) {
        self.drain(at);
        let now = self.now;
        let device = &mut self.devices[at];
        if device.dirty > 0 && device.work.is_none_or(|work| work.why != Why::Reclaim) {
            let work =
                device.work.unwrap_or(Work { why: Why::Reclaim, file: None, chunk: 0, dirtied_before: now });
            device.work = Some(Work { why: Why::Reclaim, dirtied_before: now, ..work });
            device.wakeup_at = None;
            (device.pass_began, device.work_began) = (now, now);
            self.devices[at].begin_estimate(now, self.laws);
            self.flush(at);
            self.schedule();
        }
    }

    /// `wb_do_writeback`: old data if it is time, then the background.
    pub(super) fn run(&mut self, at: usize) {
        self.drain(at);
        let (now, wakeup, expire) = (self.now, self.wakeup, self.expire);
        let device = &mut self.devices[at];
        device.begin_estimate(now, self.laws);
        device.wakeup_at = None;
        (device.pass_began, device.work_began) = (now, now);
        let periodic = wakeup > Seconds::ZERO && now - device.last_periodic >= wakeup;
        let (why, dirtied_before) = match periodic {
            true => (Why::Periodic, now - expire),
            false => (Why::Background, now),
        };
        if periodic {
            device.last_periodic = now;
        }
        device.work = Some(Work { why, file: None, chunk: 0, dirtied_before });
        self.flush(at);
    }

    /// `wb_writeback` and `writeback_sb_inodes`: submits until the queue is full or the work is done.
    pub(super) fn flush(&mut self, at: usize) {
        while let Some(work) = self.devices[at].work {
            let device = &mut self.devices[at];
            let room = device.room();
            let full = room < BATCH.min(device.queue);
            if device.held(self.now) || device.rests_until > self.now || device.in_flight > 0 && full {
                break;
            }
            let Some(file) = work.file else {
                self.next_inode(at, work);
                continue;
            };
            device.join_transaction(self.now);
            if self.take_foreign(at, room.max(1)) {
                continue;
            }
            let chunk = work.chunk - self.hand_over(at, file, work.chunk.min(BATCH), room.max(1));
            self.devices[at].work = Some(Work { chunk, ..work });
            if self.devices[at].overdue {
                // It has allocated blocks.
                self.begin_commit(at);
            }
            if chunk == 0 || self.cache.is_clean(file) {
                self.requeue(at, file, chunk == 0, work.dirtied_before);
            }
        }
        self.devices[at].schedule();
    }

    /// `requeue_inode`: what is still dirty after a full chunk goes on in the next turn, unless it is
    /// younger than this work cares for (since 6.10).
    pub(super) fn requeue(&mut self, at: usize, file: u32, used_up: bool, dirtied_before: Seconds) {
        let (now, hz) = (self.now, self.hz);
        let laws = self.laws;
        let device = &mut self.devices[at];
        if laws.idle_estimates {
            // `do_writepages`.
            device.estimate(now, hz, laws);
        }
        if let Some(work) = &mut device.work {
            work.file = None;
        }
        if self.cache.is_clean(file) {
            return self.cache.leave_lists(file);
        }
        let inode = self.cache.file_mut(file);
        if used_up && (inode.dirtied_when <= dirtied_before || !laws.leaves_young) {
            device.more.push_back((file, inode.generation));
        } else {
            let newest = device.dirty_list.back().map(|entry| entry.0);
            device.dirty_list.push_back((file, inode.generation));
            let newest = newest.map(|file| self.cache.dirtied_when(file));
            let inode = self.cache.file_mut(file);
            if newest.is_some_and(|newest| inode.dirtied_when < newest) {
                inode.dirtied_when = now;
            }
        }
    }

    /// Picks the next inode (`queue_io`), or ends the work.
    fn next_inode(&mut self, at: usize, work: Work) {
        let pass_over =
            self.devices[at].io.is_empty() || self.now - self.devices[at].pass_began >= Seconds(0.1);
        if pass_over && !self.laws.idle_estimates && self.now > self.devices[at].work_began {
            // `wb_writeback`, before 5.15.
            self.devices[at].estimate(self.now, self.hz, self.laws);
        }
        if pass_over && work.why == Why::Background && !self.over_background(at, 1) {
            return self.end_work(at, work.why);
        }
        let limit = self.global.limit;
        let now = self.now;
        let device = &mut self.devices[at];
        if pass_over {
            device.pass_began = now;
        }
        if device.io.is_empty() {
            device.io = std::mem::take(&mut device.more);
            if device.io.is_empty() && work.why != Why::Periodic {
                // All of them, however old; those that are void are met as such.
                device.io = std::mem::take(&mut device.dirty_list);
            }
            while let Some((file, generation)) = device.dirty_list.front() {
                let live = self.cache.is_listed(file, generation);
                let young = || self.cache.dirtied_when(file) > work.dirtied_before;
                if live && work.why == Why::Periodic && young() {
                    break;
                }
                device.dirty_list.pop_front();
                if live {
                    device.io.push_back((file, generation));
                }
            }
        }
        let chunk = device.chunk(limit);
        while let Some((file, generation)) = device.io.pop_front() {
            if self.cache.is_listed(file, generation) && !self.cache.is_clean(file) {
                device.work = Some(Work { file: Some(file), chunk, ..work });
                return;
            }
        }
        self.end_work(at, work.why);
    }

    /// The work is done: on to the background if there is need, or to sleep until the next wake-up.
    fn end_work(&mut self, at: usize, why: Why) {
        self.devices[at].work = None;
        let goes_on = why == Why::Periodic && self.over_background(at, 1);
        let device = &mut self.devices[at];
        if goes_on {
            (device.pass_began, device.work_began) = (self.now, self.now);
            device.work = Some(Work { why: Why::Background, file: None, chunk: 0, dirtied_before: self.now });
            return;
        }
        let dirty = device.has_dirty_inodes();
        device.wakeup_at = (dirty && self.wakeup > Seconds::ZERO).then_some(self.now + self.wakeup);
    }
}
