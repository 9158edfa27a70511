//! Programs that cannot be traced are named: before the run by `doctor`, afterwards in the report.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{User, chown, geteuid};

use cawl_kit::{Dir, Finished, Running, app_with, find, same, skipped, unchanged};

/// Compiles a program that does nothing; None, after saying so, where this machine cannot.
fn compiled(dir: &Dir, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    find(compiler)?;
    let (source, program) = (dir.path().join("nothing.c"), dir.path().join("nothing"));
    fs::write(&source, "int main(void) { return 0; }\n").expect("a new file");
    let mut compile = dir.command(compiler);
    compile.args(flags).arg("-o").args([&program, &source]);
    if !Running::start(compile).finish().status.success() {
        skipped(&format!("{compiler} {flags:?} does not work here"));
        return None;
    }
    Some(program)
}

fn doctor(dir: &Dir, program: &Path) -> Finished {
    let mut doctor = dir.cawl(&["doctor"]);
    doctor.arg(program);
    Running::start(doctor).finish()
}

/// The text in one line.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `doctor` says of a program that no library sees: probes in the kernel do, where they can be attached.
#[track_caller]
fn not_by_library(finished: Finished) -> Finished {
    let by_kernel = finished.stdout.contains("will be traced by probes in the kernel");
    finished.code(i32::from(!by_kernel))
}

#[test]
fn another_libc_and_another_width() {
    for (compiler, flags, words) in [
        ("musl-gcc", &[][..], "uses musl"),
        ("cc", &["-m32"], "a 32-bit program"),
        ("cc", &[], "will be traced"),
    ] {
        let dir = Dir::new();
        let Some(program) = compiled(&dir, compiler, flags) else { continue };
        let is_traced = words == "will be traced";
        let finished = doctor(&dir, &program);
        let finished = if is_traced { finished.code(0) } else { not_by_library(finished) };
        assert!(finished.stdout.contains(words), "{finished:#?}");
        if !is_traced && Running::start(dir.command(&program)).finish().status.success() {
            let (finished, report) = unchanged(&dir, |_| {}, &[], &[&program], &[]);
            finished.success();
            assert!(report["notes"].to_string().contains(words), "{report:#?}");
        }
    }
}

/// musl's linker would end a program whose preloaded library it cannot load; `run` and the tracer leave it
/// out.
#[test]
fn another_libc_started_by_traced_programs() {
    let dir = Dir::new();
    if find("musl-gcc").is_none() {
        return;
    }
    let (program, script) = (dir.path().join("print"), dir.path().join("script"));
    let mut compile = dir.command("musl-gcc");
    compile.arg("-o").arg(&program).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/print.c"));
    Running::start(compile).finish().success();
    fs::write(&script, format!("#! {} by-script\n", program.display())).expect("a new file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let folder = dir.path().display();
    let mut ways = vec![
        vec![
            "dash".to_owned(),
            "-c".to_owned(),
            format!("{}; echo $?; {}", program.display(), script.display()),
        ],
        vec!["sh".to_owned(), "-c".to_owned(), format!("PATH={folder}:$PATH exec print x")],
        vec!["env".to_owned(), format!("PATH={folder}:/usr/bin:/bin"), "print".to_owned()],
    ];
    let python = "import subprocess, os; print(subprocess.run([P, 'a']).returncode); os.posix_spawnp(P, [P], {}); \
                  os.wait(); os.system(P); os.execv(P, [P])";
    if let Some(path) = cawl_kit::python() {
        let script = python.replace('P', &format!("'{}'", program.display()));
        ways.push(vec![path.display().to_string(), "-c".to_owned(), script]);
    }
    for way in ways {
        let dir = Dir::new();
        let (finished, report) = unchanged(&dir, |_| {}, &[], &way, &[]);
        assert_eq!(finished.stderr, "", "{way:?}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("uses musl") && notes.contains("print"), "{way:?}: {notes}");
    }
}

/// The tracer opens a program to examine it, unless the close would release the process's locks.
#[test]
fn a_program_that_locks_and_starts_itself_keeps_its_lock() {
    let dir = Dir::new();
    let app = dir.app("self_locked");
    let (finished, _) = same(&dir, |_| {}, &[&app]);
    assert_eq!(finished.success().stdout, "locked\nlocked\n");
}

#[test]
fn more_rights_than_the_caller_has() {
    let Ok(Some(nobody)) = User::from_name("nobody") else { return skipped("there is no user nobody") };
    if !geteuid().is_root() {
        return skipped("only root can give a program away");
    }
    let dir = Dir::new();
    let Some(program) = compiled(&dir, "cc", &[]) else { return };
    let mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("root can");
    for (bits, words) in [(0o4755, "is setuid to uid"), (0o2755, "is setgid to gid")] {
        chown(&program, Some(nobody.uid), Some(nobody.gid)).expect("root can");
        mode(bits);
        let finished = not_by_library(doctor(&dir, &program));
        assert!(finished.stdout.contains(words) && finished.stdout.contains("AT_SECURE"), "{finished:#?}");
    }
    mode(0o755);
    if find("setcap").is_none() {
        return;
    }
    let mut capable = dir.command("setcap");
    capable.arg("cap_net_raw+ep").arg(&program);
    if !Running::start(capable).finish().status.success() {
        return skipped("this filesystem keeps no capabilities");
    }
    // Root gains nothing from a capability.
    doctor(&dir, &program).code(0);
    let Some(theirs) = Dir::of("nobody") else { return };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let finished = doctor(&theirs, &program).code(1);
    assert!(finished.stdout.contains("has file capabilities"), "{finished:#?}");
}

/// A setuid program that an ordinary user runs behaves as usual, gets its rights, and is named: started by
/// `run` itself, and by traced programs in each way; also if it is not readable.
#[test]
fn a_setuid_program_of_an_ordinary_user() {
    let bits = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root can");
    };
    for mode in [0o4755, 0o4711] {
        let Some(dir) = Dir::of("nobody") else { return };
        let Some(cp) = find("cp") else { return };
        let (program, starter) = (dir.path().join("elevated"), dir.app("process"));
        fs::copy(cp, &program).expect("a copy");
        bits(&program, mode);
        let name = program.to_str().expect("a readable path");
        let prepare = |folder: &Path| fs::write(folder.join("in"), "some text\n").expect("a new file");
        // The owner of the output shows whose rights the program had.
        let copied = |dir: &Dir| fs::metadata(dir.work().join("out")).is_ok_and(|out| out.uid() == 0);
        prepare(&dir.work());
        let alone = Running::start({
            let mut command = dir.command(&program);
            command.args(["in", "out"]);
            command
        })
        .finish()
        .success();
        if !copied(&dir) {
            return skipped("programs get no rights of their owner here (nosuid, or no new privileges)");
        }
        assert_eq!(alone.stderr, "");
        let finished = doctor(&dir, &program).code(1);
        assert!(
            finished.stdout.contains("elevated is setuid to uid 0") && finished.stdout.contains("AT_SECURE"),
            "{finished:#?}"
        );
        let shell = format!("{name} in out; echo $?");
        let replaced = format!("exec {name} in out");
        let starter = starter.to_str().expect("a readable path");
        let ways = [
            vec![name, "in", "out"],
            vec!["sh", "-c", &shell],
            vec!["sh", "-c", &replaced],
            vec!["env", name, "in", "out"],
            vec![starter, "start", name, "in", "out"],
        ];
        for way in ways {
            dir.clear();
            let (finished, report) = unchanged(&dir, prepare, &[], &way, &[]);
            assert_eq!(finished.success().stderr, "", "{way:?}");
            assert!(copied(&dir), "{way:?}");
            let notes = report["notes"].to_string();
            assert!(notes.contains("elevated is setuid to uid 0"), "{way:?}: {notes}");
        }
    }
}

#[test]
fn who_can_use_io_uring_is_named_before_the_run() {
    let dir = Dir::new();
    let library = dir.path().join("liburing.so.2");
    let source = dir.path().join("ring.c");
    std::fs::write(&source, "int io_uring_queue_init(void) { return 0; }").expect("a file");
    let mut compile = dir.command("cc");
    compile.args(["-shared", "-fPIC", "-Wl,-soname,liburing.so.2", "-o"]).args([&library, &source]);
    Running::start(compile).finish().success();
    std::fs::write(
        &source,
        "int io_uring_queue_init(void);\nint main(void) { return io_uring_queue_init(); }",
    )
    .expect("a file");
    let program = dir.path().join("ring");
    let mut compile = dir.command("cc");
    compile.arg("-o").args([&program, &source, &library]);
    Running::start(compile).finish().success();
    let told = unwrapped(&doctor(&dir, &program).success().stdout);
    assert!(told.contains("can use io_uring (liburing): what it writes that way is not seen"), "{told}");
    let without = dir.app("print");
    assert!(!doctor(&dir, &without).success().stdout.contains("io_uring"));
}

#[test]
fn who_makes_system_calls_itself_is_named_before_the_run() {
    if std::env::consts::ARCH != "x86_64" {
        return skipped("the doctor knows system calls in code for x86-64 only");
    }
    let dir = Dir::new();
    let cases = [
        (
            "long r; __asm__ volatile(\"syscall\" : \"=a\"(r) : \"0\"(1L), \"D\"(1), \"S\"(\"raw\\n\"), \"d\"(4) : \"rcx\", \"r11\", \"memory\");
             return r != 4;",
            "makes system calls itself, past the C library (write)",
        ),
        (
            "long r; __asm__ volatile(\"syscall\" : \"=a\"(r) : \"0\"(3L), \"D\"(1) : \"rcx\", \"r11\", \"memory\");
             return r != 0;",
            "changes descriptors by system calls itself, past the C library (close)",
        ),
        ("return syscall(425, 0, 0) == 1;", "can use io_uring (by system calls)"),
    ];
    for (text, told) in cases {
        for level in ["-O0", "-O2"] {
            let source = dir.path().join("raw.c");
            std::fs::write(&source, format!("long syscall(long, ...);\nint main(void) {{ {text} }}\n"))
                .expect("a file");
            let program = dir.path().join("raw");
            let mut compile = dir.command("cc");
            compile.args([level, "-o"]).args([&program, &source]);
            Running::start(compile).finish().success();
            let said = unwrapped(&doctor(&dir, &program).success().stdout);
            assert!(said.contains(told), "{level}: {said}");
        }
    }
    let without = dir.app("print");
    assert!(!doctor(&dir, &without).success().stdout.contains("system calls"));
}

/// Each once, however many processes did the same.
#[test]
fn who_goes_past_the_tracer_or_has_another_clock_is_named() {
    let plugin = app_with("handles", &["-O1", "-DLIBRARY", "-shared", "-fPIC"]);
    let clock = app_with("still_clock", &["-shared", "-fPIC"]);
    let [plugin, clock] = [&plugin, &clock].map(|path| path.to_str().expect("a readable path"));
    let program = app_with("handles", &["-O1"]);
    let program = program.to_str().expect("a readable path");
    for (way, also, words) in [
        ("deep", "", "handles loaded a library with RTLD_DEEPBIND"),
        ("space", "", "handles loaded a library into a namespace of its own"),
        ("plain", clock, "handles sees another time than the machine's"),
    ] {
        let dir = Dir::new();
        let script = format!(
            "export LD_PRELOAD=\"$LD_PRELOAD:{also}\"; {program} {way} {plugin} && {program} {way} {plugin}"
        );
        let (finished, report) = dir.run(&[], &["sh", "-c", &script]);
        finished.success();
        let notes = report["notes"].to_string();
        assert_eq!(notes.matches(words).count(), 1, "{way}: {notes}");
    }
}

#[test]
fn a_user_of_io_uring_is_named() {
    let dir = Dir::new();
    let app = dir.app("uring");
    let (finished, report) = dir.run(&[], &[app.as_os_str()]);
    if finished.status.code() == Some(77) {
        return skipped("this kernel has no io_uring");
    }
    finished.success();
    let notes = report["notes"].to_string();
    assert!(notes.contains("uses io_uring: what it writes that way was not seen"), "{notes}");
    assert_eq!(report.file_bytes("out"), 18);
}

#[test]
fn a_go_program_is_named_as_not_traced() {
    // Go's own command is one.
    let Some(go) = find("go") else { return };
    let dir = Dir::new();
    let name = go.to_str().expect("a readable path");
    for command in [vec![name, "version"], vec!["sh", "-c", &format!("{name} version; true")]] {
        let (finished, report) = unchanged(&dir, |_| {}, &[], &command, &[]);
        finished.success();
        let notes = report["notes"].to_string();
        assert!(notes.contains("is a Go program"), "{notes}");
    }
    assert!(not_by_library(doctor(&dir, &go)).stdout.contains("is a Go program"));
}

#[test]
fn the_doctor_knows_static_and_missing_programs() {
    let dir = Dir::new();
    let source = dir.path().join("main.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a new file");
    for (flags, by_library, word) in [
        (&["-static"][..], false, "statically linked"),
        (&["-static-pie"], false, "statically linked"),
        (&[], true, "will be traced"),
    ] {
        let program = dir.path().join("program");
        let mut compile = dir.command("cc");
        compile.args(flags).arg("-o").args([&program, &source]);
        if !Running::start(compile).finish().status.success() {
            skipped(&format!("this compiler cannot do {flags:?}"));
            continue;
        }
        let mut doctor = dir.cawl(&["doctor"]);
        doctor.arg(&program);
        let finished = Running::start(doctor).finish();
        let finished = if by_library { finished.code(0) } else { not_by_library(finished) };
        assert!(finished.stdout.contains(word), "{finished:#?}");
    }
    let script = dir.path().join("script");
    fs::write(&script, "").expect("a new file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    for (text, word) in [
        ("echo\n", "only a shell can run it"),
        ("#!\n", "only a shell can run it"),
        ("#!   ", "only a shell can run it"),
        ("#!/bin/sh\r\n", "CR LF"),
        ("", "is a folder"),
    ] {
        fs::write(&script, text).expect("it is ours");
        let nothing = if text.is_empty() { Path::new(".") } else { &script };
        let told = doctor(&dir, nothing).code(1).stdout;
        assert!(told.contains(word) && told.contains("will not be traced"), "{told}");
        // As execve does.
        let mut run = dir.cawl(&["run", "--"]);
        run.arg(nothing);
        Running::start(run).finish().code(126);
    }
    Running::start(dir.cawl(&["doctor", "nonexistent-program"])).finish().code(127);
    Running::start(dir.cawl(&["doctor"])).finish().code(0);
}
