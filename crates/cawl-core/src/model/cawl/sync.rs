//! Eq. 2 to 4: a call that must not return before its bytes are on the device pays for every one of them.

use crate::model::CostParts;
use crate::profile::DeviceConstants;
use crate::units::{Bytes, Nanos, Rate};

/// One synchronous write.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncChunk {
    /// Its bytes.
    pub(super) size: Bytes,
    /// True if it does not begin where the previous one on the device ended (`rnd`).
    pub(super) random: bool,
}

/// Eq. 2: synchronous and direct, `Σ (sc_sw + rnd·sk + s_i / bw_dev)`.
pub(super) fn direct_cost(device: &DeviceConstants, chunks: &[SyncChunk]) -> CostParts {
    sum(chunks.iter().map(|chunk| CostParts {
        device: access(device, *chunk) + chunk.size / device.write.value,
        ..CostParts::default()
    }))
}

/// Eq. 3: one synchronous write through the page cache. Whole blocks go to the device as they are; what
/// remains costs reading its block and writing it back. With `s = fit + rem`,
/// `sc_sw + rnd·sk + s / bw_ram + fit / bw_dev + [rem > 0] · (bs / bw_rdev + bs / bw_dev)`.
pub(super) fn cached_sync_chunk(device: &DeviceConstants, ram: Rate, chunk: SyncChunk) -> CostParts {
    let rem = Bytes(chunk.size.0 % device.block.0.max(1));
    let fit = chunk.size.saturating_sub(rem);
    let mut wait = access(device, chunk) + fit / device.write.value;
    if !rem.is_zero() {
        wait += device.block / device.read.value + device.block / device.write.value;
    }
    CostParts { copy: chunk.size / ram, device: wait, ..CostParts::default() }
}

/// Eq. 4: Eq. 3 summed over the chunks.
pub(super) fn cached_sync_cost(device: &DeviceConstants, ram: Rate, chunks: &[SyncChunk]) -> CostParts {
    sum(chunks.iter().map(|chunk| cached_sync_chunk(device, ram, *chunk)))
}

/// `sc_sw + rnd·sk`. The intercept `sc_sw` is mostly the latency of the device, so it counts as its part.
fn access(device: &DeviceConstants, chunk: SyncChunk) -> Nanos {
    device.sync_call.value + if chunk.random { device.seek.value } else { Nanos::ZERO }
}

fn sum(parts: impl Iterator<Item = CostParts>) -> CostParts {
    parts.fold(CostParts::default(), |a, b| CostParts {
        copy: a.copy + b.copy,
        device: a.device + b.device,
        ..CostParts::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::HostProfile;

    /// 100 B/s written, 50 B/s read, blocks of 10 bytes, 1 s a call, 3 s a seek.
    fn device() -> DeviceConstants {
        let mut device = HostProfile::uncalibrated().device;
        device.write.value = Rate::per_second(100.0);
        device.read.value = Rate::per_second(50.0);
        device.sync_call.value = Nanos::seconds(1.0);
        device.seek.value = Nanos::seconds(3.0);
        device.block = Bytes(10);
        device
    }

    fn chunk(size: u64, random: bool) -> SyncChunk {
        SyncChunk { size: Bytes(size), random }
    }

    #[test]
    fn eq_2_by_hand() {
        let cost = direct_cost(&device(), &[chunk(100, false), chunk(50, true)]);
        assert_eq!(cost.total().as_seconds(), (1.0 + 1.0) + (1.0 + 3.0 + 0.5));
    }

    #[test]
    fn eq_3_whole_blocks_by_hand() {
        let cost = cached_sync_chunk(&device(), Rate::per_second(200.0), chunk(100, true));
        assert_eq!(cost.copy.as_seconds(), 0.5);
        assert_eq!(cost.device.as_seconds(), 1.0 + 3.0 + 1.0);
    }

    #[test]
    fn eq_3_what_does_not_fit_costs_a_block_read_and_written() {
        // 47 = 40 + 7: 1 + 47/200 + 40/100 + 10/50 + 10/100.
        let cost = cached_sync_chunk(&device(), Rate::per_second(200.0), chunk(47, false));
        assert!((cost.total().as_seconds() - 1.935).abs() < 1e-9);
    }

    #[test]
    fn eq_4_is_the_sum_of_eq_3() {
        let ram = Rate::per_second(200.0);
        let chunks = [chunk(47, false), chunk(100, true), chunk(0, false)];
        let each: Nanos = chunks.iter().map(|c| cached_sync_chunk(&device(), ram, *c).total()).sum();
        assert!((cached_sync_cost(&device(), ram, &chunks).total() / each - 1.0).abs() < 1e-12);
    }

    #[test]
    fn splitting_a_direct_write_costs_one_call_more() {
        let whole = direct_cost(&device(), &[chunk(100, false)]).total();
        let halves = direct_cost(&device(), &[chunk(50, false), chunk(50, false)]).total();
        assert_eq!(halves, whole + device().sync_call.value);
    }
}
