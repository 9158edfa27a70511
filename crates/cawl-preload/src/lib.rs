//! The library that is preloaded into a traced program and tells the daemon what the program writes.
//!
//! # Rules
//!
//! Everything in this crate keeps them; a change that breaks one is wrong even if its tests pass.
//!
//! 1. **The traced program is untouchable.** The real function is called exactly once, with the
//!    program's own arguments, and its result and `errno` are what the program sees. What must be looked
//!    at before the call (what a name leads to, what a stream holds) is only looked at.
//! 2. **A hook never allocates, locks, blocks, panics or touches stdio**, and is async-signal-safe. (It
//!    waits for room, a bounded time, if the user said that no event may be lost.)
//!    Exclusion is tried and given up at once; then the call passes unrecorded. Who is jumped or killed out of a hook
//!    leaves nothing that others wait for.
//! 3. **Nothing is lost silently.** An event without room is counted as dropped, a call that cannot be
//!    recorded as unseen, and both are told.
//! 4. The program's own calls go to the C library's symbol, because that may be a cancellation point.
//!    The tracer's own go to the kernel, past every symbol (see `sys`).
//! 5. No frame between a hook and the real function has a destructor to run, so that a cancelled thread
//!    or a longjmp can pass. The re-entry guard is held only while the tracer works, not across the call.
//! 6. The memory of a vfork child is its parent's: on cold paths the process id is compared, and a
//!    stranger changes nothing. On any failure of its own the tracer switches itself off.
//! 7. Each unsafe block states in a SAFETY comment why it is right.
//! 8. `unwrap`, `expect`, formatting and everything else that could panic or allocate are not used.
//! 9. All hooks together take at most 1 KiB of the caller's stack, on every path: it may be that of a signal handler.
//!    Whoever finds something out is not on the stack any more when it is told; buffers are short and in functions of
//!    their own (`inline(never)`), or lie in `room` and in static memory. No hook changes the stack: a signal that comes
//!    meanwhile would begin at the top of the handlers' stack again. tests/stack.rs measures and adds up.
//!
//! # Layout
//!
//! `hooks/` declares what is replaced and says what each call means; `real` holds what was replaced.
//! `files` knows descriptors and offsets, `interrupted` what a signal's handler does to them, `streams` what stdio holds back (`stream` is one), `record` turns a finished call
//! into an event, `buffer` is where a thread puts it: into memory shared with the daemon (`ring`), or into
//! the process's own (`batches`) until `uplink`, which is the session, sends it by a `socket` in a `place` apart.
//! `announce` names files, `birth` tells them apart,
//! `clock` tells when, `hot` is what all of them read at every call, `maps` follows shared mappings. `guard` keeps the tracer out of itself, `env` carries it into other programs, in memory that `room` has, and `target` tells into which it must
//! not come; `sys` is the kernel,
//! and `memory` reads what the program points to where nobody has vouched for it.
//! `variadic.c` does what stable Rust cannot; `freestanding.c` is what the compiler calls to copy and compare.
#![warn(missing_docs)]

mod announce;
mod batches;
mod birth;
mod buffer;
mod clock;
mod env;
mod files;
mod guard;
// Names that only the built library has are unused in its own tests.
#[cfg_attr(test, allow(dead_code))]
mod hooks;
mod hot;
mod interrupted;
mod maps;
mod memory;
mod place;
#[cfg_attr(test, allow(dead_code))]
mod real;
mod record;
mod ring;
#[cfg_attr(test, allow(dead_code))]
mod room;
mod socket;
mod stream;
mod streams;
mod sys;
#[cfg_attr(test, allow(dead_code))]
mod target;
mod uplink;

#[cfg_attr(test, allow(dead_code))]
mod life {
    //! Begin and end of the library in a process.

    use crate::hooks::process;
    use crate::{buffer, env, guard, maps, real, streams, uplink};
    use cawl_wire::Ended;
    use core::ffi::{c_char, c_int, c_void};

    #[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
    static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

    #[cfg_attr(not(test), used, unsafe(link_section = ".fini_array"))]
    static END: unsafe extern "C" fn() = end;

    unsafe extern "C" {
        fn __cxa_at_quick_exit(function: unsafe extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
    }

    /// The dynamic linker gives constructors the program's arguments and environment.
    unsafe extern "C" fn begin(_argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
        real::look_up_all();
        // SAFETY: `argv` and `envp` are those of the process; the functions registered have the
        // signatures asked for and live as long as the process.
        unsafe {
            if !env::read(argv, envp) {
                return;
            }
            if !buffer::prepare() {
                return;
            }
            libc::pthread_atfork(Some(process::before_fork), None, Some(process::in_child));
            __cxa_at_quick_exit(process::at_quick_exit, core::ptr::null_mut());
        }
        uplink::begin();
    }

    unsafe extern "C" fn end() {
        if !uplink::active() || !uplink::is_ours() {
            return;
        }
        let inside = guard::enter_at_end();
        let pending = streams::last_look(&inside);
        maps::sample_all(&inside);
        uplink::goodbye(&inside, Ended::Exit, pending);
    }
}
