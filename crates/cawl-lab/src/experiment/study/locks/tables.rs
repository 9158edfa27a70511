//! The tables and pictures of locks.

use cawl_console::compact;

use super::super::Table;
use super::super::chart::{Scale, Series, scatter};
use super::grid::{Cell, Io, Lock, T1, Work};
use super::measure::Division;
use super::{NOTHING, Outcome, Outcomes, plain};

/// The tables.
pub(super) fn all(outcomes: &Outcomes) -> Vec<Table> {
    let of = |work: Work, outside: (Work, u64)| {
        move |cell: &Cell| cell.work == work && (cell.outside, cell.time) == outside && cell.io == Io::None
    };
    vec![
        by_lock(outcomes, "Nothing outside (figures 9, 10)", of(Work::Computes, NOTHING)),
        by_lock(
            outcomes,
            "Computing 1 ms outside (figures 11, 12)",
            of(Work::Computes, (Work::Computes, T1)),
        ),
        by_lock(outcomes, "Asleep for 1 µs outside (figure 13)", of(Work::Computes, (Work::Sleeps, 1))),
        by_lock(outcomes, "Asleep for 1 ms outside (figure 14)", of(Work::Computes, (Work::Sleeps, T1))),
        by_lock(outcomes, "usleep(1) for each µs, as the document's", |cell| cell.work == Work::Naps),
        division(outcomes),
    ]
}

/// Sections a second and processor time of a section, by lock, of conditions that `wanted` tells.
fn by_lock(outcomes: &Outcomes, caption: &str, wanted: impl Fn(&Cell) -> bool) -> Table {
    let row = |one: &Outcome| {
        let each = outcomes.each(one.cell)?;
        let head = [one.cell.threads.to_string(), micros(one.cell.section as f64 * 1e-6)];
        let rates = each.map(|one| rate(one.rate));
        let times = each.map(|one| micros(one.processor));
        Some(head.into_iter().chain(rates).chain(times).collect())
    };
    let first = outcomes.all.iter().filter(|one| one.cell.lock == Lock::Mutex && wanted(&one.cell));
    let header = ["threads", "µs", "mutex/s", "spin/s", "adaptive/s", "mutex µs", "spin µs", "adaptive µs"];
    Table {
        caption: format!("{caption}: throughput, processor time"),
        header: header.map(str::to_owned).to_vec(),
        rows: first.filter_map(row).collect(),
    }
}

/// What the threads' time went to, where nothing but a write is outside.
fn division(outcomes: &Outcomes) -> Table {
    let row = |one: &Outcome| {
        let Cell { threads, lock, section, io, .. } = one.cell;
        let head = [threads.to_string(), section.to_string(), io.name().to_owned(), lock.name().to_owned()];
        let Division { io: writes, lock: locks, processor, computing, .. } = one.shares;
        let shares = [writes, locks, processor, computing].map(|part| format!("{:.0}", part * 100.0));
        let write = one.write.map_or(["-".to_owned(), "-".to_owned()], |(observed, predicted)| {
            [micros(observed), micros(predicted)]
        });
        head.into_iter().chain([rate(one.rate)]).chain(shares).chain(write).collect()
    };
    // The conditions that also have writes.
    let has_writes = |one: &&Outcome| {
        outcomes.of(Cell { io: Io::Inside, ..one.cell }).is_some_and(|one| one.write.is_some())
    };
    let header = ["threads", "µs", "write", "lock", "per s", "write", "lock", "proc", "comp", "µs", "kernel"];
    Table {
        caption: "The threads' time in %; then a write in µs, observed and by kernel".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcomes.all.iter().filter(has_writes).map(row).collect(),
    }
}

/// Throughput by the length of a section.
pub(super) fn pictures(outcomes: &Outcomes) -> anyhow::Result<Vec<String>> {
    let length = Scale { name: "section", label: |micros| compact::seconds(micros * 1e-6) };
    let sections = Scale { name: "sections a second", label: |rate| compact::three(rate) };
    let time = Scale { name: "processor time of a section", label: compact::seconds };
    let series = |threads: u32, outside: (Work, u64), of: fn(&Outcome) -> f64| {
        Lock::ALL.map(|lock| {
            let its = |one: &&Outcome| {
                one.cell == Cell { lock, ..plain(threads, one.cell.section, outside) } && of(one).is_finite()
            };
            let points = outcomes.all.iter().filter(its).map(|one| (one.cell.section as f64, of(one)));
            Series { name: lock.name(), points: points.collect() }
        })
    };
    Ok(vec![
        scatter(
            "Figure 10: two threads, sections a second",
            length,
            sections,
            &series(2, NOTHING, |one| one.rate),
            false,
        )?,
        scatter(
            "Figure 9: two threads, processor time of a section",
            length,
            time,
            &series(2, NOTHING, |one| one.processor),
            false,
        )?,
        scatter(
            "Figure 12: 16 threads that compute for 1000 µs outside, sections a second",
            length,
            sections,
            &series(16, (Work::Computes, T1), |one| one.rate),
            false,
        )?,
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
