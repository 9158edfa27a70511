//! Arguments of `tune`.

use std::path::PathBuf;

use cawl_core::quantity::size_above_zero;
use cawl_core::{Bytes, DirtyLimits, Effect, Request, Rewrite, SyncsKept};
use clap::value_parser;

use crate::tune::{Access, Choices, Way};

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
    /// What settings are made of, in the words of docs/reference/WHATIF.md: split=SIZE and buffer=SIZE;
    /// fsync=none, end or N; sync, dsync, direct, direct+dsync or direct=off; limits=BACKGROUND,HARD or
    /// limits=own. May be repeated; what is not named has its default values (docs/science/TUNE.md)
    #[arg(long = "try", value_name = "NAME=VALUE,…", value_parser = tried)]
    pub tries: Vec<Choices>,
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

impl TuneArgs {
    /// What the grid is made of.
    pub fn choices(&self) -> Choices {
        let mut given = Choices::default();
        for tried in &self.tries {
            given.ways.extend(&tried.ways);
            given.syncs.extend(&tried.syncs);
            given.accesses.extend(&tried.accesses);
            given.limits.extend(&tried.limits);
        }
        let sizes = || [4 << 10, 64 << 10, 1 << 20].into_iter();
        let syncs = [SyncsKept::None, SyncsKept::Last, SyncsKept::OneIn(16), SyncsKept::OneIn(1)];
        let low = self.verify.is_none().then_some(Some(LOW));
        Choices {
            bytes: Bytes(self.bytes),
            ways: or(given.ways, sizes().map(Way::Write).chain(sizes().map(Way::Stream))),
            syncs: or(given.syncs, syncs),
            accesses: or(given.accesses, Access::ALL),
            limits: or(given.limits, std::iter::once(None).chain(low)),
        }
    }
}

/// What was given, else the default.
fn or<T>(given: Vec<T>, default: impl IntoIterator<Item = T>) -> Vec<T> {
    if given.is_empty() { default.into_iter().collect() } else { given }
}

fn tried(text: &str) -> Result<Choices, String> {
    let mut found = Choices::default();
    // How settings without a size, and all flags of a file, were asked for before.
    if ["split=none", "buffer=none"].contains(&text) {
        return Ok(found);
    }
    if text == "limits=own" {
        found.limits.push(None);
        return Ok(found);
    }
    let (flags, text) = text.strip_prefix("flags=").map_or((false, text), |flags| (true, flags));
    let access = |name: &str| Access::ALL.into_iter().find(|access| access.name() == name);
    let is_access = |piece: &&str| *piece == Access::DirectDsync.name() || flags && access(piece).is_some();
    let (files, words): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_access);
    found.accesses.extend(files.into_iter().filter_map(access));
    let requests = if words.is_empty() { Vec::new() } else { Request::list(&words.join(","))? };
    for request in requests {
        match (&request.effect, request.rewrite()) {
            (_, Some(Rewrite::Split(size))) => found.ways.push(Way::Write(*size)),
            (_, Some(Rewrite::Buffer(size))) => found.ways.push(Way::Stream(u64::from(*size))),
            (_, Some(Rewrite::Syncs(kept))) => found.syncs.push(*kept),
            (_, Some(Rewrite::Flags(_, false))) => found.accesses.push(Access::Cached),
            (_, Some(Rewrite::Flags(flags, true))) => {
                found.accesses.extend(Access::ALL.into_iter().find(|access| access.flags() == *flags));
            }
            (Effect::Limits(limits), _) => found.limits.push(Some(*limits)),
            _ => {
                return Err(format!(
                    "{} makes no setting; docs/science/TUNE.md has those that do",
                    request.text
                ));
            }
        }
    }
    Ok(found)
}
