//! Programs that run already, followed by probes in the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cawl_kit::{Daemon, Dir, Report, Running, eventually, find, skipped};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

/// Why nothing can be attached here, if so.
fn obstacle() -> Option<&'static str> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    let why = WHY.get_or_init(|| {
        let dir = Dir::new();
        let mut idle = Running::start(dir.command("cat"));
        let pid = idle.pid().to_string();
        let attach = Running::start(dir.cawl(&["attach", &pid, "--no-save", "--for", "1ms"])).finish();
        idle.say("\n");
        idle.finish().success();
        (!attach.status.success()).then_some(attach.stderr)
    });
    why.as_deref().map(str::trim_end)
}

/// `attach`, which has attached. None, after a line that says why, where it cannot.
fn attached(dir: &Dir, args: &[&str]) -> Option<Running> {
    if let Some(why) = obstacle() {
        skipped(why);
        return None;
    }
    let mut command = dir.cawl(&["attach", "--no-save", "--report"]);
    command.arg(dir.path().join("report.json")).args(args);
    let mut attach = Running::start(command);
    attach.stderr_until("attached to");
    Some(attach)
}

/// A program that has written half of its 20 blocks of 1000 bytes, and waits for a line.
fn writer(dir: &Dir, file: &str) -> Running {
    let mut command = dir.command(cawl_kit::app("paced_writer"));
    command.args([file, "10", "1000"]);
    let mut writer = Running::start(command);
    writer.stdout_until("half");
    writer
}

fn pid(of: &Running) -> String {
    of.pid().to_string()
}

#[test]
fn a_writer_is_followed_to_its_end() {
    let dir = Dir::new();
    let mut writer = writer(&dir, "to");
    let Some(attach) = attached(&dir, &[&pid(&writer)]) else { return };
    writer.say("\n");
    writer.finish().success();
    // There is no terminal, but nobody else writes to its stderr.
    let report = dir.report(&attach.finish().success().says("in calls: ").says("report /"));
    report.all_seen();
    assert_eq!((report.calls_of("write"), report.bytes(), report.file_bytes("to")), (10, 10_000, 10_000));
    assert_eq!((report.sessions().len(), &report["sessions"][0]["ended"]), (1, &"exit".into()));
    assert!(report["notes"].to_string().contains("seen by the kernel's probes"), "{}", report["notes"]);
}

/// Not from the first of its calls to the last: it may make few.
#[test]
fn elapsed_is_the_time_of_attaching() {
    let dir = Dir::new();
    let mut writer = writer(&dir, "to");
    let Some(attach) = attached(&dir, &[&pid(&writer), "--for", "300ms"]) else { return };
    let report = dir.report(&attach.finish().success());
    let span = report["span_s"].as_f64().expect("a figure");
    assert!(span >= 0.29 && report["calls"] == 0, "{span} s");
    writer.say("\n");
    writer.finish().success();
}

/// A program goes on as if nobody had been there.
#[test]
fn a_writer_is_left() {
    let dir = Dir::new();
    let mut writer = writer(&dir, "to");
    let Some(attach) = attached(&dir, &[&pid(&writer)]) else { return };
    attach.signal(Signal::SIGINT);
    let report = dir.report(&attach.finish().success());
    assert_eq!((&report["calls"], &report["sessions"][0]["ended"]), (&0.into(), &"running".into()));
    writer.say("\n");
    writer.finish().success();
    assert_eq!(cawl_kit::size(&dir, "to"), 20_000);
}

/// Children that begin later are followed under each of their images; those that had ended already are not
/// waited for.
#[test]
fn children_are_followed() {
    let dir = Dir::new();
    let mut shell = dir.command("sh");
    let script = "true & echo half; read go; (printf abc >own); dd if=/dev/zero of=child bs=100 count=7 2>/dev/null; :";
    shell.args(["-c", script]);
    let mut shell = Running::start(shell);
    shell.stdout_until("half");
    let Some(attach) = attached(&dir, &[&pid(&shell)]) else { return };
    shell.say("\n");
    shell.finish().success();
    let report = dir.report(&attach.finish().success());
    report.all_seen();
    assert_eq!((report.file_bytes("own"), report.file_bytes("child")), (3, 700));
    let images: Vec<String> = report.sessions().iter().map(|one| one["program"].to_string()).collect();
    assert!(images.len() >= 3 && images.iter().any(|image| image.ends_with("/dd\"")), "{images:?}");
}

/// Two writers of single bytes and a shell that makes files, after "half"; waits for a line.
const CROWD: &str =
    "echo half; read go; for to in a b; do dd if=/dev/zero of=$to bs=1 count=60000 2>/dev/null & done
    wait; i=0; while [ $i -lt 400 ]; do echo x >new$i; i=$((i + 1)); done";

/// Calls of that and those dropped, by a follower that is stopped meanwhile, so that its ring overflows; or
/// not.
fn crowd(is_stopped: bool) -> Option<Report> {
    let dir = Dir::new();
    let mut shell = dir.command("sh");
    shell.args(["-c", CROWD]);
    let mut shell = Running::start(shell);
    shell.stdout_until("half");
    let attach = attached(&dir, &[&pid(&shell)])?;
    if is_stopped {
        attach.signal(Signal::SIGSTOP);
    }
    shell.say("\n");
    shell.finish().success();
    attach.signal(Signal::SIGCONT);
    Some(dir.report(&attach.finish().success()))
}

/// What finds no room is counted once, with the process that made it; what only names files is no call.
#[test]
fn what_is_lost_counts_with_its_process() {
    let (Some(all), Some(some)) = (crowd(false), crowd(true)) else { return };
    let count = |one: &Value, name: &str| one[name].as_u64().expect("a count");
    let calls = |report: &Report| count(&report.0, "calls") + count(&report.0, "drops");
    assert!(count(&some.0, "drops") > 10_000, "{}", some["drops"]);
    // A dup2 over a descriptor is one call, and two events.
    let (lost, told) = (calls(&some), calls(&all));
    assert!(lost <= told + 50 && told <= lost + 500, "{lost}, {told}");
    // Each byte is a call; what dd says at its end has 96.
    let writers: Vec<u64> = some
        .sessions()
        .iter()
        .filter(|one| one["program"].as_str().is_some_and(|program| program.ends_with("/dd")))
        .map(|one| count(one, "seen_bytes") + count(one, "dropped"))
        .collect();
    assert!(writers.len() == 2 && writers.iter().all(|sum| (60_000..60_200).contains(sum)), "{writers:?}");
}

/// The end of a process and the next one of its number may be read at once.
#[test]
fn a_number_that_is_used_again_is_followed() {
    let dir = Dir::new();
    let mut shell = dir.command("python3");
    shell.args(["-c", AGAIN]);
    let mut shell = Running::start(shell);
    if shell.stdout_until("half").contains("not allowed") {
        shell.finish();
        return skipped("a process may not choose its number");
    }
    let Some(attach) = attached(&dir, &[&pid(&shell)]) else { return };
    shell.say("\n");
    shell.finish().success();
    let report = dir.report(&attach.finish().success());
    report.all_seen();
    assert_eq!((report.bytes(), report.sessions().len()), (31 * 100, 32));
}

/// Makes 31 processes one after another by clone3, each of one number, which write 100 bytes each.
const AGAIN: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def child(number):
    wanted = (ctypes.c_int * 1)(number)
    at = ctypes.addressof(wanted)
    made = libc.syscall(435, struct.pack('11Q', 0, 0, 0, 0, 17, 0, 0, 0, at if number else 0, 1 if number else 0, 0), 88)
    if made == 0:
        to = os.open('again', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(to, b'.' * 100)
        os._exit(0)
    if made > 0:
        os.waitpid(made, 0)
    return made
number = child(0)
print('half' if child(number) == number else 'half, not allowed', flush=True)
sys.stdin.readline()
for _ in range(31):
    child(number)
";

/// A control group of this test, removed with the value.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        Group::of_hierarchy(|words| words[2] == "cgroup2")
    }

    /// In the first hierarchy whose line of /proc/self/mounts fits.
    fn of_hierarchy(fits: impl Fn(&[&str]) -> bool) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the kernel lists mounts");
        let mount = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            fits(&words).then(|| words[1].to_owned())
        });
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(&mount?).join(format!("cawl-tests-{}-{count}", std::process::id()));
        fs::create_dir(&folder).ok().map(|()| Group(folder))
    }

    fn take(&self, process: &Running) {
        fs::write(self.0.join("cgroup.procs"), pid(process)).expect("a process can be moved");
    }

    /// Another one of the same name.
    fn make_anew(&self) {
        eventually("its processes have left the group", || fs::remove_dir(&self.0).is_ok());
        fs::create_dir(&self.0).expect("it was made before");
    }

    fn folder(&self) -> &str {
        self.0.to_str().expect("a readable path")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        eventually("its processes have left the group", || fs::remove_dir(&self.0).is_ok());
    }
}

/// What is in the group, and what comes to it.
#[test]
fn a_group_is_followed() {
    let dir = Dir::new();
    let Some(group) = Group::new() else { return skipped("no control group can be made") };
    let (mut first, mut second, mut other) =
        (writer(&dir, "first"), writer(&dir, "second"), writer(&dir, "other"));
    group.take(&first);
    let Some(attach) = attached(&dir, &["--cgroup", group.folder()]) else {
        return;
    };
    group.take(&second);
    for writer in [&mut second, &mut other, &mut first] {
        writer.say("\n");
    }
    for writer in [first, second, other] {
        writer.finish().success();
    }
    let report = dir.report(&attach.finish().success());
    let seen = ["first", "second", "other"].map(|name| report.file_bytes(name));
    assert_eq!((seen, &report["drops"]), ([10_000, 10_000, 0], &0.into()));
}

/// Who comes into a group of version 1, or one below it, is met as it comes: it may end at once.
#[test]
fn a_group_of_version_1_is_followed() {
    let dir = Dir::new();
    let is_plain = |words: &[&str]| {
        words[2] == "cgroup" && ["freezer", "pids", "name=systemd"].iter().any(|one| words[3].contains(one))
    };
    let Some(group) = Group::of_hierarchy(is_plain) else {
        return skipped("no control group of version 1 can be made");
    };
    let below = group.0.join("below");
    fs::create_dir(&below).expect("a group can be made below another");
    let mut first = writer(&dir, "first");
    group.take(&first);
    let Some(attach) = attached(&dir, &["--cgroup", group.folder()]) else { return };
    let script = "echo $$ >\"$0/cgroup.procs\"; exec dd if=/dev/zero of=\"$1\" bs=100 count=7 2>/dev/null";
    for file in 0..20 {
        let mut short = dir.command("sh");
        short.args(["-c", script]).arg(if file % 2 == 0 { &below } else { &group.0 }).arg(format!("{file}"));
        Running::start(short).finish().success();
    }
    first.say("\n");
    first.finish().success();
    let report = dir.report(&attach.finish().success());
    let seen = (0..20).map(|file| report.file_bytes(&file.to_string())).sum::<u64>();
    assert_eq!((seen, report.file_bytes("first"), &report["drops"]), (14_000, 10_000, &0.into()));
    eventually("its processes have left the group", || fs::remove_dir(&below).is_ok());
}

/// A daemon has one set of probes for all names, also for one that comes later or again.
#[test]
fn names_share_the_probes() {
    if let Some(why) = obstacle() {
        return skipped(why);
    }
    let dir = Dir::new();
    let Some(group) = Group::new() else { return skipped("no control group can be made") };
    let mut first = writer(&dir, "first");
    let mut daemon = Daemon::start(&dir, &["--kernel", "--cgroup", group.folder(), "--pid", &pid(&first)]);
    daemon.until(&format!("following {}", first.pid()));
    let count = programs(daemon.pid()).len();
    for (name, bytes) in [("second", 10_000), ("third", 20_000)] {
        let mut writer = writer(&dir, name);
        group.take(&writer);
        daemon.status_when(|status| {
            let processes = status["processes"].as_array().expect("the status lists processes");
            processes.iter().any(|process| process["pid"] == writer.pid().as_raw())
        });
        assert_eq!(programs(daemon.pid()).len(), count);
        writer.say("\n");
        writer.finish().success();
        daemon.status_when(|status| status["bytes"] == bytes);
        group.make_anew();
    }
    first.say("\n");
    first.finish().success();
    daemon.status_when(|status| status["bytes"] == 30_000);
    eventually("nothing is attached", || programs(daemon.pid()).is_empty());
    daemon.end(Signal::SIGTERM).success();
}

/// Where a daemon has calls by the tracer's library and by the kernel, each counts once.
#[test]
fn no_call_counts_twice() {
    if let Some(why) = obstacle() {
        return skipped(why);
    }
    let dir = Dir::new();
    let Some(group) = Group::new() else { return skipped("no control group can be made") };
    let trace = dir.trace();
    let mut daemon = Daemon::start(
        &dir,
        &["--kernel", "--cgroup", group.folder(), "--trace", trace.to_str().expect("a readable path")],
    );
    let mut shell = dir.command("sh");
    let written = "for n in 1 2 3 4 5 6; do dd if=/dev/zero of=by$n bs=100 count=10 2>/dev/null; done; (printf abc >copy)";
    shell.args(["-c", "read go; dd if=/dev/zero of=kernel bs=100 count=7 2>/dev/null; \"$@\"", "sh"]);
    shell.arg(cawl_kit::built("cawl-cli")).args(["run", "--no-save", "--no-calibrate", "--socket"]);
    shell.arg(dir.socket()).args(["--", "sh", "-c", written]);
    let mut shell = Running::start(shell);
    group.take(&shell);
    daemon.until("following the control group");
    shell.say("\n");
    shell.finish().success();
    daemon.end(Signal::SIGTERM).success();
    let mut replay = dir.cawl(&["replay", "--json"]);
    replay.arg(&trace);
    let all = Report::parse(&Running::start(replay).finish().success().stdout);
    let bytes = |name: &str| all.file_bytes(name);
    assert_eq!(
        ["kernel", "by1", "by2", "by3", "by4", "by5", "by6"].map(bytes),
        [700, 1000, 1000, 1000, 1000, 1000, 1000]
    );
    assert_eq!((bytes("copy"), &all["drops"]), (3, &0.into()));
}

/// The kernel ends the probes with the process that they belong to.
#[test]
fn kill_leaves_nothing() {
    let dir = Dir::new();
    let mut writer = writer(&dir, "to");
    let Some(attach) = attached(&dir, &[&pid(&writer)]) else { return };
    let programs = programs(attach.pid());
    assert!(programs.len() >= 5, "{programs:?}");
    attach.signal(Signal::SIGKILL);
    attach.finish().signal(Signal::SIGKILL);
    writer.say("\n");
    writer.finish().success();
    let Some(bpftool) = find("bpftool") else { return };
    eventually("the programs are gone", || {
        !programs.iter().any(|id| {
            let mut show = Command::new(&bpftool);
            show.args(["prog", "show", "id", id]).output().is_ok_and(|shown| shown.status.success())
        })
    });
}

/// The programs of a process's links, by number.
fn programs(of: Pid) -> Vec<String> {
    let folder = format!("/proc/{of}/fdinfo");
    let entries = fs::read_dir(folder).expect("it runs").flatten();
    let texts = entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
    let links = texts.filter(|text| text.contains("link_id:"));
    let id =
        |text: String| text.lines().find_map(|line| Some(line.strip_prefix("prog_id:")?.trim().to_owned()));
    links.filter_map(id).collect()
}

/// Another eye on the same process changes nothing, be it another of these or the tracer's library.
#[test]
fn two_eyes_see_the_same() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let mut run = dir.cawl(&["run", "--report"]);
    run.arg(dir.path().join("run.json")).arg("--").arg(program).args(["to", "10", "1000"]);
    let mut run = Running::start(run);
    let said = run.stdout_until("half");
    let writer = said.trim().rsplit(' ').next().expect("a pid").to_owned();
    let Some(first) = attached(&dir, &[&writer]) else {
        run.say("\n");
        run.finish().success();
        return;
    };
    let path = dir.path().join("second.json");
    let mut second = dir.cawl(&["attach", "--no-save", &writer, "--report"]);
    second.arg(&path);
    let mut second = Running::start(second);
    second.stderr_until("attached to");
    run.say("\n");
    run.finish().success();
    let second = Report::read(&path, &second.finish().success());
    for report in [dir.report(&first.finish().success()), second] {
        report.all_seen();
        assert_eq!((report.calls_of("write"), report.file_bytes("to")), (10, 10_000));
    }
}
