//! Memory for direct I/O: aligned, and without unsafe code.

/// A buffer whose content begins on a page boundary.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Larger than any logical block and memory page.
    pub const ALIGNMENT: usize = 64 << 10;

    /// `length` bytes; in each page of 4096 all bytes are equal and differ from the next page's, so that an
    /// emulated disk stores little. None of them is zero, which some devices would not write.
    pub fn new(length: usize) -> AlignedBuffer {
        let memory = vec![0; length + AlignedBuffer::ALIGNMENT];
        let start = memory.as_ptr().align_offset(AlignedBuffer::ALIGNMENT).min(AlignedBuffer::ALIGNMENT);
        let mut buffer = AlignedBuffer { memory, start, length };
        for (index, page) in buffer.bytes_mut().chunks_mut(4096).enumerate() {
            page.fill((index % 255) as u8 + 1);
        }
        buffer
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The content, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_filled() {
        for length in [1, 4096, 1 << 20] {
            let buffer = AlignedBuffer::new(length);
            assert_eq!(buffer.bytes().len(), length);
            assert_eq!(buffer.bytes().as_ptr() as usize % AlignedBuffer::ALIGNMENT, 0);
            assert!(!buffer.bytes().contains(&0));
        }
    }
}
