//! The connection with the daemon: a Unix stream socket, at a number that the program does not use.
//!
//! The law of this module: nothing waits for the daemon unless the caller says so, and a message is sent
//! whole by one call or not at all. If anything is not as expected, the connection is over and the library
//! inert.

use crate::base::hot::{HOT, OFF, OPEN, OPENING, WANTED, is_open};
use crate::base::{gate, sys};
use crate::transport::{place, ring};
use cawl_wire::{HEADER_LEN, Header, Kind, MAX_PAYLOAD};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

/// Shortest time, in ns, between two rings of the daemon's bell.
const BELL_EVERY: u64 = 500_000;
/// Asked of the kernel for the socket's queue, in bytes; it grants what it allows.
static QUEUE: c_int = 4 << 20;

static FD: AtomicI32 = AtomicI32::new(-1);
static SOCKET_DEV: AtomicU64 = AtomicU64::new(0);
static SOCKET_INO: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static RANG_AT: AtomicU64 = AtomicU64::new(0);
/// Messages with events that were sent.
static SENT: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is in the kernel's hands.
    Whole,
    /// There is no room; try again later.
    Later,
    /// There is no session.
    Broken,
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

/// True if our descriptor still leads to our socket: the program may have closed it.
#[cold]
#[inline(never)]
fn still_our_socket() -> bool {
    let fd = FD.load(Relaxed);
    fd >= 0 && sys::identity(fd) == Some((SOCKET_DEV.load(Relaxed), SOCKET_INO.load(Relaxed)))
}

/// Counts events that will not be sent.
#[cold]
pub fn count_dropped(count: u64) {
    ring::tell_dropped(DROPPED.fetch_add(count, Relaxed) + count);
}

/// The daemon has new memory: tells it there, too, what was dropped.
pub fn tell_dropped() {
    ring::tell_dropped(DROPPED.load(Relaxed));
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
    let length = unsafe { sys::call(libc::SYS_recvfrom, [fd, &raw mut byte as usize, 1, flags]) };
    if length > 0 || length == -(libc::EAGAIN as isize) || length == -(libc::EINTR as isize) {
        return true;
    }
    give_up();
    false
}

/// Ends the connection, and with it all tracing.
pub fn give_up() -> Sent {
    HOT.state.store(OFF, Release);
    if still_our_socket() {
        sys::close(FD.swap(-1, AcqRel));
    }
    gate::shut();
    Sent::Broken
}

/// Closes the socket, for another try or in a copy of the process.
pub fn close() {
    if still_our_socket() {
        sys::close(FD.load(Relaxed));
    }
    FD.store(-1, Relaxed);
}

/// In a fork child: the connection is the parent's.
pub fn forget() {
    close();
    DROPPED.store(0, Relaxed);
    SENT.store(0, Relaxed);
    ANSWERED.store(false, Relaxed);
}

/// Connects to the daemon at a path, if it is this user's or root's; or the kernel's error, EMFILE where
/// there is no descriptor that the program would not miss.
pub fn connect(path: &[u8]) -> Result<(), isize> {
    const UNTRUSTED: isize = -(libc::EPERM as isize);
    const CROWDED: isize = -(libc::EMFILE as isize);
    let fd = make()?;
    // Known before anything else is done, so that it is closed if this thread is jumped out of here.
    FD.store(fd, Relaxed);
    if let Some((dev, ino)) = sys::identity(fd) {
        SOCKET_DEV.store(dev, Relaxed);
        SOCKET_INO.store(ino, Relaxed);
    }
    let moved = place::out_of_the_way(fd);
    let fd = moved.unwrap_or(fd);
    FD.store(fd, Release);
    moved.ok_or(CROWDED).and_then(|fd| connect_to(fd, path)).inspect_err(|_| {
        FD.store(-1, Relaxed);
        sys::close(fd);
    })?;
    if settle(fd) { Ok(()) } else { Err(UNTRUSTED) }
}

/// Makes a socket that was just connected the session's; false if it is not to be.
#[inline(never)]
fn settle(fd: c_int) -> bool {
    if !peer_is_trusted(fd) {
        return false;
    }
    // SAFETY: a valid number of the length given; a refusal is harmless.
    unsafe {
        let place = &raw const QUEUE as usize;
        let option = [fd as usize, libc::SOL_SOCKET as usize, libc::SO_SNDBUF as usize, place, 4];
        sys::call(libc::SYS_setsockopt, option);
    }
    true
}

/// A new socket; or the kernel's error.
fn make() -> Result<c_int, isize> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes numbers only.
    let fd = unsafe { sys::call(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize]) };
    if fd < 0 { Err(fd) } else { Ok(fd as c_int) }
}

/// Connects it to the socket at a path, which is cut where it is too long; or the kernel's error.
#[inline(never)]
fn connect_to(fd: c_int, path: &[u8]) -> Result<(), isize> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (place, &byte) in address.sun_path.iter_mut().zip(path) {
        *place = byte as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>();
    // SAFETY: a valid address of the length given.
    let connected =
        unsafe { sys::call(libc::SYS_connect, [fd as usize, &raw const address as usize, length]) };
    if connected < 0 { Err(connected) } else { Ok(()) }
}

/// True if the daemon at the other end is this user's or root's.
#[inline(never)]
fn peer_is_trusted(fd: c_int) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: valid places for the answer and its length.
    let done = unsafe {
        let (place, size) = (&raw mut peer as usize, &raw mut length as usize);
        let option = [fd as usize, libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize, place, size];
        sys::call(libc::SYS_getsockopt, option)
    };
    done == 0 && (peer.uid == 0 || peer.uid == sys::getuid() || is_nameless(peer.uid))
}

/// True if this number stands for users that have none in the program's user namespace. There the kernel does
/// not tell the user of a daemon from outside. The environment that names its socket is from the maker of the
/// namespace, who could as well have preloaded another library.
fn is_nameless(uid: u32) -> bool {
    const OVERFLOW: u32 = 65_534;
    let mut map = [0u8; 64];
    // The first namespace has one line, in which every user has a number.
    let is_first = |map: &[u8]| map.ends_with(b" 4294967295\n");
    uid == OVERFLOW
        && match sys::read_file(c"/proc/self/uid_map", &mut map) {
            0 => false,
            length => map.get(..length).is_some_and(|map| !is_first(map)),
        }
}

/// The program is about to put something else at the number of our descriptor: take another.
pub fn make_way(wanted: c_int) {
    // Above the limit nothing can be put.
    if is_own(wanted) && (wanted as u64) < sys::limit(libc::RLIMIT_NOFILE) {
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

/// A control message with one descriptor, as the kernel lays it out.
#[repr(C)]
struct Passed {
    length: usize,
    level: c_int,
    kind: c_int,
    fd: c_int,
    padding: c_int,
}

/// Sends a message of two parts, and a descriptor with it.
#[inline(never)]
fn send_parts(fd: c_int, parts: [&[u8]; 2], passed: Option<c_int>) -> Sent {
    let length = parts[0].len() + parts[1].len();
    let parts = parts.map(|part| libc::iovec { iov_base: part.as_ptr() as *mut c_void, iov_len: part.len() });
    // SAFETY: all zero bytes are a valid msghdr without name and control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut();
    message.msg_iovlen = parts.len();
    let control = Passed {
        length: core::mem::offset_of!(Passed, padding),
        level: libc::SOL_SOCKET,
        kind: libc::SCM_RIGHTS,
        fd: passed.unwrap_or(-1),
        padding: 0,
    };
    if passed.is_some() {
        message.msg_control = (&raw const control).cast_mut().cast();
        message.msg_controllen = size_of::<Passed>();
    }
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: a valid message whose parts are valid for their lengths, and which is only read.
    let sent = unsafe { sys::call(libc::SYS_sendmsg, [fd as usize, &raw const message as usize, flags]) };
    if sent == length as isize {
        Sent::Whole
    } else if sent == -(libc::EAGAIN as isize) || sent == -(libc::EINTR as isize) {
        Sent::Later
    } else {
        Sent::Broken
    }
}

/// Sends one message, or nothing.
pub fn send(kind: Kind, payload: &[u8]) -> Sent {
    match HOT.state.load(Acquire) {
        OPEN => {}
        WANTED | OPENING => return Sent::Later,
        _ => return Sent::Broken,
    }
    if !gate::is_open() {
        return Sent::Later;
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

/// Sends one message, with a descriptor if one is `passed` (the hello), whatever the state of the session.
#[inline(never)]
pub fn transmit(kind: Kind, payload: &[u8], passed: Option<c_int>) -> Sent {
    let header = Header { kind, len: payload.len() as u32, dropped: DROPPED.load(Relaxed) }.encode();
    let sent = send_parts(FD.load(Relaxed), [&header, payload], passed);
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
        unsafe { sys::call(libc::SYS_recvfrom, [fd, bytes.as_mut_ptr() as usize, HEADER_LEN, flags]) };
    if length != HEADER_LEN as isize {
        return true;
    }
    ANSWERED.store(true, Relaxed);
    // A daemon that refuses logs why; nothing is said here, where descriptor 2 may be any file.
    matches!(Header::decode(&bytes), Ok(Header { kind: Kind::Welcome, .. }))
}

/// Where the daemon was told events and has not answered, waits for it; false if it refused.
pub fn wait_for_answer(milliseconds: u64) -> bool {
    if ANSWERED.load(Relaxed) || !is_open() {
        return true;
    }
    sys::poll(FD.load(Relaxed), libc::POLLIN, milliseconds);
    answer() || {
        give_up();
        false
    }
}

/// True if events were sent by this socket.
pub fn has_sent() -> bool {
    SENT.load(Relaxed) > 0
}

/// Waits until the socket has room.
pub fn wait_for_room(milliseconds: u64) {
    if HOT.state.load(Relaxed) == OPEN {
        sys::poll(FD.load(Relaxed), libc::POLLOUT, milliseconds);
    } else {
        sys::poll(-1, 0, 1);
    }
}
