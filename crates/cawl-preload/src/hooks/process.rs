//! fork and other ways to share descriptors, and the ways in which a process ends.

use crate::base::hot::share_all;
use crate::base::settings::settings;
use crate::base::{clock, gate, guard, real};
use crate::hooks::emit::{around, doubts, happened, mapping};
use crate::session::{self, environment};
use crate::state::mappings;
use crate::tries;
use cawl_wire::{Ended, Op};
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::pid_t;

/// Before a fork: what there is goes out, and from now on descriptions are shared.
pub unsafe extern "C" fn before_fork() {
    if !session::active() {
        return;
    }
    share_all();
    clock::forking();
    if let Some(inside) = guard::enter() {
        session::flush(&inside);
    }
}

/// In the child of a fork.
pub unsafe extern "C" fn in_child() {
    session::tell_if_unreachable();
    clock::forked();
    session::forked();
    if settings().is_some_and(|settings| settings.only_child_of != 0) {
        if environment::is_clearable() {
            environment::clear();
        }
        environment::withdraw();
    }
    if mappings::any() {
        mappings::begin_session();
    }
}

/// Before an end at which the C library flushes nothing.
pub fn ending(ended: Ended) {
    // The memory of a vfork child is its parent's.
    if session::is_ours() {
        let inside = guard::enter_at_end();
        tries::ending();
        doubts::at_end(&inside);
        mapping::sample_all(&inside);
        session::goodbye(&inside, ended, 0);
    }
}

/// Registered with quick_exit first of all, so it runs last.
pub unsafe extern "C" fn at_quick_exit(_argument: *mut c_void) {
    ending(Ended::QuickExit);
}

macro_rules! dying {
    ($call:expr) => {{
        if session::active() {
            ending(Ended::Abort);
        }
        $call;
        loop {
            gate::call_for_program(libc::SYS_exit_group, [127]);
        }
    }};
}

hooks! {
    fn fork, __fork() -> pid_t = around(|| next(), |start, child| {
        if child != 0 {
            happened(Op::Fork, start, i64::from(child), |_| {});
        }
    });

    // Runs no atfork handlers.
    fn _Fork() -> pid_t {
        if !session::active() {
            return real::_Fork();
        }
        before_fork();
        let start = clock::now();
        let child = real::_Fork();
        if child == 0 {
            in_child();
        } else {
            happened(Op::Fork, start, i64::from(child), |_| {});
        }
        child
    }

    // Inside, the C library forks and ends the parent.
    word fn daemon(no_chdir: c_int, no_close: c_int) -> c_int {
        if session::active() {
            ending(Ended::Exec);
        }
        real::daemon(no_chdir, no_close)
    }

    // A message may carry descriptors to another process, which then shares their positions.
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> libc::ssize_t {
        let sent = real::sendmsg(fd, message, flags);
        if session::active() && sent >= 0 && (*message).msg_controllen > 0 {
            share_all();
        }
        sent
    }

    fn _exit, _Exit(status: c_int) -> ! {
        if session::active() {
            ending(Ended::QuickExit);
        }
        next(status);
        loop {
            gate::call_for_program(libc::SYS_exit_group, [status as usize]);
        }
    }

    fn abort() -> ! = dying!(real::abort());

    // These end the process from inside the C library, past the hooks of abort and _exit.
    fn __assert_fail(
        assertion: *const c_char, file: *const c_char, line: c_uint, function: *const c_char,
    ) -> ! = dying!(real::__assert_fail(assertion, file, line, function));

    fn __assert_perror_fail(
        number: c_int, file: *const c_char, line: c_uint, function: *const c_char,
    ) -> ! = dying!(real::__assert_perror_fail(number, file, line, function));

    fn __stack_chk_fail() -> ! = dying!(real::__stack_chk_fail());
}
