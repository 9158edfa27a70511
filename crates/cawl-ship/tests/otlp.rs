//! Metrics and spans in the OpenTelemetry Collector.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cawl_kit::{Dir, Running, eventually, find};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::certificate::certificate;
use crate::s3::with_keys;
use crate::{ship, shipping, write};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

/// A Collector that appends each request to a file.
struct Collector<'a> {
    dir: &'a Dir,
    port: u16,
    running: Option<Running>,
}

impl<'a> Collector<'a> {
    /// None, and said so, if it is not installed. `tls`: key and certificate.
    fn start(dir: &'a Dir, tls: Option<&(PathBuf, PathBuf)>) -> Option<Collector<'a>> {
        find("cawl-otelcol")?;
        let (port, file) = (free_port(), dir.path().join("told.json"));
        let tls = tls.map_or(String::new(), |(key, certificate)| {
            format!("\n        tls: {{ key_file: {}, cert_file: {} }}", key.display(), certificate.display())
        });
        let config = format!(
            "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: 127.0.0.1:{port}{tls}
exporters:\n  file: {{ path: {}, append: true, flush_interval: 100ms }}
service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  pipelines:
    metrics: {{ receivers: [otlp], exporters: [file] }}
    traces: {{ receivers: [otlp], exporters: [file] }}\n",
            file.display()
        );
        fs::write(dir.path().join("collector.yaml"), config).expect("a file");
        let mut collector = Collector { dir, port, running: None };
        collector.again();
        Some(collector)
    }

    fn again(&mut self) {
        let mut command = self.dir.command("cawl-otelcol");
        command.arg("--config").arg(self.dir.path().join("collector.yaml"));
        let mut running = Running::start(command);
        running.stderr_until("Everything is ready");
        self.running = Some(running);
    }

    /// As an operator does it: what it has taken is in its file.
    fn stop(&mut self) {
        let running = self.running.take().expect("it runs");
        running.signal(Signal::SIGTERM);
        running.finish().success();
    }

    /// The requests that it has taken, of this kind.
    fn told(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("told.json")).unwrap_or_default();
        // The last line may be half there.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|request| request.get(kind).cloned()).collect()
    }
}

/// `cawld --otlp` with `cawl-ship` in PATH.
fn daemon(dir: &Dir, to: &str, more: &[&str]) -> Running {
    let mut command = dir.command(cawl_kit::built("cawld"));
    command.args(["--otlp", to, "--otlp-every", "200ms", "--node", "n", "--label", "rack=7", "--socket"]);
    command.arg(dir.socket()).args(more);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", ship().parent().expect("a folder").display()));
    command.env("STATE_DIRECTORY", dir.path().join("state"));
    let mut running = Running::start(command);
    running.stderr_until("listening at");
    running
}

fn status(dir: &Dir) -> Value {
    let mut command = dir.cawl(&["status", "--json", "--socket"]);
    command.arg(dir.socket());
    let text = Running::start(command).finish().success().stdout;
    serde_json::from_str(&text).expect("JSON")
}

/// The body of an answer of the daemon.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the daemon listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// Name, labels and values of OpenMetrics, but of the node's labels.
fn of_text(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let series = series.replace("node=\"n\",rack=\"7\"", "").replace("{,", "{");
        (series, value.parse().expect("a number"))
    };
    samples.map(sample).collect()
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let all = of["attributes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text =
        |value: &Value| value["stringValue"].as_str().or(value["intValue"].as_str()).map(ToOwned::to_owned);
    all.iter().filter_map(|pair| Some((pair["key"].as_str()?.to_owned(), text(&pair["value"])?))).collect()
}

/// The same of a request, and its time in ns.
fn of_request(resources: &Value) -> (BTreeMap<String, f64>, u64) {
    let (mut series, mut at) = (BTreeMap::new(), 0);
    for metric in resources[0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics") {
        let (kind, ending) = if metric.get("sum").is_some() { ("sum", "_total") } else { ("gauge", "") };
        if kind == "sum" {
            assert_eq!(metric[kind]["aggregationTemporality"], 2, "{metric}");
            assert_eq!(metric[kind]["isMonotonic"], true, "{metric}");
        }
        for point in metric[kind]["dataPoints"].as_array().expect("points") {
            // In the order of the text.
            let pairs = point["attributes"].as_array().map(Vec::as_slice).unwrap_or_default();
            let label = |pair: &Value| {
                format!(
                    "{}=\"{}\"",
                    pair["key"].as_str().expect("a key"),
                    pair["value"]["stringValue"].as_str().expect("text")
                )
            };
            let labels: Vec<String> = pairs.iter().map(label).collect();
            let name =
                format!("{}{ending}{{{}}}", metric["name"].as_str().expect("a name"), labels.join(","));
            series.insert(name, point["asDouble"].as_f64().unwrap_or(0.0));
            at = point["timeUnixNano"].as_str().and_then(|at| at.parse().ok()).expect("a time");
        }
    }
    (series, at)
}

/// All that is spooled is delivered.
fn nothing_waits(dir: &Dir) -> bool {
    !dir.path().join("state/otlp/v1").exists()
}

#[test]
fn the_collector_has_the_daemon_s_metrics_and_the_slow_calls_of_a_request() {
    let dir = Dir::new();
    let Some(collector) = Collector::start(&dir, None) else { return };
    let port = free_port();
    let to = format!("http://127.0.0.1:{}/", collector.port);
    let daemon = daemon(&dir, &to, &["--http", &format!("127.0.0.1:{port}"), "--http-open"]);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut command = dir.cawl(&["run", "--report", "r.json", "--socket"]);
    command.arg(dir.socket()).env("TRACEPARENT", format!("00-{trace}-b7ad6b7169203331-01"));
    command.args(["--", "dd", "if=/dev/zero", "of=out", "bs=64k", "count=300", "conv=fsync"]);
    Running::start(command).finish().success();
    // Another one, which nobody gave a trace.
    write(&dir, 50);
    let mut calls = 0;
    eventually("all calls are analysed", || {
        let before = std::mem::replace(&mut calls, status(&dir)["calls"].as_u64().unwrap_or(0));
        calls > 350 && calls == before
    });
    let page = of_text(&get(port, "/metrics"));
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success();
    eventually("all files are delivered", || nothing_waits(&dir));
    let is_last = |request: &Value| of_request(request).0.get("cawl_clients{}") == Some(&0.0);
    eventually("the Collector has written them", || {
        collector.told("resourceMetrics").last().is_some_and(is_last)
            && !collector.told("resourceSpans").is_empty()
    });
    let told = collector.told("resourceMetrics");
    let (last, _) = of_request(told.last().expect("metrics"));
    // Each counter is there; what a gauge tells of may have come or gone.
    let names = |of: &BTreeMap<String, f64>| {
        of.keys().filter(|name| name.contains("_total{")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&last), names(&page));
    // All that only this daemon's programs change.
    let own = |name: &str| {
        [
            "calls_total",
            "written_bytes",
            "call_seconds",
            "device_calls",
            "device_written",
            "device_call_",
            "dropped",
            "clients",
            "build",
        ]
        .iter()
        .any(|part| name.starts_with(&format!("cawl_{part}")))
    };
    let compared: Vec<_> = page.iter().filter(|(name, _)| own(name)).collect();
    assert!(compared.len() > 30, "{compared:?}");
    for (name, value) in compared {
        assert_eq!(last.get(name), Some(value), "{name}");
    }
    let resource = attributes(&told[0][0]["resource"]);
    let host = nix::sys::utsname::uname().expect("a name").nodename().to_string_lossy().into_owned();
    for (key, value) in [
        ("service.name", "cawld"),
        ("service.instance.id", "n"),
        ("node", "n"),
        ("host.name", &host),
        ("rack", "7"),
    ] {
        assert_eq!(resource.get(key).map(String::as_str), Some(value), "{resource:?}");
    }
    // Spans: the program below the request's span, its fsync below the program.
    let spans: Vec<(BTreeMap<String, String>, Value)> = collector
        .told("resourceSpans")
        .iter()
        .flat_map(|resources| resources.as_array().expect("resources").clone())
        .flat_map(|of| {
            let spans = of["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
            spans.into_iter().map(move |span| (attributes(&of["resource"]), span))
        })
        .collect();
    let of_trace: Vec<_> = spans.iter().filter(|(_, span)| span["traceId"] == trace).collect();
    let program = of_trace
        .iter()
        .find(|(_, span)| span["parentSpanId"] == "b7ad6b7169203331")
        .expect("the program's span");
    assert_eq!(program.0.get("service.name").map(String::as_str), Some("dd"));
    assert_eq!(program.0.get("rack").map(String::as_str), Some("7"));
    let fsync = of_trace.iter().find(|(_, span)| span["name"] == "fsync").expect("its fsync");
    assert_eq!(fsync.1["parentSpanId"], program.1["spanId"]);
    let told = attributes(&fsync.1);
    assert!(
        told.get("file.path").is_some_and(|path| path.ends_with("/out")) && told.contains_key("cawl.cause"),
        "{told:?}"
    );
    let time =
        |span: &Value, key: &str| span[key].as_str().and_then(|at| at.parse::<u64>().ok()).expect("a time");
    assert!(time(&fsync.1, "startTimeUnixNano") >= time(&program.1, "startTimeUnixNano"));
    assert!(time(&fsync.1, "endTimeUnixNano") <= time(&program.1, "endTimeUnixNano"));
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    assert!(now.abs_diff(time(&fsync.1, "endTimeUnixNano").into()) < 600 * 1_000_000_000);
    assert!(
        spans.iter().any(|(_, span)| span["traceId"] != trace),
        "the other program has a trace of its own"
    );
    // No span twice.
    let mut ids: Vec<_> = spans.iter().map(|(_, span)| span["spanId"].to_string()).collect();
    ids.sort();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn nothing_is_missing_or_twice_when_the_collector_or_the_daemon_goes() {
    let dir = Dir::new();
    let Some(mut collector) = Collector::start(&dir, None) else { return };
    let to = format!("http://127.0.0.1:{}", collector.port);
    let daemon = daemon(&dir, &to, &[]);
    let files = || status(&dir)["otlp"]["files_written"].as_u64().unwrap_or(0);
    write(&dir, 100);
    eventually("some are delivered", || collector.told("resourceMetrics").len() >= 3);
    collector.stop();
    let before = files();
    write(&dir, 100);
    eventually("files wait", || files() > before + 5 && !nothing_waits(&dir));
    collector.again();
    let waiting = files() as usize;
    let delivered = || collector.told("resourceMetrics").len() + collector.told("resourceSpans").len();
    eventually("they are delivered", || delivered() >= waiting);
    collector.stop();
    let before = files();
    eventually("files wait again", || files() > before + 3);
    // cawl-ship brings the rest: for 10 s, since the end of its daemon is the end of its input, and then for
    // the next one.
    daemon.signal(Signal::SIGKILL);
    collector.again();
    daemon.finish().signal(Signal::SIGKILL);
    if !nothing_waits(&dir) {
        Running::start(shipping(&dir, &dir.path().join("state/otlp"), &to)).finish().success();
    }
    assert!(nothing_waits(&dir), "what the killed daemon had spooled is delivered");
    collector.stop();
    let mut metrics: Vec<_> = collector.told("resourceMetrics").iter().map(of_request).collect();
    metrics.sort_by_key(|(_, at)| *at);
    let times: Vec<u64> = metrics.iter().map(|(_, at)| *at).collect();
    assert!(times.windows(2).all(|two| two[0] < two[1]), "twice: {times:?}");
    // Each tells how many files there were before it, of metrics and of spans.
    let written = "cawl_output_files_total{output=\"otlp\",result=\"written\"}";
    let last = metrics.last().expect("metrics").0[written] as usize;
    let all = metrics.len() + collector.told("resourceSpans").len();
    assert!(
        (last + 1..=last + 3).contains(&all),
        "{all} requests came, and {last} were written before the last one"
    );
    let start: Vec<_> = collector
        .told("resourceMetrics")
        .iter()
        .map(|of| {
            of[0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][0]["startTimeUnixNano"].to_string()
        })
        .collect();
    assert!(start.windows(2).all(|two| two[0] == two[1]), "counters began once: {start:?}");
}

#[test]
fn a_full_folder_is_dropped_and_counted_and_holds_nothing_back() {
    let dir = Dir::new();
    let folder = dir.path().join("state/otlp");
    fs::create_dir_all(&folder).expect("a folder");
    // 256 MiB less some files.
    let filler = fs::File::create(folder.join("filler")).expect("a file");
    filler.set_len((256 << 20) - (150 << 10)).expect("a sparse file");
    // Nobody listens there.
    let daemon = daemon(&dir, &format!("http://127.0.0.1:{}", free_port()), &[]);
    let mut told = Value::Null;
    eventually("the folder is full", || {
        told = status(&dir)["otlp"].clone();
        told["rows_dropped"].as_u64() > Some(0)
    });
    assert!(told["failure"].as_str().is_some_and(|why| why.contains("of files already")), "{told:#}");
    assert_eq!(
        told["rows"].as_u64(),
        Some(told["rows_written"].as_u64().expect("rows") + told["rows_dropped"].as_u64().expect("rows"))
    );
    assert!(told["files_dropped"].as_u64() > Some(0), "{told:#}");
    let files = fs::read_dir(folder.join("v1/metrics")).expect("files");
    let bytes: u64 = files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len()).sum();
    assert!((1..=150 << 10).contains(&bytes), "{bytes} bytes of files");
    write(&dir, 100);
    // With room, files are written again.
    filler.set_len(0).expect("a sparse file");
    eventually("there is room", || {
        let again = status(&dir)["otlp"].clone();
        // Nobody listens still.
        let is_full = again["failure"].as_str().is_some_and(|why| why.contains("of files already"));
        again["rows_written"].as_u64() > told["rows_written"].as_u64() && !is_full
    });
    let mut command = dir.cawl(&["status", "--socket"]);
    command.arg(dir.socket());
    let text = Running::start(command).finish().success().stdout;
    assert!(text.contains("dropped: "), "{text}");
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success();
}

/// What a receiver got, and when: path, `authorization`, body.
type Got = Arc<Mutex<Vec<(Instant, String, String, String)>>>;

/// A receiver that answers one request after the other as told, and then always as the last time; nothing for
/// "".
fn receiver(answers: Vec<String>) -> (u16, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let got = Got::default();
    let kept = Arc::clone(&got);
    std::thread::spawn(move || {
        for at in 0.. {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(&stream);
            let (mut line, mut length, mut path, mut token) =
                (String::new(), 0, String::new(), String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                } else if lower.starts_with("authorization:") {
                    line[14..].trim().clone_into(&mut token);
                } else if lower.starts_with("post ") {
                    line.split(' ').nth(1).expect("a path").clone_into(&mut path);
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            let body = String::from_utf8(body).expect("text");
            kept.lock().expect("whole").push((Instant::now(), path, token, body));
            let answer = &answers[at.min(answers.len() - 1)];
            if !answer.is_empty() {
                let _ = (&stream).write_all(answer.as_bytes());
            }
        }
    });
    (port, got)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len())
}

/// A folder with files as of a daemon, whose requests are `{"n":1}`, ….
fn spool(dir: &Dir, count: u32) -> PathBuf {
    let folder = dir.path().join("spool");
    fs::create_dir_all(folder.join("v1/metrics")).expect("a folder");
    for number in 1..=count {
        let name = format!("v1/metrics/n-20261129T143103Z-0123abcd-{number:06}.json");
        fs::write(folder.join(name), format!("{{\"rows\":\"5\"}}\n{{\"n\":{number}}}\n")).expect("a file");
    }
    folder
}

fn with_token(dir: &Dir, folder: &Path, port: u16) -> Command {
    let mut command = shipping(dir, folder, &format!("http://127.0.0.1:{port}/base"));
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20me,x-more=1");
    command
}

#[test]
fn answers_mean_what_the_protocol_says() {
    let dir = Dir::new();
    let folder = spool(&dir, 5);
    let fine = answer("200 OK", "", "{}");
    let answers = vec![
        fine.clone(),
        answer("503 Service Unavailable", "Retry-After: 2\r\n", "later"),
        // Taken, and the answer is lost: it comes again.
        String::new(),
        fine.clone(),
        answer("400 Bad Request", "", "{\"message\":\"no such thing\"}"),
        answer(
            "200 OK",
            "",
            "{\"partialSuccess\":{\"rejectedDataPoints\":\"2\",\"errorMessage\":\"too old\"}}",
        ),
        fine,
    ];
    let (port, got) = receiver(answers);
    Running::start(with_token(&dir, &folder, port))
        .finish()
        .code(1)
        .says("status 503")
        .says("did not take 2 data points or spans: too old")
        .says("1 files were refused");
    let got = got.lock().expect("whole");
    let bodies: Vec<&str> = got.iter().map(|(.., body)| body.trim()).collect();
    assert_eq!(bodies, [1, 2, 2, 2, 3, 4, 5].map(|n| format!("{{\"n\":{n}}}")));
    assert!(got[2].0 - got[1].0 >= Duration::from_secs(2), "it waits as it was told");
    assert!(
        got.iter().all(|(_, path, token, _)| path == "/base/v1/metrics" && token == "Bearer me"),
        "{got:?}"
    );
    // The refused one is set aside, with the reason, and counted.
    assert!(!folder.join("v1").exists());
    let aside = folder.join(".cawl-refused");
    let name = "n-20261129T143103Z-0123abcd-000003.json";
    assert!(fs::read_to_string(aside.join(name)).expect("the file").ends_with("{\"n\":3}\n"));
    let why = fs::read_to_string(aside.join(format!("{name}.why"))).expect("the reason");
    assert!(why.contains("status 400") && why.contains("no such thing"), "{why}");
    assert_eq!(fs::read_to_string(aside.join("count")).expect("the count"), "files=1 rows=7\n");
}

#[test]
fn a_long_wait_is_kept_also_at_the_end() {
    let dir = Dir::new();
    let folder = spool(&dir, 1);
    let (port, got) = receiver(vec![answer("429 Too Many Requests", "Retry-After: 100\r\n", "slowly")]);
    let mut command = with_token(&dir, &folder, port);
    command.arg("--follow");
    let mut running = Running::start(command);
    running.stderr_until("status 429: slowly");
    // The end of its input.
    running.finish().code(1).says("it is tried again");
    assert_eq!(got.lock().expect("whole").len(), 1);
    assert!(folder.join("v1/metrics").exists(), "what was not taken stays");
}

#[test]
fn a_receiver_that_never_answers_is_not_waited_for_after_the_end() {
    let dir = Dir::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its address").port();
    let kinds = [
        ("json", format!("http://127.0.0.1:{port}/base")),
        ("parquet", "s3://calls".to_owned()),
        ("csv", format!("postgres://me@127.0.0.1:{port}/d")),
    ];
    let name = |ending: &str| format!("v1/metrics/n-20261129T143103Z-0123abcd-000001.{ending}");
    let folder = spool(&dir, 1);
    let started = kinds.map(|(ending, to)| {
        let own = dir.path().join(ending);
        fs::create_dir_all(own.join("v1/metrics")).expect("a folder");
        fs::copy(folder.join(name("json")), own.join(name(ending))).expect("a file");
        let mut command = shipping(&dir, &own, &to);
        with_keys(command.arg("--follow"), port);
        let running = Running::start(command);
        // It stays open: the request is under way.
        let connection = silent.accept().expect("it asks");
        // The end of its input.
        (own.join(name(ending)), connection, std::thread::spawn(|| running.finish()))
    });
    for (file, _connection, running) in started {
        let finished = running.join().expect("it ends");
        finished.code(1).says("10 s are over: what was not taken waits in");
        assert!(file.exists(), "what was not taken stays");
    }
    let (port, got) = receiver(vec![answer("200 OK", "", "{}")]);
    Running::start(with_token(&dir, &dir.path().join("json"), port)).finish().success();
    assert_eq!(got.lock().expect("whole").len(), 1);
}

#[test]
fn what_a_collector_refuses_is_counted_by_the_daemon_and_bounded() {
    let dir = Dir::new();
    let (port, _) = receiver(vec![answer("401 Unauthorized", "", "who are you?")]);
    let daemon = daemon(&dir, &format!("http://127.0.0.1:{port}"), &[]);
    let mut told = Value::Null;
    eventually("refusals are counted", || {
        told = status(&dir)["otlp"].clone();
        told["files_refused"].as_u64() >= Some(2)
    });
    assert!(told["rows_refused"].as_u64() > Some(50) && told["rows_dropped"] == 0, "{told:#}");
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success();
    // The earliest go.
    let folder = spool(&dir, 0);
    for number in 1..=5 {
        let name = format!("v1/metrics/n-20261129T143103Z-0123abcd-{number:06}.json");
        fs::write(folder.join(name), format!("{{\"rows\":\"1\"}}\n{}", " ".repeat(5 << 20))).expect("a file");
    }
    Running::start(with_token(&dir, &folder, port)).finish().code(1).says("who are you?");
    let kept = fs::read_dir(folder.join(".cawl-refused")).expect("a folder");
    let mut kept: Vec<_> = kept.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    kept.retain(|name| name.ends_with(".json"));
    kept.sort();
    assert_eq!(kept, [3, 4, 5].map(|number| format!("n-20261129T143103Z-0123abcd-{number:06}.json")));
}

#[test]
fn https_is_checked() {
    let dir = Dir::new();
    let Some(tls) = certificate(&dir) else { return };
    let Some(collector) = Collector::start(&dir, Some(&tls)) else { return };
    let folder = spool(&dir, 1);
    let name = "v1/metrics/n-20261129T143103Z-0123abcd-000001.json";
    fs::write(folder.join(name), "{\"rows\":\"0\"}\n{\"resourceMetrics\":[{}]}").expect("a file");
    let url = format!("https://localhost:{}", collector.port);
    let start = |certificate: Option<&Path>| {
        let mut command = shipping(&dir, &folder, &url);
        command.envs(certificate.map(|path| ("SSL_CERT_FILE", path)));
        Running::start(command).finish()
    };
    start(None).code(1).says("cannot deliver");
    assert!(folder.join(name).exists(), "what was not taken stays");
    start(Some(&tls.1)).success();
    assert!(!folder.join("v1").exists());
}

#[test]
fn an_address_that_cannot_be_is_wrong_usage_and_a_token_is_not_in_it() {
    let dir = Dir::new();
    for address in ["localhost:4318", "ftp://localhost", "http://", "http://me:secret@localhost:4318"] {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.args(["--otlp", address, "--socket"]).arg(dir.socket());
        Running::start(command).finish().code(2).says("give a collector").says("OTEL_EXPORTER_OTLP_HEADERS");
        Running::start(shipping(&dir, dir.path(), address)).finish().code(2).says("name where to");
    }
    let mut command = shipping(&dir, dir.path(), "http://localhost:4318");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "nonsense");
    Running::start(command).finish().code(1).says("name=value");
}
