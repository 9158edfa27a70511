//! Names that go away, come to another file, or are new. What was behind them is looked up before the call,
//! because afterwards it is gone.

use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::{around, record};
use crate::session;
use crate::state::birth;
use crate::state::directory;
use crate::state::names::{self, Source};
use cawl_wire::{Event, FileId, FileKind, Op};
use core::ffi::{c_char, c_int, c_uint};
use libc::mode_t;

/// What a name leads to. Only regular files have an identity beside their device.
pub struct Named {
    file: FileId,
    mode: u32,
    links: u32,
    length: u64,
}

impl Named {
    fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }

    fn is_file(&self) -> bool {
        self.kind() == FileKind::Regular
    }

    /// Says in an event what it is about.
    pub fn describe(&self, event: &mut Event) {
        event.set_file(self.file);
        event.kind = self.kind();
        event.aux = self.links;
    }
}

/// What is behind a name. Symbolic links are followed if `follow`. The daemon, for whom there is room, is
/// told a file's name, or that the file came to it where the one of `before` was.
#[inline(never)]
fn resolve(directory: c_int, path: *const c_char, follow: bool, before: Option<FileId>) -> Option<Named> {
    let stat = sys::stat_path(directory, path, follow)?;
    let mut found = Named {
        file: FileId::new(stat.st_dev, 0),
        mode: stat.st_mode,
        links: stat.st_nlink,
        length: stat.st_size as u64,
    };
    if !found.is_file() {
        return Some(found);
    }
    found.file = birth::at(directory, path, follow, &stat);
    let source = Source::Named(directory, path);
    match before {
        None => _ = names::tell(found.file, &stat, source),
        Some(before) if before == found.file => {}
        Some(_) => names::tell_renamed(found.file, &stat, source),
    }
    Some(found)
}

/// What is behind a name that is about to go, asked before the call.
pub fn behind(directory: c_int, path: *const c_char, follow: bool) -> Option<Named> {
    let inside = guard::enter()?;
    if session::may_tell_name(&inside) { resolve(directory, path, follow, None) } else { None }
}

/// What came to this name, where the file `before` was.
#[cold]
fn came(directory: c_int, path: *const c_char, before: FileId) -> Option<Named> {
    let found = resolve(directory, path, false, Some(before));
    if !found.as_ref().is_some_and(Named::is_file) {
        // It may be a directory.
        directory::changed();
    }
    found
}

/// The event of a name that went, by what was found behind it.
fn gone(event: &mut Event, found: &Named, returned: c_int) {
    found.describe(event);
    event.aux = event.aux.saturating_sub(u32::from(returned == 0));
    if found.is_file() {
        event.requested = found.length;
        if returned == 0 && event.aux == 0 && found.file.birth == 0 {
            names::forget_file(found.file);
        }
    }
}

/// Makes a call that takes a name away, and records it.
#[inline(always)]
pub fn removing(directory: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
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
        let op = if found.kind() == FileKind::Directory { Op::Rmdir } else { Op::Unlink };
        // It was looked at, so that may be.
        let fill = |event: &mut Event| gone(event, &found, returned);
        record(&inside, op, (start, end), None, i64::from(returned), fill);
    }
}

/// Makes a call that makes a directory or link of this name, or gives a file one more, and records it.
#[inline(always)]
pub fn naming(op: Op, directory: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    around(call, |start, returned| named(op, start, (directory, path), returned))
}

#[inline(never)]
fn named(op: Op, start: u64, (directory, path): (c_int, *const c_char), returned: c_int) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    if !session::is_ours() {
        return;
    }
    session::prepare_name();
    let found = if returned == 0 { resolve(directory, path, false, None) } else { None };
    record(&inside, op, (start, end), None, i64::from(returned), |event| {
        if let Some(found) = &found {
            found.describe(event);
        }
    });
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
    renamed(start, (directory, to), found, returned);
    returned
}

#[inline(never)]
fn renamed(start: u64, (directory, to): (c_int, *const c_char), before: Option<Named>, returned: c_int) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    if !session::is_ours() {
        return;
    }
    let replaced = before.as_ref().filter(|before| before.is_file());
    let file = replaced.map_or(FileId::default(), |replaced| replaced.file);
    session::prepare_name();
    let now = if returned == 0 { came(directory, to, file) } else { None };
    record(&inside, Op::Rename, (start, end), None, i64::from(returned), |event| {
        match (replaced, &now) {
            // Of two names of one file neither goes.
            (Some(replaced), Some(now)) if replaced.file == now.file => now.describe(event),
            (Some(replaced), _) => gone(event, replaced, returned),
            (None, Some(now)) => now.describe(event),
            (None, None) => {}
        }
        if let Some(now) = now.as_ref().filter(|now| now.is_file()) {
            (event.offset, event.buffer) = (now.file.ino, now.file.birth);
        }
    });
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
    if returned == 0
        && let Some(_inside) = guard::enter()
        && session::is_ours()
    {
        session::prepare_name();
        came(to_directory, to, FileId::default());
        if flags & libc::RENAME_EXCHANGE != 0 {
            session::prepare_name();
            came(from_directory, from, FileId::default());
        }
    }
    returned
}

hooks! {
    word fn chdir(path: *const c_char) -> c_int = moving(|| real::chdir(path));

    word fn fchdir(fd: c_int) -> c_int = moving(|| real::fchdir(fd));

    word fn unlink(path: *const c_char) -> c_int = removing(libc::AT_FDCWD, path, || real::unlink(path));

    word fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int =
        removing(directory, path, || real::unlinkat(directory, path, flags));

    word fn remove(path: *const c_char) -> c_int = removing(libc::AT_FDCWD, path, || real::remove(path));

    word fn rmdir(path: *const c_char) -> c_int = removing(libc::AT_FDCWD, path, || real::rmdir(path));

    word fn mkdir(path: *const c_char, mode: mode_t) -> c_int =
        naming(Op::Mkdir, libc::AT_FDCWD, path, || real::mkdir(path, mode));

    word fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int =
        naming(Op::Mkdir, directory, path, || real::mkdirat(directory, path, mode));

    word fn symlink(to: *const c_char, path: *const c_char) -> c_int =
        naming(Op::Symlink, libc::AT_FDCWD, path, || real::symlink(to, path));

    word fn symlinkat(to: *const c_char, directory: c_int, path: *const c_char) -> c_int =
        naming(Op::Symlink, directory, path, || real::symlinkat(to, directory, path));

    word fn link(from: *const c_char, path: *const c_char) -> c_int =
        naming(Op::Link, libc::AT_FDCWD, path, || real::link(from, path));

    word fn linkat(
        from_directory: c_int, from: *const c_char, directory: c_int, path: *const c_char, flags: c_int,
    ) -> c_int {
        let call = || real::linkat(from_directory, from, directory, path, flags);
        naming(Op::Link, directory, path, call)
    }

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
