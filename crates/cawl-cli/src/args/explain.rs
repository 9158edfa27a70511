//! Arguments of `explain`.

use std::path::PathBuf;

use cawl_core::quantity::span;
use cawl_core::{Glob, ProcessName};

use clap::builder::{PathBufValueParser, TypedValueParser};

use super::{ClassesArgs, ModeArgs, ModelArgs, report_file};

/// Tell where the time of a trace's calls went
///
/// Divides the observed time of each call among causes. By default the models run as in the live run (--live)
/// if the trace says how it worked, else model kernel with --lockstep. docs/guide/SLOW.md has the causes.
#[derive(clap::Args)]
pub struct ExplainArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    pub trace: PathBuf,
    /// Only calls on files whose path fits: `*` is any text, `?` one character
    #[arg(long, value_name = "GLOB")]
    pub file: Option<Glob>,
    /// Only calls of this process, by number or by the name of its program
    #[arg(long, value_name = "PID|NAME")]
    pub process: Option<ProcessName>,
    /// Only calls that begin at this many seconds after the first one, or later
    #[arg(long, value_name = "SECONDS", value_parser = span, allow_negative_numbers = true)]
    pub from: Option<f64>,
    /// Only calls that begin before this many seconds after the first one
    #[arg(long, value_name = "SECONDS", value_parser = span, allow_negative_numbers = true)]
    pub to: Option<f64>,
    /// The N-th call of the trace, with the calls of its thread before and after it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true,
          conflicts_with_all = ["file", "process", "from", "to"])]
    pub call: Option<u64>,
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
