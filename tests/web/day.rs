//! A day of history, filled second by second.

use cawl_client::protocol;
use cawl_core::{Bytes, CallSums, Cause, DirtyLimits, Nanos, Regime, Tally, Time, TimeSums};
use cawl_host::clock::Clocks;
use cawld::history::{History, Sums};

use super::canned::{MIB, NOW};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;
const HOUR: u64 = 3600;

/// Seconds of the day at which one burst is throttled for ten seconds.
pub const BURST: u64 = 15 * HOUR + 17;
/// The time of the suspend.
pub const ASLEEP: std::ops::Range<u64> = 4 * HOUR..5 * HOUR;

/// The last day of a machine that ended at [`NOW`]: work in waves, a throttled backup in the third hour, an
/// hour of suspend, one burst, and lower limits for six hours.
pub fn history(span: &protocol::HistorySpan) -> protocol::History {
    let mut history = History::default();
    let boot = |second: u64| Time((1_000_000 + second) * SECOND);
    let slept = |second: u64| second.min(ASLEEP.end).saturating_sub(ASLEEP.start);
    let clocks = |second: u64| Clocks {
        monotonic: Time(boot(second).0 - slept(second) * SECOND),
        boot: boot(second),
        real: Time((NOW as u64 - DAY + second) * SECOND),
    };
    for second in (0..=DAY).filter(|second| !ASLEEP.contains(second)) {
        history.pass(&clocks(second));
        let hard = Bytes(if (16 * HOUR..22 * HOUR).contains(&second) { 250 } else { 400 } * MIB);
        let limits = DirtyLimits { background: Bytes(hard.0 / 2), hard };
        let wave = (1.0 + (second as f64 / 4000.0).sin()) * (1.0 + (second as f64 / 37.0).sin()) / 4.0;
        let backup = (2 * HOUR..3 * HOUR).contains(&second);
        let burst = (BURST..BURST + 10).contains(&second);
        let level = if backup || burst { 0.85 } else { 0.45 * wave };
        let dirty = Bytes::from_f64(hard.as_f64() * level);
        let regime = match level {
            level if level > 0.75 => Regime::Throttle,
            level if level > 0.4 => Regime::Flush,
            _ => Regime::Free,
        };
        history.modelled(dirty, limits, regime);
        history.sampled(Bytes::from_f64(dirty.as_f64() * (1.0 + 0.1 * (second as f64 / 500.0).cos())));
        let calls = if backup { 100 } else { (wave * 50.0) as u64 };
        let throttled = Nanos::seconds(if backup || burst { 1.5 } else { 0.0 });
        let observed = Nanos::millis(calls as f64) + throttled;
        let sync = Nanos::seconds(if second % HOUR < 60 { 0.2 } else { 0.0 });
        let mut time = TimeSums::default();
        time.add_calls(Cause::Throttle, throttled.get() as u64);
        time.add_calls(Cause::Transfer, sync.get() as u64);
        time.add_calls(Cause::Copy, calls * 1_000_000);
        let count = Tally { calls, bytes: calls * MIB };
        let predicted = observed * (0.8 + 0.4 * wave);
        let calls = CallSums { count, observed, predicted, throttled, sync, time, ..CallSums::default() };
        history.add(&Sums { calls, ..Sums::default() });
    }
    history.answer(span, &clocks(DAY))
}
