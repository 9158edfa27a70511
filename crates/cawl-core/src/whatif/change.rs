//! Changes of a program's calls.

use crate::glob::Glob;

/// A change of a program's calls to some files.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What becomes of the calls.
    pub rewrite: Rewrite,
    /// The files whose calls are changed, by path; all, if None.
    pub on: Option<Glob>,
}

/// What becomes of calls. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Rewrite {
    /// Writes of a thread that continue one another become one, of at most this size.
    Merge(u64),
    /// Larger writes become several of this size.
    Split(u64),
    /// Streams, and the buffers of other languages' libraries, have this size.
    Buffer(u32),
    /// Of the fsyncs and fdatasyncs of each file only some are made.
    Syncs(SyncsKept),
    /// A file that was written since its latest sync is synced before it is closed, or at the end.
    SyncAtClose,
    /// fsync becomes fdatasync.
    Fdatasync,
    /// Files are open with these flags ([`cawl_wire::flag`]), or without them.
    Flags(u32, bool),
    /// The space of a file is allocated before its first write.
    Preallocate,
    /// Writes between two syncs of a file are made in the order of their offsets.
    Sort,
    /// The device is told to begin (sync_file_range) whenever so much was written to a file.
    Pace(u64),
    /// Whenever so much was written to a file, what was written before that is dropped from the cache
    /// (posix_fadvise, `POSIX_FADV_DONTNEED`).
    Dontneed(u64),
    /// Threads think this many times as long.
    Think(f64),
    /// So many programs do the same at the same time.
    Writers(u32, Owner),
    /// Each write goes to the end of its file.
    AppendOnly,
    /// No calls on these files.
    Drop,
    /// No calls on others.
    Only,
    /// The files are on the device with this number.
    Move(u64),
}

impl Rewrite {
    /// True if it gives files O_SYNC, O_DSYNC or O_DIRECT ([`Machine::for_new_flags`](super::Machine)).
    pub fn adds_flags(&self) -> bool {
        matches!(self, Rewrite::Flags(_, true))
    }

    /// True if it needs [`TraceFacts`](super::TraceFacts).
    pub fn needs_facts(&self) -> bool {
        matches!(
            self,
            Rewrite::Preallocate
                | Rewrite::Buffer(_)
                | Rewrite::Writers(_, Owner::All)
                | Rewrite::Syncs(SyncsKept::OneIn(_))
        )
    }
}

/// The fsyncs and fdatasyncs of a file that remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncsKept {
    /// One of so many, and one when the file is closed for the last time, for those since.
    OneIn(u32),
    /// The last one, when the file is closed.
    Last,
    /// None.
    None,
}

/// Whose the files of several programs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Each has files of its own.
    Each,
    /// All write to the same files, one behind the other.
    All,
}
