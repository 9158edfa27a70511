//! What the document measured, in µs a call: from the authors' results (Arjunbala/Advanced-OS-MiniProject,
//! Local_File_System/results), which have bytes and seconds of each run. ext4 on a SAS disk of 1 TB.

/// 512 B to 64 KiB.
pub const SIZES: [u64; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// By size; not a number where the authors have no run.
pub struct Pairs {
    buffered: [f64; 8],
    direct: [f64; 8],
}

const NONE: f64 = f64::NAN;

/// 1 GiB appended (caching_benefits, 1048576).
pub const APPEND: Pairs = Pairs {
    buffered: [1.395, 1.628, 2.043, 2.837, 5.000, 9.723, 18.45, 35.04],
    direct: [332.8, 467.1, 2426.1, 41.48, 67.21, 113.1, 249.0, 499.0],
};

/// 10 MiB appended, with fsync after each buffered write and nothing after a direct one (fsync_effects,
/// 10240).
pub const APPEND_FSYNC: Pairs = Pairs {
    buffered: [NONE, 24_427.5, 24_494.0, 24_440.0, 24_673.3, 24_686.8, 24_928.0, 25_138.1],
    direct: [NONE, 383.6, 2647.4, 52.9, 64.7, 99.7, 152.1, 307.2],
};

/// Random writes into a file of 1 GiB (random_writes_benchmark/1gbfile, wofsync).
pub const RANDOM: Pairs = Pairs {
    buffered: [18.3, 18.5, 19.0, 19.94, 23.1, 29.4, 42.8, 69.6],
    direct: [28_932.2, 28_976.6, 29_022.4, 29_082.4, 29_072.0, 29_024.7, 28_987.6, 29_221.9],
};

/// Durable random writes into a file of 1 GiB: buffered with fsync, direct with O_SYNC (wfsync).
pub const RANDOM_DURABLE: Pairs = Pairs {
    buffered: [24_733.5, 24_643.1, 24_695.9, 24_625.2, 24_651.3, 24_757.0, 24_998.5, 24_972.9],
    direct: [26_621.4, 26_596.5, 26_655.2, 26_589.3, 26_724.7, 26_754.9, 26_493.8, 26_981.3],
};

/// Reading again what was appended, in MiB/s: written through the page cache, and past it (caching_benefits,
/// 1048576), at 512 B, 4 KiB and 64 KiB.
pub const READ_BACK: [(u64, f64, f64); 3] =
    [(512, 1201.5, 174.8), (4 << 10, 4587.9, 176.7), (64 << 10, 5768.2, 170.6)];

/// Buffered and direct at this size.
pub fn at(pairs: &Pairs, size: u64) -> Option<(f64, f64)> {
    let at = SIZES.iter().position(|known| *known == size)?;
    Some((pairs.buffered[at], pairs.direct[at])).filter(|pair| !pair.0.is_nan())
}
