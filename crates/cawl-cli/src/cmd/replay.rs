//! `replay`: the models on a saved trace.

use std::collections::HashMap;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use cawl_core::{Analysis, AnalysisOptions, LiveOptions, Mode, Record};
use cawl_host::profiles;
use cawl_host::trace::TraceReader;

use super::read_profile;
use super::side_by_side::take_all;
use crate::args::ReplayArgs;
use crate::render;
use crate::render::calls::CallPrinter;

/// Replays the trace and prints the analysis.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let about = || format!("cannot read the trace {}", args.file.display());
    let mut reader = TraceReader::open(&args.file).with_context(about)?;
    // The profile comes before the first call; earlier records are kept in `head`.
    let mut head = Vec::new();
    let (mut recorded, mut live) = (None, None);
    while let Some(record) = reader.next_record().with_context(about)? {
        match record {
            Record::Profile(profile) => {
                let check = profile.check();
                recorded =
                    Some(check.map(|()| *profile).context("its profile is invalid; name one with --profile"));
            }
            Record::Live(options) => live = Some(options),
            Record::Host(_) | Record::Note(_) => head.push(record),
            first => {
                head.push(first);
                break;
            }
        }
    }
    let profile = match &args.model.profile {
        Some(path) => read_profile(path)?,
        // A trace without a profile is judged by this machine's.
        None => {
            recorded.unwrap_or_else(|| Ok(profiles::choose(Path::new(".")).profile)).with_context(about)?
        }
    };
    let options = options(args, live)?;
    let mut analysis = Analysis::with(&profile, &options)?;
    let mut out = BufWriter::with_capacity(1 << 18, std::io::stdout().lock());
    let mut printer = args.calls.then(|| CallPrinter::new(&analysis.models(), args.json));
    let mut paths = HashMap::new();

    let mut result = Ok(());
    let all = head.into_iter().map(Ok).chain(&mut reader);
    let taken = take_all(&mut analysis, all, |record, shown| {
        let Some(printer) = &mut printer else { return true };
        match record {
            Record::File(file) => drop(paths.insert(file.file(), file.path.clone())),
            Record::Event(event) => {
                let path = paths.get(&event.file()).map_or("-", String::as_str);
                result = printer.print(&mut out, event, path, shown.predictions);
            }
            _ => {}
        }
        result.is_ok()
    });
    taken.with_context(about)?;
    if let Some(damage) = reader.damage().describe() {
        analysis.take(&Record::Note(damage));
    }
    let report = analysis.report();
    if let Some(path) = &args.report {
        render::file::write(&report, args.long, path)?;
        return render::printed(result.and_then(|()| out.flush()));
    }
    result = result.and_then(|()| match (args.json, args.calls) {
        (true, true) => Ok(()),
        (true, false) => {
            serde_json::to_writer_pretty(&mut out, &report)?;
            out.write_all(b"\n")
        }
        (false, _) => {
            let terminal = std::io::stdout().is_terminal();
            out.write_all(
                render::page(&render::explain::report(&report, args.long, terminal), terminal).as_bytes(),
            )
        }
    });
    render::printed(result.and_then(|()| out.flush()))
}

/// The options of the analysis: those of the live run (`--live`), or those of the arguments.
fn options(args: &ReplayArgs, live: Option<LiveOptions>) -> anyhow::Result<AnalysisOptions> {
    let timeline = args.report.is_some();
    let classes = args.classes.bounds.clone();
    if args.live {
        let Some(LiveOptions { models, mode, learn }) = live else {
            bail!(
                "the trace has no options of a live run: it was imported, or recorded before there was \
                   --live; use --mode assimilated --learn"
            );
        };
        let models = args.model.models(models);
        let as_calibrated = true;
        let options = AnalysisOptions { models, mode, learn, classes, ..AnalysisOptions::default() };
        return Ok(AnalysisOptions { as_calibrated, timeline, ..options });
    }
    let mode = args.mode.unwrap_or(if args.lockstep { Mode::Lockstep } else { Mode::OpenLoop });
    if args.learn && mode == Mode::OpenLoop {
        bail!("open loop ignores observed costs, so it cannot learn; add --mode lockstep");
    }
    let models = args.model.models(Vec::new());
    Ok(AnalysisOptions { models, mode, learn: args.learn, timeline, classes, ..AnalysisOptions::default() })
}
