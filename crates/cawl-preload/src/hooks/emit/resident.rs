//! What of a file is cached before this process first reads from it, or writes over it.

use super::record;
use crate::base::guard::{self, Inside};
use crate::base::{clock, sys};
use crate::session;
use crate::state::descriptors::Descriptor;
use crate::state::glibc_file::Stream;
use crate::state::residency::{self, Resident};
use cawl_wire::{FileKind, Op, flag};
use core::ffi::c_int;

/// A regular file is about to be read.
pub fn before_reads(inside: &Inside, fd: c_int, file: &Descriptor) {
    if residency::note(file.identity())
        && let Some(length) = sys::fstat_for(fd, |stat| stat.st_size as u64)
    {
        ask(inside, fd, file, length);
    }
}

/// A file of this length was opened. If calls can write over what it has through the page cache, the kernel
/// is asked what of it is cached.
pub fn before_writes(inside: &Inside, fd: c_int, file: &Descriptor, length: u64) {
    let flags = file.flags() & (flag::WRITABLE | flag::APPEND | flag::DIRECT);
    let is_overwritten = length > 0 && flags == flag::WRITABLE && file.kind() == FileKind::Regular;
    if is_overwritten && residency::note(file.identity()) {
        ask(inside, fd, file, length);
    }
}

/// A stream was opened, as [`before_writes`]; beside the telling of that, for the room on the stack.
#[inline(never)]
pub fn before_writes_of(stream: Stream) {
    let fd = stream.descriptor();
    if fd >= 0
        && stream.is_writable()
        && let Some(inside) = guard::enter()
        && session::is_ours()
        && let Some(file) = session::learn(fd)
        && let Some(length) = sys::fstat_for(fd, |stat| stat.st_size as u64)
    {
        before_writes(&inside, fd, file, length);
    }
}

#[inline(never)]
fn ask(inside: &Inside, fd: c_int, file: &Descriptor, length: u64) {
    if let Some(found) = residency::ask(fd, length) {
        tell(inside, fd, file, &found);
    }
}

/// A frame of its own, which is not on the stack while the kernel is asked.
#[inline(never)]
fn tell(inside: &Inside, fd: c_int, file: &Descriptor, found: &Resident) {
    let now = clock::now();
    record(inside, Op::Resident, (now, now), Some((fd, file)), found.bytes as i64, |event| {
        (event.requested, event.offset) = (found.ranges, found.range);
        event.aux = u32::try_from(found.dirty.div_ceil(4096)).unwrap_or(u32::MAX);
        event.flags |= if found.sampled { flag::ESTIMATED } else { 0 };
    });
}
