//! The arguments of `fit` and `compare`.

use std::path::PathBuf;

use cawl_core::MODELS;
use clap::builder::PossibleValuesParser;

/// Derive a host profile from recorded runs
///
/// DIR holds suite.json and, for each run, NAME.csv and NAME.dirty, plain or gzipped. Name the runs that show
/// the machine's constants: direct and synchronous writes, fsync, sequential writes beyond the dirty limit,
/// rewriting, small writes through a stream.
#[derive(clap::Args)]
pub struct FitArgs {
    /// Folder of recorded runs
    pub dir: PathBuf,
    /// Runs to derive the profile from [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub runs: Vec<String>,
    /// The profile to write
    #[arg(short, long, value_name = "PROFILE")]
    pub output: PathBuf,
}

/// Replay recorded runs through the models and tabulate the errors
///
/// Columns: total error: that of the sum of all calls. Of floor: the total error over the noise floor or 3 %,
/// whichever is more. Windowed error: mean over 16 windows of equal observed
/// time. Error per call: mean of the relative errors of single calls (the CAWL paper's metric). Dirty error:
/// that of the dirty level over the hard limit.
#[derive(clap::Args)]
pub struct CompareArgs {
    /// Folder of recorded runs
    pub dir: PathBuf,
    /// Profile of the machine they were recorded on (TOML)
    #[arg(long, value_name = "PROFILE")]
    pub profile: PathBuf,
    /// Runs to replay [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub runs: Vec<String>,
    /// Runs to leave out
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// Models to run [default: all]
    #[arg(long = "model", value_name = "NAME,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(MODELS))]
    pub models: Vec<String>,
    /// Folder with second recordings of the same runs: adds the noise floor
    #[arg(long, value_name = "DIR")]
    pub floor: Option<PathBuf>,
    /// Model time follows the observed clock instead of the models' own predictions
    #[arg(long)]
    pub lockstep: bool,
    /// As `cawl-cli run` reports: the models follow the recorded counters, and learn
    #[arg(long, conflicts_with = "lockstep")]
    pub live: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Tabulate what each constant of a profile moves
///
/// Each is left out in turn, what stands for it takes its place, and the runs are replayed through the model
/// `kernel` in open loop. Columns: the run that is moved most, and by how much (change of the predicted sum);
/// runs that are moved by 0.1 %; median over runs of how much larger the total error gets.
#[derive(clap::Args)]
pub struct WorthArgs {
    /// Traces of real programs, and folders of recorded runs
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Profile of the machine they were recorded on (TOML) [default: that of each trace]
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}
