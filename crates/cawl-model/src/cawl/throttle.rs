//! Eq. 1: a writer above the setpoint is let through at its own average rate, times `pos_ratio`.

use crate::limits::DirtyLimits;
use crate::units::{Bytes, Nanos, Rate};

/// What Eq. 1 scales the average rate by: 1 at the setpoint, 0 at the hard limit, negative beyond, where
/// the published formula no longer means anything; see [`throttled_span`].
///
/// `pos_ratio = 1 + ((set − dirty) / (hard − set))³`, `set = (bg + hard) / 2`.
pub(super) fn pos_ratio(dirty: Bytes, limits: DirtyLimits) -> f64 {
    let set = limits.freerun().as_f64();
    let room = (limits.hard.as_f64() - set).max(1.0);
    1.0 + ((set - dirty.as_f64()) / room).powi(3)
}

/// Eq. 1, kept within what a machine can do: how long a call that writes `size` bytes takes at the average
/// rate times [`pos_ratio`].
///
/// What the flusher takes from the writer is added: `1 − factor` of the time at `flushing`, the rate of an
/// unthrottled writer beside it, which is the writer's own rate times `factor`. So have the authors'
/// published figures (`syscall_io_cost` in gongotar/iomodel; docs/science/SEEDS.md), where Alg. 1 takes the
/// lower of the two rates. Never faster than `flushing`. Never so long that the call outlasts its reason
/// (ours): once the device has cleaned what exceeds the setpoint and as many bytes as the call adds, there is
/// nothing left to hold the writer back for. That is also how long it takes at and beyond the hard limit,
/// where the formula is zero or negative.
pub(super) fn throttled_span(
    average: Rate,
    dirty: Bytes,
    size: Bytes,
    limits: DirtyLimits,
    device: Rate,
    (flushing, factor): (Rate, f64),
) -> Nanos {
    let longest = (dirty.saturating_sub(limits.freerun()) + size) / device;
    let ratio = pos_ratio(dirty, limits);
    let beside = size / flushing * (1.0 - factor).max(0.0);
    let published = if ratio > 0.0 { size / average * (1.0 / ratio) + beside } else { longest };
    published.min(longest).max(size / flushing)
}

/// A process's average rate over the time it has spent in write calls (Alg. 1, `avgbw` and `t_io`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average {
    bytes: f64,
    io_time: Nanos,
}

impl Average {
    /// `(avg · io_time + size) / (io_time + cost)`, with `avg · io_time` kept as the bytes it stands for.
    pub(super) fn add(&mut self, size: Bytes, cost: Nanos) {
        self.bytes += size.as_f64();
        self.io_time += cost;
    }

    /// A call counted at `predicted` really took `observed`.
    pub(super) fn correct(&mut self, predicted: Nanos, observed: Nanos) {
        self.io_time = (self.io_time + observed).saturating_sub(predicted);
    }

    /// The average; None before the first byte.
    pub(super) fn rate(&self) -> Option<Rate> {
        (self.bytes > 0.0 && self.io_time > Nanos::ZERO)
            .then(|| Rate::per_second(self.bytes / self.io_time.as_seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: DirtyLimits = DirtyLimits { background: Bytes(100), hard: Bytes(200) };

    /// In seconds; device 50 B/s, 800 B/s beside the flusher, as without it.
    fn span(average: f64, dirty: u64, size: u64) -> f64 {
        throttled_span(
            Rate::per_second(average),
            Bytes(dirty),
            Bytes(size),
            LIMITS,
            Rate::per_second(50.0),
            (Rate::per_second(800.0), 1.0),
        )
        .as_seconds()
    }

    #[test]
    fn eq_1_by_hand() {
        // set = 150, hard − set = 50.
        assert_eq!(pos_ratio(Bytes(150), LIMITS), 1.0);
        assert_eq!(pos_ratio(Bytes(175), LIMITS), 1.0 - 0.125);
        assert_eq!(pos_ratio(Bytes(200), LIMITS), 0.0);
        assert_eq!(pos_ratio(Bytes(250), LIMITS), -7.0);
        assert!((span(400.0, 175, 7) - 7.0 / 350.0).abs() < 1e-12);
    }

    #[test]
    fn the_flusher_takes_its_part_also_of_a_throttled_writer() {
        let beside = (Rate::per_second(80.0), 0.8);
        let span = throttled_span(
            Rate::per_second(40.0),
            Bytes(175),
            Bytes(7),
            LIMITS,
            Rate::per_second(50.0),
            beside,
        );
        // 7 bytes at 40 B/s times 0.875, and a fifth of 7 bytes at 80 B/s.
        assert!((span.as_seconds() - (0.2 + 0.0175)).abs() < 1e-12);
    }

    #[test]
    fn never_faster_than_the_unthrottled_writer() {
        assert_eq!(span(5000.0, 151, 8), 0.01);
    }

    #[test]
    fn beyond_the_limit_the_call_waits_for_the_device() {
        // 110 above the setpoint and 10 of its own: 120 bytes at 50 B/s are 2.4 s.
        assert!((span(400.0, 260, 10) - 2.4).abs() < 1e-9);
        // Just below it the formula would have the call wait for 1 s / 0.0588 = 17 s.
        assert!((span(10.0, 199, 10) - 59.0 / 50.0).abs() < 1e-9);
        assert!(span(400.0, u64::MAX, 0) <= Nanos::MAX.as_seconds());
    }

    #[test]
    fn limits_without_room_between_them_do_not_divide_by_zero() {
        let none = DirtyLimits { background: Bytes(0), hard: Bytes(0) };
        assert!(pos_ratio(Bytes(0), none).is_finite());
        assert!(pos_ratio(Bytes(u64::MAX), none).is_finite());
    }

    #[test]
    fn average_over_io_time_only() {
        let mut average = Average::default();
        assert_eq!(average.rate(), None);
        average.add(Bytes(100), Nanos::seconds(1.0));
        average.add(Bytes(200), Nanos::seconds(3.0));
        assert_eq!(average.rate(), Some(Rate::per_second(75.0)));
        average.correct(Nanos::seconds(3.0), Nanos::seconds(2.0));
        assert_eq!(average.rate(), Some(Rate::per_second(100.0)));
    }
}
