//! Arguments of `tune`.

use std::path::PathBuf;

use cawl_core::quantity::size_above_zero;
use cawl_core::{Bytes, DirtyLimits};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::value_parser;

use crate::tune::{Access, Choices, Syncs};

/// Dirty limits of the grid beside those of the machine: the flusher begins early.
const LOW: DirtyLimits = DirtyLimits { background: Bytes::mib(16), hard: Bytes::mib(1024) };

/// Find out which setting suits which pattern of writing
///
/// A model computes what each setting costs in each pattern: in order into a new file, over old data, at
/// random, records behind a log; one writer and several; with what must be durable. Only settings that give
/// what the pattern needs are compared. Prints what each setting is worth as the default, and a decision tree
/// that chooses a setting by a pattern's features. docs/science/TUNE.md explains both.
#[derive(clap::Args)]
pub struct TuneArgs {
    /// Profile of a machine (TOML); several are features of the tree (default: that of this machine and
    /// device)
    #[arg(long = "profile", value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Patterns whose names begin like this, as new, append-record [default: all]
    #[arg(long = "pattern", value_name = "NAME,…", value_delimiter = ',')]
    pub patterns: Vec<String>,
    /// Bytes of a write without a stream, or none for streams only
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4K,64K,1M", value_parser = size_or_none)]
    pub chunk: Vec<Size>,
    /// Sizes of streams' buffers, or none for no streams
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4K,64K,1M", value_parser = size_or_none)]
    pub buffer: Vec<Size>,
    /// When fsync is called: none, end, or a number of records
    #[arg(long, value_name = "WHEN,…", value_delimiter = ',', default_value = "none,end,16,1", value_parser = syncs)]
    pub fsync: Vec<Syncs>,
    /// Flags of open: none, dsync, sync, direct, direct+dsync
    #[arg(long, value_name = "FLAGS,…", value_delimiter = ',', default_value = "none,dsync,sync,direct,direct+dsync", value_parser = access())]
    pub flags: Vec<Access>,
    /// Dirty limits, or own for those of the machine; may be repeated (default: own, and 16M,1G)
    #[arg(long, value_name = "BACKGROUND,HARD", value_parser = limits)]
    pub limits: Vec<Limits>,
    /// Bytes of a pattern at most
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_above_zero)]
    pub bytes: u64,
    /// Questions of the tree at most
    #[arg(long, value_name = "N", default_value = "4", value_parser = value_parser!(u32).range(1..=4))]
    pub depth: u32,
    /// Draw the tree into a file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the costs of all patterns and settings into a file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw N patterns by lot and write them in --dir, with the tree's choice and with other settings: what
    /// does the tree lose really? Takes about three minutes; own limits only
    #[arg(long, value_name = "N", requires = "dir", value_parser = value_parser!(u32).range(1..=1000))]
    pub verify: Option<u32>,
    /// A folder on the device to verify on; writes only into a new folder there, which is removed at the end
    #[arg(long, value_name = "DIR", requires = "verify")]
    pub dir: Option<PathBuf>,
    /// Number that decides the lot
    #[arg(long, value_name = "N", default_value = "1", requires = "verify")]
    pub seed: u64,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// A size, or none.
#[derive(Clone, Copy, Debug)]
pub struct Size(Option<u64>);

/// Dirty limits; None for those of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits(Option<DirtyLimits>);

impl TuneArgs {
    /// What the grid is made of.
    pub fn choices(&self) -> Choices {
        let sizes = |sizes: &[Size]| sizes.iter().filter_map(|size| size.0).collect();
        let limits = match &self.limits[..] {
            [] if self.verify.is_some() => vec![None],
            [] => vec![None, Some(LOW)],
            given => given.iter().map(|limits| limits.0).collect(),
        };
        Choices {
            bytes: Bytes(self.bytes),
            chunks: sizes(&self.chunk),
            buffers: sizes(&self.buffer),
            syncs: self.fsync.clone(),
            accesses: self.flags.clone(),
            limits,
        }
    }
}

fn size_or_none(text: &str) -> Result<Size, String> {
    if text == "none" { Ok(Size(None)) } else { size_above_zero(text).map(|size| Size(Some(size))) }
}

fn syncs(text: &str) -> Result<Syncs, String> {
    match text {
        "none" => Ok(Syncs::None),
        "end" => Ok(Syncs::End),
        _ => {
            let count = text.parse().ok().filter(|count| *count > 0).map(Syncs::Every);
            count.ok_or_else(|| "give none, end, or a number of records".to_owned())
        }
    }
}

fn access() -> impl TypedValueParser<Value = Access> {
    PossibleValuesParser::new(Access::ALL.map(Access::name))
        .map(|text| Access::ALL.into_iter().find(|access| access.name() == text).unwrap_or(Access::Cached))
}

fn limits(text: &str) -> Result<Limits, String> {
    if text == "own" {
        return Ok(Limits(None));
    }
    if !text.contains(',') {
        return Err("give own, or two sizes: 16M,1G".to_owned());
    }
    Ok(Limits(Some(cawl_core::quantity::limits(text)?)))
}
