//! A folder for each test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Once};

use nix::unistd::{Uid, User, chown, geteuid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
use tempfile::TempDir;

use crate::{Finished, Report, Running, app, built, find, skipped};

/// Signals that are ignored, as interrupts are in the background of a script, would be ignored in the
/// programs under test, too; those that have a handler are not.
fn programs_take_interrupts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGINT, SIGQUIT, SIGHUP].into_iter().filter(|signal| is_ignored(*signal)) {
            signal_hook::flag::register(signal, Arc::default()).expect("it can be handled");
        }
    });
}

/// True if this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("there is /proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("it has SigIgn");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("it is a mask");
    ignored >> (signal - 1) & 1 == 1
}

/// A folder of the test's own: the programs' home, cache, sockets and files.
pub struct Dir {
    temp: TempDir,
    user: Option<User>,
}

impl Dir {
    /// A new folder, removed with the value.
    #[expect(clippy::new_without_default, reason = "a default makes no folder")]
    pub fn new() -> Dir {
        programs_take_interrupts();
        // Short, because the path of a socket may have 107 bytes only.
        let temp = tempfile::Builder::new().prefix("cawl-").tempdir().expect("a temporary folder");
        for name in ["run", "cache", "home", "tmp", "work"] {
            fs::DirBuilder::new().mode(0o700).create(temp.path().join(name)).expect("a new folder");
        }
        Dir { temp, user: None }
    }

    /// The same, where programs run as this user, `cawl-cli` among them; None, after saying so, where that
    /// cannot be.
    pub fn of(user: &str) -> Option<Dir> {
        find("setpriv")?;
        if !geteuid().is_root() {
            skipped("only root can become someone else");
            return None;
        }
        let Some(user) = User::from_name(user).expect("users can be looked up") else {
            skipped(&format!("there is no user {user}"));
            return None;
        };
        let mut dir = Dir::new();
        // What was built may lie where only root may go.
        dir.copy(&built("cawl-cli"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        for name in ["", "run", "cache", "home", "tmp", "work"] {
            chown(&dir.path().join(name), Some(user.uid), Some(user.gid)).expect("root can");
        }
        dir.user = Some(user);
        Some(dir)
    }

    /// A folder of an ordinary user's: this one, unless that is root.
    pub fn ordinary() -> Option<Dir> {
        if geteuid().is_root() { Dir::of("nobody") } else { Some(Dir::new()) }
    }

    /// The user whom programs run as.
    pub fn uid(&self) -> Uid {
        self.user.as_ref().map_or_else(geteuid, |user| user.uid)
    }

    /// The working folder as it was in the beginning: empty.
    pub fn clear(&self) {
        fs::remove_dir_all(self.work()).expect("the folder can be removed");
        fs::create_dir(self.work()).expect("the folder can be made again");
        if let Some(user) = &self.user {
            chown(&self.work(), Some(user.uid), Some(user.gid)).expect("root can");
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.temp.path()
    }

    /// Where programs run.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// The daemon's socket, unless told otherwise.
    pub fn socket(&self) -> PathBuf {
        self.path().join("run/cawld.sock")
    }

    /// A command that sees nothing of the environment the tests were started in, but PATH.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
                command.arg("--clear-groups").arg(program);
                command
            }
        };
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("HOME", self.path().join("home"))
            .env("TMPDIR", self.path().join("tmp"))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env("XDG_RUNTIME_DIR", self.path().join("run"));
        command
    }

    /// `cawl-cli` with these arguments; `run` measures no devices.
    pub fn cawl<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.newcomers_cawl(&args[..args.len().min(1)]);
        if args.first().is_some_and(|first| first.as_ref() == "run") {
            command.arg("--no-calibrate");
        }
        command.args(args.iter().skip(1));
        command
    }

    /// The same, where `run` measures the devices that it meets first.
    pub fn newcomers_cawl<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let own = self.user.as_ref().map(|_| self.path().join("cawl-cli"));
        let mut command = self.command(own.unwrap_or_else(|| built("cawl-cli")));
        command.args(args);
        command
    }

    /// `cawl-cli run` of a program, with the report as JSON and a trace in this folder.
    pub fn run_command<S: AsRef<OsStr>>(&self, options: &[&str], program: &[S]) -> Command {
        let mut command = self.cawl(&["run", "--report"]);
        command.arg(self.path().join("report.json")).arg("--trace").arg(self.trace());
        command.args(options).arg("--").args(program);
        command
    }

    /// Runs a program to its end under `cawl-cli run`.
    pub fn run<S: AsRef<OsStr>>(&self, options: &[&str], program: &[S]) -> (Finished, Report) {
        let finished = Running::start(self.run_command(options, program)).finish();
        let report = self.report(&finished);
        (finished, report)
    }

    /// The report of the latest [`Dir::run_command`].
    pub fn report(&self, finished: &Finished) -> Report {
        Report::read(&self.path().join("report.json"), finished)
    }

    /// The trace of the latest [`Dir::run_command`].
    pub fn trace(&self) -> PathBuf {
        self.path().join("run.trace")
    }

    /// A program made from apps/NAME.c or apps/NAME.cpp, in this folder.
    pub fn app(&self, name: &str) -> PathBuf {
        self.copy(&app(name))
    }

    /// A copy of a program in this folder. Another process writes it: a descriptor of ours that a thread's
    /// child has for a moment would keep it from being started.
    pub fn copy(&self, program: &Path) -> PathBuf {
        let here = self.path().join(program.file_name().expect("a program has a name"));
        let status = Command::new("cp").arg(program).arg(&here).status().expect("cp can be run");
        assert!(status.success(), "{} cannot be copied", program.display());
        here
    }
}
