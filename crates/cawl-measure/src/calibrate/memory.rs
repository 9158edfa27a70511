//! The page cache: the cost of a write that waits for nothing.
//!
//! A round writes a new file in calls of each size, then the same bytes again, and fits lines through the
//! costs. Small calls: the slope is the copy from the processor's cache. Large calls: the slope is the copy
//! from memory, and that from the processor's cache where they have the same data each time. A file that
//! stays in that cache is written over in small calls: the intercept is the call, the slope the copy within
//! it. The files are removed before the flusher writes them, so nothing reaches the device.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_core::{Bytes, Estimate, Line, Measured, Modes, quantile};

use super::MIN_COPY;
use super::bench::{Bench, FROM_MEMORY, LARGEST, background, no_space, timed};
use super::interference::Stopwatch;

const SIZES: [usize; 7] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, LARGEST];
/// More than the caches of most processors hold, so that the pages of a rewritten file come from memory.
const LARGEST_FILE: u64 = 128 << 20;
/// Largest file of a brief calibration, in bytes.
const BRIEF_FILE: u64 = 16 << 20;
/// A call whose data the caches of most processors hold.
const HOT: usize = 1 << 20;
/// Calls of up to this size fit between two looks at fresh pages.
const SINGLE: usize = 64 << 10;
/// Calls are timed in groups of so many, or of so many bytes if that is less: reading the clock and the waits
/// for a processor leaves less of the data in the processor's caches.
const GROUP: usize = 64;
const GROUP_BYTES: usize = 1 << 20;
/// Bytes of a file that are written over, where it has more: more than the caches of most processors hold.
const REWRITTEN: usize = 64 << 20;
const PAGE: f64 = 4096.0;

/// Fewest calls into a file.
const CALLS: usize = 2048;
/// Fewest bytes of a file for calls of this size: calls of less than a page would take too long for so many.
const fn least(size: usize) -> usize {
    if size < PAGE as usize { 0 } else { REWRITTEN }
}

/// What the page cache costs: times per byte and per call, in ns.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Per byte of new pages on warm memory.
    pub fresh: Option<Estimate>,
    /// Per byte of new pages on cold memory.
    pub cold: Option<Estimate>,
    /// Part of the samples of new pages that met cold memory.
    pub cold_share: Option<Measured<f64>>,
    /// Per byte, of cached pages.
    pub cached: Option<Estimate>,
    /// Per byte, from the processor's cache into cached pages.
    pub hot: Option<Estimate>,
    /// Per byte, from the processor's cache into cached pages, in large calls.
    pub hot_large: Option<Estimate>,
    /// Largest call whose data come from the processor's cache.
    pub hot_size: Option<Bytes>,
    /// Per byte, from the processor's cache into pages that are in it, too.
    pub near: Option<Estimate>,
    /// Per call.
    pub call: Option<Estimate>,
    /// Per call of no bytes.
    pub empty: Option<Estimate>,
    /// Per new folio, without its pages.
    pub folio: Option<Estimate>,
    /// Of a write into new pages apart from the latest ones of its file.
    pub jump: Option<Estimate>,
    /// Of a page of its own folio that is written over for the first time.
    pub over: Option<Estimate>,
    /// Of a page of its own folio that leaves the cache, and was never on the device.
    pub free: Option<Estimate>,
}

/// Measures the page cache.
pub fn measure(bench: &mut Bench) -> anyhow::Result<Memory> {
    // A round's file stays below the background limit.
    let largest = if bench.brief { BRIEF_FILE } else { LARGEST_FILE };
    let most = (background().0 / 2).min(bench.space / 2).min(largest) as usize;
    let mut rounds: Vec<Round> = Vec::new();
    let mut first = None;
    let mut pages = Vec::new();
    bench.repeat(|bench, index| {
        let drops = cawl_host::page_cache_drops();
        let round = round(bench, index, most, &mut pages)?;
        // The first round also warms memory and code.
        if index == 0 {
            first = Some(round);
        } else if !bench.cache_was_dropped(drops) {
            rounds.push(round);
        }
        Ok(())
    })?;
    if rounds.is_empty() {
        rounds.extend(first);
    }
    let (mut memory, notes) = found(&rounds, pages, bench.has_single_pages());
    // The data of a brief calibration fit that cache themselves.
    memory.hot_size = memory.hot_size.filter(|_| !bench.brief);
    notes.iter().for_each(|note| bench.note(note));
    Ok(memory)
}

/// What the rounds and the looks at new pages tell, and remarks. Of a line that is cheaper than any memory
/// nothing is believed: a copy from memory takes half of one within the processor's cache or more, and one
/// into new pages half of one over cached pages or more.
fn found(rounds: &[Round], pages: Vec<f64>, single: bool) -> (Memory, Vec<String>) {
    let mut notes = Vec::new();
    let mut slopes = |name: &str, lines: &[Line], least: f64| {
        let all = lines.iter().map(|line| line.slope);
        let slopes: Vec<f64> = all.filter(|slope| *slope >= least.max(MIN_COPY)).collect();
        if slopes.len() < lines.len() {
            notes.push(format!(
                "{name}: {} of {} rounds are left out, with a rate that no memory has; other programs may have run \
                 meanwhile",
                lines.len() - slopes.len(),
                lines.len()
            ));
        }
        Estimate::of(&slopes)
    };
    let half = |of: &Option<Estimate>| of.map_or(0.0, |of| of.value / 2.0);
    let near: Vec<Line> = rounds.iter().filter_map(|round| small(&round.near)).collect();
    let calls: Vec<f64> = near.iter().map(|line| line.intercept).collect();
    let near = slopes("memory.near", &near, 0.0);
    let lines: Vec<Line> = rounds.iter().filter_map(|round| large(&round.cached)).collect();
    let cached = slopes("memory.cached", &lines, half(&near));
    let again: Vec<Line> = rounds.iter().filter_map(|round| large_hot(&round.again)).collect();
    let again = slopes("memory.hot_large", &again, half(&near));
    let pages = possible(pages, cached.map(|cached| cached.value * PAGE));
    let modes = Modes::of(&pages);
    // The border between the two modes, for runs of calls.
    let ends = quantile(&modes.low, 0.5).zip(quantile(&modes.high, 0.5));
    let border = ends.map_or(f64::INFINITY, |(low, high)| (low * high).sqrt() / PAGE);
    let warm = |round: &Round| -> Option<Line> {
        let mut points = round.fresh.clone();
        points.retain(|(size, time)| *size < PAGE || time / size < border);
        large(&points)
    };
    let fresh: Vec<Line> = rounds.iter().filter_map(warm).collect();
    let fresh = slopes("memory.fresh", &fresh, half(&cached).max(half(&near)));
    if let Some((low, high)) = ends {
        notes.push(format!(
            "cold memory: {} of {} looks at fresh pages cost {:.1} µs a page, the others {:.2} µs; a host that takes \
             free memory back does that",
            modes.high.len(),
            pages.len(),
            high / 1e3,
            low / 1e3
        ));
    }
    // If every round met cold memory, the warm pages of all rounds are taken.
    let warm_pages: Vec<f64> = modes.low.iter().map(|page| page / PAGE).collect();
    // Of cached pages, so without the cost of an allocation.
    let hot: Vec<f64> = rounds.iter().filter_map(hot).filter(|byte| *byte >= MIN_COPY).collect();
    let folios: Vec<f64> = rounds.iter().filter_map(|round| folio(round, border, single)).collect();
    let empty: Vec<f64> = rounds.iter().map(|round| round.empty).collect();
    let jumps: Vec<f64> = rounds.iter().filter_map(|round| round.jump).collect();
    let over: Vec<f64> = rounds.iter().filter_map(|round| round.over).collect();
    let free: Vec<f64> = rounds.iter().filter_map(|round| round.free).collect();
    let memory = Memory {
        fresh: fresh.or_else(|| Estimate::of(&warm_pages)),
        cold_share: (!pages.is_empty()).then(|| Measured {
            value: modes.high.len() as f64 / pages.len() as f64,
            p10: None,
            p90: None,
            samples: u32::try_from(pages.len()).unwrap_or(u32::MAX),
        }),
        cold: Estimate::of(&modes.high.iter().map(|page| page / PAGE).collect::<Vec<_>>()),
        cached,
        hot: Estimate::of(&hot),
        hot_large: again,
        hot_size: hot_size(rounds),
        near,
        call: Estimate::of(&calls),
        empty: Estimate::of(&empty),
        folio: Estimate::of(&folios),
        jump: Estimate::of(&jumps),
        over: Estimate::of(&over),
        free: Estimate::of(&free),
    };
    (memory, notes)
}

/// Cost of a call, in ns, for each size.
#[derive(Debug, Default)]
struct Round {
    fresh: Vec<(f64, f64)>,
    cached: Vec<(f64, f64)>,
    /// Of cached pages with the same data each time.
    again: Vec<(f64, f64)>,
    near: Vec<(f64, f64)>,
    /// Of a call without bytes.
    empty: f64,
    jump: Option<f64>,
    over: Option<f64>,
    free: Option<f64>,
}

/// Looks at new pages without those that took less than half of what a copy over a cached page does: on a
/// busy machine more may be told as a wait for a processor than was one (`Stopwatch`). Such
/// looks would be a mode of their own, and all others would count as cold.
fn possible(mut pages: Vec<f64>, copy: Option<f64>) -> Vec<f64> {
    let least = copy.map_or(MIN_COPY * PAGE, |copy| copy / 2.0);
    pages.retain(|page| *page >= least);
    pages
}

/// The line through the calls whose data come from memory; its slope is the copy.
fn large(points: &[(f64, f64)]) -> Option<Line> {
    line(points, |size| size >= FROM_MEMORY as f64)
}

/// The line through the calls whose data come from the processor's cache.
fn small(points: &[(f64, f64)]) -> Option<Line> {
    line(points, |size| size < FROM_MEMORY as f64)
}

/// The line through calls of `SINGLE` bytes and more, but for the largest, whose data caches may not hold.
fn large_hot(points: &[(f64, f64)]) -> Option<Line> {
    line(points, |size| size >= SINGLE as f64 && size < LARGEST as f64)
}

/// The largest call that takes less time with the same data each time, by at least half of what one of 1 MiB
/// does.
fn hot_size(rounds: &[Round]) -> Option<Bytes> {
    let saving = |size: usize| {
        let of = |points: &[(f64, f64)]| {
            points.iter().find(|(found, _)| *found == size as f64).map(|(_, time)| *time)
        };
        let parts = rounds.iter().filter_map(|round| Some(1.0 - of(&round.again)? / of(&round.cached)?));
        quantile(&parts.collect::<Vec<_>>(), 0.5)
    };
    let least = saving(HOT)?.max(0.0) / 2.0;
    let largest = SIZES.into_iter().filter(|size| *size > HOT).take_while(|size| saving(*size) > Some(least));
    largest.last().or(Some(HOT)).map(|size| Bytes(size as u64))
}

fn line(points: &[(f64, f64)], counts: impl Fn(f64) -> bool) -> Option<Line> {
    Line::through(&points.iter().copied().filter(|(size, _)| counts(*size)).collect::<Vec<_>>())
}

/// What a byte takes of the calls whose data come from the processor's cache, into pages that do not, in the
/// mean: of a small call more than the line through all tells, since the first bytes of a page wait longest.
fn hot(round: &Round) -> Option<f64> {
    let call = small(&round.near)?.intercept;
    let of = |(size, time): &(f64, f64)| (time - call).max(0.0) / size;
    let all: Vec<f64> = small_calls(&round.cached).map(of).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// Those of whole pages whose data come from the processor's cache.
fn small_calls(points: &[(f64, f64)]) -> impl Iterator<Item = &(f64, f64)> {
    points.iter().filter(|(size, _)| (PAGE..FROM_MEMORY as f64).contains(size))
}

/// What a folio takes beyond its pages: of calls of one folio each, or of one a page if `single`, into new
/// pages, what is left without the call, the copy and the pages; only warm pages, at less than `border` per
/// byte.
fn folio(round: &Round, border: f64, single: bool) -> Option<f64> {
    let call = small(&round.near)?.intercept;
    let pages = (large(&round.fresh)?.slope - large(&round.cached)?.slope).max(0.0);
    let byte = hot(round)? + pages;
    let warm = |(size, time): &&(f64, f64)| *size < SINGLE as f64 || time / size < border;
    let folios = |size: f64| if single { size / PAGE } else { 1.0 };
    let rest = |(size, time): &(f64, f64)| (time - call - size * byte) / folios(*size);
    let all: Vec<f64> = small_calls(&round.fresh).filter(warm).map(rest).collect();
    Some(quantile(&all, 0.5)?.max(0.0))
}

/// Bytes that a call of this size counts as: where each page is a folio of its own, all of each page.
fn copied(bench: &Bench, size: usize) -> f64 {
    let size = size as f64;
    if bench.has_single_pages() { size.max(PAGE) } else { size }
}

fn round(bench: &mut Bench, index: usize, most: usize, pages: &mut Vec<f64>) -> anyhow::Result<Round> {
    let mut round = Round::default();
    for step in 0..SIZES.len() {
        // Another order in every round, so that no size always follows the same one.
        let size = SIZES[(step * 3 + index) % SIZES.len()];
        let length = (size * CALLS).max(least(size)).min(most).max(size) / size * size;
        if length > most {
            continue;
        }
        bench.go_on()?;
        bench.settle(length as u64)?;
        let file = bench.scratch.file("memory")?;
        let usual = |file: &File, at, bytes| bench.write_run(file, at, bytes, size);
        let fresh = typical_call(bench, &file, length, size, Some(pages), usual)?;
        let length = length.min(REWRITTEN / size * size);
        if !bench.brief {
            // The second access to a folio puts it on another list (`folio_mark_accessed`, 6.18), the later
            // ones do not.
            typical_call(bench, &file, length, size, None, usual)?;
        }
        let cached = typical_call(bench, &file, length, size, None, usual)?;
        let same = |file: &File, at, bytes| bench.write_from(size, file, at, bytes, size);
        let again =
            if size < FROM_MEMORY { cached } else { typical_call(bench, &file, length, size, None, same)? };
        drop(file);
        bench.scratch.remove("memory");
        if copied(bench, size) == size as f64 {
            round.fresh.push((size as f64, fresh));
            round.cached.push((size as f64, cached));
            round.again.push((size as f64, again));
        }
    }
    near(bench, &mut round)?;
    if let Some([jump, over, free]) = jump(bench, most)? {
        (round.jump, round.free) = (Some(jump), Some(free));
        round.over = bench.has_single_pages().then_some(over);
    }
    Ok(round)
}

/// Bytes of a file that stays in the processor's cache beside the data to write, in the second level of most.
const NEAR: usize = 128 << 10;
/// Times that it is written over in calls of each size.
const REWRITES: usize = 16;

/// What a call costs over cached pages in the processor's cache: of each size, and of no bytes.
fn near(bench: &mut Bench, round: &mut Round) -> anyhow::Result<()> {
    let file = bench.scratch.file("near")?;
    bench.write_run(&file, 0, NEAR, SINGLE)?;
    let mut empty = Vec::with_capacity(REWRITES);
    for _ in 0..REWRITES {
        let watch = Stopwatch::start();
        for at in (0..NEAR).step_by(PAGE as usize) {
            file.write_at(&[], at as u64)?;
        }
        empty.push(watch.elapsed() / (NEAR / PAGE as usize) as f64);
    }
    round.empty = usual_mean(&empty);
    for size in SIZES.into_iter().filter(|size| *size <= SINGLE) {
        bench.go_on()?;
        let mut times = Vec::with_capacity(REWRITES);
        for _ in 0..REWRITES {
            times.push(bench.write_run(&file, 0, NEAR, size)? / (NEAR / size) as f64);
        }
        round.near.push((copied(bench, size), usual_mean(&times)));
    }
    drop(file);
    bench.scratch.remove("near");
    Ok(())
}

/// Pages of a file that are written apart from each other: all of the file of a brief calibration.
const JUMPS: usize = BRIEF_FILE as usize / PAGE as usize;

/// What a page costs longer that lies apart from the one written before: the pages of a file in an order
/// without a pattern, against those of another one in sequence. And what each of them costs longer when it is
/// written over for the first time than the second time, in that order; and what it costs to free one.
fn jump(bench: &mut Bench, most: usize) -> anyhow::Result<Option<[f64; 3]>> {
    let size = PAGE as usize;
    if JUMPS * size > most {
        return Ok(None);
    }
    bench.go_on()?;
    bench.settle((JUMPS * size) as u64)?;
    let mut order: Vec<usize> = (0..JUMPS).collect();
    let mut costs = [0.0; 4];
    let [in_sequence, apart @ ..] = &mut costs;
    let free = write_pages(bench, &order, std::slice::from_mut(in_sequence))?;
    // A regular order would be foreseen by the processor.
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    // Within the same time, so what disturbs the one mostly disturbs the other.
    write_pages(bench, &order, apart)?;
    let [in_sequence, apart, over, again] = costs;
    Ok(Some([apart - in_sequence, over - again, free].map(|more| more.max(0.0))))
}

/// Writes these pages of a new file again and again; what one costs each time, and what it costs to free one.
fn write_pages(bench: &mut Bench, order: &[usize], costs: &mut [f64]) -> anyhow::Result<f64> {
    let size = PAGE as usize;
    let file = bench.scratch.file("jump")?;
    for cost in costs {
        let mut times = Vec::with_capacity(JUMPS / GROUP);
        for group in order.chunks(GROUP) {
            let watch = Stopwatch::start();
            for at in group {
                let data = &bench.data.bytes()[..size];
                file.write_all_at(data, (at * size) as u64).with_context(no_space)?;
            }
            times.push(watch.elapsed() / group.len() as f64);
        }
        *cost = quantile(&times, 0.5).unwrap_or(f64::NAN);
    }
    let freed = timed(|| Ok(file.set_len(0)?))?;
    drop(file);
    bench.scratch.remove("jump");
    Ok(freed / order.len() as f64)
}

/// Cost of a call in a run: the mean of single calls, or of short groups of small ones. Samples of pages are
/// added to `pages`.
fn typical_call(
    bench: &Bench,
    file: &File,
    length: usize,
    size: usize,
    pages: Option<&mut Vec<f64>>,
    write: impl Fn(&File, u64, usize) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let group = (GROUP_BYTES / size).clamp(1, GROUP);
    let mut times = Vec::with_capacity(length / size / group);
    for start in (0..length).step_by(size * group) {
        bench.go_on()?;
        let bytes = (length - start).min(size * group);
        let time = write(file, start as u64, bytes)?;
        times.push(time / (bytes / size) as f64);
    }
    if let Some(pages) = pages.filter(|_| size >= SINGLE) {
        // One sample for each 64 KiB. Large calls allocate large folios, and only large blocks of free memory
        // are ever cold.
        let looks = times.iter().map(|time| time / (size as f64 / PAGE));
        pages.extend(looks.flat_map(|look| std::iter::repeat_n(look, group * size / SINGLE)));
    }
    Ok(usual_mean(&times))
}

/// The mean of the times up to twice the median. The kernel's occasional work (a tick, a refilled list, a
/// tree node) is part of the cost of calls, and the median leaves it out; a time without a processor is not
/// part of it.
pub fn usual_mean(times: &[f64]) -> f64 {
    let most = 2.0 * quantile(times, 0.5).unwrap_or(f64::NAN);
    let (sum, count) =
        times.iter().filter(|time| **time <= most).fold((0.0, 0.0), |(sum, n), time| (sum + time, n + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_no_processor_can_do_are_no_warm_pages() {
        // Of 0.8 µs most, some of 0.1, where a copy over a cached page takes 0.3.
        let looks: Vec<f64> = (0..100).map(|at| if at % 7 == 0 { 100.0 } else { 800.0 }).collect();
        assert!(!Modes::of(&looks).high.is_empty());
        let modes = Modes::of(&possible(looks.clone(), Some(300.0)));
        assert!(modes.high.is_empty() && modes.low.iter().all(|page| *page == 800.0));
        assert_eq!(possible(looks, None).len(), 100);
        assert!(possible(vec![2.0], None).is_empty());
    }

    /// A round whose calls take these ns a byte: over cached pages, into new ones.
    fn round_of(cached: f64, fresh: f64) -> Round {
        let of = |byte: f64, sizes: &[usize]| -> Vec<(f64, f64)> {
            sizes.iter().map(|size| (*size as f64, 300.0 + *size as f64 * byte)).collect()
        };
        let near = of(0.02, &SIZES[..4]);
        Round { fresh: of(fresh, &SIZES), cached: of(cached, &SIZES), near, ..Round::default() }
    }

    #[test]
    fn a_rate_that_no_memory_has_is_refused() {
        let good = || round_of(0.1, 0.2);
        let value = |of: Option<Estimate>| of.map(|of| ((of.value * 1e3).round() / 1e3, of.samples));
        let (memory, notes) = found(&[good(), good()], vec![800.0; 9], true);
        assert_eq!((value(memory.fresh), value(memory.cached)), (Some((0.2, 2)), Some((0.1, 2))));
        assert_eq!(notes, Vec::<String>::new());

        // Two rounds as of a busy machine: one flat, the other with new pages of 202 GB/s in their median.
        let flat = |cached: f64, fresh: f64| [round_of(cached, 0.0), round_of(cached, fresh)];
        let (memory, notes) = found(&flat(0.1, 0.0099), vec![800.0, 820.0, 1.0], true);
        assert_eq!(value(memory.fresh), Some((0.198, 2)), "the warm pages stand for it");
        assert!(notes.iter().any(|note| note.starts_with("memory.fresh: 2 of 2 rounds")), "{notes:?}");
        assert_eq!(value(found(&flat(0.1, 0.0099), vec![1.0; 9], true).0.fresh), None);
        let [odd, usual] = flat(0.1, 0.2);
        assert_eq!(value(found(&[odd, usual], Vec::new(), true).0.fresh), Some((0.2, 1)));

        // Where no copy over cached pages is possible either, the one in the processor's cache bounds both.
        let (memory, notes) = found(&flat(0.001, 0.006), vec![8.0; 9], true);
        assert_eq!((memory.fresh, memory.cached), (None, None));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(found(&[Round::default()], Vec::new(), true).0.fresh.is_none());
    }

    #[test]
    fn regular_work_counts_and_interruptions_do_not() {
        // Every tenth group has a tick in it; once another program ran.
        let mut times: Vec<f64> = (0..40).map(|at| if at % 10 == 3 { 1500.0 } else { 1000.0 }).collect();
        times.push(5e6);
        assert!((usual_mean(&times) - 1050.0).abs() < 1e-6);
        assert_eq!(usual_mean(&[700.0]), 700.0);
        assert!(usual_mean(&[]).is_nan());
    }
}
