//! perf trace, perf script, ftrace and bpftrace: texts that were recorded, and noise.

use cawl_import::{BpftraceImporter, FtraceImporter, PerfScriptImporter, PerfTraceImporter, SkipReason};

use super::*;

/// Importers of all formats, with their names.
fn importers() -> [(&'static str, Box<dyn Importer>); 4] {
    let pattern = "{start_ns} {pid} {tid} {comm} {op} {fd} {offset} {size} {ret} {duration_us}";
    [
        ("perf-trace", Box::<PerfTraceImporter>::default()),
        ("perf-script", Box::<PerfScriptImporter>::default()),
        ("ftrace", Box::<FtraceImporter>::default()),
        ("bpftrace", Box::new(BpftraceImporter::new(pattern.parse().expect("a pattern")))),
    ]
}

fn of(format: &str) -> Box<dyn Importer> {
    importers().into_iter().find(|(name, _)| *name == format).expect("a format").1
}

fn lines(format: &str, text: &str) -> (Vec<Record>, ImportSummary) {
    let text: Vec<&str> = text.lines().map(str::trim_start).collect();
    let (records, summary) =
        import(&mut *of(format), text.join("\n").as_bytes()).expect("lines that are read");
    check_order(&records, &summary);
    (records, summary)
}

fn paths(records: &[Record]) -> Vec<String> {
    let path =
        |record: &Record| if let Record::File(facts) = record { Some(facts.path.clone()) } else { None };
    records.iter().filter_map(path).collect()
}

fn count(summary: &ImportSummary, reason: SkipReason) -> u64 {
    summary.skipped.iter().find(|skipped| skipped.reason == reason).map_or(0, |skipped| skipped.lines)
}

/// Operation, descriptor, offset, result, duration in µs.
fn told(records: &[Record]) -> Vec<(Op, i32, u64, i64, u64)> {
    let told = |event: Event| (event.op, event.fd, event.offset, event.returned, event.duration / 1000);
    events(records).into_iter().map(told).collect()
}

const UNKNOWN: u64 = cawl_wire::UNKNOWN_OFFSET;

#[test]
fn begins_and_ends_are_joined_by_thread() {
    let text = "# tracer: nop
        # entries-in-buffer/entries-written: 11/11   #P:2
          dd-7       [000] .....    10.000000: sys_openat(dfd: ffffff9c, filename: 55d0, flags: 241, mode: 1b6)
          dd-7       [000] .....    10.000010: sys_openat -> 0x3
          dd-7       [000] .....    10.000020: sys_write(fd: 3, buf: 55d0, count: 1000)
        cat-8        [001] .....    10.000021: sys_write(fd: 1, buf: 55d0, count: 5)
        cat-8        [001] .....    10.000022: sys_write -> 0x5
          dd-7       [000] .....    10.000050: sys_write -> 0x1000
        CPU:1 [LOST 42 EVENTS]
          dd-7       [000] .....    10.000060: sys_write(fd: 3, buf: 55d0, count: 1000)
          dd-7       [000] .....    10.000070: sys_write -> 0xffffffffffffffe4
          dd-7       [000] .....    10.000080: sys_fsync(fd: 3)
          dd-7       [000] .....    10.000090: sys_write -> 0x1000
          dd-7       [000] .....    10.000100: sys_exit_group(error_code: 3)";
    let (records, summary) = lines("ftrace", text);
    let expected = [
        (Op::Open, 3, UNKNOWN, 3, 10),
        (Op::Write, 3, 0, 4096, 30),
        (Op::Write, 1, UNKNOWN, 5, 1),
        (Op::Write, 3, 4096, -1, 10),
    ];
    assert_eq!(told(&records), expected);
    assert_eq!(paths(&records), ["pid 7, descriptor 3"]);
    // The end of the fsync was lost, and the begin of another write.
    let counts =
        [SkipReason::Lost, SkipReason::Endless, SkipReason::Headless].map(|why| count(&summary, why));
    assert_eq!(counts, [42, 1, 1]);
    assert_eq!(summary.notes.len(), 1, "{:?}", summary.notes);
    let notes = records.iter().filter(|record| matches!(record, Record::Note(_))).count();
    assert_eq!(notes, 4, "losses and inferences are in the trace");
    assert!(
        records.iter().any(|record| matches!(record, Record::Session(session) if session.program == "dd"))
    );
}

#[test]
fn a_line_that_cannot_be_read_is_named_with_its_field() {
    let good = "dd-7 [000] ..... 10.000000: sys_sync()\n";
    for (format, bad, says) in [
        (
            "ftrace",
            "dd-7 [000] ..... 10.000020: sys_write(fd: 3, buf: 55d0, count: many)",
            "line 2, field 3: argument \"count\" of write: \"count: many\" is no hexadecimal number",
        ),
        (
            "ftrace",
            "dd-7 [000] ..... 10.000020: sys_enter: NR 1 (3, x, 0)",
            "line 2, field 3: \"1 (3, x, 0)\"",
        ),
        (
            "perf-script",
            "dd 7 [000] 10.000020: raw_syscalls:sys_exit: NR 1 = many",
            "line 2, field 2: \"1 = many\" is no result",
        ),
    ] {
        let error = import(&mut *of(format), format!("{good}{bad}\n").as_bytes()).expect_err(bad);
        assert!(error.to_string().starts_with(says), "{error}");
    }
    for (format, mut importer) in importers() {
        let text = if format == "bpftrace" { "" } else { "start_s,op,offset,size,duration_s\n1,2,3,4,5\n" };
        let error = import(&mut *importer, text.as_bytes()).expect_err(format);
        assert!(error.fault.contains("none is"), "{format}: {error}");
    }
}

#[test]
fn perf_trace_omits_zeros_prefixes_and_threads() {
    let text = "? (         ): dd/7  ... [continued]: execve())                     = 0
        0.100 ( 0.010 ms): dd/7 openat(dfd: CWD, filename: 0x55d0, flags: CREAT|TRUNC|WRONLY, mode: 0666) = 3
        0.200 ( 0.020 ms): dd/7 write(fd: 3</tmp/a>, buf: 0x55d0, count: 100)   = 100
        0.300 (         ): dd/7 fsync(fd: 3</tmp/a>)                            ...
        0.300 ( 0.500 ms): dd/7  ... [continued]: fsync())                      = 0
        0.900 ( 0.001 ms): dd/7 write(buf: 0x55d0, count: 100)                  = -1 EBADF (Bad file descriptor)
        LOST 23 events!
        1.000 ( 0.001 ms): dd/7 openat(dfd: CWD, filename: \"/tmp/b\", flags: O_WRONLY|O_CREAT|O_TRUNC) = 4
        1.100 ( 0.001 ms): dd/7 write(fd: 4</tmp/wrong>, buf: \"a\", count: 9) = 9 (\", count: 12) = 12
        1.200 (         ): dd/7 block:block_rq_issue:8,0 W 4096 () 0 + 8 [dd]
                                           __GI___libc_write (/usr/lib/libc.so.6)
        1.300 ( 0.001 ms): dd/7 fcntl(fd: 4, cmd: GETFD)                        = CLOEXEC
        2.000 (         ): dd/7 exit_group(error_code: 1)                       = ?

         Summary of events:

         dd (7), 12 events, 40.0%";
    let (records, summary) = import(&mut *of("perf-trace"), text.as_bytes()).expect("lines that are read");
    check_order(&records, &summary);
    let expected = [
        (Op::Open, 3, UNKNOWN, 3, 10),
        (Op::Write, 3, 0, 100, 20),
        (Op::Fsync, 3, UNKNOWN, 0, 500),
        (Op::Write, 0, UNKNOWN, -1, 1),
        (Op::Open, 4, UNKNOWN, 4, 1),
        (Op::Write, 4, 0, 12, 1),
    ];
    assert_eq!(told(&records), expected);
    assert_eq!(paths(&records), ["/tmp/a", "/tmp/b"]);
    assert_eq!((count(&summary, SkipReason::Lost), summary.notes.len()), (23, 0));
    assert_eq!(count(&summary, SkipReason::Unreadable), 0, "{:#?}", summary.skipped);
    let outcome =
        records.iter().find_map(|record| if let Record::Outcome(end) = record { end.code } else { None });
    assert_eq!(outcome, Some(1));
}

/// A file that is opened twice, each time without a name, is one where descriptors have names.
#[test]
fn descriptors_with_names_make_openings_one_file() {
    let text = "0.1 ( 0.1 ms): dd/7 openat(dfd: CWD, filename: 0x1, flags: CREAT|TRUNC|WRONLY) = 3
        0.2 ( 0.1 ms): dd/7 write(fd: 3</tmp/a>, buf: 0x1, count: 100) = 100
        0.3 ( 0.1 ms): dd/7 close(fd: 3</tmp/a>) = 0
        0.4 ( 0.1 ms): dd/7 openat(dfd: CWD, filename: 0x1, flags: APPEND|WRONLY) = 3
        0.5 ( 0.1 ms): dd/7 write(fd: 3</tmp/a>, buf: 0x1, count: 10) = 10";
    let (records, _) = lines("perf-trace", text);
    let last = *told(&records).last().expect("an event");
    assert_eq!((last, paths(&records)), ((Op::Write, 3, 100, 10, 100), vec!["/tmp/a".to_owned()]));
    assert!(events(&records).iter().all(|event| event.ino == events(&records)[0].ino));
}

#[test]
fn threads_processes_and_pipes_are_inferred() {
    let text = "
        sh 7 [0] 1.000001: syscalls:sys_enter_pipe2: fildes: 0x7f00, flags: 0x0
        sh 7 [0] 1.000002: syscalls:sys_exit_pipe2: 0x0
        sh 7 [0] 1.000003: syscalls:sys_enter_write: fd: 0x4, buf: 0x7f00, count: 0x1
        sh 7 [0] 1.000004: syscalls:sys_exit_write: 0x1
        sh 7 [0] 1.000005: syscalls:sys_enter_openat: dfd: 0xffffff9c, filename: 0x1, flags: 0x241, mode: 0x1b6
        sh 7 [0] 1.000006: syscalls:sys_exit_openat: 0x5
        sh 7 [0] 1.000007: syscalls:sys_enter_clone3: uargs: 0x7f00, size: 0x58
        sh 8 [1] 1.000008: syscalls:sys_exit_clone3: 0x0
        sh 8 [1] 1.000009: syscalls:sys_enter_rseq: rseq: 0x1, rseq_len: 0x20, flags: 0x0, sig: 0x53053053
        sh 8 [1] 1.000010: syscalls:sys_exit_rseq: 0x0
        sh 7 [0] 1.000011: syscalls:sys_exit_clone3: 0x8
        sh 8 [1] 1.000012: syscalls:sys_enter_write: fd: 0x5, buf: 0x7f00, count: 0xa
        sh 8 [1] 1.000013: syscalls:sys_exit_write: 0xa
        sh 7 [0] 1.000014: syscalls:sys_enter_clone3: uargs: 0x7f00, size: 0x58
        sh 9 [1] 1.000015: syscalls:sys_exit_clone3: 0x0
        sh 9 [1] 1.000016: syscalls:sys_enter_rt_sigaction: sig: 0x1, act: 0x0, oact: 0x1, sigsetsize: 0x8
        sh 9 [1] 1.000017: syscalls:sys_exit_rt_sigaction: 0x0
        sh 9 [1] 1.000018: syscalls:sys_enter_dup2: oldfd: 0x5, newfd: 0x1
        sh 9 [1] 1.000019: syscalls:sys_exit_dup2: 0x1
        sh 9 [1] 1.000020: syscalls:sys_enter_execve: filename: 0x1, argv: 0x1, envp: 0x1
        ls 9 [1] 1.000021: syscalls:sys_exit_execve: 0x0
        sh 7 [0] 1.000022: syscalls:sys_exit_clone3: 0x9
        ls 9 [1] 1.000023: syscalls:sys_enter_write: fd: 0x1, buf: 0x7f00, count: 0x3
        ls 9 [1] 1.000024: syscalls:sys_exit_write: 0x3
        sh 7 [0] 1.000025: PERF_RECORD_LOST lost 2
        sh 7 [0] 1.000026: sched:sched_switch: prev_comm=sh";
    let (records, summary) = lines("perf-script", text);
    let writes: Vec<_> = events(&records)
        .iter()
        .filter(|event| event.op == Op::Write)
        .map(|event| (event.pid, event.tid, event.kind, event.offset))
        .collect();
    let expected =
        [(7, 7, FileKind::Fifo, UNKNOWN), (7, 8, FileKind::Regular, 0), (9, 9, FileKind::Regular, 10)];
    assert_eq!(writes, expected);
    let spawned = events(&records).into_iter().find(|event| event.op == Op::Spawn);
    assert_eq!(spawned.map(|event| event.returned), Some(9));
    let programs: Vec<_> =
        records
            .iter()
            .filter_map(|record| {
                if let Record::Session(session) = record { Some(session.program.as_str()) } else { None }
            })
            .collect();
    assert!(programs.contains(&"ls") && programs.contains(&"sh"), "{programs:?}");
    assert_eq!(count(&summary, SkipReason::Lost), 2);
}

/// The parent is told of its child when that has run and ended: by posix_spawn, and by fork.
#[test]
fn a_child_that_ends_before_its_parent_is_told() {
    let text = "sh 7 [0] 1.000001: syscalls:sys_enter_clone3: uargs: 0x7f00, size: 0x58
        sh 8 [1] 1.000002: syscalls:sys_exit_clone3: 0x0
        sh 8 [1] 1.000003: syscalls:sys_enter_rt_sigprocmask: how: 0x0
        sh 8 [1] 1.000004: syscalls:sys_exit_rt_sigprocmask: 0x0
        sh 8 [1] 1.000005: syscalls:sys_enter_execve: filename: 0x1, argv: 0x1, envp: 0x1
        ls 8 [1] 1.000006: syscalls:sys_exit_execve: 0x0
        ls 8 [1] 1.000007: syscalls:sys_enter_exit_group: error_code: 0x0
        sh 7 [0] 1.000008: syscalls:sys_exit_clone3: 0x8
        sh 7 [0] 1.000009: syscalls:sys_enter_fork:
        sh 9 [1] 1.000010: syscalls:sys_exit_fork: 0x0
        sh 9 [1] 1.000011: syscalls:sys_enter_exit_group: error_code: 0x0
        sh 7 [0] 1.000012: syscalls:sys_exit_fork: 0x9
        sh 7 [0] 1.000013: syscalls:sys_enter_exit_group: error_code: 0x0";
    let (records, _) = lines("perf-script", text);
    let made: Vec<_> = events(&records)
        .iter()
        .filter(|event| matches!(event.op, Op::Spawn | Op::Fork))
        .map(|event| (event.op, event.pid, event.returned))
        .collect();
    assert_eq!(made, [(Op::Spawn, 7, 8), (Op::Fork, 7, 9)]);
    let of = |pid| {
        let is_of = |record: &&Record| matches!(record, Record::Session(session) if session.pid == pid);
        records.iter().filter(is_of).count()
    };
    assert_eq!([of(7), of(8), of(9)], [1; 3], "nobody is born again");
}

/// One program, tests/apps/by_tools.py, recorded on Linux 6.18 by perf 6.1, ftrace and bpftrace 0.17, each
/// from its first call on its own file on: what it wrote, and where.
#[test]
fn stored_text_of_tools() {
    let pattern =
        "{start_ns} {pid}/{tid} [{comm}] {op} fd={fd} at={offset} size={size} -> {ret} in {duration_us}us";
    let mut positions: Vec<(u64, i64)> = Vec::new();
    let mut at = 0;
    for size in 1000..1020 {
        positions.push((at, size));
        at += size as u64;
    }
    positions.extend([(1 << 20, 4096), (512, 100), (612, 30), (642, 300), (0, 3), (3, 4), (7, 5)]);
    positions.extend([(942, 777), (1719, 5), (1724, 55), (0, 66), (1779, 8), (1787, 7)]);
    for (format, file) in [
        ("perf-trace", "perf-trace/python.txt"),
        // Here new threads' lines come before those of the clones that made them.
        ("perf-trace", "perf-trace/late.txt"),
        ("perf-script", "perf-script/raw_syscalls.txt"),
        ("perf-script", "perf-script/syscalls.txt"),
        ("ftrace", "ftrace/raw_syscalls.txt"),
        ("ftrace", "ftrace/syscalls.txt"),
        ("bpftrace", "bpftrace/python.txt"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut importer = of(format);
        if format == "bpftrace" {
            importer = Box::new(BpftraceImporter::new(pattern.parse().expect("a pattern")));
        }
        let (records, summary) =
            import(&mut *importer, &text).unwrap_or_else(|error| panic!("{file}: {error}"));
        check_order(&records, &summary);
        let is_write = |event: &Event| matches!(event.op, Op::Write | Op::Pwrite | Op::Writev);
        let writes: Vec<_> = events(&records).into_iter().filter(is_write).collect();
        let told: Vec<_> = writes.iter().map(|event| (event.offset, event.returned)).collect();
        let syncs =
            events(&records).iter().filter(|event| matches!(event.op, Op::Fsync | Op::Fdatasync)).count();
        assert_eq!(syncs, 2, "{file}");
        if format == "bpftrace" {
            // The script does not print writev; the kernel does not tell where write writes, which is taken
            // as at 0.
            let sizes = positions.iter().map(|(_, size)| *size).filter(|size| *size != 30);
            assert_eq!(told.iter().map(|(_, size)| *size).collect::<Vec<_>>(), sizes.collect::<Vec<_>>());
            continue;
        }
        assert_eq!(told, positions, "{file}");
        let losses: Vec<_> = summary.skipped.iter().filter(|skipped| skipped.reason.is_loss()).collect();
        let of_names = |skipped: &&&cawl_import::Skipped| matches!(skipped.reason, SkipReason::Nameless(_));
        assert_eq!(losses.iter().filter(of_names).count(), losses.len(), "{file}: {losses:#?}");
        // The file is one in all processes: before the fork and in what posix_spawn started.
        let ino = writes[0].ino;
        let others: Vec<_> =
            writes.iter().filter(|event| event.ino != ino).map(|event| event.returned).collect();
        assert_eq!(others, [3, 4, 5, 66], "{file}");
        let names = paths(&records);
        assert_eq!(
            names.iter().any(|name| name.starts_with("/tmp/trb/")),
            format == "perf-trace",
            "{file}: {names:?}"
        );
    }
}

/// Recordings that begin in the middle: what is behind a descriptor is not known, and told.
#[test]
fn descriptors_from_before_are_files_of_their_own() {
    let text = "dd-7 [0] 1.5: sys_write -> 0x5
        dd-7 [0] 1.6: sys_enter: NR 74 (5, 0, 0, 0, 0, 0)
        dd-7 [0] 1.7: sys_exit: NR 74 = 0
        dd-7 [0] 1.8: sys_write(fd: 5, buf: 1, count: 10)
        dd-7 [0] 1.9: sys_write -> 0x10
        dd-7 [0] 2.0: sys_unlink(pathname: 55d0)
        dd-7 [0] 2.1: sys_unlink -> 0x0
        dd-7 [0] 2.2: sys_fcntl(fd: 5, cmd: 6, arg: 7f00)
        dd-7 [0] 2.3: sys_fcntl -> 0x0";
    let (records, summary) = lines("ftrace", text);
    let last = events(&records);
    assert_eq!(last.iter().map(|event| event.op).collect::<Vec<_>>(), [Op::Fsync, Op::Write, Op::Unlink]);
    assert!(
        last[1].has(flag::ESTIMATED) && last[1].has(flag::INHERITED) && last[1].kind == FileKind::Regular
    );
    assert_eq!(paths(&records), ["pid 7, descriptor 5"]);
    let told = [
        SkipReason::Headless,
        SkipReason::Nameless("unlink".to_owned()),
        SkipReason::Hidden("lock of fcntl".to_owned()),
    ];
    assert_eq!(told.map(|reason| count(&summary, reason)), [1, 1, 1]);
    assert!(summary.notes[0].starts_with("1 descriptor without an opening"), "{:?}", summary.notes);
}

/// Memory is for files, processes and calls under way: a hundred thousand calls of one file leave nothing.
#[test]
fn lines_leave_nothing_behind() {
    let mut importer = FtraceImporter::default();
    let mut out = Vec::new();
    let mut most = 0;
    for at in 0..100_000u64 {
        let (begin, end) = (at * 2, at * 2 + 1);
        let lines = [
            format!(
                "dd-7 [0] {}.{:06}: sys_write(fd: 5, buf: 1, count: 10)",
                begin / 1_000_000,
                begin % 1_000_000
            ),
            format!("dd-7 [0] {}.{:06}: sys_write -> 0x10", end / 1_000_000, end % 1_000_000),
        ];
        for line in lines {
            importer.line(line.as_bytes(), &mut out).expect("a line");
        }
        most = most.max(out.len());
        out.clear();
    }
    let summary = importer.finish(&mut out).expect("an end");
    assert_eq!((summary.calls, most < 10), (100_000, true));
    assert!(out.len() < 70_000, "{}", out.len());
}

/// Lines come by the ends of calls: the first one of a process need not be of its first call.
#[test]
fn a_process_begins_by_its_first_call() {
    let text = b"3000 7 7 dd clone 0 0 0 8 1\n1000 7 7 dd write 3 0 16 16 1.5\n";
    let read = importers().into_iter().filter_map(|(_, mut importer)| import(&mut *importer, text).ok());
    let begun: Vec<u64> = read
        .filter(|(_, summary)| summary.calls == 2)
        .map(|(records, summary)| {
            check_order(&records, &summary);
            let session = records.iter().find_map(|record| match record {
                Record::Session(session) => Some(session.started.0),
                _ => None,
            });
            session.expect("a process")
        })
        .collect();
    assert!(!begun.is_empty() && begun.iter().all(|begun| *begun == 1000), "{begun:?}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_in_any_format(text in prop::collection::vec(any::<u8>(), 0..2000)) {
        for (_, mut importer) in importers() {
            let _ = import(&mut *importer, &text);
        }
    }

    #[test]
    fn noise_of_tools_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let text = pieces.concat();
        for (_, mut importer) in importers() {
            if let Ok((records, summary)) = import(&mut *importer, text.as_bytes()) {
                check_order(&records, &summary);
            }
        }
    }

    /// Lines of events, in any order of threads: every line is a call's, or counted.
    #[test]
    fn every_line_is_accounted_for(steps in prop::collection::vec((1..4u32, 0..6usize, 0..8u64), 1..80)) {
        let mut text = String::new();
        for (at, (tid, what, number)) in steps.iter().enumerate() {
            let event = match what {
                0 => format!("sys_write(fd: {number}, buf: 1, count: 10)"),
                1 => format!("sys_write -> {number:#x}"),
                2 => "sys_openat(dfd: ffffff9c, filename: 1, flags: 241, mode: 1b6)".to_owned(),
                3 => format!("sys_openat -> {number:#x}"),
                4 => format!("sys_close(fd: {number})"),
                _ => "sys_close -> 0x0".to_owned(),
            };
            text += &format!("a-{tid} [0] 1.{at:06}: {event}\n");
        }
        let (records, summary) = import(&mut *of("ftrace"), text.as_bytes()).expect("lines that are read");
        check_order(&records, &summary);
        let skipped: u64 = summary.skipped.iter().map(|skipped| skipped.lines).sum();
        // A call has two lines; one of them alone is counted, and so is the end of a call that is no event.
        let ends = steps.iter().filter(|(_, what, _)| what % 2 == 1).count() as u64;
        let begins = steps.len() as u64 - ends;
        let (headless, endless) = (count(&summary, SkipReason::Headless), count(&summary, SkipReason::Endless));
        prop_assert_eq!(summary.calls + skipped - endless, ends);
        prop_assert_eq!(ends - headless, begins - endless);
    }
}

/// Pieces of the text of all tools, to be put together in any order.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "\n", "\n", "\n", "dd-7 [000] ..... ", "sh-8 ( 7) [001] ", "dd 7 [001] ", "sh 7/8 ", "10.000001: ", "11.5: ",
    "0.1 ( 0.1 ms): dd/7 ", "? (   ): sh/8 ", "syscalls:", "raw_syscalls:", "sys_enter: NR 1 (3, 1, 10, 0, 0, 0)",
    "sys_exit: NR 1 = 16", "sys_exit: NR 57 = 0", "sys_enter: NR 57 (0, 0, 0, 0, 0, 0)", "sys_exit: NR 57 = 8",
    "sys_enter_clone3: uargs: 0x1, size: 0x58", "sys_exit_clone3: 0x8", "sys_exit_clone3: 0x0",
    "sys_write(fd: 3, buf: 1, count: 10)", "sys_write -> 0x10", "sys_exit_group(error_code: 0)",
    "sys_enter_execve: filename: 0x1, argv: 0x1, envp: 0x1", "sys_exit_execve: 0x0", "sys_exit_openat: 0x3",
    "sys_enter_openat: dfd: 0xffffff9c, filename: 0x1 \"/tmp/a\", flags: 0x241, mode: 0x1b6",
    "write(fd: 3</tmp/a>, buf: \"a\", count: 10) = 16", "openat(dfd: CWD, filename: 0x1, flags: WRONLY) = 3",
    "fsync(fd: 3) ...", "... [continued]: fsync()) = 0", "... [continued]: clone()) = 0", "clone3(uargs: 0x1) ...",
    "... [continued]: clone3()) = 8", "exit_group() = ?", "close(fd: 3</tmp/a>) = 0", "dup2(oldfd: 3, newfd: 1) = 1",
    "1000 7 7 dd write 3 0 16 16 1.5\n", "2000 8 8 sh openat 0 0 0 3 1\n", "3000 7 7 dd clone 0 0 0 8 1\n",
    "LOST 3 events!", "Lost 3 events", "CPU:1 [LOST 3 EVENTS]", "PERF_RECORD_LOST lost 3", "# ", "\u{fffd}", "\"",
    "<", "é", ": ", "(", ")", " = ",
];
