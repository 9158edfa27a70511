//! A saved trace, and the analysis that a command does of it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use cawl_core::{
    Analysis, AnalysisOptions, HostFacts, HostProfile, LiveOptions, MODELS, Mode, Record, Report, Stack,
};
use cawl_host::profiles;
use cawl_host::trace::TraceReader;

use super::read_profile;
use crate::args::{ModeArgs, ModelArgs};
use crate::{exit, render};

pub struct SavedTrace {
    path: PathBuf,
    /// Read to the first record that tells nothing of the whole.
    pub reader: TraceReader<BufReader<File>>,
    /// What was read of it, but for the profile and the options.
    head: Vec<Record>,
    pub profile: HostProfile,
    /// How the live run worked, if it says so.
    pub live: Option<LiveOptions>,
}

impl SavedTrace {
    /// Opens a trace. Its profile is that of `args`, else the trace's, else this machine's.
    pub fn open(path: &Path, args: &ModelArgs) -> anyhow::Result<SavedTrace> {
        let about = || about(path);
        if std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            bail!(
                "the trace {} is empty: what was to write it has not begun, or had no room",
                path.display()
            );
        }
        let is_stream = |meta: &std::fs::Metadata| meta.file_type().is_fifo() || meta.file_type().is_socket();
        ensure!(
            !std::fs::metadata(path).is_ok_and(|meta| is_stream(&meta)),
            "{} is a pipe; a trace is read more than once, so it must be a file",
            path.display()
        );
        if let Some((tool, unpack)) = packed(path) {
            let path = path.display();
            bail!("the trace {path} is packed by {tool}; unpack it first: {unpack} {path}");
        }
        let mut reader = TraceReader::open(path).with_context(about)?;
        // The profile comes before the first call; earlier records are kept in `head`.
        let mut head = Vec::new();
        let (mut recorded, mut live) = (None, None);
        while let Some(record) = reader.next_record().with_context(about)? {
            match record {
                Record::Profile(profile) => {
                    let check = profile.check();
                    recorded = Some(
                        check.map(|()| *profile).context("its profile is invalid; name one with --profile"),
                    );
                }
                Record::Live(options) => live = Some(options),
                Record::Host(_) | Record::Note(_) => head.push(record),
                first => {
                    head.push(first);
                    break;
                }
            }
        }
        let profile = match &args.profile {
            Some(path) => read_profile(path)?,
            // A trace without a profile is judged by this machine's.
            None => recorded
                .unwrap_or_else(|| Ok(profiles::choose(Path::new(".")).profile))
                .with_context(about)?,
        };
        Ok(SavedTrace { path: path.to_owned(), reader, head, profile, live })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names it in an error.
    pub fn about(&self) -> String {
        about(&self.path)
    }

    /// The stacks of its calls, wherever in the trace they are told.
    pub fn stacks(&self) -> anyhow::Result<Vec<Stack>> {
        if self.live.as_ref().is_none_or(|live| live.stacks.is_none()) {
            return Ok(Vec::new());
        }
        let about = || about(&self.path);
        let mut stacks = Vec::new();
        for record in TraceReader::open(&self.path).with_context(about)? {
            if let Record::Stack(stack) = record.with_context(about)? {
                stacks.push(stack);
            }
        }
        Ok(stacks)
    }

    /// An error if stacks are `wanted` and none were recorded.
    pub fn check_stacks(&self, wanted: bool) -> anyhow::Result<()> {
        let has_some = self.live.as_ref().is_some_and(|live| live.stacks.is_some());
        let trace = self.path.display();
        ensure!(
            has_some || !wanted,
            "{trace} has no stacks; record one with `cawl-cli run --stacks --trace FILE -- …`"
        );
        Ok(())
    }

    /// All records but the profile and the options.
    pub fn records(&mut self) -> impl Iterator<Item = anyhow::Result<Record>> + Send {
        let SavedTrace { path, reader, head, .. } = self;
        let read = reader.map(|record| record.with_context(|| about(path)));
        std::mem::take(head).into_iter().map(Ok).chain(read)
    }

    /// Adds the next `most` of these records, or those that are left.
    pub fn read(&mut self, records: &mut Vec<Record>, most: usize) -> anyhow::Result<()> {
        let before = records.len();
        records.extend(self.head.drain(..most.min(self.head.len())));
        let added = records.len() - before;
        self.reader.read(records, most - added).with_context(|| about(&self.path))
    }

    /// The machine that was traced, if the trace begins with that.
    pub fn host(&self) -> Option<&HostFacts> {
        self.head.iter().find_map(|record| match record {
            Record::Host(host) => Some(&**host),
            _ => None,
        })
    }

    /// Tells on stderr what could not be read until now; true if that is nothing.
    pub fn is_whole(&self) -> bool {
        let damage = self.reader.damage().describe();
        damage.iter().for_each(render::tell);
        damage.is_none()
    }

    /// The report of an analysis of all records, with what was typed; and what could not be read, which it
    /// notes.
    pub fn report(&self, analysis: &mut Analysis) -> (Report, Option<String>) {
        let damage = self.reader.damage().describe();
        if let Some(damage) = &damage {
            analysis.take(&Record::Note(damage.clone()));
        }
        let mut report = analysis.report();
        let typed = self.live.as_ref().and_then(|live| live.command.clone());
        report.command = typed.or(report.command);
        (report, damage)
    }

    /// The options of an analysis: those of the live run (`--live`), or those of the arguments.
    pub fn options(
        &self,
        model: &ModelArgs,
        args: &ModeArgs,
        default: Unspecified,
    ) -> anyhow::Result<AnalysisOptions> {
        let stacks = self.live.as_ref().and_then(|live| live.stacks);
        let named = if args.lockstep { Some(Mode::Lockstep) } else { args.mode };
        let named = if args.open_loop { Some(Mode::OpenLoop) } else { named };
        let is_default = named.is_none() && !args.learn && default.live && self.live.is_some();
        if args.live || is_default {
            let Some(LiveOptions { models, mode, learn, .. }) = self.live.clone() else {
                if let Some(damage) = self.reader.damage().describe() {
                    bail!("how the live run worked cannot be read: {damage}; use --mode assimilated --learn");
                }
                bail!(
                    "the trace has no options of a live run: it was imported, or recorded before there was \
                   --live; use --mode assimilated --learn"
                );
            };
            let models = model.models(models);
            return Ok(AnalysisOptions { models, mode, learn, stacks, ..AnalysisOptions::default() });
        }
        let mode = named.unwrap_or(default.mode);
        if args.learn && mode == Mode::OpenLoop {
            let why = "open loop ignores observed costs, so it cannot learn; add --mode lockstep";
            return Err(exit::Usage(why.to_owned()).into());
        }
        let models = model.models(default.models);
        Ok(AnalysisOptions { models, mode, learn: args.learn, stacks, ..AnalysisOptions::default() })
    }
}

/// What is done if the arguments do not say.
pub struct Unspecified {
    /// The same as the live run, if the trace says how that worked.
    pub live: bool,
    /// Else this mode.
    pub mode: Mode,
    /// And these models; all, if empty.
    pub models: Vec<String>,
}

impl Unspecified {
    /// As in the live run, else the first model on the observed clock.
    pub fn as_run() -> Unspecified {
        Unspecified { live: true, mode: Mode::Lockstep, models: vec![MODELS[0].to_owned()] }
    }
}

/// What packed a file, and how to unpack it.
fn packed(path: &Path) -> Option<(&'static str, &'static str)> {
    const PACKERS: [(&[u8], &str, &str); 3] = [
        (&[0x1f, 0x8b], "gzip", "gunzip -k"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "unzstd"),
        (&[0xfd, b'7', b'z', b'X', b'Z'], "xz", "unxz -k"),
    ];
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(8).read_to_end(&mut head)).ok()?;
    let found = PACKERS.iter().find(|(magic, ..)| head.starts_with(magic));
    found.map(|(_, tool, unpack)| (*tool, *unpack))
}

/// What to say when it cannot be read.
fn about(path: &Path) -> String {
    format!("cannot read the trace {}", path.display())
}
