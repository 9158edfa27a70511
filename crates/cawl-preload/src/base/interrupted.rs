//! Calls that a signal handler makes while the program's own is in progress in the same thread.
//!
//! The law of this module: the offsets of both calls are known. A signal mostly comes between the kernel's
//! work and the hook's, so the bytes of the interrupted call are already in the file and not yet counted. A
//! call that moves a position marks itself as in progress; a call that begins in between asks the kernel for
//! its own offset, and notes it for the interrupted one. A call that was left by a jump is recognised by the
//! stack's height; from then on the kernel is asked for every position.

use crate::base::clock;
use crate::base::thread::{Thread, height, thread};
use core::ffi::c_int;

/// Begins a call that moves the position of `fd`; when.
#[inline(always)]
pub fn begin(fd: c_int) -> u64 {
    let notes = &thread().notes;
    let now = clock::now();
    notes.begin(fd, now, height);
    now
}

/// Ends the call that began then.
#[inline(always)]
pub fn end(thread: &Thread, start: u64) {
    thread.notes.end(start);
}
