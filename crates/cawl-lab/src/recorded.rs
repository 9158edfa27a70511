//! Recorded runs: their folders, profiles fitted to them, and how far models are off on them.

mod compare;
mod fit;
mod folder;
mod run;

pub use compare::{ComparedRun, Comparison, compare};
pub use fit::fit;
pub use folder::{Suite, flags_of, recorded_run, run_args, with_tracepoints};
pub use run::{RecordedRun, RunArgs};
