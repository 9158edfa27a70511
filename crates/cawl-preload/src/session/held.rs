//! Whether this process has a file open, by whatever call or image it came by it.
//!
//! The law of this module: whoever holds a record lock on a file has a descriptor of it, because closing any
//! one releases the lock. What cannot be told is taken for open.

use crate::base::sys;
use core::ffi::c_int;

/// Most bytes of names read of /proc/self/fd: some thousand descriptors.
const MOST: usize = 256 << 10;
/// Descriptors that are looked at where there is no /proc.
const FIRST: c_int = 256;
/// Where in a `linux_dirent64` its length and its name are.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// True if a descriptor of this process may lead to the file. `room` is to read into.
#[inline(never)]
pub fn may_be_open(dev: u64, ino: u64, room: &mut [u8]) -> bool {
    let leads = |fd: c_int| sys::identity(fd) == Some((dev, ino));
    let Some(folder) = sys::open_to_read(libc::AT_FDCWD, c"/proc/self/fd".as_ptr()) else {
        return (0..FIRST).any(leads);
    };
    let (mut found, mut sum) = (false, 0);
    while !found {
        let length = sys::entries(folder, room);
        sum += length;
        if length == 0 {
            break;
        }
        found = sum > MOST || descriptors(&room[..length]).any(|fd| fd != folder && leads(fd));
    }
    sys::close(folder);
    found
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
            let may = |path| {
                let (dev, ino) = identity(path);
                may_be_open(dev, ino, &mut vec![0; room])
            };
            assert!(may(&open), "{room}");
            assert!(!may(&closed), "{room}");
        }
        // SAFETY: a duplicate at a number that nothing else uses.
        let far = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900) };
        drop(file);
        let (dev, ino) = identity(&open);
        assert!(far >= 900 && may_be_open(dev, ino, &mut [0; 256]));
        sys::close(far);
        assert!(!may_be_open(dev, ino, &mut [0; 256]));
    }
}
