//! Starts a program in the same state as this process was started in: environment with its order, ignored
//! signals, descriptors. Other inherited state (working directory, umask, niceness, signal mask, limits,
//! process group, terminal) is never changed.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

#[expect(unsafe_code, reason = "start.c's functions take nothing and return numbers")]
unsafe extern "C" {
    safe fn cawl_start_usual() -> SigSet;
    safe fn cawl_start_closed() -> i32;
    safe fn cawl_start_outlives_calls() -> i32;
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
    pub fn look() -> Filters {
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
    let arguments = command.iter().map(|word| text(word.clone())).collect::<io::Result<Vec<_>>>()?;
    let environment = environment(std::env::vars_os(), variables)
        .map(|(name, value)| text([name.as_os_str(), value.as_os_str()].join(OsStr::new("="))))
        .collect::<io::Result<Vec<_>>>()?;
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigdefault(&cawl_start_usual())?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    let mut actions = PosixSpawnFileActions::init()?;
    for fd in (0..3).filter(|fd| cawl_start_closed() >> fd & 1 == 1) {
        actions.add_close(fd)?;
    }
    Ok(posix_spawnp(&arguments[0], &actions, &attributes, &arguments, &environment)?)
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
    fn the_environment_keeps_its_order() {
        let before = [("Z", "1"), ("B", "2"), ("A", "3")].map(|(name, value)| (name.into(), value.into()));
        let changed = BTreeMap::from([("B", "new".into()), ("C", "4".into())]);
        let after: Vec<_> = environment(before.into_iter(), &changed).collect();
        let wanted = [("Z", "1"), ("B", "new"), ("A", "3"), ("C", "4")];
        assert_eq!(after, wanted.map(|(name, value)| (name.into(), value.into())));
    }
}
