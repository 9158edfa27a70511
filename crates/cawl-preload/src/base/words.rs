//! Names that mean something else in some libraries.
//!
//! The law of this module: a hook acts only where the function behind it is one that its name stands for. The
//! libraries of a program may define an `error`, a `sync` or a `truncate` of their own, with other arguments
//! and another result; then the hook is a jump that leaves every register and the stack as the caller set
//! them, and nothing is recorded. How far a library is trusted with a name is its [`Level`]. Names that are
//! not listed here (write, open, fopen…) mean the same in every library that defines them: so much else in
//! the process calls them.

use crate::base::level::Level;
use crate::base::symbols::{self, Library};
use core::ffi::{CStr, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};

macro_rules! words {
    ($($level:ident: $($name:ident)*;)*) => {
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub enum Word { $($($name),*),* }

        const NAMES: &[&CStr] = &[$($(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        ),*),*];

        const LEVELS: [Level; NAMES.len()] = [$($({ let _ = Word::$name; Level::$level }),*),*];
    };
}

words! {
    Own:
        error error_at_line warn warnx vwarn vwarnx err errx verr verrx perror psignal psiginfo herror
        malloc_stats malloc_info putpwent putspent putgrent putsgent addmntent backtrace_symbols_fd
        getopt getopt_long getopt_long_only __posix_getopt
        tee splice vmsplice daemon lockf lockf64 login_tty forkpty getw putw readahead eventfd_write exit;
    Preloaded:
        sync syncfs system flock;
    Passing:
        dup dup2 __dup2 dup3 creat creat64 remove rename renameat renameat2 unlink unlinkat truncate truncate64
        stat stat64 lstat lstat64 fstatat fstatat64 statx __xstat __xstat64 __lxstat __lxstat64
        __fxstatat __fxstatat64 readdir readdir64 closedir
        rmdir mkdir mkdirat link linkat symlink symlinkat
        popen _IO_popen pclose sendfile sendfile64 copy_file_range chdir fchdir getline getdelim __getdelim;
}

const HASHES: [u32; NAMES.len()] = {
    let mut hashes = [0; NAMES.len()];
    let mut at = 0;
    while at < hashes.len() {
        hashes[at] = symbols::hash(NAMES[at]);
        at += 1;
    }
    hashes
};

/// The level of a name, by its [`symbols::hash`].
pub const fn level(hash: u32) -> Level {
    let mut at = 0;
    while at < HASHES.len() {
        if HASHES[at] == hash {
            return LEVELS[at];
        }
        at += 1;
    }
    Level::Any
}

/// Where the hook of each name jumps to; null until it is first called or another library's is known.
pub static TARGETS: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

/// All libraries have been looked into.
static KNOWN: AtomicBool = AtomicBool::new(false);

/// Which names the libraries before one define. Constructor only.
pub struct Seen([bool; NAMES.len()], bool);

impl Seen {
    /// None yet.
    pub const fn new() -> Seen {
        Seen([false; NAMES.len()], false)
    }

    /// The next library.
    pub fn look_into(&mut self, library: &Library) {
        // It has them all.
        self.1 |= library.is_the_c_library();
        if self.1 {
            return;
        }
        for (word, seen) in self.0.iter_mut().enumerate().filter(|(_, seen)| !**seen) {
            if let Some(found) = library.find(NAMES[word], HASHES[word]) {
                *seen = true;
                if !library.may_be(LEVELS[word]) {
                    TARGETS[word].store(found, Relaxed);
                }
            }
        }
    }

    /// There are no more.
    pub fn end(self) {
        KNOWN.store(true, Release);
    }
}

/// What a hook that is called for the first time jumps to: `body`, its own, unless another library's function
/// is meant.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn decide(word: usize, body: *mut c_void) -> *mut c_void {
    let find = |level| symbols::find(NAMES[word], HASHES[word], level);
    let next = if KNOWN.load(Acquire) { core::ptr::null_mut() } else { find(Level::Any) };
    let is_other = !next.is_null() && next != find(LEVELS[word]);
    let target = if is_other { next } else { body };
    TARGETS[word].store(target, Relaxed);
    target
}

/// Asks [`decide`] and jumps there. The word is in r11 (x16), the hook's own body in r10 (x17), all else as
/// the caller of the hook set it.
#[cfg(not(test))]
#[unsafe(naked)]
pub unsafe extern "C" fn first_call() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192",
        "mov [rbp - 8], rdi",
        "mov [rbp - 16], rsi",
        "mov [rbp - 24], rdx",
        "mov [rbp - 32], rcx",
        "mov [rbp - 40], r8",
        "mov [rbp - 48], r9",
        "mov [rbp - 56], rax",
        "movaps [rbp - 192], xmm0",
        "movaps [rbp - 176], xmm1",
        "movaps [rbp - 160], xmm2",
        "movaps [rbp - 144], xmm3",
        "movaps [rbp - 128], xmm4",
        "movaps [rbp - 112], xmm5",
        "movaps [rbp - 96], xmm6",
        "movaps [rbp - 80], xmm7",
        "mov rdi, r11",
        "mov rsi, r10",
        "call {decide}",
        "mov r11, rax",
        "mov rdi, [rbp - 8]",
        "mov rsi, [rbp - 16]",
        "mov rdx, [rbp - 24]",
        "mov rcx, [rbp - 32]",
        "mov r8, [rbp - 40]",
        "mov r9, [rbp - 48]",
        "mov rax, [rbp - 56]",
        "movaps xmm0, [rbp - 192]",
        "movaps xmm1, [rbp - 176]",
        "movaps xmm2, [rbp - 160]",
        "movaps xmm3, [rbp - 144]",
        "movaps xmm4, [rbp - 128]",
        "movaps xmm5, [rbp - 112]",
        "movaps xmm6, [rbp - 96]",
        "movaps xmm7, [rbp - 80]",
        "leave",
        "jmp r11",
        decide = sym decide,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-224]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x0, x16",
        "mov x1, x17",
        "bl {decide}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldr x8, [sp, #80]",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldp x29, x30, [sp], #224",
        "br x16",
        decide = sym decide,
    );
}
