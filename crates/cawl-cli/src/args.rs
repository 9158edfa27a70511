//! The command line.

mod advise;
mod attach;
mod changes;
mod check;
mod diff;
mod explain;
mod export_to;
mod headings;
mod live;
mod record;
mod rerun;
mod select;
mod service;
mod tries;
mod whatif;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use cawl_console::{Respelled, parsed, respelled};
use cawl_core::{MODELS, Mode, Nanos, StackOptions, quantity};
use cawl_import::{Columns, Pattern, open_flags};
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use advise::AdviseArgs;
pub use attach::AttachArgs;
pub use check::CheckArgs;
pub use diff::DiffArgs;
pub use explain::{By, ExplainArgs};
pub use export_to::ExportTo;
pub use live::{
    DaemonArgs, ExportArgs, PredictArgs, ProfileArgs, ProfileCommand, ProfileDiffArgs, ShowArgs, StatusArgs,
    TopArgs,
};
use quantity::size;
pub use record::RecordArgs;
pub use rerun::RerunArgs;
pub use select::SelectArgs;
pub use service::{DisableArgs, EnableArgs, ServiceArgs, ServiceCommand, ServiceStatusArgs};
pub use tries::Try;
pub use whatif::WhatIfArgs;

use crate::render::tell;

/// Run a program and report, call by call, what each write should cost on this machine, what it did cost, and
/// why.
///
/// Exit codes: that of the traced program (`run`); 1 when something failed; 2 for wrong usage; 126 when the
/// program cannot be executed; 127 when there is no such program.
#[derive(Parser)]
#[command(version, max_term_width = 80, help_template = headings::template())]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// Heading of the options that few need.
const EXPERT: &str = "Expert";

/// Commands that this program had, and that are now the laboratory's.
const OF_THE_LABORATORY: [&str; 5] = ["experiment", "fit", "compare", "regress", "tune"];

/// Options that have another spelling now.
const RESPELLED: [Respelled; 5] = [
    ("whatif", "--no-think", "--think=0"),
    ("rerun", "--no-think", "--think=0"),
    ("whatif", "--expire", "--set=kernel.expire="),
    ("whatif", "--wakeup", "--set=kernel.wakeup="),
    ("predict", "--ratios", "--dirty-ratio="),
];

/// Commands that this program had, and that are options of `status` now.
const OF_STATUS: [&str; 3] = ["files", "processes", "watch"];

impl Args {
    /// The arguments of this process. Where they cannot be used, that is told, and the process ends.
    pub fn of_process() -> Args {
        let mut words: Vec<OsString> = std::env::args_os().collect();
        let at = if words.get(1).is_some_and(|word| word == "help") { 2 } else { 1 };
        if let Some(name) = OF_STATUS.into_iter().find(|name| words.get(at).is_some_and(|word| word == name))
        {
            tell(format_args!("`cawl-cli {name}` is now `cawl-cli status --{name}`"));
            let option = (at == 1).then(|| format!("--{name}").into());
            words.splice(at..=at, ["status".into()].into_iter().chain(option));
        }
        parsed(respelled(words, &RESPELLED), |words| {
            let args = command().try_get_matches_from(words).and_then(|it| Args::from_arg_matches(&it));
            args.map_err(|error| moved(&error).unwrap_or(error))
        })
    }
}

/// The command line. Its short help leaves out what only experts need.
pub fn command() -> clap::Command {
    let is_expert = |arg: &Arg| arg.get_help_heading() == Some(EXPERT);
    let short = |arg: Arg| if is_expert(&arg) { arg.hide_short_help(true) } else { arg };
    Args::command().mut_subcommands(|command| command.mut_args(short))
}

/// Where a command is now that this program had.
fn moved(error: &clap::Error) -> Option<clap::Error> {
    let ContextValue::String(name) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    OF_THE_LABORATORY.contains(&name.as_str()).then(|| {
        let why = format!(
            "`{name}` is a command of the laboratory; in a checkout of cawl: cargo run --release -p cawl-lab -- {name} …"
        );
        Args::command().error(ErrorKind::InvalidSubcommand, why)
    })
}

#[derive(Subcommand)]
pub enum Command {
    Run(RunArgs),
    Attach(AttachArgs),
    Replay(ReplayArgs),
    Explain(ExplainArgs),
    Diff(DiffArgs),
    Export(TraceExportArgs),
    #[command(name = "whatif")]
    WhatIf(WhatIfArgs),
    Advise(AdviseArgs),
    Check(CheckArgs),
    Rerun(RerunArgs),
    Import(ImportArgs),
    Calibrate(CalibrateArgs),
    Doctor(DoctorArgs),
    Status(StatusArgs),
    Top(TopArgs),
    Predict(PredictArgs),
    #[command(hide = true)]
    Profile(ProfileArgs),
    Service(ServiceArgs),
    #[command(hide = true)]
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Man(ManArgs),
}

/// Run a program and report predicted against observed cost
///
/// The program's input, output, exit status and death by signal are its own; the report goes to stderr when
/// the program has ended, and names its processes that are still running. Ctrl-C while the report is made:
/// report at once, without the calls not yet read; a second Ctrl-C: no report.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub record: RecordArgs,
    /// Do not calibrate devices without a profile before the program starts
    #[arg(long)]
    pub no_calibrate: bool,
    /// Report through the daemon that listens here instead of one inside this process
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Trace the program but not the processes it starts
    #[arg(long)]
    pub no_children: bool,
    /// Do not trace programs that are started by this name; may be repeated
    #[arg(long, value_name = "PROGRAM", value_parser = program_name)]
    pub exclude: Vec<String>,
    /// Wait for all processes that the program started, then report; Ctrl-C ends the wait
    #[arg(long, conflicts_with = "no_children")]
    pub wait: bool,
    /// Let the program wait when the tracer's ring is full, instead of dropping calls; at most 10 s in all
    /// while nothing is read
    #[arg(long, help_heading = EXPERT)]
    pub lossless: bool,
    /// Tell which functions calls came from: of each call of THRESHOLD or more [default: 1ms], and of one in
    /// 64 of the others; docs/reference/CLI.md says what that needs
    #[arg(long, value_name = "THRESHOLD", num_args = 0..=1, require_equals = true, default_missing_value = "1ms",
          value_parser = quantity::span_with_unit)]
    pub stacks: Option<f64>,
    /// With --stacks, one in so many of the calls below its threshold
    #[arg(long, help_heading = EXPERT, value_name = "N", default_value = "64", requires = "stacks")]
    pub stacks_one_in: NonZeroU32,
    /// Leave out what only reads: reads, and the opens and closes of files that are not written
    #[arg(long, help_heading = EXPERT, conflicts_with = "all_reads")]
    pub no_reads: bool,
    /// Record reads of pipes, sockets and terminals too, not only those of files
    #[arg(long, help_heading = EXPERT)]
    pub all_reads: bool,
    /// Change what the program does: buffer=SIZE, pace=SIZE, dontneed, fsync=none (a crash loses data),
    /// preallocate; docs/reference/WHATIF.md explains them
    #[arg(long = "try", value_name = "CHANGE", value_delimiter = ',', conflicts_with = "socket")]
    pub tries: Vec<Try>,
    /// See calls by the tracer's library (preload), by probes in the kernel, or (auto) by what can see the
    /// command
    #[arg(long, value_enum, value_name = "EYE", default_value = "auto", hide_possible_values = true)]
    pub via: Via,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What sees the calls of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// The library, and the kernel where the command itself cannot load it and rights allow
    Auto,
    /// The library, in the command and what it starts
    Preload,
    /// Probes in the kernel, as root or with CAP_BPF and CAP_PERFMON
    Kernel,
}

impl RunArgs {
    /// The options that only the tracer's library can fulfil.
    pub fn of_library(&self) -> Vec<&'static str> {
        let all = [
            ("--try", !self.tries.is_empty()),
            ("--stacks", self.stacks.is_some()),
            ("--lossless", self.lossless),
            ("--exclude", !self.exclude.is_empty()),
            ("--no-children", self.no_children),
            ("--no-reads", self.no_reads),
            ("--all-reads", self.all_reads),
            ("--socket", self.socket.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }

    /// Which calls have their stack copied.
    pub fn stacks(&self) -> Option<StackOptions> {
        let one_in = self.stacks_one_in;
        self.stacks.map(|seconds| StackOptions { threshold: Nanos::seconds(seconds), one_in })
    }
}

/// Run the models on a saved trace
///
/// By default all models run with --open-loop.
///
/// With --calls every call that is selected is printed: time, process, file, offset, size, state, dirty
/// level, predicted, observed (a dash: not modelled); with --json as one JSON object a line, without the
/// report.
#[derive(clap::Args)]
pub struct ReplayArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    pub file: PathBuf,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub classes: ClassesArgs,
    #[command(flatten)]
    pub mode: ModeArgs,
    /// Print every call that is selected
    #[arg(long)]
    pub calls: bool,
    #[command(flatten)]
    pub select: SelectArgs,
    /// The report with all processes, files, quantiles and errors
    #[arg(long)]
    pub long: bool,
    /// Write the report to a file instead of stdout; .html, .json or .txt
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(report_file))]
    pub report: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Write calls as a timeline, a table, or as other recorders do
///
/// Of each call: times, thread, file, bytes, prediction, and what its time is divided among. Without -o the
/// output is stdout. By default the models run as in the live run (--live) if the trace says how it worked,
/// else model kernel with --lockstep. A damaged trace is exported as far as it can be read; exit code 1.
/// docs/reference/EXPORT.md has the columns, and questions with their queries.
#[derive(clap::Args)]
pub struct TraceExportArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    pub file: PathBuf,
    /// Format of the output; or postgres://USER@HOST/DATABASE, whose tables cawl_runs and cawl_calls get the
    /// run, in the place of the one that they have of this trace (takes `cawl-ship`)
    #[arg(long, value_name = "FORMAT|URL", value_parser = export_to::ExportToParser)]
    pub to: ExportTo,
    /// The file to write; an export that exists is replaced when the new one is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub mode: ModeArgs,
}

/// Make a trace of calls recorded by another tool
///
/// csv: columns start_s,op,offset,size,duration_s and optionally pid,tid,path,flags, or those of --columns;
/// rows in any order. strace: the output of `strace -f -ttt -T -y`. Any may be gzipped. What a format does
/// not tell is printed and noted in the trace. docs/reference/IMPORT.md has the details of each.
#[derive(clap::Args)]
pub struct ImportArgs {
    /// Format of the input
    #[arg(long, value_enum)]
    pub from: Format,
    /// Flags that every file was open with, such as O_SYNC,O_DIRECT (csv, fio, fio-lat, darshan-dxt)
    #[arg(long, value_name = "FLAG,…", value_parser = open_flags)]
    pub flags: Option<u32>,
    /// Columns of a csv with names or units of its own: start=ts:ms,op=kind,size=len:K
    #[arg(long, value_name = "FIELD=COLUMN[:UNIT],…")]
    pub columns: Option<Columns>,
    /// What stands where in the lines of a bpftrace script, such as '{start_ns} {pid} {op} {fd} {size} {ret}'
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<Pattern>,
    /// Leave out lines that cannot be read, name the first, and end with exit code 1
    #[arg(long)]
    pub keep_going: bool,
    /// The recorded machine's profile, which goes into the trace (default: none, so that a replay takes this
    /// machine's)
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// What to read; - is standard input. Of `strace -ff`, dftracer, recorder and fio all files of a run
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Measure this machine's constants; `profile show|diff|export`
///
/// They go to a profile, for `run`, `replay` and others. Writes only into a new folder in PATH, which is
/// removed at the end, and changes kernel settings only with --lower-limits. Without -o the profile goes
/// where `run`, `replay` and `cawld` look for it. With --check a few constants are measured again; exit code
/// 1 if they no longer agree with the profile. docs/reference/CALIBRATION.md explains each constant.
#[derive(clap::Args)]
pub struct CalibrateArgs {
    /// A folder on the filesystem to measure
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// The profile to write, or to check with --check (default: that of this machine and device)
    #[arg(short, long, value_name = "PROFILE")]
    pub output: Option<PathBuf>,
    /// At most two seconds and 768 MiB, as `run` does for a device without a profile; constants not measured
    /// in that time keep their values
    #[arg(long, conflicts_with_all = ["quick", "thorough", "check", "lower_limits"])]
    pub brief: bool,
    /// At most half a minute
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// Some minutes (default: at most two minutes)
    #[arg(long)]
    pub thorough: bool,
    /// Most bytes to write to the device, with K, M, G as 1024-fold units
    #[arg(long, value_name = "N", value_parser = size)]
    pub max_bytes: Option<u64>,
    /// Most time to take, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub max_seconds: Option<u32>,
    /// Lower the kernel's dirty limits during the measurement, to find the rate of a throttled writer; needs
    /// root
    #[arg(long)]
    pub lower_limits: bool,
    /// Check the profile against new measurements
    #[arg(long)]
    pub check: bool,
    /// Begin with what profiles of equal machines have in common, which lie in DIR; at most two seconds tell
    /// whether this machine is like them, and what is its own
    #[arg(long, value_name = "DIR", conflicts_with_all = ["brief", "quick", "thorough", "check", "lower_limits"])]
    pub from: Option<PathBuf>,
    /// With --from, measure nothing
    #[arg(long, requires = "from")]
    pub no_check: bool,
    /// Exit when the process PID, which started this one, exits
    #[arg(long, hide = true, value_name = "PID")]
    pub parent: Option<i32>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table of calls
    Csv,
    /// Output of strace
    Strace,
    /// fio's write_iolog, version 2 or 3
    Fio,
    /// fio's write_lat_log: NAME_lat.N.log or NAME_clat.N.log
    FioLat,
    /// Output of darshan-dxt-parser
    DarshanDxt,
    /// DFTracer's .pfw
    Dftracer,
    /// What recorder2text made of a trace of Recorder
    Recorder,
    /// Output of blkparse: requests of devices
    Blkparse,
    /// Output of perf trace
    PerfTrace,
    /// Output of perf script, of tracepoints of system calls
    PerfScript,
    /// Text of ftrace's trace or trace_pipe, or of trace-cmd report, of system calls
    Ftrace,
    /// Lines that a bpftrace script printed, by --pattern
    Bpftrace,
}

/// Tell whether a program can be traced, and if not, why
///
/// Looks at the program without running it (linkage, C library, privileges, interpreters of scripts) and at
/// what tracing needs on this machine. Exit codes: 0 it will be traced, 1 it will not, 127 there is no such
/// program.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// The program; its arguments are ignored. Without it, only the machine is checked
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Print completions of cawl-cli and cawld for a shell
///
/// For bash: eval "$(cawl-cli completions bash)" in ~/.bashrc
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Write the manual pages of all commands into a folder
#[derive(clap::Args)]
pub struct ManArgs {
    /// The folder, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Classes of calls.
#[derive(clap::Args)]
pub struct ClassesArgs {
    /// Report calls in classes by their observed time, parted by these: 0.2ms,0.4ms,7ms,25ms
    #[arg(long = "classes", help_heading = EXPERT, value_name = "TIME,…", value_delimiter = ',',
          value_parser = quantity::duration, allow_hyphen_values = true)]
    pub bounds: Vec<Nanos>,
}

/// How models follow a saved trace.
#[derive(Default, clap::Args)]
pub struct ModeArgs {
    /// The models see only calls and think times, and advance by their own predictions
    #[arg(long, help_heading = EXPERT, conflicts_with_all = ["live", "lockstep", "mode"])]
    pub open_loop: bool,
    /// Repeat the predictions of the live run: its models, mode and learning
    #[arg(long, help_heading = EXPERT, conflicts_with_all = ["lockstep", "mode", "learn"])]
    pub live: bool,
    /// Model time follows the observed clock; level and constants stay the model's own
    #[arg(long, help_heading = EXPERT, conflicts_with = "mode")]
    pub lockstep: bool,
    /// open-loop, lockstep, or assimilated: lockstep, with the dirty level corrected towards the samples
    #[arg(long, help_heading = EXPERT, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Learn constants from the observed calls, as cawld does; not in open loop
    #[arg(long, help_heading = EXPERT)]
    pub learn: bool,
}

#[derive(Default, clap::Args)]
pub struct ModelArgs {
    /// Profile of the machine (TOML) (default: that of the trace, else the one `calibrate` made here, else
    /// this machine's limits with default speeds)
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Models to run, the first one for states and advice: kernel, cawl, naive, or all (default: kernel for
    /// `run`, those of the run for --live and `export`, else all)
    #[arg(long = "model", help_heading = EXPERT, value_name = "NAME,…", value_delimiter = ',',
          value_parser = model_name)]
    pub names: Vec<String>,
}

impl ModelArgs {
    /// The models for an analysis: empty means all. `default` is used where none was named.
    pub fn models(&self, default: Vec<String>) -> Vec<String> {
        match &self.names[..] {
            [] => default,
            [all] if all == "all" => Vec::new(),
            names => names.to_vec(),
        }
    }
}

fn model_name(name: &str) -> Result<String, String> {
    match name == "all" || MODELS.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("there is no model `{name}`; the models are {}", MODELS.join(", "))),
    }
}

/// A name as the tracer compares it, without a folder.
fn program_name(name: &str) -> Result<String, String> {
    match name {
        "" => Err("give the name of a program".to_owned()),
        name if name.contains('/') => Err("give the name without its folder".to_owned()),
        name if name.contains(['*', '?']) => Err("give the whole name: it is no pattern".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn report_file(path: PathBuf) -> Result<PathBuf, String> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("txt" | "json" | "html") => Ok(path),
        _ => Err("the report's file name must end in .html, .json or .txt".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_moved_is_told_with_its_new_place() {
        for name in OF_THE_LABORATORY {
            let error = |words: &[&str]| Args::try_parse_from(words).err().expect("no such command");
            for words in [&["cawl-cli", name, "--json"][..], &["cawl-cli", "help", name]] {
                let told = moved(&error(words)).expect("it moved");
                let place = format!("cargo run --release -p cawl-lab -- {name} …");
                assert!(told.to_string().contains(&place) && told.exit_code() == 2, "{told}");
            }
            assert!(moved(&error(&["cawl-cli", "experimental"])).is_none());
        }
    }

    /// Short help is for a screen; what only experts need is in the long one.
    #[test]
    fn short_help_fits_on_a_screen() {
        for mut command in super::command().get_subcommands().cloned() {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= 38, "{} has {lines} lines: {help}", command.get_name());
        }
    }

    #[test]
    fn the_programs_own_flags_are_left_alone() {
        let args = Args::try_parse_from(["cawl-cli", "run", "--", "dd", "--version"]).unwrap();
        let Command::Run(run) = args.command else { panic!("not a run") };
        assert_eq!(run.command, ["dd", "--version"]);
    }
}
