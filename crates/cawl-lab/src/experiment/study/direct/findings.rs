//! What the document says, and what became of it here.

use cawl_console::compact;

use super::super::{Finding, Table, Verdict};
use super::theirs::{self, APPEND, APPEND_FSYNC, Pairs, RANDOM, RANDOM_DURABLE, READ_BACK};
use super::{Access, Mode, Outcome, Outcomes};

/// A ratio that is not farther off than this comes out as stated.
const NEAR: f64 = 2.0;
/// Costs that differ by less than this are the same.
const SAME: f64 = 1.25;

/// A figure of the document: what it is of, and which arms it compares, buffered and direct.
struct Figure {
    name: &'static str,
    what: &'static str,
    access: Access,
    arms: (Mode, Mode),
    theirs: &'static Pairs,
}

const FIGURES: [Figure; 5] = {
    const fn figure(
        name: &'static str,
        what: &'static str,
        access: Access,
        arms: (Mode, Mode),
        theirs: &'static Pairs,
    ) -> Figure {
        Figure { name, what, access, arms, theirs }
    }
    [
        figure("1", "appending", Access::Append, VOLATILE, &APPEND),
        figure(
            "3",
            "appending with fsync, direct without sync",
            Access::Append,
            (Mode::Fsync, Mode::Direct),
            &APPEND_FSYNC,
        ),
        figure("5", "random, cached", Access::Warm, VOLATILE, &RANDOM),
        figure("5", "random, uncached", Access::Cold, VOLATILE, &RANDOM),
        figure("6", "random, durable: fsync, O_SYNC", Access::Warm, DURABLE, &RANDOM_DURABLE),
    ]
};

const VOLATILE: (Mode, Mode) = (Mode::Buffered, Mode::Direct);
const DURABLE: (Mode, Mode) = (Mode::Fsync, Mode::DirectSync);

/// A call buffered and one direct, in µs.
type Pair = (f64, f64);

/// The outcomes of both arms at a size: observed and predicted.
fn pair(outcomes: &Outcomes, size: u64, access: Access, arms: (Mode, Mode)) -> Option<[Pair; 2]> {
    let of = |mode| outcomes.of(size, mode, access);
    let (buffered, direct) = (of(arms.0)?, of(arms.1)?);
    let both = |of: fn(&Outcome) -> f64| (of(buffered) / 1e3, of(direct) / 1e3);
    Some([both(|one| one.timed.observed), both(|one| one.timed.kernel())])
}

impl Figure {
    fn pair(&self, outcomes: &Outcomes, size: u64) -> Option<[Pair; 2]> {
        pair(outcomes, size, self.access, self.arms)
    }
}

/// How many times the first the second takes: `14.6×`, or `1/462` where it takes less.
fn times((first, second): Pair) -> String {
    match second < first {
        true => format!("1/{}", compact::three(first / second)),
        false => format!("{}×", compact::three(second / first)),
    }
}

/// µs as a time.
fn micros(micros: f64) -> String {
    compact::seconds(micros * 1e-6)
}

fn both(pair: Pair) -> String {
    format!("{} and {}", micros(pair.0), micros(pair.1))
}

/// Bytes per second of reading again what was appended, buffered and direct.
fn read_rates(outcomes: &Outcomes, size: u64) -> Option<Pair> {
    let of = |mode| outcomes.of(size, mode, Access::Append)?.read_back;
    of(Mode::Buffered).zip(of(Mode::Direct))
}

/// The document's figures beside what was observed and predicted.
pub(super) fn figures(outcomes: &Outcomes) -> Table {
    let cells = |pair: Pair| [both(pair), times(pair)];
    let row = |figure: &Figure, size: u64| {
        let theirs = theirs::at(figure.theirs, size).map_or(["-".to_owned(), "-".to_owned()], cells);
        let head = [figure.name.to_owned(), figure.what.to_owned(), compact::bytes(size)];
        let here = figure.pair(outcomes, size)?.into_iter().flat_map(cells);
        Some(head.into_iter().chain(theirs).chain(here).collect())
    };
    let sizes = outcomes.sizes();
    Table::new(
        "The document's figures: buffered and direct, and how many times the first the second takes",
        ["figure", "what", "size", "theirs", "ratio", "observed", "ratio", "kernel", "ratio"],
        FIGURES.iter().flat_map(|figure| sizes.iter().filter_map(move |size| row(figure, *size))),
    )
}

/// The learnings, each where it applies: which way is faster, and how many times.
pub(super) fn conditions(outcomes: &Outcomes) -> Table {
    let arms = [
        ("II", "durable, appended", DURABLE, Access::Append),
        ("II", "durable, written over, cached", DURABLE, Access::Warm),
        ("II", "durable, written over, uncached", DURABLE, Access::Cold),
        ("III", "not durable, random, cached", VOLATILE, Access::Warm),
        ("III", "not durable, random, uncached", VOLATILE, Access::Cold),
    ];
    let faster = |(buffered, direct): Pair| match buffered < direct {
        true => format!("buffered {}", times((buffered, direct))),
        false => format!("direct {}", times((direct, buffered))),
    };
    let row = |learning: &str, condition: &str, size: u64, cells: [String; 2]| {
        let head = [learning.to_owned(), condition.to_owned(), compact::bytes(size)];
        head.into_iter().chain(cells).collect()
    };
    let mut rows = Vec::new();
    for size in outcomes.sizes() {
        let rates = read_rates(outcomes, size);
        let cells = rates.map(|(buffered, direct)| [faster((1.0 / buffered, 1.0 / direct)), "-".to_owned()]);
        rows.extend(cells.map(|cells| row("I", "read again, in sequence", size, cells)));
    }
    for (learning, condition, arms, access) in arms {
        for size in outcomes.sizes() {
            let cells = pair(outcomes, size, access, arms).map(|pairs| pairs.map(faster));
            rows.extend(cells.map(|cells| row(learning, condition, size, cells)));
        }
    }
    Table::new(
        "The learnings as conditions: which way is faster, and how many times",
        ["learning", "condition", "size", "observed", "kernel"],
        rows,
    )
}

/// Reading what was appended.
pub(super) fn read_back(outcomes: &Outcomes) -> Table {
    let row = |size: u64| {
        let (buffered, direct) = read_rates(outcomes, size)?;
        let theirs = READ_BACK.iter().find(|known| known.0 == size);
        let mib =
            |mib: Option<f64>| mib.map_or("-".to_owned(), |mib| compact::rate(mib * f64::from(1 << 20)));
        let theirs = [mib(theirs.map(|known| known.1)), mib(theirs.map(|known| known.2))];
        let here = [compact::bytes(size), compact::rate(buffered), compact::rate(direct)];
        Some(here.into_iter().chain(theirs).collect())
    };
    Table::new(
        "Reading again what was appended, from its begin to its end",
        ["size", "written buffered", "written direct", "theirs, buffered", "theirs, direct"],
        outcomes.sizes().into_iter().filter_map(row),
    )
}

/// The rows of the summary; none for what could not be measured.
pub(super) fn findings(outcomes: &Outcomes) -> Vec<Finding> {
    let [append, _, random, uncached, durable] = &FIGURES;
    let small = outcomes.sizes().into_iter().filter(|size| (1024..4096).contains(size)).chain([512]).next();
    let first =
        [512, 4 << 10, 64 << 10].map(|size| ratio(outcomes, "Fig 1: direct over buffered", append, size));
    let larger = [4 << 10, 64 << 10];
    let fifth = larger.map(|size| ratio(outcomes, "Fig 5: direct over buffered, cached", random, size));
    let all = first.into_iter().chain([parts(outcomes), constant(outcomes, small.unwrap_or(512))]);
    let all = all.chain(fifth).chain([two_modes(outcomes), processor(outcomes), read_again(outcomes)]);
    let all = all.chain(larger.map(|size| durable_against_durable(outcomes, durable, size)));
    all.chain([no_difference(outcomes, random, uncached)]).flatten().collect()
}

fn ratio(outcomes: &Outcomes, item: &str, figure: &Figure, size: u64) -> Option<Finding> {
    let ([observed, kernel], theirs) = (figure.pair(outcomes, size)?, theirs::at(figure.theirs, size)?);
    let told = |pair: Pair| format!("{}: {}", both(pair), times(pair));
    let apart = observed.1 / observed.0 / (theirs.1 / theirs.0);
    let item = format!("002, {item}, {}", compact::bytes(size));
    Some(Finding::new(item, told(theirs), told(observed), told(kernel), (1.0 / NEAR..=NEAR).contains(&apart)))
}

/// A direct write of a part of a block takes longer than one of a block.
fn parts(outcomes: &Outcomes) -> Option<Finding> {
    let of = |size| outcomes.of(size, Mode::Direct, Access::Append).map(|one| &one.timed);
    let (part, whole) = (of(512)?, of(4096)?);
    let theirs = theirs::at(&APPEND, 512)?.1 / theirs::at(&APPEND, 4096)?.1;
    let apart = part.observed / whole.observed / theirs;
    Some(Finding::new(
        "002, Fig 1: direct 512 B over 4 KiB",
        format!("{}×", compact::three(theirs)),
        times((whole.observed, part.observed)),
        times((whole.kernel(), part.kernel())),
        (1.0 / NEAR..=NEAR).contains(&apart),
    ))
}

/// With fsync after each write, the size does not matter.
fn constant(outcomes: &Outcomes, small: u64) -> Option<Finding> {
    let larger = [4 << 10, 64 << 10];
    let of = |size: u64| pair(outcomes, size, Access::Append, (Mode::Fsync, Mode::Fsync));
    let all = [of(small)?, of(larger[0])?, of(larger[1])?];
    let theirs =
        [1 << 10, larger[0], larger[1]].map(|size| theirs::at(&APPEND_FSYNC, size).map(|pair| pair.0));
    let list = |times: &mut dyn Iterator<Item = f64>| times.map(micros).collect::<Vec<_>>().join(", ");
    let here = || all.iter().map(|pairs| pairs[0].0);
    Some(Finding::new(
        format!("002, Fig 3: fsync each, {}, 4 KiB, 64 KiB", compact::bytes(small)),
        format!("constant: {}", list(&mut theirs.into_iter().flatten())),
        list(&mut here()),
        list(&mut all.iter().map(|pairs| pairs[1].0)),
        here().fold(0.0, f64::max) < here().fold(f64::MAX, f64::min) * SAME,
    ))
}

/// Writes into pages that are cached and those into others are two modes.
fn two_modes(outcomes: &Outcomes) -> Option<Finding> {
    let cold = outcomes.of(512, Mode::Buffered, Access::Cold)?;
    let warm = outcomes.of(512, Mode::Buffered, Access::Warm)?;
    let of = |ns: f64| micros(ns / 1e3);
    Some(Finding::new(
        "002, Fig 5: times are bimodal, 512 B",
        "70 % hits; int overflows",
        format!("{}; {:.0} % cached", cold.timed.modes(of), cold.met * 100.0),
        format!("{} read first, {} cached", of(cold.timed.kernel()), of(warm.timed.kernel())),
        Verdict::Wrong,
    ))
}

/// Copying takes the processor.
fn processor(outcomes: &Outcomes) -> Option<Finding> {
    let of = |mode| outcomes.of(64 << 10, mode, Access::Append).map(|one| one.processor / 1e3);
    let (buffered, direct) = (of(Mode::Buffered)?, of(Mode::Direct)?);
    let item = "002, §2.1: direct takes less processor, 64 KiB";
    Some(Finding::new(item, "without figures", both((buffered, direct)), "", direct < buffered))
}

/// Learning I: what is read again is better written through the cache.
fn read_again(outcomes: &Outcomes) -> Option<Finding> {
    let size = 4 << 10;
    let (buffered, direct) = read_rates(outcomes, size)?;
    let (_, theirs, past) = READ_BACK.iter().find(|known| known.0 == size)?;
    Some(Finding::new(
        "002, Learning I: buffered if read again, 4 KiB",
        format!("{theirs:.0} and {past:.0} MiB/s"),
        format!("{} and {}", compact::rate(buffered), compact::rate(direct)),
        "",
        buffered > direct * SAME,
    ))
}

/// Learning II: for durability, direct is better. Its data for it are direct writes that are not durable.
fn durable_against_durable(outcomes: &Outcomes, figure: &Figure, size: u64) -> Option<Finding> {
    let ([observed, kernel], theirs) = (figure.pair(outcomes, size)?, theirs::at(figure.theirs, size)?);
    let (fsync, direct) = theirs::at(&APPEND_FSYNC, size)?;
    Some(Finding::new(
        format!("002, Learning II: direct 100× better than fsync, {}", compact::bytes(size)),
        format!("{} if not durable; durable {}", times((direct, fsync)), both(theirs)),
        format!("durable {}", both(observed)),
        format!("durable {}", both(kernel)),
        Verdict::Wrong,
    ))
}

/// Learning III: for random writes the two hardly differ. Figure 5 of the same document has 1000 times.
fn no_difference(outcomes: &Outcomes, warm: &Figure, cold: &Figure) -> Option<Finding> {
    let size = 4 << 10;
    let (warm, cold) = (warm.pair(outcomes, size)?, cold.pair(outcomes, size)?);
    let told = |at: usize| format!("direct {} cached, {} uncached", times(warm[at]), times(cold[at]));
    Some(Finding::new(
        "002, Learning III: random writes hardly differ, 4 KiB",
        format!("1 GiB: direct {}", times(theirs::at(&RANDOM, size)?)),
        told(0),
        told(1),
        Verdict::Wrong,
    ))
}
