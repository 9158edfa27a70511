//! What a trace is made of: the same records whether they come live from a program, from a trace file
//! or from an importer.

use cawl_wire::{Event, FileId, Rank};
use serde::{Deserialize, Serialize};

pub use crate::doubt::Doubt;
pub use crate::language::Language;
use crate::limits::DirtyLimits;
use crate::mode::Mode;
use crate::profile::HostProfile;
pub use crate::stack::{Frame, Stack, StackOptions};
use crate::units::{Bytes, Nanos, Time, is_zero};

/// One entry of a trace, in the order in which the analysis takes them.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Facts about the machine, at the start and whenever more become known.
    Host(Box<HostFacts>),
    /// The profile in use when the trace was taken.
    Profile(Box<HostProfile>),
    /// How the live analysis worked.
    Live(LiveOptions),
    /// A process image began to be traced.
    Session(Session),
    /// Which file an identity means.
    File(FileFacts),
    /// A call.
    Event(Event),
    /// The kernel's own counters.
    Sample(Sample),
    /// How long a thread waited for a processor.
    RunDelay(RunDelay),
    /// What a block device has done.
    Device(DeviceCounters),
    /// Free memory and the lists of files.
    Memory(Box<MemoryFacts>),
    /// A session ended.
    End(SessionEnd),
    /// How the program that the run was about ended.
    Outcome(Outcome),
    /// Something the reader of a report must know.
    Note(String),
    /// Something that was told of calls may not be true.
    Doubt(Doubt),
    /// The stack of calls that have its number, before or after them.
    Stack(Stack),
}

/// How a live analysis worked, so that a replay can repeat its predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveOptions {
    /// Models it reported on.
    pub models: Vec<String>,
    /// Their mode.
    pub mode: Mode,
    /// They learned from what they had predicted.
    pub learn: bool,
    /// What was run, as it was typed; None of a daemon's own lane, and in a trace of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Which calls have a stack; None: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackOptions>,
}

/// A process image that is traced: from the start (or exec) of a program to its end (or exec).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Number of the session within the trace.
    pub id: u32,
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// When it began.
    pub started: Time,
    /// What the kernel had counted at that moment.
    #[serde(default)]
    pub wchar: Wchar,
    /// Processor time that the kernel had counted when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Its number among the processes of a parallel program.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rank_text")]
    pub rank: Option<Rank>,
    /// Name the program was started by.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The language that it is written in, where something else than its name tells of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// The trace of OpenTelemetry that it is a part of: the variable `TRACEPARENT` of its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Session {
    /// The language that the program is written in, as far as known.
    pub fn language(&self) -> Option<Language> {
        Language::of_program(&self.program).or(self.language)
    }
}

/// Bytes written as the kernel counts them, `wchar` in /proc; None where that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wchar {
    /// Of the process; the kernel adds threads that ended, and children that were waited for.
    pub process: Option<u64>,
    /// Of its first thread alone.
    pub thread: Option<u64>,
}

impl From<cawl_wire::Wchar> for Wchar {
    fn from(wchar: cawl_wire::Wchar) -> Wchar {
        Wchar { process: wchar.process, thread: wchar.thread }
    }
}

/// Processor time and context switches of a process as the kernel counts them, in all the images that it was
/// so far: of all its threads, and of no child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Time in user mode.
    pub user: Nanos,
    /// Time in the kernel.
    pub system: Nanos,
    /// The part of both that is not its first thread's, or at the end not that of the thread which ended it.
    pub others: Nanos,
    /// Switches to another thread because there was something to wait for; None where only a sample of /proc
    /// is known.
    pub voluntary: Option<u64>,
    /// Switches to another thread that the processor was given to.
    pub involuntary: Option<u64>,
}

impl From<cawl_wire::Usage> for Usage {
    fn from(usage: cawl_wire::Usage) -> Usage {
        let [user, system, others] = [usage.user, usage.system, usage.others].map(|ns| Nanos::new(ns as f64));
        let (voluntary, involuntary) = (Some(usage.voluntary), Some(usage.involuntary));
        Usage { user, system, others, voluntary, involuntary }
    }
}

/// A rank as the variable stands in the environment: `PMI_RANK=3`.
mod rank_text {
    use cawl_wire::Rank;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(rank: &Option<Rank>, serializer: S) -> Result<S::Ok, S::Error> {
        match rank {
            Some(rank) => serializer.collect_str(rank),
            None => serializer.serialize_none(),
        }
    }

    /// A variable of a later version is none.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rank>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.and_then(|text| Rank::of_variable(text.as_bytes())))
    }
}

/// How a note on a process ends that writes through io_uring: neither the tracer sees these bytes, nor does
/// the kernel count them in `wchar`.
pub const USES_IO_URING: &str = "uses io_uring: what it writes that way was not seen";

/// How the note ends that counts requests of which no end was seen: what they wrote is not known.
pub const LOST_REQUESTS: &str = "requests of io_uring or libaio were dropped: coverage is not known";

/// What is in a note on calls that are not in the trace.
pub const ARE_MISSING: &str = "are missing";

/// What is in a note on a process that ended before it could tell all.
pub const ENDED_UNHEARD: &str = "ended without notice, as one that is killed";

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndKind {
    /// exit or return from main.
    Exit,
    /// _exit, _Exit or quick_exit.
    QuickExit,
    /// Replaced itself by exec.
    Exec,
    /// abort.
    Abort,
    /// The connection ended without a word: killed, crashed, or left by a raw system call.
    Vanished,
    /// Ended without a word after it confined itself by a filter of system calls: it could not say how.
    Confined,
    /// Still running when the report was made.
    Running,
}

/// A session's end and what it missed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// Number of the session within the trace.
    pub id: u32,
    /// When.
    pub at: Time,
    /// How.
    pub how: EndKind,
    /// What the kernel had counted then, or when it last could be asked.
    #[serde(default)]
    pub wchar: Wchar,
    /// Processor time that the kernel had counted then, or when it last could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Bytes still in streams at exit, written after `wchar` was read.
    #[serde(default)]
    pub pending: u64,
    /// Events that were recorded but could not be sent.
    pub dropped: u64,
    /// Calls that passed through unrecorded.
    pub unseen: u64,
}

impl SessionEnd {
    /// An end at which nothing was counted.
    pub const fn new(id: u32, at: Time, how: EndKind) -> SessionEnd {
        let wchar = Wchar { process: None, thread: None };
        SessionEnd { id, at, how, wchar, usage: None, pending: 0, dropped: 0, unseen: 0 }
    }
}

/// How the program that a run was about ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Process id.
    pub pid: u32,
    /// Exit status, if it exited.
    pub code: Option<i32>,
    /// Signal number, if a signal killed it.
    pub signal: Option<i32>,
    /// Bytes that it and all children it waited for wrote, traced or not, as the kernel counts them.
    pub wchar: Option<u64>,
}

/// A file, by identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Tells apart the files that had this inode number in turn ([`FileId::birth`]); 0: not known.
    #[serde(default)]
    pub birth: u32,
    /// It had another name until now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renamed: bool,
    /// Size in bytes when it was first met.
    pub size: Bytes,
    /// Preferred I/O size (`st_blksize`), in bytes.
    pub block: u32,
    /// `st_mode`.
    pub mode: u32,
    /// Path, as far as known.
    pub path: String,
    /// The user (uid) whose program told of it, and whose calls alone are on it; 0: root, or the user who
    /// records.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub owner: u32,
}

impl FileFacts {
    /// Which file it is.
    pub const fn file(&self) -> FileId {
        FileId { dev: self.dev, ino: self.ino, birth: self.birth }
    }
}

/// The kernel's counters at one moment, from /proc/vmstat; all in pages except the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When the sample was taken.
    pub time: Time,
    /// `nr_dirty`.
    pub dirty: u64,
    /// `nr_writeback`.
    pub writeback: u64,
    /// `nr_dirty_background_threshold`.
    pub background: u64,
    /// `nr_dirty_threshold`.
    pub hard: u64,
    /// `nr_written`, counted since boot.
    pub written: u64,
    /// `nr_dirtied`, counted since boot.
    pub dirtied: u64,
}

/// What a block device has done since boot, from `/sys/dev/block/M:m/stat` (Documentation/block/stat.rst); of
/// a partition, what its disk has. The kernel's times are in whole ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// When it was read.
    pub time: Time,
    /// The device of files on it (`st_dev`).
    pub dev: u64,
    /// Write requests completed, flushes without data among them.
    pub writes: u64,
    /// Bytes written.
    pub bytes: Bytes,
    /// Time of the write requests, from when each was made.
    pub writing: Nanos,
    /// Flushes of its cache completed.
    pub flushes: u64,
    /// Time of the flushes.
    pub flushing: Nanos,
    /// Time in which it had something to do.
    pub busy: Nanos,
}

impl Sample {
    /// Dirty bytes, those under writeback included.
    pub const fn dirty_bytes(&self, page: Bytes) -> Bytes {
        Bytes(self.dirty.saturating_add(self.writeback).saturating_mul(page.0))
    }

    /// The limits in force.
    pub const fn limits(&self, page: Bytes) -> DirtyLimits {
        DirtyLimits {
            background: Bytes(self.background.saturating_mul(page.0)),
            hard: Bytes(self.hard.saturating_mul(page.0)),
        }
    }
}

/// What the kernel's scheduler counted for a thread in an interval, from /proc/PID/task/TID/schedstat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunDelay {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The interval begins: both counts are of what came since.
    pub from: Time,
    /// It ends.
    pub to: Time,
    /// How long the thread ran on a processor.
    pub ran: Nanos,
    /// How long it could have run and waited for a processor.
    pub delayed: Nanos,
}

/// Memory of the machine: what is free by size of block, as the page allocator keeps it, and the lists of
/// pages of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFacts {
    /// When it was looked at.
    pub time: Time,
    /// Binary logarithm of the pages in the smallest blocks that are reported to the host
    /// (`page_reporting_order`); [`MemoryFacts::NOT_TAKEN_BACK`] where none are.
    pub order: u32,
    /// The zones, in the order in which they give.
    pub zones: Vec<ZoneFacts>,
    /// The lists of files of all control groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<ListFacts>,
}

impl MemoryFacts {
    /// [`MemoryFacts::order`] where no host takes memory back.
    pub const NOT_TAKEN_BACK: u32 = u32::MAX;
}

/// How many pages of files are on the kernel's lists (`nr_inactive_file`, `nr_active_file`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFacts {
    /// On inactive ones, in pages.
    pub inactive: u64,
    /// On active ones, in pages.
    pub active: u64,
}

/// One zone's free memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneFacts {
    /// Free blocks of each order, from /proc/buddyinfo.
    pub free: Vec<u64>,
    /// How many of them the host has taken back, by order, from /proc/kpageflags; None where that cannot be
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<Vec<u64>>,
    /// Low watermark, in pages.
    pub low: u64,
    /// High watermark, in pages.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub high: u64,
    /// What it keeps above its watermarks from allocations that the highest zone can serve, in pages
    /// (`lowmem_reserve`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve: u64,
}

/// What a replay on another machine needs to know of the one that was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Kernel release, as uname gives it.
    pub kernel: String,
    /// Host name.
    pub host: String,
    /// Timer ticks per second (CONFIG_HZ), if the kernel's configuration says.
    pub hz: Option<u32>,
    /// Processors online.
    pub cpus: u32,
    /// Page size, in bytes.
    pub page: u64,
    /// Total memory, in bytes.
    pub memory: Bytes,
    /// Available memory when tracing began, in bytes.
    pub available: Bytes,
    /// Background limit when tracing began, in bytes.
    pub background: Bytes,
    /// Hard limit when tracing began, in bytes.
    pub hard: Bytes,
    /// `vm.dirty_*` settings by name, as /proc/sys/vm shows them.
    pub dirty_settings: Vec<(String, u64)>,
    /// Wall-clock time when tracing began, in seconds since 1970-01-01 UTC.
    pub wall_clock: u64,
    /// CLOCK_MONOTONIC at that moment.
    pub started: Time,
    /// The filesystems that traced files lie on, or might.
    pub filesystems: Vec<Filesystem>,
    /// Deleted inodes that new files passed over when tracing began, where the program may make some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<DeletedFacts>,
    /// The multi-generational LRU is in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lru_gen: bool,
}

/// Inodes that were deleted lately, which a new file passes over (ext4 without a journal).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedFacts {
    /// Device number (`st_dev`).
    pub dev: u64,
    /// The inode that a new file got.
    pub inode: u64,
    /// How many it passed over, by the time that took.
    pub passed: u32,
}

/// A mounted filesystem and the device under it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Device number (`st_dev`) of files on it.
    pub dev: u64,
    /// Mount point.
    pub mount: String,
    /// Type: ext4, xfs, tmpfs…
    pub kind: String,
    /// Mount options.
    pub options: String,
    /// The device as the kernel names it: vda, nvme0n1p2, loop0…; empty where there is none.
    pub device: String,
    /// Device number of the filesystem that the upper layer of an overlay lies on. None: it is no overlay, or
    /// its upper layer is not to be seen from here, as from inside a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u64>,
    /// Logical block size of the device, in bytes.
    pub block: Option<u64>,
    /// True for disks with moving heads.
    pub rotational: Option<bool>,
    /// True if the device has a volatile write cache.
    pub write_cache: Option<bool>,
    /// I/O scheduler.
    pub scheduler: Option<String>,
}
