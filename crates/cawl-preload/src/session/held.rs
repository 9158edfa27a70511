//! Whether this process has a file open, by whatever call or image it came by it.
//!
//! The law of this module: whoever holds a record lock on a file has a descriptor of it, because closing any
//! one releases the lock; but closing one that is for its path only (O_PATH) does not. What cannot be told is
//! taken for open.

use crate::base::sys;
use core::ffi::c_int;

/// Most bytes of names read of /proc/self/fd: some ten thousand descriptors.
const MAX: usize = 1 << 20;
/// Descriptors that are looked at where there is no /proc.
const FIRST: c_int = 256;
/// Where in a `linux_dirent64` its length and its name are.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// In the place of a descriptor: no one who could hold a lock on the file has it open.
pub const NOBODY: c_int = -1;
/// In the place of a descriptor: someone has the file open who cannot read it, or that cannot be told.
pub const UNSEEN: c_int = -2;

/// The descriptor by which this process has a file open, and can read it; [`NOBODY`] or [`UNSEEN`]. `room` is
/// to read into.
#[inline(never)]
pub fn holder(id: &(u64, u64), room: &mut [u8]) -> c_int {
    let mut holder = NOBODY;
    // True if no better one will be found.
    let mut look = |fd: c_int| {
        if leads(fd, id) {
            match way(fd) {
                Way::Read => holder = fd,
                Way::Other => holder = UNSEEN,
                Way::Path => {}
            }
        }
        holder >= 0
    };
    let folder = sys::open_to_read(libc::AT_FDCWD, c"/proc/self/fd".as_ptr()).unwrap_or(-1);
    if folder < 0 {
        (0..FIRST).any(look);
        return holder;
    }
    let mut sum = 0;
    loop {
        let length = sys::entries(folder, room);
        sum += length;
        if length == 0 || descriptors(&room[..length]).any(|fd| fd != folder && look(fd)) {
            break;
        }
        if sum > MAX {
            holder = UNSEEN;
            break;
        }
    }
    sys::close(folder);
    holder
}

/// True if a descriptor leads to the file with this device and inode number.
pub fn leads(fd: c_int, id: &(u64, u64)) -> bool {
    sys::fstat_for(fd, |found| (found.st_dev, found.st_ino) == *id) == Some(true)
}

/// What a descriptor is good for.
pub enum Way {
    /// Its file can be read through it.
    Read,
    /// It is for the path only, or not there any more: it holds no lock.
    Path,
    /// Anything else.
    Other,
}

/// What this descriptor is good for.
#[inline(never)]
pub fn way(fd: c_int) -> Way {
    match c_int::try_from(sys::fcntl(fd, libc::F_GETFL, 0)).unwrap_or(-1) {
        flags if flags < 0 || flags & libc::O_PATH != 0 => Way::Path,
        flags if flags & libc::O_ACCMODE == libc::O_WRONLY => Way::Other,
        _ => Way::Read,
    }
}

/// The numbers among the names of directory entries.
fn descriptors(mut entries: &[u8]) -> impl Iterator<Item = c_int> {
    core::iter::from_fn(move || {
        loop {
            let length = u16::from_ne_bytes(*entries.get(LENGTH_AT..)?.first_chunk()?);
            let name = entries.get(NAME_AT..usize::from(length))?.split(|byte| *byte == 0).next()?;
            entries = entries.get(usize::from(length)..)?;
            if let Some(fd) = sys::decimal(name) {
                return c_int::try_from(fd).ok();
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn every_descriptor_is_found_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let (open, closed) = (dir.path().join("open"), dir.path().join("closed"));
        std::fs::write(&open, "").unwrap();
        std::fs::write(&closed, "").unwrap();
        let file = std::fs::File::open(&open).unwrap();
        let identity = |path| {
            use std::os::unix::fs::MetadataExt;
            let of = std::fs::metadata(path).unwrap();
            (of.dev(), of.ino())
        };
        // Of any length of the room: the kernel gives whole entries only.
        for room in [32, 256, 4096] {
            let held = |path| holder(&identity(path), &mut vec![0; room]);
            assert_eq!(held(&open), file.as_raw_fd(), "{room}");
            assert_eq!(held(&closed), NOBODY, "{room}");
        }
        // SAFETY: a duplicate at a number that nothing else uses.
        let far = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900) };
        drop(file);
        let id = identity(&open);
        assert!(far >= 900 && holder(&id, &mut [0; 256]) == far);
        sys::close(far);
        assert_eq!(holder(&id, &mut [0; 256]), NOBODY);
    }

    #[test]
    fn who_cannot_read_a_file_is_no_way_to_it() {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let writer = std::fs::File::create(&path).unwrap();
        let of = writer.metadata().unwrap();
        let held = || holder(&(of.dev(), of.ino()), &mut [0; 256]);
        assert_eq!(held(), UNSEEN);
        drop(writer);
        let _path = std::fs::File::options().read(true).custom_flags(libc::O_PATH).open(&path).unwrap();
        assert_eq!(held(), NOBODY, "a path holds no locks");
    }
}
