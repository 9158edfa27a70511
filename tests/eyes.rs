//! What the eyes see: kinds of programs by probes in the kernel, and the same calls by both eyes. apps/eyes.c
//! makes the calls; bench/eyes compares more kinds of programs with strace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use cawl_core::Record;
use cawl_host::trace::TraceReader;
use cawl_kit::{Dir, Report, Running, built, compiled, skipped};
use cawl_wire::{Event, FileId, FileKind, Op};

/// Whether probes can be attached here.
pub fn can_attach(dir: &Dir) -> bool {
    let finished = Running::start(dir.run_command(&["--via", "kernel"], &["true"])).finish();
    if finished.status.success() {
        return true;
    }
    skipped(finished.stderr.lines().last().unwrap_or("probes cannot be attached"));
    false
}

/// Runs a mode of apps/eyes.c; the bytes that it counted itself were seen. False if the kernel has none of
/// it.
#[track_caller]
fn counts(dir: &Dir, program: &Path, mode: &str, options: &[&str]) -> Option<Report> {
    let work = dir.work();
    let command = [program.as_os_str(), mode.as_ref(), work.as_os_str()];
    let (finished, report) = dir.run(options, &command);
    if finished.status.code() == Some(77) {
        skipped(&format!("the kernel has no {mode}"));
        return None;
    }
    let counted: u64 = finished.success().stdout.trim().parse().expect("a count");
    let seen: u64 = events(&dir.trace())
        .iter()
        .filter(|event| event.kind == FileKind::Regular && writes(event.op))
        .map(|event| event.returned.max(0) as u64)
        .sum();
    assert_eq!(seen, counted, "{mode}: {}", report["notes"]);
    assert_eq!((&report["drops"], &report["unseen"]), (&0.into(), &0.into()));
    Some(report)
}

fn writes(op: Op) -> bool {
    let copies = [Op::CopyRange, Op::Sendfile, Op::Splice, Op::AioWrite];
    [Op::Write, Op::Pwrite, Op::Writev, Op::Pwritev].contains(&op) || copies.contains(&op)
}

fn records(trace: &Path) -> Vec<Record> {
    let mut reader = TraceReader::open(trace).expect("a trace");
    let mut records = Vec::new();
    reader.read(&mut records, usize::MAX).expect("it is whole");
    records
}

fn events(trace: &Path) -> Vec<Event> {
    let event = |record| if let Record::Event(event) = record { Some(event) } else { None };
    records(trace).into_iter().filter_map(event).collect()
}

#[test]
fn the_kernel_sees_every_kind() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let program = dir.app("eyes");
    for mode in ["calls", "threads", "confined", "uring", "aio", "reaped"] {
        let report = counts(&dir, &program, mode, &["--via", "kernel"]);
        if mode == "reaped"
            && let Some(report) = report
        {
            // Those that read are as many.
            let notes = report["notes"].to_string();
            assert!(notes.contains("12000 requests"), "{notes}");
        }
        dir.clear();
    }
}

/// Also of a mapping that is gone at once; `msync` has its file.
#[test]
fn stores_through_mappings_are_seen() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let (program, work) = (dir.app("eyes"), dir.work());
    let command = [program.as_os_str(), "stored".as_ref(), work.as_os_str()];
    let (finished, report) = dir.run(&["--via", "kernel"], &command);
    finished.success();
    let notes = report["notes"].to_string();
    if notes.contains("between samples") {
        return skipped("this kernel does not tell which pages become dirty");
    }
    let events = events(&dir.trace());
    let stores = events.iter().filter(|event| event.op == Op::MmapWrite);
    let seen: i64 = stores.map(|event| event.returned).sum();
    assert_eq!(seen, 4 << 20, "{notes}");
    let sync = events.iter().find(|event| event.op == Op::Msync).expect("a sync");
    assert_eq!(sync.kind, FileKind::Regular);
}

/// Of requests without completions the kernel tells no end: they are counted, also of a program that ends at
/// once.
#[test]
fn requests_of_which_no_end_is_told_are_counted() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let (program, work) = (dir.app("eyes"), dir.work());
    let command = [program.as_os_str(), "skip".as_ref(), work.as_os_str()];
    let (finished, report) = dir.run(&["--via", "kernel"], &command);
    if finished.status.code() == Some(77) {
        return skipped("the kernel has no io_uring");
    }
    finished.success();
    assert_eq!(report["drops"], 400, "{}", report["notes"]);
}

/// The kernel refuses a request before it begins: it has an error, and its file.
#[test]
fn requests_that_are_refused_are_told() {
    let dir = Dir::new();
    let Some(report) =
        can_attach(&dir).then(|| counts(&dir, &dir.app("eyes"), "refused", &["--via", "kernel"]))
    else {
        return;
    };
    let events = events(&dir.trace());
    let syncs = events.iter().filter(|event| event.op == Op::Fsync);
    let refused =
        syncs.filter(|sync| sync.errno == 22 && sync.returned == -1 && sync.kind == FileKind::Regular);
    assert_eq!(refused.count(), if report.is_some() { 400 } else { 0 });
}

/// The size of a file that an open cuts off, written just before by a process that is not followed: its
/// blocks are not allocated yet.
#[test]
fn a_file_that_is_cut_off_before_it_is_allocated_has_its_size() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let file = dir.work().join("file");
    std::fs::write(&file, vec![1; 1 << 20]).expect("a file");
    let command = ["sh", "-c", "> \"$0\"", file.to_str().expect("a path")];
    dir.run(&["--via", "kernel"], &command).0.success();
    let cut = |event: &&Event| event.op == Op::Open && event.has(cawl_wire::flag::TRUNC);
    let events = events(&dir.trace());
    let open = events.iter().find(cut).expect("an open that cuts off");
    match open.offset {
        cawl_wire::UNKNOWN_OFFSET => skipped("no filesystem here tells what a file had"),
        length => assert_eq!(length, 1 << 20),
    }
}

#[test]
fn run_sees_a_static_program_without_an_option() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    match compiled("eyes", &["-O2", "-static"]) {
        Ok(program) => drop(counts(&dir, &program, "calls", &[])),
        Err(_) => skipped("cc -static does not work here"),
    }
}

/// Operations of the report by file, with their calls and bytes; streams of the C library are no calls.
fn told(report: &Report, folder: &Path) -> BTreeMap<(String, String), (u64, u64)> {
    let mut told = BTreeMap::new();
    for file in report["files"].as_array().expect("files") {
        let path = file["path"].as_str().expect("a path");
        // Of those without a name the number is another each time.
        let path = if path.contains(" (deleted)") { "deleted" } else { path };
        let is_one =
            ["(names)", "deleted", "/dev/null"].contains(&path) || Path::new(path).starts_with(folder);
        for op in file["ops"].as_array().into_iter().flatten().filter(|_| is_one) {
            let calls = (op["calls"].as_u64().expect("a count"), op["bytes"].as_u64().expect("a count"));
            told.insert((path.to_owned(), op["op"].as_str().expect("a name").to_owned()), calls);
        }
    }
    told
}

/// A program of its own for each eye: names that were not met, /dev/null, what was open before, seeks.
#[test]
fn both_reports_have_the_same_rows() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let program = dir.app("eyes");
    let mut both = Vec::new();
    for via in ["preload", "kernel"] {
        dir.clear();
        let work = dir.work();
        let run = dir.run_command(&["--via", via], &[program.as_os_str(), "rows".as_ref(), work.as_os_str()]);
        let mut command = dir.command("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3>inherited"]).arg(run.get_program()).args(run.get_args());
        let finished = Running::start(command).finish();
        let seeks = events(&dir.trace()).iter().filter(|event| event.op == Op::Seek).count();
        both.push((told(&dir.report(&finished.success()), &work), seeks));
    }
    assert_eq!(both[0].1, 2, "seeks by the library");
    // The library tells nothing of a descriptor that it has not met.
    let inherited = dir.work().join("inherited").to_string_lossy().into_owned();
    let closed = both[1].0.remove(&(inherited, "close".to_owned()));
    assert_eq!(closed, Some((1, 0)), "by the kernel: {:#?}", both[1]);
    assert_eq!(both[0], both[1], "by the library and by the kernel");
    let has = |path: &str, op: &str| both[1].0.contains_key(&(path.to_owned(), op.to_owned()));
    assert!(
        has("/dev/null", "write") && has("(names)", "symlink") && has("(names)", "rename"),
        "{:#?}",
        both[1]
    );
}

/// What both eyes tell of a call: all but its times.
type Same = (Op, FileId, FileKind, Option<u64>, i64, u64, u32);

/// The calls of each thread in their order, on files of the folder, and the paths of these files.
fn by_thread(trace: &Path, folder: &Path, is_aio: bool) -> BTreeMap<u32, Vec<Same>> {
    let records = records(trace);
    let mut paths = BTreeMap::new();
    for record in &records {
        if let Record::File(file) = record {
            let id = FileId { dev: file.dev, ino: file.ino, birth: file.birth };
            paths.insert(id, Path::new(&file.path).starts_with(folder));
        }
    }
    let mut threads: BTreeMap<u32, Vec<Same>> = BTreeMap::new();
    for record in records {
        let Record::Event(event) = record else { continue };
        // The tracer itself asks for positions. What is cached is no call.
        let is_left = matches!(event.op, Op::Seek | Op::Resident) || event.returned < 0;
        // Of libaio's syncs the library does not tell.
        let is_left =
            is_left || is_aio && (event.op == Op::Fsync || event.op == Op::AioWrite && event.aux == 0);
        if is_left || paths.get(&event.file()) != Some(&true) {
            continue;
        }
        // What a call is not about is not compared.
        let offset = Some(event.offset).filter(|_| event.op.moves_bytes() || event.op == Op::Truncate);
        let flags = cawl_wire::flag::APPEND | cawl_wire::flag::DSYNC | cawl_wire::flag::WRITABLE;
        let requested = if event.op.moves_bytes() { event.requested } else { 0 };
        let op = if event.op == Op::AioWrite { Op::Pwrite } else { event.op };
        let same = (op, event.file(), event.kind, offset, event.returned, requested, event.flags & flags);
        threads.entry(event.tid).or_default().push(same);
    }
    if is_aio {
        // Requests that were handed over at once are complete in any order.
        threads.values_mut().for_each(|calls| calls.sort_unstable());
    }
    threads
}

#[test]
fn both_eyes_see_the_same_calls() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let inner = dir.path().join("inner.trace");
    for mode in ["calls", "aio"] {
        dir.clear();
        let mut command: Vec<std::ffi::OsString> = vec![built("cawl-cli").into(), "run".into()];
        command.extend(["--via", "preload", "--trace"].map(Into::into));
        command.extend([inner.clone().into(), "--".into(), dir.app("eyes").into(), mode.into()]);
        command.push(dir.work().into());
        let (finished, _) = dir.run(&["--via", "kernel"], &command);
        finished.success();
        let (library, kernel) = (
            by_thread(&inner, &dir.work(), mode == "aio"),
            by_thread(&dir.trace(), &dir.work(), mode == "aio"),
        );
        let calls: usize = library.values().map(Vec::len).sum();
        assert!(calls > 50, "{mode}: {calls} calls");
        for (tid, calls) in &library {
            let other = kernel.get(tid).map_or(&[][..], Vec::as_slice);
            // The library tells by its time the birth of a file without a name, and takes two files of one
            // tick and one inode number for the same.
            let unborn = |call: &Same| {
                let mut call = *call;
                call.1.birth = 0;
                call
            };
            for (at, (one, other)) in calls.iter().zip(other).enumerate() {
                let (one, other) = (unborn(one), unborn(other));
                assert_eq!(one, other, "{mode}: call {at}, by the library and by the kernel");
            }
            let same = calls.iter().zip(other).filter(|(one, other)| one.1 == other.1 && one.1.birth != 0);
            assert!(2 * same.count() > calls.len(), "{mode}: births differ: {calls:?}, {other:?}");
            assert_eq!(calls.len(), other.len(), "{mode}: {calls:?}, {other:?}");
        }
        std::fs::remove_file(&inner).expect("a trace");
    }
}

/// Its calls have other numbers: they are counted, and said.
#[test]
fn calls_of_32_bits_are_said() {
    let dir = Dir::new();
    if !can_attach(&dir) {
        return;
    }
    let Ok(program) = compiled("eyes", &["-m32", "-D_FILE_OFFSET_BITS=64"]) else {
        return skipped("cc -m32 does not work here");
    };
    let mut command = Command::new(&program);
    if !command.arg("calls").arg(dir.work()).status().is_ok_and(|status| status.success()) {
        return skipped("no 32-bit program runs here");
    }
    let work = dir.work();
    let command = [program.as_os_str(), "calls".as_ref(), work.as_os_str()];
    let (finished, report) = dir.run(&["--via", "kernel"], &command);
    finished.success();
    let notes = report["notes"].to_string();
    assert!(notes.contains("of 32-bit programs were not recorded"), "{notes}");
}
