//! Where the time went: sums by cause over all calls, and the times that would do.

use serde::{Deserialize, Serialize};

use crate::cause::{ByCause, Cause, TimeSums};
use crate::classes::CallClass;
use crate::density::{ByteMode, OpDensities};
use crate::patterns::PatternSums;
use crate::processes::{ProcessReport, RankReport};
use crate::profile::HostProfile;
use crate::stacks::StackReport;
use crate::units::{Bytes, Nanos, is_zero};
use crate::worst_call::WorstCall;

/// Version of [`Explain`].
pub const EXPLAIN_SCHEMA: u32 = 1;

/// How much of the calls is explained. Less than all is for measuring what explaining takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Explaining {
    /// Nothing: models are only judged.
    Nothing,
    /// The observed time by cause.
    Causes,
    /// Causes, densities, and patterns of files.
    #[default]
    All,
}

/// Where the time of a run's calls went. Times in seconds, sizes in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explain {
    /// [`EXPLAIN_SCHEMA`].
    pub schema: u32,
    /// Calls that are explained: those to files that have a cost, and those to /dev/null.
    pub calls: u64,
    /// Bytes that they handed to the kernel.
    pub bytes: u64,
    /// What they took.
    pub observed_s: f64,
    /// What they could have taken.
    pub best: BestTimes,
    /// Observed less undisturbed.
    pub lost_s: f64,
    /// Each cause that took time or that a call is counted under, most time first.
    pub causes: Vec<CauseReport>,
    /// The calls that lost most time: what they took less what they would take undisturbed.
    pub worst: Vec<WorstCall>,
    /// What each process image spent its time on; without those that the report's `sessions_omitted` has.
    pub processes: Vec<ProcessReport>,
    /// The variable of the environment that told the ranks.
    pub rank_variable: Option<String>,
    /// The processes of a parallel program by rank.
    pub ranks: Vec<RankReport>,
    /// The ranks that the others wait for.
    pub stragglers: Vec<u32>,
    /// The modes of the cost per byte of each operation.
    pub modes: Vec<ByteMode>,
    /// Densities of the cost of calls, by operation.
    pub densities: Vec<OpDensities>,
    /// Calls by observed time, where bounds were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<CallClass>,
    /// Calls without a class: they were added up before their times were read.
    #[serde(skip_serializing_if = "is_zero")]
    pub unclassed_calls: u64,
    /// Where in the program the calls came from, if stacks were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackReport>,
    /// Patterns of all files together; those of each are with the files.
    pub patterns: PatternSums,
}

impl Explain {
    /// The part that a cause has of the time of all calls, in seconds.
    pub fn seconds_of(&self, cause: Cause) -> f64 {
        self.causes.iter().find(|row| row.name == cause.name()).map_or(0.0, |row| row.observed_s)
    }
}

/// What the calls could have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BestTimes {
    /// Time of the calls with warm memory, nothing dirty before, an idle device, no other writer, in seconds.
    pub undisturbed_s: f64,
    /// Least time that this machine can take for the bytes, in seconds: in large calls, with one fsync for
    /// each file that was synchronized.
    pub best_s: f64,
}

/// One cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CauseReport {
    /// Its name.
    pub name: String,
    /// Calls of whose time this is the largest part.
    pub calls: u64,
    /// Bytes of these calls.
    pub bytes: u64,
    /// Its part of the time of all calls, in seconds.
    pub observed_s: f64,
    /// Its part of the time of all calls if nothing had disturbed them, in seconds.
    pub undisturbed_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CauseSums {
    calls: ByCause<u64>,
    bytes: ByCause<u64>,
    /// The time of these calls.
    pub time: TimeSums,
}

impl CauseSums {
    /// Counts calls whose largest part is due to this cause.
    pub fn count(&mut self, main: Cause, calls: u64, bytes: u64) {
        self.calls[main] += calls;
        self.bytes[main] = self.bytes[main].saturating_add(bytes);
    }

    /// Each cause that took time or that a call is counted under, most time first.
    fn report(&self) -> Vec<CauseReport> {
        let row = |cause: Cause| {
            let observed = self.time.observed()[cause];
            CauseReport {
                name: cause.name().to_owned(),
                calls: self.calls[cause],
                bytes: self.bytes[cause],
                observed_s: observed as f64 / 1e9,
                undisturbed_s: self.time.undisturbed_of(cause).as_seconds(),
            }
        };
        let mut rows: Vec<CauseReport> = Cause::ALL.into_iter().map(row).collect();
        rows.retain(|row| row.observed_s > 0.0 || row.calls > 0);
        rows.sort_by(|a, b| b.observed_s.total_cmp(&a.observed_s));
        rows
    }

    /// The whole, where the same bytes could take `best`.
    pub fn explain(&self, best: Nanos) -> Explain {
        let undisturbed_s = self.time.undisturbed().as_seconds();
        let observed = self.time.observed().total() as f64;
        Explain {
            schema: EXPLAIN_SCHEMA,
            calls: self.calls.total(),
            bytes: self.bytes.total(),
            observed_s: observed / 1e9,
            best: BestTimes { undisturbed_s, best_s: best.as_seconds().min(undisturbed_s) },
            lost_s: self.time.lost().as_seconds(),
            causes: self.report(),
            ..Explain::default()
        }
    }
}

/// What writing as well as the machine can costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ideal {
    /// Of a byte in large calls, into the page cache and from there to the device, in ns.
    cached: f64,
    device: f64,
    /// Of a call, and of a sync.
    call: Nanos,
    sync: Nanos,
    page: Bytes,
}

impl Ideal {
    pub(crate) fn new(profile: &HostProfile) -> Ideal {
        let (memory, device) = (&profile.memory, &profile.device);
        let latency = device.latency.as_ref().map_or(Nanos::ZERO, |latency| latency.value);
        Ideal {
            cached: 1e9 / memory.fresh.value.max(memory.cached.value).get(),
            device: 1e9 / device.write.value.max(device.writeback.value).get(),
            call: profile.calls.write.value,
            sync: device.fsync.value + latency,
            page: profile.kernel.page,
        }
    }

    /// Of a file's bytes, which are on the device at the end if `synced`: a call and a page at least.
    pub(crate) fn cost(&self, bytes: Bytes, synced: bool) -> Nanos {
        if bytes == Bytes(0) && !synced {
            return Nanos::ZERO;
        }
        let bytes = bytes.max(self.page);
        let device = if synced { Nanos::new(bytes.as_f64() * self.device) + self.sync } else { Nanos::ZERO };
        self.call + Nanos::new(bytes.as_f64() * self.cached) + device
    }
}
