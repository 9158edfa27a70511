//! Where in the program the time went: what is told of a trace with stacks, in text, JSON and exports.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use cawl_core::{FileFacts, Frame, LiveOptions, Mode, Nanos, Record, Session, Stack, StackOptions};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_kit::{Dir, Finished, Running, python};
use cawl_wire::{Event, FileKind, Op};
use serde_json::Value;

fn cawl(dir: &Dir, arguments: &[&str]) -> Finished {
    Running::start(dir.cawl(arguments)).finish()
}

/// A trace of writes by `log`, of which some have a stack, and fsyncs by `syncJournal`, whose stacks are told
/// at the end, as those of a live run may be.
fn planted(dir: &Dir) -> PathBuf {
    let path = dir.path().join("planted.cawl");
    let mut trace = TraceFile::create(&path, WhenFull::Wait).expect("a trace");
    let options = StackOptions { threshold: Nanos::new(1e6), one_in: NonZeroU32::new(10).expect("not zero") };
    trace.push(&Record::Live(LiveOptions {
        models: vec!["kernel".to_owned()],
        mode: Mode::Lockstep,
        learn: false,
        command: None,
        stacks: Some(options),
    }));
    trace.push(&Record::Session(Session { id: 1, pid: 7, program: "ins".to_owned(), ..Session::default() }));
    trace.push(&Record::File(FileFacts {
        dev: 1,
        ino: 5,
        path: "/d/base".to_owned(),
        ..FileFacts::default()
    }));
    let mut at = 1_000_000_000;
    for call in 0..200 {
        let is_sync = call % 10 == 9;
        let mut event = Event::new(if is_sync { Op::Fsync } else { Op::Write });
        (event.pid, event.tid, event.dev, event.ino, event.kind) = (7, 7, 1, 5, FileKind::Regular);
        (event.start, event.duration) = (at, if is_sync { 5_000_000 } else { 10_000 });
        (event.requested, event.returned) = if is_sync { (0, 0) } else { (4096, 4096) };
        event.stack = if is_sync { 1 } else { u32::from(call % 10 == 0) * 2 };
        trace.push(&Record::Event(event));
        at += event.duration + 1000;
    }
    let frame = |function: &str, file: &str, line| Frame {
        function: Some(function.to_owned()),
        file: Some(file.to_owned()),
        line: Some(line),
        ..Frame::default()
    };
    let main = || frame("main", "/home/me/ins.py", 5);
    for (id, frames) in [
        (
            1,
            vec![
                frame("syncJournal", "/src/pager.c", 4406),
                frame("Connection.commit", "/src/c.c", 9),
                main(),
            ],
        ),
        (2, vec![frame("log;line", "/src/log.c", 3), main()]),
    ] {
        trace.push(&Record::Stack(Stack { id, frames, truncated: false }));
    }
    assert_eq!(trace.finish(), None);
    path
}

#[test]
fn each_answer_names_the_function() {
    let dir = Dir::new();
    let path = planted(&dir);
    let trace = path.to_str().expect("text");
    let text = cawl(&dir, &["explain", trace]).success().stdout;
    let way = "main (ins.py:5) → Connection.commit (c.c:9) → syncJournal (pager.c:4406)";
    assert!(text.contains("where ") && text.contains(way), "{text}");
    let by = cawl(&dir, &["explain", trace, "--by", "stack"]).success().stdout;
    for words in ["fsync in 20 calls", "write in 180 calls", "syncJournal", "pager.c:4406", "one in 10"] {
        assert!(by.contains(words), "{words}: {by}");
    }
    let json = cawl(&dir, &["explain", trace, "--by", "stack", "--json"]).success().stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["copied"], 40, "{json:#}");
    assert_eq!(json["rows"][0]["frames"][0]["function"], "syncJournal", "{json:#}");
    assert!((json["rows"][0]["observed_s"].as_f64().expect("seconds") - 0.1).abs() < 1e-9, "{json:#}");
    let call = cawl(&dir, &["explain", trace, "--call", "10"]).success().stdout;
    assert!(call.contains("syncJournal") && call.contains("pager.c:4406"), "{call}");
    // A selection has the stacks of its calls alone.
    let writes = cawl(&dir, &["explain", trace, "--by", "stack", "--op", "write"]).success().stdout;
    assert!(writes.contains("log;line") && !writes.contains("syncJournal"), "{writes}");
}

fn export(dir: &Dir, trace: &Path, format: &str) -> PathBuf {
    let out = dir.path().join(format!("out.{format}"));
    let mut command = dir.cawl(&["export", "--to", format]);
    command.arg(trace).arg("-o").arg(&out);
    Running::start(command).finish().success();
    out
}

#[test]
fn viewers_get_the_same_time() {
    let dir = Dir::new();
    let path = planted(&dir);
    let folded = fs::read_to_string(export(&dir, &path, "folded")).expect("lines");
    let sum = |way: &str| -> u64 {
        let lines = folded.lines().filter(|line| line.starts_with(way));
        lines.map(|line| line.rsplit(' ').next().expect("a number").parse::<u64>().expect("ns")).sum()
    };
    assert_eq!(sum("main;Connection.commit;syncJournal;fsync;["), 100_000_000, "{folded}");
    assert_eq!(sum("main;log:line;write;["), 1_800_000, "{folded}");
    let scope: Value =
        serde_json::from_slice(&fs::read(export(&dir, &path, "speedscope")).expect("a file")).expect("JSON");
    let frames = scope["shared"]["frames"].as_array().expect("frames");
    for profile in scope["profiles"].as_array().expect("profiles") {
        let samples = profile["samples"].as_array().expect("samples");
        assert_eq!(samples.len(), profile["weights"].as_array().expect("weights").len());
        let is_frame = |number: &Value| number.as_u64().is_some_and(|number| number < frames.len() as u64);
        assert!(samples.iter().flat_map(|way| way.as_array().expect("a way")).all(is_frame), "{scope:#}");
    }
    assert_eq!(scope["profiles"][0]["endValue"], 101_800_000, "{scope:#}");
    let csv = fs::read_to_string(export(&dir, &path, "csv")).expect("a table");
    assert_eq!(csv.lines().filter(|line| line.ends_with("main;Connection.commit;syncJournal")).count(), 20);
    let perfetto = fs::read(export(&dir, &path, "perfetto")).expect("a trace");
    assert!(perfetto.windows(11).any(|part| part == b"syncJournal"));
    let pprof = export(&dir, &path, "pprof");
    let Some(python) = python() else { return };
    let mut command = dir.command(python);
    command.args(["-c", READ_PPROF]).arg(&pprof);
    let read = Running::start(command).finish().success().stdout;
    // Calls, time and what was lost; then the functions of the largest sample, innermost first.
    let mut words = read.split_whitespace();
    let mut next = || words.next().expect("a word");
    assert_eq!((next(), next()), ("200", "101800000"), "{read}");
    assert!(next().parse::<u64>().is_ok_and(|lost| lost <= 101_800_000), "{read}");
    assert_eq!(
        [next(), next(), next(), next()],
        ["fsync", "syncJournal", "Connection.commit", "main"],
        "{read}"
    );
}

/// Reads a gzipped profile.proto with nothing but Python.
const READ_PPROF: &str = r#"
import gzip, sys
def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]; at += 1
            value |= (byte & 127) << shift; shift += 7
            if byte < 128: return value
    while at < len(data):
        key = varint()
        if key & 7 == 0: yield key >> 3, varint()
        else:
            length = varint(); yield key >> 3, data[at:at + length]; at += length
def numbers(data):
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift; shift += 7
        if byte < 128: out.append(value); value = shift = 0
    return out
texts, functions, locations, samples = [], {}, {}, []
for number, value in fields(gzip.open(sys.argv[1]).read()):
    if number == 6: texts.append(value.decode())
    elif number == 5: told = dict(fields(value)); functions[told[1]] = told[2]
    elif number == 4: told = dict(fields(value)); locations[told[1]] = dict(fields(told[4]))[1]
    elif number == 2: told = dict(fields(value)); samples.append((numbers(told[2]), numbers(told[1])))
print(*[sum(values[at] for values, _ in samples) for at in range(3)])
print(*[texts[functions[locations[place]]] for place in max(samples, key=lambda sample: sample[0][1])[1]])
"#;

#[test]
fn a_trace_without_stacks_says_how_to_get_them() {
    let dir = Dir::new();
    let path = dir.path().join("none.cawl");
    assert_eq!(TraceFile::create(&path, WhenFull::Wait).expect("a trace").finish(), None);
    let trace = path.to_str().expect("text");
    for arguments in [&["explain", trace, "--by", "stack"][..], &["export", trace, "--to", "folded"]] {
        let refused = cawl(&dir, arguments);
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("run --stacks --trace"), "{}", refused.stderr);
        assert!(refused.stdout.is_empty(), "{}", refused.stdout);
    }
}
