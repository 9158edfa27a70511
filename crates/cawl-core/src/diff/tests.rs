use cawl_wire::{Event, FileKind, Op};

use super::*;
use crate::analysis::{Analysis, AnalysisOptions};
use crate::mode::Mode;
use crate::model::HostProfile;
use crate::record::{FileFacts, Record};

/// A report of writes of a size to a file, and of fdatasyncs that take so many µs.
fn report(path: &str, writes: u64, size: u64, syncs: u64, each: u64) -> Report {
    let options =
        AnalysisOptions { models: vec!["kernel".into()], mode: Mode::Lockstep, ..AnalysisOptions::default() };
    let mut analysis = Analysis::with(&HostProfile::uncalibrated(), &options).expect("an analysis");
    let (ino, kind) = (7, FileKind::Regular);
    analysis.take(&Record::File(FileFacts { ino, path: path.to_owned(), ..FileFacts::default() }));
    let mut start = 1;
    for at in 0..writes.max(syncs) {
        let mut call = |op, returned, duration| {
            let event = Event { ino, kind, offset: at * size, returned, duration, start, ..Event::new(op) };
            analysis.take(&Record::Event(event));
            start += 2 * duration;
        };
        if at < writes {
            call(Op::Pwrite, size as i64, 2_000);
        }
        if at < syncs {
            call(Op::Fdatasync, 0, each * 1000);
        }
    }
    analysis.report()
}

fn said(one: &Report, other: &Report) -> String {
    Difference::new([one, other]).expect("times").said
}

#[test]
fn the_operation_that_changed_explains_the_difference() {
    let (few, many) = (report("/a/log", 900, 512, 50, 4000), report("/a/log", 900, 512, 802, 4000));
    let more = Difference::new([&few, &many]).expect("times");
    let reason = &more.reasons[0];
    assert_eq!((reason.op, reason.calls), ("fdatasync", [50, 802]), "{more:?}");
    assert!(more.said.contains(" s more: ") && more.said.contains(", 802 fdatasyncs where there were 50"));
    let whole = more.total_s[1] - more.total_s[0];
    assert!(reason.difference_s > 0.0 && reason.difference_s <= whole, "{more:?}");
    assert!((whole - 752.0 * 0.004).abs() < 1e-6, "{more:?}");
    assert!(more.is_slower_by(1.0) && !more.is_slower_by(100.0));
    let sum = |rows: &[Row<'_>]| rows.iter().map(Row::difference).sum::<f64>();
    for rows in [&more.causes, &more.ops, &more.files] {
        assert!((sum(rows) - whole).abs() < 1e-6, "{rows:?}");
    }
    // The other way round it is the same, with another sign.
    let less = Difference::new([&many, &few]).expect("times");
    assert!(less.said.contains(" less: ") && less.said.contains("50 fdatasyncs where there were 802"));
    assert_eq!(less.reasons[0].difference_s, -reason.difference_s);
    // A part that is more than the whole.
    let part =
        Reason { difference_s: -10.0, cause: "journal", op: "fsync", calls: [9, 9], observed_s: [10.0, 0.0] };
    let text = super::said([20.0, 15.0], &[part]);
    assert!(text.starts_with("10 s less, 5 s in all: journal, 9 fsyncs"), "{text}");
    assert!(!less.is_slower_by(0.0));
}

#[test]
fn the_same_number_of_calls_is_told_with_the_time_of_each() {
    let said = said(&report("/a", 10, 512, 50, 1000), &report("/a", 10, 512, 50, 9000));
    assert!(said.ends_with(", 50 fdatasyncs, no time by this cause before"), "{said}");
    // Where it is the same cause as before, with what that took.
    let reason = |calls, observed_s| {
        Reason { difference_s: 0.4, cause: "journal", op: "fsync", calls, observed_s }.in_words()
    };
    assert_eq!(reason([50, 51], [0.05, 0.51]), "journal, 51 fsyncs, 10 ms each where it was 1 ms");
    let gone = "journal, 31 fsyncs where there were 400, no time by this cause now";
    assert_eq!(reason([400, 31], [0.05, 0.0]), gone);
    let same = report("/a", 10, 512, 50, 1000);
    let none = Difference::new([&same, &same]);
    assert!(none.is_ok_and(|none| none.said.starts_with("hardly a difference: ") && none.reasons.is_empty()));
}

#[test]
fn a_new_operation_and_a_dropped_one_have_their_words() {
    let (without, with) = (report("/a", 10, 512, 0, 0), report("/a", 10, 512, 1, 9000));
    assert!(
        said(&without, &with).ends_with(", 1 fdatasync where there were none"),
        "{}",
        said(&without, &with)
    );
    assert!(said(&with, &without).ends_with(", no fdatasync where there was 1"), "{}", said(&with, &without));
}

#[test]
fn files_of_other_folders_are_the_same_by_their_name() {
    let (one, other) = (report("/tmp/a/log", 100, 4096, 1, 500), report("/tmp/b/log", 100, 512, 1, 500));
    let both = Difference::new([&one, &other]).expect("times");
    let [file] = &both.files[..] else { panic!("{:?}", both.files) };
    assert_eq!((file.name, file.renamed, file.calls), ("/tmp/a/log", Some("/tmp/b/log"), [101, 101]));
    let [pattern] = &both.patterns[..] else { panic!("{:?}", both.patterns) };
    assert_eq!(
        (pattern.file, pattern.op, pattern.patterns.map(|of| of.bytes)),
        ("/tmp/a/log", "pwrite", [409_600, 51_200])
    );
    // Other names are other files.
    let third = report("/tmp/b/data", 100, 512, 1, 500);
    assert_eq!(Difference::new([&one, &third]).map(|both| both.files.len()), Ok(2));
}

#[test]
fn what_was_not_timed_is_not_compared() {
    let (timed, untimed) = (report("/a", 10, 512, 1, 500), report("/a", 0, 512, 1, 0));
    assert_eq!(Difference::new([&timed, &untimed]).map(drop), Err(Incomparable::NoTimes(1)));
    assert_eq!(Difference::new([&untimed, &timed]).map(drop), Err(Incomparable::NoTimes(0)));
    let none = report("/a", 0, 512, 0, 0);
    assert_eq!(Difference::new([&none, &timed]).map(drop), Err(Incomparable::NoCalls(0)));
}

#[test]
fn reports_of_models_that_count_other_calls_are_not_compared() {
    let (kernel, mut naive) = (report("/a", 10, 512, 1, 500), report("/a", 10, 512, 1, 500));
    naive.models[0].name = "naive".to_owned();
    let why = Difference::new([&naive, &kernel]).expect_err("other models");
    assert_eq!(why, Incomparable::Models(["naive", "kernel"].map(str::to_owned)));
    assert!(why.to_string().contains("`replay --model kernel --json`"), "{why}");
    assert!(Difference::new([&naive, &naive]).is_ok());
}

#[test]
fn lost_calls_are_noted() {
    let (mut whole, mut lossy) = (report("/a", 10, 512, 1, 500), report("/a", 10, 512, 1, 500));
    // The trace has no host.
    (whole.notes, lossy.notes) = Default::default();
    lossy.drops = 3;
    let both = Difference::new([&whole, &lossy]).expect("times");
    assert_eq!(both.notes, [vec![], vec!["calls that are not in it: 3 dropped, 0 unseen".to_owned()]]);
}

#[test]
fn machines_differ_in_what_is_told_of_both() {
    let (mut one, mut other) = (report("/a", 10, 512, 1, 500), report("/a", 10, 512, 1, 500));
    assert!(machine([&one, &other]).is_empty());
    let host = |kernel: &str, cpus| HostFacts { kernel: kernel.to_owned(), cpus, ..HostFacts::default() };
    (one.host, other.host) = (Some(host("6.1", 4)), Some(host("6.18", 4)));
    let values = ["6.1", "6.18"].map(str::to_owned);
    assert_eq!(machine([&one, &other]), [Fact { name: "kernel", values }]);
}
