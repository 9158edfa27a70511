//! What of a file is in the page cache, as the kernel tells: by cachestat(2), since Linux 6.5, else by
//! mincore(2).
//!
//! The law of this module: nothing is opened, and nothing is read in. The mapping that mincore needs allows
//! no access and is gone when the answer is there.

use crate::base::sys;
use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

const CACHESTAT: libc::c_long = 451;
/// Pages of one mincore.
const WINDOW: usize = 128;
/// Pages of which [`pieces`] counts the pieces, and questions that it asks for that.
const COUNTED: u64 = 256;
const LOOKS: usize = 128;
static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// Dirty bytes of a range of a file, those under writeback included; None if the kernel does not tell.
pub fn dirty(fd: c_int, offset: u64, length: u64) -> Option<u64> {
    // nr_cache, nr_dirty, nr_writeback, …
    cachestat(fd, offset, length).ok().map(|found| (found[1] + found[2]) * sys::page() as u64)
}

/// In how many pieces `dirty` bytes of a range of a file lie: counted in one part of it, and as many more for
/// the rest. 0 if the kernel does not tell.
#[inline(never)]
pub fn pieces(fd: c_int, offset: u64, length: u64, dirty: u64) -> u32 {
    let page = sys::page() as u64;
    let (mut from, mut pages, mut found) = (offset / page, length.div_ceil(page), dirty / page);
    let dirty_of =
        |from: u64, pages: u64| self::dirty(fd, from * page, pages * page).map(|bytes| bytes / page);
    // The half with more of them, down to a part that can be counted: costs as much as one look at all.
    while pages > COUNTED && found < pages {
        let half = pages / 2;
        let Some(first) = dirty_of(from, half) else { return 0 };
        if 2 * first >= found {
            (pages, found) = (half, first);
        } else {
            (from, pages, found) = (from + half, pages - half, found.saturating_sub(first));
        }
    }
    let (mut at, mut step, end, mut before) = (from, 1, from + pages, false);
    let (mut pieces, mut seen) = (0, 0);
    for _ in 0..LOOKS {
        let size = step.min(end - at);
        let Some(count) = dirty_of(at, size).filter(|_| size > 0) else { break };
        if count > 0 && count < size {
            step = size / 2;
            continue;
        }
        pieces += u64::from(count > 0 && !before);
        (before, seen) = (count > 0, seen + count);
        (at, step) = (at + size, 2 * size);
    }
    let all = (dirty / page * pieces).checked_div(seen).unwrap_or(0);
    u32::try_from(all).unwrap_or(u32::MAX)
}

/// Pages of a range of a file that are cached, and how many of them are dirty, 0 where only mincore tells;
/// None if the kernel tells neither. The range is not empty.
pub fn cached(fd: c_int, offset: u64, length: u64) -> Option<(u64, u64)> {
    match cachestat(fd, offset, length) {
        // An overlay's own inode has no pages; a mapping is one of the file below (`ovl_mmap`, 6.18).
        Ok([0, ..]) if sys::is_on_overlay(fd) => mincore(fd, offset, length).map(|pages| (pages, 0)),
        Ok(found) => Some((found[0], found[1])),
        // An old kernel, or a filter.
        Err(errno) if errno == -(libc::ENOSYS as isize) || errno == -(libc::EPERM as isize) => {
            mincore(fd, offset, length).map(|pages| (pages, 0))
        }
        Err(_) => None,
    }
}

fn cachestat(fd: c_int, offset: u64, length: u64) -> Result<[u64; 5], isize> {
    let unknown = -(libc::ENOSYS as isize);
    if NO_CACHESTAT.load(Relaxed) {
        return Err(unknown);
    }
    let range = [offset, length];
    let mut found = [0u64; 5];
    // SAFETY: places for a cachestat_range and a cachestat, both plain numbers.
    let done =
        unsafe { sys::call(CACHESTAT, [fd as usize, &raw const range as usize, &raw mut found as usize]) };
    if done == unknown {
        NO_CACHESTAT.store(true, Relaxed);
    }
    if done == 0 { Ok(found) } else { Err(done) }
}

/// To everybody else the kernel says of each page that it is there (`can_do_mincore`, Linux 5.2).
#[cold]
fn is_told_the_truth(fd: c_int) -> bool {
    const FACCESSAT2: libc::c_long = 439;
    const EFFECTIVE: c_int = 0x200;
    if sys::fstat_for(fd, |stat| stat.st_uid) == Some(sys::geteuid()) {
        return true;
    }
    let flags = libc::AT_EMPTY_PATH | EFFECTIVE;
    // SAFETY: an empty string, and numbers.
    unsafe {
        let name = c"".as_ptr() as usize;
        sys::call(FACCESSAT2, [fd as usize, name, libc::W_OK as usize, flags as usize]) == 0
    }
}

#[cold]
fn mincore(fd: c_int, offset: u64, length: u64) -> Option<u64> {
    if !is_told_the_truth(fd) {
        return None;
    }
    let (length, offset) = (length as usize, offset as usize);
    let (none, private) = (libc::PROT_NONE as usize, libc::MAP_PRIVATE as usize);
    // SAFETY: a new mapping at an address of the kernel's choice, without access, disturbs nothing.
    let at = unsafe { sys::call(libc::SYS_mmap, [0, length, none, private, fd as usize, offset]) };
    if (-4095..0).contains(&at) {
        return None;
    }
    let at = at as usize;
    let most = WINDOW * sys::page();
    let found = (0..length).step_by(most).map(|from| window(at + from, (length - from).min(most))).sum();
    // SAFETY: the mapping made above, which nothing refers to.
    unsafe { sys::call(libc::SYS_munmap, [at, length]) };
    found
}

#[inline(never)]
fn window(at: usize, length: usize) -> Option<u64> {
    let mut pages = [0u8; WINDOW];
    // SAFETY: a mapping, and a place for a byte for each of its pages.
    let done = unsafe { sys::call(libc::SYS_mincore, [at, length, pages.as_mut_ptr() as usize]) };
    (done == 0).then(|| pages.iter().map(|page| u64::from(page & 1)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    const PAGE: u64 = 4096;

    /// Both ways of asking find what a file's owner knows to be cached.
    #[test]
    fn what_is_cached_is_found_by_both_calls() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 22).unwrap();
        let fd = file.as_raw_fd();
        let all = 1 << 22;
        let both =
            |offset, length| (cached(fd, offset, length).map(|found| found.0), mincore(fd, offset, length));
        assert_eq!(both(0, all), (Some(0), Some(0)), "a hole that nobody read");
        let written = vec![1; 300 * PAGE as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &written, 100 * PAGE).unwrap();
        assert_eq!(mincore(fd, 0, all), Some(300));
        if cachestat(fd, 0, all).is_err() {
            eprintln!("SKIPPED: this kernel has no cachestat");
            return;
        }
        assert_eq!(both(0, all).0, Some(300));
        for (offset, pages) in [(0, 100), (50, 100), (100, 1), (399, 2)] {
            let (by_cachestat, by_mincore) = both(offset * PAGE, pages * PAGE);
            assert_eq!(by_cachestat, by_mincore, "{pages} pages from {offset}");
        }
        assert_eq!(cached(-1, 0, 4096), None);
    }

    /// Stores in one piece are one; each of those 16 pages apart is one, and so are half of those on every
    /// second.
    #[test]
    fn pieces_are_counted() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(1 << 24).unwrap();
        let fd = file.as_raw_fd();
        let dirtied = |pages: &mut dyn Iterator<Item = u64>| {
            // What is dirty may be written back meanwhile, by other programs' syncs.
            for page in pages {
                std::os::unix::fs::FileExt::write_all_at(&file, &[1; 64], page * PAGE).unwrap();
            }
            dirty(fd, 0, 1 << 24).map(|dirty| (dirty / PAGE, pieces(fd, 0, 1 << 24, dirty)))
        };
        let Some((in_a_row, one)) = dirtied(&mut (100..400)) else {
            return eprintln!("SKIPPED: this kernel has no cachestat");
        };
        if in_a_row == 0 {
            return eprintln!("SKIPPED: nothing is dirty on this filesystem");
        }
        assert!((1..8).contains(&one), "{one} pieces of {in_a_row} pages in a row");
        file.set_len(0).unwrap();
        file.set_len(1 << 24).unwrap();
        let (apart, many) = dirtied(&mut (0..256).map(|at| at * 16)).unwrap();
        if apart == 0 {
            return eprintln!("SKIPPED: all was written back meanwhile");
        }
        assert!(u64::from(many) * 10 > apart * 9, "{many} pieces of {apart} pages apart");
        assert_eq!(pieces(-1, 0, 1 << 24, PAGE << 10), 0);
    }
}
