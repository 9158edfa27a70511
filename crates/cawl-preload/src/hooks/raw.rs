//! syscall(): calls that write, or that change what the tracer knows, are understood; all others go
//! through by a jump that leaves no trace, because some (clone, vfork) must not find a frame of ours.

#[cfg(not(test))]
use crate::base::hot::share_all;
use crate::base::settings::reads;
use crate::base::thread::thread;
use crate::base::{clock, gate, guard, interrupted, real};
use crate::hooks::aio::Requests;
use crate::hooks::confine::{Effect, around};
use crate::hooks::copy::{left_moved, place, truncated};
use crate::hooks::emit::{Place, did, happened, wrote_deep as wrote};
use crate::hooks::lock;
use crate::hooks::process::ending;
use crate::hooks::sync::advised_to_read;
use crate::hooks::write::{asked, write_flags};
use crate::session;
use crate::state::descriptors::Opening;
use crate::tries;
use cawl_wire::{Ended, Op};
use core::ffi::{c_char, c_int, c_long, c_uint};
use libc::mode_t;

/// What to jump to: the real function, or [`understood`].
#[cfg(not(test))]
unsafe extern "C" fn choose(number: c_long) -> *const core::ffi::c_void {
    if crate::session::active() {
        if is_understood(number) {
            return understood as *const core::ffi::c_void;
        }
        if shares(number) {
            share_all();
        }
    }
    real::address_of_syscall()
}

/// The call may give descriptors, or their positions, to another process.
fn shares(number: c_long) -> bool {
    match number {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_sendmsg | libc::SYS_sendmmsg => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork | libc::SYS_vfork => true,
        _ => false,
    }
}

fn is_understood(number: c_long) -> bool {
    match number {
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_tee
        | libc::SYS_vmsplice
        | libc::SYS_copy_file_range
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_syncfs
        | libc::SYS_sync
        | libc::SYS_sync_file_range
        | libc::SYS_fadvise64
        | libc::SYS_fcntl
        | libc::SYS_flock
        | libc::SYS_ftruncate
        | libc::SYS_truncate
        | libc::SYS_fallocate
        | libc::SYS_chdir
        | libc::SYS_fchdir
        | libc::SYS_unlinkat
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_io_submit
        | libc::SYS_io_uring_setup
        | libc::SYS_close
        | libc::SYS_close_range
        | libc::SYS_dup
        | libc::SYS_dup3
        | libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_lseek
        | libc::SYS_memfd_create
        | libc::SYS_seccomp
        | libc::SYS_landlock_restrict_self
        | libc::SYS_readahead
        | libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_exit_group => true,
        libc::SYS_prctl => true,
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
            reads()
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 | libc::SYS_unlink | libc::SYS_rename | libc::SYS_open | libc::SYS_creat => true,
        _ => false,
    }
}

/// Makes the call and records it.
///
/// # Safety
/// As syscall(2); arguments that the call does not have are whatever the registers held.
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C-unwind" fn understood(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: the caller's promise: the arguments go to the call as they came, and are read as the call
    // itself reads them.
    unsafe {
        let fd = a as c_int;
        match number {
            libc::SYS_exit_group => ending(Ended::QuickExit),
            libc::SYS_seccomp => {
                return around(Effect::of_seccomp(a, b), || real::syscall(number, a, b, c, d, e, f));
            }
            libc::SYS_prctl => {
                if super::confine::forbids_counter(fd, b) {
                    clock::forbid();
                }
                return around(Effect::of_prctl(fd, b), || real::syscall(number, a, b, c, d, e, f));
            }
            libc::SYS_fsync | libc::SYS_fdatasync if tries::leaves_out_sync(fd) => return 0,
            // The hooks of these know how to keep out of the way.
            libc::SYS_close => return c_long::from(super::fd::close(fd)),
            libc::SYS_close_range => {
                return c_long::from(super::fd::close_range(a as c_uint, b as c_uint, c as c_int));
            }
            libc::SYS_dup => return c_long::from(super::fd::dup(fd)),
            libc::SYS_dup3 => return c_long::from(super::fd::dup3(fd, b as c_int, c as c_int)),
            libc::SYS_read => return super::read::read(fd, b as *mut _, c as usize) as c_long,
            libc::SYS_pread64 => return super::read::pread(fd, b as *mut _, c as usize, d) as c_long,
            libc::SYS_readv => return super::read::readv(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_preadv => return super::read::preadv(fd, b as *const _, c as c_int, d) as c_long,
            libc::SYS_preadv2 => {
                return super::read::preadv2(fd, b as *const _, c as c_int, d, f as c_int) as c_long;
            }
            libc::SYS_openat => {
                return c_long::from(super::open::openat(fd, b as *const c_char, c as c_int, d as mode_t));
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => {
                return c_long::from(super::open::open(a as *const c_char, b as c_int, c as mode_t));
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => return c_long::from(super::open::creat(a as *const c_char, b as mode_t)),
            libc::SYS_memfd_create => {
                return c_long::from(super::open::memfd_create(a as *const c_char, b as c_uint));
            }
            libc::SYS_execve => {
                return c_long::from(super::spawn::execve(a as *const _, b as *const _, c as *const _));
            }
            libc::SYS_execveat => {
                let (path, argv, envp) = (b as *const _, c as *const _, d as *const _);
                return c_long::from(super::spawn::execveat(fd, path, argv, envp, e as c_int));
            }
            libc::SYS_lseek => return super::fd::lseek(fd, b, c as c_int),
            libc::SYS_chdir => return c_long::from(super::names::chdir(a as *const c_char)),
            libc::SYS_fchdir => return c_long::from(super::names::fchdir(fd)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => return c_long::from(super::fd::dup2(fd, b as c_int)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => return c_long::from(super::names::unlink(a as *const c_char)),
            libc::SYS_unlinkat => {
                return c_long::from(super::names::unlinkat(fd, b as *const c_char, c as c_int));
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => {
                return c_long::from(super::names::rename(a as *const c_char, b as *const c_char));
            }
            libc::SYS_renameat => {
                let (from, to) = (b as *const c_char, d as *const c_char);
                return c_long::from(super::names::renameat(fd, from, c as c_int, to));
            }
            libc::SYS_renameat2 => {
                let (from, to) = (b as *const c_char, d as *const c_char);
                return c_long::from(super::names::renameat2(fd, from, c as c_int, to, e as c_uint));
            }
            _ => {}
        }
        let requests = (number == libc::SYS_io_submit).then(|| Requests::of_kernel(b, c as *const *const _));
        let start = interrupted::begin(fd_moved(number, a, c));
        let returned = real::syscall(number, a, b, c, d, e, f);
        match requests {
            Some(requests) => {
                super::aio::handed_on();
                requests.record_kernel(start, returned);
            }
            None => record(number, start, [a, b, c, d, e, f], returned),
        }
        interrupted::end(thread(), start);
        returned
    }
}

/// The descriptor that a call writes to.
fn fd_moved(number: c_long, first: c_long, third: c_long) -> c_int {
    match number {
        libc::SYS_splice | libc::SYS_copy_file_range => third as c_int,
        _ => first as c_int,
    }
}

/// # Safety
/// The arguments must be those of a call that was just made.
unsafe fn record(number: c_long, start: u64, arguments: [c_long; 6], returned: c_long) {
    let [a, b, c, d, _, f] = arguments;
    let fd = a as c_int;
    let length = c as u64;
    // SAFETY: the kernel has just read or written what is looked at, or the call failed.
    unsafe {
        match number {
            libc::SYS_write => wrote(Op::Write, start, fd, Place::Own, length, returned, 0),
            libc::SYS_pwrite64 => wrote(Op::Pwrite, start, fd, Place::At(d as u64), length, returned, 0),
            libc::SYS_writev => {
                let asked = asked(b as *const _, c as c_int, returned as isize);
                wrote(Op::Writev, start, fd, Place::Own, asked, returned, 0);
            }
            libc::SYS_pwritev | libc::SYS_pwritev2 => {
                let asked = asked(b as *const _, c as c_int, returned as isize);
                let own = number == libc::SYS_pwritev2 && d == -1;
                let place = if own { Place::Own } else { Place::At(d as u64) };
                let flags = if number == libc::SYS_pwritev2 { write_flags(f as c_int) } else { 0 };
                wrote(Op::Pwritev, start, fd, place, asked, returned, flags);
            }
            libc::SYS_sendfile => {
                left_moved(b as c_int, c as *const _);
                wrote(Op::Sendfile, start, fd, Place::Own, d as u64, returned, 0);
            }
            libc::SYS_vmsplice => wrote(Op::Splice, start, fd, Place::Nowhere, 0, returned, 0),
            libc::SYS_tee => wrote(Op::Splice, start, b as c_int, Place::Nowhere, length, returned, 0),
            libc::SYS_splice | libc::SYS_copy_file_range => {
                left_moved(fd, b as *const _);
                let op = if number == libc::SYS_splice { Op::Splice } else { Op::CopyRange };
                let place = place(d as *mut _, returned as isize);
                wrote(op, start, c as c_int, place, arguments[4] as u64, returned, 0);
            }
            libc::SYS_fsync => did(Op::Fsync, start, fd, returned, |_| {}),
            libc::SYS_fdatasync => did(Op::Fdatasync, start, fd, returned, |_| {}),
            libc::SYS_syncfs => did(Op::Syncfs, start, fd, returned, |_| {}),
            libc::SYS_sync => happened(Op::Sync, start, 0, |_| {}),
            libc::SYS_sync_file_range => did(Op::SyncRange, start, fd, returned, |event| {
                (event.offset, event.requested, event.aux) = (b as u64, length, d as u32);
            }),
            libc::SYS_fadvise64 => did(Op::Advise, start, fd, returned, |event| {
                (event.offset, event.requested, event.aux) = (b as u64, length, d as u32);
            }),
            libc::SYS_fcntl => lock::controlled(start, fd, b as c_int, c as *const _, returned as c_int),
            libc::SYS_flock => lock::of_file(start, fd, b as c_int, returned as c_int),
            libc::SYS_readahead => advised_to_read(start, fd, b, c as usize, returned),
            libc::SYS_ftruncate => {
                did(Op::Truncate, start, fd, returned, |event| event.offset = b as u64);
            }
            libc::SYS_truncate => truncated(start, a as *const c_char, b, returned),
            libc::SYS_fallocate => {
                tries::allocated(fd);
                did(Op::Allocate, start, fd, returned, |event| {
                    (event.offset, event.requested, event.aux) = (c as u64, d as u64, b as u32);
                });
            }
            // The flags lie behind a pointer; the kernel's own answer about the descriptor will do.
            libc::SYS_openat2 => {
                super::open::opened_unnamed(start, returned as c_int, libc::O_RDWR);
            }
            // Privileges were given up for this.
            libc::SYS_landlock_restrict_self if returned == 0 => gate::gave_up_privileges(false),
            // Sent as a file, by whose name the daemon knows that there are unseen calls.
            libc::SYS_io_uring_setup if returned >= 0 => {
                if let Some(_inside) = guard::enter()
                    && session::is_ours()
                {
                    session::opened(returned as c_int, Some(&Opening::UNKNOWN));
                }
            }
            _ => {}
        }
    }
}

chooses! {
    syscall => choose;
}
