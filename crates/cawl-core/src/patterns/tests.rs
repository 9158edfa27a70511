//! Runs of known pattern, through a whole analysis.

use cawl_wire::{Event, FileKind, Op, flag};

use super::*;
use crate::analysis::Analysis;
use crate::mode::Mode;
use crate::profile::HostProfile;
use crate::record::{Record, Session};

/// A run of calls, one after another.
struct Run {
    analysis: Analysis,
    at: u64,
}

impl Run {
    fn new() -> Run {
        let models = ["kernel".to_owned()];
        let analysis = Analysis::new(&HostProfile::uncalibrated(), &models, Mode::Lockstep).unwrap();
        Run { analysis, at: 1_000_000 }
    }

    fn does(&mut self, op: Op, offset: u64, bytes: u64) -> &mut Run {
        self.makes(Event { offset, requested: bytes, returned: bytes as i64, ..Event::new(op) })
    }

    /// Makes a call of 10 µs, and 90 µs of something else.
    fn makes(&mut self, event: Event) -> &mut Run {
        let pid = event.pid.max(1);
        let event = Event {
            start: self.at,
            duration: event.duration.max(10_000),
            dev: 1,
            ino: event.ino.max(1),
            kind: FileKind::Regular,
            pid,
            tid: event.tid.max(pid),
            ..event
        };
        self.at += 100_000;
        self.analysis.take(&Record::Event(event));
        self
    }

    fn file(&self) -> FilePatterns {
        self.analysis.report().files[0].patterns.clone().expect("it was written")
    }

    fn op(&self) -> OpPatterns {
        self.file().ops[0].clone()
    }
}

/// Sequential, strided and random calls, and the stride.
fn order(of: &OpPatterns) -> (u64, u64, u64, Option<i64>) {
    (of.sequential, of.strided, of.random, of.stride)
}

fn size(bytes: u64, calls: u64) -> SizeCount {
    SizeCount { bytes, calls }
}

#[test]
fn appending_is_sequential_and_writes_no_byte_twice() {
    let mut run = Run::new();
    // 41 calls of 1000 bytes meet the same page up to five times.
    (0..41).for_each(|at| _ = run.does(Op::Write, at * 1000, 1000));
    let of = run.op();
    assert_eq!((of.calls, of.bytes, order(&of)), (41, 41_000, (40, 0, 0, None)));
    assert_eq!((of.sizes.clone(), of.frequent.clone()), (vec![size(512, 41)], vec![size(1000, 41)]));
    assert_eq!((of.page_aligned, of.rewritten_bytes), (0, 0));
    // 41 000 bytes are 11 pages; each call but those that begin a page meets a dirty one.
    assert_eq!((of.fresh_pages, of.cached_pages), (11, 0));
    assert_eq!(
        of.fresh_pages + of.dirty_pages,
        (0..41).map(|at| (at * 1000 + 999) / 4096 - at * 1000 / 4096 + 1).sum::<u64>()
    );
    let file = run.file();
    assert_eq!((file.gap_bytes, file.holes, file.writers.len()), (Some(0), 0, 1));
}

#[test]
fn strides_are_found_forwards_backwards_and_in_place() {
    for (stride, count) in [(65_536_i64, 50), (-4096, 50), (0, 50), (12_288, 3)] {
        let mut run = Run::new();
        (0..count).for_each(|at| _ = run.does(Op::Pwrite, (1_000_000 * 4096 + at * stride) as u64, 4096));
        let (of, jumps) = (run.op(), count as u64 - 1);
        // Backwards by its own size and in place are strides, too; three calls make but two jumps.
        let expected = if count > 3 { (0, jumps, 0, Some(stride)) } else { (0, 0, jumps, None) };
        assert_eq!(order(&of), expected, "{stride}");
        assert_eq!(of.page_aligned, count as u64);
        let gaps = if stride > 4096 { jumps * (stride as u64 - 4096) } else { 0 };
        assert_eq!(run.file().gap_bytes, Some(gaps));
    }
    // Half of each block is sought back, as in the paper's figure 7.
    let mut run = Run::new();
    (0..20).for_each(|at| _ = run.does(Op::Write, at * 8192, 16_384));
    let of = run.op();
    assert_eq!(order(&of), (0, 19, 0, Some(8192)));
    assert_eq!((of.rewritten_bytes, of.rewritten_dirty_bytes), (19 * 8192, 19 * 8192));
}

#[test]
fn a_stride_of_rows_and_a_random_order_are_told_apart() {
    // Rows of four calls, 1 MiB apart.
    let mut run = Run::new();
    (0..40).for_each(|at| _ = run.does(Op::Pwrite, at / 4 * 1_048_576 + at % 4 * 4096, 4096));
    assert_eq!(order(&run.op()), (30, 9, 0, Some(1_048_576)));
    // Each place once, in an order without equal distances, then a second time.
    let mut run = Run::new();
    let place = |at: u64| at * at * 7919 % 1009 * 8192;
    (1..=100).for_each(|at| _ = run.does(Op::Pwrite, place(at), 4096));
    assert_eq!(order(&run.op()), (0, 0, 99, None));
    assert_eq!((run.op().rewritten_bytes, run.op().fresh_pages), (0, 100));
    (1..=100).for_each(|at| _ = run.does(Op::Pwrite, place(at), 4096));
    let of = run.op();
    assert_eq!((of.rewritten_bytes, of.rewritten_dirty_bytes, of.dirty_pages), (409_600, 409_600, 100));
}

#[test]
fn what_is_written_again_after_an_fsync_is_written_again_later() {
    let mut run = Run::new();
    (0..8).for_each(|at| _ = run.does(Op::Write, at * 65_536, 65_536));
    run.makes(Event { duration: 50_000_000, ..Event::new(Op::Fsync) });
    run.at += 60_000_000;
    (0..4).for_each(|at| _ = run.does(Op::Pwrite, at * 65_536, 65_536));
    (0..2).for_each(|at| _ = run.does(Op::Pwrite, at * 65_536, 65_536));
    let file = run.file();
    let again = &file.ops[1];
    assert_eq!((again.rewritten_bytes, again.rewritten_dirty_bytes), (6 * 65_536, 2 * 65_536));
    assert_eq!((again.fresh_pages, again.cached_pages, again.dirty_pages), (0, 64, 32));
    let syncs = file.syncs.expect("there was an fsync");
    assert_eq!((syncs.calls, syncs.idle, syncs.unsynced_bytes), (1, 0, 6 * 65_536));
    assert_eq!((syncs.writes.mean, syncs.bytes.mean), (8.0, 8.0 * 65_536.0));
    assert!((syncs.seconds.mean - 8.0 * 100e-6).abs() < 1e-9, "{syncs:?}");
}

#[test]
fn intervals_of_fsyncs_have_their_ends() {
    let mut run = Run::new();
    let mut at = 0;
    for writes in [1, 3, 8] {
        (0..writes).for_each(|_| {
            run.does(Op::Write, at, 4096);
            at += 4096;
        });
        run.makes(Event::new(Op::Fdatasync));
    }
    run.makes(Event::new(Op::Fsync));
    let syncs = run.file().syncs.expect("there were");
    assert_eq!((syncs.calls, syncs.idle), (4, 1));
    assert_eq!(syncs.writes, Spread { mean: 4.0, min: 1.0, max: 8.0 });
    assert_eq!(syncs.bytes, Spread { mean: 16_384.0, min: 4096.0, max: 32_768.0 });
}

#[test]
fn holes_are_what_is_skipped_behind_the_end() {
    let mut run = Run::new();
    run.does(Op::Pwrite, 0, 4096).does(Op::Pwrite, 1 << 20, 4096).does(Op::Pwrite, 8192, 4096);
    let file = run.file();
    assert_eq!((file.holes, file.hole_bytes), (1, (1 << 20) - 4096));
    assert_eq!(file.gap_bytes, Some((1 << 20) - 8192));
    // A file that was emptied is written for the first time again.
    run.makes(Event { flags: flag::TRUNC, ..Event::new(Op::Open) });
    run.does(Op::Write, 0, 4096);
    assert_eq!(run.file().ops.iter().map(|of| of.rewritten_bytes).sum::<u64>(), 0);
    // Punched holes are holes, and what they leave out is none of the gaps.
    run.makes(Event { offset: 0, requested: 8192, aux: 3, ..Event::new(Op::Allocate) });
    assert_eq!(run.file().holes, 2);
}

/// A report of the end of a trace knows what was written before.
#[test]
fn what_a_report_leaves_out_is_no_hole() {
    let selection = crate::Selection { from: Some(crate::Nanos::millis(0.15)), ..Default::default() };
    let options = crate::AnalysisOptions { selection: Some(selection), ..Default::default() };
    let analysis = Analysis::with(&HostProfile::uncalibrated(), &options).unwrap();
    let mut run = Run { analysis, at: 1_000_000 };
    run.does(Op::Write, 0, 1 << 20).does(Op::Write, 1 << 20, 4096).does(Op::Write, (1 << 20) + 4096, 4096);
    let file = run.file();
    assert_eq!((file.ops[0].calls, file.holes, file.hole_bytes), (1, 0, 0));
    run.does(Op::Pwrite, 4 << 20, 4096);
    assert_eq!(run.file().holes, 1);
}

#[test]
fn what_appends_makes_no_hole() {
    let mut run = Run::new();
    // The file grew by another process between the two.
    for (pid, offset) in [(1, 0), (2, 1 << 20), (1, 3 << 20)] {
        let event = Event {
            pid,
            offset,
            requested: 4096,
            returned: 4096,
            flags: flag::APPEND,
            ..Event::new(Op::Write)
        };
        run.makes(event);
    }
    assert_eq!((run.file().holes, run.file().hole_bytes), (0, 0));
}

#[test]
fn threads_are_told_apart_and_their_overlap_is_counted() {
    // Two threads, each in sequence in a half of its own; every call lasts until the next one has begun.
    let mut run = Run::new();
    for at in 0..20_u64 {
        let (pid, tid) = (7, 7 + (at % 2) as u32);
        let offset = at % 2 * (1 << 30) + at / 2 * 4096;
        let duration = 150_000;
        run.makes(Event { pid, tid, offset, duration, returned: 4096, ..Event::new(Op::Pwrite) });
    }
    let file = run.file();
    assert_eq!(order(&file.ops[0]), (18, 0, 0, None));
    assert_eq!(file.overlapping_calls, 19);
    let writers: Vec<_> = file.writers.iter().map(|of| (of.pid, of.tid, of.calls, of.bytes)).collect();
    assert_eq!(writers, [(7, 7, 10, 40_960), (7, 8, 10, 40_960)]);
    // A descriptor's own offset, shared by many threads: in sequence, whoever's turn it is.
    let mut run = Run::new();
    for at in 0..30_u64 {
        let (pid, tid) = (7, 7 + (at % 10) as u32);
        run.makes(Event { pid, tid, offset: at * 4096, returned: 4096, ..Event::new(Op::Write) });
    }
    let file = run.file();
    assert_eq!((file.writers.len(), file.overlapping_calls, file.ops[0].random), (8, 0, 0));
    let told: u64 = file.writers.iter().map(|of| of.calls).sum();
    assert_eq!(told + file.other_writers_calls, 30);
}

#[test]
fn reads_have_an_order_of_their_own() {
    let mut run = Run::new();
    for at in 0..10 {
        run.does(Op::Write, (1 << 20) + at * 4096, 4096).does(Op::Pread, (9 - at) * 65_536, 65_536);
    }
    let ops = run.file().ops;
    assert_eq!(ops.iter().map(|of| of.op.as_str()).collect::<Vec<_>>(), ["write", "pread"]);
    assert_eq!((order(&ops[0]), order(&ops[1])), ((9, 0, 0, None), (0, 9, 0, Some(-65_536))));
    assert_eq!((ops[1].rewritten_bytes, run.file().writers.len()), (0, 1));
}

#[test]
fn blocks_are_the_files_own() {
    let mut run = Run::new();
    let facts = FileFacts { dev: 1, ino: 1, block: 1 << 20, path: "/a".to_owned(), ..FileFacts::default() };
    run.analysis.take(&Record::File(facts));
    run.does(Op::Pwrite, 0, 1 << 20).does(Op::Pwrite, 1 << 20, 4096).does(Op::Pwrite, 100, 100);
    let of = run.op();
    assert_eq!((of.page_aligned, of.block_aligned), (2, 1));
}

#[test]
fn small_files_are_counted_with_their_time() {
    let mut run = Run::new();
    for (ino, bytes) in [(1, 100), (2, 4096), (3, 65_536), (4, 200)] {
        run.makes(Event { ino, offset: 0, returned: bytes, ..Event::new(Op::Write) });
        run.makes(Event { ino, ..Event::new(Op::Fsync) });
    }
    let sums = run.analysis.report().explain.expect("there were calls").patterns;
    assert_eq!((sums.below_block.files, sums.below_block.bytes), (2, 300));
    assert_eq!((sums.below_64k.files, sums.below_64k.bytes), (3, 4396));
    assert!((sums.below_64k.seconds - 6.0 * 10e-6).abs() < 1e-12, "{sums:?}");
    assert_eq!((sums.ops[0].calls, sums.ops[0].sizes.len(), sums.shared_files), (4, 4, 0));
}

#[test]
fn what_cannot_be_remembered_is_said_and_memory_stays_bounded() {
    let mut patterns = Patterns::default();
    let write = |ino: u64, offset: u64| Event { ino, offset, returned: 4096, ..Event::new(Op::Pwrite) };
    // One page in each 2 MiB.
    for at in 0..BLOCKS as u64 + 1000 {
        patterns.call(0, &write(1, at * (2 << 20)), 4096, None);
    }
    assert!(patterns.blocks <= BLOCKS, "{}", patterns.blocks);
    let file = patterns.file(0, |_, _| None).expect("it was written");
    assert_eq!((file.gap_bytes, file.ops[0].calls), (None, BLOCKS as u64 + 1000));
    // What is gone makes room.
    patterns.effect(0, &Event { offset: 0, ..Event::new(Op::Truncate) });
    assert_eq!(patterns.blocks, 0);
    // Files that are written once take little.
    assert!(size_of::<FilePattern>() + size_of::<OpPattern>() + 80 <= 512, "{}", size_of::<FilePattern>());
}

#[test]
fn the_buffer_of_a_library_is_told_by_the_writing_process() {
    let written = |program: &str, seeks: bool| {
        let mut run = Run::new();
        let program = program.to_owned();
        let session = Session { id: 1, pid: 1, program, ..Session::default() };
        run.analysis.take(&Record::Session(session));
        let file = FileFacts { dev: 1, ino: 1, block: 4096, ..FileFacts::default() };
        run.analysis.take(&Record::File(file));
        if seeks {
            run.does(Op::Seek, 0, 0);
        }
        (0..20).for_each(|at| _ = run.does(Op::Write, at * 4000, 4000));
        run.file().buffer
    };
    assert_eq!(written("dd", false), None);
    let [own, buffered] = [false, true].map(|seeks| written("python3", seeks).expect("a size of Python's"));
    assert_eq!((own.certain, buffered.certain, buffered.writes), (false, true, 20));
}

/// What goes on behind a write within the last page of all: the next page has no address.
#[test]
fn the_last_page_of_all_overflows_nothing() {
    let mut written = Written::default();
    written.add(0, 10, Some(0), true);
    written.add(u64::MAX - 10, u64::MAX - 5, Some(0), true);
    assert_eq!(written.add(u64::MAX - 5, u64::MAX, Some(2), true), 5);
}
