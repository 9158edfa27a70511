//! Which setting suits which pattern of writing: a grid of both, computed by model `kernel`.
//!
//! The law: **only settings that give what the pattern needs are compared with each other.** A setting that
//! loses records in a crash is no choice for a program that may lose none, however fast it is, and O_DIRECT
//! alone makes nothing durable. The method is that of Kunkel, "Analyzing and Assessing I/O Performance": the
//! performance of a setting is that of the best one over its own, the table of default choices takes one
//! setting for all patterns, and a decision tree chooses by a pattern's features.

mod act;
mod cost;
mod pattern;
mod setting;
mod table;
mod tree;

use std::collections::HashSet;

pub use act::{Act, acts};
pub use cost::cost;
pub use pattern::{Feature, Need, Order, Pattern, Workload};
pub use setting::{Access, Setting, Way};
pub use table::{DefaultChoice, Study};
pub use tree::{Leaf, Node, Rule, Tree};

use cawl_core::{Bytes, DirtyLimits, SyncsKept};

/// Records of a workload at most, of all its writers together: a bound on the work of a cell.
const RECORDS: u64 = 4096;
/// The small workloads write this part of the bytes of the large ones.
const SMALL: u64 = 16;
/// Writers of a workload.
const WRITERS: [u32; 2] = [1, 4];
/// Sizes of the records of each order.
const RECORD_SIZES: [(Order, [u64; 2]); 4] = [
    (Order::New, [4 << 10, 1 << 20]),
    (Order::Overwrite, [4 << 10, 1 << 20]),
    (Order::Random, [4 << 10, 64 << 10]),
    (Order::Append, [128, 1 << 10]),
];

/// What the grid is made of.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Most bytes of a workload.
    pub bytes: Bytes,
    /// How records reach the kernel.
    pub ways: Vec<Way>,
    /// When fsync is called.
    pub syncs: Vec<SyncsKept>,
    /// How files are open.
    pub accesses: Vec<Access>,
    /// Dirty limits; None: those of the machine.
    pub limits: Vec<Option<DirtyLimits>>,
}

/// Workloads, what they need, and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// What programs write.
    pub workloads: Vec<Workload>,
    /// Settings, simple ones first.
    pub settings: Vec<Setting>,
}

/// A setting of a workload on a machine, whose cost is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Number of the machine.
    pub machine: usize,
    /// The workload.
    pub workload: Workload,
    /// The setting, with what makes no difference to the workload taken out.
    pub setting: Setting,
}

impl Grid {
    /// All workloads, and all combinations of these choices that say nothing twice.
    pub fn new(choices: &Choices) -> Grid {
        let mut settings = Vec::new();
        for limits in &choices.limits {
            for access in &choices.accesses {
                for syncs in &choices.syncs {
                    let setting =
                        |way: &Way| Setting { way: *way, syncs: *syncs, access: *access, limits: *limits };
                    settings.extend(choices.ways.iter().map(setting).filter(Setting::is_sensible));
                }
            }
        }
        Grid { workloads: workloads(choices.bytes), settings }
    }

    /// The cells to compute, each once.
    pub fn cells(&self, machines: usize) -> Vec<Cell> {
        let mut met = HashSet::new();
        let mut cells = Vec::new();
        for machine in 0..machines {
            for workload in &self.workloads {
                let possible = self.settings.iter().filter(|setting| setting.is_possible(workload));
                for setting in possible.map(|setting| setting.effective(workload)) {
                    let cell = Cell { machine, workload: *workload, setting };
                    if met.insert(cell) {
                        cells.push(cell);
                    }
                }
            }
        }
        cells
    }
}

impl Cell {
    /// Calls that write, of all writers.
    pub fn calls(&self) -> u64 {
        let Workload { record, records, writers, .. } = self.workload;
        let of_record = match self.setting.way {
            Way::Write(chunk) => record.0.div_ceil(chunk.max(1)),
            Way::Stream(_) => 1,
        };
        of_record * records * u64::from(writers)
    }
}

/// All workloads of at most so many bytes, or of a record for each writer.
fn workloads(bytes: Bytes) -> Vec<Workload> {
    let mut workloads: Vec<Workload> = Vec::new();
    for (order, sizes) in RECORD_SIZES {
        for record in sizes {
            for writers in WRITERS {
                for part in [SMALL, 1] {
                    let most = bytes.0 / part / u64::from(writers) / record;
                    let records = most.min(RECORDS / u64::from(writers)).max(1);
                    let workload = Workload { order, record: Bytes(record), records, writers };
                    if !workloads.contains(&workload) {
                        workloads.push(workload);
                    }
                }
            }
        }
    }
    workloads
}

#[cfg(test)]
mod tests;
