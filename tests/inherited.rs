//! A program inherits the same state with and without `cawl-cli run`: signals, descriptors, working
//! directory, umask, niceness, limits, process group, environment and its order.

use cawl_kit::{Dir, Running, python};

/// Prints all of it.
const LOOK: &str = r#"
    exec 7>look
    grep -E '^(SigPnd|ShdPnd|SigBlk|SigIgn|Umask|NoNewPrivs|Seccomp|Cpus_allowed_list|Groups|Uid|Gid):' /proc/self/status >&7
    sed 's/.*) //' /proc/self/stat | awk '{ print "terminal", $5, "priority", $16, "nice", $17 }' >&7
    ps -o pgid= -p $$ 2>/dev/null | awk -v pid=$LEADER '{ print "group", $1 == pid }' >&7
    cat /proc/self/limits /proc/self/oom_score_adj >&7
    pwd >&7
    tr '\0' '\n' < /proc/self/environ | grep -v -e '^LD_PRELOAD=' -e '^CAWL_' -e '^LEADER=' >&7
    for fd in 0 1 2 3 4 5 6; do [ -e /proc/self/fd/$fd ] && echo "open $fd" >&7; done
    exit 5
"#;

/// Prints the state without and with `cawl-cli run`, after these shell commands.
#[track_caller]
fn compare(before: &str) {
    let dir = Dir::new();
    let script = format!("{before}\nLEADER=$$ exec \"$@\"");
    let look = |run: Option<std::process::Command>| {
        let mut shell = dir.command("sh");
        shell.args(["-c", &script, "sh"]);
        if let Some(run) = run {
            shell.arg(run.get_program()).args(run.get_args());
        }
        shell.args(["sh", "-c", LOOK]).env("ZULU", "last").env("ALPHA", "first");
        Running::start(shell).finish().code(5);
        let text = std::fs::read_to_string(dir.work().join("look")).expect("it was written");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = look(None);
    let run = dir.run_command(&["--no-children"], &[] as &[&str]);
    let traced = look(Some(run));
    assert_eq!(alone, traced, "after `{before}` (left: alone, right: traced)");
}

#[test]
fn with_nothing_special() {
    compare("");
}

#[test]
fn ignored_signals_stay_ignored() {
    compare("trap '' PIPE");
    compare("trap '' HUP INT QUIT TERM USR1 CHLD");
}

#[test]
fn a_broken_pipe_ends_a_program_as_ever() {
    for before in ["", "trap '' PIPE;"] {
        let dir = Dir::new();
        let run = dir.run_command(&[], &["yes"]);
        let mut words = vec![run.get_program().to_owned()];
        words.extend(run.get_args().map(ToOwned::to_owned));
        let ended = |words: Vec<std::ffi::OsString>| {
            let mut shell = dir.command("bash");
            shell
                .args(["-c", &format!("{before} \"$@\" | head -1; echo ${{PIPESTATUS[0]}}"), "bash"])
                .args(words);
            Running::start(shell).finish().success()
        };
        let alone = ended(vec!["yes".into()]);
        assert_eq!(alone.stdout.contains("141"), before.is_empty(), "{alone:?}");
        assert_eq!(alone, ended(words));
    }
}

#[test]
fn descriptors_that_are_closed_stay_closed() {
    compare("exec 0<&-");
    compare("exec 2>&-");
    compare("exec 0<&- 1>&- 2>&-");
    compare("exec 3</dev/null 5>five");
}

#[test]
fn umask_limits_folder_and_niceness() {
    compare("umask 027; ulimit -n 100; ulimit -c 0; cd /; cd - >/dev/null");
    compare("mkdir -p below; cd .");
    let dir = Dir::new();
    let nice = dir.run_command(&["--no-children"], &["nice"]);
    let own: i32 = Running::start(dir.command("nice")).finish().stdout.trim().parse().expect("a niceness");
    let mut command = dir.command("nice");
    command.args(["-n", "7"]).arg(nice.get_program()).args(nice.get_args());
    assert_eq!(Running::start(command).finish().success().stdout, format!("{}\n", 19.min(own + 7)));
}

#[test]
fn blocked_signals_stay_blocked() {
    let Some(python) = python() else { return };
    let program = "import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGRTMIN + 3])
os.execvp(sys.argv[1], sys.argv[1:])";
    let look = ["grep", "^Sig[BI]", "/proc/self/status"];
    let dir = Dir::new();
    let blocked = |words: Vec<std::ffi::OsString>| {
        let mut command = dir.command(&python);
        command.args(["-c", program]).args(words);
        let told = Running::start(command).finish().success().stdout;
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = dir.run_command(&["--no-children"], &look);
    let mut words = vec![run.get_program().to_owned()];
    words.extend(run.get_args().map(ToOwned::to_owned));
    let alone = blocked(look.iter().map(Into::into).collect());
    assert_eq!(alone, blocked(words));
    assert!(alone.iter().any(|line| line.starts_with("SigBlk:") && !line.ends_with("0000000000000000")));
}
