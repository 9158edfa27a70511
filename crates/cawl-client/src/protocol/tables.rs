//! Tables: programs, files and devices with the cost of their calls.

use serde::{Deserialize, Serialize};

use super::causes::CauseSeconds;

/// Rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listing {
    /// The sort key, largest first.
    pub sort: Sort,
    /// Most rows to answer; 100 if None, 500 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Rows to skip, which an earlier answer had.
    pub skip: usize,
}

/// Sort keys, largest first.
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
    /// Recent bytes per second.
    Rate,
}

/// The programs, sorted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Processes {
    /// [`PROTOCOL`](super::PROTOCOL).
    pub schema: u32,
    /// Programs that come after those answered.
    pub omitted: u64,
    /// Those of them available with a larger [`Listing::skip`].
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
    /// Observed and predicted cost of its calls to files.
    #[serde(flatten)]
    pub cost: Cost,
    /// Observed time of these calls, and of writes to /dev/null, by cause.
    #[serde(default)]
    pub causes_s: CauseSeconds,
}

/// Observed and predicted cost of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Observed time of modelled calls.
    pub observed_s: f64,
    /// What the model predicted for them.
    pub predicted_s: f64,
    /// Observed time of calls that the model attributes to throttling.
    pub throttled_s: f64,
    /// Observed time of calls that waited for the device (fsync, O_SYNC, O_DIRECT…).
    pub sync_s: f64,
    /// Observed time of these calls, and of writes to /dev/null, less what they would take undisturbed.
    pub lost_s: f64,
    /// Bytes per second over the latest seconds.
    pub rate: f64,
}

/// The files, sorted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// [`PROTOCOL`](super::PROTOCOL).
    pub schema: u32,
    /// Files after those answered, and files without a row.
    pub omitted: u64,
    /// Those of them available with a larger [`Listing::skip`].
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
    /// Observed and predicted cost.
    #[serde(flatten)]
    pub cost: Cost,
    /// Observed time by cause.
    #[serde(default)]
    pub causes_s: CauseSeconds,
}

/// The devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Devices {
    /// [`PROTOCOL`](super::PROTOCOL).
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
    /// Observed and predicted cost.
    #[serde(flatten, default)]
    pub cost: Cost,
    /// Observed time by cause.
    #[serde(default)]
    pub causes_s: CauseSeconds,
    /// Rate at which the device writes, traced programs or not (/proc/diskstats).
    pub write_rate: Option<f64>,
    /// Part of the time it was busy (/proc/diskstats).
    pub busy: Option<f64>,
    /// Its dirty bytes, writeback included, as the kernel counts them; of the whole disk (debugfs, for root).
    pub dirty_bytes: Option<u64>,
    /// Rate at which the kernel believes it to write back (debugfs, for root).
    pub kernel_writeback_rate: Option<f64>,
}
