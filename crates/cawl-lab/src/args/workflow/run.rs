//! Arguments of `workflow` for a run on a real disk.

use std::path::{Path, PathBuf};

use cawl_core::{Bytes, Nanos};
use clap::builder::TypedValueParser;
use clap::value_parser;

use crate::args::experiment::{Calibration, LOW, limits, seconds};
use crate::ground::Site;
use crate::spec::disk;

/// What only a run on paper has.
const ON_PAPER: [&str; 6] = ["cluster", "model", "tries", "sensitivity", "page", "perfetto"];

/// For real
#[derive(clap::Args)]
#[command(next_help_heading = "For real")]
#[group(skip)]
pub struct RunArgs {
    /// Run it on this machine, and show what every model says beside: real files in a new folder in DIR (.),
    /// which is removed at the end, and processes that compute
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", group = "real")]
    #[arg(conflicts_with_all = ON_PAPER)]
    pub run: Option<PathBuf>,
    /// The same on an emulated disk, which is calibrated first: ssd, hdd, nvme, or BW,LAT,SEEK,FLUSH in MB/s,
    /// µs, ms, ms; needs root
    #[arg(long, value_parser = disk, conflicts_with = "run", group = "real", conflicts_with_all = ON_PAPER)]
    pub disk: Option<String>,
    /// Runs
    #[arg(
        long,
        value_name = "N",
        default_value = "3",
        requires = "real",
        value_parser = value_parser!(u16).range(1..=100).map(usize::from)
    )]
    pub repeats: usize,
    /// Lower the kernel's dirty limits during the runs, with K, M, G as 1024-fold units (128M,256M on an
    /// emulated disk); needs root
    #[arg(long, value_name = "BACKGROUND,HARD", value_parser = limits, requires = "real")]
    pub limits: Option<(Bytes, Bytes)>,
    /// With lowered limits: seconds of throttled writing at most, before each run, in which the kernel's own
    /// limit and estimate of the device may settle
    #[arg(
        long,
        default_value = "60",
        value_name = "SECONDS",
        requires = "real",
        value_parser = value_parser!(u16).map(seconds)
    )]
    pub settle: Nanos,
    /// How thoroughly to calibrate an emulated disk
    #[arg(long, value_enum, default_value = "quick", value_name = "EFFORT", requires = "disk")]
    pub calibration: Calibration,
}

impl RunArgs {
    /// Where it is run for real, if it is.
    pub fn site(&self) -> Option<Site<'_>> {
        if self.run.is_none() && self.disk.is_none() {
            return None;
        }
        Some(Site {
            path: self.run.as_deref().unwrap_or(Path::new(".")),
            disk: self.disk.as_deref(),
            limits: self.limits.or(self.disk.is_some().then_some(LOW)),
            settle: self.settle,
            effort: self.calibration.effort(),
        })
    }
}
