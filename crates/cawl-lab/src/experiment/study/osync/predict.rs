//! What the models say of the study's runs, each from the calls alone, on its own clock.

use anyhow::Context;
use cawl_core::{Bytes, HostProfile, Nanos, OpenLoop};
use cawl_wire::{Event, FileKind, Op, flag};
use serde::Serialize;

use super::grid::{Arm, Sizes};

/// The one that makes the calls.
const THREAD: u32 = 1;

/// What one run should take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The kernel's law.
    pub kernel: f64,
    /// The CAWL paper's model.
    pub cawl: f64,
    /// SimGrid's law.
    pub naive: f64,
    /// The paper's Eq. 4, in the arms that it is about.
    pub eq4: Option<f64>,
}

impl Predicted {
    /// Of a run on device `dev` of a machine with this profile.
    pub fn of(sizes: Sizes, sync: Arm, profile: &HostProfile, dev: u64) -> anyhow::Result<Predicted> {
        let calls = calls(sizes, sync, dev);
        let model = |name: &str| -> anyhow::Result<f64> {
            let open_loop = OpenLoop::new(name, profile);
            let mut open_loop = open_loop.with_context(|| format!("there is no model {name}"))?;
            for call in &calls {
                open_loop.step(*call);
            }
            Ok(open_loop.elapsed(THREAD).as_seconds())
        };
        let waits = sync.of_event() != 0;
        Ok(Predicted {
            kernel: model("kernel")?,
            cawl: model("cawl")?,
            naive: model("naive")?,
            eq4: waits.then(|| eq4(profile, dev, sizes.block).as_seconds() * sizes.blocks() as f64),
        })
    }
}

/// Eq. 4 for a call, `sc_sw + s / bw_ram + s / bw_dev`. What calibration tells apart in a synchronous write
/// through the page cache is one constant in the paper, `sc_sw`.
pub fn eq4(profile: &HostProfile, dev: u64, size: Bytes) -> Nanos {
    let device = profile.device_of(dev);
    let parts = [device.latency, device.delayed_allocation].into_iter().flatten();
    let fixed = parts.fold(device.sync_call.value, |sum, part| sum + part.value);
    fixed + size / profile.memory.fresh.value + size / device.write.value
}

/// The calls of a run: a new file, its writes, the fsync if there is one, and the close.
fn calls(sizes: Sizes, sync: Arm, dev: u64) -> Vec<Event> {
    let of_open = flag::WRITABLE | sync.of_event();
    let call = |op| Event {
        dev,
        ino: 1,
        pid: 1,
        tid: THREAD,
        fd: 3,
        kind: FileKind::Regular,
        flags: of_open,
        ..Event::new(op)
    };
    let size = sizes.block.0;
    let write = |at| Event { offset: at * size, requested: size, returned: size as i64, ..call(Op::Write) };
    let opened = Event { flags: of_open | flag::TRUNC, returned: 3, ..call(Op::Open) };
    let fsync = (sync == Arm::Fsync).then(|| call(Op::Fsync));
    let writes = (0..sizes.blocks()).map(write);
    [opened].into_iter().chain(writes).chain(fsync).chain([call(Op::Close)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(sync: Arm) -> Predicted {
        let sizes = Sizes { block: Bytes::kib(4), file: Bytes::mib(1) };
        Predicted::of(sizes, sync, &HostProfile::uncalibrated(), 1).unwrap()
    }

    #[test]
    fn eq_4_by_hand() {
        // 100 µs, and 4096 bytes at 2 GB/s and at 500 MB/s.
        let cost = eq4(&HostProfile::uncalibrated(), 1, Bytes(4096));
        assert!((cost.get() - (100e3 + 2048.0 + 8192.0)).abs() < 1e-6, "{cost}");
        let eq4 = predicted(Arm::OSync).eq4.unwrap();
        assert!((eq4 - 256.0 * cost.as_seconds()).abs() < 1e-12);
        assert_eq!((predicted(Arm::None).eq4, predicted(Arm::Fsync).eq4), (None, None));
    }

    #[test]
    fn waiting_for_the_device_costs_more_than_not_and_each_time_more_than_once() {
        let of = |sync| predicted(sync).kernel;
        assert!(of(Arm::None) < of(Arm::Fsync) && of(Arm::Fsync) < of(Arm::ODsync), "{:?}", Arm::ALL.map(of));
        assert!(of(Arm::ODsync) <= of(Arm::OSync), "{:?}", Arm::ALL.map(of));
        let cawl = predicted(Arm::OSync);
        // A whole number of its blocks: the paper's Eq. 3 is its Eq. 4 then, but for the first seek.
        assert!((cawl.cawl / cawl.eq4.unwrap() - 1.0).abs() < 0.05, "{cawl:?}");
    }
}
