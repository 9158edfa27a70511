//! The report as a page, in a real browser: `report_page/driver.js` looks at it with its own script.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cawl_core::{
    FileFacts, Frame, HostProfile, LiveOptions, Mode, Nanos, Record, Sample, Session, Stack, StackOptions,
    Time,
};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_wire::{Event, FileKind, Op, Rank, RankVariable};
use serde_json::Value;

use cawl_kit::{self, Dir, Running};

/// Names that would be markup, end a script, command a terminal, or are no text.
const HOSTILE: [&str; 4] = [
    "/d/<script>document.title='taken'</script>",
    "/d/\"><img src=x onerror=alert(1)>",
    "/d/line\nfeed\u{202e}",
    "/d/</script><!--",
];

/// A trace of `files` files that are written `calls` times each, with samples.
fn trace(dir: &Dir, files: u64, calls: u64, profile: bool) {
    let mut trace = TraceFile::create(&dir.trace(), WhenFull::Wait).expect("a trace");
    if profile {
        trace.push(&Record::Profile(Box::new(HostProfile::uncalibrated())));
    }
    let stacks = StackOptions { threshold: Nanos::new(1e6), one_in: NonZeroU32::new(64).expect("not zero") };
    trace.push(&Record::Live(LiveOptions {
        models: vec!["kernel".to_owned()],
        mode: Mode::Lockstep,
        learn: false,
        command: None,
        stacks: Some(stacks),
    }));
    let frame = |function: &str| Frame { function: Some(function.to_owned()), ..Frame::default() };
    for (id, name) in [(1, "<img src=x onerror=alert(1)>"), (2, "</script><!--")] {
        let frames = vec![frame(name), frame("save"), frame("main")];
        trace.push(&Record::Stack(Stack { id, frames, truncated: id == 2 }));
    }
    let program = "<b>program</b>".to_owned();
    trace.push(&Record::Session(Session { id: 1, pid: 7, program, ..Session::default() }));
    let mut at = 1_000_000_000;
    for ino in 1..=files {
        let path = HOSTILE.get(ino as usize - 1).map_or(format!("/d/f{ino}"), |name| (*name).to_owned());
        trace.push(&Record::File(FileFacts { dev: 1, ino, path, ..FileFacts::default() }));
        for call in 0..calls {
            let mut event = Event::new(if call % 8 == 7 { Op::Fsync } else { Op::Write });
            (event.pid, event.tid, event.dev, event.ino, event.kind) = (7, 7, 1, ino, FileKind::Regular);
            (event.start, event.duration) = (at, if call % 8 == 7 { 3_000_000 } else { 20_000 });
            (event.requested, event.returned) = (65536, 65536);
            event.stack = if call % 8 == 7 { 1 + (call / 8) as u32 % 2 } else { 0 };
            trace.push(&Record::Event(event));
            at += event.duration + 1000;
            if call % 16 == 0 {
                let (dirty, time) = ((at / 100_000) % 5000, Time(at));
                let (background, hard) = (20_000, 40_000);
                let sample =
                    Sample { time, dirty, writeback: 0, background, hard, written: 0, dirtied: dirty };
                trace.push(&Record::Sample(sample));
            }
        }
    }
    assert_eq!(trace.finish(), None);
}

/// The page of that trace.
fn page(dir: &Dir) -> String {
    let out = dir.work().join("out.html");
    let mut command = dir.cawl(&["replay", "--lockstep", "--report"]);
    command.arg(&out).arg(dir.trace());
    Running::start(command).finish().success();
    fs::read_to_string(out).expect("the page")
}

/// Opens a file in headless Chromium with these options; what it prints, or None without a browser.
fn browse(dir: &Dir, options: &[&str], page: &Path) -> Option<String> {
    let mut command = dir.command(cawl_kit::find("chromium")?);
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", dir.path().join("home/chromium").display()))
        .args(options)
        .arg(format!("file://{}", page.display()));
    Some(Running::start(command).finish().success().stdout)
}

/// What the driver found on the page, in a window of this size.
fn look(dir: &Dir, page: &str, window: &str, dark: bool) -> Option<Value> {
    // The policy of the page forbids scripts of files; the driver comes with the page's own.
    const DRIVER: &str = concat!(
        "<script>",
        include_str!("web/checks.js"),
        include_str!("report_page/driver.js"),
        "</script></body>"
    );
    let file = dir.work().join("driven.html");
    fs::write(&file, page.replacen("</body>", DRIVER, 1)).expect("a writable folder");
    // A window has a least width unless it fills the screen.
    let screen = format!("--screen-info={{{}}}", window.replace(',', "x"));
    let mut options = vec!["--virtual-time-budget=4000", "--dump-dom", "--kiosk", &screen];
    if dark {
        options.push("--blink-settings=preferredColorScheme=0");
    }
    let document = browse(dir, &options, &file)?;
    let (_, found) = document.split_once("<output id=\"found\">").expect("the driver came to its end");
    let (found, _) = found.split_once("</output>").expect("an element ends");
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let width: u64 = window.split(',').next().and_then(|width| width.parse().ok()).expect("a width");
    if found["width"] != width {
        println!("SKIPPED: this Chromium has no windows of {width} pixels: {}", found["width"]);
        return None;
    }
    Some(found)
}

#[test]
fn the_page_is_whole_on_every_screen() {
    let dir = Dir::new();
    trace(&dir, 5, 200, true);
    let page = page(&dir);
    for (window, dark) in [("1280,900", false), ("1280,900", true), ("390,844", false)] {
        let Some(found) = look(&dir, &page, window, dark) else { return };
        assert_eq!(found["errors"], serde_json::json!([]), "{found:#}");
        assert_eq!(found["requests"], serde_json::json!([]), "{found:#}");
        assert_eq!(found["dark"], dark, "{found:#}");
        // On paper all is light, and charts are no wider than A4 less its margins.
        assert_eq!(found["printed"]["ground"], "rgb(244, 246, 249)", "{found:#}");
        assert!(found["printed"]["widest"].as_f64().is_some_and(|widest| widest <= 703.0), "{found:#}");
        assert!(found["printed"]["filled"].as_f64().is_some_and(|part| part > 0.99), "{found:#}");
        assert_eq!(found["faint"], serde_json::json!([]), "text of too little contrast: {found:#}");
        assert_eq!(found["overflow"], 0, "nothing is wider than the window: {found:#}");
        // A file's causes are seen without scrolling, on a phone, too.
        let reach = found["reach"].as_f64().expect("files have causes");
        assert!(reach > 0.0 && Some(reach) <= found["width"].as_f64(), "{found:#}");
        for colours in found["colours"].as_array().expect("a list") {
            assert!(colours.as_u64() > Some(20), "a chart is blank: {found:#}");
        }
        // Functions, operation and causes; the tree's root is a frame, too. Hostile names are text.
        let frames = found["frames"].as_array().expect("a list");
        let names: Vec<&str> = frames.iter().filter_map(Value::as_str).collect();
        for name in ["all calls", "main", "save", "</script><!--", "fsync"] {
            assert!(names.contains(&name), "{name}: {found:#}");
        }
        assert!(found["zoomed"].as_u64().is_some_and(|shown| shown < names.len() as u64), "{found:#}");
        // 7 of 8 calls are writes, the others take most of the time.
        assert!(
            found["dirty"].as_str().is_some_and(|text| text.contains("of 1\u{202f}000 calls")),
            "{found:#}"
        );
        // Hostile names are text, in the tables and in the embedded data.
        assert_eq!(found["title"], "cawl: <b>program</b>");
        assert_eq!(found["markup"], 0, "{found:#}");
        let files = found["files"].to_string();
        for name in ["<script>document.title", "<img src=x", r"line\\nfeed\\u{202e}", "</script><!--"] {
            assert!(files.contains(&name.replace('"', "\\\"")), "{name} is not in {files}");
        }
    }
}

/// Four ranks of which one takes long, each with its file, written twice and synchronized.
fn ranks(dir: &Dir) {
    let mut trace = TraceFile::create(&dir.trace(), WhenFull::Wait).expect("a trace");
    trace.push(&Record::Profile(Box::new(HostProfile::uncalibrated())));
    let mut at = 1_000_000_000;
    for number in 0..4 {
        let (pid, rank) = (7 + number, Rank { variable: RankVariable::Slurm, number });
        let program = "solver".to_owned();
        let started = Time(at);
        let session = Session { id: pid, pid, program, started, rank: Some(rank), ..Session::default() };
        trace.push(&Record::Session(session));
        let ino = u64::from(pid);
        let path = format!("/a/folder/of/{}/f{number}", "x".repeat(70));
        trace.push(&Record::File(FileFacts { dev: 1, ino, path, ..FileFacts::default() }));
        for call in 0..40 {
            let mut event = Event::new(if call % 8 == 7 { Op::Fsync } else { Op::Write });
            (event.pid, event.tid, event.dev, event.ino, event.kind) = (pid, pid, 1, ino, FileKind::Regular);
            (event.start, event.duration) = (at, if number == 2 { 9_000_000 } else { 20_000 });
            event.offset = call % 4 * 65536;
            (event.requested, event.returned) = (65536, 65536);
            trace.push(&Record::Event(event));
            at += event.duration + 1000;
        }
    }
    assert_eq!(trace.finish(), None);
}

#[test]
fn the_page_has_what_the_text_has() {
    let dir = Dir::new();
    ranks(&dir);
    let (file, trace) = (dir.work().join("out.html"), dir.trace());
    let report = |options: &[&str]| {
        let mut command = dir.cawl(&["explain"]);
        command.arg(&trace).args(options);
        Running::start(command).finish().success()
    };
    let text = report(&["--classes", "1ms"]).stdout;
    report(&["--classes", "1ms", "--report", file.to_str().expect("a path of text")]);
    let page = fs::read_to_string(&file).expect("the page");
    let Some(found) = look(&dir, &page, "390,844", false) else { return };
    assert_eq!(found["errors"], serde_json::json!([]), "{found:#}");
    assert_eq!((&found["overflow"], &found["cells"]), (&0.into(), &0.into()), "{found:#}");
    let all = |key: &str| -> Vec<String> {
        let list = found[key].as_array().expect("a list").iter();
        list.filter_map(|entry| Some(entry.as_str()?.to_owned())).collect()
    };
    let (ranks, classes) = (all("ranks"), all("classes"));
    assert!(ranks.len() == 4 && ranks[0].starts_with("2, straggler"), "{found:#}");
    assert!(classes.len() == 2 && classes[0].starts_with("below 1 ms120"), "{found:#}");
    // Of the second pass on, each write meets what it wrote before.
    let remarks = all("remarks");
    for told in ["written again: ", "pages met: ", "5 fsyncs, one for 7 writes", "hole"] {
        assert_eq!(remarks.iter().any(|remark| remark.contains(told)), text.contains(told), "{told}: {text}");
    }
    assert!(remarks.iter().any(|remark| remark.starts_with("write: written again: ")), "{found:#}");
    assert!(
        all("uses").iter().any(|line| line.contains("write: 35 calls, 315 ms; size 64 KiB, ")),
        "{found:#}"
    );
    let densities = all("densities").join("\n");
    assert!(
        densities.contains("write: cost per byte") && densities.contains("write: observed over predicted"),
        "{found:#}"
    );
    // One word for the time from the first call to the last, and the same time.
    assert!(found["brand"].as_str().is_some_and(|text| text.contains("; 362.6 ms elapsed")), "{found:#}");
    let causes = found["causes"].as_str().expect("a text");
    assert!(causes.starts_with("Time in calls: 362 ms of 363 ms elapsed: "), "{causes}");
}

#[test]
fn what_is_not_there_has_no_heading() {
    let dir = Dir::new();
    trace(&dir, 1, 4, true);
    let Some(found) = look(&dir, &page(&dir), "1280,900", false) else { return };
    for heading in ["Ranks", "Classes of calls", "Densities of the cost"] {
        let headings = found["headings"].as_array().expect("a list");
        assert!(!headings.contains(&heading.into()) && headings.contains(&"Causes".into()), "{found:#}");
    }
}

#[test]
fn the_page_is_printed() {
    let dir = Dir::new();
    trace(&dir, 3, 100, true);
    let (page, pdf) = (page(&dir), dir.work().join("out.pdf"));
    let file = dir.work().join("out.html");
    assert!(page.contains("beforeprint"));
    let print = format!("--print-to-pdf={}", pdf.display());
    if browse(&dir, &["--virtual-time-budget=4000", &print], &file).is_some() {
        assert!(fs::read(&pdf).expect("a document").starts_with(b"%PDF"));
    }
}

#[test]
fn nothing_and_little_are_pages_too() {
    for (files, calls, profile) in [(0, 0, true), (1, 1, true), (1, 1, false), (1, 2, true)] {
        let dir = Dir::new();
        trace(&dir, files, calls, profile);
        let page = page(&dir);
        let Some(found) = look(&dir, &page, "1280,900", false) else { return };
        assert_eq!(found["errors"], serde_json::json!([]), "{files} {calls}: {found:#}");
        assert_eq!(found["overflow"], 0, "{found:#}");
    }
}

#[test]
fn a_page_does_not_grow_with_the_number_of_files() {
    let dir = Dir::new();
    trace(&dir, 100_000, 1, true);
    let page = page(&dir);
    assert!(page.contains("99900 further files"), "the rest is summed up");
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    let Some(found) = look(&dir, &page, "1280,900", false) else { return };
    assert_eq!(found["errors"], serde_json::json!([]), "{found:#}");
    assert_eq!(found["overflow"], 0, "{found:#}");
}

/// Names of a real program that are no text, and end a script.
#[test]
fn names_that_are_no_text_are_shown() {
    let dir = Dir::new();
    fs::create_dir(dir.work().join("<")).expect("a new folder");
    let name = OsStr::from_bytes(b"of=</script>\xff\xfe<!--");
    let mut command = dir.cawl(&["run", "--report", "out.html", "--", "dd", "if=/dev/zero", "count=3"]);
    command.arg(name);
    Running::start(command).finish().success();
    let page = fs::read_to_string(dir.work().join("out.html")).expect("the page is UTF-8");
    let Some(found) = look(&dir, &page, "1280,900", false) else { return };
    assert_eq!(found["errors"], serde_json::json!([]), "{found:#}");
    assert_eq!(found["markup"], 0, "{found:#}");
    let files = found["files"].to_string();
    assert!(files.contains(r"</script>\\xff\\xfe<!--"), "{files}");
}
