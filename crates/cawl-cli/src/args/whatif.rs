//! Arguments of `whatif`.

use std::path::PathBuf;

use super::EXPERT;
use super::changes::Changes;

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
    pub changes: Changes<true>,
    /// Compare the changes one by one
    #[arg(long, conflicts_with = "sensitivity")]
    pub each: bool,
    /// What each part of the machine is worth, and each of its constants
    #[arg(long)]
    pub sensitivity: bool,
    /// A further trace for --sensitivity, such as another machine's, each with its own profile
    #[arg(long, value_name = "TRACE", requires = "sensitivity", hide_short_help = true)]
    pub also: Vec<PathBuf>,
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
