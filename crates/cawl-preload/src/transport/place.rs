//! Where the tracer's descriptor is: at a number that the program does not use.
//!
//! The law of this module: the program's limits are what they were when it returns.

use crate::base::sys;
use core::ffi::c_int;

/// Highest number wanted for the socket: for higher ones the kernel keeps a larger table, which each fork
/// copies.
const HIGHEST: u64 = 1024;
/// A program that can have no more descriptors than this misses one that is taken.
const FEW: u64 = 64;

/// A duplicate at the first number that the program itself cannot have; an error if there is none.
///
/// The kernel compares a number with the soft limit only when it is given out, so the limit is raised for
/// that moment.
pub fn duplicate_above_the_limit(fd: c_int) -> isize {
    const REFUSED: isize = -(libc::EPERM as isize);
    let Some(limits) = sys::limits(libc::RLIMIT_NOFILE, None) else { return REFUSED };
    let lowest = limits.rlim_cur;
    if lowest > HIGHEST {
        return REFUSED;
    }
    let raised = libc::rlimit { rlim_cur: lowest + 16, rlim_max: limits.rlim_max.max(lowest + 16) };
    let Some(before) = sys::limits(libc::RLIMIT_NOFILE, Some(&raised)) else { return REFUSED };
    let moved = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest as usize);
    let found = sys::limits(libc::RLIMIT_NOFILE, Some(&before));
    // Another thread's limits, set meanwhile, are the program's.
    if let Some(found) = found.filter(|found| found.rlim_cur != raised.rlim_cur) {
        sys::limits(libc::RLIMIT_NOFILE, Some(&found));
    }
    moved
}

/// Moves a descriptor to a number that the program cannot have, or else to a high one, where few look. None
/// if it is where it was, and the program can have only a few.
pub fn out_of_the_way(fd: c_int) -> Option<c_int> {
    let above = duplicate_above_the_limit(fd);
    if above >= 0 {
        sys::close(fd);
        return Some(above as c_int);
    }
    let limits = sys::limits(libc::RLIMIT_NOFILE, None)?;
    if limits.rlim_max < FEW {
        return None;
    }
    let limit = limits.rlim_cur.min(HIGHEST) as usize;
    for lowest in [limit.saturating_sub(24), limit.saturating_sub(limit / 4), limit / 2] {
        if lowest <= fd as usize {
            continue;
        }
        let moved = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest);
        if moved >= 0 {
            sys::close(fd);
            return Some(moved as c_int);
        }
    }
    Some(fd)
}
