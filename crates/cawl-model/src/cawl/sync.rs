//! Eq. 2 to 4: a call that must not return before its bytes are on the device pays for every one of them.
//! The sums of Eq. 2 and 4 are over calls, so here stands the cost of one.

use crate::cause::{Cause, CostParts};
use crate::profile::DeviceConstants;
use crate::units::{Bytes, Nanos, Rate};

/// Eq. 2: a synchronous and direct write of `size` bytes, `sc_sw + rnd·sk + s / bw_dev`. `random` (`rnd`): it
/// does not begin where the previous one on the device ended.
pub(super) fn direct_cost(device: &DeviceConstants, size: Bytes, random: bool) -> CostParts {
    CostParts::from([(Cause::Transfer, access(device, random) + size / device.write.value)])
}

/// Eq. 3: a synchronous write through the page cache. Whole blocks go to the device as they are; what remains
/// costs reading its block and writing it back. With `s = fit + rem`,
/// `sc_sw + rnd·sk + s / bw_ram + fit / bw_dev + [rem > 0] · (bs / bw_rdev + bs / bw_dev)`.
pub(super) fn cached_sync_cost(device: &DeviceConstants, ram: Rate, size: Bytes, random: bool) -> CostParts {
    let rem = Bytes(size.0 % device.block.0.max(1));
    let fit = size.saturating_sub(rem);
    let mut wait = access(device, random) + fit / device.write.value;
    if !rem.is_zero() {
        wait += device.block / device.read.value + device.block / device.write.value;
    }
    CostParts::from([(Cause::Copy, size / ram), (Cause::Transfer, wait)])
}

/// `sc_sw + rnd·sk`. The intercept `sc_sw` is mostly the latency of the device, so it counts as its part.
fn access(device: &DeviceConstants, random: bool) -> Nanos {
    device.sync_call.value + if random { device.seek.value } else { Nanos::ZERO }
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

    #[test]
    fn eq_2_by_hand() {
        assert_eq!(direct_cost(&device(), Bytes(100), false).total().as_seconds(), 1.0 + 1.0);
        assert_eq!(direct_cost(&device(), Bytes(50), true).total().as_seconds(), 1.0 + 3.0 + 0.5);
    }

    #[test]
    fn eq_3_whole_blocks_by_hand() {
        let cost = cached_sync_cost(&device(), Rate::per_second(200.0), Bytes(100), true);
        assert_eq!(cost[Cause::Copy].as_seconds(), 0.5);
        assert_eq!(cost.device().as_seconds(), 1.0 + 3.0 + 1.0);
    }

    #[test]
    fn eq_3_what_does_not_fit_costs_a_block_read_and_written() {
        // 47 = 40 + 7: 1 + 47/200 + 40/100 + 10/50 + 10/100.
        let cost = cached_sync_cost(&device(), Rate::per_second(200.0), Bytes(47), false);
        assert!((cost.total().as_seconds() - 1.935).abs() < 1e-9);
    }
}
