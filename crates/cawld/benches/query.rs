//! Latency of questions while programs write as fast as the daemon can process: the time from a question on
//! the Unix socket to its whole answer.
//!
//! `cargo bench -p cawld --bench query [-- MILLIONS [QUESTION]]`: programs send MILLIONS of events per second
//! (2) over the socket, or as many as the daemon reads; its own lane runs all models. There are many files,
//! so that tables are long. QUESTION: only those whose name contains it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cawl_client::protocol::{HistorySpan, Listing, Plan, Request, Sort, Status, View};
use cawl_client::query;
use cawl_core::Mode;
use cawl_wire::{EVENT_LEN, Event, FileKind, Header, Hello, Kind, Op, Wchar};
use cawld::{Daemon, EngineOptions, socket};
use std::io::Write;
use std::os::unix::net::UnixStream;

const BATCH: u64 = 340;
const PROGRAMS: u64 = 4;
const FILES: u64 = 20_000;
const QUESTIONS: usize = 400;

/// Sends batches of events, paced, until told to stop; the time of a batch's events is now.
fn send(path: &Path, program: u64, rate: f64, stop: &AtomicBool, sent: &AtomicU64) {
    let mut socket = UnixStream::connect(path).expect("connect");
    let pid = (1 << 30) + program as u32;
    let (ppid, uid, run, wchar) = (1, 0, 0, Wchar::default());
    let started = cawl_host::now().0;
    let hello = Hello { pid, ppid, uid, run, started, wchar, program: b"p", ..Hello::default() };
    let mut payload = [0; 256];
    let length = hello.encode(&mut payload).expect("room");
    let header = Header { kind: Kind::Hello, len: length as u32, dropped: 0 };
    socket.write_all(&header.encode()).and_then(|()| socket.write_all(&payload[..length])).expect("hello");
    let mut event = Event::new(Op::Write);
    (event.kind, event.dev, event.fd) = (FileKind::Regular, 1, 3);
    (event.pid, event.tid) = (pid, pid);
    (event.requested, event.returned, event.duration) = (64, 64, 300);
    let mut message = Vec::new();
    let began = Instant::now();
    for batch in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        message.clear();
        let header = Header { kind: Kind::Events, len: (BATCH as usize * EVENT_LEN) as u32, dropped: 0 };
        message.extend_from_slice(&header.encode());
        event.ino = 1 + (batch * PROGRAMS + program) % FILES;
        let now = cawl_host::now().0;
        for call in 0..BATCH {
            (event.start, event.offset) = (now + call * 400, call * 64);
            message.extend_from_slice(&event.encode());
        }
        socket.write_all(&message).expect("events");
        sent.fetch_add(BATCH, Ordering::Relaxed);
        let due = Duration::from_secs_f64((batch + 1) as f64 * BATCH as f64 / rate);
        if let Some(early) = due.checked_sub(began.elapsed()) {
            std::thread::sleep(early);
        }
    }
}

/// Median, 99th percentile and maximum of the time to an answer, in ms.
fn measure(path: &Path, question: &Request) -> [f64; 3] {
    let mut times: Vec<f64> = (0..QUESTIONS)
        .map(|_| {
            let began = Instant::now();
            let answer: serde_json::Value = query::ask(path, question).expect("an answer");
            assert_eq!(answer["schema"], 1);
            let time = began.elapsed().as_secs_f64() * 1e3;
            std::thread::sleep(Duration::from_millis(3));
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[QUESTIONS / 2], times[QUESTIONS * 99 / 100], times[QUESTIONS - 1]]
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let millions = words.next().map_or(2.0, |word| word.parse::<f64>().expect("millions of events a second"));
    let named = words.next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("runtime");
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s.sock");
    let models = Some(cawl_core::MODELS.iter().map(|model| (*model).to_owned()).collect());
    let options = EngineOptions {
        profile: cawl_host::uncalibrated_profile(),
        host_models: models,
        host_trace: None,
        watch: None,
        modes: vec![("kernel".to_owned(), Mode::Assimilated)],
        learn: true,
        keeper: None,
        stacks: None,
        calls: None,
        sums: None,
        otlp: None,
    };
    let daemon = {
        let _entered = runtime.enter();
        Daemon::start(socket::listen(&path).expect("listen"), options).expect("daemon")
    };
    let listing = Listing { sort: Sort::Bytes, limit: Some(100), skip: 0 };
    let job = Plan {
        bytes: 4 << 30,
        chunk: None,
        sync: false,
        fsync: false,
        at_s: 0.0,
        device: None,
        view: View::default(),
    };
    let questions = [
        ("status", Request::Status(View::default())),
        ("processes", Request::Processes(listing)),
        ("files", Request::Files(listing)),
        ("files, 500 rows after 4500", Request::Files(Listing { limit: Some(500), skip: 4500, ..listing })),
        ("devices", Request::Devices),
        ("history of 24 h", Request::History(HistorySpan { last_s: Some(86_400.0), points: None })),
        ("forecast", Request::Forecast(View::default())),
        ("predict 4 GiB", Request::Predict(job)),
        ("profile", Request::Profile),
    ];
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for program in 0..PROGRAMS {
            let (path, stop, sent) = (&path, &stop, &sent);
            scope.spawn(move || send(path, program, millions * 1e6 / PROGRAMS as f64, stop, sent));
        }
        std::thread::sleep(Duration::from_secs(3));
        println!("| question | p50 ms | p99 ms | max ms | taken meanwhile, M events/s |");
        println!("|---|---|---|---|---|");
        for (name, question) in questions.iter().filter(|(name, _)| name.contains(&named)) {
            let before: Status = query::ask(&path, &Request::Status(View::default())).expect("status");
            let began = Instant::now();
            let [p50, p99, most] = measure(&path, question);
            let after: Status = query::ask(&path, &Request::Status(View::default())).expect("status");
            let taken = (after.calls - before.calls) as f64 / began.elapsed().as_secs_f64() / 1e6;
            println!("| {name} | {p50:.2} | {p99:.2} | {most:.2} | {taken:.2} |");
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("\noffered at most {millions} M events/s; {} sent", sent.load(Ordering::Relaxed));
    runtime.block_on(daemon.stop()).expect("its end");
}
