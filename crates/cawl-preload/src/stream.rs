//! A stream as the C library lays it out.
//!
//! The law of this module: only fields that programs have compiled in are read. The macros of putc and getc
//! put them into every program that used them, so they can never move; thread.c compares them with the
//! header when it is compiled. What is not among them (wide streams, streams without a file) is asked of the
//! C library.

use crate::guard;
use crate::real;
use core::ffi::{c_int, c_void};
use libc::FILE;

/// `struct _IO_FILE`, as far as it is read. Layout: struct_FILE.h of glibc; checked in thread.c.
#[repr(C)]
struct Layout {
    flags: c_int,
    read: [*mut u8; 3],
    write_base: *mut u8,
    write_next: *mut u8,
    write_end: *mut u8,
    buffer: *mut u8,
    buffer_end: *mut u8,
    others: [*mut c_void; 5],
    fd: c_int,
    flags_2: c_int,
    old_offset: isize,
    column: u16,
    vtable_offset: i8,
    short: u8,
    lock: *mut c_void,
    offset: i64,
    wide: [*mut c_void; 4],
    size: usize,
    mode: c_int,
}

/// The stream is line buffered.
const LINE: c_int = 0x200;

/// How a stream buffers.
#[derive(Clone, Copy)]
pub struct Buffering {
    /// Size of the buffer, in bytes.
    pub size: u32,
    /// It is written out at the end of each line.
    pub by_line: bool,
}

impl Buffering {
    /// The same as a number.
    #[inline(always)]
    pub fn pack(self) -> u64 {
        u64::from(self.by_line) << 32 | u64::from(self.size)
    }
}

/// # Safety
/// `stream` must be open.
#[inline(always)]
unsafe fn fields<'a>(stream: *mut FILE) -> &'a Layout {
    // SAFETY: the caller's promise, and the law of this module. Another thread may change a field at the same
    // time, as with the C library's own functions for this; then the figure is the old or the new one.
    unsafe { &*stream.cast::<Layout>() }
}

/// Bytes waiting in a stream's buffer.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn pending(stream: *mut FILE) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let fields = fields(stream);
        if fields.mode > 0 {
            return pending_wide(stream);
        }
        (fields.write_next as usize).wrapping_sub(fields.write_base as usize) as u32
    }
}

/// # Safety
/// `stream` must be open.
#[cold]
#[inline(never)]
unsafe fn pending_wide(stream: *mut FILE) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { real::__fpending(stream) as u32 }
}

/// The stream's descriptor, or a negative number.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn descriptor(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let fd = fields(stream).fd;
        // In a stream of the program's own making (fopencookie, open_memstream) it is negative.
        if fd < 0 { descriptor_of_other(stream) } else { fd }
    }
}

/// # Safety
/// `stream` must be open.
#[cold]
#[inline(never)]
unsafe fn descriptor_of_other(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    guard::keeping_errno(|| unsafe { real::fileno(stream) })
}

/// How the stream buffers.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn buffering(stream: *mut FILE) -> Buffering {
    // SAFETY: the caller's promise.
    unsafe {
        let fields = fields(stream);
        let by_line = fields.flags & LINE != 0;
        if fields.mode > 0 {
            return Buffering { size: size_wide(stream), by_line };
        }
        Buffering { size: (fields.buffer_end as usize).wrapping_sub(fields.buffer as usize) as u32, by_line }
    }
}

/// # Safety
/// `stream` must be open.
#[cold]
#[inline(never)]
unsafe fn size_wide(stream: *mut FILE) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { real::__fbufsize(stream) as u32 }
}
