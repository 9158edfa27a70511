//! Libraries that are loaded later, and functions that are looked up.
//!
//! The law of this module: the C library's functions are entered by a jump, since they look at who called.
//! Only a look-up through a handle, where that is of no account, is a call: where it found a function of the
//! C library in front of which a hook stands, it gives the hook, as a reference by name would have. A library
//! that is bound past the hooks (RTLD_DEEPBIND) or to a C library of its own (dlmopen) is named in the
//! report.

use crate::base::guard::PAST;
use crate::base::{real, symbols, thread};
use cawl_wire::past;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::Ordering::Relaxed;

/// What dlopen jumps to.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn opening(path: *const c_char, flags: c_int) -> *const c_void {
    if flags & libc::RTLD_DEEPBIND != 0 && !path.is_null() {
        PAST.fetch_or(past::DEEP_BINDING, Relaxed);
    }
    real::address_of_dlopen()
}

/// What dlmopen jumps to.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn opening_in(space: c_long, path: *const c_char) -> *const c_void {
    // LM_ID_BASE
    if space != 0 && !path.is_null() {
        PAST.fetch_or(past::NAMESPACE, Relaxed);
    }
    real::address_of_dlmopen()
}

/// What dlsym jumps to: RTLD_DEFAULT finds the hooks, and RTLD_NEXT what the caller wants to pass calls on
/// to.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn looking_up(handle: *mut c_void) -> *const c_void {
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return real::address_of_dlsym();
    }
    looked_up as *const c_void
}

/// # Safety
/// As dlsym.
unsafe extern "C-unwind" fn looked_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise; a name that was found is a string.
    unsafe {
        let found = real::dlsym(handle, name);
        thread::may_come();
        if found.is_null() { found } else { symbols::hook_of(found, CStr::from_ptr(name)) }
    }
}

chooses! {
    dlopen => opening;
    dlmopen => opening_in;
    dlsym => looking_up;
}
