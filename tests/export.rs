//! Exports: every call is in every format, other programs read them, and nothing half written is left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cawl_core::{Bytes, FileFacts, Record, Sample, Session, Time};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_kit::{Dir, Finished, Running, SmallDisk, eventually, find, python};
use cawl_wire::{Event, FileKind, Op};
use nix::sys::signal::Signal;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

mod otlp;
pub mod readers;
mod recorders;

const FORMATS: [&str; 9] =
    ["perfetto", "chrome", "csv", "json", "parquet", "darshan", "dftracer", "strace", "fio-iolog"];

fn export(dir: &Dir, trace: &Path, format: &str, options: &[&str]) -> Finished {
    let mut command = dir.cawl(&["export"]);
    command.arg(trace).args(["--to", format]).args(options);
    Running::start(command).finish()
}

/// The rows of `--to json`.
fn rows(dir: &Dir, trace: &Path) -> Vec<Value> {
    let text = export(dir, trace, "json", &[]).success().stdout;
    text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

fn int(row: &Value, column: &str) -> i64 {
    row[column].as_i64().unwrap_or_else(|| panic!("{column}: {row:#}"))
}

/// Columns that are the time of a cause.
fn causes(row: &Value) -> impl Iterator<Item = (&String, i64)> {
    let others = ["start_ns", "duration_ns", "predicted_ns", "low_ns", "high_ns"];
    let columns = row.as_object().expect("a row is an object").iter();
    let causes = columns.filter(move |(name, _)| name.ends_with("_ns") && !others.contains(&name.as_str()));
    causes.filter(|(name, _)| !name.starts_with("predicted_by")).filter_map(|(n, v)| Some((n, v.as_i64()?)))
}

const AT: u64 = 1_000_000_000_000;

/// A trace of two threads of one process and one of another: writes with a name that needs quotes, fsyncs,
/// calls that overlap, and the kernel's counters. Each thread makes `calls` writes.
fn synthetic(dir: &Dir, calls: u64) -> PathBuf {
    let path = dir.path().join("synthetic.trace");
    let mut trace = TraceFile::create(&path, WhenFull::Wait).expect("a new file");
    let mut push = |record| trace.push(&record);
    for (id, pid, program) in [(1, 100, "sh"), (2, 100, "writer, \"one\""), (3, 200, "two")] {
        push(Record::Session(Session { id, pid, program: program.to_owned(), ..Session::default() }));
    }
    for (ino, name) in [(1, "/data/a,b \"c\"\nd"), (2, "/data/größe")] {
        let path = name.to_owned();
        push(Record::File(FileFacts {
            dev: 1,
            ino,
            size: Bytes(0),
            mode: 0o100_644,
            path,
            ..FileFacts::default()
        }));
    }
    let sample = |at: u64, pages: u64| Sample {
        time: Time(AT + at),
        dirty: pages,
        writeback: 10,
        background: 100_000,
        hard: 200_000,
        written: pages / 2,
        dirtied: 2 * pages,
    };
    push(Record::Sample(sample(0, 0)));
    let call = |op, at: u64, duration, (pid, tid): (u32, u32), ino| {
        let mut event = Event::new(op);
        (event.start, event.duration) = (AT + at, duration);
        (event.pid, event.tid, event.dev, event.ino, event.kind) = (pid, tid, 1, ino, FileKind::Regular);
        event
    };
    for n in 0..calls {
        let at = 1000 + n * 20_000;
        for (thread, ino) in [((100, 100), 1), ((100, 101), 2), ((200, 200), 2)] {
            let mut event = call(Op::Pwrite, at, 3000 + n % 50, thread, ino);
            (event.requested, event.returned, event.offset) = (4096, 4096, n % 1000 * 4096);
            push(Record::Event(event));
        }
        if n % 100 == 99 {
            push(Record::Event(call(Op::Fsync, at + 4000, 9000, (100, 100), 1)));
            push(Record::Sample(sample(at + 14_000, n)));
        }
    }
    // A call in another, as of a signal handler, and one that begins in it and ends later.
    let at = 1000 + calls * 20_000;
    for (start, duration) in [(0, 10_000), (2000, 1000), (5000, 9000)] {
        push(Record::Event(call(Op::Fdatasync, at + start, duration, (200, 200), 2)));
    }
    assert_eq!(trace.finish(), None);
    path
}

#[test]
fn every_call_of_a_run_is_in_a_table() {
    let dir = Dir::new();
    let program = dir.app("thread_writer");
    let (finished, report) = dir.run(&[], &[program.to_str().expect("a readable path")]);
    finished.success();
    let rows = rows(&dir, &dir.trace());
    assert_eq!(report["calls"], rows.len());
    let known = cawl_kit::calls(&dir, &dir.trace());
    for (row, known) in rows.iter().zip(&known) {
        for field in ["call", "op", "pid", "tid", "path", "offset"] {
            // A dash: no file.
            let path = if known[field] == "-" { &Value::Null } else { &known[field] };
            assert_eq!(&row[field], path, "{field}: {row:#}");
        }
    }
    // The time of each call is divided among its causes.
    let explained: Vec<&Value> = rows.iter().filter(|row| !row["cause"].is_null()).collect();
    for row in &explained {
        assert_eq!(causes(row).map(|(_, ns)| ns).sum::<i64>(), int(row, "duration_ns"), "{row:#}");
        let column = format!("{}_ns", row["cause"].as_str().expect("a name").replace(' ', "_"));
        assert_eq!(causes(row).map(|(_, ns)| ns).max(), row[&column].as_i64(), "{row:#}");
    }
    assert_eq!(report["explain"]["calls"], explained.len());
    // As in the live run.
    let predicted: i64 = rows.iter().filter_map(|row| row["predicted_ns"].as_i64()).sum();
    let expected = report["models"][0]["predicted_s"].as_f64().expect("seconds") * 1e9;
    assert!((predicted as f64 - expected).abs() <= rows.len() as f64, "{predicted} against {expected}");
}

#[test]
fn models_and_modes_are_those_of_the_arguments() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 10);
    let first = |options: &[&str]| {
        let text = export(&dir, &trace, "json", options).success().stdout;
        serde_json::from_str::<Value>(text.lines().next().expect("a call")).expect("JSON")
    };
    let kernel = first(&[]);
    assert!(kernel["predicted_ns"].is_i64() && kernel.get("predicted_by_naive_ns").is_none(), "{kernel:#}");
    let both = first(&["--model", "naive,kernel", "--mode", "open-loop"]);
    assert!(both["predicted_by_kernel_ns"].is_i64(), "{both:#}");
    assert_eq!(both["predicted_ns"], first(&["--model", "naive"])["predicted_ns"]);
    export(&dir, &trace, "csv", &["--model", "none"]).code(2).says("there is no model `none`");
    // The trace is none of a live run.
    export(&dir, &trace, "csv", &["--live"]).code(1).says("use --mode assimilated --learn");
    export(&dir, &trace, "csv", &["--learn", "--open-loop"]).code(2).says("cannot learn");
    export(&dir, &trace, "xlsx", &[]).code(2).says("perfetto, chrome, csv, json, parquet");
}

/// The cells of a table by RFC 4180.
fn cells(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => cell.extend(rest.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => cell.push(c),
        }
    }
    rows
}

#[test]
fn tables_agree_and_csv_is_imported() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 250);
    let rows = rows(&dir, &trace);
    assert_eq!(rows.len(), 3 * 250 + 2 + 3);
    let text = export(&dir, &trace, "csv", &["-o", "table.csv"]).success();
    let text = (
        text.says("755 calls, 2.93 MiB written, are now in"),
        fs::read_to_string(dir.work().join("table.csv")),
    );
    let table = cells(&text.1.expect("a table"));
    assert_eq!(table.len(), rows.len() + 1);
    let plain = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for (cells, row) in table[1..].iter().zip(&rows) {
        let named: BTreeMap<&String, &String> = table[0].iter().zip(cells).collect();
        for (column, value) in row.as_object().expect("a row is an object") {
            assert_eq!(*named[column], plain(value), "{column}");
        }
    }
    // Imported again it is the same calls.
    let mut import = dir.cawl(&["import", "--from", "csv", "table.csv", "-o", "again.trace"]);
    import.current_dir(dir.work());
    Running::start(import).finish().success().says("755 calls");
    let again = self::rows(&dir, &dir.work().join("again.trace"));
    assert_eq!(again.len(), rows.len());
    for (again, row) in again.iter().zip(&rows) {
        for column in ["start_ns", "duration_ns", "op", "pid", "tid", "path", "size", "bytes", "kind"] {
            assert_eq!(again[column], row[column], "{column}");
        }
    }

    // Parquet, by the library that wrote it.
    export(&dir, &trace, "parquet", &["-o", "table.parquet"]).success();
    let file = fs::File::open(dir.work().join("table.parquet")).expect("a file");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let facts = reader.metadata().file_metadata().key_value_metadata().expect("facts").clone();
    let fact = |key: &str| facts.iter().find(|fact| fact.key == key).and_then(|fact| fact.value.clone());
    assert_eq!(fact("cawl.mode").as_deref(), Some("lockstep"));
    assert!(fact("cawl.units").is_some_and(|units| units.contains("nanoseconds")));
    let read = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
    let mut count = 0;
    for (read, row) in read.zip(&rows) {
        for (column, field) in read.get_column_iter() {
            let value = match field {
                Field::Null => Value::Null,
                Field::Bool(value) => (*value).into(),
                Field::Long(value) => (*value).into(),
                Field::Str(value) => value.as_str().into(),
                other => panic!("{column}: {other:?}"),
            };
            assert_eq!(value, row[column], "{column}");
        }
        count += 1;
    }
    assert_eq!(count, rows.len());
}

/// The fields of a message in protobuf's wire format: number, and the value or the bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            value |= u64::from(byte & 127) << shift;
            if *byte < 128 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = varint(&mut message);
        let bytes = match tag & 7 {
            0 => &[][..],
            2 => message.split_off(..value as usize).expect("a whole field"),
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, value, bytes));
    }
    found
}

#[test]
fn a_perfetto_trace_has_a_slice_for_each_call() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 300);
    let rows = rows(&dir, &trace);
    export(&dir, &trace, "perfetto", &["-o", "t"]).success();
    let bytes = fs::read(dir.work().join("t")).expect("a file");
    // Numbers of fields as in Perfetto's protos: a reader that shares nothing with the writer.
    let of = |message: &[u8], number: u64| -> Option<(u64, Vec<u8>)> {
        let found = fields(message).into_iter().find(|field| field.0 == number);
        found.map(|(_, value, bytes)| (value, bytes.to_vec()))
    };
    let (mut begun, mut ended, mut names) = (Vec::new(), Vec::new(), BTreeMap::new());
    let (mut numbers, mut number_key) = (Vec::new(), None);
    for (number, _, packet) in fields(&bytes) {
        assert_eq!(number, 1, "a trace has nothing but packets");
        if let Some((_, interned)) = of(packet, 12) {
            for (_, _, name) in fields(&interned).into_iter().filter(|field| field.0 == 2) {
                let text = String::from_utf8(of(name, 2).expect("a name").1).expect("UTF-8");
                names.insert(of(name, 1).expect("a number").0, text);
            }
            let arguments = fields(&interned).into_iter().filter(|field| field.0 == 3);
            let mut arguments = arguments.map(|(_, _, name)| (of(name, 1), of(name, 2)));
            let found = arguments.find(|(_, name)| name.as_ref().is_some_and(|(_, text)| text == b"call"));
            number_key = found.and_then(|(key, _)| key).map(|(key, _)| key).or(number_key);
        }
        let (Some((at, _)), Some((_, event))) = (of(packet, 8), of(packet, 11)) else { continue };
        match of(&event, 9).expect("a type").0 {
            1 => {
                begun.push((at, names[&of(&event, 10).expect("a name").0].clone()));
                let mut arguments = fields(&event).into_iter().filter(|field| field.0 == 4);
                let number =
                    arguments.find(|(.., argument)| of(argument, 1).map(|(key, _)| key) == number_key);
                numbers.push(number.and_then(|(.., argument)| Some(of(argument, 4)?.0)));
            }
            2 => ended.push(at),
            _ => {}
        }
    }
    let expected = rows.iter().map(|row| {
        let name =
            format!("{} · {}", row["op"].as_str().expect("text"), row["cause"].as_str().expect("text"));
        (int(row, "start_ns") as u64, name)
    });
    assert_eq!(begun, expected.collect::<Vec<_>>());
    assert_eq!(numbers, rows.iter().map(|row| row["call"].as_u64()).collect::<Vec<_>>());
    let expected = rows.iter().map(|row| (int(row, "start_ns") + int(row, "duration_ns")) as u64);
    assert_eq!(ended, expected.collect::<Vec<_>>());
}

#[test]
fn a_chrome_trace_has_an_event_for_each_call() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 300);
    let rows = rows(&dir, &trace);
    let text = export(&dir, &trace, "chrome", &[]).success().stdout;
    let file: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(file["otherData"]["mode"], "lockstep");
    let events = file["traceEvents"].as_array().expect("a list");
    let calls: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(calls.len(), rows.len());
    for (call, row) in calls.iter().zip(&rows) {
        let micros = |column: &str| int(row, column) as f64 / 1e3;
        assert_eq!((&call["ts"], &call["dur"]), (&micros("start_ns").into(), &micros("duration_ns").into()));
        assert_eq!((&call["cat"], &call["args"]["path"]), (&row["cause"], &row["path"]));
        assert_eq!(call["args"]["call"], row["call"]);
        for (cause, ns) in causes(row).filter(|(_, ns)| *ns > 0) {
            assert_eq!(call["args"][cause], ns, "{cause}");
        }
    }
}

/// Most memory that a command took, in KiB; it is run by Python, which asks the kernel for it.
fn memory(dir: &Dir, python: &Path, args: &[&str]) -> u64 {
    let program = "
import os, sys
child = os.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
";
    let mut command = dir.command(python);
    command.args(["-c", program]).arg(cawl_kit::built("cawl-cli")).args(args);
    Running::start(command).finish().success().stdout.trim().parse().expect("a number")
}

#[test]
#[ignore = "long: a hundred thousand calls in each format"]
fn memory_does_not_grow_with_the_trace() {
    let dir = Dir::new();
    let Some(python) = python() else { return };
    let mut used = FORMATS.map(|_| Vec::new());
    // Somewhat more rows than a group of Parquet has, and three times as many.
    for calls in [45_000, 130_000] {
        let trace = synthetic(&dir, calls);
        let trace = trace.to_str().expect("a readable path");
        for (format, used) in FORMATS.iter().zip(&mut used) {
            let args = ["export", trace, "--to", format, "--model", "naive", "-o", "/dev/null"];
            used.push(memory(&dir, &python, &args));
        }
    }
    for (format, used) in FORMATS.iter().zip(used) {
        assert!(used[1] < used[0] + (16 << 10), "{format}: {used:?} KiB");
    }
}

#[test]
fn a_damaged_trace_is_exported_as_far_as_it_goes() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 5000);
    let whole = fs::read(&trace).expect("a trace");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    let count = rows(&dir, &trace).len();
    for (bytes, says) in [(&whole[..whole.len() / 2], "its end is lost"), (&flipped, "records are lost")] {
        fs::write(dir.work().join("damaged"), bytes).expect("a new file");
        for format in FORMATS {
            let finished = export(&dir, Path::new("damaged"), format, &["-o", "out"]).code(1);
            finished.says(says).says("what could be read").says("record it again");
            assert!(fs::metadata(dir.work().join("out")).expect("it is kept").len() > 1000);
        }
        let finished = export(&dir, Path::new("damaged"), "json", &[]).code(1);
        assert!((1..count).contains(&finished.stdout.lines().count()), "{count}");
    }
    let file: Value =
        serde_json::from_str(&{ export(&dir, Path::new("damaged"), "chrome", &[]).code(1).stdout })
            .expect("JSON");
    assert!(file["otherData"]["notes"][0].as_str().is_some_and(|note| note.contains("damaged")), "{file:#}");
    for (content, says) in [(&b""[..], "is empty"), (b"start_s,op\n", "not a cawl trace")] {
        fs::write(dir.work().join("none"), content).expect("a new file");
        export(&dir, Path::new("none"), "csv", &["-o", "new"]).code(1).says(says).says("the trace none");
    }
    export(&dir, Path::new("missing"), "csv", &["-o", "new"]).code(1).says("cannot read the trace missing");
    assert!(!dir.work().join("new").exists());
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 100);
    let trace = trace.to_str().expect("a readable path");
    fs::create_dir(dir.work().join("folder")).expect("a new folder");
    for (output, says) in [
        ("no/such/file", "cannot write no/such/file"),
        ("folder", "cannot write"),
        ("/dev/full", "No space left"),
        (trace, "would overwrite"),
    ] {
        for format in FORMATS {
            let code = if output == trace { 2 } else { 1 };
            export(&dir, Path::new(trace), format, &["-o", output]).code(code).says(says);
        }
    }
    export(&dir, Path::new(trace), "parquet", &["-o", "/dev/null"]).success();
    symlink("target", dir.work().join("link")).expect("a new link");
    // What is no export stays, an earlier one is replaced.
    fs::write(dir.work().join("target"), "before").expect("a new file");
    export(&dir, Path::new(trace), "csv", &["-o", "link"]).code(1).says("link exists and is no export");
    assert_eq!(fs::read_to_string(dir.work().join("target")).expect("a file"), "before");
    fs::write(dir.work().join("target"), "").expect("it is ours");
    // In a circle, so that each takes the place of each other's kind.
    for format in FORMATS.into_iter().chain(["csv"]) {
        export(&dir, Path::new(trace), format, &["-o", "link"]).success();
        export(&dir, Path::new(trace), format, &["-o", "link"]).success();
    }
    assert!(dir.work().join("link").is_symlink());
    assert!(fs::read_to_string(dir.work().join("target")).expect("a file").starts_with("call,start_ns,"));
    assert_eq!(names(&dir.work()), ["folder", "link", "target"]);

    let Some(small) = SmallDisk::new(&dir) else { return };
    // More than it takes.
    fs::remove_file(trace).expect("it is ours");
    synthetic(&dir, 5000);
    let cawl = cawl_kit::built("cawl-cli");
    let (cawl, out) = (cawl.display(), small.join("out"));
    let own = fs::read_to_string(dir.work().join("target")).expect("a file");
    let own = own.lines().next().expect("a header");
    for format in FORMATS {
        let command = format!(
            "echo {own} > {0} && {{ {cawl} export {trace} --to {format} -o {0}; echo code $?; cat {0}; ls -A $(dirname {0}); }}",
            out.display()
        );
        let finished =
            small.start(&command).finish().success().says("No space left").says("another file with -o");
        assert_eq!(finished.stdout, format!("code 1\n{own}\nout\n"), "{format}");
    }
}

#[test]
fn an_interrupted_export_leaves_nothing() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 200_000);
    let mut command = dir.cawl(&["export"]);
    command.arg(&trace).args(["--to", "json", "-o", "out"]);
    let running = Running::start(command);
    eventually("the export has begun", || names(&dir.work()).iter().any(|name| name.starts_with(".cawl-")));
    running.signal(Signal::SIGINT);
    running.finish().signal(Signal::SIGINT).says("interrupted");
    assert_eq!(names(&dir.work()), [""; 0]);
}

#[test]
fn a_binary_format_is_not_for_a_terminal() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 3);
    let Some(script) = find("script") else { return };
    let cawl = cawl_kit::built("cawl-cli");
    let on_terminal = |format: &str| {
        let mut command = dir.command(&script);
        let line = format!("{} export {} --to {format}", cawl.display(), trace.display());
        command.args(["-qec", &line, "/dev/null"]);
        Running::start(command).finish()
    };
    for format in ["perfetto", "parquet"] {
        let finished = on_terminal(format).code(2);
        assert!(finished.stdout.contains("name a file with -o"), "{finished:#?}");
    }
    let shown = on_terminal("csv").success().stdout;
    assert!(shown.contains(r"\nd") && shown.contains("pwrite"), "a name has a line of its own: {shown}");
    // A pipe takes all.
    assert_eq!(export(&dir, &trace, "parquet", &[]).success().stdout.get(..4), Some("PAR1"));
}
