//! The library that is preloaded into a traced program and tells the daemon what the program writes.
//!
//! # Rules
//!
//! Everything in this crate keeps them; a change that breaks one is wrong even if its tests pass.
//!
//! 1. **The traced program is untouchable.** The real function is called exactly once, with the
//!    program's own arguments, and its result and `errno` are what the program sees. What must be looked
//!    at before the call (what a name leads to, what a stream holds) is only looked at. The exceptions are
//!    `tries`, which is asked for (`run --try`) and never entered without, and a start that failed because
//!    the tracer's variables made its environment too long: it is made again without them.
//! 2. **A hook never allocates, locks, blocks, panics or touches stdio**, and is async-signal-safe. Three
//!    waits are bounded: the end of a process image takes at most 100 ms until the last messages are sent
//!    (`session::end`), with `--lossless` a hook waits for room, at most 10 s, and a filter of system calls
//!    for all threads waits some 50 ms for those that are in the kernel (`base::gate`).
//!    Exclusion is tried and given up at once; then the call passes unrecorded. A thread that is jumped or
//!    killed out of a hook leaves nothing that others wait for.
//! 3. **Nothing is lost silently.** An event without room is counted as dropped, a call that cannot be
//!    recorded as unseen, and both are told.
//! 4. The program's own calls go to the C library's symbol, because that may be a cancellation point.
//!    The tracer's own go to the kernel, past every symbol (see `base::sys`), and none is made under a filter
//!    of system calls (see `base::gate`).
//! 5. No frame between a hook and the real function has a destructor to run, so that a cancelled thread
//!    or a longjmp can pass. The re-entry guard is held only while the tracer works, not across the call.
//! 6. The memory of a vfork child is its parent's: on cold paths the process id is compared, and a
//!    stranger changes nothing. On any failure of its own the tracer switches itself off.
//! 7. Each unsafe block states in a SAFETY comment why it is right.
//! 8. `unwrap`, `expect`, formatting and everything else that could panic or allocate are not used.
//! 9. All hooks together take at most 1 KiB of the caller's stack, on every path: it may be that of a signal
//!    handler. A function that looks something up has returned before the result is sent; buffers are short
//!    and in functions of their own (`inline(never)`), or lie in `base::room` and in static memory. No hook
//!    changes the stack: a signal that comes meanwhile would begin at the top of the handlers' stack again.
//!    tests/stack.rs measures and adds up.
//!
//! # Layers
//!
//! Each layer uses those above it in this list, never one below.
//!
//! - `base`: the kernel (`sys`), the clock, the thread's own record and its guard, the settings, the C
//!   library's real functions.
//! - `transport`: events and messages to the daemon, by shared memory (`slot`, `ring`) and by a socket
//!   (`link`, `socket`). It knows whether a session is open, and carries the names of files as bytes.
//! - `state`: what is known of descriptors, streams and mappings, and which files the daemon was told of.
//! - `session`: open, fork and goodbye; programs that are started.
//! - `tries`: what `run --try` adds to the program's calls.
//! - `hooks`: what is replaced, and what each call means; `hooks::emit` makes events.
//!
//! `variadic.c` has the functions that stable Rust cannot define, `thread.c` the thread's record,
//! `freestanding.c` what the compiler calls to copy and compare, `unwind.c` what it calls to unwind, and
//! `reports.c` what Rust's report of a panic would ask of a later C library than a program may have.
#![warn(missing_docs)]

mod base;
// Names that only the built library has are unused in its own tests.
#[cfg_attr(test, allow(dead_code))]
mod hooks;
#[cfg_attr(test, allow(dead_code))]
mod session;
mod state;
mod transport;
#[cfg_attr(test, allow(dead_code))]
mod tries;

#[cfg_attr(test, allow(dead_code))]
mod life {
    //! Begin and end of the library in a process.

    use crate::base::{gate, guard, real, settings};
    use crate::hooks::emit::{doubts, mapping, stream};
    use crate::hooks::process;
    use crate::session::{self, environment, target};
    use crate::transport::table;
    use crate::tries;
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
            let wanted = settings::read(argv, envp);
            environment::hide_sanitizers(envp);
            if !wanted || !gate::check() || !table::prepare() {
                return;
            }
            target::begin();
            tries::begin();
            session::prepare_threads();
            libc::pthread_atfork(Some(process::before_fork), None, Some(process::in_child));
            __cxa_at_quick_exit(process::at_quick_exit, core::ptr::null_mut());
        }
        session::begin();
    }

    unsafe extern "C" fn end() {
        if !session::active() || !session::is_ours() {
            return;
        }
        let inside = guard::enter_at_end();
        tries::ending();
        let pending = stream::last_look(&inside);
        doubts::at_end(&inside);
        mapping::sample_all(&inside);
        session::goodbye(&inside, Ended::Exit, pending);
    }
}
