//! Arguments of `advise`.

use std::path::PathBuf;

use cawl_core::Nanos;
use cawl_core::quantity::duration;

/// Tell which changes are worth it, and what each would gain
///
/// Tries the changes that the patterns of a trace suggest, on paper as `whatif` does, and lists those that
/// gain more than 5 % of the time in calls and more than the model may be wrong: at most seven, with what
/// becomes less safe. docs/reference/ADVISE.md has what is tried, and when.
#[derive(clap::Args)]
pub struct AdviseArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    #[arg(value_name = "TRACE", conflicts_with = "socket")]
    pub trace: Option<PathBuf>,
    /// Of the programs that report to the cawld listening here: it records their calls for the time of --for
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How long cawld records, 100ms to 10m
    #[arg(
        long = "for", value_name = "TIME", default_value = "10s", value_parser = recording,
        allow_hyphen_values = true, requires = "socket", conflicts_with = "trace"
    )]
    pub span: Nanos,
    /// Look at the first COUNT calls of the trace only
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub calls: Option<u64>,
    /// Use the profile's constants as they are, without learning from the trace
    #[arg(long)]
    pub no_learn: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

fn recording(text: &str) -> Result<Nanos, String> {
    let span = duration(text).ok().filter(|span| (0.1..=600.0).contains(&span.as_seconds()));
    span.ok_or_else(|| "give a time with its unit, 100ms to 10m, as 30s".to_owned())
}
