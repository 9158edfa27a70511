//! Tables of calls that the daemon writes (`cawld --calls-to`): each call once, and what is missing is
//! counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cawl_kit::{Daemon, Dir, Running, SmallDisk, find, skipped};
use nix::sys::signal::Signal;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

/// A file: its path, metadata without `cawl.`, and rows.
struct Table {
    path: PathBuf,
    facts: BTreeMap<String, String>,
    rows: Vec<BTreeMap<String, Value>>,
}

impl Table {
    fn read(path: PathBuf) -> Table {
        let reader = SerializedFileReader::new(fs::File::open(&path).expect("a file")).expect("a whole file");
        let facts = reader.metadata().file_metadata().key_value_metadata().expect("facts").clone();
        let facts = facts
            .into_iter()
            .filter_map(|fact| Some((fact.key.strip_prefix("cawl.")?.to_owned(), fact.value?)));
        let value = |field: &Field| match field {
            Field::Null => Value::Null,
            Field::Bool(value) => (*value).into(),
            Field::Long(value) => (*value).into(),
            Field::Str(value) => value.as_str().into(),
            other => panic!("{other:?}"),
        };
        let rows = reader.get_row_iter(None).expect("rows").map(|row| {
            row.expect("a row").get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
        });
        Table { facts: facts.collect(), rows: rows.collect(), path }
    }

    fn fact(&self, name: &str) -> u64 {
        self.facts.get(name).map_or(0, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    }
}

/// The tables of a folder, by name: by daemon and number, if there is one hour. Nothing else may have a name
/// that readers of tables take.
fn tables(folder: &Path) -> Vec<Table> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            if path.is_dir() {
                folders.push(path);
            } else if !name.starts_with('.') {
                assert!(name.ends_with(".parquet"), "{name}");
                files.push(path);
            }
        }
    }
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    files.into_iter().map(Table::read).collect()
}

fn int(row: &BTreeMap<String, Value>, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row:#?}"))
}

/// A program that makes so many writes, and few other calls, through the daemon.
fn write(dir: &Dir, count: u32) {
    let count = format!("count={count}");
    let mut command = dir.cawl(&["run", "--report", "r.json", "--socket"]);
    command.arg(dir.socket()).args(["--", "dd", "if=/dev/zero", "of=out", "bs=4k", &count]);
    Running::start(command).finish().success();
}

/// What no restart changes: numbers without a gap, each row once, and counts that are those of the rows.
fn check(tables: &[Table]) {
    let mut of: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut calls = BTreeSet::new();
    for table in tables {
        let start = table.facts["daemon_start"].as_str();
        let (files, rows) = of.entry(start).or_default();
        (*files, *rows) = (*files + 1, *rows + table.rows.len() as u64);
        assert_eq!(table.fact("sequence"), *files, "{}", table.path.display());
        assert_eq!((table.fact("rows"), table.fact("rows_written")), (table.rows.len() as u64, *rows));
        for row in &table.rows {
            assert!(calls.insert((start, int(row, "call"))), "twice: {row:#?}");
        }
        // The partition is the hour of each row.
        let unix: f64 = table.facts["traced_at_unix_s"].parse().expect("a time");
        let offset = unix * 1e9 - table.fact("traced_at_ns") as f64;
        let hour = |row| ((int(row, "start_ns") as f64 + offset) / 3.6e12).floor() as i64;
        let hours: BTreeSet<i64> = table.rows.iter().map(hour).collect();
        assert_eq!(hours.len(), 1, "{}", table.path.display());
        let [year, month, day, of_day, ..] = cawl_host::clock::utc(hours.first().expect("one") * 3600);
        let partition = format!("node=a%2Fb/date={year:04}-{month:02}-{day:02}/hour={of_day:02}");
        assert!(
            table.path.parent().is_some_and(|folder| folder.ends_with(partition)),
            "{}",
            table.path.display()
        );
    }
}

#[test]
fn each_call_is_in_a_table_as_in_an_export_of_the_trace() {
    let dir = Dir::new();
    let args = ["--trace", "all.trace", "--calls-to", "calls", "--calls-every", "20K,10m", "--node", "a/b"];
    let daemon = Daemon::start(&dir, &args);
    write(&dir, 3000);
    // Of a file that is opened to be read, the tracer tells how much is cached: that is no call.
    let mut command = dir.cawl(&["run", "--report", "r.json", "--socket"]);
    command.arg(dir.socket()).args(["--", "dd", "if=out", "of=/dev/null", "bs=4k"]);
    Running::start(command).finish().success();
    daemon.status_when(|status| status["calls_to"]["rows"].as_u64() >= Some(6000));
    daemon.end(Signal::SIGTERM).success();
    let tables = tables(&dir.work().join("calls"));
    check(&tables);
    assert!(tables.len() > 2, "they are closed by size");
    assert_eq!(
        fs::read_dir(dir.work().join("calls")).expect("a folder").count(),
        1,
        "nothing half written is left"
    );
    // As the trace has them, by other code, with models that did not run live.
    let mut export =
        dir.cawl(&["export", "all.trace", "--to", "json", "--lockstep", "--model", "kernel,cawl,naive"]);
    export.env("RUST_BACKTRACE", "1");
    let text = Running::start(export).finish().success().stdout;
    let exported: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let rows: Vec<_> = tables.iter().flat_map(|table| &table.rows).collect();
    assert_eq!(rows.len(), exported.len());
    let of_calls = [
        "call",
        "start_ns",
        "duration_ns",
        "op",
        "pid",
        "tid",
        "program",
        "path",
        "kind",
        "offset",
        "size",
        "bytes",
    ];
    for (row, exported) in rows.iter().zip(&exported) {
        assert_eq!(int(row, "weight"), 1);
        let columns: BTreeSet<&String> = row.keys().filter(|name| *name != "weight").collect();
        assert_eq!(columns, exported.as_object().expect("a row").keys().collect());
        for column in of_calls {
            assert_eq!(row[column], exported[column], "{column} of {exported:#}");
        }
        let causes = row.iter().filter(|(name, value)| {
            name.ends_with("_ns")
                && !name.starts_with("predicted")
                && !value.is_null()
                && !["start_ns", "duration_ns", "low_ns", "high_ns"].contains(&name.as_str())
        });
        let sum: u64 = causes.filter_map(|(_, value)| value.as_u64()).sum();
        assert!(row["cause"].is_null() || sum == int(row, "duration_ns"), "{row:#?}");
    }
    assert_eq!(tables.last().expect("a table").fact("calls_analysed"), rows.len() as u64);
}

#[test]
fn sums_with_weights_are_those_of_all_calls() {
    let dir = Dir::new();
    let daemon = Daemon::start(
        &dir,
        &["--calls-to", "calls", "--calls-of", "slower than 10s or 1 in 50", "--node", "a/b"],
    );
    write(&dir, 5000);
    let status = daemon.status_when(|status| status["calls"].as_u64() >= Some(5000));
    daemon.end(Signal::SIGTERM).success();
    let tables = tables(&dir.work().join("calls"));
    check(&tables);
    let rows = || tables.iter().flat_map(|table| &table.rows);
    let sum =
        |column: &str| rows().map(|row| int(row, "weight") * row[column].as_u64().unwrap_or(0)).sum::<u64>();
    assert!(rows().all(|row| int(row, "weight") == 50));
    let calls = rows().count() as u64 * 50;
    let seen = tables.last().expect("a table").fact("calls_analysed");
    assert!(calls.abs_diff(seen) <= 50, "{calls} of {seen} in {status:#}");
    let bytes = 5000 * 4096;
    assert!(sum("bytes").abs_diff(bytes) < bytes / 20, "{} of {bytes}", sum("bytes"));
}

#[test]
fn what_a_killed_daemon_had_is_counted_by_the_next() {
    let dir = Dir::new();
    let args = ["--calls-to", "calls", "--calls-every", "20K,10m", "--node", "a/b"];
    let daemon = Daemon::start(&dir, &args);
    write(&dir, 3000);
    let taken = |status: &Value| status["calls_to"]["rows"].as_u64().unwrap_or(0);
    let status = daemon.status_when(|status| taken(status) >= 3000 && taken(status) == status["calls"]);
    daemon.end(Signal::SIGKILL).signal(Signal::SIGKILL);
    // Which of two daemons was first is told in seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let daemon = Daemon::start(&dir, &args);
    write(&dir, 100);
    let again = daemon.status_when(|status| taken(status) >= 100);
    daemon.end(Signal::SIGTERM).success();
    let tables = tables(&dir.work().join("calls"));
    check(&tables);
    let first = &tables[0].facts["daemon_start"];
    let written: u64 = tables
        .iter()
        .filter(|table| table.facts["daemon_start"] == *first)
        .map(|table| table.rows.len() as u64)
        .sum();
    let next =
        tables.iter().find(|table| table.facts["daemon_start"] != *first).expect("a file of the next daemon");
    let lost = next.fact("rows_lost_before");
    assert!(lost > 0 && written > 0);
    assert_eq!(written + lost, taken(&status), "{status:#}");
    assert_eq!(again["calls_to"]["rows_lost"], lost);
    assert!(
        next.facts["ended_before"].starts_with(&format!("{first}: {lost} rows not written")),
        "{:?}",
        next.facts
    );
    assert_eq!(fs::read_dir(dir.work().join("calls")).expect("a folder").count(), 1, "nothing of it is left");
}

#[test]
fn a_full_disk_drops_and_counts() {
    let dir = Dir::new();
    let Some(small) = SmallDisk::new(&dir) else { return };
    let (folder, copy, cawld) = (small.join("calls"), dir.path().join("copy"), cawl_kit::built("cawld"));
    // The disk is the daemon's alone, so it copies what is there when it has ended.
    let script = format!(
        "{{ trap '' TERM; {} --socket {} --calls-to {} --calls-every 8K,10m --node a/b; cp -r {} {}; }}",
        cawld.display(),
        dir.socket().display(),
        folder.display(),
        folder.display(),
        copy.display()
    );
    let mut daemon = small.start(&script.replace("trap '' TERM; ", "trap : TERM; "));
    daemon.stderr_until("listening at");
    let status = || {
        let mut command = dir.cawl(&["status", "--json", "--socket"]);
        command.arg(dir.socket());
        let answer = Running::start(command).finish().success().stdout;
        serde_json::from_str::<Value>(&answer).expect("JSON")
    };
    write(&dir, 8000);
    cawl_kit::eventually("all rows are written or dropped", || {
        let told = &status()["calls_to"];
        told["rows"].as_u64() >= Some(8000) && told["rows_dropped"].as_u64() > Some(0)
    });
    daemon.signal_group(Signal::SIGTERM);
    let finished = daemon.finish();
    assert!(finished.stderr.contains("calls are left out of"), "{finished:#?}");
    let tables = tables(&copy);
    check(&tables);
    let written: usize = tables.iter().map(|table| table.rows.len()).sum();
    assert!(written > 0 && written < 8000, "{written}");
    // The last word is the ledger's, as no further file could be written.
    let ledger = fs::read_dir(&copy).expect("a folder").filter_map(|entry| {
        let path = entry.expect("an entry").path();
        (path.extension()? == "ledger").then(|| fs::read_to_string(path).expect("a text"))
    });
    let ledger = ledger.into_iter().next().expect("the ledger stays, since rows are in no file");
    let count = |key: &str| {
        let word = ledger.split_whitespace().find_map(|word| word.strip_prefix(key)).expect(key);
        word.parse::<u64>().expect("a number")
    };
    assert_eq!(count("written="), written as u64, "{ledger}");
    assert_eq!(count("taken="), count("written=") + count("dropped="), "{ledger}");
}

#[test]
fn a_folder_takes_no_more_than_its_room() {
    let dir = Dir::new();
    let args = ["--calls-to", "calls", "--calls-every", "100K,10m", "--calls-room", "1M", "--node", "a/b"];
    let daemon = Daemon::start(&dir, &args);
    let mut more = 0;
    let status = loop {
        write(&dir, 20_000);
        let status = daemon.status();
        if status["calls_to"]["rows_dropped"].as_u64() > Some(0) {
            break status;
        }
        more += 1;
        assert!(more < 40, "{status:#}");
    };
    assert!(
        status["calls_to"]["failure"].as_str().is_some_and(|why| why.contains("of files already")),
        "{status:#}"
    );
    // With room again, the next file has what was dropped.
    fs::remove_dir_all(dir.work().join("calls/node=a%2Fb")).expect("it is ours");
    let dropped = daemon.status()["calls_to"]["rows_dropped"].as_u64();
    cawl_kit::eventually("files are written again", || {
        write(&dir, 2000);
        dir.work().join("calls/node=a%2Fb").exists()
    });
    daemon.end(Signal::SIGTERM).success();
    let tables = tables(&dir.work().join("calls"));
    assert!(tables.iter().any(|table| Some(table.fact("rows_dropped")) >= dropped));
}

#[test]
fn a_clock_that_jumps_makes_no_name_twice() {
    let dir = Dir::new();
    if find("faketime").is_none() {
        return;
    }
    let libraries = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime"];
    let library =
        libraries.iter().map(|folder| Path::new(folder).join("libfaketime.so.1")).find(|path| path.exists());
    let Some(library) = library else { return skipped("libfaketime lies elsewhere") };
    let jump = dir.path().join("jump");
    let mut before = BTreeSet::new();
    for (at, steps) in [["+0", "+26h", "-3h"], ["-3h", "@1970-01-01 00:10:00", "+0"]].into_iter().enumerate()
    {
        fs::write(&jump, steps[0]).expect("a file");
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.arg("--socket").arg(dir.socket());
        command.args(["--calls-to", "calls", "--calls-every", "64M,200ms", "--node", "a/b"]);
        command.env("LD_PRELOAD", &library).env("FAKETIME_TIMESTAMP_FILE", &jump);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let mut daemon = Running::start(command);
        daemon.stderr_until("listening at");
        for step in steps {
            fs::write(&jump, step).expect("a file");
            let files = tables(&dir.work().join("calls")).len();
            cawl_kit::eventually("a file at this time", || {
                write(&dir, 200);
                tables(&dir.work().join("calls")).len() > files + 1
            });
        }
        daemon.signal(Signal::SIGTERM);
        daemon.finish().success();
        let tables = tables(&dir.work().join("calls"));
        check(&tables);
        before.extend(tables.iter().map(|table| table.path.parent().expect("a folder").to_owned()));
        assert!(before.len() > 2 + at, "{before:?}");
    }
    let names: Vec<String> = before.iter().map(|path| path.display().to_string()).collect();
    assert!(names.iter().any(|name| name.contains("date=1970-01-01/hour=00")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("=-")), "{names:?}");
}

#[test]
fn a_missing_program_is_named() {
    let dir = Dir::new();
    let alone = dir.copy(&cawl_kit::built("cawld"));
    for option in [["--calls-to", "s3://bucket/prefix"], ["--sums-to", "postgres://me@host/db"]] {
        let mut command = dir.command(&alone);
        command.arg("--socket").arg(dir.socket()).args(option);
        Running::start(command)
            .finish()
            .code(1)
            .says("the program cawl-ship is neither beside this one nor in PATH");
    }
    for (option, why) in [("--calls-to=ftp://x", "s3://BUCKET/PREFIX"), ("--calls-of=some", "is no rule")] {
        let mut command = dir.command(&alone);
        command.args([option, "--calls-to=x"]);
        Running::start(command).finish().code(2).says(why);
    }
}
