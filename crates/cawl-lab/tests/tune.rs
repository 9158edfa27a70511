//! Which setting suits which pattern of writing, by the built program.

use std::fs;

use cawl_core::HostProfile;
use cawl_kit::{Dir, Finished, Running};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::util::lab;

/// A grid small enough for a test.
const SMALL: [&str; 6] =
    ["--bytes", "256K", "--try", "split=4K,buffer=64K,fsync=none,end,16,1", "--try", "limits=own"];

fn tune(dir: &Dir, args: &[&str]) -> Finished {
    let mut command = lab(dir, &["tune"]);
    command.args(args);
    Running::start(command).finish()
}

fn asked(dir: &Dir, args: &[&str]) -> Value {
    let args = [&SMALL, args, &["--json"]].concat();
    serde_json::from_str(&tune(dir, &args).success().stdout).expect("JSON")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list `{name}` in {value:#}"))
}

fn part(value: &Value) -> f64 {
    value.as_f64().filter(|part| (0.0..=1.0).contains(part)).unwrap_or_else(|| panic!("{value} is no part"))
}

#[test]
fn default_choices_and_trees_as_json() {
    let dir = Dir::new();
    let answer = asked(&dir, &[]);
    assert_eq!(answer["schema"], 1);
    assert!(answer["cells"].as_u64() > answer["patterns"].as_u64());
    let defaults = list(&answer, "defaults");
    for row in defaults {
        assert!(part(&row["harmonic"]) <= part(&row["arithmetic"]) + 1e-9, "{row}");
        assert!(row["best"].as_u64() <= row["patterns"].as_u64() && row["worst"].is_u64(), "{row}");
    }
    // What loses records is the default of no pattern that may lose none.
    let of = |need: &'static str| defaults.iter().filter(move |row| row["need"] == need);
    for row in of("record").chain(of("any")) {
        let setting = row["setting"].as_str().expect("a setting");
        let is_durable = |word: &str| ["fsync=1", "dsync", "sync", "direct+dsync"].contains(&word);
        assert!(setting.split(' ').any(is_durable), "{row}");
    }
    assert!(of("none").any(|row| row["setting"] == "split=4K"));
    let trees = list(&answer, "trees");
    let depths: Vec<u64> = trees.iter().filter_map(|tree| tree["depth"].as_u64()).collect();
    assert_eq!(depths, [1, 2, 3, 4]);
    assert!(trees.windows(2).all(|pair| part(&pair[0]["regret"]) >= part(&pair[1]["regret"])), "{trees:#?}");
    for tree in trees {
        let covered: u64 = list(tree, "rules").iter().filter_map(|rule| rule["patterns"].as_u64()).sum();
        assert_eq!(Some(covered), answer["patterns"].as_u64());
        assert!(list(tree, "rules").iter().all(|rule| rule["setting"].is_string()), "{tree:#}");
    }
    assert_eq!(answer, asked(&dir, &[]), "the same every time");
}

#[test]
fn people_read_tables_and_rules_and_a_picture() {
    let dir = Dir::new();
    let (svg, csv) = (dir.path().join("tree.svg"), dir.path().join("cells.csv"));
    let (picture, cells) = (svg.to_str().expect("a name"), csv.to_str().expect("a name"));
    let args = [&SMALL[..], &["--svg", picture, "--csv", cells, "--depth", "3"]].concat();
    let text = tune(&dir, &args).success().stdout;
    for part in ["grid", "DEFAULT CHOICE", "HARMONIC", "any", "DEPTH", "loses", "durable: "] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let svg = fs::read_to_string(svg).expect("a picture");
    let picture = roxmltree::Document::parse(&svg).expect("XML");
    let shown: Vec<&str> = picture.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    assert!(shown.iter().any(|text| text.starts_with("durable: ") && text.ends_with('?')), "{shown:?}");
    let answer = asked(&dir, &["--depth", "3"]);
    for rule in list(&list(&answer, "trees")[2], "rules") {
        let setting = rule["setting"].as_str().expect("a setting");
        assert!(shown.contains(&setting), "`{setting}` is not in {shown:?}");
    }

    let csv = fs::read_to_string(csv).expect("a table");
    assert_eq!(csv.lines().count() as u64, answer["cells"].as_u64().expect("a number") + 1);
    let header = csv.lines().next().expect("a header");
    assert_eq!(header, "profile,pattern,order,durable,record,records,writers,setting,cost_s,reached");
    // Of each pattern some setting is the best.
    let best = csv.lines().filter(|line| line.ends_with(",1.000000")).count() as u64;
    assert!(Some(best) >= answer["patterns"].as_u64());
}

#[test]
fn machines_and_patterns_are_chosen() {
    let dir = Dir::new();
    let all = asked(&dir, &[]);
    let some = asked(&dir, &["--pattern", "append-record,new-none"]);
    assert!(some["patterns"].as_u64() < all["patterns"].as_u64());
    assert!(list(&some, "defaults").iter().all(|row| row["need"] != "end"));

    let profile = dir.path().join("plain.toml");
    fs::write(&profile, HostProfile::uncalibrated().to_toml()).expect("a file");
    let profile = profile.to_str().expect("a name");
    let two = asked(&dir, &["--profile", profile, "--profile", profile, "--pattern", "new"]);
    let one = asked(&dir, &["--profile", profile, "--pattern", "new"]);
    assert_eq!(two["patterns"].as_u64(), one["patterns"].as_u64().map(|count| 2 * count));
    assert_eq!(list(&two, "profiles").len(), 2);
}

#[test]
fn patterns_are_written_for_real_and_nothing_is_left() {
    let dir = Dir::new();
    let folder = dir.work();
    let before = fs::read_dir(&folder).expect("a folder").count();
    let place = folder.to_str().expect("a name");
    let mut command = lab(&dir, &["tune"]);
    command.args(&SMALL[..4]);
    command.args(["--pattern", "append-none,new-none", "--verify", "2", "--dir", place, "--json"]);
    let finished = Running::start(command).finish();
    if finished.stderr.contains("in memory") {
        return cawl_kit::skipped("the tests' folder is in memory");
    }
    let answer: Value = serde_json::from_str(&finished.success().stdout).expect("JSON");
    let verified = &answer["verified"];
    assert_eq!(list(verified, "patterns").len(), 2);
    for pattern in list(verified, "patterns") {
        part(&pattern["regret"]);
        part(&pattern["floor"]);
        assert!(
            list(pattern, "measured").iter().all(|one| one["predicted_s"].as_f64() > Some(0.0)),
            "{pattern:#}"
        );
    }
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), before);

    // Interrupted, it leaves nothing either.
    let mut command = lab(&dir, &["tune"]);
    command.args(["--bytes", "4M", "--try", "split=4K", "--verify", "100", "--dir", place]);
    let running = Running::start(command);
    cawl_kit::eventually("a folder", || fs::read_dir(&folder).expect("a folder").count() > before);
    running.signal(Signal::SIGINT);
    running.finish().signal(Signal::SIGINT);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), before);
}

#[test]
fn what_makes_no_grid_is_refused_with_a_remedy() {
    let dir = Dir::new();
    for (args, says) in [
        (&["--try", "split=0"][..], "more than zero"),
        (&["--try", "buffer=4K,direct"], "a stream does not write directly"),
        (&["--try", "fsync=sometimes"], "every=N, end, none or close"),
        (&["--try", "fsync=close"], "makes no setting"),
        (&["--try", "merge=1M"], "makes no setting"),
        (&["--try", "append"], "there is no change `append`"),
        (&["--try", "limits=2G,1G"], "below the hard limit"),
        (&["--pattern", "sideways"], "new, overwrite, random, append"),
        (&["--try", "fsync=none,direct=off", "--bytes", "64K"], "add --try fsync=1"),
        (&["--depth", "9"], "1..=4"),
        (&["--verify", "3"], "--dir"),
        (&["--verify", "3", "--dir", ".", "--try", "limits=16M,1G"], "leave out limits="),
    ] {
        tune(&dir, args).code(2).says(says);
    }
    // The words of before.
    let old = ["--chunk", "4K", "--buffer=64K", "--fsync", "none,end,16,1", "--flags", "none,direct+dsync"];
    let new = ["--try", "split=4K,buffer=64K,fsync=none,end,16,1,direct=off,direct+dsync"];
    let [old, new] = [&old[..], &new].map(|words| {
        tune(&dir, &[words, &["--bytes", "64K", "--pattern", "new-end", "--json"]].concat()).success()
    });
    assert_eq!(old.stdout, new.stdout);
    old.says("--try=split=4K");
    tune(&dir, &["--profile", "/nowhere.toml"]).code(1).says("cannot read the profile /nowhere.toml");
    let args = [&SMALL[..], &["--svg", "/nowhere/tree.svg"]].concat();
    tune(&dir, &args).code(1).says("cannot write /nowhere/tree.svg");
}
