//! Small programs that treat descriptors, limits, processes, signals and memory in ways that break tracers
//! (apps/rough.c, apps/fds.c). At their ends the processes of rough.c write down their descriptors and
//! environment, into a file that is compared as any other.

use std::path::PathBuf;
use std::process::Command;

use cawl_kit::{Dir, Running, compiled, find, same, skipped, unchanged};
use nix::unistd::geteuid;

use super::{PLAIN, Program, Run::*, Seen};

programs! {
    daemon_by_double_fork { run: App("rough", &["daemonize"]),
        check: |_, report| assert!(report.file_bytes("daemon") > 0) }
    two_hundred_vforks { run: App("rough", &["vforks"]) }
    // A copy of the process has no descriptor to spare, unless it may raise its limits.
    limit_of_sixteen_descriptors_in_mid_run { run: App("rough", &["limits"]), seen: Seen::Part }
    limit_of_sixteen_descriptors_from_the_start {
        run: Sh("ulimit -Sn 16; echo one > a; seq 10000 | sort -n > b; cat b | wc -c") }
    filter_that_kills_on_socket { run: App("rough", &["seccomp"]), seen: Seen::Part,
        check: |_, report| assert!(report["untraced_bytes"].as_u64() > Some(0), "{report:#?}") }
    two_hundred_threads { run: App("rough", &["threads"]),
        check: |_, report| assert_eq!(report.sessions().len(), 1) }
    // How much each thread wrote before its end is chance, and what it was writing at its end is not seen.
    threads_cancelled_in_write { run: App("rough", &["cancelled"]), seen: Seen::Part }
    // 100000 bytes and 100000 lines, less what was under way when a signal struck in the tracer itself.
    signals_ten_thousand_times_a_second { run: App("rough", &["profiled"]), seen: Seen::Part, check: |_, report| {
        let (bytes, unseen) = (report.bytes(), report["unseen"].as_u64().expect("a count"));
        assert!(bytes + 4096 * unseen >= 1_100_000, "{bytes} bytes, {unseen} calls unseen");
    } }
    five_hundred_forks { run: App("rough", &["forks"]),
        check: |_, report| assert_eq!(report.file_bytes("forks"), 500) }
    chain_of_fifty_images { run: App("rough", &["chain", "50"]),
        check: |_, report| assert_eq!(report.sessions().len(), 51) }
    all_descriptors_closed { run: App("fds", &["close"]) }
    all_descriptors_closed_by_close_range { run: App("fds", &["close_range"]) }
    all_descriptors_closed_by_closefrom { run: App("fds", &["closefrom"]) }
    all_descriptors_replaced { run: App("fds", &["dup2"]) }
    all_descriptors_beyond_the_limit { run: App("fds", &["limit"]) }
}

/// Runs a mode of apps/rough.c for which root is needed, where part of it is not traced.
fn as_root(mode: &str) {
    if !geteuid().is_root() {
        return skipped("only root can do this");
    }
    let dir = Dir::new();
    let app = dir.app("rough");
    unchanged(&dir, |_| {}, &[], &[app.as_os_str(), mode.as_ref()], &[]).0.success();
}

#[test]
fn another_root() {
    as_root("chroot");
}

#[test]
fn another_user() {
    as_root("setuid");
}

/// By the C library's unwinder, or by one that is linked into the program.
#[test]
fn handlers_that_throw_out_of_a_call() {
    for flags in [&[][..], &["-static-libgcc", "-static-libstdc++"]] {
        let flags = [&["-O1", "-fnon-call-exceptions"], flags].concat();
        let Ok(program) = compiled("throwing", &flags) else {
            skipped(&format!("c++ {flags:?} does not work here"));
            continue;
        };
        let (finished, _) = unchanged(&Dir::new(), |_| {}, &[], &[program], &[]);
        assert_eq!(finished.success().stdout, "caught late\n".repeat(3), "{flags:?}");
    }
}

/// Each file is another one. A daemon built for debugging does not keep up with that, so the sum counts.
#[test]
fn many_files_opened_and_closed() {
    const FILES: u64 = 20_000;
    let dir = Dir::new();
    let app = dir.app("rough");
    let count = FILES.to_string();
    let program = [app.as_os_str(), "files".as_ref(), count.as_ref()];
    let (finished, report) = unchanged(&dir, |_| {}, &["--model", "naive"], &program, &["memory"]);
    finished.success();
    let [calls, drops, unseen] =
        ["calls", "drops", "unseen"].map(|name| report[name].as_u64().expect("a count"));
    println!("{calls} calls, {drops} dropped, {unseen} unseen");
    // Each is opened, written to, closed and removed; the program also writes down what it finds at its
    // end.
    let more = (calls + drops + unseen).checked_sub(4 * FILES);
    assert!(more.is_some_and(|more| more < 1000), "{calls} calls, {drops} dropped, {unseen} unseen");
    let text = std::fs::read_to_string(dir.work().join("memory")).expect("it was written");
    let figures: Vec<i64> = text.split_whitespace().map(|word| word.parse().expect("KiB")).collect();
    let [own, own_later, ring, ring_later] = figures[..] else { panic!("{text}") };
    assert!(own > 0 && ring > 0, "the tracer's memory was not found: {text}");
    // Forty bytes for each file would be 703. What waits for the daemon has 64 places of 8 KiB, used as it
    // falls behind.
    assert!(own_later - own <= 640, "KiB of the tracer after a tenth of the files, then after all: {text}");
    // A ring ends at 128 chunks of 256 KiB, and how many of them are in use is the daemon's speed.
    assert!(ring_later <= (32 << 10) + 512, "KiB of the ring: {text}");
}

#[test]
fn libraries_that_come_and_go() {
    let dir = Dir::new();
    let app = dir.app("rough");
    let source = dir.path().join("library.c");
    let text = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <unistd.h>
        static FILE *file;
        __attribute__((constructor)) static void begin(void) { file = fopen("constructed", "a"); fputs("begin\n", file); }
        __attribute__((destructor)) static void end(void) { fputs("end\n", file); fclose(file); }
        void work(void) { int fd = open("worked", O_WRONLY | O_CREAT | O_APPEND, 0644); if (write(fd, "work\n", 5) < 0) _exit(9); close(fd); }
    "#;
    std::fs::write(&source, text).expect("a new file");
    let library = dir.path().join("library.so");
    let mut compile = dir.command("cc");
    compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
    Running::start(compile).finish().success();
    let (_, report) = same(&dir, |_| {}, &[app.as_os_str(), "libraries".as_ref(), library.as_os_str()]);
    assert_eq!(report.file_bytes("constructed"), 20 * 10);
}

/// A library of this name, where libraries are.
fn library(name: &str) -> Option<PathBuf> {
    let found =
        Command::new("ldconfig").arg("-p").output().ok().and_then(|out| String::from_utf8(out.stdout).ok());
    let line = found.as_deref().unwrap_or_default().lines().find(|line| line.contains(name));
    let path = line.and_then(|line| line.split("=> ").nth(1)).map(PathBuf::from);
    if path.is_none() {
        skipped(&format!("{name} is not installed"));
    }
    path
}

#[test]
fn other_allocators() {
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let Some(path) = library(name) else { continue };
        let script = format!(
            "export LD_PRELOAD=$LD_PRELOAD:{}; seq 20000 | sort -R --random-source=/dev/zero | sort -n > sorted; \
             awk 'BEGIN {{ for (n = 0; n < 9999; n++) print n > \"awk\" }}'; wc -l sorted awk",
            path.display()
        );
        let dir = Dir::new();
        same(&dir, |_| {}, &["sh", "-c", &script]).0.success();
        // And before us, as the program's own preload.
        let dir = Dir::new();
        let mut run = dir.run_command(&[], &["sh", "-c", "seq 20000 | sort -n > sorted; cat sorted | wc -c"]);
        run.env("LD_PRELOAD", &path);
        let finished = Running::start(run).finish();
        dir.report(&finished).all_seen();
        assert_eq!(finished.success().stdout.trim(), "108894");
    }
}

#[test]
fn no_leak_by_valgrind() {
    if find("valgrind").is_none() {
        return;
    }
    let dir = Dir::new();
    let app = dir.app("rough");
    let valgrind =
        ["valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite", "--error-exitcode=42"];
    let mut program: Vec<&std::ffi::OsStr> = valgrind.iter().map(std::ffi::OsStr::new).collect();
    program.extend([app.as_os_str(), "memory".as_ref(), "100000".as_ref()]);
    let finished = Running::start(dir.run_command(&[], &program)).finish();
    assert_ne!(finished.status.code(), Some(42), "{finished:#?}");
    assert!(finished.status.success(), "{finished:#?}");
}
