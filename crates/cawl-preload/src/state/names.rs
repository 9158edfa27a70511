//! Telling the daemon which file an identity means, before the first event about it.

use crate::base::hot::HOT;
use crate::base::sys::{self, Stat};
use crate::base::thread::thread;
use crate::state::birth::neighbours;
use crate::state::directory;
use crate::transport::{pending_messages, slot};
use cawl_wire::{FileId, FileRecord};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Files remembered as told. Two that collide are told again when they take turns.
const TOLD: usize = 1 << 16;

static TOLD_FILES: [AtomicU64; TOLD] = [const { AtomicU64::new(0) }; TOLD];

/// A file in this session.
fn key(file: FileId) -> u64 {
    let session = u64::from(HOT.session.load(Relaxed)).rotate_left(48);
    let mixed = (file.ino ^ file.dev.rotate_left(32) ^ u64::from(file.birth).rotate_left(16) ^ session)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed | 1
}

fn place(file: FileId) -> &'static AtomicU64 {
    &TOLD_FILES[neighbours(file.dev, file.ino) % TOLD]
}

/// Where a file's path is found.
#[derive(Clone, Copy)]
pub enum Source {
    /// By the descriptor that leads to it.
    Descriptor(c_int),
    /// By the name that the program used, by which the kernel has found it, and the directory in which that
    /// begins if it is relative.
    Named(c_int, *const c_char),
}

impl Source {
    /// Writes the path; its length. One that is too long is cut.
    #[inline(never)]
    fn put(self, path: &mut [u8]) -> usize {
        match self {
            Source::Descriptor(fd) => put_path(path, fd),
            Source::Named(directory, name) => put_name(path, directory, name),
        }
    }
}

/// Tells about a file, once; false if it could not be done and should be tried again.
#[cold]
pub fn tell(file: FileId, stat: &Stat, source: Source) -> bool {
    place(file).load(Acquire) == key(file) || tell_anew(file, false, stat, source)
}

/// Tells that a file has this name now.
#[cold]
pub fn tell_renamed(file: FileId, stat: &Stat, source: Source) {
    tell_anew(file, true, stat, source);
}

/// Puts a name into the thread's ring, or among what is sent before the next events. False if there is no
/// room.
#[inline(never)]
fn tell_anew(file: FileId, renamed: bool, stat: &Stat, source: Source) -> bool {
    let slot = slot::of(thread()).filter(|slot| slot.is_ringed());
    let (entry, out) = match slot {
        Some(slot) if slot.has_room_for_name() => (None, slot::name_place(slot)),
        Some(_) => return false,
        None => match pending_messages::begin() {
            Some((entry, out)) => (Some(entry), out),
            None => return false,
        },
    };
    let path = FileRecord::path_place(out).map(|path| source.put(path).min(path.len()));
    let (size, block) = (stat.st_size as u64, stat.st_blksize);
    let told = FileRecord { file, renamed, size, block, mode: stat.st_mode, path: b"" };
    let length = path.and_then(|path| told.encode_around(path, out));
    match (slot, entry, length) {
        (_, Some(entry), length) => pending_messages::finish(entry, length),
        (Some(slot), None, Some(length)) => slot::put_name(slot, length as u16),
        _ => return false,
    }
    if length.is_some() {
        // A thread that sees this, and sends an event, sees the name too.
        place(file).store(key(file), Release);
    }
    length.is_some()
}

/// The file's number may be another's from now on, which is to be told in its turn.
#[cold]
pub fn forget_file(file: FileId) {
    let _ = place(file).compare_exchange(key(file), 0, Relaxed, Relaxed);
}

/// True if a name has no component that leads elsewhere than into itself, as far as that can be seen.
pub fn is_plain(name: &[u8]) -> bool {
    let relative = name.strip_prefix(b"/").unwrap_or(name);
    relative.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// The path of an open descriptor; its length.
fn put_path(path: &mut [u8], fd: c_int) -> usize {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut link = [0u8; 40];
    link[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = sys::put_decimal(fd as u64, &mut link[PREFIX.len()..39]);
    sys::readlink(&link[..PREFIX.len() + digits + 1], path)
}

/// A name as a path: absolute, or below the directory that it begins in; its length.
#[inline(never)]
fn put_name(path: &mut [u8], directory: c_int, name: *const c_char) -> usize {
    // SAFETY: the kernel has read the string and found what it names.
    let mut name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut at = 0;
    if name.first() != Some(&b'/') {
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest;
        }
        at = if directory == libc::AT_FDCWD { directory::put(path) } else { put_path(path, directory) };
        if let Some(place) = path.get_mut(at) {
            *place = b'/';
            at += 1;
        }
    }
    let length = name.len().min(path.len().saturating_sub(at));
    match path.get_mut(at..at + length).zip(name.get(..length)) {
        Some((place, name)) => {
            place.copy_from_slice(name);
            at + length
        }
        None => 0,
    }
}
