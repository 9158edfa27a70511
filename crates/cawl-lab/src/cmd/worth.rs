//! `worth`: what each constant of a profile moves.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use cawl_console::inputs::read_profile;
use cawl_console::{answer, exit};
use cawl_core::{Analysis, HostProfile, Mode, Record, median};
use cawl_host::trace::TraceReader;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::recordings;
use crate::args::WorthArgs;

/// What a constant moves when its fallback is in its place.
#[derive(Serialize)]
struct Worth {
    /// Its name in the profile's file.
    constant: String,
    /// How many runs have a profile with it, and are moved by at least a thousandth.
    moved: usize,
    /// The run that it moves most.
    run: String,
    /// By how much: the change of the predicted sum.
    most: f64,
    /// The median over runs of |error without it| − |error with it|.
    worse: f64,
}

/// A trace or recorded run, and the profile of its machine.
struct Run {
    name: String,
    profile: HostProfile,
    records: Vec<Record>,
}

impl Run {
    /// Observed and predicted sums of the model `kernel` in open loop, in seconds.
    fn sums(&self, profile: &HostProfile) -> anyhow::Result<[f64; 2]> {
        let mut analysis = Analysis::new(profile, &["kernel".to_owned()], Mode::OpenLoop)?;
        for record in &self.records {
            analysis.take(record);
        }
        let model = &analysis.report().models[0].summary;
        Ok([model.observed, model.predicted].map(|sum| sum.as_seconds()))
    }
}

pub fn worth(args: &WorthArgs) -> anyhow::Result<ExitCode> {
    let mut found: Vec<(String, String, f64, f64)> = Vec::new();
    for path in &args.runs {
        for run in runs(path, args.profile.as_deref())? {
            let [observed, with] = run.sums(&run.profile)?;
            exit::usage(observed > 0.0, || format!("{} has no call that took time", run.name))?;
            for (constant, without) in lessened(&run.profile)? {
                let [_, without] = run.sums(&without)?;
                let worse = (without - observed).abs() - (with - observed).abs();
                found.push((constant, run.name.clone(), without / with - 1.0, worse / observed));
            }
        }
    }
    let worths = by_constant(&found);
    answer(args.json, &worths, |_| Ok(format!("{}\n", table(&worths))))
}

/// The runs of a folder of recordings, or the one of a trace.
fn runs(path: &Path, profile: Option<&Path>) -> anyhow::Result<Vec<Run>> {
    let given = profile.map(read_profile).transpose()?;
    let without = || exit::Usage(format!("{} has no profile; name one with --profile", path.display()));
    if path.is_dir() {
        let profile = given.ok_or_else(without)?;
        let run = |run: crate::recorded::RecordedRun| {
            let records = run.records().collect();
            Run { name: run.name, profile: profile.clone(), records }
        };
        return Ok(recordings::read(path, &[], &[])?.into_iter().map(run).collect());
    }
    let about = || format!("cannot read the trace {}", path.display());
    let (mut recorded, mut records) = (None, Vec::new());
    for record in TraceReader::open(path).with_context(about)? {
        match record.with_context(about)? {
            Record::Profile(profile) => recorded = Some(*profile),
            record => records.push(record),
        }
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(vec![Run { name, profile: given.or(recorded).ok_or_else(without)?, records }])
}

/// The profiles that lack one constant which this one has and may lack, with its name.
fn lessened(profile: &HostProfile) -> anyhow::Result<Vec<(String, HostProfile)>> {
    let file: toml::Table = profile.to_toml().parse().context("a profile is TOML")?;
    let mut names = Vec::new();
    profile
        .each(|_| String::new(), |shown| names.extend(shown.figure.value().map(|_| shown.name.to_owned())));
    let mut all = Vec::new();
    for name in names.into_iter().filter(|name| !name.starts_with("others.")) {
        let (tables, constant) = name.rsplit_once('.').unwrap_or(("", &name));
        let mut without = file.clone();
        let table =
            tables.split('.').try_fold(&mut without, |table, name| table.get_mut(name)?.as_table_mut());
        if table.and_then(|table| table.remove(constant)).is_none() {
            continue;
        }
        // Refused where nothing can stand for it.
        let without = toml::to_string(&without).ok().and_then(|text| HostProfile::from_toml(&text).ok());
        all.extend(without.map(|without| (name, without)));
    }
    Ok(all)
}

/// A row for each constant, from what each moved in each run: the least first.
fn by_constant(found: &[(String, String, f64, f64)]) -> Vec<Worth> {
    let mut worths: Vec<Worth> = Vec::new();
    for (constant, ..) in found {
        if worths.iter().any(|worth| worth.constant == *constant) {
            continue;
        }
        let own = || found.iter().filter(|(name, ..)| name == constant);
        let Some((_, run, most, _)) = own().max_by(|a, b| a.2.abs().total_cmp(&b.2.abs())) else { continue };
        let worse: Vec<f64> = own().map(|(.., worse)| *worse).collect();
        worths.push(Worth {
            constant: constant.clone(),
            moved: own().filter(|(_, _, moved, _)| moved.abs() >= 0.001).count(),
            run: run.clone(),
            most: *most,
            worse: median(&worse).unwrap_or_default(),
        });
    }
    worths.sort_by(|a, b| a.most.abs().total_cmp(&b.most.abs()));
    worths
}

fn table(worths: &[Worth]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["constant", "moves most", "by", "runs moved", "worse, median"]);
    for worth in worths {
        let percent = |part: f64| format!("{:+.1} %", part * 100.0);
        let figures = [percent(worth.most), worth.moved.to_string(), percent(worth.worse)];
        table.add_row([worth.constant.clone(), worth.run.clone()].into_iter().chain(figures));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
