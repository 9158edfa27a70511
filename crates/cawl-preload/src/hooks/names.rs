//! Names that go away, or come to another file. What was behind them is looked up before the call, because
//! afterwards it is gone.

use crate::base::sys::Stat;
use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::{happened, record};
use crate::session;
use crate::state::birth;
use crate::state::directory;
use crate::state::names::{self, Source};
use cawl_wire::{Event, FileId, FileKind, Op};
use core::ffi::{c_char, c_int, c_uint};

/// A regular file that a name leads to.
pub struct Named {
    file: FileId,
    stat: Stat,
}

impl Named {
    /// Says in an event which file it is about.
    pub fn describe(&self, event: &mut Event) {
        event.set_file(self.file);
        event.kind = FileKind::Regular;
    }
}

/// The regular file behind a name; symbolic links are followed if `follow`.
#[inline(never)]
fn look(directory: c_int, path: *const c_char, follow: bool) -> Option<Named> {
    let stat = sys::stat_path(directory, path, follow)?;
    let is_regular = FileKind::from_mode(stat.st_mode) == FileKind::Regular;
    is_regular.then(|| Named { file: birth::at(directory, path, follow, &stat), stat })
}

/// The regular file behind a name that is about to go, asked before the call; the daemon is told its name.
pub fn behind(directory: c_int, path: *const c_char, follow: bool) -> Option<Named> {
    let inside = guard::enter()?;
    if !session::may_tell_name(&inside) {
        return None;
    }
    let found = look(directory, path, follow)?;
    names::tell(found.file, &found.stat, Source::Named(directory, path));
    Some(found)
}

/// A file came to this name, where `before` was. The daemon is told the new name of a file that it knows.
#[cold]
fn came(directory: c_int, path: *const c_char, before: Option<FileId>) {
    let Some(_inside) = guard::enter() else { return };
    if !session::is_ours() {
        return;
    }
    match look(directory, path, false) {
        // Of two names of one file neither goes.
        Some(found) if before == Some(found.file) => {}
        Some(found) => {
            session::prepare_name();
            names::tell_renamed(found.file, &found.stat, Source::Named(directory, path));
        }
        // It may be a directory.
        None => directory::changed(),
    }
}

/// The event of a name that went, by what was found behind it.
fn gone(event: &mut Event, found: &Named, returned: c_int) {
    let Named { file, stat } = found;
    found.describe(event);
    event.aux = stat.st_nlink.saturating_sub(u32::from(returned == 0));
    if returned == 0 && event.aux == 0 && file.birth == 0 {
        names::forget_file(*file);
    }
}

/// Makes a call that takes a name away, and records it for a regular file.
#[inline(always)]
pub fn removing(directory: c_int, path: *const c_char, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() || flags & libc::AT_REMOVEDIR != 0 {
        return call();
    }
    let found = behind(directory, path, false);
    let start = clock::now();
    let returned = call();
    removed(start, found, returned);
    returned
}

fn removed(start: u64, found: Option<Named>, returned: c_int) {
    let end = clock::now();
    // Not looked at, or nothing to be told: only the former is counted.
    let Some(inside) = guard::enter_or_count() else { return };
    if let Some(found) = found {
        // It was looked at, so that may be.
        let fill = |event: &mut Event| gone(event, &found, returned);
        record(&inside, Op::Unlink, (start, end), None, i64::from(returned), fill);
    }
}

/// Makes a call that changes the working directory.
#[inline(always)]
pub fn moving(call: impl FnOnce() -> c_int) -> c_int {
    let returned = call();
    directory::changed();
    returned
}

/// Makes a call that brings a file to the name `to`, and records it.
#[inline(always)]
pub fn renaming(directory: c_int, to: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    let found = behind(directory, to, false);
    let start = clock::now();
    let returned = call();
    happened(Op::Rename, start, i64::from(returned), |event| {
        if let Some(found) = &found {
            gone(event, found, returned);
        }
    });
    if returned == 0 {
        came(directory, to, found.map(|found| found.file));
    }
    returned
}

/// Makes a call like renameat2, and records it.
#[inline(always)]
pub fn renaming_with_flags(
    (from_directory, from): (c_int, *const c_char),
    (to_directory, to): (c_int, *const c_char),
    flags: c_uint,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !session::active() || flags == 0 || flags == libc::RENAME_NOREPLACE {
        return renaming(to_directory, to, call);
    }
    // An exchange, or a whiteout: nothing is replaced for good.
    let returned = call();
    if returned == 0 {
        came(to_directory, to, None);
        if flags & libc::RENAME_EXCHANGE != 0 {
            came(from_directory, from, None);
        }
    }
    returned
}

hooks! {
    word fn chdir(path: *const c_char) -> c_int = moving(|| real::chdir(path));

    word fn fchdir(fd: c_int) -> c_int = moving(|| real::fchdir(fd));

    word fn unlink(path: *const c_char) -> c_int = removing(libc::AT_FDCWD, path, 0, || real::unlink(path));

    word fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int =
        removing(directory, path, flags, || real::unlinkat(directory, path, flags));

    word fn remove(path: *const c_char) -> c_int = removing(libc::AT_FDCWD, path, 0, || real::remove(path));

    word fn rename(from: *const c_char, to: *const c_char) -> c_int =
        renaming(libc::AT_FDCWD, to, || real::rename(from, to));

    word fn renameat(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char,
    ) -> c_int = renaming(to_directory, to, || real::renameat(from_directory, from, to_directory, to));

    word fn renameat2(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int {
        let call = || real::renameat2(from_directory, from, to_directory, to, flags);
        renaming_with_flags((from_directory, from), (to_directory, to), flags, call)
    }
}
