//! The study's part of the page: tables, charts and findings.

use cawl_console::{percent, time};
use cawl_core::{Bytes, median};
use serde_json::Value;

use super::super::chart::{Group, Scale, Series, boxes, scatter};
use super::super::{Finding, Section, Table, Verdict, fitted};
use super::grid::Arm;
use super::judge::{Cell, Errors, GOAL, Judged, LAWS, REPETITIONS, error};
use super::measure::Made;
use crate::regress::{Fit, Form};

const BLOCKS: Scale = Scale { name: "blocks written", label: |blocks| format!("{blocks:.0}") };
const WALL: Scale = Scale { name: "wall time", label: time };
const SYSTEM: Scale = Scale { name: "system time", label: time };
const PREDICTED: Scale = Scale { name: "predicted wall time", label: time };

/// The section with these data.
pub fn section(judged: &Judged, made: &[Made], data: Value) -> anyhow::Result<Section> {
    Ok(Section {
        name: "osync",
        title: "O_SYNC and block size on this disk".to_owned(),
        text: vec![
            "Files of several sizes are written in blocks of several sizes: as the kernel thinks fit (none), with \
             O_SYNC, with O_DSYNC, and with one fsync at the end. Runs are in random order. Before each one pending \
             data are written out, and its file is removed after it; neither is timed. Wall time is \
             CLOCK_MONOTONIC, user and system time are those of getrusage, and what is left is unaccounted. A cell's \
             time is the median of its repetitions."
                .to_owned(),
            "Predictions have the profile and the calls alone. Eq. 4 is the paper's: for each call \
             sc_sw + s / bw_ram + s / bw_dev with the calibrated constants, where sc_sw is the whole fixed cost of a \
             synchronous write. The document's second model, and Eq. 4's form with a constant for each call and each \
             byte, are fitted to the runs that they are judged on."
                .to_owned(),
        ],
        tables: tables(judged),
        pictures: pictures(judged, made)?,
        findings: findings(judged),
        data,
    })
}

/// Sizes that the cells have, in order.
fn sizes(judged: &Judged, pick: fn(&Cell) -> u64) -> Vec<u64> {
    let mut sizes: Vec<u64> = judged.cells.iter().map(pick).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn tables(judged: &Judged) -> Vec<Table> {
    let [call, byte] = [0, 1].map(|at| judged.eq4_form.coefficients.get(at).map_or(0.0, |one| one.estimate));
    vec![
        per_block(judged),
        errors(judged),
        misses(judged, "Eq. 4 with the calibrated constants", |cell| cell.predicted.eq4),
        misses(judged, "kernel", |cell| Some(cell.predicted.kernel)),
        misses(
            judged,
            &format!("Eq. 4's form as fitted here, {} a call and {:.3} ns a byte", time(call), byte * 1e9),
            |cell| cell.eq4_form,
        ),
        fitted::coefficients("The document's second model of system time, in its two arms", &judged.sys),
        fitted::coefficients("The same of wall time", &judged.wall),
        fitted::coefficients("The same of wall time in all arms", &judged.wall_all),
        fitted::forms("Forms of system time in tenfold cross-validation, rows above zero", &judged.sys_forms),
        fitted::forms("Forms of wall time in tenfold cross-validation", &judged.wall_forms),
    ]
}

/// What a block takes by its size, medians over the files.
fn per_block(judged: &Judged) -> Table {
    let row = |block: &u64| {
        let of = |sync: Arm, pick: fn(&Cell) -> Option<f64>| {
            let cells = judged.arm(sync).filter(|cell| cell.block_size == *block);
            let each: Vec<f64> = cells.filter_map(|cell| Some(pick(cell)? / cell.blocks as f64)).collect();
            median(&each).map_or("-".to_owned(), time)
        };
        let wall = |cell: &Cell| Some(cell.taken.wall);
        let kernel = |cell: &Cell| Some(cell.predicted.kernel);
        let arm = |sync: Arm| [of(sync, wall), of(sync, |cell| Some(cell.taken.sys)), of(sync, kernel)];
        let mut cells = vec![Bytes(*block).to_string()];
        cells.extend(arm(Arm::None));
        cells.extend(arm(Arm::OSync));
        cells.push(of(Arm::OSync, |cell| cell.predicted.eq4));
        cells.extend([of(Arm::ODsync, wall), of(Arm::ODsync, kernel)]);
        cells.extend([of(Arm::Fsync, wall), of(Arm::Fsync, kernel)]);
        cells
    };
    let header = [
        "block", "none", "system", "kernel", "O_SYNC", "system", "kernel", "Eq. 4", "O_DSYNC", "kernel",
        "fsync", "kernel",
    ];
    Table {
        caption: "Time a block: wall and system time as observed, wall time as predicted".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: sizes(judged, |cell| cell.block_size).iter().map(row).collect(),
    }
}

fn errors(judged: &Judged) -> Table {
    let row = |law: &'static str| {
        let of_arm = |sync: Arm| {
            let of = |one: &Errors| {
                let errors = [one.median, one.worst].map(|error| percent(Some(error))).join(", ");
                format!("{errors}, {} of {}", one.within, one.cells)
            };
            judged.errors_of(sync, law).map_or("-".to_owned(), of)
        };
        [law.to_owned()].into_iter().chain(Arm::ALL.map(of_arm)).collect()
    };
    let header = ["law"].into_iter().chain(Arm::ALL.map(Arm::name));
    Table {
        caption: "Errors of the cells' wall times: median, worst, and cells within 10 %".to_owned(),
        header: header.map(str::to_owned).collect(),
        rows: LAWS.iter().map(|(law, _)| *law).chain([REPETITIONS]).map(row).collect(),
    }
}

/// The errors of a law with O_SYNC, cell by cell.
fn misses(judged: &Judged, law: &str, says: fn(&Cell) -> Option<f64>) -> Table {
    let files = sizes(judged, |cell| cell.num_bytes);
    let row = |block: &u64| {
        let of_file = |file: &u64| {
            let mut arm = judged.arm(Arm::OSync);
            let cell = arm.find(|cell| (cell.block_size, cell.num_bytes) == (*block, *file));
            cell.and_then(|cell| Some(signed(error(cell, says(cell)?)))).unwrap_or_default()
        };
        [Bytes(*block).to_string()].into_iter().chain(files.iter().map(of_file)).collect()
    };
    let header = ["block".to_owned()].into_iter().chain(files.iter().map(|file| Bytes(*file).to_string()));
    Table {
        caption: format!("Predicted less observed wall time with O_SYNC, by file: {law}"),
        header: header.collect(),
        rows: sizes(judged, |cell| cell.block_size).iter().map(row).collect(),
    }
}

fn signed(error: f64) -> String {
    let sign = if error < 0.0 { "−" } else { "+" };
    format!("{sign}{}", percent(Some(error.abs())))
}

fn pictures(judged: &Judged, made: &[Made]) -> anyhow::Result<Vec<String>> {
    let by_arm = Arm::ALL.map(|sync| {
        let runs = made.iter().filter(|one| one.sync == sync);
        let point = |one: &Made| ((one.num_bytes / one.block_size) as f64, one.taken.wall);
        Series { name: sync.name(), points: runs.map(point).collect() }
    });
    let by_law = LAWS[..5].iter().map(|(name, says)| {
        let point = |cell: &Cell| Some((cell.taken.wall, says(cell)?));
        Series { name, points: judged.arm(Arm::OSync).filter_map(point).collect() }
    });
    let group = |name: String, runs: &dyn Fn(&Made) -> bool| Group {
        name,
        values: made.iter().filter(|one| runs(one)).map(|one| one.taken.sys).collect(),
    };
    let by_block: Vec<Group> = sizes(judged, |cell| cell.block_size)
        .into_iter()
        .map(|size| group(Bytes(size).to_string(), &|one| one.block_size == size))
        .collect();
    let of_arm = Arm::ALL.map(|sync| group(sync.name().to_owned(), &|one| one.sync == sync));
    Ok(vec![
        scatter("Wall time against blocks written, each run", BLOCKS, WALL, &by_arm, false)?,
        scatter(
            "Wall time with O_SYNC, predicted against observed, each cell; the line is no error",
            WALL,
            PREDICTED,
            &by_law.collect::<Vec<_>>(),
            true,
        )?,
        boxes(
            "System time by block size, all arms: quartiles, and lines to the extremes",
            "block",
            SYSTEM,
            &by_block,
        )?,
        boxes("System time by arm: quartiles, and lines to the extremes", "arm", SYSTEM, &of_arm)?,
    ])
}

fn findings(judged: &Judged) -> Vec<Finding> {
    let finding = |item: &str, theirs: &str, observed: String, predicted: String, verdict| Finding {
        item: item.to_owned(),
        theirs: theirs.to_owned(),
        observed,
        predicted,
        verdict,
    };
    let here = |holds: bool| if holds { Verdict::Holds } else { Verdict::Differs };
    let near = |found: f64, theirs: f64| here((found / theirs - 1.0).abs() <= GOAL);
    let sums = |sync: Arm| {
        let wall = judged.per_block(sync, |cell| cell.taken.wall);
        let sys = judged.per_block(sync, |cell| cell.taken.sys);
        let kernel = judged.per_block(sync, |cell| cell.predicted.kernel);
        (wall, format!("wall {}, system {}", time(wall), time(sys)), format!("kernel {}", time(kernel)))
    };
    let (synchronous, observed, predicted) = sums(Arm::OSync);
    let mut findings =
        vec![finding("004, a block with O_SYNC", "200 µs", observed, predicted, near(synchronous, 200e-6))];
    let (plain, observed, predicted) = sums(Arm::None);
    findings.push(finding("004, a block without it", "1 µs", observed, predicted, near(plain, 1e-6)));
    let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let overhead = |fit: &Fit| fit.coefficients.iter().find(|one| one.name == "synco_sync").cloned();
    if let (Some(sys), Some(wall)) = (overhead(&judged.sys), overhead(&judged.wall)) {
        let observed = format!(
            "system {} ({} to {}), wall {} ms",
            ms(sys.estimate),
            ms(sys.low),
            ms(sys.high),
            ms(wall.estimate)
        );
        let inside = (0.041..=0.097).contains(&sys.estimate);
        findings.push(finding(
            "004, overhead of O_SYNC",
            "69 ± 28 ms",
            observed,
            String::new(),
            here(inside),
        ));
    }
    let wall: f64 = judged.arm(Arm::OSync).map(|cell| cell.taken.wall).sum();
    let unaccounted = judged.arm(Arm::OSync).map(|cell| cell.taken.unaccounted()).sum::<f64>() / wall;
    findings.push(finding(
        "004, unaccounted time with O_SYNC",
        "can be ignored",
        format!("{} of the wall time", percent(Some(unaccounted))),
        String::new(),
        here(unaccounted <= GOAL),
    ));
    for (of, forms) in [("system", &judged.sys_forms), ("wall", &judged.wall_forms)] {
        let best =
            |one: &&Form, other: &&Form| one.median_relative_error.total_cmp(&other.median_relative_error);
        let Some(won) = forms.iter().min_by(best) else { continue };
        let observed = forms.iter().map(|form| {
            format!("{} {}", form.form.replace('_', "-"), percent(Some(form.median_relative_error)))
        });
        findings.push(finding(
            &format!("004, the form of {of} time"),
            "least squares",
            observed.collect::<Vec<_>>().join(", "),
            String::new(),
            here(won.form == "least_squares"),
        ));
    }
    for (item, law) in [("000, Eq. 4 on 004's grid, O_SYNC", "Eq. 4"), ("kernel on the same", "kernel")] {
        let Some(one) = judged.errors_of(Arm::OSync, law) else { continue };
        let errors = [one.median, one.worst].map(|error| percent(Some(error)));
        let predicted =
            format!("{} of {} cells; median {}, worst {}", one.within, one.cells, errors[0], errors[1]);
        let holds = here(one.within == one.cells);
        findings.push(finding(item, "10 % in each cell (goal)", String::new(), predicted, holds));
    }
    findings
}
