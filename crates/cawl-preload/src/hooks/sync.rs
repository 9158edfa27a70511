//! The calls that make data durable, and the advice to drop them from the cache.

use crate::base::{guard, real};
use crate::hooks::emit::{around, did, happened, mapping};
use crate::session;
use crate::state::mappings;
use crate::tries;
use cawl_wire::Op;
use core::ffi::{c_int, c_uint};
use libc::{off_t, size_t, ssize_t};

/// Records a readahead: it does what the advice to read does.
pub fn advised_to_read(start: u64, fd: c_int, offset: off_t, count: usize, returned: i64) {
    did(Op::Advise, start, fd, returned, |event| {
        (event.offset, event.requested) = (offset as u64, count as u64);
        event.aux = libc::POSIX_FADV_WILLNEED as u32;
    });
}

/// A look at the mappings of a file before it is synced; its device and inode.
#[cold]
fn stores_before(fd: c_int) -> Option<(u64, u64)> {
    let inside = guard::enter().filter(|_| session::active() && session::is_ours())?;
    let file = session::learn(fd)?.identity();
    mapping::sample_synced_file(&inside, file.dev, file.ino);
    Some((file.dev, file.ino))
}

/// An fsync or fdatasync: also what was stored through mappings of the file is durable then.
#[inline(always)]
fn of_file(op: Op, fd: c_int, sync: impl FnOnce() -> c_int) -> c_int {
    if tries::leaves_out_sync(fd) {
        return 0;
    }
    let mapped = if mappings::any() { stores_before(fd) } else { None };
    around(sync, |start, returned| {
        did(op, start, fd, i64::from(returned), |_| {});
        if let Some((dev, ino)) = mapped.filter(|_| returned == 0) {
            mappings::file_synced(dev, ino);
        }
    })
}

hooks! {
    fn fsync(fd: c_int) -> c_int = of_file(Op::Fsync, fd, || real::fsync(fd));

    fn fdatasync(fd: c_int) -> c_int = of_file(Op::Fdatasync, fd, || real::fdatasync(fd));

    word fn sync() -> () = around(|| real::sync(), |start, ()| happened(Op::Sync, start, 0, |_| {}));

    word fn syncfs(fd: c_int) -> c_int = around(
        || real::syncfs(fd),
        |start, returned| did(Op::Syncfs, start, fd, i64::from(returned), |_| {}),
    );

    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int = around(
        || real::sync_file_range(fd, offset, length, flags),
        |start, returned| did(Op::SyncRange, start, fd, i64::from(returned), |event| {
            event.offset = offset as u64;
            event.requested = length as u64;
            event.aux = flags;
        }),
    );

    word fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t = around(
        || real::readahead(fd, offset, count),
        |start, returned| advised_to_read(start, fd, offset, count, returned as i64),
    );

    // Returns the error instead of setting errno.
    fn posix_fadvise, posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
        around(
            || next(fd, offset, length, advice),
            |start, failure| did(Op::Advise, start, fd, if failure == 0 { 0 } else { -1 }, |event| {
                event.offset = offset as u64;
                event.requested = length as u64;
                event.aux = advice as u32;
                event.errno = failure as u16;
            }),
        )
    }
}
