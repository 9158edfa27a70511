//! fork, and the ways in which a process ends.

use crate::record::happened;
use crate::{buffer, files, guard, maps, real, sys, uplink};
use cawl_wire::{Ended, Op};
use core::ffi::{c_int, c_void};
use libc::pid_t;

/// Before a fork: what there is goes out, and from now on descriptions are shared.
pub unsafe extern "C" fn before_fork() {
    if !uplink::active() {
        return;
    }
    files::share_all();
    if let Some(inside) = guard::enter() {
        buffer::flush(&inside);
    }
}

/// In the child of a fork.
pub unsafe extern "C" fn in_child() {
    uplink::forked();
    if maps::any() {
        maps::begin_session();
    }
}

/// Before an end at which the C library flushes nothing.
pub fn ending(ended: Ended) {
    // The memory of a vfork child is its parent's.
    if uplink::is_ours() {
        let inside = guard::enter_at_end();
        maps::sample_all(&inside);
        uplink::goodbye(&inside, ended, 0);
    }
}

/// Registered with quick_exit first of all, so it runs last.
pub unsafe extern "C" fn at_quick_exit(_argument: *mut c_void) {
    ending(Ended::QuickExit);
}

hooks! {
    fn fork, __fork() -> pid_t {
        if !uplink::active() {
            return real::fork();
        }
        let start = sys::now();
        let child = real::fork();
        if child != 0 {
            happened(Op::Fork, start, i64::from(child), |_| {});
        }
        child
    }

    // Runs no atfork handlers.
    fn _Fork() -> pid_t {
        if !uplink::active() {
            return real::_Fork();
        }
        before_fork();
        let start = sys::now();
        let child = real::_Fork();
        if child == 0 {
            in_child();
        } else {
            happened(Op::Fork, start, i64::from(child), |_| {});
        }
        child
    }

    // Inside, the C library forks and ends the parent.
    fn daemon(no_chdir: c_int, no_close: c_int) -> c_int {
        if uplink::active() {
            ending(Ended::Exec);
        }
        real::daemon(no_chdir, no_close)
    }

    fn _exit, _Exit(status: c_int) -> ! {
        if uplink::active() {
            ending(Ended::QuickExit);
        }
        real::_exit(status);
        loop {
            sys::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]);
        }
    }

    fn abort() -> ! {
        if uplink::active() {
            ending(Ended::Abort);
        }
        real::abort();
        loop {
            sys::call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]);
        }
    }
}
