//! The commands that ask a daemon, with a fake one that answers as the test wants.

use std::fs;

use cawl_client::protocol::{
    CauseSeconds, ConstantStatus, Cost, DeviceStatus, FileStatus, Files, Forecast, History, Listing,
    Predicted, ProcessStatus, Processes, ProfileAnswer, Push, Request, Sort, Status, Topic,
};
use cawl_core::{Cause, CauseTimes, HostProfile, Rate, Regime};
use serde_json::{Value, json};

use cawl_kit::{Answer, Dir, FakeDaemon, Finished, Running};

/// A machine that throttles.
pub fn busy(uptime_s: f64) -> Status {
    Status {
        schema: 1,
        node: "vm1".to_owned(),
        time_s: 1_700_000_000.0 + uptime_s,
        model: "kernel".to_owned(),
        profile: "lab".to_owned(),
        modelled_dirty_bytes: 96 << 20,
        sampled_dirty_bytes: Some(95 << 20),
        background_bytes: 32 << 20,
        freerun_bytes: 80 << 20,
        hard_bytes: 128 << 20,
        state: Regime::Throttle,
        dirtying_rate: 120e6,
        forecast: Some(Forecast { throttle_s: Some(0.0), ..Forecast::default() }),
        clients: 1,
        uptime_s,
        cost: Cost { observed_s: uptime_s, lost_s: uptime_s / 2.0, ..Cost::default() },
        devices: vec![DeviceStatus { device: "254:1".to_owned(), ..DeviceStatus::default() }],
        ..Status::default()
    }
}

fn causes() -> CauseSeconds {
    let second = 1_000_000_000;
    CauseSeconds::from(&CauseTimes::from([(Cause::Throttle, 2 * second), (Cause::ColdMemory, second)]))
}

pub fn files() -> Files {
    let cost =
        Cost { observed_s: 3.0, predicted_s: 2.5, throttled_s: 2.0, sync_s: 0.5, lost_s: 2.5, rate: 1e6 };
    let file = |path: &str| FileStatus {
        first_path: None,
        path: path.to_owned(),
        device: "254:1".to_owned(),
        inode: 7,
        calls: 10,
        bytes: 1 << 30,
        estimated_bytes: 0,
        causes_s: causes(),
        cost,
    };
    Files { schema: 1, omitted: 3, more: 0, files: vec![file("/data/first"), file("/data/second")] }
}

pub fn processes() -> Processes {
    let cost =
        Cost { observed_s: 3.0, predicted_s: 2.5, throttled_s: 2.0, sync_s: 0.5, lost_s: 2.5, rate: 1e6 };
    let process = ProcessStatus {
        pid: 4242,
        program: "dd".to_owned(),
        calls: 10,
        bytes: 1 << 30,
        cost,
        causes_s: causes(),
    };
    Processes { schema: 1, omitted: 0, more: 0, processes: vec![process] }
}

fn profile() -> ProfileAnswer {
    let configured = HostProfile::uncalibrated();
    let mut learned = configured.clone();
    learned.device.writeback.value = Rate::mb_per_second(100.0);
    ProfileAnswer {
        schema: 1,
        configured: configured.to_toml(),
        learned: learned.to_toml(),
        constants: vec![ConstantStatus {
            name: "device.writeback".to_owned(),
            unit: "B/s".to_owned(),
            configured: 400e6,
            learned: 100e6,
            p10: Some(90e6),
            p90: Some(110e6),
            samples: 17,
        }],
    }
}

fn predicted() -> Predicted {
    Predicted {
        schema: 1,
        model: "kernel".to_owned(),
        calls: 65536,
        cost_s: 12.5,
        states_s: [("throttle".to_owned(), 12.0)].into(),
        peak_dirty_bytes: 96 << 20,
        fsync_s: 0.9,
        ..Predicted::default()
    }
}

/// A daemon's answer, with a field of a later version.
pub fn canned(request: &Request) -> Answer {
    let said = match request {
        Request::Status(_) => json!(busy(10.0)),
        Request::Files(_) => json!(files()),
        Request::Processes(_) => json!(processes()),
        Request::Predict(_) => json!(predicted()),
        Request::Profile => json!(profile()),
        Request::History(_) => json!(History { schema: 1, points: Vec::new() }),
        Request::Subscribe(_) => return Answer::Subscribes,
        _ => json!({ "error": "not in this test; ask something else" }),
    };
    let mut said = said;
    said["of_a_later_version"] = json!(true);
    Answer::Says(said)
}

fn asks(dir: &Dir, args: &[&str]) -> Finished {
    Running::start(dir.cawl(args)).finish()
}

fn json_of(finished: Finished) -> Value {
    serde_json::from_str(&finished.success().stdout).expect("JSON")
}

#[test]
fn status_in_words_and_as_it_came() {
    let dir = Dir::new();
    let _daemon = FakeDaemon::start(&dir.socket(), canned);
    let text = asks(&dir, &["status"]).success().stdout;
    for told in ["throttle on vm1", "96 MiB, 75.0 % of hard", "95 MiB", "throttle above 80 MiB"] {
        assert!(text.contains(told), "`{told}` is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(json_of(asks(&dir, &["status", "--json"]))["of_a_later_version"], true);
}

#[test]
fn tables_are_asked_for_as_told() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let text = asks(&dir, &["status", "--files"]).success().stdout;
    assert!(text.contains("throttle 67 %, cold memory 33 %") && text.contains("/data/first"), "{text}");
    assert!(text.contains("… and 3 more files"), "{text}");
    assert_eq!(daemon.question(), Request::Files(Listing { sort: Sort::Lost, limit: Some(20), skip: 0 }));
    let text = asks(&dir, &["status", "--processes", "--sort", "rate", "--limit", "5"]).success().stdout;
    assert!(text.contains("4242") && text.contains("dd") && text.contains("500 ms"), "{text}");
    assert_eq!(daemon.question(), Request::Processes(Listing { sort: Sort::Rate, limit: Some(5), skip: 0 }));
    assert_eq!(json_of(asks(&dir, &["status", "--files", "--json"]))["files"][1]["path"], "/data/second");
    assert_eq!(json_of(asks(&dir, &["status", "--processes", "--json"]))["of_a_later_version"], true);
    asks(&dir, &["status", "--files", "--sort", "size"]).code(2).says("throttled");
    asks(&dir, &["status", "--files", "--limit", "0"]).code(2);
    asks(&dir, &["status", "--sort", "rate"]).code(2).says("--files");
    for other in [&["--processes"][..], &["--watch"], &["--count", "1"], &["--model", "cawl"]] {
        asks(&dir, &[&["status", "--files"], other].concat()).code(2);
    }
    // As these were called before.
    for name in ["files", "processes"] {
        let old = asks(&dir, &[name, "--limit", "2", "--json"]).success().says(&format!("status --{name}"));
        assert_eq!(old.stdout, asks(&dir, &["status", &format!("--{name}"), "--json"]).success().stdout);
    }
}

#[test]
fn watch_prints_a_line_per_push() {
    let dir = Dir::new();
    let pushes = |_: &Request| {
        let status = |uptime: f64| Push::Status(Box::new(busy(uptime)));
        Answer::PushesAndEnds(vec![status(10.0), status(11.0), status(12.0)])
    };
    let daemon = FakeDaemon::start(&dir.socket(), pushes);
    let text = asks(&dir, &["status", "--watch", "--count", "2", "--every", "50ms"]).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[2].starts_with("22:13:30 throttle    96.0    95.0   75    120.0"), "{text}");
    assert!(lines[3].contains(" 1.00  0.50 "), "half of each second was lost: {text}");
    let Request::Subscribe(subscription) = daemon.question() else { panic!("not a subscription") };
    assert_eq!((subscription.topics, subscription.every_s), (vec![Topic::Status], Some(0.05)));

    // The daemon's end is reported, and its return awaited: it pushes three lines each time.
    let finished = asks(&dir, &["status", "--watch", "--json", "--count", "5"]).success().says("hung up");
    assert!(finished.stderr.contains("waiting for it to come back"), "{}", finished.stderr);
    let states: Vec<Value> =
        finished.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(states.len(), 5);
    assert_eq!(states[3], states[0]);
    assert_eq!((&states[2]["uptime_s"], &states[2]["state"]), (&json!(12.0), &json!("throttle")));
    asks(&dir, &["status", "--watch", "--every", "1ms"]).code(2).says("between");
    asks(&dir, &["status", "--watch", "--count", "0"]).code(2);
    asks(&dir, &["watch", "--count", "1"]).success().says("status --watch");
}

#[test]
fn watch_ends_quietly_when_nobody_reads() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let shell = format!("{} status --watch | head -n 3", cawl_kit::built("cawl-cli").display());
    let mut command = dir.command("sh");
    command.args(["-c", &shell]);
    let running = Running::start(command);
    daemon.subscription();
    let (send, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(running.finish()));
    // The reader stops after the first line; the writer notices at one of the next.
    let mut uptime = 10.0;
    let finished = loop {
        daemon.push(&Push::Status(Box::new(busy(uptime))));
        uptime += 1.0;
        if let Ok(finished) = ended.recv_timeout(std::time::Duration::from_millis(10)) {
            break finished;
        }
    };
    assert_eq!((finished.stderr.as_str(), finished.stdout.lines().count()), ("", 3));
}

#[test]
fn a_long_table_is_asked_for_by_pages() {
    let dir = Dir::new();
    // One row per page, of five, and one more that has no row.
    let page = |request: &Request| {
        let Request::Files(listing) = request else { panic!("not about files") };
        let more = 4u64.saturating_sub(listing.skip as u64);
        let mut page = Files { omitted: more + 1, more, ..files() };
        page.files.truncate(1);
        page.files[0].path = format!("/data/{}", listing.skip);
        Answer::Says(json!(page))
    };
    let daemon = FakeDaemon::start(&dir.socket(), page);
    let answer = json_of(asks(&dir, &["status", "--files", "--limit", "3", "--json"]));
    let paths: Vec<&Value> =
        answer["files"].as_array().expect("rows").iter().map(|row| &row["path"]).collect();
    assert_eq!(paths, ["/data/0", "/data/1", "/data/2"]);
    assert_eq!((&answer["more"], &answer["omitted"]), (&json!(2), &json!(3)));
    for (skip, limit) in [(0, 3), (1, 2), (2, 1)] {
        assert_eq!(daemon.question(), Request::Files(Listing { sort: Sort::Lost, limit: Some(limit), skip }));
    }
    let text = asks(&dir, &["status", "--files", "--limit", "9"]).success().stdout;
    assert!(text.contains("/data/4") && text.contains("and 1 more file, which made room"), "{text}");
}

#[test]
fn predict_needs_no_daemon() {
    let dir = Dir::new();
    let finished = asks(&dir, &["predict", "--offline", "--bytes", "1G", "--json"]).success();
    let answer: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&answer["calls"], answer["cost_s"].as_f64() > Some(0.0)), (&json!(1024), true), "{answer}");
    let text = asks(&dir, &["predict", "--offline", "--bytes", "1G"]).success().says("defaults").stdout;
    assert!(text.contains("1 GiB in 1024 calls") && text.contains("of the hard limit"), "{text}");
    let at = |path| asks(&dir, &["predict", "--offline", "--bytes", "1G", "--path", path]).success();
    at("none").says("there is no ").says("/none; predicted as if it were made in ");
    at("none/of/these").says("there is no folder ").says("/none/of; predicted as if");
    asks(&dir, &["predict", "--offline", "--bytes", "1G", "--model", "x"]).code(1).says("no model `x`");
    asks(&dir, &["predict", "--offline", "--bytes", "1G", "--profile", "none"]).code(1).says("none");
    assert_eq!(answer["source"], "offline");
    // Without a daemon: the same, with a message.
    let finished = asks(&dir, &["predict", "--bytes", "1G", "--json"]).success().says("no daemon is running");
    let answer: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&answer["source"], &answer["calls"]), (&json!("offline"), &json!(1024)));
    let text = asks(&dir, &["predict", "--bytes", "1G"]).success().says("no daemon is running").stdout;
    assert!(text.contains("1 GiB in 1024 calls"), "{text}");
    // Of files in memory no device and no limit is told, however much it is; a file need not be there.
    let cost = |path: &str, bytes: &str| {
        let answer = asks(&dir, &["predict", "--offline", "--bytes", bytes, "--json", "--path", path]);
        let answer: Value = serde_json::from_str(&answer.success().stdout).expect("JSON");
        answer["cost_s"].as_f64().expect("a cost")
    };
    let (little, much) = (cost("/dev/shm/new", "1G"), cost("/dev/shm/new", "16G"));
    assert!(much < 17.0 * little && cost("new", "1G") > 0.0, "{little} s, {much} s");
    let at = |path: &str| asks(&dir, &["predict", "--offline", "--bytes", "1G", "--path", path]);
    at("missing/folder/file").success().says("there is no folder").says("missing/folder");
    for wrong in ["/proc/self/new", "/sys/new", "/dev/null"] {
        at(wrong).code(2).says("name a file or folder on a disk or in memory");
    }
    // A named daemon must answer.
    let named = ["predict", "--bytes", "1G", "--socket", "no-such-socket"];
    asks(&dir, &named).code(1).says("start one with");
}

#[test]
fn predict_asks_for_what_was_meant() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let finished = asks(
        &dir,
        &["predict", "--bytes", "4G", "--chunk", "64K", "--fsync", "--at", "+10s", "--path", "new"],
    );
    let text = finished.success().stdout;
    for told in
        ["4 GiB in 65536 calls of 64 KiB, fsync at the end, beginning in 10 s", "12.5 s", "75 % of the hard"]
    {
        assert!(text.contains(told), "`{told}` is not in {text}");
    }
    let Request::Predict(plan) = daemon.question() else { panic!("not a plan") };
    assert_eq!(
        (plan.bytes, plan.chunk, plan.sync, plan.fsync, plan.at_s),
        (4 << 30, Some(65536), false, true, 10.0)
    );
    assert!(plan.device.is_some_and(|device| device.contains(':')));
    let json = asks(&dir, &["predict", "--bytes", "1.5MB", "--device", "254:1", "--model", "cawl", "--json"]);
    assert_eq!(json_of(json)["cost_s"], 12.5);
    // The limits, for people.
    assert!(matches!(daemon.question(), Request::Status(_)));
    let Request::Predict(plan) = daemon.question() else { panic!("not a plan") };
    assert_eq!((plan.bytes, plan.device.as_deref()), (1_500_000, Some("254:1")));
    assert_eq!(plan.view.model.as_deref(), Some("cawl"));

    asks(&dir, &["predict"]).code(2).says("--bytes");
    asks(&dir, &["predict", "--bytes", "4X"]).code(2).says("512M");
    asks(&dir, &["predict", "--bytes", "0"]).code(2).says("more than zero");
    asks(&dir, &["predict", "--bytes", "1M", "--device", "vda"]).code(2).says("254:1");
}

#[test]
fn profiles_are_compared_and_exported() {
    let dir = Dir::new();
    let daemon = FakeDaemon::start(&dir.socket(), canned);
    let text = asks(&dir, &["profile", "diff"]).success().stdout;
    for told in ["device.writeback", "400 MB/s", "100 MB/s", "-75 %", "90 MB/s", "17"] {
        assert!(text.contains(told), "`{told}` is not in {text}");
    }
    assert_eq!(json_of(asks(&dir, &["profile", "diff", "--json"]))["constants"][0]["samples"], 17);

    let text = asks(&dir, &["profile", "export"]).success().stdout;
    assert_eq!(text, profile().learned);
    asks(&dir, &["profile", "export", "-o", "learned.toml"]).success();
    assert_eq!(
        fs::read_to_string(dir.work().join("learned.toml")).expect("it was written"),
        profile().learned
    );
    asks(&dir, &["profile", "export", "--configured", "-o", "learned.toml"]).code(1).says("--force");
    assert_eq!(fs::read_to_string(dir.work().join("learned.toml")).expect("it is there"), profile().learned);
    asks(&dir, &["profile", "export", "--configured", "-o", "learned.toml", "--force"]).success();
    assert_eq!(
        fs::read_to_string(dir.work().join("learned.toml")).expect("it is there"),
        profile().configured
    );
    asks(&dir, &["profile", "export", "--configured", "--learned"]).code(2);
    asks(&dir, &["profile", "export", "-o", "no/such/folder"]).code(1).says("-o");

    // A file against what is in use.
    let text = asks(&dir, &["profile", "diff", "learned.toml"]).success().stdout;
    assert!(text.contains("IN USE") && text.contains("-75 %"), "{text}");
    // Two files need no daemon.
    drop(daemon);
    fs::write(dir.work().join("b.toml"), profile().learned).expect("a new file");
    let text = asks(&dir, &["profile", "diff", "learned.toml", "b.toml"]).success().stdout;
    assert!(text.contains("device.writeback") && text.lines().count() == 2, "{text}");
    let text = asks(&dir, &["profile", "diff", "b.toml", "b.toml"]).success().stdout;
    assert_eq!(text, "no constant differs\n");
    asks(&dir, &["profile", "diff", "b.toml", "none.toml"]).code(1).says("none.toml");

    // What would be used here.
    let shown = asks(&dir, &["profile", "show"]).success().says("no profile of this machine: uncalibrated");
    let shown = HostProfile::from_toml(&shown.stdout).expect("a profile");
    let json: HostProfile =
        serde_json::from_value(json_of(asks(&dir, &["profile", "show", "--json"]))).expect("a profile");
    assert_eq!(json.device, shown.device);
}

#[test]
fn what_goes_wrong_names_the_remedy() {
    let dir = Dir::new();
    let commands: [&[&str]; 7] = [
        &["status"],
        &["status", "--files"],
        &["status", "--processes"],
        &["status", "--watch"],
        &["predict", "--bytes", "1M"],
        &["profile", "diff"],
        &["profile", "export"],
    ];
    // `predict` works without a daemon.
    for command in commands.into_iter().filter(|command| command[0] != "predict") {
        asks(&dir, command).code(1).says("start one with `cawld`");
    }
    let _daemon = FakeDaemon::start(&dir.socket(), |_| Answer::Says(json!({ "error": "no; do this" })));
    for command in commands {
        asks(&dir, command).code(1).says("answers: no; do this");
    }
    asks(&dir, &["top"]).code(1).says("cawl-cli status --watch");
}

#[test]
fn completions_and_pages() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = asks(&dir, &["completions", shell]).success().stdout;
        assert!(text.contains("predict") && text.contains("trace-on"), "{shell}");
    }
    asks(&dir, &["man", "pages"]).success();
    let page =
        fs::read_to_string(dir.work().join("pages/cawl-cli-status.1")).expect("a page for each command");
    assert!(page.contains("interval"), "{page}");
    asks(&dir, &["man", "pages"]).success();
    // A stranger's page stays, and none of the others is written.
    let pages = dir.work().join("pages");
    fs::remove_file(pages.join("cawld.1")).expect("it is there");
    fs::write(pages.join("cawl-cli.1"), ".TH MINE 1\n").expect("a new file");
    asks(&dir, &["man", "pages"]).code(1).says("cawl-cli.1 exists and is no manual page of cawl");
    assert_eq!(fs::read_to_string(pages.join("cawl-cli.1")).expect("a page"), ".TH MINE 1\n");
    assert!(!pages.join("cawld.1").exists());
    let left = fs::read_dir(&pages).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    assert!(left.into_iter().all(|name| !name.as_encoded_bytes().starts_with(b".")));
}
