//! The calls of a writer: the same for the model and for a program that makes them.

use cawl_core::SyncsKept;

use super::pattern::Workload;
use super::setting::{Setting, Way};

/// What a writer does next. Offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes.
    Write {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
    },
    /// Writes to the stream.
    Put {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
    },
    /// Empties the stream's buffer.
    Flush,
    /// Calls fsync.
    Sync,
    /// Closes the stream.
    Close,
}

/// What a writer does, in order.
pub fn acts(workload: Workload, setting: Setting, writer: u32) -> impl Iterator<Item = Act> {
    let record = workload.record.0;
    let interval = match setting.syncs {
        SyncsKept::OneIn(count) => u64::from(count.max(1)),
        _ => u64::MAX,
    };
    let is_stream = matches!(setting.way, Way::Stream(_));
    let synced = move || is_stream.then_some(Act::Flush).into_iter().chain([Act::Sync]);
    let records = (0..workload.records).flat_map(move |number| {
        let offset = workload.offset(writer, number);
        let chunk = match setting.way {
            Way::Write(chunk) => chunk.clamp(1, record),
            Way::Stream(_) => record,
        };
        let writes = (0..record.div_ceil(chunk)).map(move |call| {
            let (offset, bytes) = (offset + call * chunk, chunk.min(record - call * chunk));
            if is_stream { Act::Put { offset, bytes } } else { Act::Write { offset, bytes } }
        });
        let is_due = (number + 1).is_multiple_of(interval);
        writes.chain(is_due.then(synced).into_iter().flatten())
    });
    let left = setting.syncs != SyncsKept::None && !workload.records.is_multiple_of(interval);
    records.chain(left.then(synced).into_iter().flatten()).chain(is_stream.then_some(Act::Close))
}
