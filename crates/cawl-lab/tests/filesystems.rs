//! Recordings of small programs on real mounts, and what the model makes of their calls with the constants
//! that `calibrate --quick` found there, without learning. They are of `KEEP=FOLDER bench/filesystems.sh 2
//! tar-small sqlite-small`, copied by `cawl-lab keep`.

use std::path::Path;

use cawl_core::{Analysis, AnalysisOptions, FilesystemKind, Mode};

/// Seconds of all calls of a recording, observed and predicted; as if files had this filesystem, if one is
/// given.
fn seconds(name: &str, filesystem: Option<FilesystemKind>) -> (f64, f64) {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("recordings/{name}.cawl"));
    let (records, mut profile) = cawl_lab::verify::traces::recorded(&trace).unwrap();
    profile.device.filesystem = filesystem.or(profile.device.filesystem);
    let models = vec!["kernel".to_owned()];
    let options = AnalysisOptions { models, mode: Mode::Lockstep, ..AnalysisOptions::default() };
    let mut analysis = Analysis::with(&profile, &options).unwrap();
    for record in &records {
        let _ = analysis.take(record);
    }
    let report = analysis.report();
    (report.models[0].observed_s, report.models[0].predicted_s)
}

#[test]
fn programs_take_what_their_filesystem_makes_of_them() {
    for (name, most) in RECORDED {
        let (observed, predicted) = seconds(name, None);
        let off = (predicted / observed - 1.0).abs();
        assert!(off <= most, "{name}: {predicted:.6} s for {observed:.6}, off by {off:.3}");
    }
}

/// What ext4's laws would make of the same calls.
#[test]
fn the_laws_of_other_filesystems_differ() {
    let (observed, predicted) = seconds("tmpfs-sqlite", Some(FilesystemKind::Ext4));
    assert!(predicted > 10.0 * observed, "syncs of memory: {predicted} s for {observed}");
    let (observed, predicted) = seconds("btrfs-sqlite", Some(FilesystemKind::Ext4));
    assert!(predicted < 0.9 * observed, "syncs of a folder: {predicted} s for {observed}");
}

/// Recordings, and by how much of the observed time the prediction may be off.
const RECORDED: [(&str, f64); 8] = [
    ("xfs-sqlite", 0.03),
    ("xfs-tar", 0.17),
    ("btrfs-sqlite", 0.05),
    ("btrfs-tar", 0.2),
    ("overlay-sqlite", 0.03),
    ("overlay-tar", 0.17),
    ("tmpfs-sqlite", 0.08),
    ("tmpfs-tar", 0.06),
];
