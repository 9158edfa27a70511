//! Recordings of programs under other releases (`bench/kernels.py`, copied by `cawl-lab keep`), and what the
//! model makes of their calls with the constants that `calibrate --quick` found there, without learning.

use std::path::Path;

use cawl_core::{Analysis, AnalysisOptions, Mode, Record, Release};
use cawl_wire::Op;

/// Seconds of all calls of a recording, observed and predicted, and the dirty MiB after the last write; as if
/// it were of this release, if one is given.
fn replayed(name: &str, release: Option<Release>) -> (f64, f64, f64) {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("recordings/{name}.cawl"));
    let (records, mut profile) = cawl_lab::verify::traces::recorded(&trace).unwrap();
    profile.kernel.release = release.or(profile.kernel.release);
    if release.is_some() {
        profile.kernel.folio = cawl_core::Bytes::mib(2);
    }
    let models = vec!["kernel".to_owned()];
    let options = AnalysisOptions { models, mode: Mode::Lockstep, ..AnalysisOptions::default() };
    let mut analysis = Analysis::with(&profile, &options).unwrap();
    let mut level = 0.0;
    for record in &records {
        let answers = analysis.take(record);
        if matches!(record, Record::Event(event) if event.op == Op::Pwrite)
            && let Some(prediction) = answers.predictions.iter().flatten().last()
        {
            level = prediction.dirty.as_f64() / f64::from(1 << 20);
        }
    }
    let model = &analysis.report().models[0];
    (model.observed_s, model.predicted_s, level)
}

/// Ticks of 10 ms: a pause of one tick more or less is half of what a call takes here. The writer of 64 KiB
/// sleeps where the device writes what it was handed, and the flusher has no more to do.
#[test]
fn throttled_writers_are_followed_where_ticks_are_long() {
    for name in ["kernel-6.1-dd", "kernel-6.12-dd", "kernel-6.12-small-writes"] {
        let (observed, predicted, _) = replayed(name, None);
        let off = (predicted / observed - 1.0).abs();
        eprintln!("{name}: {predicted:.3} s for {observed:.3}, off by {off:.3}");
        assert!(off <= 0.15, "{name}: {predicted:.3} s for {observed:.3}, off by {off:.3}");
    }
}

/// 6000 pages written over a file of 400 MiB are 23 MiB; with large folios each would make all of its folio
/// dirty.
#[test]
fn a_page_written_over_is_one_dirty_page_before_large_folios() {
    let (_, _, level) = replayed("kernel-6.12-over", None);
    let (_, _, by_latest) = replayed("kernel-6.12-over", Some(Release::LATEST));
    eprintln!("{level:.1} MiB dirty in the end, by the laws of 6.18 {by_latest:.1} MiB");
    assert!((20.0..30.0).contains(&level), "{level:.1} MiB");
    assert!(by_latest > 100.0, "{by_latest:.1} MiB");
}
