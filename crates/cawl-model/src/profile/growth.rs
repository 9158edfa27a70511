//! How costs grow with the time since others, and with what is cached.

use super::CallConstants;
use crate::units::{Nanos, Seconds};

/// Time after which caches have forgotten a thread and a device is as idle as it gets: on 6.18
/// with 32 MiB of last-level cache no call took longer after 100 ms than after 10.
const FORGOTTEN: Seconds = Seconds(0.01);
/// The times of [`CallConstants::away_soon`] and [`CallConstants::away`].
const SOON: Seconds = Seconds(1e-5);
const LATER: Seconds = Seconds(1e-3);

/// How far what comes after a `time` of something else has grown, as a part of what it is after a
/// millisecond: with the square root (6.18, AMD EPYC: a write of 4 KiB 10, 100, 1000 µs after another took
/// 0.5, 1.8, 3.5 µs longer).
pub fn growth(time: Seconds) -> f64 {
    (time.max(Seconds::ZERO).min(FORGOTTEN) / LATER).sqrt()
}

impl CallConstants {
    /// What each path through the kernel costs in addition after so long of something else ([`away`]).
    ///
    /// [`away`]: CallConstants::away
    pub fn after(&self, elsewhere: Nanos) -> Nanos {
        let grown = grown(elsewhere.into(), self.soon());
        self.away.map_or(Nanos::ZERO, |away| away.value * grown)
    }

    /// What of [`away`](CallConstants::away) there is after ten microseconds, as a part.
    pub fn soon(&self) -> f64 {
        match (self.away_soon, self.away) {
            (Some(soon), Some(away)) if away.value > Nanos::ZERO => {
                (soon.value / away.value).clamp(0.01, 1.0)
            }
            _ => growth(SOON),
        }
    }
}

/// What [`growth`] is where `soon` of it has grown after ten microseconds: by a power of the time between
/// that and a millisecond. The nearest caches forget first: on 6.18 (AMD EPYC, caches of 48 KiB, 1 and 32
/// MiB) a write of 4 KiB took 0.02, 0.17, 0.39, 0.6, 1.25 µs longer after 0.7, 2.3, 7.5, 29, 1000 µs of
/// copying.
pub fn grown(time: Seconds, soon: f64) -> f64 {
    if time >= LATER {
        growth(time)
    } else if time > SOON {
        soon.powf((time / LATER).ln() / (SOON / LATER).ln())
    } else {
        soon * (time.max(Seconds::ZERO) / SOON).sqrt()
    }
}

/// The part of a file's blocks whose descriptions are not in the processor's cache when a write to a random
/// place of it passes them: half with `cache` bytes of it cached. A cache of many ways turns over within a
/// factor of two of size: on 6.18 with 32 MiB, a part of 0, 0.07, 0.5 and 0.94 with 64, 128, 256 and 512 MiB.
pub fn blocks_out(cached: f64, cache: f64) -> f64 {
    1.0 / (1.0 + (cache / cached).powi(BLOCKS_OUT))
}

/// The `cache` of [`blocks_out`], by the part that was out.
pub fn block_cache(cached: f64, out: f64) -> f64 {
    cached * (1.0 / out - 1.0).powf(1.0 / f64::from(BLOCKS_OUT))
}

const BLOCKS_OUT: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_soon_grows_more_slowly() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, not {b}");
        // The square root, where nothing else was measured.
        for micros in [0.0, 1.0, 10.0, 50.0, 100.0, 999.0, 1000.0, 4000.0, 1e6] {
            let time = Seconds(micros * 1e-6);
            near(grown(time, growth(SOON)), growth(time));
        }
        for (micros, part) in [(2.5, 0.2), (10.0, 0.4), (100.0, 0.4_f64.sqrt()), (1000.0, 1.0), (4000.0, 2.0)]
        {
            near(grown(Seconds(micros * 1e-6), 0.4), part);
        }
    }
}
