//! What the document says, and what became of it here.

use cawl_console::compact;

use super::super::{Finding, Table, Verdict};
use super::grid::{Access, Mode};
use super::theirs::{self, APPEND, APPEND_FSYNC, Pairs, RANDOM, RANDOM_DURABLE};
use super::{Outcome, Outcomes};

/// A ratio that is not farther off than this comes out as stated.
const NEAR: f64 = 2.0;
/// Costs that differ by less than this are the same.
const SAME: f64 = 1.25;

/// A figure of the document: which arms it compares.
struct Figure {
    name: &'static str,
    what: &'static str,
    access: Access,
    buffered: Mode,
    direct: Mode,
    theirs: &'static Pairs,
}

const FIGURES: [Figure; 5] = [
    Figure {
        name: "1",
        what: "appending",
        access: Access::Append,
        buffered: Mode::Buffered,
        direct: Mode::Direct,
        theirs: &APPEND,
    },
    Figure {
        name: "3",
        what: "appending with fsync, direct without sync",
        access: Access::Append,
        buffered: Mode::Fsync,
        direct: Mode::Direct,
        theirs: &APPEND_FSYNC,
    },
    Figure {
        name: "5",
        what: "random, cached",
        access: Access::Warm,
        buffered: Mode::Buffered,
        direct: Mode::Direct,
        theirs: &RANDOM,
    },
    Figure {
        name: "5",
        what: "random, uncached",
        access: Access::Cold,
        buffered: Mode::Buffered,
        direct: Mode::Direct,
        theirs: &RANDOM,
    },
    Figure {
        name: "6",
        what: "random, durable: fsync, O_SYNC",
        access: Access::Warm,
        buffered: Mode::Fsync,
        direct: Mode::DirectSync,
        theirs: &RANDOM_DURABLE,
    },
];

impl Figure {
    /// Buffered and direct at this size.
    fn pair<'a>(&self, outcomes: &'a Outcomes, size: u64) -> Option<(&'a Outcome, &'a Outcome)> {
        let of = |mode| outcomes.of(size, mode, self.access);
        of(self.buffered).zip(of(self.direct))
    }
}

/// How many times the first the second takes: `14.6×`, or `1/462` where it takes less.
fn times(first: f64, second: f64) -> String {
    match second < first {
        true => format!("1/{}", compact::three(first / second)),
        false => format!("{}×", compact::three(second / first)),
    }
}

/// µs as a time.
fn micros(micros: f64) -> String {
    compact::seconds(micros * 1e-6)
}

fn pair_of(pair: (f64, f64)) -> String {
    format!("{} and {}", micros(pair.0), micros(pair.1))
}

fn observed((buffered, direct): (&Outcome, &Outcome)) -> (f64, f64) {
    (buffered.observed / 1e3, direct.observed / 1e3)
}

fn predicted((buffered, direct): (&Outcome, &Outcome)) -> (f64, f64) {
    (buffered.kernel / 1e3, direct.kernel / 1e3)
}

/// The document's figures beside what was observed and predicted.
pub(super) fn figures(outcomes: &Outcomes) -> Table {
    let header = ["figure", "what", "size", "theirs", "ratio", "observed", "ratio", "kernel", "ratio"];
    let of = |figure: &'static Figure| {
        move |size: u64| {
            let pair = figure.pair(outcomes, size)?;
            let theirs = theirs::at(figure.theirs, size);
            let cells = |pair: (f64, f64)| [pair_of(pair), times(pair.0, pair.1)];
            let theirs = theirs.map_or(["-".to_owned(), "-".to_owned()], cells);
            let head = [figure.name.to_owned(), figure.what.to_owned(), compact::bytes(size)];
            let rest = [theirs, cells(observed(pair)), cells(predicted(pair))];
            Some(head.into_iter().chain(rest.into_iter().flatten()).collect())
        }
    };
    Table {
        caption: "The document's figures: buffered and direct, and how many times the first the second takes"
            .to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: FIGURES.iter().flat_map(|figure| outcomes.sizes().into_iter().filter_map(of(figure))).collect(),
    }
}

/// The learnings, each where it applies: which way is faster, and how many times.
pub(super) fn conditions(outcomes: &Outcomes) -> Table {
    let durable = |access| (access, Mode::Fsync, Mode::DirectSync);
    let volatile = |access| (access, Mode::Buffered, Mode::Direct);
    let arms = [
        ("II", "durable, appended", durable(Access::Append)),
        ("II", "durable, written over, cached", durable(Access::Warm)),
        ("II", "durable, written over, uncached", durable(Access::Cold)),
        ("III", "not durable, random, cached", volatile(Access::Warm)),
        ("III", "not durable, random, uncached", volatile(Access::Cold)),
    ];
    let faster = |(buffered, direct): (f64, f64)| match buffered < direct {
        true => format!("buffered {}", times(buffered, direct)),
        false => format!("direct {}", times(direct, buffered)),
    };
    let row =
        |learning: &str, condition: &str, size: u64, observed: (f64, f64), kernel: Option<(f64, f64)>| {
            let cells = [compact::bytes(size), faster(observed), kernel.map_or("-".to_owned(), faster)];
            [learning.to_owned(), condition.to_owned()].into_iter().chain(cells).collect::<Vec<String>>()
        };
    let mut rows = Vec::new();
    for size in outcomes.sizes() {
        let read = |mode| outcomes.of(size, mode, Access::Append)?.read_back.map(|rate| 1.0 / rate);
        let read = read(Mode::Buffered).zip(read(Mode::Direct));
        rows.extend(read.map(|pair| row("I", "read again, in sequence", size, pair, None)));
    }
    for (learning, condition, (access, buffered, direct)) in arms {
        for size in outcomes.sizes() {
            let of = |mode| outcomes.of(size, mode, access);
            let pair = of(buffered).zip(of(direct));
            rows.extend(
                pair.map(|pair| row(learning, condition, size, observed(pair), Some(predicted(pair)))),
            );
        }
    }
    Table {
        caption: "The learnings as conditions: which way is faster, and how many times".to_owned(),
        header: ["learning", "condition", "size", "observed", "kernel"].map(str::to_owned).to_vec(),
        rows,
    }
}

/// Reading what was appended.
pub(super) fn read_back(outcomes: &Outcomes) -> Table {
    let header = ["size", "written buffered", "written direct", "theirs, buffered", "theirs, direct"];
    let row = |size: u64| {
        let of = |mode| outcomes.of(size, mode, Access::Append)?.read_back;
        let theirs = theirs::READ_BACK.iter().find(|known| known.0 == size);
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), compact::rate);
        let cell = |mib: Option<f64>| rate(mib.map(|mib| mib * f64::from(1 << 20)));
        Some(vec![
            compact::bytes(size),
            rate(Some(of(Mode::Buffered)?)),
            rate(Some(of(Mode::Direct)?)),
            cell(theirs.map(|known| known.1)),
            cell(theirs.map(|known| known.2)),
        ])
    };
    Table {
        caption: "Reading again what was appended, from its begin to its end".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: outcomes.sizes().into_iter().filter_map(row).collect(),
    }
}

/// The rows of the summary; none for what could not be measured.
pub(super) fn findings(outcomes: &Outcomes) -> Vec<Finding> {
    let [append, _, random, uncached, durable] = &FIGURES;
    let small = outcomes.sizes().into_iter().filter(|size| (1024..4096).contains(size)).chain([512]).next();
    let mut all: Vec<Option<Finding>> = Vec::new();
    for size in [512, 4 << 10, 64 << 10] {
        all.push(ratio(outcomes, "Fig 1: direct over buffered", append, size));
    }
    all.push(parts(outcomes));
    all.push(constant(outcomes, small.unwrap_or(512)));
    for size in [4 << 10, 64 << 10] {
        all.push(ratio(outcomes, "Fig 5: direct over buffered, cached", random, size));
    }
    all.push(two_modes(outcomes));
    all.push(processor(outcomes));
    all.push(read_again(outcomes));
    for size in [4 << 10, 64 << 10] {
        all.push(durable_against_durable(outcomes, durable, size));
    }
    all.push(no_difference(outcomes, random, uncached));
    all.into_iter().flatten().collect()
}

fn finding(item: String, theirs: String, observed: String, predicted: String, verdict: Verdict) -> Finding {
    Finding { item: format!("002, {item}"), theirs, observed, predicted, verdict }
}

fn if_so(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::Differs }
}

fn with_ratio(pair: (f64, f64)) -> String {
    format!("{}: {}", pair_of(pair), times(pair.0, pair.1))
}

fn ratio(outcomes: &Outcomes, item: &str, figure: &Figure, size: u64) -> Option<Finding> {
    let (pair, theirs) = (figure.pair(outcomes, size)?, theirs::at(figure.theirs, size)?);
    let of = |pair: (f64, f64)| pair.1 / pair.0;
    let apart = of(observed(pair)) / of(theirs);
    Some(finding(
        format!("{item}, {}", compact::bytes(size)),
        with_ratio(theirs),
        with_ratio(observed(pair)),
        with_ratio(predicted(pair)),
        if_so((1.0 / NEAR..=NEAR).contains(&apart)),
    ))
}

/// A direct write of a part of a block takes longer than one of a block.
fn parts(outcomes: &Outcomes) -> Option<Finding> {
    let of = |size| outcomes.of(size, Mode::Direct, Access::Append);
    let (part, whole) = (of(512)?, of(4096)?);
    let theirs = theirs::at(&APPEND, 512)?.1 / theirs::at(&APPEND, 4096)?.1;
    let here = part.observed / whole.observed;
    Some(finding(
        "Fig 1: direct 512 B over 4 KiB".to_owned(),
        format!("{}×", compact::three(theirs)),
        times(whole.observed, part.observed),
        times(whole.kernel, part.kernel),
        if_so((1.0 / NEAR..=NEAR).contains(&(here / theirs))),
    ))
}

/// With fsync after each write, the size does not matter.
fn constant(outcomes: &Outcomes, small: u64) -> Option<Finding> {
    let sizes = [small, 4 << 10, 64 << 10];
    let all: Vec<&Outcome> =
        sizes.iter().map(|size| outcomes.of(*size, Mode::Fsync, Access::Append)).collect::<Option<_>>()?;
    let list = |times: &[f64]| times.iter().map(|time| micros(*time)).collect::<Vec<_>>().join(", ");
    let here: Vec<f64> = all.iter().map(|one| one.observed / 1e3).collect();
    let kernel: Vec<f64> = all.iter().map(|one| one.kernel / 1e3).collect();
    let theirs: Vec<f64> = [1 << 10, 4 << 10, 64 << 10]
        .iter()
        .filter_map(|size| Some(theirs::at(&APPEND_FSYNC, *size)?.0))
        .collect();
    let (low, high) =
        here.iter().fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
    Some(finding(
        format!("Fig 3: fsync each, {}, 4 KiB, 64 KiB", compact::bytes(small)),
        format!("constant: {}", list(&theirs)),
        list(&here),
        list(&kernel),
        if_so(high < low * SAME),
    ))
}

/// Writes into pages that are cached and those into others are two modes.
fn two_modes(outcomes: &Outcomes) -> Option<Finding> {
    let cold = outcomes.of(512, Mode::Buffered, Access::Cold)?;
    let warm = outcomes.of(512, Mode::Buffered, Access::Warm)?;
    let modes: Vec<String> = cold
        .modes
        .iter()
        .map(|(peak, share)| format!("{} {:.0} %", micros(peak / 1e3), share * 100.0))
        .collect();
    Some(finding(
        "Fig 5: times are bimodal, 512 B".to_owned(),
        "70 % hits; int overflows".to_owned(),
        format!("{}; {:.0} % cached", modes.join(", "), cold.met * 100.0),
        format!("{} read first, {} cached", micros(cold.kernel / 1e3), micros(warm.kernel / 1e3)),
        Verdict::Wrong,
    ))
}

/// Copying takes the processor.
fn processor(outcomes: &Outcomes) -> Option<Finding> {
    let of = |mode| outcomes.of(64 << 10, mode, Access::Append);
    let (buffered, direct) = (of(Mode::Buffered)?, of(Mode::Direct)?);
    Some(finding(
        "§2.1: direct takes less processor, 64 KiB".to_owned(),
        "without figures".to_owned(),
        pair_of((buffered.processor / 1e3, direct.processor / 1e3)),
        String::new(),
        if_so(direct.processor < buffered.processor),
    ))
}

/// Learning I: what is read again is better written through the cache.
fn read_again(outcomes: &Outcomes) -> Option<Finding> {
    let size = 4 << 10;
    let of = |mode| outcomes.of(size, mode, Access::Append)?.read_back;
    let (buffered, direct) = (of(Mode::Buffered)?, of(Mode::Direct)?);
    let (_, theirs, past) = theirs::READ_BACK.iter().find(|known| known.0 == size)?;
    Some(finding(
        "Learning I: buffered if read again, 4 KiB".to_owned(),
        format!("{theirs:.0} and {past:.0} MiB/s"),
        format!("{} and {}", compact::rate(buffered), compact::rate(direct)),
        String::new(),
        if_so(buffered > direct * SAME),
    ))
}

/// Learning II: for durability, direct is better. Its data for it are direct writes that are not durable.
fn durable_against_durable(outcomes: &Outcomes, figure: &Figure, size: u64) -> Option<Finding> {
    let (pair, theirs) = (figure.pair(outcomes, size)?, theirs::at(figure.theirs, size)?);
    let not_durable = theirs::at(&APPEND_FSYNC, size)?;
    Some(finding(
        format!("Learning II: direct 100× better than fsync, {}", compact::bytes(size)),
        format!("{} if not durable; durable {}", times(not_durable.1, not_durable.0), pair_of(theirs)),
        format!("durable {}", pair_of(observed(pair))),
        format!("durable {}", pair_of(predicted(pair))),
        Verdict::Wrong,
    ))
}

/// Learning III: for random writes the two hardly differ. Figure 5 of the same document has 1000 times.
fn no_difference(outcomes: &Outcomes, warm: &Figure, cold: &Figure) -> Option<Finding> {
    let size = 4 << 10;
    let (warm, cold) = (warm.pair(outcomes, size)?, cold.pair(outcomes, size)?);
    let both = |of: fn((&Outcome, &Outcome)) -> (f64, f64)| {
        let [warm, cold] = [warm, cold].map(|pair| times(of(pair).0, of(pair).1));
        format!("direct {warm} cached, {cold} uncached")
    };
    let theirs = theirs::at(&RANDOM, size)?;
    Some(finding(
        "Learning III: random writes hardly differ, 4 KiB".to_owned(),
        format!("1 GiB: direct {}", times(theirs.0, theirs.1)),
        both(observed),
        both(predicted),
        Verdict::Wrong,
    ))
}
