//! The write-cost models of cawl, and everything that judges them.
//!
//! The law of this crate: **pure and deterministic.** Nothing here opens a file, asks a clock or starts
//! a thread; time comes only inside the records. The daemon feeds records as they arrive and the
//! command line feeds them from a file, through the same code, so both get the same answers bit by bit.
//!
//! # Example
//!
//! A machine with limits of 64 and 128 MiB and a device that writes back 100 MB/s. A program writes 40 MiB to
//! a file, 4 MiB at a time. How much is dirty then, and what would another call cost?
//!
//! ```
//! use cawl_core::{Bytes, CallState, Cause, DirtyLimits, HostProfile, Nanos, Rate, build};
//! use cawl_wire::{Event, FileKind, Op};
//!
//! let mut profile = HostProfile::uncalibrated();
//! profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(128) };
//! profile.device.writeback.value = Rate::mb_per_second(100.0);
//! let mut model = build("kernel", &profile).expect("one of cawl_core::MODELS");
//!
//! let mut call = Event::new(Op::Write);
//! (call.kind, call.dev, call.ino) = (FileKind::Regular, 1, 42);
//! (call.offset, call.requested, call.returned) = (0, 4 << 20, 4 << 20);
//! for _ in 0..10 {
//!     let prediction = model.step(&call).expect("writes to files have a cost");
//!     assert_eq!(prediction.state, CallState::Free);
//!     // The next call begins where this one ended, as predicted.
//!     call.start += prediction.cost.get() as u64;
//!     call.offset += 4 << 20;
//! }
//! assert_eq!(model.state().dirty, Bytes::mib(40));
//!
//! // A copy looks ahead; the model itself stays where it is. The program goes on to 160 MiB: too much is dirty,
//! // and the kernel holds the writer back.
//! let mut ahead = model.fork();
//! let mut last = None;
//! for _ in 10..40 {
//!     let prediction = ahead.step(&call).expect("writes to files have a cost");
//!     call.start += prediction.cost.get() as u64;
//!     call.offset += 4 << 20;
//!     last = Some(prediction);
//! }
//! let last = last.expect("calls were made");
//! assert_eq!(last.state, CallState::Throttle);
//! assert!(last.parts[Cause::Throttle] > Nanos::millis(10.0));
//! assert_eq!(model.state().dirty, Bytes::mib(40));
//! ```
//!
//! [`Analysis`] does this with the records of a run for several models at once, compares what they predict
//! with what was observed, and gives a [`Report`].
#![forbid(unsafe_code)]

mod accuracy;
pub mod advise;
mod analysis;
mod births;
mod buffers;
mod by_name;
mod call;
mod cause;
mod cgroup;
mod classes;
mod collect;
mod compare;
mod condition;
mod density;
mod descriptors;
mod device_pace;
mod divide;
mod doubt;
mod explain;
mod file_table;
mod filesystem;
mod fit;
mod forecast;
mod glob;
pub mod host_text;
mod leader;
mod learn;
mod limits;
mod mode;
mod model;
mod mounts;
mod named;
mod names;
mod neighbours;
mod patterns;
mod processes;
mod profile;
pub mod quantity;
mod record;
mod recorded;
mod report;
mod rolling_error;
mod run_delay;
mod selection;
pub mod sharing;
mod statistics;
mod tally;
mod timeline;
mod uncertain;
mod units;
mod whatif;
mod worst_call;

pub use accuracy::{
    Accuracy, AccuracySummary, CallError, QUANTILE_PRECISION, Quantiles, WINDOWS, noise_floor,
};
pub use analysis::{
    Analysis, AnalysisOptions, Answers, FindingsPart, ModelPart, ModelsError, NotKept, Shown,
};
pub use births::{Births, Told};
pub use buffers::{LIBRARY_BUFFERS, Language, LibraryBuffer, ProgramBuffer};
pub use by_name::ByName;
pub use call::{
    Class, classify, coalesced_bytes, is_coalescible, is_durationless, is_synchronous, kernel_bytes,
    moved_bytes, wchar_bytes,
};
pub use cause::{ByCause, Cause, CauseTimes, Causes, CostParts, TimeSums, UnknownCause};
pub use cgroup::{DirtySetting, GroupBounds, GroupMemory, MachineMemory};
pub use classes::CallClass;
pub use compare::{ComparedRun, Comparison, Medians, compare};
pub use condition::{Condition, ConditionError};
pub use density::{ByteMode, Density, Mode as CostMode, OpDensities};
pub use doubt::Doubt;
pub use explain::{BestTimes, CauseReport, CauseSums, EXPLAIN_SCHEMA, Explain, Explaining, seconds_by_cause};
pub use file_table::{FileRow, FileTable};
pub use filesystem::FilesystemKind;
pub use fit::{FitError, fit, settled_base_rate};
pub use forecast::{Forecast, Job, JobCost, JobError, Scene, forecast, predict};
pub use glob::Glob;
pub use learn::Constant;
pub use limits::{DirtyLimits, GroupCache, dirtyable};
pub use mode::{Mode, UnknownMode};
pub use model::{
    CallState, CostModel, Disturbance, LruMap, MODELS, ModelState, OpenLoop, Prediction, Regime, build,
    cawl::Cawl,
    kernel::{Conservation, Kernel},
    naive::Naive,
};
pub use names::{FileName, renamed_path};
pub use patterns::{
    FilePatterns, OpPatterns, PatternSums, SizeCount, SmallFiles, Spread, SyncPatterns, WriterPatterns,
};
pub use processes::{ProcessReport, RankReport, ranks};
pub use profile::{
    CachePolicy, CallConstants, DeviceConstants, HostProfile, Kept, KernelSettings, Learned, Measured,
    MemoryConstants, NetworkConstants, Origin, OtherDevice, PROFILE_SCHEMA, ProfileError, QueueConstants,
    Thoroughness, Unit, block_cache, blocks_out, constants_of,
};
pub use record::{
    DeviceCounters, EndKind, FileFacts, Filesystem, HostFacts, ListFacts, LiveOptions, MemoryFacts, Outcome,
    Record, RunDelay, Sample, Session, SessionEnd, USES_IO_URING, Usage, Wchar, ZoneFacts,
};
pub use recorded::{RecordedRun, RunArgs};
pub use report::{
    AsCalibrated, ColdReport, CopiedUp, FileOp, FileReport, ModelReport, OpReport, ProfileUsed,
    REPORT_SCHEMA, Report, SessionReport, SessionTotals, Tally,
};
pub use rolling_error::RecentError;
pub use run_delay::{Bounds, RunDelays};
pub use selection::{ProcessName, Selection};
pub use statistics::{Estimate, Line, Modes, median, quantile};
pub use timeline::{CauseColumn, Levels, LimitsFrom, Singles, TimelineReport};
pub use uncertain::{Uncertain, UncertainFile};
pub use units::{Bytes, Nanos, Rate, Time};
pub use whatif::{
    Base, Change, Effect, KEYWORDS, Keyword, Ledger, Machine, Maker, OpCost, Owner, Ratio, Request, Rewrite,
    Step, Steps, SyncsKept, Thread, TraceFacts, WhatIf, quoted,
};
pub use worst_call::{NearCall, WorstCall};
