//! `compare`: recorded runs through the models.

use std::process::ExitCode;

use crate::recorded::Comparison;
use cawl_console::inputs::read_profile;
use cawl_console::{answer, shown};
use cawl_core::{AnalysisOptions, Mode};
use comfy_table::{CellAlignment, Table};

use super::recordings;
use crate::args::CompareArgs;

pub fn compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let profile = read_profile(&args.profile)?;
    let runs = recordings::read(&args.dir, &args.runs, &args.exclude)?;
    let again = match &args.floor {
        Some(dir) => recordings::read(dir, &args.runs, &args.exclude)?,
        None => Vec::new(),
    };
    let mode = match (args.lockstep, args.live) {
        (true, _) => Mode::Lockstep,
        (_, true) => Mode::Assimilated,
        _ => Mode::OpenLoop,
    };
    let models = args.models.clone();
    let options = AnalysisOptions { models, mode, learn: args.live, ..AnalysisOptions::default() };
    let comparison = crate::recorded::compare(&profile, &options, &runs, &again)?;
    answer(args.json, &comparison, |_| {
        let (mode, profile) = (mode.name(), shown(&profile.name));
        Ok(format!("{mode} with profile {profile}\n{}\n", table(&comparison)))
    })
}

fn table(comparison: &Comparison) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header([
        "run",
        "model",
        "observed s",
        "predicted s",
        "total",
        "of floor",
        "windowed",
        "per call",
        "dirty",
    ]);
    let percent =
        |error: Option<f64>| error.map_or("-".to_owned(), |error| format!("{:.1} %", error * 100.0));
    let errors = |total, of_floor: Option<f64>, [windowed, call, dirty]: [Option<f64>; 3]| {
        let of_floor = of_floor.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        [percent(total), of_floor].into_iter().chain([windowed, call, dirty].map(percent))
    };
    let mut last = "";
    for row in &comparison.rows {
        let scenario = if row.scenario == last { "" } else { &row.scenario };
        last = &row.scenario;
        let [observed, predicted] = [row.observed_s, row.predicted_s].map(|sum| format!("{sum:.3}"));
        let head = [shown(scenario).into_owned(), row.model.clone(), observed, predicted];
        let call = row.call_error.map(|error| error.mean);
        let errors = errors(row.total_error, row.over_floor, [row.windowed_error, call, row.dirty_error]);
        table.add_row(head.into_iter().chain(errors));
    }
    // In the order of the rows, as in reports.
    let mut models: Vec<&str> = Vec::new();
    for row in &comparison.rows {
        if !models.contains(&row.model.as_str()) {
            models.push(&row.model);
        }
    }
    for (model, median) in models.iter().filter_map(|model| Some((model, comparison.median.get(*model)?))) {
        let head = ["median", model, "", ""].map(str::to_owned);
        let rest = [median.windowed_error, median.call_error, median.dirty_error];
        let errors = errors(median.total_error, median.over_floor, rest);
        table.add_row(head.into_iter().chain(errors));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
