//! Frames of CPython 3.11, which lie on its heap, where no unwinder sees them. From 3.12 on the program
//! itself tells the daemon by which code it runs which function (PYTHONPERFSUPPORT); before 3.11 nothing is
//! known of them.
//!
//! The law of this module: what lies at an address is copied by the kernel, within a bound, and read without
//! trust. The thread's own frames stand still, since it is in a call.

use crate::base::{memory, symbols};
use cawl_wire::stack::{INTERPRETER_BYTES, InterpreterFrames};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};

/// PyGILState_GetThisThreadState of CPython 3.11, or null.
static STATE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Most frames, and bytes of a name and of a path.
const FRAMES: usize = 64;
const NAME: usize = 128;
const PATH: usize = 256;
/// Most bytes of a table of lines.
const TABLE: u64 = 16 << 10;
/// Where a frame, its code, and texts and tables are read to: behind the frames that are told.
const FRAME: usize = INTERPRETER_BYTES - 640;
const CODE: usize = FRAME + at::FRAME;
const LINES: usize = CODE + at::CODE_HEAD;
const PIECE: usize = LINES + 8;
const _: [(); 1] = [(); (PIECE + at::OTHER + PATH <= INTERPRETER_BYTES) as usize];

/// Frames that are kept, and bytes of one. Each copy takes a µs, and a frame takes five.
const ENTRIES: usize = 128;
const ENTRY: usize = 238;
const PAGE: usize = 4096;

/// What was read and told: a frame of the same function, globals, code and instruction is told in the same
/// words.
struct Kept {
    /// Where `page` was copied from, and how much of it. Only while one stack is read.
    from: u64,
    length: usize,
    page: [u8; PAGE + at::FRAME],
    entries: [Entry; ENTRIES],
}

struct Entry {
    key: u64,
    length: u16,
    bytes: [u8; ENTRY],
}

struct Shared(UnsafeCell<Kept>);
// SAFETY: touched only by who set TAKEN.
unsafe impl Sync for Shared {}
static KEPT: Shared = Shared(UnsafeCell::new(Kept {
    from: 0,
    length: 0,
    page: [0; PAGE + at::FRAME],
    entries: [const { Entry { key: 0, length: 0, bytes: [0; ENTRY] } }; ENTRIES],
}));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// In a copy of the process: who had it may not be here.
pub fn forget() {
    TAKEN.store(false, Relaxed);
}

/// Places in `PyThreadState`, `_PyCFrame`, `_PyInterpreterFrame`, `PyCodeObject`, `PyBytesObject` and
/// `PyUnicodeObject` of 3.11, in bytes.
mod at {
    pub const C_FRAME: u64 = 56;
    pub const CURRENT: u64 = 8;
    pub const CODE: usize = 32;
    pub const PREVIOUS: usize = 48;
    pub const INSTRUCTION: usize = 56;
    pub const IS_ENTRY: usize = 68;
    pub const FRAME: usize = 72;
    pub const FIRST_LINE: usize = 72;
    pub const FILE: usize = 112;
    pub const NAME: usize = 128;
    pub const LINES: usize = 136;
    pub const CODE_HEAD: usize = 144;
    pub const INSTRUCTIONS: u64 = 184;
    pub const LENGTH: u64 = 16;
    pub const BYTES: u64 = 32;
    pub const TEXT_STATE: usize = 32;
    pub const ASCII: usize = 48;
    pub const OTHER: usize = 72;
}

/// Looks for CPython 3.11: the program is it, or is linked with it.
#[inline(never)]
pub fn begin() {
    let version = symbols::find_in_program(c"Py_Version").cast::<usize>();
    // SAFETY: a constant of the C language's unsigned long, of a library that is there as long as the
    // program.
    if unsafe { version.as_ref() }.is_some_and(|version| version >> 16 == 0x030b) {
        STATE.store(symbols::find_in_program(c"PyGILState_GetThisThreadState"), Relaxed);
    }
}

/// The numbers of eight and four bytes at a place of what was read.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn word_at(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (memory::copy(address, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
}

/// Room for frames, and what is read behind them: each step leaves there what the next one needs, since
/// little of the caller's stack is left.
type Room = [u8; INTERPRETER_BYTES];

/// Writes the frames of the calling thread, innermost first; their length.
#[inline(never)]
pub fn frames(room: &mut [u8]) -> usize {
    let Some(room) = room.first_chunk_mut::<INTERPRETER_BYTES>() else { return 0 };
    let (mut frame, mut length) = (current(), 0);
    if frame == 0 {
        return 0;
    }
    let mut kept = kept();
    if let Some(kept) = kept.as_deref_mut() {
        kept.length = 0;
    }
    for _ in 0..FRAMES {
        if frame == 0 || !read_frame(frame, room, kept.as_deref_mut()) {
            break;
        }
        frame = word(room, FRAME + at::PREVIOUS).unwrap_or(0);
        let key = key(room);
        if let Some(more) = kept.as_deref().and_then(|kept| put_again(kept, key, room, length)) {
            length += more;
            continue;
        }
        if !read_code(room) {
            break;
        }
        let line = line(room).unwrap_or(0);
        if !put_head(room, length, line) {
            break;
        }
        let end = length + InterpreterFrames::HEAD;
        let Some(end) = put_text(room, length, end, at::NAME, NAME) else { break };
        let Some(end) = put_text(room, length, end, at::FILE, PATH) else { break };
        if let Some(kept) = kept.as_deref_mut() {
            keep(kept, key, room.get(length..end).unwrap_or(b""));
        }
        length = end;
    }
    if kept.is_some() {
        TAKEN.store(false, Release);
    }
    length
}

/// A thread that finds it taken does without.
fn kept() -> Option<&'static mut Kept> {
    // SAFETY: this thread has set TAKEN, and clears it when it does not use it any more.
    (!TAKEN.swap(true, AcqRel)).then(|| unsafe { &mut *KEPT.0.get() })
}

/// Reads a frame, with those that lie before it on its page, which mostly are the next ones.
#[inline(never)]
fn read_frame(frame: u64, room: &mut Room, kept: Option<&mut Kept>) -> bool {
    let Some(Kept { from, length, page, .. }) = kept else { return read(frame, room, FRAME, at::FRAME) };
    let is_there =
        |from: u64, length: usize| frame >= from && frame - from + at::FRAME as u64 <= length as u64;
    if !is_there(*from, *length) {
        *from = frame & !(PAGE as u64 - 1);
        *length = 0;
        let end = (frame - *from) as usize + at::FRAME;
        let Some(place) = page.get_mut(..end) else { return read(frame, room, FRAME, at::FRAME) };
        *length = memory::copy(*from, place);
        if !is_there(*from, *length) {
            return false;
        }
    }
    let at = (frame - *from) as usize;
    match (page.get(at..at + at::FRAME), room.get_mut(FRAME..FRAME + at::FRAME)) {
        (Some(found), Some(place)) => {
            place.copy_from_slice(found);
            true
        }
        _ => false,
    }
}

/// What tells a frame from others: its function, globals, code and instruction. 0: nothing does.
fn key(room: &Room) -> u64 {
    [0, 8, at::CODE, at::INSTRUCTION].into_iter().fold(0, |sum: u64, at| {
        (sum.rotate_left(23) ^ word(room, FRAME + at).unwrap_or(0)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Writes a frame that was told before, with its own mark of an entry; its length.
#[inline(never)]
fn put_again(kept: &Kept, key: u64, room: &mut Room, length: usize) -> Option<usize> {
    let entry = kept.entries.get(key as usize % ENTRIES).filter(|entry| entry.key == key && key != 0)?;
    let bytes = entry.bytes.get(..entry.length.into())?;
    if length + bytes.len() > FRAME {
        return None;
    }
    room.get_mut(length..length + bytes.len())?.copy_from_slice(bytes);
    let is_entry = room.get(FRAME + at::IS_ENTRY)? & 1;
    // See `InterpreterFrames::head`.
    *room.get_mut(length + 4)? = is_entry;
    Some(bytes.len())
}

fn keep(kept: &mut Kept, key: u64, bytes: &[u8]) {
    if let Some(entry) = kept.entries.get_mut(key as usize % ENTRIES)
        && let Some(place) = entry.bytes.get_mut(..bytes.len())
    {
        place.copy_from_slice(bytes);
        (entry.key, entry.length) = (key, bytes.len() as u16);
    }
}

/// The address of the innermost frame, or 0.
#[inline(never)]
fn current() -> u64 {
    let state = STATE.load(Relaxed);
    if state.is_null() {
        return 0;
    }
    // SAFETY: CPython's function of this name, which reads a thread-specific value.
    let thread =
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(state)() } as u64;
    let frame = if thread == 0 { None } else { word_at(thread.wrapping_add(at::C_FRAME)) };
    frame.and_then(|frame| word_at(frame.wrapping_add(at::CURRENT))).unwrap_or(0)
}

/// Reads the code of a frame; false if it is not there.
#[inline(never)]
fn read_code(room: &mut Room) -> bool {
    word(room, FRAME + at::CODE).is_some_and(|code| read(code, room, CODE, at::CODE_HEAD))
        && word(room, CODE + at::LINES)
            .is_some_and(|lines| read(lines.wrapping_add(at::LENGTH), room, LINES, 8))
}

#[inline(always)]
fn read(from: u64, room: &mut Room, to: usize, length: usize) -> bool {
    room.get_mut(to..to + length).is_some_and(|place| memory::copy(from, place) == length)
}

/// Writes what stands before a name, without the lengths; false if there is no room for all of the frame.
#[inline(never)]
fn put_head(room: &mut Room, length: usize, line: u32) -> bool {
    if length + InterpreterFrames::HEAD + NAME + PATH > FRAME {
        return false;
    }
    let is_entry = room.get(FRAME + at::IS_ENTRY).is_some_and(|byte| byte & 1 == 1);
    let head = InterpreterFrames::head(line, is_entry, [0; 2], [0; 2]);
    room.get_mut(length..length + head.len()).is_some_and(|place| {
        place.copy_from_slice(&head);
        true
    })
}

/// Writes the text that a field of the code leads to, as far as there is room, at `to`, and its length and
/// width into the head at `length`; where it ends. None if it cannot be read.
#[inline(never)]
fn put_text(room: &mut Room, length: usize, to: usize, field: usize, most: usize) -> Option<usize> {
    // The text may end with a page behind which nothing is.
    let read = memory::copy(word(room, CODE + field)?, room.get_mut(PIECE..PIECE + at::OTHER + PATH)?);
    let (characters, state) = (word(room, PIECE + at::LENGTH as usize)?, half(room, PIECE + at::TEXT_STATE)?);
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state & 1 << 5 != 0, state & 1 << 6 != 0);
    if !is_compact || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let begin = if is_ascii { at::ASCII } else { at::OTHER };
    let whole = (read.checked_sub(begin)?.min(most) / width as usize) as u64;
    let bytes = whole.min(characters) as usize * width as usize;
    room.copy_within(PIECE + begin..PIECE + begin + bytes, to);
    // See `InterpreterFrames::head`.
    let which = usize::from(field == at::FILE);
    *room.get_mut(length + 5 + which)? = width as u8;
    room.get_mut(length + 8 + 2 * which..)?
        .first_chunk_mut()
        .map(|place| *place = (bytes as u16).to_le_bytes())?;
    Some(to + bytes)
}

/// A table of lines (Objects/locations.md of CPython), read piece by piece.
struct Table<'a> {
    address: u64,
    left: u64,
    piece: &'a mut [u8],
    length: usize,
    at: usize,
}

impl Table<'_> {
    /// The next byte, without taking it.
    #[inline(always)]
    fn peek(&mut self) -> Option<u8> {
        if self.at == self.length {
            self.read_more();
        }
        self.piece.get(self.at).copied().filter(|_| self.at < self.length)
    }

    #[inline(never)]
    fn read_more(&mut self) {
        let most = self.piece.len().min(self.left as usize);
        self.length = self.piece.get_mut(..most).map_or(0, |piece| memory::copy(self.address, piece));
        self.address = self.address.wrapping_add(self.length as u64);
        (self.left, self.at) = (self.left - self.length as u64, 0);
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// A number with a sign, of six bits a byte.
    fn number(&mut self) -> Option<i32> {
        let (mut number, mut shift) = (0u32, 0);
        loop {
            let byte = self.next()?;
            number |= u32::from(byte & 63).checked_shl(shift)?;
            shift += 6;
            if byte & 64 == 0 {
                let half = (number >> 1) as i32;
                return Some(if number & 1 == 1 { -half } else { half });
            }
        }
    }
}

/// The line of the instruction that a frame is at.
#[inline(never)]
fn line(room: &mut Room) -> Option<u32> {
    let (code, instruction) = (word(room, FRAME + at::CODE)?, word(room, FRAME + at::INSTRUCTION)?);
    let unit = instruction.wrapping_sub(code.wrapping_add(at::INSTRUCTIONS)) / 2;
    let (lines, mut line) = (word(room, CODE + at::LINES)?, half(room, CODE + at::FIRST_LINE)? as i32);
    let left = word(room, LINES)?.min(TABLE);
    let piece = room.get_mut(PIECE..)?;
    let mut table = Table { address: lines.wrapping_add(at::BYTES), left, piece, length: 0, at: 0 };
    let mut from = 0;
    loop {
        let entry = table.next()?;
        let (code, length) = (entry >> 3 & 15, u64::from(entry & 7) + 1);
        line = line.wrapping_add(match code {
            10..=12 => i32::from(code) - 10,
            13 | 14 => table.number()?,
            _ => 0,
        });
        if unit < from + length {
            return u32::try_from(line).ok().filter(|_| code != 15);
        }
        from += length;
        while table.peek()? & 128 == 0 {
            table.next();
        }
    }
}
