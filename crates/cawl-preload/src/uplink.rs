//! The session with the daemon, over a Unix stream socket: whether there is one, and what is said there.
//!
//! The law of this module: nothing waits for the daemon, except that the end of the process may take up
//! to 100 ms. A message is sent whole by one call or not at all. If anything is not as expected, the
//! session is over and the library inert; the program never learns of it.

use crate::guard::{Inside, UNSEEN};
use crate::hot::HOT;
pub use crate::socket::Sent;
use crate::{announce, buffer, clock, env, files, place, ring, socket, sys};
use cawl_wire::{Ended, Goodbye, HEADER_LEN, Header, Hello, Kind, MAX_PAYLOAD, VERSION, Wchar, WireError};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// Nothing is traced, now or later.
const OFF: u8 = 0;
/// A session is to be opened before the next message.
const WANTED: u8 = 1;
/// A thread is opening it.
const OPENING: u8 = 2;
/// Messages can be sent.
const OPEN: u8 = 3;

/// All the time, in ms, that the end of a process may take, unless no event may be lost.
const LAST_WAIT: u64 = 100;
/// How long, in ms, a program that wants no event lost waits for a daemon that takes none.
pub const PATIENCE: u64 = 10_000;
/// Shortest time, in ns, between two rings of the daemon's bell.
const BELL_EVERY: u64 = 500_000;
/// Asked of the kernel for the socket's queue, in bytes; it grants what it allows.
const QUEUE: c_int = 4 << 20;

static FD: AtomicI32 = AtomicI32::new(-1);
/// The thread that opens the session, or 0.
static OPENER: AtomicU32 = AtomicU32::new(0);
/// The shared memory on its way to the daemon, or -1.
static MEMORY: AtomicI32 = AtomicI32::new(-1);
static SOCKET_DEV: AtomicU64 = AtomicU64::new(0);
static SOCKET_INO: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static RANG_AT: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicU64 = AtomicU64::new(0);
/// What the kernel had counted then: of the process, and of its first thread.
static STARTED_WCHAR: [AtomicU64; 2] = [const { AtomicU64::new(UNKNOWN) }; 2];
const UNKNOWN: u64 = u64::MAX;
/// A word that the kernel wipes in a copied process, and that a vfork child sees unwiped.
static WITNESS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// True if calls are to be recorded.
#[inline(always)]
pub fn active() -> bool {
    HOT.state.load(Relaxed) != OFF
}

/// True if the session has begun and goes on.
pub fn is_open() -> bool {
    HOT.state.load(Acquire) == OPEN
}

/// The session's process id.
#[inline(always)]
pub fn pid() -> u32 {
    HOT.pid.load(Relaxed)
}

/// The tracer's own descriptor, or -1.
pub fn own_fd() -> c_int {
    if still_our_socket() { FD.load(Relaxed) } else { -1 }
}

/// True if this is the tracer's own descriptor, which for the program is not open.
#[inline(always)]
pub fn is_own(fd: c_int) -> bool {
    fd >= 0 && fd == FD.load(Relaxed) && still_our_socket()
}

/// Counts events that will not be sent.
#[cold]
pub fn count_dropped(count: u64) {
    ring::tell_dropped(DROPPED.fetch_add(count, Relaxed) + count);
}

/// True if the user would rather wait than lose an event.
pub fn lossless() -> bool {
    env::settings().is_some_and(|settings| settings.lossless)
}

/// Wakes the daemon: a ring fills.
#[cold]
pub fn ring_bell() {
    let now = sys::nanoseconds();
    if now.saturating_sub(RANG_AT.load(Relaxed)) >= BELL_EVERY {
        RANG_AT.store(now, Relaxed);
        send(Kind::Bell, &[]);
    }
}

/// True as long as the daemon has not closed the session; if it has, the session is over.
#[cold]
pub fn is_daemon_there() -> bool {
    let mut byte = 0u8;
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_PEEK) as usize;
    let fd = FD.load(Relaxed) as usize;
    if HOT.state.load(Relaxed) != OPEN || !still_our_socket() {
        return false;
    }
    // SAFETY: a valid place of the length given.
    let length = unsafe { sys::call(libc::SYS_recvfrom, [fd, &raw mut byte as usize, 1, flags, 0, 0]) };
    if length > 0 || length == -(libc::EAGAIN as isize) || length == -(libc::EINTR as isize) {
        return true;
    }
    give_up();
    false
}

/// Opens the session if it is not, before anything is told. Nothing else does, because it takes much of the stack.
/// The caller holds the guard.
#[inline]
pub fn prepare() {
    if matches!(HOT.state.load(Acquire), WANTED | OPENING) && open() == Sent::Whole {
        // What was written down while that could not be.
        announce::send_waiting();
    }
}

/// Opens the session of a new process image. Constructor only.
pub fn begin() {
    let Some(settings) = env::settings() else { return };
    HOT.pid.store(sys::getpid(), Relaxed);
    if settings.only_child_of != 0 && sys::getppid() != settings.only_child_of {
        return;
    }
    clock::choose(settings.ticks);
    let page = sys::map(4096);
    if !page.is_null() {
        // SAFETY: the page was just mapped and is advised as a whole; a refusal is harmless.
        let wiped = unsafe {
            sys::call(libc::SYS_madvise, [page as usize, 4096, libc::MADV_WIPEONFORK as usize, 0, 0, 0])
        };
        if wiped == 0 {
            // SAFETY: page-aligned memory that stays mapped for good and is only used as this atomic.
            unsafe { (*page.cast::<AtomicU32>()).store(1, Relaxed) };
            WITNESS.store(page.cast(), Release);
        }
    }
    STARTED.store(sys::nanoseconds(), Relaxed);
    let wchar = sys::wchar();
    STARTED_WCHAR[0].store(wchar.process.unwrap_or(UNKNOWN), Relaxed);
    STARTED_WCHAR[1].store(wchar.thread.unwrap_or(UNKNOWN), Relaxed);
    HOT.state.store(WANTED, Release);
    if let Some(_inside) = crate::guard::enter() {
        open();
    }
}

/// True if the caller is the process that the session belongs to, or a copy that gets one of its own.
/// False in a vfork child, whose memory is its parent's and must not be touched.
#[cold]
pub fn is_ours() -> bool {
    let pid = sys::getpid();
    if pid == HOT.pid.load(Relaxed) {
        return true;
    }
    let witness = WITNESS.load(Acquire);
    // SAFETY: null, or the word set up by `begin`, which stays mapped.
    let copied = unsafe { witness.as_ref() }.is_some_and(|word| word.load(Relaxed) == 0);
    if copied {
        forked();
    }
    copied
}

/// In a copy of the process: forget the parent's session and start afresh at the next event.
#[cold]
pub fn forked() {
    let pid = sys::getpid();
    if HOT.pid.swap(pid, AcqRel) == pid {
        return;
    }
    // SAFETY: null, or the word set up by `begin`, which stays mapped.
    if let Some(word) = unsafe { WITNESS.load(Acquire).as_ref() } {
        word.store(1, Relaxed);
    }
    let thread = crate::guard::thread();
    thread.reset();
    buffer::forget(thread);
    announce::forget();
    files::share_all();
    files::begin_session();
    if still_our_socket() {
        sys::close(FD.load(Relaxed));
    }
    FD.store(-1, Relaxed);
    close_memory();
    OPENER.store(0, Relaxed);
    DROPPED.store(0, Relaxed);
    UNSEEN.store(0, Relaxed);
    SENT.store(0, Relaxed);
    ANSWERED.store(false, Relaxed);
    STARTED.store(sys::nanoseconds(), Relaxed);
    STARTED_WCHAR.iter().for_each(|figure| figure.store(0, Relaxed));
    let children_too = env::settings().is_some_and(|settings| settings.only_child_of == 0);
    if HOT.state.load(Relaxed) != OFF {
        HOT.state.store(if children_too { WANTED } else { OFF }, Release);
    }
}

/// True if our descriptor still leads to our socket: the program may have closed it behind our back.
#[cold]
#[inline(never)]
fn still_our_socket() -> bool {
    let fd = FD.load(Relaxed);
    fd >= 0
        && sys::fstat(fd).is_some_and(|stat| {
            stat.st_dev == SOCKET_DEV.load(Relaxed) && stat.st_ino == SOCKET_INO.load(Relaxed)
        })
}

fn give_up() -> Sent {
    HOT.state.store(OFF, Release);
    if still_our_socket() {
        sys::close(FD.swap(-1, AcqRel));
    }
    Sent::Broken
}

#[cold]
#[inline(never)]
fn open() -> Sent {
    let tid = crate::guard::thread().tid();
    if let Err(other) = OPENER.compare_exchange(0, tid, AcqRel, Acquire) {
        // Whoever comes here is not at it any more: it was jumped out of it, or has ended.
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
        if still_our_socket() {
            sys::close(FD.load(Relaxed));
        }
        FD.store(-1, Relaxed);
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
    match connect() {
        Ok(fd) if settle(fd) => {}
        Err(errno) if errno == -(libc::EAGAIN as isize) => {
            HOT.state.store(WANTED, Release);
            return Sent::Later;
        }
        _ => return give_up(),
    }
    // Others may send only after the hello.
    if introduce() != Sent::Whole {
        return give_up();
    }
    HOT.state.store(OPEN, Release);
    ring::tell_dropped(DROPPED.load(Relaxed));
    Sent::Whole
}

/// Makes a socket that was just connected the session's; false if it is not to be.
#[inline(never)]
fn settle(fd: c_int) -> bool {
    let fd = place::out_of_the_way(fd);
    FD.store(fd, Release);
    if !socket::peer_is_trusted(fd) {
        return false;
    }
    // SAFETY: a valid number of the length given; a refusal is harmless.
    unsafe {
        let place = &raw const QUEUE_SIZE as usize;
        let option = [fd as usize, libc::SOL_SOCKET as usize, libc::SO_SNDBUF as usize, place, 4, 0];
        sys::call(libc::SYS_setsockopt, option);
    }
    true
}

static QUEUE_SIZE: c_int = QUEUE;

/// Connects to the daemon.
fn connect() -> Result<c_int, isize> {
    let settings = env::settings().ok_or(-1isize)?;
    let fd = socket::make()?;
    // Known before anything else is done, so that it is closed if this thread is jumped out of here.
    FD.store(fd, Relaxed);
    if let Some(stat) = sys::fstat(fd) {
        SOCKET_DEV.store(stat.st_dev, Relaxed);
        SOCKET_INO.store(stat.st_ino, Relaxed);
    }
    socket::connect(fd, settings.socket()).map(|()| fd).inspect_err(|_| {
        FD.store(-1, Relaxed);
        sys::close(fd);
    })
}

/// The program is about to put something else at the number of our descriptor: take another.
pub fn make_way(wanted: c_int) {
    // Above the limit nothing can be put.
    if is_own(wanted) && is_ours() && (wanted as u64) < sys::limit(libc::RLIMIT_NOFILE) {
        let mut moved = place::duplicate_above_the_limit(wanted);
        if moved < 0 {
            moved = sys::fcntl(wanted, libc::F_DUPFD_CLOEXEC, wanted as usize + 1);
        }
        if moved < 0 {
            moved = sys::fcntl(wanted, libc::F_DUPFD_CLOEXEC, 3);
        }
        if moved < 0 {
            give_up();
        } else {
            FD.store(moved as c_int, Release);
            sys::close(wanted);
        }
    }
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

/// Says hello, with shared memory where that is possible.
fn introduce() -> Sent {
    let may_share = env::settings().is_some_and(|settings| settings.share) && buffer::may_share();
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
        Some(length) => transmit(Kind::Hello, &payload[..length], memory),
        None => Sent::Broken,
    }
}

#[inline(never)]
fn encode_hello(ring: bool, payload: &mut [u8]) -> Option<usize> {
    let settings = env::settings()?;
    let hello = Hello {
        pid: HOT.pid.load(Relaxed),
        ppid: sys::getppid(),
        uid: sys::getuid(),
        run: settings.run,
        started: STARTED.load(Relaxed),
        wchar: started_wchar(),
        ring,
        ticks: clock::anchors(),
        program: settings.program(),
        arguments: settings.arguments(),
    };
    hello.encode(payload)
}

/// Sends one message, or nothing.
pub fn send(kind: Kind, payload: &[u8]) -> Sent {
    match HOT.state.load(Acquire) {
        OPEN => {}
        WANTED | OPENING => return Sent::Later,
        _ => return Sent::Broken,
    }
    if payload.len() > MAX_PAYLOAD || !still_our_socket() {
        return give_up();
    }
    if !ANSWERED.load(Relaxed) && !answer() {
        return give_up();
    }
    match transmit(kind, payload, None) {
        Sent::Broken => give_up(),
        other => other,
    }
}

#[inline(never)]
fn transmit(kind: Kind, payload: &[u8], passed: Option<c_int>) -> Sent {
    let header = Header { kind, len: payload.len() as u32, dropped: DROPPED.load(Relaxed) }.encode();
    let sent = socket::send(FD.load(Relaxed), [&header, payload], passed);
    if kind == Kind::Events && sent == Sent::Whole {
        SENT.fetch_add(1, Relaxed);
    }
    sent
}

/// Looks for the daemon's answer without waiting; false if it refused.
#[cold]
#[inline(never)]
fn answer() -> bool {
    let mut bytes = [0u8; HEADER_LEN];
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    let fd = FD.load(Relaxed) as usize;
    // SAFETY: a valid place of the length given.
    let length =
        unsafe { sys::call(libc::SYS_recvfrom, [fd, bytes.as_mut_ptr() as usize, HEADER_LEN, flags, 0, 0]) };
    if length != HEADER_LEN as isize {
        return true;
    }
    ANSWERED.store(true, Relaxed);
    match Header::decode(&bytes) {
        Ok(Header { kind: Kind::Welcome, .. }) => return true,
        Ok(Header { kind: Kind::Refused, .. }) => refuse(VERSION),
        Err(WireError::Version(theirs)) => refuse(theirs),
        _ => {}
    }
    false
}

/// The one line that the tracer ever prints.
#[cold]
#[inline(never)]
fn refuse(theirs: u16) {
    let Some(settings) = env::settings() else { return };
    // SAFETY: only the thread that got the answer comes here, and nobody opens a session while there is one.
    let mut line = env::Text::new(unsafe { &mut *HELLO.0.get() });
    let _ = line
        .add(b"cawl: not tracing ")
        .and_then(|()| line.add(settings.program()))
        .and_then(|()| line.add(b": the daemon at "))
        .and_then(|()| line.add(settings.socket()))
        .and_then(|()| line.add(b" speaks protocol version "))
        .and_then(|()| line.add_number(theirs))
        .and_then(|()| line.add(b", this tracer version "))
        .and_then(|()| line.add_number(VERSION))
        .and_then(|()| line.add(b"; start it with cawl of the same version\n"));
    sys::write(libc::STDERR_FILENO, line.bytes());
}

/// Waits until the socket has room.
pub fn wait_for_room(milliseconds: u64) {
    if HOT.state.load(Relaxed) == OPEN {
        sys::poll(FD.load(Relaxed), libc::POLLOUT, milliseconds);
    } else {
        sys::poll(-1, 0, 1);
    }
}

/// Ends the session as far as this image is concerned: everything goes out, then the last words.
/// `wait`: an answer that has not come yet may be waited for.
#[cold]
pub fn goodbye(_inside: &Inside, ended: Ended, pending: u64) {
    if !active() || !is_ours() || !active() {
        return;
    }
    let began = sys::nanoseconds();
    let most = if lossless() { PATIENCE } else { LAST_WAIT };
    let left = || most.saturating_sub((sys::nanoseconds() - began) / 1_000_000);
    if buffer::any() {
        prepare();
    }
    buffer::drain(most);
    if ended != Ended::Exec
        && (SENT.load(Relaxed) > 0 || buffer::any())
        && !ANSWERED.load(Relaxed)
        && HOT.state.load(Relaxed) == OPEN
    {
        sys::poll(FD.load(Relaxed), libc::POLLIN, left());
        if !answer() {
            give_up();
            return;
        }
    }
    // A process that never had anything to say says nothing now either.
    if HOT.state.load(Relaxed) != OPEN {
        return;
    }
    last_words(ended, pending, left);
    if ended != Ended::Exec {
        HOT.state.store(OFF, Release);
    }
}

/// Says goodbye, for which `left` tells how many ms there are.
#[inline(never)]
fn last_words(ended: Ended, pending: u64, left: impl Fn() -> u64) {
    let words =
        Goodbye { ended, at: sys::nanoseconds(), wchar: sys::wchar(), pending, unseen: UNSEEN.load(Relaxed) };
    let mut payload = [0u8; 64];
    if let Some(length) = words.encode(&mut payload) {
        // The names of files come first.
        let last_words = || match announce::send_waiting() {
            Sent::Whole => send(Kind::Goodbye, &payload[..length]),
            other => other,
        };
        let mut said = last_words();
        while said == Sent::Later && left() > 0 {
            wait_for_room(left());
            said = last_words();
        }
        if said == Sent::Later {
            // Better without a name than not at all.
            send(Kind::Goodbye, &payload[..length]);
        }
    }
}
