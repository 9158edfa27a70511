//! What an analysis found, as data: the JSON output is this, and the text output is drawn from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accuracy::{AccuracySummary, CallError};
use crate::advice::Advised;
use crate::by_name::ByName;
use crate::cause::Cause;
use crate::explain::Explain;
use crate::learn::ColdMemory;
use crate::patterns::FilePatterns;
use crate::profile::{Origin, Thoroughness};
use crate::record::{EndKind, HostFacts, Outcome};
use crate::selection::Selection;
pub use crate::tally::Tally;
use crate::timeline::TimelineReport;
use crate::uncertain::Uncertain;
use crate::units::Bytes;
use crate::worst_call::WorstCall;

/// Version of the JSON report.
pub const REPORT_SCHEMA: u32 = 1;

/// The whole finding. Times are in seconds, sizes in bytes, errors are fractions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// `open-loop`, `lockstep` or `assimilated`.
    pub mode: String,
    /// True if the models learned while they predicted.
    #[serde(default)]
    pub learn: bool,
    /// Calls recorded, of every kind.
    pub calls: u64,
    /// Bytes written to regular files.
    pub bytes: u64,
    /// Events that were recorded but lost on the way.
    pub drops: u64,
    /// Calls that passed through unrecorded, as far as the tracer knows.
    pub unseen: u64,
    /// Calls of which something was told that may not be true; None if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<Uncertain>,
    /// Bytes seen over bytes the kernel counted, untraced children included; None where nothing was counted,
    /// with `io_uring`, with `uncounted_processes`, and where requests of the kernel's queues were dropped.
    pub coverage: Option<f64>,
    /// A process used io_uring, whose bytes are neither seen nor counted by the kernel.
    #[serde(default)]
    pub io_uring: bool,
    /// Processes whose counters in /proc/PID/io the daemon may not read, as of a user's program that becomes
    /// an untraced one by exec: their coverage is not known.
    #[serde(default)]
    pub uncounted_processes: u64,
    /// Bytes written by children of the program, or by what it became by exec, that were not traced, as far
    /// as the kernel tells.
    pub untraced_bytes: u64,
    /// The profile the models used.
    pub profile: ProfileUsed,
    /// What was run, as it was typed; where that is not known, the first program with its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// How the program ended, if this was a run of one.
    pub outcome: Option<Outcome>,
    /// Seconds from the first call's start to the last one's end; of all that was recorded on a machine
    /// without a program that was run, as by `attach`, those in which its processes were followed.
    pub span_s: f64,
    /// Calls and bytes that the models have no law for, by operation.
    pub unmodelled: BTreeMap<String, Tally>,
    /// Calls and bytes to pipes, terminals and sockets, which have no page cache.
    pub elsewhere: Tally,
    /// What else the reader must know.
    pub notes: Vec<String>,
    /// Which calls the report is about; all, if None. Coverage, losses and errors are those of all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// What memory cost that the host had to supply; None where that is hardly a part of the observed time,
    /// or where the models do not learn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<ColdReport>,
    /// Calls that wrote to files in memory alone (tmpfs), and their bytes, which are never written back; None
    /// if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_memory: Option<Tally>,
    /// Files that an overlay copied out of a lower layer since they were opened for writing; None if it
    /// copied none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_up: Option<CopiedUp>,
    /// Every process image that was traced, but for those in `sessions_omitted`.
    pub sessions: Vec<SessionReport>,
    /// Images that ended long ago and are sums now, because there were too many to list.
    pub sessions_omitted: SessionTotals,
    /// Each model's accuracy.
    pub models: Vec<ModelReport>,
    /// Each file, /dev/null among them if it was written to; most observed time first.
    pub files: Vec<FileReport>,
    /// Calls and bytes on files left out of `files` because there were too many.
    pub files_omitted: Tally,
    /// The calls that the first model was most wrong about, in time.
    pub worst: Vec<WorstCall>,
    /// Where the time went; None in a report of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
    /// The changes that are worth it; None where none were looked for: of a part of the calls, without times,
    /// and in a report of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advised>,
    /// The machine that was traced.
    pub host: Option<HostFacts>,
    /// The run over time, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<TimelineReport>,
}

/// Which profile the models used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileUsed {
    /// Its name.
    pub name: String,
    /// Where its constants come from.
    pub origin: Origin,
    /// Age in seconds when the trace was taken, if known.
    pub age_s: Option<u64>,
    /// How thoroughly they were measured, if they were and it is known.
    pub measured: Option<Thoroughness>,
    /// Constants of the device that were not ([`HostProfile::unmeasured`](crate::HostProfile::unmeasured)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<String>,
    /// Runs that added to it what they learned.
    #[serde(default)]
    pub learned_runs: u32,
    /// Profiles of equal machines that it was merged of; 0: it is of one machine.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub merged: u32,
}

/// Files that an overlay copied, each when it was first opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CopiedUp {
    /// Their number.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// What their opens took, in seconds.
    pub seconds: f64,
}

/// Part of the observed time from which on cold memory is told of.
const NOTEWORTHY: f64 = 0.01;

/// What new pages took longer than warm ones because the host had to supply their memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColdReport {
    /// How much longer, in seconds.
    pub seconds: f64,
    /// Pages.
    pub pages: u64,
    /// The one over the other, in seconds.
    pub per_page_s: f64,
    /// The operation that most of this was in.
    pub op: String,
    /// What this operation took in all, in seconds.
    pub op_observed_s: f64,
}

impl Report {
    /// Adds what was observed of cold memory, if it is worth mentioning.
    pub fn tell_cold(&mut self, cold: &ColdMemory, page: Bytes) {
        // What was observed is of all calls.
        let Some(model) = self.models.first().filter(|_| self.selection.is_none()) else { return };
        let most = cold.by_op.iter().max_by(|a, b| a.1.1.get().total_cmp(&b.1.1.get()));
        let Some((op, _)) = most else { return };
        // The cause has what is left beside the run delay.
        let told = self.explain.as_ref().map(|explain| explain.seconds_of(Cause::ColdMemory));
        let met = || cold.by_op.values().map(|(_, longer)| longer.as_seconds()).sum::<f64>();
        let seconds = told.unwrap_or_else(met);
        let pages = cold.by_op.values().map(|(bytes, _)| bytes.0).sum::<u64>() / page.0.max(1);
        if seconds <= NOTEWORTHY * model.observed_s || pages == 0 {
            return;
        }
        self.cold = Some(ColdReport {
            seconds,
            pages,
            per_page_s: seconds / pages as f64,
            op: op.name().to_owned(),
            op_observed_s: model.by_op.get(op.name()).map_or(0.0, |op| op.observed_s),
        });
    }
}

/// One process image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionReport {
    /// Process id.
    pub pid: u32,
    /// Name the program was started by.
    pub program: String,
    /// How it ended.
    pub ended: EndKind,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes seen on their way to the kernel, to any kind of file.
    pub seen_bytes: u64,
    /// Bytes the kernel counted (`wchar`) in the same time.
    pub wchar_bytes: Option<u64>,
    /// The one over the other.
    pub coverage: Option<f64>,
    /// Events lost on the way.
    pub dropped: u64,
    /// Calls that passed through unrecorded.
    pub unseen: u64,
}

/// Sums over process images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTotals {
    /// Images.
    pub images: u64,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes seen of those images whose bytes the kernel counted.
    pub seen_bytes: u64,
    /// Bytes the kernel counted.
    pub counted_bytes: u64,
    /// Bytes seen of the other images.
    #[serde(default)]
    pub uncounted_bytes: u64,
    /// Events lost on the way.
    pub dropped: u64,
    /// Calls that passed through unrecorded.
    pub unseen: u64,
}

/// Begins the note that the calls were seen by probes in the kernel; what these do not see follows.
pub const SEEN_BY_PROBES: &str = "seen by the kernel's probes";

impl Report {
    /// Adds what is advised. What the same bytes could take is then what the advice says, which knows the
    /// paper.
    pub fn advise(&mut self, advised: Option<Advised>) {
        if let (Some(explain), Some(Advised { tried: Some(_), best_s, .. })) = (&mut self.explain, &advised) {
            explain.best.best_s = explain.best.undisturbed_s.min(*best_s);
        }
        self.advice = advised;
    }

    /// The note that begins with [`SEEN_BY_PROBES`], if any.
    pub fn seen_by_probes(&self) -> Option<&str> {
        self.notes.iter().map(String::as_str).find(|note| note.starts_with(SEEN_BY_PROBES))
    }

    /// Bytes that processes wrote, as the kernel counts them, and those of them that were seen.
    pub fn wrote_and_seen(&self) -> (Bytes, Bytes) {
        let mut all = self.sessions_omitted;
        self.sessions.iter().for_each(|session| all.add(session));
        // What the program and all that it waited for wrote is known then.
        let is_known = self.outcome.is_some_and(|outcome| outcome.wchar.is_some());
        let others = Bytes(if is_known { all.uncounted_bytes } else { 0 });
        let wrote = Bytes(all.counted_bytes) + Bytes(self.untraced_bytes) + others;
        (wrote, Bytes(all.seen_bytes) + others)
    }

    /// The other notes.
    pub fn remarks(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().filter(|note| !note.starts_with(SEEN_BY_PROBES))
    }
}

impl SessionTotals {
    /// Adds an image.
    pub fn add(&mut self, session: &SessionReport) {
        self.images += 1;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.calls, session.calls);
        match session.wchar_bytes {
            Some(counted) => {
                add(&mut self.seen_bytes, session.seen_bytes);
                add(&mut self.counted_bytes, counted);
            }
            None => add(&mut self.uncounted_bytes, session.seen_bytes),
        }
        add(&mut self.dropped, session.dropped);
        add(&mut self.unseen, session.unseen);
    }
}

/// How well one model did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelReport {
    /// Name of the model.
    pub name: String,
    /// Calls compared.
    pub calls: u64,
    /// Their observed time, in seconds.
    pub observed_s: f64,
    /// Their predicted time, in seconds.
    pub predicted_s: f64,
    /// |predicted - observed| / observed, over all calls (docs/reference/REPORT.md).
    pub total_error: Option<f64>,
    /// Mean of the same over 16 windows of equal observed time.
    pub windowed_error: Option<f64>,
    /// |predicted - observed| / observed of single calls: mean and median.
    pub call_error: Option<CallError>,
    /// Root mean square error of the dirty level, over the hard limit.
    pub dirty_error: Option<f64>,
    /// How the model does as calibrated; None where it was not asked for.
    pub calibrated: Option<AsCalibrated>,
    /// The whole summary, with quantiles.
    pub summary: AccuracySummary,
    /// Calls, times and errors by name of the operation.
    pub by_op: BTreeMap<String, OpReport>,
    /// Number of calls in each state.
    pub states: ByName<u64>,
    /// Hash over every prediction in order: equal fingerprints mean equal predictions, call by call.
    pub fingerprint: String,
}

/// How well a model does that neither learns nor is corrected: its constants are those of the profile at the
/// start, its time follows the observed clock (lockstep). So that following is not taken for foreseeing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AsCalibrated {
    /// Predicted time, in seconds.
    pub predicted_s: f64,
    /// |predicted - observed| / observed, over all calls (docs/reference/REPORT.md).
    pub total_error: Option<f64>,
    /// Mean of the same over 16 windows of equal observed time.
    pub windowed_error: Option<f64>,
    /// |predicted - observed| / observed of single calls: mean and median.
    pub call_error: Option<CallError>,
}

/// Calls of one operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpReport {
    /// Calls compared.
    pub calls: u64,
    /// Bytes they handed to the kernel; of a stream, what left its buffer.
    pub bytes: u64,
    /// Observed time, in seconds.
    pub observed_s: f64,
    /// Predicted time, in seconds.
    pub predicted_s: f64,
    /// |predicted - observed| / observed.
    pub total_error: Option<f64>,
}

/// One file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileReport {
    /// Path, as far as known; the last one, if it was renamed.
    pub path: String,
    /// Its first path, if it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_path: Option<String>,
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// What tells it apart from other files that had this number; 0: not known.
    #[serde(default)]
    pub birth: u32,
    /// Its operations.
    pub ops: Vec<FileOp>,
    /// How it was used; None of /dev/null, and in a report of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patterns: Option<FilePatterns>,
}

/// One operation on one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileOp {
    /// Name of the operation.
    pub op: String,
    /// Calls.
    pub calls: u64,
    /// Bytes they handed to the kernel; of a stream, what left its buffer.
    pub bytes: u64,
    /// Observed time, in seconds; 0 where it cannot be seen: of stores through mappings, and of what a stream
    /// held at exit.
    pub observed_s: f64,
    /// Predicted time in seconds, for each model; empty for calls that no model has a law for, and those to
    /// /dev/null.
    pub predicted_s: ByName<f64>,
    /// Number of calls in each state, by the first model.
    pub states: ByName<u64>,
    /// Observed seconds by cause.
    #[serde(default)]
    pub causes: ByName<f64>,
    /// Seconds that the calls would take undisturbed ([`BestTimes::undisturbed_s`](crate::BestTimes)).
    #[serde(default)]
    pub undisturbed_s: f64,
}
