//! Exports for the tools of other recorders, each read by the tool itself: fio replays, PyDarshan and
//! darshan's library, DFAnalyzer, a reader of strace's output; and the lines of strace, DFTracer and fio come
//! back as the calls they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cawl_kit::{Dir, Running, find, python};
use serde_json::{Value, json};

use super::readers::ask_python;
use super::{export, int, rows, synthetic};

/// Calls of all kinds that the formats have: in threads, in children, by streams, at places and at ends.
const PROGRAM: &str = r#"
printf 'one\n' > a
cat a a >> b
dd if=/dev/zero of=c bs=4096 count=50 conv=fsync status=none
mv c 'd <e>'
rm a
cp b "größe"
exec "$0" -S -c '
import os, threading
def work(n):
    with open(f"t{n}", "wb", buffering=0) as file:
        for i in range(20):
            file.write(b"x" * (1000 + i))
        os.pwrite(file.fileno(), b"y" * 5000, 65536)
        os.writev(file.fileno(), [b"1" * 10, b"2" * 20])
        os.lseek(file.fileno(), 100, os.SEEK_SET)
        os.write(file.fileno(), b"z" * 7)
        os.fdatasync(file.fileno())
        os.ftruncate(file.fileno(), 30000)
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
os.rename("t0", "t1")
with open("t2", "ab") as file:
    file.write(b"end")
with open("b", "rb", buffering=0) as file:
    file.read(3)
    file.read(5)
child = os.fork()
if child == 0:
    os.write(os.open("child", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_SYNC), b"c" * 123)
    os._exit(0)
os.waitpid(child, 0)
try:
    os.write(os.open("b", os.O_RDONLY), b"no")
except OSError:
    pass
'
"#;

fn recorded(dir: &Dir) -> PathBuf {
    let python = python().expect("it was asked for");
    let (finished, _) = dir.run(&[], &["sh", "-c", PROGRAM, python.to_str().expect("a readable path")]);
    finished.success();
    dir.trace()
}

/// Bytes that a call moved, and whether it wrote them.
fn moved(row: &Value) -> Option<(bool, i64)> {
    let is_read = ["read", "pread"].contains(&row["op"].as_str()?);
    let bytes = if is_read { row["size"].as_i64()? } else { int(row, "bytes") };
    (bytes > 0 && row["errno"].is_null()).then_some((!is_read, bytes))
}

/// Bytes read and written at places of files, and in how many calls.
fn traffic(rows: &[Value]) -> [(i64, i64); 2] {
    let mut sums = [(0, 0); 2];
    let placed = |row: &&Value| row["kind"] == "regular" && row["offset"].is_i64();
    for (writes, bytes) in rows.iter().filter(placed).filter_map(moved) {
        let sum = &mut sums[usize::from(writes)];
        *sum = (sum.0 + bytes, sum.1 + 1);
    }
    sums
}

#[test]
fn fio_replays_what_was_written() {
    let Some(fio) = find("fio") else { return };
    let dir = Dir::new();
    for (name, trace) in [("made", synthetic(&dir, 300)), ("recorded", recorded(&dir))] {
        let rows = rows(&dir, &trace);
        let log = dir.path().join(name);
        let told =
            export(&dir, &trace, "fio-iolog", &["-o", log.to_str().expect("a readable path")]).success();
        let folder = dir.path().join(format!("{name}.replay"));
        fs::create_dir(&folder).expect("a new folder");
        // Folders have to be there, and what was read and not written.
        for row in rows.iter().filter(|row| moved(row).is_some()) {
            let path = row["path"].as_str().unwrap_or_default().trim_start_matches('/');
            fs::create_dir_all(folder.join(path).parent().expect("a folder")).expect("a new folder");
        }
        for row in rows.iter().filter(|row| moved(row).is_some_and(|(writes, _)| !writes)) {
            let path = row["path"].as_str().expect("a name").replace(' ', "%20");
            let path = folder.join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
            let file = fs::File::options().create(true).append(true).open(path).expect("a new file");
            let end = int(row, "offset") + int(row, "size");
            if file.metadata().expect("it is there").len() < end as u64 {
                file.set_len(end as u64).expect("it is ours");
            }
        }
        let mut command = dir.command(&fio);
        command.current_dir(&folder).args(["--name=replay", "--ioengine=psync", "--output-format=json"]);
        command.arg(format!("--read_iolog={}", log.display()));
        let finished = Running::start(command).finish().success();
        assert!(finished.stderr.is_empty(), "{}", finished.stderr);
        let said: Value = serde_json::from_str(&finished.stdout).expect("JSON");
        let job = &said["jobs"][0];
        let [read, written] =
            ["read", "write"].map(|way| (int(&job[way], "io_bytes"), int(&job[way], "total_ios")));
        let [reads, writes] = traffic(&rows);
        assert_eq!(written, writes, "{name}: {told:#?}");
        // A table has what a stream gave to the program, not what its buffer took from the kernel.
        let by_stream = rows.iter().any(|row| row["op"] == "fread");
        assert!(read == reads || by_stream && read.0 >= reads.0, "{name}: {read:?} {reads:?}");
        // fio counts no fdatasync.
        let syncs = rows.iter().filter(|row| row["op"] == "fsync").count();
        assert_eq!(job["sync"]["total_ios"], syncs, "{name}");
        assert_eq!(int(job, "error"), 0);
        if name == "recorded" {
            // What fio has no action for is told, and where it was without O_SYNC.
            for what in ["unlink 1", "rename 2", "truncate 3", "fio's log has no such action", "--sync"] {
                assert!(told.stderr.contains(what), "{what}: {}", told.stderr);
            }
            assert!(told.stderr.contains("left out: they failed"), "{}", told.stderr);
        }
    }
}

/// Times as fio takes them: from the first call on, in µs.
#[test]
fn an_iolog_has_the_times_of_calls() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 50);
    let rows = rows(&dir, &trace);
    let log = export(&dir, &trace, "fio-iolog", &[]).success().stdout;
    let mut lines = log.lines();
    assert!(lines.next().is_some_and(|first| first.starts_with("fio version 3 iolog")));
    let first = int(&rows[0], "start_ns");
    let told: Vec<(i64, &str)> = lines
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() == 5)
        .map(|words| (words[0].parse().expect("a time"), words[2]))
        .collect();
    let calls = rows.iter().filter(|row| row["op"] != "close").map(|row| {
        let action = match row["op"].as_str().expect("a name") {
            "fsync" => "sync",
            "fdatasync" => "datasync",
            _ => "write",
        };
        ((int(row, "start_ns") - first) / 1000 + 1, action)
    });
    assert_eq!(told, calls.collect::<Vec<_>>());
}

/// A call as it must come back through strace's lines: of a stream's, what it made the C library write.
fn expected(row: &Value) -> Option<Value> {
    let op = row["op"].as_str().expect("a name");
    let (op, size) = match op {
        "write" | "writev" | "pwrite" | "pwritev" | "copy_file_range" | "sendfile" => {
            (op, row["size"].clone())
        }
        "fsync" | "fdatasync" | "truncate" | "unlink" | "rename" => (op, Value::Null),
        "fwrite" | "fflush" | "fclose" | "exit-flush" if int(row, "bytes") > 0 => {
            ("write", row["bytes"].clone())
        }
        _ => return None,
    };
    let offset = if op == "rename" { Value::Null } else { row["offset"].clone() };
    let path = if op == "rename" { Value::Null } else { row["path"].clone() };
    // A pipe has no name that the lines could tell, and a table of a live trace has the later name from the
    // start.
    let later = |path: &str| match path.rsplit_once('/') {
        Some((folder, "c")) => format!("{folder}/d <e>"),
        Some((folder, "t0")) => format!("{folder}/t1"),
        _ => path.to_owned(),
    };
    let path = path.as_str().filter(|_| row["kind"] == "regular").map(later);
    let (start, duration) = (int(row, "start_ns"), int(row, "duration_ns"));
    Some(json!([op, path, offset, size, row["pid"], row["tid"], row["errno"], start, duration]))
}

/// A trace that was exported and imported again, as rows, and what both said.
fn back(dir: &Dir, trace: &Path, to: &str, from: &str) -> (Vec<Value>, String) {
    let told = export(dir, trace, to, &["-o", "lines"]).success();
    let mut import = dir.cawl(&["import", "--from", from, "lines", "-o", "back"]);
    import.current_dir(dir.work());
    let imported = Running::start(import).finish().success();
    (rows(dir, &dir.work().join("back")), format!("{}\n{}", told.stderr, imported.stderr))
}

#[track_caller]
fn are_equal<T: PartialEq + std::fmt::Debug>(before: &[T], after: &[T], said: &str) {
    for (at, (before, after)) in before.iter().zip(after).enumerate() {
        assert_eq!(before, after, "call {at}; {said}");
    }
    assert_eq!(before.len(), after.len(), "{said}");
}

#[test]
fn strace_s_lines_come_back_as_the_same_calls() {
    let dir = Dir::new();
    let trace = recorded(&dir);
    let before = rows(&dir, &trace);
    let (after, said) = back(&dir, &trace, "strace", "strace");
    let list = |rows: &[Value]| {
        let mut calls: Vec<Value> = rows.iter().filter_map(expected).collect();
        // Time 0 of an import is its first line.
        let first = calls.iter().filter_map(|call| call[7].as_i64()).min().expect("a call");
        calls.iter_mut().for_each(|call| call[7] = (call[7].as_i64().expect("a time") - first).into());
        calls.sort_by_key(|call| (call[7].as_i64(), call[5].as_i64()));
        calls
    };
    let (before, after) = (list(&before), list(&after));
    assert!(before.len() > 100, "{}", before.len());
    are_equal(&before, &after, &said);
    assert!(!said.contains("not readable"), "{said}");
    // And once more.
    let (twice, said) = back(&dir, &dir.work().join("back"), "strace", "strace");
    are_equal(&list(&twice), &after, &said);
}

/// Start and end of a call, in whole µs of a clock that has its 0 at a call of both lists.
fn micros(row: &Value, zero: i64) -> [i64; 2] {
    let start = int(row, "start_ns") - zero;
    [start, start + int(row, "duration_ns")].map(|ns| ns.div_euclid(1000))
}

/// Calls on files that succeeded.
fn on_files(rows: &[Value]) -> impl Iterator<Item = &Value> + Clone {
    let of_file =
        |row: &&Value| row["kind"] == "regular" && row["errno"].is_null() && row["path"].is_string();
    rows.iter().filter(of_file)
}

#[test]
fn dftracer_s_lines_come_back_as_the_same_calls() {
    let dir = Dir::new();
    let trace = recorded(&dir);
    let before = rows(&dir, &trace);
    let (after, said) = back(&dir, &trace, "dftracer", "dftracer");
    // Those of no file, such as pipes, are files to the importer; others are counted.
    let files: BTreeSet<&str> = on_files(&before).filter_map(|row| row["path"].as_str()).collect();
    let uncounted = ["copy_file_range", "dup", "posix_fadvise", "rename", "spawn", "exec", "fopen", "stat"];
    let before: Vec<&Value> =
        on_files(&before).filter(|row| !uncounted.contains(&row["op"].as_str().expect("a name"))).collect();
    let after: Vec<&Value> =
        after.iter().filter(|row| row["path"].as_str().is_some_and(|path| files.contains(path))).collect();
    let list = |rows: &[&Value]| {
        let call = |row: &&Value| {
            // How long a file was when it was opened is not told, and O_SYNC contains O_DSYNC.
            let known = |column: &str| if row["op"] == "open" { Value::Null } else { row[column].clone() };
            let flags = row["flags"].as_str().map(|flags| flags.replace("O_SYNC|O_DSYNC", "O_SYNC"));
            json!([row["op"], row["path"], known("offset"), known("size"), flags, row["pid"], row["tid"]])
        };
        rows.iter().map(call).collect::<Vec<_>>()
    };
    are_equal(&list(&before), &list(&after), &said);
    let (zero, other) = (int(before[0], "start_ns"), int(after[0], "start_ns"));
    for (before, after) in before.iter().zip(&after) {
        let apart = |at: usize| micros(before, zero)[at].abs_diff(micros(after, other)[at]);
        assert!(apart(0) <= 1 && apart(1) <= 1, "{before:#} {after:#}");
    }
    for what in ["can write, but is not imported: ", "rename 2", "copy_file_range "] {
        assert!(said.replace('\n', " ").contains(what), "{said}");
    }
}

#[test]
fn an_iolog_comes_back_as_the_same_transfers() {
    let dir = Dir::new();
    // The last name is longer than fio reads.
    let long = "x".repeat(200);
    fs::create_dir(dir.work().join(&long)).expect("a new folder");
    let script = format!(
        "for f in '50%' '50%25' ' 1\n2\t3 %0A\r' %2E%2E {long}/{long}; do echo 1 > \"$f\"; done\n{PROGRAM}"
    );
    let python = python().expect("it was asked for");
    let (finished, _) = dir.run(&[], &["sh", "-c", &script, python.to_str().expect("a readable path")]);
    finished.success();
    let trace = dir.trace();
    let before = rows(&dir, &trace);
    let (after, said) = back(&dir, &trace, "fio-iolog", "fio");
    assert!(said.contains("1 call under device and inode instead of a name"), "{said}");
    let list = |rows: &[Value]| {
        let named = |row: &&Value| {
            row["path"].as_str().is_some_and(|path| path.len() < 200 && !path.starts_with("dev"))
        };
        let calls = on_files(rows).filter(named).filter_map(|row| {
            let path = row["path"].as_str()?.trim_start_matches('/').to_owned();
            let (op, moved) = match (row["op"].as_str()?, moved(row)) {
                (op @ ("fsync" | "fdatasync"), _) => (op, 0),
                (_, Some((true, bytes))) => ("pwrite", bytes),
                (_, Some((false, bytes))) => ("pread", bytes),
                _ => return None,
            };
            Some((op.to_owned(), path, row["offset"].as_i64(), moved, int(row, "start_ns")))
        });
        let calls: Vec<_> = calls.collect();
        let zero = calls[0].4;
        let micros = |ns: i64| (ns - zero + 500) / 1000;
        calls
            .into_iter()
            .map(|(op, path, at, moved, ns)| (op, path, at, moved, micros(ns)))
            .collect::<Vec<_>>()
    };
    let (before, after) = (list(&before), list(&after));
    assert!(before.len() > 100, "{}", before.len());
    let without_time = |(op, path, at, moved, _): &(String, String, Option<i64>, i64, i64)| {
        (op.clone(), path.clone(), *at, *moved)
    };
    let calls = |list: &[_]| list.iter().map(without_time).collect::<Vec<_>>();
    are_equal(&calls(&before), &calls(&after), &said);
    let apart = before.iter().zip(&after).map(|(before, after)| before.4.abs_diff(after.4)).max();
    assert!(apart <= Some(1), "{apart:?} µs");
}

/// Place, length and times in seconds since the first call, of what was moved in files.
fn segments(rows: &[Value], writes: bool) -> Vec<(String, i64, i64, i64, i64)> {
    let first = on_files(rows).map(|row| int(row, "start_ns")).min().expect("a call");
    let of_file = on_files(rows).filter_map(|row| {
        let (_, bytes) = moved(row).filter(|(is_write, _)| *is_write == writes)?;
        let start = int(row, "start_ns") - first;
        let path = row["path"].as_str()?.to_owned();
        Some((path, row["offset"].as_i64()?, bytes, start, start + int(row, "duration_ns")))
    });
    let mut all: Vec<_> = of_file.collect();
    all.sort();
    all
}

#[test]
fn pydarshan_reads_a_log() {
    let dir = Dir::new();
    let program = "
import json, sys, darshan
report = darshan.DarshanReport(sys.argv[1], read_all=True)
frames = report.records['POSIX'].to_df()
counters, times = frames['counters'], frames['fcounters']
sums = [int(counters[f'POSIX_{name}'].sum()) for name in
        ['BYTES_READ', 'READS', 'BYTES_WRITTEN', 'WRITES', 'FSYNCS', 'FDSYNCS', 'RW_SWITCHES']]
print(json.dumps(sums))
print(json.dumps([float(times.POSIX_F_READ_TIME.sum()), float(times.POSIX_F_WRITE_TIME.sum())]))
ns = lambda seconds: round(seconds * 1e9)
for way in ['read', 'write']:
    found = []
    for record in report.records['DXT_POSIX'].to_df():
        for s in record[f'{way}_segments'].itertuples():
            found.append([report.name_records[record['id']], int(s.offset), int(s.length), ns(s.start_time), ns(s.end_time)])
    print(json.dumps(sorted(found)))
job = report.metadata['job']
print(json.dumps([report.metadata['exe'], job['nprocs'], job['start_time_sec'] if 'start_time_sec' in job else job['start_time']]))
print(json.dumps(sorted(set(report.name_records.values()))))
";
    for (name, trace) in [("made", synthetic(&dir, 300)), ("recorded", recorded(&dir))] {
        let rows = rows(&dir, &trace);
        let told = export(&dir, &trace, "darshan", &["-o", &format!("{name}.darshan")]).success();
        let file = dir.work().join(format!("{name}.darshan"));
        let Some(said) = ask_python(&dir, &["darshan"], program, &[&file]) else { return };
        let [read, written] = traffic(&rows);
        let count = |op: &str| rows.iter().filter(|row| row["op"] == op).count() as i64;
        let sums: Vec<i64> = serde_json::from_value(said[0].clone()).expect("sums");
        let by_stream = rows.iter().any(|row| row["op"] == "fread");
        assert_eq!(sums[2..6], [written.0, written.1, count("fsync"), count("fdatasync")], "{told:#?}");
        assert!(
            by_stream && sums[0] >= read.0 || sums[..2] == [read.0, read.1],
            "{name}: {sums:?} {read:?}\n{told:#?}"
        );
        for (at, writes) in [(2, false), (3, true)] {
            let found: Vec<(String, i64, i64, i64, i64)> =
                serde_json::from_value(said[at].clone()).expect("segments");
            if writes || !by_stream {
                assert_eq!(found, segments(&rows, writes), "{name}");
            }
        }
        let (exe, processes) = (&said[4][0], said[4][1].as_u64());
        if name == "recorded" {
            assert!(exe.as_str().is_some_and(|exe| exe.starts_with("sh -c")), "{exe}");
            let pids: BTreeSet<_> = rows.iter().map(|row| int(row, "pid")).collect();
            let told = &told.stderr;
            assert!(
                processes.is_some_and(|all| (2..=pids.len() as u64).contains(&all)),
                "{processes:?} {pids:?}"
            );
            assert_eq!(sums[6], 0, "switches between reads and writes; {told}");
            assert!(told.contains("Darshan has no counter for them"), "{told}");
        }
        // Whether a file has the name from before a rename depends on how soon after a call that was.
        let names: BTreeSet<&str> =
            said[5].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        let expected: BTreeSet<&str> = on_files(&rows).filter_map(|row| row["path"].as_str()).collect();
        assert_eq!(names, expected, "{name}");
        assert!(names.iter().any(|name| name.ends_with("größe")), "{name}: {names:?}");
    }
}

/// What DFTracer counts as a write or a read is what it was: bytes returned, in POSIX and in stdio.
#[test]
fn dfanalyzer_and_dftracer_s_tools_read_events() {
    let dir = Dir::new();
    let trace = recorded(&dir);
    let rows = rows(&dir, &trace);
    let folder = dir.work().join("traces");
    fs::create_dir(&folder).expect("a new folder");
    for name in ["t.pfw", "traces/t.pfw.gz"] {
        export(&dir, &trace, "dftracer", &["-o", name]).success();
    }
    let text = fs::read_to_string(dir.work().join("t.pfw")).expect("lines");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let calls: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    let expected: Vec<&Value> = rows
        .iter()
        .filter(|row| !["resident", "exit-flush"].contains(&row["op"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(calls.len(), expected.len());
    let first =
        |micros: &[&Value], column: &str| micros.iter().map(|call| int(call, column)).min().expect("a call");
    let (epoch, start) = (first(&calls, "ts"), first(&expected, "start_ns"));
    for (call, row) in calls.iter().zip(&expected) {
        assert_eq!((&call["pid"], &call["tid"], &call["id"]), (&row["pid"], &row["tid"], &row["call"]));
        let apart = (int(call, "ts") - epoch) - (int(row, "start_ns") - start) / 1000;
        assert!((-1..=1).contains(&apart), "{call:#} {row:#}");
    }
    let program = "
import json, os, subprocess, sys, dftracer.utils
bin = os.path.join(os.path.dirname(sys.executable), 'dftracer_')
counted = subprocess.run([bin + 'event_count', '-d', sys.argv[1]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
print(int(counted.stdout.decode().split()[-1]))
";
    let Some(said) = ask_python(&dir, &["dftracer.utils"], program, &[&folder]) else { return };
    assert_eq!(said[0], calls.len());
    let program = "
import contextlib, io, json, os, sys
os.environ['USER'] = 'test'
from dftracer.analyzer import init_with_hydra
if __name__ == '__main__':
    with contextlib.redirect_stdout(io.StringIO()):
        options = ['analyzer=dftracer', 'trace_path=' + sys.argv[1], 'view_types=[file_name]', 'analyzer.checkpoint=False']
        result = init_with_hydra(hydra_overrides=options + ['cluster=local', 'cluster.n_workers=1']).analyze_trace()
        frame = result.flat_views[('file_name',)]
        frame = frame.compute() if hasattr(frame, 'compute') else frame
    for column in ['posix_write_size_sum', 'posix_write_count_sum']:
        print(json.dumps({name: int(value) for name, value in frame[column].dropna().items() if value}))
";
    let Some(said) = ask_python(&dir, &["dftracer.analyzer"], program, &[&folder]) else { return };
    let mut written: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for row in
        rows.iter().filter(|row| ["write", "writev", "pwrite"].contains(&row["op"].as_str().unwrap_or("")))
    {
        let sums = written.entry(row["path"].as_str().unwrap_or("-")).or_default();
        *sums = (sums.0 + row["size"].as_i64().unwrap_or(0), sums.1 + 1);
    }
    for name in ["t1", "t2", "child"] {
        let path = rows
            .iter()
            .find_map(|row| row["path"].as_str().filter(|path| path.ends_with(&format!("/{name}"))));
        let path = path.expect("the program wrote it");
        assert_eq!(
            (said[0][path].as_i64(), said[1][path].as_i64()),
            (Some(written[path].0), Some(written[path].1))
        );
    }
}

/// A public reader of strace's output, which takes a thread's lines at a time, as `strace -ff` writes them.
#[test]
fn a_reader_of_strace_takes_each_line() {
    let dir = Dir::new();
    let trace = recorded(&dir);
    let lines = export(&dir, &trace, "strace", &[]).success().stdout;
    // Its grammar has no commas and colons within strings, as a script has them, and no pipes.
    let first = lines.lines().find(|line| line.contains("execve(\"dd\""));
    let tid = first.and_then(|line| line.split(' ').next()).expect("a thread").to_owned();
    let own: Vec<&str> = lines
        .lines()
        .filter(|line| !line.contains("pipe:["))
        .filter_map(|line| line.strip_prefix(&tid))
        .map(str::trim_start)
        .collect();
    assert!(own.len() > 20, "{lines}");
    fs::write(dir.work().join("lines"), own.join("\n") + "\n").expect("a new file");
    let program = "
import json, sys
from strace_parser.parser import get_parser
parser = get_parser()
for line in open(sys.argv[1]):
    tree = parser.parse(line)
    calls = [str(name.children[0]) for name in tree.find_data('name')]
    print(json.dumps(calls[:1]))
";
    let Some(said) = ask_python(&dir, &["strace_parser"], program, &[&dir.work().join("lines")]) else {
        return;
    };
    let called = own.iter().map(|line| {
        let name = line.split(' ').nth(1).and_then(|call| call.split_once('(')).map(|(name, _)| name);
        json!(name.into_iter().collect::<Vec<_>>())
    });
    assert_eq!(said, called.collect::<Vec<_>>());
}
