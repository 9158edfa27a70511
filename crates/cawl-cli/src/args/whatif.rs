//! Arguments of `whatif`.

use std::path::PathBuf;

use cawl_core::{Bytes, Change, DirtyLimits, Glob, Owner, Rewrite, SyncsKept, dirtyable, quantity};
use cawl_wire::flag;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::EXPERT;
use quantity::{duration, limits, size_above_zero};

/// Tell what the calls would cost if program or machine were another
///
/// Runs the calls of a trace through a model twice: as they were, and with changes, in the order given. Each
/// thread keeps its own thinking between its calls. Constants are learned from the trace first. A change is
/// of all files unless --on comes after it. The trace stays as it is. docs/reference/WHATIF.md has the
/// changes.
#[derive(clap::Args)]
pub struct WhatIfArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    pub trace: PathBuf,
    #[command(flatten)]
    pub changes: Changes,
    /// Compare the changes one by one
    #[arg(long, conflicts_with = "sensitivity")]
    pub each: bool,
    /// How much the total would change with each constant of the machine
    #[arg(long)]
    pub sensitivity: bool,
    /// Use the profile's constants as they are, without learning from the trace
    #[arg(long, help_heading = EXPERT)]
    pub no_learn: bool,
    /// Write the changed trace, with the times that its calls have on paper
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["each", "sensitivity"])]
    pub output: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Changes, in the order given.
#[derive(Clone, Debug)]
pub struct Changes(pub Vec<Given>);

/// A change as it was given.
#[derive(Clone, Debug)]
pub struct Given {
    /// Its words on the command line.
    pub text: String,
    pub word: Word,
}

impl Given {
    pub fn changes_calls(&self) -> bool {
        matches!(self.word, Word::Calls(_) | Word::Move(..))
    }

    /// Threads think and programs are multiplied whatever their files are.
    fn is_of_files(&self) -> bool {
        let Word::Calls(Change { rewrite, .. }) = &self.word else { return false };
        !matches!(rewrite, Rewrite::Think(_) | Rewrite::Writers(..))
    }
}

/// What a change changes.
#[derive(Clone, Debug)]
pub enum Word {
    Calls(Change),
    /// The device of files: those that fit, and the profile of the device.
    Move(Glob, PathBuf),
    /// The files of the change before it.
    On(Glob),
    /// A value of the profile, by its name.
    Set(String, String),
    Profile(PathBuf),
    Limits(DirtyLimits),
    /// The same as parts of dirtyable memory.
    Ratios([f64; 2]),
    /// Memory, in bytes.
    Ram(u64),
    /// Memory of the programs' cgroup, in bytes.
    Cgroup(u64),
    /// No memory is cold.
    Warm,
}

/// An argument: its name, its value if it has one, what it does, how its value is read.
struct Known(&'static str, Option<&'static str>, &'static str, fn(&str) -> Result<Word, String>);

const PROGRAM: &[Known] = &[
    Known("merge", Some("SIZE"), "Put writes together that continue one another, up to SIZE", |text| {
        Ok(calls(Rewrite::Merge(size_above_zero(text)?)))
    }),
    Known("split", Some("SIZE"), "Split larger writes into such of SIZE", |text| {
        Ok(calls(Rewrite::Split(size_above_zero(text)?)))
    }),
    Known("buffer", Some("SIZE"), "Give streams of C and buffers of C++, Python, Java and Go SIZE", |text| {
        let size = u32::try_from(size_above_zero(text)?);
        Ok(calls(Rewrite::Buffer(size.map_err(|_| "give less than 4G".to_owned())?)))
    }),
    Known(
        "fsync",
        Some("every=N|end|none|close"),
        "Of the fsyncs of each file make one of N, the last, or none; or add one before each close",
        |text| Ok(calls(if text == "close" { Rewrite::SyncAtClose } else { Rewrite::Syncs(syncs(text)?) })),
    ),
    Known("fdatasync", None, "fdatasync in the place of fsync", |_| Ok(calls(Rewrite::Fdatasync))),
    Known("sync", Some("on|off"), "O_SYNC for files", |text| flags(flag::SYNC, text)),
    Known("dsync", Some("on|off"), "O_DSYNC for files", |text| flags(flag::DSYNC, text)),
    Known("direct", Some("on|off"), "O_DIRECT for files", |text| flags(flag::DIRECT, text)),
    Known("preallocate", None, "Allocate a file's space before its first write", |_| {
        Ok(calls(Rewrite::Preallocate))
    }),
    Known("sort", None, "Make the writes between two syncs of a file in the order of their offsets", |_| {
        Ok(calls(Rewrite::Sort))
    }),
    Known("pace", Some("SIZE"), "Begin to write back (sync_file_range) every SIZE bytes of a file", |text| {
        Ok(calls(Rewrite::Pace(size_above_zero(text)?)))
    }),
    Known(
        "dontneed",
        None,
        "Drop what is written from the cache (posix_fadvise), but for the last 8 MiB, or part of --pace",
        |_| Ok(calls(Rewrite::Dontneed(PART))),
    ),
    Known("think", Some("FACTOR"), "Threads think FACTOR times as long between their calls", |text| {
        let factor = text.trim_start_matches(['x', '×']).parse::<f64>().ok();
        let factor = factor.filter(|factor| factor.is_finite() && *factor >= 0.0);
        Ok(calls(Rewrite::Think(factor.ok_or("give a number, 0 or more")?)))
    }),
    Known("no-think", None, "Threads make their calls one right after another", |_| {
        Ok(calls(Rewrite::Think(0.0)))
    }),
    Known(
        "writers",
        Some("N[,one]"),
        "N programs do the same at once, with own files or the same ones",
        writers,
    ),
    Known("append-only", None, "Each write goes to the end of its file", |_| Ok(calls(Rewrite::AppendOnly))),
    Known("drop", Some("GLOB"), "No calls on files whose path fits", |text| Ok(of(text, Rewrite::Drop))),
    Known("only", Some("GLOB"), "No calls on other files", |text| Ok(of(text, Rewrite::Only))),
    Known("on", Some("GLOB"), "The change before it is of the files whose path fits", |text| {
        Ok(Word::On(Glob::from(text)))
    }),
];

const MACHINE: &[Known] = &[
    Known("set", Some("NAME=VALUE"), "Another value of the profile: device.writeback=2G", |text| {
        let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
        Ok(Word::Set(name.to_owned(), value.to_owned()))
    }),
    Known("profile", Some("PROFILE"), "Another machine: its constants and limits", |text| {
        Ok(Word::Profile(text.into()))
    }),
    Known("limits", Some("BACKGROUND,HARD"), "Other dirty limits, in bytes: 512M,1G", |text| {
        limits(text).map(Word::Limits)
    }),
    Known("dirty-ratio", Some("BACKGROUND,HARD"), "Dirty limits in percent of memory: 10,40", |text| {
        ratios(text).map(Word::Ratios)
    }),
    Known("ram", Some("SIZE"), "So much memory: with --dirty-ratio, or the trace's ratios", |text| {
        ram(text).map(Word::Ram)
    }),
    Known("expire", Some("TIME"), "Age at which dirty data are written back", |text| {
        set_time("expire", text)
    }),
    Known("wakeup", Some("TIME"), "Interval of the periodic flusher", |text| set_time("wakeup", text)),
    Known("cgroup", Some("max=SIZE"), "The programs are in a memory cgroup with this limit", |text| {
        let size = text.strip_prefix("max=").ok_or("write it as max=SIZE")?;
        Ok(Word::Cgroup(size_above_zero(size)?))
    }),
    Known("move", Some("GLOB=PROFILE"), "Files whose path fits are on the device of PROFILE", |text| {
        let (glob, profile) = text.rsplit_once('=').ok_or("write it as GLOB=PROFILE")?;
        Ok(Word::Move(Glob::from(glob), profile.into()))
    }),
    Known("warm", None, "No memory is cold", |_| Ok(Word::Warm)),
];

/// Bytes after which --dontneed drops what was written before them.
const PART: u64 = 8 << 20;

/// A change of all files.
fn calls(rewrite: Rewrite) -> Word {
    Word::Calls(Change { rewrite, on: None })
}

/// A change of files whose path fits.
fn of(glob: &str, rewrite: Rewrite) -> Word {
    Word::Calls(Change { rewrite, on: Some(Glob::from(glob)) })
}

fn syncs(text: &str) -> Result<SyncsKept, String> {
    match text {
        "end" => Ok(SyncsKept::Last),
        "none" => Ok(SyncsKept::None),
        _ => {
            let count = text.strip_prefix("every=").and_then(|count| count.parse().ok());
            let count = count.filter(|count| *count > 0);
            Ok(SyncsKept::OneIn(count.ok_or("give every=N, end, none or close")?))
        }
    }
}

fn flags(flags: u32, text: &str) -> Result<Word, String> {
    match text {
        "on" => Ok(calls(Rewrite::Flags(flags, true))),
        "off" => Ok(calls(Rewrite::Flags(flags, false))),
        _ => Err("give on or off".to_owned()),
    }
}

fn writers(text: &str) -> Result<Word, String> {
    let (count, owner) = match text.split_once(',') {
        None => (text, Owner::Each),
        Some((count, "one")) => (count, Owner::All),
        Some(_) => return Err("give N, or N,one".to_owned()),
    };
    let count = count.parse::<u32>().ok().filter(|count| (1..=256).contains(count));
    Ok(calls(Rewrite::Writers(count.ok_or("give 1 to 256 programs")?, owner)))
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once(',').ok_or_else(|| "give two values with a comma between them".to_owned())
}

/// Memory of a machine, in bytes: so much that some of it can be dirty.
pub fn ram(text: &str) -> Result<u64, String> {
    let bytes = size_above_zero(text)?;
    let DirtyLimits { background, hard } =
        DirtyLimits::of(DirtyLimits::DEFAULT_RATIOS, dirtyable(Bytes(bytes)));
    let has_room = background < hard;
    has_room.then_some(bytes).ok_or_else(|| "no Linux runs in so little memory; give 64M or more".to_owned())
}

/// Two percentages, of the background limit and the hard one, as fractions.
pub fn ratios(text: &str) -> Result<[f64; 2], String> {
    let (background, hard) = pair(text)?;
    let percent = |text: &str| text.parse::<f64>().ok().filter(|part| (0.0..=100.0).contains(part));
    let ratios = percent(background).zip(percent(hard)).filter(|(background, hard)| background < hard);
    let (background, hard) = ratios.ok_or("give two percentages, the lower first: 10,40")?;
    Ok([background / 100.0, hard / 100.0])
}

fn set_time(name: &str, text: &str) -> Result<Word, String> {
    duration(text)?;
    Ok(Word::Set(format!("kernel.{name}"), text.to_owned()))
}

impl clap::Args for Changes {
    fn augment_args(command: Command) -> Command {
        let groups = [("Changes of the program", PROGRAM), ("Changes of the machine", MACHINE)];
        let all =
            groups.into_iter().flat_map(|(heading, group)| group.iter().map(move |known| (heading, known)));
        command.args(all.map(|(heading, Known(name, value, help, read))| {
            let arg = Arg::new(*name).long(*name).help(*help).help_heading(heading);
            let arg = arg.action(ArgAction::Append).value_parser(*read);
            match *value {
                Some(value) => arg.value_name(value).allow_negative_numbers(true),
                None => arg.num_args(0).default_missing_value(""),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Changes::augment_args(command)
    }
}

impl FromArgMatches for Changes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Changes, clap::Error> {
        let mut given = Vec::new();
        for Known(name, value, ..) in PROGRAM.iter().chain(MACHINE) {
            let Some(words) = matches.get_many::<Word>(name) else { continue };
            let raw = matches.get_raw(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            for ((word, raw), place) in words.zip(raw).zip(places) {
                let value = value.map(|_| format!(" {}", raw.to_string_lossy())).unwrap_or_default();
                given.push((place, Given { text: format!("--{name}{value}"), word: word.clone() }));
            }
        }
        given.sort_by_key(|(place, _)| *place);
        let mut changes: Vec<Given> = Vec::new();
        let mut part = PART;
        for (_, mut given) in given {
            match &mut given.word {
                Word::Calls(Change { rewrite: Rewrite::Pace(bytes), .. }) => part = *bytes,
                Word::Calls(Change { rewrite: Rewrite::Dontneed(bytes), .. }) => *bytes = part,
                _ => {}
            }
            let Word::On(glob) = &given.word else {
                changes.push(given);
                continue;
            };
            let last = changes.last_mut().filter(|last| last.is_of_files());
            match last {
                Some(Given { text, word: Word::Calls(Change { on: on @ None, .. }) }) => {
                    *on = Some(glob.clone());
                    text.extend([" ", &given.text]);
                }
                _ => {
                    let why = "--on limits the change of files' calls before it: --fsync none --on '*.log'; \
                               --think, --no-think and --writers are of whole programs";
                    return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
                }
            }
        }
        Ok(Changes(changes))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Changes::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Changes of the program alone, in the order given.
#[derive(Clone, Debug)]
pub struct ProgramChanges(pub Changes);

impl clap::Args for ProgramChanges {
    fn augment_args(command: Command) -> Command {
        let of_machine = |arg: &Arg| MACHINE.iter().any(|known| arg.get_id() == known.0);
        Changes::augment_args(command).mut_args(|arg| if of_machine(&arg) { arg.hide(true) } else { arg })
    }

    fn augment_args_for_update(command: Command) -> Command {
        ProgramChanges::augment_args(command)
    }
}

impl FromArgMatches for ProgramChanges {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ProgramChanges, clap::Error> {
        let changes = Changes::from_arg_matches(matches)?;
        if let Some(given) = changes.0.iter().find(|given| !matches!(given.word, Word::Calls(_))) {
            let why = format!(
                "{} changes the machine, which is what it is here; `cawl-cli whatif` tells what another one does",
                given.text
            );
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
        }
        Ok(ProgramChanges(changes))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ProgramChanges::from_arg_matches(matches)?;
        Ok(())
    }
}
