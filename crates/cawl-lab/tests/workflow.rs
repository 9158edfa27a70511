//! Workflows on paper and for real, by the built program.

use std::fs;
use std::process::{Command, Stdio};

use cawl_kit::{Dir, Finished, Running, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::util::{Started, alone, beside_others, content, lab, limits, possible, refused, stop};

const MAPS: &str = "name = \"maps\"\n[[task]]\nname = \"map{}\"\ncount = 3\nreads = [\"raw{}=20M\"]\n\
     compute = \"100ms\"\nwrites = [\"part{}=8M\"]\n[[task]]\nname = \"<reduce>\"\nreads = [\"part*\"]\n\
     writes = [\"sum=1M\"]\n";

fn workflow(dir: &Dir, args: &[&str]) -> Finished {
    let mut command = lab(dir, &["workflow"]);
    command.args(args).current_dir(dir.path());
    Running::start(command).finish()
}

fn written(dir: &Dir, name: &str, text: &str) {
    fs::write(dir.path().join(name), text).unwrap();
}

#[test]
fn makespan_causes_and_what_if() {
    let dir = Dir::new();
    written(&dir, "maps.toml", MAPS);
    let args = ["maps.toml", "--processors", "2", "--try", "set=device.read=40M", "--sensitivity"];
    let text = workflow(&dir, &args).success().stdout;
    for part in ["maps: 4 tasks, 7 files", "84 MiB read, 25 MiB written", "CRITICAL PATH", "processor speed"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json = workflow(&dir, &[&args[..], &["--json"]].concat()).success().stdout;
    let answer: Value = serde_json::from_str(&json).unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    let makespan = number(&answer["makespan_s"]);
    let critical = &answer["critical"];
    let sum =
        ["computing_s", "reading_s", "writing_s"].map(|part| number(&critical[part])).iter().sum::<f64>();
    assert!((sum / makespan - 1.0).abs() < 1e-6, "{sum} {makespan}");
    assert!(number(&answer["what_if"][0]["ratio"]) > 1.2, "{answer:#}");
    let elasticity = |at: usize| number(&answer["sensitivity"][at]["elasticity"]["makespan"]);
    assert_eq!(answer["sensitivity"][0]["change"], "device bandwidth");
    // Larger parts shorten, each by the share of the makespan that is its.
    assert!((-1.0..-0.1).contains(&elasticity(0)), "{answer:#}");
    let share = number(&critical["computing_s"]) / makespan;
    assert!((elasticity(5) + share).abs() < 0.1, "{} {share}", elasticity(5));
}

#[test]
fn pages_and_timelines() {
    let dir = Dir::new();
    written(&dir, "maps.toml", MAPS);
    let files = ["--page", "page.html", "--perfetto", "time.json"];
    workflow(&dir, &[&["maps.toml"][..], &files].concat()).success();
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("&lt;reduce&gt;: ") && !page.contains("<reduce>"), "{page}");
    let svg = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap() + 6];
    let drawn = roxmltree::Document::parse(svg).unwrap();
    assert_eq!(drawn.descendants().filter(|node| node.has_tag_name("g")).count(), 4);
    let timeline: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("time.json")).unwrap()).unwrap();
    let tasks = timeline["traceEvents"].as_array().unwrap();
    assert_eq!(tasks.iter().filter(|event| event["cat"] == "task").count(), 4);
    // Their own are written again, others are not.
    workflow(&dir, &[&["maps.toml"][..], &files].concat()).success();
    let other = workflow(&dir, &["maps.toml", "--page", "maps.toml"]);
    assert!(other.stderr.contains("maps.toml exists and is no page of cawl"), "{}", other.stderr);
    assert_eq!(fs::read_to_string(dir.path().join("maps.toml")).unwrap(), MAPS);
}

#[test]
fn hosts_of_a_cluster() {
    let dir = Dir::new();
    written(&dir, "maps.toml", MAPS);
    let profile = cawl_core::HostProfile::uncalibrated();
    written(&dir, "node.toml", &profile.to_toml());
    let cluster = "[[host]]\nname = \"node\"\ncount = 3\nprocessors = 1\nprofile = \"node.toml\"\n\
                   limits = \"64M,128M\"\n[shared]\nprofile = \"node.toml\"\nbandwidth = \"1GB/s\"\n";
    written(&dir, "cluster.toml", cluster);
    let text = workflow(&dir, &["maps.toml", "--cluster", "cluster.toml"]).success().stdout;
    assert!(text.contains("3 of 1 processor") && text.contains("node-"), "{text}");
    written(&dir, "cluster.toml", "[[host]]\nprocessors = 1\ncount = 2\n");
    let wrong = workflow(&dir, &["maps.toml", "--cluster", "cluster.toml"]);
    assert!(wrong.stderr.contains("cluster.toml is no cluster: 2 hosts share no files"), "{}", wrong.stderr);
}

#[test]
fn what_is_no_workflow_is_said() {
    let dir = Dir::new();
    written(&dir, "bytes.toml", "\u{1}\u{2}");
    written(&dir, "half.json", "{\"workflow\": {");
    written(&dir, "empty.toml", "");
    written(&dir, "maps.toml", MAPS);
    for (args, code, why) in [
        (&["none.toml"][..], 1, "cannot read none.toml"),
        (&["bytes.toml"], 1, "bytes.toml is not a workflow (TOML)"),
        (&["half.json"], 1, "half.json is not a workflow of WfCommons (JSON)"),
        (&["empty.toml"], 1, "empty.toml is no workflow: it has no tasks"),
        (&["maps.toml", "--try", "fsync=none"], 2, "is a change of calls"),
        (&["maps.toml", "--try", "limit=1"], 2, "limit"),
        (&["maps.toml", "--try", "set=device.writ=1G"], 2, "device.writ"),
        (&["maps.toml", "--model", "magic"], 2, "possible values"),
    ] {
        let said = workflow(&dir, args);
        assert_eq!(said.status.code(), Some(code), "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains(why), "{args:?}: {}", said.stderr);
    }
}

/// Public instances (github.com/wfcommons/WfInstances), in a folder that CAWL_WORKFLOWS names.
#[test]
fn public_instances_are_read() {
    let Some(folder) = std::env::var_os("CAWL_WORKFLOWS") else {
        return cawl_kit::skipped("no public workflows; CAWL_WORKFLOWS names their folder");
    };
    let dir = Dir::new();
    let mut read = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let args = [path.to_str().unwrap(), "--processors", "48", "--model", "naive", "--json"];
            let answer: Value = serde_json::from_str(&workflow(&dir, &args).success().stdout).unwrap();
            assert!(answer["makespan_s"].as_f64().unwrap() > 0.0, "{}", path.display());
            read += 1;
        }
    }
    eprintln!("{read} instances");
    assert!(read > 0);
}

/// A task that writes, two that read it on a processor each, and one that reads what they write.
const DIAMOND: &str = "[files]\nraw = \"3M\"\n\"half*\" = \"2M\"\n\
    [[task]]\nname = \"raw\"\nreads = [\"raw\"]\nwrites = [\"all=4M\"]\n\
    [[task]]\nname = \"half{}\"\ncount = 2\nreads = [\"all\"]\ncompute = \"20ms\"\nwrites = [\"half{}\"]\nblock = \"64K\"\n\
    [[task]]\nname = \"sum\"\nprocessors = 2\nreads = [\"half*\"]\ncompute = \"10ms\"\nwrites = [\"sum=1M\"]\nfsync = true\n";

/// A workflow that is run for real, once, with a profile that is the same on each machine, in the folder
/// `disk`.
fn real(dir: &Dir, text: &str, args: &[&str]) -> Command {
    fs::create_dir_all(dir.path().join("disk")).unwrap();
    written(dir, "real.toml", text);
    written(dir, "profile.toml", &cawl_core::HostProfile::uncalibrated().to_toml());
    let mut command =
        lab(dir, &["workflow", "../real.toml", "--profile", "../profile.toml", "--repeats", "1"]);
    command.args(["--settle", "0", "--json"]).args(args).current_dir(dir.path().join("disk"));
    command
}

fn nothing_is_left(dir: &Dir) {
    assert_eq!(content(&dir.path().join("disk")), Vec::<String>::new());
}

fn is_a_diamond(answer: &Value) {
    let of = |task: usize, part: &str| answer["tasks"][task]["measured"][part].as_f64().unwrap();
    assert_eq!(answer["tasks"].as_array().unwrap().len(), 4, "{answer:#}");
    assert_eq!(of(0, "begin_s"), 0.0);
    for half in [1, 2] {
        assert!(of(half, "begin_s") >= of(0, "end_s") && of(3, "begin_s") >= of(half, "end_s"), "{answer:#}");
        assert!(of(half, "computing_s") >= 0.02);
    }
    for task in 0..4 {
        let parts = ["reading_s", "computing_s", "writing_s"].map(|part| of(task, part)).iter().sum::<f64>();
        assert!((of(task, "end_s") - of(task, "begin_s") - parts).abs() < 1e-6, "{answer:#}");
    }
    assert_eq!(answer["makespan_s"].as_f64().unwrap(), of(3, "end_s"));
    let models = answer["models"].as_array().unwrap();
    assert!(models.len() == 3 && models.iter().all(|model| model["error"].is_f64()), "{answer:#}");
}

#[test]
#[ignore = "long: a run for real touches the free memory before"]
fn a_real_run_leaves_nothing_but_its_times() {
    let _others = beside_others();
    let dir = Dir::new();
    for args in [&["--run"][..], &["--run", ".", "--cached", "--processors", "1"]] {
        let json = Running::start(real(&dir, DIAMOND, args)).finish().success().stdout;
        is_a_diamond(&serde_json::from_str(&json).unwrap());
        nothing_is_left(&dir);
    }
}

#[test]
#[ignore = "long: a run for real touches the free memory before"]
fn a_real_run_on_an_emulated_disk() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let (dir, before) = (Dir::new(), limits());
    let run = real(&dir, DIAMOND, &["--disk", "ssd,size=2", "--limits", "24M,48M"]);
    let answer: Value = serde_json::from_str(&Running::start(run).finish().success().stdout).unwrap();
    is_a_diamond(&answer);
    let machine = answer["machine"].to_string();
    assert!(machine.contains("ssd,size=2") && machine.contains("24 MiB and 48 MiB"), "{machine}");
    assert_eq!(limits(), before);
    nothing_is_left(&dir);
}

#[test]
fn a_task_that_fails_ends_the_run() {
    let _others = beside_others();
    let dir = Dir::new();
    let real = real(&dir, DIAMOND, &["--run"]);
    // Of 3.5 MiB at most: less than `all` has.
    let mut limited = dir.command("sh");
    limited.args(["-c", "ulimit -f 7168; exec \"$@\"", "sh"]).arg(real.get_program()).args(real.get_args());
    limited.current_dir(dir.path().join("disk"));
    let output = limited.output().unwrap();
    refused(&output, "the task raw failed: ");
    nothing_is_left(&dir);
}

#[test]
#[ignore = "long: a run for real touches the free memory before"]
fn an_interrupted_run_leaves_nothing() {
    let _others = beside_others();
    let dir = Dir::new();
    let long = DIAMOND.replace("20ms", "1000s");
    let mut command = real(&dir, &long, &["--run"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Started::by(&mut command);
    let list = format!("/proc/{0}/task/{0}/children", run.id());
    let children =
        || fs::read_to_string(&list).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut tasks = Vec::new();
    eventually("two tasks compute", || {
        tasks = children();
        tasks.len() == 2
    });
    stop(&mut run, Signal::SIGINT);
    assert!(tasks.iter().all(|task| !fs::exists(format!("/proc/{task}")).unwrap()), "{tasks:?}");
    nothing_is_left(&dir);
}
