//! `replay`: the models on a saved trace.

use std::collections::HashMap;
use std::io::{BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use cawl_core::{Analysis, Mode, Record};

use super::apart;
use super::on_paper::advised;
use super::saved::{SavedTrace, Unspecified};
use super::select::Known;
use super::side_by_side::take_all;
use crate::args::ReplayArgs;
use crate::render::calls::CallPrinter;
use crate::{exit, outputs, render};

pub fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    apart([&args.file], args.report.as_ref())?;
    args.report.iter().try_for_each(|file| outputs::check(file, &outputs::report(file)))?;
    let mut trace = SavedTrace::open(&args.file, &args.model)?;
    let default = Unspecified { live: false, mode: Mode::OpenLoop, models: Vec::new() };
    let mut options = trace.options(&args.model, &args.mode, default)?;
    options.as_calibrated = args.mode.live;
    options.selection = args.select.selection()?;
    options.timeline = args.report.is_some();
    options.classes.clone_from(&args.classes.bounds);
    let mut analysis = Analysis::with(&trace.profile, &options)?;
    let mut out = BufWriter::with_capacity(1 << 18, std::io::stdout().lock());
    let mut printer = args.calls.then(|| CallPrinter::new(&analysis.models(), args.json));
    let (mut paths, mut known) = (HashMap::new(), Known::of(options.selection.as_ref()));

    let mut result = Ok(());
    take_all(
        &mut analysis,
        |records, most| trace.read(records, most),
        |record, shown| {
            known.take(record);
            let Some(printer) = &mut printer else { return true };
            match record {
                Record::File(file) => drop(paths.insert(file.file(), file.path.clone())),
                Record::Event(event) => {
                    let path = paths.get(&event.file()).map_or("-", String::as_str);
                    result = printer.print(&mut out, event, path, shown);
                }
                _ => {}
            }
            result.is_ok()
        },
    )?;
    let (mut report, damage) = trace.report(&mut analysis);
    let is_whole = damage.is_none();
    known.check(&report, &args.file)?;
    // Advice is of all calls.
    if report.selection.is_none() && !(args.calls && args.json) {
        report.advise(advised(&args.file));
    }
    if let Some(path) = &args.report {
        render::file::write(&report, path, |terminal| render::explain::report(&report, args.long, terminal))?;
        render::printed(result.and_then(|()| out.flush()))?;
        return Ok(exit::of_whole(is_whole));
    }
    result = result.and_then(|()| match (args.json, args.calls) {
        (true, true) => Ok(()),
        (true, false) => render::json::write(&mut out, &report),
        (false, _) => {
            let terminal = std::io::stdout().is_terminal();
            out.write_all(
                render::page(&render::explain::report(&report, args.long, terminal), terminal).as_bytes(),
            )
        }
    });
    let printed = render::printed(result.and_then(|()| out.flush()))?;
    Ok(exit::printed(printed, is_whole))
}
