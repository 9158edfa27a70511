//! The stack of a call, copied into the thread's ring before the call's event, for the daemon to unwind.
//! Without `--stacks` nothing here is entered but [`any`], which reads one number, where an event is written
//! whole.
//!
//! The law of this module: the kernel copies, so that no address can hurt; and a stack takes no room that an
//! event needs. One that finds no room is counted, and its event is kept.

use crate::base::settings::settings;
use crate::base::{clock, guard, hot, memory, sys};
use crate::transport::slot::{self, Slot};
use crate::transport::{interpreter, modules, ring};
use cawl_wire::stack::{STACK_BYTES, StackRecord, Wanted};
use cawl_wire::{Event, Op};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Each call that takes as long, in ns.
static NANOS: AtomicU64 = AtomicU64::new(0);
/// The same on the clock of events, once a call has asked: at the start that clock is not known well.
static THRESHOLD: AtomicU64 = AtomicU64::new(UNASKED);
const UNASKED: u64 = u64::MAX;
/// One in so many of the others; 0: no stack is copied.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
/// What the daemon said last.
static SAID: AtomicU64 = AtomicU64::new(0);
/// Stacks that found no room.
static LOST: AtomicU64 = AtomicU64::new(0);

/// True if stacks are copied.
#[inline(always)]
pub fn any() -> bool {
    ONE_IN.load(Relaxed) != 0
}

/// Learns what `run` wants. Constructor only.
pub fn begin() {
    let wanted = settings().and_then(|settings| settings.stacks);
    SAID.store(wanted.map_or(0, Wanted::pack), Relaxed);
    want(wanted);
}

fn want(wanted: Option<Wanted>) {
    NANOS.store(wanted.map_or(0, |wanted| wanted.threshold), Relaxed);
    THRESHOLD.store(UNASKED, Relaxed);
    ONE_IN.store(wanted.map_or(0, |wanted| wanted.one_in), Relaxed);
    slot::KEEPS_ROOM.store(wanted.is_some(), Relaxed);
}

/// Looks at what the daemon wants; false if it has not said so yet.
pub fn check_wanted() -> bool {
    let said = ring::wanted_stacks();
    if said != 0 && SAID.swap(said, Relaxed) != said {
        want(Wanted::unpack(said));
    }
    said != 0
}

#[inline(never)]
fn threshold() -> u64 {
    let known = THRESHOLD.load(Relaxed);
    if known != UNASKED {
        return known;
    }
    let threshold = guard::keeping_errno(|| clock::span(NANOS.load(Relaxed)));
    THRESHOLD.store(threshold, Relaxed);
    threshold
}

/// In a copy of the process.
pub fn forget() {
    LOST.store(0, Relaxed);
    interpreter::forget();
}

/// True if the stack of this call is to be copied: what the tracer tells beside calls has none.
fn is_wanted(slot: &Slot, event: &Event) -> bool {
    let is_call = !matches!(event.op, Op::Resident | Op::Uncertain | Op::StreamExit | Op::MmapWrite);
    is_call && (event.duration >= threshold() || is_drawn(slot, event.start))
}

/// One in so many, by chance, so that no rhythm of the program's matters (xorshift64).
fn is_drawn(slot: &Slot, seed: u64) -> bool {
    let mut state = slot.random.load(Relaxed);
    if state == 0 {
        state = (seed ^ u64::from(hot::pid()) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    slot.random.store(state, Relaxed);
    (state >> 32).wrapping_mul(ONE_IN.load(Relaxed).into()) >> 32 == 0
}

/// Puts an event into a slot, and its stack before it, if that is to be copied. None goes on from it, since
/// each is to come by here. False if there is no room.
#[cold]
#[inline(never)]
pub fn put(slot: &Slot, event: &Event) -> bool {
    if !slot.is_ringed() {
        return slot::put_whole(slot, event, 0, 0);
    }
    if is_wanted(slot, event)
        && let length @ 1.. = copy(slot, event.start)
    {
        // Not below the copy, since little of the caller's stack is left.
        let more = slot::piece_place(slot).get_mut(length..).map_or(0, interpreter::frames);
        slot::put_piece(slot, cawl_wire::ring::STACK, length + more);
    }
    put_event(slot, event)
}

/// Puts an event where there is no room for another stack.
#[inline(never)]
fn put_event(slot: &Slot, event: &Event) -> bool {
    slot::limit(slot, true);
    let is_put = slot::put_whole(slot, event, 0, 0);
    slot::limit(slot, false);
    if modules::is_due() {
        // Mapped by another thread: told before this one's next call.
        modules::changed();
    }
    is_put
}

/// Writes the stack of a call that began at `start` to the [`slot::piece_place`]; its length with the head,
/// or 0.
#[inline(never)]
fn copy(slot: &Slot, start: u64) -> usize {
    if !slot.has_room_for_piece() {
        ring::tell_lost_stacks(LOST.fetch_add(1, Relaxed) + 1);
        return 0;
    }
    // What keeps its memory from its own user keeps it from the daemon.
    if !guard::keeping_errno(sys::is_dumpable) {
        return 0;
    }
    let registers = registers();
    let place = slot::piece_place(slot);
    let Some((head, rest)) = place.split_at_mut_checked(StackRecord::HEAD) else { return 0 };
    let copied = rest.get_mut(..STACK_BYTES).map_or(0, |stack| memory::copy(registers[1], stack));
    if copied == 0 {
        return 0;
    }
    let words = StackRecord::head(start, registers, copied as u64);
    for (place, byte) in head.iter_mut().zip(words.as_flattened()) {
        *place = *byte;
    }
    StackRecord::HEAD + copied
}

/// Instruction, stack, frame and link pointer here: the caller's frames are the program's.
#[inline(always)]
fn registers() -> [u64; 4] {
    let (ip, sp, fp, lr): (u64, u64, u64, u64);
    // SAFETY: registers are read.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            core::arch::asm!(
                "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
                out(reg) ip, out(reg) sp, out(reg) fp, options(nomem, nostack, preserves_flags)
            );
            lr = 0;
        }
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30",
            out(reg) ip, out(reg) sp, out(reg) fp, out(reg) lr, options(nomem, nostack, preserves_flags)
        );
    }
    [ip, sp, fp, lr]
}
