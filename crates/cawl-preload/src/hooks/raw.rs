//! syscall(): calls that write, or that change what the tracer knows, are understood; all others go
//! through by a jump that leaves no trace, because some (clone, vfork) must not find a frame of ours.

#[cfg(not(test))]
use crate::base::hot::share_all;
use crate::base::settings::reads;
use crate::base::thread::thread;
use crate::base::{clock, gate, guard, interrupted, real};
use crate::hooks::aio::Requests;
use crate::hooks::confine::{Effect, around, forbids_counter};
use crate::hooks::copy::{left_moved, place, truncated};
use crate::hooks::emit::{Place, did, happened, wrote_deep as wrote};
use crate::hooks::names::{moving, naming, removing, renaming, renaming_with_flags};
use crate::hooks::open::{making, opened_unnamed, opening};
use crate::hooks::process::ending;
use crate::hooks::read::{PARTS, reading, reading_at};
use crate::hooks::sync::advised_to_read;
use crate::hooks::write::{asked, write_flags};
use crate::hooks::{fd, lock, spawn};
use crate::session;
use crate::state::creation::Creation;
use crate::state::descriptors::Opening;
use crate::tries;
use cawl_wire::{Ended, Op};
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use libc::ssize_t;

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
        | libc::SYS_mkdirat
        | libc::SYS_linkat
        | libc::SYS_symlinkat
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
        libc::SYS_dup2
        | libc::SYS_unlink
        | libc::SYS_rename
        | libc::SYS_mkdir
        | libc::SYS_rmdir
        | libc::SYS_link
        | libc::SYS_symlink
        | libc::SYS_open
        | libc::SYS_creat => true,
        _ => false,
    }
}

/// A call as it came; arguments that it does not have are whatever the registers held.
struct Call {
    number: c_long,
    arguments: [c_long; 6],
}

impl Call {
    /// Makes it by syscall() of the C library, as the program did: another function would be a cancellation
    /// point, or another library's, which may call syscall() in turn.
    #[inline(never)]
    fn make(&self) -> c_long {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: what the program asked for.
        unsafe { real::syscall(self.number, a, b, c, d, e, f) }
    }

    /// Makes the call, whose result is an `int`.
    #[inline(always)]
    fn int(&self) -> c_int {
        self.make() as c_int
    }

    /// Makes the call, whose result is a length.
    #[inline(always)]
    fn size(&self) -> ssize_t {
        self.make() as ssize_t
    }

    /// Makes the call with another argument; the result is an `int`.
    #[inline(always)]
    fn with(&self, at: usize, argument: c_long) -> c_int {
        let mut arguments = self.arguments;
        arguments[at] = argument;
        Call { number: self.number, arguments }.int()
    }
}

/// Makes the call and records it.
///
/// # Safety
/// As syscall(2).
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
    let call = Call { number, arguments: [a, b, c, d, e, f] };
    // SAFETY: the caller's promise: the arguments go to the call as they came, and are read as the call
    // itself reads them. Each group is a function of its own, for the stack's sake.
    unsafe {
        match number {
            libc::SYS_close => c_long::from(close(&call)),
            libc::SYS_close_range | libc::SYS_dup | libc::SYS_dup3 | libc::SYS_fcntl | libc::SYS_lseek => {
                descriptor(&call)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptor(&call),
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
                read(&call)
            }
            libc::SYS_openat | libc::SYS_memfd_create => open(&call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open | libc::SYS_creat => open(&call),
            libc::SYS_chdir
            | libc::SYS_fchdir
            | libc::SYS_unlinkat
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_mkdirat
            | libc::SYS_linkat
            | libc::SYS_symlinkat => name(&call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink
            | libc::SYS_rename
            | libc::SYS_mkdir
            | libc::SYS_rmdir
            | libc::SYS_link
            | libc::SYS_symlink => name(&call),
            libc::SYS_execve | libc::SYS_execveat => c_long::from(exec(&call)),
            libc::SYS_exit_group => {
                ending(Ended::QuickExit);
                call.make()
            }
            _ => other(&call),
        }
    }
}

#[inline(never)]
fn close(call: &Call) -> c_int {
    fd::close_by(call.arguments[0] as c_int, || call.int())
}

/// # Safety
/// As [`understood`], with a call that starts a program.
#[inline(never)]
unsafe fn exec(call: &Call) -> c_int {
    type Strings = *const *const c_char;
    let [a, b, c, d, e, _] = call.arguments;
    // SAFETY: the caller's promise.
    unsafe {
        if call.number == libc::SYS_execve {
            let (path, argv, envp) = (a as *const c_char, b as Strings, c as Strings);
            return spawn::execve_by(path, argv, envp, |envp| call.with(2, envp as c_long));
        }
        let (program, argv, envp) = ((a as c_int, b as *const c_char), c as Strings, d as Strings);
        spawn::execveat_by(program, argv, envp, e as c_int, |envp| call.with(3, envp as c_long))
    }
}

/// # Safety
/// As [`understood`], with a call about a descriptor.
#[inline(never)]
unsafe fn descriptor(call: &Call) -> c_long {
    let [a, b, c, ..] = call.arguments;
    let (fd, int) = (a as c_int, || call.int());
    c_long::from(match call.number {
        libc::SYS_lseek => return fd::seek_by(fd, || call.make()),
        libc::SYS_close_range => fd::close_range_by(a as c_uint, b as c_uint, c as c_int, |first, last| {
            let arguments = [first.into(), last.into(), c, 0, 0, 0];
            Call { number: call.number, arguments }.int()
        }),
        libc::SYS_dup3 => fd::replace(fd, b as c_int, c as c_int & libc::O_CLOEXEC != 0, int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => fd::replace(fd, b as c_int, false, int),
        // SAFETY: the caller's promise.
        libc::SYS_fcntl => unsafe { fd::control_by(fd, b as c_int, c as *mut c_void, int) },
        _ => fd::duplicate_by(fd, int),
    })
}

/// # Safety
/// As [`understood`], with a call that reads.
#[inline(never)]
unsafe fn read(call: &Call) -> c_long {
    let [a, b, c, d, ..] = call.arguments;
    let (fd, size) = (a as c_int, || call.size());
    let memory = (b as *const c_void, c as usize);
    let length = |_| c as u64;
    // SAFETY: the caller's promise.
    let asked = |returned| unsafe { asked(b as *const _, c as c_int, returned) };
    let returned = match call.number {
        libc::SYS_read => reading(Op::Read, fd, memory, length, size),
        libc::SYS_pread64 => reading_at(fd, d, memory, length, size),
        libc::SYS_readv => reading(Op::Read, fd, PARTS, asked, size),
        // The offset -1 means the descriptor's own position.
        libc::SYS_preadv2 if d == -1 => reading(Op::Pread, fd, PARTS, asked, size),
        _ => reading_at(fd, d, PARTS, asked, size),
    };
    returned as c_long
}

/// # Safety
/// As [`understood`], with a call that opens.
#[inline(never)]
unsafe fn open(call: &Call) -> c_long {
    let [a, b, c, ..] = call.arguments;
    let int = || call.int();
    c_long::from(match call.number {
        libc::SYS_memfd_create => making(0, int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => {
            let flags = b as c_int;
            opening(flags, libc::AT_FDCWD, a as *const c_char, || Creation::of(flags), int)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => {
            let (flags, creation) = (libc::O_WRONLY | libc::O_TRUNC, || Creation::of(libc::O_CREAT));
            opening(flags, libc::AT_FDCWD, a as *const c_char, creation, int)
        }
        _ => {
            let flags = c as c_int;
            opening(flags, a as c_int, b as *const c_char, || Creation::of(flags), int)
        }
    })
}

/// # Safety
/// As [`understood`], with a call about names.
#[inline(never)]
unsafe fn name(call: &Call) -> c_long {
    let [a, b, c, d, e, _] = call.arguments;
    let (second, int) = (b as *const c_char, || call.int());
    c_long::from(match call.number {
        libc::SYS_unlinkat => removing(a as c_int, second, int),
        libc::SYS_mkdirat => naming(Op::Mkdir, a as c_int, second, int),
        libc::SYS_linkat => naming(Op::Link, c as c_int, d as *const c_char, int),
        libc::SYS_symlinkat => naming(Op::Symlink, b as c_int, c as *const c_char, int),
        libc::SYS_renameat => renaming(c as c_int, d as *const c_char, int),
        libc::SYS_renameat2 => {
            renaming_with_flags((a as c_int, second), (c as c_int, d as *const c_char), e as c_uint, int)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rmdir => removing(libc::AT_FDCWD, a as *const c_char, int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => naming(Op::Mkdir, libc::AT_FDCWD, a as *const c_char, int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => naming(Op::Link, libc::AT_FDCWD, second, int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink => naming(Op::Symlink, libc::AT_FDCWD, second, int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => renaming(libc::AT_FDCWD, second, int),
        _ => moving(int),
    })
}

/// # Safety
/// As [`understood`].
#[inline(never)]
unsafe fn other(call: &Call) -> c_long {
    let Call { number, arguments: [a, b, c, ..] } = *call;
    let fd = a as c_int;
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_seccomp => return around(Effect::of_seccomp(a, b), || call.make()),
            libc::SYS_prctl => {
                if forbids_counter(fd, b) {
                    clock::forbid();
                }
                return around(Effect::of_prctl(fd, b), || call.make());
            }
            libc::SYS_fsync | libc::SYS_fdatasync if tries::leaves_out_sync(fd) => return 0,
            _ => {}
        }
        let requests = (number == libc::SYS_io_submit).then(|| Requests::of_kernel(b, c as *const *const _));
        let start = interrupted::begin(fd_moved(number, a, c));
        let returned = call.make();
        match requests {
            Some(requests) => {
                super::aio::handed_on();
                requests.record_kernel(start, returned);
            }
            None => record(number, start, call.arguments, returned),
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
                opened_unnamed(start, returned as c_int, libc::O_RDWR);
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
