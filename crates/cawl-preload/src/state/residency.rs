//! What of a file is cached when this process first reads from it, or opens it to write over it, and of which
//! files that has been asked.
//!
//! The law of this module: a question takes some 50 µs at most. A file that is too long for that is looked at
//! in samples, and the answer is an estimate.

use crate::base::page_cache::cached;
use crate::base::sys;
use crate::state::birth::neighbours;
use cawl_wire::FileId;
use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Ranges of a file: a bit each.
const RANGES: u64 = 64;
/// Longest file that is looked at as a whole, in bytes. A page of its own takes the kernel some 30 ns.
const WHOLE: u64 = 4 << 20;
/// Bytes in the middle of each range that are looked at of a longer one.
const SAMPLE: u64 = 64 << 10;
/// Files remembered. One that lies at the place of another is asked again.
const KNOWN: usize = 1 << 14;

/// A word for each file that was asked or is empty.
static ASKED: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];

/// What of a file is cached.
#[derive(Debug, PartialEq, Eq)]
pub struct Resident {
    /// A bit for each range, the lowest first: more than half of it is cached.
    pub ranges: u64,
    /// Length of a range in bytes, whole pages.
    pub range: u64,
    /// Bytes cached.
    pub bytes: u64,
    /// Bytes of them that are dirty; 0 before Linux 6.5, which does not tell.
    pub dirty: u64,
    /// Only samples were looked at.
    pub sampled: bool,
}

/// Notes that there is no need to ask about a file, now or later; false if that had been noted.
pub fn note(file: FileId) -> bool {
    let mixed = file.ino ^ u64::from(file.birth) << 32 ^ file.dev.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    ASKED[neighbours(file.dev, file.ino) % KNOWN].swap(mixed, Relaxed) != mixed
}

/// Asks the kernel about a file of this length. None if it does not tell, or if there is nothing to tell.
#[cold]
#[inline(never)]
pub fn ask(fd: c_int, length: u64) -> Option<Resident> {
    if length == 0 {
        return None;
    }
    let page = sys::page() as u64;
    let pages = length.div_ceil(page);
    let range = pages.div_ceil(RANGES) * page;
    let sampled = length > WHOLE;
    let mut answer = Resident { ranges: 0, range, bytes: 0, dirty: 0, sampled };
    if !sampled {
        let (all, dirty) = cached(fd, 0, pages * page)?;
        if all == 0 {
            return Some(answer);
        }
        if all == pages {
            (answer.ranges, answer.bytes, answer.dirty) = (u64::MAX, length, (dirty * page).min(length));
            return Some(answer);
        }
    }
    for (index, begin) in (0..RANGES).map(|index| (index, index * range)).take_while(|one| one.1 < length) {
        let own = range.min(length - begin);
        let whole = own.next_multiple_of(page);
        let looked = if sampled { whole.min(SAMPLE) } else { whole };
        let from = begin + (whole - looked) / 2 / page * page;
        let (found, dirty) = cached(fd, from, looked)?;
        let of_range = |pages: u64| {
            let found = (pages * page).min(looked);
            own / looked * found + own % looked * found / looked
        };
        if found * page * 2 > looked {
            answer.ranges |= 1 << index;
        }
        answer.bytes += of_range(found);
        answer.dirty += of_range(dirty);
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    const PAGE: u64 = 4096;

    /// A file of holes, of which that is cached that was written.
    fn written(length: u64, parts: &[(u64, u64)]) -> std::fs::File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        for (start, end) in parts {
            file.write_all_at(&vec![1; (end - start) as usize], *start).unwrap();
        }
        file
    }

    #[test]
    fn a_bit_stands_for_a_range() {
        let asked = |length, parts: &[(u64, u64)]| {
            let found = ask(written(length, parts).as_raw_fd(), length).expect("asked by the owner");
            Resident { dirty: 0, ..found }
        };
        let none = Resident { ranges: 0, range: PAGE, bytes: 0, dirty: 0, sampled: false };
        assert_eq!(asked(1000, &[]), none);
        assert_eq!(asked(1000, &[(0, 10)]), Resident { ranges: u64::MAX, bytes: 1000, ..none });
        let two = Resident { ranges: 0b100, bytes: 1808, ..none };
        assert_eq!(asked(10_000, &[(8192, 8193)]), two, "the last page is not full");
        let half = Resident { ranges: u64::MAX << 32, range: 4 * PAGE, bytes: 512 << 10, ..none };
        assert_eq!(asked(1 << 20, &[(512 << 10, 1 << 20)]), half);
        let few = Resident { ranges: 0b10, range: 4 * PAGE, bytes: 5 * PAGE, ..none };
        assert_eq!(asked(1 << 20, &[(0, 2 * PAGE), (4 * PAGE, 7 * PAGE)]), few, "half is not more than half");
        assert!(ask(written(0, &[]).as_raw_fd(), 0).is_none());
    }

    #[test]
    fn a_long_file_is_looked_at_in_samples() {
        let length = 64 << 20;
        let file = written(length, &[(0, 32 << 20)]);
        let found = ask(file.as_raw_fd(), length).expect("asked by the owner");
        let (ranges, dirty) = (u64::MAX >> 32, found.dirty);
        assert_eq!(found, Resident { ranges, range: 1 << 20, bytes: 32 << 20, dirty, sampled: true });
    }

    #[test]
    fn what_is_dirty_is_told() {
        // A sync of another process cleans the pages.
        let dirty = |length: u64| {
            let file = written(length, &[(0, length / 2)]);
            ask(file.as_raw_fd(), length).expect("asked by the owner").dirty
        };
        if dirty(64 << 10) == 0 && dirty(64 << 10) == 0 {
            return eprintln!("SKIPPED: this kernel or filesystem does not tell what is dirty");
        }
        for length in [64 << 10, 64 << 20] {
            assert!((0..10).any(|_| dirty(length) == length / 2), "{length}");
        }
    }

    #[test]
    fn a_file_is_asked_about_once() {
        let file = FileId { dev: 99, ino: 12_345, birth: 7 };
        assert!(note(file));
        assert!(!note(file));
        assert!(note(FileId { birth: 8, ..file }), "another file of this number");
    }
}
