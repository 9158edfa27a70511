use std::io::{self, Cursor};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use cawl_core::{
    DeviceCounters, FileFacts, HostProfile, ListFacts, MemoryFacts, Nanos, Record, RunDelay, Sample, Session,
    SessionEnd, Time, Usage, ZoneFacts,
};
use cawl_wire::{Event, FileKind, Op, Rank, flag};
use proptest::prelude::*;

use super::writer::{WAITING, encode_block, file_header};
use super::{BLOCK_TARGET, TraceError, TraceFile, TraceReader, WhenFull, codec};

/// A file with these blocks.
fn file(blocks: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let blocks = (0..).zip(blocks).map(|(sequence, raw)| encode_block(&raw, sequence));
    [vec![file_header().to_vec()], blocks.collect()].concat().concat()
}

/// What a disk was given, as a file.
fn taken(written: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    [vec![file_header().to_vec()], written.into_iter().collect()].concat().concat()
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut raw = Vec::new();
    records.iter().for_each(|record| codec::put(&mut raw, record));
    raw
}

fn close(records: usize) -> Vec<u8> {
    let mut raw = Vec::new();
    codec::put_close(&mut raw, records as u64);
    raw
}

/// A record as older versions wrote it.
fn described(tag: u8, json: &str) -> Vec<u8> {
    [&[tag], &(json.len() as u32).to_le_bytes()[..], json.as_bytes()].concat()
}

/// A trace on a disk that stands still until the sender is gone, and what it was given.
fn on_a_stalled_disk() -> (TraceFile, Sender<()>, Receiver<Vec<u8>>) {
    let (go_on, stalled) = channel();
    let (to, written) = channel::<Vec<u8>>();
    let append = move |block: &[u8]| {
        let _ = stalled.recv();
        to.send(block.to_vec()).map_err(io::Error::other)
    };
    (TraceFile::start(Path::new("t"), WhenFull::LeaveOut, append).unwrap(), go_on, written)
}

fn calls(records: &[Record]) -> u64 {
    records.iter().filter(|record| matches!(record, Record::Event(_))).count() as u64
}

fn records(count: u64) -> Vec<Record> {
    let mut records = vec![
        Record::Profile(Box::new(HostProfile::uncalibrated())),
        Record::Session(Session {
            id: 1,
            pid: 7,
            usage: Some(Usage { user: Nanos::new(5.0), involuntary: Some(3), ..Usage::default() }),
            rank: Rank::of_variable(b"PMI_RANK=3"),
            program: "dd".into(),
            ..Session::default()
        }),
    ];
    for i in 0..count {
        let mut event = Event::new(Op::Write);
        (event.start, event.duration, event.offset) = (i * 1000, 500, i * 4096);
        records.push(Record::Event(event));
        if i % 100 == 0 {
            records.push(Record::Sample(Sample { time: Time(i * 1000), dirty: i, ..Sample::default() }));
        }
    }
    let zone = ZoneFacts { free: vec![5; 11], cold: Some(vec![1; 11]), low: 7, high: 8, reserve: 9 };
    let files = Some(ListFacts { inactive: 10, active: 11 });
    let facts = MemoryFacts { time: Time(count), order: 9, zones: vec![zone], files };
    records.push(Record::Memory(Box::new(facts)));
    let (ran, delayed) = (Nanos::new(3.0), Nanos::new(4e9));
    let delay = RunDelay { pid: 7, tid: u32::MAX, from: Time(1), to: Time(count), ran, delayed };
    records.push(Record::RunDelay(delay));
    let busy = Nanos::millis(3.0);
    records.push(Record::Device(DeviceCounters {
        time: Time(count),
        dev: 7,
        busy,
        ..DeviceCounters::default()
    }));
    records.push(Record::Note("the end".into()));
    records
}

/// A trace with a block of every `every` records, and one that closes it.
fn trace(records: &[Record], every: usize) -> Vec<u8> {
    file(records.chunks(every).map(encoded).chain([close(records.len())]))
}

fn read(bytes: &[u8]) -> (Vec<Record>, super::Damage) {
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (records, reader.damage())
}

#[test]
fn round_trip() {
    let written = records(5000);
    let (read, damage) = read(&trace(&written, 1000));
    assert_eq!(read, written);
    assert_eq!(damage.describe(), None);
    let (read, damage) = self::read(&file([encoded(&written)]));
    assert_eq!(read, written);
    assert!(damage.describe().unwrap().contains("not closed"));
}

#[test]
fn other_files_are_refused() {
    assert!(matches!(TraceReader::new(Cursor::new(b"start_s,op,offset")), Err(TraceError::NotATrace)));
    assert!(matches!(TraceReader::new(Cursor::new(b"")), Err(TraceError::NotATrace)));
    let mut later = trace(&records(1), 1);
    later[8] = 99;
    assert!(matches!(TraceReader::new(Cursor::new(later)), Err(TraceError::Version(99))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cut_trace_reads_up_to_its_last_whole_block(cut in 0.0..1.0f64) {
        let written = records(500);
        let bytes = trace(&written, 50);
        let keep = 16 + ((bytes.len() - 16) as f64 * cut) as usize;
        let (read, damage) = read(&bytes[..keep]);
        prop_assert_eq!(&read[..], &written[..read.len()]);
        prop_assert!(read.len() % 50 == 0 || read.len() == written.len());
        prop_assert!(damage.unclosed);
    }

    #[test]
    fn a_flipped_bit_costs_one_block(at in 0.0..1.0f64, bit in 0..8u8) {
        let written = records(500);
        let mut bytes = trace(&written, 50);
        let place = 16 + ((bytes.len() - 17) as f64 * at) as usize;
        bytes[place] ^= 1 << bit;
        let (read, damage) = read(&bytes);
        prop_assert!(read.len() >= written.len() - 50, "{} of {}", read.len(), written.len());
        prop_assert!(damage.describe().is_some());
        prop_assert!(damage.unclosed || damage.records == (written.len() - read.len()) as u64);
        // What is delivered is what was written, in order.
        let mut rest = written.iter();
        prop_assert!(read.iter().all(|record| rest.any(|original| original == record)));
    }

    #[test]
    fn any_bytes_end_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut file = trace(&records(3), 2);
        file.extend_from_slice(&bytes);
        let (read, _) = read(&file);
        prop_assert!(read.len() >= 7);
    }
}

/// A disk that stalls: nothing waits for it, what it cannot take is counted, and everyone says so.
#[test]
fn a_slow_disk_leaves_a_gap_that_is_told() {
    let (mut trace, go_on, written) = on_a_stalled_disk();
    let event = Event::new(Op::Write);
    let count = (WAITING + 16 * BLOCK_TARGET) as u64 / cawl_wire::EVENT_LEN as u64;
    for _ in 0..count {
        trace.push(&Record::Event(event));
    }
    // What describes calls is kept all the same.
    trace.push(&Record::Session(Session { id: 9, ..Session::default() }));
    assert!(trace.failure().is_some_and(|text| text.contains("did not keep up")));
    drop(go_on);
    let told = trace.finish().unwrap();
    let (records, damage) = read(&taken(written));
    let calls = calls(&records);
    assert!(calls < count && calls >= (WAITING / BLOCK_TARGET) as u64 * 1000, "{calls} of {count}");
    assert!(records.iter().any(|record| matches!(record, Record::Session(_))));
    let missing = count - calls;
    assert!(told.contains(&format!("lacks {missing} calls")), "{told}");
    let note = format!("{missing} calls and samples are missing");
    assert!(records.iter().any(|record| matches!(record, Record::Note(text) if text.contains(&note))));
    assert!(!damage.unclosed && damage.records == missing, "{damage:?}");
    assert!(damage.describe().unwrap().contains(&format!("lacks {missing} calls")));
}

/// A disk that stands still while the little that comes is flushed again and again: nothing is lost until the
/// bytes that may wait do, and then each call is counted.
#[test]
fn a_disk_that_stands_still_costs_nothing_before_the_bytes_are_reached() {
    const FLUSHES: u64 = 5000;
    let (mut trace, go_on, written) = on_a_stalled_disk();
    let event = Record::Event(Event::new(Op::Write));
    let mut count = 0;
    let mut push = |trace: &mut TraceFile| {
        trace.push(&event);
        count += 1;
    };
    for _ in 0..FLUSHES {
        push(&mut trace);
        push(&mut trace);
        trace.flush();
    }
    assert_eq!(trace.failure(), None);
    // Up to the bytes, with as many flushes between.
    while trace.failure().is_none() {
        (0..100).for_each(|_| push(&mut trace));
        trace.flush();
    }
    drop(go_on);
    let told = trace.finish().unwrap();
    let (records, damage) = read(&taken(written));
    let calls = calls(&records);
    let held = calls as usize * cawl_wire::EVENT_LEN;
    assert!(held <= WAITING + BLOCK_TARGET && held > WAITING / 10 * 9, "{held} bytes");
    assert!(told.contains(&format!("lacks {} calls", count - calls)), "{told}");
    assert_eq!((damage.records, damage.unclosed), (count - calls, false));
}

/// An importer waits, and loses nothing.
#[test]
fn who_may_wait_loses_nothing_to_a_slow_disk() {
    let (to, written) = sync_channel::<Vec<u8>>(0);
    let append = move |block: &[u8]| to.send(block.to_vec()).map_err(io::Error::other);
    let mut trace = TraceFile::start(Path::new("t"), WhenFull::Wait, append).unwrap();
    let all = std::thread::spawn(move || taken(written));
    let count = (WAITING + 16 * BLOCK_TARGET) as u64 / cawl_wire::EVENT_LEN as u64;
    for _ in 0..count {
        trace.push(&Record::Event(Event::new(Op::Write)));
    }
    assert_eq!(trace.finish(), None);
    let (records, damage) = read(&all.join().unwrap());
    assert_eq!((records.len() as u64, damage.describe()), (count, None));
}

/// A trace of the first version tells no births: a number whose last link went is another file's from the
/// next open on.
#[test]
fn an_old_trace_tells_files_of_one_number_apart() {
    let call = |op| {
        let mut event = Event::new(op);
        (event.dev, event.ino, event.kind, event.pid) = (1, 7, FileKind::Regular, 5);
        event
    };
    let name =
        |path: &str| FileFacts { dev: 1, ino: 7, mode: 0o100_644, path: path.into(), ..FileFacts::default() };
    let records: Vec<Record> = vec![
        Record::File(name("a")),
        Record::Event(call(Op::Open)),
        Record::Event(call(Op::Unlink)),
        Record::Event(call(Op::Open)),
        Record::Event(call(Op::Write)),
    ];
    for (version, births) in [(1, [0, 0, 0, 1, 1]), (2, [0; 5]), (3, [0; 5]), (4, [0; 5]), (5, [0; 5])] {
        let mut bytes = trace(&records, 100);
        bytes[8] = version;
        let (read, damage) = read(&bytes);
        let births_of = |record: &Record| match record {
            Record::File(file) => file.birth,
            Record::Event(event) => event.birth,
            other => panic!("{other:?}"),
        };
        assert_eq!(read.iter().map(births_of).collect::<Vec<_>>(), births, "version {version}");
        assert_eq!(damage.describe(), None);
    }
}

/// The figures of a stream's read were once those of what it had to write.
#[test]
fn an_old_trace_does_not_tell_what_was_read_ahead() {
    let mut call = Event::new(Op::StreamRead);
    (call.returned, call.pending_after, call.flags) = (10, 4086, flag::STREAM_KNOWN);
    for (version, refilled) in [(7, None), (8, Some(4096))] {
        let mut bytes = trace(&[Record::Event(call)], 100);
        bytes[8] = version;
        let (read, _) = read(&bytes);
        let [Record::Event(event)] = read[..] else { panic!("{read:?}") };
        assert_eq!(event.refilled(), refilled, "version {version}");
    }
}

/// Times that are infinite, no number or below zero, numbers that do not fit, and a field that is missing.
#[test]
fn device_counters_that_are_none_cost_the_rest_of_their_block() {
    let good =
        r#"{"time":1,"dev":2,"writes":3,"bytes":4,"writing":5.0,"flushes":6,"flushing":7.0,"busy":8.0}"#;
    let note = |text: &str| Record::Note(text.into());
    let of = |json: &str| {
        let block = [encoded(&[note("before")]), described(25, json), encoded(&[note("after")])].concat();
        read(&file([block, encoded(&[note("next")]), close(4)]))
    };
    let (records, damage) = of(good);
    assert_eq!((records.len(), damage.describe()), (4, None));
    for (wrong, by) in [
        ("5.0", "1e999"),
        ("5.0", "null"),
        ("7.0", "NaN"),
        ("7.0", "-1.0"),
        ("\"writes\":3", "\"writes\":18446744073709551616"),
        ("\"bytes\":4", "\"bytes\":-4"),
        ("\"busy\":8.0", "\"idle\":8.0"),
        ("}", ""),
    ] {
        let (records, damage) = of(&good.replace(wrong, by));
        assert_eq!(records, [note("before"), note("next")], "{by}");
        assert!(
            damage.describe().is_some_and(|damage| damage.contains("2 records are lost")),
            "{by}: {damage:?}"
        );
    }
}

/// Sessions of a trace from before processor time and ranks were recorded.
#[test]
fn an_old_trace_says_nothing_of_processor_time() {
    let begin = r#"{"id":1,"pid":7,"ppid":1,"started":5,"wchar":{"process":1,"thread":null},"program":"dd","arguments":[]}"#;
    let end = r#"{"id":1,"at":9,"how":"exit","wchar":{"process":2,"thread":null},"pending":0,"dropped":0,"unseen":0}"#;
    let mut bytes = file([[described(18, begin), described(20, end), close(2)].concat()]);
    bytes[8] = 3;
    let (records, damage) = read(&bytes);
    assert_eq!(damage.describe(), None);
    assert!(matches!(&records[0], Record::Session(Session { pid: 7, usage: None, rank: None, .. })));
    assert!(matches!(&records[1], Record::End(SessionEnd { at: Time(9), usage: None, .. })));
}

/// LZ4 makes 250 bytes of one: names that fill memory are no trace.
#[test]
fn more_names_than_the_file_s_length_allows_are_refused() {
    let name = Record::File(FileFacts { path: "x".repeat(4000), ..FileFacts::default() });
    let raw = encoded(&vec![name; 3900]);
    assert!(raw.len() > 15 << 20);
    let bytes = file(vec![raw; 8]);
    assert!(bytes.len() < 1 << 20);
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut read = 0;
    let error = loop {
        match reader.next_record() {
            Ok(Some(_)) => read += 4000,
            Ok(None) => panic!("all of it was read"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, TraceError::Bloated(_)) && (60 << 20..100 << 20).contains(&read),
        "{error} {read}"
    );
}
