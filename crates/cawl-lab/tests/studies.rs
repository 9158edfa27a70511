//! The documents' studies, by the built program: what they leave behind.

use std::fs;
use std::process::Command;

use cawl_core::HostProfile;
use cawl_kit::{Dir, Running, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::util::{beside_others, lab};

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list `{name}` in {value:#}"))
}

/// A study, once, with a profile that is the same on each machine.
fn once(dir: &Dir, name: &str) -> Command {
    let profile = dir.path().join("profile.toml");
    fs::write(&profile, HostProfile::uncalibrated().to_toml()).unwrap();
    let mut command = lab(dir, &["experiment", name, "--repeats", "1", "--json", "--profile"]);
    command.arg(profile).arg("--out").arg(dir.path().join("results"));
    command
}

/// The same, quick.
fn study(dir: &Dir, name: &str) -> Value {
    let mut command = once(dir, name);
    command.arg("--quick");
    serde_json::from_str(&Running::start(command).finish().success().stdout).expect("JSON")
}

#[test]
#[ignore = "long: a whole study"]
fn the_o_sync_study_has_each_run_on_its_page_and_in_a_table_for_regress() {
    let _others = beside_others();
    let dir = Dir::new();
    let found = study(&dir, "osync");
    let text = |name: &str| fs::read_to_string(dir.path().join("results").join(name)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text("results.json")).unwrap(), found);
    let [section] = list(&found, "sections") else { panic!("{found:#}") };
    assert_eq!((&section["name"], &section["data"]["repeats"]), (&"osync".into(), &1.into()));

    // Each cell once; a slow disk gets fewer of them.
    let (runs, cells) = (list(&section["data"], "runs"), list(&section["data"]["judged"], "cells"));
    assert!(runs.len() == cells.len() && runs.len() % 4 == 0 && (12..=36).contains(&runs.len()));
    for cell in cells {
        let is_its =
            |run: &&Value| ["block_size", "num_bytes", "sync"].iter().all(|name| run[*name] == cell[*name]);
        let [run] = runs.iter().filter(is_its).collect::<Vec<_>>()[..] else { panic!("{cell:#}") };
        let of = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("no {name} in {run:#}"));
        assert!((of("wall") - of("user") - of("sys") - of("unaccounted")).abs() < 1e-9, "{run:#}");
        assert_eq!(cell["wall"], run["wall"]);
        assert_eq!(cell["blocks"].as_u64(), Some(of("num_bytes") as u64 / of("block_size") as u64));
        for model in ["kernel", "cawl", "naive"] {
            assert!(cell["predicted"][model].as_f64() > Some(0.0), "{cell:#}");
        }
        let waits = cell["sync"] == "o_sync" || cell["sync"] == "o_dsync";
        assert_eq!(cell["predicted"]["eq4"].is_f64(), waits, "{cell:#}");
    }
    check_findings(section, 6);

    let table = text("osync.csv");
    assert_eq!(table.lines().next(), Some("block_size,sync,num_bytes,wall,user,sys,repeat"));
    assert_eq!(table.lines().count(), 1 + runs.len());
    let mut regress = lab(&dir, &["regress"]);
    regress.arg(dir.path().join("results/osync.csv")).args(["wall ~ blocks * sync", "--json"]);
    let fit: Value = serde_json::from_str(&Running::start(regress).finish().success().stdout).expect("JSON");
    assert_eq!(fit["rows"].as_u64(), Some(runs.len() as u64));
    assert_eq!(list(&fit, "coefficients").len(), 8);

    check_page(&text("index.html"), 4, &["o_dsync", "Eq. 4", "kernel", "200 µs"]);
    // Nothing else is left.
    assert_eq!(fs::read_dir(dir.work()).unwrap().count(), 0);
}

/// Interrupts a study as soon as there is a page, which has the first section.
fn keeps_its_first_part(dir: &Dir, study: Command, first: &str) {
    let results = dir.path().join("results");
    let running = Running::start(study);
    eventually("a page", || results.join("index.html").exists());
    running.signal(Signal::SIGTERM);
    running.finish().says("the study is incomplete");
    let found: Value =
        serde_json::from_str(&fs::read_to_string(results.join("results.json")).unwrap()).expect("JSON");
    assert_eq!(list(&found, "sections")[0]["name"], first);
    assert_eq!(fs::read_dir(dir.work()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_study_keeps_the_parts_that_are_complete() {
    let _others = beside_others();
    let dir = Dir::new();
    keeps_its_first_part(&dir, once(&dir, "reads"), "read-classes");
}

#[test]
#[ignore = "long: weighs the laws by all data of the paper"]
fn an_interrupted_study_of_all_seeds_keeps_what_the_paper_has() {
    let _others = beside_others();
    let dir = Dir::new();
    let mut command = lab(&dir, &["experiment", "seeds", "--out"]);
    command.arg(dir.path().join("results"));
    keeps_its_first_part(&dir, command, "paper");
}

#[test]
#[ignore = "long: a whole study"]
fn the_study_of_locks_divides_each_threads_time_and_predicts_the_lock_of_a_file() {
    let _others = beside_others();
    let dir = Dir::new();
    let found = study(&dir, "locks");
    let text = |name: &str| fs::read_to_string(dir.path().join("results").join(name)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text("results.json")).unwrap(), found);
    let [locks, writers] = list(&found, "sections") else { panic!("{found:#}") };
    assert_eq!((&locks["name"], &writers["name"]), (&"locks".into(), &"inode-lock".into()));

    let of =
        |value: &Value, name: &str| value[name].as_f64().unwrap_or_else(|| panic!("no {name}: {value:#}"));
    let (runs, cells) = (list(&locks["data"], "runs"), list(&locks["data"], "outcomes"));
    assert_eq!(runs.len(), cells.len());
    for run in runs {
        let threads = list(run, "threads_told");
        assert_eq!(threads.len() as f64, of(run, "threads"));
        for thread in threads {
            assert!(of(thread, "sections") >= 1.0, "{thread:#}");
            let parts =
                ["io", "lock", "processor", "computing", "asleep", "rest"].map(|part| of(thread, part));
            assert!((parts.iter().sum::<f64>() - of(thread, "wall")).abs() < 1e-6, "{thread:#}");
            // A thread that got no processor may not have come to its write or its sleep.
            assert!(parts[0] == 0.0 || run["io"] != "none", "{thread:#}");
            let sleeps = run["work"] != "computes" || run["outside"] != "computes";
            assert!(parts[4] == 0.0 || sleeps, "{run:#}");
        }
    }
    for cell in cells {
        assert!(of(cell, "rate") > 0.0 && of(cell, "processor") > 0.0, "{cell:#}");
        assert_eq!(cell["write"].is_array(), cell["io"] != "none", "{cell:#}");
    }
    check_findings(locks, 10);
    let header = "threads,lock,work,section_us,outside,outside_us,io,wall_s,sections,processor_s,io_s,lock_s,\
                  run_delay_s,computing_s,asleep_s,rest_s";
    let table = text("locks.csv");
    assert_eq!((table.lines().next(), table.lines().count()), (Some(header), 1 + runs.len()));

    // Who writes to a file of their own does not wait for others; who writes to one file does.
    let outcomes = list(&writers["data"], "outcomes");
    assert!(outcomes.len() >= 8, "{outcomes:#?}");
    for one in outcomes {
        assert!(of(one, "observed") >= of(one, "undelayed") && of(one, "undelayed") > 0.0, "{one:#}");
        let waits = one["one_file"] == true && !(one["direct"] == true && one["appends"] == false);
        if !waits {
            assert_eq!(of(one, "lock"), 0.0, "{one:#}");
        }
        assert!(of(one, "kernel") >= of(one, "lock") && of(one, "open_loop") > 0.0, "{one:#}");
    }
    check_page(&text("index.html"), 3, &["adaptive", "run delay", "usleep(1)", "Writers of one file"]);
    assert_eq!(fs::read_dir(dir.work()).unwrap().count(), 0);
}

#[test]
fn the_study_of_reads_counts_each_call_in_a_class_and_predicts_each_kind_of_read() {
    let _others = beside_others();
    let dir = Dir::new();
    let found = study(&dir, "reads");
    let [classes, reads] = list(&found, "sections") else { panic!("{found:#}") };
    assert_eq!((&classes["name"], &reads["name"]), (&"read-classes".into(), &"reads".into()));
    // Cached and uncached, by the document's classes and by the disk's.
    let tables = list(classes, "tables");
    assert_eq!(tables.len(), 4);
    for table in tables {
        let rows: Vec<&[Value]> =
            list(table, "rows").iter().map(|row| row.as_array().unwrap().as_slice()).collect();
        for (column, what) in [(3, "observed"), (6, "predicted")] {
            let count = |row: &&[Value]| row[column].as_str().unwrap().parse::<u64>().unwrap();
            assert_eq!(rows.iter().map(count).sum::<u64>(), 5000, "{what}: {table:#}");
        }
    }
    let of =
        |value: &Value, name: &str| value[name].as_f64().unwrap_or_else(|| panic!("no {name}: {value:#}"));
    let cells = list(reads, "data");
    // Without O_DIRECT those past the cache are missing.
    assert!(cells.len() == 15 || cells.len() == 9, "{cells:#?}");
    for cell in cells {
        assert!(
            of(cell, "p10") <= of(cell, "observed") && of(cell, "observed") <= of(cell, "p90"),
            "{cell:#}"
        );
        assert!(of(cell, "mean") > 0.0 && of(cell, "kernel") > 0.0 && of(cell, "naive") > 0.0, "{cell:#}");
    }
    // A cached file is read whole, in calls of the size.
    let calls = |access: &str, size: u64| {
        let is_its = |cell: &&Value| cell["access"] == access && cell["size"] == size;
        cells.iter().find(is_its).map(|cell| of(cell, "calls"))
    };
    assert_eq!((calls("buffered", 512), calls("buffered", 65_536)), (Some(32_768.0), Some(256.0)));
    check_findings(classes, 5);
    check_findings(reads, 5);
    let page = fs::read_to_string(dir.path().join("results/index.html")).unwrap();
    check_page(&page, 0, &["Reads of dd, uncached, this disk", "past the page cache", "49 999 of 50 000"]);
    assert_eq!(fs::read_dir(dir.work()).unwrap().count(), 0);
}

/// At least so many, each with a verdict.
fn check_findings(section: &Value, least: usize) {
    let verdicts = ["holds", "differs", "wrong", "not comparable"];
    let findings = list(section, "findings");
    assert!(findings.len() >= least, "{findings:#?}");
    for finding in findings {
        assert!(verdicts.contains(&finding["verdict"].as_str().unwrap_or("none")), "{finding:#}");
    }
}

/// The page is whole and has these words, and the pictures are pictures.
fn check_page(page: &str, pictures: usize, words: &[&str]) {
    let all: Vec<&str> =
        page.split("<svg").skip(1).filter_map(|rest| rest.split_once("</svg>").map(|(one, _)| one)).collect();
    assert_eq!(all.len(), pictures);
    for picture in all {
        let svg = format!("<svg{picture}</svg>");
        assert!(roxmltree::Document::parse(&svg).is_ok(), "{svg}");
    }
    for word in words {
        assert!(page.contains(word), "no {word}");
    }
}
