//! The arguments of the commands that ask a running daemon.

use std::path::PathBuf;

use cawl_client::protocol::{Sort, View};
use cawl_core::Mode;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use super::quantity::{interval, ram, ratios, size_above_zero, span_with_unit};
use crate::render::rows::SORTS;

/// Which daemon to ask.
#[derive(Args)]
pub struct DaemonArgs {
    /// Where the daemon listens (default: where cawld listens by default)
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Ask cawld for the dirty level now; --files, --processes, --watch
///
/// With it: what delays writers, and a forecast. Errors are those of one-step predictions over the last 60 s
/// with writes.
///
/// --files and --processes tell for each file or program: seconds lost, of throttling, of calls that waited
/// for the device, of all calls, and of all calls as predicted; bytes, recent bytes per second, calls.
///
/// Columns of --watch: dirty MiB as modelled and as counted by the kernel, and the modelled level in % of the
/// hard limit; MB/s made dirty (traced and other) and written back; seconds lost per second to throttling and
/// to synchronous calls, over all traced programs; seconds until writers are throttled at the present rate;
/// error of the total predicted time in %. A dash: unknown, or never. When the daemon ends, waits for its
/// restart.
#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Which files are written, and what that costs
    #[arg(long, groups = ["table", "instead"])]
    pub files: bool,
    /// Which programs write, and what that costs them
    #[arg(long, groups = ["table", "instead"])]
    pub processes: bool,
    /// The column to sort a table by, largest first; lost is the sum of throttled and sync
    #[arg(long, value_name = "KEY", default_value = "lost", value_parser = sort(), requires = "table",
          conflicts_with = "watch")]
    pub sort: Sort,
    /// Most rows of a table to print
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..),
          requires = "table", conflicts_with = "watch")]
    pub limit: u32,
    /// A line per interval: dirty level, rates, time lost, forecast, error of the model
    #[arg(long, group = "instead")]
    pub watch: bool,
    /// The interval of --watch: 1s, 250ms, 5m…
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = interval, requires = "watch",
          conflicts_with = "table")]
    pub every: f64,
    /// End --watch after this many lines (default: when interrupted)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "watch",
          conflicts_with = "table")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub view: ViewArgs,
    /// JSON as docs/reference/PROTOCOL.md has it: times in seconds, sizes in bytes, errors as fractions; with
    /// --watch one object a line
    #[arg(long)]
    pub json: bool,
}

/// The model that answers.
#[derive(Args)]
pub struct ViewArgs {
    /// The model that answers (default: the daemon's first)
    #[arg(long, value_name = "NAME", conflicts_with = "instead")]
    pub model: Option<String>,
    /// The clock of that model, and whether it is corrected towards the kernel's counters: open-loop,
    /// lockstep or assimilated (default: of the modes kept, the one closest to the counters)
    #[arg(long, value_name = "MODE", conflicts_with = "instead")]
    pub mode: Option<Mode>,
}

impl ViewArgs {
    /// The daemon's form of this choice.
    pub fn view(&self) -> View {
        View { model: self.model.clone(), mode: self.mode }
    }
}

/// Show dirty level, forecast, programs and files on a live screen
///
/// The dirty level stands against its limits, programs and files are sorted by time lost. Tab switches
/// between programs and files, s changes the order, / filters, p or the space bar pauses, ? lists all keys, q
/// quits. Needs a terminal of at least 80×24. NO_COLOR is respected.
#[derive(Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// The interval: 1s, 250ms…
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = interval)]
    pub every: f64,
    /// The column by which the tables are sorted at first
    #[arg(long, value_name = "KEY", default_value = "lost", value_parser = sort())]
    pub sort: Sort,
}

/// Predict the cost of a write, now or later
///
/// The daemon runs it on a copy of its model; nothing is written. Without a daemon, or with --offline, the
/// answer comes from this machine's profile and the kernel's present counters of dirty pages and writers.
/// Sizes: 512M, 4GiB, 1.5G are 1024-fold, 100MB is 1000-fold.
#[derive(Args)]
pub struct PredictArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Bytes in all
    #[arg(long, value_name = "SIZE", value_parser = size_above_zero)]
    pub bytes: u64,
    /// Bytes a call
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size_above_zero)]
    pub chunk: u64,
    /// With O_SYNC
    #[arg(long)]
    pub sync: bool,
    /// With an fsync at the end
    #[arg(long)]
    pub fsync: bool,
    /// Start of the write, from now: +10s; until then the present rates continue
    #[arg(long, value_name = "+SPAN", default_value = "0s", value_parser = span_with_unit)]
    pub at: f64,
    /// Device to write to, "major:minor" (default: the one most written to)
    #[arg(long, value_name = "M:N", value_parser = device, conflicts_with = "path")]
    pub device: Option<String>,
    /// A file or folder on the device to write to, or in memory; the file need not exist
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// The model that answers (default: the daemon's first)
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Ask no daemon
    #[arg(long, conflicts_with = "socket")]
    pub offline: bool,
    /// Predict from another profile (TOML), for a machine without dirty pages or other writers
    #[arg(long, value_name = "FILE", requires = "offline")]
    pub profile: Option<PathBuf>,
    /// Predict for an idle machine with so much memory: the dirty limits are those that the kernel derives
    #[arg(long, value_name = "SIZE", value_parser = ram, requires = "offline")]
    pub ram: Option<u64>,
    /// With --ram: dirty_background_ratio and dirty_ratio of that machine, in percent (default: 10,20)
    #[arg(long = "dirty-ratio", value_name = "B,H", value_parser = ratios, requires = "ram")]
    pub ratios: Option<[f64; 2]>,
    /// JSON as docs/reference/PROTOCOL.md has it: times in seconds, sizes in bytes, errors as fractions
    #[arg(long)]
    pub json: bool,
}

/// Show, compare or export the constants of this machine
#[derive(Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    pub command: ProfileCommand,
}

#[derive(Subcommand)]
pub enum ProfileCommand {
    Show(ShowArgs),
    Diff(ProfileDiffArgs),
    Export(ExportArgs),
}

/// Print the profile that `run` would use in this folder, as TOML
///
/// Its file, origin and age are told on stderr. It has the kernel's settings of now, and what runs learned in
/// the place of what was measured.
#[derive(Args)]
pub struct ShowArgs {
    /// The same as JSON
    #[arg(long)]
    pub json: bool,
}

/// Compare the constants of two profiles
///
/// Without files: the daemon's constants at its start against what it learned since; without a daemon, this
/// machine's measured constants against the learned ones. With one file: its constants against those the
/// daemon uses now; without a daemon, its measured constants against its learned ones. With two files, no
/// daemon is asked. Equal constants are left out.
#[derive(Args)]
pub struct ProfileDiffArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// A profile (TOML)
    #[arg(value_name = "A")]
    pub before: Option<PathBuf>,
    /// Another profile (TOML)
    #[arg(value_name = "B", requires = "before", conflicts_with = "socket")]
    pub after: Option<PathBuf>,
    /// JSON as docs/reference/PROTOCOL.md has it: times in seconds, sizes in bytes, errors as fractions
    #[arg(long)]
    pub json: bool,
}

/// Write the daemon's profile as TOML, for `--profile` of `run`, `replay` and `cawld`
#[derive(Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// The file to write (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// With the learned constants (default)
    #[arg(long, conflicts_with = "configured")]
    pub learned: bool,
    /// With the constants at the daemon's start
    #[arg(long)]
    pub configured: bool,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// A name of [`SORTS`].
fn sort() -> impl TypedValueParser<Value = Sort> {
    PossibleValuesParser::new(SORTS.map(|(_, name)| name)).map(|text| {
        SORTS.iter().find(|(_, name)| *name == text).map_or_else(Sort::default, |(sort, _)| *sort)
    })
}

/// "major:minor".
fn device(text: &str) -> Result<String, String> {
    let numbers = text
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    numbers
        .map(|(major, minor)| format!("{major}:{minor}"))
        .ok_or_else(|| "give major and minor number, as in 254:1 (see lsblk), or --path".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        assert_eq!(device("254:01"), Ok("254:1".to_owned()));
        for text in ["vda", "254", "254:", ":1", "254:-1", "1:2:3"] {
            assert!(device(text).unwrap_err().contains("254:1"), "{text}");
        }
    }

    #[test]
    fn modes() {
        assert_eq!("open-loop".parse(), Ok(Mode::OpenLoop));
        assert!("live".parse::<Mode>().unwrap_err().to_string().contains("assimilated (that of a live run"));
        assert!("loop".parse::<Mode>().unwrap_err().to_string().contains("lockstep"));
    }
}
