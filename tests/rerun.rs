//! The calls of a trace for real, as they were or with changes, by the built program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use cawl_core::Record;
use cawl_host::trace::TraceReader;
use cawl_kit::{Dir, Finished, Running, SmallDisk, eventually, find};
use cawl_wire::{ADVICE_DONTNEED, FileKind, Op, flag};
use nix::sys::signal::Signal;
use serde_json::Value;

/// What must be the same: operation, bytes, place, flags of the open file.
type Call = (Op, i64, u64, u32);

/// Calls that move a position or a name are made in the same way, but their results are descriptors.
const COMPARED: [Op; 16] = [
    Op::Write,
    Op::Pwrite,
    Op::Writev,
    Op::Pwritev,
    Op::CopyRange,
    Op::Sendfile,
    Op::Truncate,
    Op::Allocate,
    Op::Fsync,
    Op::Fdatasync,
    Op::SyncRange,
    Op::Advise,
    Op::StreamWrite,
    Op::StreamFlush,
    Op::StreamSeek,
    Op::StreamExit,
];
const FLAGS: u32 =
    flag::APPEND | flag::SYNC | flag::DSYNC | flag::DIRECT | flag::UNBUFFERED | flag::LINE_BUFFERED;

/// The calls on files of each thread, threads in any order. `player`: of a rerun's program only. `inlined`:
/// what leaves the buffers of streams, since the program fills them by functions that are part of it.
fn calls(trace: &Path, player: bool, inlined: bool) -> Vec<Vec<Call>> {
    let mut reader: TraceReader<BufReader<File>> = TraceReader::open(trace).expect("a trace");
    let (mut players, mut threads) = (BTreeSet::new(), BTreeMap::<(u32, u32), Vec<Call>>::new());
    while let Some(record) = reader.next_record().expect("a whole trace") {
        match record {
            Record::Session(session) if session.program.contains("cawl-rerun") => {
                players.insert(session.pid);
            }
            Record::Event(event)
                if event.kind == FileKind::Regular
                    && event.returned >= 0
                    && COMPARED.contains(&event.op)
                    && (event.op != Op::Advise || event.aux == ADVICE_DONTNEED)
                    && (!player || players.contains(&event.pid)) =>
            {
                let left = event.flushed().filter(|_| inlined).map(|bytes| bytes as i64);
                if left == Some(0) {
                    continue;
                }
                // The end of a run's last child may stand in the trace after that of its parent, which then
                // waits for it no more.
                let place = if event.op == Op::StreamExit { 0 } else { event.offset };
                let call = (event.op, left.unwrap_or(event.returned), place, event.flags & FLAGS);
                threads.entry((event.pid, event.tid)).or_default().push(call);
            }
            _ => {}
        }
    }
    let mut all: Vec<Vec<Call>> = threads.into_values().collect();
    all.sort();
    all
}

fn rerun_command(dir: &Dir, options: &[&str]) -> std::process::Command {
    let mut command = dir.cawl(&["rerun"]);
    command.arg(dir.trace()).arg("--dir").arg(target(dir)).args(options);
    command
}

fn rerun(dir: &Dir, options: &[&str]) -> Finished {
    Running::start(rerun_command(dir, options)).finish()
}

fn target(dir: &Dir) -> PathBuf {
    dir.path().join("again")
}

fn asked(dir: &Dir, options: &[&str]) -> Value {
    serde_json::from_str(&rerun(dir, &[options, &["--json"]].concat()).success().stdout).expect("JSON")
}

fn count(told: &Value, op: &str) -> u64 {
    let ops = told["ops"].as_array().expect("operations");
    ops.iter().find(|row| row["op"] == op).map_or(0, |row| row["calls"].as_u64().expect("a count"))
}

/// Sizes of the files of a folder, by what follows the number in their name if they have one.
fn sizes(folder: &Path, numbered: bool) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a plain name");
            let name = if numbered { name.split_once('-').expect("a number").1.to_owned() } else { name };
            (name, entry.metadata().expect("a file").len())
        })
        .collect();
    all.sort();
    all
}

/// A program is traced, its calls are made again, and those are traced in their turn.
fn is_repeated<S: AsRef<std::ffi::OsStr>>(program: &[S], inlined: bool) {
    let dir = Dir::new();
    dir.run(&["--lossless"], program).0.success();
    let again = dir.path().join("again.trace");
    let mut command = dir.cawl(&["run", "--lossless", "--trace"]);
    command
        .arg(&again)
        .args(["--report"])
        .arg(dir.path().join("again.json"))
        .arg("--")
        .arg(cawl_kit::built("cawl-cli"));
    command.arg("rerun").arg(dir.trace()).arg("--dir").arg(target(&dir)).arg("--keep");
    Running::start(command).finish().success();
    let (first, second) = (calls(&dir.trace(), false, inlined), calls(&again, true, inlined));
    assert!(!first.is_empty());
    assert_eq!(first.len(), second.len(), "threads: {first:#?} {second:#?}");
    for (one, other) in first.iter().zip(&second) {
        let differs = one.iter().zip(other).position(|(one, other)| one != other);
        assert_eq!(differs.map(|at| (at, one[at], other[at])), None);
        assert_eq!(one.len(), other.len(), "{one:#?} {other:#?}");
    }
    // Of a stream that reads and then writes, the trace has the place after what the C library has read
    // ahead.
    let known =
        |sizes: Vec<(String, u64)>| sizes.into_iter().filter(|(name, _)| name != "both").collect::<Vec<_>>();
    assert_eq!(known(sizes(&dir.work(), false)), known(sizes(&target(&dir), true)));
}

#[test]
fn writes_of_dd_are_the_same_again() {
    is_repeated(
        &["dd", "if=/dev/zero", "of=data", "bs=64k", "count=40", "conv=fsync", "oflag=append"],
        false,
    );
    is_repeated(&["dd", "if=/dev/zero", "of=data", "bs=4k", "count=20", "seek=3", "oflag=dsync"], false);
}

/// The advice to drop pages is a call of its own; what only concerns reads, such as cat's, is left out.
#[test]
fn advice_is_given_again() {
    is_repeated(&["dd", "if=/dev/zero", "of=data", "bs=64k", "count=8", "oflag=nocache"], false);
    let dir = Dir::new();
    fs::write(dir.work().join("data"), "some words").expect("a file");
    dir.run(&["--lossless"], &["sh", "-c", "cat data > copy; true"]).0.success();
    let told = asked(&dir, &["--keep"]);
    let left_out = told["left_out"].as_array().expect("calls left out");
    assert!(
        left_out.iter().any(|row| row["op"] == "posix_fadvise" && row["why"] == "only reads"),
        "{told:#}"
    );
    assert!(sizes(&target(&dir), true).contains(&("copy".to_owned(), 10)));
}

#[test]
fn streams_have_their_buffers_and_ends() {
    let dir = Dir::new();
    let program = dir.app("stdio");
    is_repeated(&[program.to_str().expect("a plain path"), "return"], true);
}

#[test]
fn threads_and_forks_share_what_they_shared() {
    let dir = Dir::new();
    is_repeated(&[dir.app("fork_writer")], false);
    // Four threads, and the one that starts them and opens a file for all.
    is_repeated(&[dir.app("thread_writer")], false);
}

#[test]
fn a_database_commits_again() {
    if find("sqlite3").is_none() {
        return;
    }
    let rows =
        "create table t(a);begin;insert into t values(1);commit;insert into t values(zeroblob(50000));";
    is_repeated(&["sqlite3", "app.db", rows], false);
}

#[test]
fn a_shell_and_its_programs_rename_and_remove() {
    let script = "echo old > config; echo log > log; printf new > config.tmp && mv config.tmp config; \
                  echo more >> log; echo gone > junk; rm junk; dd if=/dev/zero of=big bs=1k count=3 2>/dev/null";
    is_repeated(&["sh", "-c", script], false);
}

#[test]
fn changes_make_as_many_calls_as_on_paper() {
    let dir = Dir::new();
    dir.run(
        &[],
        &["sh", "-c", "dd if=/dev/zero of=data bs=512 count=400 oflag=sync; sync data; seq 9999 > seq"],
    )
    .0
    .success();
    for changes in [&["--fsync", "none"][..], &["--merge", "4K"], &["--buffer", "64K"], &["--split", "100"]] {
        let mut paper = dir.cawl(&["whatif"]);
        paper.arg(dir.trace()).args(changes).arg("--json");
        let paper: Value =
            serde_json::from_str(&Running::start(paper).finish().success().stdout).expect("JSON");
        let real = asked(&dir, changes);
        // What only reads has a cost on paper, and is not made again.
        let reads =
            real["left_out"].as_array().expect("a list").iter().filter(|row| row["why"] == "only reads");
        let reads: u64 = reads.filter_map(|row| row["calls"].as_u64()).sum();
        let made = real["rerun"]["calls"].as_u64().expect("a count");
        assert_eq!(Some(made + reads), paper["after"]["calls"].as_u64(), "{changes:?} {real:#} {paper:#}");
        assert!(reads > 0, "sync opens the file to read: {real:#}");
        for op in ["write", "fsync", "fwrite"] {
            let on_paper = paper["after"]["ops"].as_array().expect("a list");
            let on_paper =
                on_paper.iter().find(|row| row["op"] == op).map_or(0, |row| row["calls"].as_u64().unwrap());
            assert_eq!(count(&real["rerun"], op), on_paper, "{op} of {changes:?}");
        }
        assert_eq!(real["changes"][0]["calls"], paper["changes"][0]["calls"]);
        assert_eq!(real["safety"], paper["safety"]);
    }
}

#[test]
fn the_answer_has_both_runs_and_what_is_missing() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/proc/self/maps", "of=data", "bs=100"]).0.success();
    let answer = asked(&dir, &["--think", "0", "--compress", "2"]);
    assert_eq!(answer["schema"], 1);
    let (was, is) = (&answer["recorded"], &answer["rerun"]);
    assert_eq!(was["bytes"], is["bytes"]);
    assert!(count(was, "write") > 1 && count(was, "write") == count(is, "write"), "{answer:#}");
    for told in [was, is] {
        assert!(told["end_s"].as_f64() >= told["total_s"].as_f64(), "{answer:#}");
    }
    let left_out = answer["left_out"].as_array().expect("a list");
    assert!(left_out.iter().any(|row| row["op"] == "read" && row["calls"].as_u64() > Some(1)), "{answer:#}");
    assert!(answer["late"]["of"].as_u64() >= is["calls"].as_u64(), "{answer:#}");
    assert!(!target(&dir).exists(), "all that was made is removed");

    let text = rerun(&dir, &["--fsync", "none"]).success().stdout;
    for part in ["timing", "left out", "RECORDED", "RERUN", "time in calls", "change"] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn files_are_prepared_as_they_were_and_used_once() {
    let dir = Dir::new();
    fs::write(dir.work().join("data"), vec![7; 70_000]).unwrap();
    dir.run(&[], &["dd", "if=/dev/zero", "of=data", "bs=4k", "count=2", "seek=1", "conv=notrunc"])
        .0
        .success();
    let says = rerun(&dir, &["--prepare"]).success().stdout;
    assert!(says.contains("1 file, "), "{says}");
    assert_eq!(fs::metadata(target(&dir).join("1-data")).unwrap().len(), 70_000);
    let content = fs::read(target(&dir).join("1-data")).unwrap();
    assert!((0..=255).all(|byte| byte == b'\n' || content.contains(&byte)), "it can be compressed");
    rerun(&dir, &["--prepare"]).code(2).says("is prepared already");
    rerun(&dir, &["--writers", "2"]).code(2).says("prepared for another trace or other changes");
    rerun(&dir, &["--keep"]).success();
    assert_eq!(sizes(&target(&dir), true), [("data".to_owned(), 70_000)]);
    rerun(&dir, &[]).code(2).says("is not empty");
    assert_eq!(fs::read_dir(target(&dir)).unwrap().count(), 1, "a refusal removes nothing");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/dev/zero", "of=data", "bs=1000", "count=3"]).0.success();
    fs::create_dir(target(&dir)).unwrap();
    fs::write(target(&dir).join("mine"), "mine").unwrap();
    rerun(&dir, &[]).code(2).says("is not empty; name an empty folder");
    assert_eq!(fs::read_to_string(target(&dir).join("mine")).unwrap(), "mine");
    fs::remove_file(target(&dir).join("mine")).unwrap();
    for (options, says) in [
        (&["--set", "device.fsync=1ms"][..], "--set device.fsync=1ms changes the machine"),
        (&["--move", "*=x.toml"], "changes the machine"),
        (&["--limits", "1M,2M"], "changes the machine"),
        (&["fsync=none,warm"], "--warm changes the machine"),
        (&["--compress", "0.5"], "1 or more"),
        (&["--prepare", "--keep"], "cannot be used with"),
    ] {
        rerun(&dir, options).code(2).says(says);
    }
    rerun(&dir, &["--only", "*.nothing"]).code(1).says("no calls that a rerun can make");
    // The device's blocks are larger than these writes; a tmpfs takes them as they are.
    let direct = rerun(&dir, &["--direct", "on"]);
    if direct.status.code() != Some(0) {
        direct.code(1).says("write on 1-data of 1000 bytes at 0 failed").says("O_DIRECT");
    }
    assert_eq!(fs::read_dir(target(&dir)).unwrap().count(), 0);
}

#[test]
fn a_full_disk_ends_it_with_the_name_of_the_call() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/dev/zero", "of=data", "bs=8k", "count=20"]).0.success();
    let Some(disk) = SmallDisk::new(&dir) else { return };
    let command = format!(
        "{} rerun {} --dir {}; code=$?; ls -A {}; exit $code",
        cawl_kit::built("cawl-cli").display(),
        dir.trace().display(),
        disk.join("here").display(),
        disk.join("").display()
    );
    let finished = disk.start(&command).finish().code(1);
    assert_eq!(finished.stdout, "", "what was made is removed");
    finished.says("write on 1-data of 8192 bytes at").says("No space left on device").says("free some space");
}

#[test]
fn a_signal_ends_all_its_processes_and_removes_its_files() {
    let dir = Dir::new();
    dir.run(&[], &["sh", "-c", "echo begun > begun; sleep 0.2; echo over > over"]).0.success();
    // A thousand times as long.
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let running = Running::start(rerun_command(&dir, &["--think", "1000"]));
        eventually("a file is made", || target(&dir).join("1-begun").exists());
        running.signal(signal);
        running.finish().signal(signal).says("interrupted");
        assert!(!target(&dir).exists());
    }
}
