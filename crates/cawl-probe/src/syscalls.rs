//! The system calls that are recorded: what the probes look at, and what the call does.

use cawl_wire::Op;

/// Classes of bpf/probe.h.
const FILE: u32 = 1;
const FCNTL: u32 = 2;
const IOCTL: u32 = 3;
const CLOSE: u32 = 4;
const OPEN: u32 = 5;
const NAME: u32 = 6;
const PLAIN: u32 = 7;
const SUBMIT: u32 = 8;
const REAP: u32 = 9;
const RING: u32 = 10;
const URING: u32 = 11;
const AIO: u32 = 12;
const COMPLETE: u32 = 13;
const STORE: u32 = 14;
const NONE: u32 = 15;
const IS_READ: u32 = 1 << 20;
const HAS_POINTER: u32 = 1 << 21;
const IS_COMPAT_WRITE: u32 = 1 << 22;
const IS_SYNC: u32 = 1 << 23;
const IS_SEEK: u32 = 1 << 24;

/// What a call does, and where its figures are among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Moves bytes at the descriptor's own position; the argument with the length.
    Own(Op, usize),
    /// Moves bytes at the place that an argument has.
    At(Op, usize, usize),
    /// The same for vectors, whose length no argument has; the argument with flags of this call, if it has
    /// any.
    Vectors(Op, Option<usize>, Option<usize>),
    /// Copies to a file, at the place that a pointer leads to, else its own.
    Copy(Op, usize, usize),
    /// Opens; the argument with its flags.
    Open(usize),
    /// creat.
    Create,
    /// openat2, whose flags lie in memory.
    OpenBy,
    /// close.
    Close,
    /// close_range.
    CloseRange,
    /// dup: the new descriptor is the result.
    Dup,
    /// dup2, dup3: it may take the place of another; the argument with flags.
    DupTo(Option<usize>),
    /// lseek.
    Seek,
    /// fcntl: dup, or a lock.
    Control,
    /// flock.
    Lock,
    /// ftruncate.
    Truncate,
    /// truncate.
    TruncateNamed,
    /// fallocate.
    Allocate,
    /// Makes durable what a descriptor leads to, or everything.
    Sync(Op),
    /// sync_file_range.
    SyncRange,
    /// msync.
    SyncMapping,
    /// posix_fadvise; readahead.
    Advise,
    /// See `Advise`.
    ReadAhead,
    /// ioctl: a reflink.
    Clone,
    /// unlink and rmdir; true: the flags say which.
    Unlink(bool),
    /// See `Unlink`.
    Rmdir,
    /// rename; the argument with its flags.
    Rename(Option<usize>),
    /// Makes a name.
    Make(Op),
    /// io_submit, io_getevents and io_uring_enter, of which each request is told by itself.
    Requests,
}

/// Which libc does not have.
const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

struct Syscall {
    number: libc::c_long,
    row: u32,
    does: Does,
}

const fn file(number: libc::c_long, argument: u32, does: Does) -> Syscall {
    Syscall { number, row: FILE | argument << 4 | NONE << 8 | NONE << 12 | NONE << 16, does }
}
const fn read(number: libc::c_long, does: Does) -> Syscall {
    let all = file(number, 0, does);
    Syscall { row: all.row | IS_READ, ..all }
}
const fn sync(number: libc::c_long, op: Op) -> Syscall {
    let all = file(number, 0, Does::Sync(op));
    Syscall { row: all.row | IS_SYNC, ..all }
}
const fn seek(number: libc::c_long) -> Syscall {
    let all = file(number, 0, Does::Seek);
    Syscall { row: all.row | IS_SEEK, ..all }
}
const fn of_class(class: u32, number: libc::c_long, does: Does) -> Syscall {
    Syscall { number, row: class | NONE << 8 | NONE << 12 | NONE << 16, does }
}
const fn pointing(class: u32, descriptor: u32, pointer: u32, number: libc::c_long, does: Does) -> Syscall {
    let row = class | descriptor << 4 | pointer << 8 | NONE << 12 | NONE << 16 | HAS_POINTER;
    Syscall { number, row, does }
}
/// The arguments with the first folder and name, and the second; 15: none.
const fn named(number: libc::c_long, at: [u32; 4], does: Does) -> Syscall {
    Syscall { number, row: NAME | at[0] << 4 | at[1] << 8 | at[2] << 12 | at[3] << 16, does }
}

const COMMON: &[Syscall] = &[
    file(libc::SYS_write, 0, Does::Own(Op::Write, 2)),
    file(libc::SYS_pwrite64, 0, Does::At(Op::Pwrite, 2, 3)),
    file(libc::SYS_writev, 0, Does::Vectors(Op::Writev, None, None)),
    file(libc::SYS_pwritev, 0, Does::Vectors(Op::Pwritev, Some(3), None)),
    file(libc::SYS_pwritev2, 0, Does::Vectors(Op::Pwritev, Some(3), Some(5))),
    read(libc::SYS_read, Does::Own(Op::Read, 2)),
    read(libc::SYS_pread64, Does::At(Op::Pread, 2, 3)),
    read(libc::SYS_readv, Does::Vectors(Op::Read, None, None)),
    read(libc::SYS_preadv, Does::Vectors(Op::Pread, Some(3), None)),
    read(libc::SYS_preadv2, Does::Vectors(Op::Pread, Some(3), Some(5))),
    pointing(FILE, 2, 3, libc::SYS_copy_file_range, Does::Copy(Op::CopyRange, 4, 3)),
    pointing(FILE, 2, 3, libc::SYS_splice, Does::Copy(Op::Splice, 4, 3)),
    file(libc::SYS_sendfile, 0, Does::Own(Op::Sendfile, 3)),
    file(libc::SYS_vmsplice, 0, Does::Vectors(Op::Splice, None, None)),
    file(libc::SYS_tee, 1, Does::Own(Op::Splice, 2)),
    of_class(OPEN, libc::SYS_openat, Does::Open(2)),
    pointing(OPEN, NONE, 2, libc::SYS_openat2, Does::OpenBy),
    of_class(CLOSE, libc::SYS_close, Does::Close),
    of_class(PLAIN, libc::SYS_close_range, Does::CloseRange),
    file(libc::SYS_dup, 0, Does::Dup),
    file(libc::SYS_dup3, 0, Does::DupTo(Some(2))),
    seek(libc::SYS_lseek),
    of_class(FCNTL, libc::SYS_fcntl, Does::Control),
    of_class(IOCTL, libc::SYS_ioctl, Does::Clone),
    file(libc::SYS_flock, 0, Does::Lock),
    file(libc::SYS_ftruncate, 0, Does::Truncate),
    named(libc::SYS_truncate, [NONE, 0, NONE, NONE], Does::TruncateNamed),
    file(libc::SYS_fallocate, 0, Does::Allocate),
    sync(libc::SYS_fsync, Op::Fsync),
    sync(libc::SYS_fdatasync, Op::Fdatasync),
    sync(libc::SYS_syncfs, Op::Syncfs),
    of_class(PLAIN, libc::SYS_sync, Does::Sync(Op::Sync)),
    file(libc::SYS_sync_file_range, 0, Does::SyncRange),
    of_class(PLAIN, libc::SYS_msync, Does::SyncMapping),
    file(libc::SYS_fadvise64, 0, Does::Advise),
    file(libc::SYS_readahead, 0, Does::ReadAhead),
    named(libc::SYS_unlinkat, [0, 1, NONE, NONE], Does::Unlink(true)),
    named(libc::SYS_renameat2, [0, 1, 2, 3], Does::Rename(Some(4))),
    named(libc::SYS_linkat, [0, 1, 2, 3], Does::Make(Op::Link)),
    named(libc::SYS_symlinkat, [1, 2, NONE, NONE], Does::Make(Op::Symlink)),
    named(libc::SYS_mkdirat, [0, 1, NONE, NONE], Does::Make(Op::Mkdir)),
    of_class(SUBMIT, libc::SYS_io_submit, Does::Requests),
    of_class(REAP, libc::SYS_io_getevents, Does::Requests),
    of_class(REAP, IO_PGETEVENTS, Does::Requests),
    of_class(RING, libc::SYS_io_uring_enter, Does::Requests),
];

/// Those that newer processors' tables do without.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Syscall] = &[
    of_class(OPEN, libc::SYS_open, Does::Open(1)),
    of_class(OPEN, libc::SYS_creat, Does::Create),
    file(libc::SYS_dup2, 0, Does::DupTo(None)),
    named(libc::SYS_unlink, [NONE, 0, NONE, NONE], Does::Unlink(false)),
    named(libc::SYS_rmdir, [NONE, 0, NONE, NONE], Does::Rmdir),
    named(libc::SYS_rename, [NONE, 0, NONE, 1], Does::Rename(None)),
    named(libc::SYS_renameat, [0, 1, 2, 3], Does::Rename(None)),
    named(libc::SYS_link, [NONE, 0, NONE, 1], Does::Make(Op::Link)),
    named(libc::SYS_symlink, [NONE, 1, NONE, NONE], Does::Make(Op::Symlink)),
    named(libc::SYS_mkdir, [NONE, 0, NONE, NONE], Does::Make(Op::Mkdir)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Syscall] = &[named(libc::SYS_renameat, [0, 1, 2, 3], Does::Rename(None))];

fn all() -> impl Iterator<Item = &'static Syscall> {
    COMMON.iter().chain(OLDER)
}

/// Writes and syncs of i386, which are counted: write, fsync, writev, fdatasync, pwrite64, sendfile,
/// sendfile64, splice, pwritev, copy_file_range, pwritev2.
#[cfg(target_arch = "x86_64")]
const COMPAT: &[u32] = &[4, 118, 146, 148, 181, 187, 239, 313, 334, 377, 379];
#[cfg(not(target_arch = "x86_64"))]
const COMPAT: &[u32] = &[];

/// Numbers and rows for the probes.
pub fn rows() -> impl Iterator<Item = (u32, u32)> {
    let compat = |number: u32| if COMPAT.contains(&number) { IS_COMPAT_WRITE } else { 0 };
    let others = COMPAT.iter().filter(|number| does(**number).is_none());
    let rows = all().map(move |call| (call.number as u32, call.row | compat(call.number as u32)));
    rows.chain(others.map(|number| (*number, IS_COMPAT_WRITE)))
}

/// What the system call of this number does.
pub fn does(number: u32) -> Option<Does> {
    all().find(|call| call.number as u32 == number).map(|call| call.does)
}

/// What a record is of that is no system call's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A request of io_uring, complete.
    Uring,
    /// One of libaio that was handed over.
    HandedOver,
    /// One of libaio that is complete.
    Complete,
    /// A store through a mapping.
    Store,
}

/// What a record is of, by its row; None: a system call.
pub fn request(row: u32) -> Option<Request> {
    match row & 15 {
        URING => Some(Request::Uring),
        AIO => Some(Request::HandedOver),
        COMPLETE => Some(Request::Complete),
        STORE => Some(Request::Store),
        _ => None,
    }
}
