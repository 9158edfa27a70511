use cawl_wire::{Event, FileId, FileKind, Op, flag, lock};
use proptest::prelude::*;

use super::file::Conflict;
use super::*;
use crate::record::{ENDED_UNHEARD, Wchar};
use crate::units::{Bytes, Time};

/// The file that is written, and another one that is locked.
const DATA: u64 = 1;
const OTHER: u64 = 2;

fn call(op: Op, pid: u32, start: u64) -> Event {
    let (kind, ino, flags, fd) = (FileKind::Regular, DATA, flag::WRITABLE, 3);
    Event { start, duration: 5, kind, dev: 1, ino, pid, tid: pid, flags, fd, ..Event::new(op) }
}

fn write(pid: u32, start: u64, offset: u64, bytes: u64) -> Event {
    Event { offset, requested: bytes, returned: bytes as i64, ..call(Op::Pwrite, pid, start) }
}

fn locked(pid: u32, start: u64, ino: u64, range: (u64, u64), aux: u32) -> Event {
    let (offset, requested) = range;
    Event { ino, offset, requested, aux, ..call(Op::Lock, pid, start) }
}

fn check(events: &[Event]) -> SharingReport {
    let mut sharing = Sharing::default();
    events.iter().for_each(|event| sharing.take(0, &Record::Event(*event)));
    sharing.report()
}

fn verdict(events: &[Event]) -> Verdict {
    check(events).verdict
}

/// Two processes that both have the file open.
fn both(then: &[Event]) -> Vec<Event> {
    [&[call(Op::Open, 1, 0), call(Op::Open, 2, 1)], then].concat()
}

#[test]
fn what_is_missing_is_told() {
    let counted = |bytes| Wchar { process: Some(bytes), thread: Some(bytes) };
    let session = Session { id: 1, pid: 7, started: Time(1), wchar: counted(0), ..Session::default() };
    let end = SessionEnd { wchar: counted(50), ..SessionEnd::new(1, Time(100), EndKind::Exit) };
    let note = Record::Note(format!("prog {ENDED_UNHEARD}"));
    let missing = |others: &[Record]| {
        let records = [Record::Session(session.clone()), Record::Event(write(7, 10, 0, 50))];
        let mut sharing = Sharing::default();
        records.iter().chain(others).for_each(|record| sharing.take(0, record));
        sharing.report().missing
    };
    assert_eq!(missing(&[Record::End(end)]), Missing::default());
    assert_eq!(missing(&[Record::End(SessionEnd { wchar: counted(80), ..end })]).bytes, 30);
    assert_eq!(missing(&[Record::End(SessionEnd { wchar: Wchar::default(), ..end })]).uncounted_processes, 1);
    assert_eq!(missing(&[Record::End(end), note]).notes.len(), 1);
}

#[test]
fn halves_of_a_page_need_a_flush_and_then_a_look() {
    let first = write(1, 10, 0, 2048);
    let second = write(2, 100, 2048, 2048);
    let fsync = call(Op::Fsync, 1, 20);
    let lock = locked(2, 50, DATA, (0, 0), lock::EXCLUSIVE);
    let report = check(&both(&[first, second]));
    assert_eq!(report.verdict, Verdict::NotSafe);
    let shared = report.files[0].shared.clone().expect("a shared page");
    assert_eq!((shared.pages, shared.first.page, shared.first.flushed), (1, 0, false));
    let ranges = [&shared.first.first, &shared.first.second].map(|touch| (touch.process.pid, touch.from));
    assert_eq!(ranges, [(1, 0), (2, 2048)]);
    assert!(report.files[0].overlap.is_none());
    let flushed = check(&both(&[first, fsync, second]));
    assert!(flushed.files[0].shared.as_ref().expect("a shared page").first.flushed);
    assert_eq!(verdict(&both(&[first, lock, second])), Verdict::NotSafe, "locked but not flushed");
    assert_eq!(verdict(&both(&[first, lock, call(Op::Fsync, 1, 60), second])), Verdict::NotSafe);
    assert_eq!(verdict(&both(&[first, fsync, lock, second])), Verdict::InOrder);
    assert_eq!(verdict(&both(&[first, fsync, call(Op::Open, 2, 50), second])), Verdict::InOrder);
    let advise = Event { aux: ADVICE_DONTNEED, offset: 0, ..call(Op::Advise, 2, 50) };
    assert_eq!(verdict(&both(&[first, fsync, advise, second])), Verdict::InOrder);
    let part = Event { requested: 4096, ..advise };
    assert_eq!(verdict(&both(&[first, fsync, part, second])), Verdict::InOrder);
    let half = Event { requested: 4095, ..advise };
    assert_eq!(verdict(&both(&[first, fsync, half, second])), Verdict::NotSafe, "no whole page was dropped");
    for flush in [Op::Fdatasync, Op::Msync, Op::Sync, Op::Syncfs, Op::Close, Op::StreamClose] {
        let flush = Event { returned: 0, ..call(flush, 1, 20) };
        assert_eq!(verdict(&both(&[first, flush, lock, second])), Verdict::InOrder, "{flush:?}");
    }
    let failed = Event { returned: -1, errno: 5, ..fsync };
    assert_eq!(verdict(&both(&[first, failed, lock, second])), Verdict::NotSafe);
    let synchronous = Event { flags: flag::DSYNC | flag::WRITABLE, ..first };
    assert_eq!(verdict(&both(&[synchronous, lock, second])), Verdict::InOrder);
}

/// The kernel lets the second process lock while the first one is on its way out of its unlock.
#[test]
fn a_lock_counts_when_it_was_got_and_a_flush_when_it_is_done() {
    let unlock = locked(1, 20, DATA, (0, 0), lock::UNLOCK);
    let waits = Event { duration: 18, ..locked(2, 3, DATA, (0, 0), lock::EXCLUSIVE) };
    let calls = [
        locked(1, 2, DATA, (0, 0), lock::EXCLUSIVE),
        waits,
        write(1, 10, 0, 100),
        unlock,
        write(2, 30, 100, 100),
    ];
    assert_eq!(verdict(&both(&calls)), Verdict::InOrder);
    let long = Event { duration: 1000, ..call(Op::Fsync, 1, 20) };
    let early = [write(1, 10, 0, 100), long, call(Op::Open, 2, 50), write(2, 2000, 100, 100)];
    assert_eq!(verdict(&both(&early)), Verdict::NotSafe, "opened before the fsync was done");
}

#[test]
fn pages_of_ones_own_threads_and_files_are_safe() {
    let own = check(&both(&[write(1, 10, 0, 4096), write(2, 11, 4096, 8192)]));
    assert_eq!(own.verdict, Verdict::OwnPages);
    let thread = Event { tid: 9, ..write(1, 11, 100, 100) };
    assert_eq!(verdict(&[write(1, 10, 0, 100), thread]), Verdict::OneProcess);
    let file = Event { ino: 7, ..write(2, 11, 100, 100) };
    let files = check(&[write(1, 10, 0, 100), file]);
    assert_eq!((files.verdict, files.files.len(), files.processes), (Verdict::OneProcess, 2, 2));
}

#[test]
fn the_same_bytes_are_worse_than_the_same_page() {
    let report = check(&both(&[write(1, 10, 0, 2048), write(2, 11, 1000, 2000)]));
    let file = &report.files[0];
    assert_eq!((file.overlap.as_ref().unwrap().pages, file.shared.as_ref().unwrap().pages), (1, 1));
    // A whole page needs no other copy.
    let whole = both(&[write(1, 10, 0, 4096), write(2, 11, 0, 4096)]);
    assert_eq!(verdict(&whole), Verdict::WholePages);
    let flushed = [write(1, 10, 0, 4096), call(Op::Fsync, 1, 20), write(2, 30, 0, 4096)];
    assert_eq!(verdict(&both(&flushed)), Verdict::OwnPages);
    // Of three pages the first and the last are covered in part.
    let large = check(&both(&[write(1, 10, 0, 12288), write(2, 11, 100, 12000)]));
    let file = &large.files[0];
    assert_eq!((file.overlap.as_ref().unwrap().pages, file.whole.as_ref().unwrap().pages), (2, 1));
}

#[test]
fn a_lock_of_another_file_orders_if_both_lock_the_same_range() {
    let calls = |ranges: [(u64, u64); 2], kinds: [u32; 2]| {
        both(&[
            locked(1, 2, OTHER, ranges[0], kinds[0]),
            write(1, 10, 0, 100),
            call(Op::Fdatasync, 1, 20),
            locked(1, 30, OTHER, ranges[0], lock::UNLOCK),
            locked(2, 40, OTHER, ranges[1], kinds[1]),
            write(2, 50, 100, 100),
        ])
    };
    let exclusive = [lock::EXCLUSIVE; 2];
    let same = check(&calls([(0, 8), (4, 8)], exclusive));
    assert_eq!((same.verdict, same.files[0].in_order_by_other_files), (Verdict::InOrder, 1));
    assert_eq!(verdict(&calls([(0, 8), (8, 8)], exclusive)), Verdict::NotSafe, "other ranges");
    assert_eq!(verdict(&calls([(0, 8), (0, 8)], [lock::SHARED; 2])), Verdict::NotSafe, "both may hold it");
    let flock = lock::FLOCK | lock::DESCRIPTION | lock::EXCLUSIVE;
    assert_eq!(verdict(&calls([(0, 0), (0, 0)], [lock::EXCLUSIVE, flock])), Verdict::NotSafe, "other locks");
}

#[test]
fn the_end_of_a_process_flushes_and_its_number_may_come_again() {
    let mut sharing = Sharing::default();
    let session =
        |id| Record::Session(Session { id, pid: 1, program: format!("p{id}"), ..Session::default() });
    let end = |id, at, how| Record::End(SessionEnd::new(id, Time(at), how));
    let take = |sharing: &mut Sharing, records: &[Record]| {
        records.iter().for_each(|record| sharing.take(0, record));
    };
    let wrote = |at, offset| Record::Event(write(1, at, offset, 10));
    take(&mut sharing, &[session(1), wrote(1, 0), end(1, 2, EndKind::Exec), session(2), wrote(3, 10)]);
    let report = sharing.report();
    assert_eq!((report.verdict, report.processes), (Verdict::OneProcess, 1));
    assert_eq!(report.files[0].processes[0].program, "p2");
    take(&mut sharing, &[session(3), end(2, 4, EndKind::Exit), wrote(5, 20)]);
    let report = sharing.report();
    assert_eq!((report.verdict, report.processes), (Verdict::InOrder, 2));
    // Without an end of the first one nothing was flushed.
    let mut killed = Sharing::default();
    take(&mut killed, &[session(1), wrote(1, 0)]);
    killed.take(0, &Record::Event(write(2, 3, 10, 10)));
    assert_eq!(killed.report().verdict, Verdict::NotSafe);
}

#[test]
fn paths_tell_which_file_it_is_where_hosts_differ() {
    let facts = |ino, path: &str| {
        Record::File(FileFacts {
            dev: 1,
            ino,
            mode: 0o100_644,
            path: path.to_owned(),
            size: Bytes(0),
            ..FileFacts::default()
        })
    };
    let wrote = |ino, pid, at| Record::Event(Event { ino, ..write(pid, at, u64::from(pid) * 100, 100) });
    let run = |by_path, paths: [&str; 2], inodes: [u64; 2]| {
        let mut sharing = Sharing::new(by_path);
        sharing.take(0, &facts(inodes[0], paths[0]));
        sharing.take(1, &facts(inodes[1], paths[1]));
        sharing.take(0, &wrote(inodes[0], 1, 10));
        sharing.take(1, &wrote(inodes[1], 1, 12));
        sharing.report()
    };
    let same = run(true, ["/d/a", "/d/a"], [5, 6]);
    assert_eq!((same.verdict, same.files.len()), (Verdict::NotSafe, 1));
    let traces = same.files[0]
        .overlap
        .as_ref()
        .map(|pages| (pages.first.first.process.trace, pages.first.second.process.trace));
    assert_eq!(traces, Some((1, 2)));
    assert_eq!(run(true, ["/d/a", "/d/b"], [5, 5]).verdict, Verdict::OneProcess);
    assert_eq!(run(false, ["/d/a", "/d/b"], [5, 5]).verdict, Verdict::NotSafe);
}

#[test]
fn what_was_cut_or_removed_is_not_there_any_more() {
    let truncate = Event { offset: 0, ..call(Op::Truncate, 2, 20) };
    let cut = [write(1, 10, 0, 100), call(Op::Fsync, 1, 15), truncate, write(2, 30, 0, 100)];
    assert_eq!(verdict(&both(&cut)), Verdict::OwnPages);
    // What the first one has not flushed comes after the cut.
    let early = [write(1, 10, 0, 100), truncate, write(2, 30, 0, 100)];
    assert_eq!(verdict(&both(&early)), Verdict::NotSafe);
    let unlink = Event { aux: 0, ..call(Op::Unlink, 1, 20) };
    let removed = check(&both(&[write(1, 10, 0, 100), unlink, write(2, 30, 0, 100)]));
    assert_eq!((removed.verdict, removed.verdicts[&Verdict::OneProcess]), (Verdict::OneProcess, 2));
}

#[test]
fn where_is_not_known_of_stores_through_mappings() {
    let stores =
        |pid, at| Event { offset: UNKNOWN_OFFSET, ..Event { op: Op::MmapWrite, ..write(pid, at, 0, 4096) } };
    let report = check(&both(&[stores(1, 10), stores(2, 20)]));
    assert_eq!((report.verdict, report.files[0].mapped), (Verdict::NotJudged, 2));
    assert_eq!(verdict(&[stores(1, 10)]), Verdict::OneProcess);
    let opened = |pid, at| call(Op::Open, pid, at);
    assert_eq!(verdict(&[opened(1, 0), stores(1, 10)]), Verdict::OneProcess);
    // What another process stores to pages that are dirty already is not seen.
    for other in [[opened(2, 1), stores(1, 10)], [stores(1, 10), opened(2, 20)]] {
        assert_eq!(verdict(&[&[opened(1, 0)], &other[..]].concat()), Verdict::NotJudged);
        let read_only = other.map(|event| match event.op {
            Op::Open => Event { flags: 0, ..event },
            _ => event,
        });
        assert_eq!(verdict(&[&[opened(1, 0)], &read_only[..]].concat()), Verdict::OneProcess);
    }
    let elsewhere = Event { ino: OTHER, ..opened(2, 1) };
    assert_eq!(verdict(&[opened(1, 0), elsewhere, stores(1, 10)]), Verdict::OneProcess);
    assert_eq!(
        verdict(&[elsewhere, stores(1, 10)]),
        Verdict::NotJudged,
        "it has the file from another process"
    );
    // One that had ended, and copies of the process from before and after it opened the file.
    let session = |id, pid, ppid, at| {
        Record::Session(Session {
            id,
            pid,
            ppid,
            started: Time(at),
            program: "p".into(),
            ..Session::default()
        })
    };
    let run = |records: &[Record]| {
        let mut sharing = Sharing::default();
        records.iter().for_each(|record| sharing.take(0, record));
        sharing.report().verdict
    };
    let [open, store, before, after] =
        [opened(1, 10), stores(1, 20), opened(2, 1), opened(2, 15)].map(Record::Event);
    let end = |at| Record::End(SessionEnd::new(2, Time(at), EndKind::Exit));
    let touched = |at| {
        vec![session(1, 1, 0, 0), session(2, 2, 0, 0), before.clone(), end(at), open.clone(), store.clone()]
    };
    assert_eq!((run(&touched(5)), run(&touched(11))), (Verdict::OneProcess, Verdict::NotJudged));
    assert_eq!(run(&[open.clone(), store.clone(), after]), Verdict::NotJudged);
    let copied = |at| vec![session(1, 1, 0, 0), open.clone(), session(2, 2, 1, at), store.clone()];
    assert_eq!((run(&copied(5)), run(&copied(15))), (Verdict::OneProcess, Verdict::NotJudged));
}

#[test]
fn records_that_do_not_fit_the_pages_are_told() {
    let records = |size: u64, from: u64| -> Vec<Event> {
        (0..20).map(|at| write(1, at * 10, from + at * size, size)).collect()
    };
    let file = |events: &[Event]| check(events).files.remove(0);
    let mpi = file(&records(47008, 0));
    let record = mpi.record.expect("a record");
    assert_eq!((record.bytes, record.calls, record.begin_within_page), (47008, 20, 19));
    // All but one begin or end within a page; none of it was there before.
    let partial = mpi.partial.expect("parts of pages");
    assert_eq!((partial.calls, partial.reads), (20, 0));
    assert!(file(&records(8192, 0)).record.is_none());
    assert_eq!(file(&records(8192, 512)).record.map(|record| record.begin_within_page), Some(20));
    let mut mixed = records(47008, 0);
    mixed.extend((0..20).map(|at| write(1, 1000 + at, at, at + 1)));
    assert!(file(&mixed).record.is_none());
}

#[test]
fn a_part_of_a_page_is_read_first_where_the_file_has_the_rest() {
    let facts =
        FileFacts { dev: 1, ino: DATA, mode: 0o100_644, size: Bytes(1 << 20), ..FileFacts::default() };
    let mut sharing = Sharing::default();
    sharing.take(0, &Record::File(facts));
    let calls = [write(1, 10, 100, 100), write(1, 20, 300, 100), write(1, 30, 8192, 5000)];
    calls.iter().for_each(|event| sharing.take(0, &Record::Event(*event)));
    let partial = sharing.report().files[0].partial.expect("parts of pages");
    // The second one finds its page cached; of the third one the last page is read.
    assert_eq!((partial.calls, partial.reads), (3, 2));
}

#[test]
fn a_log_with_a_flush_for_each_line_is_one_range() {
    let mut sharing = Sharing::default();
    for at in 0..1000 {
        sharing.take(0, &Record::Event(write(1, at * 10, at * 80, 80)));
        sharing.take(0, &Record::Event(call(Op::Fsync, 1, at * 10 + 1)));
    }
    sharing.arrive(u64::MAX);
    assert_eq!(sharing.extents, 1);
    assert_eq!(sharing.files.values().map(FileState::extents).sum::<usize>(), 1);
}

/// A step of a process in the comparison with the reference.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Units, and flags.
    Write(u64, u64, u32),
    Flush,
    Open,
    /// Units.
    Drop(u64, u64),
    /// Of the file itself, or of the other one; range, and exclusive.
    Lock(bool, (u64, u64), bool),
    Unlock(bool, (u64, u64)),
}
use Step::*;

/// An eighth of a page: what all places are multiples of.
const UNIT: u64 = PAGE / 8;
const UNITS: u64 = 32;

fn step() -> impl Strategy<Value = (u32, Step)> {
    let flags = prop_oneof![6 => Just(0), 1 => Just(flag::SYNC), 1 => Just(flag::DIRECT)];
    let range = (0..4u64, 1..3u64);
    let step = prop_oneof![
        6 => (0..UNITS, 1..20u64, flags).prop_map(|(at, length, flags)| Write(at, length, flags)),
        3 => Just(Flush),
        1 => Just(Open),
        1 => (0..UNITS, 1..UNITS).prop_map(|(at, length)| Drop(at, length)),
        3 => (any::<bool>(), range.clone(), any::<bool>()).prop_map(|(own, range, is)| Lock(own, range, is)),
        3 => (any::<bool>(), range).prop_map(|(own, range)| Unlock(own, range)),
    ];
    (1..4u32, step)
}

fn event_of(pid: u32, start: u64, step: Step) -> Event {
    let file = |own: bool| if own { DATA } else { OTHER };
    match step {
        Write(at, length, flags) => Event { flags, ..write(pid, start, at * UNIT, length * UNIT) },
        Flush => call(Op::Fsync, pid, start),
        Open => call(Op::Open, pid, start),
        Drop(at, length) => {
            let (offset, requested) = (at * UNIT, length * UNIT);
            Event { offset, requested, aux: ADVICE_DONTNEED, ..call(Op::Advise, pid, start) }
        }
        Lock(own, range, true) => locked(pid, start, file(own), range, lock::EXCLUSIVE),
        Lock(own, range, false) => locked(pid, start, file(own), range, lock::SHARED),
        Unlock(own, range) => locked(pid, start, file(own), range, lock::UNLOCK),
    }
}

/// A range that a process locked, of the file itself (`own`) or of the other one; the steps of the latest
/// lock and unlock.
struct Taken {
    own: bool,
    range: (u64, u64),
    exclusive: bool,
    locked: usize,
    unlocked: Option<usize>,
    is_held: bool,
}

/// Two ranges, by begin and length, have something in common.
fn meets(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

/// The law again, unit by unit and by looking through all steps before.
struct Naive<'a> {
    steps: &'a [(u32, Step)],
}

impl Naive<'_> {
    fn by(&self, pid: u32, from: usize, to: usize) -> impl DoubleEndedIterator<Item = (usize, Step)> {
        (from..to).filter(move |at| self.steps[*at].0 == pid).map(|at| (at, self.steps[at].1))
    }

    /// When a write at `at` was flushed first, before `until`.
    fn flushed(&self, at: usize, until: usize) -> Option<usize> {
        let (pid, Write(_, _, flags)) = self.steps[at] else { return None };
        if flags != 0 {
            return Some(at);
        }
        let flushes = |step: Step| matches!(step, Flush | Unlock(true, _));
        self.by(pid, at, until).find(|(_, step)| flushes(*step)).map(|(at, _)| at)
    }

    /// The locks of a process before `until`.
    fn locks(&self, pid: u32, until: usize) -> Vec<Taken> {
        let mut locks: Vec<Taken> = Vec::new();
        for (at, step) in self.by(pid, 0, until) {
            let (Lock(own, range, _) | Unlock(own, range)) = step else { continue };
            let ends = |held: &Taken| match step {
                Lock(_, _, exclusive) => held.exclusive && !exclusive,
                _ => true,
            };
            for held in locks.iter_mut().filter(|held| held.own == own && meets(held.range, range)) {
                if held.is_held && ends(held) {
                    (held.unlocked, held.is_held) = (Some(at), false);
                }
            }
            if let Lock(own, range, exclusive) = step {
                let key = (own, range, exclusive);
                match locks.iter_mut().find(|held| (held.own, held.range, held.exclusive) == key) {
                    Some(held) => (held.locked, held.is_held) = (at, true),
                    None => {
                        locks.push(Taken { own, range, exclusive, locked: at, unlocked: None, is_held: true })
                    }
                }
            }
        }
        locks
    }

    /// The write at `second` comes in order after that at `first`, in these units.
    fn in_order(&self, first: usize, second: usize, units: (u64, u64)) -> bool {
        let Some(flushed) = self.flushed(first, second) else { return false };
        let pid = self.steps[second].0;
        let looks = |step: Step| match step {
            Open | Lock(true, ..) => true,
            Drop(at, length) => at.div_ceil(8) * 8 <= units.0 && units.1 <= (at + length) / 8 * 8,
            _ => false,
        };
        // Of advice about a part of the file the latest one counts.
        let latest_drop = self.by(pid, 0, second).rfind(|(_, step)| matches!(step, Drop(..)));
        let looked = self.by(pid, flushed + 1, second).any(|(at, step)| {
            looks(step) && (!matches!(step, Drop(..)) || latest_drop.is_some_and(|(latest, _)| latest == at))
        });
        let began = self.by(pid, 0, second + 1).next().is_some_and(|(at, _)| at > flushed);
        let theirs = self.locks(self.steps[first].0, second);
        let own = self.locks(pid, second);
        let locked = theirs.iter().any(|left| {
            left.unlocked.is_some_and(|unlocked| {
                // An unlock of the file itself flushes it first.
                unlocked >= flushed
                    && own.iter().any(|taken| {
                        let same = taken.own == left.own && meets(taken.range, left.range);
                        same && taken.locked > unlocked && (taken.exclusive || left.exclusive)
                    })
            })
        });
        looked || began || locked
    }

    /// Pages by level.
    fn pages(&self) -> [Vec<u64>; 3] {
        let mut owners: Vec<Option<usize>> = vec![None; 64];
        let mut found = [const { Vec::new() }; 3];
        for (now, (pid, step)) in self.steps.iter().enumerate() {
            let Write(at, length, flags) = *step else { continue };
            let (direct, end) = (flags & flag::DIRECT != 0, at + length);
            let touched = (at / 8 * 8, end.div_ceil(8) * 8);
            for unit in touched.0..touched.1 {
                let Some(first) = owners[unit as usize].filter(|first| self.steps[*first].0 != *pid) else {
                    continue;
                };
                if self.in_order(first, now, touched) {
                    continue;
                }
                let page = unit / 8;
                let flushed = self.flushed(first, now).is_some();
                let covers = at <= page * 8 && page * 8 + 8 <= end;
                let is_whole = (page * 8..page * 8 + 8).all(|unit| {
                    owners[unit as usize].is_some_and(|other| {
                        self.steps[other].0 == self.steps[first].0 && self.flushed(other, now).is_none()
                    })
                });
                let level = match (at..end).contains(&unit) {
                    true if flushed && (covers || direct) => continue,
                    true if !flushed && covers && is_whole => Conflict::WholePage,
                    true => Conflict::Overlap,
                    false if flushed && direct => continue,
                    false => Conflict::Shared,
                };
                found[level as usize].push(page);
            }
            (at..end).for_each(|unit| owners[unit as usize] = Some(now));
        }
        found.map(|mut pages| {
            pages.sort_unstable();
            pages.dedup();
            pages
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn pages_agree_with_a_look_at_all_pairs(steps in prop::collection::vec(step(), 1..60)) {
        let mut sharing = Sharing::default();
        for (at, (pid, step)) in steps.iter().enumerate() {
            sharing.take(0, &Record::Event(event_of(*pid, at as u64 * 10, *step)));
        }
        sharing.arrive(u64::MAX);
        let file = sharing.files.get(&(0, FileId::new(1, DATA)));
        let is_found = |level, page| {
            file.is_some_and(|file| file.found[level as usize].pages.contains(page))
        };
        let found: [Vec<u64>; 3] = [Conflict::Overlap, Conflict::Shared, Conflict::WholePage]
            .map(|level| (0..8).filter(|page| is_found(level, *page)).collect());
        let naive: [Vec<u64>; 3] = Naive { steps: &steps }.pages();
        prop_assert_eq!(found, naive);
        prop_assert_eq!(sharing.extents, sharing.files.values().map(FileState::extents).sum::<usize>());
    }
}
