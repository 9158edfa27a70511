//! What tells apart the files that had an inode number one after another.
//!
//! The law of this module: **one rule, whether a file is looked at by descriptor or by name, in every process.** A
//! filesystem gives the number of a deleted file out again, with another generation. The generation is in the file's
//! handle (`name_to_handle_at`), which is made without opening the file: closing a descriptor of our own would
//! release the program's record locks. Where there are no handles the time of birth has to do.

use crate::base::sys::{self, Stat};
use cawl_wire::{FileId, FileKind};
use core::ffi::{c_char, c_int};

/// Longest handle (`MAX_HANDLE_SZ`), in words.
const WORDS: usize = 32;

/// `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    words: [u32; WORDS],
}

/// Which file an open descriptor leads to.
#[cold]
pub fn of(fd: c_int, stat: &Stat) -> FileId {
    // SAFETY: an empty path is a string.
    unsafe { find(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, stat) }
}

/// Which file a name leads to; symbolic links are followed if `follow`.
///
/// # Safety
/// `path` must be what the program passed to a function that takes a path.
#[cold]
pub unsafe fn at(directory: c_int, path: *const c_char, follow: bool, stat: &Stat) -> FileId {
    // SAFETY: the caller's promise.
    unsafe { find(directory, path, if follow { libc::AT_SYMLINK_FOLLOW } else { 0 }, stat) }
}

/// # Safety
/// `path` must be a string, or what the program passed as a path.
unsafe fn find(directory: c_int, path: *const c_char, flags: c_int, stat: &Stat) -> FileId {
    let birth = if FileKind::from_mode(stat.st_mode) != FileKind::Regular {
        0
    } else {
        // SAFETY: the caller's promise.
        let found = unsafe { generation(directory, path, flags, stat.st_ino) };
        // SAFETY: as above.
        found.or_else(|| unsafe { time(directory, path, flags) }).unwrap_or(0)
    };
    FileId { dev: stat.st_dev, ino: stat.st_ino, birth }
}

/// By the handle. One that has not the inode's number in it is not made from the inode, and may change while the file
/// lives (FUSE).
///
/// # Safety
/// As [`find`].
#[inline(never)]
unsafe fn generation(directory: c_int, path: *const c_char, flags: c_int, ino: u64) -> Option<u32> {
    let mut handle = Handle { bytes: size_of::<[u32; WORDS]>() as u32, kind: 0, words: [0; WORDS] };
    let mut mount = 0u64;
    // SAFETY: the kernel checks `path` itself; the others are places for the results.
    let done = unsafe {
        let places = [&raw mut handle as usize, &raw mut mount as usize];
        let arguments = [directory as usize, path as usize, places[0], places[1], flags as usize, 0];
        sys::call(libc::SYS_name_to_handle_at, arguments)
    };
    let words = handle.words.get(..handle.bytes.div_ceil(4) as usize)?;
    (done == 0 && words.contains(&(ino as u32))).then(|| mix(words))
}

/// By the time of birth. The filesystem's clock ticks every few ms, so two files may share it.
///
/// # Safety
/// As [`find`].
#[inline(never)]
unsafe fn time(directory: c_int, path: *const c_char, flags: c_int) -> Option<u32> {
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    let flags = flags & libc::AT_EMPTY_PATH | if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: all zero bytes are a valid statx.
    let mut found: libc::statx = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel checks `path` itself; `found` is a place for the result.
    let done = unsafe {
        let (wanted, place) = (libc::STATX_BTIME as usize, &raw mut found as usize);
        sys::call(libc::SYS_statx, [directory as usize, path as usize, flags as usize, wanted, place, 0])
    };
    let born = found.stx_btime;
    let known = done == 0 && found.stx_mask & libc::STATX_BTIME != 0;
    known.then(|| mix(&[born.tv_sec as u32, (born.tv_sec >> 32) as u32, born.tv_nsec]))
}

/// A number made of all of these, never 0.
fn mix(words: &[u32]) -> u32 {
    let step = |mixed: u64, word: &u32| {
        (mixed ^ u64::from(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    };
    let mixed = words.iter().fold(words.len() as u64, step);
    ((mixed >> 32) as u32 ^ mixed as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_file_is_the_same_by_descriptor_and_by_name_and_its_successor_is_another() {
        let folder = std::env::temp_dir().join(format!("cawl-birth-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mut met = Vec::new();
        for name in ["a", "b", "c"] {
            let path = folder.join(name);
            let file = File::create(&path).unwrap();
            let stat = sys::fstat(file.as_raw_fd()).unwrap();
            let found = of(file.as_raw_fd(), &stat);
            let text = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: a string.
            let named =
                unsafe { [true, false].map(|follow| at(libc::AT_FDCWD, text.as_ptr(), follow, &stat)) };
            assert_eq!(named, [found, found]);
            // SAFETY: as above.
            let times = unsafe {
                [time(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH), time(-1, text.as_ptr(), 0)]
            };
            assert_eq!(times[0], times[1]);
            if found.birth == 0 {
                eprintln!("SKIPPED: the filesystem of {} tells no births", folder.display());
            } else {
                assert!(!met.contains(&found), "{found:?} again");
            }
            met.push(found);
            fs::remove_file(path).unwrap();
        }
        fs::remove_dir(folder).unwrap();
    }
}
