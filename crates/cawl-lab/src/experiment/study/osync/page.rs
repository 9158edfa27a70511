//! The study's part of the page: tables, charts and findings.

use std::collections::BTreeSet;

use cawl_console::{percent, time};
use cawl_core::{Bytes, median};
use serde_json::Value;

use super::super::{Finding, Section, Table, fitted};
use super::judge::{EQ4, Errors, FITTED_EQ4, GOAL, Judged, Outcome, laws};
use super::{Arm, Cell, Taken};
use crate::experiment::plot::chart::{Group, Scale, Series, boxes, scatter};
use crate::regress::{Fit, Form};

const BLOCKS: Scale = Scale { name: "blocks written", label: |blocks| format!("{blocks:.0}") };
const WALL: Scale = Scale { name: "wall time", label: time };
const SYSTEM: Scale = Scale { name: "system time", label: time };
const PREDICTED: Scale = Scale { name: "predicted wall time", label: time };

pub fn section(judged: &Judged, runs: &[(Cell, Taken)], data: Value) -> anyhow::Result<Section> {
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
        pictures: pictures(judged, runs)?,
        findings: findings(judged),
        data,
    })
}

/// Sizes that the cells have, in order.
fn sizes(judged: &Judged, pick: fn(&Cell) -> u64) -> BTreeSet<u64> {
    judged.cells.iter().map(|one| pick(&one.cell)).collect()
}

fn tables(judged: &Judged) -> Vec<Table> {
    let [call, byte] = [0, 1].map(|at| judged.eq4_form.coefficients.get(at).map_or(0.0, |one| one.estimate));
    let form = format!("Eq. 4's form as fitted here, {} a call and {:.3} ns a byte", time(call), byte * 1e9);
    vec![
        per_block(judged),
        errors(judged),
        misses(judged, "Eq. 4 with the calibrated constants", EQ4),
        misses(judged, "kernel", "kernel"),
        misses(judged, &form, FITTED_EQ4),
        fitted::coefficients("The document's second model of system time, in its two arms", &judged.sys),
        fitted::coefficients("The same of wall time", &judged.wall),
        fitted::coefficients("The same of wall time in all arms", &judged.wall_all),
        fitted::forms("Forms of system time in tenfold cross-validation, rows above zero", &judged.sys_forms),
        fitted::forms("Forms of wall time in tenfold cross-validation", &judged.wall_forms),
    ]
}

/// What a block takes by its size, medians over the files.
fn per_block(judged: &Judged) -> Table {
    type Seconds = fn(&Outcome) -> Option<f64>;
    let (wall, sys): (Seconds, Seconds) = (|one| Some(one.taken.wall), |one| Some(one.taken.sys));
    let kernel: Seconds = |one| one.says("kernel");
    let columns: [(Arm, &str, Seconds); 11] = [
        (Arm::None, "none", wall),
        (Arm::None, "system", sys),
        (Arm::None, "kernel", kernel),
        (Arm::OSync, "O_SYNC", wall),
        (Arm::OSync, "system", sys),
        (Arm::OSync, "kernel", kernel),
        (Arm::OSync, "Eq. 4", |one| one.says(EQ4)),
        (Arm::ODsync, "O_DSYNC", wall),
        (Arm::ODsync, "kernel", kernel),
        (Arm::Fsync, "fsync", wall),
        (Arm::Fsync, "kernel", kernel),
    ];
    let row = |block: u64| {
        let cell = |(sync, _, pick): &(Arm, &str, Seconds)| {
            let cells = judged.arm(*sync).filter(|one| one.cell.block_size == block);
            let each: Vec<f64> = cells.filter_map(|one| Some(pick(one)? / one.blocks as f64)).collect();
            median(&each).map_or("-".to_owned(), time)
        };
        [Bytes(block).to_string()].into_iter().chain(columns.iter().map(cell)).collect()
    };
    Table::new(
        "Time a block: wall and system time as observed, wall time as predicted",
        ["block"].into_iter().chain(columns.map(|(_, head, _)| head)),
        sizes(judged, |cell| cell.block_size).into_iter().map(row),
    )
}

fn errors(judged: &Judged) -> Table {
    let told = |one: Errors| {
        let errors = [one.median, one.worst].map(|error| percent(Some(error))).join(", ");
        format!("{errors}, {} of {}", one.within, one.cells)
    };
    let row = |law: &'static str| {
        let of_arm = |sync: Arm| judged.errors_of(sync, law).map_or("-".to_owned(), told);
        [law.to_owned()].into_iter().chain(Arm::ALL.map(of_arm)).collect()
    };
    Table::new(
        "Errors of the cells' wall times: median, worst, and cells within 10 %",
        ["law"].into_iter().chain(Arm::ALL.map(Arm::name)),
        laws().into_iter().map(row),
    )
}

/// The errors of a law with O_SYNC, cell by cell.
fn misses(judged: &Judged, what: &str, law: &str) -> Table {
    let files = sizes(judged, |cell| cell.num_bytes);
    let signed = |error: f64| {
        let sign = if error < 0.0 { "−" } else { "+" };
        format!("{sign}{}", percent(Some(error.abs())))
    };
    let row = |block: u64| {
        let of_file = |file: &u64| {
            let wanted = Cell { block_size: block, num_bytes: *file, sync: Arm::OSync };
            let one = judged.cells.iter().find(|one| one.cell == wanted);
            one.and_then(|one| one.error(law)).map_or(String::new(), signed)
        };
        [Bytes(block).to_string()].into_iter().chain(files.iter().map(of_file)).collect()
    };
    Table::new(
        format!("Predicted less observed wall time with O_SYNC, by file: {what}"),
        ["block".to_owned()].into_iter().chain(files.iter().map(|file| Bytes(*file).to_string())),
        sizes(judged, |cell| cell.block_size).into_iter().map(row),
    )
}

fn pictures(judged: &Judged, runs: &[(Cell, Taken)]) -> anyhow::Result<Vec<String>> {
    let by_arm = Arm::ALL.map(|sync| {
        let its = runs.iter().filter(|(cell, _)| cell.sync == sync);
        let points = its.map(|(cell, taken)| (cell.blocks() as f64, taken.wall)).collect();
        Series { name: sync.name(), points }
    });
    let by_law = laws().into_iter().take_while(|law| *law != FITTED_EQ4).map(|name| {
        let point = |one: &Outcome| Some((one.taken.wall, one.says(name)?));
        Series { name, points: judged.arm(Arm::OSync).filter_map(point).collect() }
    });
    let group = |name: String, is_its: &dyn Fn(&Cell) -> bool| {
        let its = runs.iter().filter(|(cell, _)| is_its(cell));
        Group { name, values: its.map(|(_, taken)| taken.sys).collect() }
    };
    let by_block = sizes(judged, |cell| cell.block_size).into_iter();
    let by_block = by_block.map(|size| group(Bytes(size).to_string(), &|cell| cell.block_size == size));
    let of_arm = Arm::ALL.map(|sync| group(sync.name().to_owned(), &|cell| cell.sync == sync));
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
            &by_block.collect::<Vec<_>>(),
        )?,
        boxes("System time by arm: quartiles, and lines to the extremes", "arm", SYSTEM, &of_arm)?,
    ])
}

fn findings(judged: &Judged) -> Vec<Finding> {
    let mut found = Vec::new();
    for (item, theirs, seconds, sync) in [
        ("004, a block with O_SYNC", "200 µs", 200e-6, Arm::OSync),
        ("004, a block without it", "1 µs", 1e-6, Arm::None),
    ] {
        let wall = judged.per_block(sync, |one| one.taken.wall);
        let sys = judged.per_block(sync, |one| one.taken.sys);
        let kernel = judged.per_block(sync, |one| one.predicted.models.get("kernel"));
        let observed = format!("wall {}, system {}", time(wall), time(sys));
        let is_near = (wall / seconds - 1.0).abs() <= GOAL;
        found.push(Finding::new(item, theirs, observed, format!("kernel {}", time(kernel)), is_near));
    }
    let overhead = |fit: &Fit| fit.coefficients.iter().find(|one| one.name == "synco_sync").cloned();
    if let (Some(sys), Some(wall)) = (overhead(&judged.sys), overhead(&judged.wall)) {
        let [middle, low, high, wall] =
            [sys.estimate, sys.low, sys.high, wall.estimate].map(|seconds| format!("{:.1}", seconds * 1e3));
        let observed = format!("system {middle} ({low} to {high}), wall {wall} ms");
        let is_inside = (0.041..=0.097).contains(&sys.estimate);
        found.push(Finding::new("004, overhead of O_SYNC", "69 ± 28 ms", observed, "", is_inside));
    }
    let sum = |of: fn(&Taken) -> f64| judged.arm(Arm::OSync).map(|one| of(&one.taken)).sum::<f64>();
    let unaccounted = sum(Taken::unaccounted) / sum(|taken| taken.wall);
    found.push(Finding::new(
        "004, unaccounted time with O_SYNC",
        "can be ignored",
        format!("{} of the wall time", percent(Some(unaccounted))),
        "",
        unaccounted <= GOAL,
    ));
    for (of, forms) in [("system", &judged.sys_forms), ("wall", &judged.wall_forms)] {
        let best =
            |one: &&Form, other: &&Form| one.median_relative_error.total_cmp(&other.median_relative_error);
        let Some(won) = forms.iter().min_by(best) else { continue };
        let observed = fitted::listed(forms, |form| percent(Some(form.median_relative_error)));
        let holds = won.form == "least_squares";
        found.push(Finding::new(format!("004, the form of {of} time"), "least squares", observed, "", holds));
    }
    for (item, law) in [("000, Eq. 4 on 004's grid, O_SYNC", EQ4), ("kernel on the same", "kernel")] {
        let Some(one) = judged.errors_of(Arm::OSync, law) else { continue };
        let [median, worst] = [one.median, one.worst].map(|error| percent(Some(error)));
        let predicted = format!("{} of {} cells; median {median}, worst {worst}", one.within, one.cells);
        found.push(Finding::new(item, "10 % in each cell (goal)", "", predicted, one.within == one.cells));
    }
    found
}
