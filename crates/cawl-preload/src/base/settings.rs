//! What the environment and the arguments told the tracer at its start.
//!
//! The law of this module: everything is copied once, by the constructor, into memory of the tracer's
//! own, because a program may later change or overwrite its environment.

use crate::base::{gate, hot, symbols, sys};
use cawl_wire::Rank;
use cawl_wire::stack::Wanted;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most variables carried to a child.
pub const CARRIED: usize = 16;
/// The tracer's settings.
pub struct Settings {
    /// Ends with a NUL.
    socket: [u8; 108],
    /// CAWL_RUN.
    pub run: u64,
    /// The process's number in a parallel program.
    pub rank: Option<Rank>,
    /// CAWL_ONLY_CHILD_OF, 0 for none.
    pub only_child_of: u32,
    /// CAWL_TRANSPORT is not "socket": shared memory may be used.
    pub share: bool,
    /// CAWL_LOSSLESS is "1": rather than drop an event, wait.
    pub lossless: bool,
    /// CAWL_CLOCK is not "ns": the processor's counter may be used.
    pub ticks: bool,
    /// CAWL_CLOCK is "tsc": the kernel keeps time by it.
    pub tsc: bool,
    /// CAWL_READS is not "0": reads of files are recorded.
    reads: bool,
    /// CAWL_READS is "all": reads of everything are.
    all_reads: bool,
    /// CAWL_STACKS: a threshold in ns, and one in so many of the other calls.
    pub stacks: Option<Wanted>,
    tries: [u8; 128],
    tries_length: usize,
    exclude: [u8; 512],
    exclude_length: usize,
    program: [u8; 256],
    program_length: usize,
    arguments: [u8; 2048],
    arguments_length: usize,
    /// Ends with a NUL.
    library: [u8; 1024],
    text: [u8; 8192],
    text_length: usize,
    carried: [usize; CARRIED],
    carried_length: usize,
}

struct Shared(UnsafeCell<Settings>);
// SAFETY: written by the constructor only, before READY is set; read only after.
unsafe impl Sync for Shared {}

static READY: AtomicBool = AtomicBool::new(false);
/// The library's own path is known, also where tracing was not asked for.
static PLACED: AtomicBool = AtomicBool::new(false);
static READS: AtomicBool = AtomicBool::new(false);

/// True if reads of files are to be recorded.
#[inline(always)]
pub fn reads() -> bool {
    READS.load(Relaxed) && hot::active()
}

/// True if reads of pipes, sockets and terminals are, too.
pub fn all_reads() -> bool {
    settings().is_some_and(|settings| settings.all_reads)
}

/// True if the user would rather wait than lose an event, and it can be waited.
pub fn lossless() -> bool {
    gate::is_open() && settings().is_some_and(|settings| settings.lossless)
}

static SETTINGS: Shared = Shared(UnsafeCell::new(Settings::new()));

/// The settings, or None where tracing was not asked for.
pub fn settings() -> Option<&'static Settings> {
    if !READY.load(Acquire) {
        return None;
    }
    // SAFETY: READY is set after the last write.
    Some(unsafe { &*SETTINGS.0.get() })
}

/// The path of the tracer; None before it was looked for, and if it is not known.
pub fn library() -> Option<&'static CStr> {
    if !PLACED.load(Acquire) {
        return None;
    }
    // SAFETY: PLACED is set after the last write.
    let settings = unsafe { &*SETTINGS.0.get() };
    CStr::from_bytes_until_nul(&settings.library).ok().filter(|path| !path.is_empty())
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
    (settings.share, settings.ticks, settings.reads) = (true, true, true);
    // SAFETY: the caller's promise.
    unsafe { name_filters(envp) };
    // SAFETY: the same.
    for variable in unsafe { strings(envp) } {
        settings.learn(variable);
    }
    // SAFETY: the caller's promise.
    for (index, argument) in unsafe { strings(argv) }.enumerate() {
        settings.argument(index, argument.to_bytes());
    }
    settings.find_library();
    PLACED.store(true, Release);
    if settings.socket().is_empty() {
        return false;
    }
    READS.store(settings.reads, Release);
    READY.store(true, Release);
    true
}

/// Puts the number of filters that this image begins under in the place of `any`, so that its successors know
/// which ones were meant.
///
/// # Safety
/// `envp` must be the process's environment, of which nobody holds a reference.
unsafe fn name_filters(envp: *const *const c_char) {
    const ANY: &[u8] = b"CAWL_FILTERS=any\0";
    let mut at = envp;
    // SAFETY: the caller's promise: up to a null there are strings, which may be changed; a comparison ends
    // where a string does.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let text = (*at).cast_mut().cast::<u8>();
            if ANY.iter().enumerate().all(|(place, byte)| *text.add(place) == *byte) {
                let filters = gate::filters().unwrap_or(0).min(gate::UNCOUNTED);
                for (place, unit) in (ANY.len() - 4..).zip([100, 10, 1]) {
                    *text.add(place) = b'0' + (filters / unit % 10) as u8;
                }
            }
            at = at.add(1);
        }
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

/// True of a variable that the tracer understands, by what follows `CAWL_`.
pub fn is_own(text: &[u8]) -> bool {
    const NAMES: [&[u8]; 11] = [
        b"SOCKET=",
        b"RUN=",
        b"READS=",
        b"STACKS=",
        b"TRY=",
        b"EXCLUDE=",
        b"ONLY_CHILD_OF=",
        b"TRANSPORT=",
        b"LOSSLESS=",
        b"CLOCK=",
        b"FILTERS=",
    ];
    NAMES.iter().any(|name| text.starts_with(name))
}

impl Settings {
    /// All zero bytes, so that the library's file holds none of them.
    const fn new() -> Settings {
        Settings {
            socket: [0; 108],
            run: 0,
            rank: None,
            only_child_of: 0,
            share: false,
            lossless: false,
            ticks: false,
            tsc: false,
            reads: false,
            all_reads: false,
            stacks: None,
            tries: [0; 128],
            tries_length: 0,
            exclude: [0; 512],
            exclude_length: 0,
            program: [0; 256],
            program_length: 0,
            arguments: [0; 2048],
            arguments_length: 0,
            library: [0; 1024],
            text: [0; 8192],
            text_length: 0,
            carried: [0; CARRIED],
            carried_length: 0,
        }
    }

    fn learn(&mut self, variable: &CStr) {
        let bytes = variable.to_bytes();
        if let Some(ours) = bytes.strip_prefix(b"CAWL_").filter(|ours| is_own(ours)) {
            self.learn_own(ours);
            self.carry(variable.to_bytes_with_nul());
        } else if let Some(rank) = Rank::of_variable(bytes)
            && self.rank.is_none_or(|known| rank.variable < known.variable)
        {
            self.rank = Some(rank);
        }
    }

    /// A variable of the tracer's own, by what follows `CAWL_`.
    fn learn_own(&mut self, bytes: &[u8]) {
        if let Some(path) = bytes.strip_prefix(b"SOCKET=") {
            if path.len() < self.socket.len() {
                self.socket = [0; 108];
                copy(path, &mut self.socket);
            }
        } else if let Some(run) = bytes.strip_prefix(b"RUN=") {
            self.run = sys::decimal(run).unwrap_or(0);
        } else if let Some(reads) = bytes.strip_prefix(b"READS=") {
            (self.reads, self.all_reads) = (reads != b"0", reads == b"all");
        } else if let Some(stacks) = bytes.strip_prefix(b"STACKS=") {
            let mut numbers = stacks.splitn(2, |byte| *byte == b',').map(sys::decimal);
            self.stacks = match (numbers.next().flatten(), numbers.next().flatten()) {
                (Some(threshold), Some(one_in @ 1..)) => {
                    Some(Wanted { threshold, one_in: u32::try_from(one_in).unwrap_or(u32::MAX) })
                }
                _ => None,
            };
        } else if let Some(tries) = bytes.strip_prefix(b"TRY=") {
            self.tries_length = copy(tries, &mut self.tries);
        } else if let Some(names) = bytes.strip_prefix(b"EXCLUDE=") {
            self.exclude_length = copy(names, &mut self.exclude);
        } else if let Some(parent) = bytes.strip_prefix(b"ONLY_CHILD_OF=") {
            self.only_child_of = sys::decimal(parent).and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        } else if let Some(transport) = bytes.strip_prefix(b"TRANSPORT=") {
            self.share = transport != b"socket";
        } else if let Some(lossless) = bytes.strip_prefix(b"LOSSLESS=") {
            self.lossless = lossless == b"1";
        } else if let Some(clock) = bytes.strip_prefix(b"CLOCK=") {
            (self.ticks, self.tsc) = (clock != b"ns", clock == b"tsc");
        } else if let Some(filters) = bytes.strip_prefix(b"FILTERS=") {
            gate::expect(sys::decimal(filters).and_then(|number| u32::try_from(number).ok()).unwrap_or(0));
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
        if let Some(name) = symbols::own_path().map(CStr::to_bytes)
            && name.len() < self.library.len()
        {
            copy(name, &mut self.library);
        }
    }

    /// CAWL_SOCKET.
    pub fn socket(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.socket).unwrap_or_default()
    }

    /// CAWL_EXCLUDE has the name that this program was started by: names without folders, with `/` between
    /// them.
    pub fn is_excluded(&self) -> bool {
        let (names, program) = (&self.exclude[..self.exclude_length], &self.program[..self.program_length]);
        let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !names.is_empty() && names.split(|byte| *byte == b'/').any(|excluded| excluded == name)
    }

    /// CAWL_TRY: what `run --try` was given, in words with commas between them, sizes in bytes.
    pub fn tries(&self) -> &[u8] {
        &self.tries[..self.tries_length]
    }

    /// The name that the program was started by.
    pub fn program(&self) -> &[u8] {
        &self.program[..self.program_length]
    }

    /// Its arguments, separated by NUL.
    pub fn arguments(&self) -> &[u8] {
        &self.arguments[..self.arguments_length]
    }

    /// The carried variables, each with its NUL.
    pub fn carried(&self) -> impl Iterator<Item = &[u8]> {
        self.carried[..self.carried_length].iter().filter_map(|&start| {
            let text = self.text.get(start..self.text_length)?;
            let end = text.iter().position(|&byte| byte == 0)?;
            text.get(..=end)
        })
    }
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

    pub fn bytes(&self) -> &[u8] {
        self.out.get(..self.length).unwrap_or(b"")
    }
}
