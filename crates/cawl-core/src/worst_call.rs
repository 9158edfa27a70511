//! A call that a report tells of, with its causes and its neighbours.

use serde::{Deserialize, Serialize};

use crate::by_name::ByName;
use crate::record::Frame;

/// A call that the first model was wrong about, or that lost much time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorstCall {
    /// Its number among all calls, from 1: for `explain --call`.
    pub call: u64,
    /// When it began, in seconds since the first call.
    pub at_s: f64,
    /// Process id.
    pub pid: u32,
    /// Name of the operation.
    pub op: String,
    /// Path of the file; the last one, if it was renamed.
    pub path: String,
    /// Its first path, if it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_path: Option<String>,
    /// Offset in bytes, if known.
    pub offset: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// State, by the first model.
    pub state: String,
    /// Observed time, in seconds.
    pub observed_s: f64,
    /// Time predicted by the first model, in seconds.
    pub predicted_s: f64,
    /// The cause with the largest part of the observed time.
    pub cause: String,
    /// Observed seconds by cause.
    pub causes: ByName<f64>,
    /// Thread.
    pub tid: u32,
    /// Where in the program it came from, innermost first, as far as known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<Frame>,
    /// The calls just before it in its thread, earliest first; with the run over time only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<NearCall>,
    /// The calls just after it in its thread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<NearCall>,
}

/// A call beside one of the worst.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NearCall {
    /// When it began, in seconds since the first call.
    pub at_s: f64,
    /// Name of the operation.
    pub op: String,
    /// Path of the file.
    pub path: String,
    /// Offset in bytes, if known.
    pub offset: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Observed time, in seconds.
    pub observed_s: f64,
    /// Time predicted by the first model, in seconds, if it has an opinion.
    pub predicted_s: Option<f64>,
}
