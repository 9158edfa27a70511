//! What a report says of processes: their times by the kernel's count, and the ranks of a parallel program.

use nix::sys::signal::Signal;
use serde_json::Value;

use cawl_kit::{Dir, Report, Running};

/// The entries of processes with this program.
fn processes<'a>(report: &'a Report, program: &str) -> Vec<&'a Value> {
    let all = report["explain"]["processes"].as_array().expect("processes");
    all.iter()
        .filter(|process| process["program"].as_str().is_some_and(|name| name.ends_with(program)))
        .collect()
}

fn seconds(process: &Value, key: &str) -> f64 {
    process[key].as_f64().unwrap_or_else(|| panic!("{key}: {process}"))
}

#[test]
fn waiting_is_wall_less_user_and_system() {
    let dir = Dir::new();
    let (finished, report) =
        dir.run(&[], &["sh", "-c", "sleep 0.3; exec dd if=/dev/zero of=f bs=1M count=8"]);
    finished.success();
    // One process, two images.
    let (sh, dd, sleep) = (processes(&report, "sh"), processes(&report, "dd"), processes(&report, "sleep"));
    assert_eq!([sh.len(), dd.len(), sleep.len()], [1; 3], "{}", report["explain"]["processes"]);
    assert_eq!(sh[0]["pid"], dd[0]["pid"]);
    for process in [sh[0], dd[0], sleep[0]] {
        let [wall, user, system, waiting] =
            ["wall_s", "user_s", "system_s", "waiting_s"].map(|key| seconds(process, key));
        assert!((wall - user - system - waiting).abs() < 1e-3, "{process}");
        assert!(process["voluntary_switches"].is_u64() && process["rank"].is_null(), "{process}");
    }
    assert!(seconds(sh[0], "waiting_s") >= 0.29 && seconds(sleep[0], "waiting_s") >= 0.29);
    // Where no tick of the kernel's clock met it in the kernel, all of its time counts as the user's.
    let ran = seconds(dd[0], "user_s") + seconds(dd[0], "system_s");
    assert!(seconds(dd[0], "calls_s") > 0.0 && ran > 0.0);
}

#[test]
fn a_killed_process_has_times_too() {
    let dir = Dir::new();
    let (finished, report) = dir.run(&[], &["sh", "-c", "kill -KILL $$"]);
    finished.signal(Signal::SIGKILL);
    let sh = processes(&report, "sh");
    assert!(seconds(sh[0], "wall_s") > 0.0 && sh[0]["user_s"].is_f64() && sh[0]["system_s"].is_f64());
}

#[test]
fn eight_ranks_are_told_apart() {
    const RANKS: &str = "for rank in 0 1 2 3 4 5 6 7; do \
        [ $rank = 5 ] && count=3000 || count=2; \
        OMPI_COMM_WORLD_RANK=$rank SLURM_PROCID=9 dd if=/dev/zero of=f$rank bs=4096 count=$count status=none & \
        done; wait";
    let dir = Dir::new();
    let command = ["env", "SLURM_PROCID=0", "sh", "-c", RANKS];
    let (finished, report) = dir.run(&[], &command);
    finished.success();
    let explain = &report["explain"];
    assert_eq!(explain["rank_variable"], "OMPI_COMM_WORLD_RANK");
    let ranks = explain["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 8);
    for (number, rank) in ranks.iter().enumerate() {
        let bytes = if number == 5 { 3000 * 4096 } else { 2 * 4096 };
        assert!(rank["rank"] == number && rank["processes"] == 1 && rank["bytes"] == bytes, "{rank}");
    }
    // Which of them are stragglers depends on measured times: cawl-core's tests have that.
    let marked: Vec<&Value> =
        ranks.iter().filter(|rank| rank["straggler"] == true).map(|rank| &rank["rank"]).collect();
    assert_eq!(explain["stragglers"].as_array().expect("stragglers").iter().collect::<Vec<_>>(), marked);
    assert!(processes(&report, "dd").iter().any(|process| process["rank"] == 5));
    let text = [&["run", "--"], &command[..]].concat();
    Running::start(dir.cawl(&text)).finish().success().says("among 8 ranks (OMPI_COMM_WORLD_RANK)");
}
