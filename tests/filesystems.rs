//! Filesystems with laws of their own: files in memory are never dirty, an overlay copies a file up, and ext4
//! without a journal passes over deleted inodes.

use std::fs;
use std::process::Command;

use nix::unistd::geteuid;
use serde_json::Value;

use cawl_kit::{Dir, Report, Running, calls, skipped};

const MIB: u64 = 1 << 20;

/// Runs a program, where `mount` has been done in a namespace that goes away with it. None, and said so,
/// where that cannot be mounted.
fn run(dir: &Dir, mount: &str, program: &[&str]) -> Option<Report> {
    if !geteuid().is_root() {
        skipped("mounting needs root");
        return None;
    }
    let started = |command: &Command| {
        let mut unshare = dir.command("unshare");
        unshare.args(["--mount", "sh", "-c", &format!("mount {mount} && exec \"$@\""), "sh"]);
        unshare.arg(command.get_program()).args(command.get_args());
        Running::start(unshare).finish()
    };
    let probe = started(&Command::new("true"));
    if !probe.status.success() {
        skipped(&format!("`mount {mount}` fails here: {}", probe.stderr.trim()));
        return None;
    }
    let finished = started(&dir.run_command(&[], program)).success();
    let report = dir.report(&finished);
    report.all_seen();
    Some(report)
}

/// What people read of the trace.
fn text(dir: &Dir) -> String {
    let mut replay = dir.cawl(&["replay"]);
    replay.arg(dir.trace());
    Running::start(replay).finish().success().stdout
}

/// Seconds that the first model predicted for an operation.
fn predicted(report: &Report, op: &str) -> f64 {
    report["models"][0]["by_op"][op]["predicted_s"].as_f64().expect("a prediction")
}

/// The model's own dirty level after each write and sync of a trace, in bytes.
fn levels(dir: &Dir) -> Vec<u64> {
    let mut replay = dir.cawl(&["replay", "--calls", "--json", "--lockstep", "--model", "kernel"]);
    replay.arg(dir.trace());
    let finished = Running::start(replay).finish().success();
    let calls = finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    calls.filter_map(|call| call["predictions"][0]["dirty"].as_u64()).collect()
}

#[test]
fn files_in_memory_are_never_dirty_and_a_sync_of_them_is_free() {
    let dir = Dir::new();
    let memory = dir.path().join("memory");
    fs::create_dir(&memory).unwrap();
    let dd = |folder: &str| {
        let of = format!("of={}/file", dir.path().join(folder).display());
        [
            "dd".to_owned(),
            "if=/dev/zero".to_owned(),
            of,
            "bs=1M".to_owned(),
            "count=64".to_owned(),
            "conv=fsync".to_owned(),
        ]
    };
    let mount = format!("-t tmpfs none {}", memory.display());
    let program = dd("memory");
    let Some(report) = run(&dir, &mount, &program.each_ref().map(String::as_str)) else { return };
    assert_eq!(report["in_memory"]["bytes"], 64 * MIB, "{}", report["in_memory"]);
    let told = text(&dir);
    assert!(told.contains("files in memory alone: never written back"), "{told}");
    // The profile is the uncalibrated one, whose fsync takes 1 ms.
    assert!(predicted(&report, "fsync") < 1e-4, "{}", predicted(&report, "fsync"));
    let told = levels(&dir);
    assert!(told.len() > 64 && told.iter().all(|level| *level == 0), "{told:?}");
    fs::remove_file(dir.trace()).unwrap();
    // The same on the disk below, if that is one.
    let (finished, on_disk) = dir.run(&[], &dd("work"));
    finished.success();
    if on_disk["in_memory"].is_null() {
        assert!(predicted(&on_disk, "fsync") > 1e-4);
        assert_eq!(levels(&dir).iter().max(), Some(&(64 * MIB)));
    }
}

/// What the kernel makes as it is read, and what nobody keeps.
#[test]
fn what_is_read_of_proc_is_not_told_as_written_to_memory() {
    let dir = Dir::new();
    let (finished, report) = dir.run(&[], &["cp", "/proc/self/maps", "/dev/null"]);
    finished.success();
    assert!(report["in_memory"].is_null(), "{}", report["in_memory"]);
}

#[test]
fn the_first_open_for_writing_copies_a_lower_file_up() {
    let dir = Dir::new();
    let folder = |name: &str| dir.path().join(name).display().to_string();
    for name in ["lower", "upper", "overlay-work", "on"] {
        fs::create_dir(folder(name)).unwrap();
    }
    fs::write(folder("lower/file"), vec![1; 4 * MIB as usize]).unwrap();
    let [lower, upper, work] = ["lower", "upper", "overlay-work"].map(folder);
    let mount =
        format!("-t overlay -o lowerdir={lower},upperdir={upper},workdir={work} none {}", folder("on"));
    let file = folder("on/file");
    let write = "dd if=/dev/zero bs=4k count=1 conv=notrunc status=none";
    // To read it copies nothing, nor does the second open for writing. A new file has nothing to copy.
    let script =
        format!("cat {file} >/dev/null; {write} of={file}; {write} of={file}; {write} of={file}.new");
    let Some(report) = run(&dir, &mount, &["sh", "-c", &script]) else { return };
    let copied = &report["copied_up"];
    assert_eq!((&copied["files"], &copied["bytes"]), (&1.into(), &(4 * MIB).into()), "{copied}");
    assert!(copied["seconds"].as_f64() > Some(0.0));
    let told = text(&dir);
    assert!(told.contains("1 file of an overlay, 4 MiB, opened for writing in"), "{told}");
    let opens: Vec<Value> = calls(&dir, &dir.trace());
    let opens = opens.iter().filter(|call| call["op"] == "open" && call["path"] == *file);
    let first =
        opens.map(|call| call["predictions"][0]["predicted_s"].as_f64().unwrap_or(0.0)).fold(0.0, f64::max);
    // 4 MiB at 500 MB/s, and an fsync of 1 ms.
    assert!((0.009..0.1).contains(&first), "{first}");
    let causes = report["explain"]["causes"].as_array().expect("causes");
    assert!(causes.iter().any(|cause| cause["name"] == "copy up"), "{causes:#?}");
    // It is up there now.
    fs::remove_file(dir.trace()).unwrap();
    let again = run(&dir, &mount, &["sh", "-c", &script]).expect("it was mounted before");
    assert!(again["copied_up"].is_null(), "{}", again["copied_up"]);
}

/// cachestat finds no pages of an overlay's inode: they are those of the file below.
#[test]
fn what_is_cached_below_an_overlay_is_neither_read_nor_made_anew() {
    for (command, not) in [("cat on/file >/dev/null", "read"), ("dd bs=1M count=8 1<>on/file", "new pages")] {
        let dir = Dir::new();
        let [lower, upper, work, on] = ["lower", "upper", "overlay-work", "on"].map(|name| {
            fs::create_dir(dir.path().join(name)).unwrap();
            dir.path().join(name).display().to_string()
        });
        fs::write(format!("{upper}/file"), vec![1; 8 * MIB as usize]).unwrap();
        let mount = format!("-t overlay -o lowerdir={lower},upperdir={upper},workdir={work} none {on}");
        let script = format!("{} </dev/zero 2>/dev/null", command.replace("on/", &format!("{on}/")));
        let Some(report) = run(&dir, &mount, &["sh", "-c", &script]) else { return };
        let causes = report["explain"]["causes"].as_array().expect("causes");
        let has = |name: &str| causes.iter().any(|cause| cause["name"] == name);
        assert!(has("copy") && !has(not), "{command}: {causes:#?}");
    }
}

#[test]
fn deleted_inodes_that_new_files_pass_over_are_found_where_there_is_no_journal() {
    let found = |journal: &str| {
        let dir = Dir::new();
        let [image, on] = ["image", "on"].map(|name| dir.path().join(name).display().to_string());
        fs::create_dir(&on).unwrap();
        fs::File::create(&image).and_then(|file| file.set_len(64 * MIB)).unwrap();
        let mkfs = Command::new("mkfs.ext4").args(["-q", "-N", "8192", "-O", journal, &image]).status();
        if !mkfs.is_ok_and(|status| status.success()) {
            skipped("there is no mkfs.ext4");
            return None;
        }
        // Those of the running second are given away again.
        let deleted = "seq 2000 | xargs touch && seq 2000 | xargs rm && now=$(date +%s) &&
            until [ $(date +%s) -gt $now ]; do :; done";
        let mount = format!("-o loop {image} {on} && cd {on} && {deleted}");
        let report = run(&dir, &mount, &["touch", "new"])?;
        let mut replay = dir.cawl(&["replay", "--json"]);
        replay.arg(dir.trace());
        let replayed = Report::parse(&Running::start(replay).finish().success().stdout);
        assert_eq!(replayed["host"]["deleted"], report["host"]["deleted"]);
        // Temporary files may lie on a filesystem without a journal, too; loop devices have the major
        // number 7.
        let all = report["host"]["deleted"].as_array().cloned().unwrap_or_default();
        Some(all.into_iter().find(|one| one["dev"].as_u64().is_some_and(|dev| dev >> 8 == 7)))
    };
    // A look is given up where the machine is too busy for it.
    let mut without = None;
    for _ in 0..10 {
        let Some(looked) = found("^has_journal") else { return };
        without = looked;
        if without.is_some() {
            break;
        }
    }
    let without = without.expect("some were found");
    assert!(without["passed"].as_u64() > Some(0) && without["inode"].as_u64() > Some(0), "{without}");
    assert_eq!(found("has_journal"), Some(None));
}
