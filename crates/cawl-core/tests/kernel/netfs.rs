//! Files that are elsewhere: what each policy of the client's page cache costs, in closed form.

use super::*;
use cawl_core::{Analysis, CachePolicy, Cause, FilesystemKind, Mode, NetworkConstants, Record};
use cawl_wire::flag;

const PAGE: u64 = 4096;
const KIB: u64 = 1 << 10;
/// Bytes of the longest request.
const REQUEST: u64 = 128 * KIB;
/// Of a round trip, in seconds.
const TRIP: f64 = 150e-6;
/// Of what makes writes durable beyond the data: time stamps, and the request itself.
const SYNC: f64 = 300e-6;
/// Bytes a second: of requests one after the other, of several at a time, and read.
const WRITE: f64 = 1e9;
const FLUSH: f64 = 1.25e9;
const READ: f64 = 0.5e9;
/// Of a call, and of a byte into new and over cached pages, in seconds.
const CALL: f64 = 1e-6;
const FRESH: f64 = 1.0 / 2e9;
const CACHED: f64 = 1.0 / 8e9;
const POLICIES: [CachePolicy; 4] = CachePolicy::ALL;

fn far(policy: CachePolicy) -> HostProfile {
    let mut profile = roomy();
    let micros = |seconds: f64| Measured::assumed(Nanos::seconds(seconds));
    let rate = |rate: f64| Measured::assumed(Rate::per_second(rate));
    let device = &mut profile.device;
    device.latency = Some(micros(TRIP));
    (device.fsync, device.sync_call) = (micros(SYNC), micros(SYNC));
    device.flush = Some(micros(TRIP));
    (device.write, device.writeback, device.read) = (rate(WRITE), rate(FLUSH), rate(READ));
    let mut network = NetworkConstants::new(policy, Bytes(REQUEST));
    network.call = Some(micros(CALL));
    (network.fresh, network.cached) = (Some(rate(1.0 / FRESH)), Some(rate(1.0 / CACHED)));
    device.network = Some(network);
    profile
}

fn on(policy: CachePolicy) -> Program {
    Program::on(&far(policy))
}

impl Program {
    fn cost(&mut self, event: Event) -> f64 {
        self.call(event).expect("a cost").cost.as_seconds()
    }

    fn open(&mut self, bytes: u64) -> f64 {
        let flags = if bytes == 0 { flag::CREATED } else { 0 };
        self.cost(Event { op: Op::Open, fd: 3, requested: bytes, returned: 3, flags, ..write(0, 0, 0) })
    }

    fn close(&mut self) -> f64 {
        self.cost(Event { op: Op::Close, ..write(0, 0, 0) })
    }

    fn read(&mut self, offset: u64, bytes: u64) -> f64 {
        self.cost(Event { op: Op::Read, ..write(0, offset, bytes) })
    }
}

/// Equal to a nanosecond.
#[track_caller]
fn same(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1.5e-9, "{:.1} ns instead of {:.1}", found * 1e9, expected * 1e9);
}

/// What a call takes that is its own on this machine, besides the copy.
fn local(op: Op) -> f64 {
    let profile = far(CachePolicy::None);
    let calls = &profile.calls;
    let of = match op {
        Op::Open => calls.open,
        Op::Close => calls.close.or(calls.empty),
        Op::Read => calls.read,
        _ => None,
    };
    of.map_or(CALL, |time| time.value.as_seconds())
}

#[test]
fn without_a_cache_each_request_is_a_round_trip() {
    for policy in [CachePolicy::None, CachePolicy::ReadOnly] {
        for (bytes, requests) in
            [(512, 1.0), (PAGE, 1.0), (REQUEST, 1.0), (REQUEST + 1, 2.0), (4 << 20, 32.0)]
        {
            let cost = on(policy).cost(write(0, 0, bytes));
            same(cost, CALL + requests * TRIP + bytes as f64 / WRITE);
        }
    }
    let mut direct = on(CachePolicy::WriteBack);
    same(direct.cost(with(flag::DIRECT, 0, PAGE)), CALL + TRIP + PAGE as f64 / WRITE);
    assert_eq!(direct.dirty(), 0);
    // Past a cache, twelve requests are under way at a time.
    same(direct.cost(with(flag::DIRECT, 0, 4 << 20)), CALL + 3.0 * TRIP + (4 << 20) as f64 / WRITE);
    let mut read = on(CachePolicy::None);
    let (bytes, requests) = (1 << 20, 8.0);
    same(read.read(0, bytes), local(Op::Read) + requests * TRIP + bytes as f64 / READ);
    same(read.read(0, bytes), local(Op::Read) + requests * TRIP + bytes as f64 / READ);
}

#[test]
fn write_through_copies_and_sends() {
    let mut program = on(CachePolicy::WriteThrough);
    let sent = TRIP + PAGE as f64 / WRITE;
    same(program.cost(write(0, 0, PAGE)), CALL + PAGE as f64 * FRESH + sent);
    same(program.cost(write(0, 0, PAGE)), CALL + PAGE as f64 * CACHED + sent);
    assert_eq!(program.dirty(), 0, "it is on the server");
    // A page more than a request holds, since it begins in one and ends in another.
    let cost = program.cost(write(0, PAGE / 2, REQUEST));
    assert!(cost > 2.0 * TRIP + REQUEST as f64 / WRITE, "{cost}");
    same(program.close(), local(Op::Close) + TRIP);
}

#[test]
fn write_through_is_never_faster_than_no_cache() {
    let [mut none, mut through] = [CachePolicy::None, CachePolicy::WriteThrough].map(on);
    let mut at = 0;
    for round in 0..3 {
        for bytes in [1, 511, 512, 4095, 4096, 4097, 65_536, REQUEST - 1, REQUEST, REQUEST + 1, 4 << 20] {
            let event = write(0, if round == 2 { 0 } else { at }, bytes);
            let (without, with) = (none.cost(event), through.cost(event));
            assert!(with >= without, "{bytes} bytes: {with} s with, {without} s without");
            at += bytes;
        }
    }
}

#[test]
fn write_back_costs_the_copy_and_close_the_rest() {
    let mut program = on(CachePolicy::WriteBack);
    for call in 0..64 {
        same(program.cost(write(0, call * PAGE, PAGE)), CALL + PAGE as f64 * FRESH);
    }
    assert_eq!(program.dirty(), 64);
    let sent = TRIP + (64 * PAGE) as f64 / FLUSH;
    // What makes it durable takes a round trip, and closing another one.
    same(program.close(), local(Op::Close) + sent + 2.0 * TRIP);
    assert_eq!(program.dirty(), 0);
    same(program.close(), local(Op::Close) + TRIP);
    // Then it is over cached pages, and fsync sends it.
    same(program.cost(write(0, 0, PAGE)), CALL + PAGE as f64 * CACHED);
    let sync = program.cost(Event { op: Op::Fsync, ..write(0, 0, 0) });
    same(sync, CALL + TRIP + PAGE as f64 / FLUSH + SYNC);
    let again = program.cost(Event { op: Op::Fsync, ..write(0, 0, 0) });
    same(again, CALL + TRIP);
    let synchronous = program.cost(with(flag::DSYNC, 0, PAGE));
    same(synchronous, CALL + PAGE as f64 * CACHED + TRIP + PAGE as f64 / FLUSH + SYNC);
}

/// The client keeps the time of a file that it caches, also if it was written past the cache.
#[test]
fn what_was_written_past_the_cache_has_a_time_to_tell() {
    for (policy, commit) in [(CachePolicy::WriteBack, TRIP), (CachePolicy::WriteThrough, 0.0)] {
        let mut profile = far(policy);
        profile.device.filesystem = Some(FilesystemKind::Fuse);
        let mut program = Program::on(&profile);
        program.cost(with(flag::DIRECT, 0, PAGE));
        same(program.close(), local(Op::Close) + TRIP + commit);
        same(program.close(), local(Op::Close) + TRIP);
    }
}

#[test]
fn close_need_not_flush() {
    let mut profile = far(CachePolicy::WriteBack);
    profile.device.network.as_mut().expect("a network").close_flushes = false;
    let mut program = Program::on(&profile);
    program.cost(write(0, 0, PAGE));
    same(program.close(), local(Op::Close) + TRIP);
    assert_eq!(program.dirty(), 1);
}

/// Round trips of scattered pages overlap as far as requests are under way together.
#[test]
fn scattered_pages_take_a_request_each() {
    let mut program = on(CachePolicy::WriteBack);
    for call in 0..25 {
        program.cost(write(0, call * 2 * PAGE, PAGE));
    }
    let sent = TRIP + (25 * PAGE) as f64 / FLUSH + 24.0 / 12.0 * TRIP;
    same(program.close(), local(Op::Close) + sent + 2.0 * TRIP);
}

#[test]
fn a_page_written_in_part_is_read_first() {
    let partial = TRIP + PAGE as f64 / READ;
    let mut program = on(CachePolicy::WriteBack);
    program.open(100 * PAGE);
    let found = program.call(write(0, 10 * PAGE + 5, 10)).expect("a cost");
    same(found.parts[Cause::PartialPage].as_seconds(), partial);
    let of = |program: &mut Program, event| program.call(event).expect("a cost").parts[Cause::PartialPage];
    assert_eq!(of(&mut program, write(0, 10 * PAGE + 20, 10)), Nanos::ZERO, "it is cached now");
    assert_eq!(of(&mut program, write(0, 20 * PAGE, PAGE)), Nanos::ZERO, "a whole page");
    assert_eq!(of(&mut program, write(0, 100 * PAGE, 10)), Nanos::ZERO, "behind the end");
    same(of(&mut program, write(0, 30 * PAGE + 1, 2 * PAGE)).as_seconds(), 2.0 * partial);
    // One that keeps which bytes are dirty reads nothing.
    let mut profile = far(CachePolicy::WriteBack);
    profile.device.network.as_mut().expect("a network").reads_partial = false;
    let mut program = Program::on(&profile);
    program.open(100 * PAGE);
    assert_eq!(of(&mut program, write(0, 10 * PAGE + 5, 10)), Nanos::ZERO);
}

#[test]
fn open_asks_the_server_and_drops_what_is_clean() {
    for open_keeps in [false, true] {
        let mut profile = far(CachePolicy::WriteThrough);
        profile.device.network.as_mut().expect("a network").open_keeps = open_keeps;
        let mut program = Program::on(&profile);
        same(program.open(0), local(Op::Open) + 2.0 * TRIP);
        let sent = CALL + TRIP + PAGE as f64 / WRITE;
        same(program.cost(write(0, 0, PAGE)), sent + PAGE as f64 * FRESH);
        same(program.open(PAGE), local(Op::Open) + TRIP);
        let cut = Event { op: Op::Open, fd: 4, returned: 4, ino: 2, ..with(flag::TRUNC, 0, 0) };
        same(program.cost(cut), local(Op::Open) + 2.0 * TRIP);
        let cached = if open_keeps { CACHED } else { FRESH };
        same(program.cost(write(0, 0, PAGE)), sent + PAGE as f64 * cached);
    }
}

#[test]
fn names_and_lengths_are_changed_at_the_server() {
    let is = |op, aux| Event { op, aux, ..write(0, 0, 0) };
    for policy in POLICIES {
        let mut program = on(policy);
        program.cost(write(0, 0, 2 * PAGE));
        program.close();
        same(program.cost(is(Op::Truncate, 0)), TRIP);
        same(program.cost(is(Op::Unlink, 1)), TRIP);
        same(program.cost(is(Op::Rename, 0)), TRIP);
        let failed = Event { errno: 2, returned: -1, ..is(Op::Unlink, 0) };
        assert_eq!(program.call(failed), None, "how long that takes says nothing");
        program.cost(write(0, 0, PAGE));
        same(program.cost(is(Op::Unlink, 0)), TRIP);
        assert_eq!(program.dirty(), 0, "what nobody can read is not sent");
    }
    let mut profile = far(CachePolicy::None);
    let micros = |micros: f64| Some(Measured::assumed(Nanos::new(micros * 1e3)));
    let network = profile.device.network.as_mut().expect("a network");
    (network.unlink, network.rename, network.truncate) = (micros(20.0), micros(30.0), micros(40.0));
    let mut program = Program::on(&profile);
    for (op, cost) in [(Op::Unlink, 20e-6), (Op::Rename, 30e-6), (Op::Truncate, 40e-6)] {
        same(program.cost(is(op, 0)), cost);
    }
}

/// Each page that open, truncate and unlink take out of the cache takes time.
#[test]
fn dropping_pages_takes_time() {
    const DROP: f64 = 0.4e-6;
    let mut profile = far(CachePolicy::WriteThrough);
    let network = profile.device.network.as_mut().expect("a network");
    network.drop_page = Some(Measured::assumed(Nanos::seconds(DROP)));
    let mut program = Program::on(&profile);
    program.cost(write(0, 0, 16 * PAGE));
    same(program.open(16 * PAGE), local(Op::Open) + TRIP + 16.0 * DROP);
    same(program.open(16 * PAGE), local(Op::Open) + TRIP);
    program.cost(write(0, 0, 16 * PAGE));
    same(program.cost(Event { op: Op::Truncate, ..write(0, 4 * PAGE, 0) }), TRIP + 12.0 * DROP);
    same(program.cost(Event { op: Op::Unlink, ..write(0, 0, 0) }), TRIP + 4.0 * DROP);
}

/// FUSE writes pages alone before it drops them, when a file is opened again or gets another length; NFS
/// sends them together before that.
#[test]
fn dirty_pages_are_sent_before_they_are_dropped() {
    for filesystem in [FilesystemKind::Fuse, FilesystemKind::Nfs] {
        let mut profile = far(CachePolicy::WriteBack);
        profile.device.filesystem = Some(filesystem);
        let mut program = Program::on(&profile);
        let dirtied = |program: &mut Program| {
            for call in 0..16 {
                program.cost(write(0, call * PAGE, PAGE));
            }
        };
        let sent = |pages: u64| match filesystem {
            FilesystemKind::Fuse => pages as f64 * (TRIP + PAGE as f64 / WRITE),
            _ => TRIP + (pages * PAGE) as f64 / FLUSH,
        };
        dirtied(&mut program);
        same(program.open(16 * PAGE), local(Op::Open) + TRIP + sent(16));
        dirtied(&mut program);
        let cut = Event { op: Op::Truncate, ..write(0, 4 * PAGE, 0) };
        // All of it is sent before the cut, what is left after it.
        let pages = if filesystem == FilesystemKind::Fuse { 4 } else { 16 };
        same(program.cost(cut), TRIP + sent(pages));
        assert_eq!(program.dirty(), 0);
        same(program.cost(cut), TRIP);
    }
}

/// A page that is not cached comes from the server, and then it is; what was read is gone with the next open.
#[test]
fn reads_wait_for_the_server_once() {
    let mut program = on(CachePolicy::WriteBack);
    program.open(64 * PAGE);
    let wait = |program: &mut Program| {
        let read = Event { op: Op::Pread, fd: 3, ..write(0, 60 * PAGE, PAGE) };
        program.call(read).expect("a cost").parts[Cause::Read].as_seconds()
    };
    same(wait(&mut program), TRIP + PAGE as f64 / READ);
    same(wait(&mut program), 0.0);
    program.close();
    program.open(64 * PAGE);
    same(wait(&mut program), TRIP + PAGE as f64 / READ);
}

/// Calls on names have a row in the report, there and on a disk.
#[test]
fn names_are_reported() {
    for profile in [far(CachePolicy::None), roomy()] {
        let mut analysis = Analysis::new(&profile, &["kernel".to_owned()], Mode::Lockstep).expect("a model");
        for (at, op) in [Op::Open, Op::Write, Op::Close, Op::Unlink].into_iter().enumerate() {
            let bytes = if op == Op::Write { PAGE } else { 0 };
            let start = at as u64 * 1_000_000;
            let _ = analysis.take(&Record::Event(Event { op, duration: 200_000, ..write(start, 0, bytes) }));
        }
        let report = analysis.report();
        let rows = report.files[0].ops.iter().filter(|row| row.op == "unlink");
        assert_eq!(rows.map(|row| row.calls).sum::<u64>(), 1);
        assert_eq!(report.models[0].calls, 4);
        assert_eq!(report.unmodelled.len(), 0);
    }
}

/// DVS: the call that completes a row of the optimal number of pages sends it.
#[test]
fn long_rows_are_pushed_by_the_call_that_completes_them() {
    let mut profile = far(CachePolicy::WriteBack);
    profile.device.network.as_mut().expect("a network").push = Some(Bytes(16 * PAGE));
    let mut program = Program::on(&profile);
    for call in 0..64 {
        let cost = program.cost(write(0, call * PAGE, PAGE));
        let sent = if call % 16 == 15 { TRIP + (16 * PAGE) as f64 / FLUSH } else { 0.0 };
        same(cost, CALL + PAGE as f64 * FRESH + sent);
        assert_eq!(program.dirty(), (call + 1) % 16);
    }
}

/// The bounds of a FUSE mount: a hundredth of the limits, whatever the rest of the machine has to write.
#[test]
fn a_strict_share_holds_writers_back() {
    let paused = |strict: bool| {
        let mut profile = far(CachePolicy::WriteBack);
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(512), hard: Bytes::mib(1024) };
        (profile.device.max_ratio, profile.device.strict_limit) = (0.01, strict);
        let mut program = Program::on(&profile);
        let mut paused = 0.0;
        for call in 0..256 {
            let event = write(0, call * 256 * KIB, 256 * KIB);
            paused += program.call(event).expect("a cost").parts[Cause::Throttle].as_seconds();
        }
        (paused, program.dirty() * PAGE)
    };
    let (alone, _) = paused(false);
    let (held, dirty) = paused(true);
    assert_eq!(alone, 0.0, "64 MiB are far below the machine's limits");
    assert!(held > 0.0 && dirty <= 11 << 20, "{held} s, {dirty} bytes dirty");
}

/// The ratio of Hicks' Figures 1 and 2 at small sizes: (m + L + s/B) / (m + s/p) when the flusher sends
/// what is written, and each policy's place.
#[test]
fn write_back_gains_most_at_small_sizes() {
    let time = |policy: CachePolicy, bytes: u64| {
        let mut program = on(policy);
        let mut at = 0;
        (0..(4 << 20) / bytes)
            .map(|_| {
                at += bytes;
                program.cost(write(0, at - bytes, bytes))
            })
            .sum::<f64>()
    };
    let gains = [PAGE, 64 * KIB, 512 * KIB, 4 << 20].map(|bytes| {
        let [none, read_only, through, back] = POLICIES.map(|policy| time(policy, bytes));
        assert!(back < none && none <= through && read_only == none, "{bytes} bytes");
        none / back
    });
    assert!(gains.is_sorted_by(|small, large| small > large), "{gains:?}");
    let (bytes, fresh) = (PAGE as f64, PAGE as f64 * FRESH);
    assert!((gains[0] / ((CALL + TRIP + bytes / WRITE) / (CALL + fresh)) - 1.0).abs() < 1e-3, "{gains:?}");
}

/// Other devices of the machine, and this one's calls on them, are as they were.
#[test]
fn a_device_of_this_machine_is_not_touched() {
    let mut both = roomy();
    both.others = vec![cawl_core::OtherDevice { dev: 2, constants: far(CachePolicy::None).device }];
    let (mut alone, mut beside) = (Program::on(&roomy()), Program::on(&both));
    for call in 0..100 {
        let here = write(0, call * PAGE, PAGE);
        beside.call(Event { dev: 2, ..here });
        beside.now = alone.now;
        assert_eq!(alone.call(here).map(|p| p.parts), beside.call(here).map(|p| p.parts));
    }
}
