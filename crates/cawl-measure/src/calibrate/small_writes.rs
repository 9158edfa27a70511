//! Small writes and their durability: the parts of an fsync, and the additional cost of the first write after
//! one.
//!
//! An append followed by fdatasync costs latency and commit; the same block again costs latency and a flush
//! of the device's cache; without a write the flush alone remains. Between them are single writes: the first
//! one into a clean inode, compared with the next one. Writes and waits that come after other work take
//! longer, by the square root of its time, so a line through zero fits them.

use std::fs::File;
use std::iter::Cycle;
use std::os::unix::fs::FileExt;
use std::slice::ChunksExact;

use cawl_core::{Bytes, Estimate, Nanos, median, quantile};

use super::bench::{Bench, since, timed};

const PAGE: usize = 4096;
/// Calls of each kind in a round.
const CALLS: usize = 16;
/// A file of large folios, larger than the caches of most processors; a round writes to VISITS of its FOLIOS
/// folios.
const FOLIO: usize = 1 << 20;
const FOLIOS: usize = 48;
const VISITS: usize = 6;
/// Folios of a file the descriptions of whose blocks are more than a processor's cache may hold.
const MANY_FOLIOS: usize = 256;
/// Folios from one visit to the next: odd, so that each has its turn.
const STRIDE: usize = 99;
/// Times of other work between calls, and calls after each.
const WHILES: [(Nanos, usize); 2] = [(Nanos::millis(0.1), CALLS), (Nanos::millis(1.0), CALLS / 2)];
/// A shorter time of other work between calls, and calls after it.
const SOON: (Nanos, usize) = (Nanos::millis(0.01), 2 * CALLS);
/// Pages of a wait for many folios, and requests of one for scattered pages; calls of each kind in a round.
const MANY: usize = 64;
const SCATTERED: usize = 16;
const REPEATS: usize = 4;
/// Bytes of a file that is cut off.
const DISCARDED: usize = 8 << 20;
/// Pages that are cut off alone.
const PAGES_CUT: usize = 8;
/// Bytes changed by the other work: more than a processor's own cache holds.
const ELSEWHERE: usize = 2 << 20;

/// Fixed parts of costs, in ns.
#[derive(Clone, Debug, Default)]
pub struct Durable {
    /// Of a wait for data submitted just before, without the transfer.
    pub latency: Rounds,
    /// Of an fsync with a commit, without the latency.
    pub commit: Rounds,
    /// Of an fsync with nothing to commit.
    pub flush: Rounds,
    /// Of a write into a clean inode, compared with a dirty one.
    pub inode: Rounds,
    /// Of a write over a clean page, compared with a dirty one.
    pub clean: Rounds,
    /// Of a write after a millisecond of other work.
    pub away: Rounds,
    /// Of a write after ten microseconds of other work.
    pub away_soon: Rounds,
    /// Of a wait after the device was idle for a millisecond.
    pub idle: Rounds,
    /// Per byte of a large folio that a small write makes dirty as a whole.
    pub folio: Rounds,
    /// Of each block of a large folio that a small write passes, with its description in the processor's
    /// cache or in memory.
    pub block: Rounds,
    pub block_far: Rounds,
    /// Of each block that a small write passes, at random places of [`MANY_FOLIOS`] folios.
    pub block_random: Vec<f64>,
    /// Of each folio beyond the first that a wait hands over.
    pub handed: Rounds,
    /// Of each request beyond the first of a wait.
    pub request: Rounds,
    /// Per byte that the device discards in the call that frees it.
    pub discard: Vec<f64>,
    /// The same of a page, as a whole.
    pub discard_latency: Vec<f64>,
}

/// A sample of each round.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<f64>);

impl Durable {
    /// Bytes of a file of which every second block's description is in the processor's cache.
    pub fn block_cache(&self) -> Option<Bytes> {
        let value = |rounds: &Rounds| rounds.difference().map(|found| found.value);
        let (near, far, random) = (value(&self.block)?, value(&self.block_far)?, median(&self.block_random)?);
        // Beyond these parts it is a guess.
        let out = ((random - near) / (far - near)).clamp(0.02, 0.98);
        out.is_finite().then(|| Bytes::from_f64(cawl_core::block_cache((MANY_FOLIOS * FOLIO) as f64, out)))
    }
}

impl Rounds {
    fn push(&mut self, sample: f64) {
        self.0.push(sample.max(0.0));
    }

    /// The mean of the rounds with their percentiles: predicted is the sum of waits, which the mean gives and
    /// a median does not.
    pub fn mean(&self) -> Option<Estimate> {
        let value = self.0.iter().sum::<f64>() / self.0.len() as f64;
        Estimate::of(&self.0).map(|found| Estimate { value, ..found })
    }

    /// The mean of small differences of waits: each round may be below zero, what they say together is not.
    pub fn difference(&self) -> Option<Estimate> {
        let Estimate { value, p10, p90, .. } = self.mean()?;
        let [value, p10, p90] = [value, p10, p90].map(|time| time.max(0.0));
        Estimate::of(&self.0).map(|found| Estimate { value, p10, p90, ..found })
    }
}

/// Measures them; `per_byte` is the time of a synchronous transfer and `seek` that of a seek, in ns.
pub fn measure(bench: &mut Bench, per_byte: f64, seek: f64) -> anyhow::Result<Durable> {
    let mut samples = Durable::default();
    discards(bench, &mut samples)?;
    let folios = large_folios(bench)?;
    blocks(bench, &mut samples)?;
    bench.repeat(|bench, index| {
        if !bench.spend((10 * CALLS * PAGE) as u64) {
            return Ok(());
        }
        let names = ["durable", "beside"].map(|name| format!("{name}-{index}"));
        let (file, beside) = (bench.scratch.file(&names[0])?, bench.scratch.file(&names[1])?);
        let plain = round(bench, &file, &beside, PAGE as f64 * per_byte, &mut samples)?;
        names.iter().for_each(|name| bench.scratch.remove(name));
        pieces(bench, index, per_byte, seek, &mut samples)?;
        let Some(folios) = &folios else { return Ok(()) };
        let visit = |at: usize| {
            let place = (index * VISITS + at) % FOLIOS * FOLIO + FOLIO / 2;
            bench.write_run(folios, place as u64, PAGE, PAGE)
        };
        let first = undisturbed(&(0..VISITS).map(visit).collect::<anyhow::Result<Vec<f64>>>()?);
        let passed = samples.block.mean().map_or(0.0, |block| block.value / PAGE as f64);
        samples.folio.push((first - plain) / (FOLIO - PAGE) as f64 - passed);
        Ok(folios.sync_data()?)
    })?;
    bench.scratch.remove("folios");
    Ok(samples)
}

/// Cuts off a file that is on the device, and one that is not: where the call discards the blocks.
fn discards(bench: &mut Bench, samples: &mut Durable) -> anyhow::Result<()> {
    let waits = bench.place.lacks_journal && bench.place.options.split(',').any(|option| option == "discard");
    if !waits {
        return Ok(());
    }
    let file = bench.scratch.file("discarded")?;
    for _ in 0..=bench.rounds.0 {
        if !bench.spend(DISCARDED as u64) {
            break;
        }
        bench.go_on()?;
        let cut = |bytes: usize, on_device: bool| {
            bench.write_run(&file, 0, bytes, bytes.min(FOLIO))?;
            if on_device {
                file.sync_data()?;
            }
            timed(|| Ok(file.set_len(0)?))
        };
        let few = (0..PAGES_CUT).map(|_| Ok(cut(PAGE, true)? - cut(PAGE, false)?));
        samples.discard_latency.extend(few.collect::<anyhow::Result<Vec<f64>>>()?);
        samples.discard.push((cut(DISCARDED, true)? - cut(DISCARDED, false)?) / DISCARDED as f64);
    }
    bench.scratch.remove("discarded");
    Ok(())
}

/// Writes of a page into the dirty folios of a large file: again and again into the same one, into all of
/// them at random, and after the processor's caches were swept.
fn blocks(bench: &mut Bench, samples: &mut Durable) -> anyhow::Result<()> {
    let length = MANY_FOLIOS * FOLIO;
    let limits = cawl_host::uncalibrated_profile().kernel.limits;
    // Nothing of it is to be written back meanwhile.
    if length as u64 > limits.background.0 / 2 || bench.space < length as u64 || !bench.spend(length as u64) {
        return Ok(());
    }
    let (file, single) = (bench.scratch.file("blocks")?, bench.scratch.file("single")?);
    bench.write_run(&file, 0, length, FOLIO)?;
    bench.write_run(&single, 0, PAGE, PAGE)?;
    let data = bench.data.bytes();
    let sweep = || {
        let swept = data.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>();
        std::hint::black_box(swept);
    };
    let write =
        |file: &File, at: usize| plainly(|| Ok(file.write_all_at(&data[..PAGE], (at * PAGE) as u64)?));
    let middle = |times: Vec<f64>| quantile(&times, 0.5).unwrap_or(f64::NAN);
    let pages = FOLIO / PAGE;
    let mut place = 0;
    for round in 0..REPEATS {
        bench.go_on()?;
        let [mut same, mut alone, mut cold] = [const { Vec::new() }; 3];
        for at in 0..CALLS {
            same.push(write(&file, round * pages + at)?);
            alone.push(write(&single, 0)?);
        }
        let (same, alone) = (middle(same), middle(alone));
        // The first visits bring their blocks' descriptions into the cache.
        let mut visit = || {
            place = (place + STRIDE) % MANY_FOLIOS;
            write(&file, place * pages + round)
        };
        for _ in 0..MANY_FOLIOS {
            visit()?;
        }
        let random = middle((0..MANY_FOLIOS).map(|_| visit()).collect::<anyhow::Result<Vec<f64>>>()?);
        let mut cold_alone = Vec::new();
        for at in 0..VISITS {
            sweep();
            cold.push(write(&file, (round * VISITS + at) * pages)?);
            sweep();
            cold_alone.push(write(&single, 0)?);
        }
        let others = (pages - 1) as f64;
        let [near, random, far] =
            [same - alone, random - alone, middle(cold) - middle(cold_alone)].map(|more| more / others);
        samples.block.0.push(near);
        samples.block_far.0.push(far);
        samples.block_random.push(random);
    }
    ["blocks", "single"].iter().for_each(|name| bench.scratch.remove(name));
    Ok(())
}

/// A clean file of large folios; None if the budget does not allow it.
fn large_folios(bench: &mut Bench) -> anyhow::Result<Option<File>> {
    if bench.space < (FOLIOS * FOLIO) as u64 || !bench.spend((FOLIOS * FOLIO) as u64) {
        return Ok(None);
    }
    let file = bench.scratch.file("folios")?;
    bench.write_run(&file, 0, FOLIOS * FOLIO, FOLIO)?;
    file.sync_data()?;
    Ok(Some(file))
}

/// One round in two new files; `transfer` is that of a page. Returns the cost of a write over a dirty page.
fn round(
    bench: &Bench,
    file: &File,
    beside: &File,
    transfer: f64,
    samples: &mut Durable,
) -> anyhow::Result<f64> {
    let write = |file: &File, page: usize| bench.write_run(file, (page * PAGE) as u64, PAGE, PAGE);
    let durable = || timed(|| Ok(file.sync_data()?));
    let times = |mut call: Box<dyn FnMut() -> anyhow::Result<f64> + '_>| {
        bench.go_on()?;
        (0..CALLS).map(|_| call()).collect::<anyhow::Result<Vec<f64>>>().map(|times| undisturbed(&times))
    };
    // Allocates the file's first block, and dirties the page that stays dirty.
    write(file, 0)?;
    durable()?;
    write(beside, 0)?;
    let plain = times(Box::new(|| write(beside, 0)))?;
    let warm = times(Box::new(|| plainly(|| Ok(beside.write_all_at(&bench.data.bytes()[..PAGE], 0)?))))?;
    let [mut commits, mut first, mut next] = [(); 3].map(|()| Vec::with_capacity(CALLS));
    for page in (1..).step_by(3).take(CALLS) {
        bench.go_on()?;
        write(file, page)?;
        commits.push(durable()?);
        // The first write after a wait takes longer, and so does the first that allocates pages.
        write(beside, page)?;
        first.push(write(file, page + 1)?);
        next.push(write(file, page + 2)?);
        durable()?;
    }
    let [commit, first, next] = [commits, first, next].map(|times| undisturbed(&times));
    // The pages of both loops above are clean at first, and dirty when they are written over once more.
    write(file, 0)?;
    let over = || {
        bench.go_on()?;
        let page = &bench.data.bytes()[..PAGE];
        let over = |at: usize| plainly(|| Ok(file.write_all_at(page, (at * PAGE) as u64)?));
        (1..3 * CALLS).map(over).collect::<anyhow::Result<Vec<f64>>>().map(|times| undisturbed(&times))
    };
    samples.clean.push(over()? - over()?);
    durable()?;
    let again = times(Box::new(|| {
        write(file, 0)?;
        durable()
    }))?;
    let flush = times(Box::new(durable))?;
    let latency = (again - flush - transfer).max(0.0);
    samples.latency.push(latency);
    samples.flush.push(flush);
    samples.commit.push(commit - latency - transfer);
    samples.inode.push(first - next);
    let mut work = OtherWork::new(bench);
    let mut longer = [(); 2].map(|()| Vec::with_capacity(WHILES.len()));
    let mut beside = || Ok(beside.write_all_at(&bench.data.bytes()[..PAGE], 0)?);
    samples.away_soon.push(work.calls_after(bench, SOON, &mut beside)? - warm);
    for (away, calls) in WHILES {
        let written = work.calls_after(bench, (away, calls), &mut beside)?;
        let mut waits = Vec::with_capacity(calls);
        // Apart from the writes, as a wait would be a part of the time before a write.
        for _ in 0..calls {
            bench.go_on()?;
            work.go_on_for(away);
            write(file, 0)?;
            waits.push(durable()?);
        }
        let grown = (away.get() / 1e6).sqrt();
        longer[0].push((grown, written - warm));
        longer[1].push((grown, undisturbed(&waits) - again));
    }
    samples.away.push(through_zero(&longer[0]));
    samples.idle.push(through_zero(&longer[1]));
    Ok(plain)
}

/// Where nothing waits: what a write takes longer after other work, alone.
pub fn away(bench: &mut Bench) -> anyhow::Result<Durable> {
    let mut found = Durable::default();
    bench.repeat(|bench, index| {
        let name = format!("away-{index}");
        let file = bench.scratch.file(&name)?;
        let mut write = || -> anyhow::Result<()> { Ok(file.write_all_at(&bench.data.bytes()[..PAGE], 0)?) };
        found.away.push(after_work(bench, &mut write)?);
        let warm = undisturbed(&(0..CALLS).map(|_| plainly(write)).collect::<anyhow::Result<Vec<f64>>>()?);
        let soon = OtherWork::new(bench).calls_after(bench, SOON, &mut write)?;
        found.away_soon.push(soon - warm);
        bench.scratch.remove(&name);
        Ok(())
    })?;
    Ok(found)
}

/// What a call takes longer after a millisecond of other work.
pub fn after_work(bench: &Bench, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    call()?;
    let warm = undisturbed(&(0..CALLS).map(|_| plainly(&mut call)).collect::<anyhow::Result<Vec<f64>>>()?);
    let mut work = OtherWork::new(bench);
    let mut longer = Vec::with_capacity(WHILES.len());
    for of in WHILES {
        longer.push(((of.0.get() / 1e6).sqrt(), work.calls_after(bench, of, &mut call)? - warm));
    }
    Ok(through_zero(&longer))
}

/// Waits for the same pages in many folios and in one, and for scattered pages, all of them over blocks that
/// the file has.
fn pieces(
    bench: &mut Bench,
    index: usize,
    per_byte: f64,
    seek: f64,
    samples: &mut Durable,
) -> anyhow::Result<()> {
    let length = MANY * PAGE;
    if !bench.spend((5 * REPEATS * length) as u64) {
        return Ok(());
    }
    let names = ["many", "one"].map(|name| format!("{name}-{index}"));
    let (many, one) = (bench.scratch.file(&names[0])?, bench.scratch.file(&names[1])?);
    let wait = |file: &File, length: usize, size: usize, apart: usize| {
        bench.go_on()?;
        for at in (0..length).step_by(size * apart) {
            bench.write_run(file, at as u64, size, size)?;
        }
        timed(|| Ok(file.sync_data()?))
    };
    let waits = |file: &File, length: usize, size: usize, apart: usize| {
        let times = (0..REPEATS).map(|_| wait(file, length, size, apart));
        times.collect::<anyhow::Result<Vec<f64>>>().map(|times| undisturbed(&times))
    };
    wait(&many, length, PAGE, 1)?;
    wait(&one, length, length, 1)?;
    let (in_one, in_many) = (waits(&one, length, length, 1)?, waits(&many, length, PAGE, 1)?);
    let folio = (in_many - in_one) / (MANY - 1) as f64;
    let scattered = waits(&many, length, PAGE, MANY / SCATTERED)?;
    let more = scattered - in_one + (MANY - SCATTERED) as f64 * PAGE as f64 * per_byte;
    samples.handed.0.push(folio);
    samples.request.0.push(more / (SCATTERED - 1) as f64 - folio - seek);
    names.iter().for_each(|name| bench.scratch.remove(name));
    Ok(())
}

/// Time of one action, in ns, without the stopwatch's read of /proc before it, which would refill the cache.
fn plainly(action: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = cawl_host::now();
    action()?;
    Ok(since(start))
}

/// Other work: moves data in memory, as programs do between their calls.
struct OtherWork<'a> {
    from: Cycle<ChunksExact<'a, u8>>,
    to: Vec<u8>,
}

impl OtherWork<'_> {
    fn new(bench: &Bench) -> OtherWork<'_> {
        OtherWork { from: bench.data.bytes().chunks_exact(PAGE).cycle(), to: vec![0; ELSEWHERE] }
    }

    fn go_on_for(&mut self, time: Nanos) {
        let until = cawl_host::now() + time;
        while cawl_host::now() < until {
            let pieces = self.from.by_ref().zip(self.to.chunks_exact_mut(PAGE));
            for (from, to) in pieces.take_while(|_| cawl_host::now() < until) {
                to.copy_from_slice(from);
            }
        }
        std::hint::black_box(&self.to);
    }

    /// What calls take, each after so long of it.
    fn calls_after(
        &mut self,
        bench: &Bench,
        (away, calls): (Nanos, usize),
        call: &mut impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            bench.go_on()?;
            self.go_on_for(away);
            times.push(plainly(&mut *call)?);
        }
        Ok(undisturbed(&times))
    }
}

/// The slope of the line through zero.
fn through_zero(points: &[(f64, f64)]) -> f64 {
    let (xy, xx) = points.iter().fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
    xy / xx
}

/// The mean of the times up to three times the first quartile. Waits vary by themselves, which counts; waits
/// for data of other programs take ten times as long and may be half of all.
pub fn undisturbed(times: &[f64]) -> f64 {
    let most = 3.0 * quantile(times, 0.25).unwrap_or(f64::NAN);
    let calm: Vec<f64> = times.iter().copied().filter(|time| *time <= most).collect();
    calm.iter().sum::<f64>() / calm.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_other_programs_do_not_count() {
        // 100 to 190 µs, and as many times of milliseconds.
        let calm: Vec<f64> = (0..10).map(|at| 100e3 + 10e3 * f64::from(at)).collect();
        assert!((undisturbed(&calm) - 145e3).abs() < 1.0);
        let busy: Vec<f64> = calm.iter().flat_map(|time| [*time, 40.0 * time]).collect();
        assert!((undisturbed(&busy) - 145e3).abs() < 1.0);
        assert!(undisturbed(&[]).is_nan());
    }
}
