//! Telling the daemon which file an identity means, before the first event about it.
//!
//! The law of this module: a record is sent at once, ahead of the buffers. If the socket is full it waits
//! in a short list that every sender empties before it sends events. Telling twice is harmless.

use crate::sys;
use crate::uplink::{self, Sent};
use cawl_wire::{FileRecord, Kind};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Longest path that is told; longer ones are cut.
const PATH: usize = 4096;
/// A record with such a path.
const RECORD: usize = PATH + 64;
/// Records that can wait for room.
const WAITING: usize = 64;
/// Files remembered as told. Two that collide are told again when they take turns.
const TOLD: usize = 4096;

static TOLD_FILES: [AtomicU64; TOLD] = [const { AtomicU64::new(0) }; TOLD];
static BUSY: AtomicBool = AtomicBool::new(false);
static LENGTH: AtomicUsize = AtomicUsize::new(0);

struct Queue(UnsafeCell<[(usize, [u8; RECORD]); WAITING]>);
// SAFETY: touched only by whoever holds BUSY.
unsafe impl Sync for Queue {}
static QUEUE: Queue = Queue(UnsafeCell::new([(0, [0; RECORD]); WAITING]));

struct Scratch(UnsafeCell<[u8; PATH]>);
// SAFETY: touched only by whoever holds BUSY.
unsafe impl Sync for Scratch {}
static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; PATH]));

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

/// Queues a record and sends the queue; waits for room, where the user wants nothing lost.
fn tell(stat: &libc::stat, find_path: impl Fn(&mut [u8]) -> usize) -> bool {
    let mark = key(stat.st_dev, stat.st_ino);
    if place(mark).load(Relaxed) == mark || queue(stat, mark, &find_path) {
        return true;
    }
    if !uplink::lossless() {
        return false;
    }
    let began = sys::nanoseconds();
    while uplink::is_open() && sys::nanoseconds() - began < uplink::PATIENCE * 1_000_000 {
        uplink::wait_for_room(1);
        send_waiting();
        if queue(stat, mark, &find_path) {
            return true;
        }
    }
    false
}

/// Queues a record, if there is room, and sends the queue. The large buffers are static: a hook may be running
/// on the small stack of a signal handler.
fn queue(stat: &libc::stat, mark: u64, find_path: &impl Fn(&mut [u8]) -> usize) -> bool {
    if !enter() {
        return false;
    }
    // SAFETY: BUSY is held.
    let (queue, path) = unsafe { (&mut *QUEUE.0.get(), &mut *SCRATCH.0.get()) };
    let length = find_path(path).min(path.len());
    let record = FileRecord {
        dev: stat.st_dev,
        ino: stat.st_ino,
        size: stat.st_size as u64,
        block: stat.st_blksize as u32,
        mode: stat.st_mode,
        path: &path[..length],
    };
    let at = LENGTH.load(Relaxed);
    let mut queued = false;
    if let Some((length, bytes)) = queue.get_mut(at)
        && let Some(encoded) = record.encode(bytes)
    {
        *length = encoded;
        LENGTH.store(at + 1, Relaxed);
        place(mark).store(mark, Relaxed);
        queued = true;
    }
    BUSY.store(false, Release);
    send_waiting();
    queued
}

/// Takes BUSY, trying for a few microseconds: whoever holds it is another thread at work (the same
/// thread is kept out by its guard).
fn enter() -> bool {
    for _ in 0..20_000 {
        if !BUSY.swap(true, Acquire) {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// Sends the records that wait; Whole if none is left.
#[inline]
pub fn send_waiting() -> Sent {
    if LENGTH.load(Relaxed) == 0 { Sent::Whole } else { send_queue() }
}

#[cold]
fn send_queue() -> Sent {
    if !enter() {
        return Sent::Later;
    }
    // SAFETY: BUSY is held.
    let queue = unsafe { &*QUEUE.0.get() };
    let mut result = Sent::Whole;
    // The last first: their order among each other means nothing.
    while let at @ 1.. = LENGTH.load(Relaxed) {
        let (length, bytes) = &queue[at - 1];
        result = uplink::send(Kind::File, &bytes[..*length]);
        if result != Sent::Whole {
            break;
        }
        LENGTH.store(at - 1, Relaxed);
    }
    BUSY.store(false, Release);
    result
}

/// In a fork child: nothing has been told in its session.
pub fn forget() {
    for file in &TOLD_FILES {
        if file.load(Relaxed) != 0 {
            file.store(0, Relaxed);
        }
    }
    LENGTH.store(0, Relaxed);
    BUSY.store(false, Relaxed);
}
