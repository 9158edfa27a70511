//! Copies inside the kernel: copy_file_range, sendfile, splice.

use cawl_core::{Bytes, Cause, CostModel, Kernel, Rate, Time};
use cawl_wire::{Event, Op, flag};

use super::{profile, roomy, write};

/// A copy of `bytes` to the begin of a file of its own.
fn copy(op: Op, start: u64, ino: u64, bytes: u64) -> Event {
    Event { op, ino, pid: 1, ..write(start, 0, bytes) }
}

#[test]
fn a_copy_inside_the_kernel_is_a_row_of_writes_of_64_kib() {
    const ALL: u64 = 64 << 20;
    const PIECE: u64 = 64 << 10;
    let mut profile = roomy();
    // Nothing comes from the processor's cache.
    profile.memory.hot_size = Bytes(0);
    let mut model = Kernel::new(&profile);
    let mut writes = 0.0;
    for piece in 0..ALL / PIECE {
        let event = Event { ino: 9, ..write(1 + piece, piece * PIECE, PIECE) };
        writes += model.step(&event).expect("a cost").cost.as_seconds();
    }
    let calls = profile.calls.write.value.as_seconds() * (ALL / PIECE) as f64;
    for (op, ino, more) in [(Op::CopyRange, 2, calls), (Op::Sendfile, 3, calls)] {
        let copied = model.step(&copy(op, 1_000_000_000 * ino, ino, ALL)).expect("a cost");
        let expected = writes + more;
        assert!((copied.cost.as_seconds() / expected - 1.0).abs() < 1e-6, "{op:?} {copied:?} {expected}");
        assert_eq!(copied.work.copied[0], ALL as f64);
    }
    // Out of a pipe: the latter half of it.
    let spliced = model.step(&copy(Op::Splice, 10_000_000_000, 4, PIECE)).expect("a cost");
    let expected = writes * PIECE as f64 / ALL as f64;
    assert!((spliced.cost.as_seconds() / expected - 1.0).abs() < 1e-6, "{spliced:?} {expected}");
    assert_eq!(model.conservation().dirtied, Bytes(3 * ALL + PIECE));
    // What failed, and the end of the source, are calls.
    for returned in [-1, 0] {
        let event = Event { returned, ..copy(Op::CopyRange, 11_000_000_000, 5, ALL) };
        assert_eq!(model.step(&event).expect("a cost").cost, profile.calls.write.value);
    }
}

#[test]
fn a_copy_is_held_back_as_a_write_is() {
    let (mut copies, mut writes) = (Kernel::new(&profile()), Kernel::new(&profile()));
    let copied = copies.step(&copy(Op::CopyRange, 1, 1, 1 << 30)).expect("a cost");
    let written = writes.step(&write(1, 0, 1 << 30)).expect("a cost");
    let apart =
        copied.parts[Cause::Throttle].as_seconds() / written.parts[Cause::Throttle].as_seconds() - 1.0;
    assert!(apart.abs() < 0.05, "{copied:?} {written:?}");
}

#[test]
fn a_source_that_had_to_be_read_is_read_the_next_time() {
    const BYTES: u64 = 256 << 20;
    let mut profile = roomy();
    profile.device.read.value = Rate::mb_per_second(500.0);
    profile.memory.fresh.p10 = Some(profile.memory.fresh.value);
    profile.memory.fresh.p90 = Some(profile.memory.fresh.value);
    let mut model = Kernel::new(&profile);
    let reading = BYTES as f64 / profile.device.read.value.get();
    let (mut start, mut seen) = (1, Vec::new());
    // Cached, read twice, cached again, and another program whose source is cached.
    for (ino, pid, took) in
        [(1, 1, 0.1), (2, 1, reading), (3, 1, reading), (4, 1, 0.1), (5, 1, 0.1), (6, 2, 0.1)]
    {
        let event = Event { pid, ..copy(Op::CopyRange, start, ino, BYTES) };
        let end = start + (took * 1e9) as u64;
        let prediction = model.follow(&event, Time(end)).expect("a cost");
        let (low, high) = prediction.interval.expect("an interval");
        // Whichever is expected, the other is possible.
        assert!(high.as_seconds() >= 0.99 * reading && low.as_seconds() < 0.6 * reading, "{prediction:?}");
        seen.push(prediction.parts.device().as_seconds() > 0.0);
        start = end + 1;
    }
    assert_eq!(seen, [false, false, true, true, false, false]);
}

#[test]
fn blocks_that_are_shared_are_not_copied() {
    const BYTES: u64 = 256 << 20;
    let profile = roomy();
    let mut model = Kernel::new(&profile);
    let clone = Event { flags: flag::ESTIMATED, ..copy(Op::CopyRange, 1, 1, BYTES) };
    assert_eq!(model.step(&clone).expect("a cost").cost, profile.calls.write.value);
    assert_eq!(model.conservation().dirtied, Bytes::ZERO);
    // A filesystem that does so unasked is known by how long it takes.
    let mut follow = |start: u64, ino, took: u64| {
        let event = copy(Op::CopyRange, start, ino, BYTES);
        model.follow(&event, Time(start + took)).expect("a cost").cost
    };
    assert!(follow(1_000_000_000, 2, 50_000).as_seconds() > 0.01);
    assert_eq!(follow(2_000_000_000, 3, 50_000), profile.calls.write.value);
    assert_eq!(follow(3_000_000_000, 4, 300_000_000), profile.calls.write.value);
    assert!(follow(4_000_000_000, 5, 300_000_000).as_seconds() > 0.01);
    assert_eq!(model.conservation().dirtied, Bytes(2 * BYTES));
}
