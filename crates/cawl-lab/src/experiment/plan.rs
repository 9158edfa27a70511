//! The runs of each figure, in sizes that fit the machine.
//!
//! The law: **sizes follow the dirty limits.** A run through the page cache writes a multiple of the hard
//! limit, so that on any machine it begins free, meets the flusher and ends throttled. Think times are parts
//! of the device's time for a call: with the short one the dirty level rises, with the long one it does not.

use cawl_core::{Bytes, HostProfile, Nanos};
use clap::ValueEnum;

use super::record::Scenario;
use crate::args::Experiment;

/// The name of an experiment, which is that of its figure, the figure's title, and the runs.
type Facts = (&'static str, &'static str, fn(&Sizes) -> Vec<Panel>);

impl Experiment {
    /// The named experiments in the paper's order, each once; `all` means the figures.
    pub fn resolve(asked: &[Experiment]) -> Vec<Experiment> {
        let all = asked.contains(&Experiment::All);
        let is_wanted = |one: &Experiment| match one {
            Experiment::All => false,
            Experiment::Suite => asked.contains(one),
            _ => all || asked.contains(one),
        };
        Experiment::value_variants().iter().copied().filter(is_wanted).collect()
    }

    const fn facts(self) -> Facts {
        match self {
            Experiment::Fig4 => ("fig4", "Synchronous direct writes (O_DIRECT, O_SYNC)", fig4),
            Experiment::Fig5 => ("fig5", "Synchronous writes through the page cache (O_SYNC)", fig5),
            Experiment::Fig6 => ("fig6", "Sequential writes, without and with computation", fig6),
            Experiment::Fig7 => ("fig7", "Random writes: part of each chunk rewritten", fig7),
            Experiment::Fig8 => ("fig8", "Writes through the C library's streams", fig8),
            Experiment::Fig9 => ("fig9", "The stream's buffer: small chunks", fig9),
            Experiment::Suite => ("suite", "Runs to derive and judge profiles with", suite),
            Experiment::All => ("all", "All figures", |_| Vec::new()),
        }
    }

    /// The name of the experiment and of its figure.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// The title of its figure.
    pub const fn title(self) -> &'static str {
        self.facts().1
    }

    pub fn panels(self, sizes: &Sizes) -> Vec<Panel> {
        (self.facts().2)(sizes)
    }
}

/// The horizontal axis of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Calls in their order.
    Call,
    /// Bytes per call.
    Size,
}

/// A run and how it is shown.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub scenario: Scenario,
    pub axis: Axis,
    /// Calls to draw, from the first; None for all.
    pub first: Option<usize>,
    /// True if the dirty level is drawn too.
    pub dirty: bool,
    /// True if the onset of flushing and throttling is marked.
    pub starts: bool,
}

/// Sizes that fit a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// The hard limit.
    hard: u64,
    /// Bytes of a run through the page cache, in multiples of the hard limit.
    limits: f64,
    /// Factor for the numbers of calls.
    scale: f64,
    /// The paper's smallest chunk, 1 KiB, if the device takes it.
    small: u64,
    /// The device's time per byte, in ns.
    per_byte: f64,
    /// Time per byte and fixed cost of a synchronous call, in ns.
    synchronous: (f64, f64),
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Sizes {
    /// The sizes for a machine with this profile and logical block size; `scale` multiplies the bytes
    /// written.
    pub fn new(profile: &HostProfile, block: Option<Bytes>, scale: f64) -> Sizes {
        Sizes {
            // In whole MiB, since chunks are parts of it in whole pages.
            hard: (profile.kernel.limits.hard.0 / MIB).max(16) * MIB,
            limits: 4.0 * scale,
            scale,
            small: block.map_or(0, |block| block.0).max(KIB),
            per_byte: 1e9 / profile.device.writeback.value.get(),
            synchronous: (1e9 / profile.device.write.value.get(), profile.device.sync_call.value.get()),
        }
    }

    /// A chunk written in one call: the hard limit divided by `part`.
    fn chunk(&self, part: u64) -> u64 {
        (self.hard / part / (64 * KIB)).max(1) * 64 * KIB
    }

    /// The bytes of a run, in whole chunks.
    fn total(&self, chunk: u64) -> u64 {
        let count = (self.hard as f64 * self.limits / chunk as f64).round();
        (count as u64).max(4) * chunk
    }

    fn count(&self, calls: u64) -> u64 {
        ((calls as f64 * self.scale).round() as u64).max(8)
    }

    /// Factor for the number of calls, so that they take about a second, at most 16: a fast device finishes a
    /// few calls before the machine has reached its steady state.
    fn times(&self, calls: u64, bytes: u64) -> u64 {
        let (per_byte, per_call) = self.synchronous;
        let once = calls as f64 * (per_call + per_byte * bytes as f64);
        ((1e9 / once).round() as u64).clamp(1, 16)
    }

    /// A think time: a part of the device's time for a chunk, in whole milliseconds.
    fn think(&self, chunk: u64, part: f64) -> Nanos {
        Nanos::millis((self.per_byte * chunk as f64 * part / 1e6).round().clamp(1.0, 5000.0))
    }
}

/// Think time over the device's time for a chunk: the dirty level rises with SHORT, and does not with LONG.
const SHORT: f64 = 0.6;
const LONG: f64 = 1.4;

/// The arguments of a run.
#[derive(Clone, Debug, Default)]
struct WorkloadArgs {
    name: String,
    chunk: u64,
    step: u64,
    total: u64,
    flags: &'static str,
    back: f64,
    think: Option<Nanos>,
    stream: bool,
    fsync: bool,
    random: bool,
    env: String,
}

impl WorkloadArgs {
    fn scenario(&self) -> Scenario {
        let mut args = format!("-c {} -t {}", self.chunk, self.total);
        let mut add = |wanted: bool, text: &str| {
            if wanted {
                args += text;
            }
        };
        add(!self.flags.is_empty(), &format!(" -f {}", self.flags));
        add(self.back > 0.0, &format!(" -b {}", self.back));
        add(self.think.is_some(), &format!(" -d {}", self.think.unwrap_or(Nanos::ZERO).as_seconds()));
        add(self.stream, " -l");
        add(self.fsync, " -s");
        add(self.random, " -r");
        let mut env = self.env.clone();
        if self.step > 0 {
            env = format!("STEP={}", self.step);
        }
        let length = Bytes((self.total as f64 * (1.0 - self.back)) as u64 + self.chunk);
        Scenario { name: self.name.clone(), args, env, length }
    }

    /// A panel of calls in their order.
    fn series(&self, title: String) -> Panel {
        let dirty = self.flags.is_empty();
        Panel { title, scenario: self.scenario(), axis: Axis::Call, first: None, dirty, starts: false }
    }

    /// A panel of calls by size.
    fn range(&self, title: String) -> Panel {
        Panel { axis: Axis::Size, ..self.series(title) }
    }
}

/// `count` sizes from `from` on, in equal steps.
fn stepped(name: &str, flags: &'static str, from: u64, step: u64, count: u64) -> WorkloadArgs {
    let total = from * count + step * count * (count - 1) / 2;
    WorkloadArgs { name: name.to_owned(), chunk: from, step, total, flags, ..WorkloadArgs::default() }
}

/// This many synchronous calls of one size.
fn synchronous(name: String, flags: &'static str, chunk: u64, calls: u64) -> WorkloadArgs {
    WorkloadArgs { name, chunk, total: calls * chunk, flags, ..WorkloadArgs::default() }
}

/// Synchronous calls of 64 KiB that take about a second.
fn synchronous_second(sizes: &Sizes, name: &str, flags: &'static str) -> WorkloadArgs {
    let (calls, chunk) = (128, 64 * KIB);
    synchronous(name.to_owned(), flags, chunk, sizes.count(calls * sizes.times(calls, chunk)))
}

/// 64 synchronous calls of growing size, or a multiple of 64 in finer steps.
fn synchronous_range(sizes: &Sizes, name: &str, flags: &'static str, from: u64, step: u64) -> WorkloadArgs {
    let calls = 64;
    // A power of two keeps calls aligned.
    let times = 1 << sizes.times(calls, from + calls / 2 * step).ilog2();
    stepped(name, flags, from, step / times, sizes.count(calls * times))
}

/// The paper's 1024 synchronous calls of 1 KiB; fewer where they take longer than some seconds.
fn synchronous_small(sizes: &Sizes, name: &str, flags: &'static str) -> WorkloadArgs {
    let calls = (4e9 / sizes.synchronous.1) as u64;
    synchronous(name.to_owned(), flags, sizes.small, sizes.count(calls.clamp(256, 1024)))
}

/// Five synchronous calls, the largest of 2000 MiB at most, as in the paper; with a scale of 1 half as large,
/// and at most as large that all together take ten seconds.
fn synchronous_large(sizes: &Sizes, name: &str, flags: &'static str) -> WorkloadArgs {
    const COUNT: u64 = 5;
    const MAX: u64 = 2000 * MIB;
    let in_time = 10e9 * sizes.scale / sizes.synchronous.0 / 3.0;
    let largest = (sizes.scale / 2.0).min(1.0) * MAX as f64;
    let step = (largest.min(in_time) as u64 / COUNT / MIB).max(1) * MIB;
    stepped(name, flags, step, step, COUNT)
}

fn fig4(sizes: &Sizes) -> Vec<Panel> {
    let one = synchronous_second(sizes, "fig4-direct-64K", "ds");
    let range = synchronous_range(sizes, "fig4-direct-range", "ds", 64 * KIB, 64 * KIB);
    let small = synchronous_small(sizes, "fig4-direct-small", "ds");
    let large = synchronous_large(sizes, "fig4-direct-large", "ds");
    vec![
        one.series("(a) chunks of 64 KiB".into()),
        range.range("(b) a range of sizes".into()),
        small.series(format!("(c) chunks of {}", Bytes(small.chunk))),
        large.range("(d) large sizes".into()),
    ]
}

fn fig5(sizes: &Sizes) -> Vec<Panel> {
    let one = synchronous_second(sizes, "fig5-sync-64K", "s");
    let range = synchronous_range(sizes, "fig5-sync-range", "s", 64 * KIB, 64 * KIB);
    let odd = synchronous_range(sizes, "fig5-sync-odd", "s", 5000, 33_333);
    let small = synchronous_small(sizes, "fig5-sync-small", "s");
    let large = synchronous_large(sizes, "fig5-sync-large", "s");
    vec![
        one.series("(a) chunks of 64 KiB".into()),
        range.range("(b) a range of sizes".into()),
        odd.range("(c) sizes that do not fit a block".into()),
        small.series(format!("(d) chunks of {}", Bytes(small.chunk))),
        large.range("(e) large sizes".into()),
    ]
}

/// A run of chunks of a sixteenth of the hard limit, with think times of this part of the device's time.
fn chunks(sizes: &Sizes, name: String, part: f64) -> WorkloadArgs {
    let chunk = sizes.chunk(16);
    let think = (part > 0.0).then(|| sizes.think(chunk, part));
    let env = think.map_or(String::new(), |_| "SPIN=1".to_owned());
    WorkloadArgs { name, chunk, total: sizes.total(chunk), think, env, ..WorkloadArgs::default() }
}

fn fig6(sizes: &Sizes) -> Vec<Panel> {
    let panel = |letter: char, part: f64| {
        let run = chunks(sizes, format!("fig6-{letter}"), part);
        let title = format!("({letter}) chunks of {}{}", Bytes(run.chunk), computing(run.think));
        Panel { starts: true, ..run.series(title) }
    };
    vec![panel('A', 0.0), panel('B', SHORT), panel('C', LONG)]
}

fn fig7(sizes: &Sizes) -> Vec<Panel> {
    let panel = |letter: char, back: f64, part: f64| {
        let run = chunks(sizes, format!("fig7-{letter}"), part);
        let chunk = run.chunk;
        // As many new bytes as in other runs, so that the limits are reached.
        let total = (run.total as f64 / (1.0 - back) / chunk as f64).round() as u64 * chunk;
        let (percent, computing) = (back * 100.0, computing(run.think));
        let title = format!("({letter}) {percent:.0} % of each {} rewritten{computing}", Bytes(chunk));
        WorkloadArgs { total, back, ..run }.series(title)
    };
    vec![panel('A', 0.5, 0.0), panel('B', 0.5, SHORT), panel('C', 0.25, 0.0), panel('D', 0.25, SHORT)]
}

fn fig8(sizes: &Sizes) -> Vec<Panel> {
    let panel = |letter: char, part: f64| {
        // The delay is a sleep.
        let run = WorkloadArgs { env: String::new(), ..chunks(sizes, format!("fig8-{letter}"), part) };
        let delay = run.think.map_or("no delay".to_owned(), |think| format!("a delay of {think}"));
        let title = format!("({letter}) fwrite of {}, {delay}", Bytes(run.chunk));
        WorkloadArgs { stream: true, ..run }.series(title)
    };
    vec![panel('A', 0.0), panel('B', SHORT), panel('C', LONG)]
}

fn fig9(sizes: &Sizes) -> Vec<Panel> {
    // An eighth of the hard limit, so that nothing is flushed.
    let calls = (sizes.hard / 8 / 1000).clamp(4096, 65_536);
    let panel = |letter: char, chunk: u64| {
        let name = format!("fig9-stream-{}", short(chunk));
        let total = sizes.count(calls) * chunk;
        let run = WorkloadArgs { name, chunk, total, stream: true, ..WorkloadArgs::default() };
        let title = format!("({letter}) fwrite of {chunk} bytes, the first 64 calls");
        Panel { first: Some(64), dirty: false, ..run.series(title) }
    };
    vec![panel('A', 1000), panel('B', 512)]
}

fn computing(think: Option<Nanos>) -> String {
    think.map_or(String::new(), |think| format!(", {think} of computing"))
}

/// Runs to derive a profile from, and others to judge it by.
fn suite(sizes: &Sizes) -> Vec<Panel> {
    let synchronous = |kind: &str, flags, chunk, calls| {
        synchronous(format!("{kind}-{}", short(chunk)), flags, chunk, sizes.count(calls))
    };
    let cached = |kind: &str, chunk| cached(kind, chunk, sizes.total(chunk));
    // With these the dirty level rises.
    let rising = |kind: &str, env| thinking(sizes, kind, sizes.chunk(32), SHORT, env);
    let rnd = |name: &str, back, run| WorkloadArgs { name: name.to_owned(), back, ..run };
    let (chunk, small) = (sizes.chunk(64), 64 * KIB);
    let runs = [
        synchronous("direct-sync", "ds", small, 512),
        synchronous("direct-sync-range", "ds", MIB, 128),
        synchronous("direct-sync-range", "ds", 4 * MIB, 64),
        synchronous("sync", "s", 4096, 512),
        synchronous("sync", "s", 1000, 500),
        synchronous("sync", "s", MIB, 128),
        synchronous("sync", "s", 16 * MIB, 32),
        cached("seq", chunk),
        cached("seq", sizes.chunk(16)),
        WorkloadArgs { total: sizes.total(small) / 2, ..cached("seq", small) },
        WorkloadArgs { total: sizes.total(4096) / 4, ..cached("seq", 4096) },
        rising("seq", ""),
        thinking(sizes, "seq", sizes.chunk(32), LONG, ""),
        rising("seq", "SPIN=1"),
        rnd("rnd-A-back50", 0.5, cached("", sizes.chunk(32))),
        rnd("rnd-B-back50", 0.5, rising("", "")),
        rnd("rnd-C-back25", 0.25, cached("", sizes.chunk(32))),
        rnd("rnd-D-back25", 0.25, rising("", "")),
        thinking(sizes, "burst", sizes.chunk(8), LONG, ""),
        WorkloadArgs { stream: true, ..cached("lib", MIB) },
        WorkloadArgs { stream: true, total: sizes.count(65536) * 1000, ..cached("lib", 1000) },
        WorkloadArgs { stream: true, ..rising("lib", "") },
        WorkloadArgs { fsync: true, total: sizes.count(64) * 4 * MIB, ..cached("fsync-each", 4 * MIB) },
        WorkloadArgs {
            fsync: true,
            total: sizes.count(512) * MIB,
            env: "FSYNC_EVERY=16".into(),
            ..cached("fsync-every16", MIB)
        },
        WorkloadArgs {
            total: sizes.total(chunk) / 2 / chunk * chunk,
            env: "REWRITE=1".into(),
            ..cached("rewrite", chunk)
        },
        // Eight chunks are a quarter of the hard limit, mostly below the background limit.
        WorkloadArgs {
            total: 20 * sizes.chunk(32),
            env: "IDLE_EVERY8=14".into(),
            ..cached("idle-expire", sizes.chunk(32))
        },
        WorkloadArgs { random: true, total: sizes.total(small) / 2, ..cached("rnd-offset", small) },
    ];
    runs.iter().map(|run| run.series(run.name.clone())).collect()
}

fn cached(kind: &str, chunk: u64, total: u64) -> WorkloadArgs {
    WorkloadArgs { name: format!("{kind}-{}", short(chunk)), chunk, total, ..WorkloadArgs::default() }
}

fn thinking(sizes: &Sizes, kind: &str, chunk: u64, part: f64, env: &str) -> WorkloadArgs {
    let think = sizes.think(chunk, part);
    let how = if env.is_empty() { "think" } else { "spin" };
    let name = format!("{kind}-{}-{how}{:.0}ms", short(chunk), think.as_seconds() * 1e3);
    WorkloadArgs { name, think: Some(think), env: env.into(), ..cached(kind, chunk, sizes.total(chunk)) }
}

/// A size in a name.
fn short(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(MIB) => format!("{}M", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{}K", bytes / KIB),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::recorded::run_args;
    use cawl_core::{Measured, Rate};

    fn sizes(hard: u64, scale: f64) -> Sizes {
        let mut profile = HostProfile::uncalibrated();
        profile.kernel.limits.hard = Bytes(hard);
        profile.device.writeback = Measured::assumed(Rate::mb_per_second(100.0));
        Sizes::new(&profile, None, scale)
    }

    #[test]
    fn every_run_is_one_of_its_own_and_can_be_read() {
        for hard in [16 * MIB, 256 * MIB, 5_012_345_678] {
            for scale in [0.25, 1.0] {
                let mut names = HashSet::new();
                for experiment in Experiment::resolve(&[Experiment::All, Experiment::Suite]) {
                    for panel in experiment.panels(&sizes(hard, scale)) {
                        let Scenario { name, args, env, length } = panel.scenario;
                        let read = run_args(&args, &env).unwrap();
                        assert!(read.total >= read.chunk && length.0 >= read.chunk, "{name}");
                        assert!(!read.direct || read.chunk.is_multiple_of(512), "{name} is not aligned");
                        assert!(names.insert(name.clone()), "{name} twice");
                    }
                }
            }
        }
    }

    #[test]
    fn runs_through_the_cache_reach_the_hard_limit() {
        let sizes = sizes(256 * MIB, 0.5);
        for experiment in [Experiment::Fig6, Experiment::Fig7, Experiment::Fig8] {
            for panel in experiment.panels(&sizes) {
                assert!(panel.scenario.length.0 > 2 * 256 * MIB, "{}", panel.title);
            }
        }
    }

    #[test]
    fn synchronous_runs_of_fast_devices_are_made_of_more_calls() {
        // Step and bytes of each run.
        let planned = |call_ms: f64, mb_per_second: f64| -> Vec<(u64, u64)> {
            let mut profile = HostProfile::uncalibrated();
            profile.device.sync_call = Measured::assumed(Nanos::millis(call_ms));
            profile.device.write = Measured::assumed(Rate::mb_per_second(mb_per_second));
            let plans = [Experiment::Fig4, Experiment::Fig5];
            let panels = plans.map(|plan| plan.panels(&Sizes::new(&profile, None, 1.0))).concat();
            let planned = |Scenario { args, env, .. }: Scenario| {
                let step = env.strip_prefix("STEP=").map_or(0, |step| step.parse().unwrap());
                (step, run_args(&args, &env).unwrap().total)
            };
            panels.into_iter().map(|panel| planned(panel.scenario)).collect()
        };
        let (slow, fast) = (planned(36.0, 150.0), planned(0.3, 2000.0));
        assert_eq!(slow[..2], [(0, 8 * MIB), (64 * KIB, 130 * MIB)]);
        // 128 calls of 0.33 ms take 1/23 s, 64 calls of 1.4 ms 1/11 s.
        assert_eq!((fast[0], fast[1].0), ((0, 16 * 8 * MIB), 8 * KIB));
        // The paper's smallest chunks and its largest take seconds.
        let (small, large) = (slow[2], slow[3]);
        assert_eq!((small, fast[2]), ((0, 256 * KIB), (0, MIB)));
        assert_eq!((large, fast[3]), ((95 * MIB, 1425 * MIB), (200 * MIB, 3000 * MIB)));
        for run in [0, 1, 4, 5, 6] {
            let (slow, fast) = (slow[run], fast[run]);
            assert!(fast.1 > 7 * slow.1, "{slow:?} {fast:?}");
        }
    }

    #[test]
    fn all_means_the_figures_each_once() {
        let wanted = Experiment::resolve(&[Experiment::Fig9, Experiment::All, Experiment::Fig4]);
        assert_eq!(wanted, Experiment::value_variants()[..6]);
        assert_eq!(Experiment::resolve(&[Experiment::Suite]), [Experiment::Suite]);
    }
}
