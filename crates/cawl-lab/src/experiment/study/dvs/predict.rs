//! What the model predicts of the passes, in open loop.

use cawl_core::{HostProfile, median};
use cawl_wire::{Event, Op, flag};

use super::super::calls::{Shown, call, write};
use super::measure::Times;

/// The predicted times of the passes that are measured, each of `calls` transfers of `size` bytes.
pub fn predicted(profile: &HostProfile, size: u64, calls: u64) -> anyhow::Result<Times> {
    let mut shown = Shown::to("kernel", profile)?;
    let mut step = |event: Event| shown.step(event);
    let open = |bytes| {
        let flags = if bytes == 0 { flag::CREATED } else { 0 };
        Event { requested: bytes, returned: 3, flags, ..call(Op::Open) }
    };
    let read = |at: u64| Event { op: Op::Pread, fd: 4, ..write(at * size, size, 0) };
    let past = |at: u64| Event { ino: 2, ..write(at * size, size, flag::DIRECT) };
    let pass = |event: &dyn Fn(u64) -> Event, step: &mut dyn FnMut(Event) -> f64| {
        let costs: Vec<f64> = (0..calls).map(|at| step(event(at))).collect();
        (median(&costs).unwrap_or(f64::NAN), costs.iter().sum::<f64>())
    };
    let write = |at: u64| write(at * size, size, 0);
    let mut times = Times { whole_past: step(Event { ino: 2, ..open(0) }), ..Times::default() };
    let mut written;
    (times.past, written) = pass(&past, &mut step);
    times.whole_past += written + step(Event { ino: 2, ..call(Op::Close) });
    times.open = step(open(0));
    (times.write, written) = pass(&write, &mut step);
    times.close = step(call(Op::Close));
    times.whole = times.open + written + times.close;
    step(open(size * calls));
    pass(&write, &mut step);
    (times.rewrite, _) = pass(&write, &mut step);
    step(call(Op::Close));
    step(Event { fd: 4, returned: 4, ..open(size * calls) });
    times.read = pass(&read, &mut step).1 / calls as f64;
    times.reread = pass(&read, &mut step).1 / calls as f64;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use cawl_core::{Bytes, CachePolicy, Measured, Nanos, NetworkConstants, Rate};

    use super::*;

    /// Round trips of 150 µs, 1 GB/s, requests of 1 MiB.
    fn profile(policy: CachePolicy) -> HostProfile {
        let mut profile = HostProfile::uncalibrated();
        let rate = Measured::assumed(Rate::mb_per_second(1000.0));
        let device = &mut profile.device;
        device.latency = Some(Measured::assumed(Nanos::new(150e3)));
        (device.write, device.read, device.writeback) = (rate, rate, rate);
        device.network = Some(NetworkConstants::new(policy, Bytes::mib(1)));
        profile
    }

    #[test]
    fn the_cache_gains_at_small_transfers_and_loses_at_large_ones() {
        let [none, back] = [CachePolicy::None, CachePolicy::WriteBack].map(profile);
        let whole = |profile: &HostProfile, size| predicted(profile, size, (8 << 20) / size).unwrap().whole;
        assert!(whole(&none, 4096) > 10.0 * whole(&back, 4096));
        assert!(whole(&none, 4 << 20) < whole(&back, 4 << 20), "each byte is copied and then sent");
        let small = predicted(&none, 4096, 100).unwrap();
        assert!((small.write / (150e3 + 4096.0) - 1.0).abs() < 0.05, "{small:?}");
        assert!((small.past / small.write - 1.0).abs() < 1e-3 && small.reread == small.past, "{small:?}");
        assert!((small.whole - small.open - small.close - 100.0 * small.write).abs() < 1e3, "{small:?}");
    }
}
