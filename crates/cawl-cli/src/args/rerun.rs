//! Arguments of `rerun`.

use std::path::PathBuf;

use super::EXPERT;
use super::changes::Changes;

/// Make the calls of a trace for real, as they were or with changes
///
/// Makes the writes, syncs and other calls of a trace again, with its processes, threads, streams and
/// thinking, in a folder of its own: on this machine, to tell what `whatif` tells on paper. Files are made
/// and filled first as they were before the trace. Under `cawl-cli run` it is traced like any program.
/// docs/reference/WHATIF.md has the changes, and what a rerun leaves out.
#[derive(clap::Args)]
pub struct RerunArgs {
    /// The trace: from `run --trace`, `cawld --trace` or `import`
    pub trace: PathBuf,
    /// The folder that is written to: empty, new, or left by --prepare. Nothing else is written to
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub changes: Changes<false>,
    /// Only make and fill the files that were there before the trace, and leave them for a rerun
    #[arg(long, conflicts_with = "keep")]
    pub prepare: bool,
    /// Leave the files when all calls are made
    #[arg(long)]
    pub keep: bool,
    /// Write data that can be compressed by this factor [default: 1, not at all]
    #[arg(long, help_heading = EXPERT, value_name = "FACTOR", value_parser = factor)]
    pub compress: Option<f64>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor >= 1.0);
    factor.ok_or_else(|| "give a number, 1 or more".to_owned())
}
