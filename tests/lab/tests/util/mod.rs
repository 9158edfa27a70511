//! What the lab's tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

/// The built `cawl-lab`.
pub const LAB: &str = env!("CARGO_BIN_EXE_cawl-lab");

/// True where an emulated disk can be had; else says what is missing.
pub fn possible() -> bool {
    cawl_lab::missing().map(skipped).is_none()
}

/// Held by a test while it runs: what is measured is not disturbed by the others.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what is not tested, past the test harness, which would keep it to itself.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    drop(writeln!(std::io::stderr(), "SKIPPED: {test}: {why}"));
}

/// True if a program is there; else says that it is missing.
pub fn installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !found {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// True if `figure` is within a fraction `tolerance` of `expected`.
pub fn close(figure: f64, expected: f64, tolerance: f64) -> bool {
    (figure - expected).abs() <= expected.abs() * tolerance
}

/// A file or device past the page cache.
pub fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_DIRECT.bits()).open(path).unwrap()
}

/// True if something is mounted at `path`.
pub fn mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// A setting of the kernel's virtual memory.
pub fn sysctl(name: &str) -> u64 {
    fs::read_to_string(Path::new("/proc/sys/vm").join(name)).unwrap().trim().parse().unwrap()
}

/// Waits until something holds that another process brings about, for at most a minute.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}
