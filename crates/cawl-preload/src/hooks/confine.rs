//! A program that confines itself by a system call filter may be killed for any call that it did not
//! foresee, ours included. So the session ends before the filter is there, and neither this process nor
//! what it starts is traced from then on; the report counts what they write as not seen.

use crate::base::settings::strings;
use crate::base::{clock, real};
use crate::hooks::process::ending;
use crate::session;
use cawl_wire::Ended;
use core::ffi::{c_char, c_int, c_long};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The last words, and no tracing in what is started later.
#[cold]
pub fn confined() {
    if !session::active() || !session::is_ours() {
        return;
    }
    ending(Ended::QuickExit);
    const NAME: &[u8] = b"CAWL_SOCKET=";
    // SAFETY: the C library's variable, read as any program reads it; the string is the one that `run` or
    // the tracer put there, and is ours to shorten.
    unsafe {
        for variable in strings(environ) {
            if variable.to_bytes().starts_with(NAME) {
                variable.as_ptr().cast_mut().add(NAME.len()).write(0);
            }
        }
    }
}

/// True if this prctl puts a filter in place.
pub fn is_filter(option: c_int) -> bool {
    option == libc::PR_SET_SECCOMP
}

/// True if this prctl forbids the processor's counter.
pub fn forbids_counter(option: c_int, setting: c_long) -> bool {
    option == libc::PR_SET_TSC && setting as c_int == libc::PR_TSC_SIGSEGV
}

hooks! {
    fn prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
        if is_filter(option) {
            confined();
        }
        if forbids_counter(option, a) {
            clock::forbid();
        }
        real::prctl(option, a, b, c, d)
    }
}
