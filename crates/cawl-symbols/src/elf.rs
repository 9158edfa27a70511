//! Sections of an ELF file: of 64 bits and little-endian, as all are that the tracer is loaded into.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags};

/// Most headers of segments and of sections, and bytes of their names.
const SEGMENTS: u16 = 256;
const SECTIONS: u16 = 4096;
const NAMES: u64 = 1 << 20;
/// Of a section's flags: it is compressed.
const COMPRESSED: u64 = 0x800;
/// Of a section's types: it has no bytes in the file.
const NO_BITS: u32 = 8;

/// Opens a regular file; of anything else the open itself may have an effect, so that it is looked at before.
pub(crate) fn open_regular(path: &Path) -> Option<File> {
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&place).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    File::options().read(true).custom_flags(flags).open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

/// The headers of a file.
#[derive(Debug)]
pub struct Elf {
    file: File,
    /// Code that is loaded: its place in the file, its first address as stated.
    loaded: Vec<(Range<u64>, u64)>,
    sections: Vec<Section>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    length: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Elf {
    /// Reads the headers; None of what is no such file.
    pub fn read(file: File) -> Option<Elf> {
        let mut elf = Elf { file, loaded: Vec::new(), sections: Vec::new(), names: Vec::new() };
        let head = elf.bytes(0, 64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (segments, sections) = (u64_at(&head, 32)?, u64_at(&head, 40)?);
        let (segment_count, section_count) =
            (u16_at(&head, 56)?.min(SEGMENTS), u16_at(&head, 60)?.min(SECTIONS));
        let table = elf.bytes(segments, u64::from(segment_count) * 56)?;
        for segment in table.chunks_exact(56) {
            let (offset, address, length) = (u64_at(segment, 8)?, u64_at(segment, 16)?, u64_at(segment, 32)?);
            // PT_LOAD, PF_X
            if u32_at(segment, 0)? == 1 && u32_at(segment, 4)? & 1 != 0 {
                elf.loaded.push((offset..offset.saturating_add(length), address));
            }
        }
        // Stripped of its section headers, it still has segments.
        let table = elf.bytes(sections, u64::from(section_count) * 64).unwrap_or_default();
        for section in table.chunks_exact(64) {
            elf.sections.push(Section {
                name: u32_at(section, 0)?,
                kind: u32_at(section, 4)?,
                flags: u64_at(section, 8)?,
                address: u64_at(section, 16)?,
                offset: u64_at(section, 24)?,
                length: u64_at(section, 32)?,
            });
        }
        if let Some(names) = elf.sections.get(usize::from(u16_at(&head, 62)?)) {
            elf.names = elf.bytes(names.offset, names.length.min(NAMES)).unwrap_or_default();
        }
        Some(elf)
    }

    /// Bytes of the file; None if it has not so many there.
    fn bytes(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(length)?;
        if end > self.file.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    fn find(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| {
            let rest = self.names.get(section.name as usize..).unwrap_or_default();
            rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// The addresses of a section, as stated in the file.
    pub fn addresses(&self, name: &str) -> Option<Range<u64>> {
        let section = self.find(name)?;
        Some(section.address..section.address.checked_add(section.length)?)
    }

    /// The bytes of a section of at most `most`, uncompressed.
    pub fn section(&self, name: &str, most: u64) -> Option<Arc<[u8]>> {
        let section = self.find(name).filter(|section| section.kind != NO_BITS && section.length <= most)?;
        let bytes = self.bytes(section.offset, section.length)?;
        if section.flags & COMPRESSED == 0 {
            return Some(bytes.into());
        }
        // ELFCOMPRESS_ZLIB; its header is of 24 bytes.
        let length = u64_at(&bytes, 8).filter(|length| u32_at(&bytes, 0) == Some(1) && *length <= most)?;
        let mut out = Vec::new();
        let mut reader = flate2::read::ZlibDecoder::new(bytes.get(24..)?).take(length);
        reader.read_to_end(&mut out).ok()?;
        Some(out.into())
    }

    /// The address, as stated in the file, of a place in its code.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let (range, address) = self.loaded.iter().find(|(range, _)| range.contains(&offset))?;
        address.checked_add(offset - range.start)
    }

    /// How far from their stated addresses a mapping of the file's code at `start`, from `offset` on, puts
    /// things. A mapping begins with a page, a segment may begin within.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        const PAGE: u64 = 1 << 16;
        let holds = |range: &Range<u64>| range.start < offset.saturating_add(PAGE) && offset < range.end;
        let (range, address) = self.loaded.iter().find(|(range, _)| holds(range))?;
        Some(start.wrapping_sub(offset).wrapping_add(range.start).wrapping_sub(*address))
    }

    /// The number of the build, which a file of debugging information has as well.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        let note = self.section(".note.gnu.build-id", 1 << 10)?;
        let (name, length) = (u32_at(&note, 0)? as usize, u32_at(&note, 4)? as usize);
        let at = 12 + name.checked_next_multiple_of(4)?;
        note.get(at..at.checked_add(length)?).filter(|id| id.len() > 1).map(<[u8]>::to_vec)
    }

    /// The name of a separate file of debugging information, and its CRC-32.
    pub fn debug_link(&self) -> Option<(Vec<u8>, u32)> {
        let link = self.section(".gnu_debuglink", 1 << 12)?;
        let name: Vec<u8> = link.split(|byte| *byte == 0).next()?.to_vec();
        let crc = u32_at(&link, (name.len() + 1).next_multiple_of(4))?;
        Some((name, crc))
    }

    /// The path of what several files of debugging information share (dwz), and its number.
    pub fn alternative(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let link = self.section(".gnu_debugaltlink", 1 << 12)?;
        let name: Vec<u8> = link.split(|byte| *byte == 0).next()?.to_vec();
        let id = link.get(name.len() + 1..)?.to_vec();
        Some((name, id))
    }

    /// CRC-32 of the whole file, if it has at most `most` bytes.
    pub fn crc(&self, most: u64) -> Option<u32> {
        let length = self.file.metadata().ok()?.len();
        let mut hasher = crc32fast::Hasher::new();
        let mut at = 0;
        while at < length && length <= most {
            let piece = self.bytes(at, (length - at).min(1 << 20))?;
            hasher.update(&piece);
            at += piece.len() as u64;
        }
        (at == length).then(|| hasher.finalize())
    }
}
