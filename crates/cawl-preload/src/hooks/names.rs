//! Names that go away, or come to another file. What was behind them is looked up before the call, because afterwards it
//! is gone.

use crate::base::sys::Stat;
use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::happened;
use crate::session;
use crate::state::{birth, names};
use cawl_wire::{FileId, FileKind, Op};
use core::ffi::{c_char, c_int, c_uint};

/// A regular file that a name leads to.
struct Named {
    file: FileId,
    stat: Stat,
}

/// The regular file behind a name.
///
/// # Safety
/// `path` must be what the program passed as a path.
#[inline(never)]
unsafe fn look(directory: c_int, path: *const c_char) -> Option<Named> {
    // SAFETY: the caller's promise.
    unsafe {
        let stat = sys::stat_path(directory, path, false)?;
        let is_regular = FileKind::from_mode(stat.st_mode) == FileKind::Regular;
        is_regular.then(|| Named { file: birth::at(directory, path, false, &stat), stat })
    }
}

/// The regular file behind a name, before the name goes; and the daemon knows it by its name.
///
/// # Safety
/// `path` must be what the program passed as a path.
unsafe fn behind(directory: c_int, path: *const c_char) -> Option<Named> {
    let _inside = guard::enter()?;
    if !session::is_ours() {
        return None;
    }
    session::prepare();
    // SAFETY: the caller's promise.
    unsafe {
        let found = look(directory, path)?;
        names::named_file(found.file, &found.stat, directory, path);
        Some(found)
    }
}

/// A file came to this name, behind which there was `before`. Whoever knows the file learns its new name.
///
/// # Safety
/// `path` must be what the program passed as a path, in a call that succeeded.
#[cold]
unsafe fn came(directory: c_int, path: *const c_char, before: Option<FileId>) {
    let Some(_inside) = guard::enter() else { return };
    if !session::is_ours() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        // Of two names of one file neither goes.
        if let Some(found) = look(directory, path).filter(|found| before != Some(found.file)) {
            names::renamed_file(found.file, &found.stat, directory, path);
        }
    }
}

fn gone(op: Op, start: u64, found: Option<&Named>, returned: c_int) {
    happened(op, start, i64::from(returned), |event| {
        if let Some(Named { file, stat }) = found {
            event.set_file(*file);
            event.kind = FileKind::Regular;
            event.aux = (stat.st_nlink as u32).saturating_sub(u32::from(returned == 0));
            if returned == 0 && event.aux == 0 && file.birth == 0 {
                names::forget_file(*file);
            }
        }
    });
}

/// Records a removal, of regular files only.
fn removed(start: u64, found: Option<Named>, returned: c_int) {
    match found {
        Some(found) => gone(Op::Unlink, start, Some(&found), returned),
        // Not looked at, or nothing to be told: only the former is counted.
        None => drop(guard::enter_or_count()),
    }
}

macro_rules! rename_body {
    ($directory:expr, $to:ident, $call:expr) => {{
        if !session::active() {
            return $call;
        }
        let found = behind($directory, $to);
        let start = clock::now();
        let returned = $call;
        gone(Op::Rename, start, found.as_ref(), returned);
        if returned == 0 {
            came($directory, $to, found.map(|found| found.file));
        }
        returned
    }};
}

hooks! {
    fn unlink(path: *const c_char) -> c_int {
        if !session::active() {
            return real::unlink(path);
        }
        let found = behind(libc::AT_FDCWD, path);
        let start = clock::now();
        let returned = real::unlink(path);
        removed(start, found, returned);
        returned
    }

    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        if !session::active() || flags & libc::AT_REMOVEDIR != 0 {
            return real::unlinkat(directory, path, flags);
        }
        let found = behind(directory, path);
        let start = clock::now();
        let returned = real::unlinkat(directory, path, flags);
        removed(start, found, returned);
        returned
    }

    fn remove(path: *const c_char) -> c_int {
        if !session::active() {
            return real::remove(path);
        }
        let found = behind(libc::AT_FDCWD, path);
        let start = clock::now();
        let returned = real::remove(path);
        removed(start, found, returned);
        returned
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        rename_body!(libc::AT_FDCWD, to, real::rename(from, to))
    }

    fn renameat(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char,
    ) -> c_int {
        rename_body!(to_directory, to, real::renameat(from_directory, from, to_directory, to))
    }

    fn renameat2(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int {
        if session::active() && flags != 0 && flags != libc::RENAME_NOREPLACE {
            // An exchange, or a whiteout: nothing is replaced for good.
            let returned = real::renameat2(from_directory, from, to_directory, to, flags);
            if returned == 0 {
                came(to_directory, to, None);
                if flags & libc::RENAME_EXCHANGE != 0 {
                    came(from_directory, from, None);
                }
            }
            return returned;
        }
        rename_body!(to_directory, to, real::renameat2(from_directory, from, to_directory, to, flags))
    }
}
