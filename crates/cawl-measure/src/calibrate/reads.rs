//! Reads: from the page cache, into it where no device has to read, and from the device; opening and closing.
//!
//! Reads of a small file in the processor's cache tell the cost of a call, by a line through sizes of up
//! to a page; those of a file larger than the processor's caches tell the copy. Both are read in large
//! folios and in folios of a page, whose difference is what each folio costs. Blocks of a file on the
//! device are read past the page cache, each of them once more at once: what the device has in a cache of
//! its own by then takes less.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::Context;
use cawl_core::{Estimate, Line, Modes, Seconds, passed_over, quantile};
use cawl_host::direct::AlignedBuffer;
use cawl_host::new_inode;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use super::bench::{Bench, LARGEST, background, no_space, timed};
use super::interference::Stopwatch;

const PAGE: usize = 4 << 10;
/// A file that stays in the second level of most processors' caches, and one in the last level.
const NEAR: usize = 128 << 10;
const HOT: usize = 512 << 10;
/// Sizes of calls: of a part of a page, from the processor's cache, from memory.
const PARTS: [usize; 5] = [1, 512, 1 << 10, 2 << 10, PAGE];
const HOT_SIZES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
const FAR_SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// The size of call that tells of folios.
const FOLIOS: usize = 64 << 10;
/// Pages read at a time that are far from one another.
const APART: usize = 256;
/// Times that a small file is read in calls of each size.
const REREADS: usize = 16;
/// A file is read from memory that is larger than the last level of the processor's cache by this factor; the
/// size if that level is not known, the largest one, and that of a brief calibration. The one of small folios
/// has half of it, as it takes longer to write.
const BEYOND: u64 = 4;
const FAR: u64 = 128 << 20;
const LARGEST_FAR: u64 = 512 << 20;
const BRIEF_FAR: u64 = 32 << 20;
/// Memory that was not touched: more than any allocator keeps for later (the C library's threshold grows to
/// 32 MiB), and how much of it is read into at a time.
const UNTOUCHED: usize = 40 << 20;
const TOUCHED: usize = 2 << 20;
/// Bytes of a file without blocks, and the size of its calls.
const HOLES: usize = 64 << 20;
const BRIEF_HOLES: usize = 8 << 20;
const HOLES_CALL: usize = 256 << 10;
/// One call of so many does the waiting, if the device completes the requests of a window together.
const WAITERS: usize = 10;
/// Fewest and most times that a file is read ahead, and the time in ns after which only the fewest are made.
const AHEAD: (usize, usize, f64) = (3, 16, 0.3e9);
/// Windows of readahead before a pass is timed, and windows that are timed, of so many bytes at least.
const BEFORE: usize = 2;
const WINDOWS: usize = 8;
const MIN_AHEAD: usize = 16 << 20;
/// Times that a file is opened and closed, and files created, in a round.
const OPENED: usize = 64;
const CREATED: usize = 16;
/// Blocks of the device read in a round, and in one of a brief calibration.
const BLOCKS: usize = 32;
const BRIEF_BLOCKS: usize = 8;
/// Reads of each size that tell the rate of a device's cache.
const CACHED_CALLS: usize = 8;

/// What reads from the page cache cost, in ns a byte or a call; a sample of each round.
#[derive(Debug, Default)]
pub struct Reads {
    /// Per byte, from memory.
    pub copy: Vec<f64>,
    /// Per byte, from the processor's cache.
    pub hot: Vec<f64>,
    /// Per byte, of holes: into new pages.
    pub fresh: Vec<f64>,
    /// Per call.
    pub call: Vec<f64>,
    /// Per call at the end of the file, and per call that asks for no bytes.
    pub empty: Vec<f64>,
    pub mode_switch: Vec<f64>,
    /// Per folio from memory.
    pub folio_far: Vec<f64>,
    /// Of a page in the middle of a large folio in memory, beyond one in the processor's cache.
    pub apart: Vec<f64>,
    /// Per page of memory that is read into and was not touched before.
    pub fault: Vec<f64>,
    /// Of a read after a millisecond of other work, beyond one before.
    pub away: Vec<f64>,
    /// Of opening a file, what creating one takes longer, of closing, and of taking its name away.
    pub open: Vec<f64>,
    pub create: Vec<f64>,
    pub close: Vec<f64>,
    pub name: Vec<f64>,
    /// Of looking at a name.
    pub stat: Vec<f64>,
}

/// Measures the page cache.
pub fn measure(bench: &mut Bench) -> anyhow::Result<Reads> {
    let last = cawl_host::caches().last;
    let most = last.map_or(FAR, |cache| cache.0.saturating_mul(BEYOND).min(LARGEST_FAR));
    let most = if bench.brief { BRIEF_FAR } else { most };
    // Nothing of it is to be written back meanwhile.
    let length = (background().0 / 4).min(bench.space / 4).min(most) as usize / (2 * LARGEST) * (2 * LARGEST);
    bench.settle(2 * length as u64)?;
    let far = cached_file(bench, "read-far", length, LARGEST)?;
    // Writing so many small folios takes a brief calibration too long.
    let pages_length = if bench.brief { 0 } else { length / 2 };
    let far_pages = cached_file(bench, "read-far-pages", pages_length, PAGE)?;
    let hot = cached_file(bench, "read-hot", HOT, HOT)?;
    let mut buffer = AlignedBuffer::new(LARGEST);
    let mut rounds: Vec<Reads> = Vec::new();
    bench.repeat(|bench, index| {
        let drops = cawl_host::page_cache_drops();
        let mut round = Reads::default();
        let buffer = buffer.bytes_mut();
        small(bench, &hot, buffer, &mut round)?;
        let call = round.call.last().copied().unwrap_or(0.0);
        let hot_times = run_of_sizes(bench, &hot, HOT, HOT_SIZES, buffer)?;
        round.hot.push(per_byte(HOT_SIZES, hot_times, call));
        round.fault.push(faults(bench, &hot)?);
        let page = &mut buffer[..PAGE];
        round.away.push(super::small_writes::after_work(bench, || Ok(hot.read_exact_at(page, 0)?))?);
        let mut far_call = None;
        if length > 0 {
            let far_times = run_of_sizes(bench, &far, length, FAR_SIZES, buffer)?;
            far_call = Some(far_times[0]);
            let copy = per_byte(FAR_SIZES, far_times, call);
            round.copy.push(copy);
            round.apart.push(apart(bench, &far, length, buffer)? - call - copy * PAGE as f64);
        }
        if pages_length > 0 {
            let pages = run(bench, &far_pages, pages_length, FOLIOS, buffer)?;
            // That of the large folio counts for nothing beside them.
            round.folio_far.extend(far_call.map(|call| (pages - call) / (FOLIOS / PAGE) as f64));
        }
        opening(bench, index, &mut round)?;
        round.fresh.push(holes(bench, buffer)?);
        if index == 0 || !bench.cache_was_dropped(drops) {
            rounds.push(round);
        }
        Ok(())
    })?;
    ["read-far", "read-far-pages", "read-hot"].into_iter().for_each(|name| bench.scratch.remove(name));
    // The first round also warms memory and code.
    let from = usize::from(rounds.len() > 1);
    let mut reads = Reads::default();
    reads.name.extend((0..bench.rounds.1).filter_map(|index| removing(bench, index)).skip(from));
    rounds.drain(from..).for_each(|round| reads.add(round));
    Ok(reads)
}

impl Reads {
    fn add(&mut self, round: Reads) {
        let Reads { copy, hot, fresh, call, empty, mode_switch, folio_far, .. } = round;
        let Reads { apart, fault, away, open, create, close, stat, .. } = round;
        let to = [
            (&mut self.copy, copy),
            (&mut self.hot, hot),
            (&mut self.fresh, fresh),
            (&mut self.call, call),
            (&mut self.empty, empty),
            (&mut self.mode_switch, mode_switch),
            (&mut self.folio_far, folio_far),
            (&mut self.apart, apart),
            (&mut self.fault, fault),
            (&mut self.away, away),
            (&mut self.open, open),
            (&mut self.create, create),
            (&mut self.close, close),
            (&mut self.stat, stat),
        ];
        to.into_iter().for_each(|(all, samples)| all.extend(samples));
    }
}

/// A new file in the page cache, in folios of the size of the calls that wrote it where the filesystem has
/// large ones.
fn cached_file(bench: &Bench, name: &str, length: usize, size: usize) -> anyhow::Result<File> {
    let file = bench.scratch.file(name)?;
    for at in (0..length).step_by(size) {
        if at % LARGEST == 0 {
            bench.go_on()?;
        }
        file.write_all_at(&bench.data.bytes()[..size], at as u64).with_context(no_space)?;
    }
    Ok(file)
}

/// The cost of a call of each size in a round over the whole file.
fn run_of_sizes<const N: usize>(
    bench: &Bench,
    file: &File,
    length: usize,
    sizes: [usize; N],
    buffer: &mut [u8],
) -> anyhow::Result<[f64; N]> {
    let mut times = [0.0; N];
    for (time, size) in times.iter_mut().zip(sizes) {
        *time = run(bench, file, length, size, buffer)?;
    }
    Ok(times)
}

/// The usual cost of a call, over the whole file; of a small one over several readings of it.
fn run(bench: &Bench, file: &File, length: usize, size: usize, buffer: &mut [u8]) -> anyhow::Result<f64> {
    let (rereads, group) = if length > HOT { (1, LARGEST / size) } else { (REREADS, length / size) };
    let mut times = Vec::with_capacity(rereads * length / size / group);
    for _ in 0..rereads {
        for start in (0..length).step_by(group * size) {
            bench.go_on()?;
            let watch = Stopwatch::start();
            for at in (start..start + group * size).step_by(size) {
                file.read_exact_at(&mut buffer[..size], at as u64)?;
            }
            times.push(watch.elapsed() / group as f64);
        }
    }
    Ok(super::memory::usual_mean(&times))
}

/// What a byte takes of calls of these sizes, in the mean.
fn per_byte<const N: usize>(sizes: [usize; N], times: [f64; N], call: f64) -> f64 {
    let of = |(size, time): (usize, f64)| (time - call).max(0.0) / size as f64;
    sizes.into_iter().zip(times).map(of).sum::<f64>() / N as f64
}

/// Calls of parts of a page, at the end of the file, and of no bytes.
fn small(bench: &Bench, file: &File, buffer: &mut [u8], round: &mut Reads) -> anyhow::Result<()> {
    let pages = NEAR / PAGE;
    let mut every_page = |size: usize, begin: usize| {
        bench.go_on()?;
        let mut times = Vec::with_capacity(REREADS);
        for _ in 0..REREADS {
            let watch = Stopwatch::start();
            for page in 0..pages {
                file.read_at(&mut buffer[..size], (begin + page * PAGE) as u64)?;
            }
            times.push(watch.elapsed() / pages as f64);
        }
        anyhow::Ok(super::memory::usual_mean(&times))
    };
    let mut points = Vec::with_capacity(PARTS.len());
    for size in PARTS {
        points.push((size as f64, every_page(size, 0)?));
    }
    round.call.extend(Line::through(&points).map(|line| line.intercept));
    round.empty.push(every_page(PAGE, HOT)?);
    round.mode_switch.push(every_page(0, 0)?);
    Ok(())
}

/// What a read of a page takes whose file is in memory in large folios, each far from the one before.
fn apart(bench: &Bench, file: &File, length: usize, buffer: &mut [u8]) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(REREADS);
    for _ in 0..REREADS {
        bench.go_on()?;
        let places: Vec<u64> =
            (0..APART).map(|_| fastrand::usize(..length / PAGE) * PAGE).map(|at| at as u64).collect();
        let watch = Stopwatch::start();
        for at in places {
            file.read_exact_at(&mut buffer[..PAGE], at)?;
        }
        times.push(watch.elapsed() / APART as f64);
    }
    Ok(super::memory::usual_mean(&times))
}

/// What a page of memory takes longer that is read into for the first time than for the second.
fn faults(bench: &Bench, file: &File) -> anyhow::Result<f64> {
    let mut found = 0.0;
    // What the first memory that is given back leaves behind is warm.
    for _ in 0..2 {
        bench.go_on()?;
        let mut memory = vec![0u8; UNTOUCHED];
        let mut pass = || {
            timed(|| {
                for (piece, at) in memory[..TOUCHED].chunks_mut(FOLIOS).zip((0..HOT).step_by(FOLIOS).cycle())
                {
                    file.read_exact_at(piece, at as u64)?;
                }
                Ok(())
            })
        };
        found = (pass()? - pass()?) / (TOUCHED / PAGE) as f64;
    }
    Ok(found)
}

/// Name of a file that a round creates.
fn created(round: usize, at: usize) -> String {
    format!("created-{round}-{at}")
}

/// Opens a file often, closes it, and creates others. These stay until the end: ext4 goes through the inodes
/// deleted in the last seconds when it looks for a free one (`recently_deleted`, 6.18).
fn opening(bench: &Bench, index: usize, round: &mut Reads) -> anyhow::Result<()> {
    bench.go_on()?;
    let mut create = OpenOptions::new();
    create.write(true).create_new(true);
    let (mut times, mut files) = (Vec::with_capacity(CREATED), Vec::with_capacity(CREATED));
    for path in (0..CREATED).map(|at| bench.scratch.path(&created(index, at))) {
        let watch = Stopwatch::start();
        let file = create.open(&path).with_context(|| format!("cannot make {}", path.display()))?;
        times.push(watch.elapsed());
        files.push(file);
    }
    drop(files);
    let [mut open, mut close, mut stat] = [(); 3].map(|()| Vec::with_capacity(REREADS));
    let paths: Vec<PathBuf> = (0..CREATED).map(|at| bench.scratch.path(&created(index, at))).collect();
    let path = bench.scratch.path(&created(index, 0));
    for _ in 0..REREADS {
        let watch = Stopwatch::start();
        let files = (0..OPENED).map(|_| File::open(&path)).collect::<Result<Vec<File>, _>>()?;
        open.push(watch.elapsed() / OPENED as f64);
        let watch = Stopwatch::start();
        drop(files);
        close.push(watch.elapsed() / OPENED as f64);
        let watch = Stopwatch::start();
        for path in &paths {
            std::fs::symlink_metadata(path)?;
        }
        stat.push(watch.elapsed() / CREATED as f64);
    }
    let [create, open, close, stat] =
        [times, open, close, stat].map(|times| super::memory::usual_mean(&times));
    round.stat.push(stat);
    round.open.push(open);
    round.close.push(close);
    // What others deleted does not last.
    let made = bench.place.lacks_journal.then(|| new_inode::make(&bench.scratch.path("."))).flatten();
    let passing = made.map_or(Seconds::ZERO, |made| passed_over(Seconds(made.took), Seconds(made.open)).1);
    round.create.push((create - open - passing.0 * 1e9).max(0.0));
    Ok(())
}

/// Removes the files that a round has created: what that takes for each.
fn removing(bench: &Bench, index: usize) -> Option<f64> {
    let remove = |path: PathBuf| {
        let watch = Stopwatch::start();
        std::fs::remove_file(path).ok().map(|()| watch.elapsed())
    };
    let paths = (0..CREATED).map(|at| bench.scratch.path(&created(index, at)));
    let times: Vec<f64> = paths.filter_map(remove).collect();
    (!times.is_empty()).then(|| super::memory::usual_mean(&times))
}

/// What a byte of a hole takes the first time. The mean of all, since the calls that read ahead take much
/// longer than the others.
fn holes(bench: &Bench, buffer: &mut [u8]) -> anyhow::Result<f64> {
    let length = if bench.brief { BRIEF_HOLES } else { HOLES };
    let file = bench.scratch.file("holes")?;
    file.set_len(length as u64)?;
    let mut time = 0.0;
    for at in (0..length).step_by(HOLES_CALL) {
        bench.go_on()?;
        time += timed(|| Ok(file.read_exact_at(&mut buffer[..HOLES_CALL], at as u64)?))?;
    }
    bench.scratch.remove("holes");
    Ok(time / length as f64)
}

/// What reads from the device cost, in ns.
#[derive(Debug, Default)]
pub struct DeviceReads {
    /// Of a block away from the one before, without the transfer.
    pub latency: Option<Estimate>,
    /// Per byte, of a file that is read ahead.
    pub ahead: Option<Estimate>,
    /// The requests of a window are complete together.
    pub together: bool,
    /// Of a block away from the one before, without the transfer, in the device's own cache.
    pub cached_latency: Option<Estimate>,
    /// Per byte, of what is there.
    pub cached: Option<Estimate>,
}

/// Measures the device, in a file that another measurement has written past the page cache; `per_byte` is the
/// time of the transfer.
pub fn of_device(bench: &mut Bench, per_byte: f64) -> anyhow::Result<DeviceReads> {
    // Without the file or without direct I/O a note has been made.
    let Ok(file) = bench.scratch.again("device", OFlag::O_DIRECT) else { return Ok(DeviceReads::default()) };
    let blocks = file.metadata()?.len() as usize / PAGE;
    let mut order: Vec<usize> = (0..blocks).collect();
    fastrand::shuffle(&mut order);
    let mut order = order.into_iter();
    let mut buffer = AlignedBuffer::new(LARGEST);
    let [mut first, mut again] = [const { Vec::new() }; 2];
    let mut read = |size: usize, at: usize| {
        timed(|| Ok(file.read_exact_at(&mut buffer.bytes_mut()[..size], at as u64)?))
    };
    bench.repeat(|bench, _| {
        for block in order.by_ref().take(if bench.brief { BRIEF_BLOCKS } else { BLOCKS }) {
            bench.go_on()?;
            first.push(read(PAGE, block * PAGE)?);
            again.push(read(PAGE, block * PAGE)?);
        }
        Ok(())
    })?;
    let (from_device, from_cache) = two_caches(&first, &again);
    let cached = if from_cache.is_empty() || bench.brief {
        None
    } else {
        let mut lines = Vec::with_capacity(CACHED_CALLS);
        for at in order.take(CACHED_CALLS).map(|block| block * PAGE % (blocks * PAGE - LARGEST)) {
            bench.go_on()?;
            read(LARGEST, at)?;
            let mut points = Vec::with_capacity(FAR_SIZES.len());
            for size in FAR_SIZES {
                points.push((size as f64, read(size, at)?));
            }
            lines.extend(Line::through(&points).map(|line| line.slope).filter(|slope| *slope > 0.0));
        }
        Estimate::of(&lines)
    };
    let without = |transfer: f64, times: &[f64]| {
        let times: Vec<f64> = times.iter().map(|time| (time - transfer).max(0.0)).collect();
        Estimate::of(&times)
            .map(|found| Estimate { value: super::small_writes::undisturbed(&times), ..found })
    };
    let page = PAGE as f64;
    let (ahead, together) = super::unless_over(ahead(bench, buffer.bytes_mut()))?;
    Ok(DeviceReads {
        latency: without(per_byte * page, &from_device),
        ahead,
        together,
        cached_latency: without(cached.map_or(per_byte, |cached| cached.value) * page, &from_cache),
        cached,
    })
}

/// What a byte takes of the file of the device, dropped from the page cache and read through it in sequence,
/// and whether the requests of a window come together; behind the first windows, which are smaller than the
/// others, if the file is long enough. Where the processor takes longer than the device, it is what the
/// processor takes.
fn ahead(bench: &Bench, buffer: &mut [u8]) -> anyhow::Result<(Option<Estimate>, bool)> {
    let file = bench.scratch.again("device", OFlag::empty())?;
    let length = file.metadata()?.len() as usize / HOLES_CALL * HOLES_CALL;
    let window = bench.place.readahead().map_or(0, |window| window.0 as usize);
    let begin = (BEFORE * window).next_multiple_of(HOLES_CALL);
    let end = (begin + MIN_AHEAD.max(WINDOWS * window)).next_multiple_of(HOLES_CALL).min(length);
    let begin = if begin < length / 2 { begin } else { 0 };
    let (mut found, mut together) = (Vec::new(), Vec::new());
    let ((fewest, most, enough), watch) = (AHEAD, Stopwatch::start());
    let goes_on = |count: &usize| *count < fewest || watch.elapsed() < enough;
    for _ in (0..if bench.brief { 1 } else { most }).take_while(goes_on) {
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        // Opened anew, since an open file knows where it was read before.
        let file = bench.scratch.again("device", OFlag::empty())?;
        let mut times = Vec::with_capacity(end / HOLES_CALL);
        for at in (0..end).step_by(HOLES_CALL) {
            bench.go_on()?;
            let time = timed(|| Ok(file.read_exact_at(&mut buffer[..HOLES_CALL], at as u64)?))?;
            times.extend((at >= begin).then_some(time));
        }
        found.push(times.iter().sum::<f64>() / (times.len() * HOLES_CALL) as f64);
        together.push(come_together(&times));
    }
    let often = together.iter().filter(|together| **together).count();
    let calm = quantile(&found, 0.25).unwrap_or(f64::NAN);
    Ok((Estimate::of(&found).map(|found| Estimate { value: calm, ..found }), 2 * often > together.len()))
}

/// Whether few calls of a row do the waiting for all. If requests come one after another, one call of five
/// waits for each of them; if those of a window come together, one call of a window, which has more requests
/// than that.
fn come_together(times: &[f64]) -> bool {
    let usual = quantile(times, 0.5).unwrap_or(0.0);
    let mut waits: Vec<f64> = times.iter().map(|time| (time - usual).max(0.0)).collect();
    waits.sort_by(|a, b| b.total_cmp(a));
    let few = waits.iter().take(waits.len() / WAITERS).sum::<f64>();
    let all = waits.iter().sum::<f64>();
    all > usual * times.len() as f64 / 4.0 && few > 0.8 * all
}

/// How much rarer second readings must be among the slow ones than first readings, for the device to have a
/// cache, as a part of all; and in standard deviations.
const RARER: (f64, f64) = (0.1, 3.0);

/// The times of blocks that the device itself has read, and of those from a cache of the device: two modes,
/// where a block that was read a moment ago is rarely in the slow one. The latter are none if there is one
/// mode, or if the slow one is due to other things, which meet second readings as often as first ones.
fn two_caches(first: &[f64], again: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let one = || (first.to_vec(), Vec::new());
    let modes = Modes::of(&[first, again].concat());
    let Some(slowest) = modes.low.last().filter(|_| !modes.high.is_empty()) else { return one() };
    let slow = |times: &[f64]| {
        times.iter().filter(|time| *time > slowest).count() as f64 / times.len().max(1) as f64
    };
    let (firsts, seconds) = (slow(first), slow(again));
    let both = (firsts + seconds) / 2.0;
    let deviation = (both * (1.0 - both) * 2.0 / first.len().max(1) as f64).sqrt();
    if firsts - seconds < RARER.0.max(RARER.1 * deviation) {
        return one();
    }
    let of_device = first.iter().copied().filter(|time| time > slowest).collect();
    // Stragglers are not the cache's.
    let most = 3.0 * quantile(&modes.low, 0.25).unwrap_or(f64::NAN);
    (of_device, modes.low.into_iter().filter(|time| *time <= most).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times around `middle`, off by up to a fifth.
    fn around(middle: f64, count: usize) -> Vec<f64> {
        (0..count).map(|at| middle * (0.8 + 0.4 * (at * 37 % 100) as f64 / 100.0)).collect()
    }

    #[test]
    fn a_cache_is_what_makes_the_second_reading_fast() {
        let (disk, cache) = two_caches(&around(8e6, 160), &around(100e3, 160));
        assert_eq!((disk.len(), cache.len()), (160, 160));
        assert!(cache.iter().all(|time| *time < 200e3));
        // A cache that has nine of ten blocks before they are read.
        let first = [around(60e3, 144), around(400e3, 16)].concat();
        let (disk, cache) = two_caches(&first, &around(60e3, 160));
        assert_eq!((disk.len(), cache.len()), (16, 304));
    }

    #[test]
    fn no_cache_is_found_where_both_readings_take_the_same() {
        let plain = around(90e3, 160);
        assert_eq!(two_caches(&plain, &plain), (plain.clone(), vec![]));
        // Another program's requests delay every tenth read, first or second.
        let delayed = [around(90e3, 144), around(4e6, 16)].concat();
        assert_eq!(two_caches(&delayed, &delayed), (delayed.clone(), vec![]));
        // Faster, and not clearly.
        assert_eq!(two_caches(&plain, &around(50e3, 160)).1, [0.0; 0]);
        assert_eq!(two_caches(&[], &[]), (vec![], vec![]));
    }

    #[test]
    fn few_calls_wait_if_requests_come_together() {
        let row = |every: usize, wait: f64| -> Vec<f64> {
            (0..512).map(|at| if at % every == 0 { 20e3 + wait } else { 20e3 }).collect()
        };
        assert!(come_together(&row(32, 4e6)));
        assert!(!come_together(&row(5, 600e3)));
        assert!(!come_together(&row(32, 20e3)), "hardly anything waits");
        assert!(!come_together(&[]));
    }

    #[test]
    fn a_byte_takes_what_the_call_does_not() {
        let times = HOT_SIZES.map(|size| 300.0 + 0.02 * size as f64);
        assert!((per_byte(HOT_SIZES, times, 300.0) - 0.02).abs() < 1e-12);
        assert_eq!(per_byte(HOT_SIZES, [100.0; 3], 300.0), 0.0);
    }
}
