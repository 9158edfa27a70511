//! `export`: the calls of a trace in the formats of other programs.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use cawl_core::{Analysis, Bytes, Frame, Images, Record, Report, Shown, Time};
use cawl_export::{About, Call, Exporter, Told, folded_way, unnamed};
use cawl_host::output::{FOR_ITS_OWNER, Output};
use cawl_measure::interrupt::{Interrupted, guard};
use cawl_measure::progress::Progress;
use cawl_wire::{Event, FileId};
use rustc_hash::FxHashMap;

use super::apart;
use super::on_paper::{SHOWN, a_run};
use super::saved::{SavedTrace, Unspecified};
use super::side_by_side::take_all;
use super::to_database::ToDatabase;
use crate::args::TraceExportArgs;
use crate::{exit, outputs, render};

/// What an export takes of the time of a run on paper, for the progress: it also predicts and writes.
const PART: f64 = 1.5;

pub fn export(args: &TraceExportArgs) -> anyhow::Result<ExitCode> {
    guard(|signal| run(args, &signal))
}

fn run(args: &TraceExportArgs, signal: &AtomicUsize) -> anyhow::Result<ExitCode> {
    let mut trace = SavedTrace::open(&args.file, &args.model)?;
    let mut options = trace.options(&args.model, &args.mode, Unspecified::as_run())?;
    // As `run` and `explain` do: what a call takes undisturbed is the lower of both predictions.
    options.as_calibrated = true;
    let mut analysis = Analysis::with(&trace.profile, &options)?;
    let format = args.to.format;
    trace.check_stacks(format.by_stack)?;
    let stacks = trace.stacks()?.into_iter().map(|stack| {
        let way = folded_way(&stack.frames, stack.truncated);
        (stack.id, (stack.frames, way))
    });
    let stacks = stacks.collect();
    let target = Target::open(args, &trace)?;
    let result = target.file().and_then(|file| {
        let (profile, host) = (&trace.profile, trace.host());
        let packed = args.output.as_ref().is_some_and(|path| path.extension() == Some("gz".as_ref()));
        let about = About { models: analysis.models(), options: &options, profile, host, packed };
        let facts = about.facts();
        let mut exporter = format.begin(BufWriter::with_capacity(1 << 18, file), &about)?;
        let names = Names { shown: target.is_terminal(), stacks, ..Names::default() };
        // Lines of the output and of the progress would mix.
        let progress = (!names.shown).then(|| Progress::of("exporting", a_run(&args.file) * PART));
        let taken = calls(&mut trace, &mut analysis, &mut *exporter, names, progress, signal)?;
        let report = analysis.report();
        let damage = trace.reader.damage().describe();
        let mut notes = notes(&report, damage.as_ref());
        exporter.finish(&report, &notes)?;
        notes.extend(exporter.losses());
        Ok((taken, report, damage, notes, facts))
    });
    Interrupted::by(signal)?;
    let (taken, report, damage, notes, facts) = match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe && matches!(target, Target::Database(_)) => {
            return target.keep(0, Vec::new(), &[]).map(|_| ExitCode::SUCCESS);
        }
        // The reader of a pipe may stop early.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        other => other.with_context(|| target.cannot_be_written())?,
    };
    taken?;
    let name = target.keep(report.calls, facts, &notes)?;
    if let Some(name) = name {
        let Report { calls, bytes, .. } = report;
        let what = match report.explain.as_ref().and_then(|explain| explain.stacks.as_ref()) {
            Some(stacks) if format.by_stack => render::counted(stacks.rows.len() as u64, "way"),
            _ => format!("{}, {} written,", render::counted(calls, "call"), Bytes(bytes)),
        };
        render::tell(format_args!("{what} are now in {name}"));
    }
    let colour = io::stderr().is_terminal();
    for note in notes {
        render::tell(render::warn(&note, colour));
    }
    if damage.is_some() {
        render::tell(
            "cawl-cli: the export has what could be read of the trace; for the rest, record it again",
        );
    }
    Ok(exit::of_whole(damage.is_none()))
}

/// Gives every record to the models and to the exporter. The outer error is that of the output, the inner one
/// that of the trace.
fn calls(
    trace: &mut SavedTrace,
    analysis: &mut Analysis,
    exporter: &mut dyn Exporter,
    mut names: Names,
    mut progress: Option<Progress>,
    signal: &AtomicUsize,
) -> io::Result<anyhow::Result<()>> {
    let (mut result, mut count) = (Ok(()), 0_u64);
    let taken = take_all(
        analysis,
        |records, most| trace.read(records, most),
        |record, shown| {
            result = match record {
                Record::File(file) => {
                    let path = names.of(&file.path);
                    names.paths.insert(file.file(), path);
                    exporter.record(record)
                }
                Record::Session(session) => {
                    let program = names.of(&session.program);
                    names.programs.begin(session, program);
                    exporter.record(record)
                }
                Record::Event(event) => exporter.call(&names.call(event, shown)),
                _ => exporter.record(record),
            };
            count += 1;
            if count.is_multiple_of(SHOWN) {
                progress.iter_mut().for_each(Progress::show);
            }
            result.is_ok() && signal.load(Ordering::Relaxed) == 0
        },
    );
    result.map(|()| taken)
}

/// What records told of files and processes so far.
#[derive(Default)]
struct Names {
    paths: FxHashMap<FileId, String>,
    programs: Images<String>,
    stacks: FxHashMap<u32, (Vec<Frame>, String)>,
    /// What was told of the latest call.
    told: Vec<Option<Told>>,
    /// They go to a terminal, which they must not control.
    shown: bool,
}

impl Names {
    fn of(&self, name: &str) -> String {
        if self.shown { render::shown(name).into_owned() } else { name.to_owned() }
    }

    fn call<'a>(&'a mut self, event: &'a Event, shown: Shown<'a>) -> Call<'a> {
        let file = event.file();
        let path = (file.ino != 0).then(|| {
            let path = self.paths.entry(file).or_default();
            if path.is_empty() {
                *path = unnamed(file.dev, file.ino);
            }
            path.as_str()
        });
        let program = self.programs.at(event.pid, Time(event.start)).map(String::as_str);
        let Shown { number, predictions, causes, own, .. } = shown;
        let known = self.stacks.get(&event.stack);
        let (stack, way) = known.map_or((&[][..], None), |(frames, way)| (&frames[..], Some(way.as_str())));
        self.told.clear();
        self.told.extend(predictions.iter().map(|prediction| prediction.as_ref().map(Told::from)));
        let predictions = &self.told;
        Call { number, event, path, program, predictions, causes, own, stack, way, weight: 1 }
    }
}

/// What a reader of the export must know.
fn notes(report: &Report, damage: Option<&String>) -> Vec<String> {
    let lost = |count: u64, what: &str| {
        (count > 0).then(|| format!("{} missing: {what}", render::counted(count, "call")))
    };
    let losses = [
        lost(report.drops, "recorded but lost on the way"),
        lost(report.unseen, "passed through unrecorded, or are mappings that were not followed"),
    ];
    damage.cloned().into_iter().chain(losses.into_iter().flatten()).chain(report.notes.clone()).collect()
}

enum Target {
    Stdout,
    File(Output, PathBuf),
    Database(ToDatabase),
}

impl Target {
    fn open(args: &TraceExportArgs, trace: &SavedTrace) -> anyhow::Result<Target> {
        if let Some(address) = &args.to.database {
            exit::usage(args.output.is_none(), || "a database takes no -o; leave it out".to_owned())?;
            return ToDatabase::open(trace, address).map(Target::Database);
        }
        let Some(path) = &args.output else {
            exit::usage(!args.to.format.is_binary || !io::stdout().is_terminal(), || {
                "this format is not for terminals; name a file with -o, or a pipe".to_owned()
            })?;
            return Ok(Target::Stdout);
        };
        apart([&args.file], Some(path))?;
        outputs::check(path, &outputs::EXPORT)?;
        // For its owner alone, as a trace is: it names the files of programs.
        let file = Output::create(path, FOR_ITS_OWNER).with_context(|| cannot_be_written(path))?;
        Ok(Target::File(file, path.clone()))
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Target::Stdout) && io::stdout().is_terminal()
    }

    fn file(&self) -> io::Result<File> {
        match self {
            Target::Stdout => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            Target::File(output, _) => output.file().try_clone(),
            Target::Database(database) => database.file(),
        }
    }

    /// Gives the file its name, which is returned unless it is no plain file.
    fn keep(
        self,
        calls: u64,
        facts: Vec<(&'static str, String)>,
        notes: &[String],
    ) -> anyhow::Result<Option<String>> {
        let (output, path) = match self {
            Target::Stdout => return Ok(None),
            Target::File(output, path) => (output, path),
            Target::Database(database) => {
                let run = database.keep(calls, facts, notes)?;
                return Ok(Some(format!("the database, as run {run}")));
            }
        };
        output.keep().with_context(|| cannot_be_written(&path))?;
        Ok(path.is_file().then(|| path.display().to_string()))
    }

    fn cannot_be_written(&self) -> String {
        match self {
            Target::Stdout => "cannot write the output".to_owned(),
            Target::File(_, path) => cannot_be_written(path),
            Target::Database(_) => "cannot write to cawl-ship".to_owned(),
        }
    }
}

fn cannot_be_written(path: &Path) -> String {
    format!("cannot write {}; name another file with -o", path.display())
}
