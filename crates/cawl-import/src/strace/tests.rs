use super::*;
use crate::testing::{self, Imported};
use cawl_core::{EndKind, Outcome};
use cawl_wire::{Event, FileKind, Op, flag};

/// Imports lines that stand for 1700000000.000000, …01, …02 and so on.
fn imported(lines: &str) -> Imported {
    let line = |(number, line): (usize, &str)| {
        let (tid, rest) = line.trim().split_once(' ').unwrap();
        format!("{tid} 1700000000.{number:06} {rest}\n")
    };
    testing::import(StraceImporter::default(), &lines.lines().enumerate().map(line).collect::<String>())
}

fn import(lines: &str) -> (Vec<Record>, ImportSummary) {
    let Imported { records, summary } = imported(lines);
    (records, summary)
}

fn events(lines: &str) -> Vec<Event> {
    imported(lines).events()
}

/// Operation, descriptor, offset and result of each write.
fn writes(lines: &str) -> Vec<(i32, u64, i64)> {
    let events = events(lines).into_iter().filter(|event| (10..20).contains(&(event.op as u8)));
    events.map(|event| (event.fd, event.offset, event.returned)).collect()
}

const OPEN: &str = "7 openat(AT_FDCWD</tmp>, \"a\", O_RDWR|O_CREAT|O_TRUNC, 0666) = 3</tmp/a> <0.1>\n";

#[test]
fn positions_are_shared_by_dup_and_fork_and_moved_by_lseek() {
    let lines = format!(
        "{OPEN}7 write(3</tmp/a>, \"\", 10) = 10 <0.1>
        7 dup2(3</tmp/a>, 1) = 1</tmp/a> <0.1>
        7 write(1</tmp/a>, \"\", 10) = 10 <0.1>
        7 fork() = 8 <0.1>
        8 write(1</tmp/a>, \"\", 5) = 5 <0.1>
        7 write(3</tmp/a>, \"\", 1) = 1 <0.1>
        7 pwrite64(3</tmp/a>, \"\", 4, 100) = 4 <0.1>
        7 lseek(3</tmp/a>, 0, SEEK_END) = 104 <0.1>
        8 write(3</tmp/a>, \"\", 1) = 1 <0.1>
        7 read(3</tmp/a>, \"\", 9) = 9 <0.1>
        7 writev(3</tmp/a>, [{{iov_base=\"\", iov_len=6}}, {{iov_base=\"\", iov_len=6}}], 2) = 7 <0.1>"
    );
    let expected = [(3, 0, 10), (1, 10, 10), (1, 20, 5), (3, 25, 1), (3, 100, 4), (3, 104, 1), (3, 114, 7)];
    assert_eq!(writes(&lines), expected);
    assert_eq!(events(&lines).last().unwrap().requested, 12);
}

#[test]
fn appending_goes_to_the_end_and_a_guess_is_flagged() {
    let lines = format!(
        "{OPEN}7 pwrite64(3</tmp/a>, \"\", 4, 96) = 4 <0.1>
        7 open(\"/tmp/a\", O_WRONLY|O_APPEND) = 4</tmp/a> <0.1>
        7 write(4</tmp/a>, \"\", 5) = 5 <0.1>
        7 open(\"/tmp/b\", O_WRONLY|O_APPEND) = 5</tmp/b> <0.1>
        7 write(5</tmp/b>, \"\", 5) = 5 <0.1>
        7 write(2</tmp/log>, \"\", 5) = 5 <0.1>"
    );
    let events = events(&lines);
    let find = |fd| events.iter().find(|event| event.op == Op::Write && event.fd == fd).unwrap();
    assert_eq!((find(4).offset, find(4).has(flag::ESTIMATED)), (100, false));
    assert_eq!((find(5).offset, find(5).has(flag::ESTIMATED)), (0, true));
    assert!(find(2).has(flag::ESTIMATED) && find(2).has(flag::INHERITED));
}

#[test]
fn calls_go_out_in_the_order_of_their_starts() {
    let lines = format!(
        "{OPEN}7 clone3({{flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, stack=0x7f}} => {{parent_tid=[8]}}, 88) = 8 <0.1>
        7 fsync(3</tmp/a> <unfinished ...>
        8 write(3</tmp/a>, \"\", 4) = 4 <0.1>
        7 <... fsync resumed>) = 0 <0.25>"
    );
    let events = events(&lines);
    let ops: Vec<_> = events.iter().map(|event| (event.op, event.pid, event.tid)).collect();
    assert_eq!(ops, [(Op::Open, 7, 7), (Op::Fsync, 7, 7), (Op::Write, 7, 8)]);
    assert_eq!((events[1].start, events[1].duration), (2_000, 250_000_000));
}

#[test]
fn a_descriptor_number_is_free_when_its_close_begins() {
    let lines = format!(
        "{OPEN}7 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 8 <0.1>
        7 close(3</tmp/a> <unfinished ...>
        8 openat(AT_FDCWD</tmp>, \"b\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</tmp/b> <0.1>
        7 <... close resumed>) = 0 <0.1>
        8 write(3, \"\", 4) = 4 <0.1>"
    );
    let events = events(&lines);
    let [_, close, open, write] = &events[..] else { panic!("{events:?}") };
    assert_eq!((close.op, close.ino, close.returned), (Op::Close, 1, 0));
    assert_eq!((open.ino, write.ino, write.offset), (2, 2, 0));
}

#[test]
fn failures_and_calls_without_result() {
    let lines = format!(
        "{OPEN}7 write(3</tmp/a>, \"\", 10) = -1 ENOSPC (No space left on device) <0.1>
        7 write(3</tmp/a>, \"\", 10) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
        7 --- SIGALRM {{si_signo=SIGALRM}} ---
        7 open(\"/x\", O_RDONLY) = -1 ENOENT (No such file or directory) <0.1>
        7 write(3</tmp/a>, \"\", 1 <unfinished ...>) = ?
        7 +++ killed by SIGKILL +++"
    );
    let (records, summary) = import(&lines);
    assert_eq!(summary.calls, 2);
    let failed = events(&lines)[1];
    assert_eq!((failed.returned, failed.errno, failed.requested, failed.offset), (-1, 28, 10, 0));
    let count = |reason| {
        summary
            .skipped
            .iter()
            .find(|skipped| skipped.reason == reason)
            .map(|found| (found.lines, found.first))
    };
    assert_eq!(count(SkipReason::Endless), Some((2, 3)));
    assert_eq!(count(SkipReason::Failed), Some((1, 5)));
    assert!(records.contains(&Record::Outcome(Outcome { pid: 7, code: None, signal: Some(9), wchar: None })));
    assert!(records.iter().any(|record| matches!(record, Record::End(end) if end.how == EndKind::Vanished)));
}

#[test]
fn ranges_come_with_their_flags_and_advice() {
    let lines = format!(
        "{OPEN}7 fadvise64(3</tmp/a>, 4096, 8192, POSIX_FADV_DONTNEED) = 0 <0.1>
        7 fadvise64(3</tmp/a>, 0, 0, POSIX_FADV_SEQUENTIAL) = 0 <0.1>
        7 fadvise64(3</tmp/a>, 0, 0, POSIX_FADV_NOREUSE) = -1 EINVAL (Invalid argument) <0.1>
        7 sync_file_range(3</tmp/a>, 0, 16, SYNC_FILE_RANGE_WRITE) = 0 <0.1>"
    );
    let events = events(&lines).into_iter().filter(|event| event.op != Op::Open);
    let told: Vec<_> =
        events.map(|event| (event.op, event.offset, event.requested, event.aux, event.errno)).collect();
    let advised = [
        (Op::Advise, 4096, 8192, cawl_wire::ADVICE_DONTNEED, 0),
        (Op::Advise, 0, 0, 2, 0),
        (Op::Advise, 0, 0, 5, 22),
        (Op::SyncRange, 0, 16, 2, 0),
    ];
    assert_eq!(told, advised);
}

#[test]
fn locks_come_with_their_ranges() {
    use cawl_wire::lock::{DESCRIPTION, EXCLUSIVE, FLOCK, SHARED, UNLOCK};
    let lines = format!(
        "{OPEN}7 fcntl(3</tmp/a>, F_SETLK, {{l_type=F_WRLCK, l_whence=SEEK_SET, l_start=100, l_len=50}}) = 0 <0.1>
        7 fcntl(3</tmp/a>, F_SETLKW, {{l_type=F_UNLCK, l_whence=SEEK_CUR, l_start=1, l_len=2}}) = 0 <0.1>
        7 fcntl(3</tmp/a>, F_OFD_SETLK, {{l_type=F_RDLCK, l_whence=SEEK_SET, l_start=0, l_len=0}}) = 0 <0.1>
        7 flock(3</tmp/a>, LOCK_EX|LOCK_NB) = 0 <0.1>
        7 flock(3</tmp/a>, LOCK_UN) = 0 <0.1>
        7 fcntl(3</tmp/a>, F_GETLK, {{l_type=F_RDLCK, l_whence=SEEK_SET, l_start=0, l_len=0}}) = 0 <0.1>"
    );
    let events = events(&lines).into_iter().filter(|event| event.op == Op::Lock);
    let told: Vec<_> = events.map(|event| (event.offset, event.requested, event.aux)).collect();
    let whole = DESCRIPTION | FLOCK;
    let wanted = [
        (100, 50, EXCLUSIVE),
        (cawl_wire::UNKNOWN_OFFSET, 0, UNLOCK),
        (0, 0, DESCRIPTION | SHARED),
        (0, 0, whole | EXCLUSIVE),
        (0, 0, whole | UNLOCK),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn exec_begins_a_session_and_closes_what_is_marked() {
    let lines = format!(
        "7 execve(\"/bin/sh\", [\"sh\", \"-c\", \"x\"...], 0x7f /* 3 vars */) = 0 <0.000001>
        {OPEN}7 fcntl(3</tmp/a>, F_SETFD, FD_CLOEXEC) = 0 <0.1>
        7 fcntl(3</tmp/a>, F_DUPFD, 10) = 10</tmp/a> <0.1>
        7 vfork( <unfinished ...>
        8 execve(\"/bin/b\", [\"b\"], 0x7f /* 3 vars */) = 0 <0.000001>
        7 <... vfork resumed>) = 8 <0.1>
        8 write(10, \"\", 1) = 1 <0.1>
        8 write(3, \"\", 1) = 1 <0.1>
        8 +++ exited with 1 +++
        7 +++ exited with 0 +++"
    );
    let (records, summary) = import(&lines);
    let programs: Vec<_> = records
        .iter()
        .filter_map(|record| {
            if let Record::Session(s) = record { Some((s.pid, s.ppid, s.program.as_str())) } else { None }
        })
        .collect();
    assert_eq!(programs, [(7, 0, "sh"), (8, 7, "b")]);
    assert_eq!(summary.sessions, 2);
    let kinds: Vec<_> =
        events(&lines).iter().filter(|event| event.op == Op::Write).map(|event| event.kind).collect();
    assert_eq!(kinds, [FileKind::Regular, FileKind::Unknown]);
    assert!(events(&lines).iter().any(|event| event.op == Op::Spawn && event.returned == 8));
}

#[test]
fn names_come_and_go() {
    let lines = format!(
        "{OPEN}7 rename(\"/tmp/a\", \"/tmp/b\") = 0 <0.1>
        7 write(3</tmp/b>, \"\", 1) = 1 <0.1>
        7 openat(AT_FDCWD</tmp>, \"c\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 4</tmp/c> <0.1>
        7 renameat2(AT_FDCWD</tmp>, \"c\", AT_FDCWD</tmp>, \"b\", RENAME_NOREPLACE) = 0 <0.1>
        7 write(3</tmp/b>(deleted), \"\", 1) = 1 <0.1>
        7 unlinkat(AT_FDCWD</tmp>, \"b\", 0) = 0 <0.1>
        7 write(4</tmp/b>(deleted), \"\", 1) = 1 <0.1>"
    );
    let identities: Vec<_> = events(&lines).iter().map(|event| (event.op, event.ino)).collect();
    use Op::{Open, Rename, Unlink, Write};
    let expected =
        [(Open, 1), (Rename, 0), (Write, 1), (Open, 2), (Rename, 1), (Write, 1), (Unlink, 2), (Write, 2)];
    assert_eq!(identities, expected);
    let told = |record: &Record| match record {
        Record::File(file) => Some((file.ino, file.path.clone(), file.renamed)),
        _ => None,
    };
    let names: Vec<_> = import(&lines).0.iter().filter_map(told).collect();
    let name = |ino, path: &str, renamed| (ino, path.to_owned(), renamed);
    assert_eq!(
        names,
        [
            name(1, "/tmp/a", false),
            name(1, "/tmp/b", true),
            name(2, "/tmp/c", false),
            name(2, "/tmp/b", true)
        ]
    );
}

#[test]
fn what_can_write_unseen_is_a_loss() {
    let lines = format!(
        "{OPEN}7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</tmp/a>, 0) = 0x7f <0.1>
        7 io_submit(0x7f, 1, [{{aio_data=0}}]) = 1 <0.1>
        7 <... write resumed>) = 3 <0.1>
        7 write(3</tmp/a>, \"cut o
        7 futex(0x7f, FUTEX_WAIT) = 0 <0.1>"
    );
    let (records, summary) = import(&lines);
    let losses: Vec<_> = summary.skipped.iter().filter(|skipped| skipped.reason.is_loss()).collect();
    assert_eq!(losses.len(), 4, "{losses:#?}");
    let notes = records.iter().filter_map(|record| match record {
        Record::Note(note) => Some(note.as_str()),
        _ => None,
    });
    let notes: Vec<&str> = notes.collect();
    assert_eq!(notes.len(), 4, "{notes:#?}");
    assert!(notes.iter().all(|note| note.starts_with("strace import: 1 line (first: ")), "{notes:#?}");
}

#[test]
fn reads_are_no_events_and_move_the_position() {
    let lines = "7 open(\"/tmp/a\", O_RDONLY) = 3</tmp/a> <0.1>\n7 read(3</tmp/a>, \"\", 9) = 5 <0.1>";
    assert_eq!(import(lines).1.calls, 0);
    let lines = "7 open(\"/tmp/a\", O_RDWR) = 3</tmp/a> <0.1>\n7 read(3</tmp/a>, \"\", 9) = 5 <0.1>
        7 pread64(3</tmp/a>, \"\", 9, 100) = 9 <0.1>\n7 write(3</tmp/a>, \"\", 9) = 9 <0.1>";
    let places: Vec<_> = events(lines).iter().map(|event| (event.op, event.offset)).collect();
    assert_eq!(places[1..], [(Op::Write, 5)]);
}

#[test]
fn without_annotations_names_come_from_the_working_directory() {
    let lines = "7 chdir(\"/tmp/demo\") = 0 <0.1>
        7 open(\"../a\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3 <0.1>
        7 write(3, \"\", 2) = 2 <0.1>
        7 pipe([4, 5]) = 0 <0.1>
        7 write(5, \"\", 2) = 2 <0.1>";
    let (records, _) = import(lines);
    assert!(records.iter().any(|record| matches!(record, Record::File(facts) if facts.path == "/tmp/a")));
    assert_eq!(events(lines).last().unwrap().kind, FileKind::Fifo);
}

#[test]
fn other_text_is_refused_with_a_remedy() {
    let is = |text: &str, says: &str| {
        let (_, _, told) = testing::fault(StraceImporter::default(), text);
        assert!(told.starts_with(says) && told.contains("strace -f -ttt -T -y -o"), "{told}");
    };
    is("start_s,op,offset,size,duration_s\nwrite(1, \"x\", 1) = 1\n", "of 2 lines none is a call");
    is("make: nothing to do\n", "of 1 line none is a call");
    // Lines without any time, though they name processes.
    let text = "7 write(1, \"x\", 1) = 1\n7 close(1) = 0\n7 +++ exited with 0 +++\n";
    is(text, "of 3 lines none is a call with a time");
}

/// Starts and durations of the writes, in ms.
fn written_at(text: &str) -> (Vec<(u64, u64)>, ImportSummary) {
    let got = testing::import(StraceImporter::default(), text);
    let writes = got.events().into_iter().filter(|event| event.op == Op::Write);
    let writes = writes.map(|event| (event.start / 1_000_000, event.duration / 1_000_000));
    (writes.collect(), got.summary)
}

const OPENED: &str = "openat(AT_FDCWD, \"/tmp/a\", O_WRONLY|O_CREAT, 0666) = 3</tmp/a>";

#[test]
fn times_since_the_line_before_add_up() {
    // Signals and ends of other threads are lines, too.
    let text = format!(
        "7      0.000000 {OPENED} <0.001>
         7      0.250000 --- SIGCHLD {{si_signo=SIGCHLD}} ---
         7      0.250000 write(3</tmp/a>, \"\", 9) = 9 <0.100>
         8      0.100000 +++ exited with 0 +++
         7      1.000000 write(3</tmp/a>, \"\", 9) = 9 <0.100>"
    );
    let text: String = text.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    let (writes, summary) = written_at(&text);
    assert_eq!((writes, summary.epoch), (vec![(500, 100), (1600, 100)], None));
    // With -r beside a time, that time counts.
    let text = format!(
        "7 01:00:00.500000 (+     0.000000) {OPENED} <0.001>\n\
         7 01:00:00.750000 (+     0.250000) write(3</tmp/a>, \"\", 9) = 9 <0.100>\n"
    );
    assert_eq!(written_at(&text).0, [(250, 100)]);
}

#[test]
fn calls_within_a_second_follow_one_another() {
    let text = format!(
        "7 01:00:00 {OPENED} <0.200>\n\
         7 01:00:00 write(3</tmp/a>, \"\", 9) = 9 <0.300>\n\
         7 01:00:00 write(3</tmp/a>, \"\", 9) = 9 <0.400>\n\
         8 01:00:00 write(3</tmp/a>, \"\", 9) = 9 <0.500>\n\
         7 01:00:02 write(3</tmp/a>, \"\", 9) = 9 <0.100>\n"
    );
    let (writes, summary) = written_at(&text);
    assert_eq!(writes, [(0, 500), (200, 300), (500, 400), (2000, 100)]);
    let told = summary.skipped.iter().find(|skipped| skipped.reason == SkipReason::WholeSeconds);
    assert_eq!(told.map(|told| told.lines), Some(5));
}

/// 100 000 calls under way at a time, and as many threads: each is looked at once.
#[test]
fn many_calls_under_way_take_no_longer_each() {
    let mut importer = StraceImporter::default();
    let mut out = Vec::new();
    for at in 0..100_000 {
        let line = format!("{} 1700000000.{at:06} clone(flags=CLONE_VM <unfinished ...>\n", 10 + at);
        importer.line(line.as_bytes(), &mut out).unwrap();
    }
    assert_eq!(importer.finish(&mut out).unwrap().lines, 100_000);
}
