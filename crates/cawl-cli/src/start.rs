//! Starts a program in the same state as this process was started in: environment with its order, ignored
//! signals, descriptors. Other inherited state (working directory, umask, niceness, signal mask, limits,
//! process group, terminal) is never changed.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::SigSet;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

#[expect(unsafe_code, reason = "start.c's functions but one take nothing, and return numbers")]
// SAFETY: the signatures are those of start.c.
unsafe extern "C" {
    safe fn cawl_start_usual() -> SigSet;
    safe fn cawl_start_closed() -> i32;
    safe fn cawl_start_outlives_calls() -> i32;
    /// Both arrays end with a null pointer. The descriptors are the two ends of a socket.
    fn cawl_start_waiting(
        path: *const c_char,
        arguments: *const *const c_char,
        environment: *const *const c_char,
        own: i32,
        other: i32,
    ) -> i32;
}

/// The filters of system calls (seccomp) that this process is under, as will be what it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    None,
    /// So many, which end no process for the tracer's calls.
    Harmless(u32),
    /// They do, or the kernel does not count them (before Linux 5.9).
    Deadly,
}

impl Filters {
    pub fn current() -> Filters {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        match Filters::count(&status) {
            Some(0) => Filters::None,
            Some(count) if cawl_start_outlives_calls() == 1 => Filters::Harmless(count),
            _ => Filters::Deadly,
        }
    }

    /// Their number, by /proc/PID/status; None if it is not told.
    fn count(status: &str) -> Option<u32> {
        let figure = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        match figure("Seccomp:") {
            None | Some("0") => Some(0),
            Some(_) => figure("Seccomp_filters:")?.parse().ok(),
        }
    }
}

/// Starts a program, found in PATH, with these variables added to the environment or replaced in it.
///
/// `std::process` would sort the environment, reset SIGPIPE, keep the descriptors that Rust's runtime opened,
/// and leave glibc's two internal signals ignored.
pub fn start(command: &[OsString], variables: &BTreeMap<&str, OsString>) -> io::Result<Pid> {
    let (arguments, environment) = texts(command, variables)?;
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigdefault(&cawl_start_usual())?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    let mut actions = PosixSpawnFileActions::init()?;
    for fd in (0..3).filter(|fd| cawl_start_closed() >> fd & 1 == 1) {
        actions.add_close(fd)?;
    }
    Ok(posix_spawnp(&arguments[0], &actions, &attributes, &arguments, &environment)?)
}

/// A process that waits to become a program, so that its number is known before the program's first
/// instruction. Without [`Waiting::go`] it ends.
pub struct Waiting {
    /// None once the program has been started.
    pid: Option<Pid>,
    line: UnixStream,
}

impl Waiting {
    /// Of the program at this path; the state that it will be started in is that of [`start`].
    pub fn new(
        path: &Path,
        command: &[OsString],
        variables: &BTreeMap<&str, OsString>,
    ) -> io::Result<Waiting> {
        let path = text(path.into())?;
        let (arguments, environment) = texts(command, variables)?;
        let (line, other) = UnixStream::pair()?;
        let ends = |texts: &[CString]| -> Vec<*const c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
        };
        let (arguments, environment) = (ends(&arguments), ends(&environment));
        #[expect(unsafe_code, reason = "a process of this program's own is to wait before its exec")]
        // SAFETY: the texts outlive the call, and both arrays end with a null pointer. The new process calls
        // only functions that are async-signal-safe.
        let pid = unsafe {
            cawl_start_waiting(
                path.as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                other.as_raw_fd(),
                line.as_raw_fd(),
            )
        };
        if pid < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Waiting { pid: Some(Pid::from_raw(pid)), line })
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.map_or(0, |pid| pid.as_raw() as u32)
    }

    /// Starts the program.
    pub fn go(mut self) -> io::Result<Pid> {
        // If a signal has ended it, that is how the program ended.
        let _ = self.line.write_all(&[1]);
        let mut answer = Vec::new();
        self.line.read_to_end(&mut answer)?;
        match <[u8; 4]>::try_from(answer.as_slice()) {
            Ok(number) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
            Err(_) => self.pid.take().ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(pid) = self.pid.take() {
            let _ = self.line.shutdown(std::net::Shutdown::Both);
            let _ = waitpid(pid, None);
        }
    }
}

/// The arguments and the environment of a program.
fn texts(
    command: &[OsString],
    variables: &BTreeMap<&str, OsString>,
) -> io::Result<(Vec<CString>, Vec<CString>)> {
    let arguments = command.iter().map(|word| text(word.clone())).collect::<io::Result<_>>()?;
    let environment = environment(std::env::vars_os(), variables)
        .map(|(name, value)| text([name.as_os_str(), value.as_os_str()].join(OsStr::new("="))))
        .collect::<io::Result<_>>()?;
    Ok((arguments, environment))
}

/// The environment in its order, with `changed` applied.
fn environment(
    before: impl Iterator<Item = (OsString, OsString)>,
    changed: &BTreeMap<&str, OsString>,
) -> impl Iterator<Item = (OsString, OsString)> {
    let mut new = changed.clone();
    let mut all: Vec<_> = before
        .map(|(name, value)| {
            let value = name.to_str().and_then(|name| new.remove(name)).unwrap_or(value);
            (name, value)
        })
        .collect();
    all.extend(new.into_iter().map(|(name, value)| (name.into(), value)));
    all.into_iter()
}

fn text(word: OsString) -> io::Result<CString> {
    CString::new(word.into_vec()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted() {
        for (status, count) in [
            ("Seccomp:\t0\nSeccomp_filters:\t0\n", Some(0)),
            ("Seccomp:\t2\nSeccomp_filters:\t3\n", Some(3)),
            ("Seccomp:\t2\n", None),
            ("", Some(0)),
        ] {
            assert_eq!(Filters::count(status), count, "{status}");
        }
    }

    #[test]
    fn a_program_begins_when_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made");
        let command = |name: &str| [name.into(), "-c".into(), format!("echo $A > {}", file.display()).into()];
        let variables = BTreeMap::from([("A", "told".into())]);
        let waiting = |path: &str| Waiting::new(Path::new(path), &command("sh"), &variables).unwrap();
        let is_there = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
        let first = waiting("/bin/sh");
        let pid = first.pid();
        assert!(is_there(pid) && !file.exists());
        // Untold, it ends without a trace.
        drop(first);
        assert!(!is_there(pid) && !file.exists());
        let pid = waiting("/bin/sh").go().unwrap();
        assert_eq!(waitpid(pid, None), Ok(nix::sys::wait::WaitStatus::Exited(pid, 0)));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "told\n");
        let error = waiting("/no/such/program").go().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = waiting(file.to_str().unwrap()).go().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn the_environment_keeps_its_order() {
        let before = [("Z", "1"), ("B", "2"), ("A", "3")].map(|(name, value)| (name.into(), value.into()));
        let changed = BTreeMap::from([("B", "new".into()), ("C", "4".into())]);
        let after: Vec<_> = environment(before.into_iter(), &changed).collect();
        let wanted = [("Z", "1"), ("B", "new"), ("A", "3"), ("C", "4")];
        assert_eq!(after, wanted.map(|(name, value)| (name.into(), value.into())));
    }
}
