//! Descriptors and streams of the processes of a rerun, as they are open at a moment of the trace.

use std::collections::HashMap;

use cawl_wire::{Event, FileId, flag};

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Its place in the player's table.
    pub place: u32,
    /// The open file description, which duplicates and forks share.
    pub description: usize,
    pub file: FileId,
    /// An exec closes it.
    pub until_exec: bool,
    pub stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Bytes in its buffer.
    pub pending: u32,
    /// The thread and the step that opens it, if its kind of buffer is not known yet.
    pub opened: Option<(u32, usize)>,
}

#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Where it stands; None where that is not known.
    pub position: Option<u64>,
    /// Bits of [`flag`].
    pub flags: u32,
    /// What moved it last.
    pub mover: Option<At>,
}

/// A step of a thread.
pub type At = (u32, u64);

/// What threads did with a place of the player's table.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// It was opened, or closed.
    pub changed: Option<At>,
    /// The latest uses of each thread since.
    pub since: Vec<At>,
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    slots: HashMap<i32, Slot>,
    free: Vec<u32>,
    next: u32,
}

impl Table {
    pub fn get(&mut self, fd: i32) -> Option<&mut Slot> {
        self.slots.get_mut(&fd)
    }

    /// The descriptor that a call is about.
    pub fn of(&mut self, event: &Event) -> Option<&mut Slot> {
        self.slots.get_mut(&event.fd).filter(|slot| slot.file == event.file())
    }

    /// A new descriptor; there is none of this number.
    pub fn open(&mut self, fd: i32, description: usize, file: FileId, flags: u32) -> Slot {
        let place = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let slot = Slot { place, description, file, until_exec: flags & flag::CLOEXEC != 0, stream: None };
        self.slots.insert(fd, slot);
        slot
    }

    pub fn close(&mut self, fd: i32) -> Option<Slot> {
        let slot = self.slots.remove(&fd)?;
        self.free.push(slot.place);
        Some(slot)
    }

    /// The numbers of descriptors that an exec closes.
    pub fn until_exec(&self) -> Vec<i32> {
        let mut all: Vec<i32> =
            self.slots.iter().filter(|(_, slot)| slot.until_exec).map(|(fd, _)| *fd).collect();
        all.sort_unstable();
        all
    }

    /// Places in use at most.
    pub fn places(&self) -> u32 {
        self.next
    }
}
