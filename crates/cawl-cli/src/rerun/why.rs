//! What a rerun leaves out, and why.

use cawl_core::named;
use cawl_wire::{ADVICE_DONTNEED, Event, FileKind, Op, UNKNOWN_OFFSET, flag};

named! {
    /// Why calls are left out.
    #[derive(PartialOrd, Ord)]
    Why {
        Failed = "failed in the trace",
        NotOnFile = "not on a file",
        OnlyReads = "only reads",
        NotRepeatable = "no call that a rerun makes",
        UnknownFile = "of a file or place that the trace does not tell",
        NotOpen = "of a descriptor without other calls",
        OtherLinks = "of a file with other links",
    }
}

/// Why a rerun cannot make a call, as far as the call alone tells.
pub fn unmakeable(event: &Event) -> Option<Why> {
    use Op::*;
    let is_file = matches!(event.kind, FileKind::Regular | FileKind::Directory) && event.fd >= 0;
    match event.op {
        _ if event.returned < 0 || event.errno != 0 => Some(Why::Failed),
        Read | Pread | StreamRead | Stat | List | Resident => Some(Why::OnlyReads),
        // The others are about reading ahead.
        Advise if event.aux != ADVICE_DONTNEED => Some(Why::OnlyReads),
        Open | StreamOpen | Close | StreamClose | Dup if !event.has(flag::WRITABLE | flag::TRUNC) => {
            Some(Why::OnlyReads)
        }
        MmapWrite | AioWrite | AioFsync | Splice | Msync | Lock | Exec | Spawn | StreamExit => {
            Some(Why::NotRepeatable)
        }
        Link | Symlink | Mkdir | Rmdir => Some(Why::NotRepeatable),
        // A reflink copies nothing.
        CopyRange if event.has(flag::ESTIMATED) => Some(Why::NotRepeatable),
        Unlink | Rename | Fork | Sync => None,
        Truncate if event.fd < 0 => (event.ino == 0).then_some(Why::UnknownFile),
        _ if !is_file => Some(Why::NotOnFile),
        Seek | Write | Writev if event.kind == FileKind::Directory => Some(Why::NotOnFile),
        Seek | StreamSeek | Pwrite | Pwritev if event.offset == UNKNOWN_OFFSET => Some(Why::UnknownFile),
        _ => None,
    }
}
