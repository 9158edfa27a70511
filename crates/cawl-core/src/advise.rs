//! Advice: which changes of a program or its machine are worth it.
//!
//! The law: **patterns select, paper decides.** What a report tells of sizes, order, syncs and causes only
//! chooses which changes are tried; a change is advised if the calls of the trace take less with it on paper
//! ([`WhatIf`](crate::WhatIf)), by more than the model may be wrong. So no threshold here says that something
//! is bad, as those of Drishti do; docs/reference/ADVISE.md sets its checks beside what is tried.

mod look;
mod rank;
mod report_advice;
mod search;
mod select;
mod words;

use crate::whatif::{Effect, Ledger, Request};

pub use crate::advice::{Advice, Advised, Alternative, Bound, Kind, OUTSIDE, Sure};
pub use look::{LEARNED_FROM, Look, Looked};
pub use rank::rank;
pub use report_advice::Kept;
pub use search::{Found, NoAdvice, search};
pub use select::Case;

impl Kind {
    /// How much less safe it is, from 0 (nothing changes) to 5 (the data of a whole run).
    fn risk(self) -> u8 {
        match self {
            Kind::Pace | Kind::Direct | Kind::Move => 0,
            // Times of files.
            Kind::Fdatasync | Kind::Dsync => 1,
            // What a killed program has not handed over.
            Kind::Buffer | Kind::Merge => 2,
            // What a crash leaves of unsynced data, and what readers find.
            Kind::Preallocate | Kind::Limits | Kind::Sort | Kind::AppendOnly => 3,
            Kind::SyncEvery => 4,
            Kind::SyncEnd | Kind::SyncOff | Kind::Together => 5,
        }
    }

    /// How much is to be changed: an option or a line, several, the program's structure.
    fn effort(self) -> u8 {
        match self {
            Kind::Preallocate | Kind::Direct | Kind::Limits | Kind::Sort | Kind::Move => 2,
            Kind::AppendOnly | Kind::Together => 3,
            _ => 1,
        }
    }
}

/// A change that is tried on paper.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What kind it is.
    pub kind: Kind,
    /// What it is, in words.
    pub what: String,
    /// The changes, as `whatif` makes them.
    pub requests: Vec<Request>,
    /// The files that it is about, those with most time first, at most [`FILES`].
    pub files: Vec<String>,
    /// Further ones.
    pub more_files: u64,
    /// The program that writes the first of them, if it is known.
    pub program: Option<String>,
    /// How to do it.
    pub how: String,
    /// Of several changes: their places among those tried before.
    parts: Vec<usize>,
    risk: u8,
}

/// Part of the time that a change must be able to touch, to be tried, and must gain, to be told.
const WORTH: f64 = 0.05;

/// Files that are named at most.
pub const FILES: usize = 10;

/// A candidate, and what the calls cost with it.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What was tried.
    pub candidate: Candidate,
    /// What it came to.
    pub after: Ledger,
}

impl Candidate {
    /// As arguments of `whatif`, for a shell.
    fn arguments(&self) -> String {
        self.requests.iter().map(|request| request.arguments.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn changes_limits(&self) -> bool {
        self.requests.iter().any(|request| matches!(request.effect, Effect::Limits(_)))
    }
}

impl Tried {
    /// True for several changes of those tried before.
    pub fn is_combined(&self) -> bool {
        !self.candidate.parts.is_empty()
    }
}

#[cfg(test)]
mod tests;
