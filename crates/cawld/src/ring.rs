//! Reads the rings of a process from its shared memory.
//!
//! The law of this module: the memory is read by pread, never mapped, and trusted only as far as
//! `cawl_wire::ring` has checked it. So a program can damage only its own session, whose report then says so.
//! Calls recorded before a program was killed can still be read.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_core::Bytes;
use cawl_wire::ring::{
    CELL_LEN, CONTROL_LEN, CoalescedCalls, DROPPED_AT, Follower, MAPPED_AT, Memory, Position, ROOM_AT,
    RingError, RingHeader, STACKS_AT, STACKS_LOST_AT, TAIL_AT, Taker, USED_AT,
};
use cawl_wire::stack::{StackRecord, Wanted};
use cawl_wire::{Anchor, Event, FileRecord};
use rustix::fs::SealFlags;

use crate::batch::{Batch, facts};

/// Events of one batch, and cells read for it.
const BATCH: usize = 682;
const CELLS: u32 = 1 << 16;
/// Cells read at once: 64 KiB, which stay in the cache.
const PIECE: usize = 4096;
/// Control blocks read at once.
const AT_ONCE: usize = 64;

/// The rings of one process.
pub struct Ring {
    memory: SharedMemory,
    header: RingHeader,
    followers: Vec<Follower>,
    tails: Vec<Position>,
    /// The slot to begin with next, so that one busy thread does not delay the others.
    turn: usize,
    controls: Vec<u8>,
    /// The cells read. Has memory only while there are records.
    cells: Vec<[u8; CELL_LEN]>,
    /// True if no calls are to be coalesced.
    each: bool,
    /// Which stacks are wanted; how many came, and how many found no room.
    wanted: Option<Wanted>,
    stacks: u32,
    pub lost_stacks: u64,
    /// Shared mappings that the process can store to.
    pub mapped: u64,
}

/// A batch being filled.
struct Filling {
    batch: Batch,
    each: bool,
    wants_stacks: bool,
    stacks: u32,
}

impl Taker for Filling {
    fn room(&self) -> usize {
        BATCH.saturating_sub(self.batch.size() / size_of::<Event>())
    }

    fn is_coalescible(&self, event: &Event) -> bool {
        !self.each && cawl_core::is_coalescible(event)
    }

    fn event(&mut self, event: &Event) {
        if self.batch.events.is_empty() {
            self.batch.events.reserve_exact(BATCH);
        }
        self.batch.events.push(*event);
    }

    fn anchor(&mut self, anchor: Anchor) {
        self.batch.anchors.push(anchor);
    }

    fn damaged(&mut self) {
        self.batch.damaged += 1;
    }

    fn file(&mut self, file: &FileRecord<'_>) {
        self.batch.files.push(facts(file));
    }

    fn coalesced(&mut self, calls: &CoalescedCalls) {
        self.batch.coalesced.push(*calls);
    }

    fn stack(&mut self, stack: &StackRecord<'_>) -> u32 {
        if !self.wants_stacks {
            return 0;
        }
        // Behind the last number comes 1.
        self.stacks = self.stacks.checked_add(1).unwrap_or(1);
        self.batch.stacks.push((self.stacks, stack.into()));
        self.stacks
    }

    fn modules(&mut self, lines: &[u8]) {
        if self.wants_stacks {
            self.batch.modules.push(lines.into());
        }
    }
}

struct SharedMemory(File);

impl Memory for SharedMemory {
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        self.0.read_exact_at(out, at).is_ok()
    }

    fn write(&self, at: u64, word: u64) {
        drop(self.0.write_all_at(&word.to_le_bytes(), at));
    }
}

impl Ring {
    /// Takes the memory of a hello.
    pub fn new(descriptor: OwnedFd, each: bool) -> anyhow::Result<Ring> {
        // Only memory can be sealed, so a read of it cannot block, as on other descriptors.
        let seals =
            rustix::fs::fcntl_get_seals(&descriptor).context("what came with the hello is not memory")?;
        anyhow::ensure!(seals.contains(SealFlags::SHRINK), "the shared memory may shrink");
        let memory = SharedMemory(File::from(descriptor));
        let mut bytes = [0; RingHeader::LEN];
        if !memory.read(0, &mut bytes) {
            return Err(RingError::Length.into());
        }
        let header = RingHeader::decode(&bytes, memory.0.metadata()?.len())?;
        Ok(Ring {
            memory,
            header,
            followers: Vec::new(),
            tails: Vec::new(),
            turn: 0,
            controls: Vec::new(),
            cells: Vec::new(),
            each,
            wanted: None,
            stacks: 0,
            lost_stacks: 0,
            mapped: 0,
        })
    }

    /// Tells the process which calls are to have their stack copied.
    pub fn tell_stacks(&mut self, wanted: Option<Wanted>) {
        self.wanted = wanted;
        self.memory.write(STACKS_AT as u64, wanted.map_or(Wanted::NONE, Wanted::pack));
    }

    /// Tells the process how much memory its chunks may have.
    pub fn tell_room(&self, room: Bytes) {
        self.memory.write(ROOM_AT as u64, room.0.max(1));
    }

    /// Chunks that are filled and not read, by the last look.
    pub fn backlog(&self) -> u64 {
        self.followers.iter().zip(&self.tails).map(|(follower, tail)| u64::from(follower.behind(*tail))).sum()
    }

    /// Reads the threads' tails; returns the number of events the process has dropped.
    pub fn read_tails(&mut self) -> Result<u64, RingError> {
        let mut line = [0; MAPPED_AT + 8 - USED_AT];
        self.read(USED_AT as u64, &mut line)?;
        let used = line.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let number =
            |at: usize| line[at - USED_AT..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let dropped = number(DROPPED_AT);
        self.lost_stacks = number(STACKS_LOST_AT);
        self.mapped = number(MAPPED_AT);
        if used > self.header.slots {
            return Err(RingError::Header);
        }
        for slot in self.followers.len() as u32..used {
            self.followers.push(Follower::new(slot));
            self.tails.push(Position::START);
        }
        let mut controls = std::mem::take(&mut self.controls);
        for first in (0..used as usize).step_by(AT_ONCE) {
            let count = AT_ONCE.min(used as usize - first);
            controls.resize(count * CONTROL_LEN, 0);
            self.read(self.header.control(first as u32), &mut controls)?;
            let (blocks, _) = controls.as_chunks::<CONTROL_LEN>();
            for (tail, block) in self.tails[first..].iter_mut().zip(blocks) {
                let word = block[TAIL_AT..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                *tail = Position::unpack(word);
            }
        }
        self.controls = controls;
        Ok(dropped)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), RingError> {
        if self.memory.read(at, out) { Ok(()) } else { Err(RingError::Length) }
    }

    /// The next batch up to the tails of the last look; None after that.
    pub fn batch(&mut self) -> Result<Option<Batch>, RingError> {
        let (each, wants_stacks, stacks) = (self.each, self.wanted.is_some(), self.stacks);
        let mut filling = Filling { batch: Batch::default(), each, wants_stacks, stacks };
        let mut count = 0;
        for _ in 0..self.followers.len() {
            let slot = self.turn % self.followers.len();
            let (follower, tail) = (&mut self.followers[slot], self.tails[slot]);
            while !follower.is_at(tail) && count < CELLS {
                self.cells.resize(PIECE, [0; CELL_LEN]);
                let read = follower.read(&self.memory, self.header, tail, &mut self.cells, &mut filling)?;
                if read == 0 {
                    break;
                }
                count += read;
                follower.release(&self.memory, self.header);
            }
            self.turn = slot + 1;
            if filling.room() == 0 || count >= CELLS {
                break;
            }
        }
        self.stacks = filling.stacks;
        let mut batch = filling.batch;
        if batch.events.len() < BATCH / 2 {
            // Calls are held in the memory of their batch.
            batch.events.shrink_to_fit();
        }
        Ok((count > 0).then_some(batch))
    }

    /// Frees memory after a time without records.
    pub fn rest(&mut self) {
        self.cells = Vec::new();
    }
}
