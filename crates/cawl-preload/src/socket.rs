//! The socket to the daemon, as the kernel has it.
//!
//! The law of this module: nothing waits, and a message is sent whole by one call or not at all.

use crate::sys;
use core::ffi::{c_int, c_void};

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

/// A new socket; or the kernel's error.
pub fn make() -> Result<c_int, isize> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes numbers only.
    let fd = unsafe { sys::call(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) };
    if fd < 0 { Err(fd) } else { Ok(fd as c_int) }
}

/// Connects it to the socket at a path, which is cut where it is too long; or the kernel's error.
#[inline(never)]
pub fn connect(fd: c_int, path: &[u8]) -> Result<(), isize> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (place, &byte) in address.sun_path.iter_mut().zip(path) {
        *place = byte as libc::c_char;
    }
    // SAFETY: a valid address of the length given.
    let connected = unsafe {
        let length = size_of::<libc::sockaddr_un>();
        sys::call(libc::SYS_connect, [fd as usize, &raw const address as usize, length, 0, 0, 0])
    };
    if connected < 0 { Err(connected) } else { Ok(()) }
}

/// True if the daemon at the other end is this user's or root's.
#[inline(never)]
pub fn peer_is_trusted(fd: c_int) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: valid places for the answer and its length.
    let done = unsafe {
        let (place, size) = (&raw mut peer as usize, &raw mut length as usize);
        sys::call(
            libc::SYS_getsockopt,
            [fd as usize, libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize, place, size, 0],
        )
    };
    done == 0 && (peer.uid == 0 || peer.uid == sys::getuid() || is_nameless(peer.uid))
}

/// True if this number stands for users that have none in the program's user namespace. There the kernel tells of no
/// daemon from outside whose it is. Its socket is where the environment says because whoever made the namespace put
/// it there, who could as well have preloaded another library.
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
pub fn send(fd: c_int, parts: [&[u8]; 2], passed: Option<c_int>) -> Sent {
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
    let sent =
        unsafe { sys::call(libc::SYS_sendmsg, [fd as usize, &raw const message as usize, flags, 0, 0, 0]) };
    if sent == length as isize {
        Sent::Whole
    } else if sent == -(libc::EAGAIN as isize) || sent == -(libc::EINTR as isize) {
        Sent::Later
    } else {
        Sent::Broken
    }
}
