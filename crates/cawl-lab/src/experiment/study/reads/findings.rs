//! What the document says, and what became of it here.

use cawl_console::compact;
use cawl_core::{HostProfile, Nanos};

use super::super::direct::READ_BACK;
use super::super::{Finding, Verdict};
use super::{Access, Cell, Outcome, Outcomes};

/// A ratio that is not farther off than this comes out as stated, and what differs by less is the same.
const NEAR: f64 = 2.0;
const SAME: f64 = 1.25;

const MIB: f64 = (1 << 20) as f64;
const SIZES: [u64; 3] = [512, 4 << 10, 64 << 10];

/// A device of moving parts takes at least this for a read away from the one before.
const SEEKS: Nanos = Nanos::new(1e6);

/// What the document measured of a cell, in bytes per second.
pub fn theirs(cell: Cell) -> Option<f64> {
    let (_, buffered, direct) = READ_BACK.iter().find(|known| known.0 == cell.size)?;
    match cell.access {
        Access::Buffered => Some(buffered * MIB),
        Access::Direct => Some(direct * MIB),
        Access::Fsync | Access::Random | Access::RandomDirect => None,
    }
}

/// What some outcomes tell, observed and predicted, with `between` between them.
fn described(outcomes: &[&Outcome], between: &str, tell: impl Fn(&Outcome, f64) -> String) -> [String; 2] {
    let list = |time: fn(&Outcome) -> f64| {
        outcomes.iter().map(|one| tell(one, time(one))).collect::<Vec<_>>().join(between)
    };
    [list(Outcome::typical), list(|one| one.timed.kernel())]
}

fn rate(one: &Outcome, time: f64) -> String {
    compact::rate(one.rate(time))
}

fn time(_: &Outcome, time: f64) -> String {
    compact::seconds(time * 1e-9)
}

/// The largest over the smallest.
fn range(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(0.0, f64::max) / values.fold(f64::MAX, f64::min)
}

/// The rows of the summary; none for what could not be measured.
pub fn findings(profile: &HostProfile, outcomes: &Outcomes) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |item: String, theirs: String, [observed, predicted]: [String; 2], verdict: Verdict| {
        found.push(Finding::new(format!("002, {item}"), theirs, observed, predicted, verdict));
    };
    let all = |cells: &[(u64, Access)]| {
        cells.iter().map(|(size, access)| outcomes.of(*size, *access)).collect::<Option<Vec<&Outcome>>>()
    };
    // What was written through the page cache is read faster.
    for (size, buffered, direct) in READ_BACK {
        let Some(pair) = all(&[(size, Access::Buffered), (size, Access::Direct)]) else { continue };
        let (ratio, here) = (buffered / direct, pair[1].timed.mean / pair[0].timed.mean);
        add(
            format!("Fig 2: read after buffered and direct writes, {}", compact::bytes(size)),
            format!("{buffered:.0} and {direct:.0} MiB/s: {}×", compact::three(ratio)),
            described(&pair, " and ", rate),
            (1.0 / NEAR..=NEAR).contains(&(here / ratio)).into(),
        );
    }
    // After direct writes the size of the read does not matter, since readahead asks the device.
    if let Some(each) = all(&READ_BACK.map(|known| (known.0, Access::Direct))) {
        add(
            "Fig 2: after direct writes, 512 B, 4 KiB, 64 KiB: one rate".to_owned(),
            "170 to 177 MiB/s".to_owned(),
            described(&each, ", ", rate),
            (range(each.iter().map(|one| one.rate(one.timed.mean))) < NEAR).into(),
        );
    }
    // With fsync after each write the file is cached as well.
    if let Some(pair) = all(&[(4 << 10, Access::Fsync), (4 << 10, Access::Direct)]) {
        add(
            "Fig 4: after fsync each, faster than after direct writes, 4 KiB".to_owned(),
            "without figures".to_owned(),
            described(&pair, " and ", rate),
            (pair[0].timed.mean * SAME < pair[1].timed.mean).into(),
        );
    }
    // Random reads of an uncached file take as long either way.
    for size in SIZES {
        let Some(pair) = all(&[(size, Access::Random), (size, Access::RandomDirect)]) else { continue };
        add(
            format!("Fig 7: random, buffered and direct, {}", compact::bytes(size)),
            "almost the same".to_owned(),
            described(&pair, " and ", time),
            (range(pair.iter().map(|one| one.timed.observed)) < SAME).into(),
        );
    }
    // The size of a random read does not matter, and it takes milliseconds on a disk with moving parts.
    if let Some(each) = all(&SIZES.map(|size| (size, Access::Random))) {
        add(
            "Fig 8: random reads, 512 B, 4 KiB, 64 KiB: flat".to_owned(),
            "3 to 10 ms each".to_owned(),
            described(&each, ", ", time),
            (range(each.iter().map(|one| one.timed.observed)) < NEAR).into(),
        );
        let seeks = profile.device.read_latency.is_some_and(|latency| latency.value >= SEEKS);
        let near = (3e6 / NEAR..=10e6 * NEAR).contains(&each[1].timed.observed);
        add(
            "Fig 8: a random read of 4 KiB".to_owned(),
            "3 to 10 ms, a SAS disk".to_owned(),
            described(&each[1..2], ", ", time),
            if seeks { near.into() } else { Verdict::NotComparable },
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{ByModel, Timed};
    use super::*;

    /// Times in µs: of sequential reads buffered and direct, and of random ones.
    fn outcomes(buffered: f64, direct: f64, random: f64) -> Outcomes {
        let of = |size: u64| {
            let part = size as f64 / 4096.0;
            Access::ALL.map(|access| {
                let ns = 1e3
                    * match access {
                        Access::Buffered | Access::Fsync => buffered * part,
                        Access::Direct => direct * part,
                        Access::Random | Access::RandomDirect => random,
                    };
                let timed = Timed::new(&[ns], ns, 1.0, ByModel::of(|_| Ok(ns)).unwrap());
                Outcome { cell: Cell { size, access }, timed }
            })
        };
        Outcomes(SIZES.into_iter().flat_map(of).collect())
    }

    fn verdicts(latency: f64, outcomes: &Outcomes) -> Vec<(String, Verdict)> {
        let mut profile = HostProfile::uncalibrated();
        profile.device.read_latency = Some(cawl_core::Measured::assumed(Nanos::new(latency)));
        findings(&profile, outcomes).into_iter().map(|one| (one.item, one.verdict)).collect()
    }

    #[test]
    fn the_documents_disk_has_its_figures() {
        // 4 KiB in 0.9 and 22 µs, and 5 ms at random: the document's disk.
        let all = verdicts(5e6, &outcomes(0.85, 22.0, 5000.0));
        let differing: Vec<&str> = all
            .iter()
            .filter(|(_, verdict)| *verdict != Verdict::Holds)
            .map(|(item, _)| item.as_str())
            .collect();
        // There the rate at 512 B is a quarter of that at 4 KiB, here it is the same.
        assert_eq!(differing, ["002, Fig 2: read after buffered and direct writes, 512 B"], "{all:?}");
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn another_disk_does_not() {
        let all = verdicts(50e3, &outcomes(0.85, 1.0, 50.0));
        let of = |name: &str| all.iter().find(|(item, _)| item.contains(name)).unwrap().1;
        assert_eq!(of("Fig 2: read after buffered and direct writes, 4 KiB"), Verdict::Differs);
        assert_eq!(of("Fig 8: a random read"), Verdict::NotComparable);
        assert_eq!(of("Fig 8: random reads"), Verdict::Holds);
    }
}
