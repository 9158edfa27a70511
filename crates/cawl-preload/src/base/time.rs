//! What time it is, by the kernel's own clocks.
//!
//! The law of this module: the time is the machine's. No symbol that another library could replace is used,
//! and the offset of a time namespace is taken off.

use crate::base::files::{decimal, read_file, readlink};
use crate::base::gate::call;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// The function by which the kernel tells the time without a call of it, in the library that it gives each
/// process (vDSO); null where there is none, and where that must not read the processor's counter.
static ASKED: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Its name.
#[cfg(target_arch = "x86_64")]
pub const TIME: &CStr = c"__vdso_clock_gettime";
#[cfg(target_arch = "aarch64")]
pub const TIME: &CStr = c"__kernel_clock_gettime";

/// From now on the time is asked of this function, unless it is null.
pub fn ask_for_time(function: *mut c_void) {
    ASKED.store(function, Release);
}

/// From now on the kernel is called for the time.
pub fn call_for_time() {
    ask_for_time(core::ptr::null_mut());
}

#[inline]
fn time(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let function = ASKED.load(Acquire);
    // SAFETY: `time` is a valid place for the result; the kernel's function has this signature.
    unsafe {
        if function.is_null() {
            call(libc::SYS_clock_gettime, [clock as usize, &raw mut time as usize]);
        } else {
            let function: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int =
                core::mem::transmute(function);
            function(clock, &mut time);
        }
    }
    time
}

/// Nanoseconds of the machine's CLOCK_MONOTONIC.
#[inline]
pub fn nanoseconds() -> u64 {
    let time = time(libc::CLOCK_MONOTONIC);
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).wrapping_sub(AHEAD.load(Relaxed))
}

/// By how many ns that of this process is ahead, or, below zero, behind.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// True if it is.
pub fn has_other_clock() -> bool {
    AHEAD.load(Relaxed) != 0
}

/// Finds out whether the process is in a time namespace of its own.
#[inline(never)]
pub fn look_at_clock() {
    const MACHINE: &[u8] = b"time:[4026531834]";
    let mut text = [0u8; 128];
    let length = readlink(b"/proc/self/ns/time\0", &mut text);
    let mut ahead = 0;
    if length > 0 && !text.starts_with(MACHINE) {
        let length = read_file(c"/proc/self/timens_offsets", &mut text);
        ahead = offset(text.get(..length).unwrap_or_default()).unwrap_or(0);
    }
    AHEAD.store(ahead, Relaxed);
}

/// "monotonic", s, ns: s may be negative.
fn offset(text: &[u8]) -> Option<u64> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if words.next()? != b"monotonic" {
        return None;
    }
    let (seconds, nanos) = (words.next()?, decimal(words.next()?)?);
    let seconds = match seconds.strip_prefix(b"-") {
        Some(seconds) => decimal(seconds)?.wrapping_neg(),
        None => decimal(seconds)?,
    };
    Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
}

/// The time of day by the clock from which filesystems take a file's time of birth, in s and ns.
pub fn coarse_time() -> (i64, u32) {
    let time = time(libc::CLOCK_REALTIME_COARSE);
    (time.tv_sec, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_clocks_are_understood() {
        let text = b"monotonic     1000000         5\nboottime            0         0\n";
        assert_eq!(offset(text), Some(1_000_000_000_000_005));
        assert_eq!(offset(b"monotonic  -2 7\n"), Some(7u64.wrapping_sub(2_000_000_000)));
        assert_eq!(offset(b""), None);
    }
}
