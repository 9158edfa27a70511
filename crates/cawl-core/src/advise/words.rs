//! What a change is and how to make it, in a line each.

use super::Kind;
use crate::buffers::Language;
use crate::limits::DirtyLimits;
use crate::quantity::short;
use crate::units::Bytes;

/// The files that a change is of.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// One file; all, if None.
    pub on: Option<String>,
    /// The files with the time that it can touch.
    pub files: Vec<String>,
    /// Further ones.
    pub more: u64,
    /// What writes the first one.
    pub program: Option<String>,
    /// One of them is a database of SQLite, by the journal beside it.
    pub journaled: bool,
    /// The language of the library whose buffer wrote the first one, as far as that is told.
    pub buffered: Option<Language>,
    /// Bytes written to the first one.
    pub bytes: u64,
    /// The time that it can touch, in seconds.
    pub seconds: f64,
}

impl Scope {
    fn is_by(&self, name: &str) -> bool {
        self.program.as_deref() == Some(name)
    }

    /// The language of a program that its name tells.
    fn language(&self) -> Option<Language> {
        let is = |name: &str| self.program.as_deref().is_some_and(|program| program.starts_with(name));
        is("python").then_some(Language::Python)
    }

    /// True if the first file's name is one of a database of SQLite.
    fn is_sqlite(&self) -> bool {
        const NAMES: [&str; 6] = [".db", ".sqlite", ".sqlite3", ".db3", "-wal", "-journal"];
        let named = |path: &String| NAMES.iter().any(|end| path.ends_with(end));
        self.is_by("sqlite3") || self.files.first().is_some_and(named)
    }
}

/// Programs that copy as they do, without an option for it.
const AS_THEY_ARE: [&str; 8] = ["cat", "cp", "head", "install", "mv", "sort", "split", "tee"];

/// True if the program has a way to do it, as far as its options are known. SQLite, tar, dd and others make
/// their calls as they do, but for these.
pub(super) fn fits(kind: Kind, scope: &Scope) -> bool {
    let of_the_machine = matches!(kind, Kind::Limits | Kind::Move);
    if scope.is_by("sqlite3") || scope.journaled {
        return of_the_machine || matches!(kind, Kind::SyncEvery | Kind::SyncEnd | Kind::AppendOnly);
    }
    match scope.program.as_deref() {
        _ if of_the_machine => true,
        Some("tar") => kind == Kind::Merge,
        Some("dd") => matches!(kind, Kind::Merge | Kind::Direct | Kind::Fdatasync | Kind::SyncOff),
        Some(program) => !AS_THEY_ARE.contains(&program),
        None => true,
    }
}

/// Bytes of a block of tar's -b.
const TAR_BLOCK: u64 = 512;

/// What it is. `size`: its bytes, or its number of syncs.
pub(super) fn what(kind: Kind, scope: &Scope, size: u64) -> String {
    let bytes = Bytes(size);
    match kind {
        Kind::Buffer => format!("a stream buffer of {bytes}"),
        Kind::Merge => format!("writes of {bytes}"),
        Kind::Fdatasync => "fdatasync in the place of fsync".to_owned(),
        Kind::Dsync => "O_DSYNC in the place of a sync after each write".to_owned(),
        Kind::Preallocate => "space allocated before the first write".to_owned(),
        Kind::Pace => format!("writeback begun every {bytes}"),
        Kind::Direct => "O_DIRECT".to_owned(),
        Kind::Move => "another device".to_owned(),
        Kind::Sort => "writes in the order of their offsets".to_owned(),
        Kind::AppendOnly => "writes to the end of the file only".to_owned(),
        Kind::SyncEvery if scope.is_sqlite() => format!("one commit for {size} statements"),
        Kind::SyncEvery => format!("one fsync for {size} records"),
        Kind::SyncEnd => "one fsync at the end".to_owned(),
        Kind::SyncOff => "one fsync at the close in the place of O_SYNC".to_owned(),
        Kind::Limits | Kind::Together => String::new(),
    }
}

pub(super) fn how(kind: Kind, scope: &Scope, size: u64) -> String {
    let shift = size.max(1).ilog2();
    match kind {
        Kind::Buffer => format!(
            "setvbuf(f, malloc(1 << {shift}), _IOFBF, 1 << {shift}) right after fopen (without memory of its own glibc ignores the size)"
        ),
        Kind::Merge if scope.is_by("dd") => format!("dd bs={}", short(size)),
        Kind::Merge if scope.is_by("tar") => format!("tar -b {}", size / TAR_BLOCK),
        Kind::Merge => match scope.buffered.or_else(|| scope.language()) {
            Some(language) => crate::buffers::resize(language, size),
            None => format!("gather records in a buffer of {} and write it when it is full", Bytes(size)),
        },
        Kind::Fdatasync if scope.is_by("dd") => "dd conv=fdatasync in the place of conv=fsync".to_owned(),
        Kind::Fdatasync => "call fdatasync(fd) where the program calls fsync(fd)".to_owned(),
        Kind::Dsync => "open with O_DSYNC and leave out the fsync after each write".to_owned(),
        Kind::Preallocate => {
            format!("posix_fallocate(fd, 0, {}) after open, or what the file will need", scope.bytes)
        }
        Kind::Pace => format!(
            "sync_file_range(fd, offset, 1 << {shift}, SYNC_FILE_RANGE_WRITE) after every {}",
            Bytes(size)
        ),
        Kind::Direct if scope.is_by("dd") => "dd oflag=direct".to_owned(),
        Kind::Direct => "open with O_DIRECT; buffers and sizes in whole blocks".to_owned(),
        Kind::Sort => "sort what is to be written between two syncs by its offset".to_owned(),
        Kind::AppendOnly if scope.is_sqlite() => "PRAGMA journal_mode=WAL".to_owned(),
        Kind::AppendOnly => {
            "append changed records to a log, with an index of the latest ones; compact it when idle"
                .to_owned()
        }
        Kind::SyncEvery if scope.is_sqlite() => {
            format!("BEGIN; {size} statements; COMMIT in the place of a commit each")
        }
        Kind::SyncEvery => format!("call fsync once per {size} records, and at the end"),
        Kind::SyncEnd if scope.is_sqlite() => {
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL, or all in one transaction".to_owned()
        }
        Kind::SyncEnd => "call fsync once, before close".to_owned(),
        Kind::SyncOff if scope.is_by("dd") => "dd conv=fsync in the place of oflag=sync or dsync".to_owned(),
        Kind::SyncOff => "open without O_SYNC and O_DSYNC; call fsync before close".to_owned(),
        Kind::Move | Kind::Limits | Kind::Together => String::new(),
    }
}

pub(super) fn limits(limits: DirtyLimits) -> String {
    let DirtyLimits { background, hard } = limits;
    format!("sysctl vm.dirty_background_bytes={} vm.dirty_bytes={}", background.0, hard.0)
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
