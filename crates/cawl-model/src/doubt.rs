//! What the tracer tells of calls that went past it.

use cawl_wire::Event;
use serde::{Deserialize, Serialize};

/// A look at a descriptor showed that what was told since the look before may not be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Process id.
    pub pid: u32,
    /// The descriptor.
    pub fd: i32,
    /// Device of the file that the calls were told of.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
    /// Tells apart the files that had this inode number in turn ([`cawl_wire::FileId::birth`]); 0: not known.
    #[serde(default)]
    pub birth: u32,
    /// How many calls there are.
    pub calls: u64,
    /// The bytes that they moved.
    pub bytes: u64,
    /// What may not be true; a code of a later version is a doubt about the file.
    pub why: u32,
}

impl Doubt {
    /// As the tracer tells it.
    pub fn of(event: &Event) -> Doubt {
        let Event { pid, fd, dev, ino, birth, aux, .. } = *event;
        let calls = event.returned.max(0) as u64;
        Doubt { pid, fd, dev, ino, birth, calls, bytes: event.requested, why: aux }
    }
}
