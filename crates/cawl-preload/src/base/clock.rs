//! The clock that events carry: the processor's counter where it is as good as CLOCK_MONOTONIC, else that.
//!
//! The law of this module: the counter is used only if the kernel itself keeps time by it, for then the
//! kernel has found that it runs evenly and alike on every processor. The daemon turns ticks into ns by pairs
//! of both ([`Anchor`]), so nothing is computed here. A program may forbid itself the counter (PR_SET_TSC),
//! for all that comes after it, by exec, too: from then on nothing reads it, the kernel's own function for
//! the time (`sys::nanoseconds`) included, and ticks are what that clock makes of them.

use crate::base::guard::PAST;
use crate::base::hot::HOT;
use crate::base::{symbols, sys, time};
use cawl_wire::{Anchor, past};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

/// The first moment on both clocks.
static FIRST: Moment = Moment::new();
/// The last one before the counter was forbidden.
static LAST: Moment = Moment::new();
/// It was, after events had carried it.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// When this process, or its parent, last forked.
static FORKED: AtomicU64 = AtomicU64::new(0);

/// An [`Anchor`] to be shared.
struct Moment([AtomicU64; 2]);

impl Moment {
    const fn new() -> Moment {
        Moment([const { AtomicU64::new(0) }; 2])
    }

    fn set(&self, anchor: Anchor) {
        self.0[0].store(anchor.ticks, Relaxed);
        self.0[1].store(anchor.nanos, Relaxed);
    }

    fn anchor(&self) -> Anchor {
        let [ticks, nanos] = self.0.each_ref().map(|word| word.load(Relaxed));
        Anchor { ticks, nanos }
    }
}

/// Now, for an event.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if HOT.ticking.load(Relaxed) {
        return ticks();
    }
    slowly()
}

#[cold]
#[inline(never)]
fn slowly() -> u64 {
    let nanos = sys::nanoseconds();
    if FORBIDDEN.load(Acquire) { derived(nanos).ticks } else { nanos }
}

/// The moment as the counter would have it.
fn derived(nanos: u64) -> Anchor {
    let (first, last) = (FIRST.anchor(), LAST.anchor());
    let (run, time) = (last.ticks.wrapping_sub(first.ticks), last.nanos.saturating_sub(first.nanos).max(1));
    let since = u128::from(nanos.saturating_sub(last.nanos)) * u128::from(run) / u128::from(time);
    Anchor { ticks: last.ticks.wrapping_add(since as u64), nanos }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: the instruction reads a counter and nothing else, and where it is forbidden nothing comes here.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Before a fork.
pub fn forking() {
    FORKED.store(sys::nanoseconds(), Relaxed);
}

/// In the child: it may be in another time namespace, where CLOCK_MONOTONIC is another.
pub fn forked() {
    if sys::nanoseconds().wrapping_sub(FORKED.load(Relaxed)) > 1_000_000_000 {
        look_at_namespace();
    }
}

/// Looks for a time namespace. Its times are not the machine's.
fn look_at_namespace() {
    time::look_at_clock();
    if time::has_other_clock() {
        PAST.fetch_or(past::CLOCK, Relaxed);
    }
}

/// The counter is about to be forbidden to the calling thread, and what it starts. It is not read again, in
/// no thread.
#[cold]
pub fn forbid() {
    if let Some(anchor) = anchor() {
        LAST.set(anchor);
        FORBIDDEN.store(true, Release);
        HOT.ticking.store(false, Release);
    }
    time::call_for_time();
}

/// A moment on both clocks; None where events carry ns.
pub fn anchor() -> Option<Anchor> {
    if FORBIDDEN.load(Acquire) {
        return Some(derived(sys::nanoseconds()));
    }
    #[cfg(target_arch = "x86_64")]
    if HOT.ticking.load(Relaxed) {
        let mut best = Anchor::default();
        let mut width = u64::MAX;
        for _ in 0..3 {
            let before = ticks();
            let nanos = sys::nanoseconds();
            let between = ticks().wrapping_sub(before);
            if between < width {
                width = between;
                best = Anchor { ticks: before.wrapping_add(between / 2), nanos };
            }
        }
        return Some(best);
    }
    None
}

/// The first moment on both clocks and the present one.
pub fn anchors() -> Option<[Anchor; 2]> {
    anchor().map(|now| [FIRST.anchor(), now])
}

/// So many ns as a span of [`now`], roughly.
pub fn span(nanos: u64) -> u64 {
    match anchors() {
        Some([first, last]) if last.nanos > first.nanos => {
            let ticks = last.ticks.saturating_sub(first.ticks);
            (u128::from(nanos) * u128::from(ticks) / u128::from(last.nanos - first.nanos)) as u64
        }
        _ => nanos,
    }
}

/// Chooses the clock. Constructor only. `wanted`: false where the user asked for ns; `known`: the kernel was
/// found to keep time by the counter when the run began.
pub fn choose(wanted: bool, known: bool) {
    if symbols::has_other_clock() {
        PAST.fetch_or(past::CLOCK, Relaxed);
    }
    if !allowed() {
        return look_at_namespace();
    }
    time::ask_for_time(symbols::find_in_kernel(time::TIME));
    look_at_namespace();
    #[cfg(target_arch = "x86_64")]
    if wanted && (known || kernel_keeps_time_by_it()) {
        HOT.ticking.store(true, Relaxed);
        if let Some(first) = anchor() {
            FIRST.set(first);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (wanted, known);
}

/// The processor is not asked whether the counter runs evenly: in a virtual machine that is an exit to the
/// host, and the kernel has asked.
#[cfg(target_arch = "x86_64")]
fn kernel_keeps_time_by_it() -> bool {
    let mut text = [0u8; 16];
    let length =
        sys::read_file(c"/sys/devices/system/clocksource/clocksource0/current_clocksource", &mut text);
    text.get(..length).is_some_and(|text| text.starts_with(b"tsc\n"))
}

/// The process has not been forbidden to read it. A kernel that does not know the question (user-mode-linux,
/// and those of other processors) cannot forbid it.
fn allowed() -> bool {
    let mut setting: libc::c_int = 0;
    // SAFETY: a valid place for the answer.
    let asked = unsafe { sys::call(libc::SYS_prctl, [libc::PR_GET_TSC as usize, &raw mut setting as usize]) };
    is_allowed(asked, setting)
}

/// The same, of what the kernel answered.
fn is_allowed(asked: isize, setting: libc::c_int) -> bool {
    asked == 0 && setting == libc::PR_TSC_ENABLE || asked == -(libc::EINVAL as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows the question may have forbidden it; one that does not (user-mode-linux) cannot
    /// have.
    #[test]
    fn the_counter_is_forbidden_only_by_a_kernel_that_can() {
        let unknown = -(libc::EINVAL as isize);
        assert!(is_allowed(0, libc::PR_TSC_ENABLE) && is_allowed(unknown, 0));
        assert!(!is_allowed(0, libc::PR_TSC_SIGSEGV) && !is_allowed(-(libc::EPERM as isize), 0));
    }

    /// The counters of all processors are one: a thread that moves between them sees time go forward.
    #[test]
    fn time_goes_forward_on_every_processor() {
        choose(true, false);
        let mut last = now();
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        for round in 0..200 {
            // SAFETY: a valid set of the length given, for the calling thread.
            unsafe {
                let mut set: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(round % count, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &set);
            }
            for _ in 0..1000 {
                let next = now();
                assert!(next >= last, "back by {} on processor {}", last - next, round % count);
                last = next;
            }
        }
        if let Some([first, last]) = anchors() {
            assert!(first.ticks < last.ticks && first.nanos < last.nanos);
            let second = span(1_000_000_000) as f64;
            assert!((1e8..1e10).contains(&second), "{second} ticks a second");
            // Without it time goes on from there, as fast.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let before = now();
            forbid();
            let begun = (now(), std::time::Instant::now());
            assert!(!HOT.ticking.load(Relaxed) && begun.0 >= before.saturating_sub(10_000));
            std::thread::sleep(std::time::Duration::from_millis(20));
            let (end, took) = (now(), begun.1.elapsed().as_nanos() as f64);
            let ratio = (end - begun.0) as f64 / (took * second / 1e9);
            assert!((0.9..1.1).contains(&ratio), "{ratio}");
        }
    }
}
