//! The functions that calls came from (`run --stacks`): programs with a call in a function of a known name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use cawl_core::{Frame, Record, Stack};
use cawl_host::trace::TraceReader;
use cawl_kit::{Daemon, Dir, Finished, Running};
use cawl_wire::{Event, Op};
use nix::sys::signal::Signal;

/// Every call.
const ALL: [&str; 3] = ["--stacks=0ms", "--stacks-one-in", "1"];

/// The calls of a trace, and the stacks that they have.
struct Traced {
    events: Vec<Event>,
    stacks: BTreeMap<u32, Stack>,
    notes: Vec<String>,
}

fn read(trace: &Path) -> Traced {
    let mut reader = TraceReader::open(trace).expect("a trace");
    let mut traced = Traced { events: Vec::new(), stacks: BTreeMap::new(), notes: Vec::new() };
    while let Some(record) = reader.next_record().expect("whole records") {
        match record {
            Record::Event(event) => traced.events.push(event),
            Record::Stack(stack) => assert!(traced.stacks.insert(stack.id, stack).is_none(), "told twice"),
            Record::Note(note) => traced.notes.push(note),
            _ => {}
        }
    }
    traced
}

impl Traced {
    /// The frames of each call of this kind.
    #[track_caller]
    fn of(&self, op: Op) -> Vec<&Stack> {
        let of = |event: &&Event| event.op == op;
        let found: Vec<&Stack> = self
            .events
            .iter()
            .filter(of)
            .map(|event| self.stacks.get(&event.stack).expect("a stack"))
            .collect();
        assert!(!found.is_empty(), "no {op:?}");
        found
    }

    /// The frames of those calls of this kind that have a stack, as most have once the program's beginning,
    /// with its thousands of calls, has been read.
    fn some_of(&self, op: Op) -> Vec<&Stack> {
        let of = |event: &&Event| event.op == op;
        self.events.iter().filter(of).filter_map(|event| self.stacks.get(&event.stack)).collect()
    }

    /// The functions of the only call of this kind, innermost first.
    #[track_caller]
    fn functions(&self, op: Op) -> Vec<String> {
        let found = self.of(op);
        assert_eq!(found.len(), 1);
        functions(found[0])
    }
}

fn functions(stack: &Stack) -> Vec<String> {
    stack.frames.iter().map(|frame| frame.function.clone().unwrap_or_default()).collect()
}

#[track_caller]
fn run(dir: &Dir, options: &[&str], program: &[&str]) -> (Finished, Traced) {
    let finished = Running::start(dir.run_command(options, program)).finish();
    let traced = read(&dir.trace());
    (finished, traced)
}

#[track_caller]
fn run_app(app: &Path, mode: &str) -> (Dir, Traced) {
    let dir = Dir::new();
    let app = dir.copy(app);
    let (finished, traced) = run(&dir, &ALL, &[app.to_str().unwrap(), mode]);
    finished.success();
    (dir, traced)
}

#[track_caller]
fn starts_with(found: &[String], wanted: &[&str]) {
    assert!(
        found.iter().zip(wanted).filter(|(one, other)| one == other).count() == wanted.len(),
        "{found:?}"
    );
}

#[test]
fn a_function_and_its_line_with_and_without_frame_pointers() {
    for flags in [["-O2", "-fomit-frame-pointer"], ["-O1", "-fno-omit-frame-pointer"]] {
        let (_dir, traced) = run_app(&cawl_kit::app_with("stacks", &flags), "plain");
        let stack = traced.of(Op::Fsync)[0];
        starts_with(&functions(stack), &["save_all", "commit", "main"]);
        let Frame { file, line, module, at, inlined, .. } = &stack.frames[0];
        assert!(file.as_deref().is_some_and(|file| file.ends_with("stacks.c")), "{stack:?}");
        assert_eq!((*line, *at, *inlined), (Some(18), 0, false));
        assert!(module.as_deref().is_some_and(|module| module.ends_with("/stacks")), "{stack:?}");
        assert!(!stack.truncated, "{stack:?}");
        starts_with(&traced.functions(Op::Open), &["main"]);
        // Each call has one.
        assert!(
            traced.events.iter().all(|event| traced.stacks.contains_key(&event.stack)),
            "{:?}",
            traced.events
        );
    }
}

#[test]
fn a_part_of_another_function_is_told_as_such() {
    let (_dir, traced) = run_app(&cawl_kit::app_with("stacks", &["-O2"]), "inlined");
    let stack = traced.of(Op::Fdatasync)[0];
    starts_with(&functions(stack), &["save_inlined", "commit_inlined", "main"]);
    assert!(stack.frames[0].inlined && !stack.frames[1].inlined, "{stack:?}");
    assert_eq!(stack.frames[0].line, Some(23));
}

/// Runs a program of binutils.
#[track_caller]
fn tool(name: &str, arguments: &[&str], folder: &Path) {
    let status = Command::new(name).args(arguments).current_dir(folder).status().expect("binutils");
    assert!(status.success(), "{name} {arguments:?}");
}

#[test]
fn a_stripped_program_has_places_in_its_file_and_a_separate_file_has_its_names() {
    if cawl_kit::find("objcopy").is_none() {
        return;
    }
    let app = cawl_kit::app_with("stacks", &["-O2"]);
    for (link, hidden) in [(false, false), (true, false), (true, true)] {
        let dir = Dir::new();
        let program = dir.copy(&app);
        let folder = program.parent().unwrap();
        tool("objcopy", &["--only-keep-debug", "stacks", "stacks.debug"], folder);
        // Without a number of the build the checksum decides.
        tool("objcopy", &["--strip-all", "--remove-section=.note.gnu.build-id", "stacks"], folder);
        if link {
            tool("objcopy", &["--add-gnu-debuglink=stacks.debug", "stacks"], folder);
        }
        if hidden {
            // Another file of that name.
            std::fs::copy(&app, folder.join("stacks.debug")).unwrap();
        }
        let (finished, traced) = run(&dir, &ALL, &[program.to_str().unwrap(), "plain"]);
        finished.success();
        let stack = traced.of(Op::Fsync)[0];
        if link && !hidden {
            starts_with(&functions(stack), &["save_all", "commit", "main"]);
            assert_eq!(stack.frames[0].line, Some(18));
        } else {
            let Frame { function, module, at, .. } = &stack.frames[0];
            assert!(function.is_none() && *at > 0, "{stack:?}");
            assert!(module.as_deref().is_some_and(|module| module.ends_with("/stacks")), "{stack:?}");
            assert!(stack.frames.len() > 3 && !stack.truncated, "{stack:?}");
        }
    }
}

#[test]
fn of_a_killed_program_a_fork_child_a_small_thread_a_coroutine_and_a_handler() {
    let app = cawl_kit::app_with("stacks", &["-O2"]);
    for (mode, wanted, calls) in [
        ("killed", &["save_all", "commit", "main"][..], 1),
        ("fork", &["save_all", "commit", "main"], 2),
        ("thread", &["save_all", "commit", "thread", "start_thread"], 1),
        ("coroutine", &["save_all", "commit", "coroutine"], 1),
        ("signal", &["save_all", "commit", "handler"], 1),
    ] {
        let dir = Dir::new();
        let program = dir.copy(&app);
        let (finished, traced) = run(&dir, &ALL, &[program.to_str().unwrap(), mode]);
        if mode == "killed" {
            finished.signal(Signal::SIGKILL);
        } else {
            finished.success();
        }
        let stacks = traced.of(Op::Fsync);
        assert_eq!(stacks.len(), calls, "{mode}");
        for stack in stacks {
            starts_with(&functions(stack), wanted);
        }
    }
}

#[test]
fn a_deep_stack_is_cut_off_and_says_so() {
    let (_dir, traced) =
        run_app(&cawl_kit::app_with("stacks", &["-O2", "-fno-optimize-sibling-calls"]), "deep");
    let stack = traced.of(Op::Fsync)[0];
    starts_with(&functions(stack), &["save_all", "commit", "deep", "deep", "deep"]);
    assert!(stack.truncated, "{stack:?}");
}

#[test]
fn what_lay_on_the_stack_is_in_no_file() {
    let (dir, traced) = run_app(&cawl_kit::app_with("stacks", &["-O2"]), "secret");
    starts_with(&traced.functions(Op::Fsync), &["save_all", "commit", "with_secret", "main"]);
    let secret: Vec<u8> = (0..40u8).map(|at| b"zyxwvutsrq"[usize::from(at % 10)] ^ (at % 3)).collect();
    // A trace is compressed: what is in it, uncompressed.
    let mut reader = TraceReader::open(&dir.trace()).expect("a trace");
    let mut whole = std::fs::read(dir.trace()).expect("a trace");
    whole.extend(std::fs::read(dir.path().join("report.json")).expect("a report"));
    while let Some(record) = reader.next_record().expect("whole records") {
        whole.extend(format!("{record:?}").into_bytes());
    }
    for piece in secret.windows(8) {
        assert!(!whole.windows(8).any(|window| window == piece), "a part of the secret was kept");
    }
}

#[test]
fn one_in_so_many_and_each_beyond_the_threshold() {
    let app = cawl_kit::app_with("stacks", &["-O2"]);
    let dir = Dir::new();
    let program = dir.copy(&app);
    let (finished, traced) = run(&dir, &["--stacks=1h"], &[program.to_str().unwrap(), "many"]);
    finished.success();
    let (with, all) = (traced.events.iter().filter(|event| event.stack != 0).count(), traced.events.len());
    // 20 000 calls, one in 64: 313, give or take six standard deviations; fewer where the daemon is behind.
    assert!((20..430).contains(&with) && all > 5000, "{with} of {all}; {:?}", traced.notes);
    let (finished, traced) = run(&dir, &[], &[program.to_str().unwrap(), "many"]);
    finished.success();
    assert!(traced.stacks.is_empty() && traced.events.iter().all(|event| event.stack == 0));
    // Without shared memory there are none, and that is said.
    let mut command = dir.run_command(&ALL, &[program.to_str().unwrap(), "plain"]);
    command.env("CAWL_TRANSPORT", "socket");
    Running::start(command).finish().success();
    let traced = read(&dir.trace());
    assert!(traced.stacks.is_empty() && traced.notes.iter().any(|note| note.contains("has no stacks")));
}

#[test]
fn a_program_with_few_addresses() {
    let dir = Dir::new();
    let program = dir.copy(&cawl_kit::app_with("stacks", &["-O2"]));
    let script = format!("ulimit -v 200000; exec {} plain", program.display());
    let (finished, traced) = run(&dir, &ALL, &["sh", "-c", &script]);
    finished.success();
    starts_with(&traced.functions(Op::Fsync), &["save_all", "commit", "main"]);
}

#[test]
fn a_service_s_programs_by_its_daemon() {
    let dir = Dir::new();
    let program = dir.copy(&cawl_kit::app_with("stacks", &["-O2"]));
    let trace = dir.path().join("service.cawl");
    let arguments = ["--trace", trace.to_str().unwrap(), "--stacks=0ms", "--stacks-one-in", "1", "--no-save"];
    let daemon = Daemon::start(&dir, &arguments);
    let mut command = dir.command(&program);
    command.arg("asked").env("CAWL_SOCKET", dir.socket()).env("LD_PRELOAD", cawl_kit::library());
    let mut program = Running::start(command);
    // It says so to a program that has begun, before it takes the first of its calls.
    program.say("x");
    daemon.status_when(|status| status["calls"].as_u64() > Some(0));
    program.say(&"x".repeat(1000));
    program.finish().success();
    daemon.status_when(|status| status["calls"].as_u64() > Some(1000));
    daemon.end(Signal::SIGTERM).success();
    let traced = read(&trace);
    let stacks: Vec<&Stack> = traced.stacks.values().collect();
    assert!(
        stacks.iter().any(|stack| functions(stack).first().is_some_and(|name| name == "main")),
        "{stacks:?}"
    );
}

#[test]
fn names_of_cpp_and_rust() {
    let dir = Dir::new();
    let source = "#include <unistd.h>\n#include <fcntl.h>\nnamespace store { template <class T> struct Journal {\n\
        __attribute__((noinline)) int sync(T fd) { return fsync(fd) + after++; } int after = 0; }; }\n\
        int main() { store::Journal<int> j; return j.sync(open(\"file\", O_CREAT | O_WRONLY, 0644)) + j.after - 1; }\n";
    std::fs::write(dir.path().join("journal.cpp"), source).unwrap();
    tool("c++", &["-O1", "-g", "-o", "journal", "journal.cpp"], dir.path());
    let (finished, traced) = run(&dir, &ALL, &[dir.path().join("journal").to_str().unwrap()]);
    finished.success();
    starts_with(&traced.functions(Op::Fsync), &["store::Journal<int>::sync", "main"]);
    assert_eq!(traced.of(Op::Fsync)[0].frames[0].line, Some(4));
    let source = "mod store { pub struct Journal(pub std::fs::File); impl Journal {\n\
        #[inline(never)] pub fn sync(&self) { self.0.sync_all().unwrap(); std::hint::black_box(0); } } }\n\
        fn main() { store::Journal(std::fs::File::create(\"file\").unwrap()).sync() }\n";
    std::fs::write(dir.path().join("journal.rs"), source).unwrap();
    tool("rustc", &["-Cdebuginfo=1", "-Copt-level=1", "-o", "rusty", "journal.rs"], dir.path());
    let (finished, traced) = run(&dir, &ALL, &[dir.path().join("rusty").to_str().unwrap()]);
    finished.success();
    let found = traced.functions(Op::Fsync);
    assert!(
        found.iter().any(|name| name == "rusty::store::Journal::sync" || name.ends_with("Journal::sync")),
        "{found:?}"
    );
}

const SCRIPT: &str = "import os, time\nclass Journal:\n    def __init__(self):\n        \
    self.fd = os.open('file', os.O_CREAT | os.O_RDWR)\n    def sync_journal(self):\n\n        os.fsync(self.fd)\n\
def wéird(work):\n    work()\nfor again in range(50):\n    time.sleep(0.01)\n    \
    wéird(lambda: sorted([1], key=lambda x: Journal().sync_journal() or x))\n";

#[test]
fn functions_of_python() {
    let mut pythons: Vec<PathBuf> = cawl_kit::python().into_iter().collect();
    // Others that are installed beside it.
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for version in std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten() {
        pythons.push(version.path().join("bin/python3"));
    }
    let mut seen = 0;
    for python in pythons.iter().filter(|python| python.is_file()) {
        let version =
            Command::new(python).arg("-c").arg("import sys; print(sys.version_info[1])").output().unwrap();
        let minor: u32 = String::from_utf8(version.stdout).unwrap().trim().parse().unwrap();
        if minor < 11 {
            cawl_kit::skipped(&format!("the functions of Python 3.{minor} are not known"));
            continue;
        }
        seen += 1;
        let dir = Dir::new();
        let script = dir.path().join("journal.py");
        std::fs::write(&script, SCRIPT).unwrap();
        let options = ["--stacks=0ms", "--stacks-one-in", "1", "--only", "*/file"];
        let (finished, traced) = run(&dir, &options, &[python.to_str().unwrap(), script.to_str().unwrap()]);
        finished.success();
        let stacks = traced.some_of(Op::Fsync);
        let stack = stacks.last().expect("a stack");
        let of_script =
            |frame: &&Frame| frame.file.as_deref().is_some_and(|file| file.ends_with("journal.py"));
        let found: Vec<&Frame> = stack.frames.iter().filter(of_script).collect();
        let names: Vec<&str> = found.iter().filter_map(|frame| frame.function.as_deref()).collect();
        assert!(names.first().is_some_and(|name| *name == "Journal.sync_journal"), "{python:?}: {stack:#?}");
        assert!(names.len() >= 2 && names[1].contains("<lambda>"), "{python:?}: {names:?}");
        if minor == 11 {
            assert_eq!(names.iter().filter(|name| **name == "wéird").count(), 1, "{names:?}");
            assert_eq!(names.last(), Some(&"<module>"));
            let lines: Vec<Option<u32>> = found.iter().map(|frame| frame.line).collect();
            assert_eq!((lines.first(), lines.last()), (Some(&Some(7)), Some(&Some(12))), "{lines:?}");
        }
    }
    if seen == 0 {
        cawl_kit::skipped("there is no Python of 3.11 or later");
    }
}

#[test]
#[ignore = "long: node and Java write their maps when they find the time, which beside hundreds of tests they do not"]
fn functions_of_node_and_java() {
    let dir = Dir::new();
    if let Some(node) = cawl_kit::find("node") {
        let script = "const fs = require('fs');\nfunction syncJournal(fd) {\n  fs.fsyncSync(fd);\n}\n\
            const fd = fs.openSync('file', 'w');\nlet left = 50;\n\
            setInterval(function again() { syncJournal(fd); if (!left--) process.exit(0); }, 10);\n";
        let path = dir.path().join("journal.js");
        std::fs::write(&path, script).unwrap();
        let flags = ["--perf-basic-prof", "--interpreted-frames-native-stack"];
        let is_it = |frame: &Frame| frame.function.as_deref() == Some("syncJournal") && frame.line == Some(2);
        // On a busy machine node may write its map when all is over.
        let found = (0..3).any(|_| {
            let arguments = [node.to_str().unwrap(), flags[0], flags[1], path.to_str().unwrap()];
            let (finished, traced) = run(&dir, &ALL, &arguments);
            finished.success();
            traced.some_of(Op::Fsync).iter().any(|stack| stack.frames.iter().any(is_it))
        });
        assert!(found, "no stack has syncJournal");
    }
    let (Some(java), Some(javac)) = (cawl_kit::find("java"), cawl_kit::find("javac")) else { return };
    let source = "import java.nio.channels.*; import java.nio.file.*;\npublic class Journal {\n\
        static void syncJournal(FileChannel c) throws Exception { c.force(true); }\n\
        public static void main(String[] a) throws Exception {\n\
        FileChannel c = FileChannel.open(Path.of(\"file\"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);\n\
        for (int i = 0; i < 50; i++) { syncJournal(c); Thread.sleep(10); } } }\n";
    std::fs::write(dir.path().join("Journal.java"), source).unwrap();
    tool(javac.to_str().unwrap(), &["Journal.java"], dir.path());
    let folder = dir.path().to_str().unwrap();
    // Compiled at once: the interpreter's frames have no names.
    let flags =
        ["-Xcomp", "-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];
    let program: Vec<&str> =
        [java.to_str().unwrap()].into_iter().chain(flags).chain(["-cp", folder, "Journal"]).collect();
    let is_it = |frame: &Frame| frame.function.as_deref().is_some_and(|name| name.contains("Journal"));
    let found = (0..3).any(|_| {
        let options = ["--stacks=0ms", "--stacks-one-in", "1", "--only", "*/file"];
        let (finished, traced) = run(&dir, &options, &program);
        finished.success();
        traced.some_of(Op::Fsync).iter().any(|stack| stack.frames.iter().any(is_it))
    });
    assert!(found, "no stack has the program's class");
}

/// A program whose function `evil` comes from this assembly, and calls `body`, which writes.
fn assembled(dir: &Dir, assembly: &str) -> Option<std::path::PathBuf> {
    const CALLER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int evil(int n);
int body(int n) {
    int fd = open("evil.out", O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 5; i++) write(fd, "abc", 3);
    return close(fd);
}
int main(void) { evil(5); puts("done"); return 0; }
"#;
    let compiler = cawl_kit::find("cc").filter(|_| cfg!(target_arch = "x86_64"))?;
    let (caller, evil, out) =
        (dir.path().join("caller.c"), dir.path().join("evil.s"), dir.path().join("evil"));
    std::fs::write(&caller, CALLER).expect("a writable folder");
    std::fs::write(&evil, assembly).expect("a writable folder");
    let mut command = dir.command(compiler);
    command.arg("-O1").args([&caller, &evil]).arg("-o").arg(&out);
    Running::start(command).finish().success();
    Some(out)
}

/// Debugging information that is made to hurt costs its own names: neither the daemon nor the program ends or
/// hangs.
#[test]
fn endless_expressions_and_deep_scopes_hurt_nobody() {
    const BODY: &str = "call body\n addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n ret\n";
    let function = |more: &str| {
        format!(
            ".text\n.globl evil\n.type evil, @function\nevil:\n.Lb:\n .cfi_startproc\n {more}\n subq $8, %rsp\n \
             .cfi_adjust_cfa_offset 8\n {BODY} .cfi_endproc\n.Le:\n.size evil, .-evil\n\
             .section .note.GNU-stack,\"\",@progbits\n"
        )
    };
    // DW_CFA_def_cfa_expression: DW_OP_skip to itself.
    let endless = function(".cfi_escape 0x0f, 0x03, 0x2f, 0xfd, 0xff");
    // 20 000 inlined functions, each in the one before.
    let deep = function("")
        + ".section .debug_abbrev,\"\",@progbits\n .uleb128 1, 0x11\n .byte 1\n .uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0\n \
           .uleb128 2, 0x2e\n .byte 1\n .uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0\n .uleb128 3, 0x1d\n .byte 1\n \
           .uleb128 0x11, 1, 0x12, 7, 0, 0\n .byte 0\n\
           .section .debug_info,\"\",@progbits\n .long 9f-8f\n8: .short 4\n .long 0\n .byte 8\n .uleb128 1\n \
           .asciz \"x.c\"\n .quad .Lb, .Le-.Lb\n .uleb128 2\n .asciz \"evil\"\n .quad .Lb, .Le-.Lb\n \
           .rept 20000\n .uleb128 3\n .quad .Lb, .Le-.Lb\n .endr\n .rept 20000\n .byte 0\n .endr\n .byte 0, 0\n9:\n";
    for assembly in [endless, deep] {
        let dir = Dir::new();
        let Some(program) = assembled(&dir, &assembly) else { return };
        let (finished, traced) = run(&dir, &ALL, &[program.to_str().unwrap()]);
        assert_eq!(finished.success().stdout, "done\n");
        starts_with(&functions(traced.of(Op::Write)[0]), &["body"]);
    }
}
