//! The sums of a report: of a model by operation, of a file by operation.

use cawl_wire::{Event, Op};

use crate::accuracy::AccuracySummary;
use crate::by_name::ByName;
use crate::file_table::FileRow;
use crate::model::{CallState, Prediction};
use crate::report::{AsCalibrated, ModelReport, OpReport};
use crate::tally::CallSums;
use crate::units::Nanos;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

pub(super) struct ModelTotals {
    pub(super) name: &'static str,
    /// By code; None for operations that did not come.
    ops: Vec<Option<Box<CallSums>>>,
    states: [u64; CallState::ALL.len()],
    fingerprint: u64,
}

/// The totals of a file, by operation.
pub(super) type FileTotals = FileRow<Vec<FileOpTotals>>;

pub(super) struct FileOpTotals {
    pub(super) op: Op,
    /// With the predictions of the first model.
    pub(super) sums: CallSums,
    /// Number of models with a law for it.
    pub(super) models: usize,
    /// Time predicted by the further ones.
    pub(super) further: Vec<Nanos>,
    pub(super) states: [u64; CallState::ALL.len()],
}

impl ModelTotals {
    pub(super) fn new(name: &'static str) -> ModelTotals {
        ModelTotals { name, ops: Vec::new(), states: Default::default(), fingerprint: FNV_OFFSET }
    }

    #[inline]
    pub(super) fn add(&mut self, event: &Event, bytes: u64, prediction: &Prediction) {
        let at = event.op as usize;
        if self.ops.len() <= at {
            self.ops.resize(at + 1, None);
        }
        let sums = self.ops[at].get_or_insert_default();
        sums.add(bytes, Nanos::new(event.duration as f64), prediction.cost);
        self.states[prediction.state as usize] += 1;
        let cost = prediction.cost.get().to_bits();
        self.fingerprint = (self.fingerprint ^ cost).wrapping_mul(FNV_PRIME);
    }

    pub(super) fn report(
        &self,
        summary: AccuracySummary,
        calibrated: Option<&AccuracySummary>,
    ) -> ModelReport {
        let of = |op: &Op| Some((op.name().to_owned(), of_op(self.ops.get(*op as usize)?.as_ref()?)));
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

fn of_op(sums: &CallSums) -> OpReport {
    let (observed, predicted) = (sums.observed.get(), sums.predicted.get());
    OpReport {
        calls: sums.count.calls,
        bytes: sums.count.bytes,
        observed_s: observed / 1e9,
        predicted_s: predicted / 1e9,
        total_error: (observed > 0.0).then(|| (predicted - observed).abs() / observed),
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
        sums: CallSums::default(),
        models,
        further: vec![Nanos::ZERO; models.saturating_sub(1)],
        states: Default::default(),
    });
    ops.len() - 1
}

/// Observed time of all calls on a file.
pub(super) fn observed(totals: &FileTotals) -> Nanos {
    totals.counts.iter().map(|op| op.sums.observed).sum()
}

pub(super) fn states(counts: &[u64; CallState::ALL.len()]) -> ByName<u64> {
    let named = CallState::ALL.iter().map(|state| state.name()).zip(counts.iter().copied());
    named.filter(|(_, count)| *count > 0).collect()
}
