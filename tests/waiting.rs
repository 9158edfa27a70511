//! Processes may outlive the program that started them, and a report may take time.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use cawl_client::protocol::Request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::clients::canned;
use crate::eyes::can_attach;
use cawl_kit::{Answer, Daemon, Dir, FakeDaemon, Finished, LIMIT, Report, Running, eventually};

fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A process left behind by a test; killed at the end.
struct Left(Pid);

impl Drop for Left {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// The pids that the program printed: its own, and that of the process it left behind.
fn pids(running: &mut Running) -> (Pid, Left) {
    let line = running.stdout_until("pids ");
    let mut pids = line.rsplit("pids ").next().expect("it was found").split(' ');
    let mut next = || Pid::from_raw(pids.next().and_then(|pid| pid.trim().parse().ok()).expect("a pid"));
    (next(), Left(next()))
}

/// Time for a report that an interrupt asked for, before the next interrupt, which would give it up.
const REPORT: Duration = Duration::from_secs(LIMIT.as_secs() / 4);

/// Interrupts `cawl-cli`, and again each time it has not ended by then: one that comes within 200 ms of the
/// end of the program is for the program. The second one that counts ends the wait for the report.
fn interrupt_until_it_ends(running: Running, every: Duration) -> Finished {
    let pid = running.pid();
    let (send, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(running.finish()));
    let mut within = Duration::from_millis(500);
    loop {
        if let Ok(finished) = ended.recv_timeout(within) {
            return finished;
        }
        // It may have ended already.
        let _ = kill(pid, Signal::SIGINT);
        within = every;
    }
}

fn notes(report: &Report) -> String {
    report["notes"].to_string()
}

/// A shell that leaves a process behind and ends with status 3.
fn leaving(behind: &str) -> [String; 3] {
    ["sh".to_owned(), "-c".to_owned(), format!("{behind} > /dev/null 2>&1 & echo pids $$ $!; exit 3")]
}

#[test]
fn processes_that_go_on_are_named() {
    let dir = Dir::new();
    let eyes = if can_attach(&dir) { &["preload", "kernel"][..] } else { &["preload"] };
    for via in eyes {
        let options = ["--via", via];
        let mut running = Running::start(dir.run_command(&options, &leaving("setsid sleep 1000")));
        let (_, left) = pids(&mut running);
        let finished = running.finish().code(3);
        let notes = notes(&dir.report(&finished));
        let named = format!("(pid {})", left.0);
        assert!(notes.contains("1 process still ran") && notes.contains(&named), "{via}: {notes}");
        assert!(!notes.contains("not traced"), "{notes}");
    }
    // Nothing is left running, and nothing is printed.
    let (finished, report) = dir.run(&[], &["sh", "-c", "setsid true & wait"]);
    finished.success();
    assert_eq!(report["notes"], json!([]));
}

/// The last process writes after the end of the program, and all its bytes are in the report.
fn the_last_is_waited_for(dir: &Dir, options: &[&str], behind: &str) -> Report {
    let fifo = dir.work().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a new fifo");
    let script = format!("{behind} < fifo & echo pids $$ $!; exit 3");
    let mut running =
        Running::start(dir.run_command(&[&["--wait"], options].concat(), &["sh", "-c", &script]));
    let mut gate = OpenOptions::new().write(true).open(&fifo).expect("somebody reads");
    let (shell, left) = pids(&mut running);
    // The program is reaped: some processes wait for that.
    eventually("the end of the shell", || state(shell).is_none());
    assert!(state(left.0).is_some(), "it waits for its input");
    gate.write_all(b"written later\n").expect("it reads");
    drop(gate);
    let finished = running.finish().code(3);
    let report = dir.report(&finished);
    assert_eq!(fs::read_to_string(dir.work().join("file")).expect("it was written"), "written later\n");
    assert!(!notes(&report).contains("still ran"), "{}", notes(&report));
    fs::remove_file(fifo).expect("it is ours");
    report
}

#[test]
fn the_last_process_is_waited_for() {
    let dir = Dir::new();
    let report = the_last_is_waited_for(&dir, &[], "setsid cat > file");
    assert_eq!(report.file_bytes("file"), 14);
    report.all_seen();
    // An untraced process is waited for too.
    the_last_is_waited_for(&dir, &[], "env -u LD_PRELOAD cat > file");
    // And one without its environment.
    let titled = dir.app("titled");
    let report = the_last_is_waited_for(&dir, &[], &format!("{} file", titled.display()));
    assert_eq!(report.file_bytes("file"), 14);
}

#[test]
fn a_daemon_s_runs_are_waited_for_too() {
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    let socket = dir.socket();
    let options = ["--socket", socket.to_str().expect("a readable path")];
    let titled = dir.app("titled");
    let report = the_last_is_waited_for(&dir, &options, &format!("{} file", titled.display()));
    assert_eq!(report.file_bytes("file"), 14);
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn a_stopped_process_is_waited_for() {
    let dir = Dir::new();
    let behind = "sh -c 'kill -STOP $$; echo later > file'";
    let mut running = Running::start(dir.run_command(&["--wait"], &leaving(behind)));
    let (shell, left) = pids(&mut running);
    eventually("the end of the shell", || state(shell).is_none());
    eventually("the stop", || state(left.0) == Some('T'));
    kill(left.0, Signal::SIGCONT).expect("it is there");
    let finished = running.finish().code(3);
    assert_eq!(dir.report(&finished).file_bytes("file"), 6);
}

#[test]
fn an_interrupt_ends_the_wait() {
    let dir = Dir::new();
    let mut running = Running::start(dir.run_command(&["--wait"], &leaving("sleep 1000")));
    let (shell, left) = pids(&mut running);
    eventually("the end of the shell", || state(shell).is_none());
    let name = || fs::read_to_string(format!("/proc/{}/comm", left.0)).unwrap_or_default();
    eventually("the exec", || name() == "sleep\n");
    let finished = interrupt_until_it_ends(running, REPORT).code(3);
    let notes = notes(&dir.report(&finished));
    let named = format!("sleep (pid {})", left.0);
    assert!(notes.contains("1 process still ran") && notes.contains(&named), "{notes}");
    assert!(state(left.0).is_some(), "the process is not ours to end");
    Running::start(dir.cawl(&["run", "--wait", "--no-children", "--", "true"])).finish().code(2);
}

/// The answers of a daemon that takes long for a report; `now`: unless asked for it at once.
fn slow(report: Value, now: bool) -> impl Fn(&Request) -> Answer + Send + Sync {
    move |request| match request {
        Request::BeginRun(_) => Answer::Says(json!({ "run": 1 })),
        Request::EndRun { now: true, .. } if now => Answer::Says(report.clone()),
        // Kept open without an answer.
        Request::EndRun { .. } => Answer::Subscribes,
        other => canned(other),
    }
}

fn wanted(daemon: &FakeDaemon) {
    eventually("the question for the report", || matches!(daemon.question(), Request::EndRun { .. }));
}

#[test]
fn an_interrupt_brings_the_report_that_is_awaited() {
    let dir = Dir::new();
    let (_, report) = dir.run(&[], &["sh", "-c", "echo data > file"]);
    let start = |socket: &Path| {
        let mut command = dir.cawl(&["run", "--socket"]);
        command.arg(socket).args(["--", "sh", "-c", "exit 3"]);
        Running::start(command)
    };
    let daemon = FakeDaemon::start(&dir.socket(), slow(report.0.clone(), true));
    let running = start(&dir.socket());
    wanted(&daemon);
    interrupt_until_it_ends(running, REPORT).code(3).says("/file");
    drop(daemon);
    // A daemon that does not answer is given up.
    let daemon = FakeDaemon::start(&dir.socket(), slow(report.0, false));
    let running = start(&dir.socket());
    wanted(&daemon);
    interrupt_until_it_ends(running, Duration::from_millis(300)).code(3).says("there is no report");
}
