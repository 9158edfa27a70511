//! A program begins and ends in the same way with and without `cawl-cli run`, and there is always a report.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use cawl_kit::{Dir, Running};

#[test]
fn the_exit_status_is_passed_on() {
    let dir = Dir::new();
    for code in [0, 1, 3, 125, 255] {
        let (finished, report) = dir.run(&[], &["sh", "-c", &format!("exit {code}")]);
        finished.code(code);
        assert_eq!(report["outcome"]["code"], code);
        assert!(report["outcome"]["signal"].is_null());
    }
}

#[test]
fn death_by_a_signal_is_passed_on() {
    let dir = Dir::new();
    for signal in [Signal::SIGTERM, Signal::SIGSEGV, Signal::SIGKILL, Signal::SIGABRT, Signal::SIGPIPE] {
        // Without core files.
        let script = format!("ulimit -c 0; kill -{} $$", signal as i32);
        let (finished, report) = dir.run(&[], &["sh", "-c", &script]);
        finished.signal(signal);
        assert_eq!(report["outcome"]["signal"], signal as i32);
    }
    // The standard library and nix know no such signal.
    let (finished, report) = dir.run(&[], &["sh", "-c", "kill -34 $$"]);
    finished.code(128 + 34);
    assert_eq!(report["outcome"]["signal"], 34);
    let text = dir.cawl(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    Running::start(text).finish().signal(Signal::SIGTERM).says("was killed by SIGTERM");
}

#[test]
fn a_program_that_does_not_exist_is_127() {
    let dir = Dir::new();
    for name in ["no-such-program", "./no-such-program", "/no/such/program"] {
        let finished = Running::start(dir.cawl(&["run", "--", name])).finish().code(127);
        finished.says(&format!("{name}: no such program"));
    }
}

#[test]
fn a_file_that_cannot_be_executed_is_126() {
    let dir = Dir::new();
    fs::write(dir.work().join("plain"), "text").expect("a new file");
    fs::set_permissions(dir.work().join("plain"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    fs::create_dir(dir.work().join("folder")).expect("a new folder");
    fs::write(dir.work().join("orphan"), "#!/no/such/interpreter\n").expect("a new file");
    fs::set_permissions(dir.work().join("orphan"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    for name in ["./plain", "./folder", "./orphan"] {
        let finished = Running::start(dir.cawl(&["run", "--", name])).finish().code(126);
        finished.says(&format!("{name}: cannot be executed"));
    }
}

#[test]
fn a_program_that_was_not_started_leaves_nothing_behind() {
    let dir = Dir::new();
    Running::start(dir.cawl(&["run", "--", "no-such-program"])).finish().code(127);
    assert_eq!(fs::read_dir(dir.path().join("run")).expect("a folder").count(), 0, "a socket was left");
    let trace = dir.path().join("trace");
    let mut run = dir.cawl(&["run", "--trace"]);
    run.arg(&trace).args(["--", "no-such-program"]);
    Running::start(run).finish().code(127);
    assert!(!trace.exists(), "a trace without a call was left");
}

#[test]
fn a_stderr_that_takes_nothing_does_not_change_the_end() {
    let dir = Dir::new();
    let cawl = cawl_kit::built("cawl-cli");
    for (args, code) in [
        ("run --no-calibrate -- no-such-program", 127),
        ("run --no-calibrate -- sh -c 'exit 3'", 3),
        // It cannot be written, which is told before the program starts.
        ("run --no-calibrate --report /dev/full/r.json -- sh -c 'exit 3'", 1),
        ("replay no-such-trace", 1),
    ] {
        let mut command = dir.command("sh");
        command.args(["-c", &format!("exec \"$0\" {args} 2> /dev/full")]).arg(&cawl);
        Running::start(command).finish().code(code);
    }
}

#[test]
fn wrong_usage_is_2() {
    let dir = Dir::new();
    for args in [&["run"][..], &["run", "--no-such-option", "--", "true"], &["replay"], &["no-such-command"]]
    {
        Running::start(dir.cawl(args)).finish().code(2).says("Usage");
    }
    Running::start(dir.cawl(&["run", "--report", "report.pdf", "--", "true"])).finish().code(2).says(".json");
}

#[test]
fn an_interrupt_from_the_terminal_still_gives_a_report() {
    let dir = Dir::new();
    // Not a shell: dash survives one of thirty interrupts that come just after an `echo`, also untraced.
    let mut running = Running::start(dir.run_command(&[], &["cat"]));
    running.say("ready\n");
    running.stdout_until("ready");
    running.signal_group(Signal::SIGINT);
    let finished = running.finish();
    let report = dir.report(&finished);
    finished.signal(Signal::SIGINT);
    // Unsent calls of the killed program are lost; the report has the others.
    assert_eq!(report["outcome"]["signal"], Signal::SIGINT as i32);
    assert!(!report.sessions().is_empty());
}

#[test]
fn a_program_that_survives_the_interrupt_is_followed_to_its_end() {
    let dir = Dir::new();
    let program = dir.app("interrupted");
    let file = dir.work().join("file");
    let mut running = Running::start(dir.run_command(&[], &[program.as_os_str(), file.as_os_str()]));
    running.stdout_until("ready");
    running.signal_group(Signal::SIGINT);
    let finished = running.finish();
    let report = dir.report(&finished);
    finished.code(5);
    assert_eq!(fs::read_to_string(&file).expect("it was written"), "before after");
    assert_eq!(report.file_bytes("file"), 12);
    report.all_seen();
}

#[test]
fn a_signal_to_cawl_alone_goes_to_the_program() {
    let dir = Dir::new();
    use Signal::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for sent in [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM] {
        let script = "ulimit -c 0; echo ready; exec sleep 1000";
        let mut running = Running::start(dir.run_command(&[], &["sh", "-c", script]));
        running.stdout_until("ready");
        running.signal(sent);
        let finished = running.finish();
        let report = dir.report(&finished);
        finished.signal(sent);
        assert_eq!(report["outcome"]["signal"], sent as i32);
    }
}

#[test]
fn signals_ignored_by_whoever_starts_it_are_ignored_by_the_program() {
    let dir = Dir::new();
    let cawl = cawl_kit::built("cawl-cli");
    // As under nohup, and as a shell without job control starts programs in the background.
    let script = "trap '' HUP INT QUIT; exec \"$@\"";
    let program = ["sh", "-c", "kill -HUP $$; kill -INT $$; kill -QUIT $$; echo survived"];
    let mut command = dir.command("sh");
    command.args(["-c", script, "sh"]).arg(cawl).args(["run", "--no-calibrate", "--"]).args(program);
    assert_eq!(Running::start(command).finish().success().stdout, "survived\n");
}

#[test]
fn standard_input_is_the_programs() {
    let dir = Dir::new();
    let mut running = Running::start(dir.run_command(&[], &["cat"]));
    running.say("first\n");
    running.stdout_until("first");
    running.say("second\n");
    let finished = running.finish();
    dir.report(&finished).all_seen();
    assert_eq!(finished.success().stdout, "first\nsecond\n");
}

#[test]
fn the_report_goes_to_stderr_after_what_the_program_said_there() {
    let dir = Dir::new();
    let command = dir.cawl(&["run", "--", "sh", "-c", "echo out; echo err >&2; echo data > file"]);
    let finished = Running::start(command).finish().success();
    assert_eq!(finished.stdout, "out\n");
    let report = finished.stderr.strip_prefix("err\n").expect("the program's own words come first");
    for line in ["cawl", "program", "coverage   100.0 %", "drops      0 calls dropped, 0 unseen", "profile"] {
        assert!(report.lines().any(|found| found.starts_with(line)), "no `{line}` in {report}");
    }
    assert!(
        report.contains("uncalibrated") && report.lines().any(|line| line.ends_with("/work/file")),
        "{report}"
    );
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
}

#[test]
fn the_report_can_be_text_in_a_file() {
    let dir = Dir::new();
    let command = dir.cawl(&["run", "--report", "report.txt", "--", "sh", "-c", "echo data > file"]);
    let finished = Running::start(command).finish().success();
    assert_eq!(finished.stderr, "");
    let text = fs::read_to_string(dir.work().join("report.txt")).expect("a report");
    assert!(text.starts_with("cawl ") && text.contains("coverage   100.0 %"), "{text}");
}

#[test]
fn the_report_does_not_overwrite_the_trace() {
    let dir = Dir::new();
    let run = |options: &[&str]| Running::start(dir.cawl(&[&["run"], options].concat())).finish();
    let refused = run(&["--trace", "same.json", "--report", "./same.json", "--", "touch", "file"]);
    refused.code(2).says("same.json would overwrite same.json");
    assert!(!dir.work().join("file").exists(), "the program ran for nothing");
    run(&["--trace", "trace.json", "--report", "report.json", "--", "touch", "file"]).success();
    for command in ["replay", "explain"] {
        let command = dir.cawl(&[command, "trace.json", "--report", "trace.json"]);
        Running::start(command).finish().code(2).says("would overwrite trace.json");
    }
}

/// Before the program starts, not at its end.
#[test]
fn an_output_that_cannot_be_written_is_told_first() {
    let dir = Dir::new();
    for name in ["notes.txt", "notes.html", "notes.json"] {
        fs::write(dir.work().join(name), "dear diary").expect("a file");
    }
    for (options, says) in [
        (["--report", "none/a.html"], "there is no folder none"),
        (["--report", "notes.txt"], "notes.txt exists and is no report"),
        (["--report", "notes.html"], "notes.html exists and is no report"),
        (["--report", "notes.json"], "notes.json exists and is no report"),
        (["--trace", "notes.txt"], "notes.txt exists and is no trace"),
        (["--trace", "none/t"], "there is no folder none; create it"),
    ] {
        let command = dir.cawl(&[&["run"][..], &options, &["--", "touch", "file"]].concat());
        let refused = Running::start(command).finish().code(1).says(says);
        assert!(!dir.work().join("file").exists(), "the program ran for nothing");
        let remedies = ["name another file", "create it"].map(|text| refused.stderr.matches(text).count());
        assert_eq!(remedies.iter().sum::<usize>(), 1, "{refused:#?}");
    }
    assert_eq!(fs::read(dir.work().join("notes.txt")).expect("a file"), b"dear diary");
    // What is of the same kind is replaced.
    for _ in 0..2 {
        for report in ["r.txt", "r.html", "r.json"] {
            let command =
                dir.cawl(&["run", "--trace", "t", "--report", report, "--", "sh", "-c", "echo x > f"]);
            assert_eq!(Running::start(command).finish().success().stderr, "");
        }
    }
    let page = fs::read_to_string(dir.work().join("r.html")).expect("a page");
    assert!(page.contains("<title>cawl: sh -c echo x &gt; f</title>"), "the title is what was typed");
}

#[test]
fn children_can_be_left_out() {
    let dir = Dir::new();
    let script = "echo parent > parent; sh -c 'echo child > child'; (echo fork > fork)";
    let (_, report) = dir.run(&["--no-children"], &["sh", "-c", script]);
    assert_eq!(report.sessions().len(), 1, "{report:#?}");
    assert_eq!((report.file_bytes("parent"), report.bytes()), (7, 7));
    assert!(report["notes"].to_string().contains("--no-children"));
    // A program that execs another is still the program.
    let (_, report) = dir.run(&["--no-children"], &["sh", "-c", "exec sh -c 'echo exec > exec'"]);
    assert_eq!((report.sessions().len(), report.bytes()), (2, 5), "{report:#?}");
}
