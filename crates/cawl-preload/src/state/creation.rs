//! Whether a call that opened a file made it, too, or a copy of it.

use crate::base::sys;
use crate::state::descriptors::{self, Found};
use crate::state::residency;
use cawl_wire::{FileKind, flag};
use core::ffi::c_int;

/// Whether a call makes the file that it opens.
#[derive(Clone, Copy)]
pub enum Creation {
    /// It does not, or that is not known.
    Never,
    /// It does not, but opens it for writing, which an overlay may make a copy for; the filesystems' clock
    /// before the call.
    Copy((i64, u32)),
    /// It fails otherwise.
    Always,
    /// If the file was born at this time of the filesystems' clock, or later.
    Since((i64, u32)),
}

impl Creation {
    /// By the flags of a call that is about to be made.
    #[inline(always)]
    pub fn of(flags: c_int) -> Creation {
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            Creation::Always
        } else if flags & libc::O_CREAT == 0 {
            let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
            if writes { Creation::Copy(sys::coarse_time()) } else { Creation::Never }
        } else if flags & libc::O_EXCL != 0 {
            Creation::Always
        } else {
            Creation::Since(sys::coarse_time())
        }
    }

    /// By the mode of a stream that was opened, `then` being the time before the call.
    pub fn of_mode(mode: &[u8], then: (i64, u32)) -> Creation {
        let exclusive = mode.iter().take_while(|byte| **byte != b',').any(|byte| *byte == b'x');
        match mode.first() {
            Some(b'w' | b'a') if exclusive => Creation::Always,
            Some(b'w' | b'a') => Creation::Since(then),
            Some(b'r') if mode.iter().take_while(|byte| **byte != b',').any(|byte| *byte == b'+') => {
                Creation::Copy(then)
            }
            _ => Creation::Never,
        }
    }

    /// The time of the filesystems' clock that matters.
    pub fn since(self) -> Option<(i64, u32)> {
        match self {
            Creation::Since(then) | Creation::Copy(then) => Some(then),
            Creation::Never | Creation::Always => None,
        }
    }

    /// What it means for the event of a call that succeeded. The filesystems' clock ticks every few ms: a
    /// file that another process made in the same tick is taken for this call's.
    pub fn flag(self, fd: c_int, found: &Found) -> u32 {
        let is_new = found.size() == 0
            && descriptors::if_known(fd).is_some_and(|file| {
                // It needs no question what of it is cached; if that was known, it is not the first opening.
                file.kind() == FileKind::Regular && residency::note(file.identity())
            });
        let created = match self {
            Creation::Never | Creation::Copy(_) => false,
            Creation::Always => true,
            Creation::Since(_) => is_new && found.born_since(),
        };
        if created { flag::CREATED } else { 0 }
    }

    /// What an overlay's copy of a file of a lower layer (`ovl_copy_up_flags`) means for the event: it was
    /// born since the call began, and its data were changed before.
    pub fn copy_flag(self, fd: c_int, found: &Found) -> u32 {
        let Some(since) = self.since().filter(|_| found.size() > 0 && found.born_since()) else { return 0 };
        // Hardly a file comes to the last question, which makes the stamp of its next change a finer one.
        let changed_before = |stat: &libc::stat| (stat.st_mtime, stat.st_mtime_nsec as u32) < since;
        let is_copy = sys::is_on_overlay(fd) && sys::fstat_for(fd, changed_before) == Some(true);
        if is_copy { flag::COPIED_UP } else { 0 }
    }
}
