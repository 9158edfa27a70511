//! `diff`: two traces or reports beside each other.

use std::fs::{self, File};
use std::io::Read;
use std::iter;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use cawl_core::diff::Difference;
use cawl_core::{Analysis, MODELS, REPORT_SCHEMA, Report};

use super::saved::{SavedTrace, Unspecified};
use super::side_by_side::take_all;
use crate::args::{DiffArgs, ModeArgs, ModelArgs};
use crate::render::diff::Sheet;
use crate::{exit, render};

const REMEDY: &str =
    "give a trace (`run --trace FILE`), or a report as JSON (`run --report FILE.json`, `replay --json`)";

/// No time of a report is longer, in seconds.
const LONGEST_S: f64 = 1e9;

pub fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let paths = [&args.before, &args.after];
    let (before, is_whole) = read(paths[0])?;
    let (after, both_whole) = read(paths[1]).map(|(report, whole)| (report, whole && is_whole))?;
    let difference = Difference::new([&before, &after]).map_err(|why| {
        let why = why.to_string();
        let (a, b) = (paths[0].display(), paths[1].display());
        anyhow!("cannot compare A ({a}) with B ({b}): {}", render::shown(&why))
    })?;
    let named = [(paths[0], &before), (paths[1], &after)].map(|(path, report)| named(path, report));
    let sheet = || Sheet::new(&difference, &named);
    let printed = match args.markdown {
        true => render::data(&sheet().markdown())?,
        false => render::answer(args.json, &difference, |terminal| Ok(sheet().text(terminal)))?,
    };
    let limit = args.fail_above.filter(|limit| difference.is_slower_by(*limit));
    if let (Some(limit), Some(ratio)) = (limit, difference.ratio) {
        let [slower, limit] = percents(ratio - 1.0, limit);
        render::tell(format_args!(
            "cawl-cli: the calls of B take {slower} % more than those of A, above {limit} %"
        ));
        return Ok(exit::FAILED.into());
    }
    Ok(exit::printed(printed, both_whole))
}

/// Parts as percentages: the limit as it was given, and what is above it with the digits that show so.
fn percents(above: f64, limit: f64) -> [String; 2] {
    let [above, limit] = [above, limit].map(|part| part * 100.0);
    let shows = |text: &String| text.parse::<f64>().is_ok_and(|told| told > limit);
    let digits = (1..9).map(|digits| format!("{above:.digits$}")).find(shows);
    [digits.unwrap_or_else(|| above.to_string()), ((limit * 1e9).round() / 1e9).to_string()]
}

/// What a file is called, and what was run.
fn named(path: &Path, report: &Report) -> String {
    let command = report.command.as_ref().map_or(String::new(), |command| format!(": {command}"));
    format!("{}{command}", path.display())
}

/// The report of a trace, as `explain` makes it, or one that was kept; whether the trace could be read to its
/// end.
fn read(path: &Path) -> anyhow::Result<(Report, bool)> {
    let about = || format!("cannot read {}", path.display());
    let mut head = [0; 64];
    let length = File::open(path).and_then(|mut file| file.read(&mut head)).with_context(about)?;
    if head[..length].trim_ascii_start().starts_with(b"{") {
        return kept(path).map(|report| (report, true)).with_context(about);
    }
    let trace = SavedTrace::open(path, &ModelArgs::default());
    let mut trace = trace.map_err(|error| anyhow!("{error:#}; {REMEDY}"))?;
    let mut options = trace.options(&ModelArgs::default(), &ModeArgs::default(), Unspecified::as_run())?;
    // Whatever models the run had, its calls are counted by the one that knows most of them.
    options.models = vec![MODELS[0].to_owned()];
    // As `run` and `explain` do.
    options.as_calibrated = true;
    let mut analysis = Analysis::with(&trace.profile, &options)?;
    take_all(&mut analysis, |records, most| trace.read(records, most), |_, _| true)?;
    let (report, damage) = trace.report(&mut analysis);
    damage.iter().for_each(render::tell);
    Ok((report, damage.is_none()))
}

fn kept(path: &Path) -> anyhow::Result<Report> {
    let report: Report = serde_json::from_str(&fs::read_to_string(path)?)
        .map_err(|error| anyhow!("it is no report of cawl ({error}); {REMEDY}"))?;
    anyhow::ensure!(
        report.schema <= REPORT_SCHEMA,
        "it is a report of a later version (schema {}); use the cawl-cli that made it",
        report.schema
    );
    let damaged = times(&report).find(|seconds| seconds.abs() > LONGEST_S);
    match damaged {
        Some(seconds) => Err(anyhow!("it is damaged: a time in it is {seconds:e} s")),
        None => Ok(report),
    }
}

/// The times of a report that are compared, in seconds.
fn times(report: &Report) -> impl Iterator<Item = f64> {
    let causes = report.explain.iter().flat_map(|of| &of.causes).map(|cause| cause.observed_s);
    let whole = report.explain.iter().flat_map(|of| [of.observed_s, of.best.undisturbed_s]);
    let ops = report.files.iter().flat_map(|file| &file.ops);
    let parts = ops.clone().flat_map(|op| op.causes.iter()).map(|(_, seconds)| seconds.to_owned());
    iter::once(report.span_s).chain(whole).chain(causes).chain(ops.map(|op| op.observed_s)).chain(parts)
}

#[cfg(test)]
mod tests {
    use super::percents;

    #[test]
    fn a_percentage_shows_that_it_is_above_the_limit() {
        assert_eq!(percents(0.999, 0.1), ["99.9", "10"]);
        assert_eq!(percents(0.000_104, 0.000_099), ["0.01", "0.0099"].map(str::to_owned));
        assert_eq!(percents(0.100_04, 0.1), ["10.004", "10"]);
    }
}
