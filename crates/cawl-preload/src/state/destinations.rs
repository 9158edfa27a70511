//! Which memory that a program reads into it has not touched before: the kernel allocates and clears a page
//! for each page of it, in the time of the read.
//!
//! The law of this module: a look (mincore) takes the kernel half a microsecond, so memory is looked at once.
//! Long reads are looked at every time, since an allocator gives the memory for them back and gets new one at
//! the same place. When a look finds nothing, the next ones are left out, one, two, four and so on, up to
//! [`MAX_LEFT_OUT`], of short and long reads apart.

use crate::base::sys;
use crate::base::thread::thread;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Shortest read whose memory may be new wherever it lies: from 128 KiB on the C library maps what is
/// allocated (`M_MMAP_THRESHOLD`).
const LONG: usize = 128 << 10;
/// Most looks that are left out in a row: of short reads, and of long ones, which take twenty times as long
/// as a look.
const MAX_LEFT_OUT: [u32; 2] = [64, 8];
/// Pages of a look, which are the bits of a word; the rest of a longer read is taken to be as these are.
const LOOK: usize = 64;
/// Memory is remembered by so many bytes, which are a page, or a part of one where pages are larger.
const UNIT: usize = 4096;
/// Regions of 64 units that are remembered. One that lies at the place of another is looked at again.
const REGIONS: usize = 1 << 12;

/// Number of the region at each place, plus one; and which of its pages were looked at.
static REGION: [AtomicU32; REGIONS] = [const { AtomicU32::new(0) }; REGIONS];
static LOOKED_AT: [AtomicU64; REGIONS] = [const { AtomicU64::new(0) }; REGIONS];

/// Which pages of a read's memory were not touched before it, as far as looked at.
#[derive(Clone, Copy, Default)]
pub struct Untouched {
    /// A bit for each of the first [`LOOK`] pages.
    pages: u64,
    /// Where in its first page the memory begins.
    begin: usize,
}

impl Untouched {
    /// How many of them the first so many bytes lie in: a program may have asked for more than there was.
    #[inline(always)]
    pub fn within(self, bytes: isize) -> u32 {
        if self.pages == 0 || bytes <= 0 { 0 } else { self.count(bytes as usize) }
    }

    #[cold]
    fn count(self, bytes: usize) -> u32 {
        let pages = self.begin.saturating_add(bytes).div_ceil(sys::page());
        let looked_at = pages.min(LOOK);
        let new = (self.pages << (LOOK - looked_at)).count_ones() as usize;
        u32::try_from(new * pages / looked_at).unwrap_or(u32::MAX)
    }
}

/// Which pages of this memory were not touched so far. Nothing is read or written there, so it may be
/// anything that a program passes.
#[inline(always)]
pub fn untouched(data: *const c_void, length: usize) -> Untouched {
    let (start, last) = (data as usize, (data as usize).saturating_add(length.saturating_sub(1)));
    let (first, last) = (start / UNIT, last / UNIT);
    if length == 0 || length < LONG && was_looked_at(first) && was_looked_at(last) {
        return Untouched::default();
    }
    Untouched { pages: untouched_bits(first, last), begin: start % sys::page() }
}

#[inline(always)]
fn place(unit: usize) -> (usize, u32, u64) {
    let region = unit / 64;
    (region % REGIONS, (region as u32).wrapping_add(1), 1 << (unit % 64))
}

#[inline(always)]
fn was_looked_at(unit: usize) -> bool {
    let (at, region, bit) = place(unit);
    REGION[at].load(Relaxed) == region && LOOKED_AT[at].load(Relaxed) & bit != 0
}

fn note(unit: usize) {
    let (at, region, bit) = place(unit);
    // Two threads at once may lose a bit, or keep one too many.
    if REGION[at].swap(region, Relaxed) != region {
        LOOKED_AT[at].store(0, Relaxed);
    }
    LOOKED_AT[at].fetch_or(bit, Relaxed);
}

/// A bit for each of the first [`LOOK`] pages that nobody has touched.
#[cold]
#[inline(never)]
fn untouched_bits(first: usize, last: usize) -> u64 {
    let units = last - first + 1;
    if units <= LONG / UNIT + 1 {
        (first..=last).for_each(note);
    }
    let long = usize::from(units >= LONG / UNIT);
    // Half of the word for each kind: in its upper byte how many are left out, in its lower one so far.
    let (looks, half) = (&thread().looks, 16 * long as u32);
    let word = looks.load(Relaxed);
    let (left_out, so_far) = (word >> half >> 8 & 0xff, word >> half & 0xff);
    let put = |left_out: u32, so_far: u32| {
        looks.store(word & !(0xffff << half) | (left_out << 8 | so_far) << half, Relaxed);
    };
    if so_far < left_out {
        put(left_out, so_far + 1);
        return 0;
    }
    let (page, per_page) = (sys::page(), sys::page() / UNIT);
    let (first, pages) = (first / per_page, last / per_page - first / per_page + 1);
    let looked_at = pages.min(LOOK);
    let absent = absent(first * page, looked_at * page);
    put(if absent != 0 { 0 } else { (2 * left_out).clamp(1, MAX_LEFT_OUT[long]) }, 0);
    absent
}

/// A bit for each page of this range, of at most [`LOOK`], that is not there; none if not all of it is
/// mapped.
fn absent(at: usize, length: usize) -> u64 {
    let mut found = [1u8; LOOK];
    // SAFETY: a place for a byte for each page; the kernel checks the address.
    let done = unsafe { sys::call(libc::SYS_mincore, [at, length, found.as_mut_ptr() as usize]) };
    let is_absent = |(at, page): (usize, &u8)| u64::from(page & 1 == 0) << at;
    if done == 0 { found.iter().enumerate().map(is_absent).sum() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that nobody has touched. It stays, lest another test get what was looked at.
    struct New(*mut c_void);

    impl New {
        fn pages(pages: usize, kind: i32) -> New {
            let length = pages * UNIT;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at a place of the kernel's choice.
            let at = unsafe {
                libc::mmap(core::ptr::null_mut(), length, access, kind | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert_ne!(at, libc::MAP_FAILED);
            New(at)
        }

        fn at(&self, page: usize) -> *const c_void {
            self.0.wrapping_byte_add(page * UNIT)
        }

        fn touch(&self, page: usize) {
            // SAFETY: a page of this mapping.
            unsafe { self.at(page).cast::<u8>().cast_mut().write_volatile(1) };
        }
    }

    const KIB: usize = 1 << 10;

    /// Pages of all of it.
    fn all_of(data: *const c_void, length: usize) -> u32 {
        untouched(data, length).within(length.cast_signed())
    }

    #[test]
    fn what_a_read_did_not_fill_stays_untouched() {
        let new = New::pages(300, libc::MAP_PRIVATE);
        new.touch(0);
        // As the C library gives memory out: behind its own 16 bytes.
        let found = untouched(new.at(0).wrapping_byte_add(16), 256 * KIB);
        assert_eq!(found.within(0), 0);
        assert_eq!(found.within(-1), 0);
        assert_eq!(found.within(4080), 0, "its first page was touched");
        assert_eq!(found.within(4081), 1);
        assert_eq!(found.within(20_000), 4);
        assert_eq!(found.within(256 << 10), 63, "the first 64 pages stand for all 65");
        assert_eq!(found.within(isize::MAX), u32::MAX);
    }

    #[test]
    fn what_was_not_touched_is_found_once() {
        // Both at once, at places of their own.
        for new in [libc::MAP_PRIVATE, libc::MAP_SHARED].map(|kind| New::pages(100, kind)) {
            new.touch(1);
            assert_eq!(all_of(new.at(0), 8 * KIB), 1, "one of two was touched");
            assert_eq!(all_of(new.at(0), 8 * KIB), 0, "looked at already");
            assert_eq!(all_of(new.at(10), 4 * KIB), 1);
            assert_eq!(all_of(new.at(20).wrapping_byte_add(4000), 200), 2, "over the end of a page");
            assert_eq!(all_of(new.at(30), 0), 0);
        }
    }

    #[test]
    fn a_long_read_is_looked_at_each_time() {
        let new = New::pages(400, libc::MAP_PRIVATE);
        assert_eq!(all_of(new.at(0), 1600 * KIB), 400);
        assert_eq!(all_of(new.at(0), 1600 * KIB), 400, "nobody has touched it yet");
        (0..64).for_each(|page| new.touch(page));
        assert_eq!(all_of(new.at(0), 1600 * KIB), 0, "taken to be as what was looked at");
    }

    #[test]
    fn looks_that_find_nothing_become_rare() {
        let (old, new) = (New::pages(2000, libc::MAP_PRIVATE), New::pages(2000, libc::MAP_PRIVATE));
        (0..2000).for_each(|page| old.touch(page));
        assert!((0..2000).all(|page| all_of(old.at(page), 4 * KIB) == 0));
        let found: Vec<u32> = (0..2000).map(|page| all_of(new.at(page), 4 * KIB)).collect();
        let first = found.iter().position(|pages| *pages > 0).expect("looked at");
        assert!(first <= MAX_LEFT_OUT[0] as usize);
        assert!(found[first..].iter().all(|pages| *pages == 1), "from then on each is found");
    }

    #[test]
    fn short_reads_make_looks_at_long_ones_no_rarer() {
        let (old, new) = (New::pages(2000, libc::MAP_PRIVATE), New::pages(4000, libc::MAP_PRIVATE));
        (0..2000).for_each(|page| old.touch(page));
        assert!((0..2000).all(|page| all_of(old.at(page), 4 * KIB) == 0));
        assert_eq!(all_of(new.at(0), 256 * KIB), 64);
        assert!((0..1000).all(|page| all_of(old.at(page), 256 * KIB) == 0));
        let found = (0..10).position(|read| all_of(new.at(read * 300), 256 * KIB) == 64);
        assert!(found.is_some_and(|read| read <= MAX_LEFT_OUT[1] as usize), "{found:?}");
    }

    #[test]
    fn what_is_no_memory_is_none() {
        for at in [0usize, 8, usize::MAX - 8191, usize::MAX] {
            assert_eq!(all_of(at as *const c_void, 8 * KIB), 0, "{at:x}");
            assert_eq!(all_of(at as *const c_void, usize::MAX), 0, "{at:x}");
        }
    }
}
