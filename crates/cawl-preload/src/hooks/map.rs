//! Mappings. Only shared ones of files that can be written through are followed; see `maps`.

use crate::base::{clock, gate, guard, real};
use crate::hooks::emit::{happened, mapping};
use crate::session::{self, locked};
use crate::state::mappings;
use cawl_wire::Op;
use core::ffi::{c_int, c_void};
use libc::{off_t, size_t};

/// A kernel's answer as the C library gives it.
fn answer(returned: isize) -> *mut c_void {
    if (-4095..0).contains(&returned) {
        guard::set_errno(-returned as c_int);
        return libc::MAP_FAILED;
    }
    returned as *mut c_void
}

/// A kernel's answer as the C library gives it of a function that returns no address: 0 or -1.
fn done(returned: isize) -> c_int {
    if answer(returned) == libc::MAP_FAILED { -1 } else { 0 }
}

/// A look at the mappings of a range, before the call that ends or syncs them.
fn count_dirty(at: *mut c_void, length: size_t, is_synced: bool) {
    if let Some(inside) = guard::enter()
        && session::is_ours()
    {
        let sample = if is_synced { mapping::sample_synced } else { mapping::sample };
        sample(&inside, (at as usize, length));
    }
}

/// After an mprotect: stores may be possible from now on.
fn protected(at: *mut c_void, length: size_t, protection: c_int, returned: c_int) {
    if mappings::any()
        && protection & libc::PROT_WRITE != 0
        && returned == 0
        && let Some(_inside) = guard::enter()
        && session::is_ours()
    {
        mappings::writable(at as usize, length);
    }
}

hooks! {
    // An allocator may initialise itself by this, in the middle of the tracer's look for functions.
    fn mmap, mmap64(
        at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void {
        if !real::ready() {
            let arguments =
                [at as usize, length, protection as usize, flags as usize, fd as usize, offset as usize];
            return answer(gate::call_for_program(libc::SYS_mmap, arguments));
        }
        let mapped = next(at, length, protection, flags, fd, offset);
        // A read-only one too: mprotect may make it writable.
        if fd >= 0
            && flags & libc::MAP_SHARED != 0
            && flags & libc::MAP_ANONYMOUS == 0
            && session::active()
            && mapped != libc::MAP_FAILED
            && let Some(_inside) = guard::enter_or_count()
            && session::is_ours()
            && let Some(file) = session::learn(fd)
        {
            let writable = protection & libc::PROT_WRITE != 0;
            mappings::made(mapped as usize, length, fd, file, offset as u64, writable);
        }
        mapped
    }

    fn munmap(at: *mut c_void, length: size_t) -> c_int {
        if !real::ready() {
            return done(gate::call_for_program(libc::SYS_munmap, [at as usize, length]));
        }
        if !mappings::any() {
            return real::munmap(at, length);
        }
        count_dirty(at, length, false);
        let returned = real::munmap(at, length);
        if returned == 0 && session::is_ours() {
            mappings::gone(at as usize, length);
        }
        returned
    }

    fn mremap(
        at: *mut c_void, length: size_t, wanted: size_t, flags: c_int, place: *mut c_void,
    ) -> *mut c_void {
        if !real::ready() {
            let arguments = [at as usize, length, wanted, flags as usize, place as usize];
            return answer(gate::call_for_program(libc::SYS_mremap, arguments));
        }
        if !mappings::any() {
            return real::mremap(at, length, wanted, flags, place);
        }
        count_dirty(at, length, false);
        let mapped = real::mremap(at, length, wanted, flags, place);
        if mapped != libc::MAP_FAILED && session::is_ours() {
            mappings::moved(at as usize, mapped as usize, wanted);
        }
        mapped
    }

    fn mprotect(at: *mut c_void, length: size_t, protection: c_int) -> c_int {
        if !real::ready() {
            return done(gate::call_for_program(libc::SYS_mprotect, [at as usize, length, protection as usize]));
        }
        let returned = real::mprotect(at, length, protection);
        protected(at, length, protection, returned);
        returned
    }

    fn pkey_mprotect(at: *mut c_void, length: size_t, protection: c_int, key: c_int) -> c_int {
        if !real::ready() {
            let arguments = [at as usize, length, protection as usize, key as usize];
            return done(gate::call_for_program(libc::SYS_pkey_mprotect, arguments));
        }
        let returned = real::pkey_mprotect(at, length, protection, key);
        protected(at, length, protection, returned);
        returned
    }

    fn mlockall(flags: c_int) -> c_int {
        let returned = real::mlockall(flags);
        if returned != 0
            && flags & libc::MCL_CURRENT != 0
            && guard::errno() == libc::ENOMEM
            && session::active()
            && let Some(_inside) = guard::enter()
            && session::is_ours()
            && guard::keeping_errno(|| locked::lock(flags))
        {
            return 0;
        }
        returned
    }

    fn msync(at: *mut c_void, length: size_t, flags: c_int) -> c_int {
        if !session::active() {
            return real::msync(at, length, flags);
        }
        // MS_ASYNC writes nothing out: what it is about is told before it is.
        let is_sync = flags & libc::MS_SYNC != 0;
        if is_sync && mappings::any() {
            count_dirty(at, length, true);
        }
        let start = clock::now();
        let returned = real::msync(at, length, flags);
        happened(Op::Msync, start, i64::from(returned), |event| {
            event.requested = length as u64;
            event.aux = flags as u32;
            if mappings::any() {
                mappings::synced(at as usize, length, is_sync && returned == 0, event);
            }
        });
        returned
    }
}
