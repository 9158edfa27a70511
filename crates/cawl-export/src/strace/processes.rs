//! What a reader of strace's output takes for granted of processes: their threads, and where descriptors
//! stand.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use cawl_core::Session;
use cawl_wire::Event;
use rustc_hash::{FxHashMap, FxHashSet};

/// Where an open file stands, in bytes; dup and fork share it.
pub type Position = Rc<Cell<u64>>;

#[derive(Clone)]
pub struct Descriptor {
    pub position: Position,
    pub closed_by_exec: bool,
}

#[derive(Default)]
pub struct Process {
    pub table: FxHashMap<i32, Descriptor>,
    pub threads: FxHashSet<u32>,
    /// A fork that was told made it, and no exec since.
    pub forked: bool,
    /// The exec that waits for what it becomes.
    pub exec: Option<Event>,
    /// What it becomes: live, an image is told before the calls of the one before, which are held.
    pub images: VecDeque<Session>,
}

impl Process {
    /// A child that has the descriptors of its parent.
    pub fn child(&self, forked: bool) -> Process {
        Process { table: self.table.clone(), forked, ..Process::default() }
    }

    /// A descriptor's position. One that was there before stands at the beginning, as a reader takes it.
    pub fn position(&mut self, fd: i32) -> &Position {
        &self.open(fd, false).position
    }

    /// The descriptor, made if it is not known.
    pub fn open(&mut self, fd: i32, closed_by_exec: bool) -> &mut Descriptor {
        let new = || Descriptor { position: Position::default(), closed_by_exec };
        self.table.entry(fd).or_insert_with(new)
    }

    pub fn execed(&mut self) {
        self.table.retain(|_, descriptor| !descriptor.closed_by_exec);
        self.threads.clear();
        self.forked = false;
    }
}
