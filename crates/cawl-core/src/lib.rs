//! The write-cost models of cawl, and everything that judges them.
//!
//! The law of this crate: **pure and deterministic.** Nothing here opens a file, asks a clock or starts
//! a thread; time comes only inside the records. The daemon feeds records as they arrive and the
//! command line feeds them from a file, through the same code, so both get the same answers bit by bit.
#![forbid(unsafe_code)]

mod accuracy;
mod analysis;
mod births;
mod call;
mod collect;
mod compare;
mod descriptors;
mod fit;
mod forecast;
pub mod host_text;
mod import;
mod learn;
mod limits;
mod mode;
mod model;
mod names;
mod profile;
mod record;
mod recorded;
mod report;
mod rolling_error;
mod statistics;
mod units;

pub use accuracy::{
    Accuracy, AccuracySummary, CallError, NoiseFloor, QUANTILE_PRECISION, Quantiles, WINDOWS, noise_floor,
};
pub use analysis::{Analysis, AnalysisOptions, Answers, FindingsPart, ModelPart, ModelsError, NotKept};
pub use births::{Births, Told};
pub use call::{Class, adds_up, classify, is_synchronous, kernel_bytes, several_bytes, wchar_bytes};
pub use compare::{ComparedRun, Comparison, Medians, compare};
pub use fit::{FitError, fit, settled_base_rate};
pub use forecast::{Forecast, Plan, PlanCost, PlanError, Scene, forecast, predict};
pub use import::{
    CsvImporter, CsvOptions, Fault, ImportError, ImportSummary, Importer, OpenFlags, SkipReason, Skipped,
    StraceImporter, StraceOptions, UnknownFlag,
};
pub use learn::Constant;
pub use limits::DirtyLimits;
pub use mode::{Mode, UnknownMode};
pub use model::{
    CallState, CostModel, CostParts, Disturbance, MODELS, ModelState, Phase, Prediction, build,
    cawl::Cawl,
    kernel::{Conservation, Kernel},
    naive::Naive,
};
pub use names::{FileName, renamed_path};
pub use profile::{
    CallConstants, DeviceConstants, HostProfile, Kept, KernelSettings, Learned, Measured, MemoryConstants,
    Origin, OtherDevice, PROFILE_SCHEMA, ProfileError, Thoroughness,
};
pub use record::{
    EndKind, FileFacts, Filesystem, HostFacts, LiveOptions, MemoryFacts, Outcome, Record, Sample, Session,
    SessionEnd, Wchar, ZoneFacts,
};
pub use recorded::{RecordedError, RecordedRun, RunArgs, Suite};
pub use report::{
    AsCalibrated, ColdReport, FileOp, FileReport, ModelReport, OpReport, ProfileUsed, REPORT_SCHEMA, Report,
    SessionReport, SessionTotals, Tally, WorstCall,
};
pub use rolling_error::RecentError;
pub use statistics::{Estimate, Line, Modes, median, quantile};
pub use units::{Bytes, Nanos, Rate, Time};
