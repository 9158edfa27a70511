//! What all tests need: a folder of their own, processes that cannot hang, the daemon, reports.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, Uid, User, chown, geteuid};
use serde_json::Value;
use tempfile::TempDir;

mod fake;
mod mute;
mod process;
mod report;
mod small;

pub use fake::{Answer, FakeDaemon};
pub use mute::MuteServer;
pub use process::{Finished, LIMIT, Running};
pub use report::{Report, calls};
pub use small::SmallDisk;

/// The built programs `cawl-cli` and `cawld`, of the profile this test was built with.
///
/// Cargo builds no programs of other packages for a test, so that is done here, once.
pub fn built(program: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        // TARGET/PROFILE/deps/tests-HASH
        let folder = test.ancestors().nth(2).expect("a test lies in deps/").to_owned();
        let profile = match folder.file_name().and_then(OsStr::to_str).expect("a profile has a name") {
            "debug" => "dev",
            other => other,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "-p", "cawl-cli", "-p", "cawld", "--profile", profile, "--target-dir"])
            .arg(folder.parent().expect("a profile's folder lies in the target directory"))
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = cargo.status().expect("cargo can be run");
        assert!(status.success(), "the programs did not build: {cargo:?}");
        folder
    });
    folder.join(program)
}

/// Where a program is, or None after a line that says what is skipped.
pub fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// Python itself: what lies in PATH may be a script that looks for the right version.
pub fn python() -> Option<PathBuf> {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let found = find("python3")?;
    Some(
        PYTHON
            .get_or_init(|| {
                let told = Command::new(found).args(["-c", "import sys; print(sys.executable)"]).output();
                let told = told.expect("python3 can be run").stdout;
                PathBuf::from(String::from_utf8(told).expect("python lies at a readable path").trim())
            })
            .clone(),
    )
}

/// Says what is not tested, past the test harness, which would keep it to itself.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one piece, because other tests write too.
    drop(std::io::stderr().write_all(format!("SKIPPED: {test}: {why}\n").as_bytes()));
}

/// A folder of the test's own: the programs' home, cache, sockets and files.
pub struct Dir {
    temp: TempDir,
    user: Option<User>,
}

impl Dir {
    /// A new folder, removed with the value.
    pub fn new() -> Dir {
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
        fs::copy(built("cawl-cli"), dir.path().join("cawl-cli")).expect("a copy");
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

    /// A program made from apps/NAME.c or apps/NAME.cpp.
    pub fn app(&self, name: &str) -> PathBuf {
        let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps");
        let (compiler, source) = match apps.join(format!("{name}.c")) {
            c if c.is_file() => ("cc", c),
            _ => ("c++", apps.join(format!("{name}.cpp"))),
        };
        let program = self.path().join(name);
        let mut compile = self.command(compiler);
        compile.args(["-O2", "-Wall", "-Werror", "-pthread", "-o"]).args([&program, &source]);
        Running::start(compile).finish().success();
        program
    }
}

/// A daemon of the test's own, listening at [`Dir::socket`].
pub struct Daemon<'a> {
    dir: &'a Dir,
    running: Running,
}

impl<'a> Daemon<'a> {
    /// Starts `cawld` and waits until it listens.
    pub fn start(dir: &'a Dir, args: &[&str]) -> Daemon<'a> {
        let mut command = dir.command(built("cawld"));
        command.arg("--socket").arg(dir.socket()).args(args);
        let mut running = Running::start(command);
        running.stderr_until("listening at");
        Daemon { dir, running }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.running.pid()
    }

    /// What `cawl-cli status --json` says.
    pub fn status(&self) -> Value {
        let mut command = self.dir.cawl(&["status", "--json", "--socket"]);
        command.arg(self.dir.socket());
        let answer = Running::start(command).finish().success();
        serde_json::from_str(&answer.stdout).expect("status --json is JSON")
    }

    /// Asks for the status until it is as wanted.
    pub fn status_when(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = std::time::Instant::now() + process::LIMIT;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(std::time::Instant::now() < deadline, "the status never was as wanted: {status:#}");
        }
    }

    /// Sends a signal and waits for the end.
    pub fn end(self, signal: Signal) -> Finished {
        self.running.signal(signal);
        self.running.finish()
    }
}

/// Everything below a folder that a program could have changed.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let meta = fs::symlink_metadata(&path).expect("it was just listed");
            let content = if meta.is_symlink() {
                fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).expect("a readable file")
            } else {
                Vec::new()
            };
            let name = path.strip_prefix(folder).expect("it lies there").to_owned();
            found.insert(name, (meta.permissions().mode(), content));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Runs the program in a folder that `prepare` filled, once alone and once under `cawl-cli run`: output,
/// exit status and every file must be the same, and every byte written must have been seen.
pub fn same<S: AsRef<OsStr>>(dir: &Dir, prepare: impl Fn(&Path), program: &[S]) -> (Finished, Report) {
    same_but(dir, prepare, program, &[])
}

/// As [`same`], but for the contents of these files, which are never the same twice.
pub fn same_but<S: AsRef<OsStr>>(
    dir: &Dir,
    prepare: impl Fn(&Path),
    program: &[S],
    but: &[&str],
) -> (Finished, Report) {
    let (finished, report) = unchanged(dir, prepare, &[], program, but);
    report.all_seen();
    (finished, report)
}

/// As [`same_but`], where not every byte need be seen; with these options of `run`.
pub fn unchanged<S: AsRef<OsStr>>(
    dir: &Dir,
    prepare: impl Fn(&Path),
    options: &[&str],
    program: &[S],
    but: &[&str],
) -> (Finished, Report) {
    // Both runs happen at the same place, because programs may write their paths into files.
    let look = || {
        let mut tree = tree(&dir.work());
        for name in but {
            tree.entry(name.into()).and_modify(|(_, content)| content.clear());
        }
        tree
    };
    prepare(&dir.work());
    let mut alone = dir.command(&program[0]);
    alone.args(&program[1..]);
    let alone = (Running::start(alone).finish(), look());
    dir.clear();
    prepare(&dir.work());
    let (finished, report) = dir.run(options, program);
    let traced = (finished, look());

    assert_eq!(alone.0, traced.0, "output or exit status changed (left: alone, right: traced)");
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&alone.1), names(&traced.1), "files differ (left: alone, right: traced)");
    for (name, entry) in &alone.1 {
        let other = &traced.1[name];
        let texts =
            [&entry.1, &other.1].map(|content| String::from_utf8_lossy(&content[..content.len().min(4096)]));
        assert!(
            other == entry,
            "{} is not the same: alone\n{}\ntraced\n{}",
            name.display(),
            texts[0],
            texts[1]
        );
    }
    (traced.0, report)
}

/// Size of a file in the working folder.
pub fn size(dir: &Dir, name: &str) -> u64 {
    fs::metadata(dir.work().join(name)).unwrap_or_else(|error| panic!("{name}: {error}")).len()
}
