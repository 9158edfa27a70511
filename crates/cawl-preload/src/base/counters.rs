//! What the kernel has counted of the process: bytes written, processor time, switches, run delay.

use crate::base::sys::{call, decimal, read_file};
use cawl_wire::{Usage, Wchar};
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

/// Bytes written so far by this process and by the calling thread.
pub fn wchar() -> Wchar {
    let process = wchar_of(c"/proc/self/io");
    let thread = if was_ever_alone() { process } else { wchar_of(c"/proc/thread-self/io") };
    Wchar { process, thread }
}

/// Processor time, switches and run delay of this process so far.
#[inline(never)]
pub fn usage() -> Usage {
    let mut usage = times_and_switches();
    (usage.first_ran, usage.first_delayed) = schedstat().unwrap_or_default();
    usage
}

/// Never inlined, so that the kernel's answers are not on the stack for longer than needed.
#[inline(never)]
fn times_and_switches() -> Usage {
    // In this order: what the thread uses between the two looks is no other thread's.
    let all = counted(libc::RUSAGE_SELF);
    let Counted { user, system, .. } = counted(libc::RUSAGE_THREAD);
    let own = user + system;
    Usage {
        user: all.user,
        system: all.system,
        others: (all.user + all.system).saturating_sub(own),
        voluntary: all.voluntary,
        involuntary: all.involuntary,
        ..Usage::default()
    }
}

/// Time on a processor and run delay of the first thread so far, in ns, if the kernel accounts them.
#[inline(never)]
fn schedstat() -> Option<(u64, u64)> {
    let mut text = [0u8; 48];
    let length = read_file(c"/proc/self/schedstat", &mut text);
    parse_schedstat(text.get(..length)?)
}

/// The first two of three figures.
fn parse_schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut figures = text.split(|&byte| byte == b' ').map(decimal);
    Some((figures.next()??, figures.next()??))
}

/// True if the kernel's figures of the process are those of the calling thread: the process has had no other,
/// and has waited for no child. Asked because a file of /proc costs ten times as much.
#[inline(never)]
fn was_ever_alone() -> bool {
    // No process ends without a page fault, and no thread without having been switched to.
    let events = |whose: c_int| {
        let counted = counted(whose);
        [counted.faults, counted.voluntary, counted.involuntary]
    };
    events(libc::RUSAGE_CHILDREN) == [0; 3] && events(libc::RUSAGE_SELF) == events(libc::RUSAGE_THREAD)
}

/// What is asked of getrusage(2): times in ns, and numbers of minor faults and of switches.
struct Counted {
    user: u64,
    system: u64,
    faults: u64,
    voluntary: u64,
    involuntary: u64,
}

/// Never inlined, so that the kernel's larger answer is on the stack only once.
#[inline(never)]
fn counted(whose: c_int) -> Counted {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a valid place for the result; all zero bytes are valid.
    let usage = unsafe {
        call(libc::SYS_getrusage, [whose as usize, usage.as_mut_ptr() as usize]);
        usage.assume_init_ref()
    };
    let ns = |time: &libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Counted {
        user: ns(&usage.ru_utime),
        system: ns(&usage.ru_stime),
        faults: usage.ru_minflt as u64,
        voluntary: usage.ru_nvcsw as u64,
        involuntary: usage.ru_nivcsw as u64,
    }
}

/// Minor page faults of the process so far.
pub fn minor_faults() -> u64 {
    counted(libc::RUSAGE_SELF).faults
}

/// `wchar` of an io file of /proc, in bytes, if that can be read.
#[inline(never)]
fn wchar_of(path: &CStr) -> Option<u64> {
    let mut text = [0u8; 256];
    let length = read_file(path, &mut text);
    parse_wchar(text.get(..length)?)
}

/// The figure after `wchar:`.
fn parse_wchar(text: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"wchar: "))?;
    decimal(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wchar_is_found_among_the_other_lines() {
        assert_eq!(parse_wchar(b"rchar: 1\nwchar: 42\nsyscr: 3\n"), Some(42));
        assert_eq!(parse_wchar(b"rchar: 1\n"), None);
    }

    #[test]
    fn time_on_a_processor_and_run_delay_are_the_first_figures() {
        assert_eq!(parse_schedstat(b"300 20 7\n"), Some((300, 20)));
        assert_eq!(parse_schedstat(b"300\n"), None);
        assert_eq!(parse_schedstat(b""), None);
    }

    #[test]
    fn other_threads_count() {
        let before = usage();
        cawl_kit::eventually("time of another thread, and a wait", || {
            std::thread::spawn(|| std::hint::black_box((0..1_000_000).fold(0, |sum, n| sum ^ n)))
                .join()
                .unwrap();
            let after = usage();
            after.user + after.system > before.user + before.system
                && after.others > before.others
                && after.voluntary > before.voluntary
        });
    }
}
