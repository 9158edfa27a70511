//! What tells apart the files that had an inode number one after another.
//!
//! The law of this module: **one rule, whether a file is looked at by descriptor or by name, in every
//! process.** A filesystem gives the number of a deleted file out again, with another generation. The
//! generation is in the file's handle (`name_to_handle_at`), which is made without opening the file: closing
//! a descriptor of our own would release the program's record locks. Where there are no handles the time of
//! birth has to do.
//!
//! What a descriptor told is kept by device, inode number and time of birth, so that a file is not asked
//! again when its name goes.

use crate::base::sys::{self, Stat};
use cawl_wire::{FileId, FileKind};
use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Longest handle (`MAX_HANDLE_SZ`), in words.
const WORDS: usize = 32;

/// `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    words: [u32; WORDS],
}

/// Births remembered. A word each: the lower half of the key's hash, and the birth.
const KNOWN: usize = 1 << 16;
static KNOWN_BIRTHS: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];

/// Which file an open descriptor leads to.
#[cold]
pub fn of(fd: c_int, stat: &Stat) -> FileId {
    let file = find(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, stat);
    remember(&file, stat);
    file
}

/// Which file a descriptor leads to that was opened by this name, if the name leads there without a symbolic
/// link at its end.
#[cold]
pub fn of_name(directory: c_int, path: *const c_char, stat: &Stat) -> Option<FileId> {
    if FileKind::from_mode(stat.st_mode) != FileKind::Regular || stat.mount == 0 {
        return None;
    }
    let (birth, mount) = generation(directory, path, 0, stat.st_ino)?;
    // Another mount's file may have the number, too.
    let file = FileId { dev: stat.st_dev, ino: stat.st_ino, birth };
    (mount == stat.mount).then(|| {
        remember(&file, stat);
        file
    })
}

/// Which file a name leads to; symbolic links are followed if `follow`.
#[cold]
pub fn at(directory: c_int, path: *const c_char, follow: bool, stat: &Stat) -> FileId {
    if let Some(birth) = remembered(stat) {
        return FileId { dev: stat.st_dev, ino: stat.st_ino, birth };
    }
    find(directory, path, if follow { libc::AT_SYMLINK_FOLLOW } else { 0 }, stat)
}

fn find(directory: c_int, path: *const c_char, flags: c_int, stat: &Stat) -> FileId {
    let birth = if FileKind::from_mode(stat.st_mode) != FileKind::Regular {
        0
    } else {
        let found = generation(directory, path, flags, stat.st_ino);
        found.map(|(birth, _)| birth).or_else(|| time(stat)).unwrap_or(0)
    };
    FileId { dev: stat.st_dev, ino: stat.st_ino, birth }
}

/// An index for a file in a table: files that are made one after another lie side by side.
pub fn neighbours(dev: u64, ino: u64) -> usize {
    ino.wrapping_add(dev.wrapping_mul(0x9E37_79B9_7F4A_7C15)) as usize
}

/// The place of a file's birth, and what stands there in the upper half.
fn place(stat: &Stat) -> Option<(&'static AtomicU64, u64)> {
    let (seconds, nanos) = stat.born;
    if stat.born == (0, 0) {
        return None;
    }
    let words = [stat.st_dev, stat.st_ino, seconds as u64, u64::from(nanos)];
    let step = |mixed: u64, word: &u64| (mixed ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let hash = words.iter().fold(0, step);
    Some((&KNOWN_BIRTHS[neighbours(stat.st_dev, stat.st_ino) % KNOWN], hash << 32))
}

fn remember(file: &FileId, stat: &Stat) {
    if let Some((place, key)) = place(stat) {
        place.store(key | u64::from(file.birth), Relaxed);
    }
}

fn remembered(stat: &Stat) -> Option<u32> {
    let (place, key) = place(stat)?;
    let word = place.load(Relaxed);
    (word >> 32 == key >> 32 && word as u32 != 0).then_some(word as u32)
}

/// By the handle; and the number of the mount. One that has not the inode's number in it is not made from the
/// inode, and may change while the file lives (FUSE).
#[inline(never)]
fn generation(directory: c_int, path: *const c_char, flags: c_int, ino: u64) -> Option<(u32, u32)> {
    let mut handle = MaybeUninit::<Handle>::uninit();
    let mut mount = 0u32;
    // SAFETY: the kernel checks `path` itself; the others are places for the results. It fills `bytes` bytes,
    // of which some at the end may be missing from the last word.
    let words = unsafe {
        (&raw mut (*handle.as_mut_ptr()).bytes).write(size_of::<[u32; WORDS]>() as u32);
        let places = [handle.as_mut_ptr() as usize, &raw mut mount as usize];
        let arguments = [directory as usize, path as usize, places[0], places[1], flags as usize];
        if sys::call(libc::SYS_name_to_handle_at, arguments) != 0 {
            return None;
        }
        let bytes = (*handle.as_ptr()).bytes as usize;
        slice::from_raw_parts((&raw const (*handle.as_ptr()).words).cast::<u32>(), (bytes / 4).min(WORDS))
    };
    words.contains(&(ino as u32)).then(|| (FileId::birth_of(words), mount))
}

/// By the time of birth. The filesystem's clock ticks every few ms, so two files may share it.
fn time(stat: &Stat) -> Option<u32> {
    let (seconds, nanos) = stat.born;
    (stat.born != (0, 0)).then(|| FileId::birth_of(&[seconds as u32, (seconds >> 32) as u32, nanos]))
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
            let named = [true, false].map(|follow| at(libc::AT_FDCWD, text.as_ptr(), follow, &stat));
            assert_eq!(named, [found, found]);
            let of_name = of_name(libc::AT_FDCWD, text.as_ptr(), &stat);
            assert!(of_name.is_none_or(|file| file == found), "{of_name:?}, not {found:?}");
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
