//! What the document says of locks, and what became of it here. It has no figures in its text, and its
//! authors published none.

use cawl_console::compact;

use super::super::{Finding, Verdict};
use super::tables::micros;
use super::{ASLEEP, Cell, Io, LOCK, Lock, NOTHING, Outcome, Outcomes, PROCESSOR, T1, Work, plain};

/// What differs by less than this is the same.
const SAME: f64 = 1.1;
/// What differs by more than this differs a lot.
const MUCH: f64 = 1.5;
/// Where most conditions agree, a general statement holds.
const MAX: f64 = 0.75;
/// Length of a section below which the document finds a spin lock faster, in µs.
const CROSSING: u64 = 6;
/// Length of a section that all conditions have, in µs.
const COMMON: u64 = 30;

/// The rows of the summary; none for what was not measured.
pub(super) fn all(outcomes: &Outcomes) -> Vec<Finding> {
    let alone = [2, 8, 16].into_iter().filter(|threads| *threads <= outcomes.processors).max();
    let many = (16 > outcomes.processors).then_some(16);
    let naps = Cell { work: Work::Naps, outside: Work::Naps, ..plain(2, COMMON, NOTHING) };
    let crowded = |item: &str, outside, least| faster(outcomes, item, many?, outside, Lock::Mutex, least);
    let computing = (Work::Computes, T1);
    let found = [
        processor(outcomes, "Fig 9: spin takes more processor, 1 ms", plain(2, 1000, NOTHING)),
        processor(outcomes, "Fig 9: the same, sections that sleep", naps),
        crossing(outcomes),
        naps_are_no_work(outcomes, naps),
        alone.and_then(|threads| {
            let item = format!("Fig 11: {threads} threads, a processor each: spin faster");
            faster(outcomes, &item, threads, computing, Lock::Spin, SAME)
        }),
        crowded("Fig 12: 16 threads contend: mutex faster", computing, SAME),
        crowded("Fig 13: 16 threads, 1 µs asleep: spin a lot slower", (Work::Sleeps, 1), MUCH),
        crowded("Fig 14: 16 threads, 1 ms asleep: spin a lot slower", (Work::Sleeps, T1), MUCH),
        t1_hardly_matters(outcomes),
        contention(outcomes),
        writes_outside(outcomes),
        both(outcomes),
    ];
    found.into_iter().flatten().collect()
}

fn finding(item: &str, theirs: &str, observed: String, verdict: impl Into<Verdict>) -> Finding {
    Finding::new(format!("002, {item}"), theirs, observed, "", verdict)
}

/// How many times the throughput of a mutex a spin lock has.
fn ratio(outcomes: &Outcomes, cell: Cell) -> Option<f64> {
    let [mutex, spin, _] = outcomes.each(cell)?;
    Some(spin.rate / mutex.rate)
}

fn times(ratio: f64) -> String {
    format!("{}×", compact::three(ratio))
}

fn processor(outcomes: &Outcomes, item: &str, cell: Cell) -> Option<Finding> {
    let [mutex, spin, _] = outcomes.each(cell)?;
    let (one, two) = (micros(mutex.processor), micros(spin.processor));
    let more = spin.processor / mutex.processor;
    let observed = format!("mutex {one}, spin {two} µs a section: {}", times(more));
    Some(finding(item, "drastically more", observed, more > MUCH))
}

/// Throughput of a spin lock over that of a mutex, by the length of the section in µs, where nothing is
/// written, and these as text; None if nothing was measured.
fn ratios(outcomes: &Outcomes, threads: u32, outside: (Work, u64)) -> Option<(Vec<(u64, f64)>, String)> {
    let cells = outcomes.all.iter().map(|one| one.cell);
    let its = cells.filter(|cell| *cell == plain(threads, cell.section, outside));
    let ratios: Vec<_> = its.filter_map(|cell| Some((cell.section, ratio(outcomes, cell)?))).collect();
    let each: Vec<_> =
        ratios.iter().map(|(section, ratio)| format!("{section} µs {}", times(*ratio))).collect();
    (!ratios.is_empty()).then(|| (ratios, format!("spin over mutex: {}", each.join(", "))))
}

/// Below some µs a spin lock is faster, and not above.
fn crossing(outcomes: &Outcomes) -> Option<Finding> {
    let (ratios, listed) = ratios(outcomes, 2, NOTHING)?;
    let (short, long): (Vec<_>, Vec<_>) = ratios.iter().partition(|(section, _)| *section < CROSSING);
    let holds = short.iter().all(|(_, ratio)| *ratio > SAME) && long.iter().all(|(_, ratio)| *ratio < SAME);
    Some(finding("Fig 10: spin faster in sections of less than 6 µs", "without figures", listed, holds))
}

/// The document's sections sleep.
fn naps_are_no_work(outcomes: &Outcomes, cell: Cell) -> Option<Finding> {
    let one = outcomes.of(cell)?;
    let turns = one.rate * cell.section as f64;
    let took = one.shares.0[ASLEEP] * f64::from(cell.threads) / turns;
    let worked = one.processor / cell.section as f64;
    Some(finding(
        "Figs 9 to 14: 1 µs of work in a section",
        "keeps the CPU busy for 1 µs; the program calls usleep(1)",
        format!("{} µs, {} of them on a processor", micros(took), micros(worked)),
        Verdict::Wrong,
    ))
}

/// One lock has more throughput than the other, at least so many times, in the geometric mean over the
/// lengths of sections.
fn faster(
    outcomes: &Outcomes,
    item: &str,
    threads: u32,
    outside: (Work, u64),
    faster: Lock,
    least: f64,
) -> Option<Finding> {
    let (ratios, listed) = ratios(outcomes, threads, outside)?;
    let spin = (ratios.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let more = if faster == Lock::Spin { spin } else { 1.0 / spin };
    Some(finding(item, "without figures", listed, more > least))
}

fn t1_hardly_matters(outcomes: &Outcomes) -> Option<Finding> {
    let of = |outside| ratio(outcomes, plain(16, COMMON, outside));
    let (without, with) = (of(NOTHING)?, of((Work::Computes, T1))?);
    let apart = (with / without).max(without / with);
    let observed = format!("16 threads: {} without, {} with t1 = 1 ms", times(without), times(with));
    Some(finding("Figs 11, 12: t1 hardly changes spin over mutex", "not much change", observed, apart < MUCH))
}

/// Conditions whose sections compute, with each lock.
fn conditions(outcomes: &Outcomes, wanted: impl Fn(&Cell) -> bool) -> Vec<[&Outcome; 3]> {
    let computing = outcomes.all.iter().map(|one| one.cell).filter(|cell| cell.work == Work::Computes);
    let first = computing.filter(|cell| cell.lock == Lock::Mutex && wanted(cell));
    first.filter_map(|cell| outcomes.each(cell)).collect()
}

/// Those with more threads than processors.
fn contended(outcomes: &Outcomes, io: Io) -> Vec<[&Outcome; 3]> {
    conditions(outcomes, |cell| cell.threads > outcomes.processors && cell.io == io)
}

/// In how many of these conditions a statement is true, as text, and whether these are most; None without
/// conditions.
fn counted(conditions: &[[&Outcome; 3]], is_so: impl Fn(&[&Outcome; 3]) -> bool) -> Option<(String, bool)> {
    let (so, all) = (conditions.iter().filter(|each| is_so(each)).count(), conditions.len());
    (all > 0).then(|| (format!("in {so} of {all} conditions"), so as f64 >= MAX * all as f64))
}

/// Learning I: with more threads than processors, mutexes are better.
fn contention(outcomes: &Outcomes) -> Option<Finding> {
    let (count, most) = counted(&contended(outcomes, Io::None), |[mutex, spin, _]| mutex.rate > spin.rate)?;
    let item = "Learning I: mutexes, where threads contend";
    Some(finding(item, "without figures", format!("mutex faster {count}"), most))
}

/// Learning II: with I/O outside the section, mutexes are better.
fn writes_outside(outcomes: &Outcomes) -> Option<Finding> {
    let conditions = contended(outcomes, Io::Outside);
    let (count, most) = counted(&conditions, |[mutex, spin, _]| mutex.rate > spin.rate)?;
    let [mutex, spin, _] = conditions.iter().find(|each| each[0].cell.section == COMMON)?;
    let told = |one: &Outcome| {
        let [lock, processor] = [LOCK, PROCESSOR].map(|part| one.shares.0[part] * 100.0);
        format!("{lock:.0} % lock, {processor:.0} % processor")
    };
    Some(Finding::new(
        "002, Learning II: mutexes, with I/O outside the section",
        "without figures",
        format!("mutex faster {count}; waits with mutex {}, with spin {}", told(mutex), told(spin)),
        mutex.write.map_or(String::new(), |(_, kernel)| format!("a write {} µs", micros(kernel))),
        most,
    ))
}

/// Learning III: who spins first and sleeps then has the better of both.
fn both(outcomes: &Outcomes) -> Option<Finding> {
    let conditions = conditions(outcomes, |cell| cell.io == Io::None);
    let (count, most) =
        counted(&conditions, |[mutex, spin, adaptive]| adaptive.rate * SAME >= mutex.rate.max(spin.rate))?;
    let observed = format!("adaptive mutex at least the better of both {count}");
    Some(finding("Learning III: spinning first, then sleeping", "as today's locks do", observed, most))
}
