//! Calls per second that the daemon can process, with the models in lockstep.
//!
//! A program sends prepared batches as fast as they are read, of one thread or of a thousand in turn. Printed
//! for each set of models, without and with a trace, and for the daemon's own lane, with sums, history, an
//! assimilated model and learning: calls per second of the engine's thread (by its processor time) and by the
//! wall clock.
//!
//! Usage: cargo bench -p cawld --bench ingest [-- MILLIONS [PART OF A LABEL]]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cawl_client::protocol::RunSpec;
use cawl_client::protocol::{RunEnd, View};
use cawl_core::Mode;

use cawl_wire::{EVENT_LEN, Event, FileKind, Header, Hello, Kind, Op, Wchar};
use cawld::{Daemon, EngineOptions, socket};

const BATCH: usize = 340;

fn send(path: &Path, run: u64, threads: u32, calls: u64) {
    let mut socket = UnixStream::connect(path).expect("connect");
    // All calls are in the past, so that none is held for the end, which the engine's thread does not do.
    let started = cawl_host::now().0.saturating_sub(1000 * calls);
    let wchar = Wchar::default();
    let hello =
        Hello { pid: 1 << 30, ppid: 1, uid: 0, run, started, wchar, program: b"p", ..Hello::default() };
    let mut payload = [0; 256];
    let length = hello.encode(&mut payload).expect("room");
    let header = Header { kind: Kind::Hello, len: length as u32, dropped: 0 };
    socket.write_all(&header.encode()).and_then(|()| socket.write_all(&payload[..length])).expect("hello");
    let mut event = Event::new(Op::Write);
    (event.kind, event.dev, event.ino, event.fd) = (FileKind::Regular, 1, 7, 3);
    (event.pid, event.tid) = (1 << 30, 1 << 30);
    (event.requested, event.returned, event.duration) = (4096, 4096, 700);
    event.start = started;
    let mut message = Vec::with_capacity(24 + BATCH * EVENT_LEN);
    for first in (0..calls).step_by(BATCH) {
        message.clear();
        let header = Header { kind: Kind::Events, len: (BATCH * EVENT_LEN) as u32, dropped: 0 };
        message.extend_from_slice(&header.encode());
        for call in first..first + BATCH as u64 {
            event.start += 1000;
            // Over the same 64 MB repeatedly.
            event.offset = call % 16384 * 4096;
            event.tid = (1 << 30) + call as u32 % threads;
            message.extend_from_slice(&event.encode());
        }
        socket.write_all(&message).expect("events");
    }
}

/// The daemon's own lane: these models in lockstep, the first one also assimilated if `assimilated`,
/// learning.
async fn measure_own(models: &[&str], assimilated: bool, learn: bool, calls: u64) {
    let label = format!(
        "own lane, {}{}{}",
        models.join("+"),
        if assimilated { ", assimilated" } else { "" },
        if learn { ", learning" } else { "" }
    );
    if !is_wanted(&label) {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s.sock");
    let first = models[0].to_owned();
    let options = EngineOptions {
        profile: cawl_host::uncalibrated_profile(),
        host_models: Some(models.iter().map(|name| (*name).to_owned()).collect()),
        host_trace: None,
        watch: None,
        modes: if assimilated { vec![(first, Mode::Assimilated)] } else { Vec::new() },
        learn,
        keeper: None,
        stacks: None,
        calls: None,
        sums: None,
        otlp: None,
    };
    let daemon = Daemon::start(socket::listen(&path).expect("listen"), options).expect("daemon");
    let asker = daemon.asker();
    let (began, before) = (Instant::now(), engine_time());
    tokio::task::spawn_blocking(move || send(&path, 0, 1, calls)).await.expect("sender");
    while asker.status(View::default()).await.expect("status").calls < calls {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (wall, engine) = (began.elapsed().as_secs_f64(), engine_time() - before);
    let rate = |seconds: f64| calls as f64 / 1e6 / seconds;
    println!("{label:56} {:6.2} M calls/s on one core, {:6.2} by the wall clock", rate(engine), rate(wall));
    daemon.stop().await.expect("its end");
}

/// Processor time of the engine's thread, in seconds.
fn engine_time() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc").flatten();
    let of_engine = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "cawl-engine")
    });
    let spent = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    };
    of_engine.map(spent).sum::<f64>() / 1e9
}

/// The label has what the command line asks for.
fn is_wanted(label: &str) -> bool {
    let part = std::env::args().skip(1).find(|word| !word.starts_with('-') && word.parse::<u64>().is_err());
    part.is_none_or(|part| label.contains(&part))
}

async fn measure(models: &[&str], trace: Option<PathBuf>, threads: u32, calls: u64) {
    let of_threads = if threads > 1 { format!(", {threads} threads in turn") } else { String::new() };
    let label =
        format!("{}{}{of_threads}", models.join("+"), if trace.is_some() { " and a trace" } else { "" });
    if !is_wanted(&label) {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s.sock");
    let options = EngineOptions::new(cawl_host::uncalibrated_profile());
    let daemon = Daemon::start(socket::listen(&path).expect("listen"), options).expect("daemon");
    let models: Vec<String> = models.iter().map(|name| (*name).to_owned()).collect();
    let run = daemon.begin_run(RunSpec { models, trace, ..RunSpec::default() }).await.expect("run");
    let began = Instant::now();
    tokio::task::spawn_blocking(move || send(&path, run, threads, calls)).await.expect("sender");
    let report = daemon.end_run(run, RunEnd::default(), std::future::pending()).await.expect("report");
    let (wall, engine) = (began.elapsed().as_secs_f64(), engine_time());
    assert_eq!((report.calls, report.drops), (calls, 0));
    let rate = |seconds: f64| calls as f64 / 1e6 / seconds;
    println!("{label:56} {:6.2} M calls/s on one core, {:6.2} by the wall clock", rate(engine), rate(wall));
    daemon.stop().await.expect("its end");
}

fn main() {
    let millions = std::env::args().filter_map(|word| word.parse::<u64>().ok()).next_back().unwrap_or(4);
    let calls = (millions * 1_000_000).next_multiple_of(BATCH as u64);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("runtime").block_on(async {
        let dir = tempfile::tempdir().expect("directory");
        for models in [&["cawl"][..], &["kernel"], cawl_core::MODELS] {
            measure(models, None, 1, calls).await;
        }
        measure(&["cawl"], Some(dir.path().join("trace")), 1, calls).await;
        measure(&["naive"], None, 1000, calls).await;
        let of_kernel: &[&str] = &["kernel"];
        for (models, assimilated, learn) in [
            (of_kernel, false, false),
            (of_kernel, true, false),
            (of_kernel, true, true),
            (cawl_core::MODELS, true, true),
        ] {
            measure_own(models, assimilated, learn, calls).await;
        }
    });
}
