//! The arguments of `design`.

use std::path::PathBuf;

use super::HostsArgs;
use crate::design::By;

/// Which machine to buy: price and time of every combination of parts
///
/// CHOICES: a TOML file; of each [[choice]], one [[choice.option]] is bought, with a name, a price and what
/// it changes of the machine, in the words of `cawl-cli whatif`: change = "scale=bandwidth=4,latency=0.5".
/// Every combination is run on paper with the calls of the traces, or with the tasks of workflows. Prints
/// those that no other one beats both in price and in time. docs/science/DESIGN.md has an example.
#[derive(clap::Args)]
pub struct DesignArgs {
    /// What there is to choose from
    pub choices: PathBuf,
    /// What the machine is for: traces of programs, of `cawl-cli run --trace`, or workflows (.json or .toml,
    /// as `cawl-lab workflow` takes them); their times are added up
    #[arg(required = true, value_name = "TRACE|WORKFLOW")]
    pub works: Vec<PathBuf>,
    #[command(flatten)]
    pub hosts: HostsArgs,
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
