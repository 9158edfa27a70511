//! Opening the session: at the program's start, and in a fork child before it says anything.
//!
//! The law of this module: one thread opens it, and no other waits for that one. If anything is not as
//! expected, the session is over; the program never learns of it.

use crate::base::hot::{HOT, OFF, OPEN, OPENING, WANTED, pid};
use crate::base::settings::settings;
use crate::base::thread::thread;
use crate::base::{clock, counters, gate, guard, sys};
use crate::session::environment;
use crate::session::goodbye;
use crate::session::stop;
use crate::transport::link::{self, Sent};
use crate::transport::{pending_messages, ring, stack, table};
use cawl_wire::{Ended, Hello, Kind, Usage, Wchar};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// The thread that opens the session, or 0.
static OPENER: AtomicU32 = AtomicU32::new(0);
/// The shared memory on its way to the daemon, or -1.
static MEMORY: AtomicI32 = AtomicI32::new(-1);
static STARTED: AtomicU64 = AtomicU64::new(0);
/// What the kernel had counted then: of the process, and of its first thread.
static STARTED_WCHAR: [AtomicU64; 2] = [const { AtomicU64::new(UNKNOWN) }; 2];
const UNKNOWN: u64 = u64::MAX;
/// The times and switches that it had counted then: a [`Usage`], in the order of its fields.
static STARTED_USAGE: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

/// Opens the session if it is not, before anything is told. Nothing else does, because it takes much of the
/// stack. The caller holds the guard.
#[inline]
pub fn prepare() {
    if matches!(HOT.state.load(Acquire), WANTED | OPENING) && open() == Sent::Whole {
        // What was written down while that could not be.
        pending_messages::send_waiting();
    }
}

/// Opens the session if it is not, and makes room for a name in the thread's slot.
#[inline(never)]
pub fn prepare_name() {
    prepare();
    guard::keeping_errno(|| table::make_room_for_name(thread()));
}

/// Opens the session of a new process image. Constructor only.
pub fn begin() {
    let Some(settings) = settings() else { return };
    HOT.pid.store(sys::getpid(), Relaxed);
    let is_other = settings.only_child_of != 0 && sys::getppid() != settings.only_child_of;
    if is_other || settings.is_excluded() {
        return;
    }
    clock::choose(settings.ticks, settings.tsc);
    stack::begin();
    STARTED.store(sys::nanoseconds(), Relaxed);
    let wchar = counters::wchar();
    STARTED_WCHAR[0].store(wchar.process.unwrap_or(UNKNOWN), Relaxed);
    STARTED_WCHAR[1].store(wchar.thread.unwrap_or(UNKNOWN), Relaxed);
    let Usage { user, system, others, voluntary, involuntary, first_ran, first_delayed } = counters::usage();
    let usage = [user, system, others, voluntary, involuntary, first_ran, first_delayed];
    STARTED_USAGE.iter().zip(usage).for_each(|(figure, value)| figure.store(value, Relaxed));
    HOT.state.store(WANTED, Release);
    if let Some(inside) = guard::enter() {
        open();
        if !ring::has_addresses() {
            goodbye(&inside, Ended::Crowded, 0);
        }
    }
}

/// In a fork child: one of its own is opened before the next message, if children are traced.
pub fn forget() {
    link::forget();
    close_memory();
    OPENER.store(0, Relaxed);
    STARTED.store(sys::nanoseconds(), Relaxed);
    STARTED_WCHAR.iter().chain(&STARTED_USAGE).for_each(|figure| figure.store(0, Relaxed));
    let children_too = settings().is_some_and(|settings| settings.only_child_of == 0);
    if HOT.state.load(Relaxed) == OFF || !children_too {
        return stop::silently();
    }
    HOT.state.store(WANTED, Release);
}

#[cold]
#[inline(never)]
fn open() -> Sent {
    if !gate::is_open() {
        return Sent::Later;
    }
    let tid = thread().tid();
    if let Err(other) = OPENER.compare_exchange(0, tid, AcqRel, Acquire) {
        // The opener has left if it is this thread (a jump), or has ended.
        let is_gone = other == tid || !sys::is_thread(pid(), other);
        if !is_gone || OPENER.compare_exchange(other, tid, AcqRel, Acquire).is_err() {
            return Sent::Later;
        }
        clear_away();
    }
    let opened = open_alone();
    close_memory();
    OPENER.store(0, Release);
    opened
}

/// Undoes what a thread that did not go on began.
fn clear_away() {
    close_memory();
    if HOT.state.load(Acquire) == OPENING {
        link::close();
        ring::leave();
        HOT.state.store(WANTED, Release);
    }
}

/// The daemon has the memory, or will not have it.
fn close_memory() {
    if let fd @ 0.. = MEMORY.swap(-1, AcqRel) {
        sys::close(fd);
    }
}

fn open_alone() -> Sent {
    if HOT.state.compare_exchange(WANTED, OPENING, AcqRel, Acquire).is_err() {
        return if HOT.state.load(Acquire) == OFF { Sent::Broken } else { Sent::Later };
    }
    match settings().map(|settings| link::connect(settings.socket().to_bytes())) {
        Some(Ok(())) => {}
        Some(Err(errno)) if errno == -(libc::EAGAIN as isize) => {
            HOT.state.store(WANTED, Release);
            return Sent::Later;
        }
        Some(Err(errno)) if ![libc::ECONNREFUSED, libc::EMFILE].map(|no| -(no as isize)).contains(&errno) => {
            // There is no socket here, as in another root directory.
            if environment::is_clearable() {
                environment::clear();
            }
            environment::withdraw();
            return link::give_up();
        }
        _ => return link::give_up(),
    }
    // Others may send only after the hello.
    if introduce() != Sent::Whole {
        return link::give_up();
    }
    HOT.state.store(OPEN, Release);
    link::tell_dropped();
    Sent::Whole
}

struct Scratch(UnsafeCell<[u8; 4096]>);
// SAFETY: touched only by the thread that moved the state to OPENING.
unsafe impl Sync for Scratch {}
/// Not on the stack, which may be the small one of a signal handler.
static HELLO: Scratch = Scratch(UnsafeCell::new([0; 4096]));

fn started_wchar() -> Wchar {
    let [process, thread] = STARTED_WCHAR.each_ref().map(|figure| figure.load(Relaxed));
    let known = |figure: u64| (figure != UNKNOWN).then_some(figure);
    Wchar { process: known(process), thread: known(thread) }
}

fn started_usage() -> Usage {
    let figures = STARTED_USAGE.each_ref().map(|figure| figure.load(Relaxed));
    let [user, system, others, voluntary, involuntary, first_ran, first_delayed] = figures;
    Usage { user, system, others, voluntary, involuntary, first_ran, first_delayed }
}

/// Says hello, with shared memory where that is possible.
fn introduce() -> Sent {
    let may_share = settings().is_some_and(|settings| settings.share) && table::may_share();
    if may_share && let Some(memory) = ring::create() {
        MEMORY.store(memory, Relaxed);
        let sent = hello(Some(memory));
        if sent == Sent::Whole {
            ring::enter();
            return sent;
        }
        ring::leave();
    }
    hello(None)
}

fn hello(memory: Option<c_int>) -> Sent {
    // SAFETY: only the thread that opens the session comes here.
    let payload = unsafe { &mut *HELLO.0.get() };
    match encode_hello(memory.is_some(), payload) {
        Some(length) => link::transmit(Kind::Hello, &payload[..length], memory),
        None => Sent::Broken,
    }
}

#[inline(never)]
fn encode_hello(ring: bool, payload: &mut [u8]) -> Option<usize> {
    let settings = settings()?;
    let hello = Hello {
        pid: HOT.pid.load(Relaxed),
        ppid: sys::getppid(),
        uid: sys::getuid(),
        run: settings.run,
        started: STARTED.load(Relaxed),
        wchar: started_wchar(),
        usage: started_usage(),
        rank: settings.rank,
        ring,
        ticks: clock::anchors(),
        program: settings.program(),
        arguments: settings.arguments(),
    };
    hello.encode(payload)
}
