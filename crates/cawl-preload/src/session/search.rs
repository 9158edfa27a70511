//! Where the program is that a function would start: by its name, and after file actions.

use crate::base::memory;
use crate::base::settings::{Text, strings};
use crate::session::actions::Actions;
use crate::session::opened::is_program;
use core::ffi::{CStr, c_char, c_int, c_void};

/// Longest path that is put together.
const PATH: usize = 1024;

/// Room for the path of a program that was searched for.
pub type Found = [u8; PATH];

/// Puts paths of the child's together.
struct Paths<'a> {
    actions: Option<Actions>,
    /// Where a relative path begins: a directory, and what comes before it. None if that is not known.
    beginning: Option<(c_int, &'a [u8])>,
    found: &'a mut Found,
}

impl Paths<'_> {
    /// The directory for a path of these two parts, which is put into the room. None if it cannot be told.
    fn put(&mut self, folder: &[u8], name: &[u8]) -> Option<c_int> {
        let is_absolute = folder.first().or(name.first()) == Some(&b'/');
        let (directory, before) = if is_absolute { (libc::AT_FDCWD, &b""[..]) } else { self.beginning? };
        let mut text = Text::new(self.found);
        for part in [before, folder, if folder.is_empty() { b"" } else { b"/" }, name] {
            text.add(part)?;
        }
        if !is_parent_s(self.actions.as_ref(), text.bytes()) {
            return None;
        }
        text.add(b"\0")?;
        Some(directory)
    }
}

/// True if a path is the same in the parent; None are actions that cannot be read.
fn is_parent_s(actions: Option<&Actions>, path: &[u8]) -> bool {
    match actions {
        Some(actions) => actions.is_parent_s(path),
        None => path == b"/proc/self/exe" || !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/"),
    }
}

/// The path of the program that execvp or, after these actions, posix_spawn would start, and the directory in
/// which it begins: of the program as it was given, if it has a slash or is not searched for (`by_name`),
/// else of what is found in the folders of PATH. Null if there is nothing; None if it cannot be told. `found`
/// has the path, if that is another than was given; `scratch` is to write into.
///
/// # Safety
/// `program` must be what the function was given, and `variables` an environment.
#[inline(never)]
pub unsafe fn search(
    (program, by_name): (*const c_char, bool),
    actions: *const c_void,
    variables: *const *const c_char,
    found: &mut Found,
    scratch: &mut [u8],
) -> Option<(c_int, *const c_char)> {
    // A search in the C library's child must not have cost the parent its life.
    if !memory::is_text(program) {
        return Some((libc::AT_FDCWD, core::ptr::null()));
    }
    let actions = Actions::of(actions);
    let beginning = match actions.as_ref().and_then(|actions| actions.beginning(scratch)) {
        Some((directory, length)) => scratch.get(..length).map(|before| (directory, before)),
        None => None,
    };
    let mut paths = Paths { actions, beginning, found };
    // SAFETY: it can be read.
    let name = unsafe { CStr::from_ptr(program) }.to_bytes();
    if !by_name || name.contains(&b'/') {
        if name.starts_with(b"/") || beginning == Some((libc::AT_FDCWD, b"")) {
            return is_parent_s(paths.actions.as_ref(), name).then_some((libc::AT_FDCWD, program));
        }
        let directory = paths.put(b"", name)?;
        return Some((directory, paths.found.as_ptr().cast()));
    }
    // SAFETY: the caller's promise.
    let folders = unsafe { strings(variables) }
        .find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="))
        .unwrap_or(b"/bin:/usr/bin");
    for folder in folders.split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        // As before: what is too long to be put together is passed over.
        if folder.len() + name.len() + 2 > PATH {
            continue;
        }
        let directory = paths.put(folder, name)?;
        let path = paths.found.as_ptr().cast();
        if is_program(directory, path, &mut (0, 0)) {
            return Some((directory, path));
        }
    }
    Some((libc::AT_FDCWD, core::ptr::null()))
}
