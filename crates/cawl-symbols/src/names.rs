//! Functions and lines of a file: its symbols, and its debugging information or that in a file of its own.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::Context;
use cawl_model::record::Frame;
use gimli::{Dwarf, DwarfFileType, EndianArcSlice, LittleEndian};
use rustc_hash::FxHashMap;

use crate::elf::{Elf, open_regular, u32_at, u64_at};

/// Most bytes of a section, and of all sections of a file's debugging information.
const SECTION: u64 = 192 << 20;
const INFORMATION: u64 = 256 << 20;
/// Most bytes of a file's lines, each of which may become a row of this many bytes.
const LINES: u64 = 16 << 20;
const ROW: usize = 24;
/// Most levels of scopes within scopes, each of which takes some of the stack of who looks for a place.
const DEPTH: isize = 500;
/// Most bytes of a file that is compared by its CRC-32.
const COMPARED: u64 = 256 << 20;
/// Most places remembered of a file, frames of a place, and characters of a name or path.
const PLACES: usize = 65_536;
const INLINED: usize = 16;
const LONGEST: usize = 512;
/// Where distributions have files of debugging information.
const DEBUG: &str = "/usr/lib/debug";

type Bytes = EndianArcSlice<LittleEndian>;

/// Symbols of a file.
pub struct Names {
    elf: Elf,
    symbols: Symbols,
    information: Option<Context<Bytes>>,
    found: FxHashMap<u64, Vec<Frame>>,
    size: usize,
}

impl Names {
    /// Reads the symbols of a file with this path.
    pub fn read(file: File, path: &Path) -> Option<Names> {
        let elf = Elf::read(file)?;
        let separate = if elf.addresses(".debug_info").is_none() { separate(&elf, path) } else { None };
        let informed = separate.as_ref().unwrap_or(&elf);
        let mut size = 0;
        let information = information(informed, &mut size);
        let tables =
            [(informed, ".symtab", ".strtab"), (&elf, ".symtab", ".strtab"), (&elf, ".dynsym", ".dynstr")];
        let symbols = tables.into_iter().find_map(|(elf, symbols, names)| Symbols::read(elf, symbols, names));
        let symbols = symbols.unwrap_or_default();
        size += symbols.size();
        Some(Names { elf, symbols, information, found: FxHashMap::default(), size })
    }

    /// Bytes that they take, roughly.
    pub fn size(&self) -> usize {
        // Parsed lines and functions are about as much as what they were parsed from.
        2 * self.size
    }

    /// The functions at a place in the file, innermost first; none if that is not known.
    pub fn find(&mut self, offset: u64) -> Vec<Frame> {
        if let Some(found) = self.found.get(&offset) {
            return found.clone();
        }
        let Some(address) = self.elf.address_of(offset) else { return Vec::new() };
        let mut frames = self.informed(address).unwrap_or_default();
        let symbol = self.symbols.find(address).map(|name| demangled(&name));
        match frames.last_mut() {
            Some(outer) if outer.function.is_none() => outer.function = symbol,
            Some(_) => {}
            None => frames.extend(symbol.map(|name| Frame { function: Some(name), ..Frame::default() })),
        }
        let outer = frames.len().saturating_sub(1);
        frames.iter_mut().take(outer).for_each(|frame| frame.inlined = true);
        if self.found.len() < PLACES {
            self.found.insert(offset, frames.clone());
        }
        frames
    }

    fn informed(&self, address: u64) -> Option<Vec<Frame>> {
        let mut found = self.information.as_ref()?.find_frames(address).skip_all_loads().ok()?;
        let mut frames = Vec::new();
        while frames.len() < INLINED
            && let Ok(Some(frame)) = found.next()
        {
            let function =
                frame.function.as_ref().and_then(|name| name.raw_name().ok().map(|name| demangled(&name)));
            let location = frame.location;
            let file = location.as_ref().and_then(|location| location.file).map(short);
            let line = location.and_then(|location| location.line).filter(|line| *line > 0);
            frames.push(Frame { function, file, line, ..Frame::default() });
        }
        Some(frames)
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(LONGEST).collect()
}

/// A name as it stands in the source, without parameters.
fn demangled(name: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        return short(&format!("{name:#}"));
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok());
    let cpp = cpp.flatten().and_then(|symbol| symbol.demangle_with_options(&options).ok());
    // A symbol's version stands behind it.
    short(&cpp.unwrap_or_else(|| name.split('@').next().unwrap_or(name).to_owned()))
}

/// The file of debugging information that belongs to another one.
fn separate(elf: &Elf, path: &Path) -> Option<Elf> {
    let id = elf.build_id();
    if let Some(found) = id.as_deref().and_then(of_build) {
        return Some(found);
    }
    let (name, crc) = elf.debug_link()?;
    let (name, folder) = (Path::new(std::ffi::OsStr::from_bytes(&name)), path.parent()?);
    // A name, not a way elsewhere.
    let name = name.file_name().filter(|file_name| *file_name == name.as_os_str())?;
    let elsewhere = Path::new(DEBUG).join(folder.strip_prefix("/").ok()?);
    let places = [folder.join(name), folder.join(".debug").join(name), elsewhere.join(name)];
    places.iter().filter(|place| *place != path).find_map(|place| {
        let found = Elf::read(open_regular(place)?)?;
        let is_same = match (&id, found.build_id()) {
            (Some(one), Some(other)) => *one == other,
            _ => found.crc(COMPARED) == Some(crc),
        };
        is_same.then_some(found)
    })
}

fn of_build(id: &[u8]) -> Option<Elf> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (first, rest) = id.split_first()?;
    let place: PathBuf = [DEBUG, ".build-id", &hex(&[*first])].iter().collect();
    let found = Elf::read(open_regular(&place.join(hex(rest) + ".debug"))?)?;
    (found.build_id().as_deref() == Some(id)).then_some(found)
}

/// The debugging information of a file, if it has any of bounded size. `size` gets its bytes.
fn information(elf: &Elf, size: &mut usize) -> Option<Context<Bytes>> {
    elf.addresses(".debug_info").filter(|range| range.start != range.end)?;
    let mut dwarf = read_dwarf(elf, size)?;
    if let Some((name, id)) = elf.alternative() {
        let named = Path::new(std::ffi::OsStr::from_bytes(&name));
        let found = of_build(&id).or_else(|| Elf::read(open_regular(named).filter(|_| named.is_absolute())?));
        if let Some(mut shared) = found.as_ref().and_then(|elf| read_dwarf(elf, size)) {
            shared.file_type = DwarfFileType::Main;
            dwarf.set_sup(shared);
        }
    }
    Context::from_dwarf(dwarf).ok()
}

fn read_dwarf(elf: &Elf, size: &mut usize) -> Option<Dwarf<Bytes>> {
    let mut left = INFORMATION.saturating_sub(*size as u64);
    let mut has_all = true;
    let dwarf = Dwarf::load(|section| {
        // What places and frames do not need.
        let needed = !matches!(section.name(), ".debug_loc" | ".debug_loclists" | ".debug_types");
        let is_lines = section.name() == ".debug_line";
        let most = if is_lines { LINES } else { SECTION };
        let bytes = needed.then(|| elf.section(section.name(), most.min(left))).flatten();
        has_all &= bytes.is_some() || !needed || is_lines || elf.addresses(section.name()).is_none();
        let bytes = bytes.unwrap_or_else(|| Arc::new([]));
        left -= bytes.len() as u64;
        *size += if is_lines { bytes.len() * ROW / 2 } else { bytes.len() };
        Ok::<_, gimli::Error>(Bytes::new(bytes, LittleEndian))
    });
    dwarf.ok().filter(|dwarf| has_all && is_shallow(dwarf).unwrap_or(false))
}

/// True if no scope lies in too many others: addr2line goes through them by calls in calls.
fn is_shallow(dwarf: &Dwarf<Bytes>) -> gimli::Result<bool> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            if entries.next_depth() > DEPTH {
                return Ok(false);
            }
            if let Some(abbreviation) = entries.read_abbreviation()? {
                entries.skip_attributes(abbreviation.attributes())?;
            }
        }
    }
    Ok(true)
}

/// A table of symbols: functions by address.
#[derive(Default)]
struct Symbols {
    /// Address, length (0: up to the next), and where the name begins.
    table: Vec<(u64, u64, u32)>,
    names: Option<Arc<[u8]>>,
}

impl Symbols {
    fn read(elf: &Elf, symbols: &str, names: &str) -> Option<Symbols> {
        let (symbols, names) = (elf.section(symbols, SECTION)?, elf.section(names, SECTION)?);
        let mut table = Vec::new();
        for symbol in symbols.chunks_exact(24) {
            let (name, kind, place) =
                (u32_at(symbol, 0)?, symbol.get(4)? & 15, [*symbol.get(6)?, *symbol.get(7)?]);
            let (address, length) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
            // STT_NOTYPE, as assembler has it, STT_FUNC, STT_GNU_IFUNC; SHN_UNDEF has no address.
            if matches!(kind, 0 | 2 | 10) && place != [0, 0] && name != 0 {
                table.push((address, length, name));
            }
        }
        table.sort_unstable();
        (!table.is_empty()).then_some(Symbols { table, names: Some(names) })
    }

    fn size(&self) -> usize {
        size_of_val(&self.table[..]) + self.names.as_ref().map_or(0, |names| names.len())
    }

    /// The name of the function with this address.
    fn find(&self, address: u64) -> Option<String> {
        const ALIASES: usize = 16;
        let end = self.table.partition_point(|(first, ..)| *first <= address);
        let before = self.table.get(..end)?.iter().rev().take(ALIASES);
        let holds = |(first, length, _): &&(u64, u64, u32)| *length > 0 && address - first < *length;
        // One without a length goes on to the next.
        let nearest = self.table.get(..end)?.last().filter(|(_, length, _)| *length == 0);
        let (_, _, name) = before.clone().find(holds).or(nearest)?;
        let names = self.names.as_deref()?.get(*name as usize..)?;
        let name = names.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(String::from_utf8_lossy(name.get(..4 * LONGEST).unwrap_or(name)).into_owned())
    }
}
