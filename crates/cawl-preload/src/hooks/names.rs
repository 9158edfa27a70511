//! Names that go away. What was behind them is looked up before the call, because afterwards it is gone.

use crate::record::happened;
use crate::sys::Stat;
use crate::{announce, guard, real, sys, uplink};
use cawl_wire::{FileKind, Op};
use core::ffi::{c_char, c_int, c_uint};

/// The regular file behind a name, before the name goes; and the daemon knows it by its name.
///
/// # Safety
/// `path` must be what the program passed as a path.
unsafe fn behind(directory: c_int, path: *const c_char) -> Option<Stat> {
    let _inside = guard::enter()?;
    if !uplink::is_ours() {
        return None;
    }
    uplink::prepare();
    // SAFETY: the caller's promise.
    unsafe {
        let stat = sys::stat_path(directory, path, false)?;
        if FileKind::from_mode(stat.st_mode) != FileKind::Regular {
            return None;
        }
        announce::named_file(&stat, directory, path);
        Some(stat)
    }
}

fn gone(op: Op, start: u64, stat: Option<Stat>, returned: c_int) {
    happened(op, start, i64::from(returned), |event| {
        if let Some(stat) = stat {
            event.dev = stat.st_dev;
            event.ino = stat.st_ino;
            event.kind = FileKind::Regular;
            event.aux = (stat.st_nlink as u32).saturating_sub(u32::from(returned == 0));
        }
    });
}

/// Records a removal, of regular files only.
fn removed(start: u64, stat: Option<Stat>, returned: c_int) {
    match stat {
        Some(_) => gone(Op::Unlink, start, stat, returned),
        // Not looked at, or nothing to be told: only the former is counted.
        None => drop(guard::enter_or_count()),
    }
}

macro_rules! rename_body {
    ($directory:expr, $to:ident, $call:expr) => {{
        if !uplink::active() {
            return $call;
        }
        let stat = behind($directory, $to);
        let start = sys::now();
        let returned = $call;
        gone(Op::Rename, start, stat, returned);
        returned
    }};
}

hooks! {
    fn unlink(path: *const c_char) -> c_int {
        if !uplink::active() {
            return real::unlink(path);
        }
        let stat = behind(libc::AT_FDCWD, path);
        let start = sys::now();
        let returned = real::unlink(path);
        removed(start, stat, returned);
        returned
    }

    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        if !uplink::active() || flags & libc::AT_REMOVEDIR != 0 {
            return real::unlinkat(directory, path, flags);
        }
        let stat = behind(directory, path);
        let start = sys::now();
        let returned = real::unlinkat(directory, path, flags);
        removed(start, stat, returned);
        returned
    }

    fn remove(path: *const c_char) -> c_int {
        if !uplink::active() {
            return real::remove(path);
        }
        let stat = behind(libc::AT_FDCWD, path);
        let start = sys::now();
        let returned = real::remove(path);
        removed(start, stat, returned);
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
        if flags != 0 && flags != libc::RENAME_NOREPLACE {
            // An exchange, or a whiteout: nothing is replaced for good.
            return real::renameat2(from_directory, from, to_directory, to, flags);
        }
        rename_body!(to_directory, to, real::renameat2(from_directory, from, to_directory, to, flags))
    }
}
