//! Every recorded run goes through every model, in both modes, and comes out finite.
//!
//! The recorded runs are not part of the repository: CAWL_GOLDEN names their folder.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::support::golden;
use cawl_core::{Analysis, HostProfile, Mode, Record};
use cawl_import::{CsvImporter, CsvOptions, Importer};
use flate2::read::GzDecoder;

/// The folders of recorded suites, if there are any.
fn suites() -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(golden()?).expect("the folder that CAWL_GOLDEN names");
    let mut suites: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_dir()).collect();
    suites.sort();
    Some(suites)
}

fn csv_files(suite: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(suite).expect("a suite is a folder");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut files: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(".csv.gz")).collect();
    files.sort();
    files
}

fn records(path: &Path) -> Vec<Record> {
    let mut importer = CsvImporter::new(CsvOptions::default());
    let mut records = Vec::new();
    let input = BufReader::new(GzDecoder::new(File::open(path).expect("a readable run")));
    for line in input.split(b'\n') {
        importer.line(&line.expect("sound gzip"), &mut records).expect("a well-formed row");
    }
    importer.finish(&mut records).expect("a whole table");
    records
}

#[test]
#[ignore = "long: replays four recordings of CAWL_GOLDEN"]
fn every_recorded_run_replays() {
    let Some(suites) = suites() else { return };
    let profile = HostProfile::uncalibrated();
    for path in suites.iter().flat_map(|suite| csv_files(suite)) {
        let records = records(&path);
        for mode in [Mode::OpenLoop, Mode::Lockstep] {
            let mut analysis = Analysis::new(&profile, &[], mode).expect("known models");
            let mut calls = 0;
            for record in &records {
                for prediction in analysis.take(record).predictions.iter().flatten() {
                    let (cost, parts) = (prediction.cost.get(), prediction.parts.total().get());
                    assert!(cost.is_finite() && cost >= 0.0, "{}: {cost} ns", path.display());
                    assert!(
                        (cost - parts).abs() <= 1e-6 * cost + 1e-3,
                        "{}: {parts} of {cost}",
                        path.display()
                    );
                }
                calls += u64::from(matches!(record, Record::Event(_)));
            }
            let report = analysis.report();
            assert_eq!(report.calls, calls, "{}", path.display());
            for model in &report.models {
                assert_eq!(model.calls, calls, "{} by {}", path.display(), model.name);
                assert!(model.predicted_s > 0.0 && model.total_error.is_some_and(f64::is_finite));
            }
        }
    }
}
