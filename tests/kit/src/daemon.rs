//! `cawld` as a process.

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use crate::{Dir, Finished, LIMIT, Running, built};

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

    /// Waits until it says this.
    pub fn until(&mut self, text: &str) {
        self.running.stderr_until(text);
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
        let deadline = std::time::Instant::now() + LIMIT;
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
