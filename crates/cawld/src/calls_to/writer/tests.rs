use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;

use cawl_core::{Shown, Time};
use cawl_host::spool::{Shared, SpoolOptions};
use cawl_wire::{Event, Op};

use super::*;
use crate::names::Names;

/// The time of day less CLOCK_MONOTONIC, in seconds; a test of its own sets it.
static AHEAD: AtomicU64 = AtomicU64::new(0);

fn clocks() -> Clocks {
    let monotonic = Time(1_000_000_000_000);
    let real = Time(monotonic.0 + AHEAD.load(Ordering::SeqCst) * 1_000_000_000);
    Clocks { monotonic, boot: monotonic, real }
}

fn row(number: u64, second: u64) -> Row {
    let event = Event { start: second * 1_000_000_000, duration: 5, ..Event::new(Op::Write) };
    let shown = Shown { number, predictions: &[], causes: None, own: None, selected: true };
    Row::new(&event, &shown, &mut Names::default(), None, 1)
}

fn files(folder: &Path) -> BTreeSet<String> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let key = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if key.starts_with('.') => {}
                false => assert!(files.insert(key)),
            }
        }
    }
    files
}

/// Files are closed at the end of an hour; one has the clock as it was set when it was begun.
#[test]
fn partitions_follow_the_clock_and_names_never_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let node = "n".to_owned();
    let options = CallsOptions {
        to: String::new(),
        folder: dir.path().to_owned(),
        rule: "all".parse().unwrap(),
        every: (1 << 30, Duration::from_secs(3600)),
        room: 1 << 30,
        node: node.clone(),
        facts: Vec::new(),
    };
    let spool = SpoolOptions {
        folder: dir.path().to_owned(),
        own: "node=n".into(),
        node,
        ending: ".parquet",
        room: 1 << 30,
    };
    let spool = Spool::open(spool, Shared::default()).unwrap();
    let mut writer = Writer::new(options, &[], spool, Arc::default());
    writer.clocks = clocks;
    // 2026-11-29 13:59:50 at second 1000 of the machine.
    AHEAD.store(1_795_960_790 - 1000, Ordering::SeqCst);
    let (batches, queue) = sync_channel(64);
    batches.send((0..20).map(|n| row(n, 1000 + n)).collect()).unwrap();
    drop(batches);
    let hours = |files: &BTreeSet<String>| {
        files.iter().map(|key| key.rsplit_once('/').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    // Far back within a file, which goes on, and then at its end.
    writer.push(&row(100, 990));
    AHEAD.store(0, Ordering::SeqCst);
    writer.push(&row(101, 991));
    writer.close();
    writer.push(&row(102, 992));
    writer.close();
    let now = files(dir.path());
    assert_eq!(hours(&now), ["node=n/date=1970-01-01/hour=00", "node=n/date=2026-11-29/hour=13"]);
    AHEAD.store(1_795_960_790 - 1000, Ordering::SeqCst);
    writer.work(&Queue { things: queue, dropped: Arc::default() });
    let now = files(dir.path());
    let expected = ["1970-01-01/hour=00", "2026-11-29/hour=13", "2026-11-29/hour=13", "2026-11-29/hour=14"];
    assert_eq!(hours(&now), expected.map(|hour| format!("node=n/date={hour}")));
    let names: BTreeSet<_> = now.iter().map(|key| key.rsplit('/').next().unwrap()).collect();
    assert_eq!(names.len(), now.len());
}
