//! Workflows on paper.

use cawl_core::{DirtyLimits, HostProfile, Rate};

use super::cluster::Shared;
use super::*;

fn simulated(workflow: &Workflow, cluster: &Cluster, cached: bool) -> Outcome {
    simulate(workflow, cluster, &Options { model: "kernel", cached }, &mut |_| Ok(())).unwrap()
}

fn toml(text: &str) -> Workflow {
    let workflow = text::parse(text).unwrap();
    workflow.check().unwrap();
    workflow
}

fn host(processors: u32) -> Cluster {
    Cluster::single(processors, HostProfile::uncalibrated())
}

fn seconds(moment: cawl_core::Time) -> f64 {
    moment.0 as f64 / 1e9
}

/// Without files, what comes out is list scheduling.
#[test]
fn tasks_begin_in_their_order_where_they_fit() {
    let workflow = toml(
        "[[task]]\nname = \"wide\"\ncompute = \"2s\"\nprocessors = 2\n\
         [[task]]\nname = \"long\"\ncompute = \"5s\"\n\
         [[task]]\nname = \"wider\"\ncompute = \"1s\"\nprocessors = 99\n\
         [[task]]\nname = \"last\"\ncompute = \"1s\"\nafter = [\"wide\"]\n",
    );
    let outcome = simulated(&workflow, &host(3), false);
    let times: Vec<_> = outcome.tasks.iter().map(|ran| (seconds(ran.begin), seconds(ran.end))).collect();
    // The third takes all of the host: those behind it go ahead.
    assert_eq!(times, [(0.0, 2.0), (0.0, 5.0), (5.0, 6.0), (2.0, 3.0)]);
    assert_eq!(outcome.makespan(), Nanos::seconds(6.0));
    let path = outcome.critical_path(&workflow);
    assert_eq!(path, [(1, Because::First), (2, Because::Processor)]);
    let on_four = simulated(&workflow, &host(1), false);
    assert_eq!(on_four.makespan(), Nanos::seconds(9.0));
}

const MAPS: &str = "block = \"256K\"\n[files]\n\"raw*\" = \"20M\"\n\
     [[task]]\nname = \"map{}\"\ncount = 4\nreads = [\"raw{}\"]\ncompute = \"100ms\"\nwrites = [\"part{}=8M\"]\n\
     [[task]]\nname = \"reduce\"\nreads = [\"part*\"]\nwrites = [\"sum=1M\"]\nfsync = true\nblock = \"1M\"\n";

#[test]
fn the_critical_path_is_the_makespan() {
    let workflow = toml(MAPS);
    assert_eq!((workflow.tasks.len(), workflow.files.len()), (5, 9));
    assert_eq!(workflow.tasks[4].after, [0, 1, 2, 3]);
    assert_eq!(workflow.inputs().iter().filter(|is| **is).count(), 4);
    let outcome = simulated(&workflow, &host(2), false);
    let path = outcome.critical_path(&workflow);
    let sum = outcome.sum(path.iter().map(|(task, _)| *task));
    let all = sum.reading + sum.computing + sum.writing;
    assert!((all / outcome.makespan() - 1.0).abs() < 1e-6, "{all} {}", outcome.makespan());
    assert!((sum.causes.total() / (sum.reading + sum.writing) - 1.0).abs() < 1e-6);
    assert_eq!(path.last(), Some(&(4, Because::Dependency)));
    // The parts were just written, the raw data are on the device.
    let read = |task: usize| outcome.tasks[task].times.causes[cawl_core::Cause::Read];
    assert!(read(0) > Nanos::millis(1.0) && read(4) == Nanos::ZERO, "{} {}", read(0), read(4));
    let cached = simulated(&workflow, &host(2), true);
    assert!(cached.tasks[0].times.reading < outcome.tasks[0].times.reading * 0.5);
    assert_eq!(simulated(&workflow, &host(2), false).makespan(), outcome.makespan());
}

/// A page cache is its host's: what another host wrote is read from the server, which serves one at a time.
#[test]
fn hosts_share_files_and_not_caches() {
    let workflow = toml(
        "[[task]]\nname = \"write\"\nwrites = [\"data=64M\"]\n\
         [[task]]\nname = \"read{}\"\ncount = 2\nreads = [\"data\"]\n",
    );
    let one = host(1).hosts.remove(0);
    let of = |hosts: usize, times: f64| {
        let bandwidth = Some(one.profile.device.read.value * times);
        Cluster { hosts: vec![one.clone(); hosts], shared: Some(Shared { bandwidth }) }
    };
    let outcome = simulated(&workflow, &of(2, 1.0), false);
    let on: Vec<_> = outcome.tasks.iter().map(|ran| ran.host).collect();
    assert_eq!(on, [0, 0, 1]);
    let reading = |outcome: &Outcome, task: usize| outcome.tasks[task].times.reading;
    assert!(reading(&outcome, 2) > reading(&outcome, 1) * 3.0);
    // Three hosts read what a fourth wrote.
    let three = toml(
        "[[task]]\nname = \"write\"\nwrites = [\"data=64M\"]\n\
         [[task]]\nname = \"hold\"\ncompute = \"100s\"\nafter = [\"write\"]\n\
         [[task]]\nname = \"read{}\"\ncount = 2\nreads = [\"data\"]\n",
    );
    let (alone, shared) = (simulated(&three, &of(3, 2.0), false), simulated(&three, &of(3, 1.0), false));
    let ratio = reading(&shared, 2) / reading(&alone, 2);
    assert!(ratio > 1.5 && ratio <= 2.0, "{ratio}");
}

#[test]
fn a_cycle_is_named() {
    let cycle = "[[task]]\nname = \"a\"\nafter = [\"c\"]\n[[task]]\nname = \"b\"\nafter = [\"a\"]\n\
                 [[task]]\nname = \"c\"\nafter = [\"b\"]\n[[task]]\nname = \"d\"\nafter = [\"c\"]\n";
    let said = text::parse(cycle).unwrap().check().unwrap_err().to_string();
    assert_eq!(said, "no task of a cycle can begin: b → c → a");
}

#[test]
fn what_is_wrong_in_a_text_is_said() {
    let task = |rest: &str| format!("[[task]]\nname = \"a\"\n{rest}\n");
    for (text, why) in [
        (task("reads = [\"x\"]"), "the file x has no size: add it under [files]"),
        (task("reads = [\"x=1Q\"]"), "the file x: `1Q`"),
        (task("reads = [\"p*\"]"), "the task a: no file is p*"),
        (task("after = [\"b\"]"), "the task a: no task is b"),
        (task("compute = \"5\""), "the task a: a time with its unit"),
        (task("writes = [\"p*\"]"), "name each file"),
        (task("count = 2"), "with a count its name needs {}"),
        (task("count = 0"), "count must be 1 to"),
        (task("processors = 0"), "processors must be above 0"),
        (task("reads = [\"x{}=1M\"]"), "{} needs a count"),
        ("[[task]]\nname = \"a{}\"\ncount = 2\nwrites = [\"x=1M\"]".to_owned(), "would write x=1M"),
        (task("reads = [\"x=1M\"]\nwrites = [\"x=2M\"]"), "the file x has two sizes: 1M and 2M"),
        (task("reads = [\"xy\"]\n[files]\n\"x*\" = \"1M\"\n\"*y\" = \"2M\""), "the file xy fits *y and x*"),
        (task("block = \"0\""), "a: block: give more"),
        (task("[files]\ny = \"1M\""), "no task reads or writes the file y"),
        (task("") + &task(""), "two tasks have the name a"),
        (task("writ = []"), "unknown field `writ`"),
    ] {
        let said = format!("{:#}", text::parse(&text).unwrap_err());
        assert!(said.contains(why), "{text}: {said}");
    }
    assert_eq!(text::parse("").unwrap().check().unwrap_err().to_string(), "it has no tasks");
}

/// The same workflow in the forms that WfCommons has had.
#[test]
fn every_form_of_wfcommons_is_read() {
    let forms = [
        r#"{"schemaVersion": "1.5", "workflow": {
            "specification": {
                "tasks": [
                    {"name": "split", "id": "split_1", "parents": [], "children": ["count_2"],
                     "inputFiles": ["in"], "outputFiles": ["mid"]},
                    {"name": "count", "id": "count_2", "parents": ["split_1"], "children": [],
                     "inputFiles": ["mid"], "outputFiles": ["out"]}],
                "files": [{"id": "in", "sizeInBytes": 1000}, {"id": "mid", "sizeInBytes": 500},
                          {"id": "out", "sizeInBytes": 10}]},
            "execution": {"makespanInSeconds": 9, "executedAt": "", "tasks": [
                {"id": "split_1", "runtimeInSeconds": 4.0, "coreCount": 2, "avgCPU": 100.0},
                {"id": "count_2", "runtimeInSeconds": 3.0, "avgCPU": 50}]}}}"#,
        r#"{"schemaVersion": "1.4", "workflow": {"machines": [], "tasks": [
            {"name": "split", "id": "split_1", "parents": [], "runtimeInSeconds": 4.0, "cores": 2,
             "avgCPU": 100, "files": [{"link": "input", "name": "in", "sizeInBytes": 1000},
                                      {"link": "output", "name": "mid", "sizeInBytes": 500}]},
            {"name": "count", "id": "count_2", "parents": ["split_1"], "runtimeInSeconds": 3, "avgCPU": 50,
             "files": [{"link": "input", "name": "mid", "sizeInBytes": 500},
                       {"link": "output", "name": "out", "sizeInBytes": 10}]}]}}"#,
        r#"{"schemaVersion": "1.2", "workflow": {"makespan": 7, "jobs": [
            {"name": "split", "type": "compute", "parents": [], "runtime": 4.0, "cores": 2, "avgCPU": 100,
             "files": [{"link": "input", "name": "in", "size": 1000},
                       {"link": "output", "name": "mid", "size": 500}]},
            {"name": "count", "type": "compute", "parents": ["split"], "runtime": 3.0, "avgCPU": 50,
             "files": [{"link": "input", "name": "mid", "size": 500},
                       {"link": "output", "name": "out", "size": 10}]}]}}"#,
    ];
    let read: Vec<Workflow> = forms.iter().map(|form| wfcommons::parse(form).unwrap()).collect();
    let [split, count] = &read[0].tasks[..] else { panic!("{:?}", read[0].tasks) };
    assert_eq!((split.compute, split.processors), (Nanos::seconds(2.0), 2));
    assert_eq!((count.compute, &count.after[..]), (Nanos::seconds(1.5), &[0][..]));
    assert_eq!(read[0].bytes(), (Bytes(1500), Bytes(510)));
    assert!(read.iter().all(|workflow| *workflow == read[0]), "{read:#?}");
    for (form, why) in [
        ("{}", "missing field `workflow`"),
        (r#"{"workflow": {"tasks": [{"name": "a", "parents": ["b"]}]}}"#, "b is the parent or child"),
        (r#"{"workflow": {"tasks": [{"name": "a"}, {"name": "a"}]}}"#, "two tasks have the id a"),
    ] {
        let said = format!("{:#}", wfcommons::parse(form).unwrap_err());
        assert!(said.contains(why), "{form}: {said}");
    }
    let silent =
        wfcommons::parse(r#"{"workflow": {"tasks": [{"name": "a", "inputFiles": ["x"]}]}}"#).unwrap();
    assert_eq!(
        silent.notes,
        [
            "1 task without a runtime, or with one below 0: they compute nothing",
            "1 file without a size, or with one below 0: empty"
        ]
    );
}

/// The example of docs/science/WORKFLOWS.md.
#[test]
fn the_page_has_a_workflow() {
    let page = include_str!("../../../../docs/science/WORKFLOWS.md");
    let (_, text) = page.split_once("```toml\n").unwrap();
    let workflow = toml(text.split_once("```").unwrap().0);
    assert_eq!((workflow.tasks.len(), workflow.files.len()), (9, 17));
}

/// What hosts move through a server takes as long as the server needs for it.
#[test]
fn a_server_moves_no_more_than_it_can() {
    let mut profile = HostProfile::uncalibrated();
    profile.device.read.value = Rate::mb_per_second(200.0);
    profile.device.write.value = Rate::mb_per_second(400.0);
    profile.device.writeback.value = Rate::mb_per_second(400.0);
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(50), hard: Bytes::mib(100) };
    let host = Cluster::single(2, profile).hosts.remove(0);
    let seconds = |text: &str, hosts: usize, server: Option<f64>| {
        let shared = Some(Shared { bandwidth: server.map(Rate::mb_per_second) });
        let cluster = Cluster { hosts: vec![host.clone(); hosts], shared };
        simulated(&toml(text), &cluster, false).makespan().as_seconds()
    };
    let reads = |count: u32| {
        format!("[[task]]\nname = \"r{{}}\"\ncount = {count}\nprocessors = 2\nreads = [\"f{{}}=200MB\"]\n")
    };
    let writes =
        "[[task]]\nname = \"w{}\"\ncount = 4\nprocessors = 2\nwrites = [\"f{}=1GB\"]\nfsync = true\n";
    for (text, hosts, server, expected) in [
        (reads(1), 1, Some(200.0), 1.0),
        (reads(4), 4, Some(100.0), 8.0),
        (reads(4), 4, Some(800.0), 1.0),
        // As much as for one: that of writes here.
        (reads(4), 4, None, 2.0),
        (writes.to_owned(), 4, Some(200.0), 20.0),
    ] {
        let found = seconds(&text, hosts, server);
        assert!((found / expected - 1.0).abs() < 0.1, "{hosts} hosts, {server:?} MB/s: {found} s");
    }
}
