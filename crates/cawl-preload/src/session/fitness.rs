//! Whether a program that is about to be started is to be told of the tracer.

use crate::base::settings::strings;
use crate::base::{memory, sys};
use crate::session::target::Target;
use cawl_wire::Obstacle;
use core::ffi::{CStr, c_char};

/// Why the dynamic linker of this program could not load the library, if it were started now.
#[inline(never)]
pub fn obstacle(target: &Target, library: &CStr) -> Option<Obstacle> {
    match target {
        Target::Foreign => return Some(Obstacle::Foreign),
        // Better untraced than ended by its dynamic linker.
        Target::Unseen => return Some(Obstacle::Unseen),
        _ => {}
    }
    hidden(library).or_else(|| is_crowded().then_some(Obstacle::Crowded))
}

/// Why no dynamic linker that is started now could load the library. Where the real and the
/// effective ids differ, by which it opens files, it loads nothing. Whether this process, or one that it
/// comes from, is restricted by Landlock, only opening tells.
#[inline(never)]
fn hidden(library: &CStr) -> Option<Obstacle> {
    if sys::may_access(library, libc::R_OK | libc::X_OK) {
        return sys::is_refused(library).then_some(Obstacle::Hidden);
    }
    if !sys::may_access(library, libc::R_OK) {
        return Some(Obstacle::Hidden);
    }
    // A file need not be executable to be loaded.
    (!sys::maps_as_code(library)).then_some(Obstacle::NoExec)
}

/// Less address space, or memory of its own, than this, in bytes, may have no room for the library beside a
/// program.
const CROWDED: u64 = 64 << 20;

/// True if a program that is started now may have no room for the library.
fn is_crowded() -> bool {
    let is_low = |limit| sys::limits(limit, None).is_some_and(|limits| limits.rlim_cur < CROWDED);
    is_low(libc::RLIMIT_AS) || is_low(libc::RLIMIT_DATA)
}

/// True if no program would run, and the dynamic linker may tell of libraries, this one among them.
///
/// # Safety
/// `argv` must be what exec was given, and `envp` null or an array of strings that ends with null.
#[inline(never)]
pub unsafe fn only_lists(target: &Target, argv: *const *const c_char, envp: *const *const c_char) -> bool {
    // SAFETY: the caller's promise; the arguments are looked at only if they can be read.
    unsafe {
        strings(envp).any(|text| text.to_bytes().starts_with(b"LD_TRACE_LOADED_OBJECTS="))
            || matches!(target, Target::Linker) && memory::is_list(argv) && lists(strings(argv).skip(1))
    }
}

/// True if a dynamic linker with these arguments starts no program.
fn lists<'a>(mut arguments: impl Iterator<Item = &'a CStr>) -> bool {
    while let Some(argument) = arguments.next().map(CStr::to_bytes) {
        if !argument.starts_with(b"--") {
            return false;
        }
        if argument.starts_with(b"--list") || argument == b"--verify" {
            return true;
        }
        // All others have a value.
        if argument != b"--inhibit-cache" {
            arguments.next();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_cannot_be_loaded_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("our.so");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(hidden(&name), Some(Obstacle::Hidden));
        std::fs::write(&path, "").unwrap();
        // That it is not executable is no matter, the mount is.
        assert_eq!(hidden(&name), None);
        assert_eq!(obstacle(&Target::Foreign, &name), Some(Obstacle::Foreign));
        assert_eq!(hidden(c"/proc/self/maps"), Some(Obstacle::NoExec), "no code can be mapped from it");
    }

    #[test]
    fn a_dynamic_linker_that_only_tells_is_known_by_its_arguments() {
        for (arguments, wanted) in [
            (&[c"--list", c"prog"][..], true),
            (&[c"--inhibit-cache", c"--library-path", c"/l", c"--verify", c"prog"], true),
            (&[c"--list-tunables"], true),
            (&[c"--argv0", c"--list", c"prog"], false),
            (&[c"prog", c"--list"], false),
            (&[c"--help"], true),
            (&[], true),
        ] {
            assert_eq!(lists(arguments.iter().copied()), wanted, "{arguments:?}");
        }
    }
}
