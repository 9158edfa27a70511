//! The environment of a program that is started: the tracer and its settings go on in it, where its dynamic
//! linker can load the tracer. Otherwise LD_PRELOAD is as the program would have it without the tracer,
//! because a dynamic linker tells of what it cannot load on the program's stderr.

use crate::base::memory;
use crate::base::room::{self, Room};
use crate::base::settings::{CARRIED, Settings, Text, is_own, library};
use crate::session::fitness::{obstacle, only_lists};
use crate::session::search::Found;
use crate::session::target::{self, Look, Target, is_sanitizer};
use cawl_wire::Obstacle;
use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Strings that are added to an environment at most, and the null at its end.
const ADDED: usize = CARRIED + 2;
/// Longest environment that is completed, in strings: the kernel takes no longer one.
const LONGEST: usize = 1 << 20;
/// Longest LD_PRELOAD that is put together anew.
const MAX_PRELOAD: usize = 4096;
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Without a value: the program is not to be traced.
const SOCKET: &[u8] = b"CAWL_SOCKET=";
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

/// What follows a prefix of a string.
///
/// # Safety
/// `text` must be a string.
unsafe fn after(text: *const c_char, prefix: &[u8]) -> Option<*const c_char> {
    for (at, byte) in prefix.iter().enumerate() {
        // SAFETY: the caller's promise: what came before was no NUL.
        if unsafe { *text.add(at) } as u8 != *byte {
            return None;
        }
    }
    Some(text.wrapping_add(prefix.len()))
}

/// The places of an array's strings, up to the null at its end.
///
/// # Safety
/// `array` must be null or such an array, and stay as it is while it is looked at.
unsafe fn places(array: *const *const c_char) -> impl Iterator<Item = *const *const c_char> {
    let mut at = array;
    core::iter::from_fn(move || {
        // SAFETY: `at` has not passed the null at the array's end.
        let place = (!at.is_null() && unsafe { !(*at).is_null() }).then_some(at)?;
        at = at.wrapping_add(1);
        Some(place)
    })
}

/// True if an environment names the library among those to be preloaded.
///
/// # Safety
/// `envp` must be null or an array of strings that ends with null.
pub unsafe fn names(envp: *const *const c_char, library: &CStr) -> bool {
    // SAFETY: the caller's promise.
    unsafe { preloads(envp).any(|(_, value)| has(value, library)) }
}

/// The values of LD_PRELOAD in an environment, and their places in the array.
///
/// # Safety
/// `envp` must be null or an array of strings that ends with null.
unsafe fn preloads<'a>(envp: *const *const c_char) -> impl Iterator<Item = (*const *const c_char, &'a [u8])> {
    // SAFETY: the caller's promise.
    unsafe {
        places(envp).filter_map(|place| Some((place, CStr::from_ptr(after(*place, PRELOAD)?).to_bytes())))
    }
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// True if this LD_PRELOAD value names the library.
fn has(value: &[u8], library: &CStr) -> bool {
    value.split(is_separator).any(|path| path == library.to_bytes())
}

/// The environment of a program to be started, whose arrays are those of a room.
pub struct Completed<'a> {
    /// The tracer.
    pub library: &'a CStr,
    /// The strings.
    pub list: &'a mut [*const c_char],
    /// The text of a changed LD_PRELOAD.
    pub preload: &'a mut [u8; MAX_PRELOAD],
}

impl Completed<'_> {
    /// Completes an environment: the same array if it has all that the tracer needs, else the list with the
    /// missing variables added. If it does not fit, the array stays as it is. One that switches the tracer
    /// off (CAWL_SOCKET without a value) does not name it.
    ///
    /// # Safety
    /// `envp` must be null or an array of strings that ends with null, as exec takes it.
    #[inline(never)]
    pub unsafe fn with_tracer(
        &mut self,
        envp: *const *const c_char,
        settings: &Settings,
        target: &Target,
    ) -> *const *const c_char {
        let mut length = 0;
        let (mut changed, mut has_preload) = (false, false);
        let mut present = 0u32;
        // SAFETY: the caller's promise.
        for place in unsafe { places(envp) } {
            // SAFETY: as above.
            let mut text = unsafe { *place };
            // SAFETY: as above.
            if let Some(value) = unsafe { after(text, PRELOAD) }
                && !has_preload
            {
                has_preload = true;
                // SAFETY: as above.
                let value = unsafe { CStr::from_ptr(value) }.to_bytes();
                match preload_text(value, self.library, target, self.preload) {
                    Some(Preload::Same) => {}
                    Some(_) => {
                        text = self.preload.as_ptr().cast();
                        changed = true;
                    }
                    None => return envp,
                }
            // SAFETY: as above.
            } else if unsafe { after(text, b"CAWL_") }.is_some() {
                for (index, ours) in settings.carried().enumerate() {
                    let name = ours.split_inclusive(|&byte| byte == b'=').next().unwrap_or(ours);
                    // SAFETY: as above.
                    let Some(value) = (unsafe { after(text, name) }) else { continue };
                    present |= 1 << index;
                    // SAFETY: as above: the value is a string.
                    if name == SOCKET && unsafe { *value } == 0 {
                        // SAFETY: the caller's promise.
                        return unsafe { self.without(envp, false) };
                    }
                }
            }
            if self.put(length, text).is_none() {
                return envp;
            }
            length += 1;
        }
        if !has_preload {
            let added = preload_text(b"", self.library, target, self.preload)
                .and_then(|_| self.put(length, self.preload.as_ptr().cast()));
            if added.is_none() {
                return envp;
            }
            length += 1;
            changed = true;
        }
        for (_, ours) in settings.carried().enumerate().filter(|(index, _)| present >> index & 1 == 0) {
            if self.put(length, ours.as_ptr().cast()).is_none() {
                return envp;
            }
            length += 1;
            changed = true;
        }
        self.ended(length, changed, envp)
    }

    /// The environment as it would be without the tracer, and without its settings too if `bare`: the same
    /// array if it does not name it.
    ///
    /// # Safety
    /// As [`Completed::with_tracer`].
    #[inline(never)]
    pub unsafe fn without(&mut self, envp: *const *const c_char, bare: bool) -> *const *const c_char {
        let (mut length, mut used, mut changed) = (0, 0, false);
        // SAFETY: the caller's promise.
        for place in unsafe { places(envp) } {
            // SAFETY: as above.
            let mut text = unsafe { *place };
            // SAFETY: as above.
            let value = unsafe { after(text, PRELOAD).map(|value| CStr::from_ptr(value).to_bytes()) };
            // SAFETY: as above.
            let own = unsafe { after(text, b"CAWL_").map(|rest| CStr::from_ptr(rest).to_bytes()) };
            if bare && own.is_some_and(is_own) {
                changed = true;
                continue;
            }
            if let Some(value) = value.filter(|value| has(value, self.library)) {
                changed = true;
                let Some(room) = self.preload.get_mut(used..) else { return envp };
                match rest(value, self.library, room) {
                    Some(0) => continue,
                    Some(bytes) => {
                        text = room.as_ptr().cast();
                        used += bytes;
                    }
                    None => return envp,
                }
            }
            if self.put(length, text).is_none() {
                return envp;
            }
            length += 1;
        }
        self.ended(length, changed, envp)
    }

    fn put(&mut self, at: usize, text: *const c_char) -> Option<()> {
        *self.list.get_mut(at)? = text;
        Some(())
    }

    fn ended(&mut self, length: usize, changed: bool, envp: *const *const c_char) -> *const *const c_char {
        match self.put(length, core::ptr::null()) {
            Some(()) if changed => self.list.as_ptr(),
            _ => envp,
        }
    }
}

/// What this process starts is not to be told of the tracer: it is under a filter of system calls, the daemon
/// cannot be reached from its root directory or mounts, or its children are left alone.
static WITHDRAWN: AtomicBool = AtomicBool::new(false);

/// True if what is started from now on is not to be told of the tracer.
pub fn is_withdrawn() -> bool {
    WITHDRAWN.load(Relaxed)
}

/// What is started from now on is not to be told of the tracer.
pub fn withdraw() {
    WITHDRAWN.store(true, Relaxed);
}

/// True if [`clear`] can write all that it has to.
pub fn is_clearable() -> bool {
    // SAFETY: the C library's variable, read as any program reads it.
    let mut named = unsafe { preloads(environ) };
    named.all(|(place, value)| {
        memory::is_writable(place.cast_mut().cast()) && memory::is_writable(value.as_ptr().cast_mut())
    })
}

/// Takes the tracer out of the process's own environment, which the C library gives the shells that it
/// starts, if that [can be](is_clearable).
#[cold]
#[inline(never)]
pub fn clear() {
    let Some(library) = library() else { return };
    // SAFETY: the C library's variable; the room is this call's alone.
    unsafe {
        if names(environ, library)
            && let Some(room) = take_room(0)
        {
            remove(environ, library, &mut parts(room).0.preload);
            room::give_back(room);
        }
    }
}

/// Before the C library starts a shell with this process's own environment: if its dynamic linker could not
/// load the tracer, the environment no longer names it.
///
/// # Safety
/// `envp` must be null or the process's environment, which no other thread changes meanwhile.
#[inline(never)]
pub unsafe fn before_shell(envp: *const *const c_char, library: &CStr) -> Option<Obstacle> {
    // SAFETY: the caller's promise; the room is this call's alone.
    unsafe {
        if !memory::is_list(envp) || !names(envp, library) {
            return None;
        }
        let room = take_room(0)?;
        let parts = parts(room).0;
        let target = target::at(libc::AT_FDCWD, c"/bin/sh".as_ptr(), &mut parts.look);
        let obstacle = obstacle(&target, library);
        let left_alone = obstacle.is_some() || only_lists(&target, core::ptr::null(), envp);
        if left_alone && is_clearable() {
            remove(envp, library, &mut parts.preload);
        }
        room::give_back(room);
        obstacle
    }
}

/// Takes the tracer out of an environment in its place.
///
/// # Safety
/// As [`before_shell`], and the array and the strings that name the tracer must be writable.
unsafe fn remove(envp: *const *const c_char, library: &CStr, text: &mut [u8; MAX_PRELOAD]) {
    let mut at = envp.cast_mut();
    // SAFETY: the caller's promise; a text becomes shorter.
    unsafe {
        while !(*at).is_null() {
            let value = after(*at, PRELOAD).map(|value| CStr::from_ptr(value).to_bytes());
            match value.filter(|value| has(value, library)).and_then(|value| rest(value, library, text)) {
                Some(0) => {
                    let mut next = at;
                    while !(*next).is_null() {
                        next.write(*next.add(1));
                        next = next.add(1);
                    }
                    continue;
                }
                Some(length) => {
                    core::ptr::copy_nonoverlapping(text.as_ptr().cast(), (*at).cast_mut(), length);
                }
                None => {}
            }
            at = at.add(1);
        }
    }
}

/// Writes `LD_PRELOAD=` with the value as it is without the library, and a NUL, into `out`; how many bytes, 0
/// if nothing is left to preload. None if it does not fit.
fn rest(value: &[u8], library: &CStr, out: &mut [u8]) -> Option<usize> {
    let library = library.to_bytes();
    let mut text = Text::new(out);
    text.add(PRELOAD)?;
    let mut value = value;
    // The last one goes with the separator before it, all others with the one behind.
    while let Some(before) = value.strip_suffix(library)
        && before.last().is_none_or(is_separator)
    {
        value = &before[..before.len().saturating_sub(1)];
    }
    for piece in value.split_inclusive(is_separator) {
        if piece.strip_suffix(b":").or(piece.strip_suffix(b" ")).unwrap_or(piece) != library {
            text.add(piece)?;
        }
    }
    if text.bytes().len() == PRELOAD.len() {
        return Some(0);
    }
    text.add(b"\0")?;
    Some(text.bytes().len())
}

/// `LD_PRELOAD=` as `target` needs it, where this is its value so far: with the tracer, and the other
/// libraries in their order. None if it does not fit.
fn preload_text(
    value: &[u8],
    library: &CStr,
    target: &Target,
    out: &mut [u8; MAX_PRELOAD],
) -> Option<Preload> {
    let mut text = Text::new(out);
    text.add(PRELOAD)?;
    let named = has(value, library);
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
        text.add(library.to_bytes())?;
        text.add(if rest.is_empty() { b"" } else { b":" })?;
    }
    text.add(rest)?;
    text.add(b"\0")?;
    Some(Preload::Changed)
}

/// What became of LD_PRELOAD.
#[derive(Debug, PartialEq)]
enum Preload {
    Same,
    Changed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::settings::strings;

    const OURS: &CStr = c"/c/our.so";

    #[test]
    fn what_is_preloaded_depends_on_the_program() {
        let (usual, asan) = (Target::Usual, Target::Sanitized(b"libasan.so.8"));
        for (target, value, wanted) in [
            (&usual, "", Some("/c/our.so")),
            (&usual, "/a.so:/b.so", Some("/c/our.so:/a.so:/b.so")),
            (&usual, "/a.so:/c/our.so", None),
            (&usual, "libasan.so.8:/b.so", Some("libasan.so.8:/c/our.so:/b.so")),
            (&usual, "libasan.so.8", Some("libasan.so.8:/c/our.so")),
            (&asan, "", Some("libasan.so.8  /c/our.so")),
            (&asan, "/c/our.so:/b.so", Some("libasan.so.8  /c/our.so:/b.so")),
            (&asan, "/l/libasan.so.6:/c/our.so", None),
            (&asan, "/l/libasan.so.6", Some("/l/libasan.so.6:/c/our.so")),
        ] {
            let mut out = [0u8; MAX_PRELOAD];
            let became = preload_text(value.as_bytes(), OURS, target, &mut out);
            let text = CStr::from_bytes_until_nul(&out).unwrap().to_str().unwrap();
            match wanted {
                None => assert_eq!(became, Some(Preload::Same), "{value}"),
                Some(wanted) => assert_eq!(text, format!("LD_PRELOAD={wanted}"), "{value}"),
            }
        }
    }

    #[test]
    fn without_the_tracer_a_list_is_what_it_was() {
        for (value, wanted) in [
            ("/c/our.so", ""),
            ("/c/our.so:/a.so:/b.so", "/a.so:/b.so"),
            ("/c/our.so:/a.so /b.so", "/a.so /b.so"),
            ("/a.so /c/our.so:/b.so", "/a.so /b.so"),
            ("/a.so:/c/our.so", "/a.so"),
            ("/c/our.so:/a.so:/c/our.so", "/a.so"),
            ("/c/our.so:/c/our.so", ""),
            ("/x/c/our.so:/c/our.so.1", "/x/c/our.so:/c/our.so.1"),
        ] {
            let mut out = [0u8; 64];
            let length = rest(value.as_bytes(), OURS, &mut out).unwrap();
            let text = out[..length].strip_suffix(b"\0").unwrap_or_default();
            assert_eq!(text.strip_prefix(PRELOAD).unwrap_or_default(), wanted.as_bytes(), "{value}");
        }
        assert_eq!(rest(b"/c/our.so:/a.so", OURS, &mut [0; 16]), None, "it does not fit");
    }

    /// The environment that the C library starts shells with.
    #[test]
    fn an_environment_is_changed_in_its_place() {
        for (variables, wanted) in [
            (&["A=1", "LD_PRELOAD=/c/our.so", "B=2"][..], &["A=1", "B=2"][..]),
            (&["LD_PRELOAD=/c/our.so", "LD_PRELOAD=/c/our.so:/a.so"], &["LD_PRELOAD=/a.so"]),
            (&["A=1", "LD_PRELOAD=/a.so"], &["A=1", "LD_PRELOAD=/a.so"]),
            (&["LD_PRELOAD=/c/our.so"], &[]),
        ] {
            let mut texts: Vec<Vec<u8>> =
                variables.iter().map(|text| [text.as_bytes(), b"\0"].concat()).collect();
            let mut list: Vec<*const c_char> =
                texts.iter_mut().map(|text| text.as_mut_ptr().cast_const().cast()).collect();
            list.push(core::ptr::null());
            // SAFETY: strings that end with NUL, in a list that ends with null, of the test's own.
            unsafe {
                assert_eq!(names(list.as_ptr(), OURS), variables.concat().contains("our"));
                remove(list.as_ptr(), OURS, &mut [0; MAX_PRELOAD]);
                let left: Vec<_> = strings(list.as_ptr()).map(|text| text.to_str().unwrap()).collect();
                assert_eq!(left, wanted);
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
