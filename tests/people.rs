//! Output for people: no name of a program or file controls the terminal, and a full or closed output causes
//! no panic.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cawl_client::protocol::{Files, Processes, Request};
use cawl_core::{Bytes, FileFacts, HostProfile, Origin, Record, Session};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_wire::{Event, FileKind, Op};
use serde_json::json;

use crate::clients::{busy, canned, files, processes};
use cawl_kit::{Answer, Dir, FakeDaemon, Finished, Running, find};

/// A title for the window, a line of its own, a cleared screen, a C1 control, and text from right to left.
const NAME: &str = "a\x1b]0;title\x07\nforged\r\x1b[2J\u{9b}2J\u{202e}z\u{2028}\x7f";

/// Fails unless the output has no control characters, and each line is one of ours.
fn harmless(finished: Finished) -> Finished {
    for text in [&finished.stdout, &finished.stderr] {
        let bad = |c: char| {
            c != '\n' && (c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
        };
        assert!(!text.contains(bad), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    }
    finished
}

/// The same, and the name is in it.
fn told(finished: Finished) -> Finished {
    let finished = harmless(finished.success());
    let all = format!("{}{}", finished.stdout, finished.stderr);
    assert!(all.contains("forged"), "the name is nowhere: {all}");
    finished
}

/// A trace in which everything with a name has this one.
fn trace(dir: &Dir) -> String {
    let path = dir.work().join("hostile.trace");
    let mut trace = TraceFile::create(&path, WhenFull::Wait).expect("a new file");
    let name = NAME.to_owned();
    let profile = HostProfile { name: name.clone(), origin: Origin::Learned, ..HostProfile::uncalibrated() };
    let mut push = |record| trace.push(&record);
    push(Record::Profile(Box::new(profile)));
    for id in [1, 2] {
        let (program, arguments) = (name.clone(), vec![name.clone()]);
        push(Record::Session(Session { id, pid: id, program, arguments, ..Session::default() }));
    }
    let file = FileFacts {
        dev: 1,
        ino: 7,
        birth: 0,
        size: Bytes(0),
        block: 4096,
        mode: 0o100_644,
        path: name.clone(),
        renamed: false,
        owner: 0,
    };
    push(Record::File(file));
    for at in 0..3 {
        let mut event = Event::new(Op::Write);
        (event.pid, event.tid, event.dev, event.ino) = (1, 1, 1, 7);
        (event.start, event.duration, event.kind) = (1000 + at * 1_000_000, 500_000, FileKind::Regular);
        (event.requested, event.returned) = (4096, 4096);
        push(Record::Event(event));
    }
    push(Record::Note(name));
    assert_eq!(trace.finish(), None);
    path.to_str().expect("a readable path").to_owned()
}

#[test]
fn a_replayed_trace_cannot_command_the_terminal() {
    let dir = Dir::new();
    let trace = trace(&dir);
    let asked = |args: &[&str]| Running::start(dir.cawl(args)).finish();
    for args in [&["replay"][..], &["replay", "--lockstep"], &["replay", "--calls"]] {
        told(asked(&[args, &[&trace]].concat()));
    }
    // JSON has each name unchanged.
    let report = asked(&["replay", "--json", &trace]).success().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    for value in [&report["files"][0]["path"], &report["sessions"][0]["program"]] {
        assert_eq!(value, NAME);
    }
    let notes = report["notes"].as_array().expect("notes");
    assert!(notes.iter().any(|note| note == NAME), "{notes:?}");
    let calls = asked(&["replay", "--json", "--calls", &trace]).success().stdout;
    let first: serde_json::Value = serde_json::from_str(calls.lines().next().expect("a call")).expect("JSON");
    assert_eq!(first["path"], NAME);
}

#[test]
fn a_program_s_and_its_file_s_name_cannot_command_the_terminal() {
    let dir = Dir::new();
    let Some(cat) = find("cat") else { return };
    let program = dir.work().join(NAME);
    fs::copy(cat, &program).expect("a copy");
    let run = |options: &[&str]| {
        let mut command = dir.cawl(&["run"]);
        command.args(options).args(["--", "sh", "-c", "echo x | \"$0\" > \"$0.out\""]).arg(&program);
        Running::start(command).finish()
    };
    told(run(&[]));
    let report = dir.work().join("report.txt");
    harmless(run(&["--report", report.to_str().expect("a readable path")]).success());
    let text = fs::read_to_string(report).expect("a report");
    told(Finished { stdout: text, ..run(&[]) });
    let mut doctor = dir.cawl(&["doctor"]);
    doctor.arg(&program);
    told(Running::start(doctor).finish());
    for command in ["doctor", "run"] {
        let mut command = dir.cawl(&[command]);
        command.arg("--").arg(dir.work().join(format!("{NAME}.none")));
        harmless(Running::start(command).finish().code(127));
    }
}

#[test]
fn a_daemon_s_answer_cannot_command_the_terminal() {
    let dir = Dir::new();
    let hostile = |request: &Request| {
        let name = || NAME.to_owned();
        let mut status = busy(10.0);
        (status.node, status.profile, status.model) = (name(), name(), name());
        status.labels = [(name(), name())].into();
        status.processes = processes().processes;
        status.processes[0].program = name();
        status.devices[0].name = name();
        let mut told = match request {
            Request::Files(_) => {
                let mut files: Files = files();
                files.files[0].path = name();
                json!(files)
            }
            Request::Processes(_) => {
                let mut processes: Processes = processes();
                processes.processes[0].program = name();
                json!(processes)
            }
            Request::Status(_) => json!(status),
            Request::BeginRun(_) => json!({ "error": NAME }),
            other => match canned(other) {
                Answer::Says(told) => told,
                other => return other,
            },
        };
        if let Request::Predict(_) = request {
            told["model"] = json!(NAME);
        }
        if let Some(constant) = told.pointer_mut("/constants/0") {
            (constant["name"], constant["unit"]) = (json!(NAME), json!(NAME));
        }
        Answer::Says(told)
    };
    let _daemon = FakeDaemon::start(&dir.socket(), hostile);
    let asked = |args: &[&str]| Running::start(dir.cawl(args)).finish();
    for args in [
        &["status"][..],
        &["status", "--files"],
        &["status", "--processes"],
        &["profile", "diff"],
        &["predict", "--bytes", "1M", "--device", "254:1"],
    ] {
        told(asked(args));
    }
    let refused = asked(&["run", "--socket", dir.socket().to_str().expect("a readable path"), "--", "true"]);
    assert!(harmless_but_for_lines(&refused.code(1)), "an error");
}

/// An error message may have several lines, as a parser's.
fn harmless_but_for_lines(finished: &Finished) -> bool {
    !finished.stderr.contains(|c: char| c != '\n' && c.is_control())
}

/// clap prints the words that it refuses as they are.
#[test]
fn a_refused_argument_cannot_command_the_terminal() {
    let dir = Dir::new();
    let option = format!("--{NAME}");
    for args in
        [&["run", &option][..], &[NAME], &["replay", "x", "--model", NAME], &["predict", "--bytes", NAME]]
    {
        let refused = harmless(Running::start(dir.cawl(args)).finish().code(2));
        assert!(refused.stderr.contains(r"\u{1b}]0;title\u{7}\nforged"), "{args:?}: {refused:#?}");
    }
}

#[test]
fn foreign_files_cannot_command_the_terminal() {
    let dir = Dir::new();
    let name = "a\x1b[2J\u{9b}\u{202e}";
    let csv = format!(
        "start_s,op,offset,size,duration_s,path\n0.1,write,0,4096,0.0001,forged{name}\n0.2,{name},,,,x\n"
    );
    fs::write(dir.work().join("calls.csv"), csv).expect("a new file");
    let asked = |args: &[&str]| Running::start(dir.cawl(args)).finish();
    harmless(asked(&["import", "--from", "csv", "calls.csv", "-o", "trace"]));
    let good = format!("start_s,op,offset,size,duration_s,path\n0.1,write,0,4096,0.0001,forged{name}\n");
    fs::write(dir.work().join("calls.csv"), good).expect("a new file");
    asked(&["import", "--from", "csv", "calls.csv", "-o", "trace"]).success();
    let replayed = asked(&["replay", "trace"]).success();
    assert!(replayed.stdout.contains(r"a\u{1b}[2J\u{9b}\u{202e}"), "{replayed:#?}");
    let checked = asked(&["check", "trace"]).success();
    assert!(checked.stdout.contains(r"a\u{1b}[2J\u{9b}\u{202e}"), "{checked:#?}");
    let mut profile = HostProfile::uncalibrated();
    profile.name = NAME.to_owned();
    fs::write(dir.work().join("p.toml"), profile.to_toml() + "bad\x1b = 1\n").expect("a new file");
    let refused = asked(&["replay", "--profile", "p.toml", "trace"]).code(1);
    assert!(harmless_but_for_lines(&refused), "{refused:#?}");
}

/// Runs with the output that `shell` sets up.
fn with_output(dir: &Dir, shell: &str, args: &[&str]) -> Finished {
    let mut command = dir.command("sh");
    command.args(["-c", shell, "sh"]).arg(cawl_kit::built("cawl-cli")).args(args);
    let finished = Running::start(command).finish();
    assert!(
        !finished.stderr.contains("panicked") && finished.status.code().is_some(),
        "{args:?}: {finished:#?}"
    );
    finished
}

#[test]
fn an_output_that_takes_nothing_is_no_reason_to_panic() {
    let dir = Dir::new();
    let _daemon = FakeDaemon::start(&dir.socket(), |request| match request {
        Request::Subscribe(_) => {
            let status = || cawl_client::protocol::Push::Status(Box::new(busy(1.0)));
            Answer::PushesAndEnds(vec![status(), status()])
        }
        other => canned(other),
    });
    dir.run(&[], &["sh", "-c", "echo data > file"]).0.success();
    fs::write(dir.work().join("p.toml"), HostProfile::uncalibrated().to_toml()).expect("a new file");
    fs::write(
        dir.work().join("c.csv"),
        "start_s,op,offset,size,duration_s,path\n0.1,write,0,4096,0.0001,a\n",
    )
    .expect("a new file");
    let trace = dir.trace();
    let trace = trace.to_str().expect("a readable path");
    // A pipe without a reader; it is opened before the program starts.
    let pipe = |of: u8| format!("mkfifo p; exec 9<>p 8>p; exec 9<&-; rm p; exec \"$@\" {of}>&8 8>&-");
    let full = |of: u8| format!("exec \"$@\" {of}> /dev/full");
    let printing: [&[&str]; 22] = [
        &["check", trace],
        &["check", "--json", trace],
        &["replay", trace],
        &["replay", "--json", trace],
        &["replay", "--calls", trace],
        &["export", trace, "--to", "csv"],
        &["export", trace, "--to", "parquet"],
        &["doctor"],
        &["doctor", "--json", "sh"],
        &["doctor", "sh"],
        &["status"],
        &["status", "--json"],
        &["status", "--files"],
        &["status", "--processes", "--json"],
        &["status", "--watch", "--count", "1"],
        &["status", "--watch", "--json", "--count", "1"],
        &["predict", "--bytes", "1M", "--device", "254:1"],
        &["predict", "--bytes", "1M", "--offline", "--json"],
        &["profile", "diff"],
        &["profile", "export"],
        &["completions", "bash"],
        &["calibrate", "--quick", "--max-seconds", "4", "--max-bytes", "64M", "-o", "calibrated.toml"],
    ];
    for args in printing {
        // The reader may have stopped early.
        with_output(&dir, &pipe(1), args).code(0);
        with_output(&dir, &full(1), args).code(1).says("cannot write the output");
    }
    let telling: [(&[&str], i32); 8] = [
        (&["run", "--no-calibrate", "--", "sh", "-c", "echo data > file; exit 3"], 3),
        (&["run", "--no-calibrate", "--", "no-such-program"], 127),
        (&["doctor", "no-such-program"], 127),
        (&["replay", "no-such-trace"], 1),
        (&["import", "--from", "csv", "c.csv", "-o", "t"], 0),
        (&["predict", "--bytes", "1M", "--offline"], 0),
        (&["profile", "export", "-o", "e.toml", "--force"], 0),
        (&["calibrate", "--check", "--max-seconds", "2", "-o", "no-such-profile.toml"], 1),
    ];
    for (args, code) in telling {
        with_output(&dir, &pipe(2), args).code(code);
        with_output(&dir, &full(2), args).code(code);
    }
    // Output of clap itself.
    for args in [&["--help"][..], &["--version"]] {
        with_output(&dir, &pipe(1), args);
        with_output(&dir, &full(1), args);
    }
}

#[test]
fn what_cannot_be_done_is_told_with_the_remedy() {
    let dir = Dir::new();
    let script = dir.work().join("script");
    fs::write(&script, "echo hi\n").expect("a new file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let room = ["predict", "--offline", "--bytes", "4000G", "--chunk", "1G", "--path", "/dev/shm"];
    let asked: [(&[&str], i32, &str); 6] = [
        (&["calibrate", ".", "--max-bytes", "1K", "-o", "p.toml"], 2, "give a higher --max-bytes"),
        (&["calibrate", ".", "--brief", "--max-bytes", "1M", "-o", "p.toml"], 2, "give a higher --max-bytes"),
        (&["run", "--", "./script"], 126, "give the command as sh ./script"),
        (&["run", "--trace", "no/such/t", "--", "true"], 1, "there is no folder"),
        (&["profile", "export"], 1, "cawl-cli calibrate"),
        (&room, 0, "do not fit"),
    ];
    for (args, code, says) in asked {
        Running::start(dir.cawl(args)).finish().code(code).says(says);
    }
    for command in
        ["run", "doctor", "replay", "explain", "calibrate", "predict", "import", "export", "whatif"]
    {
        let help = Running::start(dir.cawl(&[command, "--help"])).finish().success().stdout;
        let over: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(over.is_empty(), "{command}: {over:#?}");
    }
}
