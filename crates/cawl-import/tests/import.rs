//! The importers on real recordings: the golden runs, stored strace output, and programs run here.
//!
//! - `formats`: formats of rows under noise
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "tests read recordings; the importers do no I/O"
)]

mod formats;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;

use cawl_core::{EndKind, Language, Outcome, Record, kernel_bytes};
use cawl_import::{CsvImporter, CsvOptions, ImportError, ImportSummary, Importer, StraceImporter};
use cawl_wire::{Event, FileKind, Op, flag};
use proptest::prelude::*;

#[path = "import/tools.rs"]
mod tools;

/// All records of an input.
fn import(importer: &mut dyn Importer, text: &[u8]) -> Result<(Vec<Record>, ImportSummary), ImportError> {
    let mut out = Vec::new();
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        importer.line(line, &mut out)?;
    }
    let summary = importer.finish(&mut out)?;
    Ok((out, summary))
}

fn strace(text: &[u8]) -> (Vec<Record>, ImportSummary) {
    import(&mut StraceImporter::default(), text).expect("strace output")
}

fn stored(name: &str) -> (Vec<Record>, ImportSummary) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/strace").join(name);
    strace(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn events(records: &[Record]) -> Vec<Event> {
    records
        .iter()
        .filter_map(|record| if let Record::Event(event) = record { Some(*event) } else { None })
        .collect()
}

/// Bytes written to each regular file, in bytes, by path.
fn written(records: &[Record]) -> BTreeMap<String, u64> {
    let mut paths = BTreeMap::new();
    let mut bytes = BTreeMap::new();
    for record in records {
        match record {
            Record::File(facts) => {
                paths.insert(facts.ino, facts.path.clone());
            }
            Record::Event(event) if event.kind == FileKind::Regular && kernel_bytes(event) > 0 => {
                *bytes.entry(paths[&event.ino].clone()).or_default() += kernel_bytes(event);
            }
            _ => {}
        }
    }
    bytes
}

/// The order that every consumer counts on.
fn check_order(records: &[Record], summary: &ImportSummary) {
    let mut open = BTreeMap::new();
    let mut files = std::collections::BTreeSet::new();
    let mut last = 0;
    for record in records {
        match record {
            Record::Session(session) => {
                assert!(open.insert(session.pid, session.id).is_none(), "{session:?}")
            }
            Record::End(end) => open.retain(|_, id| *id != end.id),
            Record::File(facts) => {
                assert!(files.insert(facts.ino) != facts.renamed, "told twice, or never before: {facts:?}");
            }
            Record::Event(event) => {
                assert!(open.contains_key(&event.pid), "no session for {event:?}");
                assert!(event.ino == 0 || files.contains(&event.ino), "no file for {event:?}");
                assert!(event.start >= last || summary.out_of_order > 0, "{event:?} comes late");
                last = event.start;
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "sessions left open: {open:?}");
    assert_eq!(events(records).len() as u64, summary.calls);
}

#[test]
#[ignore = "long: reads all recordings of CAWL_GOLDEN"]
fn golden_runs() {
    let Some(root) = std::env::var_os("CAWL_GOLDEN") else {
        eprintln!("SKIPPED: no recorded runs; CAWL_GOLDEN names their folder");
        return;
    };
    let suites = std::fs::read_dir(&root).expect("the folder that CAWL_GOLDEN names");
    let mut seen = 0;
    for suite in suites.flatten().filter(|entry| entry.path().is_dir()) {
        for file in std::fs::read_dir(suite.path()).unwrap().flatten() {
            let path = file.path();
            if !path.to_string_lossy().ends_with(".csv.gz") {
                continue;
            }
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_end(&mut text).unwrap();
            let rows = text.iter().filter(|&&byte| byte == b'\n').count() - 1;
            let (records, summary) = import(&mut CsvImporter::new(CsvOptions::default()), &text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(summary.calls, rows as u64, "{}", path.display());
            check_order(&records, &summary);
            assert!(events(&records).iter().all(|event| !event.has(flag::STREAM_KNOWN)));
            seen += 1;
        }
    }
    assert!(seen > 0, "no recorded run is in {}", root.display());
}

#[test]
fn stored_strace_output() {
    for (name, bytes) in STORED {
        let (records, summary) = stored(name);
        check_order(&records, &summary);
        let expected: BTreeMap<String, u64> =
            bytes.iter().map(|(path, n)| ((*path).to_owned(), *n)).collect();
        assert_eq!(written(&records), expected, "{name}: {summary:#?}");
        let losses: Vec<_> = summary.skipped.iter().filter(|skipped| skipped.reason.is_loss()).collect();
        assert!(losses.is_empty(), "{name}: {losses:#?}");
    }
}

#[test]
fn programs_of_go_are_told_by_what_their_runtime_reads() {
    for (name, _) in STORED {
        let (records, _) = stored(name);
        let languages = records.iter().filter_map(|record| match record {
            Record::Session(session) => session.language,
            _ => None,
        });
        let expected = if *name == "go.txt" { &[Language::Go][..] } else { &[] };
        assert_eq!(languages.collect::<Vec<_>>(), expected, "{name}");
    }
}

/// What the stored programs wrote, by file, in bytes.
const STORED: &[(&str, &[(&str, u64)])] = &[
    ("dd.txt", &[("/tmp/demo/x", 16384)]),
    ("cp-plain.txt", &[("x2", 16384)]),
    ("bash.txt", &[("/tmp/demo/a", 12), ("/tmp/demo/b", 24), ("/tmp/demo/c", 151), ("/tmp/demo/d", 2)]),
    (
        "python.txt",
        &[("/tmp/demo/s", 6), ("/tmp/demo/t0", 5000), ("/tmp/demo/t1", 10000), ("/tmp/demo/t2", 15000)],
    ),
    ("go.txt", &[("/data/log", 58_890)]),
    ("sqlite.txt", &[("/tmp/demo/q.db", 16384), ("/tmp/demo/q.db-journal", 9256)]),
    ("terminal.txt", &[("/tmp/demo/y", 2048), ("/tmp/demo/z", 151)]),
    ("tar.txt", &[("/tmp/demo/r.tar", 10240)]),
    ("exec-in-thread.txt", &[("/tmp/stdout", 3)]),
    (
        "git.txt",
        &[
            ("/tmp/demo/r/.git/COMMIT_EDITMSG", 2),
            ("/tmp/demo/r/.git/HEAD.lock", 23),
            ("/tmp/demo/r/.git/config.lock", 248),
            ("/tmp/demo/r/.git/index.lock", 225),
            ("/tmp/demo/r/.git/logs/HEAD", 127),
            ("/tmp/demo/r/.git/logs/refs/heads/master", 127),
            ("/tmp/demo/r/.git/objects/49/tmp_obj_wJ2fQu", 100),
            ("/tmp/demo/r/.git/objects/d0/tmp_obj_NrlkHZ", 17),
            ("/tmp/demo/r/.git/objects/fd/tmp_obj_WagjA3", 46),
            ("/tmp/demo/r/.git/refs/heads/master.lock", 41),
            ("/tmp/demo/r/f", 2),
        ],
    ),
];

#[test]
fn live_programs() {
    if Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success())
    {
        for script in LIVE {
            live(script, &["-f", "-ttt", "-T", "-y"], true);
            live(script, &["-f", "-ttt", "-T"], true);
            live(script, &["-f", "-ttt", "-T", "-yy"], false);
        }
    } else {
        eprintln!("SKIPPED: strace is not here, or may not trace");
    }
}

const LIVE: &[&str] = &[
    "dd if=/dev/zero of=a bs=4k count=4 conv=fsync 2>/dev/null",
    "exec 3>a 4>>b; echo hi >&3; echo 'a, \"q\" = 5 }) = 9 <0.1>' >&4; ls / | cat >c; (echo sub >&3); echo x >>b",
    "echo one >a; cat a a >b; mv b c; rm a; echo again >a; dd if=/dev/zero of=d bs=1000 count=3 2>/dev/null",
    "for i in 1 2 3; do (for j in 1 2 3; do echo $i $j; done >f$i) & done; wait",
];

/// Runs a script in an empty directory under strace and compares bytes imported with file sizes.
fn live(script: &str, options: &[&str], to_file: bool) {
    let dir = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(options).current_dir(dir.path());
    let text = if to_file {
        let status = command.arg("-o").arg(log.path()).args(["sh", "-c", script]).status().unwrap();
        assert!(status.success(), "{script}");
        std::fs::read(log.path()).unwrap()
    } else {
        command.args(["sh", "-c", script]).output().unwrap().stderr
    };
    let (records, summary) = strace(&text);
    check_order(&records, &summary);
    let told =
        records.iter().find_map(|record| if let Record::Outcome(end) = record { Some(*end) } else { None });
    assert!(
        matches!(told, Some(Outcome { code: Some(0), signal: None, .. })),
        "{script} {options:?}: {told:?}"
    );
    let root = dir.path().canonicalize().unwrap();
    // A path that was written anew counts twice; the last file of that name has the size.
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    for entry in std::fs::read_dir(&root).unwrap().flatten() {
        sizes.insert(entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len());
    }
    let mut last: BTreeMap<u64, String> = BTreeMap::new();
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for record in &records {
        match record {
            Record::File(facts) => {
                let name = Path::new(&facts.path).strip_prefix(&root).unwrap_or(Path::new(&facts.path));
                last.insert(facts.ino, name.to_string_lossy().into_owned());
            }
            Record::Event(event) => *bytes.entry(event.ino).or_default() += kernel_bytes(event),
            _ => {}
        }
    }
    for (name, size) in sizes {
        let ino = last.iter().rfind(|(_, path)| **path == name).map(|(ino, _)| *ino);
        let imported = ino.and_then(|ino| bytes.get(&ino)).copied();
        assert_eq!(
            imported,
            Some(size),
            "{name} of {script} {options:?}: {summary:#?}\n{}",
            String::from_utf8_lossy(&text)
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(text in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = import(&mut CsvImporter::new(CsvOptions::default()), &text);
        let _ = import(&mut StraceImporter::default(), &text);
    }

    #[test]
    fn csv_noise_never_panics(rows in prop::collection::vec("[-0-9.,e\" \r\nwritefsync]{0,40}", 0..40)) {
        let text = format!("start_s,op,offset,size,duration_s\n{}", rows.join("\n"));
        let _ = import(&mut CsvImporter::new(CsvOptions::default()), text.as_bytes());
    }

    #[test]
    fn strace_noise_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let _ = import(&mut StraceImporter::default(), pieces.concat().as_bytes());
    }

    #[test]
    fn csv_round_trip(mut rows in prop::collection::vec(row(), 1..50)) {
        let mut text = String::from("tid,duration_s,op,start_s,size,pid,path,offset\r\n");
        for row in &rows {
            let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            let path = row.path.replace('"', "\"\"");
            text += &format!(
                "{},{},{},{},{},{},\"{path}\",{}\r\n",
                row.tid, seconds(row.duration), row.op.name(), seconds(row.start), row.size, row.pid, row.offset
            );
        }
        let (records, summary) = import(&mut CsvImporter::new(CsvOptions::default()), text.as_bytes()).unwrap();
        prop_assert_eq!(summary.calls, rows.len() as u64);
        // They are taken by their starts.
        rows.sort_by_key(|row| row.start);
        let mut paths = BTreeMap::new();
        for record in &records {
            if let Record::File(facts) = record {
                paths.insert(facts.ino, facts.path.clone());
            }
        }
        for (event, row) in events(&records).iter().zip(&rows) {
            prop_assert_eq!((event.start, event.duration, event.op), (row.start, row.duration, row.op));
            prop_assert_eq!((event.pid, event.tid), (row.pid, row.tid));
            prop_assert_eq!(&paths[&event.ino], &row.path);
            if matches!(row.op, Op::Write | Op::Pwrite | Op::StreamWrite | Op::Read) {
                prop_assert_eq!((event.offset, event.requested), (row.offset, row.size));
                prop_assert_eq!(event.returned, row.size as i64);
            }
        }
        let ends = records.iter().filter(|record| matches!(record, Record::End(end) if end.how == EndKind::Exit));
        prop_assert_eq!(ends.count() as u64, summary.sessions);
    }
}

/// Pieces of strace output, to be put together in any order.
const PIECES: &[&str] = &[
    "7 ",
    "8 ",
    "[pid 9] ",
    "1700000000.5 ",
    "1700000001.000001 ",
    "12:00:00 ",
    "\n",
    "\n",
    "\n",
    "write(1</tmp/a>, \"x\", 1",
    "write(3, ",
    ") = 1",
    " <0.1>",
    " <unfinished ...>",
    "<... write resumed>",
    "openat(AT_FDCWD</tmp>, \"a\", O_WRONLY|O_CREAT",
    ") = 3</tmp/a>",
    ") = -1 ENOENT (No such file)",
    ") = ?",
    "clone(flags=CLONE_VM|CLONE_THREAD",
    "<... clone resumed>",
    ") = 8",
    "vfork(",
    "execve(\"/a\", [\"a\"]",
    "strace: Process 9 attached",
    "+++ exited with 0 +++",
    "+++ killed by SIGKILL +++",
    "close(3",
    "+++ superseded by execve in pid 8 +++",
    "dup2(3, 1",
    "lseek(3, 0, SEEK_END",
    "rename(\"a\", \"b\"",
    "unlink(\"a\"",
    "fcntl(3, F_DUPFD, 10",
    "close_range(3, 4294967295, 0",
    "\u{fffd}",
    "\"",
    "<",
    ">",
    "é",
];

#[derive(Clone, Debug)]
struct Row {
    start: u64,
    duration: u64,
    op: Op,
    offset: u64,
    size: u64,
    pid: u32,
    tid: u32,
    path: String,
}

fn row() -> impl Strategy<Value = Row> {
    let ops = [
        Op::Write,
        Op::Pwrite,
        Op::StreamWrite,
        Op::StreamFlush,
        Op::Fsync,
        Op::Fdatasync,
        Op::Read,
        Op::Close,
    ];
    (
        (0..1u64 << 62, 0..1u64 << 40, prop::sample::select(ops.to_vec())),
        (0..1u64 << 50, 0..=1u64 << 40, 1..4u32, any::<u32>(), "[a-c,\" é\n]{1,6}"),
    )
        .prop_map(|((start, duration, op), (offset, size, pid, tid, path))| Row {
            start,
            duration,
            op,
            offset,
            size,
            pid,
            tid,
            path,
        })
}

/// How fast an input of ten million rows is read: `cargo test --release -- --ignored --nocapture speed`.
#[test]
#[ignore = "a measurement, not a test"]
fn speed() {
    let began = std::time::Instant::now();
    let mut importer = CsvImporter::new(CsvOptions::default());
    let mut out = Vec::new();
    importer.line(b"start_s,op,offset,size,duration_s\n", &mut out).unwrap();
    let mut text = Vec::new();
    for i in 0..10_000u64 {
        text.extend_from_slice(
            format!("{}.{:09},write,{},4096,0.000001234\n", i / 1000, i * 777, i << 12).as_bytes(),
        );
    }
    for _ in 0..1000 {
        let mut lines = BufReader::new(&text[..]);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).unwrap() > 0 {
            importer.line(&line, &mut out).unwrap();
            line.clear();
        }
        out.clear();
    }
    let rows = importer.finish(&mut out).unwrap().calls;
    println!("csv: {:.2} million rows/s", rows as f64 / began.elapsed().as_secs_f64() / 1e6);

    let began = std::time::Instant::now();
    let mut importer = StraceImporter::default();
    importer
        .line(b"7 1700000000.0 openat(AT_FDCWD</tmp>, \"a\", O_WRONLY|O_CREAT) = 3</tmp/a> <0.1>", &mut out)
        .unwrap();
    for i in 0..1_000_000u64 {
        let line = format!(
            "7 17000{:05}.{:06} write(3</tmp/a>, \"0123456789abcdef\"..., 4096) = 4096 <0.000047>",
            i / 1000,
            i % 1000
        );
        importer.line(line.as_bytes(), &mut out).unwrap();
        if out.len() > 10_000 {
            out.clear();
        }
    }
    println!("strace: {:.2} million lines/s", 1.0 / began.elapsed().as_secs_f64());
}
