//! The thread's side: which of its chunks are not its any more, and whether it may begin another.

use super::layout::{Position, Shape};

/// The chunks of a slot that are begun and not seen to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The sequence number of the oldest one.
    pub oldest: u32,
    /// That of the chunk to be begun next.
    pub next: u32,
}

impl Begun {
    /// Nothing is begun.
    pub const START: Begun = Begun { oldest: Position::START.chunk, next: Position::START.chunk };

    /// Chunks that are filled, or being filled, and not seen to be read.
    pub const fn waiting(self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    /// True if the daemon has read the oldest one to its end. A head beyond what was begun is nonsense.
    pub const fn is_oldest_read(self, head: Position) -> bool {
        self.waiting() as i32 > 0 && head.chunk.wrapping_sub(self.oldest) as i32 > 0
    }

    /// True if the order has a place for another.
    pub const fn may_begin(self, shape: Shape) -> bool {
        self.waiting() < shape.chunks
    }
}
