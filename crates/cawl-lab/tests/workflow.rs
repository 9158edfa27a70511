//! Workflows on paper, by the built program.

use std::fs;

use cawl_kit::{Dir, Finished, Running};
use serde_json::Value;

use crate::util::lab;

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
    written(&dir, "node.toml", &profile.to_toml().unwrap());
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
