//! The reads of dd: a file is read from its begin to its end, cached and uncached.

use cawl_console::compact;
use cawl_core::{Bytes, HostProfile};
use nix::fcntl::OFlag;
use serde::Serialize;
use serde_json::json;

use super::super::calls::{PIECE, Shown, drop_cached, fill, read};
use super::super::{Bench, Finding, Made, Section, Study, Table, Verdict, make};
use super::classes::Classes;

/// Bytes of a call. The document's 1 MiB would need a file of 50 GB.
const SIZE: u64 = 16 << 10;

/// The document's counts by its classes, of 50 000 calls. The call of the cached file that is not from memory
/// is "cached storage" there.
const CACHED: [u32; 5] = [49_999, 1, 0, 0, 0];
const UNCACHED: [u32; 5] = [47_990, 1_412, 432, 151, 15];

/// A share of the calls from which on the document's statement holds: that a cached file is read from memory,
/// and that most calls of an uncached one meet what was read ahead.
const FROM_MEMORY: f64 = 0.999;
const READ_AHEAD: f64 = 0.9;

const FILE: &str = "dd";

/// A file that was read.
#[derive(Debug, Serialize)]
struct Run {
    name: &'static str,
    #[serde(skip)]
    is_cached: bool,
    /// Of each call, in ns.
    #[serde(skip)]
    observed: Vec<f64>,
    #[serde(skip)]
    kernel: Vec<f64>,
    /// Of all calls, in seconds.
    seconds: f64,
    kernel_seconds: f64,
}

impl Run {
    fn new(is_cached: bool, observed: Vec<f64>, kernel: Vec<f64>) -> Run {
        let seconds = |times: &[f64]| times.iter().sum::<f64>() * 1e-9;
        Run {
            name: if is_cached { "cached" } else { "uncached" },
            is_cached,
            seconds: seconds(&observed),
            kernel_seconds: seconds(&kernel),
            observed,
            kernel,
        }
    }
}

/// The study, with so many calls; its cells: whether the file is cached.
struct Dd {
    calls: u64,
}

/// The section; a tenth of the document's calls if `quick`.
pub fn classes(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    make(&Dd { calls: if quick { 5_000 } else { 50_000 } }, bench)
}

impl Dd {
    fn predicted(&self, profile: &HostProfile, is_cached: bool) -> anyhow::Result<Vec<f64>> {
        let mut shown = Shown::to("kernel", profile)?;
        shown.fill(self.calls * SIZE, PIECE, 0);
        shown.sync();
        if !is_cached {
            shown.drop_cached();
        }
        shown.tell(self.calls * SIZE, is_cached);
        Ok((0..self.calls).map(|at| shown.step(read(at * SIZE, SIZE, 0))).collect())
    }
}

impl Study for Dd {
    type Cell = bool;
    type Run = Vec<f64>;

    const NAME: &'static str = "dd";

    fn cells(&self) -> &[bool] {
        &[true, false]
    }

    fn repeats(&self, _: Option<usize>) -> usize {
        1
    }

    fn describe(&self, is_cached: bool) -> String {
        if is_cached { "cached" } else { "uncached" }.to_owned()
    }

    fn prepare(&self, bench: &mut Bench) -> anyhow::Result<()> {
        let length = self.calls * SIZE;
        bench.scratch.require(Bytes(2 * length))?;
        bench.progress.begin("dd: writing its file");
        let file = bench.scratch.file(FILE)?;
        fill(bench, &file, length / PIECE * PIECE, PIECE)?;
        file.set_len(length)?;
        Ok(file.sync_all()?)
    }

    fn run(&self, bench: &Bench, is_cached: bool) -> anyhow::Result<Option<Vec<f64>>> {
        let offsets: Vec<u64> = (0..self.calls).map(|at| at * SIZE).collect();
        if !is_cached {
            drop_cached(&bench.scratch.again(FILE, OFlag::empty())?)?;
        }
        // Opened anew, since a file knows where it was read before.
        let file = bench.scratch.again(FILE, OFlag::empty())?;
        super::reads(bench, &file, SIZE, &offsets, f64::INFINITY).map(Some)
    }

    fn judge(&self, bench: &mut Bench, made: &Made<bool, Vec<f64>>) -> anyhow::Result<Section> {
        bench.scratch.remove(FILE);
        let runs = made.runs.iter().map(|(is_cached, observed)| {
            Ok(Run::new(*is_cached, observed.clone(), self.predicted(bench.profile, *is_cached)?))
        });
        let runs = runs.collect::<anyhow::Result<Vec<Run>>>()?;
        let [document, disk] = [Classes::of_document(), Classes::of_disk(bench.profile, SIZE)];
        let tables = runs.iter().flat_map(|run| [&document, &disk].map(|classes| table(classes, run)));
        let device = &bench.profile.device;
        Ok(Section {
            name: "read-classes",
            title: "Reads of dd by class".to_owned(),
            text: vec![
                format!(
                    "A file of {} is read from its begin to its end in {} calls of {}: cached, since it was just \
                     written; and after it was synchronised and dropped from the cache (posix_fadvise). The document's \
                     calls are of 1 MiB, on Lustre. Each call is timed, without the cost of reading the clock, and \
                     without waits for a processor (run delay) where it takes 50 µs or more.",
                    compact::bytes(self.calls * SIZE),
                    self.calls,
                    compact::bytes(SIZE),
                ),
                format!(
                    "The document's classes have fixed bounds. Those of this disk are made of its constants: a read \
                     from the cache takes {}, one from the device {}{}, and a call waits for at most a window of \
                     readahead, {}, which takes {} more. KERNEL has the classes of what the model predicts.",
                    compact::seconds(disk.memory * 1e-9),
                    compact::seconds(disk.device * 1e-9),
                    disk.cache.map_or(String::new(), |cache| format!(
                        ", from its own cache {}",
                        compact::seconds(cache * 1e-9)
                    )),
                    compact::bytes(device.readahead.0),
                    compact::seconds(disk.window * 1e-9),
                ),
            ],
            tables: tables.collect(),
            findings: findings(&runs, &document, &disk),
            data: json!({ "runs": runs, "document": document, "disk": disk }),
            ..Section::default()
        })
    }
}

/// Observed and predicted, beside the document's own counts where the classes are its.
fn table(classes: &Classes, run: &Run) -> Table {
    let (observed, kernel) = (classes.count(&run.observed), classes.count(&run.kernel));
    let is_theirs = classes.memory == 0.0;
    let theirs = if run.is_cached { CACHED } else { UNCACHED };
    let rows = classes.classes.iter().enumerate().map(|(at, class)| {
        let theirs = if is_theirs { theirs[at].to_string() } else { "-".to_owned() };
        let below = class.below.map_or("-".to_owned(), |below| compact::seconds(below * 1e-9));
        let of = |(count, time): (usize, f64), times: &[f64]| {
            let share = compact::percent(count as f64 / times.len().max(1) as f64);
            [count.to_string(), share, compact::seconds(time * 1e-9)]
        };
        let head = [class.name.to_owned(), below, theirs];
        let rest = [of(observed[at], &run.observed), of(kernel[at], &run.kernel)];
        head.into_iter().chain(rest.into_iter().flatten()).collect()
    });
    let header = ["class", "below", "theirs", "calls", "share", "time", "kernel", "share", "time"];
    Table::new(format!("Reads of dd, {}, {}", run.name, classes.caption), header, rows)
}

/// What the document says of a cached and an uncached run.
fn findings(runs: &[Run], document: &Classes, disk: &Classes) -> Vec<Finding> {
    let [cached, uncached] = runs else { return Vec::new() };
    let from_memory = |times: &[f64]| document.count(times)[0].0;
    let part = |run: &Run| from_memory(&run.observed) as f64 / run.observed.len().max(1) as f64;
    let of_all = |times: &[f64]| format!("{} of {}", from_memory(times), times.len());
    let told = |classes: &Classes, times: &[f64]| {
        let counts = classes.count(times);
        let each = classes.classes.iter().zip(&counts);
        each.map(|(class, (count, _))| format!("{count} {}", class.name)).collect::<Vec<_>>().join(", ")
    };
    let finding = |item: &str, theirs: &str, [observed, predicted]: [String; 2], verdict: Verdict| {
        Finding::new(format!("001, {item}"), theirs, observed, predicted, verdict)
    };
    let both = |classes: &Classes| [&uncached.observed, &uncached.kernel].map(|times| told(classes, times));
    let seconds = |run: &Run| [run.seconds, run.kernel_seconds].map(compact::seconds);
    vec![
        finding(
            "dd, cached: from memory (below 0.2 ms)",
            "49 999 of 50 000",
            [&cached.observed, &cached.kernel].map(|times| of_all(times)),
            (part(cached) >= FROM_MEMORY).into(),
        ),
        finding(
            "dd, uncached: most calls meet what was read ahead",
            "47 990 cached, 1412 fast, 432 normal, 151 slow, 15 unexpected",
            both(document),
            (part(uncached) >= READ_AHEAD).into(),
        ),
        finding(
            "dd, uncached: by this disk's classes",
            "bounds coded by hand",
            both(disk),
            Verdict::NotComparable,
        ),
        finding("dd, cached: all calls", "no figures", seconds(cached), Verdict::NotComparable),
        finding("dd, uncached: all calls", "no figures", seconds(uncached), Verdict::NotComparable),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_counts_are_of_as_many_calls() {
        assert_eq!((CACHED.iter().sum::<u32>(), UNCACHED.iter().sum::<u32>()), (50_000, 50_000));
    }

    #[test]
    fn classes_become_findings() {
        let mostly = |fast: usize, slow: usize| [vec![2e3; fast], vec![8e6; slow]].concat();
        let (document, disk) = (Classes::of_document(), Classes::of_disk(&HostProfile::uncalibrated(), SIZE));
        let verdicts = |cached: Vec<f64>, uncached: Vec<f64>| {
            let runs = [Run::new(true, cached.clone(), cached), Run::new(false, uncached.clone(), uncached)];
            let all = findings(&runs, &document, &disk);
            [all[0].verdict, all[1].verdict]
        };
        assert_eq!(verdicts(mostly(4999, 1), mostly(95, 5)), [Verdict::Holds; 2]);
        assert_eq!(verdicts(mostly(99, 1), mostly(80, 20)), [Verdict::Differs; 2]);
    }
}
