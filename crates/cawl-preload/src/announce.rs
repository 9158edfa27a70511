//! Telling the daemon which file an identity means, before the first event about it.
//!
//! The law of this module: a record is sent at once, ahead of the buffers. If the socket is full it waits
//! at one of a few desks, which every sender empties before it sends events. No thread waits for another to write
//! one down: it takes the next desk. Telling twice is harmless.

use crate::sys;
use crate::uplink::{self, Sent};
use cawl_wire::{FileRecord, Kind};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};

/// Longest path that is told; longer ones are cut.
const PATH: usize = 4096;
/// A record with such a path.
const RECORD: usize = PATH + 64;
/// Records that can wait for room.
const WAITING_MOST: usize = 64;
/// Files remembered as told. Two that collide are told again when they take turns.
const TOLD: usize = 4096;
/// How often another thread's sending is looked at before it counts as slow: some microseconds.
const PATIENCE: u32 = 20_000;

static TOLD_FILES: [AtomicU64; TOLD] = [const { AtomicU64::new(0) }; TOLD];

/// Nothing is there.
const FREE: u8 = 0;
/// A thread writes a record down.
const FILLING: u8 = 1;
/// A record waits to be sent.
const WAITING: u8 = 2;
/// A thread sends it.
const SENDING: u8 = 3;

/// A place for one record.
struct Desk {
    state: AtomicU8,
    length: AtomicUsize,
    record: UnsafeCell<[u8; RECORD]>,
    path: UnsafeCell<[u8; PATH]>,
}

// SAFETY: the cells are touched only by the thread that moved the state to FILLING or SENDING.
unsafe impl Sync for Desk {}

/// Static, because a hook may be running on the small stack of a signal handler.
static DESKS: [Desk; WAITING_MOST] = [const {
    Desk {
        state: AtomicU8::new(FREE),
        length: AtomicUsize::new(0),
        record: UnsafeCell::new([0; RECORD]),
        path: UnsafeCell::new([0; PATH]),
    }
}; WAITING_MOST];

/// Records that are waiting or being sent.
static PENDING: AtomicUsize = AtomicUsize::new(0);

fn key(dev: u64, ino: u64) -> u64 {
    let mixed = (ino ^ dev.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed | 1
}

fn place(key: u64) -> &'static AtomicU64 {
    &TOLD_FILES[(key >> 52) as usize % TOLD]
}

/// Tells about an open file; false if it could not be done and should be tried again.
#[cold]
pub fn open_file(fd: c_int, stat: &libc::stat) -> bool {
    tell(stat, |path| {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        let mut link = [0u8; 40];
        link[..PREFIX.len()].copy_from_slice(PREFIX);
        let digits = sys::put_decimal(fd as u64, &mut link[PREFIX.len()..39]);
        sys::readlink(&link[..PREFIX.len() + digits + 1], path)
    })
}

/// Tells about a file known by the path that the program used.
#[cold]
pub fn named_file(stat: &libc::stat, directory: c_int, name: &[u8]) -> bool {
    tell(stat, |path| {
        let mut at = 0;
        if name.first() != Some(&b'/') {
            if directory == libc::AT_FDCWD {
                at = sys::getcwd(path);
            }
            if let Some(place) = path.get_mut(at) {
                *place = b'/';
                at += 1;
            }
        }
        let length = name.len().min(path.len() - at);
        path[at..at + length].copy_from_slice(&name[..length]);
        at + length
    })
}

/// Writes a record down and sends it, and what waits; waits for room, where the user wants nothing lost.
fn tell(stat: &libc::stat, find_path: impl Fn(&mut [u8]) -> usize) -> bool {
    let mark = key(stat.st_dev, stat.st_ino);
    if place(mark).load(Acquire) == mark || note(stat, mark, &find_path) {
        return true;
    }
    if !uplink::lossless() {
        return false;
    }
    let began = sys::nanoseconds();
    while uplink::is_open() && sys::nanoseconds() - began < uplink::PATIENCE * 1_000_000 {
        uplink::wait_for_room(1);
        send_waiting();
        if note(stat, mark, &find_path) {
            return true;
        }
    }
    false
}

/// Writes a record down, if there is room, and sends what waits.
fn note(stat: &libc::stat, mark: u64, find_path: &impl Fn(&mut [u8]) -> usize) -> bool {
    let free = |desk: &&Desk| desk.state.compare_exchange(FREE, FILLING, Acquire, Relaxed).is_ok();
    let noted = DESKS.iter().find(free).is_some_and(|desk| {
        // SAFETY: the state is FILLING, by this thread.
        let (record, path) = unsafe { (&mut *desk.record.get(), &mut *desk.path.get()) };
        let length = find_path(path).min(path.len());
        let file = FileRecord {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
            block: stat.st_blksize as u32,
            mode: stat.st_mode,
            path: &path[..length],
        };
        let Some(length) = file.encode(record) else {
            desk.state.store(FREE, Release);
            return false;
        };
        desk.length.store(length, Relaxed);
        PENDING.fetch_add(1, AcqRel);
        desk.state.store(WAITING, Release);
        // Whoever sees this, and sends an event, sees the record too.
        place(mark).store(mark, Release);
        true
    });
    send_waiting();
    noted
}

/// Sends the records that wait; Whole if none is left.
#[inline]
pub fn send_waiting() -> Sent {
    if PENDING.load(Acquire) == 0 { Sent::Whole } else { send_all() }
}

#[cold]
fn send_all() -> Sent {
    let mut patience = PATIENCE;
    for desk in &DESKS {
        // Another thread may be sending it; events about the file must not come before it has.
        while desk.state.load(Acquire) == SENDING {
            patience -= 1;
            if patience == 0 {
                return Sent::Later;
            }
            core::hint::spin_loop();
        }
        if desk.state.compare_exchange(WAITING, SENDING, Acquire, Relaxed).is_err() {
            continue;
        }
        // SAFETY: the state is SENDING, by this thread.
        let record = unsafe { &*desk.record.get() };
        let sent = uplink::send(Kind::File, &record[..desk.length.load(Relaxed).min(RECORD)]);
        if sent != Sent::Whole {
            desk.state.store(WAITING, Release);
            return sent;
        }
        PENDING.fetch_sub(1, AcqRel);
        desk.state.store(FREE, Release);
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
    PENDING.store(0, Relaxed);
}
