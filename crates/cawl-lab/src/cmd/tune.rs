//! `tune`: which setting suits which pattern of writing.

mod answer;
mod picture;
mod real;
mod verify;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use cawl_console::exit;
use cawl_console::inputs::{profile_of, read_profile};
use cawl_console::outputs::{self, Kind};
use cawl_core::{HostProfile, Nanos};
use cawl_host::output;
use cawl_measure::interrupt;

use answer::{Answer, csv};
use picture::picture;

use crate::args::TuneArgs;
use crate::parallel;
use crate::tune::{Cell, Grid, Need, Order, Pattern, Study, Tree, cost};

const PICTURE: Kind = Kind { name: "picture of cawl", is: |head, _| head.starts_with("<svg") };
const COSTS: Kind = Kind { name: "table of cawl", is: |head, _| head.starts_with("profile,pattern,order,") };

/// About what a call takes on paper, by which the time that is left is told.
const CALL: Nanos = Nanos::new(1500.0);

pub fn tune(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    let machines = machines(args)?;
    let grid = Grid::new(&args.choices());
    refuse(args, &grid, &machines)?;
    args.svg.iter().try_for_each(|file| outputs::check(file, &PICTURE))?;
    args.csv.iter().try_for_each(|file| outputs::check(file, &COSTS))?;
    let costs = computed(&grid, &machines)?;
    let wanted = |pattern: &Pattern| is_wanted(&args.patterns, pattern);
    let study = Study::new(&grid, &machines, &costs, wanted);
    if let Some(pattern) = study.unsuited.first() {
        let why =
            format!("no setting of the grid suits {pattern}; add --try fsync=1, split=4K or direct=off");
        return Err(exit::Usage(why).into());
    }
    let trees: Vec<Tree> = (1..=args.depth).map(|depth| Tree::learn(&study, depth)).collect();
    let tree = trees.last().context("a depth")?;
    if let Some(file) = &args.svg {
        save(file, &picture(&study, tree)?)?;
    }
    if let Some(file) = &args.csv {
        save(file, &csv(&study, &machines))?;
    }
    let mut answer = Answer::new(&study, &machines, &trees);
    let print =
        |answer: &Answer| cawl_console::answer(args.json, answer, |terminal| Ok(answer.text(terminal)));
    let (Some(count), Some(dir)) = (args.verify, &args.dir) else { return print(&answer) };
    interrupt::guard(|signal| {
        let lot = verify::Lot { count: count as usize, seed: args.seed };
        answer.verified = Some(verify::verify(&study, tree, dir, lot, &signal)?);
        print(&answer)
    })
}

/// The profiles that were named, or that of the folder to verify in, or of this one.
fn machines(args: &TuneArgs) -> anyhow::Result<Vec<HostProfile>> {
    if !args.profiles.is_empty() {
        return args.profiles.iter().map(|file| read_profile(file)).collect();
    }
    Ok(vec![profile_of("cawl-lab", args.dir.as_deref(), "speeds are defaults")])
}

fn refuse(args: &TuneArgs, grid: &Grid, machines: &[HostProfile]) -> anyhow::Result<()> {
    let wrong = |why: String| Err(exit::Usage(why).into());
    if grid.settings.is_empty() {
        return wrong(
            "these changes make no setting: a stream does not write directly; add --try split=4K or direct=off"
                .to_owned(),
        );
    }
    if args.verify.is_some() {
        if machines.len() > 1 {
            return wrong("--verify measures one machine; give at most one --profile".to_owned());
        }
        if grid.settings.iter().any(|setting| setting.limits.is_some()) {
            return wrong("--verify changes no limits of the machine; leave out limits=".to_owned());
        }
    }
    let patterns = || {
        let of = |workload| Need::ALL.map(|need| Pattern { machine: 0, workload, need });
        grid.workloads.iter().flat_map(move |workload| of(*workload))
    };
    for name in &args.patterns {
        if !patterns().any(|pattern| pattern.to_string().starts_with(name.as_str())) {
            let orders = Order::ALL.map(Order::name).join(", ");
            let needs = Need::ALL.map(Need::name).join(", ");
            return wrong(format!(
                "no pattern begins with `{name}`; names are {orders}, a hyphen, and {needs}: append-record"
            ));
        }
    }
    Ok(())
}

fn is_wanted(names: &[String], pattern: &Pattern) -> bool {
    let name = pattern.to_string();
    names.is_empty() || names.iter().any(|begin| name.starts_with(begin.as_str()))
}

fn computed(grid: &Grid, machines: &[HostProfile]) -> anyhow::Result<HashMap<Cell, Nanos>> {
    let cells = grid.cells(machines.len());
    let calls: u64 = cells.iter().map(Cell::calls).sum();
    let shown = |begun: usize| format!("cell {begun} of {}", cells.len());
    let costs = parallel::each(&cells, CALL * calls as f64, shown, |cell| {
        Ok(cost(&machines[cell.machine], &cell.workload, &cell.setting))
    })?;
    Ok(cells.iter().copied().zip(costs).collect())
}

fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    output::write(file, output::FOR_ALL, text)
        .with_context(|| format!("cannot write {}; name another file", file.display()))
}
