//! Calls by which a program confines itself. Under a filter of system calls the tracer makes none of its own
//! (`base::gate`), so all that needs one comes before the call, and whatever it changes takes effect only if
//! it succeeds: a mere question whether there are filters changes nothing.

use crate::base::settings::strings;
use crate::base::{clock, gate, guard, memory, real};
use crate::hooks::emit::mapping;
use crate::session::{self, environment};
use core::ffi::{c_char, c_int, c_long};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// SECCOMP_FILTER_FLAG_TSYNC and SECCOMP_FILTER_FLAG_NEW_LISTENER
const ALL_THREADS: c_long = 1;
const NEW_LISTENER: c_long = 1 << 3;

/// PR_SET_SYSCALL_USER_DISPATCH, and its two ways to be on (Linux 5.11, 6.16): the thread's system calls
/// from outside of a range of addresses, or from inside, are signals.
const DISPATCH: c_int = 59;
const DISPATCH_OUTSIDE: libc::c_uint = 1;
const DISPATCH_INSIDE: libc::c_uint = 2;

/// What a call does to the process, if it succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that matters here.
    None,
    /// It can have no new privileges: a filter may follow, by whatever call.
    NoPrivileges,
    /// It has a filter, with these flags.
    Filter(c_long),
    /// It can read, write and end.
    Strict,
}

impl Effect {
    /// Of prctl.
    pub fn of_prctl(option: c_int, first: c_long) -> Effect {
        match (option, first as libc::c_ulong as libc::c_uint) {
            (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) => Effect::Strict,
            (libc::PR_SET_SECCOMP, _) => Effect::Filter(0),
            (libc::PR_SET_NO_NEW_PRIVS, 1) => Effect::NoPrivileges,
            // It holds for one thread, and in no child. The gate, which is the process's, closes all the
            // same.
            (DISPATCH, DISPATCH_OUTSIDE | DISPATCH_INSIDE) => Effect::Filter(0),
            _ => Effect::None,
        }
    }

    /// Of seccomp.
    pub fn of_seccomp(operation: c_long, flags: c_long) -> Effect {
        match operation as libc::c_uint {
            libc::SECCOMP_SET_MODE_STRICT => Effect::Strict,
            libc::SECCOMP_SET_MODE_FILTER => Effect::Filter(flags),
            _ => Effect::None,
        }
    }

    /// True if a call with this result had the effect. That of a filter may be a descriptor, or the number of
    /// a thread for whose sake there is none.
    fn came_with(self, returned: c_long) -> bool {
        returned == 0 || returned > 0 && matches!(self, Effect::Filter(flags) if flags & NEW_LISTENER != 0)
    }
}

/// Makes a call of the program's with this effect.
pub fn around(effect: Effect, call: impl FnOnce() -> c_long) -> c_long {
    if effect == Effect::None || !session::active() && !session::is_dormant() {
        return call();
    }
    prepare(effect);
    let returned = call();
    settle(effect, effect.came_with(returned));
    returned
}

/// Where in the environment the value of CAWL_SOCKET was when it was found that it can be changed.
static SOCKET: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// The tracer can be taken out of LD_PRELOAD.
static CLEARABLE: AtomicBool = AtomicBool::new(false);

/// Does all that needs system calls, and closes the gate.
#[cold]
#[inline(never)]
fn prepare(effect: Effect) {
    if let Some(inside) = guard::enter()
        && session::is_ours()
    {
        mapping::sample_all(&inside);
        session::before_silence(&inside);
        // Behind a gate that is closed already that cannot be found out: then it holds what was found before.
        if gate::is_open() {
            let socket = socket_in_environment().filter(|at| memory::is_writable(*at));
            SOCKET.store(socket.unwrap_or(core::ptr::null_mut()), Relaxed);
            CLEARABLE.store(environment::is_clearable(), Relaxed);
        }
    }
    gate::close();
    if matches!(effect, Effect::Filter(flags) if flags & ALL_THREADS != 0) {
        gate::wait_for_others();
    }
}

#[cold]
#[inline(never)]
fn settle(effect: Effect, succeeded: bool) {
    if succeeded && effect == Effect::NoPrivileges {
        gate::gave_up_privileges(true);
    }
    gate::settle(succeeded && effect != Effect::NoPrivileges);
    if !succeeded {
        if let Some(inside) = guard::enter()
            && session::is_ours()
        {
            session::no_silence(&inside);
        }
        return;
    }
    if effect != Effect::NoPrivileges {
        environment::withdraw();
        if CLEARABLE.swap(false, Relaxed) {
            environment::clear();
        }
    }
    // In strict mode not even the counter can be read.
    session::silence(effect != Effect::Strict);
    if let (Effect::Filter(_), Some(socket)) = (effect, socket_in_environment())
        && socket == SOCKET.load(Relaxed)
    {
        // SAFETY: a byte of a string of the environment, which could be written before the call. What is
        // started from now on is not to be traced, also where it cannot see that there is a filter.
        unsafe { socket.write(0) };
    }
}

/// The first byte of the value of CAWL_SOCKET.
fn socket_in_environment() -> Option<*mut u8> {
    const NAME: &[u8] = b"CAWL_SOCKET=";
    // SAFETY: the C library's variable, read as any program reads it.
    let mut variables = unsafe { strings(environ) };
    let socket = variables.find(|variable| variable.to_bytes().starts_with(NAME))?;
    Some(socket.as_ptr().cast_mut().cast::<u8>().wrapping_add(NAME.len()))
}

/// True if this prctl forbids the processor's counter.
pub fn forbids_counter(option: c_int, setting: c_long) -> bool {
    option == libc::PR_SET_TSC && setting as c_int == libc::PR_TSC_SIGSEGV
}

hooks! {
    fn prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
        if forbids_counter(option, a) {
            clock::forbid();
        }
        let effect = Effect::of_prctl(option, a);
        around(effect, || c_long::from(real::prctl(option, a, b, c, d))) as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_comes_with_success_only() {
        let filter = Effect::of_prctl(libc::PR_SET_SECCOMP, 2);
        assert!(filter.came_with(0) && !filter.came_with(-1));
        // The number of a thread that has a filter of its own.
        assert!(!Effect::of_seccomp(1, ALL_THREADS).came_with(4711));
        // A descriptor.
        assert!(Effect::of_seccomp(1, NEW_LISTENER).came_with(5));
        assert!(Effect::of_seccomp(2, 0) == Effect::None, "a question for an action");
        assert!(Effect::of_seccomp(0, 0) == Effect::Strict);
        assert!(Effect::of_prctl(libc::PR_SET_NO_NEW_PRIVS, 1) == Effect::NoPrivileges);
        assert!(Effect::of_prctl(libc::PR_GET_SECCOMP, 0) == Effect::None);
        assert!([1, 2].map(|way| Effect::of_prctl(DISPATCH, way)) == [Effect::Filter(0); 2]);
        assert!(Effect::of_prctl(DISPATCH, 0) == Effect::None, "off");
    }
}
