//! One program recorded by other tools and by cawl: what is imported are the same calls, with equal bytes and
//! in equal order. apps/by_tools.py makes them.

use std::fs;
use std::path::{Path, PathBuf};

use cawl_core::Record;
use cawl_host::trace::TraceReader;
use cawl_kit::{Dir, Finished, Running, find, skipped};
use cawl_wire::{Event, FileKind, Op};

use crate::export::readers::ask_python;

/// What is compared of a call; of files without a name there is more than one number for one file.
type Told = (Op, u64, i64, u16);

/// The calls of a trace that change files, in order.
fn told(trace: &Path) -> Vec<Told> {
    let mut reader = TraceReader::open(trace).expect("a trace");
    let mut records = Vec::new();
    reader.read(&mut records, usize::MAX).expect("it is whole");
    let mut events: Vec<Event> = records
        .into_iter()
        .filter_map(|record| if let Record::Event(event) = record { Some(event) } else { None })
        .filter(changes)
        .collect();
    events.sort_by_key(|event| event.start);
    let told = |event: &Event| match event.op {
        Op::Rename | Op::Unlink => (event.op, 0, 0, event.errno),
        Op::Seek => (event.op, event.offset, 0, event.errno),
        _ => (event.op, event.offset, event.returned, event.errno),
    };
    events.iter().map(told).collect()
}

fn changes(event: &Event) -> bool {
    match event.op {
        Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev | Op::Fsync | Op::Fdatasync => {}
        Op::Truncate | Op::CopyRange | Op::Seek => {}
        Op::Rename | Op::Unlink | Op::Spawn | Op::Fork => return true,
        _ => return false,
    }
    event.kind == FileKind::Regular
}

/// The program, in an empty folder.
fn program(dir: &Dir) -> Option<[String; 4]> {
    dir.clear();
    // Not one found in PATH, which may be a script that looks for another.
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        skipped("/usr/bin/python3 is not here");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/by_tools.py");
    Some([python.display().to_string(), "-ISB".to_owned(), script.display().to_string(), "data".to_owned()])
}

/// What cawl's own tracer sees of it.
fn own(dir: &Dir) -> Option<Vec<Told>> {
    let program = program(dir)?;
    dir.run(&[], &program).0.success();
    let told = told(&dir.trace()).into_iter().filter(|(op, ..)| !matches!(op, Op::Spawn | Op::Fork));
    let told: Vec<Told> = told.collect();
    assert!(told.len() > 30, "{told:?}");
    Some(told)
}

fn import(dir: &Dir, format: &str, options: &[&str], text: &Path) -> (Finished, PathBuf) {
    let trace = dir.path().join("imported.cawl");
    let _ = fs::remove_file(&trace);
    let mut import = dir.cawl(&["import", "--from", format]);
    import.args(options).arg(text).arg("-o").arg(&trace);
    (Running::start(import).finish().success(), trace)
}

#[track_caller]
fn is_same(dir: &Dir, own: &[Told], format: &str, options: &[&str], text: &Path) {
    let (finished, trace) = import(dir, format, options, text);
    let imported = told(&trace);
    let (made, imported): (Vec<_>, Vec<_>) =
        imported.into_iter().partition(|(op, ..)| matches!(op, Op::Spawn | Op::Fork));
    assert_eq!(imported, own, "{format}: {}", finished.stderr);
    let made: Vec<Op> = made.into_iter().map(|(op, ..)| op).collect();
    assert_eq!(made, [Op::Fork, Op::Spawn], "{format}: {}", finished.stderr);
    assert!(!finished.stderr.contains("lost by the recorder"), "{format}: {}", finished.stderr);
}

/// An instance of ftrace of our own, below a mount of our own; both are gone at the end.
struct Instance {
    mount: PathBuf,
    path: PathBuf,
}

impl Instance {
    fn new(dir: &Dir) -> Option<Instance> {
        let mount = dir.path().join("tracefs");
        fs::create_dir(&mount).expect("a new folder");
        let mut command = dir.command("mount");
        command.args(["-t", "tracefs", "cawl-test"]).arg(&mount);
        if !Running::start(command).finish().status.success() {
            return None;
        }
        let path = mount.join(format!("instances/cawl-test-{}", std::process::id()));
        let instance = Instance { mount, path };
        fs::create_dir(&instance.path).ok()?;
        let is_there = |file: &str| instance.path.join(file).exists();
        let all =
            ["events/raw_syscalls/enable", "events/syscalls/enable", "set_event_pid", "options/event-fork"];
        all.into_iter().all(is_there).then_some(instance)
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.path.join(file), text).expect("a file of tracefs");
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
        let _ = std::process::Command::new("umount").arg(&self.mount).status();
    }
}

/// Runs the program in a shell that gives its own number to the instance first, and reads its text.
fn ftraced(dir: &Dir, instance: &Instance, events: &str) -> Option<PathBuf> {
    let program = program(dir)?;
    instance.set("trace", "");
    instance.set("buffer_size_kb", "16384");
    instance.set("options/event-fork", "1");
    let mut shell = dir.command("sh");
    let script = format!("echo $$ >$0/set_event_pid; echo 1 >$0/{events}; exec \"$@\"");
    shell.args(["-c", &script]).arg(&instance.path).args(program);
    Running::start(shell).finish().success();
    instance.set(events, "0");
    let text = dir.path().join("ftrace.txt");
    fs::write(&text, fs::read(instance.path.join("trace")).expect("a trace")).expect("a new file");
    Some(text)
}

#[test]
fn by_ftrace() {
    let dir = Dir::new();
    let Some(instance) = Instance::new(&dir) else {
        return skipped("no instance of ftrace with events of system calls can be made");
    };
    let Some(own) = own(&dir) else { return };
    for events in ["events/raw_syscalls/enable", "events/syscalls/enable"] {
        let Some(text) = ftraced(&dir, &instance, events) else { return };
        is_same(&dir, &own, "ftrace", &[], &text);
    }
}

/// True if a program is here and works.
fn works(dir: &Dir, program: &str, arguments: &[&str]) -> bool {
    if find(program).is_none() {
        return false;
    }
    let mut command = dir.command(program);
    command.args(arguments);
    let finished = Running::start(command).finish();
    if !finished.status.success() {
        skipped(&format!("{program} does not work here: {}", finished.stderr.lines().last().unwrap_or("")));
    }
    finished.status.success()
}

/// What a tool prints of the program, in a file. `into` is the option that names it.
fn recorded(dir: &Dir, tool: &[&str]) -> Option<PathBuf> {
    let program = program(dir)?;
    let text = dir.path().join("tool.out");
    let mut command = dir.command(tool[0]);
    command.args(&tool[1..]).arg("-o").arg(&text).arg("--").args(program);
    Running::start(command).finish().success();
    Some(text)
}

#[test]
fn by_perf_trace() {
    let dir = Dir::new();
    if !works(&dir, "perf", &["trace", "true"]) {
        return;
    }
    let Some(own) = own(&dir) else { return };
    for options in [&["perf", "trace", "--sort-events"][..], &["perf", "trace", "--sort-events", "-T"]] {
        // On a busy machine perf trace itself loses begins of calls and prints `... [continued]: close()`.
        let whole = (0..20).find_map(|_| {
            let text = recorded(&dir, options)?;
            let told = import(&dir, "perf-trace", &[], &text).0.stderr;
            (!["calls without beginning", "lost by the recorder"].iter().any(|loss| told.contains(loss)))
                .then_some(text)
        });
        let Some(text) = whole else { return skipped("perf trace loses calls here, each time of 20") };
        is_same(&dir, &own, "perf-trace", &[], &text);
    }
}

#[test]
#[ignore = "long: perf records the system calls of the whole machine"]
fn by_perf_script() {
    let dir = Dir::new();
    if !works(&dir, "perf", &["record", "-q", "-e", "raw_syscalls:*", "true"]) {
        return;
    }
    let Some(own) = own(&dir) else { return };
    for (events, fields) in [
        ("raw_syscalls:*", &[][..]),
        ("syscalls:*", &["-F", "comm,pid,tid,cpu,time,event,trace", "--ns"]),
        ("raw_syscalls:*", &["-F", "tid,time,event,trace", "--show-lost-events"]),
    ] {
        let record = ["perf", "record", "-q", "-m", "16M", "-e", events];
        let Some(data) = recorded(&dir, &record) else { return };
        let mut script = dir.command("perf");
        script.args(["script", "-i"]).arg(&data).args(fields);
        let text = dir.path().join("script.txt");
        fs::write(&text, Running::start(script).finish().success().stdout).expect("a new file");
        is_same(&dir, &own, "perf-script", &[], &text);
    }
}

/// Where the kernel is locked down, trace-cmd may not reset what chooses functions, which is nothing to
/// events.
const BESIDE: &str = "
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing
for file in /proc/sys/kernel/ftrace_enabled set_ftrace_filter set_ftrace_notrace set_ftrace_pid; do
    [ ! -e $file ] || mount --bind $0 $file
done
cd - >/dev/null
exec \"$@\"
";

#[test]
fn by_trace_cmd() {
    let dir = Dir::new();
    let empty = dir.path().join("empty");
    fs::write(&empty, "").expect("a new file");
    let beside = ["-m", "sh", "-c", BESIDE, empty.to_str().expect("a readable path")];
    let data = dir.path().join("trace.dat");
    let record = |events: &str, program: &[&str]| {
        let mut command = dir.command("unshare");
        command.args(beside).args(["trace-cmd", "record", "-e", events, "-F", "-c", "-o"]);
        command.arg(&data).args(program);
        Running::start(command).finish()
    };
    if find("trace-cmd").is_none() || find("unshare").is_none() {
        return;
    }
    let tried = record("raw_syscalls", &["true"]);
    if !tried.status.success() {
        return skipped(&format!("trace-cmd cannot record here: {}", tried.stderr));
    }
    let Some(own) = own(&dir) else { return };
    for (events, options) in [("raw_syscalls", &["-t"][..]), ("syscalls", &[])] {
        let Some(program) = program(&dir) else { return };
        record(events, &program.each_ref().map(String::as_str)).success();
        let mut report = dir.command("trace-cmd");
        report.arg("report").args(options).arg("-i").arg(&data);
        let text = dir.path().join("report.txt");
        fs::write(&text, Running::start(report).finish().success().stdout).expect("a new file");
        is_same(&dir, &own, "ftrace", &[], &text);
    }
}

/// DFTracer sees no calls on copies of descriptors and of children, no truncate; rename is not imported.
#[test]
fn by_dftracer() {
    let dir = Dir::new();
    let place = "import json, dftracer; print(json.dumps(dftracer.__path__[0]))";
    let Some(said) = ask_python(&dir, &["dftracer"], place, &[]) else { return };
    let library = Path::new(said[0].as_str().expect("a folder")).join("lib64/libdftracer_preload.so");
    if !library.exists() {
        return skipped("Python's dftracer has no library to preload here");
    }
    let Some(own) = own(&dir) else { return };
    let Some([python, arguments @ ..]) = program(&dir) else { return };
    let mut command = dir.command(python);
    command.args(arguments).env("LD_PRELOAD", library).env("DFTRACER_LOG_FILE", dir.path().join("dft"));
    command.envs([("DFTRACER_ENABLE", "1"), ("DFTRACER_INC_METADATA", "1"), ("DFTRACER_INIT", "PRELOAD")]);
    command.env("DFTRACER_DATA_DIR", "all");
    Running::start(command).finish().success();
    let logs = fs::read_dir(dir.path()).expect("a folder").filter_map(|file| Some(file.ok()?.path()));
    let logs: Vec<PathBuf> = logs.filter(|path| path.to_string_lossy().contains(".pfw")).collect();
    let [log] = &logs[..] else { panic!("one process, one log: {logs:?}") };
    let (finished, trace) = import(&dir, "dftracer", &[], log);
    // Before the first write Python moves in modules that it reads.
    let imported: Vec<Told> = told(&trace).into_iter().skip_while(|told| told.0 != Op::Write).collect();
    // What the copy, the child and the shell that was spawned wrote.
    let is_seen =
        |told: &&Told| !matches!(told.0, Op::Truncate | Op::Rename) && ![300, 777, 8].contains(&told.2);
    let copied = own.iter().position(|told| told.2 == 300).expect("the program wrote it");
    assert_eq!(imported[..copied], own[..copied], "{}", finished.stderr);
    let bytes = |told: &Told| (told.0, told.2, told.3);
    assert_eq!(
        imported.iter().map(bytes).collect::<Vec<_>>(),
        own.iter().filter(is_seen).map(bytes).collect::<Vec<_>>(),
        "{}",
        finished.stderr
    );
}

#[test]
fn by_bpftrace() {
    let dir = Dir::new();
    let script = dir.path().join("calls.bt");
    fs::write(&script, SCRIPT).expect("a new file");
    if !works(&dir, "bpftrace", &["-e", "BEGIN { exit(); }"]) {
        return;
    }
    let Some(own) = own(&dir) else { return };
    let Some(program) = program(&dir) else { return };
    let mut command = dir.command("bpftrace");
    command.arg(&script).args(["-c", &program.join(" ")]);
    let text = dir.path().join("bpftrace.txt");
    fs::write(&text, Running::start(command).finish().success().stdout).expect("a new file");
    let pattern = "{start_ns} {pid} {tid} {comm} {op} {fd} {size} {ret} {duration_ns}";
    let (finished, trace) = import(&dir, "bpftrace", &["--pattern", pattern], &text);
    let writes = |told: Vec<Told>| told.into_iter().filter(|(op, ..)| *op == Op::Write).map(|told| told.2);
    // Those of the program's children are not asked for.
    let expected: Vec<i64> = writes(own).filter(|bytes| ![777, 8].contains(bytes)).collect();
    assert_eq!(writes(told(&trace)).collect::<Vec<_>>(), expected, "{}", finished.stderr);
}

/// The writes of the program, without what leads to their files.
const SCRIPT: &str = r#"
tracepoint:syscalls:sys_enter_write /pid == cpid/ {
    @start[tid] = nsecs; @fd[tid] = args->fd; @size[tid] = args->count;
}
tracepoint:syscalls:sys_exit_write /@start[tid]/ {
    printf("%lld %d %d %s write %d %d %d %lld\n", @start[tid], pid, tid, comm, @fd[tid], @size[tid], args->ret,
        nsecs - @start[tid]);
    delete(@start[tid]); delete(@fd[tid]); delete(@size[tid]);
}
"#;
