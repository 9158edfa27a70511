//! Writing back: the rate at which the flusher cleans pages, and how much slower the page cache is meanwhile.
//!
//! The rate is read off the kernel's count of pages written (`nr_written`), never off direct I/O, which
//! takes another way through the filesystem. Where the dirty limit is within reach it is the sustained rate
//! of a writer who is held back by it; elsewhere, and where the device keeps up with a writer, so that nothing holds him
//! back and the rate would be his, the flusher is set to work by syncfs.

use std::fs::File;

use cawl_core::{Bytes, Estimate, Nanos, Time, quantile};
use cawl_host::tracefs::{self, Instance};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::bench::{Bench, LARGEST, background, hard, since};
use super::memory::Memory;
use crate::slow_limit::{LEARNED, base_rates};

const PAGE: u64 = 4096;
const CHUNK: usize = 1 << 20;

/// Fewest windows that make up a sustained rate, where the bytes allowed suffice: 2.4 s of a slow device.
const FEWEST_WINDOWS: usize = 6;

/// What writing back costs.
#[derive(Clone, Debug, Default)]
pub struct Writeback {
    /// Bytes per ns.
    pub rate: Option<Estimate>,
    /// Most bytes under writeback at a time.
    pub queue: Option<u64>,
    /// Factor on the page cache's speed while the flusher works: for pages that are allocated, and for cached ones.
    pub factor: Option<Estimate>,
    pub cached_factor: Option<Estimate>,
    /// Bytes per ns to which the kernel holds writers, before it looks at the level, as its tracepoints say.
    pub base_rate: Option<Estimate>,
    /// Bytes per ns that were written back meanwhile.
    beside: Option<Estimate>,
}

/// A moment's count of bytes written back, by the whole machine and by the device.
#[derive(Clone, Copy, Debug)]
struct Count {
    time: Time,
    pages: u64,
    device: Option<u64>,
    under_way: u64,
}

fn count(bench: &Bench) -> Option<Count> {
    let sample = cawl_host::sample()?;
    let device = bench.place.device_written().map(|bytes| bytes.0);
    Some(Count {
        time: sample.time,
        pages: sample.written * PAGE,
        device,
        under_way: sample.writeback * PAGE,
    })
}

/// Whose count of bytes written tells the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// The device's: each request counts as soon as it is done.
    Device,
    /// The machine's, `nr_written`: the filesystem ends the writeback of an extent's pages, or of all that it took of an
    /// inode, at once (36 MiB a step where ext4 overwrites blocks on a disk of 150 MB/s), and others' pages count, too.
    Machine,
}

impl Counter {
    /// Whom to believe, given what both counted in the same time. A device that counts far more than there was writes
    /// something besides, as a journal of data.
    fn of(from: Count, to: Count) -> Counter {
        match part_of_device(from, to) {
            Some(part) if part > 0.0 && part < 1.5 => Counter::Device,
            _ => Counter::Machine,
        }
    }

    /// The same; it is noted if others wrote to other devices.
    fn noted(bench: &mut Bench, from: Count, to: Count) -> Counter {
        if part_of_device(from, to).is_some_and(|part| part > 0.0 && part < 0.85) {
            bench.note("other programs wrote to other devices; the device's own count of bytes was taken");
        }
        Counter::of(from, to)
    }

    /// Bytes per ns between two moments.
    fn rate(self, from: Count, to: Count) -> Option<f64> {
        let span = to.time.since(from.time).get();
        let device = to.device.zip(from.device).filter(|_| self == Counter::Device);
        let (after, before) = device.unwrap_or((to.pages, from.pages));
        let bytes = after.saturating_sub(before) as f64;
        (span > 0.0 && bytes > 0.0).then(|| bytes / span)
    }
}

/// What the device counted between two moments over what the machine did.
fn part_of_device(from: Count, to: Count) -> Option<f64> {
    let device = to.device?.saturating_sub(from.device?) as f64;
    Some(device / to.pages.saturating_sub(from.pages) as f64)
}

/// Bytes per ns between two moments.
fn rate(bench: &mut Bench, from: Count, to: Count) -> Option<f64> {
    Counter::noted(bench, from, to).rate(from, to)
}

/// Measures the rate of writeback of a device that takes `transfer` ns for a byte, if that is known.
pub fn rate_of_writeback(
    bench: &mut Bench,
    transfer: Option<f64>,
    found: &mut Writeback,
) -> anyhow::Result<()> {
    let limit = hard().0;
    if bench.brief {
        // Each is the least that the device can do.
        let rates = [flushed(bench, transfer)?, found.beside];
        found.rate = rates.into_iter().flatten().max_by(|a, b| a.value.total_cmp(&b.value));
        return Ok(());
    }
    // The limit has to be reached and then held for as much again.
    if limit.saturating_mul(3) <= bench.bytes_left.min(bench.space.saturating_mul(2)) {
        throttled(bench, limit, found)
    } else {
        bench.note(&format!(
            "the writeback rate was measured below the dirty limits ({} is more than may be written); with \
             --lower-limits, as root, it is that of a writer who is held back",
            Bytes(limit)
        ));
        found.rate = flushed(bench, None)?;
        Ok(())
    }
}

/// The sustained rate of a writer who is held back by the hard limit.
fn throttled(bench: &mut Bench, limit: u64, found: &mut Writeback) -> anyhow::Result<()> {
    let trace = Instance::begin_if_possible(&[LEARNED], &tracefs::this_thread())?;
    let file = bench.scratch.file("throttled")?;
    // Goes round in a file of this length, in which no page is still dirty when its turn comes again.
    let length = (limit * 2).min(bench.space / 2).max(CHUNK as u64) / CHUNK as u64 * CHUNK as u64;
    let give_up = bench.deadline;
    let (mut at, mut written) = (0, 0_u64);
    let mut windows: Vec<Window> = Vec::new();
    let mut current: Option<Window> = None;
    // Windows long enough that the steps in which pages are counted do not show, and short enough that a
    // few of them fit into the bytes allowed.
    let window_bytes = (bench.bytes_left.saturating_sub(limit + limit / 2) / 6).max(16 << 20);
    let (shortest, longest) = (Nanos::millis(50.0), Nanos::millis(400.0));
    while bench.go_on().is_ok() {
        if !bench.spend(CHUNK as u64) || (cawl_host::now() >= give_up && windows.len() >= FEWEST_WINDOWS) {
            break;
        }
        bench.write_run(&file, at, CHUNK, CHUNK)?;
        at = (at + CHUNK as u64) % length;
        written += CHUNK as u64;
        bench.progress.show();
        // Steady once the limit has been reached and half as much was written since. Not after each chunk: reading the counts
        // takes as long as a part of it.
        if written < limit + limit / 2 || !written.is_multiple_of(LARGEST as u64) {
            continue;
        }
        let Some(now) = count(bench) else { break };
        let window = current.get_or_insert_with(|| Window::at(now));
        window.to = now;
        window.under_way.push(now.under_way as f64);
        let span = now.time.since(window.from.time);
        let bytes = now.pages.saturating_sub(window.from.pages);
        if span < longest && !(span >= shortest && bytes >= window_bytes) {
            continue;
        }
        windows.extend(current.replace(Window::at(now)));
        // Of a device that idles, more would be of no use, and the bytes are needed for the other way.
        let enough = if busy(&windows).is_some() { 4 * bench.rounds.1 } else { bench.rounds.0 };
        if windows.len() >= enough {
            break;
        }
    }
    drop(file);
    bench.scratch.remove("throttled");
    bench.go_on()?;
    let told = trace.map(|trace| trace.take()).transpose()?;
    let kept_busy = busy(&windows);
    let chosen = kept_busy.clone().unwrap_or_else(|| windows.iter().collect());
    // In a single window the two counts may differ by a step.
    let counter = match (windows.first(), windows.last()) {
        (Some(first), Some(last)) => Counter::noted(bench, first.from, last.to),
        _ => Counter::Machine,
    };
    let rates: Vec<(f64, f64)> = chosen.iter().filter_map(|window| window.rate(counter)).collect();
    found.rate = Estimate::of(&rates.iter().map(|(rate, _)| *rate).collect::<Vec<_>>());
    // The windows swing, as a burst follows a lull: what was written in all of them is known far better.
    if let Some(found) = &mut found.rate {
        let time: f64 = rates.iter().map(|(_, span)| span).sum();
        found.value = rates.iter().map(|(rate, span)| rate * span).sum::<f64>() / time;
    }
    // What it told at first, on the way to the limit, is not what it holds to. All of it is read here, since a fast device
    // runs dry meanwhile.
    let told = told.map(|told| base_rates(&told)).unwrap_or_default();
    found.base_rate = Estimate::of(&told[told.len() / 2..]);
    if kept_busy.is_none() {
        // The device has idled in between: what it has written is the least that it can do. A file that is flushed at
        // once says little where it is short, as it is below lowered limits.
        for other in [flushed(bench, None)?, found.beside].into_iter().flatten() {
            if found.rate.is_none_or(|rate| other.value > rate.value) {
                found.rate = Some(other);
            }
        }
    }
    // What the queue holds when it is full, which it is while a writer is held back.
    found.queue = full_queue(&windows).map(|bytes| bytes as u64).filter(|bytes| *bytes > 0);
    Ok(())
}

/// A part of the time for which a writer was held back.
#[derive(Clone, Debug)]
struct Window {
    from: Count,
    to: Count,
    /// Bytes under writeback at moments in it.
    under_way: Vec<f64>,
}

impl Window {
    fn at(moment: Count) -> Window {
        Window { from: moment, to: moment, under_way: Vec::new() }
    }

    /// Bytes per ns that were written, and the time.
    fn rate(&self, counter: Counter) -> Option<(f64, f64)> {
        Some((counter.rate(self.from, self.to)?, self.to.time.since(self.from.time).get()))
    }
}

/// Bytes under writeback when the queue is full.
fn full_queue(windows: &[Window]) -> Option<f64> {
    let moments: Vec<f64> = windows.iter().flat_map(|window| window.under_way.iter().copied()).collect();
    quantile(&moments, 0.95)
}

/// The windows in which there was always something to do for the device: its queue was not about empty in seven of eight moments.
/// What it wrote then is what it can. None if those are fewer than half: then the writer is about as slow as the device. A single
/// one may be due to him waiting for cold memory.
fn busy(windows: &[Window]) -> Option<Vec<&Window>> {
    let full = full_queue(windows)?;
    let is_busy = |window: &&Window| {
        quantile(&window.under_way, 0.125).is_some_and(|low| low > 0.0 && low >= full / 16.0)
    };
    let busy: Vec<&Window> = windows.iter().filter(is_busy).collect();
    (!busy.is_empty() && 2 * busy.len() >= windows.len()).then_some(busy)
}

/// The rate of a flusher that syncfs has set to work, between a tenth and nine tenths of the way. In brief, that of
/// fsync, which leaves out what others have dirtied: a single burst, as long as may be written and as the device can
/// take by then if a byte takes it twice `transfer` ns; its second half counts, since the first one fills the queue.
fn flushed(bench: &mut Bench, transfer: Option<f64>) -> anyhow::Result<Option<Estimate>> {
    let mut samples = Vec::new();
    let rounds = bench.rounds.0;
    let share = bench.bytes_left / (rounds as u64 + 1);
    let all = (background().0 * 3 / 4).min(if bench.brief { bench.space } else { bench.space / 2 });
    let mut length = all.min(64 << 20).min(share);
    let whole_filesystem = !bench.brief;
    let queue = cawl_host::uncalibrated_profile().device.queue.0;
    let (begins, ends) = if bench.brief { (0.55, 0.97) } else { (0.1, 0.9) };
    bench.repeat(|bench, _| {
        if bench.brief && !samples.is_empty() {
            // Another one would be shorter.
            return Ok(());
        }
        if bench.brief {
            let time = bench.deadline.since(cawl_host::now()).get();
            let taken = transfer.map_or(8 << 20, |per_byte| (time / (2.0 * per_byte)) as u64);
            length = all.min(bench.bytes_left).min(taken);
        }
        length = length.min(bench.bytes_left).max(CHUNK as u64) / CHUNK as u64 * CHUNK as u64;
        if length > bench.space || !bench.spend(length) {
            return Ok(());
        }
        bench.settle(length)?;
        let file = bench.scratch.file("flushed")?;
        let before = cawl_host::sample();
        let (began, time) = (cawl_host::now(), bench.deadline.since(cawl_host::now()));
        let mut written = 0;
        // In brief, half of the time is the flusher's, however long the memory takes.
        while written < length && !(bench.brief && cawl_host::now().since(began) > time * 0.5) {
            bench.write_run(&file, written, CHUNK, CHUNK)?;
            written += CHUNK as u64;
        }
        let wrote = since(began);
        length = written;
        let dirtied = before.zip(cawl_host::sample()).map(|(from, to)| to.dirtied.saturating_sub(from.dirtied) * PAGE);
        let start = count(bench);
        let mut counts = Vec::new();
        let took = while_flushing(&file, whole_filesystem, || {
            counts.extend(count(bench));
            // Reading the counts takes a processor that the flusher may need.
            std::thread::sleep(std::time::Duration::from_millis(2));
        })?;
        // What was over before the second look was written back as well.
        counts.extend(count(bench));
        drop(file);
        bench.scratch.remove("flushed");
        let Some(start) = start else { return Ok(()) };
        // The device's count goes up by single requests, where it can be believed.
        let counter = counts.last().map_or(Counter::Machine, |last| Counter::noted(bench, start, *last));
        let counted =
            |count: &Count| count.device.filter(|_| counter == Counter::Device).unwrap_or(count.pages);
        let reached = |part: f64| {
            let target = counted(&start) + (length as f64 * part) as u64;
            counts.iter().copied().find(|count| counted(count) >= target)
        };
        // Pages that nobody counted as dirty, or that were clean sooner than anybody could read them, were not written
        // back here: whatever was counted meanwhile was that of others.
        let ours = dirtied.is_some_and(|dirtied| dirtied >= length / 2) && took >= wrote / 8.0;
        let middle = reached(begins).zip(reached(ends)).filter(|(from, to)| {
            // Some filesystems count pages in few large steps, which tell nothing about the time between.
            to.time.since(from.time).get() > (ends - begins) / 2.0 * took
        });
        let whole = counts.last().map(|last| (start, *last));
        // What others wrote meanwhile is not what was written here.
        let whole = whole.filter(|(from, to)| to.pages.saturating_sub(from.pages) >= length / 2);
        if let Some((from, to)) = middle.or(whole).filter(|_| ours) {
            samples.extend(counter.rate(from, to));
            // In brief the burst is short, and even its end is slow. The other way to look at it is what the whole took beyond
            // what the model takes for as much as the queue holds. Both are noisy, and their mean is less so.
            let first = queue.min(length) as f64;
            let beyond = transfer.map_or(0.0, |per_byte| took - first * per_byte);
            if bench.brief && beyond > took / 4.0 {
                samples.push((length as f64 - first) / beyond);
            }
        } else {
            bench.note(
                "this filesystem wrote nothing back: its data lie in memory, or each call hands them on by itself",
            );
        }
        // Next time as much as takes half a second: what comes in one burst says little.
        let more = length as f64 * 0.5e9 / took.max(1e6);
        let most = all.min(share);
        length = (more as u64).clamp(length / 4, length * 4).min(most);
        Ok(())
    })?;
    // The first ones were of another length.
    if samples.len() > rounds && !bench.brief {
        samples.drain(..1);
    }
    Ok(Estimate::of(&samples))
}

/// Has the file or its whole filesystem written back, and calls `meanwhile` over and over until that is
/// done. Returns how long the flusher worked, in ns.
fn while_flushing(file: &File, whole_filesystem: bool, mut meanwhile: impl FnMut()) -> anyhow::Result<f64> {
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            let start = cawl_host::now();
            let done = if whole_filesystem { nix::unistd::syncfs(file) } else { nix::unistd::fsync(file) };
            done.map(|()| since(start))
        });
        while !flusher.is_finished() {
            meanwhile();
            std::thread::yield_now();
        }
        flusher
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that waits for the flusher ended"))?
            .map_err(Into::into)
    })
}

/// Pieces of a file, each written while those before it are written back; the first shows nothing.
const PIECES: u64 = 9;
/// The longest piece: as much as the flusher takes of a file at a time, on a machine of ordinary size.
const LONGEST_PIECE: u64 = 64 << 20;

/// The factor on the page cache's speed while the flusher works on the same file.
///
/// It has to be the same file, since writer and flusher wait for each other there: ext4 keeps its map of blocks
/// (`i_data_sem`) while it allocates, and when it needs a block group's bitmap for that, the read of it comes after
/// all that was submitted before. Such waits are long and rare, so the mean of a round counts, of which some are in it.
///
/// Pages that are dirty already have their blocks, so rewriting them has a factor of its own.
///
/// The factors are on what was found for pages while nothing is written back, so that both together are what was seen
/// here; `transfer` is the time that the device takes for a byte, in ns.
///
/// What the device takes meanwhile is its rate beside a writer, if he is faster.
pub fn factor(
    bench: &mut Bench,
    memory: &Memory,
    transfer: Option<f64>,
    found: &mut Writeback,
) -> anyhow::Result<()> {
    let time = bench.deadline.since(cawl_host::now()).get();
    let affordable = transfer.map_or(bench.bytes_left, |per_byte| (time / per_byte) as u64);
    let share = affordable.min(bench.bytes_left) / (PIECES * bench.rounds.0 as u64);
    let all = (background().0 * 3 / 4).min(bench.space / 2);
    let piece = (all / PIECES).min(LONGEST_PIECE).min(hard().0 / 8).min(share);
    // Calls as large as they come; smaller ones where a piece has to be small.
    let call = if piece >= 4 * LARGEST as u64 { LARGEST } else { CHUNK };
    let piece = piece as usize / call * call;
    if piece == 0 {
        return Ok(());
    }
    let (mut fresh, mut cached, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    bench.repeat(|bench, _| {
        let length = PIECES * piece as u64;
        if !bench.spend(length) {
            return Ok(());
        }
        bench.settle(length)?;
        // Once so that the memory is warm; nothing of this reaches the device.
        in_pieces(bench, piece, call, false)?;
        let flushed = in_pieces(bench, piece, call, true)?;
        fresh.push(flushed.fresh);
        cached.push(flushed.cached);
        // From the third piece on the device has been busy throughout.
        if let (Some(from), Some(to)) = (flushed.counts.get(2), flushed.counts.last()) {
            rates.extend(rate(bench, *from, *to));
        }
        Ok(())
    })?;
    found.beside = Estimate::of(&rates);
    found.factor = against(memory.fresh, &fresh);
    found.cached_factor = against(memory.cached, &cached);
    Ok(())
}

/// The factor between the speeds of these costs and of that when all is quiet.
fn against(quiet: Option<Estimate>, costs: &[f64]) -> Option<Estimate> {
    let quiet = quiet?.value;
    let factors: Vec<f64> = costs.iter().map(|cost| (quiet / cost).clamp(0.05, 1.0)).collect();
    Estimate::of(&factors)
}

/// A file written in pieces.
struct InPieces {
    /// Mean cost per byte of all pieces but the first, in ns, and of what was written again.
    fresh: f64,
    cached: f64,
    /// What had been written back when each piece was handed over.
    counts: Vec<Count>,
}

/// Writes a new file piece by piece, the beginning of each twice, and if `flushing`, has each written back while the
/// next one is written.
fn in_pieces(bench: &Bench, piece: usize, call: usize, flushing: bool) -> anyhow::Result<InPieces> {
    let file = bench.scratch.file("pieces")?;
    let (hand_over, pieces) = std::sync::mpsc::channel::<u64>();
    let mut counts = Vec::new();
    // Little, so that the flusher gets his pieces about as fast as they can be made.
    let again = (piece / 8).max(call) as u64 / call as u64 * call as u64;
    let (fresh, cached) = std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for at in pieces.into_iter().filter(|_| flushing) {
                // Starts to write as the flusher does, and waits for nothing but room in the queue.
                posix_fadvise(&file, at as i64, piece as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            }
            Ok::<(), nix::Error>(())
        });
        let (mut fresh, mut cached) = (0.0, 0.0);
        for index in 0..PIECES {
            let start = index * piece as u64;
            let write = |length: u64| -> anyhow::Result<f64> {
                let mut time = 0.0;
                for at in (start..start + length).step_by(call) {
                    bench.go_on()?;
                    // Waits for a processor included: the flusher's work takes some of them.
                    let began = cawl_host::now();
                    bench.write_run(&file, at, call, call)?;
                    time += since(began);
                }
                Ok(if index > 0 { time } else { 0.0 })
            };
            fresh += write(piece as u64)?;
            cached += write(again)?;
            // Does not wait, as no writer waits for the flusher but in a call. An error of the other thread shows below.
            if hand_over.send(start).is_err() {
                break;
            }
            counts.extend(count(bench));
        }
        drop(hand_over);
        flusher.join().map_err(|_| anyhow::anyhow!("the thread that flushes ended"))??;
        anyhow::Ok((fresh, cached))
    })?;
    drop(file);
    bench.scratch.remove("pieces");
    let each = (PIECES - 1) as f64;
    Ok(InPieces { fresh: fresh / (each * piece as f64), cached: cached / (each * again as f64), counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both counts while an emulated disk was written over and over for forty seconds, every 50 ms or a little more: milliseconds,
    /// and pages that the machine and the device had written.
    const COUNTS: &str = include_str!("writeback-counts.txt");

    /// The filesystem ended the writeback of 36 MiB at once.
    #[test]
    fn the_rate_is_the_devices_however_large_the_steps_of_the_filesystem() {
        let counts = COUNTS.lines().map(|line| {
            let mut figures = line.split(' ').map(|figure| figure.parse::<u64>().unwrap());
            let mut next = || figures.next().unwrap();
            let time = Time(next() * 1_000_000);
            Count { time, pages: next() * PAGE, device: Some(next() * PAGE), under_way: 0 }
        });
        let counts: Vec<Count> = counts.collect();
        // How far two seconds and a half may be from the ten around them, which hardly know steps.
        let mut apart = [Vec::new(), Vec::new()];
        for (at, from) in counts.iter().enumerate() {
            let near = |seconds: f64| {
                let time = from.time + Nanos::seconds(seconds);
                counts[at..].iter().find(|count| count.time >= time)
            };
            let (Some(before), Some(after), Some(to)) = (near(4.0), near(6.4), near(10.4)) else { break };
            assert_eq!(Counter::of(*before, *after), Counter::Device);
            let long = Counter::Device.rate(*from, *to).unwrap();
            for (apart, counter) in apart.iter_mut().zip([Counter::Device, Counter::Machine]) {
                apart.push((counter.rate(*before, *after).unwrap() / long - 1.0).abs());
            }
        }
        let [device, machine] = apart.map(|apart| quantile(&apart, 0.9).unwrap());
        assert!(device < 0.07 && machine > 0.1, "nine of ten are within {device}, or {machine}");
    }

    #[test]
    fn a_device_that_counts_something_else_is_not_believed() {
        // A journal that holds the data, too; a filesystem without a device; a device that counts nothing.
        let plain = |device| Count { time: Time(1_000_000_000), pages: 100 << 20, device, under_way: 0 };
        let start = |device| Count { time: Time(0), pages: 0, device, under_way: 0 };
        for (before, after) in [(Some(0), Some(200 << 20)), (None, None), (Some(7), Some(7))] {
            assert_eq!(Counter::of(start(before), plain(after)), Counter::Machine);
        }
    }

    #[test]
    fn a_window_in_which_the_device_idled_does_not_count() {
        let count = Count { time: Time::default(), pages: 0, device: None, under_way: 0 };
        // Of a hundred moments, so many with an empty queue.
        let window = |emptied: usize| {
            let under_way = (0..100).map(|moment| if moment < emptied { 0.0 } else { 80e6 }).collect();
            Window { under_way, ..Window::at(count) }
        };
        let counted = |emptied: &[usize]| {
            let windows: Vec<Window> = emptied.iter().map(|emptied| window(*emptied)).collect();
            busy(&windows).map(|windows| windows.len())
        };
        assert_eq!(counted(&[5, 5, 90]), Some(2));
        assert_eq!(counted(&[5, 20, 90]), None);
        assert_eq!((counted(&[100]), counted(&[])), (None, None));
    }
}
