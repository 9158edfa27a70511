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
