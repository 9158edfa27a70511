//! One intercepted call as a record of [`EVENT_LEN`] bytes, little-endian, without padding.

/// Length of an encoded [`Event`], in bytes.
pub const EVENT_LEN: usize = 96;

/// More bytes than any call moves: 1 TiB. Plain calls move 2 GiB at most (`MAX_RW_COUNT`), stream calls and
/// copies within a file system more. A record that tells of more is damaged.
pub const MAX_BYTES: i64 = 1 << 40;

/// [`Event::offset`] when the place in the file is not known, as on a pipe.
pub const UNKNOWN_OFFSET: u64 = u64::MAX;

/// The advice to drop pages from the cache (`POSIX_FADV_DONTNEED`). No other one has to do with writing.
pub const ADVICE_DONTNEED: u32 = 4;

/// [`Event::aux`] of [`Op::Lock`]: what was asked for, and of which locks.
pub mod lock {
    /// The bits that say what was asked for. 0: not known, since the call failed.
    pub const ACTION: u32 = 3;
    /// A lock that several may hold (F_RDLCK, LOCK_SH).
    pub const SHARED: u32 = 1;
    /// A lock that one alone holds (F_WRLCK, LOCK_EX).
    pub const EXCLUSIVE: u32 = 2;
    /// The end of a lock (F_UNLCK, LOCK_UN).
    pub const UNLOCK: u32 = 3;
    /// The open-file description holds it, not the process (F_OFD_SETLK, flock).
    pub const DESCRIPTION: u32 = 1 << 2;
    /// A lock of flock(2), of which those of fcntl(2) know nothing.
    pub const FLOCK: u32 = 1 << 3;
}

/// [`Event::aux`] of [`Op::Uncertain`]: what may not be true.
pub mod uncertain {
    /// The file: the descriptor leads to another one, or nowhere, past every hook.
    pub const OTHER_FILE: u32 = 1;
    /// The places: the descriptor was moved past every hook.
    pub const MOVED: u32 = 2;
    /// The places: threads used the descriptor at the same moment, in an order that only the kernel knows.
    pub const ORDER: u32 = 3;
}

/// An enum whose numbers are part of the protocol and of the trace format.
macro_rules! codes {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $code,)* }

        impl $name {
            /// The one with this code, if this version knows it.
            pub const fn from_code(code: u8) -> Option<$name> {
                match code { $($code => Some($name::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use codes;

/// An enum whose numbers are part of the protocol and of the trace format, and each of which has a name.
macro_rules! named_codes {
    (
        $(#[$about:meta])* enum $name:ident;
        $($(#[$doc:meta])* $variant:ident = $code:literal, $text:literal;)*
    ) => {
        codes! { $(#[$about])* $name { $($(#[$doc])* $variant = $code,)* } }

        impl $name {
            /// All of them, in the order of their codes.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The name by which texts know it.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}
pub(crate) use named_codes;

named_codes! {
    /// What the program asked for. Their names are those of reports, traces and the csv importer.
    enum Op;
    /// open, openat, creat and the functions that make a temporary file. `requested`: the file's size
    /// in bytes after the call; `offset`: of one that was cut off, its size before.
    Open = 1, "open";
    /// close of a descriptor, or its number given to another. `aux`: of a file that had no name when it was
    /// opened, the number of links it has now.
    Close = 2, "close";
    /// dup, dup2, dup3, fcntl(F_DUPFD). `returned`: the new descriptor; the same one, if fcntl(F_SETFD) only
    /// set or took away [`flag::CLOEXEC`].
    Dup = 3, "dup";
    /// lseek. `offset`: where the descriptor stands afterwards, in bytes.
    Seek = 4, "lseek";
    /// write at the descriptor's own position.
    Write = 10, "write";
    /// pwrite: the position does not move. `aux`: 2 of a request of io_uring or libaio, which began when it
    /// was submitted, and ended when it was complete.
    Pwrite = 11, "pwrite";
    /// writev.
    Writev = 12, "writev";
    /// pwritev and pwritev2.
    Pwritev = 13, "pwritev";
    /// copy_file_range and the reflink ioctls; the event is about the destination.
    CopyRange = 14, "copy_file_range";
    /// sendfile; the event is about the destination.
    Sendfile = 15, "sendfile";
    /// splice, tee and vmsplice; the event is about the destination.
    Splice = 16, "splice";
    /// Asynchronous writes, counted when handed over. `aux`: 1 if threads of the C library make them (POSIX
    /// aio), 2 if the kernel does (libaio).
    AioWrite = 17, "aio_write";
    /// Stores through a shared mapping, estimated from the kernel's counters. `returned`: bytes that became
    /// dirty; `aux`: in how many pieces these lie in the range of `requested` bytes from `offset` on, where
    /// not in one at its begin (0).
    MmapWrite = 18, "mmap_write";
    /// truncate and ftruncate. `offset`: the new length of the file, in bytes.
    Truncate = 20, "truncate";
    /// fallocate. `offset`, `requested`: the range in bytes; `aux`: the mode bits.
    Allocate = 21, "fallocate";
    /// unlink and remove. `aux`: the number of links left; `requested`: the file's size in bytes. Of what is
    /// no regular file, here and in the operations below, there is no identity but the device.
    Unlink = 22, "unlink";
    /// rename. Identity, `aux`, `requested`: of the file that was replaced, as of `Unlink`; `offset`,
    /// `buffer`: inode number and birth of the file that has the name now. If there was none to replace, the
    /// identity is that of the latter, too.
    Rename = 23, "rename";
    /// link. `aux`: the number of links of the file.
    Link = 24, "link";
    /// symlink.
    Symlink = 25, "symlink";
    /// mkdir.
    Mkdir = 26, "mkdir";
    /// rmdir, and remove of a directory.
    Rmdir = 27, "rmdir";
    /// stat, lstat, fstatat and statx of a name that is there. Of what it found only the kind and the device
    /// are told, as of the next.
    Stat = 28, "stat";
    /// readdir, where it asks the kernel for entries (getdents). `returned`: their bytes, 0 where it is not
    /// known.
    List = 29, "getdents";
    /// fsync.
    Fsync = 30, "fsync";
    /// fdatasync.
    Fdatasync = 31, "fdatasync";
    /// sync: every filesystem.
    Sync = 32, "sync";
    /// syncfs: the filesystem of the descriptor.
    Syncfs = 33, "syncfs";
    /// sync_file_range. `offset`, `requested`: the range in bytes; `aux`: the flags.
    SyncRange = 34, "sync_file_range";
    /// msync.
    Msync = 35, "msync";
    /// posix_fadvise. `offset`, `requested`: the range in bytes, 0 bytes for all that follows; `aux`: the
    /// advice ([`ADVICE_DONTNEED`]). The function returns its error: `returned` is -1 then, `errno` has it.
    Advise = 36, "posix_fadvise";
    /// fcntl(F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW), lockf and flock. `offset`, `requested`: the range
    /// in bytes, 0 bytes for all that follows; of a call that failed no range is known. `aux`: see [`lock`].
    Lock = 37, "lock";
    /// aio_fsync: a sync that threads of the C library make, and that the call does not wait for.
    AioFsync = 38, "aio_fsync";
    /// fwrite, fputs, putc, printf and all that appends to a stream. `requested`, `returned`: bytes
    /// given to and accepted by the stream; the pending fields tell what left its buffer.
    StreamWrite = 40, "fwrite";
    /// fflush.
    StreamFlush = 41, "fflush";
    /// fseek, rewind, fsetpos. `offset`: the stream's position afterwards, in bytes.
    StreamSeek = 42, "fseek";
    /// fclose, freopen.
    StreamClose = 43, "fclose";
    /// What a stream still held when the process exited; the C library writes it after the last moment
    /// anyone can look, so the duration is 0 and the event is flagged as estimated.
    StreamExit = 44, "exit-flush";
    /// fopen, fdopen.
    StreamOpen = 45, "fopen";
    /// read at the descriptor's own position. `aux`: pages of 4 KiB of the memory read into that the program
    /// had not touched before, as far as looked at.
    Read = 50, "read";
    /// pread. `aux`: as of `Read`.
    Pread = 51, "pread";
    /// What takes bytes from a stream (fread, getline, getc, fscanf and relatives) and made the C library ask
    /// the kernel for more; a call that the buffer has all for is not recorded. `requested`: bytes asked for,
    /// as far as the function says, else those it got; `returned`: bytes it got; the pending fields: bytes
    /// read ahead, not yet taken. `offset`: where the kernel began to read, see [`Event::refilled`].
    StreamRead = 52, "fread";
    /// What of a file was cached when the program first read from it, or opened it to write over it, as the
    /// kernel told (cachestat, mincore); no call of the program. `requested`: a bit for each of 64 ranges
    /// from the begin of the file on, the lowest first, set if more than half of it was cached; `offset`:
    /// length of a range in bytes, whole pages; `returned`: bytes cached; `aux`: dirty ones of them, in pages
    /// of 4 KiB, 0 where that is not told. Sent before the first read of the file, or after it was opened.
    Resident = 53, "resident";
    /// What was told of calls on a descriptor may not be true; no call of the program, and in no trace.
    /// Identity: of the file that they were told of; `returned`: calls; `requested`: their bytes; `aux`: see
    /// [`uncertain`]; `offset`: where the descriptor was found.
    Uncertain = 54, "uncertain";
    /// fork as seen by the parent. `returned`: the child's pid.
    Fork = 60, "fork";
    /// posix_spawn, system, popen. `returned`: the child's pid where known. `aux`: as of `Exec`.
    Spawn = 61, "spawn";
    /// exec, sent just before the call. `aux`: an [`Obstacle`] to tracing the program, 0 if there is none.
    Exec = 62, "exec";
}

impl Op {
    /// True if it reads.
    pub const fn reads(self) -> bool {
        matches!(self, Op::Read | Op::Pread | Op::StreamRead)
    }

    /// True if what the call returns is the number of bytes that it moved.
    pub const fn moves_bytes(self) -> bool {
        use Op::*;
        let is_read = self.reads();
        let is_copy = matches!(self, CopyRange | Sendfile | Splice | MmapWrite);
        is_read || is_copy || matches!(self, Write | Pwrite | Writev | Pwritev | AioWrite | StreamWrite)
    }
}

codes! {
    /// Why a program that was started is not traced. What its dynamic linker could not load, it is not told
    /// of, because that would write an error into the program's stderr.
    Obstacle {
        /// In the program's root directory and mount namespace the tracer's library is not there, or may not
        /// be read.
        Hidden = 1,
        /// The library lies on a mount from which nothing is executed (noexec).
        NoExec = 2,
        /// The program is for another processor or C library, or its C library is too old.
        Foreign = 3,
        /// A fork child is told of, for which the daemon's socket is not there. Its parent's session tells.
        Unreachable = 4,
        /// The program may have too few addresses, or too little memory, for the library (RLIMIT_AS,
        /// RLIMIT_DATA).
        Crowded = 5,
        /// The program could not be looked at: it may be one that the library's loading would end.
        Unseen = 6,
    }
}

codes! {
    /// What kind of object a descriptor leads to. Codes of later versions read as [`FileKind::Unknown`].
    #[derive(Default)]
    FileKind {
        /// Not found out.
        #[default]
        Unknown = 0,
        /// A regular file: the only kind the page-cache model is about.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block = 3,
        /// A character device, terminals included.
        Char = 4,
        /// A pipe or fifo.
        Fifo = 5,
        /// A socket.
        Socket = 6,
        /// Anything else: eventfd, timerfd, epoll…
        Other = 7,
    }
}

impl FileKind {
    /// The kind as the `S_IFMT` bits of `st_mode` tell it.
    pub const fn from_mode(mode: u32) -> FileKind {
        match mode & 0o170_000 {
            0o100_000 => FileKind::Regular,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::Block,
            0o020_000 => FileKind::Char,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            _ => FileKind::Other,
        }
    }
}

/// Bits of [`Event::flags`].
pub mod flag {
    /// The open-file description appends.
    pub const APPEND: u32 = 1 << 0;
    /// O_SYNC or RWF_SYNC: data and metadata are on the device when the call returns.
    pub const SYNC: u32 = 1 << 1;
    /// O_DSYNC or RWF_DSYNC: data is on the device when the call returns.
    pub const DSYNC: u32 = 1 << 2;
    /// O_DIRECT: past the page cache.
    pub const DIRECT: u32 = 1 << 3;
    /// O_TRUNC at open: what the file held, dirty pages included, is gone.
    pub const TRUNC: u32 = 1 << 4;
    /// O_TMPFILE or a file without a name.
    pub const TMPFILE: u32 = 1 << 5;
    /// The descriptor can write.
    pub const WRITABLE: u32 = 1 << 6;
    /// `pending_before`, `pending_after` and `buffer` are what the C library reported.
    pub const STREAM_KNOWN: u32 = 1 << 8;
    /// The stream is unbuffered (`_IONBF`).
    pub const UNBUFFERED: u32 = 1 << 9;
    /// The stream is line buffered (`_IOLBF`).
    pub const LINE_BUFFERED: u32 = 1 << 10;
    /// A figure of this event was inferred, not observed.
    pub const ESTIMATED: u32 = 1 << 11;
    /// The descriptor was open before the session began, so earlier calls on it were not seen.
    pub const INHERITED: u32 = 1 << 12;
    /// An exec closes the new descriptor (open, dup).
    pub const CLOEXEC: u32 = 1 << 13;
    /// A descriptor still leads to the file that loses its last link. Set by the analysis, for models.
    pub const HELD: u32 = 1 << 14;
    /// The program has read the file's time stamps since the previous write through this descriptor.
    pub const STAMPS_READ: u32 = 1 << 15;
    /// The file did not exist before the call (open).
    pub const CREATED: u32 = 1 << 16;
    /// This open made an overlay copy the file, which was in a lower layer, into its upper one.
    pub const COPIED_UP: u32 = 1 << 17;
    /// No descriptor leads to the file after this close. Set by the analysis, for models.
    pub const LAST: u32 = 1 << 18;
    /// Nor does a name. Set by the analysis, for models.
    pub const GONE: u32 = 1 << 19;
}

/// Which file it is. Filesystems give the numbers of deleted files out again, so a number alone does not
/// tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// What tells files apart that had this number one after another: made from the inode's generation, or
    /// from the time of its birth. 0: not known.
    pub birth: u32,
}

impl FileId {
    /// A file of which no more is known.
    pub const fn new(dev: u64, ino: u64) -> FileId {
        FileId { dev, ino, birth: 0 }
    }

    /// A birth made of all of these words: the same in the tracer and in what the probes tell. Never 0, and
    /// of 31 bits: the highest one is the daemon's, which marks with it what it has from others.
    pub fn birth_of(words: &[u32]) -> u32 {
        let step = |mixed: u64, word: &u32| {
            (mixed ^ u64::from(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        };
        let mixed = words.iter().fold(words.len() as u64, step);
        (((mixed >> 32) as u32 ^ mixed as u32) & !(1 << 31)).max(1)
    }
}

/// One intercepted call.
///
/// Times are nanoseconds of CLOCK_MONOTONIC, sizes and offsets are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When the call began, in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// How long it took, in ns.
    pub duration: u64,
    /// Device of the file (`st_dev`). Linux has 32 bits for it, and so has the record.
    pub dev: u64,
    /// Inode number of the file.
    pub ino: u64,
    /// Tells apart the files that had this inode number in turn ([`FileId::birth`]); 0: not known.
    pub birth: u32,
    /// Where in the file the first byte went, in bytes, or [`UNKNOWN_OFFSET`].
    pub offset: u64,
    /// Bytes the program asked to write.
    pub requested: u64,
    /// What the call returned: bytes, or -1 with `errno` set; meaning of its own for some operations.
    pub returned: i64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The descriptor, or -1.
    pub fd: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Bytes waiting in the stream's buffer before the call.
    pub pending_before: u32,
    /// Bytes waiting in the stream's buffer after the call.
    pub pending_after: u32,
    /// Size of the stream's buffer, in bytes.
    pub buffer: u32,
    /// Meaning depends on the operation; see [`Op`].
    pub aux: u32,
    /// Number of the stack that the call came from; 0: not copied. The daemon sets it: a ring has no room for
    /// it.
    pub stack: u32,
    /// The operation.
    pub op: Op,
    /// What kind of object the descriptor leads to.
    pub kind: FileKind,
    /// errno of a failed call, 0 otherwise.
    pub errno: u16,
}

impl Event {
    /// An event with every field zero (offset unknown, descriptor -1), to be filled in.
    pub const fn new(op: Op) -> Event {
        Event {
            start: 0,
            duration: 0,
            dev: 0,
            ino: 0,
            birth: 0,
            offset: UNKNOWN_OFFSET,
            requested: 0,
            returned: 0,
            pid: 0,
            tid: 0,
            fd: -1,
            flags: 0,
            pending_before: 0,
            pending_after: 0,
            buffer: 0,
            aux: 0,
            stack: 0,
            op,
            kind: FileKind::Unknown,
            errno: 0,
        }
    }

    /// The file that the call is about.
    #[inline]
    pub const fn file(&self) -> FileId {
        FileId { dev: self.dev, ino: self.ino, birth: self.birth }
    }

    /// The call is about this file.
    #[inline]
    pub const fn set_file(&mut self, file: FileId) {
        (self.dev, self.ino, self.birth) = (file.dev, file.ino, file.birth);
    }

    /// When the call ended, in ns of CLOCK_MONOTONIC.
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.duration)
    }

    /// True if no link is left to the file after the call.
    pub const fn takes_last_link(&self) -> bool {
        matches!(self.op, Op::Unlink | Op::Rename) && self.errno == 0 && self.aux == 0 && self.ino != 0
    }

    /// The file that a rename brought to its new name, and whether it replaced another one there; None where
    /// that is not known.
    pub fn renamed(&self) -> Option<(FileId, bool)> {
        let file = FileId { dev: self.dev, ino: self.offset, birth: self.buffer };
        let is_known = matches!(self.op, Op::Rename) && self.offset != UNKNOWN_OFFSET;
        is_known.then_some((file, self.ino != self.offset))
    }

    /// True if any of these [`flag`] bits is set.
    pub const fn has(&self, bits: u32) -> bool {
        self.flags & bits != 0
    }

    /// False if no program can have made this call: it moved more than [`MAX_BYTES`].
    pub const fn is_possible(&self) -> bool {
        !self.op.moves_bytes() || self.returned <= MAX_BYTES
    }

    /// Bytes a stream call handed to the kernel: what was pending, plus what was accepted, less what
    /// is still pending; 0 of one that reads. None unless the C library's figures are known.
    pub const fn flushed(&self) -> Option<u64> {
        if !self.has(flag::STREAM_KNOWN) {
            return None;
        }
        let accepted = match self.op {
            Op::StreamRead => return Some(0),
            Op::StreamWrite if self.returned > 0 => self.returned as u64,
            _ => 0,
        };
        Some((self.pending_before as u64 + accepted).saturating_sub(self.pending_after as u64))
    }

    /// Bytes that the kernel gave a stream for a call of [`Op::StreamRead`], from `offset` on: what the
    /// program got, plus what is read ahead after the call, less what was so before. None of another one,
    /// and unless the C library's figures are known.
    pub const fn refilled(&self) -> Option<u64> {
        if !matches!(self.op, Op::StreamRead) || !self.has(flag::STREAM_KNOWN) {
            return None;
        }
        let got = if self.returned > 0 { self.returned as u64 } else { 0 };
        Some((got + self.pending_after as u64).saturating_sub(self.pending_before as u64))
    }
}

/// Where the codes of operation and kind stand in a record.
pub(crate) const OP_AT: usize = 88;
const KIND_AT: usize = 89;

/// Reading and writing a record, by where it has which field, in which type.
macro_rules! record {
    ($($field:ident: $type:ty = $at:literal;)*) => {
        impl Event {
            /// The record as bytes.
            #[inline]
            pub fn encode(&self) -> [u8; EVENT_LEN] {
                let mut out = [0u8; EVENT_LEN];
                $(out[$at..$at + size_of::<$type>()].copy_from_slice(&(self.$field as $type).to_le_bytes());)*
                out[OP_AT] = self.op as u8;
                out[KIND_AT] = self.kind as u8;
                out
            }

            /// Reads a record; None when it is damaged: the operation's code is not known to this version, or
            /// the call is not [possible](Event::is_possible).
            pub fn decode(bytes: &[u8; EVENT_LEN]) -> Option<Event> {
                let event = Event {
                    $($field: <$type>::from_le_bytes(array(bytes, $at)) as _,)*
                    op: Op::from_code(bytes[OP_AT])?,
                    kind: FileKind::from_code(bytes[KIND_AT]).unwrap_or_default(),
                };
                event.is_possible().then_some(event)
            }
        }
    };
}
record! {
    start: u64 = 0;
    duration: u64 = 8;
    dev: u32 = 16;
    birth: u32 = 20;
    ino: u64 = 24;
    offset: u64 = 32;
    requested: u64 = 40;
    returned: i64 = 48;
    pid: u32 = 56;
    tid: u32 = 60;
    fd: i32 = 64;
    flags: u32 = 68;
    pending_before: u32 = 72;
    pending_after: u32 = 76;
    buffer: u32 = 80;
    aux: u32 = 84;
    errno: u16 = 90;
    stack: u32 = 92;
}

/// The `N` bytes at `at`. Callers pass constants inside the record, so the slice always fits.
#[inline]
fn array<const N: usize>(bytes: &[u8; EVENT_LEN], at: usize) -> [u8; N] {
    let mut out = [0u8; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
