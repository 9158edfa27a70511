//! Which law the lists of files follow: the classic one ([`lists`](super::lists)), or that of the
//! multi-generational LRU ([`generations`](super::generations)).

use super::generations::Generations;
use super::lists::Lists;
use super::shelves::Reclaimable;
use crate::release::Laws;

/// The lists of a group or a machine.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum Recency {
    Classic(Lists),
    Generations(Generations),
}

/// The same of either law.
macro_rules! either {
    ($of:expr, $lists:ident => $what:expr) => {
        match $of {
            Recency::Classic($lists) => $what,
            Recency::Generations($lists) => $what,
        }
    };
}

impl Default for Recency {
    fn default() -> Recency {
        Recency::Classic(Lists::default())
    }
}

impl Recency {
    /// Those of a kernel with these laws; `is_of_group`: of a group with a limit.
    pub(super) fn of(laws: Laws, is_of_group: bool) -> Recency {
        if laws.generations {
            Recency::Generations(Generations::of(laws.keeps_workingset, is_of_group))
        } else {
            Recency::default()
        }
    }

    /// Pages on the inactive lists and on the active ones.
    pub(super) fn pages(&self) -> [u64; 2] {
        either!(self, lists => lists.pages())
    }

    pub(super) fn begin(&mut self, strangers: [u64; 2]) {
        either!(self, lists => lists.begin(strangers));
    }

    pub(super) fn correct(&mut self, counted: [u64; 2]) {
        either!(self, lists => lists.correct(counted));
    }

    pub(super) fn insert(&mut self, file: u32, start: u64, end: u64, read: bool) {
        either!(self, lists => lists.insert(file, start, end, read));
    }

    pub(super) fn access(&mut self, file: u32, start: u64, end: u64) {
        either!(self, lists => lists.access(file, start, end));
    }

    pub(super) fn find_before(&mut self, file: u32, start: u64, end: u64) -> u64 {
        either!(self, lists => lists.find_before(file, start, end))
    }

    pub(super) fn drop(&mut self, file: u32, start: u64, end: u64) -> u64 {
        either!(self, lists => lists.drop(file, start, end))
    }

    pub(super) fn forget(&mut self, is_forgotten: impl Fn(u32) -> bool) {
        either!(self, lists => lists.forget(is_forgotten));
    }

    pub(super) fn shrink(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        either!(self, lists => lists.shrink(wanted, files))
    }
}
