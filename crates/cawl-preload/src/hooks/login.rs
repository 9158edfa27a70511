//! Terminals and handles: calls that put something at descriptors without saying so.

use crate::base::{clock, real};
use crate::hooks::emit::happened;
use crate::hooks::open::opened_unnamed;
use crate::hooks::process::{before_fork, in_child};
use crate::session;
use crate::state::descriptors;
use cawl_wire::Op;
use core::ffi::{c_char, c_int, c_void};

/// The standard descriptors now lead somewhere else.
fn standard_ones_changed() {
    if session::active() && session::is_ours() {
        descriptors::forget_range(0, 2);
    }
}

hooks! {
    word fn login_tty(fd: c_int) -> c_int {
        let returned = real::login_tty(fd);
        standard_ones_changed();
        returned
    }

    word fn forkpty(
        main: *mut c_int, name: *mut c_char, attributes: *const c_void, size: *const c_void,
    ) -> libc::pid_t {
        if !session::active() {
            return real::forkpty(main, name, attributes, size);
        }
        before_fork();
        let start = clock::now();
        let child = real::forkpty(main, name, attributes, size);
        if child == 0 {
            in_child();
            standard_ones_changed();
        } else {
            happened(Op::Fork, start, i64::from(child), |_| {});
        }
        child
    }

    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
        let start = clock::now();
        let fd = real::open_by_handle_at(mount, handle, flags);
        if session::active() {
            opened_unnamed(start, fd, flags & !libc::O_CREAT);
        }
        fd
    }
}
