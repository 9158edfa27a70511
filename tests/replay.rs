//! A trace is equivalent to the live run: replay repeats its predictions call by call.

use std::fs;
use std::io::Write;
use std::path::Path;

use cawl_core::{
    Bytes, EndKind, FileFacts, HostProfile, Outcome, Record, Sample, Session, SessionEnd, Time, Wchar,
};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_wire::{Event, FileKind, Op};
use nix::sys::signal::Signal;

use cawl_kit::{Daemon, Dir, Finished, Report, Running, calls};

fn replay(dir: &Dir, options: &[&str], trace: &Path) -> Finished {
    let mut command = dir.cawl(&["replay"]);
    command.args(options).arg(trace);
    Running::start(command).finish()
}

/// The reports of the live run and of a live replay agree on every prediction of every model; the models as
/// calibrated agree with a replay in lockstep.
fn repeats(dir: &Dir, live: &Report, trace: &Path) {
    let again = Report::parse(&replay(dir, &["--json", "--live"], trace).success().stdout);
    assert!(!live.fingerprints().is_empty() && live.fingerprints().iter().all(|(_, calls, _)| *calls > 0));
    assert_eq!(live.fingerprints(), again.fingerprints());
    assert_eq!((&again["mode"], &live["mode"]), (&"assimilated".into(), &"assimilated".into()));
    assert_eq!((&again["learn"], &live["learn"]), (&true.into(), &true.into()));
    // Other figures than those of the run are told as such.
    let says = |options: &[&str]| replay(dir, options, trace).success().stdout.contains("\nopen loop ");
    assert!(says(&[]) && !says(&["--live"]));
    let lockstep = Report::parse(&replay(dir, &["--json", "--lockstep"], trace).success().stdout);
    assert_eq!((&lockstep["mode"], &lockstep["learn"]), (&"lockstep".into(), &false.into()));
    for model in live["models"].as_array().expect("a list of models") {
        let all = lockstep["models"].as_array().expect("a list of models");
        let same = all.iter().find(|other| other["name"] == model["name"]).expect("the same models");
        for field in ["predicted_s", "total_error", "windowed_error"] {
            assert!(model["calibrated"][field].as_f64().is_some_and(|x| x >= 0.0), "{field}: {model:#}");
            assert_eq!(model["calibrated"][field], same[field], "{field}");
        }
        assert_eq!(same["calibrated"], serde_json::Value::Null);
    }
    for field in ["calls", "bytes", "drops", "coverage", "sessions", "files", "outcome", "models", "notes"] {
        assert_eq!(live[field], again[field], "{field}");
    }
    // Only a report in a file has the calls beside the worst ones.
    let alone = |report: &Report| {
        let mut calls = report["worst"].as_array().expect("a list of calls").clone();
        for call in calls.iter_mut().filter_map(serde_json::Value::as_object_mut) {
            drop((call.remove("before"), call.remove("after")));
        }
        calls
    };
    assert_eq!(alone(live), alone(&again));
}

/// Programs with one thread, several threads and several processes.
fn programs(dir: &Dir) -> [Vec<String>; 3] {
    let app = |name: &str| dir.app(name).to_str().expect("a readable path").to_owned();
    let dd = "dd if=/dev/zero of=out bs=10000 count=2000 conv=fsync status=none";
    [dd.split(' ').map(str::to_owned).collect(), vec![app("thread_writer")], vec![app("fork_writer")]]
}

#[test]
fn a_report_in_a_file_has_the_run_over_time() {
    let dir = Dir::new();
    let trace = dir.trace();
    let dd = "dd if=/dev/zero of=out bs=64K count=300 conv=fsync status=none";
    let program: Vec<&str> = dd.split(' ').collect();
    let (finished, live) = dir.run(&[], &program);
    finished.success();
    let file = dir.work().join("again.json");
    let told = replay(&dir, &["--live", "--report", file.to_str().expect("a readable path")], &trace);
    let again = Report::read(&file, &told.success().says(""));
    assert_eq!(live["timeline"], again["timeline"], "live and replayed");
    let timeline = &again["timeline"];
    let sum = |column: &serde_json::Value| {
        column.as_array().expect("a column").iter().filter_map(serde_json::Value::as_u64).sum::<u64>()
    };
    let model = &again["models"][0];
    assert_eq!(Some(sum(&timeline["calls"])), model["calls"].as_u64());
    let causes = timeline["causes"].as_array().expect("causes");
    let observed = causes.iter().map(|cause| sum(&cause["ns"])).sum::<u64>() as f64 / 1e9;
    assert!((observed - model["observed_s"].as_f64().expect("seconds")).abs() < 1e-9);
    assert_eq!(timeline["single"]["of"], model["calls"]);
    let plain = Report::parse(&replay(&dir, &["--json"], &trace).success().stdout);
    assert_eq!(plain["timeline"], serde_json::Value::Null, "it was not asked for");
}

#[test]
fn replay_repeats_the_live_predictions() {
    let dir = Dir::new();
    for program in programs(&dir) {
        let (finished, live) = dir.run(&["--model", "all"], &program);
        finished.success();
        assert_eq!(live["models"].as_array().map(Vec::len), Some(3));
        repeats(&dir, &live, &dir.trace());
    }
}

#[test]
fn replay_repeats_what_a_busy_daemon_predicted() {
    let dir = Dir::new();
    let programs = programs(&dir);
    let daemon = Daemon::start(&dir, &[]);
    let start = |name: String, program: &[String]| {
        let mut command = dir.cawl(&["run", "--socket"]);
        command.arg(dir.socket()).arg("--trace").arg(dir.path().join(format!("{name}.trace")));
        command.arg("--report").arg(dir.path().join(format!("{name}.json"))).arg("--").args(program);
        // Each in its own folder, since they write files of the same names.
        let folder = dir.work().join(&name);
        fs::create_dir(&folder).expect("a new folder");
        command.current_dir(folder);
        (name, Running::start(command))
    };
    let running: Vec<_> = (0..2)
        .flat_map(|round| {
            programs.iter().enumerate().map(move |(n, program)| (format!("{round}-{n}"), program))
        })
        .map(|(name, program)| start(name, program))
        .collect();
    for (name, running) in running {
        let finished = running.finish();
        let live = Report::read(&dir.path().join(format!("{name}.json")), &finished);
        finished.success();
        live.all_seen();
        repeats(&dir, &live, &dir.path().join(format!("{name}.trace")));
    }
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn the_json_report_has_the_fields_that_scripts_rely_on() {
    let dir = Dir::new();
    dir.run(&[], &["dd", "if=/dev/zero", "of=out", "bs=64k", "count=50", "conv=fsync"]).0.success();
    for (options, mode) in [(&["--json"][..], "open-loop"), (&["--json", "--lockstep"], "lockstep")] {
        let report = Report::parse(&replay(&dir, options, &dir.trace()).success().stdout);
        assert_eq!((&report["schema"], &report["mode"]), (&1.into(), &mode.into()));
        assert_eq!(
            (report.bytes(), &report["drops"], &report["coverage"]),
            (50 << 16, &0.into(), &1.0.into())
        );
        assert!(report["calls"].as_u64() >= Some(51));
        let models = report["models"].as_array().expect("a list of models");
        assert!(["naive", "cawl"].iter().all(|name| models.iter().any(|model| model["name"] == *name)));
        for model in models {
            let by_op = model["by_op"].as_object().expect("operations");
            let sum: u64 = by_op.values().filter_map(|op| op["calls"].as_u64()).sum();
            assert_eq!(
                (model["calls"].as_u64(), &by_op["write"]["calls"]),
                (Some(sum), &50.into()),
                "{model:#}"
            );
            // dd opens its output, puts it at another descriptor, and closes both.
            assert_eq!(
                (&by_op["open"]["calls"], &by_op["close"]["calls"]),
                (&1.into(), &2.into()),
                "{model:#}"
            );
            for field in ["observed_s", "predicted_s", "total_error", "windowed_error"] {
                assert!(
                    model[field].as_f64().is_some_and(|x| x.is_finite() && x >= 0.0),
                    "{field}: {model:#}"
                );
            }
            assert!(model.get("dirty_error").is_some() && model["by_op"]["fsync"]["calls"] == 1, "{model:#}");
        }
    }
}

/// Built with overflow checks, so a sum that overflows would end them.
#[test]
fn any_number_in_a_trace_is_taken() {
    const MAX: u64 = u64::MAX;
    let dir = Dir::new();
    let path = dir.path().join("most");
    let write = |limits: [u64; 2]| {
        let mut trace = TraceFile::create(&path, WhenFull::Wait).expect("a new file");
        let mut push = |record| trace.push(&record);
        let mut profile = HostProfile::uncalibrated();
        (profile.kernel.limits.background, profile.kernel.limits.hard) = (Bytes(limits[0]), Bytes(limits[1]));
        push(Record::Profile(Box::new(profile)));
        let wchar = Wchar { process: Some(MAX), thread: Some(MAX) };
        for id in [1, 2] {
            push(Record::Session(Session { id, pid: id, ppid: 2, ..Session::default() }));
            let file = FileFacts {
                dev: MAX,
                ino: MAX,
                birth: u32::MAX,
                renamed: true,
                size: Bytes(MAX),
                block: u32::MAX,
                mode: u32::MAX,
                path: String::new(),
                owner: 0,
            };
            push(Record::File(file));
            for _ in 0..3 {
                let mut event = Event::new(Op::Write);
                (event.pid, event.tid, event.dev, event.ino, event.kind) =
                    (id, id, MAX, MAX, FileKind::Regular);
                (event.start, event.duration, event.offset) = (MAX, MAX, MAX - 1);
                (event.requested, event.returned) = (MAX, 1 << 24);
                push(Record::Event(event));
            }
            let (dirty, hard) = (MAX, MAX);
            push(Record::Sample(Sample {
                time: Time(MAX),
                dirty,
                writeback: MAX,
                background: MAX,
                hard,
                written: MAX,
                dirtied: MAX,
            }));
            let how = EndKind::Exit;
            push(Record::End(SessionEnd {
                id,
                at: Time(MAX),
                how,
                wchar,
                usage: None,
                pending: MAX,
                dropped: MAX,
                unseen: MAX,
            }));
        }
        push(Record::Outcome(Outcome { pid: 1, code: None, signal: Some(i32::MAX), wchar: Some(MAX) }));
        assert_eq!(trace.finish(), None);
    };
    write([MAX - 1, MAX]);
    for options in
        [&[][..], &["--lockstep"], &["--mode", "assimilated", "--learn"], &["--calls"], &["--json"]]
    {
        replay(&dir, options, &path).success();
    }
    write([2, 1]);
    replay(&dir, &[], &path).code(1).says("name one with --profile");
}

#[test]
fn models_can_be_chosen() {
    let dir = Dir::new();
    let (_, live) = dir.run(&["--model", "naive"], &["sh", "-c", "echo data > file"]);
    assert_eq!(live["models"].as_array().map(Vec::len), Some(1));
    let (_, live) = dir.run(&["--learn", "off"], &["sh", "-c", "echo data > file"]);
    assert_eq!((&live["learn"], &live["models"][0]["name"]), (&false.into(), &"kernel".into()));
    assert_eq!(live["models"].as_array().map(Vec::len), Some(1));
    let again = replay(&dir, &["--json", "--model", "cawl,naive"], &dir.trace()).success();
    let again = Report::parse(&again.stdout);
    let names: Vec<String> = again.fingerprints().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["cawl", "naive"]);
    replay(&dir, &["--model", "crystal-ball"], &dir.trace()).code(2).says("there is no model `crystal-ball`");
    replay(&dir, &["--model", "naive,naive"], &dir.trace()).code(1).says("`naive` is named twice");
}

#[test]
fn every_call_can_be_printed() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let program = program.to_str().expect("a readable path");
    dir.run(&[], &[program, "file", "300", "7"]).0.success();
    let lines = calls(&dir, &dir.trace());
    let file = |call: &&serde_json::Value| call["path"].as_str().is_some_and(|path| path.ends_with("/file"));
    assert!(lines.iter().filter(file).any(|call| call["op"] == "open"), "calls that write nothing count too");
    let mut end = 0;
    for call in lines.iter().filter(file).filter(|call| call["op"] == "write") {
        assert!(call["pid"].is_u64() && call["tid"].is_u64() && call["observed_s"].is_number(), "{call:#}");
        let prediction = &call["predictions"][0];
        for field in ["model", "state", "dirty", "predicted_s"] {
            assert!(!prediction[field].is_null(), "{field}: {call:#}");
        }
        assert_eq!((&call["op"], &call["offset"], &call["size"]), (&"write".into(), &end.into(), &7.into()));
        end += 7;
    }
    assert_eq!(end, 2 * 300 * 7);
    let times: Vec<f64> = lines.iter().map(|call| call["time_s"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");

    let text = replay(&dir, &["--calls"], &dir.trace()).success().stdout;
    for heading in
        ["TIME", "PID", "OP", "OFFSET", "SIZE", "STATE", "DIRTY", "OBSERVED", "NAIVE", "CAWL", "FILE"]
    {
        assert!(text.lines().next().is_some_and(|line| line.contains(heading)), "{heading}: {text}");
    }
}

#[test]
fn calls_without_a_law_are_printed_too() {
    let dir = Dir::new();
    let writer = dir.app("async_writer");
    dir.run(&[], &[writer.to_str().expect("a readable path")]).0.success();
    let lines = calls(&dir, &dir.trace());
    let sent = lines.iter().find(|call| call["op"] == "aio_write").expect("the call is printed");
    assert_eq!((&sent["size"], &sent["predictions"]), (&100.into(), &serde_json::json!([])));
    assert!(sent["path"].is_string(), "{sent:#}");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let dir = Dir::new();
    let program = dir.app("thread_writer");
    dir.run(&[], &[program.to_str().expect("a readable path")]).0.success();
    let cawl = cawl_kit::built("cawl-cli");
    for options in ["--calls", "--calls --json"] {
        let mut command = dir.command("bash");
        let script = "set -o pipefail; \"$1\" replay $3 \"$2\" | head -n 1";
        command.args(["-c", script, "bash"]).args([&cawl, &dir.trace()]).arg(options);
        let finished = Running::start(command).finish().success();
        assert_eq!((finished.stdout.lines().count(), finished.stderr.as_str()), (1, ""));
    }
    // Without a reader.
    let daemon = Daemon::start(&dir, &[]);
    for options in ["status", "status --json"] {
        let mut command = dir.command("bash");
        let script = "set -o pipefail; exec 3> >(exec true); wait $!; \"$1\" $2 --socket \"$3\" >&3";
        command.args(["-c", script, "bash"]).arg(&cawl).arg(options).arg(dir.socket());
        assert_eq!(Running::start(command).finish().success().stderr, "");
    }
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn a_damaged_trace_gives_what_is_whole_and_says_what_is_not() {
    let dir = Dir::new();
    let program = dir.app("thread_writer");
    dir.run(&[], &[program.to_str().expect("a readable path")]).0.success();
    let whole = fs::read(dir.trace()).expect("there is a trace");
    let all = Report::parse(&replay(&dir, &["--json"], &dir.trace()).success().stdout);
    assert_eq!(all["notes"], serde_json::json!([]));
    let damaged = dir.path().join("damaged.trace");
    let of = |bytes: &[u8]| {
        fs::write(&damaged, bytes).expect("a new file");
        Report::parse(&replay(&dir, &["--json"], &damaged).code(1).stdout)
    };
    for end in [whole.len() - 1, whole.len() / 2, 17, 16] {
        let report = of(&whole[..end]);
        let notes = report["notes"].to_string();
        assert!(notes.contains("not closed") || notes.contains("its end is lost"), "{end}: {notes}");
        assert!(report["calls"].as_u64() <= all["calls"].as_u64());
        assert!(replay(&dir, &[], &damaged).code(1).stdout.contains("note "), "the text says nothing");
    }
    of(&whole[..17]);
    replay(&dir, &["--live"], &damaged)
        .code(1)
        .says("how the live run worked cannot be read: the trace is damaged");
    // One wrong bit costs one block.
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    let report = of(&flipped);
    assert!(report["notes"].to_string().contains("records are lost"), "{}", report["notes"]);
    assert!(report["notes"].to_string().contains("damaged"), "{}", report["notes"]);
    assert!(report["calls"].as_u64() < all["calls"].as_u64());
    // The second half of one trace before another, as after a crash and a careless `cat`.
    let mut glued = whole[..whole.len() / 2].to_vec();
    glued.extend(&whole);
    of(&glued);
}

#[test]
fn what_is_no_trace_is_an_error_that_says_so() {
    let dir = Dir::new();
    let file = dir.path().join("not.trace");
    let mut newer = fs::File::create(dir.path().join("newer.trace")).expect("a new file");
    newer.write_all(b"CAWLTRC\n\xff\xff\0\0\0\0\0\0").expect("it can be written");
    for (content, says) in [(&b""[..], "is empty"), (b"start_s,op\n0,write\n", "cawl-cli import")] {
        fs::write(&file, content).expect("a new file");
        replay(&dir, &[], &file).code(1).says(says).says("not.trace");
    }
    replay(&dir, &[], &dir.path().join("newer.trace")).code(1).says("use a newer cawl-cli");
    replay(&dir, &[], Path::new("missing.trace")).code(1).says("cannot read the trace missing.trace");
    replay(&dir, &[], Path::new("missing\nline"))
        .code(1)
        .says("cannot read the trace missing\\nline: No such");
    replay(&dir, &[], &dir.work()).code(1).says("cannot read the trace");
}
