//! A stream as the C library lays it out.
//!
//! The law of this module: only fields that programs have compiled in are read. The macros of putc and getc
//! put them into every program that used them, so they can never move; thread.c compares them with the
//! header when it is compiled. What is not among them (wide streams, streams without a file) is asked of the
//! C library.

use crate::base::{guard, memory, real};
use core::ffi::{c_int, c_void};
use libc::FILE;

/// `struct _IO_FILE`, as far as it is read. Layout: struct_FILE.h of glibc; checked in thread.c.
#[repr(C)]
#[derive(Clone, Copy)]
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

/// A stream as it was at one moment.
pub struct Look {
    /// Its descriptor, or a negative number.
    pub fd: c_int,
    /// Bytes waiting in its buffer; None for a wide stream of which that cannot be told.
    pub pending: Option<u32>,
    /// How it buffers.
    pub buffering: Buffering,
}

/// Reads a stream that no other thread can close.
///
/// # Safety
/// `stream` must be open.
pub unsafe fn look(stream: *mut FILE) -> Look {
    // SAFETY: the caller's promise.
    unsafe { Look { fd: descriptor(stream), pending: Some(pending(stream)), buffering: buffering(stream) } }
}

/// Looks at what another thread may be closing, or what may be no stream at all: None if it cannot be read.
/// What was found is a stream's only if that was open afterwards, too.
#[inline(never)]
pub fn look_from_afar(stream: *mut FILE) -> Option<Look> {
    // SAFETY: numbers, and pointers that are not followed, may be any bytes.
    let fields = unsafe { memory::value(stream.cast::<Layout>()) }?;
    let pending = (fields.mode <= 0).then(|| fields.pending());
    Some(Look {
        fd: fields.fd,
        pending,
        buffering: Buffering { size: fields.size(), by_line: fields.by_line() },
    })
}

impl Layout {
    #[inline(always)]
    fn pending(&self) -> u32 {
        (self.write_next as usize).wrapping_sub(self.write_base as usize) as u32
    }

    #[inline(always)]
    fn size(&self) -> u32 {
        (self.buffer_end as usize).wrapping_sub(self.buffer as usize) as u32
    }

    #[inline(always)]
    fn by_line(&self) -> bool {
        self.flags & LINE != 0
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
        fields.pending()
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

/// True if so many bytes can only stay in the stream's buffer.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn has_room(stream: *mut FILE, length: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let fields = fields(stream);
        // By lines or without a buffer, the end is where the next byte is, or below.
        let room = (fields.write_end as isize).wrapping_sub(fields.write_next as isize);
        fields.mode <= 0 && room > 0 && room as u64 >= length
    }
}

/// What stands for a descriptor in it.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn number(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fields(stream).fd }
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
        let size = if fields.mode > 0 { size_wide(stream) } else { fields.size() };
        Buffering { size, by_line: fields.by_line() }
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
