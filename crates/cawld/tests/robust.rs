//! The daemon among those who mean it ill or die on it: it goes on, answers, and counts what was lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cawl_client::protocol::RunEnd;
use cawl_client::protocol::RunSpec;
use cawl_core::Outcome;
use cawl_kit::LIMIT;
use cawl_kit::served::{NOBODY, Served, events, hello, message};
use cawl_wire::{EVENT_LEN, HEADER_LEN, Header, Kind, VERSION};
use cawld::http::Http;
use cawld::{Daemon, EngineOptions, socket};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A program is gone and its calls go on coming, so the end of its run is waited for; until somebody has
/// enough.
#[test]
fn a_report_that_is_wanted_now_waits_for_nothing() {
    let served = Served::start();
    let spec = RunSpec { models: vec!["naive".to_owned()], ..RunSpec::default() };
    let run = served.runtime.block_on(served.daemon().begin_run(spec)).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (path, ended) = (&served.path, &has_ended);
        scope.spawn(move || {
            let mut socket = UnixStream::connect(path).unwrap();
            socket.write_all(&hello(NOBODY, run)).unwrap();
            while !ended.load(Ordering::Relaxed) {
                socket.write_all(&events(NOBODY, 1, 0)).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        served.status_when(|status| status.calls > 0);
        let outcome = Outcome { pid: NOBODY, code: Some(0), signal: None, wchar: None };
        let end = RunEnd { outcome: Some(outcome), ..RunEnd::default() };
        let now = std::future::ready(());
        let report = served
            .runtime
            .block_on(async { tokio::time::timeout(LIMIT, served.daemon().end_run(run, end, now)).await });
        has_ended.store(true, Ordering::Relaxed);
        let report = report.expect("it waits for nothing").unwrap();
        assert_eq!((report.sessions.len(), report.outcome), (1, Some(outcome)));
        let left_out = "the report was wanted before all calls had been taken";
        assert!(report.calls > 0 || report.notes.iter().any(|note| note.starts_with(left_out)), "{report:?}");
        assert!(!report.notes.iter().any(|note| note.contains("still ran")), "{:?}", report.notes);
    });
    let again = served.daemon().end_run(run, RunEnd::default(), std::future::ready(()));
    assert!(served.runtime.block_on(again).is_err(), "it has ended");
}

/// 64 programs write as fast as they can; every third is killed in the middle of a message. What was sent
/// as a whole is counted, and the daemon answers all the while.
#[test]
fn programs_that_are_killed_lose_only_what_they_had_not_sent() {
    const PROGRAMS: u32 = 64;
    const BATCHES: usize = 5;
    const BATCH: usize = 340;
    let served = Served::start();
    let spec = RunSpec { models: vec!["naive".to_owned()], ..RunSpec::default() };
    let run = served.runtime.block_on(served.daemon().begin_run(spec)).unwrap();
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
    // A report waits for calls that have not been taken yet, but not for as long as a slow machine may take.
    let all = u64::from(PROGRAMS) * (BATCHES * BATCH) as u64;
    served.status_when(|status| status.clients == 0 && status.calls >= all);
    let report = served
        .runtime
        .block_on(served.daemon().end_run(run, RunEnd::default(), std::future::pending()))
        .unwrap();
    assert_eq!(report.calls, all);
    assert_eq!((report.sessions.len(), report.drops), (64, 32));
    let total = served.status_when(|status| status.clients == 0 && status.calls == report.calls);
    assert_eq!((total.drops, total.bytes), (32, report.bytes));
}

/// 64 programs offer 100 000 calls a second each, far more than is taken. What finds no room is dropped by
/// its program and counted: each call is either taken or counted. The daemon answers all the while and keeps
/// no more than its queues hold.
#[test]
fn more_than_can_be_taken_is_dropped_and_every_call_is_counted() {
    const PROGRAMS: u32 = 64;
    const BATCH: usize = 340;
    const BATCHES: usize = 100_000 / BATCH;
    const MAX_MORE: u64 = 256 << 20;
    let served = Served::start();
    let before = resident();
    let began = Instant::now();
    let mut highest = 0;
    std::thread::scope(|scope| {
        let offer = |pid: u32| {
            let mut socket = UnixStream::connect(&served.path).unwrap();
            socket.write_all(&hello(pid, 0)).unwrap();
            let mut dropped = 0;
            for batch in 0..BATCHES {
                let due = Duration::from_secs_f64((batch * BATCH) as f64 / 1e5);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                if has_room(&socket) {
                    socket.write_all(&events(pid, BATCH, dropped)).unwrap();
                } else {
                    dropped += BATCH as u64;
                }
            }
            // What the tracer has not said yet, it says with its last events.
            socket.write_all(&events(pid, 1, dropped)).unwrap();
        };
        let programs: Vec<_> = (0..PROGRAMS).map(|n| scope.spawn(move || offer(NOBODY + n))).collect();
        while !programs.iter().all(|program| program.is_finished()) {
            assert_eq!(served.status().schema, 1);
            highest = highest.max(resident().saturating_sub(before));
        }
    });
    let offered = u64::from(PROGRAMS) * (BATCHES * BATCH + 1) as u64;
    let end = served.status_when(|status| status.clients == 0 && status.calls + status.drops >= offered);
    assert_eq!(end.calls + end.drops, offered);
    println!("{} taken, {} dropped, {highest} B more", end.calls, end.drops);
    assert!(highest < MAX_MORE, "{highest} B more than before");
}

/// True if a batch can be written now.
fn has_room(socket: &UnixStream) -> bool {
    poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&Timespec::default())).unwrap() > 0
}

/// Bytes of memory that this process holds.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap();
    pages * cawl_host::uncalibrated_profile().kernel.page.0
}

/// Connections that say nothing are bounded, keep nobody from being served, and delay no run's end.
#[test]
fn a_flood_of_silent_connections_is_no_matter() {
    let served = Served::start();
    let report_of_a_run = || {
        let run = served.runtime.block_on(served.daemon().begin_run(RunSpec::default())).unwrap();
        let mut socket = UnixStream::connect(&served.path).unwrap();
        socket.write_all(&hello(NOBODY, run)).unwrap();
        socket.write_all(&events(NOBODY, 10, 0)).unwrap();
        drop(socket);
        served
            .runtime
            .block_on(served.daemon().end_run(run, RunEnd::default(), std::future::pending()))
            .unwrap()
    };
    let mut silent: Vec<UnixStream> = (0..400).map(|_| UnixStream::connect(&served.path).unwrap()).collect();
    let mut half = UnixStream::connect(&served.path).unwrap();
    half.write_all(b"{\"request\":").unwrap();
    let report = report_of_a_run();
    assert_eq!(report.calls, 10);
    // What was waited for to the end of patience is told.
    assert!(!report.notes.iter().any(|note| note.contains("daemon is behind")), "{:?}", report.notes);
    // The oldest were closed: they read the end of the stream.
    let oldest = &mut silent[0];
    oldest.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(oldest.read(&mut [0; 1]).unwrap(), 0);
    // The latest are still served.
    let latest = silent.last_mut().unwrap();
    latest.write_all(b"{\"request\":\"devices\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(latest).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"schema\":1"), "{line}");
}

/// A report has the calls of programs that connected, and ended, before the daemon accepted them.
#[test]
fn connections_that_were_not_accepted_yet_are_waited_for() {
    const PROGRAMS: u32 = 100;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    // In one thread, nothing is accepted while the programs connect.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = EngineOptions::new(cawl_host::uncalibrated_profile());
        let daemon = Daemon::start(socket::listen(&path).unwrap(), options).unwrap();
        let run = daemon.begin_run(RunSpec::default()).await.unwrap();
        for program in NOBODY..NOBODY + PROGRAMS {
            let mut socket = UnixStream::connect(&path).unwrap();
            socket.write_all(&[hello(program, run), events(program, 1, 0)].concat()).unwrap();
        }
        let report = daemon.end_run(run, RunEnd::default(), std::future::pending()).await.unwrap();
        assert_eq!((report.calls, report.sessions.len()), (PROGRAMS.into(), PROGRAMS as usize));
        daemon.stop().await.unwrap();
    });
}

/// Those who ask and never read keep no tracer out, and are closed in the end.
#[test]
fn who_does_not_take_its_answers_keeps_nobody_out() {
    let served = Served::start();
    let questions = b"{\"request\":\"profile\"}\n".repeat(1000);
    let deaf: Vec<UnixStream> = (0..256)
        .map(|_| {
            let mut socket = UnixStream::connect(&served.path).unwrap();
            // More than the sockets hold, answers included.
            socket.set_nonblocking(true).unwrap();
            while socket.write_all(&questions).is_ok() {}
            socket
        })
        .collect();
    // They are being answered.
    let readable = |socket: &UnixStream| poll(&mut [PollFd::new(socket, PollFlags::IN)], None).unwrap() > 0;
    assert!(deaf.iter().all(readable));
    let run = served.runtime.block_on(served.daemon().begin_run(RunSpec::default())).unwrap();
    for program in 0..8 {
        let mut socket = UnixStream::connect(&served.path).unwrap();
        socket.write_all(&hello(NOBODY + program, run)).unwrap();
        socket.write_all(&events(NOBODY + program, 10, 0)).unwrap();
    }
    let ended = served.daemon().end_run(run, RunEnd::default(), std::future::pending());
    let report = served.runtime.block_on(ended).unwrap();
    assert_eq!((report.calls, report.sessions.len(), report.drops), (80, 8, 0));
    // Their room becomes free.
    let deadline = Instant::now() + LIMIT;
    while !say(&served.path, b"{\"request\":\"devices\"}\n").starts_with(b"{\"schema\":1") {
        assert!(Instant::now() < deadline, "nobody is answered any more");
    }
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
    let deadline = Instant::now() + LIMIT;
    let mut topics = std::collections::BTreeSet::new();
    let mut lines = BufReader::new(&eager).lines();
    let is_dropped =
        || matches!(poll(&mut [PollFd::new(&lazy, PollFlags::RDHUP)], Some(&Timespec::default())), Ok(1..));
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
    let deadline = Instant::now() + LIMIT;
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
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    // It may hang up at any byte.
    drop(socket.write_all(bytes));
    drop(socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = socket.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the daemon did not hang up");
    }
    answer
}

#[test]
fn a_tracer_of_another_version_is_refused_with_a_word_and_leaves_nothing() {
    let served = Served::start();
    for version in [0, VERSION - 1, VERSION + 1, u16::MAX] {
        let mut said = hello(NOBODY, 0);
        said[4..6].copy_from_slice(&version.to_le_bytes());
        said.extend(events(NOBODY, 10, 0));
        let answer = say(&served.path, &said);
        let header = Header::decode(answer.first_chunk().expect("a whole header")).unwrap();
        assert_eq!((answer.len(), header.kind), (HEADER_LEN, Kind::Refused), "version {version}");
    }
    let status = served.status();
    assert_eq!((status.calls, status.clients, status.drops), (0, 0, 0));
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

fn cases(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { failure_persistence: None, cases, ..ProptestConfig::default() })
}

#[test]
fn who_types_no_request_is_told_so() {
    let served = Served::start();
    for said in ["\n", "hello\n", "null\n", "GET / HTTP/1.1\r\n"] {
        let mut socket = UnixStream::connect(&served.path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(said.as_bytes()).unwrap();
        let mut answer = String::new();
        // The rest of what was said may be lost, with the connection.
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.starts_with("{\"error\":\"not a request"), "{said:?}: {answer}");
    }
}

#[test]
fn whatever_is_said_ends_one_connection_only() {
    let served = Served::start();
    cases(200)
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
    cases(300)
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

/// A request that nothing is wrong with.
const WELL: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Requests more or less: pieces of them, damaged or cut.
fn http_request() -> impl Strategy<Value = Vec<u8>> {
    let path = prop_oneof![
        "/(api/v1/)?(status|files|history|predict|subscribe|metrics|healthz|x)",
        "/(api/v1/)?(files|history|predict)\\?(limit|skip|last_s|points|bytes|chunk|at_s|device|sort)=[-0-9a-z.%&=+]{0,20}",
        "[ -~]{0,40}",
    ];
    let line = ("(GET|HEAD|POST|get|PRI|)", path, "( HTTP/1.1| HTTP/9.9| HTTP/2.0|)")
        .prop_map(|(method, path, version)| format!("{method} {path}{version}\r\n").into_bytes());
    let field = prop_oneof![
        Just(b"Host: localhost\r\n".to_vec()),
        Just(b"Connection: close\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        any::<u64>().prop_map(|length| format!("Content-Length: {length}\r\n").into_bytes()),
        "[A-Za-z:-]{1,20}: [ -~]{0,40}\r\n".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let whole = (line, proptest::collection::vec(field, 0..6), any::<bool>());
    whole.prop_map(|(line, fields, ends)| {
        let end: &[u8] = if ends { b"\r\n" } else { b"" };
        [line, fields.concat(), end.to_vec()].concat()
    })
}

/// Sends a request and reads what comes until the daemon hangs up; hangs up its own end, where the request
/// may have none.
fn ask_http(address: SocketAddr, request: &[u8], is_whole: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // It may hang up at any byte.
    drop(stream.write_all(request));
    if !is_whole {
        drop(stream.shutdown(Shutdown::Write));
    }
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the daemon did not hang up");
    }
    answer
}

#[test]
fn whatever_is_said_over_http_is_answered_by_http_or_by_nothing() {
    let served = Served::start();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let http = served.runtime.block_on(Http::listen(address, None, true)).unwrap();
    let address = http.address();
    served.runtime.spawn(http.serve(served.daemon().asker()));
    cases(300)
        .run(&http_request(), |request| {
            let answer = ask_http(address, &request, false);
            let is_answer = answer.is_empty() || answer.starts_with(b"HTTP/1.");
            prop_assert!(is_answer, "{:?}", String::from_utf8_lossy(&answer));
            prop_assert!(!answer.starts_with(b"HTTP/1.1 5"), "{:?}", String::from_utf8_lossy(&answer));
            let well = ask_http(address, WELL, true);
            prop_assert!(well.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&well));
            Ok(())
        })
        .unwrap();
}
