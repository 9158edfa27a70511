//! Reads the rings of a process out of the memory it shares.
//!
//! The law of this module: the memory is read by pread, never mapped, and believed only as far as
//! `cawl_wire::ring` has checked it. So whatever a program does to it, the worst is that its own session
//! says so. And what was written before a program was killed is still there to be read.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_wire::EVENT_LEN;
use cawl_wire::ring::{
    CONTROL_LEN, DROPPED_AT, Follower, Memory, Position, RingError, RingHeader, TAIL_AT, USED_AT,
};
use rustix::fs::SealFlags;

/// Bytes of events in one batch.
const BATCH: usize = 682 * EVENT_LEN;
/// Control blocks that are read at once.
const AT_ONCE: usize = 64;

/// The rings of one process.
pub struct Ring {
    memory: Shared,
    header: RingHeader,
    followers: Vec<Follower>,
    tails: Vec<Position>,
    /// Where the next look begins, so that one busy thread does not keep the others waiting.
    turn: usize,
    controls: Vec<u8>,
}

struct Shared(File);

impl Memory for Shared {
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        self.0.read_exact_at(out, at).is_ok()
    }

    fn write(&self, at: u64, word: u64) {
        drop(self.0.write_all_at(&word.to_le_bytes(), at));
    }
}

impl Ring {
    /// Takes the memory that came with a hello.
    pub fn new(descriptor: OwnedFd) -> anyhow::Result<Ring> {
        // Only memory can be sealed: nothing else that a descriptor might lead to could make a read wait.
        let seals =
            rustix::fs::fcntl_get_seals(&descriptor).context("what came with the hello is not memory")?;
        anyhow::ensure!(seals.contains(SealFlags::SHRINK), "the shared memory may shrink");
        let memory = Shared(File::from(descriptor));
        let mut bytes = [0; RingHeader::LEN];
        if !memory.read(0, &mut bytes) {
            return Err(RingError::Length.into());
        }
        let header = RingHeader::decode(&bytes, memory.0.metadata()?.len())?;
        Ok(Ring { memory, header, followers: Vec::new(), tails: Vec::new(), turn: 0, controls: Vec::new() })
    }

    /// Looks how far the threads have come; returns how many events the process has dropped.
    pub fn look(&mut self) -> Result<u64, RingError> {
        let mut line = [0; DROPPED_AT + 8 - USED_AT];
        self.read(USED_AT as u64, &mut line)?;
        let used = line.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let dropped = line.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
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

    /// The next batch of what was there at the last look; None when that has been read.
    pub fn batch(&mut self) -> Result<Option<Vec<u8>>, RingError> {
        let mut batch = Vec::new();
        let mut length = 0;
        for _ in 0..self.followers.len() {
            let slot = self.turn % self.followers.len();
            let (follower, tail) = (&mut self.followers[slot], self.tails[slot]);
            loop {
                if batch.is_empty() && !follower.is_at(tail) {
                    batch = vec![0; BATCH];
                }
                let read = follower.read(&self.memory, self.header, tail, &mut batch[length..])?;
                if read == 0 {
                    break;
                }
                length += read;
                follower.release(&self.memory, self.header);
            }
            self.turn = slot + 1;
            if length == BATCH {
                break;
            }
        }
        batch.truncate(length);
        Ok((length > 0).then_some(batch))
    }
}
