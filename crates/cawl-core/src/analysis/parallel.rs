//! An analysis split into parts that can work in threads of their own: one for each model, and the findings.
//!
//! Models do not see one another, so each may be ahead of the others. The findings take the answers of all
//! models in the order of records. A part does with a batch what [`Analysis::take`] does with one record, by
//! the same functions.

use super::Analysis;
use super::findings::{Findings, Shown};
use super::track::{Said, Track};
use crate::descriptors::Descriptors;
use crate::record::Record;

/// One model of an analysis.
pub struct ModelPart<'a> {
    track: &'a mut Track,
    descriptors: Descriptors,
}

/// What a model said of each record of a batch.
pub struct Answers(Vec<Said>);

impl ModelPart<'_> {
    /// Takes the next records.
    pub fn answer(&mut self, records: &[Record]) -> Answers {
        let said = records.iter().map(|record| {
            self.descriptors.take(record);
            self.track.take(record, &self.descriptors)
        });
        Answers(said.collect())
    }
}

/// An analysis without its models.
pub struct FindingsPart<'a> {
    findings: &'a mut Findings,
    descriptors: &'a mut Descriptors,
}

impl FindingsPart<'_> {
    /// Takes the next records with the answers of each model, in the order of the models. `each` is shown
    /// every record with what is said of it, as [`Analysis::take`] returns them, until it returns
    /// false; then so does this.
    pub fn take(
        &mut self,
        records: &[Record],
        said: Vec<Answers>,
        mut each: impl FnMut(&Record, Shown<'_>) -> bool,
    ) -> bool {
        let mut said: Vec<_> = said.into_iter().map(|Answers(said)| said.into_iter()).collect();
        records.iter().all(|record| {
            self.descriptors.take(record);
            self.findings.take(record, said.iter_mut().filter_map(Iterator::next));
            each(record, self.findings.shown(record))
        })
    }
}

impl Analysis {
    /// The models, each of which must take all records in order, and the findings, which take them
    /// afterwards. None if the analysis learns: what is learned from a call counts for the next one.
    pub fn split(&mut self) -> Option<(Vec<ModelPart<'_>>, FindingsPart<'_>)> {
        if self.learn {
            return None;
        }
        let Analysis { tracks, besides, calibrated, descriptors, findings, .. } = self;
        let tracks = tracks.iter_mut().chain(besides).chain(calibrated);
        let models = tracks.map(|track| ModelPart { track, descriptors: descriptors.clone() }).collect();
        Some((models, FindingsPart { findings, descriptors }))
    }
}
