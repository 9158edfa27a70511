//! Messages: a header of [`HEADER_LEN`] bytes, then a payload of at most [`MAX_PAYLOAD`] bytes.
//!
//! The bound is chosen so that one message is one buffer in the kernel's socket queue: a non-blocking
//! send takes it whole or not at all, and threads need no lock between them.

use crate::event::{codes, named_codes};
use crate::{Anchor, EVENT_LEN, FileId};

/// First four bytes of every message.
pub const MAGIC: u32 = u32::from_le_bytes(*b"CAWL");

/// Version of the protocol. Both sides must speak the same one.
pub const VERSION: u16 = 14;

/// Length of a message header, in bytes.
pub const HEADER_LEN: usize = 24;

/// Longest payload, in bytes: 340 events.
pub const MAX_PAYLOAD: usize = 340 * EVENT_LEN;

/// Bytes written as the kernel counts them, from /proc; None where that could not be read.
///
/// The kernel adds the bytes of threads that ended, *and of children that were waited for*, to the figure of
/// the process (`wait_task_zombie` in kernel/exit.c, 6.18), so that one is too high for a process with
/// children; the thread's own figure is too low for a process with threads. Both are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wchar {
    /// `wchar` of /proc/self/io.
    pub process: Option<u64>,
    /// `wchar` of /proc/thread-self/io.
    pub thread: Option<u64>,
}

impl Wchar {
    const UNKNOWN: u64 = u64::MAX;

    fn encode(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u64(self.process.unwrap_or(Wchar::UNKNOWN))?;
        writer.u64(self.thread.unwrap_or(Wchar::UNKNOWN))
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Wchar> {
        let mut figure = || reader.u64().map(|figure| (figure != Wchar::UNKNOWN).then_some(figure));
        Some(Wchar { process: figure()?, thread: figure()? })
    }
}

/// Processor time and context switches of a process as the kernel counts them (getrusage), in all the images
/// that it was so far. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode.
    pub user: u64,
    /// Time in the kernel.
    pub system: u64,
    /// The part of both that was other threads' than the one that says so.
    pub others: u64,
    /// Switches to another thread because there was something to wait for.
    pub voluntary: u64,
    /// Switches to another thread that the processor was given to.
    pub involuntary: u64,
    /// Time that the first thread was on a processor, as the scheduler counts it (/proc/PID/schedstat); 0 if
    /// it does not.
    pub first_ran: u64,
    /// Time that the first thread could run and had no processor (run delay).
    pub first_delayed: u64,
}

impl Usage {
    fn encode(&self, writer: &mut Writer<'_>) -> Option<()> {
        let words = [self.user, self.system, self.others, self.voluntary, self.involuntary];
        words.iter().chain(&[self.first_ran, self.first_delayed]).try_for_each(|word| writer.u64(*word))
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Usage> {
        Some(Usage {
            user: reader.u64()?,
            system: reader.u64()?,
            others: reader.u64()?,
            voluntary: reader.u64()?,
            involuntary: reader.u64()?,
            first_ran: reader.u64()?,
            first_delayed: reader.u64()?,
        })
    }
}

named_codes! {
    /// The variables that tell a process its number among those of a parallel program, the more trustworthy
    /// ones first: a batch script, too, has SLURM_PROCID, and what it starts inherits it.
    enum RankVariable;
    /// Of Open MPI.
    Ompi = 1, "OMPI_COMM_WORLD_RANK";
    /// Of launchers that speak PMIx.
    Pmix = 2, "PMIX_RANK";
    /// Of MPICH and its kin.
    Pmi = 3, "PMI_RANK";
    /// Of srun.
    Slurm = 4, "SLURM_PROCID";
}

/// A process's number among those of a parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The variable that told it.
    pub variable: RankVariable,
    /// From 0.
    pub number: u32,
}

impl Rank {
    /// What a variable of the environment says, as `NAME=value`.
    pub fn of_variable(text: &[u8]) -> Option<Rank> {
        // Most variables are told apart by their first byte.
        if !matches!(text.first(), Some(b'O' | b'P' | b'S')) {
            return None;
        }
        RankVariable::ALL.iter().find_map(|&variable| {
            let value = text.strip_prefix(variable.name().as_bytes())?.strip_prefix(b"=")?;
            Some(Rank { variable, number: core::str::from_utf8(value).ok()?.parse().ok()? })
        })
    }

    fn encode(rank: Option<Rank>, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(rank.map_or(0, |rank| rank.variable as u32))?;
        writer.u32(rank.map_or(0, |rank| rank.number))
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Option<Rank>> {
        let (code, number) = (reader.u32()?, reader.u32()?);
        let variable = u8::try_from(code).ok().and_then(RankVariable::from_code);
        Some(variable.map(|variable| Rank { variable, number }))
    }
}

impl core::fmt::Display for Rank {
    /// As the variable stands in the environment.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}={}", self.variable.name(), self.number)
    }
}

codes! {
    /// What a message carries.
    Kind {
        /// [`Hello`], first message of a session, tracer to daemon.
        Hello = 1,
        /// Encoded events, back to back.
        Events = 2,
        /// [`FileRecord`].
        File = 3,
        /// [`Goodbye`], last message of a session.
        Goodbye = 4,
        /// Tracer to daemon, no payload: a ring fills faster than it is read; look now.
        Bell = 5,
        /// Daemon to tracer, no payload: the session is accepted.
        Welcome = 16,
        /// Daemon to tracer, no payload: the daemon speaks the version in this header and no other.
        Refused = 17,
    }
}

/// Why bytes could not be read as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes do not begin with the magic number: the sender is not a cawl tracer.
    Magic,
    /// The sender speaks this other version of the protocol.
    Version(u16),
    /// A message kind that this version does not know.
    Kind(u8),
    /// The payload's length is over the bound, or is not what the kind needs.
    Length(u32),
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            WireError::Magic => f.write_str("not a cawl message (wrong first bytes)"),
            WireError::Version(theirs) => {
                write!(f, "protocol version {theirs}, but this side speaks version {VERSION}")
            }
            WireError::Kind(code) => write!(f, "unknown message kind {code}"),
            WireError::Length(len) => write!(f, "a payload of {len} bytes does not fit the message"),
        }
    }
}

impl core::error::Error for WireError {}

/// Start of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Length of the payload, in bytes.
    pub len: u32,
    /// Events that the process has dropped so far because they could not be sent.
    pub dropped: u64,
}

impl Header {
    /// The header as bytes: magic u32, version u16, kind u8, zero u8, length u32, zero u32, dropped u64.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0u8; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6] = self.kind as u8;
        out[8..12].copy_from_slice(&self.len.to_le_bytes());
        out[16..24].copy_from_slice(&self.dropped.to_le_bytes());
        out
    }

    /// Reads a header and checks that its length can be true for its kind.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, WireError> {
        let mut reader = Reader(bytes);
        if reader.u32() != Some(MAGIC) {
            return Err(WireError::Magic);
        }
        let version = reader.u16().unwrap_or(0);
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let kind = Kind::from_code(bytes[6]).ok_or(WireError::Kind(bytes[6]))?;
        let mut reader = Reader(&bytes[8..]);
        let len = reader.u32().unwrap_or(0);
        let fits = match kind {
            Kind::Events => (len as usize).is_multiple_of(EVENT_LEN),
            Kind::Bell | Kind::Welcome | Kind::Refused => len == 0,
            Kind::Hello | Kind::File | Kind::Goodbye => true,
        };
        if !fits || len as usize > MAX_PAYLOAD {
            return Err(WireError::Length(len));
        }
        reader.u32();
        Ok(Header { kind, len, dropped: reader.u64().unwrap_or(0) })
    }
}

/// Who is talking: sent once, when a process image starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// The run this program belongs to (CAWL_RUN), 0 for none.
    pub run: u64,
    /// When the session began, in ns of CLOCK_MONOTONIC.
    pub started: u64,
    /// What the kernel had counted at that moment.
    pub wchar: Wchar,
    /// Processor time and context switches that the kernel had counted at that moment.
    pub usage: Usage,
    /// Its number among the processes of a parallel program.
    pub rank: Option<Rank>,
    /// Where events go: into shared memory, whose descriptor comes with this message, if true; else they
    /// follow as messages.
    pub ring: bool,
    /// If the times of events are ticks of the processor's counter: two moments on both clocks, in order.
    /// [`Hello::started`] and [`Goodbye::at`] are always ns.
    pub ticks: Option<[Anchor; 2]>,
    /// Name the program was started by.
    pub program: &'a [u8],
    /// Its arguments, separated by NUL bytes, possibly cut short.
    pub arguments: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Writes the payload into `out` and returns its length in bytes, or None if it does not fit.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let mut writer = Writer { out, at: 0 };
        writer.u32(self.pid)?;
        writer.u32(self.ppid)?;
        writer.u32(self.uid)?;
        writer.u64(self.run)?;
        writer.u64(self.started)?;
        self.wchar.encode(&mut writer)?;
        self.usage.encode(&mut writer)?;
        Rank::encode(self.rank, &mut writer)?;
        writer.u32(u32::from(self.ring) | u32::from(self.ticks.is_some()) << 1)?;
        for anchor in self.ticks.unwrap_or_default() {
            writer.u64(anchor.ticks)?;
            writer.u64(anchor.nanos)?;
        }
        writer.text(self.program)?;
        writer.text(self.arguments)?;
        Some(writer.at)
    }

    /// Reads a payload.
    pub fn decode(payload: &'a [u8]) -> Result<Hello<'a>, WireError> {
        let mut r = Reader(payload);
        let mut read = || {
            let (pid, ppid, uid) = (r.u32()?, r.u32()?, r.u32()?);
            let (run, started) = (r.u64()?, r.u64()?);
            let wchar = Wchar::decode(&mut r)?;
            let (usage, rank) = (Usage::decode(&mut r)?, Rank::decode(&mut r)?);
            let bits = r.u32()?;
            let mut anchor = || Some(Anchor { ticks: r.u64()?, nanos: r.u64()? });
            let anchors = [anchor()?, anchor()?];
            Some(Hello {
                pid,
                ppid,
                uid,
                run,
                started,
                wchar,
                usage,
                rank,
                ring: bits & 1 != 0,
                ticks: (bits & 2 != 0).then_some(anchors),
                program: r.text()?,
                arguments: r.text()?,
            })
        };
        read().ok_or(WireError::Length(payload.len() as u32))
    }
}

/// Which file an identity means: sent once per file and process, before the first event about it, and again
/// when the process has renamed the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord<'a> {
    /// The file.
    pub file: FileId,
    /// The file had another name until now.
    pub renamed: bool,
    /// Size in bytes when it was first met.
    pub size: u64,
    /// Preferred I/O size (`st_blksize`), in bytes.
    pub block: u32,
    /// `st_mode`.
    pub mode: u32,
    /// Absolute path, possibly cut short; empty when there is none.
    pub path: &'a [u8],
}

impl<'a> FileRecord<'a> {
    /// Longest path, in bytes.
    pub const PATH: usize = 4096;
    /// Where the path stands; in front of it is its length.
    const PATH_AT: usize = 42;
    /// Longest record, in bytes.
    pub const MAX: usize = FileRecord::PATH_AT + FileRecord::PATH;

    /// Writes the payload into `out` and returns its length in bytes, or None if it does not fit.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        FileRecord::path_place(out)?.get_mut(..self.path.len())?.copy_from_slice(self.path);
        self.encode_around(self.path.len(), out)
    }

    /// Where in `out` the path is to be written before [`FileRecord::encode_around`].
    pub fn path_place(out: &mut [u8]) -> Option<&mut [u8]> {
        let most = out.len().min(FileRecord::MAX);
        out.get_mut(FileRecord::PATH_AT..most)
    }

    /// Like [`FileRecord::encode`], with the path of this length that stands in `out` already.
    pub fn encode_around(&self, path: usize, out: &mut [u8]) -> Option<usize> {
        let mut writer = Writer { out, at: 0 };
        writer.u64(self.file.dev)?;
        writer.u64(self.file.ino)?;
        writer.u32(self.file.birth)?;
        writer.u32(u32::from(self.renamed))?;
        writer.u64(self.size)?;
        writer.u32(self.block)?;
        writer.u32(self.mode)?;
        writer.bytes(&u16::try_from(path).ok()?.to_le_bytes())?;
        Some(writer.at + path)
    }

    /// Reads a payload.
    pub fn decode(payload: &'a [u8]) -> Result<FileRecord<'a>, WireError> {
        let mut r = Reader(payload);
        let mut read = || {
            Some(FileRecord {
                file: FileId { dev: r.u64()?, ino: r.u64()?, birth: r.u32()? },
                renamed: r.u32()? != 0,
                size: r.u64()?,
                block: r.u32()?,
                mode: r.u32()?,
                path: r.text()?,
            })
        };
        read().ok_or(WireError::Length(payload.len() as u32))
    }
}

codes! {
    /// How a session ended, as far as the process could tell.
    Ended {
        /// exit or return from main.
        Exit = 1,
        /// _exit, _Exit or quick_exit.
        QuickExit = 2,
        /// About to replace itself by exec; another session follows if that succeeds.
        Exec = 3,
        /// abort.
        Abort = 4,
        /// About to confine itself by a filter of system calls, after which no message can be sent. Records
        /// in shared memory may follow; a message says that there is no filter.
        Confined = 5,
        /// Not traced, because its address space is limited (RLIMIT_AS) to little more than it has.
        Crowded = 6,
    }
}

/// Last words of a session. A process that was killed sends none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// How the session ended.
    pub ended: Ended,
    /// When, in ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// What the kernel had counted at that moment.
    pub wchar: Wchar,
    /// Processor time and context switches that the kernel had counted at that moment.
    pub usage: Usage,
    /// Bytes still pending in streams, which the C library writes after this message.
    pub pending: u64,
    /// Calls that passed through without being recorded: signal handlers inside a hook, for instance.
    pub unseen: u64,
    /// Why there is more to it than was recorded: bits of [`past`].
    pub past: u32,
}

/// Bits of [`Goodbye::past`].
pub mod past {
    /// A library was loaded with RTLD_DEEPBIND, which binds it past the hooks.
    pub const DEEP_BINDING: u32 = 1;
    /// One was loaded into a namespace of its own (dlmopen), with a C library of its own.
    pub const NAMESPACE: u32 = 2;
    /// The time that the program sees is not the machine's: another library tells it, or it is in a time
    /// namespace.
    pub const CLOCK: u32 = 4;
}

impl Goodbye {
    /// Writes the payload into `out` and returns its length in bytes, or None if it does not fit.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let mut writer = Writer { out, at: 0 };
        writer.u32(self.ended as u32)?;
        writer.u64(self.at)?;
        self.wchar.encode(&mut writer)?;
        self.usage.encode(&mut writer)?;
        writer.u64(self.pending)?;
        writer.u64(self.unseen)?;
        writer.u32(self.past)?;
        Some(writer.at)
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Result<Goodbye, WireError> {
        let mut r = Reader(payload);
        let mut read = || {
            Some(Goodbye {
                ended: Ended::from_code(u8::try_from(r.u32()?).ok()?)?,
                at: r.u64()?,
                wchar: Wchar::decode(&mut r)?,
                usage: Usage::decode(&mut r)?,
                pending: r.u64()?,
                unseen: r.u64()?,
                past: r.u32()?,
            })
        };
        read().ok_or(WireError::Length(payload.len() as u32))
    }
}

/// Appends little-endian fields to a slice; None when the slice is full.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    #[inline]
    fn u32(&mut self, value: u32) -> Option<()> {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> Option<()> {
        self.bytes(&value.to_le_bytes())
    }

    /// A length of two bytes, then the bytes.
    fn text(&mut self, text: &[u8]) -> Option<()> {
        let len = u16::try_from(text.len()).ok()?;
        self.bytes(&len.to_le_bytes())?;
        self.bytes(text)
    }
}

/// Takes little-endian fields off the front of a slice; None when it runs out.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.bytes(len as usize)
    }
}
