//! A daemon inside the test's process, and what programs say to it.

use std::path::PathBuf;
use std::time::Instant;

use cawl_client::protocol::{Request, Status, View};
use cawl_client::query;
use cawl_core::Mode;
use cawl_wire::{Event, FileKind, Header, Hello, Kind, Op, Wchar};
use cawld::{Daemon, EngineOptions, socket};
use tokio::runtime::Runtime;

use crate::LIMIT;

/// No process has such a number, so nobody waits for it.
pub const NOBODY: u32 = 1 << 30;

/// A daemon with a lane of its own, inside this process.
pub struct Served {
    /// What it runs on.
    pub runtime: Runtime,
    daemon: Option<Daemon>,
    /// Its socket.
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Served {
    /// A daemon of a machine that nobody measured, with the model `cawl`.
    pub fn start() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let options = EngineOptions {
            host_models: Some(vec!["cawl".to_owned()]),
            modes: vec![("cawl".to_owned(), Mode::Assimilated)],
            learn: true,
            ..EngineOptions::new(cawl_host::uncalibrated_profile())
        };
        let daemon = {
            let _entered = runtime.enter();
            Daemon::start(socket::listen(&path).unwrap(), options).unwrap()
        };
        Served { runtime, daemon: Some(daemon), path, _dir: dir }
    }

    /// The daemon.
    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// What it answers when asked for its status.
    pub fn status(&self) -> Status {
        query::ask(&self.path, &Request::Status(View::default())).unwrap()
    }

    /// Asks until the status is as wanted.
    pub fn status_when(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "never as wanted: {status:#?}");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let stopped = self.runtime.block_on(daemon.stop());
            assert!(std::thread::panicking() || stopped.is_ok(), "{stopped:?}");
        }
    }
}

/// A message as a tracer sends it.
pub fn message(kind: Kind, payload: &[u8], dropped: u64) -> Vec<u8> {
    let header = Header { kind, len: payload.len() as u32, dropped };
    [&header.encode()[..], payload].concat()
}

/// The hello of a process of a run.
pub fn hello(pid: u32, run: u64) -> Vec<u8> {
    let (ppid, uid, started, wchar) = (1, 0, cawl_host::now().0, Wchar::default());
    let hello = Hello { pid, ppid, uid, run, started, wchar, program: b"p", ..Hello::default() };
    let mut payload = [0; 256];
    let length = hello.encode(&mut payload).unwrap();
    message(Kind::Hello, &payload[..length], 0)
}

/// `calls` writes of one byte each.
pub fn events(pid: u32, calls: usize, dropped: u64) -> Vec<u8> {
    let mut event = Event::new(Op::Write);
    (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 1, 7, pid, pid);
    (event.requested, event.returned, event.duration, event.start) = (1, 1, 100, cawl_host::now().0);
    message(Kind::Events, &event.encode().repeat(calls), dropped)
}
