//! Buffers of other languages' libraries, told by the sizes of what they write (CAWL, section 4.5).
//!
//! The law: **sizes alone tell no library.** A program's own blocks have the size of a buffer, too. So a
//! buffer is told only where the process is known to run its language, or where the writes have the shape
//! that libstdc++ gives them; and it is certain only where something tells that blocks of the program's own
//! would not, as sizes that vary when pieces of the program fill a buffer. docs/reference/REPORT.md, "Buffers
//! of the program", has the rule and the libraries' figures.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};
use serde::{Deserialize, Serialize};

pub use crate::record::Language;

/// Full buffers that tell of one.
const MIN: u32 = 4;
/// Buffers that are looked for: powers of two from 1 KiB to 1 MiB.
const POWERS: RangeInclusive<u32> = 10..=20;
/// Writes of a full buffer lack at most this part of it, where pieces were put into it whole.
const LACKS: u64 = 4;
/// They exceed it by at most this part: libstdc++ writes pieces of 1 KiB and more at once, with what is in
/// its buffer of 8 KiB.
const EXCEEDS: u64 = 8;
/// A part of a buffer by which writes of a full one hardly differ where nearly all are the same.
const MUCH: u32 = 32;
/// Of so many writes one may be another than the rule says.
const FEW: u32 = 8;

/// How a program gives a buffer a size of `bytes`.
pub(crate) fn resize(language: Language, bytes: u64) -> String {
    match language {
        Language::Cpp => format!("call file.rdbuf()->pubsetbuf(memory, {bytes}) before file.open"),
        Language::Python => format!("open(path, mode, buffering={bytes})"),
        Language::Java => format!("new BufferedOutputStream(file, {bytes}), below a Writer too"),
        Language::Go => format!("bufio.NewWriterSize(file, {bytes})"),
    }
}

/// A library's buffer where the program does not choose its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryBuffer {
    /// Language of the library.
    pub language: Language,
    /// Its class.
    pub class: &'static str,
    /// Size in bytes.
    pub bytes: u32,
}

/// Sizes that libraries choose. Python's BufferedWriter besides has that of the file's blocks (`st_blksize`),
/// up to CPython 3.13.
pub const LIBRARY_BUFFERS: [LibraryBuffer; 5] = [
    // libstdc++'s bits/fstream.tcc: BUFSIZ, of which a byte stays free; GCC 12.
    LibraryBuffer { language: Language::Cpp, class: "filebuf of libstdc++", bytes: 8192 },
    // Modules/_io/textio.c, chunk_size; CPython 3.6 to 3.13.
    LibraryBuffer { language: Language::Python, class: TEXT, bytes: 8192 },
    // Lib/_pyio.py and Modules/_io, DEFAULT_BUFFER_SIZE; CPython 3.14.
    LibraryBuffer { language: Language::Python, class: BINARY, bytes: 131_072 },
    // java.io.BufferedOutputStream, sun.nio.cs.StreamEncoder; OpenJDK 17.
    LibraryBuffer { language: Language::Java, class: "BufferedOutputStream or Writer", bytes: 8192 },
    // bufio's defaultBufSize; Go 1.26.
    LibraryBuffer { language: Language::Go, class: "bufio.Writer", bytes: 4096 },
];
const TEXT: &str = "TextIOWrapper";
const BINARY: &str = "BufferedWriter";

/// A buffer of a program's library, as its writes tell of it. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramBuffer {
    /// Language of the program.
    pub language: Language,
    /// Class of its library.
    pub class: Cow<'static, str>,
    /// Size of the buffer.
    pub bytes: u64,
    /// The library chooses this size, and the sizes of the writes vary as pieces of the program fill it, or a
    /// program of Python asked for its position first; else blocks of the program's own would look the same.
    pub certain: bool,
    /// Writes of the full buffer.
    pub writes: u64,
    /// The least of them.
    pub least: u64,
    /// The largest of them.
    pub most: u64,
    /// Other writes: flushes of the program, and pieces larger than the buffer.
    pub others: u64,
    /// A write of fewer bytes was flushed by the program.
    #[serde(skip)]
    full_from: u64,
}

impl ProgramBuffer {
    /// True if a write of so many bytes was made because the buffer was full; else the program flushed it.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        power(bytes).is_some_and(|power| self.bytes == 1 << power) && bytes >= self.full_from
    }

    /// True if a write is a piece of the program's that has no room in the buffer.
    pub(crate) fn is_larger(&self, bytes: u64) -> bool {
        bytes > self.bytes + self.bytes / EXCEEDS
    }

    /// True if a write is a piece that the next buffer takes whole or not at all: one that was too large for
    /// this buffer, and whatever a text layer writes, whose own buffer stays as it is.
    pub(crate) fn is_handed_on_whole(&self, bytes: u64) -> bool {
        self.class == TEXT || self.is_larger(bytes)
    }
}

/// What else is known of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The language of the program that writes it, if that is known.
    pub(crate) language: Option<Language>,
    /// `st_blksize`, in bytes.
    pub(crate) block: u32,
    pub(crate) calls: u64,
    /// lseek came before the first write: Python's BufferedWriter asks for its position; os.write does not.
    pub(crate) sought: bool,
}

/// The sizes of the plain writes of a process to a file, from the first one on that may be of a full buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fill {
    pub(crate) pid: u32,
    fd: i32,
    /// When the first of them began, in ns.
    pub(crate) since: u64,
    /// Where the latest one ended.
    end: u64,
    /// The latest one's operation and size, if it may be of a full buffer, and how many like it followed that
    /// are not counted yet.
    latest: Option<(Op, u32)>,
    repeated: u32,
    /// The buffer of most of them, if there is one, as a power of two, and by how many calls (Boyer and
    /// Moore's majority).
    power: u32,
    lead: u32,
    full: Full,
}

/// Writes of a full buffer. Sizes in bytes.
#[derive(Clone, Debug, Default)]
struct Full {
    calls: u32,
    least: u32,
    most: u32,
    /// More than the buffer.
    over: u32,
    vectored: u32,
    /// A shape of libstdc++'s: writev of what is in the buffer and a piece, or write of the full buffer.
    shaped: u32,
    /// The most frequent size, and by how many calls.
    size: u32,
    lead: u32,
}

impl Fill {
    /// A call on the file that handed so many bytes to the kernel. True if the sizes are those of another
    /// process from now on.
    #[inline]
    pub(crate) fn take(fill: &mut Option<Box<Fill>>, event: &Event, bytes: u64) -> bool {
        if fill.as_mut().is_some_and(|fill| fill.repeats(event, bytes)) {
            return false;
        }
        let is_plain = matches!(event.op, Op::Write | Op::Writev);
        let power = if is_plain { power(bytes) } else { None };
        let known = fill.as_ref().is_some_and(|fill| fill.pid == event.pid);
        if !known && power.is_none() {
            return false;
        }
        let fill = fill.get_or_insert_default();
        let is_new = !known || event.fd != fill.fd;
        if !known {
            **fill = Fill { pid: event.pid, since: event.start, ..Fill::default() };
        }
        fill.count_repeated();
        let is_appended = event.offset == UNKNOWN_OFFSET && event.has(flag::APPEND);
        let is_sequential = is_new || is_appended || event.offset == fill.end;
        (fill.fd, fill.end) = (event.fd, event.offset.saturating_add(bytes));
        fill.latest = power.filter(|_| is_sequential).map(|_| (event.op, bytes as u32));
        fill.repeated = u32::from(fill.latest.is_some());
        !known
    }

    /// Most writes are like the one before, and only counted.
    #[inline]
    fn repeats(&mut self, event: &Event, bytes: u64) -> bool {
        let is_same = self.latest.is_some_and(|(op, size)| op == event.op && u64::from(size) == bytes)
            && (self.end, self.fd, self.pid) == (event.offset, event.fd, event.pid);
        if is_same {
            self.repeated = self.repeated.saturating_add(1);
            self.end = self.end.saturating_add(bytes);
        }
        is_same
    }

    fn count_repeated(&mut self) {
        let count = std::mem::take(&mut self.repeated);
        let Some((op, bytes)) = self.latest else { return };
        let Some(power) = power(bytes.into()).filter(|_| count > 0) else { return };
        if power == self.power {
            self.lead = self.lead.saturating_add(count);
        } else if self.lead >= count {
            self.lead -= count;
            return;
        } else {
            (self.power, self.lead, self.full) = (power, count - self.lead, Full::default());
        }
        self.full.add(op, bytes, 1 << power, count);
    }

    /// The buffer that these writes to a file tell of.
    pub(crate) fn buffer(&self, file: Seen) -> Option<ProgramBuffer> {
        let mut counted = self.clone();
        counted.count_repeated();
        let Fill { power, full, .. } = counted;
        let Seen { language, block, calls: all, sought } = file;
        let Full { calls, least, most, over, vectored, size, lead, .. } = full;
        if calls < MIN || u64::from(calls) <= all / 2 {
            return None;
        }
        let bytes = 1 << power;
        let is_few = |other: u32| other <= calls / FEW;
        let language = language.or_else(|| full.is_of_libstdcxx().then_some(Language::Cpp))?;
        let default = LIBRARY_BUFFERS.iter().find(|one| one.language == language && one.bytes == bytes);
        let class = match (language, default) {
            (Language::Python, _) if bytes == block => Some(BINARY),
            (_, default) => default.map(|one| one.class),
        };
        let fits = match language {
            // Others have this shape with other sizes: streams of musl, of node.
            Language::Cpp => class.is_some() && full.is_of_libstdcxx(),
            // It is always filled to the end.
            Language::Go => size == bytes && is_few(calls - lead),
            Language::Python => is_few(vectored) && (class == Some(TEXT) || is_few(over)),
            Language::Java => is_few(vectored.max(over)),
        };
        // A copy's last block is another one, too.
        let varies = calls - lead > 2 && !is_few(calls - lead);
        if !fits || class.is_none() && !varies {
            return None;
        }
        let own = LIBRARY_BUFFERS.iter().rfind(|one| one.language == language)?.class;
        Some(ProgramBuffer {
            language,
            class: class.unwrap_or(own).into(),
            bytes: bytes.into(),
            certain: class.is_some() && (varies || language == Language::Python && sought),
            writes: calls.into(),
            least: least.into(),
            most: most.into(),
            others: all.saturating_sub(calls.into()),
            // Where nearly all have one size, what lacks much more is a flush.
            full_from: if varies { least } else { size - bytes / MUCH }.into(),
        })
    }
}

impl Full {
    /// Adds so many writes of this size.
    fn add(&mut self, op: Op, bytes: u32, buffer: u32, count: u32) {
        self.least = if self.calls == 0 { bytes } else { self.least.min(bytes) };
        self.most = self.most.max(bytes);
        let is_shaped = if op == Op::Writev { bytes + 1 >= buffer } else { bytes == buffer };
        for (sum, is_so) in [
            (&mut self.calls, true),
            (&mut self.over, bytes > buffer),
            (&mut self.vectored, op == Op::Writev),
            (&mut self.shaped, is_shaped),
        ] {
            *sum = sum.saturating_add(if is_so { count } else { 0 });
        }
        if bytes == self.size {
            self.lead = self.lead.saturating_add(count);
        } else if self.lead >= count {
            self.lead -= count;
        } else {
            (self.size, self.lead) = (bytes, count - self.lead);
        }
    }

    /// libstdc++'s filebuf writes what is in its buffer together with the piece that has no room in it.
    fn is_of_libstdcxx(&self) -> bool {
        self.vectored > self.calls / 2 && self.calls - self.shaped <= self.calls / FEW
    }
}

/// The buffer that a write of so many bytes may have filled, as a power of two.
#[inline]
fn power(bytes: u64) -> Option<u32> {
    if bytes <= 1 << (POWERS.start() - 1) {
        return None;
    }
    let above = bytes.next_power_of_two();
    let below = above / 2;
    let power = match above - bytes {
        lacks if lacks < above / LACKS => above.ilog2(),
        _ if bytes - below <= below / EXCEEDS => below.ilog2(),
        _ => return None,
    };
    POWERS.contains(&power).then_some(power)
}

#[cfg(test)]
mod tests;
