//! Arguments of `explain`.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

use super::{ClassesArgs, ModeArgs, ModelArgs, SelectArgs, report_file};

/// Tell where the time of a trace's calls went
///
/// Divides the observed time of each call among causes. By default the models run as in the live run (--live)
/// if the trace says how it worked, else model kernel with --lockstep. docs/guide/SLOW.md has the causes.
#[derive(clap::Args)]
pub struct ExplainArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    pub trace: PathBuf,
    #[command(flatten)]
    pub select: SelectArgs,
    /// The N-th call of the trace, with the calls of its thread before and after it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true,
          conflicts_with = "select")]
    pub call: Option<u64>,
    /// Only where the time went, by this; stack: the functions that led to the calls, of a trace of `run
    /// --stacks`
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["call", "long", "report"])]
    pub by: Option<By>,
    /// The report with all processes, files, quantiles and errors
    #[arg(long, conflicts_with = "call")]
    pub long: bool,
    /// Write the report to a file instead of stdout; .html, .json or .txt
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(report_file),
          conflicts_with_all = ["call", "json"])]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub classes: ClassesArgs,
    #[command(flatten)]
    pub mode: ModeArgs,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// What `--by` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The functions that led to the calls
    Stack,
}
