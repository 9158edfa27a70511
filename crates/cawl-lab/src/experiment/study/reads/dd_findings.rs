//! What the document says of dd's reads, and whether it is so here.

use cawl_console::compact;

use super::super::{Finding, Verdict};
use super::classes::Classes;
use super::dd::Run;

/// A share of the calls from which on the document's statement holds: that a cached file is read from memory,
/// and that most calls of an uncached one meet what was read ahead.
const FROM_MEMORY: f64 = 0.999;
const READ_AHEAD: f64 = 0.9;

/// The rows of the summary.
pub fn findings(runs: &[Run; 2], document: &Classes, disk: &Classes) -> Vec<Finding> {
    let [cached, uncached] = runs;
    let from_memory = |times: &[f64]| document.count(times)[0].0;
    let part = |times: &[f64]| from_memory(times) as f64 / times.len().max(1) as f64;
    let of_all = |times: &[f64]| format!("{} of {}", from_memory(times), times.len());
    let told = |classes: &Classes, times: &[f64]| {
        let counts = classes.count(times);
        let each =
            classes.classes.iter().zip(&counts).map(|(class, (count, _))| format!("{count} {}", class.name));
        each.collect::<Vec<_>>().join(", ")
    };
    let both = |classes: &Classes, run: &Run| [&run.observed, &run.kernel].map(|times| told(classes, times));
    let finding = |item: &str, theirs: &str, [observed, predicted]: [String; 2], verdict| Finding {
        item: format!("001, {item}"),
        theirs: theirs.to_owned(),
        observed,
        predicted,
        verdict,
    };
    let if_so = |holds: bool| if holds { Verdict::Holds } else { Verdict::Differs };
    let seconds = |run: &Run| [run.seconds, run.kernel_seconds].map(compact::seconds);
    vec![
        finding(
            "dd, cached: from memory (below 0.2 ms)",
            "49 999 of 50 000",
            [&cached.observed, &cached.kernel].map(|times| of_all(times)),
            if_so(part(&cached.observed) >= FROM_MEMORY),
        ),
        finding(
            "dd, uncached: most calls meet what was read ahead",
            "47 990 cached, 1412 fast, 432 normal, 151 slow, 15 unexpected",
            both(document, uncached),
            if_so(part(&uncached.observed) >= READ_AHEAD),
        ),
        finding(
            "dd, uncached: by this disk's classes",
            "bounds coded by hand",
            both(disk, uncached),
            Verdict::NotComparable,
        ),
        finding("dd, cached: all calls", "no figures", seconds(cached), Verdict::NotComparable),
        finding("dd, uncached: all calls", "no figures", seconds(uncached), Verdict::NotComparable),
    ]
}

#[cfg(test)]
mod tests {
    use cawl_core::HostProfile;

    use super::super::dd::SIZE;
    use super::*;

    #[test]
    fn classes_become_findings() {
        let run = |is_cached, times: Vec<f64>| Run {
            name: "a run",
            is_cached,
            seconds: 1.0,
            kernel_seconds: 1.0,
            kernel: times.clone(),
            observed: times,
        };
        let mostly = |fast: usize, slow: usize| [vec![2e3; fast], vec![8e6; slow]].concat();
        let (document, disk) = (Classes::of_document(), Classes::of_disk(&HostProfile::uncalibrated(), SIZE));
        let verdicts = |cached, uncached| {
            let all = findings(&[run(true, cached), run(false, uncached)], &document, &disk);
            [all[0].verdict, all[1].verdict]
        };
        assert_eq!(verdicts(mostly(4999, 1), mostly(95, 5)), [Verdict::Holds; 2]);
        assert_eq!(verdicts(mostly(99, 1), mostly(80, 20)), [Verdict::Differs; 2]);
    }
}
