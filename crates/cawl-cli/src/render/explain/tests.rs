use cawl_core::advise::{Advised, Bound};
use cawl_core::{
    Analysis, AnalysisOptions, AsCalibrated, ByName, CallClass, CauseReport, ColdReport, EndKind, FileFacts,
    HostProfile, Mode, Nanos, ProcessReport, Record, SessionReport, Tally,
};
use cawl_wire::{Event, FileKind, Op};

use super::*;

/// What a report has at most: two files of long names, all causes, figures with all their digits.
fn wide() -> Report {
    let mut analysis = Analysis::with(
        &HostProfile::uncalibrated(),
        &AnalysisOptions {
            models: vec!["kernel".to_owned()],
            mode: Mode::Lockstep,
            classes: vec![Nanos::millis(1.0)],
            ..AnalysisOptions::default()
        },
    )
    .expect("an analysis");
    let mut start = 1;
    for at in 0..200_u64 {
        for (op, ino) in [(Op::CopyRange, 1), (Op::SyncRange, 1), (Op::Pwrite, 2), (Op::Fsync, 2)] {
            let returned = if matches!(op, Op::CopyRange | Op::Pwrite) { 1_047_553 } else { 0 };
            let (offset, dev, kind) = ((at * 7919) % 200 * 1_234_567, 1, FileKind::Regular);
            let event = Event { dev, ino, kind, pid: 4_194_304, tid: 4_194_304, start, ..Event::new(op) };
            let duration = 123_456_789 + at * 1_000_001;
            analysis.take(&Record::Event(Event { offset, returned, duration, ..event }));
            start += 300_000_000;
        }
    }
    let mut report = analysis.report();
    let all: ByName<f64> = Cause::ALL.into_iter().map(|cause| (cause.name(), 1234.5678)).collect();
    let two: ByName<f64> =
        [Cause::FlusherBeside, Cause::PartialPage].into_iter().map(|cause| (cause.name(), 1.0)).collect();
    for (file, causes) in report.files.iter_mut().zip([all, two]) {
        file.path = format!("/a/{}/file \x1b[2J", "very-long-name/".repeat(12));
        for op in &mut file.ops {
            (op.calls, op.bytes, op.causes) = (u64::MAX, 1_234_567_890, causes.clone());
            (op.observed_s, op.undisturbed_s) = (12_345.678, 0.0);
        }
    }
    let session = SessionReport {
        pid: 4_194_304,
        program: "/opt/a/long/path/to/some-simulation".to_owned(),
        ended: EndKind::QuickExit,
        calls: 1 << 58,
        seen_bytes: 1 << 58,
        wchar_bytes: Some(1 << 58),
        coverage: Some(123.4),
        dropped: 1 << 58,
        unseen: 0,
    };
    report.sessions = vec![session; 23];
    report.drops = 12_345_678;
    report.coverage = Some(0.123);
    report.untraced_bytes = 12_345_678_901;
    report.notes = vec!["a note about something that is longer than one line ".repeat(4), "x".repeat(300)];
    report.profile.name = "some-machine-with-a-long-name-".repeat(5);
    report.unmodelled = ["truncate", "fallocate", "copy", "splice"]
        .map(|op| (op.to_owned(), Tally { calls: 9_999_999, bytes: 1 << 50 }))
        .into();
    report.cold = Some(ColdReport {
        seconds: 12_345.6,
        pages: u64::MAX,
        per_page_s: 9.6e-6,
        op: "copy_file_range".to_owned(),
        op_observed_s: 12_345.6,
    });
    for model in &mut report.models {
        (model.predicted_s, model.total_error, model.windowed_error) = (12_345.678, Some(123.4), Some(123.4));
        model.calibrated = Some(AsCalibrated {
            predicted_s: 1.0,
            total_error: Some(123.4),
            windowed_error: None,
            call_error: None,
        });
    }
    let explain = report.explain.as_mut().expect("causes");
    explain.causes = Cause::ALL
        .into_iter()
        .map(|cause| CauseReport {
            name: cause.name().to_owned(),
            calls: u64::MAX,
            bytes: u64::MAX,
            observed_s: 12_345.678,
            undisturbed_s: 12_345.678,
        })
        .collect();
    explain.bytes = u64::MAX;
    (explain.observed_s, explain.lost_s) = (123_456.789, 123_456.0);
    explain.best.undisturbed_s = 12_345.678;
    for call in &mut explain.worst {
        (call.at_s, call.observed_s, call.predicted_s) = (123_456.789, 12_345.678, 12_345.678);
        (call.op, call.cause) = ("sync_file_range".to_owned(), "partial page read".to_owned());
        call.call = 123_456_789;
        (call.bytes, call.path) = (1_047_553, "/a/long/folder/and/a/name".to_owned());
    }
    explain.classes =
        vec![CallClass { calls: u64::MAX, bytes: u64::MAX, seconds: 12_345.6, ..CallClass::default() }];
    explain.processes = vec![
        ProcessReport {
            pid: 4_194_304,
            program: "x".repeat(99),
            wall_s: 1e6,
            ..ProcessReport::default()
        };
        2
    ];
    report
}

#[test]
fn what_was_dropped_is_told_first_with_the_remedy() {
    let text = report(&wide(), false, false);
    let second = text.lines().find(|line| line.starts_with("without")).expect("a line");
    assert!(second.contains("12.3 M calls") && text.find("without") < text.find("CAUSE"), "{text}");
    assert!(text.contains("run --lossless"), "{text}");
}

#[test]
fn calls_without_durations_are_only_predicted() {
    let mut analysis = Analysis::new(&HostProfile::uncalibrated(), &[], Mode::OpenLoop).expect("models");
    let flags = cawl_wire::flag::ESTIMATED;
    let call =
        Event { dev: 1, ino: 1, kind: FileKind::Regular, flags, returned: 4096, ..Event::new(Op::Write) };
    analysis.take(&Record::Event(call));
    let told = analysis.report();
    let text = explained(&told, false, false);
    assert!(text.starts_with("cawl       no durations, only predictions: "), "{text}");
    assert!(!text.contains("0 ns by") && !text.contains("off"), "{text}");
    let long = explained(&told, true, false);
    assert!(!long.contains("MODEL ") && long.contains("STATES"), "{long}");
}

#[test]
fn a_count_that_nobody_could_read_leaves_the_coverage_unknown() {
    let text = report(&Report { uncounted_processes: 1, coverage: None, ..wide() }, false, false);
    assert!(text.contains("coverage   unknown: nobody could read the kernel's count of 1 process"), "{text}");
}

/// What the kernel does not count may be written.
#[test]
fn stores_are_written_and_mappings_are_no_calls() {
    let told = |bytes, unseen| {
        let mut told = Report { coverage: None, untraced_bytes: 0, bytes, unseen, ..wide() };
        told.sessions.iter_mut().for_each(|session| session.wchar_bytes = Some(0));
        let text = report(&told, true, false);
        // A line that was wrapped is one again.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = told(60 << 20, 1488);
    let stored = "no call wrote, as the kernel confirms; 60 MiB were stored through mappings or cloned";
    assert!(text.contains(stored) && text.contains("60 MiB to files"), "{text}");
    assert!(text.contains(", 1488 calls or mappings unseen"), "{text}");
    let text = told(0, 0);
    assert!(text.contains("no call wrote, as the kernel confirms") && text.contains(", 0 unseen"), "{text}");
}

#[test]
fn a_brief_calibration_stays_one_when_runs_have_learned_from_it() {
    let (origin, measured) = (Origin::Calibrated, Some(cawl_core::Thoroughness::Brief));
    let profile = cawl_core::ProfileUsed { origin, measured, learned_runs: 2, ..wide().profile };
    let told = super::super::report::used(&profile, true);
    assert!(
        told.contains("measured briefly") && told.ends_with("learned from 2 runs; see `calibrate`)"),
        "{told}"
    );
}

#[test]
fn every_line_fits_80_columns() {
    let wide = wide();
    let well = Report {
        coverage: Some(1.0),
        drops: 0,
        notes: Vec::new(),
        unmodelled: BTreeMap::new(),
        profile: cawl_core::ProfileUsed {
            origin: Origin::Calibrated,
            learned_runs: 12,
            merged: 0,
            ..wide.profile.clone()
        },
        ..wide.clone()
    };
    let selection =
        cawl_core::Selection { files: vec!["*long-name*".repeat(20).as_str().into()], ..Default::default() };
    let selected = Report { selection: Some(selection), ..wide.clone() };
    for text in [
        report(&wide, false, false),
        report(&well, false, false),
        explained(&selected, false, false),
        explained(&well, false, false),
    ] {
        let over: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(over.is_empty(), "{over:#?} in {text}");
        assert!(text.contains("FILE, OP") && text.contains("WORST CALL") && !text.contains('\x1b'), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("cold  ")).count(), 1, "{text}");
    }
    let long = report(&wide, true, false);
    let over: Vec<&str> = long.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(over.is_empty(), "{over:#?} in {long}");
    assert!(long.contains("\nworst calls") && !long.contains('\x1b'), "{long}");
    let text = report(&well, false, false);
    assert!(text.contains("rests on") && text.contains(", by several at once"), "{text}");
}

#[test]
fn one_thing_is_no_plural() {
    let mut report = wide();
    let explain = report.explain.as_mut().expect("causes");
    explain.causes[16].observed_s = 0.0;
    let text = super::report(&report, false, false);
    assert!(text.contains("and 1 more cause: "), "{text}");
    let mut analysis = Analysis::new(&HostProfile::uncalibrated(), &[], Mode::Lockstep).expect("an analysis");
    analysis.take(&Record::File(FileFacts {
        path: "/one".to_owned(),
        dev: 1,
        ino: 1,
        ..FileFacts::default()
    }));
    let event =
        Event { dev: 1, ino: 1, kind: FileKind::Regular, start: 1, duration: 9, ..Event::new(Op::Write) };
    analysis.take(&Record::Event(Event { returned: 4096, ..event }));
    analysis.take(&Record::Event(Event { op: Op::Fsync, start: 100, ..event }));
    let text = explained(&analysis.report(), false, false);
    assert!(text.contains("  1 fsync, one for 1 write, 4 KiB"), "{text}");
}

#[test]
fn advice_ends_a_report_or_the_command_that_gives_it() {
    let end = |advice: Option<Advised>| {
        let text = report(&Report { advice, ..wide() }, false, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text.rsplit_once("\n\n").map_or_else(String::new, |(_, end)| end.to_owned())
    };
    assert!(end(Some(Advised::default())).starts_with("advice     cawl-cli advise TRACE tries changes"));
    let bound = Bound { by: "the device".to_owned(), ..Bound::default() };
    let none = Advised::new(3, 1.0, 0.0, bound, Vec::new());
    let told = end(Some(none));
    assert!(
        told.starts_with("advice     nothing is worth it: the device is the bound; of 3 changes"),
        "{told}"
    );
    assert!(!end(None).contains("advice"));
}
