//! Whether a call that opened a file made it, too.

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
            Creation::Never
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
            _ => Creation::Never,
        }
    }

    /// The time of the filesystems' clock that matters.
    pub fn since(self) -> Option<(i64, u32)> {
        if let Creation::Since(then) = self { Some(then) } else { None }
    }

    /// What it means for the event of a call that succeeded. The filesystems' clock ticks every few ms: a file
    /// that another process made in the same tick is taken for this call's.
    pub fn flag(self, fd: c_int, found: &Found) -> u32 {
        let is_new = found.size() == 0
            && descriptors::if_known(fd).is_some_and(|file| {
                // It needs no question what of it is cached; if that was known, it is not the first opening.
                file.kind() == FileKind::Regular && residency::note(file.identity())
            });
        let created = match self {
            Creation::Never => false,
            Creation::Always => true,
            Creation::Since(_) => is_new && found.born_since(),
        };
        if created { flag::CREATED } else { 0 }
    }
}
