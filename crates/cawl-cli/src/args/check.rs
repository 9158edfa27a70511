//! Arguments of `check`.

use std::path::PathBuf;

/// Tell whether files would be safe where clients keep written pages
///
/// Clients of such a filesystem (write-back caching, close-to-open consistency) lose bytes where two
/// processes write parts of one page without a flush and a lock or an open between. Lists each such file with
/// the first place and a remedy, and writes that do not fit the pages. Exit codes: 0 safe, 1 not safe, or not
/// judged since calls are missing. docs/reference/CHECK.md has the rule.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The traces: from `run --trace`, `cawld --trace` or `import`; processes of different traces are
    /// different ones
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}
