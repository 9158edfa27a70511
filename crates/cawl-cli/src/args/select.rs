//! Which calls of a trace a command is about: the same options of each.

use cawl_core::quantity::span;
use cawl_core::{Cause, Glob, Nanos, OpName, ProcessName, Selection};

use crate::exit;

/// Calls of a trace.
#[derive(Default, clap::Args)]
#[group(id = "select", multiple = true)]
pub struct SelectArgs {
    /// Only calls on files whose path or name fits: `*` is any text, `?` one character; may be repeated
    #[arg(long = "file", value_name = "GLOB")]
    pub files: Vec<Glob>,
    /// Only calls of processes with this number, or whose program fits
    #[arg(long = "process", value_name = "PID|GLOB")]
    pub processes: Vec<ProcessName>,
    /// Only calls of these operations: write,fsync
    #[arg(long = "op", value_name = "NAME,…", value_delimiter = ',')]
    pub ops: Vec<OpName>,
    /// Only calls of whose time the largest part is of these causes: journal,device-flush
    #[arg(long = "cause", value_name = "NAME,…", value_delimiter = ',')]
    pub causes: Vec<Cause>,
    /// Only calls that begin at this many seconds after the first one, or later
    #[arg(long, value_name = "SECONDS", value_parser = span, allow_negative_numbers = true)]
    pub from: Option<f64>,
    /// Only calls that begin before this many seconds after the first one
    #[arg(long, value_name = "SECONDS", value_parser = span, allow_negative_numbers = true)]
    pub to: Option<f64>,
}

impl SelectArgs {
    /// The calls that are selected; None: all.
    pub fn selection(&self) -> anyhow::Result<Option<Selection>> {
        let seconds = |time: Option<f64>| time.map(Nanos::seconds);
        if let (Some(from), Some(to)) = (self.from, self.to) {
            exit::usage(from < to, || format!("--from {from} is not before --to {to}"))?;
        }
        let selection = Selection {
            files: self.files.clone(),
            processes: self.processes.clone(),
            ops: self.ops.clone(),
            causes: self.causes.clone(),
            from: seconds(self.from),
            to: seconds(self.to),
        };
        Ok((selection != Selection::default()).then_some(selection))
    }
}
