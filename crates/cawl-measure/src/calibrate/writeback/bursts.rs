//! The writeback rate of a brief calibration: a few bursts, each as long as a moment allows.

use cawl_core::{Estimate, median};

use super::super::bench::{Bench, background, since};
use super::super::unless_over;
use super::{CHUNK, UNSEEN, is_ours};

/// Short and long bursts, in turn: `true` is a long one. The short one that comes first tells how long the
/// others may be.
const BURSTS: [bool; 3] = [false, true, true];
/// Length of the long ones in short ones; and the longest.
const LONG: u64 = 4;
const LONGEST_BURST: u64 = 256 << 20;
/// Part of the remaining time that the bursts are to take: also the page cache takes some.
const PART: f64 = 0.7;

/// The rate in bytes per ns of bursts that fsync waits for, on a device that takes about `transfer` ns per
/// byte, if known, within the byte budget and the remaining time. fsync leaves out other programs' data. What
/// a burst takes whatever its length is found from bursts of two lengths.
pub fn rate(bench: &mut Bench, transfer: Option<f64>) -> anyhow::Result<Option<Estimate>> {
    // In short bursts, what all of them write.
    let parts = BURSTS.iter().map(|long| if *long { LONG } else { 1 }).sum::<u64>();
    let room = (background().0 * 3 / 4).min(bench.space).min(LONGEST_BURST);
    let left = bench.deadline.since(cawl_host::now()).get() * PART;
    let affordable = transfer.map_or(8 << 20, |per_byte| (left / per_byte) as u64) / parts;
    let mut short = (bench.bytes_left / parts).min(room / LONG).min(affordable).max(CHUNK as u64);
    let mut found: [Vec<(f64, f64)>; 2] = Default::default();
    for (at, long) in BURSTS.into_iter().enumerate() {
        let length = short * if long { LONG } else { 1 } / CHUNK as u64 * CHUNK as u64;
        let began = cawl_host::now();
        if length == 0 || bench.go_on().is_err() || !bench.spend(length) {
            break;
        }
        let took = unless_over(burst(bench, length))?;
        found[usize::from(long)].extend(took.map(|took| (length as f64, took)));
        if at == 0 {
            let left = bench.deadline.since(cawl_host::now()).get() / since(began);
            short = (short as f64 * (left / (parts - 1) as f64).min(1.0)) as u64;
        }
    }
    let [short, long] = found.each_ref().map(|found| {
        let of = |value: fn(&(f64, f64)) -> f64| median(&found.iter().map(value).collect::<Vec<f64>>());
        of(|burst| burst.0).zip(of(|burst| burst.1))
    });
    // Lengths that hardly differ tell nothing.
    let apart = short.zip(long).filter(|(short, long)| long.0 >= 2.0 * short.0);
    let fixed = apart.map_or(0.0, |(short, long)| {
        let per_byte = (long.1 - short.1) / (long.0 - short.0);
        (short.1 - short.0 * per_byte).clamp(0.0, 0.9 * short.1)
    });
    Ok(rates(&found[1], fixed).or_else(|| rates(&found[0], fixed)))
}

/// The rate of bursts, of bytes and ns, without the fixed time of each. On a busy machine a long one may take
/// less than that, which tells nothing.
fn rates(found: &[(f64, f64)], fixed: f64) -> Option<Estimate> {
    let took_longer = found.iter().filter(|(_, took)| *took > fixed);
    Estimate::of(&took_longer.map(|(bytes, took)| bytes / (took - fixed)).collect::<Vec<f64>>())
}

/// Writes so many bytes to a new file; returns what its fsync took, in ns, if that wrote them back.
fn burst(bench: &mut Bench, length: u64) -> anyhow::Result<Option<f64>> {
    bench.settle(length)?;
    let file = bench.scratch.file("flushed")?;
    let dirtied = || cawl_host::sample().map(|sample| sample.dirtied * cawl_host::page().0);
    let before = dirtied();
    let began = cawl_host::now();
    for chunk in 0..length / CHUNK as u64 {
        bench.write_run(&file, chunk * CHUNK as u64, CHUNK, CHUNK)?;
    }
    let wrote = since(began);
    let dirtied = before.zip(dirtied()).map(|(before, after)| after.saturating_sub(before));
    let began = cawl_host::now();
    nix::unistd::fsync(&file)?;
    let took = since(began);
    drop(file);
    bench.scratch.remove("flushed");
    let ours = is_ours(dirtied, length, took, wrote);
    if !ours {
        bench.note(UNSEEN);
    }
    Ok(ours.then_some(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_burst_that_a_short_one_outlasted_tells_no_rate() {
        let rate = |found: &[(f64, f64)]| rates(found, 50.0).map(|rate| rate.value);
        assert_eq!(rate(&[(400.0, 250.0), (400.0, 40.0)]), Some(2.0));
        assert_eq!((rate(&[(400.0, 40.0)]), rate(&[])), (None, None));
    }
}
