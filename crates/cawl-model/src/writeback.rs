//! The flusher and the devices it writes to: fs/fs-writeback.c in our own words.
//!
//! The law: pages are *dirty* until the flusher submits them, *in flight* until the device has written them,
//! and both count against the limits. A device completes `rate` pages a second as long as any are in flight;
//! at most `queue` pages are. Pages that lie scattered are fewer, since a queue holds requests, and slower,
//! by a `seek` for each run of them. The flusher takes inodes in turn, a chunk of each
//! (`writeback_chunk_size`); in the background until the level is below the background threshold (checked
//! between chunks, `wb_over_bg_thresh`); every `wakeup` it takes the inodes that were first dirtied more than
//! `expire` ago, and one chunk of those a background pass left behind.
//!
//! On a journalling filesystem the metadata of new blocks goes through a transaction, due `commit` seconds
//! after its first change. The next change then starts its commit. The log is written behind what is in
//! flight. Until it is on the device, files of the transaction wait for their next change, and completions
//! are withheld (ext4 converts extents only then) and counted all at once: the level stands still, then
//! drops. What is written until then belongs to the next transaction.

mod clock;
mod device;
mod flusher;
mod foreign;
mod group;
mod queue;
mod wbt;

pub use device::{BATCH, Device};
pub use foreign::Foreign;

use super::cache::{Cache, Found};
use super::release::Laws;
use super::share::{Completions, threshold};
use super::throttle::{Domain, Line};
use crate::units::{Hz, PageRate, Pages, Seconds};

/// Interval of the bandwidth estimation (`BANDWIDTH_INTERVAL`).
pub const INTERVAL: Seconds = Seconds(0.2);

/// The limits of a domain and its slowly falling hard limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    pub background: Pages,
    pub hard: Pages,
    /// `dom->dirty_limit`.
    pub limit: Pages,
}

impl Thresholds {
    /// Dirty pages up to which nobody is held back (`dirty_freerun_ceiling`).
    pub fn freerun(&self) -> Pages {
        (self.background + self.hard) / 2.0
    }

    /// `update_dirty_limit`: up at once, down by 1/32 of the gap, never below what is dirty.
    pub fn follow(&mut self, dirty: Pages) {
        let target = self.hard.max(dirty);
        if self.limit < self.hard {
            self.limit = self.hard;
        } else if self.limit > target {
            self.limit -= (self.limit - target) / 32.0;
        }
    }
}

/// All devices, the files on them, and the clock.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub cache: Cache,
    pub devices: Vec<Device>,
    /// The thresholds of the whole machine.
    pub global: Thresholds,
    /// Those of the traced programs' cgroup, if it has any.
    pub group: Option<Thresholds>,
    /// When that group's dirty pages were counted, and how many there were.
    counted: Option<(Seconds, Pages)>,
    /// Pages of files that the group can hold; None: it has no limit.
    pub room: Option<u64>,
    /// The time.
    pub now: Seconds,
    /// `dirty_writeback_interval`; 0 for never.
    pub wakeup: Seconds,
    /// `dirty_expire_interval`.
    pub expire: Seconds,
    /// Timer ticks per second.
    pub hz: Hz,
    /// The laws of its release.
    pub laws: Laws,
    /// Dirty pages of untraced writers, which are not in the cache.
    pub foreign: Foreign,
    completions: Completions,
    next: Seconds,
}

impl Machine {
    /// A machine with nothing dirty; `intervals` are `wakeup` and `expire`.
    pub fn new(global: Thresholds, group: Option<Thresholds>, intervals: [Seconds; 2], hz: Hz) -> Machine {
        let [wakeup, expire] = intervals;
        Machine { global, group, wakeup, expire, hz, next: Seconds::INFINITY, ..Machine::default() }
    }

    fn schedule(&mut self) {
        self.next = self.devices.iter().map(|d| d.next).fold(Seconds::INFINITY, Seconds::min);
    }

    /// What happens next to a device has changed.
    fn reschedule(&mut self, at: usize) {
        self.devices[at].schedule();
        self.schedule();
    }

    /// Completes what the device has written by now.
    pub fn drain(&mut self, at: usize) {
        let device = &mut self.devices[at];
        let span = self.now - device.drained;
        if span <= Seconds::ZERO || device.held(self.now) {
            return;
        }
        device.drained = self.now;
        if device.in_flight == 0 {
            device.carry = Pages::ZERO;
            return;
        }
        let due = device.carry + device.speed() * span;
        let done = device.counted(due);
        let beyond = (due - Pages::of(device.in_flight)).max(Pages::ZERO);
        device.wrote_until = self.now - beyond / device.speed();
        device.carry = if done == device.in_flight { Pages::ZERO } else { due - Pages::of(done) };
        self.complete_pages(at, done);
    }

    /// Copying was over sooner than thought, at `to`. What a device did in the rest of the time is
    /// not undone, but nor is it done again: the device goes on from where it stands.
    pub fn rewind(&mut self, to: Seconds) {
        self.now = self.now.min(to);
    }

    /// From now on the flusher hands over more at a time.
    pub fn coarsen(&mut self) {
        self.devices.iter_mut().for_each(Device::coarsen);
    }

    /// A call that may be made to sleep took so much `longer` than predicted: its writer slept, or did not if
    /// negative, as the level is another. The device is taken to have written that much less, or more.
    pub fn stand_still(&mut self, at: usize, longer: Seconds) {
        self.drain(at);
        let device = &mut self.devices[at];
        if device.in_flight > 0 {
            device.carry -= device.speed() * longer;
            self.reschedule(at);
        }
    }

    /// No more than `most` pages of a device are dirty: it has written the others by now, whatever its rate
    /// is held to be.
    pub fn relieve(&mut self, at: usize, most: u64) {
        self.drain(at);
        for file in self.dirty_files(at) {
            let waiting = self.devices[at].dirty.saturating_sub(most);
            if waiting == 0 {
                break;
            }
            self.submit(file, waiting);
        }
        let device = &self.devices[at];
        let written = device.level().saturating_sub(most).min(device.in_flight);
        self.complete_pages(at, written);
        let carry = &mut self.devices[at].carry;
        *carry -= carry.min(Pages::of(written)).max(Pages::ZERO);
        self.reschedule(at);
    }

    /// A device completes pages at `rate` from now on, and holds `queue` pages in flight.
    pub fn set_rate(&mut self, at: usize, rate: PageRate, queue: u64) {
        let queue = queue.max(1);
        if self.devices[at].rate == rate && self.devices[at].queue == queue {
            return;
        }
        self.drain(at);
        let device = &mut self.devices[at];
        (device.rate, device.queue) = (rate, queue);
        self.reschedule(at);
    }

    fn complete_pages(&mut self, at: usize, pages: u64) {
        if pages > 0 {
            let device = &mut self.devices[at];
            device.complete(pages);
            device.completions.add(Pages::of(pages), self.now);
            self.completions.add(Pages::of(pages), self.now);
        }
    }

    /// What a file had in flight is written by now: a call waited for it.
    pub fn complete(&mut self, file: u32) {
        let at = self.cache.device(file);
        self.drain(at);
        let device = &mut self.devices[at];
        let pages = self.cache.file(file).submitted.saturating_sub(device.written).min(device.in_flight);
        device.carry = (device.carry - Pages::of(pages)).max(Pages::ZERO);
        self.complete_pages(at, pages);
        let device = &mut self.devices[at];
        device.held_until = None;
        let written = self.now + device.left() / device.speed() + device.timing.latency;
        if let Some((_, _, until)) = &mut device.logged {
            // It was to be written behind these pages.
            *until = until.min(written);
        }
        self.reschedule(at);
    }

    /// A device is met: a transaction that began before may be running.
    pub fn meet(&mut self, mut device: Device) {
        if device.commit > Seconds::ZERO {
            device.is_due(self.now + device.commit);
        }
        self.cache.meet(device.traits.is_in_memory);
        self.devices.push(device);
    }

    /// The inode of a file changes at `when` in the running transaction; `grows` if its size or blocks do.
    pub fn change(&mut self, file: u32, when: Seconds, grows: bool) {
        let inode = self.cache.file_mut(file);
        let at = inode.device;
        let device = &mut self.devices[at];
        if device.traits.is_in_memory {
            return;
        }
        if inode.changed == device.transaction && !grows && !device.overdue {
            // As most writes find it.
            return;
        }
        device.changed = device.transaction;
        inode.changed = device.transaction;
        if device.transaction > 1 {
            // The first change after a transaction was due starts its commit (`jbd2_journal_stop`). When the
            // first one is due is not known.
            device.commits_by = device.commits_by.min(when);
        }
        if grows {
            inode.grown = device.transaction;
        }
        device.join_transaction(when);
        self.next = self.next.min(device.next);
        if device.overdue && !device.held(when) {
            self.now = self.now.max(when);
            self.drain(at);
            self.begin_commit(at);
            let device = &mut self.devices[at];
            if device.transaction > 2 {
                device.commits_by = when;
            }
            self.schedule();
        }
    }

    /// A commit that nobody waits for begins (`jbd2_journal_commit_transaction`): its log goes behind what is
    /// in flight.
    fn begin_commit(&mut self, at: usize) {
        let now = self.now;
        let device = &mut self.devices[at];
        device.is_due(now);
        device.overdue = false;
        let until =
            now + device.left().min(Pages::of(device.in_flight)) / device.speed() + device.timing.latency;
        device.logged = Some((device.transaction, now, until));
        device.held_until = device.traits.withholds_completions().then_some(until);
        device.transaction += 1;
        // What is written back from now on belongs to the next transaction: not before the device goes on, if
        // it was seen to stand still.
        let stands = (Pages::ZERO - device.carry).max(Pages::ZERO) / device.speed();
        device.commit_at = (device.in_flight > 0).then_some(now + stands + device.commit);
        device.schedule();
    }

    /// The log is written by now: a call was seen to go on.
    pub fn end_log(&mut self, at: usize) {
        self.devices[at].logged = None;
        self.devices[at].held_until = None;
        self.drain(at);
        self.reschedule(at);
    }

    /// A call waited for the running transaction: it is on the device.
    pub fn commit(&mut self, at: usize) {
        let device = &mut self.devices[at];
        device.transaction += 1;
        device.commit_at = None;
        device.overdue = false;
        device.commits_by = Seconds::NEG_INFINITY;
        device.logged = None;
        device.held_until = None;
        self.reschedule(at);
    }

    /// Without a journal: the inode of a file is on its device.
    pub fn write_inode(&mut self, file: u32) {
        let inode = self.cache.file_mut(file);
        (inode.changed, inode.grown) = (0, 0);
    }

    /// The rate of the device that has most to do, or had, if none has.
    fn busiest_rate(&self) -> PageRate {
        let busiest = self.devices.iter().max_by_key(|device| (device.level(), device.dirtied));
        busiest.map_or(PageRate::ZERO, |device| device.rate)
    }

    /// What the devices complete that are at work, or the busiest if none is: others have nothing to write.
    pub fn rate_at_work(&self) -> PageRate {
        let working = self.devices.iter().filter(|device| device.is_at_work()).map(|device| device.rate);
        match working.sum() {
            PageRate(0.0) => self.busiest_rate(),
            rate => rate,
        }
    }

    /// Dirty pages of untraced writers, at a moment; they are taken to be the busiest device's.
    #[inline]
    pub fn foreign_at(&self, at: Seconds) -> Pages {
        if self.foreign.are_none() {
            return Pages::ZERO;
        }
        self.foreign.pages(at, || self.busiest_rate())
    }

    /// Dirty pages of all devices, those in flight included, now.
    pub fn level(&mut self) -> u64 {
        for at in 0..self.devices.len() {
            self.drain(at);
        }
        self.devices.iter().map(Device::level).sum()
    }

    /// Dirty pages as of now without bringing the devices up to date.
    #[inline]
    pub fn level_now(&self) -> u64 {
        self.devices.iter().map(|device| device.level_at(self.now)).sum()
    }

    /// The pages of a file from `start` up to `end` are written in the cache at `when`, in new folios
    /// of `folio` pages at most. In memory alone they stay as clean as they were; btrfs will write them to
    /// new blocks, whatever was there (`btrfs_dirty_folio`).
    pub fn write(&mut self, file: u32, start: u64, end: u64, folio: u64, when: Seconds) -> Found {
        let found = self.cache.dirty(file, start, end, folio);
        let traits = self.devices[self.cache.device(file)].traits;
        if traits.is_in_memory {
            self.cache.clean(file, u64::MAX, u64::MAX);
            return Found { dirtied: 0, padding: 0, clean: 0, ..found };
        }
        if traits.logs_files {
            self.change(file, when, true);
        }
        self.mark_dirty(file, found.dirtied, when);
        found
    }

    /// Takes note that `pages` of a file have become dirty at `when` (`__mark_inode_dirty`).
    pub fn mark_dirty(&mut self, file: u32, pages: u64, when: Seconds) {
        if pages == 0 {
            return;
        }
        let wakeup = self.wakeup;
        let inode = self.cache.file_mut(file);
        let device = &mut self.devices[inode.device];
        device.dirty += pages;
        device.dirtied += pages;
        if device.commit_at.is_none() && device.commit > Seconds::ZERO {
            device.join_transaction(when);
            self.next = self.next.min(device.next);
        }
        if !inode.listed {
            let first = !device.has_dirty_inodes();
            inode.listed = true;
            inode.dirtied_when = when;
            device.dirty_list.push_back((file, inode.generation));
            if first && wakeup > Seconds::ZERO && device.wakeup_at.is_none() {
                device.wakeup_at = Some(when + wakeup);
                device.schedule();
                self.schedule();
            }
        }
    }

    /// Takes note that `pages` dirty pages of a file are gone unwritten.
    pub fn cancel(&mut self, file: u32, pages: u64) {
        let device = self.cache.device(file);
        self.devices[device].dirty -= pages;
        self.devices[device].cancelled += pages;
        self.cache.leave_lists(file);
    }

    /// Submits `most` dirty pages of a file at once, whatever the queue (`WB_SYNC_ALL`); returns how many.
    pub fn submit(&mut self, file: u32, most: u64) -> u64 {
        let at = self.cache.device(file);
        self.drain(at);
        self.devices[at].begin_estimate(self.now, self.laws);
        let pages = self.hand_over(at, file, most, u64::MAX);
        self.reschedule(at);
        self.cache.leave_lists(file);
        pages
    }

    /// Hands a device up to `most` dirty pages of a file, in requests that fill `room` pages of its queue;
    /// returns their number.
    fn hand_over(&mut self, at: usize, file: u32, most: u64, room: u64) -> u64 {
        let cleaned = self.cache.clean(file, most, room);
        let pages = cleaned.pages;
        let device = &mut self.devices[at];
        device.submit(cleaned);
        if pages > 0 && self.cache.submitted(file, device.submitted, device.transaction) {
            device.changed = device.transaction;
        }
        pages
    }

    /// The dirty files of a device, in the order of its lists.
    pub fn dirty_files(&self, at: usize) -> Vec<u32> {
        let device = &self.devices[at];
        let in_hand = device.work.and_then(|work| work.file);
        let listed = device.io.iter().chain(device.more.iter()).chain(device.dirty_list.iter());
        let live = listed.filter(|(file, generation)| self.cache.is_listed(*file, *generation));
        in_hand.into_iter().chain(live.map(|entry| entry.0)).collect()
    }

    /// Pages of a file that are still in flight, with those ahead of them.
    pub fn in_flight_before(&mut self, file: u32) -> u64 {
        let at = self.cache.device(file);
        self.drain(at);
        let device = &self.devices[at];
        let counted = self.cache.file(file).submitted.saturating_sub(device.written).min(device.in_flight);
        counted.saturating_sub(device.carry.max(Pages::ZERO).whole())
    }

    /// A device's share of the completions, between 0 and 1. One without writes has none.
    fn fraction(&self, at: usize) -> f64 {
        let all = self.completions.at(self.now);
        if all < Pages(1.0) {
            return 1.0 / self.written_to().count().max(1) as f64;
        }
        (self.devices[at].completions.at(self.now) / all).min(1.0)
    }

    /// The devices that were written to: programs open files on others, too.
    fn written_to(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.dirtied > 0)
    }

    pub fn domain(thresholds: &Thresholds, dirty: Pages) -> Domain {
        Domain { dirty, background: thresholds.background, thresh: thresholds.hard, limit: thresholds.limit }
    }

    /// A device's line in a domain (`wb_dirty_limits`), given the device's level.
    pub fn line(&self, at: usize, domain: &Domain, level: Pages) -> Line {
        let device = &self.devices[at];
        let reserved = self.written_to().map(|d| d.bounds.min).sum();
        let fraction = if self.devices.len() == 1 { 1.0 } else { self.fraction(at) };
        let dirty = if self.laws.grants_room { domain.dirty } else { domain.thresh };
        let thresh = threshold(domain.thresh, dirty, fraction, device.bounds, reserved);
        Line {
            dirty: level,
            thresh,
            background: thresh * domain.background.0 / domain.thresh.max(Pages(1.0)).0,
            bandwidth: device.bandwidth.average,
            strict: device.bounds.strict,
        }
    }

    /// The base rate and bandwidth of a device are brought up to date by a task in `balance_dirty_pages`
    /// at `now` (`__wb_update_bandwidth`), if it is time.
    pub fn update_rates(&mut self, at: usize, domain: &Domain, line: &Line, ratio: f64, now: Seconds) {
        let elapsed = now - self.devices[at].stamp;
        if elapsed < INTERVAL {
            return;
        }
        // No pause is longer than 0.2 s, so that what has rested did so before the task came.
        if self.devices[at].skips_estimate(now, now, self.laws) {
            return self.devices[at].restamp(now);
        }
        self.global.follow(domain.dirty);
        self.group.iter_mut().for_each(|group| group.follow(domain.dirty));
        let device = &mut self.devices[at];
        let rate = Pages::of(device.dirtied - device.dirtied_stamp) / elapsed;
        device.limit.update(domain, line, ratio, rate);
        device.bandwidth.update(Pages::of(device.written - device.written_stamp), elapsed, self.hz);
        device.restamp(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::FilesystemKind;
    use crate::release::Release;
    use crate::share::Bounds;

    fn machine() -> Machine {
        Machine::new(Thresholds::default(), None, [5.0, 30.0].map(Seconds), Hz(250.0))
    }

    /// With rate and base rate.
    fn device(id: u64, rate: f64, base: f64) -> Device {
        Device::new(id, PageRate(rate), PageRate(base), 1024, Bounds::default(), Seconds::ZERO)
    }

    fn limits(background: f64, hard: f64) -> Thresholds {
        let [background, hard] = [background, hard].map(Pages);
        Thresholds { background, hard, limit: hard }
    }

    /// Not every five seconds: a call that lasts for centuries, in a damaged trace, would take minutes.
    #[test]
    fn a_device_that_stands_still_commits_once() {
        let mut machine = machine();
        let mut device = device(7, 1e5, 1e5);
        device.commit = Seconds(5.0);
        machine.meet(device);
        (machine.devices[0].in_flight, machine.devices[0].timing.latency) = (32, Seconds(0.001));
        machine.devices[0].join_transaction(Seconds::ZERO);
        machine.stand_still(0, Seconds(1e7));
        machine.advance(Seconds(1e7));
        assert!(machine.devices[0].transaction <= 3, "{}", machine.devices[0].transaction);
        machine.advance(Seconds(1.01e7));
        assert_eq!(machine.devices[0].in_flight, 0);
    }

    /// The device has rested for 2 s when the flusher begins, and 0.25 s later 1000 pages are written. Since
    /// 5.15 these count, in 1024 ticks of 4 ms: (1000 + 25 600 × 3.846) / 4.096 pages a second, and 0.25 s
    /// later (1000 + 24 281.6 × 3.846) / 4.096. Before, the first estimate was left out.
    #[test]
    fn the_first_estimate_after_a_rest_was_lost_before_5_15() {
        let estimated = |release| {
            let mut machine = machine();
            machine.laws = Laws::of(release, true);
            machine.meet(device(7, 1e5, 25_600.0));
            machine.now = Seconds(2.0);
            machine.run(0);
            let domain = Machine::domain(&limits(10.0, 20.0), Pages(15.0));
            [2.25, 2.5].map(|now| {
                machine.devices[0].written += 1000;
                let line = machine.line(0, &domain, Pages(15.0));
                machine.update_rates(0, &domain, &line, 1.0, Seconds(now));
                machine.devices[0].bandwidth.write.0.round()
            })
        };
        assert_eq!(estimated(Release(5, 15)), [24_282.0, 23_044.0]);
        assert_eq!(estimated(Release(5, 14)), [25_600.0, 24_282.0]);
    }

    /// Two devices, of which one has all completions: of limits of 1000 pages at a level of 200 the other
    /// one's threshold is (1000 - 200) / 8 since 6.14, and nothing before.
    #[test]
    fn an_idle_device_has_no_threshold_before_6_14() {
        let threshold = |release| {
            let mut machine = machine();
            machine.laws = Laws::of(release, true);
            for id in [1, 2] {
                machine.meet(device(id, 1e5, 1e5));
            }
            machine.devices.iter_mut().for_each(|device| device.bounds.max = 1.0);
            (machine.devices[0].dirtied, machine.devices[0].in_flight) = (100, 100);
            machine.complete_pages(0, 100);
            let domain = Machine::domain(&limits(500.0, 1000.0), Pages(200.0));
            machine.line(1, &domain, Pages::ZERO).thresh
        };
        assert_eq!((threshold(Release(6, 14)), threshold(Release(6, 12))), (Pages(100.0), Pages::ZERO));
    }

    /// A commit begins while 1000 pages are in flight, a page a millisecond: half a second later as many
    /// count as written before 5.6, and none since, as extents are converted behind the log.
    #[test]
    fn a_commit_withholds_no_completions_before_5_6() {
        let in_flight = |release| {
            let mut machine = machine();
            let mut device = device(7, 1e3, 1e3);
            device.mount(FilesystemKind::Ext4, Seconds(5.0), Laws::of(release, true));
            machine.meet(device);
            (machine.devices[0].in_flight, machine.devices[0].timing.latency) = (1000, Seconds(0.001));
            machine.begin_commit(0);
            machine.now = Seconds(0.5);
            machine.drain(0);
            machine.devices[0].in_flight
        };
        assert_eq!((in_flight(Release(5, 6)), in_flight(Release(5, 4))), (1000, 500));
    }

    /// A chunk of an inode that became dirty at 10 s was written by a flusher that cares for what was dirty
    /// at 5 s: since 6.10 the rest waits among the dirty ones.
    #[test]
    fn the_periodic_flusher_left_no_young_inode_before_6_10() {
        let goes_on = |release| {
            let mut machine = machine();
            machine.laws = Laws::of(release, true);
            machine.meet(device(7, 1e5, 1e5));
            let file = machine.cache.open(cawl_wire::FileId { dev: 7, ino: 1, birth: 0 }, 0);
            machine.write(file, 0, 4096, 1, Seconds(10.0));
            assert!(machine.devices[0].dirty_list.pop_front().is_some());
            machine.requeue(0, file, true, Seconds(5.0));
            !machine.devices[0].more.is_empty()
        };
        assert_eq!((goes_on(Release(6, 10)), goes_on(Release(6, 9))), (false, true));
    }
}
