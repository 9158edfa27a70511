//! Programs of ours that are part of the binary.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A command that runs this program of ours, as long as the file is open.
pub fn embedded(name: &CStr, program: &[u8]) -> io::Result<(File, Command)> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(program)?;
    let command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Ok((file, command))
}
