//! The end of a thread, of the process, and of the image before an exec.

use crate::base::guard::{self, Inside, PAST, UNSEEN};
use crate::base::hot::{HOT, OFF, active, is_open};
use crate::base::{counters, gate, room, sys, thread};
use crate::session::{fork, open, stop};
use crate::transport::link::{self, Sent};
use crate::transport::patience::{self, lossless};
use crate::transport::{pending_messages, ring, slot, table};
use cawl_wire::{Ended, Goodbye, Kind, Wchar};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// All the time, in ms, that the end of a process may take, unless no event may be lost.
const LAST_WAIT: u64 = 100;

/// Sees to it that the slot of a thread that ends is free again. Constructor only.
pub fn prepare_threads() {
    thread::on_end(thread_ends);
}

unsafe extern "C" fn thread_ends(_value: *mut c_void) {
    let Some(inside) = guard::enter() else { return };
    let thread = inside.thread();
    pending_messages::abandon(thread);
    room::end(thread);
    let slot = slot::of(thread);
    thread.slot.store(core::ptr::null_mut(), Relaxed);
    if let Some(slot) = slot
        && fork::is_ours()
    {
        table::flush(slot);
        table::release(slot);
    }
}

/// Sends the calling thread's events, where they wait to be sent.
#[cold]
pub fn flush(inside: &Inside) {
    if let Some(slot) = slot::of(inside.thread())
        && fork::is_ours()
    {
        table::flush(slot);
    }
}

/// Ends the session as far as this image is concerned: everything goes out, then the last words.
/// `wait`: an answer that has not come yet may be waited for.
#[cold]
pub fn goodbye(_inside: &Inside, ended: Ended, pending: u64) {
    if !active() || !gate::is_open() || !fork::is_ours() || !active() {
        return;
    }
    let began = sys::nanoseconds();
    // What lies in shared memory is safe there.
    let at_risk = table::has_unsent() || pending_messages::any();
    let most = if lossless() && at_risk { patience::left().max(LAST_WAIT) } else { LAST_WAIT };
    let left = || most.saturating_sub((sys::nanoseconds() - began) / 1_000_000);
    if table::any() {
        open::prepare();
    }
    table::drain(most);
    let awaited = ended != Ended::Exec && (link::has_sent() || table::any());
    if awaited && !link::wait_for_answer(left()) {
        return;
    }
    // A process that never had anything to say says nothing now either.
    if !is_open() {
        return;
    }
    last_words(ended, pending, counters::wchar(), left);
    if ended != Ended::Exec {
        HOT.state.store(OFF, Release);
        gate::shut();
    }
}

/// Before a call after which the tracer may make no system call: says all that it has to say.
#[cold]
pub fn before_silence(_inside: &Inside) {
    open::prepare();
    table::drain(LAST_WAIT);
    if is_open() {
        let began = sys::nanoseconds();
        let left = || LAST_WAIT.saturating_sub((sys::nanoseconds() - began) / 1_000_000);
        last_words(Ended::Confined, 0, counters::wchar(), left);
    }
}

/// That call changed nothing.
#[cold]
pub fn no_silence(_inside: &Inside) {
    if is_open() {
        link::send(Kind::Bell, &[]);
    }
}

/// The tracer can make no system call any more. What needs none goes on: events in shared memory, if the
/// clock (`time_too`) can be read. The daemon was told before.
#[cold]
pub fn silence(time_too: bool) {
    if !time_too || !is_open() || !ring::exists() || !HOT.ticking.load(Relaxed) {
        stop::silently();
    }
}

/// Says goodbye, for which `left` tells how many ms there are.
#[inline(never)]
fn last_words(ended: Ended, pending: u64, wchar: Wchar, left: impl Fn() -> u64) {
    let mut payload = [0u8; 112];
    if let Some(length) = encode(ended, pending, wchar, &mut payload) {
        // The names of files come first.
        let last_words = || match pending_messages::send_waiting() {
            Sent::Whole => link::send(Kind::Goodbye, &payload[..length]),
            other => other,
        };
        let mut said = last_words();
        while said == Sent::Later && left() > 0 {
            link::wait_for_room(left());
            said = last_words();
        }
        if said == Sent::Later {
            // Better without a name than not at all.
            link::send(Kind::Goodbye, &payload[..length]);
        }
    }
}

/// The last words as they are sent.
#[inline(always)]
fn encode(ended: Ended, pending: u64, wchar: Wchar, payload: &mut [u8]) -> Option<usize> {
    let (usage, unseen) = (counters::usage(), UNSEEN.load(Relaxed));
    let past = PAST.load(Relaxed);
    Goodbye { ended, at: sys::nanoseconds(), wchar, usage, pending, unseen, past }.encode(payload)
}
