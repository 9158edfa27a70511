//! The environment of a program that is started: the tracer and its settings go on in it.

use crate::base::room::{self, Room};
use crate::base::settings::{CARRIED, Settings, Text, strings};
use crate::session::target::{Found, Look, Target, is_sanitizer};
use core::ffi::{CStr, c_char};

/// Strings that are added to an environment at most, and the null at its end.
const ADDED: usize = CARRIED + 2;
/// Longest environment that is completed, in strings: the kernel takes no longer one.
const LONGEST: usize = 1 << 20;
/// Longest LD_PRELOAD that is put together anew.
const MAX_PRELOAD: usize = 4096;
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Between a sanitizer's runtime that was put there for the tracer's sake and what follows. The dynamic
/// linker ignores the second space, and no other program writes one.
const OURS_FOLLOWS: &[u8] = b"  ";

/// What a room for an environment begins with; the list of its strings follows.
#[repr(C)]
pub struct Parts {
    /// The path of a program that was searched for.
    pub found: Found,
    /// What was read of it.
    pub look: Look,
    /// The text of a changed LD_PRELOAD.
    pub preload: [u8; MAX_PRELOAD],
}

/// Takes a room for an environment of so many strings and those that the tracer adds. None if there is none.
#[inline(never)]
pub fn take_room(strings: usize) -> Option<*mut Room> {
    if strings > LONGEST {
        return None;
    }
    room::take(size_of::<Parts>() + (strings + ADDED) * size_of::<*const c_char>())
}

/// The parts of a room from [`take_room`], and its list of strings.
///
/// # Safety
/// The room must have been taken by the caller, who has no other reference to its parts.
pub unsafe fn parts<'a>(room: *mut Room) -> (&'a mut Parts, &'a mut [*const c_char]) {
    // SAFETY: the caller's promise. `take_room` asked for at least the parts, of which any bytes are valid
    // ones, and the rest is the list; a room is aligned to eight bytes.
    unsafe {
        let (place, length) = room::bytes(room);
        let strings = length.saturating_sub(size_of::<Parts>()) / size_of::<*const c_char>();
        let list = core::slice::from_raw_parts_mut(place.add(size_of::<Parts>()).cast(), strings);
        (&mut *place.cast::<Parts>(), list)
    }
}

/// Looks for a sanitizer's runtime to hide in the process's own environment. Constructor only.
///
/// # Safety
/// `envp` must be the process's.
pub unsafe fn hide_sanitizers(envp: *const *const c_char) {
    let mut at = envp;
    // SAFETY: the caller's promise; the strings of a process's environment may be changed.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            hide_sanitizer((*at).cast_mut());
            at = at.add(1);
        }
    }
}

/// Takes the runtime of a sanitizer that [`Settings::complete`] put before the tracer out of LD_PRELOAD
/// again: it is loaded by now, and neither the program nor what it starts should know.
///
/// # Safety
/// `variable` must be a string in memory that may be changed.
unsafe fn hide_sanitizer(variable: *mut c_char) {
    // SAFETY: the caller's promise. The reference is not used any more when the string is changed.
    let bytes = unsafe { CStr::from_ptr(variable) }.to_bytes();
    let Some(value) = bytes.strip_prefix(PRELOAD) else { return };
    let Some(end) = value.windows(OURS_FOLLOWS.len()).position(|text| text == OURS_FOLLOWS) else { return };
    if !is_sanitizer(&value[..end]) || value[..end].contains(&b':') {
        return;
    }
    let length = bytes.len() + 1 - PRELOAD.len() - end - OURS_FOLLOWS.len();
    // SAFETY: the caller's promise; both ranges lie in the string, the NUL included.
    unsafe {
        let to = variable.add(PRELOAD.len());
        core::ptr::copy(to.add(end + OURS_FOLLOWS.len()), to, length);
    }
}

impl Settings {
    /// True if this LD_PRELOAD value names the tracer.
    fn names_library(&self, value: &[u8]) -> bool {
        value.split(|byte| matches!(byte, b':' | b' ')).any(|path| path == self.library())
    }

    /// Completes the environment of a program to be started: the same array if it has all that the
    /// tracer needs, else `list` with the missing variables added (and with `preload` for the text of a
    /// changed LD_PRELOAD). If it does not fit, the array stays as it is. A program whose dynamic linker is
    /// another C library's is not told of the tracer.
    ///
    /// # Safety
    /// `envp` must be null or an array of strings that ends with null, as exec takes it.
    pub unsafe fn complete(
        &self,
        envp: *const *const c_char,
        target: &Target,
        list: &mut [*const c_char],
        preload: &mut [u8; MAX_PRELOAD],
    ) -> *const *const c_char {
        if self.library().is_empty() {
            return envp;
        }
        let mut length = 0;
        let mut changed = false;
        let mut has_preload = false;
        // SAFETY: the caller's promise.
        for variable in unsafe { strings(envp) } {
            let mut text = variable.as_ptr();
            if let Some(value) = variable.to_bytes().strip_prefix(PRELOAD)
                && !has_preload
            {
                has_preload = true;
                match self.preload_text(value, target, preload) {
                    Some(Preload::Same) => {}
                    Some(Preload::Changed) => {
                        text = preload.as_ptr().cast();
                        changed = true;
                    }
                    Some(Preload::None) => {
                        changed = true;
                        continue;
                    }
                    None => return envp,
                }
            }
            let Some(place) = list.get_mut(length) else { return envp };
            *place = text;
            length += 1;
        }
        let is_foreign = matches!(target, Target::Foreign);
        if !has_preload && !is_foreign {
            let Some(_) = self.preload_text(b"", target, preload) else { return envp };
            let Some(place) = list.get_mut(length) else { return envp };
            *place = preload.as_ptr().cast();
            length += 1;
            changed = true;
        }
        for ours in self.carried().filter(|_| !is_foreign) {
            let name = ours.split_inclusive(|&byte| byte == b'=').next().unwrap_or(ours);
            // SAFETY: the caller's promise.
            if unsafe { strings(envp) }.any(|theirs| theirs.to_bytes().starts_with(name)) {
                continue;
            }
            let Some(place) = list.get_mut(length) else { return envp };
            *place = ours.as_ptr().cast();
            length += 1;
            changed = true;
        }
        let Some(end) = list.get_mut(length) else { return envp };
        *end = core::ptr::null();
        if changed { list.as_ptr() } else { envp }
    }

    /// `LD_PRELOAD=` as `target` needs it, where this is its value so far: with the tracer, and the other
    /// libraries in their order. None if it does not fit.
    fn preload_text(&self, value: &[u8], target: &Target, out: &mut [u8; MAX_PRELOAD]) -> Option<Preload> {
        let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
        let mut text = Text::new(out);
        text.add(PRELOAD)?;
        let named = self.names_library(value);
        if let Target::Foreign = target {
            if !named {
                return Some(Preload::Same);
            }
            let others =
                || value.split(is_separator).filter(|path| !path.is_empty() && *path != self.library());
            for (index, path) in others().enumerate() {
                text.add(if index == 0 { b"" } else { b":" })?;
                text.add(path)?;
            }
            text.add(b"\0")?;
            return Some(if others().next().is_none() { Preload::None } else { Preload::Changed });
        }
        // A sanitizer that the program's user preloads is already first.
        let own = value.split(is_separator).next().filter(|first| is_sanitizer(first)).unwrap_or(b"");
        let runtime = match target {
            Target::Sanitized(name) if own.is_empty() => *name,
            _ => b"",
        };
        if named && runtime.is_empty() {
            return Some(Preload::Same);
        }
        if !runtime.is_empty() {
            text.add(runtime)?;
            text.add(OURS_FOLLOWS)?;
        }
        let mut rest = value;
        if !named {
            if !own.is_empty() {
                text.add(own)?;
                text.add(b":")?;
                rest = value.get(own.len() + 1..).unwrap_or(b"");
            }
            text.add(self.library())?;
            text.add(if rest.is_empty() { b"" } else { b":" })?;
        }
        text.add(rest)?;
        text.add(b"\0")?;
        Some(Preload::Changed)
    }
}

/// What became of LD_PRELOAD.
#[derive(Debug, PartialEq)]
enum Preload {
    Same,
    Changed,
    /// Nothing is left to preload.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_depends_on_the_program() {
        let settings = Settings::of_library(b"/c/our.so");
        let asan = Target::Sanitized(b"libasan.so.8");
        let (usual, foreign) = (Target::Usual, Target::Foreign);
        for (target, value, wanted) in [
            (&usual, "", Some("/c/our.so")),
            (&usual, "/a.so:/b.so", Some("/c/our.so:/a.so:/b.so")),
            (&usual, "/a.so:/c/our.so", None),
            (&usual, "libasan.so.8:/b.so", Some("libasan.so.8:/c/our.so:/b.so")),
            (&usual, "libasan.so.8", Some("libasan.so.8:/c/our.so")),
            (&foreign, "/a.so /c/our.so:/b.so", Some("/a.so:/b.so")),
            (&foreign, "/c/our.so", Some("")),
            (&foreign, "/a.so", None),
            (&asan, "", Some("libasan.so.8  /c/our.so")),
            (&asan, "/c/our.so:/b.so", Some("libasan.so.8  /c/our.so:/b.so")),
            (&asan, "/l/libasan.so.6:/c/our.so", None),
            (&asan, "/l/libasan.so.6", Some("/l/libasan.so.6:/c/our.so")),
        ] {
            let mut out = [0u8; MAX_PRELOAD];
            let became = settings.preload_text(value.as_bytes(), target, &mut out);
            let text = CStr::from_bytes_until_nul(&out).unwrap().to_str().unwrap();
            match wanted {
                None => assert_eq!(became, Some(Preload::Same), "{value}"),
                Some("") => assert_eq!(became, Some(Preload::None), "{value}"),
                Some(wanted) => assert_eq!(text, format!("LD_PRELOAD={wanted}"), "{value}"),
            }
        }
    }

    /// Each start has memory of its own, also within another.
    #[test]
    fn starts_within_starts_have_rooms_of_their_own() {
        let first = take_room(10).unwrap();
        let second = take_room(10).unwrap();
        assert_ne!(first, second);
        // SAFETY: both were taken here, and are given back once.
        unsafe {
            let (parts, list) = parts(first);
            (parts.preload[0], list[10]) = (1, core::ptr::null());
            assert!(list.len() >= 10 + ADDED);
            room::give_back(second);
            room::give_back(first);
        }
        assert!(take_room(LONGEST + 1).is_none());
    }

    #[test]
    fn a_sanitizer_put_first_for_us_is_hidden_again() {
        for (before, after) in [
            (&b"LD_PRELOAD=libasan.so.8  /c/our.so:/b.so\0"[..], &b"LD_PRELOAD=/c/our.so:/b.so"[..]),
            (b"LD_PRELOAD=libasan.so.8:/c/our.so\0", b"LD_PRELOAD=libasan.so.8:/c/our.so"),
            (b"LD_PRELOAD=/a.so  /c/our.so\0", b"LD_PRELOAD=/a.so  /c/our.so"),
            (b"OTHER=libasan.so.8  x\0", b"OTHER=libasan.so.8  x"),
        ] {
            let mut text = before.to_vec();
            let variable = text.as_mut_ptr().cast::<c_char>();
            // SAFETY: a string that ends with NUL, in memory of the test's own.
            unsafe {
                hide_sanitizer(variable);
                assert_eq!(CStr::from_ptr(variable).to_bytes(), after);
            }
        }
    }
}
