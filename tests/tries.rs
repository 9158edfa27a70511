//! What `run --try` changes, and what it must not: the files, output and exit status of a program are those
//! that it has alone.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use cawl_kit::{Dir, Finished, Report, Running, app, find, skipped, tree};

type Counts = BTreeMap<String, i64>;

/// What the program of tests/apps wrote into "counts", which is removed.
fn counts(dir: &Dir) -> Counts {
    let path = dir.work().join("counts");
    let Ok(text) = fs::read_to_string(&path) else { return Counts::new() };
    fs::remove_file(path).expect("it is ours");
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ').expect("NAME COUNT");
        (name.to_owned(), value.parse().expect("a number"))
    };
    text.lines().map(pair).collect()
}

/// Runs a program alone and with these options of `run`, and compares them: what the kernel counted in both,
/// what `cawl-cli` said, and the report.
fn compared<S: AsRef<OsStr>>(
    options: &[&str],
    program: &[S],
    prepare: impl Fn(&Path),
) -> (Counts, Counts, Finished, Report) {
    let dir = Dir::new();
    prepare(&dir.work());
    let mut command = dir.command(&program[0]);
    command.args(&program[1..]);
    let alone = Running::start(command).finish();
    let counted = counts(&dir);
    let files = tree(&dir.work());
    dir.clear();
    prepare(&dir.work());
    let (finished, report) = dir.run(options, program);
    let changed = counts(&dir);
    assert_eq!((&alone.stdout, alone.status), (&finished.stdout, finished.status), "{}", finished.stderr);
    let other = tree(&dir.work());
    assert_eq!(files.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, entry) in &files {
        assert!(*entry == other[name], "{} is not the same", name.display());
    }
    (counted, changed, finished, report)
}

fn tried(changes: &[&str], mode: &str) -> (Counts, Counts, Finished, Report) {
    let options: Vec<&str> = changes.iter().flat_map(|change| ["--try", change]).collect();
    compared(&options, &[app("tried").as_os_str(), mode.as_ref()], |_| {})
}

fn notes(report: &Report) -> Vec<&str> {
    report["notes"].as_array().expect("notes").iter().filter_map(|note| note.as_str()).collect()
}

/// True if the kernel does not tell what is asked for, or the filesystem is memory.
fn untold(counts: &Counts) -> bool {
    let untold = counts["tmpfs"] == 1 || counts.values().any(|count| *count < 0);
    if untold {
        skipped("the kernel tells no cached pages of files here");
    }
    untold
}

#[test]
fn streams_get_larger_buffers_and_keep_their_own() {
    for mode in ["streams", "exec"] {
        let (alone, changed, _, report) = tried(&["buffer=1M"], mode);
        for name in ["plain", "again"] {
            assert!(alone[name] > 50 && changed[name] <= 3, "{name}: {alone:?}, {changed:?}");
        }
        assert!(alone["others"] > 150 && changed["others"] <= 4, "{alone:?}, {changed:?}");
        for name in ["both", "own", "by-line", "unbuffered"] {
            assert_eq!(alone[name], changed[name], "{name}");
        }
        assert!(notes(&report)[0].starts_with("tried: buffer=1M:"), "{:?}", notes(&report));
        report.all_seen();
    }
}

#[test]
fn files_are_written_back_and_dropped_behind_the_writer() {
    let (alone, paced, _, report) = tried(&["pace=8M"], "big");
    assert_eq!(report.calls_of("sync_file_range"), 8, "only the program's own: {report:?}");
    let (_, dropped, _, report) = tried(&["pace=4M,dontneed"], "big");
    assert!(notes(&report)[0].starts_with("tried: pace=4M, dontneed:"), "{:?}", notes(&report));
    assert_eq!(report.calls_of("posix_fadvise"), 0, "{report:?}");
    if untold(&alone) {
        return;
    }
    let whole = 32 << 8;
    assert!(alone["dirty-dirty"] > paced["dirty-dirty"], "{alone:?}, {paced:?}");
    for name in ["clean-cached", "both-cached"] {
        // The kernel may reclaim some of it meanwhile.
        assert!(alone[name] > whole * 3 / 4, "{alone:?}");
        assert!(dropped[name] <= whole / 2, "{dropped:?}");
    }
}

#[test]
fn syncs_that_are_left_out_are_told_in_capitals() {
    let (alone, changed, finished, report) = tried(&["fsync=none"], "syncs");
    let warning = "A CRASH OF THE MACHINE LOSES DATA";
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    assert!(notes(&report).iter().any(|note| note.contains(warning)), "{:?}", notes(&report));
    if untold(&alone) {
        return;
    }
    for name in ["fsync-dirty", "fdatasync-dirty"] {
        assert!(alone[name] == 0 && changed[name] > 0, "{name}: {alone:?}, {changed:?}");
    }
    assert_eq!(changed["vfork-dirty"], 0, "a vfork child's is made");
}

#[test]
fn space_is_allocated_before_the_writer_and_given_back() {
    let (alone, changed, ..) = tried(&["preallocate"], "space");
    if alone["tmpfs"] == 1 {
        return skipped("this filesystem is memory");
    }
    if changed["alone"] <= alone["alone"] {
        return skipped("this filesystem allocates nothing, or has no room");
    }
    assert!(changed["alone"] >= 16 << 20, "{changed:?}");
    for name in ["alone-closed", "twice", "twice-closed", "appended", "read-too", "read-too-closed"] {
        // Delayed allocation may have rounded up.
        assert!(changed[name] < 8 << 20, "{name}: {alone:?}, {changed:?}");
    }
}

#[test]
fn real_programs_do_the_same_with_every_change() {
    let script = "awk 'BEGIN { for (i = 0; i < 100000; i++) print i, i * i > \"numbers\" }' && cp numbers copy \
                  && dd if=/dev/zero of=zeros bs=1M count=20 conv=fsync 2>/dev/null && sort -r -o sorted numbers \
                  && gzip -n -c zeros > zeros.gz && cat numbers numbers >> copy && wc -c * && sh -c 'exit 5'";
    let database = "CREATE TABLE t(a, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) \
                    INSERT INTO t SELECT i, hex(i) FROM n; SELECT count(*), max(b) FROM t;";
    let mut programs = vec![vec!["sh", "-c", script]];
    if find("sqlite3").is_some() {
        programs.push(vec!["sqlite3", "base.db", database]);
    }
    for program in programs {
        let all = ["--try", "buffer=1M,pace=2M,dontneed", "--try", "fsync=none,preallocate"];
        let (.., report) = compared(&all, &program, |_| {});
        report.all_seen();
        assert_eq!(report.calls_of("fsync") + report.calls_of("fdatasync"), 0, "{report:?}");
    }
}

/// Not by the variable either, unless it was asked for.
#[test]
fn without_it_nothing_changes() {
    let program = app("tried");
    for mode in ["streams", "syncs"] {
        let (alone, traced, finished, report) = compared(&[], &[program.as_os_str(), mode.as_ref()], |_| {});
        assert_eq!(alone, traced);
        assert!(!finished.stderr.contains("tried") && notes(&report).is_empty(), "{finished:?}");
    }
    let dir = Dir::new();
    let mut command = dir.run_command(&[], &[program.as_os_str(), "streams".as_ref()]);
    command.env("CAWL_TRY", "buffer=1048576");
    Running::start(command).finish();
    assert!(counts(&dir)["plain"] > 50, "another run's changes are not inherited");
}

#[test]
fn it_is_said_before_and_in_every_form_of_the_report() {
    let dir = Dir::new();
    let program = app("tried");
    let run = |options: &[&str]| {
        dir.clear();
        let mut command = dir.cawl(&["run", "--try", "buffer=1M", "--try=pace=8M"]);
        command.args(options).arg("--").arg(&program).arg("streams");
        Running::start(command).finish()
    };
    let finished = run(&[]);
    let said = |text: &str| {
        text.split_whitespace().collect::<Vec<_>>().join(" ").matches("tried: buffer=1M, pace=8M").count()
    };
    assert_eq!(said(&finished.stderr), 2, "{}", finished.stderr);
    for name in ["report.html", "report.txt"] {
        let path = dir.path().join(name);
        assert_eq!(said(&run(&["--report", path.to_str().expect("a path")]).stderr), 1);
        assert!(said(&fs::read_to_string(path).expect("a report")) >= 1, "{name}");
    }
}

#[test]
fn what_is_no_change_is_wrong_usage() {
    let dir = Dir::new();
    for wrong in ["buffer", "buffer=0", "pace=", "fsync", "fsync=end", "dontneed=1M", "everything", ""] {
        let mut command = dir.cawl(&["run", "--try", wrong]);
        command.args(["--", "true"]);
        let finished = Running::start(command).finish();
        assert_eq!(finished.status.code(), Some(2), "{wrong}: {finished:?}");
        let named = wrong.starts_with("buffer=") || wrong.starts_with("pace=");
        let list = "buffer=SIZE, pace=SIZE, dontneed, fsync=none or preallocate";
        assert!(named || finished.stderr.contains(list), "{wrong}: {}", finished.stderr);
    }
}
