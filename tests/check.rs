//! Whether pages would keep what several processes write: planted cases, sqlite and PostgreSQL.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cawl_core::Record;
use cawl_host::trace::{TraceFile, TraceReader, WhenFull};
use cawl_kit::{Dir, Finished, Running, compiled, find, skipped};
use nix::unistd::geteuid;
use serde_json::Value;

use crate::programs::postgres;

fn check(dir: &Dir, args: &[&str]) -> Finished {
    let mut command = dir.cawl(&["check"]);
    command.args(args);
    Running::start(command).finish()
}

/// The answer about the latest run, and the exit code that goes with its verdict.
fn checked(dir: &Dir) -> Value {
    let finished = check(dir, &["--json", dir.trace().to_str().expect("UTF-8")]);
    let answer: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    finished.code(i32::from(answer["verdict"] == "not safe"));
    answer
}

fn none_missing() -> Value {
    serde_json::json!({ "dropped": 0, "unseen": 0, "bytes": 0, "uncounted_processes": 0, "notes": [] })
}

/// What becomes of the files of a planted case.
fn planted(way: &str) -> (Dir, Value) {
    let dir = Dir::new();
    let app = dir.app("sharing");
    dir.run(&[], &[app.to_str().expect("UTF-8"), way]).0.success();
    let answer = checked(&dir);
    assert_eq!(answer["missing"], none_missing(), "{answer:#}");
    (dir, answer)
}

fn verdict(way: &str) -> String {
    planted(way).1["verdict"].as_str().expect("a verdict").to_owned()
}

/// The text, which has no line beyond 80 columns.
fn text(dir: &Dir) -> String {
    let text = check(dir, &[dir.trace().to_str().expect("UTF-8")]).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn halves_of_a_page_by_two_processes_are_not_safe() {
    let (dir, answer) = planted("halves");
    assert_eq!((&answer["schema"], &answer["verdict"]), (&1.into(), &"not safe".into()), "{answer:#}");
    let file = &answer["files"][0];
    assert!(file["path"].as_str().is_some_and(|path| path.ends_with("/data")), "{answer:#}");
    assert_eq!(file["overlap"], Value::Null, "{file:#}");
    let shared = &file["shared"];
    assert_eq!((&shared["pages"], &shared["first"]["page"]), (&1.into(), &0.into()), "{file:#}");
    let [first, second] = ["first", "second"].map(|which| &shared["first"][which]);
    assert_eq!((&first["from"], &first["to"]), (&0.into(), &2048.into()), "{file:#}");
    assert_eq!((&second["from"], &second["to"]), (&2048.into(), &4096.into()), "{file:#}");
    assert_ne!(first["process"]["pid"], second["process"]["pid"]);
    assert!(second["at_s"].as_f64() >= first["at_s"].as_f64(), "{file:#}");
    let text = in_one_line(&text(&dir));
    for said in
        ["not safe: in 1 file", "wrote 0 to 2047 at", "did not flush", "let each process write whole pages"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn locks_and_flushes_put_writes_in_order() {
    for way in ["locked", "lock only", "advised"] {
        let (_, answer) = planted(way);
        assert_eq!(answer["verdict"], "in order", "{way}: {answer:#}");
        assert_eq!(answer["files"][0]["in_order"], 1, "{way}: {answer:#}");
    }
    let (dir, answer) = planted("synced");
    assert_eq!(answer["verdict"], "not safe", "nobody looked after the fsync");
    assert_eq!(answer["files"][0]["shared"]["first"]["flushed"], true, "{answer:#}");
    assert!(in_one_line(&text(&dir)).contains("flushed; sharing"));
}

#[test]
fn files_pages_and_threads_of_ones_own_are_safe() {
    let (dir, answer) = planted("files");
    assert_eq!((&answer["verdict"], &answer["processes"]), (&"one process".into(), &2.into()), "{answer:#}");
    assert!(text(&dir).contains("file per process: safe"));
    assert_eq!((verdict("pages"), verdict("whole")), ("own pages".to_owned(), "whole pages".to_owned()));
    let (_, threads) = planted("threads");
    assert_eq!((&threads["verdict"], &threads["processes"]), (&"one process".into(), &1.into()));
}

/// The second process stores to a page that is dirty already, which nobody sees.
#[test]
fn a_file_that_several_may_have_mapped_is_not_called_safe() {
    let (dir, answer) = planted("mapped");
    let file = &answer["files"][0];
    assert!(file["mapped"].as_u64() >= Some(1), "{answer:#}");
    assert_eq!(
        (&answer["verdict"], &file["verdict"]),
        (&"not judged".into(), &"not judged".into()),
        "{answer:#}"
    );
    assert!(!text(&dir).contains("safe"));
}

/// What is missing may be what is not safe.
#[test]
fn a_trace_without_its_end_is_not_judged() {
    let (dir, answer) = planted("files");
    assert_eq!(answer["verdict"], "one process", "{answer:#}");
    let bytes = fs::read(dir.trace()).expect("a trace");
    fs::write(dir.trace(), &bytes[..bytes.len() - 1]).expect("it is ours");
    let trace = dir.trace();
    let finished = check(&dir, &[trace.to_str().expect("UTF-8")]).code(1);
    assert!(finished.stdout.contains("not judged: not all of the calls are known"), "{}", finished.stdout);
    let told = check(&dir, &["--json", trace.to_str().expect("UTF-8")]).code(1);
    let answer: Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert_eq!(answer["verdict"], "not judged");
}

/// What is known of a trace that lacks calls, by this part of the text.
fn lacking(command: &[&str], told: &str) -> Option<Value> {
    let dir = Dir::new();
    dir.run(&["--via", "preload"], command);
    let trace = dir.trace();
    let trace = trace.to_str().expect("UTF-8");
    let text = in_one_line(&check(&dir, &[trace]).code(1).stdout);
    assert!(text.contains("not judged: not all") && text.contains(told), "{text}");
    let answer: Value = serde_json::from_str(&check(&dir, &["--json", trace]).code(1).stdout).ok()?;
    assert_eq!(answer["verdict"], "not judged");
    Some(answer["missing"].clone())
}

#[test]
fn a_trace_that_lacks_calls_is_not_judged() {
    let dir = Dir::new();
    let app = dir.app("sharing");
    let killed = lacking(&[app.to_str().expect("UTF-8"), "killed"], "ended without notice");
    assert_eq!(killed.expect("JSON")["notes"].as_array().map(Vec::len), Some(1));
    let Ok(app) = compiled("sharing", &["-static"]) else { return skipped("cc -static does not work here") };
    let command = format!("cd {} && {} files", dir.path().display(), app.display());
    let unseen = lacking(&["sh", "-c", &command], "which the kernel counted").expect("JSON");
    assert!(unseen["bytes"].as_u64() >= Some(4096), "{unseen}");
}

#[test]
fn the_same_bytes_and_appended_lines_are_told_as_such() {
    let (_, same) = planted("same");
    assert_eq!(same["files"][0]["overlap"]["pages"], 1, "{same:#}");
    let (dir, append) = planted("append");
    let file = &append["files"][0];
    assert_eq!((&file["shared"]["pages"], &file["appends"]), (&1.into(), &true.into()), "{append:#}");
    assert!(in_one_line(&text(&dir)).contains("let one process write this file"));
}

#[test]
fn records_that_do_not_fit_pages_are_told() {
    let (dir, answer) = planted("records");
    let file = &answer["files"][0];
    let record = &file["record"];
    assert_eq!((&record["bytes"], &record["calls"]), (&47008.into(), &16.into()), "{answer:#}");
    // Sixteen records have fifteen borders, none of them between pages.
    assert_eq!(
        (&answer["verdict"], &file["shared"]["pages"]),
        (&"not safe".into(), &15.into()),
        "{answer:#}"
    );
    let text = in_one_line(&text(&dir));
    assert!(text.contains("pad records to 49152 B") && text.contains("47008 B"), "{text}");
}

/// Records of a trace as another host would have told them.
fn of_host(from: &Path, to: &Path, host: &str) {
    let mut reader = TraceReader::open(from).expect("a trace");
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().expect("a sound trace") {
        records.push(record);
    }
    let mut writer = TraceFile::create(to, WhenFull::Wait).expect("a new file");
    for mut record in records {
        if let Record::Host(facts) = &mut record {
            facts.host = host.to_owned();
        }
        writer.push(&record);
    }
    assert_eq!(writer.finish(), None);
}

#[test]
fn traces_of_several_hosts_share_files_by_path() {
    let dir = Dir::new();
    let run = |part: &str, name: &str| {
        let script = format!("printf {part} >> shared; exec 3> own-{part}; printf {part} >&3");
        dir.run(&[], &["sh", "-c", &script]).0.success();
        let trace = dir.path().join(name);
        fs::rename(dir.trace(), &trace).expect("the same folder");
        trace.to_str().expect("UTF-8").to_owned()
    };
    let (one, two) = (run("aaa", "one.cawl"), run("bbb", "two.cawl"));
    // One after the other: the first one's end comes before the second one's open.
    let order = check(&dir, &["--json", &one, &two]).code(0);
    let order: Value = serde_json::from_str(&order.stdout).expect("JSON");
    assert_eq!(
        (&order["verdict"], &order["files_by"]),
        (&"in order".into(), &"identity".into()),
        "{order:#}"
    );
    assert_eq!(order["traces"].as_array().map(Vec::len), Some(2));
    let far = dir.path().join("far.cawl");
    of_host(Path::new(&two), &far, "far");
    let far = far.to_str().expect("UTF-8");
    let hosts = check(&dir, &["--json", &one, far]);
    let hosts: Value = serde_json::from_str(&hosts.stdout).expect("JSON");
    assert_eq!(hosts["files_by"], "path", "{hosts:#}");
    let shared = hosts["files"].as_array().and_then(|files| {
        files.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with("/shared")))
    });
    let processes = shared.and_then(|file| file["processes"].as_array()).expect("a shared file");
    let traces: Vec<&Value> = processes.iter().map(|process| &process["trace"]).collect();
    assert!(traces.contains(&&1.into()) && traces.contains(&&2.into()), "{hosts:#}");
    check(&dir, &[&one, &one]).code(2).says("is named twice");
}

#[test]
fn what_cannot_be_read_is_told() {
    let (dir, _) = planted("halves");
    let whole = fs::read(dir.trace()).expect("a trace");
    let damaged = dir.path().join("damaged.cawl");
    fs::write(&damaged, &whole[..whole.len() - 1]).expect("a new file");
    let damaged = damaged.to_str().expect("UTF-8");
    let answer: Value =
        serde_json::from_str(&check(&dir, &["--json", damaged]).code(1).stdout).expect("JSON");
    assert!(
        answer["traces"][0]["damage"].as_str().is_some_and(|text| text.contains("damaged")),
        "{answer:#}"
    );
    assert!(check(&dir, &[damaged]).stdout.contains("note "));
    fs::write(dir.work().join("empty"), "").expect("a new file");
    check(&dir, &["empty"]).code(1).says("the trace empty is empty");
    check(&dir, &["missing"]).code(1).says("cannot read the trace missing");
    check(&dir, &[]).code(2);
}

/// Keys of an answer, at any depth, but for those of files by verdict.
fn keys(answer: &Value, found: &mut BTreeSet<String>) {
    match answer {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            if key != "verdicts" {
                keys(value, found);
            }
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn each_key_is_documented() {
    let page = include_str!("../docs/reference/CHECK.md");
    let mut found = BTreeSet::new();
    for way in ["records", "same", "whole"] {
        let (_, answer) = planted(way);
        keys(&answer, &mut found);
        for verdict in answer["verdicts"].as_object().expect("verdicts").keys() {
            assert!(page.contains(&format!("| `{verdict}` |")), "{verdict} is not explained");
        }
    }
    for key in ["overlap", "shared", "whole", "partial", "record"] {
        assert!(found.contains(key), "{key} is in no answer");
    }
    let missing: Vec<&String> = found.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/CHECK.md lacks {missing:?}");
}

/// Files of a database that are not safe.
fn unsafe_files(answer: &Value) -> Vec<String> {
    let files = answer["files"].as_array().expect("files").iter();
    let not_safe = files.filter(|file| file["verdict"] == "not safe");
    not_safe.map(|file| file["path"].as_str().expect("a path").to_owned()).collect()
}

#[test]
fn sqlite_is_safe_by_its_locks() {
    if find("sqlite3").is_none() {
        return;
    }
    for mode in ["delete", "wal"] {
        let dir = Dir::new();
        let script = format!(
            "sqlite3 db 'pragma journal_mode={mode}; create table t(a, b);' > /dev/null
             for process in 1 2; do
                 (for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
                      echo \".timeout 100000\"; echo \"insert into t values($process, randomblob(900));\"
                  done | sqlite3 db > /dev/null) &
             done; wait; sqlite3 db 'select count(*) from t;'"
        );
        let (finished, _) = dir.run(&["--wait"], &["sh", "-c", &script]);
        assert_eq!(finished.success().stdout, "24\n");
        let answer = checked(&dir);
        assert_eq!(unsafe_files(&answer), Vec::<String>::new(), "{mode}: {answer:#}");
        let is_shared = |file: &Value| file["processes"].as_array().is_some_and(|list| list.len() > 1);
        let files = answer["files"].as_array().expect("files");
        assert!(files.iter().any(is_shared), "{mode}: {answer:#}");
    }
}

#[test]
fn postgresql_writes_whole_pages() {
    let Some(bin) = postgres() else { return skipped("postgresql is not installed") };
    let dir = if geteuid().is_root() { Dir::of("postgres") } else { Some(Dir::new()) };
    let Some(dir) = dir else { return };
    let script = format!(
        "PATH={}:$PATH; D=$PWD/db; initdb -D $D --no-locale -A trust > init.log 2>&1 || exit
         pg_ctl -D $D -w -l log -o \"-k $PWD -c listen_addresses= -c shared_buffers=1MB\" start > /dev/null || exit
         pgbench -h $PWD -i -s 1 -q postgres > /dev/null 2>&1 || exit
         pgbench -h $PWD -n -c 2 -t 200 postgres > /dev/null 2>&1 || exit
         psql -h $PWD -qc checkpoint postgres; pg_ctl -D $D -w -m fast stop > /dev/null",
        bin.display()
    );
    dir.run(&["--wait"], &["sh", "-c", &script]).0.success();
    let answer = checked(&dir);
    // The server's log is appended to by its processes, and told.
    let not_safe: Vec<String> =
        unsafe_files(&answer).into_iter().filter(|path| path.contains("/db/")).collect();
    assert_eq!(not_safe, Vec::<String>::new(), "{answer:#}");
    let shared = |file: &&Value| file["processes"].as_array().is_some_and(|list| list.len() > 1);
    let tables = answer["files"].as_array().expect("files").iter().filter(shared).count();
    assert!(tables > 5, "{tables} files that several processes write: {answer:#}");
}
