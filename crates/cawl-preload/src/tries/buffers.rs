//! Larger buffers for streams (`buffer`): of those that the program opens for writing only, on a regular
//! file. It gets them when it opens them; whatever it sets itself afterwards comes in their place. Standard
//! output and error are left as they are: the program did not open them, and may have set them already.

use super::{BUFFER, BUFFER_SIZE, has};
use crate::base::{guard, real, sys};
use crate::session;
use crate::state::glibc_file::Stream;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use libc::FILE;

/// Streams with a buffer of ours at a time; others keep their own.
const MAX: usize = 256;

/// The streams, and their buffers.
static STREAMS: [AtomicPtr<FILE>; MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX];
static BUFFERS: [AtomicPtr<c_void>; MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX];

fn size() -> usize {
    BUFFER_SIZE.load(Relaxed) as usize
}

/// A stream was just opened on a regular file, in a process of ours, and nothing was done with it yet: gives
/// it a buffer.
#[inline(always)]
pub fn opened(stream: Stream) {
    if has(BUFFER) {
        give(stream.file());
    }
}

#[cold]
#[inline(never)]
fn give(stream: *mut FILE) {
    // SAFETY: `opened` was given it as an open one.
    if unsafe { real::__freadable(stream) } != 0 || sys::limited(libc::RLIMIT_AS) {
        return;
    }
    let null = core::ptr::null_mut();
    let free = |place: &AtomicPtr<FILE>| place.compare_exchange(null, stream, AcqRel, Relaxed).is_ok();
    let Some(place) = STREAMS.iter().position(free) else { return };
    let buffer = sys::map(size());
    let given = !buffer.is_null()
        && guard::keeping_errno(|| {
            // SAFETY: as above; the buffer is there until the stream is closed.
            let done: c_int = unsafe { real::setvbuf(stream, buffer.cast(), libc::_IOFBF, size()) };
            done == 0
        });
    if given {
        BUFFERS[place].store(buffer, Relaxed);
        return;
    }
    STREAMS[place].store(null, Relaxed);
    if !buffer.is_null() {
        // SAFETY: just mapped, and the stream did not take it.
        unsafe { sys::unmap(buffer, size()) };
    }
}

/// A stream is about to be closed: its buffer, or null, to be given back after that. Another stream may then
/// have the same address.
#[inline(always)]
pub fn take_back(stream: *mut FILE) -> *mut c_void {
    if has(BUFFER) && !stream.is_null() { find(stream) } else { core::ptr::null_mut() }
}

#[cold]
#[inline(never)]
fn find(stream: *mut FILE) -> *mut c_void {
    let null = core::ptr::null_mut::<c_void>();
    let here = |place: &AtomicPtr<FILE>| place.load(Relaxed) == stream;
    let Some(place) = STREAMS.iter().position(here) else { return null };
    if !session::is_ours() {
        return null;
    }
    let buffer = BUFFERS[place].swap(null, Relaxed);
    STREAMS[place].store(core::ptr::null_mut(), Relaxed);
    buffer
}

/// The stream of a buffer from [`take_back`] was closed.
///
/// # Safety
/// It must not be open any more.
#[inline(always)]
pub unsafe fn give_back(buffer: *mut c_void) {
    if !buffer.is_null() {
        // SAFETY: from `give`, of this size, and the caller's promise.
        unsafe { sys::unmap(buffer, size()) };
    }
}
