//! Named scenarios and what the kernel model makes of them, as text one can read, with the dirty level drawn
//! beside it.
//!
//! `CAWL_BLESS=1 cargo test -p cawl-core --test tests trajectories` writes the files anew.
#![expect(clippy::disallowed_methods, reason = "a test reads and writes its own files")]

use std::fmt::Write as _;
use std::path::Path;

use cawl_core::{Bytes, CostModel, DirtyLimits, HostProfile, Kernel, Nanos, Rate, Time};
use cawl_wire::{Event, FileKind, Op};

/// A machine with limits of 64 and 128 MiB and a device of 100 MB/s.
fn profile() -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(128) };
    profile.device.writeback.value = Rate::mb_per_second(100.0);
    profile.device.queue = Bytes::mib(16);
    profile
}

/// A tenth of a second, in ns.
const TICK: u64 = 100_000_000;

/// A run of the model that is sampled ten times a second.
struct Scene {
    model: Kernel,
    now: [u64; 2],
    sampled: u64,
    text: String,
}

impl Scene {
    fn new(profile: &HostProfile) -> Scene {
        let text = "# time_s dirty_MiB phase writers_MB/s call_ms state | a # for 4 MiB\n".to_owned();
        Scene { model: Kernel::new(profile), now: [0, 0], sampled: 0, text }
    }

    fn write(&mut self, task: usize, file: u64, mib: u64, size: u64) {
        let mut event = Event::new(Op::Write);
        (event.start, event.dev, event.ino, event.tid) = (self.now[task], 1, file, task as u32);
        (event.offset, event.returned, event.kind) = (mib << 20, (size << 20) as i64, FileKind::Regular);
        self.idle_until(event.start);
        let Some(prediction) = self.model.step(&event) else { return };
        self.now[task] = (Time(event.start) + prediction.cost).0;
        if event.start >= self.sampled {
            self.sample(
                event.start,
                &format!("{:.2} {}", prediction.cost.get() / 1e6, prediction.state.name()),
            );
        }
    }

    fn sequential(&mut self, file: u64, count: u64, think_ms: u64) {
        for chunk in 0..count {
            self.now[0] += think_ms * 1_000_000;
            self.write(0, file, chunk * 4, 4);
        }
    }

    fn idle(&mut self, seconds: f64) {
        let until = (Time(self.now[0]) + Nanos::seconds(seconds)).0;
        // What passed in the last call is over.
        self.sampled = self.sampled.max(self.now[0].next_multiple_of(TICK));
        self.idle_until(until);
        self.now = [until; 2];
    }

    /// Samples the time without writes; what passes in a call is sampled with the next one.
    fn idle_until(&mut self, until: u64) {
        while self.sampled < until && self.model.state().time.0 <= self.sampled {
            let at = self.sampled;
            self.model.advance(Time(at));
            self.sample(at, "-");
        }
        self.model.advance(Time(until));
    }

    fn sample(&mut self, at: u64, call: &str) {
        let state = self.model.state();
        let regime = format!("{:?}", state.regime).to_lowercase();
        let rate = state.throttled.map_or("-".to_owned(), |rate| format!("{:.1}", rate.get() / 1e6));
        let dirty = state.dirty.as_f64() / 1_048_576.0;
        let bar = "#".repeat((dirty / 4.0).round() as usize);
        let _ = writeln!(self.text, "{:.1} {dirty:.1} {regime} {rate} {call} | {bar}", at as f64 / 1e9);
        self.sampled = (at + 1).next_multiple_of(TICK);
    }

    /// Compares with the stored trajectory: words exactly, numbers to 2 % or 0.3; the drawing follows from
    /// them.
    fn check(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/trajectories/{name}.txt"));
        if std::env::var("CAWL_BLESS").is_ok() {
            std::fs::write(&path, &self.text).expect("the trajectory is written");
            return;
        }
        let stored = std::fs::read_to_string(&path).expect("a stored trajectory; CAWL_BLESS=1 makes one");
        assert_eq!(stored.lines().count(), self.text.lines().count(), "{name}: length\n{}", self.text);
        for (number, (old, new)) in (1..).zip(stored.lines().zip(self.text.lines())) {
            let told = |line| str::split_once(line, " | ").map_or(line, |(told, _)| told);
            let alike = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => (a - b).abs() <= 0.3 + 0.02 * a.abs(),
                _ => a == b,
            };
            let (old, new) = (told(old), told(new));
            let same = old.split(' ').count() == new.split(' ').count()
                && old.split(' ').zip(new.split(' ')).all(|(a, b)| alike(a, b));
            assert!(same, "{name}, line {number}: stored `{old}`, now `{new}`");
        }
    }
}

#[test]
fn steady_sequential() {
    let mut scene = Scene::new(&profile());
    scene.sequential(1, 150, 0);
    scene.idle(2.0);
    scene.check("steady-sequential");
}

#[test]
fn burst_and_idle() {
    let mut scene = Scene::new(&profile());
    for burst in 0..3 {
        scene.sequential(burst, 30, 0);
        scene.idle(2.0);
    }
    scene.check("burst-and-idle");
}

#[test]
fn think_time() {
    let mut scene = Scene::new(&profile());
    scene.sequential(1, 100, 30);
    scene.check("think-time");
}

#[test]
fn rewrite() {
    let mut scene = Scene::new(&profile());
    for _ in 0..20 {
        scene.sequential(1, 10, 0);
    }
    scene.idle(1.0);
    scene.check("rewrite");
}

#[test]
fn expiry_of_an_idle_file() {
    let mut profile = profile();
    profile.kernel.expire = Nanos::seconds(3.0);
    profile.kernel.wakeup = Nanos::seconds(1.0);
    let mut scene = Scene::new(&profile);
    scene.sequential(1, 5, 0);
    scene.idle(2.0);
    scene.sequential(2, 5, 0);
    scene.idle(5.0);
    scene.check("expiry-of-an-idle-file");
}

#[test]
fn two_writers() {
    let mut scene = Scene::new(&profile());
    let mut written = [0, 0];
    while scene.now[0].min(scene.now[1]) < 4_000_000_000 {
        let task = usize::from(scene.now[1] < scene.now[0]);
        scene.write(task, task as u64, written[task], 4);
        written[task] += 4;
    }
    scene.check("two-writers");
}

#[test]
fn slow_and_fast_disk() {
    for (name, rate) in [("slow-disk", 20.0), ("fast-disk", 1500.0)] {
        let mut profile = profile();
        profile.device.writeback.value = Rate::mb_per_second(rate);
        let mut scene = Scene::new(&profile);
        scene.sequential(1, 60, 0);
        scene.idle(1.0);
        scene.check(name);
    }
}

#[test]
fn threshold_lowered_while_running() {
    let mut scene = Scene::new(&profile());
    scene.sequential(1, 60, 0);
    scene.model.set_limits(DirtyLimits { background: Bytes::mib(16), hard: Bytes::mib(32) });
    scene.sequential(2, 60, 0);
    scene.check("threshold-lowered-while-running");
}

#[test]
fn file_deleted_while_dirty() {
    let mut scene = Scene::new(&profile());
    scene.sequential(1, 26, 0);
    scene.idle(0.2);
    let mut unlink = Event::new(Op::Unlink);
    (unlink.start, unlink.dev, unlink.ino, unlink.kind) = (scene.now[0], 1, 1, FileKind::Regular);
    scene.model.step(&unlink);
    scene.idle(1.0);
    scene.check("file-deleted-while-dirty");
}
