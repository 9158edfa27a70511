//! What is mapped as code, which the daemon needs to unwind a stack: a short program has ended before it
//! could read /proc/PID/maps. Told before the first stack of an image, and of a fork child. What is loaded
//! later the daemon looks for itself: reading takes the lowest free descriptor for a moment, which threads of
//! the program would notice.
//!
//! The law of this module: one thread at a time reads, and no other waits for it. Where it does not come to
//! an end, the daemon looks for itself, as it does for what was mapped past every hook.

use crate::base::sys;
use crate::base::thread::thread;
use crate::transport::interpreter;
use crate::transport::slot::{self, Slot};
use cawl_wire::ring::MODULES;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// What is told holds.
static TOLD: AtomicBool = AtomicBool::new(false);
/// A thread reads.
static READS: AtomicBool = AtomicBool::new(false);

/// Longest line: a path is at most PATH_MAX long, and 73 bytes stand before it.
const LINE: usize = 4096 + 128;
/// Bytes of lines in one record, and bytes read in all.
const PIECE: usize = 4096 + 128;
const MAX: usize = 4 << 20;

struct Text(UnsafeCell<[u8; LINE]>);
// SAFETY: touched only by who set READS.
unsafe impl Sync for Text {}
/// Not on the stack, which may be that of a signal handler.
static TEXT: Text = Text(UnsafeCell::new([0; LINE]));

/// Code may have been mapped, or go: it is told before the thread's next call.
pub fn changed() {
    TOLD.store(false, Relaxed);
    if slot::KEEPS_ROOM.load(Relaxed)
        && let Some(slot) = slot::of(thread()).filter(|slot| slot.is_ringed())
    {
        slot.limit.store(core::ptr::null_mut(), Relaxed);
    }
}

/// True if what was told does not hold, and no other thread tells.
pub fn is_due() -> bool {
    !TOLD.load(Relaxed) && !READS.load(Relaxed)
}

/// In a copy of the process: nothing was told in its session.
pub fn forget() {
    TOLD.store(false, Relaxed);
    READS.store(false, Relaxed);
}

/// Tells of all code that is mapped, as far as there is room for it in the slot's chunk.
pub fn tell(slot: &Slot) {
    interpreter::begin();
    if !READS.swap(true, AcqRel) {
        // What changes from now on is told the next time.
        TOLD.store(true, Relaxed);
        read(slot);
        READS.store(false, Release);
    }
}

#[cold]
#[inline(never)]
fn read(slot: &Slot) {
    // SAFETY: this thread has set READS.
    let text = unsafe { &mut *TEXT.0.get() };
    let Some(fd) = sys::open_to_read(libc::AT_FDCWD, c"/proc/self/maps".as_ptr()) else { return };
    let (mut kept, mut sum, mut length) = (0, 0, 0);
    while sum < MAX
        && let Some(room) = text.get_mut(kept..)
        && let more @ 1.. = sys::read(fd, room)
    {
        (sum, kept) = (sum + more, kept + more);
        let mut from = 0;
        while let Some(line) =
            text.get(from..kept).and_then(|text| text.split_inclusive(|byte| *byte == b'\n').next())
            && line.ends_with(b"\n")
        {
            from += line.len();
            if !is_code(line) {
                continue;
            }
            if length + line.len() > PIECE {
                slot::put_piece(slot, MODULES, length);
                length = 0;
            }
            if length == 0 && !slot.has_room_for_piece() {
                sum = MAX;
                break;
            }
            if let Some(place) = slot::piece_place(slot).get_mut(length..length + line.len()) {
                place.copy_from_slice(line);
                length += line.len();
            }
        }
        text.copy_within(from..kept, 0);
        kept -= from;
    }
    sys::close(fd);
    if length > 0 {
        slot::put_piece(slot, MODULES, length);
    }
}

/// True of a line of /proc/PID/maps that has code.
fn is_code(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ').nth(1).is_some_and(|permissions| permissions.get(2) == Some(&b'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_and_nothing_else() {
        let line = |text: &str| is_code(text.as_bytes());
        assert!(line("7f0000001000-7f0000002000 r-xp 00001000 fe:00 123          /usr/lib/a b.so\n"));
        assert!(!line("7f0000001000-7f0000002000 r--p 00001000 fe:00 123         /usr/lib/a.so\n"));
        assert!(line("7f0000001000-7f0000002000 rwxp 00000000 00:00 0 \n"));
        assert!(!line("\n"));
    }
}
