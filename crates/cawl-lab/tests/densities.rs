//! Densities and patterns of recorded runs: against what their scenario did, and against the modes that
//! recordings are known to have.

use std::path::Path;

use crate::support::{golden, profile, runs};
use cawl_core::{Analysis, AnalysisOptions, ByteMode, HostProfile, Mode, Report};

/// The report on a run of a folder, with the folder's profile, in lockstep.
fn report(dir: &Path, name: &str, profile: &HostProfile) -> Report {
    let run = runs(dir, |of| of == name).remove(0);
    let models = vec!["kernel".to_owned()];
    let options = AnalysisOptions { models, mode: Mode::Lockstep, ..AnalysisOptions::default() };
    let mut analysis = Analysis::with(profile, &options).expect("a known model");
    for record in run.records() {
        analysis.take(&record);
    }
    analysis.report()
}

fn modes(dir: &Path, name: &str, profile: &HostProfile) -> Vec<ByteMode> {
    let modes = report(dir, name, profile).explain.expect("there were calls").modes;
    for ByteMode { op, peak_ns_per_byte, from_ns_per_byte, to_ns_per_byte, share, cause, .. } in &modes {
        let percent = share * 100.0;
        eprintln!(
            "{} {name} {op}: {peak_ns_per_byte:.2} ({from_ns_per_byte:.2} to {to_ns_per_byte:.2}) ns/B, \
             {percent:.0} %, {cause}",
            dir.display()
        );
    }
    modes
}

/// 32 MiB and a pause of 120 ms: warm memory costs 0.32 to 0.4 ns a byte, cold memory 2 to 3.5.
#[test]
#[ignore = "long: replays recordings of CAWL_GOLDEN"]
fn warm_and_cold_memory_are_modes_of_a_recorded_run() {
    let Some(golden) = golden() else { return };
    for run in ["ssd-512-1024-run1", "ssd-512-1024-run2"] {
        let dir = golden.join(run);
        let modes = modes(&dir, "seq-32M-think120ms", &profile(&dir));
        let [warm, cold] = &modes[..] else { panic!("{run}: {modes:?}") };
        assert!((0.3..=0.4).contains(&warm.peak_ns_per_byte), "{run}: {warm:?}");
        assert!((2.0..=3.5).contains(&cold.peak_ns_per_byte), "{run}: {cold:?}");
        assert!(warm.share > 0.4 && cold.share > 0.2 && warm.share + cold.share > 0.9, "{run}: {modes:?}");
        assert!(warm.to_ns_per_byte < 1.5 && cold.from_ns_per_byte > 0.8, "{run}: {modes:?}");
    }
}

/// The same program on another machine, whose warm memory is faster.
#[test]
fn the_recording_in_the_tree_has_two_modes_too() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded/run2");
    let modes = modes(&dir, "seq-32M-think120ms", &profile(&dir));
    let peaks: Vec<f64> = modes.iter().map(|mode| mode.peak_ns_per_byte).collect();
    assert!(
        modes.len() == 2 && (0.16..0.24).contains(&peaks[0]) && (2.0..3.0).contains(&peaks[1]),
        "{modes:?}"
    );
}

/// What the scenarios of the suite do is known from their arguments.
#[test]
fn patterns_of_recorded_runs_are_those_of_their_scenarios() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded/run2");
    let profile = profile(&dir);
    for (name, size, back) in [
        ("seq-16M", 16 << 20, 0.0),
        ("seq-32M-think50ms", 32 << 20, 0.0),
        ("rnd-A-back50", 0, 0.5),
        ("rnd-C-back25", 0, 0.25),
        ("fsync-each-4M", 4 << 20, 0.0),
        ("sync-4K", 4 << 10, 0.0),
        ("direct-sync-64K", 64 << 10, 0.0),
    ] {
        let report = report(&dir, name, &profile);
        let file = report.files[0].patterns.as_ref().expect("it was written");
        let of = &file.ops[0];
        assert_eq!(file.ops.len(), 1, "{name}");
        let chunk = of.frequent[0].bytes;
        assert!(of.frequent.len() == 1 && (size == 0 || chunk == size), "{name}: {of:?}");
        let follows = of.calls - 1;
        if back == 0.0 {
            assert_eq!((of.sequential, of.rewritten_bytes, file.gap_bytes), (follows, 0, Some(0)), "{name}");
        } else {
            let kept = (chunk as f64 * (1.0 - back)) as u64;
            assert_eq!((of.strided, of.stride), (follows, Some(kept as i64)), "{name}: {of:?}");
            let again = (chunk - kept) * follows;
            assert!(of.rewritten_bytes.abs_diff(again) <= 4096 * follows, "{name}: {of:?}, {again}");
        }
        if name.starts_with("direct") {
            assert_eq!(of.fresh_pages + of.cached_pages + of.dirty_pages, 0, "{name}");
        } else if back == 0.0 {
            assert_eq!(of.fresh_pages * 4096, of.bytes, "{name}");
        }
        assert_eq!(file.writers.len(), 1, "{name}");
        if let Some(syncs) = &file.syncs {
            assert_eq!((syncs.writes.mean, syncs.bytes.max), (1.0, size as f64), "{name}: {syncs:?}");
        }
        assert_eq!(file.syncs.is_some(), name == "fsync-each-4M", "{name}");
    }
    // A file that is in the cache and clean is written again.
    let rewrite = report(&dir, "rewrite-16M", &profile);
    let of = &rewrite.files[0].patterns.as_ref().expect("it was written").ops[0];
    assert_eq!(of.sequential, of.calls - 1, "{of:?}");
}
