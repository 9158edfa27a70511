//! What the document says of locks, and what became of it here. It has no figures in its text, and its
//! authors published none.

use cawl_console::compact;

use super::super::{Finding, Verdict};
use super::grid::{Cell, Io, Lock, T1, Work};
use super::tables::micros;
use super::{NOTHING, Outcome, Outcomes, plain};

/// What differs by less than this is the same.
const SAME: f64 = 1.1;
/// What differs by more than this differs a lot.
const MUCH: f64 = 1.5;
/// Where most conditions agree, a general statement holds.
const MOST: f64 = 0.75;
/// Length of a section below which the document finds a spin lock faster, in µs.
const CROSSING: u64 = 6;
/// Length of a section that all conditions have, in µs.
const COMMON: u64 = 30;

/// The rows of the summary; none for what was not measured.
pub(super) fn all(outcomes: &Outcomes) -> Vec<Finding> {
    let alone = [2, 8, 16].into_iter().filter(|threads| *threads <= outcomes.processors).max();
    let many = (16 > outcomes.processors).then_some(16);
    let naps = Cell { work: Work::Naps, outside: Work::Naps, ..plain(2, COMMON, NOTHING) };
    [
        processor(outcomes, "Fig 9: spin takes more processor, 1 ms", plain(2, 1000, NOTHING)),
        processor(outcomes, "Fig 9: the same, sections that sleep", naps),
        crossing(outcomes),
        naps_are_no_work(outcomes, naps),
        alone.and_then(|threads| {
            let item = format!("Fig 11: {threads} threads, a processor each: spin faster");
            faster(outcomes, item, (threads, (Work::Computes, T1)), Lock::Spin, SAME)
        }),
        many.and_then(|threads| {
            let item = "Fig 12: 16 threads contend: mutex faster".to_owned();
            faster(outcomes, item, (threads, (Work::Computes, T1)), Lock::Mutex, SAME)
        }),
        many.and_then(|threads| {
            let item = "Fig 13: 16 threads, 1 µs asleep: spin a lot slower".to_owned();
            faster(outcomes, item, (threads, (Work::Sleeps, 1)), Lock::Mutex, MUCH)
        }),
        many.and_then(|threads| {
            let item = "Fig 14: 16 threads, 1 ms asleep: spin a lot slower".to_owned();
            faster(outcomes, item, (threads, (Work::Sleeps, T1)), Lock::Mutex, MUCH)
        }),
        t1_hardly_matters(outcomes),
        contention(outcomes),
        writes_outside(outcomes),
        both(outcomes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn finding(item: String, theirs: &str, observed: String, predicted: String, verdict: Verdict) -> Finding {
    Finding { item: format!("002, {item}"), theirs: theirs.to_owned(), observed, predicted, verdict }
}

fn if_so(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::Differs }
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
    Some(finding(
        item.to_owned(),
        "drastically more",
        format!("mutex {one}, spin {two} µs a section: {}", times(more)),
        String::new(),
        if_so(more > MUCH),
    ))
}

/// Throughput of a spin lock over that of a mutex, by the length of the section in µs; nothing is written.
fn ratios(outcomes: &Outcomes, threads: u32, outside: (Work, u64)) -> Vec<(u64, f64)> {
    let sections =
        outcomes.all.iter().map(|one| one.cell).filter(|cell| *cell == plain(threads, cell.section, outside));
    sections.filter_map(|cell| Some((cell.section, ratio(outcomes, cell)?))).collect()
}

fn listed(ratios: &[(u64, f64)]) -> String {
    let each = ratios.iter().map(|(section, ratio)| format!("{section} µs {}", times(*ratio)));
    format!("spin over mutex: {}", each.collect::<Vec<_>>().join(", "))
}

/// Below some µs a spin lock is faster, and not above.
fn crossing(outcomes: &Outcomes) -> Option<Finding> {
    let told = ratios(outcomes, 2, NOTHING);
    let (short, long): (Vec<_>, Vec<_>) = told.iter().partition(|(section, _)| *section < CROSSING);
    let holds = short.iter().all(|(_, ratio)| *ratio > SAME) && long.iter().all(|(_, ratio)| *ratio < SAME);
    (!told.is_empty()).then(|| {
        finding(
            "Fig 10: spin faster in sections of less than 6 µs".to_owned(),
            "without figures",
            listed(&told),
            String::new(),
            if_so(holds),
        )
    })
}

/// The document's sections sleep.
fn naps_are_no_work(outcomes: &Outcomes, cell: Cell) -> Option<Finding> {
    let one = outcomes.of(cell)?;
    let turns = one.rate * cell.section as f64;
    let took = one.shares.asleep * f64::from(cell.threads) / turns;
    let worked = one.processor / cell.section as f64;
    Some(finding(
        "Figs 9 to 14: 1 µs of work in a section".to_owned(),
        "keeps the CPU busy for 1 µs; the program calls usleep(1)",
        format!("{} µs, {} of them on a processor", micros(took), micros(worked)),
        String::new(),
        Verdict::Wrong,
    ))
}

/// One lock has more throughput than the other, at least so many times, in the geometric mean over the
/// lengths of sections.
fn faster(
    outcomes: &Outcomes,
    item: String,
    (threads, outside): (u32, (Work, u64)),
    faster: Lock,
    least: f64,
) -> Option<Finding> {
    let told = ratios(outcomes, threads, outside);
    let logarithms = told.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>();
    let spin = (logarithms / told.len() as f64).exp();
    let more = if faster == Lock::Spin { spin } else { 1.0 / spin };
    (!told.is_empty())
        .then(|| finding(item, "without figures", listed(&told), String::new(), if_so(more > least)))
}

fn t1_hardly_matters(outcomes: &Outcomes) -> Option<Finding> {
    let of = |outside| ratio(outcomes, plain(16, COMMON, outside));
    let (without, with) = (of(NOTHING)?, of((Work::Computes, T1))?);
    let apart = (with / without).max(without / with);
    Some(finding(
        "Figs 11, 12: t1 hardly changes spin over mutex".to_owned(),
        "not much change",
        format!("16 threads: {} without, {} with t1 = 1 ms", times(without), times(with)),
        String::new(),
        if_so(apart < MUCH),
    ))
}

/// Conditions with more threads than processors whose sections compute: with each lock.
fn contended(outcomes: &Outcomes, io: Io) -> Vec<[&Outcome; 3]> {
    let conditions = outcomes.all.iter().filter(|one| {
        let Cell { threads, lock, work, io: its, .. } = one.cell;
        threads > outcomes.processors && lock == Lock::Mutex && work == Work::Computes && its == io
    });
    conditions.filter_map(|one| outcomes.each(one.cell)).collect()
}

/// In how many of these conditions a statement is true, as text, and whether these are most.
fn counted(conditions: &[[&Outcome; 3]], is_so: impl Fn(&[&Outcome; 3]) -> bool) -> (String, Verdict) {
    let so = conditions.iter().filter(|each| is_so(each)).count();
    let verdict = if_so(so as f64 >= MOST * conditions.len() as f64);
    (format!("in {so} of {} conditions", conditions.len()), verdict)
}

/// Learning I: with more threads than processors, mutexes are better.
fn contention(outcomes: &Outcomes) -> Option<Finding> {
    let conditions = contended(outcomes, Io::None);
    let (count, verdict) = counted(&conditions, |[mutex, spin, _]| mutex.rate > spin.rate);
    (!conditions.is_empty()).then(|| {
        finding(
            "Learning I: mutexes, where threads contend".to_owned(),
            "without figures",
            format!("mutex faster {count}"),
            String::new(),
            verdict,
        )
    })
}

/// Learning II: with I/O outside the section, mutexes are better.
fn writes_outside(outcomes: &Outcomes) -> Option<Finding> {
    let conditions = contended(outcomes, Io::Outside);
    let (count, verdict) = counted(&conditions, |[mutex, spin, _]| mutex.rate > spin.rate);
    let [mutex, spin, _] = conditions.iter().find(|each| each[0].cell.section == COMMON)?;
    let told = |one: &Outcome| {
        let Outcome { shares, .. } = one;
        format!("{:.0} % lock, {:.0} % processor", shares.lock * 100.0, shares.processor * 100.0)
    };
    let predicted = mutex.write.map_or(String::new(), |(_, kernel)| format!("a write {} µs", micros(kernel)));
    Some(finding(
        "Learning II: mutexes, with I/O outside the section".to_owned(),
        "without figures",
        format!("mutex faster {count}; waits with mutex {}, with spin {}", told(mutex), told(spin)),
        predicted,
        verdict,
    ))
}

/// Learning III: who spins first and sleeps then has the better of both.
fn both(outcomes: &Outcomes) -> Option<Finding> {
    let computing = outcomes.all.iter().filter(|one| one.cell.work == Work::Computes);
    let first = computing.filter(|one| one.cell.lock == Lock::Mutex && one.cell.io == Io::None);
    let conditions: Vec<[&Outcome; 3]> = first.filter_map(|one| outcomes.each(one.cell)).collect();
    let (count, verdict) =
        counted(&conditions, |[mutex, spin, adaptive]| adaptive.rate * SAME >= mutex.rate.max(spin.rate));
    (!conditions.is_empty()).then(|| {
        finding(
            "Learning III: spinning first, then sleeping".to_owned(),
            "as today's locks do",
            format!("adaptive mutex at least the better of both {count}"),
            String::new(),
            verdict,
        )
    })
}
