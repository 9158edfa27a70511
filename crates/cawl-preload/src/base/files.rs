//! Small files of /proc, whole; numbers in text.

use crate::base::gate::call;
use core::ffi::{CStr, c_char, c_int};

/// readlink of a NUL-terminated path into `out`; the length, or 0.
pub fn readlink(path: &[u8], out: &mut [u8]) -> usize {
    if path.last() != Some(&0) {
        return 0;
    }
    // SAFETY: `path` ends with NUL and `out` is a valid place of the length given.
    let length = unsafe {
        let (path, place) = (path.as_ptr() as usize, out.as_mut_ptr() as usize);
        call(libc::SYS_readlinkat, [libc::AT_FDCWD as usize, path, place, out.len()])
    };
    usize::try_from(length).unwrap_or(0)
}

/// The beginning of a file of /proc or /sys; its length, 0 if it cannot be read.
pub fn read_file(path: &CStr, text: &mut [u8]) -> usize {
    let Some(fd) = open_to_read(libc::AT_FDCWD, path.as_ptr()) else { return 0 };
    let length = read(fd, text);
    close(fd);
    length
}

/// read; the number of bytes, 0 on any failure.
pub fn read(fd: c_int, out: &mut [u8]) -> usize {
    // SAFETY: `out` is a valid place of the length given.
    let read = unsafe { call(libc::SYS_read, [fd as usize, out.as_mut_ptr() as usize, out.len()]) };
    usize::try_from(read).unwrap_or(0)
}

/// Opens a file for reading only, not waiting for anything.
pub fn open_to_read(directory: c_int, path: *const c_char) -> Option<c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the kernel checks `path` itself.
    let fd = unsafe { call(libc::SYS_openat, [directory as usize, path as usize, flags as usize]) };
    (fd >= 0).then_some(fd as c_int)
}

/// True if this process may not open a file for reading, though its permissions allow it: Landlock says so at
/// no other call. That there is no descriptor left is no such answer.
#[inline(never)]
pub fn is_refused(path: &CStr) -> bool {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: the path ends with NUL.
    let fd = unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags]) };
    if fd >= 0 {
        close(fd as c_int);
    }
    fd == -(libc::EACCES as isize)
}

/// A decimal number, and nothing else.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// close
pub fn close(fd: c_int) -> isize {
    // SAFETY: close takes a number; callers pass descriptors that the tracer owns.
    unsafe { call(libc::SYS_close, [fd as usize]) }
}
