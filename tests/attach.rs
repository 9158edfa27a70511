//! Following what runs already, by probes in the kernel: names, refusals, and who sees a program that `run`
//! starts.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use cawl_kit::{Dir, Finished, Running, find, skipped};

fn attach(dir: &Dir, args: &[&str]) -> Finished {
    Running::start(dir.cawl(&[&["attach"], args].concat())).finish()
}

#[test]
fn what_is_not_there_is_told_with_a_remedy() {
    let dir = Dir::new();
    let folder = dir.path().display().to_string();
    let missing = format!("{folder}/missing");
    for (args, why) in [
        (&["4194304"][..], "there is no process 4194304; ps -e lists"),
        (
            &["--unit", "cawl-tests-have-none"],
            if Path::new("/run/systemd/system").is_dir() {
                "no unit cawl-tests-have-none.service is running here; systemctl"
            } else {
                "no unit cawl-tests-have-none.service is running here; systemd does not run here"
            },
        ),
        (
            &["--container", "cawl-tests-have-none"],
            "no container cawl-tests-have-none is running here; docker ps",
        ),
        (&["--unit", ""], "give the unit's name"),
        (&["--cgroup", &missing], "; they are folders below /sys/fs/cgroup"),
        (&["--cgroup", &folder], "is no control group; they are folders below /sys/fs/cgroup"),
    ] {
        attach(&dir, args).code(1).says(why);
    }
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        attach(&dir, &["2"]).code(1).says("2 (kthreadd) is a thread of the kernel");
    }
}

#[test]
fn wrong_usage() {
    let dir = Dir::new();
    for args in [&[][..], &["1", "--report", "out.pdf"]] {
        attach(&dir, args).code(2);
    }
    for number in ["0", "one", "-1", "99999999999", ""] {
        attach(&dir, &[number]).code(2).says("give the number of a process, as ps -e lists them");
    }
    for span in ["30", "-3s", "0s", "soon", "99999999999999h"] {
        attach(&dir, &["1", "--for", span]).code(2).says("with its unit, as 30s");
    }
    let run = dir.cawl(&["run", "--via", "kernel", "--stacks", "--", "true"]);
    Running::start(run)
        .finish()
        .code(2)
        .says("only the tracer's library can do --stacks; leave out --via kernel");
    let mut daemon = dir.command(cawl_kit::built("cawld"));
    daemon.arg("--kernel");
    Running::start(daemon).finish().code(2).says("--unit");
    let mut daemon = dir.command(cawl_kit::built("cawld"));
    daemon.args(["--unit", "a"]);
    Running::start(daemon).finish().code(2).says("--kernel");
}

/// Its own calls would be recorded as those of what it follows.
#[test]
fn nothing_follows_itself() {
    let dir = Dir::new();
    let mut shell = dir.command("sh");
    shell.arg("-c").arg(format!("{} attach $$; exit $?", cawl_kit::built("cawl-cli").display()));
    Running::start(shell).finish().code(1).says("is one of those that started this one");
}

#[test]
fn a_trace_that_did_not_begin_is_not_left() {
    let dir = Dir::new();
    let trace = dir.trace();
    attach(&dir, &["4194304", "--trace", trace.to_str().expect("a readable path")]).code(1);
    assert!(!trace.exists());
    fs::write(&trace, "dear diary").expect("a new file");
    attach(&dir, &["1", "--trace", trace.to_str().expect("a readable path")])
        .code(1)
        .says("exists and is no trace");
    assert_eq!(fs::read_to_string(&trace).expect("it is kept"), "dear diary");
}

#[test]
fn a_daemon_does_not_wait_for_a_process() {
    let dir = Dir::new();
    let mut daemon = dir.command(cawl_kit::built("cawld"));
    daemon.args(["--kernel", "--pid", "4194304", "--socket"]).arg(dir.socket());
    Running::start(daemon).finish().code(1).says("there is no process 4194304");
    assert!(!dir.socket().exists());
}

/// A static program runs as it does without cawl. The report says that the probes saw it, or why nothing did.
#[test]
fn a_program_without_a_linker_is_left_to_the_kernel() {
    let dir = Dir::new();
    if find("cc").is_none() {
        return;
    }
    let (source, program) = (dir.path().join("three.c"), dir.path().join("three"));
    fs::write(
        &source,
        "#include <stdio.h>\nint main(int c, char **v) { printf(\"%s\", v[c - 1]); return 3; }\n",
    )
    .expect("a new file");
    let mut compile = Command::new("cc");
    compile.arg("-static").arg("-o").args([&program, &source]).stderr(Stdio::null());
    if !compile.status().is_ok_and(|status| status.success()) {
        return skipped("cc -static does not work here");
    }
    for (via, words) in [("auto", "statically linked"), ("preload", "; --via kernel would see it")] {
        let command = [program.as_os_str(), "word".as_ref()];
        let (finished, report) = dir.run(&["--via", via], &command);
        assert_eq!(finished.code(3).stdout, "word");
        let notes = report["notes"].to_string();
        assert!(notes.contains("statically linked") && notes.contains(words), "{via}: {notes}");
    }
    // Nothing is measured for what nothing sees.
    let mut command = dir.newcomers_cawl(&["run", "--via", "preload", "--"]);
    command.arg(&program).arg("word");
    let unseen = Running::start(command).finish().code(3);
    let first = unseen.stderr.lines().next().expect("a line");
    assert!(
        first.starts_with("cawl-cli: not traced: ") && !unseen.stderr.contains("calibrating "),
        "{unseen:#?}"
    );
    // What only the library can do is not given up for the kernel.
    let (finished, report) = dir.run(&["--stacks"], &[&program]);
    finished.code(3);
    let notes = report["notes"].to_string();
    assert!(notes.contains("probes in the kernel would see it, without --stacks"), "{notes}");
    let missing = dir.path().join("missing");
    for via in ["auto", "preload", "kernel"] {
        Running::start(dir.run_command(&["--via", via], &[&missing])).finish().code(127);
    }
}
