//! Telling the daemon which file an identity means, before the first event about it.
//!
//! The law of this module: a record is sent at once, ahead of the buffers. If the socket is full it waits
//! at one of a few desks, which every sender empties before it sends events. **No thread waits for another**: to write
//! a record down it takes a desk that is free, and what lies on a desk may be sent by several at the same time, because
//! telling twice is harmless. A desk is free again when it has been told and the last who reads there has left.
//! So a thread may be jumped or killed out of here at any moment: the desk where it was stays as it is, told by
//! others, until the thread comes here again or ends.

use crate::guard::{self, Thread};
use crate::sys::Stat;
use crate::uplink::{self, Sent};
use crate::{memory, sys};
use cawl_wire::{FileId, FileRecord, Kind};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Longest path that is told; longer ones are cut.
const PATH: usize = 4096;
/// A record with such a path.
const RECORD: usize = PATH + 64;
/// Records that can wait for room: one for each bit of [`TO_TELL`].
const WAITING_MOST: usize = 64;
/// Files remembered as told. Two that collide are told again when they take turns.
const TOLD: usize = 4096;

static TOLD_FILES: [AtomicU64; TOLD] = [const { AtomicU64::new(0) }; TOLD];

/// Nothing is there.
const FREE: u32 = 0;
/// A thread writes a record down.
const FILLING: u32 = 1;
/// There is a record, which nobody changes any more.
const FULL: u32 = 2;
/// The same, and it has been told.
const TOLD_ALREADY: u32 = 4;
/// One who reads there; the number of them is counted above the other bits.
const READER: u32 = 8;

/// A place for one record.
struct Desk {
    state: AtomicU32,
    length: AtomicUsize,
    record: UnsafeCell<[u8; RECORD]>,
    path: UnsafeCell<[u8; PATH]>,
}

// SAFETY: the cells are written only by the thread that moved the state to FILLING, and read only by those who are
// counted as readers, without whom the state becomes FREE.
unsafe impl Sync for Desk {}

/// Static, because a hook may be running on the small stack of a signal handler.
static DESKS: [Desk; WAITING_MOST] = [const {
    Desk {
        state: AtomicU32::new(FREE),
        length: AtomicUsize::new(0),
        record: UnsafeCell::new([0; RECORD]),
        path: UnsafeCell::new([0; PATH]),
    }
}; WAITING_MOST];

/// Desks with a record that has not been told.
static TO_TELL: AtomicU64 = AtomicU64::new(0);

impl Desk {
    /// Begins to read, if there is something to tell.
    fn join(&self) -> bool {
        let more = |state: u32| (state & (FULL | TOLD_ALREADY) == FULL).then_some(state + READER);
        self.state.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// Ends to read; the last one clears away what was told.
    fn leave(&self, told: bool) {
        let less = |state: u32| {
            // Nobody is there any more, if this is the copy of a process.
            let left = state.checked_sub(READER)? | if told { TOLD_ALREADY } else { 0 };
            Some(if left == FULL | TOLD_ALREADY { FREE } else { left })
        };
        let _ = self.state.fetch_update(AcqRel, Relaxed, less);
    }
}

/// The calling thread is at no desk: if it still counts as being at one, it was jumped out of there (or it was a vfork
/// child with this thread's record, which was killed).
pub fn stand_up(thread: &Thread) {
    let number = (thread.desk.swap(0, Relaxed) as usize).wrapping_sub(1);
    let Some(desk) = DESKS.get(number) else { return };
    if desk.state.compare_exchange(FILLING, FREE, AcqRel, Relaxed).is_err() {
        // Whether it was told is not certain.
        TO_TELL.fetch_or(1 << number, AcqRel);
        desk.leave(false);
    }
}

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
    if !uplink::lossless() {
        return false;
    }
    let began = sys::nanoseconds();
    while uplink::is_open() && sys::nanoseconds() - began < uplink::PATIENCE * 1_000_000 {
        uplink::wait_for_room(1);
        send_waiting();
        if note(file, renamed, stat, &find_path) {
            send_waiting();
            return true;
        }
    }
    false
}

/// Writes a record down, if there is room.
#[inline(never)]
fn note(file: FileId, renamed: bool, stat: &Stat, find_path: &impl Fn(&mut [u8]) -> usize) -> bool {
    let mark = key(file);
    let thread = guard::thread();
    stand_up(thread);
    let free = |desk: &Desk| desk.state.compare_exchange(FREE, FILLING, Acquire, Relaxed).is_ok();
    DESKS.iter().enumerate().find(|(_, desk)| free(desk)).is_some_and(|(number, desk)| {
        // Said after the desk was taken, and taken back before it is given away: who is jumped out of here in between
        // leaves a desk that is never used again, and not one that two use.
        thread.desk.store(number as u32 + 1, Relaxed);
        // SAFETY: the state is FILLING, by this thread.
        let (record, path) = unsafe { (&mut *desk.record.get(), &mut *desk.path.get()) };
        let length = find_path(path).min(path.len());
        let told = FileRecord {
            file,
            renamed,
            size: stat.st_size as u64,
            block: stat.st_blksize as u32,
            mode: stat.st_mode,
            path: &path[..length],
        };
        let encoded = told.encode(record);
        thread.desk.store(0, Relaxed);
        let Some(length) = encoded else {
            desk.state.store(FREE, Release);
            return false;
        };
        desk.length.store(length, Relaxed);
        desk.state.store(FULL, Release);
        TO_TELL.fetch_or(1 << number, AcqRel);
        // Whoever sees this, and sends an event, sees the record too.
        place(mark).store(mark, Release);
        true
    })
}

/// Sends the records that wait; Whole if none is left.
#[inline]
pub fn send_waiting() -> Sent {
    if TO_TELL.load(Acquire) == 0 { Sent::Whole } else { send_all() }
}

#[cold]
#[inline(never)]
fn send_all() -> Sent {
    let thread = guard::thread();
    stand_up(thread);
    for (number, desk) in DESKS.iter().enumerate() {
        let bit = 1 << number;
        if TO_TELL.load(Acquire) & bit == 0 || !desk.join() {
            continue;
        }
        thread.desk.store(number as u32 + 1, Relaxed);
        // SAFETY: there is a record, and it stays as long as this thread is counted as a reader.
        let record = unsafe { &*desk.record.get() };
        let sent = uplink::send(Kind::File, &record[..desk.length.load(Relaxed).min(RECORD)]);
        if sent == Sent::Whole {
            TO_TELL.fetch_and(!bit, AcqRel);
        }
        thread.desk.store(0, Relaxed);
        desk.leave(sent == Sent::Whole);
        if sent != Sent::Whole {
            return sent;
        }
    }
    Sent::Whole
}

/// In a fork child: nothing has been told in its session.
pub fn forget() {
    for file in &TOLD_FILES {
        if file.load(Relaxed) != 0 {
            file.store(0, Relaxed);
        }
    }
    for desk in &DESKS {
        // Untouched memory stays so.
        if desk.state.load(Relaxed) != FREE {
            desk.state.store(FREE, Relaxed);
        }
    }
    TO_TELL.store(0, Relaxed);
}
