//! `cawl-lab design` on a recorded trace.

use std::fs;
use std::path::Path;
use std::process::Command;

use cawl_kit::Dir;
use serde_json::Value;

use crate::util::{json, lab, refused};

const CHOICES: &str = r#"
currency = "EUR"

[[choice]]
name = "disk"

[[choice.option]]
name = "SATA, as it is"
price = 50

[[choice.option]]
name = "NVMe"
price = 90
change = "scale=latency=0.02,flush=0.1,bandwidth=3"

[[choice]]
name = "controller"

[[choice.option]]
name = "none"
price = 0

[[choice.option]]
name = "with a battery"
price = 100
change = "scale=flush=0.01"

[[choice.option]]
name = "gilded"
price = 500
"#;

/// A program that synced each of its writes.
fn trace() -> String {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/causes-fsync.cawl");
    trace.display().to_string()
}

fn design(dir: &Dir, arguments: &[&str]) -> Command {
    fs::write(dir.work().join("shop.toml"), CHOICES).unwrap();
    let trace = trace();
    lab(dir, &[&["design", "shop.toml", &trace], arguments].concat())
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {row}"))
}

#[test]
fn a_front_of_price_and_time() {
    let dir = Dir::new();
    let answer = json(&design(&dir, &["--json", "--plot", "front.svg"]).output().unwrap());
    let machines = answer["machines"].as_array().unwrap();
    assert_eq!((machines.len(), &answer["currency"], &answer["by"]), (6, &"EUR".into(), &"elapsed".into()));
    assert!(machines.is_sorted_by(|a, b| number(a, "price") <= number(b, "price")));
    let cheapest = &machines[0];
    assert_eq!((&cheapest["options"]["disk"], &cheapest["front"]), (&"SATA, as it is".into(), &true.into()));
    // As it is, nothing is faster or slower.
    assert!((number(cheapest, "ratio") - 1.0).abs() < 1e-9, "{cheapest}");
    assert_eq!(number(cheapest, "elapsed_s"), number(&answer["now"], "elapsed_s"));
    let of = |disk: &str, controller: &str| {
        let is = |one: &&Value| one["options"]["disk"] == disk && one["options"]["controller"] == controller;
        machines.iter().find(is).unwrap()
    };
    let (ssd, both, gilded) = (of("NVMe", "none"), of("NVMe", "with a battery"), of("NVMe", "gilded"));
    assert!(number(ssd, "elapsed_s") < number(cheapest, "elapsed_s") && ssd["front"] == true, "{ssd}");
    assert!(number(both, "elapsed_s") < number(ssd, "elapsed_s") && both["front"] == true, "{both}");
    assert!(gilded["front"] == false && number(gilded, "elapsed_s") == number(ssd, "elapsed_s"), "{gilded}");
    let interval = ssd["calls_interval"].as_array().unwrap();
    let ratio = number(ssd, "calls_ratio");
    assert!(interval[0].as_f64().unwrap() <= ratio && ratio <= interval[1].as_f64().unwrap(), "{ssd}");
    let picture = fs::read_to_string(dir.work().join("front.svg")).unwrap();
    let dots = roxmltree::Document::parse(&picture).unwrap();
    assert_eq!(dots.descendants().filter(|node| node.has_tag_name("circle")).count(), 6);

    // Beaten ones are counted, or listed; two traces take twice as long.
    let text = |arguments: &[&str]| {
        let output = design(&dir, arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (short, all) = (text(&["--by", "calls"]), text(&["--all", "--plot", "front.png"]));
    assert!(short.contains("beaten (--all lists them)") && !short.contains("gilded"), "{short}");
    assert!(all.contains("NVMe, gilded") && all.contains("PRICE, EUR"), "{all}");
    assert!(short.lines().chain(all.lines()).all(|line| line.chars().count() <= 80), "{short}{all}");
    assert!(fs::read(dir.work().join("front.png")).unwrap().starts_with(b"\x89PNG"));
    let two = json(&design(&dir, &[&trace(), "--json"]).output().unwrap());
    let twice = number(&two["now"], "elapsed_s") / number(&answer["now"], "elapsed_s");
    assert!((twice - 2.0).abs() < 1e-9, "{twice}");
}

#[test]
fn what_cannot_be_designed_is_told() {
    let dir = Dir::new();
    let with = |text: String| {
        fs::write(dir.work().join("bad.toml"), text).unwrap();
        lab(&dir, &["design", "bad.toml", &trace()]).output().unwrap()
    };
    for (old, new, says) in [
        ("scale=flush=0.01", "set=device.colour=1", "choice `controller`, option `with a battery`"),
        ("scale=flush=0.01", "profile=none.toml", "cannot read the profile none.toml"),
        ("scale=flush=0.01", "scale=flash=1", "bad.toml: choice `controller`, option `with a battery`"),
        ("price = 90", "", "missing field `price`"),
    ] {
        refused(&with(CHOICES.replace(old, new)), says);
    }
    let limits = CHOICES.replace("scale=latency=0.02,flush=0.1,bandwidth=3", "limits=1G,2G");
    refused(&with(limits.replace("scale=flush=0.01", "ram=8G")), "the one or the other");
    let two = CHOICES
        .replace("scale=flush=0.01", "profile=p.toml")
        .replace("scale=latency=0.02", "profile=p.toml,scale=latency=0.02");
    fs::write(dir.work().join("p.toml"), cawl_core::HostProfile::uncalibrated().to_toml()).unwrap();
    refused(&with(two), "the choices `disk` and `controller` have profiles");
    refused(
        &lab(&dir, &["design", "none.toml", &trace()]).output().unwrap(),
        "cannot read the choices none.toml",
    );
    fs::write(dir.work().join("notes.svg"), "dear diary").unwrap();
    refused(&design(&dir, &["--plot", "notes.svg"]).output().unwrap(), "is no picture of cawl");
    let usage = design(&dir, &["--plot", "front.pdf"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("name a .svg or .png"));
}

/// The machine of a workflow: all hosts change.
#[test]
fn the_front_of_a_workflow() {
    let dir = Dir::new();
    fs::write(dir.work().join("shop.toml"), CHOICES).unwrap();
    let flow = "[[task]]\nname = \"copy{}\"\ncount = 4\nreads = [\"raw{}=50M\"]\ncompute = \"100ms\"\n\
                writes = [\"new{}=10M\"]\nfsync = true\n";
    fs::write(dir.work().join("flow.toml"), flow).unwrap();
    let of = |work: &[&str]| lab(&dir, &[&["design", "shop.toml"], work].concat()).output().unwrap();
    let answer = json(&of(&["flow.toml", "--processors", "2", "--json"]));
    let machines = answer["machines"].as_array().unwrap();
    assert_eq!((&answer["workflows"], &answer["traces"], machines.len()), (&1.into(), &0.into(), 6));
    let now = number(&answer["now"], "elapsed_s");
    assert_eq!(number(&machines[0], "elapsed_s"), now);
    let nvme = machines.iter().find(|row| row["options"]["disk"] == "NVMe").unwrap();
    assert!(number(nvme, "elapsed_s") < now * 0.8 && number(nvme, "elapsed_s") > 0.2, "{nvme}");
    let workflow =
        json(&lab(&dir, &["workflow", "flow.toml", "--processors", "2", "--json"]).output().unwrap());
    assert_eq!(number(&workflow, "makespan_s"), now);
    let mixed = of(&["flow.toml", &trace()]);
    assert_eq!(mixed.status.code(), Some(2));
    let hosts = of(&[&trace(), "--processors", "2"]);
    assert_eq!(hosts.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&hosts.stderr).contains("are of workflows"));
    fs::write(dir.work().join("shop.toml"), CHOICES.replace("scale=flush=0.01", "fsync=none")).unwrap();
    refused(&of(&["flow.toml"]), "is a change of calls");
}
