//! CPython's own regression tests, as packaged by Debian: they have the same outcome alone and under
//! `cawl-cli run`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;

use cawl_kit::{Dir, Report, Running, skipped};

const PYTHON: &str = "/usr/bin/python3";

/// Modules about files, descriptors, processes, signals or threads; the longest first.
#[rustfmt::skip]
const MODULES: &[&str] = &[
    "test_io", "test_subprocess", "test_socket", "test_signal", "test_faulthandler", "test_logging",
    "test_zipfile", "test_selectors", "test_asyncio.test_subprocess", "test_threading", "test_ftplib",
    "test_tarfile", "test_multiprocessing_spawn.WithProcessesTestProcess", "test_poll",
    "test_multiprocessing_forkserver.WithProcessesTestProcess", "test_eintr", "test_asyncio.test_events",
    "test_pathlib", "test_mailbox", "test_concurrent_futures.ProcessPoolForkProcessPoolExecutorTest",
    "test_cmd_line_script", "test_runpy", "test_wait3", "test_wait4", "test_fork1", "test_threadsignals",
    "test_multiprocessing_spawn.WithProcessesTestPool", "test_cmd_line", "test_pickle",
    "test_multiprocessing_fork.WithProcessesTestProcess", "test_audit", "test_os", "test_shelve",
    "test_multiprocessing_fork.WithProcessesTestPool", "test_shutil", "test_ctypes", "test_posix",
    "test_multiprocessing_spawn.WithProcessesTestQueue", "test_file_eintr", "test_import", "test_asynchat",
    "test_httpservers", "test_tempfile", "test_bz2", "test_bufio", "test_asyncore",
    "test_asyncio.test_sock_lowlevel", "test_time", "test_multiprocessing_forkserver.WithProcessesTestQueue",
    "test_multiprocessing_fork.WithProcessesTestQueue", "test_select", "test_asyncio.test_sendfile",
    "test_glob", "test_sys", "test_py_compile", "test_asyncio.test_streams", "test_largefile", "test_thread",
    "test_multiprocessing_fork.WithProcessesTestSharedMemory", "test_readline", "test_lzma",
    "test_multiprocessing_fork.WithProcessesTestConnection", "test_gzip", "test_cgi", "test_repl",
    "test_wave", "test_fileinput", "test_dbm", "test_threadedtempfile", "test_script_helper", "test_file",
    "test_uu", "test_platform", "test_finalization", "test_asyncio.test_unix_events", "test_zipimport",
    "test_fcntl", "test_popen", "test_fileio", "test_pty", "test_dbm_dumb", "test_asyncio.test_server",
    "test_atexit", "test_univnewlines", "test_resource", "test_syslog", "test_memoryio", "test_epoll",
    "test_fileutils", "test_filecmp", "test_print", "test_mmap", "test_pipes", "test_openpty",
    "test_genericpath", "test_webbrowser", "test_stat",
];

/// Prefixes of names of tests that are not run, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("test.test_signal.SiginterruptTest.test_siginterrupt_off", "sleeps for half a minute"),
    ("test.test_logging.HandlerTest.test_race", "ten seconds of opening and removing a file"),
    ("test.test_largefile.TestCopyfile", "copies 2.5 GB"),
    ("test.test_largefile.TestSocketSendfile", "sends 2.5 GB"),
    ("test.test_bz2.BZ2DecompressorTest.testDecompress4G", "needs 4 GB of memory"),
    ("test.test_lzma.CompressorDecompressorTestCase.test_decompressor_bigmem", "needs 4 GB of memory"),
    ("test.test_socket.ThreadedVSOCK", "hangs where a virtual machine has such sockets, traced or not"),
];

/// The outcome of each test, by its name.
type Outcomes = BTreeMap<String, String>;

/// Runs tests; `run`: the command before Python.
fn outcomes(dir: &Dir, names: &[&str], run: Option<Command>) -> (Outcomes, ExitStatus) {
    dir.clear();
    let file = dir.path().join("outcomes");
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/cpython.py");
    let mut command = run.map_or_else(
        || dir.command(PYTHON),
        |mut run| {
            run.arg(PYTHON);
            run
        },
    );
    command.arg("-B").arg(runner).arg(&file).args(names);
    command.args(LEFT_OUT.iter().map(|(name, _)| format!("-{name}")));
    // Some look for a folder of their own there, and some make one.
    command.env("TMPDIR", dir.work());
    let status = Running::start(command).finish().status;
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let told = text.lines().map(|line| {
        let (name, rest) = line.split_once('\t').unwrap_or((line, ""));
        (name.to_owned(), rest.split('\t').next().unwrap_or_default().to_owned())
    });
    (told.collect(), status)
}

/// `cawl-cli run`, with a report in this file.
fn run(dir: &Dir, report: &Path) -> Command {
    let mut run = dir.cawl(&["run", "--model", "naive", "--report"]);
    run.arg(report).arg("--");
    run
}

/// The outcomes of a module's tests.
#[derive(Default)]
struct Tally {
    tests: usize,
    calls: u64,
    drops: u64,
    written: u64,
    seen: u64,
    /// Outcomes that differ under the tracer, twice.
    different: Vec<String>,
    /// Outcomes that also differ between two runs without the tracer, or only once.
    unsteady: Vec<String>,
}

/// Names of tests that came out differently.
fn different(one: &Outcomes, other: &Outcomes) -> Vec<String> {
    one.keys().chain(other.keys()).filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// The module's tests alone and under the tracer. A differing test is repeated by itself, both ways: the
/// machine may be busy, and a test of timing may notice.
fn compare(module: &str) -> Tally {
    let (dir, name) = (Dir::new(), format!("test.{module}"));
    let file = dir.path().join("report.json");
    let (alone, status) = outcomes(&dir, &[&name], None);
    let (traced, traced_status) = outcomes(&dir, &[&name], Some(run(&dir, &file)));
    let report = Report::parse(&std::fs::read_to_string(&file).expect("a report"));
    // The kernel's byte count of a process and the bytes seen; never more seen, with an old reading.
    let figures = report.sessions().iter().filter_map(|session| {
        let written = session["wchar_bytes"].as_u64()?;
        Some((written, session["seen_bytes"].as_u64()?.min(written)))
    });
    let (written, seen) = figures.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    let mut tally = Tally {
        tests: alone.len(),
        calls: report["calls"].as_u64().expect("a count"),
        drops: report["drops"].as_u64().expect("a count"),
        written,
        seen,
        ..Tally::default()
    };
    if status != traced_status {
        tally.different.push(format!("{name}: {status}, traced {traced_status}"));
    }
    let mut names = different(&alone, &traced);
    names.dedup();
    for name in names {
        // A class or module that could not be prepared is named in brackets.
        let by_itself = name.split_once('(').map_or(&*name, |(_, of)| of.trim_end_matches(')'));
        let again = outcomes(&dir, &[by_itself], None).0;
        let traced_again = outcomes(&dir, &[by_itself], Some(run(&dir, &file))).0;
        let told = |of: &Outcomes| of.get(&name).map_or("missing", String::as_str).to_owned();
        let line = format!(
            "{name}: {}, traced {}; by itself {}, traced {}",
            told(&alone),
            told(&traced),
            told(&again),
            told(&traced_again)
        );
        let steady = told(&again) == told(&alone) && different(&again, &traced_again).contains(&name);
        (if steady { &mut tally.different } else { &mut tally.unsteady }).push(line);
    }
    tally
}

#[test]
#[ignore = "long: some minutes; CAWL_TEST_CPYTHON=\"test_os test_io\" runs only those"]
fn cpythons_own_tests_come_out_the_same() {
    let has_tests = Command::new(PYTHON).args(["-c", "import test.test_os"]).output();
    if !has_tests.is_ok_and(|out| out.status.success()) {
        return skipped("/usr/bin/python3 has no tests of its own (Debian: libpython3.VERSION-testsuite)");
    }
    let all: Vec<&str> = std::env::var("CAWL_TEST_CPYTHON").map_or(MODULES.to_vec(), |only| {
        let only: &'static str = only.leak();
        only.split_whitespace().collect()
    });
    let (next, done) = (Mutex::new(all.iter()), Mutex::new(Tally::default()));
    // Many of them sleep.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(module) = { next.lock().expect("a worker failed").next() } {
                    let Tally { tests, calls, drops, written, seen, different, unsteady } = compare(module);
                    println!(
                        "{module}: {tests} tests, {calls} calls, {drops} dropped, {seen} of {written} bytes seen"
                    );
                    let mut sum = done.lock().expect("a worker failed");
                    sum.tests += tests;
                    sum.calls += calls;
                    sum.drops += drops;
                    sum.written += written;
                    sum.seen += seen;
                    sum.different.extend(different);
                    sum.unsteady.extend(unsteady);
                }
            });
        }
    });
    let sum = done.into_inner().expect("no worker failed");
    println!(
        "CPython: {} tests of {} modules, {} calls, {} dropped, {} of {} bytes seen; left out: {LEFT_OUT:#?}",
        sum.tests,
        all.len(),
        sum.calls,
        sum.drops,
        sum.seen,
        sum.written
    );
    println!("unsteady, not compared: {:#?}", sum.unsteady);
    assert!(sum.different.is_empty(), "other outcomes under the tracer: {:#?}", sum.different);
    assert!(sum.written - sum.seen <= sum.written / 10_000, "{} of {} bytes seen", sum.seen, sum.written);
    assert_eq!(sum.drops, 0);
}
