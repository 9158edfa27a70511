//! Frames of CPython 3.11, which lie on its heap, where no unwinder sees them. From 3.12 on the program itself tells
//! the daemon by which code it runs which function (PYTHONPERFSUPPORT); before 3.11 nothing is known of them.
//!
//! The law of this module: what lies at an address is copied by the kernel, within a bound, and read without trust.
//! The thread's own frames stand still, since it is in a call.

use crate::base::{memory, symbols};
use cawl_wire::stack::{INTERPRETER_BYTES, InterpreterFrames};
use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// PyGILState_GetThisThreadState of CPython 3.11, or null.
static STATE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Most frames, and bytes of a name and of a path.
const FRAMES: usize = 64;
const NAME: usize = 128;
const PATH: usize = 256;
/// Most bytes of a table of lines.
const TABLE: u64 = 16 << 10;
/// What is read at a time lies behind the frames.
const SCRATCH: usize = 512;

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
pub fn begin() {
    let version = symbols::find_in_program(c"Py_Version").cast::<usize>();
    // SAFETY: a constant of the C language's unsigned long, of a library that is there as long as the program.
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

/// The number at an address.
fn word_at(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (memory::copy(address, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
}

/// Writes the frames of the calling thread, innermost first; their length.
pub fn frames(room: &mut [u8]) -> usize {
    let state = STATE.load(Relaxed);
    if state.is_null() {
        return 0;
    }
    // SAFETY: CPython's function of this name, which reads a thread-specific value.
    let thread =
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(state)() } as u64;
    let Some((out, scratch)) = room.split_at_mut_checked(INTERPRETER_BYTES - SCRATCH) else { return 0 };
    let frame = if thread == 0 { None } else { word_at(thread + at::C_FRAME) };
    let mut frame = frame.and_then(|frame| word_at(frame.wrapping_add(at::CURRENT))).unwrap_or(0);
    let mut length = 0;
    for _ in 0..FRAMES {
        let Some(rest) = out.get_mut(length..) else { break };
        let Some((more, previous)) = put_frame(frame, rest, scratch) else { break };
        (frame, length) = (previous, length + more);
    }
    length
}

/// Writes a frame; its length and the address of the next. None if it cannot be read, or does not fit.
#[inline(never)]
fn put_frame(address: u64, out: &mut [u8], scratch: &mut [u8]) -> Option<(usize, u64)> {
    let frame = scratch.get_mut(..at::FRAME)?;
    if address == 0 || memory::copy(address, frame) != at::FRAME {
        return None;
    }
    let (code, previous) = (word(frame, at::CODE)?, word(frame, at::PREVIOUS)?);
    let (instruction, is_entry) = (word(frame, at::INSTRUCTION)?, frame.get(at::IS_ENTRY)? & 1 == 1);
    let head = scratch.get_mut(..at::CODE_HEAD)?;
    if memory::copy(code, head) != at::CODE_HEAD {
        return None;
    }
    let (file, name, lines) = (word(head, at::FILE)?, word(head, at::NAME)?, word(head, at::LINES)?);
    let first_line = half(head, at::FIRST_LINE)?;
    let unit = instruction.wrapping_sub(code.wrapping_add(at::INSTRUCTIONS)) / 2;
    let line = line(lines, unit, first_line, scratch).unwrap_or(0);
    let (head, texts) = out.split_at_mut_checked(InterpreterFrames::HEAD)?;
    let (name_length, name_width) = put_text(name, texts.get_mut(..NAME)?, scratch)?;
    let (file_length, file_width) = put_text(file, texts.get_mut(name_length..name_length + PATH)?, scratch)?;
    let lengths = [name_length as u16, file_length as u16];
    head.copy_from_slice(&InterpreterFrames::head(line, is_entry, [name_width, file_width], lengths));
    Some((InterpreterFrames::HEAD + name_length + file_length, previous))
}

/// Writes a text, as far as there is room; its length in bytes, and that of a character.
#[inline(never)]
fn put_text(address: u64, out: &mut [u8], scratch: &mut [u8]) -> Option<(usize, u8)> {
    // The text may end with a page behind which nothing is.
    let head = scratch.get_mut(..at::OTHER + PATH)?;
    let read = memory::copy(address, head);
    let head = head.get(..read)?;
    let (characters, state) = (word(head, at::LENGTH as usize)?, half(head, at::TEXT_STATE)?);
    let (width, is_compact, is_ascii) = ((state >> 2 & 7) as u8, state & 1 << 5 != 0, state & 1 << 6 != 0);
    if !is_compact || !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let text = head.get(if is_ascii { at::ASCII } else { at::OTHER }..)?;
    let most = text.len().min(out.len()) / usize::from(width);
    let length = usize::try_from(characters).unwrap_or(most).min(most) * usize::from(width);
    out.get_mut(..length)?.copy_from_slice(text.get(..length)?);
    Some((length, width))
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
    fn peek(&mut self) -> Option<u8> {
        if self.at == self.length {
            let most = self.piece.len().min(usize::try_from(self.left).ok()?);
            self.length = memory::copy(self.address, self.piece.get_mut(..most)?);
            (self.address, self.left, self.at) =
                (self.address.wrapping_add(self.length as u64), self.left - self.length as u64, 0);
        }
        self.piece.get(self.at).copied().filter(|_| self.at < self.length)
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

/// The line of an instruction, told by its number.
#[inline(never)]
fn line(lines: u64, unit: u64, first: u32, scratch: &mut [u8]) -> Option<u32> {
    let left = word_at(lines.wrapping_add(at::LENGTH))?.min(TABLE);
    let address = lines.wrapping_add(at::BYTES);
    let mut table = Table { address, left, piece: scratch.get_mut(..256)?, length: 0, at: 0 };
    let (mut line, mut from) = (first as i32, 0);
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
