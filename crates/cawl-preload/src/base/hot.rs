//! What every hook reads, on one cache line: a program that moves much data leaves little else in the
//! cache, and each line that has to come back is paid for by the program.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// States of the session: nothing is traced, now or later.
pub const OFF: u8 = 0;
/// A session is to be opened before the next message.
pub const WANTED: u8 = 1;
/// A thread is opening it.
pub const OPENING: u8 = 2;
/// Messages can be sent.
pub const OPEN: u8 = 3;

/// The line. Each field belongs to the module named, which alone writes it.
#[repr(C, align(64))]
pub struct Hot {
    /// `session`: one of the four states.
    pub state: AtomicU8,
    /// `clock`: true if events carry the processor's counter.
    pub ticking: AtomicBool,
    /// `session`: its process id.
    pub pid: AtomicU32,
    /// `descriptors`: raised in every fork child.
    pub session: AtomicU32,
    /// raised whenever open-file descriptions may have come to be shared.
    pub epoch: AtomicU64,
    /// `real`: the C library's byte that is not zero as long as the process has had one thread only.
    pub single_threaded: AtomicPtr<u8>,
}

/// The only one.
pub static HOT: Hot = Hot {
    state: AtomicU8::new(0),
    ticking: AtomicBool::new(false),
    pid: AtomicU32::new(0),
    session: AtomicU32::new(1),
    epoch: AtomicU64::new(1),
    single_threaded: AtomicPtr::new(core::ptr::null_mut()),
};

/// True if calls are to be recorded.
#[inline(always)]
pub fn active() -> bool {
    HOT.state.load(Relaxed) != OFF
}

/// True if the session has begun and goes on.
pub fn is_open() -> bool {
    HOT.state.load(Acquire) == OPEN
}

/// The session's process id.
#[inline(always)]
pub fn pid() -> u32 {
    HOT.pid.load(Relaxed)
}

/// True if there may be other threads.
#[inline(always)]
pub fn threads() -> bool {
    let place = HOT.single_threaded.load(Relaxed);
    // SAFETY: null, or the address of a variable of the C library, which outlives this one.
    place.is_null() || unsafe { place.read_volatile() } == 0
}

/// Open-file descriptions may be shared with another process from now on: offsets must be asked for.
pub fn share_all() {
    HOT.epoch.fetch_add(1, Relaxed);
}
