//! Alg. 2: a stream copies into its buffer until the buffer is full; only then does the kernel hear of it.
//!
//! Here it is decided which system calls a stream call leads to; what they cost is Alg. 1's business.
//! The delays that Alg. 2 accumulates until the next system call need no variable of their own: the
//! model's clock has moved on by as much.

/// Bytes that follow each other in the file, and that one system call hands to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// Its bytes, never zero.
    pub(super) size: u64,
}

/// What a stream call comes to: bytes copied in user space and system calls, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamOutput {
    /// Bytes copied into the buffer.
    pub(super) copied: u64,
    /// The buffer, because the position moved; the buffer, because it is full; the rest, past the buffer.
    pub(super) writes: [Option<Stretch>; 3],
}

/// A stream's buffer: the last bytes accepted that the kernel has not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffer {
    /// Where they belong in the file (`o_bf`).
    pub(super) offset: u64,
    /// How many they are (`s_bf`).
    pub(super) pending: u64,
}

impl Buffer {
    /// Alg. 2 (`stdio_cost`): `size` bytes for `offset` enter a stream with a buffer of `capacity` bytes.
    pub(super) fn write(&mut self, offset: u64, size: u64, capacity: u64) -> StreamOutput {
        let moved = self.seek(offset);
        let free = capacity.saturating_sub(self.pending);
        if size <= free {
            self.pending += size;
            return StreamOutput { copied: size, writes: [moved, None, None] };
        }
        self.pending += free;
        let full = self.flush();
        let left = size - free;
        let past = left - left % capacity.max(1);
        let rest = stretch(self.offset, past);
        *self = Buffer { offset: self.offset.saturating_add(past), pending: left - past };
        StreamOutput { copied: free + self.pending, writes: [moved, full, rest] }
    }

    /// A write whose bytes do not stay: unbuffered, or a line that ends.
    pub(super) fn write_through(&mut self, offset: u64, size: u64, copies: bool) -> StreamOutput {
        let moved = self.seek(offset);
        self.pending += size;
        StreamOutput { copied: if copies { size } else { 0 }, writes: [moved, self.flush(), None] }
    }

    /// The C library says what was `before` and `after` in the buffer: that decides how much went to the
    /// kernel, and the buffer's size only in how many calls.
    pub(super) fn write_known(
        &mut self,
        offset: u64,
        size: u64,
        known: Known,
        capacity: u64,
    ) -> StreamOutput {
        let Known { before, after } = known;
        let flushed = (before + size).saturating_sub(after);
        let start = offset.saturating_sub(before);
        *self = Buffer { offset: start.saturating_add(flushed), pending: after };
        if flushed == 0 {
            return StreamOutput { copied: size, writes: [None; 3] };
        }
        // An empty buffer is bypassed by all whole multiples at once; one in use is filled up first.
        let first = if before == 0 { flushed } else { flushed.min(capacity.max(before)) };
        let bypassed = if before == 0 && flushed >= capacity { flushed } else { flushed - first };
        StreamOutput {
            copied: size.saturating_sub(bypassed),
            writes: [None, stretch(start, first), stretch(start.saturating_add(first), flushed - first)],
        }
    }

    /// Empties the buffer: what the kernel is given, if there was anything.
    pub(super) fn flush(&mut self) -> Option<Stretch> {
        let out = stretch(self.offset, self.pending);
        *self = Buffer { offset: self.end(), pending: 0 };
        out
    }

    /// Goes where the next bytes belong: what the kernel is given, if that is elsewhere.
    fn seek(&mut self, offset: u64) -> Option<Stretch> {
        let moved = if offset == self.end() { None } else { self.flush() };
        if self.pending == 0 {
            self.offset = offset;
        }
        moved
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.pending)
    }
}

/// Fill of a stream's buffer before and after a call, as the C library reports it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) before: u64,
    pub(super) after: u64,
}

fn stretch(offset: u64, size: u64) -> Option<Stretch> {
    (size > 0).then_some(Stretch { offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(offset: u64, pending: u64) -> Buffer {
        Buffer { offset, pending }
    }

    #[test]
    fn alg_2_a_rest_smaller_than_the_buffer_needs_no_second_call() {
        let mut stream = buffer(0, 70);
        assert_eq!(stream.write(70, 60, 100).writes, [None, stretch(0, 100), None]);
        assert_eq!(stream, buffer(100, 30));
    }

    #[test]
    fn unbuffered_and_lines_go_straight_to_the_kernel() {
        let mut stream = buffer(0, 5);
        assert_eq!(
            stream.write_through(5, 20, true),
            StreamOutput { copied: 20, writes: [None, stretch(0, 25), None] }
        );
        assert_eq!(stream.write_through(25, 8, false).copied, 0);
        assert_eq!(stream, buffer(33, 0));
    }

    #[test]
    fn what_the_library_reports_comes_before_what_was_simulated() {
        // The simulation believes the buffer empty; the library had 4000 in it and kept 904 of 5000.
        let mut stream = buffer(0, 0);
        let output = stream.write_known(4000, 5000, Known { before: 4000, after: 904 }, 4096);
        assert_eq!(output.writes, [None, stretch(0, 4096), stretch(4096, 4000)]);
        assert_eq!(output.copied, 1000);
        assert_eq!(stream, buffer(8096, 904));
        // An empty buffer is bypassed in one call.
        let output = stream.write_known(10_000, 10_000, Known { before: 0, after: 1808 }, 4096);
        assert_eq!(output.writes, [None, stretch(10_000, 8192), None]);
        assert_eq!(output.copied, 1808);
    }

    #[test]
    fn no_byte_is_lost_or_made() {
        let mut stream = Buffer::default();
        let (mut at, mut written) = (0u64, 0u64);
        for size in (0..400).map(|i| i * 37 % 301) {
            let output = stream.write(at, size, 100);
            for piece in output.writes.into_iter().flatten() {
                assert_eq!(piece.offset, written);
                written += piece.size;
            }
            at += size;
            assert_eq!(written + stream.pending, at);
            assert!(stream.pending <= 100);
        }
    }
}
