//! Writeback: the rate at which the flusher cleans pages, and the slowdown of the page cache during it.
//!
//! The rate comes from the kernel's count of pages written (`nr_written`), never from direct I/O, which takes
//! another path through the filesystem. Where the dirty limit is within reach, it is the sustained rate of a
//! throttled writer. Elsewhere, and where the device keeps up with the writer, so that it would set the rate
//! itself, syncfs starts the flusher.

mod bursts;

use std::fs::File;

use cawl_core::{Bytes, Estimate, Nanos, Time, quantile};
use cawl_host::tracefs::{self, Instance};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::bench::{Bench, LARGEST, background, hard, since};
use super::memory::Memory;
use crate::slow_limit::{LEARNED, base_rates};

const CHUNK: usize = 1 << 20;

/// A tick of a kernel's clock, in ns: devices count their busy time in them.
const TICK: f64 = 10e6;

/// Fewest windows of a sustained rate, if the byte budget allows: 2.4 s on a slow device.
const FEWEST_WINDOWS: usize = 6;

/// The base rate and the bandwidth of a device that the kernel has learned nothing of, in bytes per ns
/// (`INIT_BW`, mm/backing-dev.c, 6.18).
const FIRST_RATE: f64 = 104_857_600e-9;

/// The constants of writeback.
#[derive(Clone, Debug, Default)]
pub struct Writeback {
    /// Bytes per ns.
    pub rate: Option<Estimate>,
    /// Most bytes under writeback at a time.
    pub queue: Option<u64>,
    /// Factor on the speed at which new pages are written while the flusher works.
    pub factor: Option<Estimate>,
    /// Bytes per ns of the kernel's base rate for writers, as its tracepoints tell.
    pub base_rate: Option<Estimate>,
    /// Bytes per ns written back beside the writer of `factor`.
    beside: Option<Estimate>,
}

/// Bytes written back up to a moment, by the whole machine and by the device.
#[derive(Clone, Copy, Debug)]
struct Count {
    time: Time,
    pages: u64,
    device: Option<u64>,
    /// Time in which the device had something to do, in ns.
    busy: f64,
    under_way: u64,
}

fn count(bench: &Bench) -> Option<Count> {
    let sample = cawl_host::sample()?;
    let device = bench.place.device_counters();
    Some(Count {
        time: sample.time,
        pages: sample.written * cawl_host::page().0,
        device: device.as_ref().map(|device| device.bytes.0),
        busy: device.map_or(0.0, |device| device.busy.get()),
        under_way: sample.writeback * cawl_host::page().0,
    })
}

/// The counter that the rate is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// The device's: grows with each completed request.
    Device,
    /// The machine's, `nr_written`: grows in large steps, since the filesystem completes an extent or all
    /// pages taken of an inode at once (36 MiB where ext4 overwrites blocks on a disk of 150 MB/s), and
    /// includes other programs' pages.
    Machine,
}

impl Counter {
    /// The better counter, given both over the same time. A device that counts far more than the machine also
    /// writes other data, such as a data journal.
    fn of(from: Count, to: Count) -> Counter {
        match part_of_device(from, to) {
            Some(part) if part > 0.0 && part < 1.5 => Counter::Device,
            _ => Counter::Machine,
        }
    }

    /// The better counter; notes it if other devices were written to.
    fn noted(bench: &mut Bench, from: Count, to: Count) -> Counter {
        if part_of_device(from, to).is_some_and(|part| part > 0.0 && part < 0.85) {
            bench.note("other programs wrote to other devices; the device's own count of bytes was taken");
        }
        Counter::of(from, to)
    }

    /// Bytes per ns between two moments.
    fn rate(self, from: Count, to: Count) -> Option<f64> {
        self.rate_and_time(from, to).map(|(rate, _)| rate)
    }

    /// Bytes per ns between two moments, and the ns that this took: what the device idled is left out.
    fn rate_and_time(self, from: Count, to: Count) -> Option<(f64, f64)> {
        let span = to.time.since(from.time).get();
        let device = to.device.zip(from.device).filter(|_| self == Counter::Device);
        let (after, before) = device.unwrap_or((to.pages, from.pages));
        let bytes = after.saturating_sub(before) as f64;
        let idle = (span - (to.busy - from.busy) - TICK).max(0.0);
        // Not every device counts its time.
        let span = if device.is_some() && idle < span / 2.0 { span - idle } else { span };
        (span > 0.0 && bytes > 0.0).then(|| (bytes / span, span))
    }
}

/// The device's count over the machine's between two moments.
fn part_of_device(from: Count, to: Count) -> Option<f64> {
    let device = to.device?.saturating_sub(from.device?) as f64;
    Some(device / to.pages.saturating_sub(from.pages) as f64)
}

/// Measures the writeback rate of a device that takes `transfer` ns per byte, if known.
pub fn rate_of_writeback(
    bench: &mut Bench,
    transfer: Option<f64>,
    found: &mut Writeback,
) -> anyhow::Result<()> {
    let limit = hard().0;
    if bench.brief {
        found.rate = bursts::rate(bench, transfer)?.or(found.beside.take());
        return Ok(());
    }
    // The limit must be reached, and then held for as many bytes again.
    if limit.saturating_mul(3) <= bench.bytes_left.min(bench.space.saturating_mul(2)) {
        throttled(bench, limit, found)
    } else {
        bench.note(&format!(
            "the writeback rate was measured below the dirty limits ({} is more than may be written); with \
             --lower-limits, as root, it is that of a writer who is held back",
            Bytes(limit)
        ));
        found.rate = flushed(bench)?;
        Ok(())
    }
}

/// The sustained rate of a writer who is throttled at the hard limit.
fn throttled(bench: &mut Bench, limit: u64, found: &mut Writeback) -> anyhow::Result<()> {
    let trace = Instance::begin_if_possible(&[LEARNED], &tracefs::this_thread())?;
    let file = bench.scratch.file("throttled")?;
    // The file is written in circles; at this length a page is clean again before its next turn.
    let length = (limit * 2).min(bench.space / 2).max(CHUNK as u64) / CHUNK as u64 * CHUNK as u64;
    let give_up = bench.deadline;
    let (mut at, mut written) = (0, 0_u64);
    let mut windows: Vec<Window> = Vec::new();
    let mut current: Option<Window> = None;
    // Windows long enough to smooth the steps of the counter, and short enough that a few fit into the byte
    // budget.
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
        // Steady after the limit was reached and half as much was written again. Not after each chunk, since
        // reading the counters takes as long as part of a chunk.
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
        // More windows of an idling device would not help, and the other method needs the bytes.
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
    // In a single window the two counters may differ by a step.
    let counter = match (windows.first(), windows.last()) {
        (Some(first), Some(last)) => Counter::noted(bench, first.from, last.to),
        _ => Counter::Machine,
    };
    let rates: Vec<(f64, f64)> = chosen.iter().filter_map(|window| window.rate(counter)).collect();
    found.rate = Estimate::of(&rates.iter().map(|(rate, _)| *rate).collect::<Vec<_>>());
    // The windows vary, as bursts follow lulls; the mean over all of them is far more certain.
    if let Some(found) = &mut found.rate {
        let time: f64 = rates.iter().map(|(_, span)| span).sum();
        found.value = rates.iter().map(|(rate, span)| rate * span).sum::<f64>() / time;
    }
    // Read here, since a fast device runs out of work soon.
    found.base_rate = told.and_then(|told| base_rate(&base_rates(&told)));
    if kept_busy.is_none() {
        // The device idled at times, so its rate is a lower bound. A flush of a file gives little where the
        // file is short, as below lowered limits; `beside` is another lower bound.
        for other in [flushed(bench)?, found.beside].into_iter().flatten() {
            if found.rate.is_none_or(|rate| other.value > rate.value) {
                found.rate = Some(other);
            }
        }
    }
    // The bytes in a full queue, which it is while a writer is throttled.
    found.queue = full_queue(&windows).map(|bytes| bytes as u64).filter(|bytes| *bytes > 0);
    Ok(())
}

/// The base rate that the kernel told in turn. The first half belongs to the approach of the limit. The
/// kernel's first value says nothing of the device: it moves by an eighth in 200 ms at most, and not before
/// the level asks for it.
fn base_rate(told: &[f64]) -> Option<Estimate> {
    Estimate::of(&told[told.len() / 2..]).filter(|found| (found.value / FIRST_RATE - 1.0).abs() > 0.01)
}

/// A part of the time in which the writer was throttled.
#[derive(Clone, Debug)]
struct Window {
    from: Count,
    to: Count,
    /// Samples of the bytes under writeback.
    under_way: Vec<f64>,
}

impl Window {
    fn at(moment: Count) -> Window {
        Window { from: moment, to: moment, under_way: Vec::new() }
    }

    /// Bytes written per ns, and the time.
    fn rate(&self, counter: Counter) -> Option<(f64, f64)> {
        counter.rate_and_time(self.from, self.to)
    }
}

/// Bytes under writeback when the queue is full.
fn full_queue(windows: &[Window]) -> Option<f64> {
    let moments: Vec<f64> = windows.iter().flat_map(|window| window.under_way.iter().copied()).collect();
    quantile(&moments, 0.95)
}

/// The windows in which the device always had work: its queue was nearly empty in at most one of eight
/// samples. They show the device's own rate. None if they are fewer than half, since then the writer is about
/// as slow as the device; a single one may show a wait of the writer for cold memory.
fn busy(windows: &[Window]) -> Option<Vec<&Window>> {
    let full = full_queue(windows)?;
    let is_busy = |window: &&Window| {
        quantile(&window.under_way, 0.125).is_some_and(|low| low > 0.0 && low >= full / 16.0)
    };
    let busy: Vec<&Window> = windows.iter().filter(is_busy).collect();
    (!busy.is_empty() && 2 * busy.len() >= windows.len()).then_some(busy)
}

/// The rate of a flusher started by syncfs, between a tenth and nine tenths of the bytes.
fn flushed(bench: &mut Bench) -> anyhow::Result<Option<Estimate>> {
    let mut samples = Vec::new();
    let rounds = bench.rounds.0;
    let share = bench.bytes_left / (rounds as u64 + 1);
    let all = (background().0 * 3 / 4).min(bench.space / 2);
    let mut length = all.min(64 << 20).min(share);
    bench.repeat(|bench, _| {
        length = length.min(bench.bytes_left).max(CHUNK as u64) / CHUNK as u64 * CHUNK as u64;
        if length > bench.space || !bench.spend(length) {
            return Ok(());
        }
        bench.settle(length)?;
        let file = bench.scratch.file("flushed")?;
        let before = cawl_host::sample();
        let began = cawl_host::now();
        for chunk in 0..length / CHUNK as u64 {
            bench.write_run(&file, chunk * CHUNK as u64, CHUNK, CHUNK)?;
        }
        let wrote = since(began);
        let dirtied = before
            .zip(cawl_host::sample())
            .map(|(from, to)| to.dirtied.saturating_sub(from.dirtied) * cawl_host::page().0);
        let start = count(bench);
        let mut counts = Vec::new();
        let took = while_flushing(&file, || {
            counts.extend(count(bench));
            // Reading the counters takes a processor that the flusher may need.
            std::thread::sleep(std::time::Duration::from_millis(2));
        })?;
        // Includes what was written after the last sample.
        counts.extend(count(bench));
        drop(file);
        bench.scratch.remove("flushed");
        let Some(start) = start else { return Ok(()) };
        // The device's counter has finer steps, where it can be trusted.
        let counter = counts.last().map_or(Counter::Machine, |last| Counter::noted(bench, start, *last));
        let counted =
            |count: &Count| count.device.filter(|_| counter == Counter::Device).unwrap_or(count.pages);
        let reached = |part: f64| {
            let target = counted(&start) + (length as f64 * part) as u64;
            counts.iter().copied().find(|count| counted(count) >= target)
        };
        let middle = reached(0.1).zip(reached(0.9)).filter(|(from, to)| {
            // Some filesystems count pages in few large steps, which tell nothing about the time between.
            to.time.since(from.time).get() > 0.4 * took
        });
        let whole = counts.last().map(|last| (start, *last));
        // Leaves out counts that are mostly other programs'.
        let whole = whole.filter(|(from, to)| to.pages.saturating_sub(from.pages) >= length / 2);
        let ours = is_ours(dirtied, length, took, wrote);
        match middle.or(whole).filter(|_| ours) {
            Some((from, to)) => samples.extend(counter.rate(from, to)),
            None => bench.note(UNSEEN),
        }
        // The next burst is to take half a second, since a short one says little.
        let more = length as f64 * 0.5e9 / took.max(1e6);
        let most = all.min(share);
        length = (more as u64).clamp(length / 4, length * 4).min(most);
        Ok(())
    })?;
    // The first burst had another length.
    if samples.len() > rounds {
        samples.drain(..1);
    }
    Ok(Estimate::of(&samples))
}

const UNSEEN: &str = "a burst was not seen to be written back: this filesystem keeps its data in memory, \
                      passes them on in each call, or other programs wrote at the same time";

/// Pages that were not counted as dirty, or were clean sooner than their data can be read, were not written
/// back here; the counted bytes are then those of other programs.
fn is_ours(dirtied: Option<u64>, length: u64, took: f64, wrote: f64) -> bool {
    dirtied.is_some_and(|dirtied| dirtied >= length / 2) && took >= wrote / 8.0
}

/// Has the file's filesystem written back, and calls `meanwhile` until that is done. Returns the flusher's
/// time in ns.
fn while_flushing(file: &File, mut meanwhile: impl FnMut()) -> anyhow::Result<f64> {
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            let start = cawl_host::now();
            let done = nix::unistd::syncfs(file);
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

/// Pieces of a file, each written during the writeback of those before it; the first has none beside it.
const PIECES: u64 = 9;
/// The longest piece: as many bytes as the flusher takes of a file at a time on a machine of ordinary size.
const LONGEST_PIECE: u64 = 64 << 20;

/// The factor on the page cache's speed while the flusher works on the same file.
///
/// It must be the same file, since writer and flusher wait for each other there: ext4 locks its map of blocks
/// (`i_data_sem`) while it allocates, and a read of a block group's bitmap for that waits behind all requests
/// submitted before. The waits are long and rare, so the mean of a round counts, which has some of them.
///
/// The factor refers to the page cost measured without writeback, so that cost and factor together give the
/// cost found here; `transfer` is the device's time per byte, in ns.
///
/// The device's rate during this is a lower bound of the writeback rate (`beside`).
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
    // The largest calls; smaller ones for small pieces.
    let call = if piece >= 4 * LARGEST as u64 { LARGEST } else { CHUNK };
    let piece = piece as usize / call * call;
    if piece == 0 {
        return Ok(());
    }
    let (mut fresh, mut rates) = (Vec::new(), Vec::new());
    bench.repeat(|bench, _| {
        let length = PIECES * piece as u64;
        if !bench.spend(length) {
            return Ok(());
        }
        bench.settle(length)?;
        // Once without writeback, to warm the memory; the file is removed before it is written back.
        in_pieces(bench, piece, call, false)?;
        let flushed = in_pieces(bench, piece, call, true)?;
        fresh.push(flushed.fresh);
        // From the third piece on the device was always busy.
        if let (Some(from), Some(to)) = (flushed.counts.get(2), flushed.counts.last()) {
            rates.extend(Counter::noted(bench, *from, *to).rate(*from, *to));
        }
        Ok(())
    })?;
    found.beside = Estimate::of(&rates);
    found.factor = against(memory.fresh, &fresh);
    Ok(())
}

fn against(quiet: Option<Estimate>, costs: &[f64]) -> Option<Estimate> {
    let quiet = quiet?.value;
    let factors: Vec<f64> = costs.iter().map(|cost| (quiet / cost).clamp(0.05, 1.0)).collect();
    Estimate::of(&factors)
}

/// A file written in pieces.
struct InPieces {
    /// Mean cost per byte of all pieces but the first, in ns.
    fresh: f64,
    /// The counters when each piece was handed over.
    counts: Vec<Count>,
}

/// Writes a new file piece by piece; if `flushing`, each is written back while the next one is written.
fn in_pieces(bench: &Bench, piece: usize, call: usize, flushing: bool) -> anyhow::Result<InPieces> {
    let file = bench.scratch.file("pieces")?;
    let (hand_over, pieces) = std::sync::mpsc::channel::<u64>();
    let mut counts = Vec::new();
    let fresh = std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for at in pieces.into_iter().filter(|_| flushing) {
                // Starts writeback as the flusher does, and waits only for room in the queue.
                posix_fadvise(&file, at as i64, piece as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            }
            Ok::<(), nix::Error>(())
        });
        let mut fresh = 0.0;
        for index in 0..PIECES {
            let start = index * piece as u64;
            for at in (start..start + piece as u64).step_by(call) {
                bench.go_on()?;
                // Waits for a processor are included, since the flusher's work causes some of them.
                let began = cawl_host::now();
                bench.write_run(&file, at, call, call)?;
                fresh += if index > 0 { since(began) } else { 0.0 };
            }
            // Does not block: a writer waits for the flusher only within a call. An error of the other thread
            // is returned by `join`.
            if hand_over.send(start).is_err() {
                break;
            }
            counts.extend(count(bench));
        }
        drop(hand_over);
        flusher.join().map_err(|_| anyhow::anyhow!("the thread that flushes ended"))??;
        anyhow::Ok(fresh)
    })?;
    drop(file);
    bench.scratch.remove("pieces");
    let each = (PIECES - 1) as f64;
    Ok(InPieces { fresh: fresh / (each * piece as f64), counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_rate_that_has_not_moved_is_none() {
        assert!(base_rate(&[]).is_none() && base_rate(&[FIRST_RATE * 2.0, FIRST_RATE, FIRST_RATE]).is_none());
        let found = base_rate(&[FIRST_RATE, FIRST_RATE, 0.15, 0.16, 0.15]).unwrap();
        assert!((found.value - 0.15).abs() < 1e-9, "{found:?}");
    }

    /// Both counters while an emulated disk was written in circles for forty seconds, about every 50 ms:
    /// milliseconds, pages of the machine, pages of the device.
    const COUNTS: &str = include_str!("writeback-counts.txt");

    #[test]
    fn time_without_work_is_not_the_devices() {
        let at = |ms: f64, busy: f64, bytes| Count {
            time: Time(Nanos::millis(ms).get() as u64),
            pages: 0,
            device: Some(bytes),
            busy: Nanos::millis(busy).get(),
            under_way: 0,
        };
        let rate = |busy| Counter::Device.rate(at(0.0, 50.0, 0), at(100.0, 50.0 + busy, 8_000_000));
        assert_eq!(rate(70.0), Some(0.1));
        // Less than a tick is idle; a device that does not count its time.
        assert_eq!((rate(90.0), rate(110.0), rate(0.0)), (Some(0.08), Some(0.08), Some(0.08)));
    }

    /// The filesystem completed the writeback of 36 MiB at once.
    #[test]
    fn the_rate_is_the_devices_however_large_the_steps_of_the_filesystem() {
        let counts = COUNTS.lines().map(|line| {
            let mut figures = line.split(' ').map(|figure| figure.parse::<u64>().unwrap());
            let mut next = || figures.next().unwrap();
            let time = Time(next() * 1_000_000);
            Count {
                time,
                pages: next() * cawl_host::page().0,
                device: Some(next() * cawl_host::page().0),
                busy: 0.0,
                under_way: 0,
            }
        });
        let counts: Vec<Count> = counts.collect();
        // Largest deviation of 2.5 s from the 10 s around them, in which steps hardly show.
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
        // Also with a data journal, with a filesystem without a device, and with a device that counts
        // nothing.
        let plain =
            |device| Count { time: Time(1_000_000_000), pages: 100 << 20, device, busy: 0.0, under_way: 0 };
        let start = |device| Count { time: Time(0), pages: 0, device, busy: 0.0, under_way: 0 };
        for (before, after) in [(Some(0), Some(200 << 20)), (None, None), (Some(7), Some(7))] {
            assert_eq!(Counter::of(start(before), plain(after)), Counter::Machine);
        }
    }

    #[test]
    fn a_window_in_which_the_device_idled_does_not_count() {
        let count = Count { time: Time::default(), pages: 0, device: None, busy: 0.0, under_way: 0 };
        // A hundred samples, of which `emptied` show an empty queue.
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
