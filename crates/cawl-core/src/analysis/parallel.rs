//! An analysis split into parts that can work in threads of their own: its models, and the findings.
//!
//! Models do not see one another, so each may be ahead of the others; only those that learn go together, as
//! what is learned from a call counts for the next one. The findings take the answers of all models in the
//! order of records. A part does with a batch what [`Analysis::take`] does with one record, by the same
//! functions.

use super::Analysis;
use super::findings::{Findings, Shown};
use super::learning::Learning;
use super::track::{Level, Track};
use crate::call::is_no_call;
use crate::descriptors::Descriptors;
use crate::divide::Widths;
use crate::model::Prediction;
use crate::record::Record;

/// Models of an analysis.
pub struct ModelPart<'a> {
    tracks: Vec<&'a mut Track>,
    /// What they learn by, if they do.
    learning: Option<&'a mut Learning>,
    descriptors: Descriptors,
}

/// What models said of each call of a batch, and of each record.
#[derive(Default)]
pub struct Answers {
    models: usize,
    predictions: Vec<Option<Prediction>>,
    levels: Vec<Option<Level>>,
    /// What the records with these numbers taught.
    widths: Vec<(usize, Widths)>,
}

impl ModelPart<'_> {
    /// Takes the next records. What is in `answers`, those to other records, is overwritten.
    pub fn answer(&mut self, records: &[Record], answers: &mut Answers) {
        answers.models = self.tracks.len();
        answers.predictions.clear();
        answers.levels.clear();
        answers.widths.clear();
        for (at, record) in records.iter().enumerate() {
            self.descriptors.take(record);
            let before = answers.predictions.len();
            for track in &mut self.tracks {
                let level = track.take(record, &self.descriptors, &mut answers.predictions);
                answers.levels.push(level);
            }
            let tracks = self.tracks.iter_mut().map(|track| &mut **track);
            let said = &answers.predictions[before..];
            let learning = self.learning.as_mut();
            let widths = learning.and_then(|learning| learning.take(record, said, tracks));
            answers.widths.extend(widths.map(|widths| (at, widths)));
        }
    }
}

/// An analysis without its models.
pub struct FindingsPart<'a> {
    findings: &'a mut Findings,
    descriptors: &'a mut Descriptors,
}

impl FindingsPart<'_> {
    /// Takes the next records with the answers of each part, in the order of [`Analysis::split`]. `each` is
    /// shown every record with what is said of it, as [`Analysis::take`] returns them, until it returns
    /// false; then so does this. What is no call of the program is shown to nobody.
    pub fn take(
        &mut self,
        records: &[Record],
        said: &[Answers],
        each: &mut dyn FnMut(&Record, Shown<'_>) -> bool,
    ) -> bool {
        let mut learned = said.iter().flat_map(|said| &said.widths).peekable();
        let mut call = 0;
        records.iter().enumerate().all(|(at, record)| {
            self.descriptors.take(record);
            let Findings { predictions, levels, .. } = &mut *self.findings;
            predictions.clear();
            levels.clear();
            for said in said {
                levels.extend_from_slice(&said.levels[at * said.models..][..said.models]);
                if let Record::Event(_) = record {
                    predictions.extend_from_slice(&said.predictions[call * said.models..][..said.models]);
                }
            }
            call += usize::from(matches!(record, Record::Event(_)));
            self.findings.take(record);
            if let Some((_, widths)) = learned.next_if(|(from, _)| *from == at) {
                self.findings.divider.widths = *widths;
            }
            matches!(record, Record::Event(event) if is_no_call(event))
                || each(record, self.findings.shown(record))
        })
    }
}

impl Analysis {
    /// The models in parts, each of which must take all records in order, and the findings, which take them
    /// afterwards.
    pub fn split(&mut self) -> (Vec<ModelPart<'_>>, FindingsPart<'_>) {
        let Analysis { tracks, for_questions, calibrated, descriptors, findings, learning, options } = self;
        let part = |tracks, learning| ModelPart { tracks, learning, descriptors: descriptors.clone() };
        let mut parts = Vec::new();
        let live = tracks.iter_mut().chain(for_questions);
        if options.learn {
            parts.push(part(live.collect(), Some(learning)));
        } else {
            parts.extend(live.map(|track| part(vec![track], None)));
        }
        parts.extend(calibrated.iter_mut().map(|track| part(vec![track], None)));
        (parts, FindingsPart { findings, descriptors })
    }
}
