//! The study of direct and buffered writes, by the built program: what comes out, not how long anything took.

use std::fs;

use cawl_core::HostProfile;
use cawl_host::place::{Backing, Place};
use cawl_kit::{Dir, Running, skipped};
use serde_json::Value;

use crate::util::{beside_others, lab};

/// The study in short, in this folder.
fn study(dir: &Dir, path: &str) -> Running {
    let profile = dir.path().join("profile.toml");
    fs::write(&profile, HostProfile::uncalibrated().to_toml()).expect("it is ours");
    let mut command = lab(dir, &["experiment", "direct", "--quick", "--repeats", "1", "--json", "--out"]);
    command.arg(dir.path().join("results")).args(["--path", path, "--profile"]).arg(profile);
    Running::start(command)
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().filter(|number| *number >= 0.0).unwrap_or_else(|| panic!("no {name} in {row}"))
}

#[test]
#[ignore = "long: a whole study"]
fn each_kind_of_call_is_observed_and_predicted() {
    let _others = beside_others();
    let dir = Dir::new();
    if Place::of(&dir.work()).expect("a place").backing == Backing::Memory {
        return skipped("temporary folders are in memory here");
    }
    let finished = study(&dir, ".").finish().success();
    let found: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let section = &found["sections"][0];
    assert_eq!(
        (section["name"].as_str(), found["sections"].as_array().map(Vec::len)),
        (Some("direct"), Some(1))
    );

    let rows = section["data"].as_array().expect("rows");
    let of = |size: u64, mode: &str, access: &str| {
        rows.iter().find(|row| row["size"] == size && row["mode"] == mode && row["access"] == access)
    };
    for access in ["append", "warm", "cold"] {
        for size in [512, 4096, 65_536] {
            for mode in ["buffered", "fsync", "fdatasync"] {
                let row = of(size, mode, access).unwrap_or_else(|| panic!("no {size}, {mode}, {access}"));
                assert!(row["calls"].as_u64() >= Some(8), "{row}");
                for name in ["observed", "p10", "p90", "mean", "processor", "kernel", "naive"] {
                    number(row, name);
                }
                assert!(number(row, "met") <= 1.0 && number(row, "p10") <= number(row, "p90"), "{row}");
            }
        }
        // A cached file is met as such by what goes through the cache.
        let met = of(4096, "buffered", access).map(|row| number(row, "met"));
        assert!(access != "warm" || met == Some(1.0), "{met:?}");
    }
    // Where the disk takes direct writes, nothing is left out.
    assert!(rows.len() == 45 || section["text"].to_string().contains("refuses"), "{} rows", rows.len());

    let tables = section["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 6);
    let findings = section["findings"].as_array().expect("findings");
    let item = |start: &str| {
        findings.iter().filter(|one| one["item"].as_str().unwrap_or("").starts_with(start)).count()
    };
    if rows.len() == 45 {
        assert_eq!(
            (item("002, Fig 1"), item("002, Fig 3"), item("002, Fig 5"), item("002, Learning")),
            (4, 1, 3, 4)
        );
    }
    let page = fs::read_to_string(dir.path().join("results/index.html")).expect("a page");
    assert!(page.contains("id=\"direct\"") && page.contains("Learning II"));
    assert_eq!(fs::read_dir(dir.work()).expect("a folder").count(), 0, "something was left behind");
}

#[test]
fn files_in_memory_are_refused_with_a_remedy() {
    let _others = beside_others();
    let dir = Dir::new();
    let at = "/dev/shm";
    if Place::of(at.as_ref()).map_or(true, |place| place.backing != Backing::Memory) {
        return skipped("there is no /dev/shm in memory");
    }
    study(&dir, at).finish().code(1).says("keeps its files in memory").says("--path");
    assert!(!dir.path().join("results").exists(), "results of nothing were left");
}
