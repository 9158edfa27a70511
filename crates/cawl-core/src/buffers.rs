//! Buffers of other languages' libraries, told by the sizes of what they write (CAWL, section 4.5).
//!
//! The law: **sizes alone tell no library.** A program's own blocks have the size of a buffer, too. So a
//! buffer is told only where the process is known to run its language, or where the writes have the shape
//! that libstdc++ gives them; and it is certain only where the sizes vary as they do when pieces of the
//! program fill a buffer. docs/REPORT.md, "Buffers of the program", has the rule and the libraries' figures.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};
use serde::{Deserialize, Serialize};

/// Full buffers that tell of one.
const LEAST: u64 = 4;
/// Buffers that are looked for: powers of two from 1 KiB to 1 MiB.
const POWERS: std::ops::RangeInclusive<u32> = 10..=20;
/// Writes of a full buffer lack at most this part of it, where pieces were put into it whole.
const LACKS: u64 = 4;
/// They exceed it by at most this part: libstdc++ writes pieces of 1 KiB and more at once, with what is in
/// its buffer of 8 KiB.
const EXCEEDS: u64 = 8;
/// Of so many writes one may be another than the rule says.
const FEW: u64 = 8;

/// A language whose library buffers what a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// C++.
    #[serde(rename = "C++")]
    Cpp,
    /// Python.
    Python,
    /// Java, and what else runs in its virtual machine.
    Java,
    /// Go.
    Go,
}

impl Language {
    /// That of an interpreter or virtual machine, by the name that it was started by.
    pub fn of_program(program: &str) -> Option<Language> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let is_version = |version: &str| version.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 't');
        match name.strip_prefix("python") {
            Some(version) if is_version(version) => Some(Language::Python),
            _ => (name == "java").then_some(Language::Java),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Language::Cpp => "C++",
            Language::Python => "Python",
            Language::Java => "Java",
            Language::Go => "Go",
        }
    }

    /// How a program gives a buffer another size, of `bytes`.
    pub(crate) fn resize(self, bytes: u64) -> String {
        match self {
            Language::Cpp => format!("call rdbuf()->pubsetbuf(memory, {bytes}) before open"),
            Language::Python => format!("open(…, buffering={bytes})"),
            Language::Java => format!("put a BufferedOutputStream(…, {bytes}) before the FileOutputStream"),
            Language::Go => format!("bufio.NewWriterSize(file, {bytes})"),
        }
    }
}

/// A library's buffer where the program does not choose its size.
struct Chosen {
    language: Language,
    class: &'static str,
    bytes: u64,
}

/// Sizes that libraries choose. Python's BufferedWriter besides has that of the file's blocks
/// (`st_blksize`), up to 3.13.
const DEFAULTS: [Chosen; 5] = [
    // bits/fstream.tcc: BUFSIZ, of which one byte stays free; GCC 12.
    Chosen { language: Language::Cpp, class: "filebuf of libstdc++", bytes: 8192 },
    // Modules/_io/textio.c, chunk_size; CPython 3.6 to 3.14.
    Chosen { language: Language::Python, class: TEXT, bytes: 8192 },
    // Modules/_io/_iomodule.c, DEFAULT_BUFFER_SIZE; CPython 3.14.
    Chosen { language: Language::Python, class: BINARY, bytes: 131_072 },
    // java.io.BufferedOutputStream, sun.nio.cs.StreamEncoder; OpenJDK 17.
    Chosen { language: Language::Java, class: "BufferedOutputStream or Writer", bytes: 8192 },
    // bufio.go, defaultBufSize; Go 1.26.
    Chosen { language: Language::Go, class: "bufio.Writer", bytes: 4096 },
];
const TEXT: &str = "TextIOWrapper";
const BINARY: &str = "BufferedWriter";

/// A buffer of a program's library, as its writes tell of it. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramBuffer {
    /// Language of the program.
    pub language: Language,
    /// Class of its library.
    pub class: String,
    /// Size of the buffer.
    pub bytes: u64,
    /// The sizes vary as pieces of the program fill this buffer; else blocks of the program's own would look
    /// the same, or the size is none that the library chooses.
    pub certain: bool,
    /// Writes of the full buffer.
    pub writes: u64,
    /// The least of them; where nearly all have the same size, that.
    pub least: u64,
    /// The largest of them.
    pub most: u64,
    /// Other writes: flushes of the program, and pieces larger than the buffer.
    pub others: u64,
}

impl ProgramBuffer {
    /// True if a write of so many bytes was made because the buffer was full; else the program flushed it.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        power(bytes).is_some_and(|power| self.bytes == 1 << power) && bytes >= self.least
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

/// The sizes of the plain writes of a process to a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fill {
    pub(crate) pid: u32,
    /// When the first of them began, in ns.
    pub(crate) since: u64,
    fd: i32,
    /// Where the latest one ended; None before the first of a descriptor.
    end: Option<u64>,
    calls: u64,
    /// The buffer of most of them, if there is one, as a power of two, and by how many calls (Boyer and
    /// Moore's majority).
    power: u32,
    lead: u64,
    full: Full,
}

/// Writes of a full buffer.
#[derive(Clone, Debug, Default)]
struct Full {
    calls: u64,
    least: u64,
    most: u64,
    /// More than the buffer, and a shape of libstdc++'s: writev of what is in the buffer and a piece, or
    /// write of the full buffer.
    over: u64,
    vectored: u64,
    shaped: u64,
    /// The most frequent size, and by how many calls.
    size: u64,
    lead: u64,
}

impl Fill {
    /// A call on the file that handed so many bytes to the kernel. True if it is the first of its process.
    #[inline]
    pub(crate) fn take(&mut self, event: &Event, bytes: u64) -> bool {
        let is_new = self.pid != event.pid || self.calls == 0;
        if is_new {
            *self = Fill { pid: event.pid, since: event.start, fd: event.fd, ..Fill::default() };
        }
        self.calls += 1;
        let offset = event.offset;
        let end = std::mem::replace(&mut self.end, offset.checked_add(bytes));
        let goes_on = event.fd != self.fd || end.is_none_or(|end| end == offset);
        self.fd = event.fd;
        let is_sequential = goes_on || offset == UNKNOWN_OFFSET && event.has(flag::APPEND);
        if is_sequential
            && matches!(event.op, Op::Write | Op::Writev)
            && let Some(power) = power(bytes)
        {
            self.near(event.op, bytes, power);
        }
        is_new
    }

    fn near(&mut self, op: Op, bytes: u64, power: u32) {
        if power != self.power {
            if self.lead > 0 {
                self.lead -= 1;
                return;
            }
            (self.power, self.full) = (power, Full::default());
        }
        self.lead += 1;
        self.full.add(op, bytes, 1 << power);
    }

    /// The buffer that these writes tell of, in a program of this language, if that is known. `block`: the
    /// file's (`st_blksize`), in bytes.
    pub(crate) fn buffer(&self, language: Option<Language>, block: u32) -> Option<ProgramBuffer> {
        let Full { calls, size, lead, over, .. } = self.full;
        if calls < LEAST || calls * 2 <= self.calls {
            return None;
        }
        let (bytes, is_few) = (1 << self.power, |other: u64| other * FEW <= calls);
        // A copy's last block is another one, too.
        let varies = calls - lead > 2 && !is_few(calls - lead);
        let language = language.or_else(|| self.full.is_of_libstdcxx().then_some(Language::Cpp))?;
        let default = DEFAULTS.iter().find(|one| one.language == language && one.bytes == bytes);
        let class = match (language, default) {
            (Language::Python, _) if bytes == u64::from(block) => Some(BINARY),
            (_, default) => default.map(|one| one.class),
        };
        let fits = match language {
            Language::Cpp => self.full.is_of_libstdcxx(),
            // It is always filled to the end.
            Language::Go => size == bytes && is_few(calls - lead),
            Language::Python => is_few(self.full.vectored) && (class == Some(TEXT) || is_few(over)),
            Language::Java => is_few(self.full.vectored + over),
        };
        if !fits || class.is_none() && !varies {
            return None;
        }
        let own = DEFAULTS.iter().rfind(|one| one.language == language)?.class;
        // Of nearly always the same size: less is a flush.
        let least = if varies { self.full.least } else { size };
        Some(ProgramBuffer {
            language,
            class: class.unwrap_or(own).to_owned(),
            bytes,
            certain: class.is_some() && varies && language != Language::Go,
            writes: calls,
            least,
            most: self.full.most,
            others: self.calls - calls,
        })
    }
}

impl Full {
    fn add(&mut self, op: Op, bytes: u64, buffer: u64) {
        self.calls += 1;
        self.least = if self.calls == 1 { bytes } else { self.least.min(bytes) };
        self.most = self.most.max(bytes);
        self.over += u64::from(bytes > buffer);
        self.vectored += u64::from(op == Op::Writev);
        self.shaped += u64::from(if op == Op::Writev { bytes + 1 >= buffer } else { bytes == buffer });
        if bytes == self.size || self.lead == 0 {
            (self.size, self.lead) = (bytes, self.lead + 1);
        } else {
            self.lead -= 1;
        }
    }

    /// libstdc++'s filebuf writes what is in its buffer together with the piece that has no room in it.
    fn is_of_libstdcxx(&self) -> bool {
        self.vectored * 2 > self.calls && (self.calls - self.shaped) * FEW <= self.calls
    }
}

/// The buffer that a write of so many bytes may have filled, as a power of two.
#[inline]
fn power(bytes: u64) -> Option<u32> {
    let above = bytes.max(1).next_power_of_two();
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
