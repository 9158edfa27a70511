use std::fs;
use std::path::Path;

use cawl_core::{Bytes, EndKind, FileFacts, HostFacts, HostProfile, Sample, Session, SessionEnd, Wchar};
use cawl_wire::{Event, FileKind, Op};
use proptest::prelude::*;

use super::super::{Damage, TraceReader};
use super::*;

const MS: u64 = 1_000_000;

/// A machine that calls every ms.
struct Machine {
    excerpts: Option<Excerpts>,
    /// In ms.
    now: u64,
    calls: u64,
}

fn options(folder: &Path, keep_ms: f64, room: u64) -> ExcerptOptions {
    ExcerptOptions {
        folder: folder.to_owned(),
        keep: Nanos::millis(keep_ms),
        room,
        condition: "observed > 50ms".to_owned(),
    }
}

impl Machine {
    fn new(options: ExcerptOptions) -> Machine {
        Machine::with_memory(options, MEMORY)
    }

    fn with_memory(options: ExcerptOptions, memory: usize) -> Machine {
        let mut excerpts = Excerpts::with_memory(options, memory).expect("a folder");
        excerpts.push(&Record::Host(Box::new(HostFacts { host: "box".to_owned(), ..HostFacts::default() })));
        excerpts.push(&Record::Profile(Box::new(HostProfile::uncalibrated())));
        let wchar = Wchar { process: Some(7), thread: None };
        let session = Session { id: 1, pid: 7, program: "db".to_owned(), wchar, ..Session::default() };
        excerpts.push(&Record::Session(session));
        let (mode, path) = (0o100_644, "/data/db".to_owned());
        let file = FileFacts { dev: 5, ino: 1, mode, path, size: Bytes(9), ..FileFacts::default() };
        excerpts.push(&Record::File(file));
        Machine { excerpts: Some(excerpts), now: 1000, calls: 0 }
    }

    fn excerpts(&mut self) -> &mut Excerpts {
        self.excerpts.as_mut().expect("it runs")
    }

    fn call(&mut self, duration: u64) {
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 5, 1, 7, 7);
        (event.start, event.duration) = (self.now * MS, duration * MS);
        (event.offset, event.requested) = (self.calls, self.calls.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.calls += 1;
        self.excerpts().push(&Record::Event(event));
    }

    /// Calls for so long.
    fn works(&mut self, ms: u64) {
        for _ in 0..ms {
            self.call(0);
            self.now += 1;
            if self.now.is_multiple_of(25) {
                self.excerpts().flush();
            }
        }
    }

    /// A call that takes so long, at the end of which it is known.
    fn stalls(&mut self, ms: u64) {
        let begin = self.now * MS;
        let sample = Sample { time: Time(begin + ms * MS), ..Sample::default() };
        self.excerpts().push(&Record::Sample(sample));
        self.call(ms);
        self.now += ms;
        let end = Time(self.now * MS);
        self.excerpts().anomaly(Time(begin), end, || "a write took long".to_owned());
    }

    /// What is kept in the end.
    fn ends(mut self) -> ExcerptStatus {
        let excerpts = self.excerpts.take().expect("it runs");
        let status = Arc::clone(&excerpts.status);
        drop(excerpts);
        lock(&status).clone()
    }

    /// Waits until the thread has taken all.
    fn settle(&mut self) {
        let excerpts = self.excerpts();
        excerpts.flush();
        while excerpts.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn read(path: &Path) -> (Vec<Record>, Damage) {
    let mut reader = TraceReader::open(path).unwrap();
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (records, reader.damage())
}

/// Begin, in ms, and duration, in ms, of the calls.
fn calls(records: &[Record]) -> Vec<(u64, u64)> {
    let call = |record: &Record| match record {
        Record::Event(event) => Some((event.start / MS, event.duration / MS)),
        _ => None,
    };
    records.iter().filter_map(call).collect()
}

fn stalls(records: &[Record]) -> usize {
    calls(records).iter().filter(|(_, duration)| *duration > 0).count()
}

#[test]
fn an_excerpt_has_the_time_before_and_after_and_what_explains_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(options(folder.path(), 1000.0, 1 << 30));
    machine.works(20_000);
    machine.stalls(800);
    machine.works(20_000);
    let status = machine.ends();
    assert_eq!((status.anomalies, status.files, status.missing), (1, 1, 0));
    let files = files(folder.path());
    assert_eq!(files, [folder.path().join("excerpt-000001.trace")]);
    assert_eq!(status.latest.as_ref(), files.first());
    assert_eq!(status.bytes, fs::metadata(&files[0]).unwrap().len());
    let (records, damage) = read(&files[0]);
    assert_eq!(damage, Damage::default());
    let calls = calls(&records);
    // Whole blocks: an eighth more at most.
    let (first, last) = (calls[0].0, calls[calls.len() - 1].0);
    assert!((20_000 - 150..=20_000).contains(&first), "{first}");
    assert!((22_799..=22_800 + 150).contains(&last), "{last}");
    assert_eq!(calls.len() as u64, last - first + 1 - 800 + 1, "each call once");
    assert_eq!(stalls(&records), 1);
    let is = |wanted: fn(&Record) -> bool| records.iter().filter(|record| wanted(record)).count();
    assert_eq!(is(|record| matches!(record, Record::Host(host) if host.host == "box")), 1);
    assert_eq!(is(|record| matches!(record, Record::Profile(_))), 1);
    assert_eq!(
        is(|record| matches!(record, Record::File(file) if file.path == "/data/db" && file.size.0 == 9)),
        1
    );
    let session =
        |record: &Record| matches!(record, Record::Session(s) if s.pid == 7 && s.wchar == Wchar::default());
    assert_eq!(records.iter().filter(|record| session(record)).count(), 1);
    let note = |record: &&Record| matches!(record, Record::Note(note) if note.contains("a write took long") && note.contains("observed > 50ms"));
    assert_eq!(records.iter().filter(note).count(), 1);
}

#[test]
fn without_an_anomaly_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(options(folder.path(), 1000.0, 1 << 30));
    machine.works(5000);
    assert_eq!(machine.ends(), ExcerptStatus::default());
    assert!(files(folder.path()).is_empty());
}

/// Spans that meet are one excerpt without a gap, also where the first one was closed already.
#[test]
fn anomalies_whose_spans_meet_are_one_excerpt() {
    for apart in [100, 900, 1100, 1900] {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(options(folder.path(), 1000.0, 1 << 30));
        machine.works(5000);
        for _ in 0..4 {
            machine.stalls(60);
            machine.works(apart);
        }
        machine.works(5000);
        let status = machine.ends();
        assert_eq!((status.anomalies, status.files, status.missing), (4, 1, 0), "{apart} ms apart");
        let (records, damage) = read(&files(folder.path())[0]);
        assert_eq!(damage, Damage::default());
        assert_eq!(stalls(&records), 4);
        let calls = calls(&records);
        let is_next = |pair: &[(u64, u64)]| pair[1].0 == pair[0].0 + pair[0].1.max(1);
        assert!(calls.windows(2).all(is_next), "each call once, and none is missing");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(options(folder.path(), 1000.0, 1 << 30));
    for _ in 0..4 {
        machine.works(5000);
        machine.stalls(60);
    }
    assert_eq!(machine.ends().files, 4);
    for file in files(folder.path()) {
        let (records, damage) = read(&file);
        assert_eq!((stalls(&records), damage), (1, Damage::default()));
    }
}

/// Hundreds of anomalies: at no moment the folder has more than its room, and the latest are there.
#[test]
fn the_folder_never_exceeds_its_room() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("other"), "of somebody else").unwrap();
    let room = 256 << 10;
    let mut machine = Machine::new(options(folder.path(), 200.0, room));
    let taken = || {
        let files = files(folder.path()).into_iter().filter(|path| !path.ends_with("other"));
        files.map(|path| fs::metadata(path).unwrap().len().next_multiple_of(4096)).sum::<u64>()
    };
    let (mut most, mut seen) = (0, 0);
    for _ in 0..300 {
        machine.works(700);
        machine.stalls(60);
        machine.settle();
        most = most.max(taken());
        seen = seen.max(machine.excerpts().status().files);
    }
    let status = machine.ends();
    assert!(taken() <= room && most <= room && most > room / 2, "{most} of {room}");
    assert_eq!((status.anomalies, status.missing, status.failure), (300, 0, None));
    assert!(seen > 3);
    for path in files(folder.path()).iter().filter(|path| !path.ends_with("other")) {
        let (records, damage) = read(path);
        assert_eq!(stalls(&records), 1, "{}", path.display());
        assert_eq!(damage, Damage::default());
    }
    assert!(folder.path().join("other").exists());
}

/// One span that is larger than the folder's room: it goes on in further files, each complete, and the oldest
/// of them go.
#[test]
fn an_excerpt_that_grows_too_large_goes_on_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let room = 1 << 20;
    let mut machine = Machine::new(options(folder.path(), 1000.0, room));
    for _ in 0..300 {
        machine.stalls(60);
        machine.works(500);
    }
    let status = machine.ends();
    assert!(status.bytes <= room && status.files >= 4, "{status:?}");
    assert_eq!(status.missing, 0);
    let mut before = None;
    for path in files(folder.path()) {
        assert!(fs::metadata(&path).unwrap().len() <= room / 4);
        let (records, damage) = read(&path);
        assert_eq!(damage, Damage::default());
        assert!(records.iter().any(|record| matches!(record, Record::File(file) if file.path == "/data/db")));
        let calls = calls(&records);
        let first = calls[0].0;
        assert!(before.is_none_or(|next| next == first), "without a gap");
        before = calls.last().map(|(at, duration)| at + duration.max(&1));
    }
}

#[test]
fn a_folder_that_goes_away_costs_what_was_in_it() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("a/b");
    let mut machine = Machine::new(options(&folder, 1000.0, 1 << 30));
    machine.works(3000);
    machine.stalls(60);
    machine.works(100);
    machine.settle();
    let written = machine.excerpts().status();
    assert_eq!((written.files, written.missing), (1, 0));
    fs::remove_dir_all(top.path().join("a")).unwrap();
    machine.works(300);
    machine.stalls(60);
    machine.works(3000);
    let status = machine.ends();
    assert_eq!((status.files, status.failure.as_deref()), (1, None));
    let (records, damage) = read(&files(&folder)[0]);
    assert_eq!((stalls(&records), damage), (1, Damage::default()));
    let note = format!("{} calls and samples are missing", status.missing);
    assert!(status.missing > 1000, "{status:?}");
    assert!(records.iter().any(|record| matches!(record, Record::Note(text) if text.contains(&note))));
}

/// In the place of the folder there is a file for a while, so that nothing can be written.
#[test]
fn what_cannot_be_written_is_tried_again_and_counted() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("a");
    for (outage, complete) in [(500, true), (9000, false)] {
        let mut machine = Machine::new(options(&folder, 2000.0, 1 << 30));
        machine.works(3000);
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        machine.stalls(60);
        machine.works(outage);
        machine.settle();
        assert!(machine.excerpts().status().failure.is_some());
        assert_eq!(machine.excerpts().status().missing > 0, !complete);
        fs::remove_file(&folder).unwrap();
        machine.works(2000);
        machine.stalls(60);
        machine.works(2000);
        let status = machine.ends();
        assert_eq!(status.failure, None);
        let all: Vec<Record> = files(&folder).iter().flat_map(|path| read(path).0).collect();
        assert_eq!(stalls(&all), if complete { 2 } else { 1 });
        assert_eq!(status.missing > 0, !complete);
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn calls_that_did_not_fit_into_memory_are_counted_in_the_excerpt() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Machine::with_memory(options(folder.path(), 10_000.0, 1 << 30), 256 << 10);
    machine.works(20_000);
    machine.stalls(60);
    machine.works(30_000);
    let status = machine.ends();
    let (records, _) = read(&files(folder.path())[0]);
    let begun = calls(&records)[0].0;
    assert!(begun > 15_000, "{begun}");
    let told = records.iter().find_map(|record| match record {
        Record::Note(note) => note.split_once(" calls and samples are missing").map(|(n, _)| n.to_owned()),
        _ => None,
    });
    let missing: u64 = told.unwrap().parse().unwrap();
    assert_eq!(missing, status.missing);
    let wanted = begun - 11_000;
    assert!(missing + 3000 >= wanted && missing <= begun - 1000, "{missing} of {wanted}");
}

/// A daemon that is killed writes no last word: what it had written is read, and said to be unclosed.
#[test]
fn a_file_of_a_killed_daemon_is_read_up_to_its_last_block() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(options(folder.path(), 1000.0, 1 << 30));
    machine.works(3000);
    machine.stalls(60);
    machine.works(500);
    machine.settle();
    let copy = folder.path().join("copy");
    fs::copy(&files(folder.path())[0], &copy).unwrap();
    let (records, damage) = read(&copy);
    assert_eq!(damage, Damage { unclosed: true, ..Damage::default() });
    assert_eq!((stalls(&records), calls(&records).last().map(|(at, _)| *at)), (1, Some(machine.now - 1)));
    fs::remove_file(&copy).unwrap();
    // The next daemon goes on with the numbers, once the folder is free.
    let wanted = options(folder.path(), 1000.0, 1 << 30);
    let refused = Excerpts::start(wanted.clone()).err().unwrap().to_string();
    assert!(refused.contains("another daemon"), "{refused}");
    drop(machine);
    let mut machine = Machine::new(wanted);
    machine.stalls(60);
    assert_eq!(machine.ends().files, 2);
    assert_eq!(files(folder.path()).len(), 2);
}

#[test]
fn a_session_that_ended_before_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(options(folder.path(), 100.0, 1 << 30));
    machine.excerpts().push(&Record::End(SessionEnd::new(1, Time(5), EndKind::Exit)));
    let successor = Session { id: 2, pid: 7, program: "next".to_owned(), ..Session::default() };
    machine.excerpts().push(&Record::Session(successor));
    machine.works(3000);
    machine.stalls(60);
    drop(machine.ends());
    let (records, _) = read(&files(folder.path())[0]);
    let told = records.iter().filter_map(|record| match record {
        Record::Session(session) => Some(session.program.as_str()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), ["next"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens when: all stalls are there, each call at most once, and in order.
    #[test]
    fn every_anomaly_is_in_one_excerpt(steps in prop::collection::vec((0..3000_u64, 1..400_u64), 1..12)) {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(options(folder.path(), 300.0, 1 << 30));
        for (work, stall) in &steps {
            machine.works(*work);
            machine.stalls(*stall);
        }
        let status = machine.ends();
        prop_assert_eq!((status.anomalies, status.missing), (steps.len() as u64, 0));
        let all: Vec<Record> = files(folder.path()).iter().flat_map(|path| read(path).0).collect();
        prop_assert_eq!(stalls(&all), steps.len());
        prop_assert!(calls(&all).is_sorted_by(|one, other| one.0 < other.0));
        for (at, _) in calls(&all).iter().filter(|(_, duration)| *duration > 0) {
            let first = at.saturating_sub(300).max(1000);
            prop_assert!(calls(&all).iter().any(|(begin, duration)| *begin <= first && begin + duration.max(&1) > first || *begin == first));
        }
    }
}
