//! The content of a disk or file, in little memory: pages of equal bytes are not stored.

use std::collections::HashMap;
use std::ops::Range;
use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

const PAGE: usize = 4096;
const PAGES: usize = 256;
const REGION: usize = PAGE * PAGES;

/// The attributes of what root has made.
pub fn attributes(ino: INodeNo, kind: FileType, perm: u16, size: u64, made: SystemTime) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: made,
        mtime: made,
        ctime: made,
        crtime: made,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: PAGE as u32,
        flags: 0,
    }
}

/// The content of a disk or file; zeros where nothing was written.
#[derive(Debug, Default)]
pub struct Store {
    regions: HashMap<u64, Region>,
}

#[derive(Debug)]
enum Region {
    /// All bytes of the region have this value.
    Uniform(u8),
    /// Pages stored singly.
    Pages(Vec<Page>),
}

#[derive(Clone, Debug)]
enum Page {
    Uniform(u8),
    Stored(Box<[u8]>),
}

impl Store {
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (region, within, part) in pieces(offset, data.len(), REGION) {
            let data = &data[part];
            match uniform(data).filter(|_| data.len() == REGION) {
                Some(0) => drop(self.regions.remove(&region)),
                Some(byte) => drop(self.regions.insert(region, Region::Uniform(byte))),
                None => {
                    let entry = self.regions.entry(region).or_insert(Region::Uniform(0));
                    write_pages(entry.pages(), within, data);
                }
            }
        }
    }

    /// Fills `out` with the content at `offset`.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        for (region, within, part) in pieces(offset, out.len(), REGION) {
            let out = &mut out[part];
            match self.regions.get(&region) {
                None => out.fill(0),
                Some(Region::Uniform(byte)) => out.fill(*byte),
                Some(Region::Pages(pages)) => read_pages(pages, within, out),
            }
        }
    }

    /// Forgets everything from `end` on: zeros again.
    pub fn cut(&mut self, end: u64) {
        let (first, within) = (end / REGION as u64, (end % REGION as u64) as usize);
        let kept = first + u64::from(within > 0);
        self.regions.retain(|region, _| *region < kept);
        if let Some(region) = self.regions.get_mut(&first).filter(|_| within > 0) {
            write_pages(region.pages(), within, &vec![0; REGION - within]);
        }
    }

    /// Number of pages stored.
    #[cfg(test)]
    fn stored_pages(&self) -> usize {
        let stored = |region: &Region| match region {
            Region::Uniform(_) => 0,
            Region::Pages(pages) => pages.iter().filter(|page| matches!(page, Page::Stored(_))).count(),
        };
        self.regions.values().map(stored).sum()
    }
}

impl Region {
    fn pages(&mut self) -> &mut [Page] {
        if let Region::Uniform(byte) = *self {
            *self = Region::Pages(vec![Page::Uniform(byte); PAGES]);
        }
        match self {
            Region::Pages(pages) => pages,
            Region::Uniform(_) => &mut [],
        }
    }
}

/// Splits `length` bytes at `offset` where a unit ends: number of the unit, offset in it, part of the bytes.
fn pieces(offset: u64, length: usize, unit: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let at = offset + begin as u64;
        let within = (at % unit as u64) as usize;
        let part = begin..length.min(begin + unit - within);
        begin = part.end;
        (!part.is_empty()).then_some((at / unit as u64, within, part))
    })
}

fn write_pages(pages: &mut [Page], offset: usize, data: &[u8]) {
    for (page, within, part) in pieces(offset as u64, data.len(), PAGE) {
        let (page, data) = (&mut pages[page as usize], &data[part]);
        match uniform(data).filter(|_| data.len() == PAGE) {
            Some(byte) => *page = Page::Uniform(byte),
            None => {
                if let Page::Uniform(byte) = *page {
                    *page = Page::Stored(vec![byte; PAGE].into());
                }
                if let Page::Stored(bytes) = page {
                    bytes[within..within + data.len()].copy_from_slice(data);
                }
            }
        }
    }
}

fn read_pages(pages: &[Page], offset: usize, out: &mut [u8]) {
    for (page, within, part) in pieces(offset as u64, out.len(), PAGE) {
        let out = &mut out[part];
        match &pages[page as usize] {
            Page::Uniform(byte) => out.fill(*byte),
            Page::Stored(bytes) => out.copy_from_slice(&bytes[within..within + out.len()]),
        }
    }
}

/// The value of all bytes of `data`, if they are equal.
fn uniform(data: &[u8]) -> Option<u8> {
    let (first, rest) = data.split_first()?;
    // Compares the data with itself, shifted by one byte.
    (rest == &data[..rest.len()]).then_some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_pages_cost_nothing() {
        let mut store = Store::default();
        store.write(3 * REGION as u64, &vec![7; 5 * REGION]);
        store.write(512, &[9; 512]);
        assert_eq!(store.stored_pages(), 1);
        store.write(0, &[9; PAGE]);
        assert_eq!(store.stored_pages(), 0);
        store.write(0, &vec![0; 16 * REGION]);
        assert!(store.regions.is_empty());
    }

    #[test]
    fn what_was_cut_off_is_zeros() {
        for end in [0, 1, PAGE, REGION - 1, REGION, REGION + 5, 2 * REGION + PAGE] {
            let mut store = Store::default();
            let written: Vec<u8> = (0..3 * REGION).map(|i| 1 + (i % 251) as u8).collect();
            store.write(0, &written);
            store.cut(end as u64);
            let mut out = vec![7; 3 * REGION];
            store.read(0, &mut out);
            assert!(out[..end] == written[..end] && out[end..].iter().all(|byte| *byte == 0), "{end}");
            assert!(store.stored_pages() <= end.div_ceil(PAGE), "{end}");
        }
    }

    #[test]
    fn what_was_written_is_read() {
        // Compared with a plain array, at offsets from a fixed sequence.
        let size = 3 * REGION;
        let mut plain = vec![0; size];
        let mut store = Store::default();
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..400 {
            let offset = random(size - 1);
            let length = 1 + random([600, PAGE * 3, REGION * 2][round % 3]).min(size - offset - 1);
            let byte = random(256) as u8;
            let data: Vec<u8> =
                (0..length).map(|i| if round % 2 == 0 { byte } else { (i * 7) as u8 }).collect();
            store.write(offset as u64, &data);
            plain[offset..offset + length].copy_from_slice(&data);
        }
        let mut out = vec![1; size];
        store.read(0, &mut out);
        assert!(out == plain);
        let mut part = vec![1; REGION];
        store.read(12_345, &mut part);
        assert!(part == plain[12_345..12_345 + REGION]);
    }
}
