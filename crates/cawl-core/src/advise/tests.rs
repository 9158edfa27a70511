use cawl_wire::{Event, FileKind, Op, flag};

use super::*;
use crate::analysis::{Analysis, AnalysisOptions};
use crate::cause::Cause;
use crate::explain::{CauseReport, Explain};
use crate::limits::DirtyLimits;
use crate::mode::Mode;
use crate::model::{CostModel, build};
use crate::profile::{HostProfile, Origin};
use crate::record::{FileFacts, Record, Session};
use crate::units::{Bytes, Nanos, Time};
use crate::whatif::{Change, Machine, TraceFacts, WhatIf};

const KIB: u64 = 1024;

/// A program's calls, each of which takes what the model says, one right behind the other.
struct Program {
    profile: HostProfile,
    model: Box<dyn CostModel>,
    records: Vec<Record>,
    now: u64,
}

impl Program {
    fn new(profile: HostProfile, path: &str) -> Program {
        let model = build("kernel", &profile).expect("a model");
        let session = Session { id: 1, pid: 7, program: "/usr/bin/app".to_owned(), ..Session::default() };
        let file = FileFacts { dev: 5, ino: 1, path: path.to_owned(), ..FileFacts::default() };
        let records = vec![Record::Session(session), Record::File(file)];
        Program { profile, model, records, now: 1_000_000 }
    }

    fn call(&mut self, op: Op, change: impl FnOnce(&mut Event)) {
        let mut event = Event::new(op);
        (event.kind, event.dev, event.ino, event.fd) = (FileKind::Regular, 5, 1, 3);
        (event.pid, event.tid, event.start) = (7, 7, self.now);
        change(&mut event);
        event.duration = self.model.step(&event).map_or(100, |prediction| prediction.cost.get() as u64);
        self.now = event.end();
        self.records.push(Record::Event(event));
    }

    fn write(&mut self, offset: u64, bytes: u64, flags: u32) {
        self.call(Op::Write, |event| {
            (event.offset, event.requested, event.returned) = (offset, bytes, bytes as i64);
            event.flags = flags;
        });
    }

    /// What is advised, and what was tried.
    fn advised(&self) -> (Vec<Advice>, Vec<Tried>) {
        let models = vec!["kernel".to_owned()];
        let options = AnalysisOptions { models, mode: Mode::Lockstep, ..AnalysisOptions::default() };
        let mut analysis = Analysis::with(&self.profile, &options).expect("it is there");
        let mut facts = TraceFacts::default();
        for record in &self.records {
            analysis.take(record);
            facts.take(record);
        }
        let machine = Machine::new(self.profile.clone(), false);
        let run = |requests: &[Request]| {
            let mut machine = machine.clone();
            let mut changes: Vec<Change> = Vec::new();
            for request in requests {
                match &request.effect {
                    Effect::Calls(change) => changes.push(change.clone()),
                    Effect::Limits(limits) => {
                        (machine.limits, machine.profile.kernel.limits) = (Some(*limits), *limits);
                    }
                    other => panic!("{other:?}"),
                }
            }
            if changes.iter().any(|change| change.rewrite.adds_flags()) {
                machine = machine.for_new_flags(&self.profile);
            }
            let model = build("kernel", &machine.profile).expect("a model");
            let mut whatif = WhatIf::new(model, &machine, &changes, &facts);
            self.records.iter().for_each(|record| whatif.take(record));
            whatif.finish()
        };
        let report = analysis.report();
        let case = Case::new(&report, &self.profile);
        let before = run(&[]);
        let mut tried: Vec<Tried> = Vec::new();
        let mut candidates = case.candidates();
        assert!(candidates.len() <= 12);
        for _ in 0..2 {
            tried.extend(candidates.into_iter().map(|candidate| {
                let after = run(&candidate.requests);
                Tried { candidate, after }
            }));
            candidates = case.combinations(&before, &tried);
        }
        (rank(&before, before.total, &self.profile, &tried), tried)
    }
}

/// A machine that was measured, whose synchronous writes and fsyncs commit at the same cost.
fn measured() -> HostProfile {
    let mut profile = HostProfile { origin: Origin::Calibrated, ..HostProfile::uncalibrated() };
    profile.device.sync_call.value = profile.device.fsync.value;
    profile
}

/// The buffer of a program's library is made larger in its own way.
#[test]
fn a_larger_buffer_is_told_in_the_program_s_language() {
    let mut program = Program::new(measured(), "/data/out");
    let session = Session { id: 2, pid: 7, program: "java".to_owned(), ..Session::default() };
    program.records.push(Record::Session(session));
    let mut offset = 0;
    for bytes in [1024, 1016, 1020].into_iter().cycle().take(6000) {
        program.write(offset, bytes, 0);
        offset += bytes;
    }
    let (advice, _) = program.advised();
    let how: Vec<&str> = advice.iter().map(|one| one.how.as_str()).collect();
    assert!(how.iter().any(|how| how.contains("BufferedOutputStream(file, ")), "{how:?}");
}

#[test]
fn appends_of_a_byte_with_a_sync_each_get_fewer_syncs() {
    let mut program = Program::new(measured(), "/var/log/app.log");
    for at in 0..300 {
        program.write(at, 1, 0);
        program.call(Op::Fsync, |_| {});
    }
    program.call(Op::Close, |_| {});
    let (advice, _) = program.advised();
    let first = &advice[0];
    assert_eq!((first.kind, first.sure), (Kind::SyncEvery, Sure::Sure), "{advice:#?}");
    assert!(first.ratio < 0.15 && first.gain_s > 0.1, "{first:#?}");
    assert_eq!(
        (&*first.files, first.program.as_deref()),
        (&["/var/log/app.log".to_owned()][..], Some("app"))
    );
    assert_eq!(first.change, "--fsync every=16 --on /var/log/app.log");
    assert!(first.how.contains("once per 16 records"), "{first:#?}");
    // No sync is left out without saying what is lost, in the alternatives neither.
    let safety = advice.iter().map(|one| (&one.change, &one.safety));
    let others = advice.iter().flat_map(|one| &one.alternatives).map(|one| (&one.change, &one.safety));
    for (change, safety) in safety.chain(others).filter(|(change, _)| change.contains("--fsync")) {
        assert!(safety.iter().any(|text| text.contains("a crash")), "{change}: {safety:?}");
    }
    assert!(first.alternatives.iter().any(|other| other.change.starts_with("--fsync end")), "{first:#?}");
    assert!(advice.len() <= 7);
}

/// As `env python3` does it: one process, two programs. And space before the first write is nothing to a log
/// that is opened with O_APPEND.
#[test]
fn the_program_that_wrote_is_named() {
    let mut program = Program::new(measured(), "/var/log/app.log");
    let started = Time(program.now);
    let session = Session { id: 2, pid: 7, program: "python3".to_owned(), started, ..Session::default() };
    program.records.push(Record::Session(session));
    for at in 0..300 {
        program.write(at, 1, flag::APPEND);
        program.call(Op::Fsync, |_| {});
    }
    let (advice, tried) = program.advised();
    assert_eq!(advice[0].program.as_deref(), Some("python3"), "{advice:#?}");
    let others = advice.iter().flat_map(|one| one.alternatives.iter().map(|other| &other.change));
    let mut told = advice.iter().map(|one| &one.change).chain(others);
    assert!(tried.iter().any(|one| one.candidate.kind == Kind::Preallocate), "it is tried");
    assert!(told.all(|change| !change.contains("--preallocate")), "{advice:#?}");
}

/// SQLite and tar have options of their own, Python a parameter.
#[test]
fn what_is_advised_is_a_way_that_the_program_has() {
    let of = |name: &str, path: &str, bytes: u64, synced: bool| {
        let mut program = Program::new(measured(), path);
        let started = Time(program.now);
        let session = Session { id: 2, pid: 7, program: name.to_owned(), started, ..Session::default() };
        let journal =
            FileFacts { dev: 5, ino: 2, path: "/data/t.db-journal".to_owned(), ..FileFacts::default() };
        program.records.extend([Record::Session(session), Record::File(journal)]);
        for at in 0..3000 {
            program.write(at * bytes, bytes, 0);
            if synced && at % 10 == 9 {
                program.call(Op::Fsync, |_| {});
            }
        }
        program.call(Op::Write, |event| (event.ino, event.requested, event.returned) = (2, 512, 512));
        program.advised()
    };
    let told = |(advice, _): &(Vec<Advice>, Vec<Tried>)| -> Vec<String> {
        advice.iter().map(|one| one.how.clone()).collect()
    };
    let tar = told(&of("/bin/tar", "/data/a.tar", 512, false));
    assert!(!tar.is_empty() && tar.iter().all(|how| how.starts_with("tar -b ")), "{tar:?}");
    let python = told(&of("/usr/bin/python3.11", "/data/log", 100, false));
    assert!(python.iter().any(|how| how.contains("buffering=")), "{python:?}");
    let kinds = |(_, tried): &(Vec<Advice>, Vec<Tried>)| -> Vec<Kind> {
        tried.iter().map(|one| one.candidate.kind).collect()
    };
    // The journal beside it tells that it is SQLite's.
    let sqlite = of("app", "/data/t.db", 4 << 10, true);
    let own = |kind: &Kind| matches!(kind, Kind::SyncEvery | Kind::SyncEnd | Kind::Together);
    assert!(kinds(&sqlite).iter().all(own), "{:?}", kinds(&sqlite));
    assert!(told(&sqlite).iter().any(|how| how.contains("COMMIT")), "{:?}", told(&sqlite));
    // dd has bs=, oflag= and conv=; cp has nothing.
    let dd = kinds(&of("/usr/bin/dd", "/data/log", 4 << 10, true));
    let ways = |kind: &Kind| matches!(kind, Kind::Merge | Kind::Direct | Kind::Fdatasync | Kind::Together);
    assert!(dd.contains(&Kind::Fdatasync) && dd.iter().all(ways), "{dd:?}");
    assert_eq!(kinds(&of("cp", "/data/log", 4 << 10, true)), []);
    let other = kinds(&of("app", "/data/log", 4 << 10, true));
    assert!(other.contains(&Kind::Fdatasync), "{other:?}");
}

#[test]
fn syncs_that_fail_get_no_advice() {
    let mut program = Program::new(measured(), "/var/log/app.log");
    let unnamed = Session { id: 2, pid: 7, started: Time(program.now), ..Session::default() };
    program.records = vec![program.records[1].clone(), Record::Session(unnamed)];
    let mut sync = |errno: u16| {
        for at in 0..300 {
            program.write(at * 4096, 4096, 0);
            program.call(Op::Fsync, |event| event.errno = errno);
        }
        program.advised()
    };
    let (advice, tried) = sync(5);
    assert!(advice.iter().all(|one| !one.change.contains("sync")), "{advice:#?}");
    assert!(tried.iter().all(|one| !one.candidate.what.contains("sync")));
    let (advice, _) = sync(0);
    assert_eq!((advice[0].kind, &advice[0].program), (Kind::SyncEvery, &None), "{advice:#?}");
}

#[test]
fn a_stream_that_writes_nothing_gets_no_buffer() {
    let mut program = Program::new(measured(), "/data/in");
    (0..500).for_each(|_| program.call(Op::StreamClose, |event| event.flags = flag::STREAM_KNOWN));
    assert!(program.advised().1.is_empty(), "nothing is tried");
}

#[test]
fn a_stream_without_a_buffer_gets_one() {
    let mut program = Program::new(measured(), "/data/out");
    for at in 0..20_000 {
        program.call(Op::StreamWrite, |event| {
            (event.offset, event.requested, event.returned) = (at * 512, 512, 512);
            event.flags = flag::STREAM_KNOWN | flag::UNBUFFERED;
        });
    }
    program.call(Op::StreamClose, |event| event.flags = flag::STREAM_KNOWN);
    let (advice, _) = program.advised();
    assert_eq!(advice[0].kind, Kind::Buffer, "{advice:#?}");
    assert!(advice[0].how.starts_with("setvbuf(f, malloc(1 << "), "{advice:#?}");
    assert!(advice[0].safety[0].contains("killed"), "{advice:#?}");
}

#[test]
fn random_rewriting_under_low_limits_is_told_of_its_limits_and_order() {
    let mut profile = measured();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(4), hard: Bytes::mib(8) };
    let mut program = Program::new(profile, "/data/table");
    let mut place = 1_u64;
    for _ in 0..20_000 {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        program.write((place >> 33) % (64 << 20 >> 12) * 4096, 4096, 0);
    }
    program.call(Op::Close, |_| {});
    let (advice, tried) = program.advised();
    let first = &advice[0];
    let remedies = [Kind::Limits, Kind::AppendOnly, Kind::Sort];
    assert!(remedies.contains(&first.kind), "{advice:#?}");
    assert!(first.ratio < 0.5, "{advice:#?}");
    let limits = tried.iter().find(|one| one.candidate.what == "higher dirty limits").expect("it is tried");
    assert!(limits.candidate.how.contains("vm.dirty_bytes=33554432"), "{:?}", limits.candidate);
    // O_DIRECT is for whole blocks in large calls.
    assert!(tried.iter().all(|one| one.candidate.kind != Kind::Direct));
}

#[test]
fn durable_writes_get_a_sync_at_the_close() {
    let mut program = Program::new(measured(), "/data/out");
    (0..200).for_each(|at| program.write(at * 4 * KIB, 4 * KIB, flag::DSYNC));
    program.call(Op::Close, |_| {});
    let (advice, _) = program.advised();
    let all = advice.iter().map(|one| (&one.change, &one.safety));
    let others = advice.iter().flat_map(|one| &one.alternatives).map(|one| (&one.change, &one.safety));
    let off = all.chain(others).find(|(change, _)| change.contains("--fsync close")).expect("it is worth it");
    assert!(off.1.iter().any(|text| text.contains("200 writes are no longer durable")), "{off:?}");
    // Larger writes, each durable, lose less.
    assert_eq!(advice[0].kind, Kind::Merge, "{advice:#?}");
    assert!(advice[0].safety[0].contains("durable before"), "{advice:#?}");
}

#[test]
fn nothing_is_advised_where_nothing_is_gained() {
    let mut program = Program::new(measured(), "/data/out");
    (0..200).for_each(|at| program.write(at << 20, 1 << 20, 0));
    program.call(Op::Close, |_| {});
    let (advice, _) = program.advised();
    assert!(advice.is_empty(), "{advice:#?}");
    // Nor a gain below a millisecond.
    let mut program = Program::new(measured(), "/data/out");
    (0..100).for_each(|at| program.write(at * 16, 16, 0));
    assert!(program.advised().0.is_empty());
}

#[test]
fn the_same_gain_by_other_means_is_told_once() {
    let cost = |sync: f64| {
        let mut ledger = Ledger { calls: 100, total: Nanos::millis(100.0 + sync), ..Ledger::default() };
        ledger.causes[crate::cause::Cause::DeviceFlush] = Nanos::millis(sync);
        ledger.causes[crate::cause::Cause::Copy] = Nanos::millis(100.0);
        ledger
    };
    let tried = |kind: Kind, file: &str, sync: f64| Tried {
        candidate: Candidate {
            kind,
            what: String::new(),
            requests: Request::joined(["fdatasync", "on"].map(|name| Request::of(name, file).unwrap()))
                .unwrap(),
            files: vec![file.to_owned()],
            more_files: 0,
            program: None,
            how: String::new(),
            parts: Vec::new(),
            risk: kind.risk(),
        },
        after: cost(sync),
    };
    let before = cost(400.0);
    let kinds = |tried: &[Tried]| {
        let advice = rank(&before, before.total, &measured(), tried);
        let row = |one: &Advice| (one.kind, one.alternatives.len());
        advice.iter().map(row).collect::<Vec<_>>()
    };
    // The safer of two that gain almost the same is told, with the other one.
    let same = [tried(Kind::SyncEnd, "a", 10.0), tried(Kind::SyncEvery, "a", 30.0)];
    assert_eq!(kinds(&same), [(Kind::SyncEvery, 1)]);
    // What gains less, and is safer, stands for itself; what is neither, is left out.
    let less = [tried(Kind::SyncEvery, "a", 30.0), tried(Kind::Fdatasync, "a", 300.0)];
    assert_eq!(kinds(&less), [(Kind::SyncEvery, 0), (Kind::Fdatasync, 0)]);
    let worse = [tried(Kind::Fdatasync, "a", 30.0), tried(Kind::SyncEvery, "a", 300.0)];
    assert_eq!(kinds(&worse), [(Kind::Fdatasync, 0)]);
    // Other files are another matter.
    let apart = [tried(Kind::SyncEvery, "a", 100.0), tried(Kind::SyncEvery, "b", 90.0)];
    assert_eq!(kinds(&apart), [(Kind::SyncEvery, 0), (Kind::SyncEvery, 0)]);
    // Nothing below a twentieth.
    assert_eq!(kinds(&[tried(Kind::Merge, "a", 380.0)]), []);
}

#[test]
fn beside_a_report_there_is_advice_of_few_calls_only() {
    let mut program = Program::new(measured(), "/var/log/app.log");
    for at in 0..300 {
        program.write(at, 1, 0);
        program.call(Op::Fsync, |_| {});
    }
    let mut kept = Kept::new(&program.profile);
    assert!(program.records.iter().all(|record| kept.take(record)));
    let advised = kept.advised().expect("advice");
    assert!(advised.tried.is_some_and(|tried| tried > 3) && advised.advice.len() <= 3, "{advised:#?}");
    let first = &advised.advice[0];
    assert_eq!(first.kind, Kind::SyncEvery);
    let [low, high] = first.gain_interval_s(advised.paper_s);
    assert!(low <= first.gain_s && first.gain_s <= high, "{low} {high} {first:#?}");
    // Of more calls than can be run in that time, only `advise` tells.
    let call = program.records.last().expect("a call");
    let taken = (0..300_000).take_while(|_| kept.take(call)).count();
    assert!((100_000..300_000).contains(&taken), "{taken}");
    assert_eq!(kept.advised(), Some(Advised::default()));
    // There is nothing to advise on without calls, or without their times.
    assert_eq!(Kept::new(&program.profile).advised(), None);
    let mut untimed = Kept::new(&program.profile);
    for record in &program.records {
        let Record::Event(event) = record else { continue };
        untimed.take(&Record::Event(Event { duration: 0, ..*event }));
    }
    assert_eq!(untimed.advised(), None);
}

#[test]
fn what_bounds_a_program_is_what_has_most_of_its_time() {
    let by = |cause: Cause| {
        let row = CauseReport { name: cause.name().to_owned(), observed_s: 2.0, ..CauseReport::default() };
        let less = CauseReport { name: "call".to_owned(), observed_s: 1.0, ..CauseReport::default() };
        let explain = Explain { causes: vec![row, less], ..Explain::default() };
        Bound::new(&explain, 3.0, 2.0)
    };
    for (cause, name) in [
        (Cause::DeviceFlush, "the device"),
        (Cause::Throttle, "the device"),
        (Cause::NewPages, "the copy into memory"),
        (Cause::Preempted, "the wait for a processor"),
        (Cause::Call, "the call into the kernel"),
    ] {
        let bound = by(cause);
        assert_eq!(bound.nothing(3.0, 4.0), format!("nothing is worth it: {name} is the bound"));
        assert!(bound.nothing(3.0, 400.0).contains("the program itself"));
    }
    assert_eq!(by(Cause::Preempted).outside_s, 2.0);
}
