//! The program's memory, read without trust in the address.
//!
//! The law of this module: an address that the program gave is followed only by the kernel, which answers
//! EFAULT where a look of our own would kill the program. Another thread may unmap the memory at any moment,
//! and still nothing happens. Where the kernel does not do this (a filter, an old one), nothing is known.
//! Each copy costs one or two microseconds, so this is for what must be seen *before* a call; after one that
//! succeeded, what the kernel must have read can be read.

use crate::base::{hot, sys};
use core::ffi::c_char;
use core::mem::MaybeUninit;
use libc::iovec;

/// No page is smaller.
const PAGE: usize = 4096;
/// Bytes of a signal mask.
const MASK: usize = 8;
/// Pages of the longest string in an environment; exec refuses longer ones (MAX_ARG_STRLEN).
const LONGEST: usize = 32;

/// Copies what lies at `places` into one place after the other; the number of bytes, or a negative error.
///
/// # Safety
/// `to` must be valid for writes of as many bytes as `places` have together.
unsafe fn gather(places: &[iovec], to: *mut u8, length: usize) -> isize {
    let room = iovec { iov_base: to.cast(), iov_len: length };
    // SAFETY: valid lists of places; the kernel checks those that are read, the caller promises the other.
    unsafe {
        let arguments =
            [sys::getpid() as usize, &raw const room as usize, 1, places.as_ptr() as usize, places.len()];
        sys::call(libc::SYS_process_vm_readv, arguments)
    }
}

/// Copies what lies at an address of this process, of whose pages the last may not be there; the number of
/// bytes.
pub fn copy(at: u64, to: &mut [u8]) -> usize {
    let here = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let there = iovec { iov_base: core::ptr::with_exposed_provenance_mut(at as usize), iov_len: to.len() };
    // A vfork child has its parent's memory, and that one's number is as good.
    let arguments = [hot::pid() as usize, &raw const here as usize, 1, &raw const there as usize, 1, 0];
    // SAFETY: a place of the caller's, and an address that only the kernel follows.
    let copied = unsafe { sys::call(libc::SYS_process_vm_readv, arguments) };
    usize::try_from(copied).unwrap_or(0)
}

/// Copies plain values, each of its own place, into `to`; false if one of them cannot be read.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub unsafe fn values<T, const N: usize>(places: [*const T; N], count: usize, to: &mut [T; N]) -> bool {
    let count = count.min(N);
    let places = places.map(|at| iovec { iov_base: at.cast_mut().cast(), iov_len: size_of::<T>() });
    let length = count * size_of::<T>();
    let Some(places) = places.get(..count) else { return false };
    // SAFETY: `to` has room for N values; what they may be is the caller's promise.
    unsafe { gather(places, to.as_mut_ptr().cast(), length) == length as isize }
}

/// A plain value; None if it cannot be read.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub unsafe fn value<T>(at: *const T) -> Option<T> {
    let mut found = MaybeUninit::<T>::uninit();
    let place = iovec { iov_base: at.cast_mut().cast(), iov_len: size_of::<T>() };
    // SAFETY: room for one value, which is complete if as many bytes came; the rest is the caller's promise.
    unsafe {
        let got = gather(&[place], found.as_mut_ptr().cast(), size_of::<T>());
        (got == size_of::<T>() as isize).then(|| found.assume_init())
    }
}

/// True if a byte can be written.
pub fn is_writable(at: *mut u8) -> bool {
    // SAFETY: any byte is a valid one.
    let Some(byte) = (unsafe { value(at) }) else { return false };
    let [from, to] = [(&raw const byte).cast_mut(), at].map(|at| iovec { iov_base: at.cast(), iov_len: 1 });
    let (from, to) = (&raw const from as usize, &raw const to as usize);
    // SAFETY: valid lists of one place each. What is there is written there again, if the kernel can.
    unsafe { sys::call(libc::SYS_process_vm_writev, [sys::getpid() as usize, from, 1, to, 1]) == 1 }
}

/// The pages of two places that were found readable last: of a list and of its strings, which lie close
/// together.
struct Pages {
    known: [usize; 2],
}

impl Pages {
    /// True if the page of an address can be read: the kernel looks there before it finds that there is no
    /// such way to change the signal mask. No thread that behaves takes away what it has just given to exec.
    fn readable(&mut self, which: usize, at: usize) -> bool {
        let (page, mask) = (at & !(PAGE - 1), at & !(MASK - 1));
        if self.known[which] == page {
            return true;
        }
        // SAFETY: the kernel checks the address, and changes nothing. No mask at all, it would not look for.
        let answer = unsafe { sys::call(libc::SYS_rt_sigprocmask, [usize::MAX, mask, 0, MASK]) };
        if mask == 0 || answer != -(libc::EINVAL as isize) {
            return false;
        }
        self.known[which] = page;
        true
    }
}

/// True if a list of strings that ends with null is one that exec could read, or is null.
pub fn is_list(list: *const *const c_char) -> bool {
    // An odd address, so no page's.
    let mut pages = Pages { known: [1; 2] };
    let mut at = list;
    while !at.is_null() {
        let first = at as usize;
        if !pages.readable(0, first) || !pages.readable(0, first.wrapping_add(size_of::<usize>() - 1)) {
            return false;
        }
        // SAFETY: both ends lie in pages that can be read.
        let text = unsafe { at.read_unaligned() };
        if text.is_null() {
            return true;
        }
        if !is_string(text, &mut pages) {
            return false;
        }
        at = at.wrapping_add(1);
    }
    true
}

/// True if a string is there to be read, and not too long for exec.
pub fn is_text(text: *const c_char) -> bool {
    is_string(text, &mut Pages { known: [1; 2] })
}

fn is_string(text: *const c_char, pages: &mut Pages) -> bool {
    for length in 0..LONGEST * sys::page() {
        let at = text.wrapping_add(length);
        if !pages.readable(1, at as usize) {
            return false;
        }
        // SAFETY: it lies in a page that can be read.
        if unsafe { *at } == 0 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, of which the second cannot be read.
    fn edge() -> *mut u8 {
        let at = sys::map(2 * PAGE).cast::<u8>();
        // SAFETY: the second half of a mapping of this test's own.
        unsafe { sys::unmap(at.add(PAGE).cast(), PAGE) };
        at
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let at = edge();
        let end = at.wrapping_add(PAGE);
        // SAFETY: the last bytes of the first page; numbers may be any bytes.
        unsafe {
            end.sub(8).cast::<u64>().write(77);
            assert_eq!(value(end.sub(8).cast::<u64>()), Some(77));
            for bad in [end.wrapping_sub(4), end, core::ptr::null(), 8 as *const u8] {
                assert_eq!(value(bad.cast::<u64>()), None);
            }
            let mut out = [0u64; 2];
            assert!(values([end.sub(8).cast(), core::ptr::null()], 1, &mut out) && out == [77, 0]);
            assert!(!values([end.sub(8).cast(), end.cast()], 2, &mut out));
        }
    }

    #[test]
    fn lists_end_where_they_end() {
        let at = edge();
        let text = at.wrapping_add(PAGE - 6).cast::<c_char>();
        // SAFETY: the last bytes of the first page.
        unsafe { core::ptr::copy_nonoverlapping(b"a/b=c".as_ptr(), text.cast(), 5) };
        let list = [text.cast_const(), core::ptr::null()];
        assert!(is_list(list.as_ptr()) && is_list(core::ptr::null()));
        // Without its NUL it ends nowhere.
        // SAFETY: the last byte of the first page.
        unsafe { text.add(5).write(b'd' as c_char) };
        assert!(!is_list(list.as_ptr()));
        for bad in [
            core::ptr::without_provenance::<*const c_char>(8),
            at.wrapping_add(PAGE - 4).cast(),
            at.wrapping_add(PAGE).cast(),
        ] {
            assert!(!is_list(bad));
        }
    }
}
