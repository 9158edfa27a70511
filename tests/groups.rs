//! Programs in small memory control groups: the tracer's memory counts against them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cawl_kit::{Daemon, Dir, Running, skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Uid;

/// A memory control group of the test's own, of version 1 or 2, removed at the end.
struct Group {
    folder: PathBuf,
    joins: &'static str,
}

impl Group {
    /// None where that is not possible.
    fn new(name: &str, mib: u64) -> Option<Group> {
        let name = format!("cawl-test-{name}-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let (top, limit, joins) = match root.join("memory").is_dir() {
            true => (root.join("memory"), "memory.limit_in_bytes", "tasks"),
            false => (root.to_owned(), "memory.max", "cgroup.procs"),
        };
        let group = Group { folder: top.join(name), joins };
        let made = Uid::effective().is_root() && fs::create_dir(&group.folder).is_ok();
        let limited = made && fs::write(group.folder.join(limit), (mib << 20).to_string()).is_ok();
        // Memory that is swapped out would hide what is too much.
        let _ = fs::write(group.folder.join("memory.swap.max"), "0");
        if !limited {
            skipped("no memory control group can be made here");
            return None;
        }
        Some(group)
    }

    /// A shell command by which a program begins in the group.
    fn enter(&self, program: &str) -> [String; 3] {
        let joins = self.folder.join(self.joins);
        ["sh".to_owned(), "-c".to_owned(), format!("echo $$ > {}; exec {program}", joins.display())]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        cawl_kit::eventually("the group is empty", || {
            fs::remove_dir(&self.folder).is_ok() || !self.folder.exists()
        });
    }
}

#[test]
fn sixteen_threads_live_in_a_small_group() {
    let Some(group) = Group::new("small", 24) else { return };
    let dir = Dir::new();
    let app = dir.app("limits");
    // Untraced it uses few MiB.
    let program = group.enter(&format!("{} threads 50000", app.display()));
    let mut plain = dir.command(&program[0]);
    plain.args(&program[1..]);
    Running::start(plain).finish().success();
    let (finished, report) = dir.run(&[], &program);
    finished.success();
    let seen = report["calls"].as_u64().expect("a count");
    assert!(seen > 0 && seen + report["drops"].as_u64().expect("a count") >= 800_000, "{seen}");
}

/// The daemon tells a small group's program to be content with little, and a silent one is not waited for.
#[test]
fn sixteen_threads_live_in_a_small_group_beside_a_stopped_daemon() {
    let Some(group) = Group::new("stopped", 24) else { return };
    let dir = Dir::new();
    let app = dir.app("limits");
    let daemon = Daemon::start(&dir, &[]);
    let [shell, flag, script] = group.enter(&format!("{} threads 50000", app.display()));
    let mut command = dir.command(&shell);
    command.args([flag, script]).env("LD_PRELOAD", cawl_kit::library()).env("CAWL_SOCKET", dir.socket());
    kill(daemon.pid(), Signal::SIGSTOP).expect("it is there");
    let finished = Running::start(command).finish();
    kill(daemon.pid(), Signal::SIGCONT).expect("it is there");
    finished.success();
    daemon.end(Signal::SIGTERM).success();
}

/// With `--lossless` a program waits, but not for ever.
#[test]
fn a_stopped_daemon_does_not_stop_a_program_for_good() {
    let dir = Dir::new();
    let app = dir.app("limits");
    let daemon = Daemon::start(&dir, &[]);
    let mut command = dir.command(app);
    command.args(["threads", "50000"]).env("LD_PRELOAD", cawl_kit::library());
    command.env("CAWL_SOCKET", dir.socket()).env("CAWL_LOSSLESS", "1");
    kill(daemon.pid(), Signal::SIGSTOP).expect("it is there");
    let began = Instant::now();
    let finished = Running::start(command).finish();
    let took = began.elapsed();
    kill(daemon.pid(), Signal::SIGCONT).expect("it is there");
    finished.success();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(60), "{took:?}");
    daemon.end(Signal::SIGTERM).success();
}
