//! The words in which changes are asked for: one table for every command that takes them.
//!
//! The grammar: **`--NAME VALUE` is an option of `whatif` and `rerun`; `NAME=VALUE` is the same change in a
//! list**, as `run --try` and `tune` take it. A further change is a row of [`KEYWORDS`] and its law in
//! [`Rewrite`].

use std::path::PathBuf;

use cawl_wire::flag;

use super::change::{Change, Owner, Rewrite, SyncsKept};
use super::parts::Part;
use crate::glob::Glob;
use crate::limits::DirtyLimits;
use crate::named::named;
use crate::quantity::{limits, ram, ratios, size_above_zero};
use crate::release::Release;
use crate::units::Bytes;

named! {
    /// A command that makes changes.
    Maker {
        /// On paper.
        WhatIf = "whatif",
        /// Really, with the calls of a trace.
        Rerun = "rerun",
        /// Really, in a running program.
        Run = "run --try",
        /// On paper, for patterns of writing.
        Tune = "tune",
    }
}

const PAPER: &[Maker] = &[Maker::WhatIf];
const CALLS: &[Maker] = &[Maker::WhatIf, Maker::Rerun];
const LIVE: &[Maker] = &[Maker::WhatIf, Maker::Rerun, Maker::Run];
const SETTING: &[Maker] = &[Maker::WhatIf, Maker::Rerun, Maker::Tune];

/// A kind of change: a row of the table.
#[derive(Debug)]
pub struct Keyword {
    /// Its name.
    pub name: &'static str,
    /// What its value is; empty if it has none.
    pub value: &'static str,
    /// The commands that make it.
    pub makers: &'static [Maker],
    /// What it does, in a line.
    pub help: &'static str,
    /// Few need it.
    pub is_expert: bool,
    read: fn(&str) -> Result<Effect, String>,
}

/// What a change changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The program's calls.
    Calls(Change),
    /// The files of the change before it.
    On(Glob),
    /// The device of files that fit: its profile's file, or its number in the trace as "major:minor".
    Move(Glob, String),
    /// A value of the profile, by its name.
    Set(String, String),
    /// The profile in this file.
    Profile(PathBuf),
    /// The dirty limits.
    Limits(DirtyLimits),
    /// The dirty limits as parts of dirtyable memory.
    Ratios([f64; 2]),
    /// The installed memory.
    Ram(Bytes),
    /// The memory of the programs' cgroup.
    Cgroup(Bytes),
    /// The release of Linux whose laws hold.
    Release(Release),
    /// A part of the machine is so many times as large.
    Scale(Part, f64),
    /// No memory is cold.
    Warm,
}

/// All changes, those of the program first.
pub const KEYWORDS: &[Keyword] = &[
    row("merge", "SIZE", CALLS, "Put writes together that continue one another", |text| {
        Ok(size_above_zero(text).map(Rewrite::Merge)?.into())
    }),
    row("split", "SIZE", SETTING, "Split larger writes", |text| {
        Ok(size_above_zero(text).map(Rewrite::Split)?.into())
    }),
    row("buffer", "SIZE", &Maker::ALL, "Size of the buffers of C, C++, Python, Java and Go", buffer),
    row(
        "fsync",
        "WHEN",
        &Maker::ALL,
        "every=N, end, none: of a file's fsyncs make one of N, the last, none; close: add one at its close",
        |text| Ok(if text == "close" { Rewrite::SyncAtClose } else { Rewrite::Syncs(syncs(text)?) }.into()),
    ),
    row("fdatasync", "", CALLS, "fdatasync in the place of fsync", |_| Ok(Rewrite::Fdatasync.into())),
    row("sync", "on|off", SETTING, "O_SYNC for files", |text| flags(flag::SYNC, text)),
    row("dsync", "on|off", SETTING, "O_DSYNC for files", |text| flags(flag::DSYNC, text)),
    row("direct", "on|off", SETTING, "O_DIRECT for files", |text| flags(flag::DIRECT, text)),
    row("preallocate", "", LIVE, "Allocate a file's space before its first write", |_| {
        Ok(Rewrite::Preallocate.into())
    }),
    row("pace", "SIZE", LIVE, "Begin to write back every so many bytes of a file", |text| {
        Ok(size_above_zero(text).map(Rewrite::Pace)?.into())
    }),
    row("dontneed", "", LIVE, "Drop from the cache what was written 8 MiB before", |_| {
        Ok(Rewrite::Dontneed(PART).into())
    }),
    row("think", "FACTOR", CALLS, "Threads think so many times as long between calls", |text| {
        let factor = text.trim_start_matches(['x', '×']).parse::<f64>().ok();
        let factor = factor.filter(|factor| factor.is_finite() && *factor >= 0.0);
        Ok(Rewrite::Think(factor.ok_or("give a number, 0 or more")?).into())
    }),
    row("writers", "N[,one]", CALLS, "N programs do the same, with own files or the same ones", writers)
        .expert(),
    row("sort", "", CALLS, "Writes between two syncs come in the order of their offsets", |_| {
        Ok(Rewrite::Sort.into())
    })
    .expert(),
    row("append-only", "", CALLS, "Each write goes to the end of its file", |_| {
        Ok(Rewrite::AppendOnly.into())
    })
    .expert(),
    row("drop", "GLOB", CALLS, "No calls on files whose path fits", |text| Ok(of(text, Rewrite::Drop)))
        .expert(),
    row("only", "GLOB", CALLS, "No calls on other files", |text| Ok(of(text, Rewrite::Only))).expert(),
    row("on", "GLOB", CALLS, "The change before it is only of files whose path fits", |text| {
        Ok(Effect::On(text.into()))
    }),
    row("set", "NAME=VALUE", PAPER, "Another value of the profile: device.writeback=2G", |text| {
        let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
        Ok(Effect::Set(name.to_owned(), value.to_owned()))
    }),
    row("scale", "PART=FACTOR", PAPER, "A part's times, rates or limits, so many times as large", scale)
        .expert(),
    row("profile", "FILE", PAPER, "Another machine: its constants and limits", |text| {
        Ok(Effect::Profile(text.into()))
    }),
    row(
        "limits",
        "B,H",
        &[Maker::WhatIf, Maker::Tune],
        "Other dirty limits, background and hard: 512M,1G",
        |text| limits(text).map(Effect::Limits),
    ),
    row("dirty-ratio", "B,H", PAPER, "The same in percent of memory: 10,40", |text| {
        ratios(text).map(Effect::Ratios)
    }),
    row("ram", "SIZE", PAPER, "So much memory, with the ratios above or the trace's", |text| {
        ram(text).map(Bytes).map(Effect::Ram)
    }),
    row("cgroup", "max=SIZE", PAPER, "The programs are in a memory cgroup with this limit", |text| {
        let size = text.strip_prefix("max=").ok_or("write it as max=SIZE")?;
        size_above_zero(size).map(Bytes).map(Effect::Cgroup)
    })
    .expert(),
    row(
        "move",
        "GLOB=FILE",
        PAPER,
        "Files whose path fits are on the device of a profile, or a mount",
        |text| {
            let (glob, place) = text.rsplit_once('=').ok_or("write it as GLOB=FILE")?;
            Ok(Effect::Move(glob.into(), place.to_owned()))
        },
    )
    .expert(),
    row("kernel", "RELEASE", PAPER, "The laws of another release of Linux: 6.1", |text| {
        text.parse().map(Effect::Release)
    })
    .expert(),
    row("warm", "", PAPER, "No memory is cold", |_| Ok(Effect::Warm)).expert(),
];

/// Bytes after which `dontneed` drops what was written before them.
const PART: u64 = 8 << 20;
/// Largest buffer of a stream in a running program, in bytes.
const LIVE_BUFFER: u32 = 1 << 30;

const fn row(
    name: &'static str,
    value: &'static str,
    makers: &'static [Maker],
    help: &'static str,
    read: fn(&str) -> Result<Effect, String>,
) -> Keyword {
    Keyword { name, value, makers, help, is_expert: false, read }
}

impl Keyword {
    const fn expert(self) -> Keyword {
        Keyword { is_expert: true, ..self }
    }

    /// True for a change of the program, which a rerun makes; else it is one of the machine.
    pub fn is_of_program(&self) -> bool {
        self.makers.contains(&Maker::Rerun)
    }

    /// The change with this value. The error is a sentence for the person who gave it.
    pub fn request(&'static self, value: &str) -> Result<Request, String> {
        let option =
            |value: &str| format!("--{}{}{value}", self.name, if value.is_empty() { "" } else { " " });
        let arguments = if value.is_empty() { option("") } else { option(&quoted(value)) };
        Ok(Request { text: option(value), arguments, effect: (self.read)(value)? })
    }

    /// The change as it stands in a list, where a flag alone is on.
    fn word(&'static self, value: &str) -> Result<Request, String> {
        match (self.value, value) {
            ("on|off", "") => self.request("on"),
            ("", value) if !value.is_empty() => Err(format!("`{}` takes no value", self.name)),
            (kind, "") if !kind.is_empty() => Err(format!("write it as {}={kind}", self.name)),
            _ => self.request(value),
        }
    }
}

/// A change as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its options of `whatif` and `rerun`, as they were given.
    pub text: String,
    /// The same for a shell.
    pub arguments: String,
    /// What it changes.
    pub effect: Effect,
}

impl Request {
    /// What [`Request::live`] takes, for people.
    pub const LIVE: &str = "buffer=SIZE, pace=SIZE, dontneed, fsync=none or preallocate";

    /// What is not known of it, for people: a kernel whose laws were not measured.
    pub fn remark(&self) -> Option<String> {
        if let Effect::Release(release) = self.effect { release.remark() } else { None }
    }

    /// The change of this name with this value, which is empty where there is none.
    pub fn of(name: &str, value: &str) -> Result<Request, String> {
        let keyword = KEYWORDS.iter().find(|keyword| keyword.name == name);
        keyword.ok_or_else(|| unknown(name))?.request(value)
    }

    /// Reads a list of changes: `buffer=1M,fsync=none`. Several values of a change are several changes:
    /// `split=4K,64K`. The error is a sentence for the person who wrote it.
    pub fn list(text: &str) -> Result<Vec<Request>, String> {
        let mut words: Vec<(&'static Keyword, String)> = Vec::new();
        for piece in text.split(',') {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            match (KEYWORDS.iter().find(|keyword| keyword.name == name), words.last_mut()) {
                (Some(keyword), _) => words.push((keyword, value.to_owned())),
                (None, Some((keyword, before))) if keyword.value.contains(',') && !before.contains(',') => {
                    before.extend([",", piece]);
                }
                (None, Some((keyword, _))) if !keyword.value.is_empty() => {
                    let keyword = *keyword;
                    words.push((keyword, piece.to_owned()));
                }
                _ => return Err(unknown(name)),
            }
        }
        words.into_iter().map(|(keyword, value)| keyword.word(&value)).collect()
    }

    /// Changes as they were asked for, one after another: with the files of each ([`Effect::On`]) in it, and
    /// the parts of `dontneed` those of the `pace` before it.
    pub fn joined(requests: impl IntoIterator<Item = Request>) -> Result<Vec<Request>, String> {
        let mut all: Vec<Request> = Vec::new();
        let mut part = PART;
        for mut request in requests {
            match &mut request.effect {
                Effect::On(glob) => {
                    let last = all.last_mut().filter(|last| last.is_of_files());
                    let Some(Request {
                        text,
                        arguments,
                        effect: Effect::Calls(Change { on: on @ None, .. }),
                    }) = last
                    else {
                        return Err("--on limits the change of files' calls before it: --fsync none --on \
                                    '*.log'; --think and --writers are of whole programs"
                            .to_owned());
                    };
                    *on = Some(glob.clone());
                    text.extend([" ", &request.text]);
                    arguments.extend([" ", &request.arguments]);
                    continue;
                }
                Effect::Calls(Change { rewrite: Rewrite::Pace(bytes), .. }) => part = *bytes,
                Effect::Calls(Change { rewrite: Rewrite::Dontneed(bytes), .. }) => *bytes = part,
                _ => {}
            }
            all.push(request);
        }
        Ok(all)
    }

    /// True if it changes calls, and not only the machine.
    pub fn changes_calls(&self) -> bool {
        matches!(self.effect, Effect::Calls(_) | Effect::Move(..))
    }

    /// What becomes of calls, where it is a change of the program.
    pub fn rewrite(&self) -> Option<&Rewrite> {
        match &self.effect {
            Effect::Calls(change) => Some(&change.rewrite),
            _ => None,
        }
    }

    /// The files that it is of; None for all.
    pub fn on(&self) -> Option<&Glob> {
        match &self.effect {
            Effect::Calls(change) => change.on.as_ref(),
            Effect::Move(glob, _) => Some(glob),
            _ => None,
        }
    }

    /// Threads think and programs are multiplied whatever their files are.
    fn is_of_files(&self) -> bool {
        self.rewrite().is_some_and(|rewrite| !matches!(rewrite, Rewrite::Think(_) | Rewrite::Writers(..)))
    }

    /// The change as the tracer reads it to make it in a running program, sizes in bytes. The error is a
    /// sentence for the person who asked for it.
    pub fn live(&self) -> Result<String, String> {
        match self.rewrite() {
            Some(Rewrite::Buffer(bytes)) if *bytes > LIVE_BUFFER => {
                Err("give a buffer of at most 1G".to_owned())
            }
            Some(Rewrite::Buffer(bytes)) => Ok(format!("buffer={bytes}")),
            Some(Rewrite::Pace(bytes)) => Ok(format!("pace={bytes}")),
            Some(Rewrite::Dontneed(_)) => Ok("dontneed".to_owned()),
            Some(Rewrite::Syncs(SyncsKept::None)) => Ok("fsync=none".to_owned()),
            Some(Rewrite::Preallocate) => Ok("preallocate".to_owned()),
            _ => Err(format!("`{}` is no change of a running program", self.text)),
        }
    }
}

/// A change of all files.
impl From<Rewrite> for Effect {
    fn from(rewrite: Rewrite) -> Effect {
        Effect::Calls(Change { rewrite, on: None })
    }
}

/// A word that a shell takes as it is.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A change of files whose path fits.
fn of(glob: &str, rewrite: Rewrite) -> Effect {
    Effect::Calls(Change { rewrite, on: Some(glob.into()) })
}

fn unknown(name: &str) -> String {
    format!("there is no change `{name}`; docs/reference/WHATIF.md has them all")
}

fn buffer(text: &str) -> Result<Effect, String> {
    let size = u32::try_from(size_above_zero(text)?);
    Ok(Rewrite::Buffer(size.map_err(|_| "give less than 4G".to_owned())?).into())
}

fn syncs(text: &str) -> Result<SyncsKept, String> {
    match text {
        "end" => Ok(SyncsKept::Last),
        "none" => Ok(SyncsKept::None),
        _ => {
            let count = text.strip_prefix("every=").unwrap_or(text).parse().ok();
            let count = count.filter(|count| *count > 0);
            Ok(SyncsKept::OneIn(count.ok_or("give every=N, end, none or close")?))
        }
    }
}

fn flags(flags: u32, text: &str) -> Result<Effect, String> {
    match text {
        "on" => Ok(Rewrite::Flags(flags, true).into()),
        "off" => Ok(Rewrite::Flags(flags, false).into()),
        _ => Err("give on or off".to_owned()),
    }
}

fn scale(text: &str) -> Result<Effect, String> {
    let parts = || Part::ALL.map(Part::word).join(", ");
    let (name, factor) = text.split_once('=').ok_or("write it as PART=FACTOR: bandwidth=2")?;
    let part = Part::ALL.into_iter().find(|part| part.word() == name);
    let part = part.ok_or_else(|| format!("there is no part `{name}`; there are {}", parts()))?;
    let factor = factor.trim_start_matches(['x', '×']).parse::<f64>().ok();
    let factor = factor.filter(|factor| (1e-3..=1e3).contains(factor));
    Ok(Effect::Scale(
        part,
        factor.ok_or(
            "give a factor from 0.001 to 1000; each part is an option of its own, or scale=flush=2,latency=2",
        )?,
    ))
}

fn writers(text: &str) -> Result<Effect, String> {
    let (count, owner) = match text.split_once(',') {
        None => (text, Owner::Each),
        Some((count, "one")) => (count, Owner::All),
        Some(_) => return Err("give N, or N,one".to_owned()),
    };
    let count = count.parse::<u32>().ok().filter(|count| (1..=256).contains(count));
    Ok(Rewrite::Writers(count.ok_or("give 1 to 256 programs")?, owner).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/reference/WHATIF.md has each change, with its value and the commands that make it.
    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../../docs/reference/WHATIF.md");
        let rows = page.lines().filter(|line| line.starts_with("| `--")).collect::<Vec<_>>();
        assert_eq!(rows.len(), KEYWORDS.len());
        for (row, Keyword { name, value, makers, .. }) in rows.iter().zip(KEYWORDS) {
            let gap = if value.is_empty() { "" } else { " " };
            let makers = makers.iter().map(|maker| maker.name()).collect::<Vec<_>>().join(", ");
            let begin = format!("| `--{name}{gap}{}` | {makers} | ", value.replace('|', "\\|"));
            assert!(row.starts_with(&begin), "`{begin}` is not the begin of `{row}`");
        }
    }

    #[test]
    fn lists_are_read_and_told() {
        let told = |text: &str| -> Result<Vec<String>, String> {
            Ok(Request::list(text)?.into_iter().map(|request| request.text).collect())
        };
        for (given, expected) in [
            ("buffer=1M,dontneed", &["--buffer 1M", "--dontneed"][..]),
            (
                "split=4K,64K,fsync=none,every=16",
                &["--split 4K", "--split 64K", "--fsync none", "--fsync every=16"],
            ),
            ("limits=16M,1G,direct", &["--limits 16M,1G", "--direct on"]),
            ("set=device.fsync=5ms,warm", &["--set device.fsync=5ms", "--warm"]),
            ("writers=4,one", &["--writers 4,one"]),
            ("scale=bandwidth=2,flush=0.5,warm", &["--scale bandwidth=2", "--scale flush=0.5", "--warm"]),
        ] {
            assert_eq!(told(given).unwrap(), expected, "{given}");
        }
        for wrong in [
            "",
            "buffer",
            "buffer=0",
            "pace=x",
            "fsync",
            "dontneed=1",
            "dontneed,1",
            "1M",
            "sync=maybe",
            "scale=disk=2",
            "scale=flush=0",
        ] {
            assert!(told(wrong).is_err(), "{wrong}");
        }
        let on = Request::list("fsync=none,on=my *.db").map(Request::joined).unwrap().unwrap();
        assert_eq!((on.len(), on[0].arguments.as_str()), (1, "--fsync none --on 'my *.db'"));
        for wrong in ["on=a", "think=2,on=a", "fsync=none,on=a,on=b", "warm,on=a"] {
            assert!(Request::joined(Request::list(wrong).unwrap()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_tracer_is_told_what_it_can_do() {
        let live = |text: &str| Request::list(text).unwrap()[0].live();
        for (given, sent) in [
            ("buffer=1M", "buffer=1048576"),
            ("pace=1.5K", "pace=1536"),
            ("dontneed", "dontneed"),
            ("fsync=none", "fsync=none"),
            ("preallocate", "preallocate"),
        ] {
            assert_eq!(live(given), Ok(sent.to_owned()));
        }
        for wrong in ["buffer=2G", "fsync=end", "sync", "merge=1M", "warm"] {
            assert!(live(wrong).is_err(), "{wrong}");
        }
    }
}
