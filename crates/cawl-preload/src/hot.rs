//! What every hook reads, on one cache line: a program that moves much data leaves little else in the
//! cache, and each line that has to come back is paid for by the program.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// The line. Each field belongs to the module named; nobody else writes it.
#[repr(C, align(64))]
pub struct Hot {
    /// `uplink`: whether there is a session.
    pub state: AtomicU8,
    /// `clock`: true if events carry the processor's counter.
    pub ticking: AtomicBool,
    /// `uplink`: the session's process id.
    pub pid: AtomicU32,
    /// `files`: raised in every fork child.
    pub session: AtomicU32,
    /// `files`: raised whenever open-file descriptions may have come to be shared.
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
