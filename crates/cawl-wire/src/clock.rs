//! Pairs of readings of two clocks: the processor's counter and CLOCK_MONOTONIC.

use crate::EVENT_LEN;
use crate::event::OP_AT;

/// A moment on both clocks, for events that carry ticks of the processor's counter. It travels among
/// the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// The processor's counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC at that moment, in ns.
    pub nanos: u64,
}

impl Anchor {
    /// What stands in a record in place of the operation's code.
    pub const CODE: u8 = 255;

    /// The anchor as a record.
    pub fn encode(&self) -> [u8; EVENT_LEN] {
        let mut out = [0; EVENT_LEN];
        out[0..8].copy_from_slice(&self.ticks.to_le_bytes());
        out[8..16].copy_from_slice(&self.nanos.to_le_bytes());
        out[OP_AT] = Anchor::CODE;
        out
    }

    /// Reads a record; None if it is an event.
    #[inline]
    pub fn decode(record: &[u8; EVENT_LEN]) -> Option<Anchor> {
        if record[OP_AT] != Anchor::CODE {
            return None;
        }
        let (ticks, rest) = record.split_first_chunk()?;
        let nanos = rest.first_chunk()?;
        Some(Anchor { ticks: u64::from_le_bytes(*ticks), nanos: u64::from_le_bytes(*nanos) })
    }
}
