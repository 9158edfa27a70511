//! The cost of a job of writing.

use cawl_wire::flag;

use super::scene::{Scene, Writer};
use crate::cause::{Cause, CostParts};
use crate::model::{CallState, LONGEST_PAUSE, Prediction};
use crate::units::{Bytes, Nanos, Rate, Time};

/// Longest wait before a job, a bound on the work of an answer.
const LATEST: Nanos = Nanos::seconds(24.0 * 3600.0);
/// Parts of the hard limit in which a job is written.
const PIECES: u64 = 64;
/// So many hard limits are written, of which the later half tells what the rest costs.
const LIMITS: u64 = 8;
/// Most pieces of calls that are not taken together, and of others, which begin small.
const STEPS: usize = (LIMITS * PIECES) as usize;
const GROWING: usize = 4 * STEPS;
/// A piece is no more than this part of what was written before, or the least size. So it does not depend on
/// what is to come: more bytes cost what fewer do, and the rest.
const PART: u64 = 128;
const MIN: u64 = 64 << 10;

/// A job of writing fresh data to one file, from one thread, without thinking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Bytes in all.
    pub bytes: Bytes,
    /// Bytes a call.
    pub chunk: Bytes,
    /// With O_SYNC.
    pub sync: bool,
    /// With an fsync at the end, which then counts.
    pub fsync: bool,
    /// How long from now it begins.
    pub after: Nanos,
    /// `st_dev` of what it writes to; None: the device written to last.
    pub device: Option<u64>,
    /// The rate at which others write, until it begins and during it; [`Rate::MIN`] for none.
    pub others: Rate,
}

/// What a job of writing would cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCost {
    /// Calls it takes, the fsync included if it has one.
    pub calls: u64,
    /// The time in calls.
    pub cost: Nanos,
    /// 10th and 90th percentile of the cost, where the constants' uncertainties allow to tell. Constants that
    /// are wrong are wrong for all calls, so the calls' percentiles are added.
    pub interval: Option<(Nanos, Nanos)>,
    /// The cost of the costliest write; where many were taken together, what it may be at most.
    pub worst: Nanos,
    /// The time in calls by state, in the order of [`CallState::ALL`].
    pub states: [Nanos; CallState::ALL.len()],
    /// What of the cost is waiting for the host to supply memory.
    pub cold: Nanos,
    /// Highest dirty level on the way.
    pub peak: Bytes,
    /// Dirty level at the end, before the fsync.
    pub last: Bytes,
    /// Cost of an fsync at the end.
    pub fsync: Nanos,
}

/// A job that cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// No bytes.
    #[error("nothing to write: give a number of bytes above 0")]
    NoBytes,
    /// Calls without bytes.
    #[error("calls of 0 bytes write nothing: give a chunk above 0")]
    NoChunk,
    /// Begins too late.
    #[error("cannot look further ahead than 24 h")]
    TooLate,
}

/// What the job would cost, begun `job.after` from now.
pub fn predict(scene: Scene, job: &Job) -> Result<JobCost, JobError> {
    match job {
        Job { bytes: Bytes(0), .. } => Err(JobError::NoBytes),
        Job { chunk: Bytes(0), .. } => Err(JobError::NoChunk),
        job if job.after > LATEST => Err(JobError::TooLate),
        job => Ok(Rehearsal::new(scene.begun(), job).run()),
    }
}

/// By how much what processor and memory do, and what a device does, drifts between the time of a calibration
/// and another, one time in ten: no spread within one measurement tells. Found by calibrating virtual
/// machines again and again; a job of many calls has all of it, as their own spread cancels out.
const DRIFT: [f64; 2] = [1.2, 1.3];

/// A job being carried out on a copy of the model.
struct Rehearsal<'a> {
    job: &'a Job,
    scene: Scene,
    /// Most bytes written at a time, and bytes of a call.
    share: u64,
    chunk: u64,
    /// Most pieces.
    most: usize,
    /// When the job and the others go on.
    next: [Time; 2],
    steps: usize,
    cost: JobCost,
    /// Costs of the pieces of the call under way, where a call takes several.
    call: Nanos,
    in_call: u64,
}

impl Rehearsal<'_> {
    fn new(scene: Scene, job: &Job) -> Rehearsal<'_> {
        let mut scene = scene.on_device(job.device);
        // Each call with O_SYNC waits for what is in the queue.
        if !job.sync {
            scene.model.coarsen();
        }
        let share = (scene.model.state().limits.hard.0 / PIECES).max(64 << 10);
        let chunk = job.chunk.0.min(job.bytes.0);
        scene.model.in_calls_of(Bytes(chunk));
        let now = scene.now;
        Rehearsal {
            job,
            share,
            chunk,
            most: if job.sync || chunk >= share { STEPS } else { GROWING },
            next: [now + job.after, now],
            scene,
            steps: 0,
            cost: JobCost::default(),
            call: Nanos::ZERO,
            in_call: 0,
        }
    }

    /// Bytes of the piece that follows.
    fn piece(&self, written: u64) -> u64 {
        if self.chunk >= self.share {
            self.share
        } else if self.job.sync {
            self.chunk
        } else {
            self.chunk * ((written / PART).clamp(MIN, self.share) / self.chunk).max(1)
        }
    }

    fn run(mut self) -> JobCost {
        self.wait();
        let (bytes, chunk) = (self.job.bytes.0, self.chunk);
        let sample = self.typical_call(chunk.min(self.share));
        let enough = self.scene.model.state().limits.hard.0.saturating_mul(LIMITS);
        let (mut written, mut half) = (0, None);
        while written < bytes && written < enough && self.steps < self.most {
            self.others();
            let piece = self.piece(written).min(bytes - written);
            self.write(piece, sample);
            written += piece;
            if half.is_none() && (written >= enough / 2 || self.steps >= self.most / 2) {
                half = Some((written, self.cost));
            }
        }
        if written < bytes {
            let from = half.unwrap_or_default();
            let rest = (bytes - written) as f64 / (written - from.0).max(1) as f64;
            self.cost.extrapolate(&from.1, rest, self.scene.model.cold_left());
            if self.in_call > 0 && chunk > self.share {
                let whole = self.call * (chunk as f64 / self.in_call as f64);
                self.cost.worst = self.cost.worst.max(whole);
            }
        }
        self.cost.calls = bytes.div_ceil(chunk);
        self.cost.last = self.scene.model.state().dirty;
        if let Some(fsync) = self.scene.fsync(self.next[0]) {
            self.cost.fsync = fsync.cost;
            if self.job.fsync {
                self.cost.calls = self.cost.calls.saturating_add(1);
                self.cost.add(&fsync, fsync.cost, fsync.interval);
            }
        }
        self.cost
    }

    /// Lets the others write until the job begins; where that is longer than the model remembers, the last
    /// part.
    fn wait(&mut self) {
        let begin = self.next[0];
        let remembered = Bytes(self.scene.model.state().limits.hard.0.saturating_mul(8)) / self.job.others;
        if self.job.after > remembered {
            self.scene.pass(self.job.after.saturating_sub(remembered));
            self.next[1] = self.scene.now;
        }
        while self.next[1] < begin && self.steps < STEPS {
            self.other_write();
        }
        self.steps = 0;
        self.scene.pass(begin.since(self.scene.now));
    }

    /// Lets the others write what they write before the job's next call.
    fn others(&mut self) {
        while self.next[1] <= self.next[0] && self.steps < self.most {
            self.other_write();
        }
    }

    fn other_write(&mut self) {
        self.steps += 1;
        // Small enough that the pieces come ten times a second, large enough to be few.
        let share = (self.scene.model.state().limits.hard.0 / PIECES).max(64 << 10);
        let piece = (self.job.others * Nanos::millis(100.0)).max(Bytes(4096)).min(Bytes(share));
        let start = self.next[1];
        let cost = self.scene.write(Writer::Others, piece, start, 0).map_or(Nanos::ZERO, |p| p.cost);
        self.next[1] = start + cost.max(piece / self.job.others);
    }

    /// What a call of the real size costs by itself, to put in the place of pieces that are larger or
    /// smaller: the fixed cost, and the copying of a byte while the flusher is idle.
    fn typical_call(&mut self, bytes: u64) -> Typical {
        let mut aside = self.scene.fork();
        let cost = |scene: &mut Scene, bytes| {
            let parts = scene.write(Writer::Job, Bytes(bytes), self.next[0], 0).map(|p| p.parts);
            parts.unwrap_or_default()
        };
        // The first one has a new thread and a new inode.
        cost(&mut aside, bytes);
        let real = cost(&mut aside, bytes);
        Typical { call: real[Cause::Call], byte: alone(&real) * (1.0 / bytes as f64) }
    }

    fn write(&mut self, bytes: u64, typical: Typical) {
        self.steps += 1;
        let flags = if self.job.sync { flag::SYNC } else { 0 };
        let start = self.next[0];
        let Some(prediction) = self.scene.write(Writer::Job, Bytes(bytes), start, flags) else { return };
        let parts = &prediction.parts;
        let calls = bytes as f64 / self.chunk as f64;
        let (copying, alone) = (parts.copying(), alone(parts));
        let slowed = if alone > Nanos::ZERO { copying / alone } else { 1.0 };
        let plain = typical.call * calls + typical.byte * (bytes as f64 * slowed);
        let cost =
            plain + parts[Cause::ColdMemory] + parts[Cause::Stream] + parts[Cause::Throttle] + parts.device();
        let scale = if prediction.cost > Nanos::ZERO { cost / prediction.cost } else { 1.0 };
        let interval = prediction.interval.map(|(low, high)| (low * scale, high * scale));
        self.cost.add(&prediction, cost, interval);
        self.next[0] = start + cost;
        self.note_worst(bytes, calls, plain, cost);
    }

    fn note_worst(&mut self, bytes: u64, calls: f64, plain: Nanos, cost: Nanos) {
        if calls > 1.0 {
            // Any one of them may have taken the pauses, but no more than one.
            let waited = cost.saturating_sub(plain).min(LONGEST_PAUSE);
            self.cost.worst = self.cost.worst.max(plain * (1.0 / calls) + waited);
            return;
        }
        self.call += cost;
        self.in_call += bytes;
        self.cost.worst = self.cost.worst.max(self.call);
        if self.in_call >= self.job.chunk.0 {
            (self.call, self.in_call) = (Nanos::ZERO, 0);
        }
    }
}

/// A call of the real size.
#[derive(Clone, Copy)]
struct Typical {
    call: Nanos,
    /// Copying a byte in it.
    byte: Nanos,
}

/// Copying while the flusher is idle.
fn alone(parts: &CostParts) -> Nanos {
    parts.copying().saturating_sub(parts[Cause::FlusherBeside])
}

impl JobCost {
    fn add(&mut self, prediction: &Prediction, cost: Nanos, interval: Option<(Nanos, Nanos)>) {
        let before = self.interval.or((self.cost == Nanos::ZERO).then_some((Nanos::ZERO, Nanos::ZERO)));
        let Prediction { parts, .. } = prediction;
        let waits = parts[Cause::Throttle] + parts.device();
        let own = cost.saturating_sub(waits);
        let drift = |of: fn(f64) -> f64| waits * of(DRIFT[1]) + own * of(DRIFT[0]);
        let (less, more) = (drift(|by| 1.0 - 1.0 / by), drift(|by| by - 1.0));
        self.interval = before.zip(interval).map(|(sum, (low, high))| {
            (sum.0 + low.min(cost).saturating_sub(less), sum.1 + high.max(cost) + more)
        });
        self.cost += cost;
        self.cold += prediction.parts[Cause::ColdMemory];
        self.states[prediction.state as usize] += cost;
        self.peak = self.peak.max(prediction.dirty);
    }

    /// What follows costs `times` what has been since `from`, but for cold memory, of which so much is
    /// `left`, if that is known: pages that are taken anew are warm.
    fn extrapolate(&mut self, from: &JobCost, times: f64, left: Option<Nanos>) {
        let cold = self.cold;
        let more = |now: Nanos, then: Nanos| now + now.saturating_sub(then) * times;
        self.cost = more(self.cost, from.cost);
        self.cold = more(self.cold, from.cold);
        let zero = (Nanos::ZERO, Nanos::ZERO);
        let then = from.interval.unwrap_or(zero);
        self.interval = self.interval.map(|now| (more(now.0, then.0), more(now.1, then.1)));
        for (state, then) in self.states.iter_mut().zip(from.states) {
            *state = more(*state, then);
        }
        let warm = left.map_or(Nanos::ZERO, |left| self.cold.saturating_sub(cold + left));
        let part = if self.cost > warm { 1.0 - warm / self.cost } else { 1.0 };
        self.states.iter_mut().for_each(|state| *state = *state * part);
        self.cost = self.cost.saturating_sub(warm);
        self.cold = self.cold.saturating_sub(warm);
        self.interval =
            self.interval.map(|(low, high)| (low.saturating_sub(warm), high.saturating_sub(warm)));
    }
}
