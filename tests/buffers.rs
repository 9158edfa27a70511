//! The buffers of other languages' libraries: told by what real programs write, and changed on paper as the
//! programs change them themselves. Programs that write blocks of their own have none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cawl_kit::{Dir, Report, Running, calls, find, python, skipped};
use serde_json::Value;

/// A buffer's size in the place of the default, in bytes and as an argument.
const LARGER: (&str, &str) = ("65536", "64K");

/// A program's source in tests/apps.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apps").join(name)
}

/// What is told of a file.
struct Told {
    file: &'static str,
    class: &'static str,
    /// In bytes.
    bytes: u64,
    certain: bool,
    /// On paper the sizes with another buffer are those of the program with it; else only their number.
    exact: bool,
}

fn buffer<'a>(report: &'a Report, file: &str) -> &'a Value {
    let files = report["files"].as_array().expect("a list");
    let named = |one: &&Value| one["path"].as_str().is_some_and(|path| Path::new(path).ends_with(file));
    &files.iter().find(named).unwrap_or_else(|| panic!("no file {file}"))["patterns"]["buffer"]
}

/// The sizes of the writes to a file in a trace, in bytes.
fn sizes(dir: &Dir, trace: &Path, file: &str) -> Vec<u64> {
    let is_of = |call: &Value| {
        call["path"].as_str().is_some_and(|path| Path::new(path).ends_with(file))
            && call["op"].as_str().is_some_and(|op| op.starts_with("write"))
    };
    let calls = calls(dir, trace);
    calls.iter().filter(|call| is_of(call)).map(|call| call["size"].as_u64().expect("a size")).collect()
}

/// The trace with the larger buffer, on paper.
fn enlarged(dir: &Dir) -> PathBuf {
    let changed = dir.path().join("changed.trace");
    let mut whatif = dir.cawl(&["whatif", "--buffer", LARGER.1]);
    whatif.arg(dir.trace()).arg("-o").arg(&changed);
    Running::start(whatif).finish().success();
    changed
}

/// Runs a program whose last argument is the size of its buffers, with the default and with a larger one.
fn is_told_and_changed(dir: &Dir, words: &[&str], language: &str, all: &[Told]) {
    let run = |size: &str| {
        let (finished, report) = dir.run(&[], &[words, &[size]].concat());
        finished.success();
        report
    };
    let report = run("0");
    for Told { file, class, bytes, certain, .. } in all {
        let told = buffer(&report, file);
        let of = (told["language"].as_str(), told["class"].as_str());
        assert_eq!(of, (Some(language), Some(*class)), "{file}: {told:#}");
        let of = (told["bytes"].as_u64(), told["certain"].as_bool());
        assert_eq!(of, (Some(*bytes), Some(*certain)), "{file}: {told:#}");
        let writes = sizes(dir, &dir.trace(), file).len() as u64;
        let counted = ["writes", "others"].map(|count| told[count].as_u64().expect("a count"));
        assert_eq!(counted.iter().sum::<u64>(), writes, "{file}: {told:#}");
    }
    assert_eq!(buffer(&report, "large"), &Value::Null, "pieces that no buffer takes");
    let mut explain = dir.cawl(&["explain"]);
    explain.arg(dir.trace());
    let text = Running::start(explain).finish().success().stdout;
    assert!(text.contains(language) && text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let changed = enlarged(dir);
    let names: Vec<&str> = all.iter().map(|told| told.file).chain(["large"]).collect();
    let on_paper: Vec<Vec<u64>> = names.iter().map(|name| sizes(dir, &changed, name)).collect();
    run(LARGER.0);
    for (at, name) in names.iter().enumerate() {
        let real = sizes(dir, &dir.trace(), name);
        assert_eq!(on_paper[at].iter().sum::<u64>(), real.iter().sum::<u64>(), "{name}: bytes");
        assert_eq!(on_paper[at].len(), real.len(), "{name}: {:?} and {real:?}", on_paper[at]);
        if all.get(at).is_none_or(|told| told.exact) {
            assert_eq!(on_paper[at], real, "{name}");
        }
    }
}

#[test]
fn of_cpp_streams() {
    let dir = Dir::new();
    let class = "filebuf of libstdc++";
    let program = dir.app("buffered");
    let of = |file, certain, exact| Told { file, class, bytes: 8192, certain, exact };
    let all = [of("lines", true, false), of("records", false, true)];
    is_told_and_changed(&dir, &[program.to_str().expect("a readable path")], "C++", &all);
}

#[test]
fn of_python() {
    let Some(python) = python() else { return };
    let dir = Dir::new();
    let script = source("buffered.py");
    let [python, script] = [&python, &script].map(|path| path.to_str().expect("a readable path"));
    let mut asked = dir.command(python);
    let asks = "import io, os; n = io.DEFAULT_BUFFER_SIZE; print(n if n > 8192 else os.stat('.').st_blksize)";
    asked.args(["-c", asks]);
    let default = Running::start(asked).finish().success().stdout.trim().parse().expect("a size");
    let (text, binary) = ("TextIOWrapper", "BufferedWriter");
    let all = [
        Told { file: "lines", class: text, bytes: 8192, certain: true, exact: true },
        Told { file: "records", class: binary, bytes: default, certain: true, exact: true },
        Told { file: "pieces", class: binary, bytes: default, certain: true, exact: false },
    ];
    is_told_and_changed(&dir, &[python, "-B", script], "Python", &all);
    let (_, report) = dir.run(&[], &[python, "-B", script, "0"]);
    assert_eq!(buffer(&report, "mixed"), &Value::Null, "records of the program's own");
}

#[test]
fn of_java() {
    if ["java", "javac"].iter().any(|program| find(program).is_none()) {
        return;
    }
    let dir = Dir::new();
    let mut compile = dir.command("javac");
    compile.args(["-d", "."]).arg(source("Buffered.java"));
    Running::start(compile).finish().success();
    let of = |file, certain, exact| {
        let class = "BufferedOutputStream or Writer";
        Told { file, class, bytes: 8192, certain, exact }
    };
    let all = [of("lines", false, true), of("records", false, true), of("pieces", true, false)];
    let words = ["java", "-Xshare:off", "-XX:-UsePerfData", "-cp", ".", "Buffered"];
    is_told_and_changed(&dir, &words, "Java", &all);
}

/// Makes the trace from what strace wrote, and reports.
fn imported(dir: &Dir, strace: &Path) -> Report {
    let mut import = dir.cawl(&["import", "--from", "strace"]);
    import.arg(strace).arg("-o").arg(dir.trace());
    Running::start(import).finish().success();
    let mut replay = dir.cawl(&["replay", "--json"]);
    replay.arg(dir.trace());
    Report::parse(&Running::start(replay).finish().success().stdout)
}

fn is_of_go(told: &Value, writes: usize) {
    let of = [&told["language"], &told["class"]].map(|name| name.as_str().unwrap_or_default().to_owned());
    assert_eq!(of, ["Go", "bufio.Writer"], "{told:#}");
    let counts = ["bytes", "writes", "others"].map(|count| told[count].as_u64().expect("a count"));
    assert_eq!((counts, &told["certain"]), ([4096, writes as u64 - 1, 1], &Value::Bool(false)));
}

#[test]
fn of_go_in_a_stored_recording() {
    let dir = Dir::new();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cawl-import/tests/data/strace/go.txt");
    is_of_go(buffer(&imported(&dir, &stored), "log"), 15);
    assert_eq!(sizes(&dir, &enlarged(&dir), "log"), [14 * 4096 + 1546]);
    // Of another program the same sizes tell nothing.
    let other = dir.path().join("other.txt");
    let text = fs::read_to_string(&stored).expect("a recording");
    fs::write(&other, text.replace("hpage_pmd_size", "enabled")).expect("a new file");
    assert_eq!(buffer(&imported(&dir, &other), "log"), &Value::Null);
    assert_eq!(sizes(&dir, &enlarged(&dir), "log").len(), 15);
}

#[test]
#[ignore = "long: compiles the library of Go"]
fn of_go() {
    if ["go", "strace"].iter().any(|program| find(program).is_none()) {
        return;
    }
    let dir = Dir::new();
    let mut build = dir.command("go");
    build.args(["build", "-o", "program"]).arg(source("buffered.go")).env("GOCACHE", dir.path().join("go"));
    Running::start(build).finish().success();
    let strace = |size: &str| -> Option<PathBuf> {
        let out = dir.path().join(size);
        let mut strace: Command = dir.command("strace");
        strace.args(["-f", "-ttt", "-T", "-y", "-s", "64", "-o"]).arg(&out);
        strace.args(["./program", "log", size]);
        Running::start(strace).finish().status.success().then_some(out)
    };
    let (Some(default), Some(larger)) = (strace("0"), strace(LARGER.0)) else {
        return skipped("strace may not trace here");
    };
    let report = imported(&dir, &default);
    is_of_go(buffer(&report, "log"), sizes(&dir, &dir.trace(), "log").len());
    let on_paper = sizes(&dir, &enlarged(&dir), "log");
    imported(&dir, &larger);
    assert_eq!(on_paper, sizes(&dir, &dir.trace(), "log"));
}

/// Blocks of the program's own, at their end a part of one, and pages of a database.
#[test]
fn programs_with_blocks_of_their_own_have_none() {
    let dir = Dir::new();
    let make = |commands: &str| {
        let (finished, report) = dir.run(&[], &["sh", "-ec", commands]);
        finished.success();
        for file in report["files"].as_array().expect("a list") {
            assert_eq!(file["patterns"]["buffer"], Value::Null, "{file:#}");
        }
        let mut whatif = dir.cawl(&["whatif", "--json", "--buffer", LARGER.1, "--on", "*/own*"]);
        whatif.arg(dir.trace());
        let answer: Value =
            serde_json::from_str(&Running::start(whatif).finish().success().stdout).expect("JSON");
        let writes = |costs: &Value| {
            let ops = costs["ops"].as_array().expect("a list");
            ops.iter().find(|op| op["op"] == "write").and_then(|op| op["calls"].as_u64())
        };
        assert_eq!(writes(&answer["after"]), writes(&answer["before"]), "{answer:#}");
    };
    make(
        "for size in 4096 8191 8192 65536 131072; do \
           head -c 1000000 /dev/zero | dd of=own$size bs=$size iflag=fullblock; done; \
         cp own8192 own-copy; cat own8192 > own-cat",
    );
    if find("sqlite3").is_some() {
        make(
            "sqlite3 own.db 'pragma journal_mode=wal; create table t(a, b); \
               with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) \
               insert into t select i, hex(i) from n; pragma wal_checkpoint(truncate); vacuum'",
        );
    }
}
