//! The calls that make data durable.

use crate::base::{clock, real};
use crate::hooks::emit::{did, happened};
use crate::session;
use cawl_wire::Op;
use core::ffi::{c_int, c_uint};
use libc::off_t;

hooks! {
    fn fsync(fd: c_int) -> c_int {
        if !session::active() {
            return real::fsync(fd);
        }
        let start = clock::now();
        let returned = real::fsync(fd);
        did(Op::Fsync, start, fd, i64::from(returned), |_| {});
        returned
    }

    fn fdatasync(fd: c_int) -> c_int {
        if !session::active() {
            return real::fdatasync(fd);
        }
        let start = clock::now();
        let returned = real::fdatasync(fd);
        did(Op::Fdatasync, start, fd, i64::from(returned), |_| {});
        returned
    }

    fn sync() -> () {
        if !session::active() {
            return real::sync();
        }
        let start = clock::now();
        real::sync();
        happened(Op::Sync, start, 0, |_| {});
    }

    fn syncfs(fd: c_int) -> c_int {
        if !session::active() {
            return real::syncfs(fd);
        }
        let start = clock::now();
        let returned = real::syncfs(fd);
        did(Op::Syncfs, start, fd, i64::from(returned), |_| {});
        returned
    }

    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int {
        if !session::active() {
            return real::sync_file_range(fd, offset, length, flags);
        }
        let start = clock::now();
        let returned = real::sync_file_range(fd, offset, length, flags);
        did(Op::SyncRange, start, fd, i64::from(returned), |event| {
            event.offset = offset as u64;
            event.requested = length as u64;
            event.aux = flags;
        });
        returned
    }
}
