//! The write-cost models of cawl, and everything that judges them.
//!
//! The law of this crate: **pure and deterministic.** Nothing here opens a file, asks a clock or starts
//! a thread; time comes only inside the records. The daemon feeds records as they arrive and the
//! command line feeds them from a file, through the same code, so both get the same answers bit by bit.
#![forbid(unsafe_code)]

mod call;
mod import;
mod model;
mod profile;
mod record;
mod units;

pub use call::{Class, classify, is_synchronous, kernel_bytes, wchar_bytes};
pub use import::{
    CsvImporter, CsvOptions, Fault, ImportError, ImportSummary, Importer, OpenFlags, SkipReason, Skipped,
    StraceImporter, StraceOptions, UnknownFlag,
};
pub use model::{
    CallState, CostModel, CostParts, DirtyLimits, MODELS, ModelState, Phase, Prediction, build, naive::Naive,
};
pub use profile::{
    CallConstants, DeviceConstants, HostProfile, KernelSettings, Measured, MemoryConstants, Origin,
    PROFILE_SCHEMA, ProfileError,
};
pub use record::{EndKind, FileFacts, Filesystem, HostFacts, Outcome, Record, Sample, Session, SessionEnd};
pub use units::{Bytes, Nanos, Rate, Time};
