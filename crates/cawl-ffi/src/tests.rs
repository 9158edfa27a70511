use cawl_model::{Bytes, DirtyLimits, MODELS, ModelState, Prediction, Rate};

use super::*;
use crate::cost::cawl_state::*;
use crate::status::cawl_status;

const TASK: cawl_task = cawl_task { process: 1, thread: 2 };
const FILE: cawl_file = cawl_file { device: 1, inode: 42 };

fn profile() -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(128) };
    profile.device.writeback.value = Rate::mb_per_second(100.0);
    profile
}

fn machine(model: &str) -> cawl_machine {
    cawl_machine::new(&profile(), model).unwrap()
}

fn status<T>(outcome: Outcome<T>) -> cawl_status {
    outcome.map_or_else(|failure| failure.status, |_| CAWL_OK)
}

/// A call that succeeds, and its cost.
fn cost<T>(call: impl FnOnce(&mut cawl_cost) -> Outcome<T>) -> (cawl_cost, T) {
    let mut cost = cawl_cost::default();
    let answer = call(&mut cost).unwrap();
    (cost, answer)
}

fn open(machine: &mut cawl_machine, how: u32) -> i32 {
    cost(|cost| machine.open(TASK, FILE, how, 0, cost)).1
}

/// The same calls to the model itself, and through the machine: equal bit by bit, so nothing counts twice.
#[test]
fn costs_are_those_of_the_model() {
    for model in MODELS {
        let mut own = build(model, &profile()).unwrap();
        let mut expect = |event: &Event| {
            let mut cost = cawl_cost::default();
            cost.fill(own.step(event).as_ref(), event.start, event.returned as u64);
            (cost, own.state())
        };
        let mut machine = machine(model);
        let mut event = cawl_machine::event(Op::Open, TASK, FileId { birth: 1, ..FileId::new(1, 42) });
        (event.fd, event.flags) = (0, flag::WRITABLE | flag::CREATED);
        let opened = cost(|cost| machine.open(TASK, FILE, CAWL_WRITE | CAWL_CREATE, 0, cost));
        assert_eq!(opened, (expect(&event).0, 0));
        (event.op, event.flags, event.offset) = (Op::Write, flag::WRITABLE, 0);
        (event.requested, event.returned) = (4 << 20, 4 << 20);
        for _ in 0..100 {
            let (made, ()) =
                cost(|cost| machine.write(Op::Write, (TASK, 0), 4 << 20, None, event.start, cost));
            assert_eq!((made, machine.model.state()), expect(&event));
            event.start = made.end_ns;
            event.offset += 4 << 20;
        }
        assert_eq!(machine.fork().unwrap().model.state(), machine.model.state());
    }
}

#[test]
fn positions_and_lengths_are_kept() {
    let mut machine = machine("kernel");
    let machine = &mut machine;
    let read = |machine: &mut cawl_machine, fd, bytes, at| {
        cost(|cost| machine.read((TASK, fd), bytes, at, 0, cost)).0.bytes
    };
    let write = |machine: &mut cawl_machine, fd, bytes, at| {
        cost(|cost| machine.write(Op::Write, (TASK, fd), bytes, at, 0, cost)).0.bytes
    };
    let fd = open(machine, CAWL_READ | CAWL_WRITE | CAWL_CREATE);
    assert_eq!((write(machine, fd, 100, None), write(machine, fd, 100, Some(900))), (100, 100));
    assert_eq!((read(machine, fd, 5000, None), read(machine, fd, 5000, None)), (900, 0));
    assert_eq!(read(machine, fd, 50, Some(970)), 30);
    machine.seek(fd, 10).unwrap();
    assert_eq!(read(machine, fd, 50, None), 50);
    let other = open(machine, CAWL_WRITE | CAWL_APPEND);
    write(machine, other, 24, Some(0));
    assert_eq!(read(machine, fd, 5000, Some(1000)), 24);
    let mut unused = cawl_cost::default();
    assert_eq!(status(machine.read((TASK, other), 1, None, 0, &mut unused)), CAWL_ERROR_ACCESS);
    // Without a name the file lives on as long as it is open; the same numbers are another file then.
    cost(|cost| machine.truncate(TASK, FILE, 8, 0, cost));
    cost(|cost| machine.unlink(TASK, FILE, 0, cost));
    assert_eq!(status(machine.unlink(TASK, FILE, 0, &mut unused)), CAWL_ERROR_NO_FILE);
    assert_eq!(read(machine, fd, 50, Some(0)), 8);
    let new = open(machine, CAWL_READ | CAWL_WRITE | CAWL_CREATE);
    assert_eq!(read(machine, new, 50, None), 0);
    for fd in [fd, other, new] {
        cost(|cost| machine.close(TASK, fd, 0, cost));
    }
    assert_eq!((machine.nodes.len(), &machine.free_nodes[..]), (2, &[0][..]));
    assert_eq!(status(machine.close(TASK, new, 0, &mut unused)), CAWL_ERROR_DESCRIPTOR);
}

/// As programs put a file in the place of another: the file stays what it is, the other one goes.
#[test]
fn a_renamed_file_takes_the_place_of_another() {
    let mut machine = machine("kernel");
    let [old, elsewhere] = [(1, 43), (2, 1)].map(|(device, inode)| cawl_file { device, inode });
    machine.add_file(old, 10_000_000, true).unwrap();
    machine.add_file(elsewhere, 1, true).unwrap();
    let fd = open(&mut machine, CAWL_WRITE | CAWL_CREATE);
    cost(|cost| machine.write(Op::Write, (TASK, fd), 1 << 20, None, 0, cost));
    cost(|cost| machine.close(TASK, fd, 0, cost));
    let unused = &mut cawl_cost::default();
    assert_eq!(status(machine.rename(TASK, FILE, Some(elsewhere), 0, unused)), CAWL_ERROR_VALUE);
    let plain = cost(|cost| machine.rename(TASK, FILE, None, 0, cost)).0;
    assert_eq!(cost(|cost| machine.rename(TASK, FILE, Some(FILE), 0, cost)).0.dirty_bytes, 1 << 20);
    let replacing = cost(|cost| machine.rename(TASK, FILE, Some(old), 0, cost)).0;
    // It frees what the other one had.
    assert!(replacing.cost_ns > 2.0 * plain.cost_ns && plain.cost_ns > 0.0, "{replacing:?} {plain:?}");
    assert_eq!(status(machine.rename(TASK, old, None, 0, unused)), CAWL_ERROR_NO_FILE);
    let fd = open(&mut machine, CAWL_READ);
    assert_eq!(cost(|cost| machine.read((TASK, fd), 5 << 20, None, 0, cost)).0.bytes, 1 << 20);
}

/// Writers are held to new limits, and one that was lowered comes down slowly (`update_dirty_limit`).
#[test]
fn limits_change_while_writers_write() {
    let held_back = |before: u64, after: [u64; 2]| {
        let mut profile = profile();
        profile.kernel.limits.hard = Bytes::mib(before);
        let mut machine = cawl_machine::new(&profile, "kernel").unwrap();
        let fd = open(&mut machine, CAWL_WRITE | CAWL_CREATE);
        machine.set_limits(after[0] << 20, after[1] << 20).unwrap();
        let mut made = cawl_cost::default();
        for _ in 0..300 {
            let (now, on) = (made.end_ns, (TASK, fd));
            made = cost(|cost| machine.write(Op::Write, on, 1 << 20, None, now, cost)).0;
        }
        made.end_ns as f64 / 1e9
    };
    let [high, low, lowered] =
        [held_back(128, [512, 1024]), held_back(128, [64, 128]), held_back(1024, [64, 128])];
    assert!(high < 0.3 && low > 1.5 && low - 0.3 > lowered && lowered > high + 0.3, "{high} {low} {lowered}");
    let mut machine = machine("kernel");
    for (background, hard) in [(0, 0), (1, 1), (2, 1)] {
        assert_eq!(status(machine.set_limits(background, hard)), CAWL_ERROR_VALUE);
    }
}

#[test]
fn streams_buffer_and_belong_to_their_process() {
    let mut machine = machine("kernel");
    let fd = open(&mut machine, CAWL_WRITE | CAWL_CREATE | CAWL_STREAM);
    let on = (TASK, fd);
    // The first call makes the buffer.
    cost(|cost| machine.write(Op::StreamWrite, on, 5000, None, 0, cost));
    let (made, ()) = cost(|cost| machine.write(Op::StreamWrite, on, 100, None, 0, cost));
    assert_eq!((made.state, made.dirty_bytes), (CAWL_STATE_BUFFERED as u32, 4096));
    assert_eq!(cost(|cost| machine.flush(Op::StreamFlush, on, 0, cost)).0.dirty_bytes, 8192);
    let mut unused = cawl_cost::default();
    assert_eq!(status(machine.write(Op::Write, on, 1, None, 0, &mut unused)), CAWL_ERROR_ACCESS);
    let stranger = cawl_task { process: 3, ..TASK };
    assert_eq!(status(machine.flush(Op::StreamFlush, (stranger, fd), 0, &mut unused)), CAWL_ERROR_DESCRIPTOR);
    assert_eq!(cost(|cost| machine.flush(Op::Fsync, on, 0, cost)).0.state, CAWL_STATE_SYNC as u32);
    cost(|cost| machine.close(TASK, fd, 0, cost));
}

#[test]
fn what_was_there_before_is_cached_or_read_from_the_device() {
    for (cached, state) in [(true, CAWL_STATE_FREE), (false, CAWL_STATE_READ)] {
        let mut machine = machine("kernel");
        machine.add_file(FILE, 10_000_000, cached).unwrap();
        assert_eq!(status(machine.add_file(FILE, 1, cached)), CAWL_ERROR_EXISTS);
        let fd = open(&mut machine, CAWL_READ);
        let (made, ()) = cost(|cost| machine.read((TASK, fd), 20_000_000, None, 0, cost));
        assert_eq!((made.bytes, made.state), (10_000_000, state as u32));
    }
}

#[test]
fn time_does_not_go_back_and_failed_calls_change_nothing() {
    let mut machine = machine("kernel");
    let unused = &mut cawl_cost::default();
    let (_, fd) = cost(|cost| machine.open(TASK, FILE, CAWL_WRITE | CAWL_CREATE, 10, cost));
    let state = machine.model.state();
    let on = (TASK, fd);
    assert_eq!(status(machine.write(Op::Write, on, 1, None, 9, unused)), CAWL_ERROR_TIME);
    assert_eq!(status(machine.open(TASK, FILE, CAWL_WRITE | CAWL_TRUNCATE, 9, unused)), CAWL_ERROR_TIME);
    assert_eq!(status(machine.write(Op::Write, on, 1 << 63, None, 10, unused)), CAWL_ERROR_VALUE);
    assert_eq!(status(machine.write(Op::Pwrite, on, 1, Some(i64::MAX as u64), 10, unused)), CAWL_ERROR_VALUE);
    for how in [0, CAWL_CREATE, CAWL_READ | CAWL_TRUNCATE, CAWL_READ | CAWL_STREAM, 512 | CAWL_READ, u32::MAX]
    {
        assert_eq!(status(machine.open(TASK, FILE, how, 10, unused)), CAWL_ERROR_VALUE, "{how}");
    }
    assert_eq!((machine.model.state(), machine.nodes[0].size), (state, 0));
    machine.advance(20).unwrap();
    assert_eq!((status(machine.advance(0)), machine.latest), (CAWL_OK, 20));
    assert_eq!(status(cawl_machine::new(&profile(), "kernal")), CAWL_ERROR_MODEL);
}

/// Calls of any numbers at any times: a code, no panic, and no long work.
#[test]
fn no_call_is_a_fault() {
    const SIZES: [u64; 9] = [0, 1, 4096, 5000, 1 << 20, 1 << 31, MAX_BYTES as u64, 1 << 63, u64::MAX];
    const HOW: u32 = CAWL_READ | CAWL_WRITE | CAWL_CREATE;
    for (seed, model) in (0..10).flat_map(|seed| MODELS.iter().map(move |model| (seed, model))) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut machine = machine(model);
        let mut now = 0u64;
        for _ in 0..300 {
            let task = cawl_task { process: random.u32(0..2), thread: random.u32(..) };
            let file = cawl_file { device: random.u64(0..3), inode: random.u64(0..4) };
            let other =
                random.bool().then(|| cawl_file { device: random.u64(0..3), inode: random.u64(0..4) });
            let (size, place) = (random.choice(SIZES).unwrap(), random.choice(SIZES).unwrap());
            let on = (task, random.i32(-1..8));
            let write = random.choice([Op::Write, Op::StreamWrite]).unwrap();
            let flush = random.choice([Op::Fsync, Op::Fdatasync, Op::StreamFlush]).unwrap();
            let mut cost = cawl_cost::default();
            let ended = match random.u8(0..14) {
                0 => machine.open(task, file, HOW | random.u32(0..512), now, &mut cost).map(drop),
                1 | 2 => machine.write(write, on, size, None, now, &mut cost),
                3 => machine.write(Op::Pwrite, on, size, Some(place), now, &mut cost),
                4 => machine.read(on, size, None, now, &mut cost),
                5 => machine.read(on, size, Some(place), now, &mut cost),
                6 => machine.flush(flush, on, now, &mut cost),
                7 => machine.truncate(task, file, size, now, &mut cost),
                8 => machine.unlink(task, file, now, &mut cost),
                9 => machine.close(task, on.1, now, &mut cost),
                10 => machine.seek(on.1, place),
                11 => machine.rename(task, file, other, now, &mut cost),
                12 => machine.set_limits(size, place),
                _ => machine.add_file(file, size, size % 2 == 0),
            };
            assert!(cost.cost_ns.is_finite() && status(ended) != CAWL_ERROR_INTERNAL);
            let steps = [0, 1, 1_000_000, 1 << 40, 1 << 60];
            now = now.saturating_add(random.choice(steps).unwrap() / (1 + random.u64(0..9)));
        }
        machine.advance(u64::MAX).unwrap();
    }
}

/// A model that fails.
struct Faulty;

impl CostModel for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn step(&mut self, _: &Event) -> Option<Prediction> {
        panic!("a fault")
    }

    fn follow(&mut self, _: &Event, _: Time) -> Option<Prediction> {
        None
    }

    fn advance(&mut self, _: Time) {}

    fn set_limits(&mut self, _: DirtyLimits) {}

    fn recalibrate(&mut self, _: &HostProfile) {}

    fn state(&self) -> ModelState {
        machine("naive").model.state()
    }

    fn fork(&self) -> Box<dyn CostModel> {
        Box::new(Faulty)
    }
}

#[test]
fn a_machine_whose_model_panicked_answers_nothing_more() {
    let mut machine = cawl_machine::of(Box::new(Faulty), 4096);
    let unused = &mut cawl_cost::default();
    let open = || machine.open(TASK, FILE, CAWL_WRITE | CAWL_CREATE, 0, unused).map(drop);
    assert_eq!(crate::status::guarded(open), CAWL_ERROR_INTERNAL);
    assert_eq!(status(machine.advance(1)), CAWL_ERROR_INTERNAL);
    assert_eq!(status(machine.fork()), CAWL_ERROR_INTERNAL);
    assert_eq!(status(machine.truncate(TASK, FILE, 0, 0, unused)), CAWL_ERROR_INTERNAL);
}
