//! The arguments of `design`.

use std::path::PathBuf;

use crate::design::By;

/// Which machine to buy: price and time of every combination of parts
///
/// CHOICES: a TOML file; of each [[choice]], one [[choice.option]] is bought, with a name, a price and what it
/// changes of the traced machine, in the words of `cawl-cli whatif`: change = "scale=bandwidth=4,latency=0.5".
/// Every combination is run on paper with the calls of the traces. Prints those that no other one beats both in
/// price and in time. docs/science/DESIGN.md has an example.
#[derive(clap::Args)]
pub struct DesignArgs {
    /// What there is to choose from
    pub choices: PathBuf,
    /// Traces of the programs that the machine is for, of `cawl-cli run --trace`; their times are added up
    #[arg(required = true)]
    pub traces: Vec<PathBuf>,
    /// The time that counts
    #[arg(long, value_enum, default_value = "elapsed")]
    pub by: By,
    /// Also list machines that another one beats
    #[arg(long)]
    pub all: bool,
    /// Draw prices and times into a file, whose name ends in .svg or .png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}
