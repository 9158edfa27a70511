//! `import`: makes a trace of calls recorded by another tool.

use std::fs::File;
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::{Bytes, Record};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_import::{CsvImporter, CsvOptions, ImportSummary, Importer, SkipReason, StraceImporter};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{are_same, unpacked};
use crate::args::{Format, ImportArgs};
use crate::{exit, render};

pub fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let about = || format!("cannot import {}", args.input.display());
    exit::usage(args.flags.is_none() || matches!(args.from, Format::Csv), || {
        "--flags is for csv only: strace output tells the flags of each file; leave it out".to_owned()
    })?;
    exit::usage(!are_same(&args.input, &args.output), || {
        let input = args.input.display();
        format!("the trace would overwrite its own input {input}; name another file with -o")
    })?;
    let mut input = open(&args.input).with_context(about)?;
    let mut importer: Box<dyn Importer> = match args.from {
        Format::Csv => {
            let flags = args.flags.unwrap_or_default();
            Box::new(CsvImporter::new(CsvOptions { flags, ..CsvOptions::default() }))
        }
        Format::Strace => Box::<StraceImporter>::default(),
    };
    let mut trace = TraceFile::create(&args.output, WhenFull::Wait)
        .with_context(|| format!("cannot write the trace {}", args.output.display()))?;

    let summary = copy(&mut *input, &mut *importer, &mut trace);
    let failure = trace.finish();
    let summary = summary.inspect_err(|_| {
        // Half an import is no trace. Only a plain file is removed: a pipe or /dev/null existed before.
        if std::fs::symlink_metadata(&args.output).is_ok_and(|meta| meta.is_file()) {
            drop(std::fs::remove_file(&args.output));
        }
    });
    let summary = summary.with_context(about)?;
    if let Some(failure) = failure {
        anyhow::bail!(failure);
    }
    tell(&summary, &args.output);
    Ok(ExitCode::SUCCESS)
}

fn copy(
    input: &mut dyn BufRead,
    importer: &mut dyn Importer,
    trace: &mut TraceFile,
) -> anyhow::Result<ImportSummary> {
    let mut line = Vec::new();
    let mut records: Vec<Record> = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        importer.line(&line, &mut records)?;
        records.drain(..).for_each(|record| trace.push(&record));
    }
    let summary = importer.finish(&mut records)?;
    records.drain(..).for_each(|record| trace.push(&record));
    Ok(summary)
}

/// The input, unpacked. On a terminal, a line tells which part of it was read.
fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let file = File::open(path)?;
    let size = Some(file.metadata()?.len()).filter(|size| *size > 0);
    let terminal =
        if size.is_some() { ProgressDrawTarget::stderr_with_hz(1) } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(size, terminal);
    bar.set_style(ProgressStyle::with_template("importing {percent:>3} %").expect("a valid template"));
    unpacked(bar.wrap_read(file))
}

fn tell(summary: &ImportSummary, output: &Path) {
    let counted = render::counted;
    let ImportSummary { lines, calls, bytes, files, sessions, .. } = summary;
    render::tell(format_args!(
        "{}, {} to {} by {}, from {}, are now in {}",
        counted(*calls, "call"),
        Bytes(*bytes),
        counted(*files, "file"),
        counted(*sessions, "process image"),
        counted(*lines, "line"),
        output.display()
    ));
    if summary.out_of_order > 0 {
        render::tell(format_args!("{} calls start before the one on the line before", summary.out_of_order));
    }
    let colour = std::io::stderr().is_terminal();
    for skipped in &summary.skipped {
        let what =
            if skipped.reason == SkipReason::Durationless { "imported as they are" } else { "not imported" };
        let lines = counted(skipped.lines, "line");
        let text = format!("{what}: {lines} (first: {}): {}", skipped.first, skipped.reason);
        render::tell(render::warn_if(&text, skipped.reason.is_loss(), colour));
    }
}
