//! How costs grow with the time since others, and with what is cached.

/// Time after which caches have forgotten a thread and a device is as idle as it gets, in seconds: on 6.18
/// with 32 MiB of last-level cache no call took longer after 100 ms than after 10.
const FORGOTTEN: f64 = 0.01;

/// How far what comes after `seconds` of something else has grown, as a part of what it is after a
/// millisecond: with the square root (6.18, AMD EPYC: a write of 4 KiB 10, 100, 1000 µs after another took
/// 0.5, 1.8, 3.5 µs longer).
pub(crate) fn growth(seconds: f64) -> f64 {
    (seconds.clamp(0.0, FORGOTTEN) * 1e3).sqrt()
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
