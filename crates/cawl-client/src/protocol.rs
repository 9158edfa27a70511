//! Questions to the daemon, and its answers: one line of JSON each (docs/reference/PROTOCOL.md).
//!
//! The law: **within a version, answers only gain fields.** A reader must ignore fields it does not know; a
//! field is renamed, removed or given another unit only in a new [`PROTOCOL`]. Times are in seconds, moments
//! in seconds since 1970-01-01 UTC, sizes in bytes, rates in bytes per second, errors as fractions.

mod causes;
mod run;
mod tables;

use std::collections::BTreeMap;

/// A constant, as configured and as learned.
pub use cawl_core::Constant as ConstantStatus;
/// Errors in a status.
pub use cawl_core::RecentError as ErrorStatus;
use cawl_core::advise::Advised;
use cawl_core::{Mode, Regime};
use serde::{Deserialize, Serialize};

pub use causes::CauseSeconds;
pub use run::{Recorded, Recording, RunEnd, RunProcess, RunSpec, RunStarted, Running};
pub use tables::{Cost, DeviceStatus, Devices, FileStatus, Files, Listing, ProcessStatus, Processes, Sort};

/// Version of questions and answers, in the field `schema` of every answer.
pub const PROTOCOL: u32 = 1;

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// The status. Answered by a [`Status`].
    Status(View),
    /// The programs and their time lost. Answered by [`Processes`].
    Processes(Listing),
    /// The files and their cost. Answered by [`Files`].
    Files(Listing),
    /// The devices. Answered by [`Devices`].
    Devices,
    /// The history. Answered by a [`History`].
    History(HistorySpan),
    /// The forecast at the present rate. Answered by a [`Forecast`].
    Forecast(View),
    /// The cost of a plan. Answered by a [`Predicted`].
    Predict(Plan),
    /// The configured and the learned constants. Answered by a [`ProfileAnswer`].
    Profile,
    /// Subscribe. Answered by [`Push`] lines until the client disconnects.
    Subscribe(Subscription),
    /// What to change, of the calls of all programs for a time from now on. Answered by an [`AdviceAnswer`],
    /// when that is over.
    Advise(Advising),
    /// Record the calls of all programs for a time. Answered by a [`Recorded`], when it is over.
    Record(Recording),
    /// A run begins: record its calls apart. Answered by a [`RunStarted`].
    BeginRun(RunSpec),
    /// The processes of a run that are still running. Answered by [`Running`], after all messages sent so far
    /// were read.
    Running {
        /// The run's number.
        run: u64,
    },
    /// The program ended: report. Answered by a [`cawl_core::Report`].
    EndRun {
        /// The run's number.
        run: u64,
        /// Do not wait: calls not processed yet are left out, and the report says so. If the report is
        /// awaited on another connection, it is answered there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
        /// Further notes for the report.
        #[serde(flatten)]
        end: RunEnd,
    },
}

/// How long calls are kept for advice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Advising {
    /// In seconds; 0.1 to 60.
    pub for_s: f64,
}

impl Default for Advising {
    fn default() -> Advising {
        Advising { for_s: 10.0 }
    }
}

/// What the calls of some seconds suggest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdviceAnswer {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// How long calls were kept, in seconds.
    pub for_s: f64,
    /// Calls, and what they took, in seconds; 0 if they were too many to look at.
    pub calls: u64,
    /// See `calls`.
    pub observed_s: f64,
    /// As in a report; None if there were no calls with a cost.
    pub advice: Option<Advised>,
}

/// A model and its mode; by default the first model, assimilated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// Name of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its mode: its clock, and whether it is corrected towards the counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// A part of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistorySpan {
    /// Its length in seconds; 600 if None. Up to 86 400 are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_s: Option<f64>,
    /// Most points to answer; 600 if None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<usize>,
}

/// A planned write, to predict its cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes a call; 1 MiB if None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u64>,
    /// With O_SYNC.
    #[serde(default)]
    pub sync: bool,
    /// With an fsync at the end.
    #[serde(default)]
    pub fsync: bool,
    /// Its start in seconds from now; the present rates continue until then.
    #[serde(default)]
    pub at_s: f64,
    /// Device to write to, "major:minor"; the one most written to, if None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The model that answers.
    #[serde(default)]
    pub view: View,
}

/// A subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subscription {
    /// Topics; all but `calls` if empty.
    pub topics: Vec<Topic>,
    /// Interval in seconds, at least 0.05; 1 if None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_s: Option<f64>,
    /// Rows in tables; 20 if None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The sort key of tables.
    pub sort: Sort,
}

/// A topic of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// [`Status`].
    Status,
    /// [`Processes`].
    Processes,
    /// [`Files`].
    Files,
    /// [`Devices`].
    Devices,
    /// [`Calls`]: a bounded sample of the latest calls, predicted against observed.
    Calls,
}

/// A line pushed to a subscriber.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "topic", content = "data", rename_all = "kebab-case")]
pub enum Push {
    /// How things stand.
    Status(Box<Status>),
    /// The programs.
    Processes(Processes),
    /// The files.
    Files(Files),
    /// The devices.
    Devices(Devices),
    /// A sample of the calls since the previous push.
    Calls(Calls),
}

/// A question that could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason, and the remedy.
    pub error: String,
}

/// How things stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// Version of the daemon.
    #[serde(default)]
    pub version: String,
    /// Name of this node.
    #[serde(default)]
    pub node: String,
    /// Labels of this node.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Time of this state.
    #[serde(default)]
    pub time_s: f64,
    /// The model that answers.
    pub model: String,
    /// Its mode: its clock, and whether it is corrected towards the counters.
    #[serde(default)]
    pub mode: Mode,
    /// Name of the profile.
    pub profile: String,
    /// Dirty bytes now, writeback included, as modelled.
    pub modelled_dirty_bytes: u64,
    /// Dirty bytes now, writeback included, of the whole machine, as the kernel counts them.
    pub sampled_dirty_bytes: Option<u64>,
    /// Background limit.
    pub background_bytes: u64,
    /// Freerun, the midpoint of the limits, above which writers are throttled.
    #[serde(default)]
    pub freerun_bytes: u64,
    /// Hard limit.
    pub hard_bytes: u64,
    /// The modelled regime.
    pub state: Regime,
    /// Rate at which dirty pages are being cleaned, as modelled, if they are.
    pub writeback_rate: Option<f64>,
    /// Rate at which dirty pages are being cleaned, as the kernel counts it (nr_written).
    pub sampled_writeback_rate: Option<f64>,
    /// Rate of throttled writers, if there are any.
    pub throttled_rate: Option<f64>,
    /// Rate at which traced programs make pages dirty, over the latest second.
    #[serde(default)]
    pub dirtying_rate: f64,
    /// Rate at which programs that are not traced make pages dirty, estimated from the kernel's counters.
    #[serde(default)]
    pub untraced_rate: f64,
    /// The model's recent errors.
    #[serde(default)]
    pub error: ErrorStatus,
    /// The forecast at the present rate.
    pub forecast: Option<Forecast>,
    /// Sampling and its cost.
    #[serde(default)]
    pub sampler: SamplerStatus,
    /// Excerpts around anomalies; None if none are kept (`cawld --trace-on`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpts: Option<ExcerptsStatus>,
    /// Tables of calls; None without `cawld --calls-to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_to: Option<OutputStatus>,
    /// Sums by minute; None without `cawld --sums-to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums_to: Option<OutputStatus>,
    /// Metrics and spans for a collector; None without `cawld --otlp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OutputStatus>,
    /// Programs connected.
    pub clients: u64,
    /// Calls recorded since the daemon started.
    #[serde(default)]
    pub calls: u64,
    /// Bytes written to files by traced programs since the daemon started.
    #[serde(default)]
    pub bytes: u64,
    /// Observed and predicted cost of these calls.
    #[serde(default)]
    pub cost: Cost,
    /// Observed time of the calls that have a cost, by cause.
    #[serde(default)]
    pub causes_s: CauseSeconds,
    /// Events lost since the daemon started.
    pub drops: u64,
    /// Seconds since the daemon started.
    pub uptime_s: f64,
    /// The programs connected, those that lost most time first; at most 256.
    pub processes: Vec<ProcessStatus>,
    /// The devices written to.
    pub devices: Vec<DeviceStatus>,
}

/// Excerpts: traces of the calls around anomalies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExcerptsStatus {
    /// The condition that makes a call an anomaly.
    pub condition: String,
    /// The folder.
    pub folder: String,
    /// Time kept before and after an anomaly.
    pub keep_s: f64,
    /// Bytes that the excerpts take at most.
    pub room_bytes: u64,
    /// Anomalies since the daemon started.
    pub anomalies: u64,
    /// Excerpts in the folder.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls and samples that belong into an excerpt and are in none.
    pub missing: u64,
    /// The excerpt written last.
    pub latest: Option<String>,
    /// The latest anomaly.
    pub anomaly: Option<String>,
    /// Why an excerpt cannot be written at present.
    pub failure: Option<String>,
}

/// Files that others take away: tables of calls, sums by minute, metrics and spans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputStatus {
    /// Where they go; without a password.
    pub to: String,
    /// Rows taken since the daemon started.
    pub rows: u64,
    /// Rows in whole files.
    pub rows_written: u64,
    /// Rows left out, because the folder or the way to it was full.
    pub rows_dropped: u64,
    /// Rows that earlier daemons had taken and not written when they were killed.
    pub rows_lost: u64,
    /// Whole files.
    pub files_written: u64,
    /// Files that could not be written.
    pub files_dropped: u64,
    /// Rows that their receiver refused, of those written.
    pub rows_refused: u64,
    /// Files that it refused as a whole.
    pub files_refused: u64,
    /// Bytes of files in the folder at present.
    pub bytes: u64,
    /// Bytes that they take at most.
    pub room_bytes: u64,
    /// The latest file.
    pub latest: Option<String>,
    /// Why no file can be written, or brought to where it goes, at present.
    pub failure: Option<String>,
}

/// Sampling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerStatus {
    /// Present interval between samples.
    pub interval_s: f64,
    /// Part of one processor that sampling took over the latest minute.
    pub cpu_fraction: f64,
    /// The sources: vmstat, meminfo, diskstats, pressure, mountinfo; for root bdi, tracepoints.
    pub sources: Vec<String>,
    /// Part of the latest 10 s in which some task waited for I/O (/proc/pressure/io, `some avg10`).
    pub pressure: Option<f64>,
    /// The kernel's pauses of writers (balance_dirty_pages) since the daemon started, in seconds, summed over
    /// all tasks of the machine, traced or not; None without tracepoints.
    pub paused_s: Option<f64>,
    /// Pauses lost because there were too many.
    pub pauses_lost: Option<u64>,
    /// Why `paused_s` is None, if it is. The time of throttling is then the model's estimate.
    pub pauses_missing: Option<String>,
}

/// The forecast at the recent rates of all writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// The rate assumed, traced and untraced writers together.
    pub rate: f64,
    /// Until the background limit; 0 if above it, None if never at this rate.
    pub background_s: Option<f64>,
    /// Until writers are throttled; 0 if they are, None if never at this rate.
    pub throttle_s: Option<f64>,
    /// Until nothing is dirty, if writing stops now; None if not within an hour.
    pub clean_s: Option<f64>,
}

/// The source of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A daemon, which has followed the machine.
    #[default]
    Daemon,
    /// A profile, and the kernel's counters at one moment unless the profile is another machine's.
    Offline,
}

/// The predicted cost of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// Who answers.
    #[serde(default)]
    pub source: Source,
    /// The model that answers.
    pub model: String,
    /// Calls it takes.
    pub calls: u64,
    /// The whole time in calls.
    pub cost_s: f64,
    /// Its 10th percentile, if the profile has percentiles.
    pub p10_s: Option<f64>,
    /// Its 90th percentile.
    pub p90_s: Option<f64>,
    /// The cost of the costliest call.
    pub worst_call_s: f64,
    /// Time in calls by state: free, flush, throttle, sync.
    pub states_s: BTreeMap<String, f64>,
    /// Highest dirty level on the way.
    pub peak_dirty_bytes: u64,
    /// Dirty level at its end.
    pub final_dirty_bytes: u64,
    /// Cost of one more fsync at its end.
    pub fsync_s: f64,
    /// The part of the cost for cold memory.
    #[serde(default)]
    pub cold_s: f64,
}

/// The history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// Oldest first.
    pub points: Vec<HistoryPoint>,
}

/// A span of the past: sums and means over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryPoint {
    /// Its begin.
    pub time_s: f64,
    /// Its length.
    pub span_s: f64,
    /// Modelled dirty bytes, mean and highest.
    pub modelled_dirty_bytes: u64,
    /// Highest modelled dirty bytes.
    pub modelled_dirty_max_bytes: u64,
    /// Sampled dirty bytes, mean.
    pub sampled_dirty_bytes: Option<u64>,
    /// Highest sampled dirty bytes.
    pub sampled_dirty_max_bytes: Option<u64>,
    /// Mean |modelled − sampled| over its samples, before the model was corrected; None without samples, or
    /// if nothing was written before.
    pub dirty_error_bytes: Option<u64>,
    /// Background limit at its end.
    pub background_bytes: u64,
    /// Hard limit at its end.
    pub hard_bytes: u64,
    /// The worst regime in it.
    pub state: Regime,
    /// Calls made.
    pub calls: u64,
    /// Bytes written to files.
    pub bytes: u64,
    /// Observed time in calls.
    pub observed_s: f64,
    /// Predicted time of these calls.
    pub predicted_s: f64,
    /// Observed time of calls that the model attributes to throttling.
    pub throttled_s: f64,
    /// Observed time of calls that waited for the device.
    pub sync_s: f64,
    /// Observed time by cause.
    #[serde(default)]
    pub causes_s: CauseSeconds,
    /// Bytes that the kernel wrote back (nr_written).
    pub written_bytes: u64,
    /// The kernel's pauses of writers, over all tasks of the machine; None if unknown.
    pub paused_s: Option<f64>,
    /// Events lost.
    pub drops: u64,
}

/// The constants in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileAnswer {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// The profile that the daemon started with, as TOML.
    pub configured: String,
    /// The profile with what was learned since the daemon started, as TOML.
    pub learned: String,
    /// Each constant that differs or was learned.
    pub constants: Vec<ConstantStatus>,
}

/// A sample of the calls since the previous push: the most expensive and an even sample of the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// How many there were in all.
    pub total: u64,
    /// At most 200 of them, in order of time.
    pub calls: Vec<CallStatus>,
}

/// A call, observed and predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallStatus {
    /// When it began.
    pub time_s: f64,
    /// Process id.
    pub pid: u32,
    /// Operation: write, fsync…
    pub op: String,
    /// Bytes.
    pub bytes: u64,
    /// What it cost.
    pub observed_s: f64,
    /// What it should have cost.
    pub predicted_s: f64,
    /// The state: free, flush, throttle, sync, buffered.
    pub state: String,
    /// The cause with the largest part of its time; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
}
