//! The daemon among those who mean it ill or die on it: it goes on, answers, and counts what was lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cawl_core::Mode;
use cawl_wire::{EVENT_LEN, Event, FileKind, Header, Hello, Kind, Op, Wchar};
use cawld::protocol::{Request, Status, View};
use cawld::{Daemon, EngineOptions, RunSpec, host, query, socket};
use proptest::prelude::*;
use tokio::runtime::Runtime;

/// No process has such a number, so nobody waits for it.
const NOBODY: u32 = 1 << 30;

/// Longest wait of a test for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon with a lane of its own, inside this process.
struct Served {
    runtime: Runtime,
    daemon: Option<Daemon>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Served {
    fn start() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let models = Some(vec!["cawl".to_owned()]);
        let options = EngineOptions {
            profile: host::uncalibrated_profile(),
            host_models: models,
            host_trace: None,
            modes: vec![("cawl".to_owned(), Mode::Assimilated)],
            learn: true,
        };
        let daemon = {
            let _entered = runtime.enter();
            Daemon::start(socket::listen(&path).unwrap(), options).unwrap()
        };
        Served { runtime, daemon: Some(daemon), path, _dir: dir }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    fn status(&self) -> Status {
        query::ask(&self.path, &Request::Status(View::default())).unwrap()
    }

    fn status_when(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + PATIENCE;
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
            self.runtime.block_on(daemon.stop());
        }
    }
}

fn message(kind: Kind, payload: &[u8], dropped: u64) -> Vec<u8> {
    let header = Header { kind, len: payload.len() as u32, dropped };
    [&header.encode()[..], payload].concat()
}

fn hello(pid: u32, run: u64) -> Vec<u8> {
    let (ppid, uid, started, wchar) = (1, 0, host::now().0, Wchar::default());
    let hello = Hello {
        pid,
        ppid,
        uid,
        run,
        started,
        wchar,
        ring: false,
        ticks: None,
        program: b"p",
        arguments: b"",
    };
    let mut payload = [0; 256];
    let length = hello.encode(&mut payload).unwrap();
    message(Kind::Hello, &payload[..length], 0)
}

/// `calls` writes of one byte each.
fn events(pid: u32, calls: usize, dropped: u64) -> Vec<u8> {
    let mut event = Event::new(Op::Write);
    (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 1, 7, pid, pid);
    (event.requested, event.returned, event.duration, event.start) = (1, 1, 100, host::now().0);
    message(Kind::Events, &event.encode().repeat(calls), dropped)
}

/// 64 programs write as fast as they can; every third is killed in the middle of a message. What was sent
/// as a whole is counted, and the daemon answers all the while.
#[test]
fn programs_that_are_killed_lose_only_what_they_had_not_sent() {
    const PROGRAMS: u32 = 64;
    const BATCHES: usize = 15;
    const BATCH: usize = 340;
    let served = Served::start();
    let spec = RunSpec { models: vec!["naive".to_owned()], ..RunSpec::default() };
    let run = served.runtime.block_on(served.daemon().begin_run(spec)).unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for program in 0..PROGRAMS {
            let path = &served.path;
            scope.spawn(move || {
                let mut socket = UnixStream::connect(path).unwrap();
                let pid = NOBODY + program;
                socket.write_all(&hello(pid, run)).unwrap();
                for _ in 0..BATCHES {
                    socket.write_all(&events(pid, BATCH, u64::from(program % 2))).unwrap();
                }
                if program % 3 == 0 {
                    let half = events(pid, BATCH, 0);
                    socket.write_all(&half[..half.len() / 2 + program as usize]).unwrap();
                }
            });
        }
        for _ in 0..10 {
            assert_eq!(served.status().schema, 1);
        }
    });
    let offered = f64::from(PROGRAMS) * (BATCHES * BATCH) as f64 / began.elapsed().as_secs_f64();
    println!("offered: {:.2} M events/s from {PROGRAMS} programs", offered / 1e6);
    let report = served.runtime.block_on(served.daemon().end_run(run, None, Vec::new())).unwrap();
    assert_eq!(report.calls, u64::from(PROGRAMS) * (BATCHES * BATCH) as u64);
    assert_eq!((report.sessions.len(), report.drops), (64, 32));
    let total = served.status_when(|status| status.clients == 0 && status.calls == report.calls);
    assert_eq!((total.drops, total.bytes), (32, report.bytes));
}

/// Connections that say nothing are bounded, keep nobody from being served, and delay no run's end.
#[test]
fn a_flood_of_silent_connections_is_no_matter() {
    let served = Served::start();
    let began = Instant::now();
    let report_of_a_run = || {
        let run = served.runtime.block_on(served.daemon().begin_run(RunSpec::default())).unwrap();
        let mut socket = UnixStream::connect(&served.path).unwrap();
        socket.write_all(&hello(NOBODY, run)).unwrap();
        socket.write_all(&events(NOBODY, 10, 0)).unwrap();
        drop(socket);
        served.runtime.block_on(served.daemon().end_run(run, None, Vec::new())).unwrap()
    };
    let mut silent: Vec<UnixStream> = (0..400).map(|_| UnixStream::connect(&served.path).unwrap()).collect();
    let mut half = UnixStream::connect(&served.path).unwrap();
    half.write_all(b"{\"request\":").unwrap();
    assert_eq!(report_of_a_run().calls, 10);
    assert!(began.elapsed() < Duration::from_secs(5), "the wait for the silent ones was sat out");
    // The oldest were closed: they read the end of the stream.
    let oldest = &mut silent[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(oldest.read(&mut [0; 1]).unwrap(), 0);
    // The latest are still served.
    let latest = silent.last_mut().unwrap();
    latest.write_all(b"{\"request\":\"devices\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(latest).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"schema\":1"), "{line}");
}

/// A subscriber that does not read is dropped; others are served all the while.
#[test]
fn a_subscriber_that_does_not_read_is_dropped() {
    let served = Served::start();
    let subscribe = b"{\"request\":\"subscribe\",\"every_s\":0.05,\"topics\":[\"status\",\"processes\",\"files\",\"devices\",\"calls\"]}\n";
    let mut lazy = UnixStream::connect(&served.path).unwrap();
    // What the socket holds is the daemon's to choose; small here so that the test is short.
    rustix::net::sockopt::set_socket_recv_buffer_size(&lazy, 4096).unwrap();
    lazy.write_all(subscribe).unwrap();
    let eager = UnixStream::connect(&served.path).unwrap();
    (&eager).write_all(subscribe).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut topics = std::collections::BTreeSet::new();
    let mut lines = BufReader::new(&eager).lines();
    let is_dropped = || {
        matches!(
            rustix::event::poll(
                &mut [rustix::event::PollFd::new(&lazy, rustix::event::PollFlags::RDHUP)],
                Some(&rustix::event::Timespec::default())
            ),
            Ok(1..)
        )
    };
    while !is_dropped() {
        let line = lines.next().expect("the eager one is told on").unwrap();
        let push: serde_json::Value = serde_json::from_str(&line).unwrap();
        topics.insert(push["topic"].as_str().unwrap().to_owned());
        assert!(Instant::now() < deadline, "it was never dropped");
    }
    assert_eq!(topics.len(), 5, "{topics:?}");
    assert!(lines.next().is_some());
}

#[test]
fn subscribers_are_bounded() {
    let served = Served::start();
    let mut subscribers = Vec::new();
    loop {
        let mut socket = UnixStream::connect(&served.path).unwrap();
        socket.write_all(b"{\"request\":\"subscribe\",\"topics\":[\"devices\"],\"every_s\":3600}\n").unwrap();
        let mut line = String::new();
        BufReader::new(&socket).read_line(&mut line).unwrap();
        if line.contains("too many subscribers") {
            break;
        }
        assert!(line.contains("\"topic\":\"devices\""), "{line}");
        subscribers.push(socket);
        assert!(subscribers.len() <= 32);
    }
    drop(subscribers);
    // Their places become free.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut socket = UnixStream::connect(&served.path).unwrap();
        socket.write_all(b"{\"request\":\"subscribe\",\"topics\":[\"devices\"]}\n").unwrap();
        let mut line = String::new();
        BufReader::new(&socket).read_line(&mut line).unwrap();
        if line.contains("topic") {
            break;
        }
        assert!(Instant::now() < deadline, "{line}");
    }
}

/// Says something, hangs up its own end, and reads what comes until the daemon hangs up.
fn say(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may hang up at any byte.
    drop(socket.write_all(bytes));
    drop(socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = socket.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the daemon did not hang up");
    }
    answer
}

/// Bytes of a session: whole messages, some of them damaged or cut.
fn session() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(hello(NOBODY, 0)),
        (1usize..4, any::<u64>()).prop_map(|(calls, dropped)| events(NOBODY, calls, dropped)),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(|payload| message(Kind::File, &payload, 0)),
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(|payload| message(Kind::Goodbye, &payload, 9)),
        proptest::collection::vec(any::<u8>(), EVENT_LEN..=EVENT_LEN).prop_map(|payload| message(
            Kind::Events,
            &payload,
            0
        )),
        Just(message(Kind::Bell, &[], 0)),
        Just(message(Kind::Welcome, &[], 0)),
        proptest::collection::vec(any::<u8>(), 0..64),
    ];
    let whole = (any::<bool>(), proptest::collection::vec(piece, 1..6));
    let damage = proptest::option::of((any::<proptest::sample::Index>(), any::<u8>()));
    (whole, damage, any::<proptest::sample::Index>(), any::<bool>()).prop_map(
        |((greets, pieces), damage, end, is_cut)| {
            let mut bytes = if greets { hello(NOBODY, 0) } else { Vec::new() };
            bytes.extend(pieces.concat());
            if let (Some((at, byte)), false) = (damage, bytes.is_empty()) {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if is_cut && !bytes.is_empty() {
                bytes.truncate(end.index(bytes.len()));
            }
            bytes
        },
    )
}

/// Lines that look like questions more or less.
fn question() -> impl Strategy<Value = String> {
    let words = "(status|processes|files|devices|history|forecast|predict|profile|end-run|begin-run|x)";
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("1e308".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:?}")),
        "[a-z:0-9]{0,12}".prop_map(|text| format!("\"{text}\"")),
    ];
    let keys =
        "(model|mode|sort|limit|last_s|points|bytes|chunk|at_s|device|sync|fsync|view|run|notes|outcome)";
    let field = (keys, value).prop_map(|(key, value)| format!(",\"{key}\":{value}"));
    prop_oneof![
        3 => (words, proptest::collection::vec(field, 0..4))
            .prop_map(|(word, fields)| format!("{{\"request\":\"{word}\"{}}}", fields.concat())),
        1 => "\\{[ -~]{0,60}",
    ]
}

#[test]
fn whatever_is_said_ends_one_connection_only() {
    let served = Served::start();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: 200,
        ..ProptestConfig::default()
    });
    runner
        .run(&session(), |bytes| {
            say(&served.path, &bytes);
            prop_assert_eq!(served.status().schema, 1);
            Ok(())
        })
        .unwrap();
    served.status_when(|status| status.clients == 0);
}

#[test]
fn whatever_is_asked_is_answered_by_one_line() {
    let served = Served::start();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: 300,
        ..ProptestConfig::default()
    });
    runner
        .run(&question(), |question| {
            let answer = say(&served.path, format!("{question}\n").as_bytes());
            let answer = String::from_utf8(answer).unwrap();
            prop_assert_eq!(answer.matches('\n').count(), 1, "{} answers {}", question, answer);
            let parsed: serde_json::Value = serde_json::from_str(&answer).unwrap();
            prop_assert!(parsed.is_object());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_question_without_end_is_cut_off() {
    let served = Served::start();
    let mut endless = vec![b'{'];
    endless.resize(3 << 20, b' ');
    let answer = String::from_utf8(say(&served.path, &endless)).unwrap();
    assert!(answer.is_empty() || answer.contains("at most"), "{answer}");
    assert_eq!(served.status().schema, 1);
}
