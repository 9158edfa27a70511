//! What the lab's tests share.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cawl_host::limits::LoweredLimits;
use cawl_kit::{Dir, eventually};
use cawl_lab::emulated::Ready;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// The built `cawl-lab`.
pub const LAB: &str = env!("CARGO_BIN_EXE_cawl-lab");

/// True where an emulated disk can be had; else says what is missing.
pub fn possible() -> bool {
    cawl_lab::missing().map(cawl_kit::skipped).is_none()
}

static LIMITS: RwLock<()> = RwLock::new(());

/// Held by a test that lowers the kernel's limits while it runs: no other test does, and none is under them.
/// Limits that a run of the tests that was killed has left lowered are put back.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    let alone = LIMITS.write().unwrap_or_else(PoisonError::into_inner);
    LoweredLimits::put_back_left().unwrap();
    alone
}

/// Held by a test that needs the limits to be as they are.
pub fn beside_others() -> RwLockReadGuard<'static, ()> {
    LIMITS.read().unwrap_or_else(PoisonError::into_inner)
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

/// The built `cawl-cli`, where every user can run it.
pub fn cli() -> &'static Path {
    static CLI: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = CLI.get_or_init(|| {
        let public = tempfile::tempdir().unwrap();
        fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copied = Command::new("cp").arg(cawl_kit::built("cawl-cli")).arg(public.path()).status().unwrap();
        assert!(copied.success());
        let path = public.path().join("cawl-cli");
        (public, path)
    });
    path
}

/// `cawl-lab` with these arguments, in a folder of the test's own.
pub fn lab(dir: &Dir, args: &[&str]) -> Command {
    let mut command = dir.command(LAB);
    command.args(args);
    command
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

/// A process that ends with its test: one that outlived a test that failed would leave what it has changed,
/// and its load, to the next.
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

/// The variable that tells a test that is run by another one how to end.
pub const ENDING: &str = "CAWL_LAB_ENDING";
/// The ways in which the user of a disk or mount ends.
pub const ENDINGS: [&str; 4] = ["panic", "INT", "TERM", "KILL"];

/// Runs this test binary again as the user of a disk or mount, by the name of an ignored test that calls
/// [`end_by`], until it has ended; returns where it was mounted, and its device.
pub fn ended(user: &str, ending: &str) -> (PathBuf, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", user, "--nocapture", "--ignored"])
        .env(ENDING, ending)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let told =
        out.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("SERVED ").map(str::to_owned));
    let told = told.expect("the child brings up what it uses");
    let (mount, device) = told.split_once(' ').unwrap();
    let mount = PathBuf::from(mount);
    assert!(ending == "panic" || mounted(&mount));
    let pid = Pid::from_raw(child.id() as i32);
    match ending {
        "INT" => kill(pid, Signal::SIGINT).unwrap(),
        "TERM" => kill(pid, Signal::SIGTERM).unwrap(),
        "KILL" => kill(pid, Signal::SIGKILL).unwrap(),
        _ => {}
    }
    child.wait().unwrap();
    (mount, PathBuf::from(device))
}

/// The end of a user that [`ended`] runs: a panic, or a signal that it waits for.
pub fn end_by(ending: &str, ready: &Ready) {
    println!("SERVED {} {}", ready.mount.display(), ready.device.display());
    std::io::stdout().flush().unwrap();
    if ending == "panic" {
        panic!("as a test does");
    }
    // Until the other end closes it, or a signal comes.
    drop(std::io::stdin().lines().next());
}

/// Waits until a mount and its folder are gone.
pub fn no_mount_is_left(mount: &Path) {
    eventually(&format!("{} is gone", mount.display()), || {
        !mounted(mount) && !mount.parent().unwrap().exists()
    });
}
