//! The arguments of `experiment`.

use std::path::PathBuf;
use std::sync::LazyLock;

use cawl_core::quantity::size;
use cawl_core::{Bytes, Nanos};
use cawl_measure::calibrate::Effort;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use crate::ground::Site;
use crate::spec::disk;

/// Repeat the paper's evaluation on this machine, or on an emulated disk
///
/// Records runs, replays them through the models, and writes figures, a page and the recordings into a new
/// folder. Sizes follow the dirty limits in force. Writes only into a new folder in --path, which is removed
/// at the end, and at most half of the free space. docs/science/EXPERIMENTS.md explains each figure.
#[derive(Args)]
pub struct ExperimentArgs {
    /// The experiments to repeat
    #[arg(required = true, value_enum, value_name = "NAME")]
    pub names: Vec<Named>,
    /// A folder on the disk to use
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub path: PathBuf,
    /// Emulate a disk, which is calibrated first: ssd, hdd, nvme, or BW,LAT,SEEK,FLUSH in MB/s, µs, ms, ms;
    /// needs root
    #[arg(long, value_parser = disk, conflicts_with = "path")]
    pub disk: Option<String>,
    /// Emulated network mounts of `dvs`: LATENCY,BANDWIDTH as in 150us,1GB/s, any number of times (default:
    /// 15us,1GB/s and 150us,1GB/s, or the mount of --path if its files are elsewhere); needs root
    #[arg(long, value_name = "LATENCY,BANDWIDTH", value_parser = link)]
    pub net: Vec<String>,
    /// Factor for the bytes written: a number, or small (0.5), normal (1) or large (2)
    #[arg(long, default_value = "normal", value_parser = scale)]
    pub scale: f64,
    /// Folder for the results, new or empty
    #[arg(long, default_value = "cawl-experiment", value_name = "DIR")]
    pub out: PathBuf,
    /// Repetitions of each run (default: 2, of `osync` 5, of `locks` and `dvs` 3); from 2 on the report of
    /// figures has a noise floor
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=100).map(usize::from))]
    pub repeats: Option<usize>,
    /// Fewer runs, of the documents' experiments
    #[arg(long)]
    pub quick: bool,
    /// Profile for the models (TOML) (default: what `calibrate` found on this disk)
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// How thoroughly to calibrate an emulated disk
    #[arg(long, value_enum, default_value = "quick", value_name = "EFFORT")]
    pub calibration: Calibration,
    /// Lower the kernel's dirty limits during the runs to 128 MiB and 256 MiB, as on an emulated disk; needs
    /// root
    #[arg(long)]
    pub lower_limits: bool,
    /// Lower them to these values, with K, M, G as 1024-fold units; needs root
    #[arg(long, value_name = "BACKGROUND,HARD", value_parser = limits)]
    pub limits: Option<(Bytes, Bytes)>,
    /// With lowered limits: seconds of throttled writing, before each figure, in which the kernel's own limit
    /// and estimate of the device may settle; 0: the runs begin on the machine as it is, which is quick and
    /// less exact
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = value_parser!(u16).map(seconds))]
    pub settle: Nanos,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// How thoroughly to calibrate.
#[derive(Clone, Copy, ValueEnum)]
pub enum Calibration {
    /// At most half a minute
    Quick,
    /// At most two minutes
    Normal,
    /// Some minutes
    Thorough,
}

impl Calibration {
    /// The effort of a calibration.
    pub fn effort(self) -> Effort {
        match self {
            Calibration::Quick => Effort::QUICK,
            Calibration::Normal => Effort::NORMAL,
            Calibration::Thorough => Effort::THOROUGH,
        }
    }
}

/// Dirty limits for an emulated disk and for --lower-limits.
pub const LOW: (Bytes, Bytes) = (Bytes::mib(128), Bytes::mib(256));

impl ExperimentArgs {
    /// The paper's figures among the names.
    pub fn figures(&self) -> Vec<Experiment> {
        let figure = |named: &Named| if let Named::Figure(one) = named { Some(*one) } else { None };
        self.names.iter().filter_map(figure).collect()
    }

    /// The study, if one is named; it stands alone.
    pub fn study(&self) -> Result<Option<StudyName>, String> {
        match &self.names[..] {
            [Named::Study(study)] => Ok(Some(*study)),
            names if names.iter().any(|named| matches!(named, Named::Study(_))) => {
                Err("a study has a page of its own; name it alone".to_owned())
            }
            _ => Ok(None),
        }
    }

    /// Repetitions of each run of a figure.
    pub fn repeats_of_figures(&self) -> usize {
        self.repeats.unwrap_or(2)
    }

    /// Dirty limits during the runs, background and hard; None for those in force.
    pub fn lowered(&self) -> Option<(Bytes, Bytes)> {
        self.limits.or((self.lower_limits || self.disk.is_some()).then_some(LOW))
    }

    /// Where it takes place.
    pub fn site(&self) -> Site<'_> {
        Site {
            path: &self.path,
            disk: self.disk.as_deref(),
            limits: self.lowered(),
            settle: self.settle,
            effort: self.calibration.effort(),
        }
    }
}

/// What `experiment` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A figure of the paper.
    Figure(Experiment),
    /// A study.
    Study(StudyName),
}

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Named] {
        static ALL: LazyLock<Vec<Named>> = LazyLock::new(|| {
            let figures = Experiment::value_variants().iter().copied().map(Named::Figure);
            figures.chain(StudyName::value_variants().iter().copied().map(Named::Study)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Named::Figure(figure) => figure.to_possible_value(),
            Named::Study(study) => study.to_possible_value(),
        }
    }
}

/// An experiment or the data of the documents beside the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StudyName {
    /// What the documents' own data say: the paper's figures and the O_SYNC study; and that study here, if a
    /// minute is enough
    Seeds,
    /// Writes with and without O_SYNC, O_DSYNC and fsync: sizes of block and file, observed and predicted
    Osync,
    /// Direct and buffered writes, with and without syncs: 512 B to 64 KiB, appended and at random
    Direct,
    /// Client-side caching of files that are elsewhere: bandwidth by the size of a transfer, of four policies
    /// of the page cache
    Dvs,
    /// Reads: of dd, cached and uncached, in classes by their time; after buffered and direct writes; at
    /// random
    Reads,
    /// Mutex, spin lock and adaptive mutex, with writes inside and outside the section; and writers of one
    /// file
    Locks,
}

/// One of the paper's figures, or the recordings that profiles are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// Synchronous and direct writes: one size, and a range of sizes
    Fig4,
    /// Synchronous writes through the page cache, also of sizes that do not fit its blocks
    Fig5,
    /// Sequential writes, without and with computation between them
    Fig6,
    /// A half or a quarter of each chunk rewritten, without and with computation
    Fig7,
    /// The C library's streams, with three delays
    Fig8,
    /// Small chunks through a stream's buffer
    Fig9,
    /// Runs for `fit` and `compare`, to derive and judge profiles; no figure
    Suite,
    /// All figures
    All,
}

/// Background and hard limit, as in `128M,256M`.
pub fn limits(text: &str) -> Result<(Bytes, Bytes), String> {
    let (background, hard) = text.split_once(',').ok_or("give two numbers of bytes, as in 128M,256M")?;
    let (background, hard) = (size(background)?, size(hard)?);
    if background == 0 || background >= hard {
        return Err("the background limit must be more than zero and below the hard limit".to_owned());
    }
    Ok((Bytes(background), Bytes(hard)))
}

/// Latency and bandwidth; what cawl-lab takes besides is the study's.
fn link(text: &str) -> Result<String, String> {
    let begins = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
    match text.split(',').collect::<Vec<_>>()[..] {
        [latency, bandwidth] if begins(latency) && begins(bandwidth) => Ok(text.to_owned()),
        _ => Err("give a latency and a bandwidth, as in 150us,1GB/s".to_owned()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text {
        "small" => Ok(0.5),
        "normal" => Ok(1.0),
        "large" => Ok(2.0),
        number => number
            .parse()
            .ok()
            .filter(|scale| (0.1..=100.0).contains(scale))
            .ok_or_else(|| "give small, normal, large, or a number from 0.1 to 100".to_owned()),
    }
}

/// A number of seconds.
pub fn seconds(seconds: u16) -> Nanos {
    Nanos::seconds(seconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_scales() {
        assert_eq!(limits("128M,256M"), Ok((Bytes::mib(128), Bytes::mib(256))));
        assert!(limits("256M,128M").is_err() && limits("0,1M").is_err() && limits("1M").is_err());
        assert_eq!((scale("small"), scale("0.25")), (Ok(0.5), Ok(0.25)));
        assert!(scale("0").is_err() && scale("NaN").is_err() && scale("huge").is_err());
    }
}
