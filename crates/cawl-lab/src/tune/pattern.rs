//! What programs write, what they need, and the features by which a tree tells them apart.

use std::fmt;

use cawl_core::HostProfile;
use cawl_core::named;
use cawl_core::quantity::short;
use cawl_core::{Bytes, Nanos, Rate};

/// What a log has in it before records are appended.
pub const LOG: Bytes = Bytes::mib(1);
/// Blocks at which random records begin.
const BLOCK: u64 = 4096;

named! {
    /// Where a workload's records go.
    Order {
        /// One after another into a new file.
        New = "new",
        /// One after another over a file that is on the device.
        Overwrite = "overwrite",
        /// To random blocks of a file on the device that is twice as large.
        Random = "random",
        /// Behind what a log has in it.
        Append = "append",
    }
}

/// What writers do, each to a file of its own, without thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    /// Where the records go.
    pub order: Order,
    /// Bytes that the program has to write at a time.
    pub record: Bytes,
    /// Records of each writer.
    pub records: u64,
    /// Writers at the same time.
    pub writers: u32,
}

impl Workload {
    /// Bytes that each writer writes.
    pub const fn bytes(&self) -> u64 {
        self.record.0 * self.records
    }

    /// Size of a writer's file before.
    pub const fn size(&self) -> u64 {
        match self.order {
            Order::New => 0,
            Order::Overwrite => self.bytes(),
            Order::Random => 2 * self.bytes(),
            Order::Append => LOG.0,
        }
    }

    /// Where a record of a writer goes.
    pub fn offset(&self, writer: u32, record: u64) -> u64 {
        match self.order {
            Order::New | Order::Overwrite => record * self.record.0,
            Order::Append => LOG.0 + record * self.record.0,
            Order::Random => {
                let places = (self.size() - self.record.0) / BLOCK + 1;
                mixed((u64::from(writer) << 32) + record) % places * BLOCK
            }
        }
    }
}

/// Bits without a pattern (the output function of splitmix64).
fn mixed(number: u64) -> u64 {
    let bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

named! {
    /// What a crash of the machine may lose.
    #[derive(PartialOrd, Ord)]
    Need {
        /// Everything.
        None = "none",
        /// Everything until the end; then nothing.
        End = "end",
        /// At most the last [`Need::RECORDS`] records less one.
        Every = "every16",
        /// No record that is written.
        Record = "record",
    }
}

impl Need {
    /// Records after which those before must be durable.
    pub const RECORDS: u64 = 16;
}

/// A workload with what it needs, on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// Number of the machine.
    pub machine: usize,
    /// What is written.
    pub workload: Workload,
    /// What must be durable.
    pub need: Need,
}

impl fmt::Display for Pattern {
    /// Order, need, record and number of records, writers: `append-end-128x4096`, `new-none-1Mx16-by4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Workload { order, record, records, writers } = self.workload;
        let mut name = format!("{}-{}-{}x{records}", order.name(), self.need.name(), short(record.0));
        if writers > 1 {
            name += &format!("-by{writers}");
        }
        f.pad(&name)
    }
}

named! {
    /// What a tree asks of a pattern.
    Feature {
        /// What must be durable.
        Need = "durable",
        /// Size of a record.
        Record = "record",
        /// Bytes of each writer.
        Bytes = "bytes",
        /// Number of writers.
        Writers = "writers",
        /// Whether records lie at random.
        Random = "at random",
        /// Whether they lie in blocks that the file has already.
        Allocated = "over old data",
        /// What an fsync costs on the machine.
        Fsync = "fsync",
        /// How fast the device writes.
        Device = "device",
    }
}

impl Feature {
    /// Its value for a pattern on this machine; in bytes, ns, or bytes per second.
    pub fn of(self, pattern: &Pattern, machine: &HostProfile) -> f64 {
        let Workload { order, record, writers, .. } = pattern.workload;
        match self {
            Feature::Need => f64::from(pattern.need as u8),
            Feature::Record => record.as_f64(),
            Feature::Bytes => pattern.workload.bytes() as f64,
            Feature::Writers => f64::from(writers),
            Feature::Random => f64::from(u8::from(order == Order::Random)),
            Feature::Allocated => f64::from(u8::from(matches!(order, Order::Overwrite | Order::Random))),
            Feature::Fsync => machine.device.fsync.value.get(),
            Feature::Device => machine.device.write.value.get(),
        }
    }

    /// The condition that the value is larger than `above` and at most `most`.
    pub fn condition(self, above: Option<f64>, most: Option<f64>) -> String {
        let is_more = above.is_some();
        match self {
            Feature::Need => {
                let value = |need: &&Need| f64::from(**need as u8);
                let names = Need::ALL.iter().filter(|need| above.is_none_or(|above| value(need) > above));
                let names = names.filter(|need| most.is_none_or(|most| value(need) <= most));
                format!("{}: {}", self.name(), names.map(|need| need.name()).collect::<Vec<_>>().join(", "))
            }
            Feature::Random => if is_more { self.name() } else { "in order" }.to_owned(),
            Feature::Allocated => if is_more { self.name() } else { "into new blocks" }.to_owned(),
            Feature::Record => between(self.name(), above, most, |bytes| short(bytes as u64)),
            Feature::Bytes => between(self.name(), above, most, |bytes| short(bytes as u64)),
            Feature::Writers => between(self.name(), above, most, |count| format!("{count:.0}")),
            Feature::Fsync => between(self.name(), above, most, |ns| Nanos::new(ns).to_string()),
            Feature::Device => between(self.name(), above, most, |rate| Rate::per_second(rate).to_string()),
        }
    }
}

/// `record ≤ 4K`, `record > 4K`, `4K < record ≤ 1M`.
fn between(name: &str, above: Option<f64>, most: Option<f64>, text: impl Fn(f64) -> String) -> String {
    match (above, most) {
        (Some(above), Some(most)) => format!("{} < {name} ≤ {}", text(above), text(most)),
        (Some(above), None) => format!("{name} > {}", text(above)),
        (None, Some(most)) => format!("{name} ≤ {}", text(most)),
        (None, None) => name.to_owned(),
    }
}
