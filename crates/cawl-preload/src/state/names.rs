//! Telling the daemon which file an identity means, before the first event about it.

use crate::base::settings::lossless;
use crate::base::sys::{self, Stat};
use crate::base::{hot, memory};
use crate::transport::ahead::{self, send_waiting};
use crate::transport::link::{self, PATIENCE};
use cawl_wire::{FileId, FileRecord};
use core::ffi::{c_char, c_int};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Files remembered as told. Two that collide are told again when they take turns.
const TOLD: usize = 4096;

static TOLD_FILES: [AtomicU64; TOLD] = [const { AtomicU64::new(0) }; TOLD];

fn key(file: FileId) -> u64 {
    let mixed = (file.ino ^ file.dev.rotate_left(32) ^ u64::from(file.birth).rotate_left(16))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed | 1
}

fn place(key: u64) -> &'static AtomicU64 {
    &TOLD_FILES[(key >> 52) as usize % TOLD]
}

/// Tells about an open file; false if it could not be done and should be tried again.
#[cold]
pub fn open_file(fd: c_int, file: FileId, stat: &Stat) -> bool {
    tell(file, stat, |path| put_path(path, fd))
}

/// Tells about a file known by the path that the program used.
#[cold]
pub fn named_file(file: FileId, stat: &Stat, directory: c_int, name: *const c_char) -> bool {
    tell(file, stat, |path| put_name(path, directory, name))
}

/// Tells that a file has this name now.
#[cold]
pub fn renamed_file(file: FileId, stat: &Stat, directory: c_int, name: *const c_char) {
    tell_anew(file, true, stat, |path| put_name(path, directory, name));
}

/// The file's number may be another's from now on, which is to be told in its turn.
#[cold]
pub fn forget_file(file: FileId) {
    let mark = key(file);
    let _ = place(mark).compare_exchange(mark, 0, Relaxed, Relaxed);
}

/// The path of an open descriptor; its length.
fn put_path(path: &mut [u8], fd: c_int) -> usize {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut link = [0u8; 40];
    link[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = sys::put_decimal(fd as u64, &mut link[PREFIX.len()..39]);
    sys::readlink(&link[..PREFIX.len() + digits + 1], path)
}

/// The path that the program used, below the directory that it begins in; its length.
fn put_name(path: &mut [u8], directory: c_int, mut name: *const c_char) -> usize {
    // SAFETY: any bytes are characters.
    let head = |name: *const c_char| unsafe { memory::value(name.cast::<[u8; 2]>()) }.unwrap_or_default();
    let mut at = 0;
    if head(name)[0] != b'/' {
        while head(name) == *b"./" {
            name = name.wrapping_add(2);
        }
        at = if directory == libc::AT_FDCWD { sys::getcwd(path) } else { put_path(path, directory) };
        if let Some(place) = path.get_mut(at) {
            *place = b'/';
            at += 1;
        }
    }
    // Half a name is none.
    match path.get_mut(at..).map_or(0, |rest| memory::string(name, rest)) {
        0 => 0,
        length => at + length,
    }
}

/// Writes a record down and sends it, and what waits; waits for room, where the user wants nothing lost.
fn tell(file: FileId, stat: &Stat, find_path: impl Fn(&mut [u8]) -> usize) -> bool {
    let mark = key(file);
    place(mark).load(Acquire) == mark || tell_anew(file, false, stat, find_path)
}

/// The same, whatever was told before.
fn tell_anew(file: FileId, renamed: bool, stat: &Stat, find_path: impl Fn(&mut [u8]) -> usize) -> bool {
    let noted = note(file, renamed, stat, &find_path);
    send_waiting();
    if noted {
        return true;
    }
    if !lossless() {
        return false;
    }
    let began = sys::nanoseconds();
    while hot::is_open() && sys::nanoseconds() - began < PATIENCE * 1_000_000 {
        link::wait_for_room(1);
        send_waiting();
        if note(file, renamed, stat, &find_path) {
            send_waiting();
            return true;
        }
    }
    false
}

/// Writes a record down, if there is room. A path that is too long is cut.
fn note(file: FileId, renamed: bool, stat: &Stat, find_path: &impl Fn(&mut [u8]) -> usize) -> bool {
    let mark = key(file);
    ahead::note(
        |record, path| {
            let length = find_path(path).min(path.len());
            let told = FileRecord {
                file,
                renamed,
                size: stat.st_size as u64,
                block: stat.st_blksize as u32,
                mode: stat.st_mode,
                path: &path[..length],
            };
            told.encode(record)
        },
        // A thread that sees this, and sends an event, sees the record too.
        || place(mark).store(mark, Release),
    )
}

/// In a fork child: nothing has been told in its session.
pub fn forget() {
    for file in &TOLD_FILES {
        if file.load(Relaxed) != 0 {
            file.store(0, Relaxed);
        }
    }
    ahead::forget();
}
