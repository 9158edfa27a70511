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
    read_next: *mut u8,
    read_end: *mut u8,
    read_base: *mut u8,
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
/// It has met the end of its file, or an error. In the macros of feof and ferror.
const AT_END: c_int = 0x10;
const FAILED: c_int = 0x20;

/// How a stream buffers.
#[derive(Clone, Copy)]
pub struct Buffering {
    /// Size of the buffer, in bytes.
    pub size: u32,
    /// It is written out at the end of each line.
    pub by_line: bool,
}

impl Buffering {
    /// Both fields in one number.
    #[inline(always)]
    pub fn pack(self) -> u64 {
        u64::from(self.by_line) << 32 | u64::from(self.size)
    }
}

/// What a stream has read ahead at one moment.
#[derive(Clone, Copy)]
pub struct Filled {
    /// Addresses: the next byte, and the begin and end of what was read last.
    next: usize,
    end: usize,
    base: usize,
    /// These are not those of the buffer: the stream is wide, or bytes were pushed back.
    pub is_aside: bool,
    /// Its end was met.
    pub at_end: bool,
    /// It has failed.
    pub failed: bool,
}

impl Filled {
    /// Bytes that are there to be taken.
    #[inline(always)]
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.next) as u64
    }

    /// Bytes that were read last.
    pub fn read(&self) -> u64 {
        self.end.saturating_sub(self.base) as u64
    }

    /// True if the buffer can only have been filled again since.
    #[inline(always)]
    pub fn is_other(&self, since: &Filled) -> bool {
        self.end != since.end || self.next < since.next || self.at_end != since.at_end
    }
}

/// A stream as it was at one moment.
pub struct Look {
    /// Its descriptor, or a negative number.
    pub fd: c_int,
    /// Bytes waiting in its buffer; None for a wide stream of which that cannot be told.
    pub pending: Option<u32>,
    pub buffering: Buffering,
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

/// An open stream, which no other thread closes as long as this is used.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Stream(*mut FILE);

impl Stream {
    /// # Safety
    /// It must be open as long as this is used.
    #[inline(always)]
    pub unsafe fn open(file: *mut FILE) -> Stream {
        Stream(file)
    }

    /// None if it is null.
    ///
    /// # Safety
    /// It must be null, or open as long as this is used.
    #[inline(always)]
    pub unsafe fn if_any(file: *mut FILE) -> Option<Stream> {
        (!file.is_null()).then_some(Stream(file))
    }

    /// As the C library takes it.
    #[inline(always)]
    pub fn file(self) -> *mut FILE {
        self.0
    }

    #[inline(always)]
    fn fields(&self) -> &Layout {
        // SAFETY: it is open, and the law of this module. Another thread may change a field at the same time,
        // as with the C library's own functions for this; then the figure is the old or the new one.
        unsafe { &*self.0.cast::<Layout>() }
    }

    /// How it stands.
    pub fn state(self) -> Look {
        Look { fd: self.descriptor(), pending: Some(self.pending()), buffering: self.buffering() }
    }

    /// Bytes waiting in its buffer.
    #[inline(always)]
    pub fn pending(self) -> u32 {
        let fields = self.fields();
        if fields.mode > 0 { self.pending_wide() } else { fields.pending() }
    }

    #[cold]
    #[inline(never)]
    fn pending_wide(self) -> u32 {
        // SAFETY: it is open.
        unsafe { real::__fpending(self.0) as u32 }
    }

    /// True if so many bytes can be taken without the kernel.
    #[inline(always)]
    pub fn holds(self, length: u64) -> bool {
        let fields = self.fields();
        // Of a wide stream, these are not what is taken.
        let left = (fields.read_end as isize).wrapping_sub(fields.read_next as isize);
        fields.mode <= 0 && left > 0 && left as u64 >= length
    }

    /// What it has read ahead.
    #[inline(always)]
    pub fn filled(self) -> Filled {
        let fields = self.fields();
        let (base, end) = (fields.read_base as usize, fields.read_end as usize);
        let is_within = (fields.buffer as usize..=fields.buffer_end as usize).contains(&end);
        Filled {
            next: fields.read_next as usize,
            end,
            base,
            is_aside: fields.mode > 0 || !is_within && end != base,
            at_end: fields.flags & AT_END != 0,
            failed: fields.flags & FAILED != 0,
        }
    }

    /// True if so many bytes can only stay in its buffer.
    #[inline(always)]
    pub fn has_room(self, length: u64) -> bool {
        let fields = self.fields();
        // By lines or without a buffer, the end is where the next byte is, or below.
        let room = (fields.write_end as isize).wrapping_sub(fields.write_next as isize);
        fields.mode <= 0 && room > 0 && room as u64 >= length
    }

    /// What stands for a descriptor in it.
    #[inline(always)]
    pub fn number(self) -> c_int {
        self.fields().fd
    }

    /// Its descriptor, or a negative number.
    #[inline(always)]
    pub fn descriptor(self) -> c_int {
        let fd = self.number();
        // In a stream of the program's own making (fopencookie, open_memstream) it is negative.
        if fd < 0 { self.descriptor_of_other() } else { fd }
    }

    #[cold]
    #[inline(never)]
    fn descriptor_of_other(self) -> c_int {
        // SAFETY: it is open.
        guard::keeping_errno(|| unsafe { real::fileno(self.0) })
    }

    /// True if it can be written to.
    pub fn is_writable(self) -> bool {
        // SAFETY: it is open.
        unsafe { real::__fwritable(self.0) != 0 }
    }

    #[inline(always)]
    pub fn buffering(self) -> Buffering {
        let fields = self.fields();
        let size = if fields.mode > 0 { self.size_wide() } else { fields.size() };
        Buffering { size, by_line: fields.by_line() }
    }

    #[cold]
    #[inline(never)]
    fn size_wide(self) -> u32 {
        // SAFETY: it is open.
        unsafe { real::buffer_size(self.0) as u32 }
    }
}
