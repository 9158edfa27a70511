//! A daemon that says what a test wants it to say.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use cawl_client::protocol::{Push, Request};
use serde_json::Value;

use crate::LIMIT;

/// What is answered to a question.
pub enum Answer {
    /// A line.
    Says(Value),
    /// Whatever [`FakeDaemon::push`] is given, from now on.
    Subscribes,
    /// These lines, and then nothing more: it hangs up.
    PushesAndEnds(Vec<Push>),
}

/// What connections share.
struct Shared {
    answer: Box<dyn Fn(&Request) -> Answer + Send + Sync>,
    subscribers: Mutex<Vec<UnixStream>>,
    asked: Mutex<Sender<Request>>,
    has_ended: AtomicBool,
}

/// A daemon of the test's own.
pub struct FakeDaemon {
    path: PathBuf,
    shared: Arc<Shared>,
    asked: Receiver<Request>,
}

impl FakeDaemon {
    /// Listens at `path`, and answers as told.
    pub fn start(path: &Path, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> FakeDaemon {
        let listener = UnixListener::bind(path).expect("a place for a socket");
        let (send, asked) = channel();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            subscribers: Mutex::new(Vec::new()),
            asked: Mutex::new(send),
            has_ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                serving.serve(stream.expect("a connection"));
            }
        });
        FakeDaemon { path: path.to_owned(), shared, asked }
    }

    /// The next question that came.
    pub fn question(&self) -> Request {
        self.asked.recv_timeout(LIMIT).expect("a question")
    }

    /// Waits for a subscription; what it is.
    pub fn subscription(&self) -> cawl_client::protocol::Subscription {
        loop {
            if let Request::Subscribe(subscription) = self.question() {
                return subscription;
            }
        }
    }

    /// Tells all that have subscribed.
    pub fn push(&self, push: &Push) {
        let line = serde_json::to_string(push).expect("JSON") + "\n";
        let mut subscribers = self.shared.subscribers.lock().expect("no test panicked there");
        subscribers.retain_mut(|stream| stream.write_all(line.as_bytes()).is_ok());
    }
}

impl Drop for FakeDaemon {
    /// Goes as a daemon that is killed, but for the socket, which is removed.
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.path));
        drop(std::fs::remove_file(&self.path));
        for stream in self.shared.subscribers.lock().expect("no test panicked there").drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }
}

impl Shared {
    /// One question at a time is enough.
    fn serve(&self, mut stream: UnixStream) {
        let mut line = String::new();
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        // A tracer says something else.
        let asks = reader.fill_buf().is_ok_and(|said| said.starts_with(b"{"));
        if !asks || !matches!(reader.read_line(&mut line), Ok(1..)) {
            return;
        }
        let request: Request = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        // Whoever asked may have gone.
        match (self.answer)(&request) {
            Answer::Says(answer) => drop(stream.write_all(format!("{answer}\n").as_bytes())),
            Answer::Subscribes => self.subscribers.lock().expect("no test panicked there").push(stream),
            Answer::PushesAndEnds(pushes) => {
                for push in pushes {
                    let line = serde_json::to_string(&push).expect("JSON") + "\n";
                    drop(stream.write_all(line.as_bytes()));
                }
            }
        }
        // The test may not want to know.
        drop(self.asked.lock().expect("no test panicked there").send(request));
    }
}
