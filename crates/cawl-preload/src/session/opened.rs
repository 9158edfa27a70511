//! Opening a program, to look at it.
//!
//! The law of this module: **a program that this process has open is not opened**: closing that would release
//! the process's record locks on it. It is read through the process's own descriptor, which another thread
//! may close meanwhile.

use crate::base::settings::Text;
use crate::base::sys;
use crate::session::held::{self, NOBODY, UNSEEN, Way};
use core::ffi::{c_char, c_int};

/// A file that is looked at. Any bytes are valid ones: it lies off the stack, in memory that is used again.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct File {
    /// Device and inode number.
    pub id: (u64, u64),
    /// The descriptor.
    pub fd: c_int,
    /// Not 0 if it is the program's own.
    held: c_int,
}

impl File {
    /// True if the program has it open itself.
    pub fn is_held(&self) -> bool {
        self.held != 0
    }

    /// Closes it, if it is not the program's.
    pub fn close(&self) {
        if !self.is_held() {
            sys::close(self.fd);
        }
    }

    /// False if the program's descriptor leads to another file by now.
    pub fn is_still(&self) -> bool {
        !self.is_held() || held::leads(self.fd, &self.id)
    }
}

/// What became of an attempt to open a program.
#[derive(PartialEq)]
pub enum Opened {
    /// There is none.
    Nothing,
    /// There may be one, that cannot be looked at.
    Unseen,
    /// It can be read.
    Seen,
}

/// True if it is a file that exec would take: opening anything else might do something. Its device and inode
/// number are put into `id`.
#[inline(never)]
pub fn is_program(directory: c_int, path: *const c_char, id: &mut (u64, u64)) -> bool {
    let found = sys::stat_for(directory, path, 0, |stat| {
        *id = (stat.st_dev, stat.st_ino);
        stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_mode & 0o111 != 0
    });
    found == Some(true)
}

/// Opens a program, or finds it open in this process. `room` is to read into.
#[inline(always)]
pub fn open(directory: c_int, path: *const c_char, room: &mut [u8], file: &mut File) -> Opened {
    if !is_program(directory, path, &mut file.id) {
        return Opened::Nothing;
    }
    file.fd = match held::holder(&file.id, room) {
        NOBODY => sys::open_to_read(directory, path).unwrap_or(-1),
        fd => {
            file.held = 1;
            return if fd == UNSEEN { Opened::Unseen } else { file.seen_at(fd) };
        }
    };
    file.held = 0;
    if file.fd < 0 { Opened::Unseen } else { Opened::Seen }
}

impl File {
    fn seen_at(&mut self, fd: c_int) -> Opened {
        self.fd = fd;
        Opened::Seen
    }
}

/// Opens the program that a descriptor leads to, or finds it open in this process. `room` is to read into.
#[inline(never)]
pub fn open_again(fd: c_int, room: &mut [u8], file: &mut File) -> Opened {
    match held::way(fd) {
        Way::Read => {
            file.held = 1;
            file.id = sys::identity(fd).unwrap_or_default();
            file.seen_at(fd)
        }
        Way::Other => Opened::Unseen,
        Way::Path => {
            let mut link = [0; LINK];
            if link_of(fd, &mut link).is_none() {
                return Opened::Unseen;
            }
            match open(libc::AT_FDCWD, link.as_ptr().cast(), room, file) {
                Opened::Seen => Opened::Seen,
                _ => Opened::Unseen,
            }
        }
    }
}

/// Longest path of a descriptor in /proc, with its NUL.
pub const LINK: usize = 24;

/// The path of a descriptor in /proc; the rest of `link`, which is all zero, stays.
pub fn link_of(fd: c_int, link: &mut [u8; LINK]) -> Option<()> {
    let number = u16::try_from(fd).ok()?;
    let mut text = Text::new(link);
    text.add(b"/proc/self/fd/")?;
    text.add_number(number)
}
