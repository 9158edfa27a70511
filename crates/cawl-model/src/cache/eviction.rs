//! Memory that is short: what of the cache the kernel drops for it.
//!
//! The law (mm/vmscan.c, mm/memcontrol.c, 6.18): a page that comes into the cache takes free memory. The
//! machine's is used down to the low watermarks of its zones; then kswapd reclaims until they are at the high
//! ones, from the lists of all control groups in proportion to their lengths (`shrink_node_memcgs`,
//! `get_scan_count`). A group with a limit reclaims from its own lists when a page would exceed it, 32 pages
//! at least (`try_charge_memcg`). [`Recency`] has the law of the lists.
//!
//! Here pages are reclaimed between two calls, so that a call finds what it has read itself. Files in memory
//! take memory and are on none of these lists: without swap they stay. Reclaim takes no time.
//!
//! A copy to look ahead with reclaims nothing: it is for a call or a job, and not to copy the lists is what
//! makes it cheap.

use std::sync::Arc;

use super::lists::Lists;
use super::recency::Recency;
use super::shelves::Reclaimable;
use super::{Cache, File, Files};
use crate::block::Block;
use crate::pages::BLOCK;
use crate::record::MemoryFacts;
use crate::release::Laws;

/// Pages that a group reclaims at least (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

/// The lists of files of a group or a machine, and how much more may come.
#[derive(Clone, Debug, Default)]
pub(super) struct Eviction {
    /// Copies share them until they change.
    lists: Arc<Recency>,
    /// Pages that have come in last, and those that were read last: they are not on the lists yet.
    inserted: Run,
    accessed: Run,
    /// Pages that the programs' group can still take, less than none if it has to reclaim; None: no limit.
    group: Option<i64>,
    /// The lists are those of a group.
    is_of_group: bool,
    /// The machine's memory; None: it is not known.
    machine: Option<Room>,
    /// For each device: its files are in memory alone.
    in_memory: Arc<Vec<bool>>,
}

/// Memory of the machine, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What is free above the low watermarks, less than none if there is to be reclaimed.
    left: i64,
    /// From there to the high ones.
    batch: u64,
    /// Pages of files on the inactive lists and on the active ones.
    files: [u64; 2],
}

/// Pages of a file that follow one another.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    file: u32,
    start: u64,
    end: u64,
    /// They were read, not written.
    read: bool,
}

impl Run {
    /// Adds another one that goes on where it ends; false if it does not.
    #[inline]
    fn joins(&mut self, other: Run) -> bool {
        let goes_on = self.end == other.start && self.file == other.file && self.read == other.read;
        if goes_on {
            self.end = other.end;
        }
        goes_on
    }
}

impl Room {
    /// What was found; None where the lists were not looked at.
    pub fn of(facts: &MemoryFacts) -> Option<Room> {
        let files = facts.files?;
        let mut room = Room { files: [files.inactive, files.active], ..Room::default() };
        for zone in &facts.zones {
            let blocks = zone.free.iter().enumerate();
            let free: u64 = blocks.map(|(order, blocks)| blocks.saturating_mul(1 << order.min(32))).sum();
            let kept = zone.low.saturating_add(zone.reserve);
            room.left = room.left.saturating_add_unsigned(free.saturating_sub(kept));
            room.batch = room.batch.saturating_add(zone.high.saturating_sub(zone.low));
        }
        Some(room)
    }
}

impl Eviction {
    fn lists(&mut self) -> &mut Recency {
        Arc::make_mut(&mut self.lists)
    }

    /// Pages have come into the cache: so many new ones.
    #[inline]
    fn take(&mut self, pages: u64) {
        let pages = pages as i64;
        self.group = self.group.map(|left| left.saturating_sub(pages));
        if let Some(machine) = &mut self.machine {
            machine.left = machine.left.saturating_sub(pages);
        }
    }

    /// Pages have left it.
    fn give(&mut self, pages: u64) {
        self.group = self.group.map(|left| left.saturating_add_unsigned(pages));
        if let Some(machine) = &mut self.machine {
            machine.left = machine.left.saturating_add_unsigned(pages);
        }
    }

    /// Puts on the lists what is not there yet.
    fn settle(&mut self) {
        let run = std::mem::take(&mut self.inserted);
        if run.start < run.end {
            self.lists().insert(run.file, run.start, run.end, run.read);
        }
        let run = std::mem::take(&mut self.accessed);
        if run.start < run.end {
            self.lists().access(run.file, run.start, run.end);
        }
    }

    /// The pages from `start` up to `end` of a file are in the cache, `new` of them since now.
    #[inline]
    pub(super) fn insert(&mut self, at: u32, device: usize, (start, end): (u64, u64), new: u64, read: bool) {
        self.take(new);
        let run = Run { file: at, start, end, read };
        if self.is_in_memory(device) || self.inserted.joins(run) {
            return;
        }
        let before = std::mem::replace(&mut self.inserted, run);
        if before.start < before.end {
            self.lists().insert(before.file, before.start, before.end, before.read);
        }
    }

    fn is_in_memory(&self, device: usize) -> bool {
        self.in_memory.get(device).is_some_and(|in_memory| *in_memory)
    }

    /// The pages from `start` up to `end` of a file are in the cache, and were before the model knew of them.
    pub(super) fn find(&mut self, at: u32, device: usize, (start, end): (u64, u64)) {
        if !self.is_in_memory(device) {
            self.settle();
            let taken = self.lists().find_before(at, start, end);
            self.take(taken);
        }
    }

    #[inline]
    fn access(&mut self, at: u32, start: u64, end: u64) {
        let run = Run { file: at, start, end, read: true };
        if !self.accessed.joins(run) {
            if self.accessed.start < self.accessed.end {
                self.settle();
            }
            self.accessed = run;
        }
    }

    /// These runs of a file leave the cache.
    pub(super) fn leave(&mut self, at: u32, device: usize, runs: impl Iterator<Item = (u64, u64)>) {
        self.settle();
        let in_memory = self.is_in_memory(device);
        let lists = Arc::make_mut(&mut self.lists);
        let dropped =
            |(start, end): (u64, u64)| if in_memory { end - start } else { lists.drop(at, start, end) };
        let dropped = runs.map(dropped).sum();
        self.give(dropped);
    }

    /// Files are forgotten, though they stay in the kernel's cache.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(u32) -> bool) {
        self.settle();
        self.lists().forget(is_forgotten);
    }

    /// Lists of what is cached already, in the order of the files.
    fn begun_late(files: &Files, in_memory: Vec<bool>, laws: Laws) -> Eviction {
        let lists = Arc::new(Recency::of(laws, false));
        let mut eviction = Eviction { lists, in_memory: Arc::new(in_memory), ..Eviction::default() };
        for (at, file) in files.iter().enumerate() {
            let pages = file.clean.runs_between(0, u64::MAX).chain(file.dirty.runs_between(0, u64::MAX));
            for (start, end) in pages {
                eviction.insert(at as u32, file.device, (start, end), 0, false);
            }
        }
        eviction
    }

    /// What is on the lists of other groups, or what other programs have on these, follows from what is told.
    fn found_memory(&mut self, mut room: Room) {
        self.settle();
        if self.is_of_group {
            let own = self.lists.pages();
            room.files = [0, 1].map(|list| room.files[list].saturating_sub(own[list]));
        } else {
            self.lists().correct(room.files);
        }
        self.machine = Some(room);
    }

    fn is_short(&self) -> bool {
        self.group.is_some_and(|left| left < 0) || self.machine.is_some_and(|machine| machine.left < 0)
    }

    /// Reclaims what was taken beyond what there is.
    fn reclaim(&mut self, files: &mut impl Reclaimable) {
        self.settle();
        if let Some(over) = self.group.filter(|left| *left < 0) {
            let reclaimed = self.lists().shrink(over.unsigned_abs().max(CLUSTER), files);
            self.give(reclaimed);
        }
        let Some(machine) = self.machine.filter(|machine| machine.left < 0) else { return };
        let wanted = machine.left.unsigned_abs().saturating_add(machine.batch);
        let part = if self.is_of_group {
            let (own, others) = (u128::from(self.lists.pages()[0]), u128::from(machine.files[0]));
            // No more than `wanted`.
            (u128::from(wanted) * own).checked_div(own + others).unwrap_or(0) as u64
        } else {
            wanted
        };
        let reclaimed = if part > 0 { self.lists().shrink(part, files) } else { 0 };
        self.give(reclaimed);
        if let Some(machine) = &mut self.machine
            && self.is_of_group
        {
            let moved = Lists::to_deactivate(machine.files, false, wanted);
            let inactive = machine.files[0] + moved;
            let others = (wanted - reclaimed.min(wanted)).min(inactive);
            machine.files = [inactive - others, machine.files[1] - moved];
            machine.left = machine.left.saturating_add_unsigned(others);
        }
    }
}

/// The files of a cache, to reclaim pages of.
struct Shrinking<'a, F> {
    files: &'a mut Files,
    clean_blocks: &'a mut usize,
    /// How many pages of a file are under writeback.
    in_flight: F,
}

impl<F: Fn(&File) -> u64> Reclaimable for Shrinking<'_, F> {
    fn clean(&mut self, file: u32, key: u64) -> Block {
        let file = self.files.at(file as usize);
        let pages = file.clean.block(key);
        let first = file.cursor.saturating_sub((self.in_flight)(file));
        let base = key * BLOCK;
        let within = |page: u64| page.saturating_sub(base).min(BLOCK);
        let (from, to) = (within(first), within(file.cursor));
        if from < to { pages.without(Block::of((from, to))) } else { pages }
    }

    fn reclaim(&mut self, file: u32, key: u64, pages: Block) {
        let file = self.files.at_mut(file as usize);
        let before = file.clean.blocks();
        for (start, end) in pages.runs() {
            file.clean.remove(key * BLOCK + start, key * BLOCK + end);
        }
        *self.clean_blocks = *self.clean_blocks + file.clean.blocks() - before;
    }
}

impl Cache {
    /// The programs are in a group that can take so many pages more, if it has a limit, and has these on its
    /// lists of files.
    pub fn bound(&mut self, room: Option<u64>, lists: [u64; 2], laws: Laws) {
        let mut eviction = Eviction {
            lists: Arc::new(Recency::of(laws, true)),
            group: room.map(|room| i64::try_from(room).unwrap_or(i64::MAX)),
            is_of_group: true,
            ..Eviction::default()
        };
        eviction.lists().begin(lists);
        self.eviction = Some(Box::new(eviction));
    }

    /// The files of the next device are in memory alone, or are not.
    pub fn meet(&mut self, in_memory: bool) {
        if let Some(eviction) = &mut self.eviction {
            Arc::make_mut(&mut eviction.in_memory).push(in_memory);
        }
    }

    /// The machine's memory was found so. `in_memory`: for each device whether its files are in memory alone.
    pub fn found_memory(&mut self, room: Room, in_memory: impl Iterator<Item = bool>, laws: Laws) {
        if self.lazy.is_some() {
            return;
        }
        let eviction = match &mut self.eviction {
            Some(eviction) => eviction,
            none => none.insert(Box::new(Eviction::begun_late(&self.files, in_memory.collect(), laws))),
        };
        eviction.found_memory(room);
    }

    /// These pages of a file were read: the folios that they lie in are marked. `latest`: the page that the
    /// reader's latest read ended in, whose folio is not marked again (`filemap_read`).
    #[inline]
    pub fn access(&mut self, at: u32, start: u64, end: u64, latest: Option<u64>) {
        let Some(eviction) = &mut self.eviction else { return };
        let folios = &self.files.at(at as usize).folios;
        let (mut first, behind) = folios.around(start);
        if latest.is_some_and(|latest| (first..behind).contains(&latest)) {
            first = behind;
        }
        let end = if end <= behind { behind } else { folios.around(end - 1).1 };
        if first < end {
            eviction.access(at, first, end);
        }
    }

    /// More was taken than there is.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.eviction.as_ref().is_some_and(|eviction| eviction.is_short())
    }

    /// Reclaims what was taken beyond what there is. `in_flight`: how many pages of a file are under
    /// writeback.
    pub fn reclaim(&mut self, in_flight: impl Fn(&File) -> u64) {
        if let Some(eviction) = &mut self.eviction {
            let (files, clean_blocks) = (&mut self.files, &mut self.clean_blocks);
            eviction.reclaim(&mut Shrinking { files, clean_blocks, in_flight });
        }
    }
}
