//! What the file actions of posix_spawn do to the path of the program: the child is in another directory
//! then, or has other files at its descriptors.
//!
//! The law of this module: nothing is opened, and no action is done. A path in the child is put together from
//! the directories that it goes through: for the kernel that is the same path. The list is the C library's,
//! of one layout since 2.29 (before, with fewer kinds), and read without trust; where it makes no sense,
//! nothing is known of the program.

use crate::base::memory;
use crate::base::settings::Text;
use crate::base::sys::decimal;
use core::ffi::{CStr, c_char, c_int, c_void};

/// Kinds of actions (glibc, posix/spawn_int.h).
const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
const CLOSE_FROM: c_int = 5;
/// tcsetpgrp: nothing here.
const TERMINAL: c_int = 6;

/// Most actions that are looked at.
const MAX: c_int = 1024;

/// The beginning of a `posix_spawn_file_actions_t`.
#[repr(C)]
struct List {
    allocated: c_int,
    used: c_int,
    actions: *const Action,
}

#[repr(C)]
struct Action {
    kind: c_int,
    padding: c_int,
    /// A path; or a descriptor in the lower half, and for dup2 the new one in the upper half.
    first: u64,
    rest: [u64; 2],
}

/// The actions of a posix_spawn.
pub struct Actions {
    list: *const Action,
    used: c_int,
}

impl Actions {
    /// Those that it was given, maybe none (null). None if they cannot be read.
    pub fn of(actions: *const c_void) -> Option<Actions> {
        if actions.is_null() {
            return Some(Actions { list: core::ptr::null(), used: 0 });
        }
        // SAFETY: any bytes are a valid list; what it leads to is read without trust.
        let list: List = unsafe { memory::value(actions.cast()) }?;
        (0..=MAX).contains(&list.used).then_some(Actions { list: list.actions, used: list.used })
    }

    /// Of one action the kind, a descriptor, and a path or a second descriptor; none that cannot be read.
    fn get(&self, at: c_int) -> Option<(c_int, u64)> {
        // SAFETY: any bytes are a valid action.
        let action = unsafe { memory::value(self.list.wrapping_add(at as usize)) }?;
        Some((action.kind, action.first))
    }

    /// True if one of the actions before this place may put something else at a descriptor.
    fn touches(&self, fd: c_int, before: c_int) -> bool {
        (0..before).any(|at| match self.get(at) {
            Some((CLOSE | OPEN, first)) => first as c_int == fd,
            Some((DUP2, first)) => (first >> 32) as c_int == fd,
            Some((CLOSE_FROM, first)) => fd >= first as c_int,
            Some((CHDIR | FCHDIR | TERMINAL, _)) => false,
            _ => true,
        })
    }

    /// Where a relative path begins in the child: a directory of the parent's, and so many bytes of a path
    /// from there in `out`, with a slash at their end. None if that cannot be told.
    #[inline(never)]
    pub fn beginning(&self, out: &mut [u8]) -> Option<(c_int, usize)> {
        let (mut directory, mut length) = (libc::AT_FDCWD, 0);
        for at in 0..self.used {
            match self.get(at)? {
                (CHDIR, path) => {
                    let path = path as *const c_char;
                    if !memory::is_text(path) {
                        return None;
                    }
                    // SAFETY: it can be read.
                    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
                    if path.starts_with(b"/") {
                        length = 0;
                    }
                    let mut text = Text::new(out.get_mut(length..)?);
                    text.add(path)?;
                    text.add(b"/")?;
                    length += path.len() + 1;
                    if !self.is_parent_s(out.get(..length)?) {
                        return None;
                    }
                }
                (FCHDIR, fd) => {
                    (directory, length) = (fd as c_int, 0);
                    if self.touches(directory, at) {
                        return None;
                    }
                }
                (CLOSE | DUP2 | OPEN | CLOSE_FROM | TERMINAL, _) => {}
                _ => return None,
            }
        }
        Some((directory, length))
    }

    /// True if a path is the same in the parent: it does not lead through what is each process's own, a
    /// descriptor that these actions change or the working directory.
    #[inline(never)]
    pub fn is_parent_s(&self, path: &[u8]) -> bool {
        if self.used == 0 || !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/") {
            return true;
        }
        let number = path.strip_prefix(b"/dev/fd/").or(path.strip_prefix(b"/proc/self/fd/"));
        match number.and_then(decimal).and_then(|fd| c_int::try_from(fd).ok()) {
            Some(fd) => !self.touches(fd, self.used),
            None => path == b"/proc/self/exe",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(kind: c_int, first: u64) -> Action {
        Action { kind, padding: 0, first, rest: [0; 2] }
    }

    fn begins(actions: &[Action]) -> Option<(c_int, String)> {
        let list = List { allocated: 0, used: actions.len() as c_int, actions: actions.as_ptr() };
        let mut out = [0; 32];
        let actions = Actions::of((&raw const list).cast()).unwrap();
        let (directory, length) = actions.beginning(&mut out)?;
        Some((directory, String::from_utf8(out[..length].to_vec()).unwrap()))
    }

    #[test]
    fn a_path_begins_where_the_actions_lead() {
        let to = |path: &'static CStr| action(CHDIR, path.as_ptr() as u64);
        let at = |directory, path: &str| Some((directory, path.to_owned()));
        assert_eq!(begins(&[]), at(libc::AT_FDCWD, ""));
        assert_eq!(begins(&[action(DUP2, 1 << 32 | 5)]), at(libc::AT_FDCWD, ""));
        assert_eq!(begins(&[to(c"a"), to(c"../b")]), at(libc::AT_FDCWD, "a/../b/"));
        assert_eq!(begins(&[to(c"a"), to(c"/b"), to(c"c")]), at(libc::AT_FDCWD, "/b/c/"));
        assert_eq!(begins(&[to(c"a"), action(FCHDIR, 7), to(c"c")]), at(7, "c/"));
        // The descriptor is another one in the child.
        assert_eq!(begins(&[action(DUP2, 7 << 32 | 3), action(FCHDIR, 7)]), None);
        assert_eq!(begins(&[action(CLOSE_FROM, 3), action(FCHDIR, 7)]), None);
        assert_eq!(begins(&[action(FCHDIR, 7), action(DUP2, 7 << 32 | 3)]), at(7, ""));
        assert_eq!(begins(&[to(c"/proc/self/cwd")]), None);
        assert_eq!(begins(&[to(c"longer than the place that there is for it")]), None);
        assert_eq!(begins(&[action(CHDIR, 8)]), None, "no text");
        assert_eq!(begins(&[action(7, 0)]), None, "not a kind that is known");
    }

    #[test]
    fn descriptors_that_are_changed_are_not_the_parents() {
        let actions = [action(OPEN, 60), action(DUP2, 61 << 32 | 3)];
        let list = List { allocated: 0, used: 2, actions: actions.as_ptr() };
        let actions = Actions::of((&raw const list).cast()).unwrap();
        for (path, same) in [
            ("/bin/sh", true),
            ("/proc/self/exe", true),
            ("/dev/fd/60", false),
            ("/proc/self/fd/61", false),
            ("/dev/fd/3", true),
            ("/proc/thread-self/fd/3", false),
            ("/proc/self/cwd/x", false),
        ] {
            assert_eq!(actions.is_parent_s(path.as_bytes()), same, "{path}");
        }
        assert!(Actions::of(core::ptr::null()).unwrap().is_parent_s(b"/dev/fd/60"));
        assert!(Actions::of(8 as *const c_void).is_none());
    }

    /// What the C library makes is what is read.
    #[test]
    fn the_layout_is_the_c_library_s() {
        // SAFETY: a list of the test's own, by its functions; the paths are strings.
        unsafe {
            let mut list = core::mem::zeroed();
            libc::posix_spawn_file_actions_init(&mut list);
            libc::posix_spawn_file_actions_addclose(&mut list, 4);
            libc::posix_spawn_file_actions_adddup2(&mut list, 5, 6);
            libc::posix_spawn_file_actions_addopen(&mut list, 8, c"/x".as_ptr(), 0, 0);
            let actions = Actions::of((&raw const list).cast()).unwrap();
            let touched: Vec<c_int> = (0..10).filter(|fd| actions.touches(*fd, 3)).collect();
            assert_eq!((actions.used, touched), (3, vec![4, 6, 8]));
            libc::posix_spawn_file_actions_destroy(&mut list);
        }
    }
}
