//! What tests on recorded runs share: reading a folder of recordings, and the kernel's tracepoints in it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cawl_core::{Bytes, Cause, CostModel, HostProfile, Kernel, Prediction, Time, median};
use cawl_lab::recorded::{RecordedRun, Suite, fit, recorded_run, with_tracepoints};
use cawl_wire::Event;

/// Runs from which a suite's profile is derived; errors count on the others.
pub const CALIBRATION: [&str; 9] = [
    "direct-sync-64K",
    "direct-sync-range-1M",
    "direct-sync-range-4M",
    "sync-4K",
    "sync-1M",
    "seq-64M",
    "rewrite-16M",
    "lib-1000B",
    "fsync-each-4M",
];

/// The folder of recorded runs that are not part of the repository, if CAWL_GOLDEN names one.
pub fn golden() -> Option<PathBuf> {
    let folder = std::env::var_os("CAWL_GOLDEN").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("SKIPPED: no recorded runs; CAWL_GOLDEN names their folder");
    }
    folder
}

/// A gzipped text.
pub fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("a recording");
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("a gzipped text");
    text
}

/// The wanted runs of a folder.
pub fn runs(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<RecordedRun> {
    let suite = Suite::parse(&std::fs::read_to_string(dir.join("suite.json")).expect("suite.json"));
    let of = |name: &str, ending: &str| unpacked(&dir.join(format!("{name}.{ending}.gz")));
    // Read once for all tests: that takes longer than a replay.
    static READ: Memo<RecordedRun> = Memo::new();
    let runs = suite.expect("a suite").runs.into_iter().filter(|(name, _)| wanted(name));
    runs.map(|(name, args)| {
        READ.of(dir.join(&name), || {
            recorded_run(&name, args, &of(&name, "csv"), &of(&name, "dirty")).expect("a recording")
        })
    })
    .collect()
}

/// The profile of a folder, as `cawl-lab fit` makes it: with what the tracepoints tell of the base rate.
pub fn profile(dir: &Path) -> HostProfile {
    static FITTED: Memo<HostProfile> = Memo::new();
    FITTED.of(dir.to_owned(), || {
        let shown = runs(dir, |name| CALIBRATION.contains(&name)).into_iter();
        let told = |run: RecordedRun| {
            let trace = unpacked(&dir.join(format!("{}.trace.gz", run.name)));
            with_tracepoints(run, &trace)
        };
        fit(&shown.map(told).collect::<Vec<_>>()).expect("a profile")
    })
}

/// What was made of a path, for all tests of this process.
struct Memo<T>(Mutex<BTreeMap<PathBuf, T>>);

impl<T: Clone> Memo<T> {
    const fn new() -> Memo<T> {
        Memo(Mutex::new(BTreeMap::new()))
    }

    /// Made without the lock, so that tests make things side by side.
    fn of(&self, path: PathBuf, make: impl FnOnce() -> T) -> T {
        let known = self.0.lock().expect("no test panics here").get(&path).cloned();
        known.unwrap_or_else(|| {
            let made = make();
            self.0.lock().expect("no test panics here").insert(path, made.clone());
            made
        })
    }
}

/// Seconds slept in pauses and the median base rate (bytes per second) that the kernel traced.
///
/// The trace has the pause asked for, in ticks of 4 ms; the sleep ends on a later tick. What passes until the
/// next check, less copying at 3 GB/s, is the sleep, unless the program did something else in between.
pub fn traced(dir: &Path, name: &str) -> (f64, f64) {
    let text = unpacked(&dir.join(format!("{name}.trace.gz")));
    let (mut slept, mut rates) = (0.0, Vec::new());
    let mut last: Option<(f64, f64)> = None;
    for line in text.lines().filter(|line| line.contains("balance_dirty_pages:")) {
        let words = || line.split_whitespace();
        let of =
            |key: &str| words().find_map(|word| word.strip_prefix(key)?.parse::<f64>().ok()).unwrap_or(0.0);
        let at = words().find_map(|word| word.strip_suffix(':')?.parse::<f64>().ok()).unwrap_or(0.0);
        if let Some((then, pause)) = last.take() {
            let gap = at - then - of("dirtied=") * 4096.0 / 3e9;
            slept += gap.clamp(pause, pause + 0.004);
        }
        if of("pause=") > 0.0 {
            last = Some((at, of("pause=") / 1000.0));
        }
        rates.push(of("dirty_ratelimit=") * 1024.0);
    }
    slept += last.map_or(0.0, |(_, pause)| pause);
    (slept, median(&rates).unwrap_or(0.0))
}

/// What a model makes of a run's calls, open loop: those that cost time, with what is predicted of them.
pub fn predictions(model: &mut Kernel, run: &RecordedRun) -> Vec<(Event, Prediction)> {
    let (mut observed, mut clock) = (Time(0), Time(0));
    let mut calls = Vec::new();
    for event in &run.events {
        let start = clock + Time(event.start).since(observed);
        let prediction = model.step(&Event { start: start.0, duration: 0, ..*event });
        (observed, clock) = (Time(event.end()), start + prediction.map_or_else(Default::default, |p| p.cost));
        calls.extend(prediction.map(|prediction| (*event, prediction)));
    }
    calls
}

/// The same: for each call its cost and its pauses, in seconds.
pub fn modelled(model: &mut Kernel, run: &RecordedRun) -> Vec<(f64, f64)> {
    let told = predictions(model, run).into_iter();
    told.map(|(_, p)| (p.cost.as_seconds(), p.parts[Cause::Throttle].as_seconds())).collect()
}

/// A model's base rate for a run's device, in bytes per second.
pub fn base_rate(model: &Kernel, run: &RecordedRun) -> f64 {
    let dev = run.events.first().map_or(0, |event| event.dev);
    model.ratelimit(dev).map_or(0.0, |rate| rate.get())
}

/// A machine whose limits have just been lowered to the profile's: the limit that the kernel goes by was
/// still as high as the first tracepoint tells.
pub fn lately_lowered(profile: &HostProfile, dir: &Path, name: &str) -> Kernel {
    let text = unpacked(&dir.join(format!("{name}.trace.gz")));
    let limit = text.split_whitespace().find_map(|word| word.strip_prefix("limit=")?.parse::<u64>().ok());
    let page = profile.kernel.page.0;
    let mut before = profile.clone();
    before.kernel.limits.hard = Bytes(limit.expect("a throttled run") * page).max(profile.kernel.limits.hard);
    let mut model = Kernel::new(&before);
    model.set_limits(profile.kernel.limits);
    model
}

/// Pearson's.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let products: f64 = a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let spread = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>().sqrt();
    products / (spread(a, ma) * spread(b, mb))
}
