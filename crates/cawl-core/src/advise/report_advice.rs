//! Advice beside a report: of calls that are in memory, and few enough that nobody waits for it.

use super::search::NoAdvice;
use super::{Advised, Case, Found, Look, search};
use crate::profile::HostProfile;
use crate::record::Record;
use crate::units::Nanos;
use crate::whatif::{Ledger, Scenario, observed_ns};

/// Records that are run through on paper at most, all changes together: half a second. (A call takes some 0.4
/// µs on paper, and three times as much in the first look.)
const ON_PAPER: u64 = 1_000_000;
const A_LOOK: u64 = 3;

/// Records that are kept for advice beside a report.
pub struct Kept {
    profile: HostProfile,
    records: Vec<Record>,
    /// Records until now, also those that are no longer kept.
    taken: u64,
}

impl Kept {
    /// Those of a trace with this profile.
    pub fn new(profile: &HostProfile) -> Kept {
        Kept { profile: profile.clone(), records: Vec::new(), taken: 0 }
    }

    /// Takes the next record; false if there are too many by now, of which none is kept.
    pub fn take(&mut self, record: &Record) -> bool {
        self.taken += 1;
        if self.fits(0) {
            self.records.push(record.clone());
        } else {
            self.records = Vec::new();
        }
        self.fits(0)
    }

    /// True if the records are few enough for a first look, the paper as it was, so many changes, and as many
    /// combinations.
    fn fits(&self, changes: u64) -> bool {
        self.taken.saturating_mul(A_LOOK + 1 + 2 * changes) <= ON_PAPER
    }

    /// Calls among the records, and what they took; of too many records none.
    pub fn observed(&self) -> (u64, Nanos) {
        let calls = self.records.iter().filter(|record| matches!(record, Record::Event(_))).count() as u64;
        (calls, Nanos::new(observed_ns(0, &self.records) as f64))
    }

    /// What a report tells of advice; None where there is nothing to advise on. It says the same as `advise`
    /// does of the trace.
    pub fn advised(&self) -> Option<Advised> {
        if !self.fits(0) {
            return Some(Advised::default());
        }
        let mut look = Look::new(&self.profile, true).ok()?;
        self.records.iter().for_each(|record| look.take(record));
        let looked = look.finish();
        let changes = Case::new(&looked.report, &looked.base.machine.profile).candidates().len() as u64;
        if !self.fits(changes) {
            return Some(Advised::default());
        }
        let run = |scenarios: Vec<Scenario>| -> Result<(Vec<Ledger>, f64), NoAdvice> {
            let ledger = |scenario: &Scenario| {
                let mut whatif = scenario.begin(&looked.facts);
                self.records.iter().for_each(|record| whatif.take(record));
                whatif.finish()
            };
            let ledgers = scenarios.iter().map(ledger).collect();
            Ok((ledgers, observed_ns(0, &self.records) as f64 / 1e9))
        };
        let Found { before, advice, tried, best_s, bound, .. } = search(&looked, run).ok()?;
        Some(Advised::new(tried, before.total.as_seconds(), best_s, bound, advice))
    }
}
