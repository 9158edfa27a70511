//! Where the time went: causes of real programs' calls, and the questions that `explain` answers.

use std::collections::BTreeSet;
use std::fs;

use cawl_core::{Bytes, DeviceCounters, FileFacts, HostProfile, Measured, Nanos, Record, Session, Time};
use cawl_host::trace::{TraceFile, TraceReader, WhenFull};
use cawl_kit::{Dir, Finished, Running, built};
use cawl_wire::{Event, FileKind, Op, flag};
use serde_json::Value;

fn explain(dir: &Dir, options: &[&str]) -> Finished {
    let mut command = dir.cawl(&["explain"]);
    command.arg(dir.trace()).args(options);
    Running::start(command).finish()
}

fn explained(dir: &Dir, options: &[&str]) -> Value {
    let options = [options, &["--json"]].concat();
    serde_json::from_str(&explain(dir, &options).success().stdout).expect("JSON")
}

fn sum(list: &Value, field: &str) -> f64 {
    list.as_array().expect("a list").iter().map(|row| row[field].as_f64().expect("a number")).sum()
}

/// Within rounding of sums in seconds.
fn are_equal(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(1.0)
}

/// The causes of an explanation are all there is.
fn adds_up(explain: &Value) {
    let causes = &explain["causes"];
    for field in ["calls", "bytes", "observed_s"] {
        assert!(are_equal(sum(causes, field), explain[field].as_f64().unwrap()), "{field}: {explain:#}");
    }
    let undisturbed = explain["best"]["undisturbed_s"].as_f64().unwrap();
    assert!(are_equal(sum(causes, "undisturbed_s"), undisturbed), "{explain:#}");
    let (observed, lost) = (explain["observed_s"].as_f64().unwrap(), explain["lost_s"].as_f64().unwrap());
    assert!(lost >= 0.0 && are_equal(undisturbed + lost, observed), "{explain:#}");
    assert!(explain["best"]["best_s"].as_f64().unwrap() <= undisturbed, "{explain:#}");
}

/// The files of a report have all of its causes, calls and bytes.
fn files_add_up(report: &Value) {
    let files = report["files"].as_array().expect("files");
    let ops: Vec<&Value> =
        files.iter().flat_map(|file| file["ops"].as_array().expect("operations")).collect();
    let explain = &report["explain"];
    for cause in explain["causes"].as_array().expect("causes") {
        let name = cause["name"].as_str().expect("a name");
        let sum: f64 = ops.iter().filter_map(|op| op["causes"][name].as_f64()).sum();
        assert!(are_equal(sum, cause["observed_s"].as_f64().unwrap()), "{name}: {sum} s, {report:#}");
    }
    for field in ["calls", "bytes", "observed_s"] {
        let sum: f64 = ops.iter().filter_map(|op| op[field].as_f64()).sum();
        assert!(are_equal(sum, explain[field].as_f64().unwrap()), "{field}: {sum}, {report:#}");
    }
    let undisturbed: f64 = ops.iter().filter_map(|op| op["undisturbed_s"].as_f64()).sum();
    assert!(undisturbed <= explain["best"]["undisturbed_s"].as_f64().unwrap() + 1e-9, "{report:#}");
}

#[test]
fn causes_add_up_and_a_trace_tells_the_same_as_the_run() {
    let dir = Dir::new();
    let script = "dd if=/dev/zero of=a bs=4k count=300 status=none
        dd if=/dev/zero of=b bs=64k count=20 oflag=dsync status=none
        dd if=/dev/zero of=c bs=1M count=4 conv=fsync status=none
        dd if=/dev/zero of=/dev/null bs=1k count=4 status=none";
    let (finished, live) = dir.run(&[], &["sh", "-c", script]);
    finished.success();
    adds_up(&live["explain"]);
    files_add_up(&live.0);
    let mut again = explained(&dir, &[]);
    adds_up(&again);
    let advice = again.as_object_mut().and_then(|explain| explain.remove("advice"));
    assert_eq!((&live["explain"], Some(&live["advice"])), (&again, advice.as_ref()));
    assert_eq!((&again["schema"], again["bytes"].as_u64()), (&1.into(), Some(6_737_920)));
    // Of each file, too.
    for file in live["files"].as_array().expect("files") {
        for op in file["ops"].as_array().expect("operations") {
            let causes: f64 =
                op["causes"].as_object().expect("causes").values().filter_map(Value::as_f64).sum();
            assert!(are_equal(causes, op["observed_s"].as_f64().unwrap()), "{op:#}");
        }
    }
    // A synchronous write waits for the device.
    let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
    let names: Vec<String> = again["causes"].as_array().unwrap().iter().map(name).collect();
    assert!(
        ["transfer", "device flush", "copy", "new pages"]
            .iter()
            .all(|cause| names.iter().any(|n| n == cause)),
        "{names:?}"
    );
}

/// The shell waits for each of them, and the kernel forgets it.
#[test]
fn short_processes_tell_their_run_delay() {
    let own = std::process::id();
    if cawl_host::schedstat(own, own).is_none_or(|(ran, _)| ran.get() == 0.0) {
        return cawl_kit::skipped("this kernel does not account run delays");
    }
    let dir = Dir::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of=f$i count=1 status=none; done";
    dir.run(&[], &["sh", "-c", script]).0.success();
    let mut reader = TraceReader::open(&dir.trace()).expect("a trace");
    let (mut writers, mut known) = (BTreeSet::new(), BTreeSet::new());
    while let Some(record) = reader.next_record().expect("a sound trace") {
        match record {
            Record::Event(event) if event.op == Op::Write => drop(writers.insert(event.pid)),
            Record::RunDelay(delay) if delay.ran.get() > 0.0 => drop(known.insert(delay.pid)),
            _ => {}
        }
    }
    assert_eq!(writers.len(), 10);
    assert!(writers.is_subset(&known), "{writers:?} {known:?}");
}

/// Kunkel's: 100 001 writes to /dev/null, all of them classed.
#[test]
fn writes_to_dev_null_are_discards() {
    let dir = Dir::new();
    let program = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1k", "count=100001", "status=none"];
    // Coalesced, and one by one.
    let mut command = dir.cawl(&["run", "--report", "short.json", "--"]);
    command.args(program);
    Running::start(command).finish().success();
    let short = fs::read_to_string(dir.work().join("short.json")).expect("a report");
    let short: Value = serde_json::from_str(&short).expect("JSON");
    dir.run(&[], &program).0.success();
    explain(&dir, &["--report", "traced.json"]).success();
    let traced = fs::read_to_string(dir.work().join("traced.json")).expect("a report");
    let traced: Value = serde_json::from_str(&traced).expect("JSON");
    for report in [&short, &traced] {
        files_add_up(report);
        let file = &report["files"][0];
        assert_eq!((&file["path"], &file["ops"][0]["op"]), (&"/dev/null".into(), &"write".into()));
        assert_eq!(file["ops"][0]["observed_s"], file["ops"][0]["undisturbed_s"], "nothing is lost");
        assert!(file.get("patterns").is_none_or(Value::is_null), "{file:#}");
        assert_eq!(report["explain"]["best"]["best_s"], 0.0, "bytes that go nowhere have no better way");
    }
    let text = explain(&dir, &[]).success().stdout;
    let row = text.lines().skip_while(|line| *line != "/dev/null").nth(1).expect("a row of /dev/null");
    assert!(row.contains("write") && row.trim_end().ends_with("discard"), "{text}");
    explain(&dir, &["--report", "page.html"]).success();
    let page = fs::read_to_string(dir.work().join("page.html")).expect("a page");
    assert!(page.contains("/<wbr>dev/<wbr>null<wbr>"), "the page has no row of /dev/null");
    for explain in [&short["explain"], &explained(&dir, &[])] {
        let causes = explain["causes"].as_array().expect("causes");
        let discard = causes.iter().find(|cause| cause["name"] == "discard").expect("discards");
        assert_eq!((&discard["calls"], &discard["bytes"]), (&100_001.into(), &102_401_024.into()));
        assert!(discard["observed_s"].as_f64() > Some(0.0), "{explain:#}");
        adds_up(explain);
    }
}

/// It is found long before the end of the trace, of which nothing is known then.
#[test]
fn a_call_of_a_long_trace_is_told_without_a_warning() {
    let dir = Dir::new();
    let row =
        |at: u32| format!("{}e-6,write,{},100,0.000002,7,7,/data/file\n", 1_000_000 + at * 10, at * 100);
    let table: String = (0..50_000).map(row).collect();
    let table = format!("start_s,op,offset,size,duration_s,pid,tid,path\n{table}");
    fs::write(dir.work().join("calls.csv"), table).expect("a file");
    let mut import = dir.cawl(&["import", "--from", "csv", "calls.csv", "-o"]);
    import.arg(dir.trace());
    Running::start(import)
        .finish()
        .success()
        .says("50000 calls, 4.768 MiB to 1 file by 1 process image, from");
    let found = explain(&dir, &["--call", "3"]).success();
    assert!(found.stdout.contains("began      0.000020 s after the first call"), "{}", found.stdout);
    assert_eq!(found.stderr, "");
}

/// `replay --calls` prints the calls that `explain` selects, with their numbers in the trace.
fn selected_calls_are_printed(dir: &Dir) {
    let calls = |options: &[&str]| {
        let mut command = dir.cawl(&["replay", "--calls", "--live"]);
        command.arg(dir.trace()).args(options);
        Running::start(command).finish().success().stdout
    };
    let rows = |text: &str| {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>()
    };
    let all = rows(&calls(&["--json"]));
    let of_log = |row: &&Value| row["path"].as_str().is_some_and(|path| path.ends_with("/two.log"));
    let op = all.iter().find(of_log).and_then(|row| row["op"].as_str()).expect("an operation");
    let some = rows(&calls(&["--json", "--file", "two.log", "--op", op]));
    let wanted = all.iter().filter(of_log).filter(|row| row["op"] == op);
    assert_eq!(wanted.collect::<Vec<_>>(), some.iter().collect::<Vec<_>>());
    let text = calls(&["--file", "two.log"]);
    let listed = text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>();
    assert!(listed[0].trim_start().starts_with("CALL ") && listed[1].ends_with("/two.log"), "{text}");
    assert!(text.contains("selected   calls of files two.log;"), "{text}");
}

/// A file that is made again goes on in its row, whichever of its calls are selected.
#[test]
fn a_selection_does_not_tell_apart_what_is_one_file() {
    let dir = Dir::new();
    let script = "for i in 1 2 3; do dd if=/dev/zero of=again count=1 conv=fsync status=none; rm again; done";
    dir.run(&[], &["sh", "-c", script]).0.success();
    explain(&dir, &["--op", "fsync", "--report", "fsyncs.json"]).success();
    let report = fs::read_to_string(dir.work().join("fsyncs.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let files = report["files"].as_array().expect("files");
    assert_eq!((files.len(), &files[0]["ops"][0]["calls"]), (1, &3.into()), "{files:#?}");
}

#[test]
fn calls_are_selected() {
    let dir = Dir::new();
    let script = "dd if=/dev/zero of=one.db bs=4k count=30 status=none; head -c 8192 /dev/zero > two.log";
    dir.run(&[], &["sh", "-c", script]).0.success();
    let bytes = |options: &[&str]| {
        let explain = explained(&dir, options);
        adds_up(&explain);
        explain["bytes"].as_u64().expect("bytes")
    };
    assert_eq!(bytes(&[]), 30 * 4096 + 8192);
    assert_eq!(bytes(&["--file", "*.db"]), 30 * 4096);
    assert_eq!(bytes(&["--file", "*/two.log"]), 8192);
    assert_eq!(bytes(&["--file", "two.log"]), 8192);
    assert_eq!(bytes(&["--file", "*.db", "--file", "two.?og"]), 30 * 4096 + 8192);
    assert_eq!(bytes(&["--op", "write", "--file", "one.db"]), 30 * 4096);
    assert_eq!(bytes(&["--op", "close,open"]), 0);
    assert_eq!(bytes(&["--process", "h*d", "--process", "d?"]), 30 * 4096 + 8192);
    assert_eq!(bytes(&["--process", "dd"]), 30 * 4096);
    assert_eq!(bytes(&["--process", "head"]), 8192);
    assert_eq!(bytes(&["--from", "0", "--to", "3600s"]), 30 * 4096 + 8192);
    let selected = explained(&dir, &["--process", "dd"]);
    let of_dd = |process: &Value| process["program"].as_str().is_some_and(|name| name.ends_with("dd"));
    assert!(selected["processes"].as_array().expect("processes").iter().all(of_dd), "{selected:#}");
    assert_eq!(selected["selection"]["process"], "dd");
    explain(&dir, &["--process", "dd", "--report", "selected.json"]).success();
    let report = fs::read_to_string(dir.work().join("selected.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["coverage"], &report["selection"]["process"]), (&1.0.into(), &"dd".into()));
    explain(&dir, &["--from", "3600"]).code(1).says("no call was selected");
    explain(&dir, &["--file", "*.wal"]).code(1).says("no call was selected");
    explain(&dir, &["--process", "haed"]).code(1).says("the nearest programs are ");
    let mut piped = dir.command("sh");
    piped
        .args(["-c", "cat \"$2\" | \"$1\" explain /dev/stdin", "sh"])
        .arg(built("cawl-cli"))
        .arg(dir.trace());
    Running::start(piped).finish().code(1).says("so it must be a file");
    explain(&dir, &["--file", "to.log"]).code(1).says("/work/two.log,");
    explain(&dir, &["--op", "writ"]).code(2).says("there is no operation `writ`");
    explain(&dir, &["--cause", "jurnal"]).code(2).says("there is no cause `jurnal`");
    let listing = format!("`cawl-cli replay --calls {}`", dir.trace().display());
    explain(&dir, &["--file", "*.wal"]).code(1).says(&listing);
    explain(&dir, &["--call", "1", "--op", "write"]).code(2);
    // Each call is counted under one cause.
    let all = explained(&dir, &[]);
    for cause in all["causes"].as_array().expect("causes").iter().filter(|cause| cause["calls"] != 0) {
        let name = cause["name"].as_str().expect("a name").replace(' ', "-");
        let of_cause = explained(&dir, &["--cause", &name]);
        assert_eq!((&of_cause["calls"], &of_cause["bytes"]), (&cause["calls"], &cause["bytes"]), "{name}");
    }
    selected_calls_are_printed(&dir);
    explain(&dir, &["--from", "2", "--to", "1"]).code(2).says("--from 2 is not before --to 1");
    explain(&dir, &["--learn", "--open-loop"]).code(2).says("cannot learn");
    explain(&dir, &["--classes", "1ms,7"]).code(2).says("a time with its unit is expected");
    explain(&dir, &["--classes", "-1ms"]).code(2).says("`-1ms` is no span of time");
    explain(&dir, &["--classes", "0ms"]).code(2).says("give a time above zero");
    explain(&dir, &["--json", "--report", "a.html"]).code(2);
    explain(&dir, &["--report", "none/a.html"]).code(1).says("there is no folder none");
    // A report in a file is what stdout has.
    let shown = explain(&dir, &[]).success().stdout;
    explain(&dir, &["--report", "shown.txt"]).success();
    assert_eq!(fs::read_to_string(dir.work().join("shown.txt")).expect("a report"), shown);
    // Times count from the first call of the trace, those of dd from those of sh before it too.
    let all = explained(&dir, &[]);
    let of_log = explained(&dir, &["--file", "*/two.log"]);
    let at = |told: &Value| {
        let worst = told["worst"].as_array().expect("calls").iter();
        let last = worst.filter(|call| call["path"].as_str().is_some_and(|path| path.ends_with("two.log")));
        last.map(|call| (call["call"].as_u64(), call["at_s"].as_f64())).max_by_key(|(number, _)| *number)
    };
    let latest = at(&of_log).expect("a call");
    assert!(latest.1 > Some(0.0), "{of_log:#}");
    let same = all["worst"].as_array().expect("calls").iter().find(|call| call["call"].as_u64() == latest.0);
    assert!(same.is_none_or(|call| call["at_s"].as_f64() == latest.1), "{all:#}");
    fs::write(dir.work().join("run.gz"), [0x1f, 0x8b, 8, 0]).expect("a file");
    let packed = Running::start(dir.cawl(&["explain", "run.gz"])).finish();
    packed.code(1).says("is packed by gzip; unpack it first: gunzip -k run.gz");
    fs::write(dir.work().join("empty.trace"), "").expect("a file");
    let empty = Running::start(dir.cawl(&["explain", "empty.trace"])).finish();
    empty.code(1).says("the trace empty.trace is empty");
    let unwritten = dir.cawl(&["run", "--trace", "none/a.trace", "--", "true"]);
    let unwritten = Running::start(unwritten).finish().code(1).says("there is no folder none");
    assert!(!unwritten.stderr.contains("ReadWritePaths"), "{unwritten:#?}");
    for (option, why) in
        [("--from", "no span of time"), ("--to", "no span of time"), ("--call", "invalid value")]
    {
        explain(&dir, &[option, "-1"]).code(2).says(why);
    }
    explain(&dir, &["--from", "soon"]).code(2).says("no span of time");
    let text = explain(&dir, &["--process", "dd"]).success().stdout;
    assert!(text.contains("selected   calls of process dd;"), "{text}");
    assert!(text.starts_with("cawl ") && text.contains("/one.db\n") && !text.contains("two.log"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_long_form_has_every_operation() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/dev/zero", "of=out", "bs=4k", "count=30", "status=none"]).0.success();
    let text = explain(&dir, &["--long"]).success().stdout;
    assert!(text.contains("COST OF A CALL") && text.contains("/out\n"), "{text}");
    let all = explain(&dir, &["--long", "--model", "all"]).success().stdout;
    assert!(all.contains("  NAIVE  ") && all.lines().all(|line| line.chars().count() <= 80), "{all}");
    explain(&dir, &["--long", "--call", "1"]).code(2);
}

#[test]
fn a_damaged_trace_says_so_in_every_form() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/dev/zero", "of=out", "bs=512", "count=20000", "status=none"]).0.success();
    assert!(explained(&dir, &[]).get("damage").is_none());
    let whole = fs::read(dir.trace()).expect("a trace");
    fs::write(dir.trace(), &whole[..whole.len() - 20]).expect("a damaged trace");
    let told: Value = serde_json::from_str(&explain(&dir, &["--json"]).code(1).stdout).expect("JSON");
    let damage = told["damage"].to_string();
    assert!(damage.contains("its end is lost") || damage.contains("not closed"), "{damage}");
    assert!(explain(&dir, &[]).code(1).stdout.contains("note "));
    for command in [&["advise"][..], &["whatif", "--fsync", "none"], &["whatif", "--sensitivity"]] {
        let mut asked = dir.cawl(command);
        asked.arg(dir.trace());
        let told = Running::start(asked).finish().code(1);
        assert!(damage.contains(told.stderr.trim()) && !told.stdout.is_empty(), "{told:#?}");
    }
    let call = explain(&dir, &["--call", "99999"]).code(1);
    assert!(call.stderr.contains("its end is lost") || call.stderr.contains("not closed"), "{call:#?}");
}

/// Counters of a device at a time in ns: requests, flushes as many, bytes, and the time of both.
fn counters(at: u64, count: u64, bytes: u64, writing: f64, flushing: f64) -> DeviceCounters {
    DeviceCounters {
        time: Time(at),
        dev: 0,
        writes: count,
        bytes: Bytes(bytes),
        writing: Nanos::new(writing),
        flushes: count,
        flushing: Nanos::new(flushing),
        busy: Nanos::MAX,
    }
}

/// Counters of devices that jump, stand still, go back, and are of devices that no call writes to.
#[test]
fn any_counters_of_devices_are_taken() {
    const MAX: u64 = u64::MAX;
    let dir = Dir::new();
    let mut trace = TraceFile::create(&dir.trace(), WhenFull::Wait).expect("a new file");
    let mut push = |record| trace.push(&record);
    let mut profile = HostProfile::uncalibrated();
    profile.device.seek = Measured::assumed(Nanos::ZERO);
    profile.device.flush = Some(Measured::assumed(Nanos::millis(1.0)));
    profile.device.latency = Some(Measured::assumed(Nanos::new(50_000.0)));
    push(Record::Profile(Box::new(profile)));
    push(Record::Session(Session { id: 1, pid: 1, ..Session::default() }));
    // Of each device another sequence, by the number of the window and its time.
    let wild: [fn(u64, u64) -> DeviceCounters; 8] = [
        |n, at| counters(at, 100 * n, n, at as f64, 0.0),
        |n, at| counters(at, 100 * n, MAX / 64 * n, 1.0, 1e19),
        |n, _| counters(MAX / 64 * n, 100 * n, n, (MAX / 64 * n) as f64, 0.0),
        |n, _| counters(MAX / 64 * n, MAX / 64 * n, n, 1.0, (MAX / 64 * n) as f64),
        |n, at| counters(MAX - at, MAX - n, MAX - n, 1e18 / (1 + n) as f64, 1e18),
        |n, at| counters(at * (n % 2), MAX * (n % 2), MAX * (n % 2), f64::INFINITY, f64::NAN),
        |n, at| counters(at, 100 * n, 0, f64::NAN, f64::INFINITY),
        |_, _| counters(MAX, MAX, MAX, f64::MAX, f64::MAX),
    ];
    for dev in 0..wild.len() as u64 {
        let path = format!("/data/{dev}");
        push(Record::File(FileFacts { dev, ino: 1, mode: 0o100_644, path, ..FileFacts::default() }));
    }
    for n in 0..40 {
        let at = (n + 1) * 100_000_000;
        for (dev, wild) in (0..).zip(wild) {
            push(Record::Device(DeviceCounters { dev, ..wild(n, at) }));
            push(Record::Device(DeviceCounters { dev: 1000 + n, ..wild(n, at) }));
            for (of_window, op) in [Op::Pwrite, Op::Fsync].into_iter().cycle().take(12).enumerate() {
                let mut event = Event::new(op);
                (event.pid, event.tid, event.dev, event.ino, event.kind) = (1, 1, dev, 1, FileKind::Regular);
                event.flags = if of_window % 4 == 0 { flag::DSYNC } else { 0 };
                (event.start, event.duration) = (at + of_window as u64 * 7_000_000, 1 << (n % 40));
                (event.requested, event.returned, event.offset) = (65536, 65536, n * 65536);
                push(Record::Event(event));
            }
        }
    }
    assert_eq!(trace.finish(), None);
    let run = |args: &[&str]| {
        let mut command = dir.cawl(args);
        command.arg(dir.trace());
        Running::start(command).finish().success().stdout
    };
    for options in [&["replay"][..], &["replay", "--lockstep"], &["replay", "--calls"]] {
        let text = run(options);
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
    }
    for options in [&[][..], &["--mode", "assimilated", "--learn"]] {
        let explain = explained(&dir, options);
        assert_eq!(explain["calls"], 40 * 12 * wild.len());
        adds_up(&explain);
    }
    self::explain(&dir, &["--report", "report.json"]).success();
    let report = fs::read_to_string(dir.work().join("report.json")).expect("a report");
    files_add_up(&serde_json::from_str(&report).expect("JSON"));
    for format in ["perfetto", "chrome", "csv", "json", "parquet"] {
        run(&["export", "--to", format, "-o", "/dev/null"]);
    }
    for row in run(&["export", "--to", "json"]).lines() {
        let row: Value = serde_json::from_str(row).expect("JSON");
        let others = ["start_ns", "duration_ns", "predicted_ns", "low_ns", "high_ns"];
        let parts = row.as_object().expect("an object").iter();
        let parts = parts.filter(|(name, _)| name.ends_with("_ns") && !others.contains(&name.as_str()));
        assert_eq!(parts.filter_map(|(_, ns)| ns.as_u64()).sum::<u64>(), row["duration_ns"], "{row:#}");
    }
}

#[test]
fn a_call_s_number_is_the_same_everywhere() {
    let dir = Dir::new();
    let script = "dd if=/dev/zero of=out bs=4k count=20 conv=fsync status=none
        dd if=/dev/zero of=/dev/null bs=1k count=20 status=none
        dd if=/dev/zero of=last bs=5000 count=1 status=none";
    dir.run(&[], &["sh", "-c", script]).0.success();
    let output = |args: &[&str]| {
        let mut command = dir.cawl(args);
        command.arg(dir.trace());
        Running::start(command).finish().success().stdout
    };
    let objects = |text: String| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let listed = objects(output(&["replay", "--calls", "--json"]));
    let exported = objects(output(&["export", "--to", "json"]));
    let printed = output(&["replay", "--calls"]);
    let printed: Vec<Vec<&str>> =
        printed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let ends = |path: &str| listed.iter().position(|call| call["path"].as_str() == Some(path));
    let null = ends("/dev/null").expect("a call to /dev/null");
    // In the middle of coalescible calls, and beside them.
    for at in [0, null, null + 7, listed.len() - 1, listed.iter().position(|c| c["op"] == "fsync").unwrap()] {
        let (call, row, line) = (&listed[at], &exported[at], &printed[at]);
        let number = call["call"].to_string();
        assert_eq!((&row["call"].to_string(), line[0]), (&number, &*number), "{line:?}");
        let found = explained(&dir, &["--call", &number]);
        for field in ["call", "op", "offset", "observed_s", "pid", "tid"] {
            assert_eq!(found[field], call[field], "{field}: {call:#}");
        }
        let ns = found["observed_s"].as_f64().map(|seconds| (seconds * 1e9).round());
        assert_eq!((&found["path"], ns), (&row["path"], row["duration_ns"].as_f64()), "{row:#}");
        assert_eq!((&found["bytes"], &found["op"]), (&row["bytes"], &line[4].into()), "{row:#}");
    }
    let worst = explained(&dir, &[]);
    for worst in worst["worst"].as_array().expect("calls") {
        let row = &exported[worst["call"].as_u64().expect("a number") as usize - 1];
        for field in ["call", "op", "bytes", "offset"] {
            assert_eq!(row[field], worst[field], "{field}: {row:#}");
        }
        // A call on names alone has no path; a report says so in words.
        assert_eq!(row["path"].as_str().unwrap_or("(names)"), worst["path"], "{row:#}");
    }
}

#[test]
fn one_call_has_its_parts_and_its_neighbours() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/dev/zero", "of=out", "bs=4k", "count=50", "status=none"]).0.success();
    let calls = cawl_kit::calls(&dir, &dir.trace());
    let write = 1 + calls.iter().rposition(|call| call["op"] == "write").expect("writes");
    let found = explained(&dir, &["--call", &write.to_string()]);
    assert_eq!(
        (&found["op"], &found["bytes"], &found["offset"]),
        (&"write".into(), &4096.into(), &(49 * 4096).into())
    );
    let parts = &found["causes"];
    assert!(are_equal(sum(parts, "observed_s"), found["observed_s"].as_f64().unwrap()), "{found:#}");
    assert!(are_equal(sum(parts, "predicted_s"), found["predicted_s"].as_f64().unwrap()), "{found:#}");
    assert_eq!(found["before"].as_array().map(Vec::len), Some(3));
    assert_eq!(found["before"][2]["call"], write - 1);
    let worst = &explained(&dir, &[])["worst"][0];
    let number = worst["call"].to_string();
    assert_eq!(explained(&dir, &["--call", &number])["observed_s"], worst["observed_s"]);
    let text = explain(&dir, &["--call", &write.to_string()]).success().stdout;
    assert!(text.contains("write of 4 KiB at 200704") && text.contains("/out\n"), "{text}");
    explain(&dir, &["--call", "99999"]).code(1).says("there is no call 99999: the trace has");
    explain(&dir, &["--call", "0"]).code(2);
}

#[test]
fn less_is_recorded_where_that_is_asked_for() {
    let dir = Dir::new();
    let script = "dd if=/dev/zero of=one.db bs=4k count=30 status=none; head -c 8192 /dev/zero > two.log";
    let files = |options: &[&str]| -> Vec<String> {
        let (finished, report) = dir.run(options, &["sh", "-c", script]);
        finished.success();
        let files = report["files"].as_array().expect("files").iter();
        let bytes = |op: &Value| op["bytes"].as_u64().unwrap_or(0);
        let written =
            files.filter(|file| file["ops"].as_array().expect("operations").iter().any(|op| bytes(op) > 0));
        let name = |file: &Value| file["path"].as_str()?.rsplit('/').next().map(str::to_owned);
        let mut names: Vec<String> = written.filter_map(name).collect();
        names.sort();
        // The trace has no more than the report.
        let again = explained(&dir, &[]);
        assert_eq!(again["bytes"], report["explain"]["bytes"], "{options:?}");
        let told = report["notes"].to_string();
        assert!(options.iter().step_by(2).all(|option| told.contains(&format!("({option})"))), "{told}");
        names
    };
    assert_eq!(files(&[]), ["one.db", "two.log"]);
    assert_eq!(files(&["--only", "*.db"]), ["one.db"]);
    assert_eq!(files(&["--only", "one.db", "--only", "/*/two.log"]), ["one.db", "two.log"]);
    assert_eq!(files(&["--exclude", "dd"]), ["two.log"]);
    assert_eq!(files(&["--exclude", "dd", "--exclude", "head"]), [""; 0]);
    // A part of a name is another program, and what an excluded program starts is traced.
    assert_eq!(files(&["--exclude", "d"]), ["one.db", "two.log"]);
    assert_eq!(files(&["--exclude", "sh"]), ["one.db", "two.log"]);
    for (option, value, why) in
        [("--exclude", "/bin/dd", "without its folder"), ("--exclude", &"x".repeat(600), "too long")]
    {
        let wrong = dir.cawl(&["run", option, value, "--", "true"]);
        Running::start(wrong).finish().code(2).says(why);
    }
}

#[test]
fn a_report_is_titled_by_what_was_typed() {
    let dir = Dir::new();
    dir.run(&[], &["sh", "-c", "exec head -c 10 /dev/zero > out"]).0.success();
    let typed = "sh -c exec head -c 10 /dev/zero > out";
    let report: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["command"], typed);
    explain(&dir, &["--report", "page.html"]).success();
    let page = fs::read_to_string(dir.work().join("page.html")).expect("a page");
    assert!(
        page.contains("<title>cawl: sh -c exec head -c 10 /dev/zero &gt; out</title>"),
        "{}",
        &page[..400]
    );
}

#[test]
fn a_report_in_a_file_is_named_on_a_terminal() {
    let dir = Dir::new();
    if cawl_kit::find("script").is_none() {
        return cawl_kit::skipped("there is no script");
    }
    let cli = dir.cawl(&[""; 0]).get_program().to_string_lossy().into_owned();
    let typed =
        format!("{cli} run --no-calibrate --report a.json -- dd if=/dev/zero of=out count=100 status=none");
    let mut command = dir.command("script");
    command.args(["-qec", &typed, "/dev/null"]);
    let told = Running::start(command).finish().success().stdout.replace(['\r'], "");
    assert!(told.contains("cawl  ") && told.contains("a.json\n"), "{told:?}");
    assert!(!told.contains("CAUSE"), "{told:?}");
    // Elsewhere it is silent: stderr is the program's.
    let silent = dir.cawl(&["run", "--report", "b.json", "--", "true"]);
    assert_eq!(Running::start(silent).finish().success().stderr, "");
}

/// Forks are such ones: nothing of their time is divided, and only the process that made them is listed.
#[test]
fn calls_without_a_cost_are_said_to_have_none() {
    let dir = Dir::new();
    dir.run(&["--stacks=1us"], &["sh", "-c", "(echo 1 >a); (echo 2 >b); :"]).0.success();
    let told = explain(&dir, &["--op", "fork"]).success().stdout;
    assert!(told.contains("no cost is told of these calls"), "{told}");
    assert_eq!(told.matches(" sh ").count(), 1, "{told}");
    assert!(told.contains("calls      2 calls, "), "{told}");
    let told = explain(&dir, &["--op", "fork", "--json"]).success().stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["calls"], &told["selected_calls"]), (&0.into(), &2.into()));
    let told = explain(&dir, &["--op", "fork", "--by", "stack"]).success().stdout;
    assert_eq!(told, "stacks     none: no time is told of these calls\n");
}
