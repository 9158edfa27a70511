//! What the document measured, in µs a call: from the authors' results (Arjunbala/Advanced-OS-MiniProject,
//! Local_File_System/results), which have bytes and seconds of each run. ext4 on a SAS disk of 1 TB.

/// 512 B to 64 KiB.
pub const SIZES: [u64; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Buffered and direct, by size; None where the authors have no run.
pub type Pairs = [Option<(f64, f64)>; 8];

/// 1 GiB appended (caching_benefits, 1048576).
pub const APPEND: Pairs = [
    Some((1.395, 332.8)),
    Some((1.628, 467.1)),
    Some((2.043, 2426.1)),
    Some((2.837, 41.48)),
    Some((5.000, 67.21)),
    Some((9.723, 113.1)),
    Some((18.45, 249.0)),
    Some((35.04, 499.0)),
];

/// 10 MiB appended, with fsync after each buffered write and nothing after a direct one (fsync_effects,
/// 10240).
pub const APPEND_FSYNC: Pairs = [
    None,
    Some((24_427.5, 383.6)),
    Some((24_494.0, 2647.4)),
    Some((24_440.0, 52.9)),
    Some((24_673.3, 64.7)),
    Some((24_686.8, 99.7)),
    Some((24_928.0, 152.1)),
    Some((25_138.1, 307.2)),
];

/// Random writes into a file of 1 GiB (random_writes_benchmark/1gbfile, wofsync).
pub const RANDOM: Pairs = [
    Some((18.3, 28_932.2)),
    Some((18.5, 28_976.6)),
    Some((19.0, 29_022.4)),
    Some((19.94, 29_082.4)),
    Some((23.1, 29_072.0)),
    Some((29.4, 29_024.7)),
    Some((42.8, 28_987.6)),
    Some((69.6, 29_221.9)),
];

/// Durable random writes into a file of 1 GiB: buffered with fsync, direct with O_SYNC (wfsync).
pub const RANDOM_DURABLE: Pairs = [
    Some((24_733.5, 26_621.4)),
    Some((24_643.1, 26_596.5)),
    Some((24_695.9, 26_655.2)),
    Some((24_625.2, 26_589.3)),
    Some((24_651.3, 26_724.7)),
    Some((24_757.0, 26_754.9)),
    Some((24_998.5, 26_493.8)),
    Some((24_972.9, 26_981.3)),
];

/// Reading again what was appended, in MiB/s: written through the page cache, and past it (caching_benefits,
/// 1048576), at 512 B, 4 KiB and 64 KiB.
pub const READ_BACK: [(u64, f64, f64); 3] =
    [(512, 1201.5, 174.8), (4 << 10, 4587.9, 176.7), (64 << 10, 5768.2, 170.6)];

/// Buffered and direct at this size.
pub fn at(pairs: &Pairs, size: u64) -> Option<(f64, f64)> {
    SIZES.iter().position(|known| *known == size).and_then(|at| pairs[at])
}
