//! The JSON report, as someone reads it who knows nothing but its documentation.

use std::ops::Index;
use std::path::Path;

use serde_json::Value;

use crate::{Dir, Finished, Running};

/// The JSON report of a run or a replay.
#[derive(Debug)]
pub struct Report(pub Value);

impl Index<&str> for Report {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        &self.0[name]
    }
}

impl Report {
    /// Reads a report; `finished` tells what went wrong if there is none.
    pub fn read(path: &Path, finished: &Finished) -> Report {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("no report {}: {error}; {finished:#?}", path.display()));
        Report(serde_json::from_str(&text).expect("the report is JSON"))
    }

    /// A report that was printed.
    pub fn parse(text: &str) -> Report {
        Report(serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}: {text}")))
    }

    /// Every byte that the kernel counted was seen, in each process, and nothing was lost.
    pub fn all_seen(&self) {
        let sessions = self.sessions();
        assert!(!sessions.is_empty(), "nothing was traced");
        let short: Vec<String> = sessions
            .iter()
            .filter(|session| session["wchar_bytes"] != session["seen_bytes"])
            .map(|session| {
                format!(
                    "{} ({}): {} seen of {}, ended by {}",
                    session["program"],
                    session["pid"],
                    session["seen_bytes"],
                    session["wchar_bytes"],
                    session["ended"]
                )
            })
            .collect();
        assert!(
            short.is_empty(),
            "bytes seen are not bytes written: {short:#?}, {} calls dropped, {}",
            self["drops"],
            self["notes"]
        );
        assert_eq!((&self["drops"], &self["unseen"]), (&0.into(), &0.into()), "something was lost");
        assert!(self["coverage"].is_null() || self["coverage"] == 1.0, "coverage is {}", self["coverage"]);
    }

    /// The process images.
    pub fn sessions(&self) -> &[Value] {
        self["sessions"].as_array().expect("the report lists sessions")
    }

    /// Bytes written to regular files.
    pub fn bytes(&self) -> u64 {
        self["bytes"].as_u64().expect("the report counts bytes")
    }

    /// Calls of an operation, as the first model has them.
    pub fn calls_of(&self, op: &str) -> u64 {
        self["models"][0]["by_op"][op]["calls"].as_u64().unwrap_or(0)
    }

    /// Bytes that programs wrote to the file of this name, by all operations with a modelled cost.
    pub fn file_bytes(&self, name: &str) -> u64 {
        let files = self["files"].as_array().expect("the report lists files").iter();
        let named =
            files.filter(|file| file["path"].as_str().is_some_and(|path| Path::new(path).ends_with(name)));
        let ops = named.flat_map(|file| file["ops"].as_array().expect("a file lists operations"));
        let written = ops.filter(|op| !op["op"].as_str().is_some_and(|op| op.ends_with("read")));
        written.map(|op| op["bytes"].as_u64().expect("an operation counts bytes")).sum()
    }

    /// Each model's name, number of calls and fingerprint of its predictions.
    pub fn fingerprints(&self) -> Vec<(String, u64, String)> {
        let models = self["models"].as_array().expect("the report lists models").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        models
            .map(|m| (text(&m["name"]), m["calls"].as_u64().expect("a count"), text(&m["fingerprint"])))
            .collect()
    }
}

/// Every call in a trace, as `replay --calls --json` prints it.
pub fn calls(dir: &Dir, trace: &Path) -> Vec<Value> {
    let mut replay = dir.cawl(&["replay", "--calls", "--json"]);
    replay.arg(trace);
    let finished = Running::start(replay).finish().success();
    finished.stdout.lines().map(|line| serde_json::from_str(line).expect("a call is JSON")).collect()
}
