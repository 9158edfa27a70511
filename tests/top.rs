//! `cawl-cli top` in a terminal: a tmux server of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use cawl_client::protocol::{Push, Sort};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clients::{busy, canned, files, processes};
use cawl_kit::{Daemon, Dir, FakeDaemon, LIMIT, Running, built, find};

/// A terminal with `cawl-cli top` in it.
struct Tmux<'a> {
    dir: &'a Dir,
    tmux: PathBuf,
    /// Killed with all its terminals when dropped: it is no daemon, but a child of this test.
    _server: Running,
}

/// Runs a program with only the first three descriptors, which ends with its parent, even if that is killed.
const ALONE: &str = "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; \
                     exec setpriv --pdeathsig KILL \"$@\"";

/// Printed after the end of top: exit status and state of the terminal.
const AFTER: &str =
    "; echo \"ended $?\"; stty -a | tr ' ;' '\\n\\n' | grep -x -e '-*icanon' -e '-*echo'; exec cat";

fn command_line() -> String {
    format!("{} top --every 50ms", built("cawl-cli").display())
}

impl<'a> Tmux<'a> {
    /// A terminal of 80x24 with `top` in it; None where there is no tmux.
    fn start(dir: &'a Dir, environment: &str) -> Option<Tmux<'a>> {
        Tmux::with(dir, &format!("env {environment} {}{AFTER}", command_line()))
    }

    /// A terminal of 80x24 with this line in a shell.
    fn with(dir: &'a Dir, line: &str) -> Option<Tmux<'a>> {
        Tmux::after(dir, "", line)
    }

    /// The same, after a shell command that starts the server.
    fn after(dir: &'a Dir, before: &str, line: &str) -> Option<Tmux<'a>> {
        let tmux = find("tmux")?;
        let server = command(dir, &tmux, &["-D"]);
        let mut alone = dir.command(find("bash")?);
        alone.env("LC_ALL", "C.UTF-8").args(["-c", &format!("{before}\n{ALONE}"), "bash"]);
        alone.arg(server.get_program()).args(server.get_args());
        let tmux = Tmux { dir, tmux, _server: Running::start(alone) };
        let deadline = Instant::now() + LIMIT;
        let session = ["new-session", "-d", "-x", "80", "-y", "24", line];
        // Until the server listens; a client must not start a server of its own.
        while !Running::start(tmux.command(&session)).finish().status.success() {
            assert!(Instant::now() < deadline, "the server of tmux does not come up");
        }
        Some(tmux)
    }

    /// A client of the server.
    fn command(&self, args: &[&str]) -> Command {
        command(self.dir, &self.tmux, &[&["-N"], args].concat())
    }

    fn ask(&self, args: &[&str]) -> String {
        Running::start(self.command(args)).finish().success().stdout
    }

    /// The screen, once it has this text.
    fn until(&self, text: &str) -> String {
        self.once(text, |screen| screen.contains(text))
    }

    fn once(&self, about: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let screen = self.ask(&["capture-pane", "-p"]);
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "never: {about}; but\n{screen}");
        }
    }

    fn press(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    /// Process id of `top`: the only child of the shell.
    fn top(&self) -> Pid {
        let shell = self.ask(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("a shell");
        Pid::from_raw(children.trim().parse().expect("one child"))
    }

    /// Waits for the end, and fails unless the terminal is restored.
    fn ended(&self, status: i32) {
        let screen = self.until(&format!("ended {status}"));
        let screen = if screen.contains("echo") { screen } else { self.until("echo") };
        assert!(!screen.contains("-icanon") && !screen.contains("-echo"), "not restored:\n{screen}");
        let flags = self.ask(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1", "alternate screen or hidden cursor left");
    }
}

/// tmux with a socket in the folder, without the user's settings.
fn command(dir: &Dir, tmux: &Path, args: &[&str]) -> Command {
    let mut command = dir.command(tmux);
    command.env("LC_ALL", "C.UTF-8").args(["-u", "-f", "/dev/null", "-S"]);
    command.arg(dir.path().join("run/tmux")).args(args);
    command
}

#[test]
fn a_terminal_ends_with_its_test_and_inherits_nothing() {
    let dir = Dir::new();
    // A descriptor without close-on-exec, opened by the shell: one of this process would be inherited by
    // programs of other tests.
    let Some(tmux) = Tmux::after(&dir, "exec 7</dev/zero", "exec cat") else { return };
    let number = |text: String| Pid::from_raw(text.trim().parse().expect("a process id"));
    let server = number(tmux.ask(&["display-message", "-p", "#{pid}"]));
    let pane = number(tmux.ask(&["display-message", "-p", "#{pane_pid}"]));
    for process in [server, pane] {
        let open = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
        let mut open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        assert!(open.all(|file| file != Path::new("/dev/zero")), "{process} inherited a descriptor");
    }
    drop(tmux);
    let deadline = Instant::now() + LIMIT;
    while [server, pane].iter().any(|pid| cawl_host::is_running(pid.as_raw() as u32)) {
        assert!(Instant::now() < deadline, "tmux or what runs in it is left behind");
        std::thread::yield_now();
    }
}

fn push_all(daemon: &FakeDaemon) {
    daemon.push(&Push::Status(Box::new(busy(11.0))));
    daemon.push(&Push::Processes(processes()));
    daemon.push(&Push::Files(files()));
}

#[test]
fn the_screen_follows_keys_and_pushes() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let Some(tmux) = Tmux::start(&dir, "LC_ALL=C.UTF-8") else { return };
    let subscription = daemon.subscription();
    assert_eq!((subscription.every_s, subscription.sort), (Some(0.05), Sort::Lost));
    push_all(&daemon);
    let screen = tmux.until("4242 dd");
    for told in [
        "vm1 by model kernel",
        "throttle 67 %",
        " THROTTLE ",
        "dirty 96 MiB modelled",
        "◂ throttle 80 MiB",
        "q quit",
    ] {
        assert!(screen.contains(told), "`{told}` is not in\n{screen}");
    }
    tmux.press(&["Tab"]);
    tmux.until("/data/second");
    tmux.press(&["/", "f", "i", "r", "s", "t", "Enter"]);
    tmux.once("the filtered table", |screen| {
        screen.contains("only `first`: 1") && !screen.contains("second")
    });
    tmux.press(&["s"]);
    assert_eq!(daemon.subscription().sort, Sort::Throttled, "the daemon is asked for other rows");
    tmux.press(&["?"]);
    tmux.until("Any key closes this");
    tmux.press(&["x"]);
    tmux.press(&["p"]);
    tmux.until("PAUSED");
    tmux.press(&["q"]);
    tmux.ended(0);
}

#[test]
fn the_screen_can_change_its_size() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let Some(tmux) = Tmux::start(&dir, "LC_ALL=C NO_COLOR=1") else { return };
    daemon.subscription();
    push_all(&daemon);
    let screen = tmux.until("4242 dd");
    assert!(screen.is_ascii(), "{screen}");
    let coloured = tmux.ask(&["capture-pane", "-p", "-e"]);
    // 30 to 37 are colours, 39 is none.
    let has_colour = (0..8).any(|colour| coloured.contains(&format!("\x1b[3{colour}")));
    assert!(!has_colour, "colours in spite of NO_COLOR: {coloured:?}");
    tmux.ask(&["resize-window", "-x", "70", "-y", "20"]);
    tmux.until("needs 80x24");
    tmux.ask(&["resize-window", "-x", "120", "-y", "40"]);
    tmux.until("throttle 67 %, cold memory 33 %           4242 dd");
    tmux.press(&["C-c"]);
    tmux.ended(0);
}

#[test]
fn a_daemon_that_is_restarted_is_found_again() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let Some(tmux) = Tmux::start(&dir, "LC_ALL=C.UTF-8") else { return };
    daemon.subscription();
    push_all(&daemon);
    tmux.until("4242 dd");
    drop(daemon);
    tmux.until("NO DAEMON");
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    daemon.subscription();
    push_all(&daemon);
    let screen = tmux.until("connected again at");
    assert!(!screen.contains("NO DAEMON"), "{screen}");
    tmux.press(&["Escape"]);
    tmux.ended(0);
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let dir = Dir::new();
        let daemon = FakeDaemon::start(&dir.socket(), canned);
        let Some(tmux) = Tmux::start(&dir, "LC_ALL=C.UTF-8") else { return };
        daemon.subscription();
        tmux.until("q quit");
        kill(tmux.top(), signal).expect("top runs");
        tmux.ended(status);
    }
}

#[test]
fn a_stopped_screen_comes_back() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    // A shell with job control, where Ctrl-Z means something.
    let line = format!("set -m; {}; echo \"stopped $?\"; read go; fg{AFTER}", command_line());
    let Some(tmux) = Tmux::with(&dir, &line) else { return };
    daemon.subscription();
    tmux.until(" THROTTLE ");
    tmux.press(&["C-z"]);
    let screen = tmux.until("stopped 148");
    assert!(!screen.contains(" THROTTLE "), "{screen}");
    tmux.press(&["Enter"]);
    tmux.until(" THROTTLE ");
    tmux.press(&["C-l"]);
    tmux.press(&["?"]);
    tmux.until("Any key closes this");
    tmux.press(&["C-c"]);
    tmux.ended(0);
}

#[test]
fn without_a_daemon_the_screen_is_not_touched() {
    let dir = Dir::new();
    let Some(tmux) = Tmux::start(&dir, "LC_ALL=C.UTF-8") else { return };
    let screen = tmux.until("ended 1");
    assert!(screen.contains("start one with"), "{screen}");
}

#[test]
fn the_real_daemon_is_shown() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let daemon = Daemon::start(&dir, &[]);
    let Some(tmux) = Tmux::start(&dir, "LC_ALL=C.UTF-8") else { return };
    tmux.until("no traced program is connected");
    let mut command = dir.cawl(&["run", "--socket"]);
    command.arg(dir.socket()).arg("--").arg(program).args(["file", "1000", "4096"]);
    let mut running = Running::start(command);
    running.stdout_until("half ");
    tmux.until("paced_writer");
    tmux.press(&["Tab"]);
    tmux.until("/work/file");
    running.say("\n");
    running.finish().success();
    tmux.press(&["Tab"]);
    tmux.until("no traced program is connected");
    daemon.end(Signal::SIGTERM).success();
    tmux.until("NO DAEMON");
    tmux.press(&["q"]);
    tmux.ended(0);
}
