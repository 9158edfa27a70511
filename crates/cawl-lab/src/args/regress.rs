//! The arguments of `regress`.

use std::path::PathBuf;

/// Fit a linear model to a table of measurements
///
/// FILE: a table with a header, parted by commas, semicolons or tabs; a text column counts as a switch.
/// FORMULA: `response ~ term + …` as in R: `sys ~ blocks * sync` is `blocks + sync + blocks:sync`; a
/// term is a column, log(…) or I(…) of an expression; `- 1` leaves out the intercept. A name may be the
/// beginning of a column's; `blocks` is num_bytes over block_size, unless it is a column. Errors are
/// estimated for independent rows with equal variance; three forms are compared by cross-validation.
#[derive(clap::Args)]
pub struct RegressArgs {
    /// The table
    pub file: PathBuf,
    /// The model
    pub formula: String,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}
