//! What the player (player.c) is told to do: steps of threads of processes, names of files, and what files
//! are filled with. The layout is that of its structures, in the machine's byte order.

use std::io::{self, Write};

use cawl_wire::Op;

/// No descriptor, no thread.
pub const NONE: u32 = u32::MAX;
pub const STEP: usize = 40;
/// The first file name is the folder, the second the source of copies.
pub const FOLDER: u32 = 0;
pub const SOURCE: u32 = 1;

/// Steps that are no calls of a trace.
pub mod code {
    /// Starts a thread, or lets a process begin.
    pub const START: u8 = 200;
    /// Waits for the end of a process.
    pub const WAIT: u8 = 201;
    /// Thinks.
    pub const PAUSE: u8 = 202;
    /// Sets O_APPEND and O_DIRECT.
    pub const SET_FLAGS: u8 = 203;
    /// Waits until a thread has passed a step.
    pub const ORDER: u8 = 204;
}

/// Bits of [`Step::flags`].
pub mod how {
    /// It is no call of the trace.
    pub const SILENT: u16 = 1;
    /// The descriptor is moved to the offset first.
    pub const POSITION: u16 = 2;
    /// By the file's name, without a descriptor.
    pub const BY_NAME: u16 = 4;
    /// The file has no name.
    pub const NAMELESS: u16 = 8;
    /// A stream of an open descriptor; a duplicate that an exec would close.
    pub const ON_DESCRIPTOR: u16 = 16;
    /// Its cost has a law (`Class::Cost`); the player does not look at it.
    pub const COST: u16 = 32;
    /// The time stamps of the descriptor's file are read first.
    pub const STAMPS_READ: u16 = 64;
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long it thinks before, in ns; less than nothing counts as nothing. Afterwards: how late it was.
    pub think: i64,
    /// In the file, in bytes. Afterwards: how long the call took, in ns.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Depends on the operation.
    pub arg: u32,
    /// The descriptor's place in the player's table.
    pub slot: u32,
    pub file: u32,
    /// Bits of [`how`].
    pub flags: u16,
    /// Code of an [`Op`], or one of [`code`].
    pub op: u8,
}

impl Step {
    /// A step that does nothing yet.
    pub fn new(op: u8) -> Step {
        Step { think: 0, offset: 0, size: 0, arg: 0, slot: NONE, file: FOLDER, flags: 0, op }
    }

    /// The operation, if it is a call of the trace.
    pub fn call(&self) -> Option<Op> {
        Op::from_code(self.op).filter(|_| self.flags & how::SILENT == 0)
    }

    fn bytes(&self) -> [u8; STEP] {
        let mut bytes = [0; STEP];
        bytes[0..8].copy_from_slice(&self.think.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.arg.to_ne_bytes());
        bytes[28..32].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[32..36].copy_from_slice(&self.file.to_ne_bytes());
        bytes[36..38].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[38] = self.op;
        bytes
    }

    /// Reads what [`Step::bytes`] wrote.
    pub fn of(bytes: &[u8; STEP]) -> Step {
        Step {
            think: i64::from_ne_bytes(part(bytes, 0)),
            offset: u64::from_ne_bytes(part(bytes, 8)),
            size: u64::from_ne_bytes(part(bytes, 16)),
            arg: u32::from_ne_bytes(part(bytes, 24)),
            slot: u32::from_ne_bytes(part(bytes, 28)),
            file: u32::from_ne_bytes(part(bytes, 32)),
            flags: u16::from_ne_bytes(part(bytes, 36)),
            op: bytes[38],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub process: u32,
    pub steps: Vec<Step>,
}

/// So many bytes from there on.
pub fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// How a process comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Another one forks it.
    Forked = 0,
    /// It is there from the start, and begins when a thread starts it.
    Started = 1,
    /// It begins at once.
    First = 2,
}

#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// The thread that it begins with, or [`NONE`].
    pub first: u32,
    pub threads: u32,
    pub origin: Origin,
    /// Its end empties the buffers of streams.
    pub flushes: bool,
}

/// A file that was there before the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub file: u32,
    /// Its size, in bytes.
    pub size: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Script {
    pub threads: Vec<Thread>,
    pub processes: Vec<Process>,
    /// Names of files in the folder, by their number.
    pub names: Vec<String>,
    pub fills: Vec<Fill>,
    /// Descriptors that a process has at most.
    pub slots: u32,
    /// The largest call, in bytes.
    pub largest: u64,
    /// Size of the file that copies come from; 0 if there are none.
    pub source: u64,
}

const MAGIC: u64 = u64::from_ne_bytes(*b"cawlplay");

impl Script {
    pub fn len(&self) -> u64 {
        self.threads.iter().map(|thread| thread.steps.len() as u64).sum()
    }

    /// Calls among its steps.
    pub fn calls(&self) -> usize {
        let steps = self.threads.iter().flat_map(|thread| &thread.steps);
        steps.filter(|step| step.call().is_some()).count()
    }

    /// Writes it, and forgets each thread's steps when they are written. `random`: how many bytes of each
    /// page cannot be compressed. `fills`: files are made and filled. `plays`: calls are made.
    pub fn write(&mut self, out: &mut impl Write, random: u32, fills: bool, plays: bool) -> io::Result<()> {
        if !plays {
            (self.threads, self.processes) = Default::default();
        }
        let fills = if fills { &self.fills[..] } else { &[] };
        let names: usize = self.names.iter().map(|name| name.len() + 1).sum();
        let large = [MAGIC, self.len(), names as u64, self.largest, self.source];
        let counts = [self.threads.len(), self.processes.len(), self.names.len()];
        let small = [self.slots, fills.len() as u32, random];
        large.iter().try_for_each(|number| out.write_all(&number.to_ne_bytes()))?;
        let mut words = |words: &[u32]| words.iter().try_for_each(|word| out.write_all(&word.to_ne_bytes()));
        words(&counts.map(|count| count as u32))?;
        words(&small)?;
        let mut first = 0u64;
        for thread in &self.threads {
            let count = thread.steps.len() as u64;
            out.write_all(&first.to_ne_bytes())?;
            out.write_all(&count.to_ne_bytes())?;
            out.write_all(&u64::from(thread.process).to_ne_bytes())?;
            first += count;
        }
        let mut words = |words: &[u32]| words.iter().try_for_each(|word| out.write_all(&word.to_ne_bytes()));
        for process in &self.processes {
            words(&[process.first, process.threads, process.origin as u32, process.flushes.into()])?;
        }
        for fill in fills {
            out.write_all(&fill.size.to_ne_bytes())?;
            out.write_all(&u64::from(fill.file).to_ne_bytes())?;
        }
        for name in &self.names {
            out.write_all(name.as_bytes())?;
            out.write_all(&[0])?;
        }
        for thread in &mut self.threads {
            std::mem::take(&mut thread.steps).iter().try_for_each(|step| out.write_all(&step.bytes()))?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_comes_back_as_it_was() {
        let step = Step { think: -3, offset: 1, size: 2, arg: 3, slot: 4, file: 5, flags: 6, op: 7 };
        assert_eq!(Step::of(&step.bytes()), step);
        assert_eq!(Step::new(code::PAUSE).call(), None);
        assert_eq!(Step::new(Op::Fsync as u8).call(), Some(Op::Fsync));
    }
}
