//! The way into the kernel, and whether the tracer may take it. Under a filter of system calls (seccomp) it
//! may not: the program's author did not foresee its calls, and any one may end the program.
//!
//! The law of this module: **every system call of the tracer's own goes through [`call`]**, and while the
//! gate is closed it fails with EPERM without being made. The gate is closed
//! - until the image has looked whether it began under a filter ([`look`]);
//! - from before a call of the program's that may install a filter, and for good if that succeeds;
//! - from the moment in which the program gives up new privileges (PR_SET_NO_NEW_PRIVS), after which a filter
//!   may come past every hook, until [`look`] finds none or the privileges were given up for another reason;
//! - once nothing is traced any more.
//!
//! A filter may come to all threads at once (SECCOMP_FILTER_FLAG_TSYNC). Who installs one then waits, for a
//! bounded time, until no thread is between the gate and the kernel ([`wait_for_others`]).

use crate::base::hot::threads;
use core::ffi::c_long;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// What a call gets that is not made.
const REFUSED: isize = -(libc::EPERM as isize);

/// Nobody has looked yet, there is a filter, or nothing is traced.
const CLOSED: u32 = 1 << 31;
/// The program has given up new privileges.
const QUIET: u32 = 1 << 30;
/// Zero: the gate is open. In the lower bits, the number of calls under way that may install a filter. The
/// crate's own tests have no constructor.
static STATE: AtomicU32 = AtomicU32::new(if cfg!(test) { 0 } else { CLOSED });

/// Threads that are between the gate and the kernel, or in it. Each counter is on a cache line of its own,
/// and a thread always takes the same.
const COUNTERS: usize = 16;
#[repr(align(64))]
struct Counter(AtomicUsize);
static UNDER_WAY: [Counter; COUNTERS] = [const { Counter(AtomicUsize::new(0)) }; COUNTERS];

/// How long, in ns, and how often one waits for those under way. A thread that sleeps in the kernel for
/// longer has passed the filter already.
const NAP: libc::c_long = 50_000;
const NAPS: usize = 500;

/// A number of filters that is not told, and more than any process has.
pub const UNCOUNTED: u32 = 999;
/// Filters that are known to allow what the tracer does.
static HARMLESS: AtomicU32 = AtomicU32::new(0);

/// One system call, if the gate is open; arguments that are left out are 0. The result is the kernel's: a
/// small negative number is `-errno`.
///
/// # Safety
/// The arguments must be what the system call `number` asks for.
#[inline(always)]
pub unsafe fn call<const N: usize>(number: c_long, args: [usize; N]) -> isize {
    // One of them may install a filter for this thread, too.
    let others = threads();
    if others {
        counter().fetch_add(1, SeqCst);
    }
    // SAFETY: the caller's promise.
    let result = if STATE.load(SeqCst) == 0 { unsafe { kernel(number, all(args)) } } else { REFUSED };
    if others {
        counter().fetch_sub(1, SeqCst);
    }
    result
}

/// The calling thread's: one of them, by the thread's pointer, as evenly as a multiplication mixes.
#[inline(always)]
fn counter() -> &'static AtomicUsize {
    let pointer: usize;
    // SAFETY: the thread's own pointer is read, which the C library keeps there.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    let mixed = pointer.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &UNDER_WAY[mixed >> (usize::BITS - COUNTERS.ilog2())].0
}

/// One system call that the program asked for, whether the gate is open or not; the result is the kernel's.
///
/// # Safety
/// As [`call`].
#[inline(always)]
pub unsafe fn call_for_program<const N: usize>(number: c_long, args: [usize; N]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { kernel(number, all(args)) }
}

#[inline(always)]
fn all<const N: usize>(args: [usize; N]) -> [usize; 6] {
    core::array::from_fn(|at| args.get(at).copied().unwrap_or(0))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn kernel(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: it clobbers rcx and r11 and nothing else that is not
    // declared; what the call does with its arguments is the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn kernel(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: only x0 changes; what the call does with its arguments
    // is the caller's promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the tracer knows the system call convention of x86-64 and AArch64 only");

/// True if system calls can be made.
#[inline]
pub fn is_open() -> bool {
    STATE.load(Relaxed) == 0
}

/// True if the gate is closed for no other reason than that the program has given up new privileges.
pub fn is_quiet() -> bool {
    STATE.load(Relaxed) == QUIET
}

/// Nothing is traced any more. Not in the crate's own tests, which have one gate for all.
pub fn shut() {
    if cfg!(not(test)) {
        STATE.fetch_or(CLOSED, SeqCst);
    }
}

/// A call of the program's may install a filter: closes the gate until [`settle`].
pub fn close() {
    STATE.fetch_add(1, SeqCst);
}

/// That call was made. `confined`: the gate stays closed for good.
pub fn settle(confined: bool) {
    if confined {
        STATE.fetch_or(CLOSED, SeqCst);
    }
    STATE.fetch_sub(1, SeqCst);
}

/// The program has given up new privileges (`given`), or it turned out that it did not do so for a filter.
pub fn gave_up_privileges(given: bool) {
    if given {
        STATE.fetch_or(QUIET, SeqCst);
    } else {
        STATE.fetch_and(!QUIET, SeqCst);
    }
}

/// Waits until no other thread is between the gate, which is closed, and the kernel.
#[cold]
pub fn wait_for_others() {
    let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP };
    for _ in 0..NAPS {
        if UNDER_WAY.iter().all(|counter| counter.0.load(SeqCst) == 0) {
            return;
        }
        // SAFETY: a valid span of time. There is no filter yet.
        unsafe { kernel(libc::SYS_nanosleep, all([&raw const nap as usize])) };
    }
}

/// In a fork child: the parent's other threads are not here.
pub fn forget_others() {
    UNDER_WAY.iter().for_each(|counter| counter.0.store(0, Relaxed));
}

/// So many filters are known to allow what the tracer does. Constructor only.
pub fn expect(harmless: u32) {
    HARMLESS.store(harmless, Relaxed);
}

/// Looks whether the calling thread is under a filter, and opens the gate if it is not, or if it cannot be
/// told. False if there is a filter.
pub fn check() -> bool {
    let free = match filters() {
        Some(filters) => filters == 0 || filters == HARMLESS.load(Relaxed),
        None => true,
    };
    if free {
        STATE.fetch_and(!(CLOSED | QUIET), SeqCst);
    } else {
        shut();
    }
    free
}

/// Looks whether the calling thread is under a filter, unless one is known. False if there is a filter.
pub fn look_again() -> bool {
    STATE.load(Relaxed) & CLOSED == 0 && check()
}

/// What is read at a time, in bytes, and how often at most: a process with 65 536 groups has a status of 450
/// KB.
const PIECE: usize = 256;
const PIECES: usize = 4096;
/// The line of /proc/PID/status that tells whether there is a filter, and the one behind it, since Linux 5.9.
const MODE: &[u8] = b"\nSeccomp:\t";
const COUNT: &[u8] = b"\nSeccomp_filters:\t";
/// Longest text of both lines.
const BOTH: usize = MODE.len() + COUNT.len() + 13;

/// The number of filters of the calling thread, or None if that cannot be told. Made of calls that the
/// dynamic linker makes to load an image, and as it makes them.
#[inline(never)]
pub fn filters() -> Option<u32> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let path = c"/proc/thread-self/status".as_ptr() as usize;
    // SAFETY: a path that ends with NUL, a descriptor that was just opened, and a place of the length given.
    let made = |number: c_long, args: [usize; 3]| unsafe { kernel(number, all(args)) };
    let fd = made(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags]);
    let Ok(fd) = usize::try_from(fd) else {
        // No /proc, or no descriptor left. Anything else is a filter's answer.
        let by_filter = fd == REFUSED || fd == -(libc::ENOSYS as isize);
        return by_filter.then_some(UNCOUNTED);
    };
    let mut text = [0u8; PIECE];
    let mut length = 0;
    for _ in 0..PIECES {
        let read = made(libc::SYS_read, [fd, text.as_mut_ptr() as usize + length, PIECE - length]);
        if read <= 0 {
            break;
        }
        length += read as usize;
        let keep = match find(text.get(..length).unwrap_or(&text)) {
            Some(at) if length - at >= BOTH => break,
            Some(at) => at,
            None => length.saturating_sub(MODE.len() - 1),
        };
        text.copy_within(keep..length, 0);
        length -= keep;
    }
    made(libc::SYS_close, [fd, 0, 0]);
    Some(text.get(..length).map_or(0, filters_in))
}

/// Where the first of the lines begins. Most of the text is stepped over, as far as its last letter allows.
fn find(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(window) = text.get(at..at + MODE.len()) {
        let last = window[MODE.len() - 1];
        if last == b'\t' && window == MODE {
            return Some(at);
        }
        at += match last {
            b':' => 1,
            b'p' => 2,
            b'm' => 3,
            b'o' => 4,
            b'c' => 5,
            b'e' => 7,
            b'S' => 8,
            b'\n' => 9,
            _ => MODE.len(),
        };
    }
    None
}

/// The number of filters by these lines: none without them, and [`UNCOUNTED`] for those that are not counted.
fn filters_in(text: &[u8]) -> u32 {
    let mode = find(text).and_then(|at| text.get(at + MODE.len()..)).unwrap_or(b"");
    match mode.split_first() {
        None | Some((b'0', _)) => 0,
        Some((b'2', rest)) if let Some(count) = rest.strip_prefix(COUNT) => {
            let digits = count.iter().map_while(|byte| char::from(*byte).to_digit(10));
            digits.fold(0, |sum: u32, digit| sum.saturating_mul(10).saturating_add(digit))
        }
        _ => UNCOUNTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_the_number_of_filters() {
        let with = |lines: &str| {
            format!("Name:\tS\\nSeccomp:\nNoNewPrivs:\t0\n{lines}Speculation_Store_Bypass:\tvulnerable\n")
        };
        for (lines, filters) in [
            ("Seccomp:\t0\nSeccomp_filters:\t0\n", 0),
            ("Seccomp:\t2\nSeccomp_filters:\t1\n", 1),
            ("Seccomp:\t2\nSeccomp_filters:\t12\n", 12),
            ("Seccomp:\t2\n", UNCOUNTED),
            ("Seccomp:\t1\nSeccomp_filters:\t0\n", UNCOUNTED),
            ("", 0),
        ] {
            assert_eq!(filters_in(with(lines).as_bytes()), filters, "{lines}");
        }
        assert_eq!(filters_in(b""), 0);
        // In every alignment to what is read at a time.
        for shift in 0..2 * MODE.len() {
            let text = format!("{}\nSeccomp:\t2\n", "Seccomp:\n".repeat(9)[..shift].to_owned());
            assert_eq!(find(text.as_bytes()), Some(shift), "{text}");
        }
    }

    #[test]
    fn this_process_is_as_the_kernel_says() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let told = match (line("Seccomp:"), line("Seccomp_filters:")) {
            (None | Some("0"), _) => 0,
            (Some("2"), Some(count)) => count.parse().unwrap(),
            _ => UNCOUNTED,
        };
        assert_eq!(filters(), Some(told));
    }
}
