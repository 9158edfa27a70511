//! Everything that judges the models of `cawl_model`: analysis, learning, explanations, what-if, advice.
//!
//! The law of this crate: **pure and deterministic.** Nothing here opens a file, asks a clock or starts
//! a thread; time comes only inside the records. The daemon feeds records as they arrive and the
//! command line feeds them from a file, through the same code, so both get the same answers bit by bit.
//!
//! [`Analysis`] shows the records of a run to several models at once, compares what they predict with what
//! was observed, and gives a [`Report`]. What users of both crates need is named here, too.
#![forbid(unsafe_code)]

mod accuracy;
mod advice;
pub mod advise;
mod analysis;
mod births;
mod buffers;
mod by_name;
mod cgroup;
mod classes;
mod collect;
mod condition;
mod density;
mod descriptors;
mod device_pace;
pub mod diff;
mod divide;
mod explain;
mod file_table;
mod forecast;
mod glob;
pub mod host_text;
mod images;
mod leader;
mod learn;
mod names;
mod neighbours;
mod patterns;
pub mod prior;
mod processes;
mod report;
mod rolling_error;
mod run_delay;
mod selection;
pub mod sharing;
mod stacks;
mod statistics;
mod tally;
mod timeline;
mod uncertain;
mod whatif;
mod worst_call;

use cawl_model::{call, cause, filesystem, limits, mode, mounts, profile, record, release, units};

/// The model's names as the analysis knows them.
mod model {
    pub use cawl_model::collections::{LruMap, Map, PageSet};
    pub use cawl_model::stdio::Streams;
    pub use cawl_model::work::{Met, ReadWork, Work};
    pub use cawl_model::*;
}

pub use accuracy::{Accuracy, AccuracySummary, CallError, QUANTILE_PRECISION, Quantiles, WINDOWS};
pub use analysis::{
    Analysis, AnalysisOptions, Answers, FindingsPart, ModelPart, ModelsError, NotKept, Shown,
};
pub use births::{Births, Told};
pub use buffers::{LIBRARY_BUFFERS, LibraryBuffer, ProgramBuffer};
pub use by_name::ByName;
pub use call::{
    Class, classify, coalesced_bytes, is_coalescible, is_durationless, is_synchronous, kernel_bytes,
    moved_bytes, wchar_bytes,
};
pub use cause::{ByCause, CauseTimes, Causes, TimeSums, UnknownCause};
pub use cawl_model::collections::LruMap;
pub use cawl_model::{
    Bytes, CallState, Cause, Conservation, CostModel, CostParts, DirtyLimits, Disturbance, HostProfile,
    Kernel, MODELS, ModelState, Nanos, OpenLoop, Prediction, Rate, Regime, Seconds, Time, build, named,
    passed_over, quantity, settled_base_rate,
};
pub use cgroup::{DirtySetting, GroupBounds, GroupMemory, MachineMemory};
pub use classes::CallClass;
pub use condition::{Condition, ConditionError};
pub use density::{ByteMode, Density, Mode as CostMode, OpDensities};
pub use explain::{BestTimes, CauseReport, EXPLAIN_SCHEMA, Explain, Explaining};
pub use file_table::{FileRow, FileTable};
pub use filesystem::{FilesystemKind, GROUP as INODES_PER_GROUP};
pub use forecast::{Forecast, Job, JobCost, JobError, Scene, forecast, predict};
pub use glob::Glob;

pub use images::Images;
pub use learn::Constant;
pub use limits::{GroupCache, dirtyable};
pub use mode::{Mode, UnknownMode};
pub use names::{FileName, renamed_path};
pub use patterns::{
    FilePatterns, OpPatterns, PatternSums, SizeCount, SmallFiles, Spread, SyncPatterns, WriterPatterns,
};
pub use processes::{ProcessReport, RankReport, ranks};
pub use profile::{
    CachePolicy, CallConstants, DeviceConstants, Kept, KernelSettings, Learned, MachineKind, Measured,
    MemoryConstants, NetworkConstants, Origin, OtherDevice, PROFILE_SCHEMA, ProfileError, QueueConstants,
    Row, ShownConstant, Thoroughness, Unit, Value, block_cache, blocks_out,
};
pub use record::{
    ARE_MISSING, DeletedFacts, DeviceCounters, Doubt, ENDED_UNHEARD, EndKind, FileFacts, Filesystem, Frame,
    HostFacts, LOST_REQUESTS, Language, ListFacts, LiveOptions, MemoryFacts, Outcome, Record, RunDelay,
    Sample, Session, SessionEnd, Stack, StackOptions, USES_IO_URING, Usage, Wchar, ZoneFacts,
};
pub use release::{LAWS, Laws, Release};
pub use report::{
    AsCalibrated, ColdReport, CopiedUp, FileOp, FileReport, ModelReport, OpReport, ProfileUsed,
    REPORT_SCHEMA, Report, SEEN_BY_PROBES, SessionReport, SessionTotals,
};
pub use rolling_error::RecentError;
pub use run_delay::{Bounds, RunDelays};
pub use selection::{OpName, ProcessName, Selection, Selector, UnknownOp};
pub use stacks::{StackReport, StackRow};
pub use statistics::{Estimate, Line, Modes, median, quantile};
pub use tally::{CallSums, Tally};
pub use timeline::{CauseColumn, Level, Levels, LimitsFrom, Singles, TimelineReport};
pub use uncertain::{Uncertain, UncertainFile};
pub use whatif::{
    Base, Change, Effect, KEYWORDS, Keyword, Ledger, Machine, Maker, NoScenario, OpCost, Owner, Part, Ratio,
    Request, Rewrite, Scenario, Step, Steps, SyncsKept, Thread, TraceFacts, WhatIf, observed_ns, quoted,
};
pub use worst_call::{NearCall, WorstCall};
