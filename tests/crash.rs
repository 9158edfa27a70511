//! Under every failure the traced program continues unharmed, recorded calls stay readable, and cawl reports
//! what is missing.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cawl_wire::{EVENT_LEN, MAX_PAYLOAD};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use cawl_kit::{Daemon, Dir, Finished, Report, Running, SmallDisk, built, calls, size};

/// The pid in the line "half PID" of paced_writer.
fn half(running: &mut Running) -> Pid {
    let line = running.stdout_until("half ");
    let pid = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a process id");
    Pid::from_raw(pid)
}

#[test]
fn a_program_killed_loses_at_most_its_last_batch() {
    const BATCH: u64 = (MAX_PAYLOAD / EVENT_LEN) as u64;
    let (count, length) = (20_000, 64);
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let program = program.to_str().expect("a readable path");
    let begun = Instant::now();
    let mut running = Running::start(dir.run_command(&[], &[program, "file", "20000", "64"]));
    let pid = half(&mut running);
    // It lives on after its last call.
    let last = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    let lived = last.elapsed();
    kill(pid, Signal::SIGKILL).expect("the program is there");
    let finished = running.finish();
    let passed = begun.elapsed();
    let report = dir.report(&finished);
    finished.signal(Signal::SIGKILL);
    let wall = report["explain"]["processes"][0]["wall_s"].as_f64().expect("seconds");
    assert!((lived.as_secs_f64()..passed.as_secs_f64()).contains(&wall), "{wall} s, of {passed:?}");
    assert_eq!(report["outcome"]["signal"], Signal::SIGKILL as i32);
    assert_eq!(report.sessions()[0]["ended"], "vanished");
    // The unsent calls of a killed program are unknown, but the kernel's byte count is not.
    assert_eq!(report.sessions()[0]["wchar_bytes"], count * length + format!("half {pid}\n").len() as u64);
    let coverage = report["coverage"].as_f64().expect("coverage is known");
    assert!((1.0 - coverage) * (count as f64) <= (BATCH + 1) as f64, "{coverage}");

    let calls = calls(&dir, &dir.trace());
    let written: Vec<u64> = calls
        .iter()
        .filter(|call| {
            call["op"] == "write" && call["path"].as_str().is_some_and(|path| path.ends_with("/file"))
        })
        .map(|call| call["offset"].as_u64().expect("the offset is known"))
        .collect();
    assert!(written.iter().copied().eq((0..written.len() as u64).map(|n| n * length)), "there are gaps");
    assert!(written.len() as u64 + BATCH >= count, "only {} of {count} calls", written.len());

    let text = Running::start(dir.cawl(&[Path::new("replay"), &dir.trace()])).finish().success();
    assert!(text.stdout.contains("was killed by SIGKILL"), "{}", text.stdout);
}

#[test]
fn a_program_outlives_the_daemon() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let daemon = Daemon::start(&dir, &[]);
    let mut command = dir.cawl(&["run", "--socket"]);
    command.arg(dir.socket()).arg("--").arg(&program).args(["file", "5000", "100"]);
    let mut running = Running::start(command);
    half(&mut running);
    daemon.end(Signal::SIGKILL).signal(Signal::SIGKILL);
    running.say("\n");
    // The loss of the report is printed; the exit status is the program's own.
    running.finish().success().says("cawl-cli: ").says("no daemon answers");
    assert_eq!(size(&dir, "file"), 2 * 5000 * 100);
}

/// The tracer in a program with the address of a missing daemon.
fn untraced(dir: &Dir, socket: &Path) {
    let told = Running::start(dir.cawl(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"])).finish().success();
    let library = told.stdout.trim().to_owned();
    assert!(Path::new(&library).is_file(), "the tracer was put there: {library}");
    let mut command = dir.command("sh");
    command.args(["-c", "echo file > file; cat file; sh -c 'exit 3'"]);
    command.env("LD_PRELOAD", library).env("CAWL_SOCKET", socket);
    let finished = Running::start(command).finish().code(3);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("file\n", ""));
}

#[test]
fn without_a_daemon_cawl_says_so_and_programs_run_untraced() {
    let dir = Dir::new();
    let mut command = dir.cawl(&["run", "--socket"]);
    command.arg(dir.socket()).args(["--", "touch", "file"]);
    let finished = Running::start(command).finish().code(1);
    finished.says("no daemon answers at").says("start one with `cawld`");
    assert!(!dir.work().join("file").exists(), "the program ran although nobody was there to report to");
    Running::start(dir.cawl(&["status"])).finish().code(1).says("no daemon answers at");
    untraced(&dir, &dir.socket());
    untraced(&dir, Path::new("/dev/null"));
}

#[test]
fn a_stale_socket_is_as_good_as_none() {
    let dir = Dir::new();
    Daemon::start(&dir, &[]).end(Signal::SIGKILL);
    assert!(dir.socket().exists(), "a killed daemon leaves its socket");
    let mut command = dir.cawl(&["run", "--socket"]);
    command.arg(dir.socket()).args(["--", "true"]);
    Running::start(command).finish().code(1).says("no daemon answers at");
    Running::start(dir.cawl(&["status"])).finish().code(1).says("no daemon answers at");
    untraced(&dir, &dir.socket());
}

#[test]
fn a_full_disk_ends_the_trace_but_neither_the_program_nor_the_report() {
    let dir = Dir::new();
    let Some(small) = SmallDisk::new(&dir) else { return };
    let program = dir.app("paced_writer");
    let cawl = cawl_kit::built("cawl-cli");
    let (cawl, trace, program) = (cawl.display(), small.join("run.trace"), program.display());
    let trace = trace.display();
    let mut running = small.start(&format!(
        "{cawl} run --no-calibrate --trace {trace} --report report.json -- {program} file 50000 100; echo status $?; \
         {cawl} replay --json {trace} > replayed.json; echo replay $?"
    ));
    half(&mut running);
    running.say("\n");
    let finished = running.finish().success();
    assert!(finished.stdout.contains("status 0") && finished.stdout.contains("replay 1"), "{finished:#?}");
    assert_eq!(size(&dir, "file"), 2 * 50_000 * 100);
    let report = Report::read(&dir.work().join("report.json"), &finished);
    report.all_seen();
    assert_eq!(report.calls_of("write"), 100_000);
    let note = report["notes"].to_string();
    assert!(note.contains("ends early") && note.contains("No space left"), "{note}");
    let replayed = Report::read(&dir.work().join("replayed.json"), &finished);
    assert!((1..100_000).contains(&replayed.calls_of("write")), "{replayed:#?}");
    assert!(replayed["notes"].to_string().contains("not closed"), "{}", replayed["notes"]);
}

#[test]
fn a_trace_that_cannot_be_written_is_told_before_the_program_runs() {
    let dir = Dir::new();
    for place in ["no/such/folder/t", "/dev/full"] {
        let command = dir.cawl(&["run", "--trace", place, "--", "touch", "file"]);
        Running::start(command).finish().code(1).says("cannot write ").says(place);
        assert!(!dir.work().join("file").exists(), "the program ran for nothing");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_and_the_programs_status_stays() {
    let dir = Dir::new();
    // It could be when the program began.
    fs::create_dir(dir.work().join("d")).expect("a new folder");
    let command = dir.cawl(&["run", "--report", "d/r.json", "--", "sh", "-c", "rmdir d; exit 3"]);
    let finished = Running::start(command).finish().code(3).says("cannot write the report").says("d/r.json");
    // A run may have taken hours: its report goes to stderr instead of being lost.
    finished.says("coverage");
}

/// A limit on the length of files fails as a full disk does: within a file.
#[test]
fn an_output_that_finds_no_room_leaves_what_was_there_and_nothing_else() {
    let dir = Dir::new();
    dir.run(&[], &["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo $i > f$i; done"]);
    let cawl = cawl_kit::built("cawl-cli");
    let (cawl, trace) = (cawl.display(), dir.trace());
    let trace = trace.display();
    dir.clear();
    // What is of another kind would not be overwritten.
    let (page, chrome) = (
        "<!DOCTYPE html>\n<title>cawl: before</title>",
        "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"args\":{\"name\":\"page cache\"}}]}",
    );
    for (command, says, before) in [
        (format!("replay {trace} --report out.html"), "cannot write the report", page),
        (format!("export {trace} --to chrome -o out.html"), "cannot write out.html", chrome),
        (format!("whatif {trace} --split 1 -o out.html"), "cannot write the trace", ""),
        (
            format!("import --from csv {}/table.csv -o out.html", dir.path().display()),
            "cannot write the trace",
            "",
        ),
    ] {
        fs::write(dir.work().join("out.html"), before).expect("a new file");
        let rows: String =
            (0..2000).map(|n| format!("{n},write,{},1,{:.9},f{n}\n", n * 7919, 1e-6 * n as f64)).collect();
        fs::write(dir.path().join("table.csv"), format!("start_s,op,offset,size,duration_s,path\n{rows}"))
            .expect("a table");
        // The kernel's signal about it does not end the command either.
        for trap in ["trap '' XFSZ;", ""] {
            let mut shell = dir.command("sh");
            shell.args(["-c", &format!("{trap} ulimit -f 2; exec {cawl} {command}")]);
            Running::start(shell).finish().code(1).says(says).says("File too large").says("ulimit -f");
            let names: Vec<_> =
                fs::read_dir(dir.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["out.html"], "{command}");
            assert_eq!(fs::read_to_string(dir.work().join("out.html")).unwrap(), before, "{command}");
        }
    }
}

/// Neither a run nor a measurement ends by the kernel's signal; the traced program does, as it would untraced.
#[test]
fn a_limit_on_the_length_of_files_ends_only_the_program() {
    let dir = Dir::new();
    // The tracer's library is written without the limit.
    dir.run(&[], &["true"]);
    let cawl = built("cawl-cli");
    let cawl = cawl.display();
    let limited = |command: &str| {
        let mut shell = dir.command("sh");
        shell.args(["-c", &format!("ulimit -f 4; exec {cawl} {command}")]);
        Running::start(shell).finish()
    };
    limited("run --no-calibrate -- true").code(0);
    limited(
        "run --trace t.cawl -- sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo >f$((i%500)); done'",
    )
    .code(0)
    .says("t.cawl ends early: File too large")
    .says("ulimit -f");
    // SIGXFSZ is 25.
    limited("run --no-calibrate -- sh -c 'head -c 100000 /dev/zero >f; exit $?'").code(128 + 25);
    limited("run --no-calibrate -- sh -c \"trap '' XFSZ; head -c 100000 /dev/zero >f 2>&-; exit \\$?\"")
        .code(1);
    limited("calibrate --brief -o c.toml .").code(1).says("File too large").says("ulimit -f");
    let left = fs::read_dir(dir.work()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".cawl")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The limit that does is told in a short line, and no folder is left where the tracer could not be written.
#[test]
fn too_few_descriptors_are_told() {
    let dir = Dir::new();
    let (cawl, daemon) = (built("cawl-cli"), built("cawld"));
    let run = format!("{} run --no-calibrate -- true", cawl.display());
    let attach = format!("{} attach 1", cawl.display());
    for command in [run, attach, daemon.display().to_string()] {
        for limit in 4..=12 {
            let mut shell = dir.command("sh");
            shell.args(["-c", &format!("ulimit -n {limit}; exec {command}")]);
            let told = Running::start(shell).finish().code(1).stderr;
            let is_told = told.ends_with("too many open files; allow 64 or more (ulimit -n 64)\n");
            assert!(is_told && told.len() < 100, "{command}: {limit}: {told}");
        }
    }
    let made = |folder: &Path| {
        fs::read_dir(folder)
            .is_ok_and(|mut all| all.any(|one| one.is_ok_and(|one| one.file_name() == "cawl")))
    };
    assert!(!["cache", "run", "tmp"].iter().any(|name| made(&dir.path().join(name))), "a folder was left");
}

/// What has inherited files needs more, as many as it is told.
#[test]
fn a_limit_of_descriptors_that_is_named_does() {
    let dir = Dir::new();
    for inherited in [0, 30, 60] {
        let run = |limit: u32| {
            let open =
                format!("for ((i = 3; i < {inherited} + 3; i++)); do eval \"exec $i</dev/null\"; done");
            let run = format!("{} run --no-calibrate -- sh -c 'echo x >f'", built("cawl-cli").display());
            let mut shell = dir.command("bash");
            shell.args(["-c", &format!("ulimit -n {limit}; {open}; exec {run}")]);
            Running::start(shell).finish()
        };
        let told = run(inherited + 10).code(1).stderr;
        let limit = told.rsplit(' ').next().and_then(|last| last.trim_end().strip_suffix(')')?.parse().ok());
        let told = run(limit.expect("a limit")).success().stderr;
        assert!(!told.contains("not traced") && !told.contains("nothing was traced"), "{inherited}: {told}");
    }
}

/// Who may have only a few files open is not traced, but by a root that may raise the limit.
#[test]
fn a_program_with_few_descriptors_is_told_if_it_is_not_traced() {
    let dir = Dir::new();
    let under = |command: &str| {
        let told = limited(&dir, "-n 40", command);
        (told.status.success(), (told.stdout + &told.stderr).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (_, told) = under("run --no-calibrate -- true");
    let (is_fine, doctor) = under("doctor true");
    let why = "not traced a program may have fewer than 64 files open; allow as many (ulimit -n 64)";
    let is_traced = !told.contains("nothing was traced");
    assert_ne!(told.starts_with(&format!("cawl-cli: {}", why.replacen(" a", ": a", 1))), is_traced, "{told}");
    assert_eq!((is_fine, !doctor.contains(why)), (is_traced, is_traced), "{doctor}");
}

fn limited(dir: &Dir, limit: &str, command: &str) -> Finished {
    let mut shell = dir.command("sh");
    shell.args(["-c", &format!("ulimit {limit}; exec {} {command}", built("cawl-cli").display())]);
    Running::start(shell).finish()
}

#[test]
fn a_trace_that_a_limit_forbids_names_the_limit_only() {
    let dir = Dir::new();
    let told = limited(&dir, "-f 0", "run --no-calibrate --trace t.cawl -- true").code(1).stderr;
    assert!(told.contains("(ulimit -f)") && !told.contains("name another file"), "{told}");
}

#[test]
fn a_bad_profile_is_told_before_the_program_runs() {
    let dir = Dir::new();
    fs::write(dir.work().join("bad.toml"), "this is not = a profile\n").expect("a new file");
    fs::create_dir(dir.work().join("folder.toml")).expect("a new folder");
    for (file, says) in [
        ("missing.toml", "cannot read the profile"),
        ("folder.toml", "cannot read the profile"),
        ("bad.toml", "cannot use the profile"),
    ] {
        let command = dir.cawl(&["run", "--profile", file, "--", "touch", "file"]);
        Running::start(command).finish().code(1).says(says).says(file);
        assert!(!dir.work().join("file").exists(), "the program ran for nothing");
    }
}

#[test]
fn a_model_that_does_not_exist_is_told_before_the_program_runs() {
    let dir = Dir::new();
    let command = dir.cawl(&["run", "--model", "crystal-ball", "--", "touch", "file"]);
    Running::start(command).finish().code(2).says("crystal-ball").says("naive");
    assert!(!dir.work().join("file").exists(), "the program ran for nothing");
}

/// By exec the program becomes one that may have too few files open: no child of it.
#[test]
fn what_a_program_became_untraced_is_not_called_a_child() {
    let dir = Dir::new();
    let command = dir.cawl(&["run", "--", "prlimit", "--nofile=32:32", "sh", "-c", "echo hi >f"]);
    let finished = Running::start(command).finish().code(0);
    let told = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_untraced = told.contains("0 B seen of 3 B");
    assert_eq!(told.contains("3 B of it by what was not traced"), is_untraced, "{told}");
    assert!(!told.contains("by children"), "{told}");
}

/// What a process stored before it was killed would have been counted at its end.
#[test]
fn stores_of_a_killed_process_are_said_to_be_unknown() {
    for (then, is_told) in [("", true), ("m.close();", false)] {
        let dir = Dir::new();
        let store = "f = open('f', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[0] = 1;";
        let program = format!("import mmap, os; {store} {then} os.kill(os.getpid(), 9)");
        let (_, report) = dir.run(&[], &["python3", "-c", &program]);
        let notes = report["notes"].to_string();
        assert_eq!(notes.contains("while it could store to shared mappings"), is_told, "{then}: {notes}");
    }
}

#[test]
fn cawl_itself_killed_leaves_a_trace_up_to_the_last_block() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let program = program.to_str().expect("a readable path");
    let mut running = Running::start(dir.run_command(&[], &[program, "file", "30000", "64"]));
    half(&mut running);
    // Blocks are written as time passes.
    let replayed = || {
        let mut replay = dir.cawl(&["replay", "--json"]);
        replay.arg(dir.trace());
        Report::parse(&Running::start(replay).finish().code(1).stdout)
    };
    while replayed().calls_of("write") == 0 {}
    running.signal(Signal::SIGKILL);
    running.say("\n");
    running.finish().signal(Signal::SIGKILL);
    // The program does not notice: it kept its pipes until its end, and wrote everything.
    assert_eq!(size(&dir, "file"), 2 * 30_000 * 64);
    let report = replayed();
    assert!(report.calls_of("write") > 0);
    assert!(report["notes"].to_string().contains("not closed"), "{}", report["notes"]);
    assert_eq!(report["outcome"], Value::Null);
}

#[test]
fn the_socket_of_a_killed_run_goes_with_the_next_run() {
    let dir = Dir::new();
    let script = "echo at $CAWL_SOCKET; read line";
    let mut killed = Running::start(dir.cawl(&["run", "--", "sh", "-c", script]));
    let pid = killed.pid();
    let line = killed.stdout_until("at ");
    let socket = Path::new(line.split_once("at ").expect("it was awaited").1).to_owned();
    assert!(socket.ends_with(format!("cawl-run-{pid}.sock")), "{socket:?}");
    killed.signal(Signal::SIGKILL);
    killed.finish().signal(Signal::SIGKILL);
    // It could not remove it. Root's may be gone already, by another test's run.
    Running::start(dir.cawl(&["run", "--", "true"])).finish().success();
    assert!(!socket.exists(), "{socket:?}");
}
