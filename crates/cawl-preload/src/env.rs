//! What the environment and the arguments told the tracer at its start, and how it is passed on.
//!
//! The law of this module: everything is copied once, by the constructor, into memory of the tracer's
//! own, because a program may later change or overwrite its environment.

use crate::target::{Target, is_sanitizer};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most variables carried to a child.
const CARRIED: usize = 16;
/// Strings that are added to an environment at most, and the null at its end.
pub const ADDED: usize = CARRIED + 2;
/// Longest LD_PRELOAD that is put together anew.
pub const MAX_PRELOAD: usize = 4096;
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Between a sanitizer's runtime that was put there for the tracer's sake and what follows: nobody else writes
/// two spaces, and the dynamic linker does not mind.
const OURS_FOLLOWS: &[u8] = b"  ";

/// The tracer's settings.
pub struct Settings {
    socket: [u8; 108],
    socket_length: usize,
    /// CAWL_RUN.
    pub run: u64,
    /// CAWL_ONLY_CHILD_OF, 0 for none.
    pub only_child_of: u32,
    /// CAWL_TRANSPORT is not "socket": shared memory may be used.
    pub share: bool,
    /// CAWL_LOSSLESS is "1": rather than drop an event, wait.
    pub lossless: bool,
    /// CAWL_CLOCK is not "ns": the processor's counter may be used.
    pub ticks: bool,
    /// CAWL_READS
    reads: bool,
    program: [u8; 256],
    program_length: usize,
    arguments: [u8; 2048],
    arguments_length: usize,
    library: [u8; 1024],
    library_length: usize,
    text: [u8; 8192],
    text_length: usize,
    carried: [usize; CARRIED],
    carried_length: usize,
}

struct Shared(UnsafeCell<Settings>);
// SAFETY: written by the constructor only, before READY is set; read only after.
unsafe impl Sync for Shared {}

static READY: AtomicBool = AtomicBool::new(false);
static READS: AtomicBool = AtomicBool::new(false);

/// True if reads are to be recorded.
#[inline(always)]
pub fn reads() -> bool {
    READS.load(Relaxed) && crate::uplink::active()
}
static SETTINGS: Shared = Shared(UnsafeCell::new(Settings {
    socket: [0; 108],
    socket_length: 0,
    run: 0,
    only_child_of: 0,
    share: true,
    lossless: false,
    ticks: true,
    reads: false,
    program: [0; 256],
    program_length: 0,
    arguments: [0; 2048],
    arguments_length: 0,
    library: [0; 1024],
    library_length: 0,
    text: [0; 8192],
    text_length: 0,
    carried: [0; CARRIED],
    carried_length: 0,
}));

/// The settings, or None where tracing was not asked for.
pub fn settings() -> Option<&'static Settings> {
    if !READY.load(Acquire) {
        return None;
    }
    // SAFETY: READY is set after the last write.
    Some(unsafe { &*SETTINGS.0.get() })
}

/// Reads environment and arguments; false if they do not ask for tracing. Constructor only, once.
///
/// # Safety
/// `argv` and `envp` must be the process's: arrays of NUL-terminated strings that end with null.
pub unsafe fn read(argv: *const *const c_char, envp: *const *const c_char) -> bool {
    if READY.load(Acquire) {
        return true;
    }
    // SAFETY: the only writer, before READY is set; see `Shared`.
    let settings = unsafe { &mut *SETTINGS.0.get() };
    // SAFETY: the caller's promise.
    for variable in unsafe { strings(envp) } {
        settings.learn(variable);
    }
    // SAFETY: the caller's promise; the strings of a process's environment may be changed.
    unsafe {
        let mut at = envp;
        while !at.is_null() && !(*at).is_null() {
            hide_sanitizer((*at).cast_mut());
            at = at.add(1);
        }
    }
    // SAFETY: the caller's promise.
    for (index, argument) in unsafe { strings(argv) }.enumerate() {
        settings.argument(index, argument.to_bytes());
    }
    if settings.socket_length == 0 {
        return false;
    }
    settings.find_library();
    READS.store(settings.reads, Release);
    READY.store(true, Release);
    true
}

/// Takes the runtime of a sanitizer that [`Settings::complete`] put before the tracer out of LD_PRELOAD again:
/// it is loaded by now, and neither the program nor what it starts should know.
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

/// The strings of an array that ends with null (or is null).
///
/// # Safety
/// The array must be one, and stay as it is while it is looked at.
pub unsafe fn strings<'a>(array: *const *const c_char) -> impl Iterator<Item = &'a CStr> {
    let mut at = array;
    core::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: `at` has not passed the null at the array's end, and what is not null is a string.
        unsafe {
            let text = *at;
            if text.is_null() {
                return None;
            }
            at = at.add(1);
            Some(CStr::from_ptr(text))
        }
    })
}

fn copy(text: &[u8], out: &mut [u8]) -> usize {
    let length = text.len().min(out.len());
    out[..length].copy_from_slice(&text[..length]);
    length
}

impl Settings {
    fn learn(&mut self, variable: &CStr) {
        let bytes = variable.to_bytes();
        if let Some(path) = bytes.strip_prefix(b"CAWL_SOCKET=") {
            if path.len() < self.socket.len() {
                self.socket_length = copy(path, &mut self.socket);
            }
        } else if let Some(run) = bytes.strip_prefix(b"CAWL_RUN=") {
            self.run = crate::sys::decimal(run).unwrap_or(0);
        } else if bytes == b"CAWL_READS=1" {
            self.reads = true;
        } else if let Some(parent) = bytes.strip_prefix(b"CAWL_ONLY_CHILD_OF=") {
            self.only_child_of =
                crate::sys::decimal(parent).and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        } else if let Some(transport) = bytes.strip_prefix(b"CAWL_TRANSPORT=") {
            self.share = transport != b"socket";
        } else if let Some(lossless) = bytes.strip_prefix(b"CAWL_LOSSLESS=") {
            self.lossless = lossless == b"1";
        } else if let Some(clock) = bytes.strip_prefix(b"CAWL_CLOCK=") {
            self.ticks = clock != b"ns";
        }
        if bytes.starts_with(b"CAWL_") {
            self.carry(variable.to_bytes_with_nul());
        }
    }

    fn carry(&mut self, text: &[u8]) {
        let start = self.text_length;
        if let Some(place) = self.text.get_mut(start..start + text.len())
            && let Some(entry) = self.carried.get_mut(self.carried_length)
        {
            place.copy_from_slice(text);
            *entry = start;
            self.text_length += text.len();
            self.carried_length += 1;
        }
    }

    fn argument(&mut self, index: usize, text: &[u8]) {
        if index == 0 {
            self.program_length = copy(text, &mut self.program);
            return;
        }
        let mut at = self.arguments_length;
        if at > 0 && at < self.arguments.len() {
            self.arguments[at] = 0;
            at += 1;
        }
        self.arguments_length = at + copy(text, &mut self.arguments[at..]);
    }

    fn find_library(&mut self) {
        let mut info = libc::Dl_info {
            dli_fname: core::ptr::null(),
            dli_fbase: core::ptr::null_mut(),
            dli_sname: core::ptr::null(),
            dli_saddr: core::ptr::null_mut(),
        };
        // SAFETY: the address of a static of this library, and a valid place for the answer, which
        // names the library by a string that lives as long as the library.
        unsafe {
            if libc::dladdr((&raw const SETTINGS).cast(), &mut info) != 0 && !info.dli_fname.is_null() {
                let name = CStr::from_ptr(info.dli_fname).to_bytes();
                if name.len() <= self.library.len() {
                    self.library_length = copy(name, &mut self.library);
                }
            }
        }
    }

    /// CAWL_SOCKET.
    pub fn socket(&self) -> &[u8] {
        &self.socket[..self.socket_length]
    }

    /// The name that the program was started by.
    pub fn program(&self) -> &[u8] {
        &self.program[..self.program_length]
    }

    /// Its arguments, separated by NUL.
    pub fn arguments(&self) -> &[u8] {
        &self.arguments[..self.arguments_length]
    }

    fn library(&self) -> &[u8] {
        &self.library[..self.library_length]
    }

    /// The carried variables, each with its NUL.
    fn carried(&self) -> impl Iterator<Item = &[u8]> {
        self.carried[..self.carried_length].iter().filter_map(|&start| {
            let text = self.text.get(start..self.text_length)?;
            let end = text.iter().position(|&byte| byte == 0)?;
            text.get(..=end)
        })
    }

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
        if self.library_length == 0 {
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
        // Whoever preloads a sanitizer himself has it first.
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

/// A text that is put together in place.
pub struct Text<'a> {
    out: &'a mut [u8],
    length: usize,
}

impl<'a> Text<'a> {
    /// One of which nothing is there yet.
    pub fn new(out: &'a mut [u8]) -> Text<'a> {
        Text { out, length: 0 }
    }

    /// Adds a part; None if it does not fit.
    #[inline(never)]
    pub fn add(&mut self, part: &[u8]) -> Option<()> {
        self.out.get_mut(self.length..self.length + part.len())?.copy_from_slice(part);
        self.length += part.len();
        Some(())
    }

    /// Adds a number; None if it does not fit.
    pub fn add_number(&mut self, number: u16) -> Option<()> {
        let digits = [10_000, 1000, 100, 10, 1].map(|unit| (number / unit % 10) as u8 + b'0');
        let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len() - 1);
        self.add(digits.get(first..)?)
    }

    /// What there is.
    pub fn bytes(&self) -> &[u8] {
        self.out.get(..self.length).unwrap_or(b"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_depends_on_the_program() {
        // SAFETY: tests of other modules do not begin a session; nobody else touches the settings.
        let settings = unsafe { &mut *SETTINGS.0.get() };
        settings.library_length = copy(b"/c/our.so", &mut settings.library);
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
        settings.library_length = 0;
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
