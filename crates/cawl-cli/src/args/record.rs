//! What `run` and `attach` keep and report.

use std::path::PathBuf;

use cawl_core::Glob;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::{ClassesArgs, EXPERT, ModelArgs, report_file};

/// What is recorded, kept and reported.
#[derive(Args)]
pub struct RecordArgs {
    /// Keep every call in a trace for `replay`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the report to a file instead of stderr; .html, .json or .txt
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(report_file))]
    pub report: Option<PathBuf>,
    /// The report with all processes, files, quantiles and errors
    #[arg(long)]
    pub long: bool,
    /// Record calls on files only whose path or name fits; may be repeated
    #[arg(long, value_name = "GLOB", value_parser = some_glob)]
    pub only: Vec<Glob>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub classes: ClassesArgs,
    /// Whether the models learn constants from observed calls: on or off
    #[arg(long, help_heading = EXPERT, value_name = "on|off", default_value = "on",
          value_parser = ["on", "off"])]
    pub learn: String,
    /// Do not keep what was learned in the profile for the next run; with --profile nothing is kept either
    #[arg(long, help_heading = EXPERT)]
    pub no_save: bool,
}

fn some_glob(text: &str) -> Result<Glob, String> {
    if text.is_empty() { Err("give a pattern".to_owned()) } else { Ok(text.into()) }
}
