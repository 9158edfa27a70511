//! Behind the writer: after each part of a file, sync_file_range begins to write it back (`pace`), and
//! posix_fadvise drops what was written before it (`dontneed`).

use super::{DONTNEED, PACE, PART, has};
use crate::base::sys;
use crate::session;
use crate::state::descriptors::Descriptor;
use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Descriptors that are followed; those with higher numbers are not.
pub const FOLLOWED: usize = 1024;

/// How far the writing through a descriptor has come. Threads that write through one at the same time may
/// make these figures wrong, which only moves what is added.
pub struct Progress {
    /// Which descriptor it is (`Descriptor::number`).
    number: AtomicU64,
    /// Bytes of the present part.
    bytes: AtomicU64,
    /// What was written before it: from and to.
    from: AtomicU64,
    to: AtomicU64,
    /// The end of what was allocated beyond the file, in bytes, or a mark ([`super::space`]).
    pub reserved: AtomicU64,
}

static PROGRESS: [Progress; FOLLOWED] = [const {
    Progress {
        number: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        from: AtomicU64::new(0),
        to: AtomicU64::new(0),
        reserved: AtomicU64::new(0),
    }
}; FOLLOWED];

/// The progress through a descriptor, which begins anew when it is another one.
pub fn progress(fd: c_int, file: &Descriptor) -> Option<&'static Progress> {
    let progress = known_progress(fd, file);
    if progress.is_some() || file.number() == 0 {
        return progress;
    }
    let new = PROGRESS.get(usize::try_from(fd).ok()?)?;
    for field in [&new.bytes, &new.from, &new.to, &new.reserved] {
        field.store(0, Relaxed);
    }
    new.number.store(file.number(), Relaxed);
    Some(new)
}

/// The progress through a descriptor, if there is any.
pub fn known_progress(fd: c_int, file: &Descriptor) -> Option<&'static Progress> {
    let progress = PROGRESS.get(usize::try_from(fd).ok()?)?;
    let number = progress.number.load(Relaxed);
    (number != 0 && number == file.number()).then_some(progress)
}

/// So many bytes were written, up to `end`.
pub fn written(fd: c_int, file: &Descriptor, end: u64, bytes: u64) {
    let Some(progress) = progress(fd, file) else { return };
    let part = progress.bytes.load(Relaxed).saturating_add(bytes);
    if part < PART.load(Relaxed) {
        progress.bytes.store(part, Relaxed);
        return;
    }
    progress.bytes.store(0, Relaxed);
    let start = end.saturating_sub(part);
    let (from, to) = (progress.from.load(Relaxed), progress.to.load(Relaxed));
    progress.from.store(if to == start { from } else { start }, Relaxed);
    progress.to.store(end, Relaxed);
    if !session::is_ours() {
        return;
    }
    let range = |start: u64, end: u64| (start as usize, (end - start) as usize);
    if has(DONTNEED) && from < to {
        let (at, length) = range(from, to);
        let advice = libc::POSIX_FADV_DONTNEED as usize;
        // SAFETY: numbers only; the kernel changes neither data nor positions.
        unsafe { sys::call(libc::SYS_fadvise64, [fd as usize, at, length, advice]) };
    }
    if has(PACE) {
        let (at, length) = range(start, end);
        let flags = libc::SYNC_FILE_RANGE_WRITE as usize;
        // SAFETY: as above.
        unsafe { sys::call(libc::SYS_sync_file_range, [fd as usize, at, length, flags]) };
    }
}
