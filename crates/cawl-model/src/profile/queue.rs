//! How reads and the flusher's writes share a device.

use super::Measured;
use crate::table::constants;
use crate::units::Nanos;

/// Most requests that a queue may hold.
const MAX: u64 = 1 << 20;

constants! {
    /// A device's queue, and how much of it writeback throttling (block/blk-wbt.c, 6.18) leaves to the
    /// flusher.
    #[derive(Clone, Debug, PartialEq)]
    QueueConstants {
        /// The part of the writes which the device has that a read waits for, between 0 and 1: all of them
        /// where requests are served in the order in which they come, none where reads go first or have a way
        /// of their own.
        reads_wait: Measured<f64>;
        /// The part of what the device reads for others that a read waits for, between 0 and 1. None: all of
        /// it.
        reads_wait_for_reads: Option<Measured<f64>>;
        /// Latency of reads above which the kernel lets the flusher have fewer requests under way
        /// (`queue/wbt_lat_usec`), in ns; 0: it has as many as the queue holds.
        wbt_latency: Nanos;
        /// Requests that the queue holds (`queue/nr_requests`).
        requests: u64;
        /// The device has a volatile write cache (`queue/write_cache`): the flusher gets further requests
        /// when none is under way any more.
        write_cache: bool => setting;
    }
}

impl QueueConstants {
    /// A queue of which nothing is known.
    pub fn none() -> QueueConstants {
        QueueConstants {
            reads_wait: Measured::assumed(0.0),
            reads_wait_for_reads: None,
            wbt_latency: Nanos::ZERO,
            requests: 1,
            write_cache: false,
        }
    }

    /// A device can have such a queue.
    pub(super) fn is_sound(&self) -> bool {
        let parts = self.reads_wait_for_reads.iter().chain([&self.reads_wait]);
        parts.map(|part| part.value).all(|part| (0.0..=1.0).contains(&part))
            && (1..=MAX).contains(&self.requests)
    }
}
