//! The web page in a real browser: `web/stand_in.rs` serves it with canned answers, `web/driver.js` uses it
//! as a person would and reports the results.

use std::sync::mpsc::RecvTimeoutError;

use serde_json::Value;

use cawl_kit::{self, Dir, LIMIT, Running};

mod canned;
mod day;
mod stand_in;

use stand_in::StandIn;

/// Opens the page in headless Chromium; the driver's results, or None without a browser.
fn browse(server: &StandIn, query: &str, scenario: &str, window: &str) -> Option<Value> {
    let chromium = cawl_kit::find("chromium")?;
    let dir = Dir::new();
    let mut command = dir.command(chromium);
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--window-size={window}"))
        .arg(format!("--user-data-dir={}", dir.path().join("home/chromium").display()))
        .arg(format!("http://{}/{query}#{scenario}", server.address));
    let browser = Running::start(command);
    let told = server.told.recv_timeout(LIMIT);
    drop(browser);
    match told {
        Ok(found) => {
            assert_eq!(found["broken"], Value::Null, "{found:#}");
            assert_eq!(found["fault"], "", "{found:#}");
            Some(found)
        }
        Err(RecvTimeoutError::Timeout) => panic!("the page never came to what `{scenario}` waits for"),
        Err(RecvTimeoutError::Disconnected) => unreachable!("the server lives as long as the test"),
    }
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

fn has(value: &Value, part: &str) {
    assert!(value.as_str().is_some_and(|text| text.contains(part)), "`{part}` is not in {value}");
}

#[test]
fn a_busy_machine_is_shown_and_can_be_explored() {
    let server = StandIn::start(true, None);
    let Some(found) = browse(&server, "", "busy", "1280,900") else { return };

    assert_eq!(found["state"], "Throttle");
    assert_eq!(found["dirty"], "320 MiB");
    has(&found["sampled"], "sampled 310 MiB; 80 % of the hard limit");
    assert_eq!(found["forecast"], "now", "who is throttled is not told that it comes");
    has(&found["lost"], "500 ms/s of 750 ms/s in calls");
    assert_eq!(found["error"], "4.2 %");
    assert_eq!(found["drops"], "17 events lost");
    assert_eq!(found["node"], "node-7");
    has(&found["sampler"], "0.4 % of a processor");
    has(&found["note"], "5 more not shown");
    // Texts for readers who do not see the charts.
    has(&found["announced"], "State: Throttle");
    has(&found["dirtySummary"], "Now 320 MiB modelled, 310 MiB sampled, hard limit 400 MiB");
    has(&found["causesSummary"], "Time in calls: ");
    has(&found["causesSummary"], " of 5 min elapsed: transfer 30 %, copy ");
    has(&found["causesSummary"], "cold memory 20 %");
    has(&found["costSummary"], "1 ms each as observed and 800 µs as predicted");
    has(&found["scatterSummary"], "80 % predicted within a factor of two");

    // Names with markup or control characters are shown as text.
    let reads_backwards = canned::HOSTILE[1].replace('\u{202e}', "\\u{202e}");
    assert_eq!(texts(&found["programs"]), ["dd", canned::HOSTILE[0], &reads_backwards]);
    assert_eq!(texts(&found["files"]), [canned::HOSTILE_PATH]);
    assert_eq!(found["markup"], 0);
    has(&found["title"], "node-7");
    assert_eq!(texts(&found["devices"]), ["vda (254:0)"]);

    // Tables are sorted by buttons, which name the column.
    assert_eq!(texts(&found["byBytes"]), ["12", "11", "13"]);
    assert_eq!(texts(&found["sorts"]), ["Written descending"]);
    assert_eq!(texts(&found["byName"]), ["12", "11", "13"]);
    assert_eq!(texts(&found["filtered"]), ["dd"]);

    // Charts are used by keys, and drawn.
    let keys = texts(&found["keys"]);
    assert!(keys[0].contains("modelled 0 B") && keys[0].contains("state Free"), "{keys:?}");
    assert_ne!(keys[0], keys[1]);
    assert!(keys[2].contains("modelled 320 MiB") && keys[2].contains("state Throttle"), "{keys:?}");
    has(&found["call"], "write of 1 MiB by process 11: observed 200 ms, predicted 190 ms, mostly throttle");
    has(&found["tip"], "main causethrottle");
    assert_eq!(found["mark"], true, "the tip has the colour of the cause");
    has(&found["without"], "mostly journal");
    assert_eq!(found["pressed"], 1);
    // The latest second by its causes.
    has(&found["cause"], "transfer 300 ms/s, throttle 500 ms/s, cold memory 200 ms/s");
    assert_eq!(texts(&found["causes"]), ["copy 50 %, transfer 30 %", "throttle 50 %, transfer 30 %"]);
    assert_eq!(
        texts(&found["legends"]),
        ["copy,cold memory,throttle,transfer", "copy,throttle,journal,unexpected,unknown"]
    );
    for colours in found["colours"].as_array().expect("a list") {
        assert!(colours.as_u64() > Some(20), "a chart is blank: {found:#}");
    }

    has(&found["advice"], "one fsync for 16 records gains 6 s (4 s to 6.4 s) of 8 s on paper, likely");
    has(&found["advice"], "less safe: a crash loses");
    has(&found["advice"], "2 more");
    has(&found["plan"], "20 s");
    has(&found["plan"], "for 2 GiB in 2\u{202f}048 calls, between 16 s and 25 s");
    has(&found["plan"], "15 s (75 %)");
    has(&found["refused"], "A size");
    assert_eq!(texts(&found["constants"]), ["231 MB/s"]);
    assert_eq!(found["spans"], serde_json::json!([300, 3600, 21600, 86400]));

    assert_eq!(texts(&found["themes"]), ["light", "dark"]);
    assert_eq!(texts(&found["faint"]), [""; 0], "text of too little contrast");
    assert_eq!(texts(&found["nameless"]), [""; 0], "controls without a name");
}

#[test]
fn a_day_is_shown_in_parts_that_lose_nothing() {
    let server = StandIn::start(true, None);
    let Some(found) = browse(&server, "", "day", "1280,1400") else { return };
    let parts = texts(&found["parts"]);
    assert!((400..=600).contains(&parts.len()), "{} parts", parts.len());
    // Ten seconds of throttling are visible in a day, apart from the hour of the backup.
    let throttled: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].contains("state Throttle")).collect();
    // Pushes received while the parts are read are at the end, and throttled too.
    let past = throttled.iter().filter(|at| **at + 5 < parts.len());
    let alone = past.filter(|at| !throttled.contains(&at.wrapping_sub(1)));
    assert_eq!(alone.count(), 2, "the backup and the burst: {throttled:?} of {parts:#?}");
    // 1.5 s per second for an hour, and the burst: coarser parts keep the sums (118.4 min).
    has(&found["causesSummary"], "Time in calls: 118 min of 24 h 0 min elapsed: throttle 76.");
    assert_eq!(texts(&found["legend"]), ["modelled", "sampled", "its highest"], "nothing that is not drawn");
    for colours in found["colours"].as_array().expect("a list") {
        assert!(colours.as_u64() > Some(10), "a chart is blank: {found:#}");
    }
}

#[test]
fn a_machine_at_rest_says_so_on_a_small_screen() {
    let server = StandIn::start(false, None);
    let Some(found) = browse(&server, "", "empty", "500,800") else { return };
    for table in ["programs", "files", "devices"] {
        assert_eq!(found[table], true, "{found:#}");
    }
    has(&found["sampled"], "sampled –");
    assert_eq!(found["forecast"], "never");
    assert_eq!(found["error"], "–");
    has(&found["causesSummary"], "no call took time");
    has(&found["costSummary"], "no call was made");
    assert!(found["width"].as_u64().is_some_and(|width| (300..=320).contains(&width)), "{found:#}");
    assert_eq!(found["overflow"], 0, "nothing is wider than the window: {found:#}");
}

#[test]
fn a_lost_connection_is_told_and_taken_up_again() {
    let server = StandIn::start(true, None);
    let Some(found) = browse(&server, "", "cut", "1280,900") else { return };
    assert_eq!(found["banner"]["shown"], true);
    assert_eq!(found["banner"]["role"], "alert");
    has(&found["banner"]["text"], "Connection lost, retrying");
    assert_eq!(found["gone"], true);
}

#[test]
fn a_token_is_asked_for_and_never_stays_in_the_address() {
    let server = StandIn::start(true, Some("sesame"));
    let Some(found) = browse(&server, "?token=wrong&every=1", "token", "1280,900") else { return };
    has(&found["address"], "/?every=1#token");
    assert!(!found["address"].to_string().contains("wrong"), "{found:#}");
    assert_eq!(found["refused"]["shown"], true);
    assert_eq!(found["refused"]["dashboard"], false);
    has(&found["refused"]["why"], "a token is needed");
    assert_eq!(found["form"], false);
    assert_eq!(found["kept"], "sesame");
}
