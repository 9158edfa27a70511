//! A first look at a trace's calls: where their time goes, how files are used, and what they teach.

use crate::analysis::{Analysis, AnalysisOptions, ModelsError};
use crate::mode::Mode;
use crate::profile::HostProfile;
use crate::record::Record;
use crate::report::Report;
use crate::whatif::{MODEL, Machine, Scenario, TraceFacts};

/// Calls that constants are learned from at most.
pub const LEARNED_FROM: u64 = 500_000;

/// Takes the records of a trace.
pub struct Look {
    analysis: Analysis,
    facts: TraceFacts,
    calls: u64,
    measured: HostProfile,
    /// What is known after [`LEARNED_FROM`] calls.
    taught: Option<(HostProfile, bool)>,
    learn: bool,
}

impl Look {
    /// With the constants of a profile, which the calls improve, or not.
    ///
    /// # Errors
    /// Where the profile cannot be used.
    pub fn new(profile: &HostProfile, learn: bool) -> Result<Look, ModelsError> {
        let options = AnalysisOptions {
            models: vec![MODEL.to_owned()],
            mode: Mode::Assimilated,
            learn,
            for_others: true,
            ..AnalysisOptions::default()
        };
        let (analysis, facts) = (Analysis::with(profile, &options)?, TraceFacts::default());
        let taught = (!learn).then(|| (profile.clone(), false));
        Ok(Look { analysis, facts, calls: 0, measured: profile.clone(), taught, learn })
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record) {
        self.analysis.take(record);
        self.facts.take(record);
        self.calls += u64::from(matches!(record, Record::Event(_)));
        if self.calls == LEARNED_FROM && self.learn && self.taught.is_none() {
            self.taught = Some(self.taught());
        }
    }

    /// Calls until now.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The profile with what calls taught, and whether they tell that memory came warm.
    pub fn taught(&self) -> (HostProfile, bool) {
        let now = || (self.analysis.learned().0, self.analysis.came_warm());
        self.taught.clone().unwrap_or_else(now)
    }

    /// There are no more.
    pub fn finish(self) -> Looked {
        let (profile, warm) = self.taught();
        let Look { analysis, facts, calls, measured, .. } = self;
        let base = Scenario { machine: Machine::new(profile, warm), changes: Vec::new() };
        Looked { report: analysis.report(), measured, base, facts, calls }
    }
}

/// What a first look found.
pub struct Looked {
    /// The report of the calls.
    pub report: Report,
    /// The profile without what they taught.
    pub measured: HostProfile,
    /// The calls as they were made, on a machine with what they taught.
    pub base: Scenario,
    /// What changes need to know of the trace.
    pub facts: TraceFacts,
    /// Calls that were looked at.
    pub calls: u64,
}
