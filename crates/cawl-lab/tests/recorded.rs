//! Recordings of `cawl-lab verify --record`: what a real kernel did with many writers and several devices,
//! and what the model makes of the same calls; where the time of calls went by its tracepoints, and by their
//! causes.

use std::path::Path;
use std::process::Command;

use cawl_core::{Bytes, HostProfile, Release};
use cawl_lab::verify::causes::{self, Account, Kind};
use cawl_lab::verify::cgroup;
use cawl_lab::verify::memory::{self, Cached};
use cawl_lab::verify::readers::{Beside, Times};
use cawl_lab::verify::writers::{Recording, Replayed};

fn replayed(name: &str) -> Replayed {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("recordings/{name}.json"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let recording: Recording = serde_json::from_str(&text).unwrap();
    recording.replay().unwrap()
}

#[test]
fn writers_of_one_disk_are_done_when_they_were() {
    for name in ["writers-4", "writers-8", "writers-one-file"] {
        let replayed = replayed(name).in_order();
        let far = replayed.ratios().into_iter().find(|ratio| (ratio - 1.0).abs() > 0.3);
        assert!(far.is_none() && replayed.farthest() < 0.5, "{name}: {replayed:.2?}");
    }
}

#[test]
fn a_slow_and_a_fast_disk_share_the_limits() {
    let replayed = replayed("two-disks");
    // Of a new disk, the model counts completions from nothing, and holds the slow one back too little.
    assert!(replayed.farthest() < 0.3, "{replayed:.2?}");
}

#[test]
fn a_strict_disk_keeps_to_its_share() {
    let (free, held) = (replayed("one-disk-free"), replayed("one-disk-strict"));
    for replayed in [&free, &held] {
        assert!(replayed.farthest() < 0.1, "{replayed:.2?}");
    }
    assert!(held.peak.as_f64() < 0.6 * free.peak.as_f64(), "{free:.2?} and {held:.2?}");
}

/// Causes over the kernel's account, with the tolerances of `verify`.
#[test]
fn causes_are_what_the_kernel_tells() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    for (name, kind, judged) in [
        ("causes-throttle-dd", Kind::Throttle, 1),
        ("causes-throttle-threads", Kind::Throttle, 1),
        ("causes-fsync", Kind::Waits, 2),
        ("causes-dsync", Kind::Waits, 2),
        ("causes-again", Kind::Waits, 2),
        ("causes-preempted", Kind::Preempted, 1),
        ("causes-stalls", Kind::Stalls, 2),
    ] {
        let account = std::fs::read(folder.join(format!("{name}.json"))).unwrap();
        let account: Account = serde_json::from_slice(&account).unwrap();
        let replayed = causes::Replayed::of(&folder.join(format!("{name}.cawl"))).unwrap();
        for figure in replayed.figures(kind, &account).into_iter().take(judged) {
            let off = (figure.found - figure.target).abs();
            assert!(off <= figure.tolerance, "{name}: {figure:?}");
        }
    }
}

/// 200 MiB in a group of 128 MiB, of which io.max lets 20 MiB through in a second; user-mode-linux 6.1.
#[test]
fn a_writer_is_throttled_by_its_group() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/cgroup-a.cawl");
    // It does not tell its release.
    let replayed = |change: fn(&mut HostProfile)| {
        cgroup::Replayed::of(&trace, |profile| {
            profile.kernel.release = Some(Release(6, 1));
            change(profile);
        })
        .unwrap()
    };
    let run = replayed(|_| ());
    // A tenth and a fifth of the group's memory, less what the programs in it have.
    let limits = run.profile.kernel.cgroup.unwrap();
    assert!((Bytes::mib(11)..Bytes::mib(13)).contains(&limits.background), "{limits:?}");
    assert!((Bytes::mib(23)..Bytes::mib(26)).contains(&limits.hard), "{limits:?}");
    assert!((run.predicted / run.observed - 1.0).abs() < 0.2, "{} of {} s", run.predicted, run.observed);
    // What neither the machine's limits nor the group's alone explain.
    let no_group = replayed(|profile| profile.kernel.cgroup = None);
    let no_rate = replayed(|profile| profile.others.clear());
    for without in [no_group, no_rate] {
        assert!(without.predicted < 0.5 * run.observed, "{} of {} s", without.predicted, run.observed);
    }
}

/// Programs that read and wrote more than the 400 MiB of their group (version 1, 6.18), or less: what the
/// kernel had of each of their files in the end.
#[test]
fn the_cache_of_a_group_has_what_the_kernel_s_has() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    for name in ["too-long", "fits", "read-twice", "written"] {
        let told = std::fs::read(folder.join(format!("memory-{name}.json"))).unwrap();
        let told: Cached = serde_json::from_slice(&told).unwrap();
        let modelled = memory::modelled(&folder.join(format!("memory-{name}.cawl"))).unwrap();
        for (file, bytes) in told {
            let off = modelled[&file].abs_diff(bytes) as f64 / f64::from(1 << 20);
            assert!(off <= memory::TOLERANCE, "{name}: {file} {bytes}, and {}", modelled[&file]);
        }
    }
}

/// A writer that is held back, alone and beside a reader of another file, as calibrated in open loop. On the
/// hdd 16 % of the reader's time are missing.
#[test]
fn a_reader_and_a_writer_share_a_disk() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    for (disk, most) in [("ssd", 0.1), ("hdd", 0.2)] {
        let of = |run: &str| folder.join(format!("{run}-{disk}.cawl"));
        let [alone, beside] = ["writer-alone", "beside"].map(|run| Beside::of(&of(run)).unwrap());
        let off = |times: Times| (times.open / times.observed - 1.0).abs();
        assert!(off(alone.writes) < 0.1 && off(beside.writes) < 0.1, "{disk}: {alone:.3?}, {beside:.3?}");
        assert!(off(beside.reads) < most, "{disk}: {beside:.3?}");
        let (modelled, observed) = beside.slowed(&alone);
        assert!(
            observed > 1.3 && (modelled / observed - 1.0).abs() < 0.1,
            "{disk}: {modelled} of {observed}"
        );
        // Nothing else explains how long the reader waits than the writes before it.
        let first = Beside::changed(&of("beside"), |profile| profile.device.shared_queue = None).unwrap();
        assert!(first.reads.open < 0.8 * first.reads.observed, "{disk}: {first:.3?}");
    }
}

/// What stands for a constant takes its place, in each run that has it; what a run cannot tell of is not
/// moved.
#[test]
fn a_constant_is_worth_what_leaving_it_out_moves() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let worth = |runs: &[&str]| {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_cawl-lab"));
        let out =
            lab.args(["worth", "--json"]).args(runs.iter().map(|run| folder.join(run))).output().unwrap();
        (out.status.code(), out.stdout, String::from_utf8(out.stderr).unwrap())
    };
    let (code, out, said) = worth(&["writer-alone-hdd.cawl", "beside-hdd.cawl"]);
    assert_eq!(code, Some(0), "{said}");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
    let most = |row: &serde_json::Value| row["most"].as_f64().unwrap().abs();
    assert!(rows.is_sorted_by(|a, b| most(a) <= most(b)), "the least first");
    let row = |name: &str| rows.iter().find(|row| row["constant"] == name);
    let base = row("device.base_rate").expect("it was measured");
    assert!(most(base) > 0.01 && base["moved"] == 2, "writers are throttled: {base}");
    assert_eq!(most(row("calls.buffer").expect("it was measured")), 0.0, "no stream");
    assert!(row("device.writeback").is_none(), "nothing stands for it");
    for (run, says) in [("none.cawl", "cannot read the trace"), ("causes-fsync.json", "not a cawl trace")] {
        let (code, _, said) = worth(&[run]);
        assert!(code != Some(0) && said.contains(says) && said.contains(run), "{said}");
    }
}
