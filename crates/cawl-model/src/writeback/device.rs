//! A device and the flusher that serves it (`struct bdi_writeback`): its counters, its lists of inodes, and
//! when it must be looked at next. What it does then is decided by [`Machine`](super::Machine).

use std::sync::Arc;

use super::INTERVAL;
use super::queue::Queue;
use super::wbt::{QueueFacts, Wbt};
use crate::cache::{Cleaned, REQUEST};
use crate::constants::{Constants, Remote, Timing};
use crate::filesystem::{Deleted, Filesystem, FilesystemKind, Traits, TreeLog};
use crate::pages::BLOCK;
use crate::profile::HostProfile;
use crate::release::Laws;
use crate::share::{Bounds, Completions};
use crate::throttle::{Bandwidth, RateLimit};
use crate::units::{Hz, PageRate, Pages, Seconds};

/// Pages the flusher hands over at a time: what ext4 maps in one go (`MAX_WRITEPAGES_EXTENT_LEN`).
pub const BATCH: u64 = 2048;

/// Smallest chunk of an inode, in pages (`MIN_WRITEBACK_PAGES`).
const MIN_CHUNK: u64 = 1024;

/// After this long without writeback the estimation starts afresh (`WB_BANDWIDTH_IDLE_JIF`).
pub(super) const IDLE: Seconds = Seconds(1.0);

/// Time by which a commit may be late that no change starts: jbd2's timer fires on whole seconds of
/// jiffies (`round_jiffies_up`, 6.18).
pub(super) const TIMER: Seconds = Seconds(1.0);

/// Small files that a coarse flusher hands over at a time; each takes the room of a request.
const FILES: u64 = 8;

/// Why the flusher works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Background,
    Periodic,
    /// Reclaim has found nothing but dirty pages: all is written (`WB_REASON_VMSCAN`).
    Reclaim,
}

/// What the flusher is doing (`struct wb_writeback_work`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) why: Why,
    /// The inode in hand.
    pub(super) file: Option<u32>,
    /// What is left of its chunk, in pages.
    pub(super) chunk: u64,
    /// Inodes first dirtied later than this are not taken.
    pub(super) dirtied_before: Seconds,
}

/// A device and its flusher (`struct bdi_writeback`). Counters are in pages.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its number (`st_dev`).
    pub id: u64,
    /// Under which number the profile has its constants.
    pub profiled: u64,
    /// What calls on its files cost. Copies share it.
    pub constants: Arc<Constants>,
    /// Its own constants.
    pub timing: Timing,
    /// The way to its files, if they are elsewhere.
    pub remote: Option<Arc<Remote>>,
    /// Rate at which it completes pages.
    pub rate: PageRate,
    /// Time that a run of pages away from the one before takes in addition.
    pub seek: Seconds,
    /// Most pages in flight; as many as are in as many requests of the longest.
    pub queue: u64,
    /// Pages for which there must be room in the queue before the flusher goes on.
    batch: u64,
    /// Bounds on its share of the threshold.
    pub bounds: Bounds,
    /// Dirty and not submitted.
    pub dirty: u64,
    /// Submitted and not completed.
    pub in_flight: u64,
    /// Of those, pages that count as written with their folio and are not given to the device.
    pub padding: Pages,
    /// Room that what is in flight takes in the queue, in pages.
    pub(super) queued: Pages,
    /// Runs among this that are away from the one before.
    pub(super) jumps: f64,
    /// Extents that this was mapped to: the filesystem counts none of an extent's pages as written before all
    /// of it is.
    extents: f64,
    /// Pages made dirty since the beginning.
    pub dirtied: u64,
    /// Pages submitted since the beginning.
    pub submitted: u64,
    /// Pages whose writing was completed since the beginning.
    pub written: u64,
    /// Pages that were dropped dirty since the beginning.
    pub cancelled: u64,
    /// Pages of untraced writers that its flusher took since the beginning.
    pub adopted: u64,
    /// The flusher's next batch is one of untraced writers' pages, if there are any.
    pub(super) foreign_turn: bool,
    /// Until when the flusher rests, since the kernel's has not begun as much.
    pub(super) rests_until: Seconds,
    /// Its bandwidth as the kernel estimates it.
    pub bandwidth: Bandwidth,
    /// The base rate of its writers.
    pub limit: RateLimit,
    /// `dirty_exceeded`: tasks are checked every eight pages.
    pub exceeded: bool,
    /// When bandwidth was last estimated.
    pub stamp: Seconds,
    pub(super) dirtied_stamp: u64,
    pub(super) written_stamp: u64,
    pub(super) completions: Completions,
    pub(super) drained: Seconds,
    pub(super) carry: Pages,
    pub(super) dirty_list: Queue,
    pub(super) io: Queue,
    pub(super) more: Queue,
    pub(super) work: Option<Work>,
    pub(super) pass_began: Seconds,
    /// When the flusher began its work.
    pub(super) work_began: Seconds,
    pub(super) wakeup_at: Option<Seconds>,
    pub(super) last_periodic: Seconds,
    /// The law of its filesystem, and what of that each call asks for.
    pub(crate) filesystem: &'static dyn Filesystem,
    pub(crate) traits: Traits,
    /// Interval of the journal's commits; 0 if nothing waits for any.
    pub commit: Seconds,
    /// A name has changed since a folder was last synced.
    pub renamed: bool,
    /// The log of synced files, where it has one of its own.
    pub(crate) tree_log: TreeLog,
    /// What was deleted lately.
    deleted: Deleted,
    /// The running transaction of its journal; the first is 1.
    pub transaction: u64,
    /// The latest in which anything changed; 0 for none.
    pub changed: u64,
    /// When the running transaction is due, or, when that is over, its commit begins at the latest.
    pub(super) commit_at: Option<Seconds>,
    /// The running transaction is due: the next change starts its commit.
    pub(super) overdue: bool,
    /// When the commit of an earlier one begins, at the latest.
    pub(super) commits_by: Seconds,
    /// Until when a commit withholds completions: its log is being written.
    pub(super) held_until: Option<Seconds>,
    /// The latest transaction whose log was written, from when, and until when.
    pub(super) logged: Option<(u64, Seconds, Seconds)>,
    /// When something happens next if no call comes.
    pub(super) next: Seconds,
    /// Until when synchronous transfers occupy it.
    pub occupied: Seconds,
    /// Until when a call last waited for it.
    pub idle_since: Seconds,
    /// Until when it last had pages in flight.
    pub wrote_until: Seconds,
    /// How much less its writers slept than was predicted.
    pub unslept: Seconds,
    /// When a writer to it was last paused.
    pub paused: Seconds,
    /// What of its queue the flusher has.
    pub wbt: Wbt,
    /// Where the last synchronous access to it ended: file and byte.
    pub head: (u32, u64),
}

impl Device {
    /// An idle device that completes pages at `rate`, and whose writers the kernel holds to `base` at first.
    pub fn new(id: u64, rate: PageRate, base: PageRate, queue: u64, bounds: Bounds, now: Seconds) -> Device {
        Device {
            id,
            rate,
            queue: queue.max(1),
            batch: BATCH,
            bounds,
            bandwidth: Bandwidth { write: base, average: base },
            limit: RateLimit { base, balanced: base },
            stamp: now,
            drained: now,
            pass_began: now,
            last_periodic: now,
            transaction: 1,
            commits_by: Seconds::NEG_INFINITY,
            next: Seconds::INFINITY,
            foreign_turn: true,
            rests_until: Seconds::NEG_INFINITY,
            idle_since: Seconds::NEG_INFINITY,
            wrote_until: Seconds::NEG_INFINITY,
            paused: Seconds::NEG_INFINITY,
            head: (u32::MAX, 0),
            ..Device::default()
        }
    }

    /// It has this filesystem, whose journal is committed every so many seconds.
    pub fn mount(&mut self, kind: FilesystemKind, commit: Seconds, laws: Laws) {
        (self.filesystem, self.traits) = (kind.law(), kind.law().traits(laws));
        // A server keeps the journal to itself.
        if self.remote.is_none() && self.traits.waits_for_log {
            self.commit = commit;
        }
    }

    /// Its constants are those of this profile from now on, in which `own` are those of the machine's
    /// devices.
    pub fn describe(&mut self, profile: &HostProfile, own: &Arc<Constants>) {
        let of = profile.device_of(self.profiled);
        let remote = Remote::of(of, own.page);
        self.timing = Timing::of(of, own.page, remote.as_ref());
        self.seek = remote.as_ref().map_or(self.timing.seek, Remote::seek);
        self.wbt.facts = of.shared_queue.as_ref().map_or_else(QueueFacts::default, QueueFacts::of);
        self.constants = match &of.network {
            Some(network) => Arc::new(Constants::over(network, profile)),
            None => Arc::clone(own),
        };
        self.remote = remote.map(Arc::new);
    }

    /// True while the flusher works on this device.
    pub fn busy(&self) -> bool {
        self.work.is_some()
    }

    /// What was deleted lately, where that delays who makes files.
    pub(crate) fn passed_over(&mut self) -> Option<&mut Deleted> {
        (self.traits.passes_deleted && self.timing.syncs_stamps).then_some(&mut self.deleted)
    }

    /// Pages in flight that the device has not written, whether they count or not.
    pub fn left(&self) -> Pages {
        (Pages::of(self.in_flight) - self.carry).max(Pages::ZERO)
    }

    /// True while the flusher works on this device, or the device on what it was handed.
    pub fn writes_back(&self, now: Seconds) -> bool {
        if self.busy() || self.in_flight == 0 {
            return self.busy();
        }
        let span = if self.held(now) { Seconds::ZERO } else { (now - self.drained).max(Seconds::ZERO) };
        Pages::of(self.in_flight) > self.carry + self.speed() * span
    }

    /// Dirty pages, those in flight included.
    pub fn level(&self) -> u64 {
        self.dirty + self.in_flight
    }

    /// Dirty pages at a moment, those in flight included, without bringing the device up to date.
    #[inline]
    pub(super) fn level_at(&self, now: Seconds) -> u64 {
        // What is asked for twice a call is worth the shortest way.
        if self.in_flight == 0 { self.dirty } else { self.level_beside_work(now) }
    }

    #[inline(never)]
    fn level_beside_work(&self, now: Seconds) -> u64 {
        let span = if self.held(now) { Seconds::ZERO } else { (now - self.drained).max(Seconds::ZERO) };
        self.dirty + self.in_flight - self.counted(self.carry + self.speed() * span)
    }

    /// Part of the pages in flight that the device really writes.
    pub fn density(&self) -> f64 {
        if self.padding <= Pages::ZERO || self.in_flight == 0 {
            return 1.0;
        }
        // No folio is larger than a block.
        (1.0 - self.padding / Pages::of(self.in_flight)).max(1.0 / BLOCK as f64)
    }

    /// Rate of pages that the kernel counts as completed of those in flight, which may lie scattered.
    pub fn speed(&self) -> PageRate {
        if self.padding <= Pages::ZERO && self.seek == Seconds::ZERO {
            // Nothing slows it down; asked for several times a call.
            return self.rate;
        }
        let seeking = self.rate * (self.jumps * self.seek) / Pages::of(self.in_flight.max(1));
        self.rate / (self.density() + seeking)
    }

    /// How many of `due` pages that the device has written count as written: whole extents
    /// (`ext4_end_io_rsv_work`, 6.18), all of them about equally long.
    pub(super) fn counted(&self, due: Pages) -> u64 {
        if due >= Pages::of(self.in_flight) {
            return self.in_flight;
        }
        if !self.traits.completes_extents {
            return due.max(Pages::ZERO).whole();
        }
        let extent = Pages::of(self.in_flight) / self.extents.max(1.0);
        ((due / extent).floor().max(0.0) * extent.0).round() as u64
    }

    /// Time until the extent is written that the device is at, if any is in flight.
    pub(super) fn extent_left(&self) -> Option<Seconds> {
        let extent = Pages::of(self.in_flight) / self.extents.max(1.0);
        (extent > Pages::ZERO).then(|| (extent - self.carry.max(Pages::ZERO) % extent) / self.speed())
    }

    /// Pages of a file are handed over to the device.
    pub(super) fn submit(&mut self, cleaned: Cleaned) {
        self.dirty -= cleaned.pages;
        self.in_flight += cleaned.pages;
        self.padding += Pages::of(cleaned.padding);
        self.queued += Pages::of(cleaned.queued);
        self.jumps += cleaned.jumps as f64;
        self.extents += cleaned.jumps.max(cleaned.pages.div_ceil(BATCH)) as f64;
        self.submitted += cleaned.pages;
    }

    /// This number of pages in flight is written, mixed as they all are.
    pub(super) fn complete(&mut self, pages: u64) {
        let left = self.in_flight - pages;
        let kept = left as f64 / self.in_flight.max(1) as f64;
        [self.padding, self.queued] = [self.padding, self.queued].map(|pages| pages * kept);
        self.jumps *= kept;
        self.extents *= kept;
        self.in_flight = left;
        self.written += pages;
    }

    /// The flusher is at work, or the device has not written all of what it was given.
    pub fn is_at_work(&self) -> bool {
        self.busy() || self.in_flight > 0
    }

    pub(super) fn has_dirty_inodes(&self) -> bool {
        self.work.is_some() || !self.dirty_list.is_empty() || !self.io.is_empty() || !self.more.is_empty()
    }

    /// How many pages go in one turn of an inode (`writeback_chunk_size`).
    pub(super) fn chunk(&self, limit: Pages) -> u64 {
        let pages = (self.bandwidth.average * Seconds(0.5)).min(limit / 8.0).whole();
        (pages + MIN_CHUNK) / MIN_CHUNK * MIN_CHUNK
    }

    /// What is queued, to the nearest page: it is never negative, and this is asked for each file.
    pub fn queued_pages(&self) -> u64 {
        (self.queued + Pages(0.5)).whole()
    }

    /// Pages queued, without what the device has written of an extent that does not count as written yet.
    fn unwritten(&self) -> u64 {
        let left = 1.0 - self.carry / Pages::of(self.in_flight.max(1));
        (self.queued * left.max(0.0) + Pages(0.5)).whole()
    }

    /// Room in the queue, in pages.
    pub(super) fn room(&self) -> u64 {
        self.queue.saturating_sub(self.unwritten())
    }

    /// When a batch fits the queue again.
    pub(super) fn room_at(&self) -> Seconds {
        self.room_for(self.batch.min(self.queue))
    }

    /// When the queue holds all that it was given, by any task: until then the last of them waits for a
    /// request (`blk_mq_get_tag`, `wbt_wait`, 6.18).
    pub fn taken_at(&self) -> Seconds {
        self.room_for(0).max(self.held_until.unwrap_or(Seconds::ZERO))
    }

    /// When this number of pages fits the queue.
    fn room_for(&self, pages: u64) -> Seconds {
        let over = (self.queued_pages() + pages).saturating_sub(self.queue);
        let pages = over as f64 * self.in_flight as f64 / self.queued.0.max(1.0);
        // A nanosecond late rather than a rounding error early; and later than now, however late that is.
        let at =
            self.drained + (Pages(pages.ceil()) - self.carry).max(Pages::ZERO) / self.speed() + Seconds(1e-9);
        at.max(Seconds(self.drained.0.next_up()))
    }

    /// The flusher waits for room for several small files. The device has enough to do all the same, so what
    /// it has written at any time is as before; what is in its queue is less by up to that.
    pub(super) fn coarsen(&mut self) {
        self.batch = BATCH.max((BATCH + FILES * REQUEST).min(self.queue / 4));
        self.schedule();
    }

    pub(super) fn schedule(&mut self) {
        let flusher = match (self.held_until, self.work) {
            (Some(until), _) => until,
            (None, Some(_)) => self.room_at().max(self.rests_until),
            (None, None) => self.wakeup_at.unwrap_or(Seconds::INFINITY),
        };
        self.next = self.commit_at.map_or(flusher, |commit| commit.min(flusher));
    }

    /// A transaction is running from `when` on, if none was.
    pub(super) fn join_transaction(&mut self, when: Seconds) {
        if self.commit_at.is_none() && self.commit > Seconds::ZERO {
            self.commit_at = Some(when + self.commit);
            self.next = self.next.min(when + self.commit);
        }
    }

    /// The running transaction is due at `at`.
    pub(super) fn is_due(&mut self, at: Seconds) {
        self.commits_by = at + TIMER;
    }

    /// A commit that nobody asked for may be under way at `now`, or begin before the device has
    /// written as much as its queue holds.
    #[inline]
    pub fn may_commit(&self, now: Seconds) -> bool {
        let (rate, queue) = (self.rate, Pages::of(self.queue));
        rate * (now - self.commits_by) <= queue || self.commit_at.is_some_and(|at| rate * (at - now) <= queue)
    }

    /// When the log that is being written at `now` is written, if a file that changed last in
    /// `transaction` belongs to it: until then its inode cannot change again (`do_get_write_access` waits for
    /// `BH_Shadow`, 6.18).
    #[inline]
    pub fn logged_at(&self, transaction: u64, now: Seconds) -> Option<Seconds> {
        let (of, from, until) = self.logged?;
        (of == transaction && from <= now && now < until).then_some(until)
    }

    /// A log is being written, or may be before `by`.
    #[inline]
    pub fn may_log(&self, by: Seconds) -> bool {
        let logs = self.held_until.is_some() || self.logged.is_some() && !self.traits.completes_extents;
        logs || self.overdue || self.commit_at.is_some_and(|at| at <= by)
    }

    /// Completions are withheld at this moment.
    pub fn held(&self, now: Seconds) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Bandwidth without the base rate (`wb_update_bandwidth`), if it is time.
    pub(super) fn estimate(&mut self, now: Seconds, hz: Hz, laws: Laws) {
        if now - self.stamp >= INTERVAL {
            if !self.skips_estimate(now, self.work_began, laws) {
                self.bandwidth.update(Pages::of(self.written - self.written_stamp), now - self.stamp, hz);
            }
            self.restamp(now);
        }
    }

    /// Before 5.15: the device had rested before who estimates began (`__wb_update_bandwidth`, `snapshot`).
    pub(super) fn skips_estimate(&self, now: Seconds, began: Seconds, laws: Laws) -> bool {
        !laws.idle_estimates && now - self.stamp > IDLE && self.stamp < began
    }

    pub(super) fn restamp(&mut self, now: Seconds) {
        (self.dirtied_stamp, self.written_stamp, self.stamp) = (self.dirtied, self.written, now);
    }

    /// `wb_bandwidth_estimate_start`, since 5.15.
    pub(super) fn begin_estimate(&mut self, now: Seconds, laws: Laws) {
        if laws.idle_estimates && self.in_flight == 0 && now - self.stamp > IDLE {
            self.restamp(now);
        }
    }
}
