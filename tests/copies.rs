//! Copies in the kernel and stores through mappings: each has a law, and a cost in the report.

use std::fs;
use std::path::Path;

use serde_json::Value;

use cawl_kit::{Dir, Report, Running, find, python, same, skipped};

const MIB: usize = 1 << 20;

/// A large file and small ones.
fn files(folder: &Path) {
    let content: Vec<u8> = (0..9 * MIB + 77).map(|n| ((n * 7) >> 3) as u8).collect();
    fs::write(folder.join("large"), &content).expect("a new file");
    fs::create_dir(folder.join("tree")).expect("a new folder");
    for n in 0..50 {
        fs::write(folder.join(format!("tree/{n}")), &content[..n * 333]).expect("a new file");
    }
}

/// Every byte was seen, and every call that wrote has a law.
#[track_caller]
fn modelled(report: &Report) {
    assert_eq!(report["unmodelled"], serde_json::json!({}), "{:#}", report["unmodelled"]);
    assert_eq!(report["models"][0]["name"], "kernel");
}

/// The report's rows of an operation, one for each file.
fn rows<'a>(report: &'a Report, op: &str) -> Vec<&'a Value> {
    let files = report["files"].as_array().expect("the report lists files").iter();
    let ops = files.flat_map(|file| file["ops"].as_array().expect("a file lists operations"));
    ops.filter(|row| row["op"] == op).collect()
}

fn bytes(report: &Report, op: &str) -> u64 {
    rows(report, op).iter().map(|row| row["bytes"].as_u64().expect("a count")).sum()
}

fn predicted(row: &Value) -> f64 {
    row["predicted_s"]["kernel"].as_f64().expect("a prediction")
}

/// Each call has a cost, also one that copied nothing.
#[track_caller]
fn compared(report: &Report, op: &str) {
    let rows = rows(report, op);
    assert!(!rows.is_empty(), "no {op} in {:#}", report["files"]);
    assert!(rows.iter().all(|row| predicted(row) > 0.0 && row["observed_s"].as_f64() > Some(0.0)));
    let calls: u64 = rows.iter().map(|row| row["calls"].as_u64().expect("a count")).sum();
    assert_eq!(report.calls_of(op), calls);
}

#[test]
fn cp_is_modelled() {
    let dir = Dir::new();
    let script = "cp large copy && cp -a tree more && cp --reflink=never large again && cp --sparse=always large sparse \
                  && cat large tree/* > all";
    let (finished, report) = same(&dir, files, &["sh", "-c", script]);
    finished.success();
    modelled(&report);
    // cp chooses its method; each has a law.
    if report.calls_of("copy_file_range") > 0 {
        compared(&report, "copy_file_range");
    }
    for name in ["copy", "again", "sparse"] {
        assert_eq!(report.file_bytes(name), (9 * MIB + 77) as u64, "{name}");
    }
}

#[test]
fn each_way_to_copy_is_modelled_and_counted_once() {
    let Some(python) = python() else { return };
    let script = "
import os
size = os.stat('large').st_size
source = os.open('large', os.O_RDONLY)
def to(name):
    os.lseek(source, 0, 0)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
def all(copy):
    left = size
    while left:
        left -= copy(left)
file = to('ranged')
all(lambda left: os.copy_file_range(source, file, left))
assert os.copy_file_range(source, file, 4096) == 0
file = to('sent')
all(lambda left: os.sendfile(file, source, None, left))
file = to('spliced')
out, into = os.pipe()
splice = getattr(os, 'splice', None)
if splice:
    all(lambda left: splice(out, file, splice(source, into, min(left, 65536))))
file = to('synced')
os.close(file)
file = os.open('synced', os.O_WRONLY | os.O_DSYNC)
os.lseek(source, 0, 0)
os.sendfile(file, source, None, 300000)
";
    let dir = Dir::new();
    let (finished, report) = same(&dir, files, &[python.as_os_str(), "-c".as_ref(), script.as_ref()]);
    finished.success();
    modelled(&report);
    let whole = (9 * MIB + 77) as u64;
    for (op, name, size) in
        [("copy_file_range", "ranged", whole), ("sendfile", "sent", whole), ("splice", "spliced", whole)]
    {
        if op == "splice" && report.calls_of(op) == 0 {
            skipped("this Python has no os.splice");
            continue;
        }
        compared(&report, op);
        assert_eq!(report.file_bytes(name), size, "{name}");
    }
    assert_eq!(bytes(&report, "copy_file_range"), whole);
    // Each piece waits for the device. The other file's calls may wait for a commit.
    let rows = rows(&report, "sendfile");
    let synced = rows.iter().find(|row| row["bytes"] == 300_000).expect("the file is in the report");
    assert_eq!(synced["states"]["sync"], 1, "{:#}", report["files"]);
    // A replay has the same.
    let mut replay = dir.cawl(&["replay", "--live", "--json"]);
    replay.arg(dir.trace());
    let again = Report::parse(&Running::start(replay).finish().success().stdout);
    assert_eq!(
        (again.fingerprints(), again["files"].clone()),
        (report.fingerprints(), report["files"].clone())
    );
}

#[test]
fn rsync_and_git_are_modelled() {
    if find("rsync").is_some() {
        let dir = Dir::new();
        let (finished, report) = same(&dir, files, &["rsync", "-a", "large", "tree", "to/"]);
        finished.success();
        modelled(&report);
    }
    if find("git").is_some() {
        let dir = Dir::new();
        let script = "git init -q a && cp -r large tree a && cd a && git add . && \
                      git -c user.name=n -c user.email=e commit -qm m && cd .. && \
                      git clone -q --no-hardlinks a b && git -C b fsck --full && rm -rf a b";
        let (finished, report) = same(&dir, files, &["sh", "-c", script]);
        finished.success();
        modelled(&report);
    }
}

#[test]
fn sqlite_that_maps_its_files_is_modelled() {
    if find("sqlite3").is_none() {
        return;
    }
    let sql = "pragma mmap_size=268435456; create table t(a, b);
               insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
               select i, hex(zeroblob(100)) from n;
               update t set b = a where a % 3 = 0; select count(*), sum(a) from t;";
    for mode in ["wal", "delete"] {
        let dir = Dir::new();
        let sql = format!("pragma journal_mode={mode}; {sql}");
        let (finished, report) = same(&dir, |_| (), &["sqlite3", "-batch", "db", &sql]);
        finished.success();
        modelled(&report);
    }
}

#[test]
fn a_compiler_is_modelled() {
    if find("cc").is_none() {
        return;
    }
    let dir = Dir::new();
    let source = |folder: &Path| {
        fs::write(folder.join("a.c"), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n")
            .expect("a new file");
    };
    let script = "cc -g -O2 -o a a.c && for ld in gold lld; do ld.$ld --version > /dev/null 2>&1 && \
                  cc -fuse-ld=$ld -o a.$ld a.c; done; ./a; rm -f a.*";
    let (finished, report) = same(&dir, source, &["sh", "-c", script]);
    finished.success();
    modelled(&report);
}

#[test]
fn stores_have_a_row_and_a_cost_that_nobody_saw() {
    let dir = Dir::new();
    let program = dir.app("mapped");
    let mut running = Running::start(dir.run_command(&[], &[program]));
    for _ in 0..3 {
        running.say(".");
        running.stdout_until("stored\n");
    }
    let finished = running.finish().success();
    let report = dir.report(&finished);
    modelled(&report);
    let stores = rows(&report, "mmap_write");
    assert_eq!(stores.len(), 1, "{:#}", report["files"]);
    assert!(predicted(stores[0]) > 0.0 && stores[0]["observed_s"] == 0.0, "{:#}", stores[0]);
    assert!((1..=3 * MIB as u64).contains(&bytes(&report, "mmap_write")), "{:#}", stores[0]);
    // They have no observed time, so they enter no error.
    assert_eq!(report.calls_of("mmap_write"), 0);
    let mut replay = dir.cawl(&["replay", "--live", "--long"]);
    replay.arg(dir.trace());
    let text = Running::start(replay).finish().success().stdout;
    let row = text.lines().find(|line| line.contains("mmap_write")).expect("a row");
    let figures: Vec<&str> = row.split_whitespace().collect();
    // Calls, bytes with their unit, then no time, but a prediction and no error.
    assert!(figures.len() >= 8 && figures[4] == "-" && figures[5] != "-" && figures[7] == "-", "{row}");
}

#[test]
fn stores_are_told_before_what_makes_them_durable_and_with_their_place() {
    let dir = Dir::new();
    let program = dir.app("synced");
    dir.run(&[], &[&program]).0.success();
    let calls = cawl_kit::calls(&dir, &dir.trace());
    let about = |op: &str| ["mmap_write", "msync", "fsync"].contains(&op);
    let calls: Vec<&Value> = calls.iter().filter(|call| about(call["op"].as_str().unwrap())).collect();
    let ops: Vec<&str> = calls.iter().map(|call| call["op"].as_str().unwrap()).collect();
    let stored = "mmap_write";
    assert_eq!(
        ops,
        [stored, "msync", stored, "msync", "msync", stored, "fsync", "fsync", stored],
        "{calls:#?}"
    );
    // The latest two looks were at all of the mapping.
    for (at, (pages, offset)) in [(0, (10, 8 * MIB)), (2, (10, 8 * MIB)), (5, (5, 0)), (8, (3, 0))] {
        assert_eq!(calls[at]["offset"], offset, "{:#}", calls[at]);
        // A folio is dirty as a whole.
        let bytes = calls[at]["size"].as_u64().unwrap();
        assert!((pages * 4096..=(MIB as u64)).contains(&bytes), "{:#}", calls[at]);
    }
}

/// Looks at a mapping before each msync would take too much of the time.
#[test]
fn stores_before_each_of_many_syncs_are_told_also_without_a_look() {
    let dir = Dir::new();
    let program = dir.app("often");
    dir.run(&[], &[&program]).0.success();
    let calls = cawl_kit::calls(&dir, &dir.trace());
    let of = |op: &str| calls.iter().filter(|call| call["op"] == op).collect::<Vec<&Value>>();
    let (stores, syncs) = (of("mmap_write"), of("msync"));
    assert_eq!(syncs.len(), 201);
    // The first look tells all pages; those after it the stores of 200 times.
    let told: u64 = stores[1..].iter().map(|call| call["size"].as_u64().unwrap()).sum();
    let stored = 200 * 16 * 4096;
    assert!(
        stores.len() > 180 && (stored / 2..stored * 2).contains(&told),
        "{} stores, {told} B",
        stores.len()
    );
}

/// What munmap leaves before and behind a hole is told at the sync.
#[test]
fn stores_around_a_hole_of_a_mapping_are_told() {
    let dir = Dir::new();
    let program = dir.app("hole");
    dir.run(&[], &[&program]).0.success();
    let calls = cawl_kit::calls(&dir, &dir.trace());
    let stores = calls.iter().filter(|call| call["op"] == "mmap_write");
    let told: Vec<(u64, u64)> = stores.map(|call| (at(call, "offset"), at(call, "size"))).collect();
    assert_eq!(told, [(4, 4), (0, 4), (8, 8)].map(|(from, long)| (from * MIB as u64, long * MIB as u64)));
}

fn at(call: &Value, key: &str) -> u64 {
    call[key].as_u64().unwrap()
}
