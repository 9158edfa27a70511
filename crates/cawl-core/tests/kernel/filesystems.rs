//! What differs by filesystem: files in memory, logs of files, large folios, overlays.

use cawl_core::{Bytes, Cause, CostModel, Filesystem, FilesystemKind, HostProfile, Measured, Nanos};
use cawl_wire::{Event, FileKind, Op, flag};

use super::{Program, profile, range, roomy, with, write};

const DISK: u64 = 1;
const OVERLAY: u64 = 9;
const BELOW: u64 = 8;

/// A program whose files, on `DISK`, are on this filesystem; with an overlay over the device `BELOW`.
fn on(kind: &str, profile: &HostProfile) -> Program {
    let mut program = Program::on(profile);
    let mount = |dev, kind: &str, options: &str, over| Filesystem {
        dev,
        kind: kind.into(),
        options: options.into(),
        over,
        ..Filesystem::default()
    };
    program.model.meet_filesystems(&[
        mount(DISK, kind, "rw", None),
        mount(BELOW, kind, "rw", None),
        mount(OVERLAY, "overlay", "rw,upperdir=/u,workdir=/w", Some(BELOW)),
        mount(OVERLAY + 1, "overlay", "rw,upperdir=/u,workdir=/w,volatile", Some(BELOW)),
    ]);
    program
}

/// Flushes of 20 ms and commits of 41.
fn slow() -> HostProfile {
    let mut profile = profile();
    profile.device.fsync = Measured::assumed(Nanos::millis(41.0));
    profile.device.sync_call = Measured::assumed(Nanos::millis(41.0));
    profile.device.flush = Some(Measured::assumed(Nanos::millis(20.0)));
    profile
}

#[test]
fn in_memory_nothing_is_dirty_and_nothing_waits() {
    let mut program = on("tmpfs", &slow());
    // Far beyond the hard limit, over which an ext4 program is throttled.
    for chunk in 0..128 {
        let told = program.call(write(0, chunk << 20, 1 << 20)).expect("a cost");
        assert_eq!((told.dirty, told.parts.device()), (Bytes::ZERO, Nanos::ZERO));
        assert_eq!((told.parts[Cause::Throttle], told.work.dirtied), (Nanos::ZERO, 0.0));
        assert!(!told.flushing && !told.may_commit && told.parts[Cause::NewPages] > Nanos::ZERO);
    }
    for op in [Op::Fsync, Op::Fdatasync, Op::Syncfs] {
        assert_eq!(program.waits_at(op), 0.0, "{op:?}");
    }
    for flags in [flag::SYNC, flag::DSYNC, flag::DIRECT, flag::SYNC | flag::DIRECT] {
        assert_eq!(program.waits(with(flags, 0, 4096)), 0.0, "{flags:x}");
    }
    assert_eq!(program.model.conservation().dirtied, Bytes::ZERO);
    // It is all there still: advice drops nothing, and a part of a page is never read.
    program.call(range(Op::Advise, 0, 0, 4));
    let again = program.call(write(0, 0, 1 << 20)).expect("a cost");
    assert_eq!((again.parts[Cause::NewPages], again.parts[Cause::PartialPage]), (Nanos::ZERO, Nanos::ZERO));
    for flags in [0, flag::DIRECT] {
        let read = program.call(Event { op: Op::Read, flags, ..write(0, 1 << 30, 1 << 20) }).expect("a cost");
        assert_eq!(read.parts[Cause::Read], Nanos::ZERO);
    }
    let mut ext4 = on("ext4", &slow());
    let throttled = (0..128).any(|chunk| {
        let told = ext4.call(write(0, chunk << 20, 1 << 20)).expect("a cost");
        told.parts[Cause::Throttle] > Nanos::ZERO
    });
    assert!(throttled && ext4.waits_at(Op::Fsync) > 20.0);
}

#[test]
fn a_file_in_memory_is_cached_before_it_is_opened() {
    let new_pages = |kind: &str| {
        let mut program = on(kind, &roomy());
        program.call(Event { op: Op::Open, flags: flag::WRITABLE, requested: 1 << 20, ..write(0, 0, 0) });
        program.call(write(0, 0, 1 << 20)).expect("a cost").parts[Cause::NewPages]
    };
    // Space that is set aside in memory is allocated; on a disk that is left to the writes.
    let after_allocation = |kind: &str| {
        let mut program = on(kind, &roomy());
        program.call(range(Op::Allocate, 0, 1 << 20, 0));
        program.call(write(0, 0, 1 << 20)).expect("a cost").parts[Cause::NewPages]
    };
    assert_eq!(after_allocation("tmpfs"), Nanos::ZERO);
    assert!(after_allocation("ext4") > Nanos::ZERO);
    assert_eq!(new_pages("ramfs"), Nanos::ZERO);
    assert!(new_pages("xfs") > Nanos::ZERO);
}

/// The profile's filesystem counts where no trace tells which one it is.
#[test]
fn the_profile_names_the_filesystem() {
    let mut profile = slow();
    profile.device.filesystem = Some(FilesystemKind::Tmpfs);
    let mut program = Program::on(&profile);
    program.call(write(0, 0, 1 << 20));
    assert_eq!((program.waits_at(Op::Fsync), program.dirty()), (0.0, 0));
    let text = profile.to_toml();
    assert!(text.contains("filesystem = \"tmpfs\""));
    let later = text.replace("\"tmpfs\"", "\"bcachefs\"");
    assert_eq!(HostProfile::from_toml(&later).unwrap().device.filesystem, Some(FilesystemKind::Other));
}

#[test]
fn btrfs_logs_each_file_by_itself() {
    let mut program = on("btrfs", &slow());
    let near = |found: f64, ms: f64| assert!((found - ms).abs() < 1.5, "{found} ms instead of {ms}");
    let folder = |op| Event { kind: FileKind::Directory, ino: 100, ..range(op, 0, 0, 0) };
    let other = |op| Event { ino: 2, ..range(op, 0, 0, 0) };
    program.call(write(0, 0, 4096));
    program.call(Event { ino: 2, ..write(0, 0, 4096) });
    near(program.waits_at(Op::Fdatasync), 41.0);
    // The other file was not synced with it; this one has nothing left, and is not even flushed.
    near(program.waits(other(Op::Fdatasync)), 41.0);
    near(program.waits_at(Op::Fsync), 0.0);
    // What is written over goes to new blocks, within a tick of the first write's, too.
    program.call(write(0, 0, 4096));
    near(program.waits_at(Op::Fdatasync), 41.0);
    program.call(write(0, 0, 4096));
    near(program.waits_at(Op::Fdatasync), 41.0);
    // A folder is synced if a name in it has changed since the latest time.
    near(program.waits(folder(Op::Fsync)), 0.0);
    program.call(Event { op: Op::Unlink, ino: 2, aux: 0, ..write(0, 0, 0) });
    near(program.waits(folder(Op::Fsync)), 41.0);
    near(program.waits(folder(Op::Fsync)), 0.0);
    // On ext4 the first sync of any file commits all of them, and a name with them.
    let mut ext4 = on("ext4", &slow());
    ext4.call(write(0, 0, 4096));
    ext4.call(Event { op: Op::Open, flags: flag::TRUNC | flag::WRITABLE, ino: 2, ..write(0, 0, 0) });
    near(ext4.waits_at(Op::Fdatasync), 41.0);
    near(ext4.waits(folder(Op::Fsync)), 0.0);
    near(ext4.waits_at(Op::Fsync), 20.0);
}

#[test]
fn only_jbd2_makes_writers_wait_for_its_log() {
    let may_commit = |kind: &str| {
        let mut profile = roomy();
        profile.device.commit = Nanos::seconds(1.0);
        profile.device.latency = Some(Measured::assumed(Nanos::millis(50.0)));
        let mut program = on(kind, &profile);
        (0..400).any(|at| {
            program.now += 10_000_000;
            program.call(write(0, at * 4096, 4096)).expect("a cost").may_commit
        })
    };
    assert_eq!(["ext4", "xfs", "btrfs", "tmpfs"].map(may_commit), [true, false, false, false]);
}

#[test]
fn only_buffer_heads_are_walked() {
    let mut profile = roomy();
    profile.calls.block = Some(Measured::assumed(Nanos::new(10.0)));
    let passed = |kind: &str| {
        let mut program = on(kind, &profile);
        program.call(write(0, 0, 1 << 20));
        program.call(write(0, 8192, 4096)).expect("a cost").parts[Cause::LargeFolio].get()
    };
    assert!((passed("ext4") - 2550.0).abs() < 1.0, "{}", passed("ext4"));
    assert_eq!(["xfs", "btrfs", "tmpfs"].map(passed), [0.0; 3]);
}

/// 1 MiB is one folio, or 256.
#[test]
fn pages_of_btrfs_and_tmpfs_are_folios_of_their_own() {
    let mut profile = roomy();
    profile.memory.fresh = profile.memory.cached;
    profile.calls.folio = Some(Measured::assumed(Nanos::new(100.0)));
    let folios = |kind: &str| {
        let told = on(kind, &profile).call(write(0, 0, 1 << 20)).expect("a cost");
        told.parts[Cause::NewPages].get() / 100.0
    };
    assert_eq!(["ext4", "xfs", "btrfs", "tmpfs"].map(folios).map(f64::round), [1.0, 1.0, 256.0, 256.0]);
}

fn opened(dev: u64, flags: u32) -> Event {
    Event { op: Op::Open, dev, flags: flag::WRITABLE | flags, requested: 8 << 20, ..write(0, 0, 0) }
}

#[test]
fn the_first_open_for_writing_copies_up() {
    let mut program = on("ext4", &slow());
    let plain = program.call(Event { ino: 2, ..opened(OVERLAY, 0) }).expect("a cost");
    assert_eq!(plain.parts[Cause::CopyUp], Nanos::ZERO);
    let copied = program.call(opened(OVERLAY, flag::COPIED_UP)).expect("a cost");
    // 8 MiB at 500 MB/s, and a commit.
    let ms = copied.parts[Cause::CopyUp].as_seconds() * 1e3;
    assert!((58.0..80.0).contains(&ms), "{ms} ms");
    // The copy is cached and clean.
    assert_eq!((copied.dirty, copied.work.dirtied), (Bytes::ZERO, 0.0));
    let over = program.call(Event { dev: OVERLAY, ..write(0, 0, 1 << 20) }).expect("a cost");
    assert_eq!(over.parts[Cause::NewPages], Nanos::ZERO);
    assert_eq!(over.dirty, Bytes::mib(1));
    // Blocks are shared where the filesystem can; a volatile overlay waits for nothing.
    let waits = |kind: &str, dev| {
        let told = on(kind, &slow()).call(opened(dev, flag::COPIED_UP)).expect("a cost");
        told.parts[Cause::CopyUp].as_seconds() * 1e3
    };
    assert!((40.0..43.0).contains(&waits("xfs", OVERLAY)), "{}", waits("xfs", OVERLAY));
    assert!((1.0..15.0).contains(&waits("ext4", OVERLAY + 1)), "{}", waits("ext4", OVERLAY + 1));
}

#[test]
fn an_overlay_and_what_lies_below_are_one_device() {
    let mut program = on("ext4", &slow());
    program.call(Event { dev: OVERLAY, ..write(0, 0, 4 << 20) });
    program.call(Event { dev: BELOW, ino: 2, ..write(0, 0, 4 << 20) });
    assert_eq!(program.dirty(), 2048);
    // syncfs of the one writes out both.
    program.waits(Event { op: Op::Syncfs, dev: BELOW, ino: 2, ..write(0, 0, 0) });
    assert_eq!(program.dirty(), 0);
    program.call(Event { dev: OVERLAY + 1, ..write(0, 0, 4096) });
    assert_eq!(program.waits(Event { op: Op::Fsync, dev: OVERLAY + 1, ..write(0, 0, 0) }), 0.0);
    assert_eq!(program.dirty(), 1);
}

/// The same in lockstep, which predicts on a copy.
#[test]
fn lockstep_tells_the_same() {
    let mut program = on("tmpfs", &slow());
    let end = |event: &Event| cawl_core::Time(event.start + 1000);
    for event in [write(0, 0, 64 << 20), Event { op: Op::Fsync, ..write(100_000_000, 0, 0) }] {
        let told = program.model.follow(&event, end(&event)).expect("a cost");
        assert_eq!((told.parts.device(), told.dirty), (Nanos::ZERO, Bytes::ZERO));
    }
    let mut copied = on("ext4", &slow());
    let event = opened(OVERLAY, flag::COPIED_UP);
    let told = copied.model.follow(&event, end(&event)).expect("a cost");
    assert!(told.parts[Cause::CopyUp] > Nanos::millis(58.0));
}
