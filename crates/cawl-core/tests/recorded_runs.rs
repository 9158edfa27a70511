//! The kernel model against recorded runs and the kernel's own tracepoints, where the recordings are:
//! in the folder named by CAWL_GOLDEN, or beside the workspace.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test reads recordings")]
#![allow(clippy::disallowed_macros, reason = "a test says why it skips")]

use std::io::Read;
use std::path::{Path, PathBuf};

use cawl_core::{
    Analysis, AnalysisOptions, CostModel, HostProfile, Kernel, Mode, RecordedRun, Suite, Time, compare, fit,
};
use cawl_wire::Event;

const CALIBRATION: [&str; 9] = [
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

fn golden() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let beside2 = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/golden");
    let named = std::env::var("CAWL_GOLDEN").ok().map(PathBuf::from);
    let found = named.into_iter().chain([beside, beside2]).find(|dir| dir.join("ssd-512-1024-run1").is_dir());
    if found.is_none() {
        eprintln!("skipped: no recorded runs; CAWL_GOLDEN names their folder");
    }
    found
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("a recording");
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("a gzipped text");
    text
}

fn runs(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<RecordedRun> {
    let suite = Suite::parse(&std::fs::read_to_string(dir.join("suite.json")).expect("suite.json"));
    let of = |name: &str, ending: &str| unpacked(&dir.join(format!("{name}.{ending}.gz")));
    let runs = suite.expect("a suite").runs.into_iter().filter(|(name, _)| wanted(name));
    runs.map(|(name, args)| {
        RecordedRun::parse(&name, args, &of(&name, "csv"), &of(&name, "dirty")).expect("a recording")
    })
    .collect()
}

fn profile(dir: &Path) -> HostProfile {
    fit(&runs(dir, |name| CALIBRATION.contains(&name))).expect("a profile")
}

/// Seconds slept in pauses and the median base rate (bytes per second) that the kernel traced.
///
/// The trace has the pause asked for, in ticks of 4 ms; the sleep ends on a later tick. What passes until the
/// next check, less copying at 3 GB/s, is the sleep, unless the program did something else meanwhile.
fn traced(dir: &Path, name: &str) -> (f64, f64) {
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
    rates.sort_by(f64::total_cmp);
    (slept, rates.get(rates.len() / 2).copied().unwrap_or(0.0))
}

/// Seconds of pauses and the base rate at the end, as modelled.
fn modelled(profile: &HostProfile, run: &RecordedRun) -> (f64, f64) {
    let mut model = Kernel::new(profile);
    let (mut observed, mut clock, mut pauses) = (Time(0), Time(0), 0.0);
    for event in &run.events {
        let start = clock + Time(event.start).since(observed);
        let prediction = model.step(&Event { start: start.0, duration: 0, ..*event });
        (observed, clock) = (Time(event.end()), start + prediction.map_or_else(Default::default, |p| p.cost));
        pauses += prediction.map_or(0.0, |p| p.parts.throttle.as_seconds());
    }
    let dev = run.events.first().map_or(0, |event| event.dev);
    (pauses, model.ratelimit(dev).map_or(0.0, |rate| rate.get()))
}

#[test]
fn pauses_and_base_rates_follow_the_tracepoints() {
    let Some(golden) = golden() else { return };
    for suite in ["ssd-512-1024", "hdd-256-512"] {
        let profile = profile(&golden.join(format!("{suite}-run1")));
        let (mut seen, mut told) = (Vec::new(), Vec::new());
        for dir in ["run1", "run2"].map(|run| golden.join(format!("{suite}-{run}"))) {
            for run in runs(&dir, |name| !CALIBRATION.contains(&name)) {
                let (real, model) = (traced(&dir, &run.name), modelled(&profile, &run));
                if real.0 > 1.0 {
                    let ratio = model.1 / real.1;
                    assert!((0.4..2.5).contains(&ratio), "{suite} {}: base rate off by {ratio}", run.name);
                }
                seen.push(real.0);
                told.push(model.0);
            }
        }
        let (real, model): (f64, f64) = (seen.iter().sum(), told.iter().sum());
        eprintln!(
            "{suite}: paused {real:.1} s, modelled {model:.1} s, correlation {:.3}",
            correlation(&seen, &told)
        );
        // Where the machine's memory was cold, copying took time that the model spends pausing.
        assert!((model / real - 1.0).abs() < 0.10, "{suite}: paused {real} s, modelled {model} s");
        assert!(correlation(&seen, &told) > 0.9, "{suite}");
    }
}

#[test]
fn the_kernel_model_wins() {
    let Some(golden) = golden() else { return };
    for suite in ["ssd-512-1024", "hdd-256-512"] {
        let dir = golden.join(format!("{suite}-run1"));
        let held_back = runs(&dir, |name| !CALIBRATION.contains(&name));
        let again = runs(&golden.join(format!("{suite}-run2")), |name| !CALIBRATION.contains(&name));
        let table = compare(&profile(&dir), &[], Mode::OpenLoop, &held_back, &again).expect("known models");
        let median = |model: &str| table.median[model].total_error.expect("calls");
        eprintln!(
            "{suite}: kernel {:.3}, cawl {:.3}, naive {:.3}, floor {:.3}",
            median("kernel"),
            median("cawl"),
            median("naive"),
            median("floor")
        );
        assert!(median("kernel") < median("naive") && median("kernel") < median("cawl"), "{suite}");
    }
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let products: f64 = a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let spread = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>().sqrt();
    products / (spread(a, ma) * spread(b, mb))
}

/// Recordings one after another, from defaults: what was learned from one is where the next begins.
#[test]
fn learning_from_defaults_finds_the_machine() {
    let Some(golden) = golden() else { return };
    for suite in ["ssd-512-1024-run1", "hdd-256-512-run1"] {
        let mut profile = HostProfile::uncalibrated();
        let (mut observed, mut predicted, mut errors) = (0.0, 0.0, Vec::new());
        for run in runs(&golden.join(suite), |_| true) {
            let models = vec!["kernel".to_owned()];
            let options =
                AnalysisOptions { models, mode: Mode::Assimilated, learn: true, besides: Vec::new() };
            let mut analysis = Analysis::with(&profile, &options).expect("known models");
            for record in run.records() {
                analysis.take(&record);
            }
            profile = analysis.learned().0;
            let summary = &analysis.report().models[0].summary;
            observed += summary.observed.as_seconds();
            predicted += summary.predicted.as_seconds();
            errors.push(summary.total_error.expect("time was observed"));
            eprintln!(
                "{suite} {:26} {:8.3} s, predicted {:8.3} s, windowed {:.1} %",
                run.name,
                summary.observed.as_seconds(),
                summary.predicted.as_seconds(),
                summary.windowed_error.expect("time was observed") * 100.0
            );
        }
        errors.sort_by(f64::total_cmp);
        let (sum, median) = (predicted / observed, errors[errors.len() / 2]);
        eprintln!("{suite}: {predicted:.1} s of {observed:.1} s, median error {:.1} %", median * 100.0);
        assert!((sum - 1.0).abs() < 0.15 && median < 0.15, "{suite}: {sum} of the time, median {median}");
    }
}
