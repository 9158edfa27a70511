//! The tables and pictures of locks.

use cawl_console::compact;

use super::super::Table;
use super::{
    COMPUTING, Cell, Division, IO, Io, LOCK, Lock, NOTHING, Outcome, Outcomes, PROCESSOR, T1, Work, plain,
};
use crate::experiment::plot::chart::{Scale, Series, scatter};

pub(super) fn all(outcomes: &Outcomes) -> Vec<Table> {
    let outside = [
        ("Nothing outside (figures 9, 10)", NOTHING),
        ("Computing 1 ms outside (figures 11, 12)", (Work::Computes, T1)),
        ("Asleep for 1 µs outside (figure 13)", (Work::Sleeps, 1)),
        ("Asleep for 1 ms outside (figure 14)", (Work::Sleeps, T1)),
    ];
    let of = |(caption, outside): (&str, _)| {
        by_lock(outcomes, caption, |cell| *cell == plain(cell.threads, cell.section, outside))
    };
    let naps = "usleep(1) for each µs, as the document's";
    let others = [
        by_lock(outcomes, naps, |cell| cell.work == Work::Naps && cell.lock == Lock::Mutex),
        division(outcomes),
    ];
    outside.map(of).into_iter().chain(others).collect()
}

/// Sections a second and processor time of a section, by lock, of conditions that `wanted` tells by those
/// with a mutex.
fn by_lock(outcomes: &Outcomes, caption: &str, wanted: impl Fn(&Cell) -> bool) -> Table {
    let row = |one: &Outcome| {
        let each = outcomes.each(one.cell)?;
        let head = [one.cell.threads.to_string(), micros(one.cell.section as f64 * 1e-6)];
        let rates = each.map(|one| rate(one.rate));
        let times = each.map(|one| micros(one.processor));
        Some(head.into_iter().chain(rates).chain(times).collect())
    };
    Table::new(
        format!("{caption}: throughput, processor time"),
        ["threads", "µs", "mutex/s", "spin/s", "adaptive/s", "mutex µs", "spin µs", "adaptive µs"],
        outcomes.all.iter().filter(|one| wanted(&one.cell)).filter_map(row),
    )
}

/// What the threads' time went to, where nothing but a write is outside.
fn division(outcomes: &Outcomes) -> Table {
    let row = |one: &Outcome| {
        let (Cell { threads, lock, section, io, .. }, Division(shares)) = (one.cell, one.shares);
        let head = [threads.to_string(), section.to_string(), io.name().to_owned(), lock.name().to_owned()];
        let shares = [IO, LOCK, PROCESSOR, COMPUTING].map(|part| format!("{:.0}", shares[part] * 100.0));
        let write = one.write.map(|(observed, predicted)| [observed, predicted].map(micros));
        let write = write.unwrap_or_else(|| ["-", "-"].map(str::to_owned));
        head.into_iter().chain([rate(one.rate)]).chain(shares).chain(write).collect()
    };
    // The conditions that also have writes.
    let has_writes = |one: &&Outcome| {
        outcomes.of(Cell { io: Io::Inside, ..one.cell }).is_some_and(|one| one.write.is_some())
    };
    Table::new(
        "The threads' time in %; then a write in µs, observed and by kernel",
        ["threads", "µs", "write", "lock", "per s", "write", "lock", "proc", "comp", "µs", "kernel"],
        outcomes.all.iter().filter(has_writes).map(row),
    )
}

/// Throughput by the length of a section.
pub(super) fn pictures(outcomes: &Outcomes) -> anyhow::Result<Vec<String>> {
    let length = Scale { name: "section", label: |micros| compact::seconds(micros * 1e-6) };
    let sections = Scale { name: "sections a second", label: compact::three };
    let time = Scale { name: "processor time of a section", label: compact::seconds };
    let picture = |title: &str, scale: Scale, threads, outside, of: fn(&Outcome) -> f64| {
        let series = Lock::ALL.map(|lock| {
            let its = |one: &&Outcome| {
                one.cell == Cell { lock, ..plain(threads, one.cell.section, outside) } && of(one).is_finite()
            };
            let points = outcomes.all.iter().filter(its).map(|one| (one.cell.section as f64, of(one)));
            Series { name: lock.name(), points: points.collect() }
        });
        scatter(title, length, scale, &series, false)
    };
    let twelve = "Figure 12: 16 threads that compute for 1000 µs outside, sections a second";
    let nine = "Figure 9: two threads, processor time of a section";
    Ok(vec![
        picture("Figure 10: two threads, sections a second", sections, 2, NOTHING, |one| one.rate)?,
        picture(nine, time, 2, NOTHING, |one| one.processor)?,
        picture(twelve, sections, 16, (Work::Computes, T1), |one| one.rate)?,
    ])
}

/// Sections a second.
fn rate(rate: f64) -> String {
    if rate < 1e6 { compact::three(rate) } else { format!("{} M", compact::three(rate / 1e6)) }
}

/// Seconds as µs.
pub(super) fn micros(seconds: f64) -> String {
    compact::three(seconds * 1e6)
}
