//! Calls that a signal handler makes while the program's own is under way in the same thread.
//!
//! The law of this module: where bytes went is known for both. A signal mostly comes between the kernel's
//! work and the hook's, so the handler finds the bytes of the call that it interrupted in the file and not in
//! the books. So a call that moves a position says that it is under way; one that begins meanwhile asks the
//! kernel where it wrote, and notes it for the other. Whoever was jumped out of a call is found by the
//! stack's height, and then no position is counted along any more.

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
