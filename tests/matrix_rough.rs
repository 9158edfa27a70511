//! The compatibility matrix, second half: small programs that treat descriptors, limits, processes,
//! signals and memory in ways that break tracers. Each is run bare and under `cawl-cli run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{Dir, Finished, Report, Running, find, same, skipped, unchanged};

fn empty(_: &Path) {}

/// Runs a mode of apps/rough.c both ways; every byte must be seen. At their ends its processes write down their
/// descriptors and environment, into a file that is compared as any other.
#[track_caller]
fn rough(mode: &[&str]) -> (Finished, Report) {
    let dir = Dir::new();
    let app = dir.app("rough");
    let mut program = vec![app.to_str().expect("a readable path")];
    program.extend(mode);
    let (finished, report) = same(&dir, empty, &program);
    (finished.success(), report)
}

/// The same where part of it is not traced.
#[track_caller]
fn rough_in_part(mode: &str) -> (Finished, Report) {
    let dir = Dir::new();
    let app = dir.app("rough");
    let (finished, report) = unchanged(&dir, empty, &[], &[app.as_os_str(), mode.as_ref()], &[]);
    (finished.success(), report)
}

#[test]
fn a_daemon_by_double_fork() {
    let (_, report) = rough(&["daemonize"]);
    assert!(report.file_bytes("daemon") > 0);
}

#[test]
fn two_hundred_vforks() {
    rough(&["vforks"]);
}

#[test]
fn a_limit_of_sixteen_descriptors_in_mid_run() {
    rough(&["limits"]);
}

#[test]
fn a_limit_of_sixteen_descriptors_from_the_start() {
    let dir = Dir::new();
    same(&dir, empty, &["sh", "-c", "ulimit -n 16; echo one > a; seq 10000 | sort -n > b; cat b | wc -c"])
        .0
        .success();
}

#[test]
fn a_filter_that_kills_on_socket() {
    let (_, report) = rough_in_part("seccomp");
    assert!(report["untraced_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{report:#?}");
}

#[test]
fn another_root() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can chroot");
    }
    rough_in_part("chroot");
}

#[test]
fn another_user() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can become someone else");
    }
    rough_in_part("setuid");
}

#[test]
fn two_hundred_threads() {
    let (_, report) = rough(&["threads"]);
    assert_eq!(report.sessions().len(), 1);
}

#[test]
fn threads_cancelled_in_write() {
    // How much each thread wrote before its end is chance, and what it was writing at its end is not seen.
    rough_in_part("cancelled");
}

#[test]
fn signals_ten_thousand_times_a_second() {
    let (_, report) = rough_in_part("profiled");
    let bytes = report.bytes();
    let unseen = report["unseen"].as_u64().expect("a count");
    // 100000 bytes and 100000 lines, less what was under way when a signal struck in the tracer itself.
    assert!(bytes + 4096 * unseen >= 1_100_000, "{bytes} bytes, {unseen} calls unseen");
}

/// Each file is another one. A daemon built for debugging does not keep up with that, so the sum counts.
#[test]
fn a_million_files_opened_and_closed() {
    const FILES: u64 = 1_000_000;
    let dir = Dir::new();
    let app = dir.app("rough");
    let count = FILES.to_string();
    let program = [app.as_os_str(), "files".as_ref(), count.as_ref()];
    let (finished, report) = unchanged(&dir, empty, &["--model", "naive"], &program, &["memory"]);
    finished.success();
    let [calls, drops, unseen] =
        ["calls", "drops", "unseen"].map(|name| report[name].as_u64().expect("a count"));
    println!("{calls} calls, {drops} dropped, {unseen} unseen");
    // Each is opened, written to, closed and removed; besides, the program writes down what it finds at its end.
    let more = (calls + drops + unseen).checked_sub(4 * FILES);
    assert!(more.is_some_and(|more| more < 1000), "{calls} calls, {drops} dropped, {unseen} unseen");
    let text = std::fs::read_to_string(dir.work().join("memory")).expect("it was written");
    let figures: Vec<i64> = text.split_whitespace().map(|word| word.parse().expect("KiB")).collect();
    let [own, own_later, ring, ring_later] = figures[..] else { panic!("{text}") };
    assert!(own > 0 && ring > 0, "the tracer's memory was not found: {text}");
    // A byte for each file would be 879. What waits for the daemon has 64 places of 8 KiB, used as it falls behind.
    assert!(own_later - own <= 640, "KiB of the tracer after 100000 files, then after a million: {text}");
    // A ring ends at 128 chunks of 256 KiB, and how many of them are in use is the daemon's speed.
    assert!(ring_later <= (32 << 10) + 512, "KiB of the ring: {text}");
}

#[test]
fn five_hundred_forks() {
    let (_, report) = rough(&["forks"]);
    assert_eq!(report.file_bytes("forks"), 500);
}

#[test]
fn a_chain_of_fifty_images() {
    let (_, report) = rough(&["chain", "50"]);
    assert_eq!(report.sessions().len(), 51);
}

#[test]
fn all_descriptors_closed_or_replaced() {
    for way in ["close", "close_range", "closefrom", "dup2", "limit"] {
        let dir = Dir::new();
        let app = dir.app("fds");
        same(&dir, empty, &[app.as_os_str(), way.as_ref()]).0.success();
    }
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
    let (_, report) = same(&dir, empty, &[app.as_os_str(), "libraries".as_ref(), library.as_os_str()]);
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
        same(&dir, empty, &["sh", "-c", &script]).0.success();
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
fn the_tracers_memory_does_not_grow() {
    let dir = Dir::new();
    let app = dir.app("rough");
    let (finished, report) = dir.run(&[], &[app.as_os_str(), "memory".as_ref(), "1000000".as_ref()]);
    // How many calls a daemon built for debugging keeps up with is not the question here.
    let grown: i64 = finished.success().stdout.trim().parse().expect("a number of KiB");
    // The ring may have been touched further than before, to its 32 MiB; they are given back when the
    // daemon has caught up.
    assert!(grown <= 33 << 10, "{grown} KiB more between 100000 and 1000000 calls");
    assert!(report["calls"].as_u64().is_some_and(|calls| calls > 0));
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
