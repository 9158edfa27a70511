//! The thread's side: which chunk it fills next.

use super::layout::{Position, Shape};

/// Which chunks are free. One writer, so plain fields.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// A bit for each free chunk.
    pub free: u128,
    /// The oldest sequence number whose chunk has not been seen to be read.
    pub oldest: u32,
}

impl Chunks {
    /// All chunks free, nothing begun.
    pub const fn new(shape: Shape) -> Chunks {
        Chunks { free: u128::MAX >> (128 - shape.chunks), oldest: 1 }
    }

    /// Takes a chunk for the sequence number `next`; `order` tells which chunk had which number. None if
    /// the daemon has read none that could be used again.
    pub fn take(&mut self, next: u32, head: Position, order: impl Fn(u32) -> u8) -> Option<u8> {
        // A head beyond what was begun is nonsense; believing it would only free what is free.
        while self.oldest != next && head.chunk.wrapping_sub(self.oldest) as i32 > 0 {
            let index = order(self.oldest);
            self.free |= 1 << (index % 128);
            self.oldest = self.oldest.wrapping_add(1);
        }
        let index = self.free.trailing_zeros();
        if index >= u128::BITS {
            return None;
        }
        self.free &= !(1 << index);
        Some(index as u8)
    }

    /// Chunks that are filled and not read.
    pub const fn waiting(&self, next: u32) -> u32 {
        next.wrapping_sub(self.oldest)
    }

    /// The chunks not in use that have this index or a higher one are all those there are.
    pub const fn none_above(&self, index: u32) -> bool {
        self.free >> index == u128::MAX >> index
    }
}
