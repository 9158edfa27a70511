//! How a program may write, and what a crash loses then.

use std::fmt;

use cawl_core::quantity::short;
use cawl_core::{DirtyLimits, SyncsKept, named};
use cawl_wire::flag;

use super::pattern::{Need, Workload};

/// What direct writes must be whole numbers of.
const BLOCK: u64 = 4096;

/// How records reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By write, in calls of at most so many bytes.
    Write(u64),
    /// Through a stream with a buffer of so many bytes.
    Stream(u64),
}

named! {
    /// How the file is open.
    Access {
        /// Through the page cache.
        Cached = "none",
        /// With O_DSYNC.
        Dsync = "dsync",
        /// With O_SYNC.
        Sync = "sync",
        /// With O_DIRECT.
        Direct = "direct",
        /// With O_DIRECT and O_DSYNC.
        DirectDsync = "direct+dsync",
    }
}

impl Access {
    /// Bits of [`cawl_wire::flag`].
    pub const fn flags(self) -> u32 {
        match self {
            Access::Cached => 0,
            Access::Dsync => flag::DSYNC,
            Access::Sync => flag::SYNC,
            Access::Direct => flag::DIRECT,
            Access::DirectDsync => flag::DIRECT | flag::DSYNC,
        }
    }

    /// A write is durable when it returns.
    pub const fn is_durable(self) -> bool {
        self.flags() & (flag::SYNC | flag::DSYNC) != 0
    }

    const fn is_direct(self) -> bool {
        self.flags() & flag::DIRECT != 0
    }
}

/// A way to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// How records reach the kernel.
    pub way: Way,
    /// When fsync is called: of one in so many records, and at the end.
    pub syncs: SyncsKept,
    /// How the file is open.
    pub access: Access,
    /// Dirty limits of the machine; None: its own.
    pub limits: Option<DirtyLimits>,
}

impl Setting {
    /// It says nothing twice (fsync of what is durable), and a stream does not write directly: its buffer is
    /// not aligned.
    pub(super) fn is_sensible(&self) -> bool {
        let twice = self.access.is_durable() && self.syncs != SyncsKept::None;
        let unaligned = self.access.is_direct() && matches!(self.way, Way::Stream(_));
        !twice && !unaligned
    }

    /// The workload can be written so: direct writes are of whole blocks.
    pub fn is_possible(&self, workload: &Workload) -> bool {
        let is_whole = |bytes: u64| bytes.is_multiple_of(BLOCK);
        match self.way {
            _ if !self.access.is_direct() => true,
            Way::Write(chunk) => is_whole(workload.record.0) && is_whole(chunk),
            Way::Stream(_) => false,
        }
    }

    /// The setting without what makes no difference to this workload.
    pub fn effective(&self, workload: &Workload) -> Setting {
        let way = match self.way {
            Way::Write(chunk) => Way::Write(chunk.min(workload.record.0)),
            stream => stream,
        };
        let syncs = match self.syncs {
            SyncsKept::OneIn(count) if u64::from(count) >= workload.records => SyncsKept::Last,
            syncs => syncs,
        };
        Setting { way, syncs, ..*self }
    }

    /// Most records that a crash loses though the program has gone on to the next one; None: there is no
    /// bound.
    pub fn lost(&self, workload: &Workload) -> Option<u64> {
        match (self.syncs, self.way) {
            (SyncsKept::OneIn(count), _) => Some(u64::from(count).max(1) - 1),
            _ if !self.access.is_durable() => None,
            (_, Way::Write(_)) => Some(0),
            // Whole buffers pass a stream by.
            (_, Way::Stream(buffer)) if workload.record.0.is_multiple_of(buffer.max(1)) => Some(0),
            (_, Way::Stream(buffer)) => Some(buffer.div_ceil(workload.record.0)),
        }
    }

    /// It gives the workload what it needs.
    pub fn gives(&self, need: Need, workload: &Workload) -> bool {
        let at_end = self.access.is_durable() || self.syncs != SyncsKept::None;
        let loses_less = |records: u64| self.lost(workload).is_some_and(|lost| lost < records);
        match need {
            Need::None => true,
            Need::End => at_end,
            Need::Every => at_end && loses_less(Need::RECORDS),
            Need::Record => at_end && loses_less(1),
        }
    }
}

impl fmt::Display for Setting {
    /// In the words of docs/reference/WHATIF.md: `split=64K fsync=end direct limits=16M,1G`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match self.way {
            Way::Write(chunk) => format!("split={}", short(chunk)),
            Way::Stream(buffer) => format!("buffer={}", short(buffer)),
        };
        match self.syncs {
            SyncsKept::None => {}
            SyncsKept::Last => text += " fsync=end",
            SyncsKept::OneIn(count) => text += &format!(" fsync={count}"),
        }
        if self.access != Access::Cached {
            text += &format!(" {}", self.access.name());
        }
        if let Some(limits) = self.limits {
            text += &format!(" limits={},{}", short(limits.background.0), short(limits.hard.0));
        }
        f.pad(&text)
    }
}
