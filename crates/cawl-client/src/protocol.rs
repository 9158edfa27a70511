//! What one can ask the daemon, and what it answers: one line of JSON each (docs/PROTOCOL.md).
//!
//! The law: **within a version, answers only gain fields.** A reader must ignore fields it does not know;
//! a field is never renamed, removed or given another unit without a new [`PROTOCOL`]. Times are in seconds,
//! moments in seconds since 1970-01-01 UTC, sizes in bytes, rates in bytes per second, errors as fractions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cawl_core::{Mode, Outcome, Phase};
use serde::{Deserialize, Serialize};

/// Version of questions and answers, in the field `schema` of every answer.
pub const PROTOCOL: u32 = 1;

/// What a `cawl-cli run` wants done with its program's calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Models to run; all, if empty.
    pub models: Vec<String>,
    /// The models learn from what they have predicted.
    #[serde(default)]
    pub learn: bool,
    /// Profile as TOML; the daemon's own, if None.
    pub profile: Option<String>,
    /// Where to keep the trace: an absolute path.
    pub trace: Option<PathBuf>,
}

/// What one can ask of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// How do things stand? Answered by a [`Status`].
    Status(View),
    /// Which programs write, and what do they lose? Answered by [`Processes`].
    Processes(Listing),
    /// Which files are written, and what does it cost? Answered by [`Files`].
    Files(Listing),
    /// Which devices are written to? Answered by [`Devices`].
    Devices,
    /// How did things go? Answered by a [`History`].
    History(HistorySpan),
    /// What happens next at the present rate? Answered by a [`Forecast`].
    Forecast(View),
    /// What would writing this cost? Answered by a [`Predicted`].
    Predict(Plan),
    /// The constants in use and what was learned. Answered by a [`ProfileAnswer`].
    Profile,
    /// Tell me from now on. Answered by [`Push`] lines until the asker hangs up.
    Subscribe(Subscription),
    /// A program is about to be run: keep its calls apart. Answered by a [`RunStarted`].
    BeginRun(RunSpec),
    /// Which processes of a run go on? Answered by [`Running`], once all that has been said by then is known.
    Running {
        /// The run, as `begin-run` answered.
        run: u64,
    },
    /// The program ended: what happened? Answered by a [`cawl_core::Report`].
    EndRun {
        /// The run, as `begin-run` answered.
        run: u64,
        /// Wait for nothing: what has not been taken yet is left out, and the report says so. For a run whose
        /// report is waited for on another connection that is answered there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
        /// What the report says in addition.
        #[serde(flatten)]
        end: RunEnd,
    },
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How the program ended.
    pub outcome: Option<Outcome>,
    /// What the report should say in addition.
    pub notes: Vec<String>,
    /// Processes that go on, as known where the program was started.
    #[serde(default)]
    pub running: Vec<RunProcess>,
}

/// The processes of a run that go on, as far as the daemon knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// [`PROTOCOL`].
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

/// By which model, living by which clock; the first model and assimilation, where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// Name of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its clock and how far it follows the kernel's counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// Which rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listing {
    /// By what to sort, largest first.
    pub sort: Sort,
    /// Most rows to answer; 100 if None, 500 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Rows to leave out at the beginning, which an earlier answer had.
    pub skip: usize,
}

/// What rows are sorted by, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Time lost to throttling and synchronous waiting.
    #[default]
    Lost,
    /// Time lost to throttling.
    Throttled,
    /// Time in calls that wait for the device.
    Sync,
    /// Time in all calls.
    Observed,
    /// Bytes written.
    Bytes,
    /// Number of calls.
    Calls,
    /// Bytes per second of late.
    Rate,
}

/// Which part of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistorySpan {
    /// How far back, in seconds; 600 if None. Up to 86 400 are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_s: Option<f64>,
    /// Most points to answer; 600 if None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<usize>,
}

/// A job of writing, to know its cost beforehand.
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
    /// How long from now it begins, in seconds; until then the machine goes on as at present.
    #[serde(default)]
    pub at_s: f64,
    /// Device to write to, "major:minor"; the one most written to, if None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// By which model.
    #[serde(default)]
    pub view: View,
}

/// What to be told from now on.
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
    /// By what tables are sorted.
    pub sort: Sort,
}

/// Something to be told about.
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
    /// Some of the calls since the previous push.
    Calls(Calls),
}

/// A run has a lane of its own now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Its number, for CAWL_RUN and `end-run`.
    pub run: u64,
}

/// A question that could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Why, and what to do.
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
    /// Labels of this node, as the daemon was started with.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// When this was true.
    #[serde(default)]
    pub time_s: f64,
    /// The model that speaks.
    pub model: String,
    /// Its clock and how far it follows the kernel's counters.
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
    /// Where throttling begins: midpoint of the limits.
    #[serde(default)]
    pub freerun_bytes: u64,
    /// Hard limit.
    pub hard_bytes: u64,
    /// The modelled regime.
    pub state: Phase,
    /// Rate at which dirty pages are being cleaned, as modelled, if they are.
    pub writeback_rate: Option<f64>,
    /// The same as the kernel counts it (nr_written).
    #[serde(default)]
    pub sampled_writeback_rate: Option<f64>,
    /// Rate at which writers are let through, if they are throttled.
    pub throttled_rate: Option<f64>,
    /// Rate at which traced programs make pages dirty, over the latest second.
    #[serde(default)]
    pub dirtying_rate: f64,
    /// Rate at which programs that are not traced make pages dirty, estimated from the kernel's counters.
    #[serde(default)]
    pub untraced_rate: f64,
    /// How wrong the model was of late.
    #[serde(default)]
    pub error: ErrorStatus,
    /// What happens next at the present rate.
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// How the machine is sampled, and what that costs.
    #[serde(default)]
    pub sampler: SamplerStatus,
    /// Programs connected.
    pub clients: u64,
    /// Calls recorded since the daemon started.
    #[serde(default)]
    pub calls: u64,
    /// Bytes written to files by traced programs since the daemon started.
    #[serde(default)]
    pub bytes: u64,
    /// What these calls cost and should have cost.
    #[serde(default)]
    pub cost: Cost,
    /// Events lost on the way since the daemon started.
    pub drops: u64,
    /// Seconds since the daemon started.
    pub uptime_s: f64,
    /// The programs connected, those that lost most time first; at most 256.
    pub processes: Vec<ProcessStatus>,
    /// The devices written to.
    pub devices: Vec<DeviceStatus>,
}

/// Errors of one-step predictions (made before the call was looked at), over the latest 60 s of writing, as
/// fractions; None where there was nothing to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorStatus {
    /// |predicted − observed| of the total time, over the observed.
    pub total: Option<f64>,
    /// The same summed over windows (docs/RESULTS.md).
    pub windowed: Option<f64>,
    /// Mean |modelled − sampled| dirty bytes, over the hard limit.
    pub dirty: Option<f64>,
    /// Calls judged.
    pub calls: u64,
}

/// How the machine is sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerStatus {
    /// Present interval between samples.
    pub interval_s: f64,
    /// Part of one processor that sampling took over the latest minute.
    pub cpu_fraction: f64,
    /// What is read: vmstat, meminfo, diskstats, pressure, mountinfo; for root bdi, tracepoints.
    pub sources: Vec<String>,
    /// Part of the latest 10 s in which some task waited for I/O (/proc/pressure/io, `some avg10`).
    pub pressure: Option<f64>,
    /// Seconds that the kernel has let writers pause (balance_dirty_pages) since the daemon started, summed
    /// over all of the machine's tasks, traced or not; None where its tracepoints are not to be had.
    pub paused_s: Option<f64>,
    /// Pauses that are missing there because they were too many.
    pub pauses_lost: Option<u64>,
    /// Why `paused_s` is None, where it is: what the daemon may not do. Nothing bounds the time that is put
    /// down to throttling then.
    pub pauses_missing: Option<String>,
}

/// The programs, sorted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Processes {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// Programs that come after those answered.
    pub omitted: u64,
    /// How many of them can be had with a larger [`Listing::skip`].
    #[serde(default)]
    pub more: u64,
    /// The rows.
    pub processes: Vec<ProcessStatus>,
}

/// A program connected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Name it was started by.
    pub program: String,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes written, to any kind of file.
    pub bytes: u64,
    /// What its calls to files cost and should have cost.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What calls cost and should have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Observed time in calls that the model has an opinion on.
    pub observed_s: f64,
    /// What the model predicted for them.
    pub predicted_s: f64,
    /// Observed time: the part of calls that the model puts down to throttling.
    pub throttled_s: f64,
    /// Observed time of calls that waited for the device (fsync, O_SYNC, O_DIRECT…).
    pub sync_s: f64,
    /// Bytes per second over the latest seconds.
    pub rate: f64,
}

/// The files, sorted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// Files that come after those answered, and those that are told apart no more.
    pub omitted: u64,
    /// How many of them can be had with a larger [`Listing::skip`].
    #[serde(default)]
    pub more: u64,
    /// The rows.
    pub files: Vec<FileStatus>,
}

/// A file that was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileStatus {
    /// Path, as far as known; the last one, if it was renamed.
    pub path: String,
    /// Its first path, if it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_path: Option<String>,
    /// Its device, "major:minor".
    pub device: String,
    /// Inode number.
    pub inode: u64,
    /// Calls.
    pub calls: u64,
    /// Bytes written.
    pub bytes: u64,
    /// How many of them were inferred, not observed: stores to mappings, shared extents.
    #[serde(default)]
    pub estimated_bytes: u64,
    /// What they cost and should have cost.
    #[serde(flatten)]
    pub cost: Cost,
}

/// The devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Devices {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// The rows.
    pub devices: Vec<DeviceStatus>,
}

/// A device written to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Major and minor number, "major:minor".
    pub device: String,
    /// As the kernel names it: vda, nvme0n1p2…; empty if unknown.
    #[serde(default)]
    pub name: String,
    /// Calls that wrote to it.
    pub calls: u64,
    /// Bytes written to it by traced programs.
    pub bytes: u64,
    /// What they cost and should have cost.
    #[serde(flatten, default)]
    pub cost: Cost,
    /// Rate at which the device writes, traced programs or not (/proc/diskstats).
    #[serde(default)]
    pub write_rate: Option<f64>,
    /// Part of the time it was busy (/proc/diskstats).
    #[serde(default)]
    pub busy: Option<f64>,
    /// Its dirty bytes, writeback included, as the kernel counts them; of the whole disk (debugfs, for root).
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// Rate at which the kernel believes it to write back (debugfs, for root).
    #[serde(default)]
    pub kernel_writeback_rate: Option<f64>,
}

/// What happens next if every writer goes on at its rate of the latest seconds.
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

/// Where a prediction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A daemon, which has followed the machine.
    #[default]
    Daemon,
    /// A profile, and the kernel's counters at one moment unless the profile is another machine's.
    Offline,
}

/// What a job of writing would cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// [`PROTOCOL`].
    pub schema: u32,
    /// Who answers.
    #[serde(default)]
    pub source: Source,
    /// The model that speaks.
    pub model: String,
    /// Calls it takes.
    pub calls: u64,
    /// The whole time in calls.
    pub cost_s: f64,
    /// Its 10th percentile, where the profile's uncertainties allow to tell.
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
    /// What of its time is waiting for the host to supply memory.
    #[serde(default)]
    pub cold_s: f64,
}

/// The past.
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
    #[serde(default)]
    pub dirty_error_bytes: Option<u64>,
    /// Background limit at its end.
    pub background_bytes: u64,
    /// Hard limit at its end.
    pub hard_bytes: u64,
    /// The worst regime in it.
    pub state: Phase,
    /// Calls made.
    pub calls: u64,
    /// Bytes written to files.
    pub bytes: u64,
    /// Observed time in calls.
    pub observed_s: f64,
    /// Predicted time of these calls.
    pub predicted_s: f64,
    /// Observed time: the part of calls that the model puts down to throttling.
    pub throttled_s: f64,
    /// Observed time of calls that waited for the device.
    pub sync_s: f64,
    /// Bytes that the kernel wrote back (nr_written).
    pub written_bytes: u64,
    /// Time that the kernel let writers pause, over all tasks of the machine; None where it does not tell.
    #[serde(default)]
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
    /// The same with what was learned since, as TOML.
    pub learned: String,
    /// Each constant that differs or was learned.
    pub constants: Vec<ConstantStatus>,
}

/// A constant, as configured and as learned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConstantStatus {
    /// Its name in the profile: `device.writeback`.
    pub name: String,
    /// Unit of the values: B/s, ns, 1.
    pub unit: String,
    /// Value that the daemon started with.
    pub configured: f64,
    /// Value in use now.
    pub learned: f64,
    /// 10th percentile of what was learned.
    pub p10: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// Observations behind it; 0: nothing was learned.
    pub samples: u64,
}

/// Some of the calls since the previous push: the costliest and an even sample of the others.
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
    /// The regime it ran in: free, flush, throttle, sync, buffered.
    pub state: String,
}
