//! The sums of a report: of a model by operation, of a file by operation.

use cawl_wire::{Event, Op};

use crate::accuracy::AccuracySummary;
use crate::by_name::ByName;
use crate::cause::TimeSums;
use crate::file_table::FileRow;
use crate::model::{CallState, Prediction};
use crate::report::{AsCalibrated, ModelReport, OpReport, Tally};

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

pub(super) struct ModelTotals {
    pub(super) name: &'static str,
    /// By code; None for operations that did not come.
    ops: Vec<Option<Sums>>,
    states: [u64; CallState::ALL.len()],
    fingerprint: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: Tally,
    observed_ns: u64,
    predicted_ns: f64,
}

/// The totals of a file, by operation.
pub(super) type FileTotals = FileRow<Vec<FileOpTotals>>;

/// The totals of an operation on a file.
pub(super) struct FileOpTotals {
    pub(super) op: Op,
    pub(super) calls: Tally,
    pub(super) observed_ns: u64,
    pub(super) predicted_ns: Vec<f64>,
    pub(super) time: TimeSums,
    pub(super) states: [u64; CallState::ALL.len()],
}

impl ModelTotals {
    pub(super) fn new(name: &'static str) -> ModelTotals {
        ModelTotals { name, ops: Vec::new(), states: Default::default(), fingerprint: FNV_OFFSET }
    }

    /// Adds a call.
    #[inline]
    pub(super) fn add(&mut self, event: &Event, bytes: u64, prediction: &Prediction) {
        let cost = prediction.cost.get();
        self.of_op(event.op).add(bytes, event.duration, cost);
        self.states[prediction.state as usize] += 1;
        self.fingerprint = (self.fingerprint ^ cost.to_bits()).wrapping_mul(FNV_PRIME);
    }

    fn of_op(&mut self, op: Op) -> &mut Sums {
        let at = op as usize;
        if self.ops.len() <= at {
            self.ops.resize(at + 1, None);
        }
        self.ops[at].get_or_insert_default()
    }

    pub(super) fn report(
        &self,
        summary: AccuracySummary,
        calibrated: Option<&AccuracySummary>,
    ) -> ModelReport {
        let of = |op: &Op| Some((op.name().to_owned(), self.ops.get(*op as usize)?.as_ref()?.report()));
        let by_op = Op::ALL.iter().filter_map(of);
        ModelReport {
            name: self.name.to_owned(),
            calls: summary.calls,
            observed_s: summary.observed.as_seconds(),
            predicted_s: summary.predicted.as_seconds(),
            total_error: summary.total_error,
            windowed_error: summary.windowed_error,
            call_error: summary.call_error,
            dirty_error: summary.dirty_error,
            calibrated: calibrated.map(|summary| AsCalibrated {
                predicted_s: summary.predicted.as_seconds(),
                total_error: summary.total_error,
                windowed_error: summary.windowed_error,
                call_error: summary.call_error,
            }),
            summary,
            by_op: by_op.collect(),
            states: states(&self.states),
            fingerprint: format!("{:016x}", self.fingerprint),
        }
    }
}

impl Sums {
    fn add(&mut self, bytes: u64, observed_ns: u64, predicted_ns: f64) {
        self.calls.add(bytes);
        self.observed_ns = self.observed_ns.saturating_add(observed_ns);
        self.predicted_ns += predicted_ns;
    }

    fn report(&self) -> OpReport {
        let (observed, predicted) = (self.observed_ns as f64, self.predicted_ns);
        OpReport {
            calls: self.calls.calls,
            bytes: self.calls.bytes,
            observed_s: observed / 1e9,
            predicted_s: predicted / 1e9,
            total_error: (observed > 0.0).then(|| (predicted - observed).abs() / observed),
        }
    }
}

/// The totals of an operation, among those of its file.
#[inline]
pub(super) fn op_totals(ops: &mut Vec<FileOpTotals>, op: Op, models: usize) -> &mut FileOpTotals {
    let at = ops.iter().position(|totals| totals.op == op).unwrap_or_else(|| add_op(ops, op, models));
    &mut ops[at]
}

/// An operation's first call on a file.
#[cold]
fn add_op(ops: &mut Vec<FileOpTotals>, op: Op, models: usize) -> usize {
    // Most files have one operation.
    ops.reserve_exact(1);
    ops.push(FileOpTotals {
        op,
        calls: Tally::default(),
        observed_ns: 0,
        predicted_ns: vec![0.0; models],
        time: TimeSums::default(),
        states: Default::default(),
    });
    ops.len() - 1
}

/// Observed time of all calls on a file.
pub(super) fn observed_ns(totals: &FileTotals) -> u64 {
    totals.counts.iter().map(|op| op.observed_ns).fold(0, u64::saturating_add)
}

pub(super) fn states(counts: &[u64; CallState::ALL.len()]) -> ByName<u64> {
    let named = CallState::ALL.iter().map(|state| state.name()).zip(counts.iter().copied());
    named.filter(|(_, count)| *count > 0).collect()
}
