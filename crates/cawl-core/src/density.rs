//! What calls cost, as densities on a logarithmic axis: per byte, per call, and observed over predicted.
//!
//! A density of costs tells more than their mean: warm and cold memory, a call with a pause and one without
//! are humps of their own (Kunkel, "Identifying Relevant Factors in the I/O-Path using Statistical Methods",
//! 2015). A call costs an addition in each of three histograms with bins of a sixteenth of an octave, 1/53 of
//! a decade; the density and its modes are computed from the bins when a report is made ([`modes`]).

mod modes;

use cawl_wire::Op;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::units::Nanos;
pub use modes::{Density, Mode};

/// Bins of an octave.
const BINS: usize = 16;
/// Octaves that are told apart, the first one from 2^`LOWEST` on: in ns from a millionth to five hours.
const OCTAVES: usize = 64;
const LOWEST: i32 = -20;

/// The bin of an octave by the first eight bits of a value's fraction.
const BIN: [u8; 256] = {
    // 256 (2^(k/16) - 1), rounded.
    const BEGINS: [usize; BINS] = [0, 11, 23, 36, 48, 62, 76, 91, 106, 122, 139, 156, 175, 194, 214, 234];
    let mut table = [0; 256];
    let mut bin = 0;
    let mut at = 0;
    while at < 256 {
        if bin + 1 < BINS && at >= BEGINS[bin + 1] {
            bin += 1;
        }
        table[at] = bin as u8;
        at += 1;
    }
    table
};

/// Calls of about the same cost.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    calls: u64,
    /// Their observed time in ns, by the cause of the largest part of each.
    times: [u64; Cause::ALL.len()],
}

/// Calls by cost.
#[derive(Clone, Debug)]
struct Histogram {
    octaves: [Option<Box<[Bin; BINS]>>; OCTAVES],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { octaves: [const { None }; OCTAVES] }
    }
}

impl Histogram {
    /// Adds a call of this cost, which is above zero, and of this observed time.
    #[inline]
    fn add(&mut self, cost: f32, ns: u64, cause: Cause) {
        let bits = cost.to_bits();
        let octave = ((bits >> 23) as i32 - 127 - LOWEST).clamp(0, OCTAVES as i32 - 1);
        let bin = BIN[(bits >> 15) as usize & 255];
        let bins = self.octaves[octave as usize].get_or_insert_default();
        let bin = &mut bins[usize::from(bin)];
        bin.calls += 1;
        let time = &mut bin.times[cause as usize];
        *time = time.saturating_add(ns);
    }

    /// The density and its modes; None without calls.
    fn density(&self) -> Option<Density> {
        let has = |octave: &Option<Box<[Bin; BINS]>>| octave.is_some();
        let (first, last) = (self.octaves.iter().position(has)?, self.octaves.iter().rposition(has)?);
        let empty = Box::default();
        let octaves = self.octaves[first..=last].iter().map(|octave| octave.as_ref().unwrap_or(&empty));
        let bins: Vec<Bin> = octaves.flat_map(|bins| bins.iter().copied()).collect();
        let before = bins.iter().position(|bin| bin.calls > 0)?;
        let behind = bins.iter().rposition(|bin| bin.calls > 0)?;
        let begin = f64::from(LOWEST) + first as f64 + before as f64 / BINS as f64;
        Some(modes::density(begin, &bins[before..=behind]))
    }
}

impl Density {
    /// The density of what calls took, of which no cause is known; None without calls.
    pub fn of(times: impl IntoIterator<Item = Nanos>) -> Option<Density> {
        let mut histogram = Histogram::default();
        for time in times.into_iter().filter(|time| *time > Nanos::ZERO) {
            histogram.add(time.get() as f32, time.get() as u64, Cause::Unexpected);
        }
        histogram.density()
    }
}

/// Costs of the calls of an operation.
#[derive(Clone, Debug, Default)]
struct OfOp {
    per_byte: Histogram,
    per_call: Histogram,
    over_predicted: Histogram,
}

/// Costs of all calls, by operation.
#[derive(Debug, Default)]
pub(crate) struct Densities {
    /// By code.
    ops: Vec<Option<Box<OfOp>>>,
}

impl Densities {
    /// Adds a call that wrote this many bytes and took this long, by `cause` for the most part; `predicted`
    /// if a model has an opinion on that.
    #[inline]
    pub(crate) fn add(&mut self, op: Op, bytes: u64, ns: u64, predicted: Option<Nanos>, cause: Cause) {
        if ns == 0 {
            return;
        }
        let at = op as usize;
        if self.ops.len() <= at {
            self.ops.resize(at + 1, None);
        }
        let of = self.ops[at].get_or_insert_default();
        let cost = ns as f32;
        of.per_call.add(cost, ns, cause);
        if bytes > 0 {
            of.per_byte.add(cost / bytes as f32, ns, cause);
        }
        if let Some(predicted) = predicted.filter(|predicted| *predicted > Nanos::ZERO) {
            of.over_predicted.add(cost / predicted.get() as f32, ns, cause);
        }
    }

    pub(crate) fn report(&self) -> Vec<OpDensities> {
        let of = |op: &Op| {
            let of = self.ops.get(*op as usize)?.as_ref()?;
            Some(OpDensities {
                op: op.name().to_owned(),
                per_byte: of.per_byte.density(),
                per_call: of.per_call.density(),
                over_predicted: of.over_predicted.density(),
            })
        };
        Op::ALL.iter().filter_map(of).collect()
    }
}

/// Densities of the costs of an operation's calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpDensities {
    /// Name of the operation.
    pub op: String,
    /// Of ns per byte, over calls that gave bytes to the kernel.
    pub per_byte: Option<Density>,
    /// Of ns per call.
    pub per_call: Option<Density>,
    /// Of observed over predicted time, by the first model.
    pub over_predicted: Option<Density>,
}

/// A mode of the cost per byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByteMode {
    /// Name of the operation.
    pub op: String,
    /// Where it begins, in ns per byte.
    pub from_ns_per_byte: f64,
    /// Where it ends, in ns per byte.
    pub to_ns_per_byte: f64,
    /// Its most frequent cost, in ns per byte.
    pub peak_ns_per_byte: f64,
    /// Its calls.
    pub calls: u64,
    /// Its share of the operation's calls.
    pub share: f64,
    /// Its observed time, in seconds.
    pub seconds: f64,
    /// The cause of most of its time.
    pub cause: String,
}

/// The modes of the cost per byte of all operations.
pub(crate) fn byte_modes(densities: &[OpDensities]) -> Vec<ByteMode> {
    let of_op = |of: &OpDensities| {
        let mode = |mode: &Mode| ByteMode {
            op: of.op.clone(),
            from_ns_per_byte: mode.from,
            to_ns_per_byte: mode.to,
            peak_ns_per_byte: mode.peak,
            calls: mode.calls,
            share: mode.share,
            seconds: mode.seconds,
            cause: mode.cause.clone(),
        };
        of.per_byte.iter().flat_map(|density| &density.modes).map(mode).collect::<Vec<_>>()
    };
    densities.iter().flat_map(of_op).collect()
}

#[cfg(test)]
mod tests;
