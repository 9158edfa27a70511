//! Runs and recordings: what a client says and hears of them.

use std::path::PathBuf;

use cawl_core::{DeletedFacts, Glob, GroupBounds, Nanos, Outcome, StackOptions};
use serde::{Deserialize, Serialize};

/// The options of a `cawl-cli run`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Models to run; all, if empty.
    pub models: Vec<String>,
    /// True if the models learn.
    #[serde(default)]
    pub learn: bool,
    /// Profile as TOML; the daemon's own, if None.
    pub profile: Option<String>,
    /// Absolute path of the trace.
    pub trace: Option<PathBuf>,
    /// What is run, as it was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Patterns of the files whose calls are recorded; all, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Glob>,
    /// Bounds of the observed time that part calls into classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Nanos>,
    /// How the control group bounds the program.
    #[serde(default, skip_serializing_if = "GroupBounds::is_empty")]
    pub group: GroupBounds,
    /// Inodes found to be deleted lately, where the program may make files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<DeletedFacts>,
    /// Which calls have their stack copied; none, if None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackOptions>,
}

/// A recording of all programs that report to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Absolute path of the trace.
    pub trace: PathBuf,
    /// How long, in seconds: 0.1 to 600.
    pub for_s: f64,
}

/// A recording is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// [`PROTOCOL`](super::PROTOCOL).
    pub schema: u32,
    /// Calls in it.
    pub calls: u64,
}

/// A run has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Its number, for CAWL_RUN and `end-run`.
    pub run: u64,
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The outcome of the program.
    pub outcome: Option<Outcome>,
    /// Notes for the report.
    pub notes: Vec<String>,
    /// Processes still running, as known to the starter of the program.
    #[serde(default)]
    pub running: Vec<RunProcess>,
}

/// The processes of a run that are still running, as far as the daemon knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// [`PROTOCOL`](super::PROTOCOL).
    pub schema: u32,
    /// The processes.
    pub processes: Vec<RunProcess>,
}

/// A process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProcess {
    /// Process id.
    pub pid: u32,
    /// Its program: path, or name.
    pub program: String,
}
