//! Processes that cannot hang: each leads a process group of its own, which is killed after a time.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Longest life of any process.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A process that was started by a test.
pub struct Running {
    pid: Pid,
    about: String,
    stdin: Option<ChildStdin>,
    stdout: Output,
    stderr: Output,
    status: Receiver<ExitStatus>,
    deadline: Instant,
    has_ended: bool,
}

/// How a process ended, and all it said.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    /// Exit status or signal.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Fails the test unless the exit status is 0.
    pub fn success(self) -> Finished {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    /// Fails the test unless this is the exit status.
    pub fn code(self, code: i32) -> Finished {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    /// Fails the test unless this signal was the end.
    pub fn signal(self, signal: Signal) -> Finished {
        assert_eq!(self.status.signal(), Some(signal as i32), "{self:#?}");
        self
    }

    /// Fails the test unless standard error has this text.
    pub fn says(self, text: &str) -> Finished {
        // A report wraps its lines.
        let in_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(in_one_line(&self.stderr).contains(&in_one_line(text)), "`{text}` is not in {self:#?}");
        self
    }
}

/// What a process writes to a pipe, read by a thread so that the pipe never fills.
struct Output {
    chunks: Receiver<Vec<u8>>,
    read: Vec<u8>,
}

impl Output {
    fn of(mut pipe: impl Read + Send + 'static) -> Output {
        let (send, chunks) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(length @ 1..) = pipe.read(&mut chunk) {
                if send.send(chunk[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Output { chunks, read: Vec::new() }
    }

    /// Reads more; false at the end.
    fn more(&mut self, deadline: Instant) -> Result<bool, RecvTimeoutError> {
        match self.chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(chunk) => self.read.extend(chunk),
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Err(timeout) => return Err(timeout),
        }
        Ok(true)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

impl Running {
    /// Starts a command; its standard input is a pipe that stays open until [`Running::finish`].
    pub fn start(mut command: Command) -> Running {
        let about = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{about}: {error}"));
        let pid = Pid::from_raw(child.id() as i32);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let stdin = child.stdin.take();
        let (send, status) = channel();
        std::thread::spawn(move || {
            // Nobody may be listening any more if the test has failed.
            let _ = send.send(child.wait().expect("a child can be waited for"));
        });
        Running {
            pid,
            about,
            stdin,
            stdout: Output::of(stdout.expect("it is a pipe")),
            stderr: Output::of(stderr.expect("it is a pipe")),
            status,
            deadline: Instant::now() + LIMIT,
            has_ended: false,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Writes to the process's standard input.
    pub fn say(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("its standard input is open");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("it reads its standard input");
    }

    /// Waits until standard output holds this text; what came up to the end of its line.
    pub fn stdout_until(&mut self, text: &str) -> String {
        Self::until(&mut self.stdout, self.deadline, text, &self.about)
    }

    /// Waits until standard error holds this text; what came up to the end of its line.
    pub fn stderr_until(&mut self, text: &str) -> String {
        Self::until(&mut self.stderr, self.deadline, text, &self.about)
    }

    fn until(output: &mut Output, deadline: Instant, text: &str, about: &str) -> String {
        loop {
            let so_far = output.text();
            if let Some(at) = so_far.find(text)
                && let Some(length) = so_far[at..].find('\n')
            {
                return so_far[..at + length].to_owned();
            }
            let more = output.more(deadline).unwrap_or_else(|_| panic!("{about} never said `{text}`"));
            assert!(more, "{about} ended without saying `{text}`, but: {so_far}");
        }
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid, signal).expect("the process is there");
    }

    /// Sends a signal to the process and all it started, as a terminal does.
    pub fn signal_group(&self, signal: Signal) {
        killpg(self.pid, signal).expect("the process group is there");
    }

    /// Closes standard input and waits for the end.
    pub fn finish(mut self) -> Finished {
        drop(self.stdin.take());
        let left = self.deadline.saturating_duration_since(Instant::now());
        let status = self.status.recv_timeout(left).unwrap_or_else(|_| {
            panic!(
                "{} did not end\nstdout: {}\nstderr: {}",
                self.about,
                self.stdout.text(),
                self.stderr.text()
            )
        });
        // A program left behind may hold the pipes open.
        for output in [&mut self.stdout, &mut self.stderr] {
            while output.more(self.deadline).unwrap_or_else(|_| panic!("{}'s pipes stay open", self.about)) {}
        }
        self.has_ended = true;
        Finished { status, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            // It may be gone already.
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
    }
}

/// Waits until something holds that another process brings about.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
