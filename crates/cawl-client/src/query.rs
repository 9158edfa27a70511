//! Asks a daemon, on the same socket as the tracers.

use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::address;
use crate::protocol::{Failure, Request, Subscription, Topic};

/// How long [`ask`] waits for an answer, and a subscriber for a push that is due.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Longest line that is read.
const LONGEST: usize = 256 << 20;

/// Asks the daemon at `path` and waits for the answer, for at most [`PATIENCE`].
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> anyhow::Result<T> {
    ask_within(path, request, PATIENCE)
}

/// True if there is no answer because no daemon is running: there is no socket, or it is not listened on.
pub fn is_absent(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// As [`ask`], with another time limit, more than zero.
pub fn ask_within<T: DeserializeOwned>(path: &Path, request: &Request, limit: Duration) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    let mut connection = Connection::ask(path, request, limit)?;
    match connection.line(deadline) {
        Ok(Some(answer)) => read(path, &answer),
        Ok(None) => Err(hung_up(path)),
        Err(error) => Err(failed(path, error, limit)),
    }
}

/// Asks the daemon at `path` to push. `T` is [`crate::protocol::Push`], or `serde_json::Value` for all that
/// the daemon says, fields unknown to this version included.
pub fn subscribe<T: DeserializeOwned>(path: &Path, subscription: Subscription) -> anyhow::Result<Pushes<T>> {
    let every = Duration::try_from_secs_f64(subscription.every_s.unwrap_or(1.0)).unwrap_or(Duration::MAX);
    let silence = PATIENCE.saturating_add(every.saturating_mul(3));
    let connection = Connection::ask(path, &Request::Subscribe(subscription), PATIENCE)?;
    Ok(Pushes { connection, silence, has_ended: false, pushed: PhantomData })
}

/// What a daemon pushes: one item for each line, and an error at the end.
///
/// Lines on topics that this version does not know are passed over. The end is an error, because a daemon
/// pushes until it is stopped or finds this reader too slow.
pub struct Pushes<T> {
    connection: Connection,
    silence: Duration,
    has_ended: bool,
    pushed: PhantomData<fn() -> T>,
}

impl<T> Pushes<T> {
    /// A means to end this from another thread, which may be waiting for a push.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        self.connection.stream.try_clone().map(HangUp)
    }
}

/// Ends [`Pushes`] from outside.
pub struct HangUp(UnixStream);

impl HangUp {
    /// Ends them.
    pub fn hang_up(self) {
        // The daemon may have closed the connection already.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

impl<T: DeserializeOwned> Iterator for Pushes<T> {
    type Item = anyhow::Result<T>;

    fn next(&mut self) -> Option<anyhow::Result<T>> {
        while !self.has_ended {
            let path = &self.connection.path.clone();
            let deadline = Instant::now().checked_add(self.silence);
            let line = self.connection.line(deadline.unwrap_or_else(|| Instant::now() + PATIENCE * 1000));
            let pushed = match line {
                Ok(Some(line)) if is_of_a_later_version(&line) => continue,
                Ok(Some(line)) => read(path, &line),
                Ok(None) => Err(anyhow::anyhow!(
                    "the daemon at {} hung up: it ended, or found this reader too slow",
                    path.display()
                )),
                Err(error) => Err(failed(path, error, self.silence)),
            };
            self.has_ended = pushed.is_err();
            return Some(pushed);
        }
        None
    }
}

/// True for a push on a topic that this version does not know.
fn is_of_a_later_version(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Pushed {
        topic: String,
    }
    let topic = serde_json::from_str::<Pushed>(line).map(|pushed| serde_json::Value::String(pushed.topic));
    topic.is_ok_and(|topic| serde_json::from_value::<Topic>(topic).is_err())
}

/// What a line says, unless it says why there is no answer.
fn read<T: DeserializeOwned>(path: &Path, line: &str) -> anyhow::Result<T> {
    // Its only field comes first; a table of 5000 rows is not to be read twice.
    if line.starts_with("{\"error\"")
        && let Ok(Failure { error }) = serde_json::from_str(line)
    {
        anyhow::bail!("the daemon at {} answers: {error}", path.display());
    }
    serde_json::from_str(line).with_context(|| {
        format!(
            "the daemon at {} gave an answer this version cannot read; use a cawl-cli of its version",
            path.display()
        )
    })
}

fn hung_up(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "the daemon at {} hung up without an answer: it may have ended, or belong to another user",
        path.display()
    )
}

fn failed(path: &Path, error: io::Error, limit: Duration) -> anyhow::Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => anyhow::anyhow!(
            "the daemon at {} did not answer within {} s: it is stopped or overloaded; look at its log, \
             continue or restart it",
            path.display(),
            limit.as_secs_f64()
        ),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => hung_up(path),
        _ => anyhow::Error::new(error)
            .context(format!("the connection to the daemon at {} failed", path.display())),
    }
}

/// A connection on which a question was asked.
struct Connection {
    path: PathBuf,
    stream: UnixStream,
    /// What was read beyond the latest line.
    rest: Vec<u8>,
}

impl Connection {
    fn ask(path: &Path, request: &Request, limit: Duration) -> anyhow::Result<Connection> {
        let absent = |error: io::Error| {
            let at = path.display();
            let text = match error.kind() {
                // It may well be running.
                ErrorKind::PermissionDenied => format!(
                    "{at} may not be opened: it belongs to another user, or lies in a directory of theirs; \
                     ask as the user who runs that `cawld` or as root, or name your own with --socket"
                ),
                _ => format!("no daemon answers at {at}; start one with `cawld`"),
            };
            anyhow::Error::new(error).context(text)
        };
        address::check_owner(path).map_err(absent)?;
        let mut stream = match connect(path, limit) {
            Ok(stream) => stream,
            // The queue of connections is full, and stays so.
            Err(nix::Error::EAGAIN) => return Err(failed(path, ErrorKind::TimedOut.into(), limit)),
            Err(error) => return Err(absent(error.into())),
        };
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).map_err(|error| failed(path, error, limit))?;
        Ok(Connection { path: path.to_owned(), stream, rest: Vec::new() })
    }

    /// The next line; None if the daemon hung up.
    fn line(&mut self, deadline: Instant) -> io::Result<Option<String>> {
        let mut searched = 0;
        let mut chunk = [0; 1 << 14];
        loop {
            if let Some(at) = self.rest[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(searched + at + 1);
                let line = std::mem::replace(&mut self.rest, rest);
                return String::from_utf8(line)
                    .map(Some)
                    .map_err(|_| io::Error::new(ErrorKind::InvalidData, "what it says is not UTF-8"));
            }
            searched = self.rest.len();
            if searched > LONGEST {
                return Err(io::Error::new(ErrorKind::InvalidData, "its answer has no end"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(length) => self.rest.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects; neither that nor any write takes longer than `limit`.
fn connect(path: &Path, limit: Duration) -> nix::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX).max(1);
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(micros / 1_000_000, micros % 1_000_000))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Push, RunStarted};
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// Answers the first connection with this, then hangs up.
    fn answering(text: &'static str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
        });
        (dir, path)
    }

    fn asked(text: &'static str) -> Result<u64, String> {
        let (_dir, path) = answering(text);
        ask::<RunStarted>(&path, &Request::Profile).map(|run| run.run).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn answers_and_refusals() {
        assert_eq!(asked("{\"run\":7,\"of a later version\":1}\n"), Ok(7));
        assert!(asked("{\"error\":\"no such thing\"}\n").unwrap_err().contains("answers: no such thing"));
        assert!(asked("{\"run\":7").unwrap_err().contains("hung up without an answer"));
        assert!(asked("{}\n").unwrap_err().contains("cannot read"));
    }

    #[test]
    fn a_silent_daemon_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let limit = Duration::from_millis(20);
        let error = ask_within::<RunStarted>(&path, &Request::Profile, limit).unwrap_err().to_string();
        assert!(error.contains("did not answer within 0.02 s") && error.contains("restart"), "{error}");
    }

    #[test]
    fn a_daemon_that_accepts_nobody_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        // One waits in the queue, the next finds it full.
        let _first = UnixStream::connect(&path).unwrap();
        let limit = Duration::from_millis(20);
        let error = ask_within::<RunStarted>(&path, &Request::Profile, limit).unwrap_err().to_string();
        assert!(error.contains("did not answer within"), "{error}");
    }

    #[test]
    fn no_daemon_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = ask::<RunStarted>(&dir.path().join("s"), &Request::Profile).unwrap_err().to_string();
        assert!(error.contains("start one with `cawld`"), "{error}");
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_no_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let absent = || is_absent(&ask::<RunStarted>(&path, &Request::Profile).unwrap_err());
        assert!(absent());
        drop(UnixListener::bind(&path).unwrap());
        assert!(absent());
        std::fs::remove_file(&path).unwrap();
        let (_dir, answering) = answering("");
        assert!(!is_absent(&ask::<RunStarted>(&answering, &Request::Profile).unwrap_err()));
    }

    #[test]
    fn a_socket_that_may_not_be_opened_is_no_reason_to_start_a_daemon() {
        use std::os::unix::fs::PermissionsExt;
        if nix::unistd::geteuid().is_root() {
            // Root may open everything; the test of another user covers it (tests/tests/daemon.rs).
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        let error = ask::<RunStarted>(&path, &Request::Profile).unwrap_err().to_string();
        assert!(error.contains("may not be opened") && !error.contains("start one"), "{error}");
    }

    #[test]
    fn pushes_end_with_an_error() {
        let (_dir, path) = answering(
            "{\"topic\":\"devices\",\"data\":{\"schema\":1,\"devices\":[]}}\n\
             {\"topic\":\"of a later version\",\"data\":{}}\n\
             {\"topic\":\"files\",\"data\":{\"schema\":1,\"omitted\":3,\"files\":[]}}\n",
        );
        let mut pushes = subscribe::<Push>(&path, Subscription::default()).unwrap();
        assert!(matches!(pushes.next(), Some(Ok(Push::Devices(_)))));
        assert!(matches!(pushes.next(), Some(Ok(Push::Files(files))) if files.omitted == 3));
        assert!(pushes.next().unwrap().unwrap_err().to_string().contains("hung up"));
        assert!(pushes.next().is_none());
    }

    #[test]
    fn a_refused_subscription_says_why() {
        let (_dir, path) = answering("{\"error\":\"unknown request\"}\n");
        let mut pushes = subscribe::<Push>(&path, Subscription::default()).unwrap();
        assert!(pushes.next().unwrap().unwrap_err().to_string().contains("answers: unknown request"));
    }
}
