//! What the lab's tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cawl_host::limits::LoweredLimits;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// The built `cawl-lab`.
pub const LAB: &str = env!("CARGO_BIN_EXE_cawl-lab");

/// True where an emulated disk can be had; else says what is missing.
pub fn possible() -> bool {
    cawl_lab::missing().map(skipped).is_none()
}

/// Held by a test while it runs: what is measured is not disturbed by the others, nor by limits that a run of the
/// tests that was killed has left lowered.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LoweredLimits::put_back_left().unwrap();
    alone
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
        assert!(start.elapsed() < Duration::from_secs(300), "never: {what}");
        std::thread::yield_now();
    }
}

/// The built `cawl-cli`, where every user can run it. Cargo builds no programs of other packages for a
/// test, so that is done here, once.
pub fn cli() -> &'static Path {
    static CLI: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = CLI.get_or_init(|| {
        let folder = Path::new(LAB).parent().unwrap();
        let profile = match folder.file_name().and_then(|name| name.to_str()).unwrap() {
            "debug" => "dev",
            other => other,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "cawl-cli", "--profile", profile, "--target-dir"]);
        cargo.arg(folder.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success(), "cawl-cli did not build");
        let public = tempfile::tempdir().unwrap();
        fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = public.path().join("cawl-cli");
        fs::copy(folder.join("cawl-cli"), &path).unwrap();
        (public, path)
    });
    path
}

/// What a successful command printed as JSON.
pub fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that a command failed, and that its message has a word in it.
pub fn refused(output: &Output, word: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(word), "no {word:?} in {errors}");
}

/// Names in a folder, without what mkfs put there.
pub fn content(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lost+found").collect()
}

/// The settings of the dirty limits.
pub fn limits() -> [u64; 4] {
    ["dirty_background_bytes", "dirty_background_ratio", "dirty_bytes", "dirty_ratio"].map(sysctl)
}

/// A process that ends with its test: one that outlived a test that failed would leave what it has changed, and its
/// load, to the next.
pub struct Started(Child);

impl Started {
    pub fn by(command: &mut Command) -> Started {
        Started(command.spawn().unwrap())
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // It puts things right at a signal that can be caught.
            let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

/// Sends a signal, and checks that the process ends by it.
pub fn stop(child: &mut Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(signal as i32), "{status}");
}
