//! Locking a program's memory without the tracer's.
//!
//! The law: the kernel compares the limit on locked memory with all addresses of the process
//! (`SYSCALL_DEFINE1(mlockall)`, mm/mlock.c, 6.18). Where these are too many and the program's own are not,
//! each of its mappings is locked for itself, as mlockall does; what comes later (`MCL_FUTURE`) is not
//! compared.

use crate::base::{gate, sys};
use crate::transport::ring;
use core::ffi::{c_int, c_uint};

/// Front of a line of /proc/self/maps.
struct Mapping<'a> {
    start: usize,
    end: usize,
    /// Device and inode.
    file: &'a [u8],
}

impl Mapping<'_> {
    fn of(line: &[u8]) -> Option<Mapping<'_>> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let range = fields.next()?;
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (start, end) = (sys::hexadecimal(&range[..dash])?, sys::hexadecimal(&range[dash + 1..])?);
        let rest = fields.nth(2)?;
        let inode = rest.iter().position(|byte| *byte == b' ')? + 1;
        let length = rest[inode..].iter().position(|byte| *byte == b' ').unwrap_or(rest.len() - inode);
        Some(Mapping { start, end, file: &rest[..inode + length] })
    }

    fn has(&self, at: usize) -> bool {
        (self.start..self.end).contains(&at)
    }
}

/// Calls `take` with each mapping that is not the tracer's: its library, the variables behind that, and the
/// ring. None if they cannot be told.
fn each_of_program(mut take: impl FnMut(usize, usize)) -> Option<()> {
    let here = lock as *const () as usize;
    let (mut own, mut length) = ([0u8; 32], 0);
    sys::each_line(c"/proc/self/maps", |line| {
        if let Some(mapping) = Mapping::of(line).filter(|mapping| mapping.has(here))
            && let Some(place) = own.get_mut(..mapping.file.len())
        {
            place.copy_from_slice(mapping.file);
            length = mapping.file.len();
        }
        Some(())
    })?;
    let own = own.get(..length).filter(|own| !own.is_empty())?;
    let mut behind = 0;
    sys::each_line(c"/proc/self/maps", |line| {
        let Some(mapping) = Mapping::of(line) else { return Some(()) };
        if mapping.file == own {
            behind = mapping.end;
        } else if mapping.start != behind || !mapping.file.ends_with(b" 0") {
            // The page that the kernel shows to all is none of the process.
            if !ring::base().is_some_and(|base| mapping.has(base)) && isize::try_from(mapping.end).is_ok() {
                take(mapping.start, mapping.end);
            }
        }
        Some(())
    })
}

/// Does what mlockall failed to do for want of room; false if the program's own mappings are too many, too.
#[cold]
#[inline(never)]
pub fn lock(flags: c_int) -> bool {
    if !gate::is_open() {
        return false;
    }
    let mut own = 0;
    if each_of_program(|start, end| own += (end - start) as u64).is_none()
        || own > sys::limit(libc::RLIMIT_MEMLOCK)
    {
        return false;
    }
    let later = flags & !libc::MCL_CURRENT;
    // SAFETY: mappings become locked, which changes nothing in them.
    if later & libc::MCL_FUTURE != 0 && unsafe { sys::call(libc::SYS_mlockall, [later as usize]) } != 0 {
        return false;
    }
    let when = if flags & libc::MCL_ONFAULT != 0 { libc::MLOCK_ONFAULT as c_uint } else { 0 };
    each_of_program(|start, end| {
        // What cannot be filled is locked all the same, as by mlockall.
        // SAFETY: as above.
        unsafe { sys::call(libc::SYS_mlock2, [start, end - start, when as usize]) };
    });
    true
}
