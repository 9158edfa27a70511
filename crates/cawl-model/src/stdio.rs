//! What glibc's streams do with what is written to them.
//!
//! The law (`_IO_new_file_xsputn`): what fits the free part of the buffer is copied there. Otherwise the
//! free part is filled and the buffer written out; then as many whole buffers as remain are written
//! straight from the caller's memory; the rest is copied into the buffer. A line-buffered stream to a
//! file is taken to end every call with a newline, an unbuffered one writes every call.
//!
//! What waits goes where the stream stood when it came, wherever the stream goes next: a stream that was
//! moved since writes it out first.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::lru::LruMap;

/// Which stream: process, descriptor, and the file where no descriptor is known.
type Key = (u32, i32, u64);

fn key(event: &Event) -> Key {
    (event.pid, event.fd, if event.fd < 0 { event.ino } else { 0 })
}

/// A stream's buffer. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    pending: u64,
    /// Where in the file what is pending begins; None if that is not known.
    begin: Option<u64>,
    buffer: u64,
    allocated: bool,
}

/// What a stream call hands to the kernel, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamWrites {
    /// Copied into the buffer.
    pub buffered: u64,
    /// File offset of the first byte handed over.
    pub offset: u64,
    /// Length of the first system call: the filled buffer. 0 for none.
    pub first: u64,
    /// Length of the second one: whole buffers from the caller's memory. 0 for none.
    pub second: u64,
    /// What a stream that was moved writes before that: file offset and length. 0 for none.
    pub before: (u64, u64),
    /// The buffer is allocated.
    pub allocates: bool,
}

/// The streams of the traced programs.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    streams: LruMap<Key, Stream>,
    default: u64,
}

impl Streams {
    /// Streams whose buffers have `default` bytes unless an event says otherwise.
    pub fn new(default: u64) -> Streams {
        Streams { streams: LruMap::default(), default: default.max(1) }
    }

    /// What this call on a stream hands to the kernel; `end` is where the file ends as far as known, for
    /// events that do not tell where they write.
    pub fn writes(&mut self, event: &Event, end: u64) -> StreamWrites {
        let key = key(event);
        let mut stream = self.streams.take(&key).unwrap_or_default();
        if event.buffer > 0 {
            stream.buffer = u64::from(event.buffer);
        } else if stream.buffer == 0 {
            stream.buffer = self.default;
        }
        if event.has(flag::STREAM_KNOWN) {
            stream.pending = u64::from(event.pending_before);
            stream.allocated |= stream.pending > 0;
        }
        let told = (event.offset != UNKNOWN_OFFSET).then_some(event.offset);
        let mut before = (0, 0);
        let offset = match (event.op, told) {
            // Where the stream stands afterwards.
            (Op::StreamSeek, _) | (_, None) => stream.begin.unwrap_or(end),
            // The tracer tells where what left the buffer went, or else would go.
            (_, Some(at)) if event.has(flag::STREAM_KNOWN) => at,
            (Op::StreamWrite, Some(at)) => {
                if let Some(begin) = stream.begin
                    && begin.saturating_add(stream.pending) != at
                {
                    before = (begin, std::mem::take(&mut stream.pending));
                }
                at.saturating_sub(stream.pending)
            }
            (_, Some(_)) => stream.begin.unwrap_or(end),
        };
        let had_buffer = stream.allocated;
        let mut writes = match event.op {
            Op::StreamWrite => stream.write(event),
            _ => StreamWrites { first: std::mem::take(&mut stream.pending), ..StreamWrites::default() },
        };
        (writes.offset, writes.before) = (offset, before);
        writes.allocates = stream.allocated && !had_buffer;
        if let Some(flushed) = event.flushed()
            && flushed != writes.first + writes.second
        {
            writes.first = flushed.min(stream.buffer.max(u64::from(event.pending_before)));
            writes.second = flushed - writes.first;
        }
        if event.has(flag::STREAM_KNOWN) {
            stream.pending = u64::from(event.pending_after);
        }
        stream.begin = match event.op {
            Op::StreamSeek => told,
            _ => Some(offset.saturating_add(writes.first + writes.second)),
        };
        if !matches!(event.op, Op::StreamClose | Op::StreamExit) {
            self.streams.put(key, stream);
        }
        writes
    }

    /// A stream is read. True if its buffer is allocated for that.
    pub fn read(&mut self, event: &Event) -> bool {
        let stream = self.streams.of(key(event));
        !std::mem::replace(&mut stream.allocated, true) && !event.has(flag::UNBUFFERED)
    }

    /// A stream was opened: nothing is pending, whatever had the descriptor before.
    pub fn open(&mut self, event: &Event) {
        self.streams.take(&key(event));
    }
}

impl Stream {
    fn write(&mut self, event: &Event) -> StreamWrites {
        let bytes = event.returned.max(0) as u64;
        if event.has(flag::UNBUFFERED) || self.buffer <= 1 {
            return StreamWrites { second: bytes, ..StreamWrites::default() };
        }
        if event.has(flag::LINE_BUFFERED) {
            let first = std::mem::take(&mut self.pending) + bytes;
            return StreamWrites { buffered: bytes, first, ..StreamWrites::default() };
        }
        let room = if self.allocated { self.buffer.saturating_sub(self.pending) } else { 0 };
        if bytes <= room {
            self.pending += bytes;
            return StreamWrites { buffered: bytes, ..StreamWrites::default() };
        }
        self.allocated = true;
        let rest = bytes - room;
        let first = self.pending + room;
        let second = if self.buffer >= 128 { rest - rest % self.buffer } else { rest };
        self.pending = rest - second;
        StreamWrites { buffered: room + self.pending, first, second, ..StreamWrites::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lru::CAPACITY;
    use super::*;

    fn fwrite(offset: u64, bytes: i64) -> Event {
        let mut event = Event::new(Op::StreamWrite);
        (event.offset, event.returned, event.requested, event.fd) = (offset, bytes, bytes as u64, 5);
        event
    }

    #[test]
    fn small_writes_leave_whole_buffers() {
        let mut streams = Streams::new(4096);
        let mut handed = 0;
        for call in 0..1000 {
            let writes = streams.writes(&fwrite(call * 1000, 1000), 0);
            assert!(writes.first == 0 || writes.first == 4096, "{writes:?}");
            if writes.first > 0 {
                assert_eq!(writes.offset, handed);
            }
            handed += writes.first + writes.second;
        }
        assert_eq!(handed, 1_000_000 / 4096 * 4096);
    }

    #[test]
    fn a_large_write_goes_past_the_buffer() {
        let mut streams = Streams::new(4096);
        let writes = streams.writes(&fwrite(0, 1 << 20), 0);
        let past = StreamWrites { second: 1 << 20, allocates: true, ..StreamWrites::default() };
        assert_eq!(writes, past);
        streams.writes(&fwrite(1 << 20, 100), 0);
        let writes = streams.writes(&fwrite((1 << 20) + 100, 10_000), 0);
        assert_eq!((writes.offset, writes.first, writes.second), (1 << 20, 4096, 4096));
        assert_eq!(writes.buffered, 3996 + 10_000 - 3996 - 4096);
    }

    #[test]
    fn the_library_is_believed() {
        let mut streams = Streams::new(4096);
        let mut event = fwrite(0, 5000);
        event.flags = flag::STREAM_KNOWN;
        (event.buffer, event.pending_after) = (8192, 5000);
        assert_eq!(streams.writes(&event, 0).first, 0);
        event.op = Op::StreamFlush;
        (event.pending_before, event.pending_after) = (5000, 0);
        assert_eq!(streams.writes(&event, 0).first, 5000);
    }

    /// As traced: what is told of a write is where that begins which left the buffer, or would have.
    #[test]
    fn what_waits_goes_where_it_belongs() {
        let mut streams = Streams::new(4096);
        let known = |op, offset, bytes: i64, pending: (u32, u32)| {
            let mut event = fwrite(offset, bytes);
            (event.op, event.flags, event.buffer) = (op, flag::STREAM_KNOWN, 4096);
            (event.pending_before, event.pending_after) = pending;
            event
        };
        let mut handed = |event: Event| {
            let writes = streams.writes(&event, 1 << 20);
            (writes.offset, writes.first + writes.second)
        };
        assert_eq!(handed(known(Op::StreamWrite, 0, 1000, (0, 1000))).1, 0);
        assert_eq!(handed(known(Op::StreamWrite, 0, 4000, (1000, 904))), (0, 4096));
        assert_eq!(handed(known(Op::StreamWrite, 4096, 100_000, (904, 2600))), (4096, 98_304));
        // A record in the middle, again and again: it never goes to the end of the file.
        assert_eq!(handed(known(Op::StreamSeek, 50_000, 0, (2600, 0))), (102_400, 2600));
        for _ in 0..3 {
            assert_eq!(handed(known(Op::StreamWrite, 50_000, 100, (0, 100))).1, 0);
            assert_eq!(handed(known(Op::StreamSeek, 50_000, 0, (100, 0))), (50_000, 100));
        }
        handed(known(Op::StreamWrite, 50_000, 100, (0, 100)));
        assert_eq!(handed(known(Op::StreamFlush, 50_000, 0, (100, 0))), (50_000, 100));
        handed(known(Op::StreamWrite, UNKNOWN_OFFSET, 10, (0, 10)));
        assert_eq!(handed(known(Op::StreamClose, UNKNOWN_OFFSET, 0, (10, 0))), (50_100, 10));
    }

    /// Without figures of the library, as imported.
    #[test]
    fn a_stream_that_moved_writes_what_waits_first() {
        let mut streams = Streams::new(4096);
        assert_eq!(
            streams.writes(&fwrite(0, 5000), 0).first + streams.writes(&fwrite(5000, 100), 0).first,
            0
        );
        let writes = streams.writes(&fwrite(50_000, 100), 0);
        assert_eq!((writes.before, writes.first), ((4096, 1004), 0));
        let mut flush = fwrite(UNKNOWN_OFFSET, 0);
        flush.op = Op::StreamFlush;
        let writes = streams.writes(&flush, 1 << 20);
        assert_eq!((writes.offset, writes.first, writes.before), (50_000, 100, (0, 0)));
    }

    #[test]
    fn modes() {
        let mut streams = Streams::new(4096);
        let mut event = fwrite(0, 10);
        event.flags = flag::UNBUFFERED;
        assert_eq!(streams.writes(&event, 0).second, 10);
        event.flags = flag::LINE_BUFFERED;
        assert_eq!(streams.writes(&event, 0).first, 10);
    }

    #[test]
    fn streams_never_closed_are_forgotten() {
        let mut streams = Streams::new(4096);
        for pid in 0..100_000 {
            let mut event = fwrite(0, 10);
            event.pid = pid;
            streams.writes(&event, 0);
        }
        assert!(streams.streams.len() <= 2 * CAPACITY);
    }
}
