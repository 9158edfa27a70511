//! An analysis taken apart, so that whoever has threads can let each model work in one.
//!
//! The law: nothing but time differs from [`Analysis::take`], record after record. Models do not see one another, so
//! each may be ahead of the others; the books take what all have said of a record, in the order of records.

use super::Analysis;
use super::books::{Books, Counters};
use super::track::Track;
use crate::call::{Class, classify};
use crate::model::Prediction;
use crate::record::Record;
use crate::units::Bytes;

/// How many calls a model is told of ahead. Memory answers about so many questions at a time.
const AHEAD: usize = 16;

/// One model of an analysis.
pub struct ModelApart<'a> {
    track: &'a mut Track,
    counters: Counters,
}

/// What a model said of some records.
pub struct Answers {
    /// Of each call in it that is not about something else.
    predictions: Vec<Option<Prediction>>,
    /// Of each sample that makes sense: the level modelled, and bytes made dirty so far.
    levels: Vec<(Option<Bytes>, Bytes)>,
}

impl ModelApart<'_> {
    /// Takes the next records.
    pub fn answer(&mut self, records: &[Record]) -> Answers {
        let mut answers = Answers { predictions: Vec::with_capacity(records.len()), levels: Vec::new() };
        for (at, record) in records.iter().enumerate() {
            if at % AHEAD == 0 {
                self.track.touch(&records[at..records.len().min(at + AHEAD)]);
            }
            match record {
                Record::Event(event) => match classify(event) {
                    Class::Elsewhere => {}
                    class => answers.predictions.push(self.track.event(event, class)),
                },
                Record::Sample(sample) => {
                    if let Some(counted) = self.counters.take(sample) {
                        answers.levels.push((self.track.sample(&counted), self.track.dirtied()));
                    }
                }
                _ => {}
            }
        }
        answers
    }
}

/// All of an analysis but its models.
pub struct BooksApart<'a> {
    predictions: &'a mut Vec<Option<Prediction>>,
    counters: &'a mut Counters,
    books: &'a mut Books,
    reported: usize,
}

impl BooksApart<'_> {
    /// Takes the next records with what each model said of them, in the order of the models. `each` is shown every record
    /// with the predictions made for it, as [`Analysis::take`] returns them, until it returns false; then so does this.
    pub fn take(
        &mut self,
        records: &[Record],
        said: Vec<Answers>,
        mut each: impl FnMut(&Record, &[Option<Prediction>]) -> bool,
    ) -> bool {
        let mut said: Vec<_> = said
            .into_iter()
            .map(|answers| (answers.predictions.into_iter(), answers.levels.into_iter()))
            .collect();
        for record in records {
            self.predictions.clear();
            match record {
                Record::Event(event) => {
                    let class = classify(event);
                    self.predictions.extend(said.iter_mut().map(|(predictions, _)| match class {
                        Class::Elsewhere => None,
                        _ => predictions.next().flatten(),
                    }));
                    self.books.event(event, class, self.predictions, self.reported);
                }
                Record::Sample(sample) => {
                    if let Some(counted) = self.counters.take(sample) {
                        let levels = said.iter_mut().map(|(_, levels)| levels.next().unwrap_or_default());
                        let mut dirtied = Bytes::ZERO;
                        for (at, (modelled, so_far)) in levels.enumerate() {
                            self.books.compared(at, modelled, &counted);
                            dirtied = if at == 0 { so_far } else { dirtied };
                        }
                        self.books.sample(sample, dirtied);
                    }
                }
                other => self.books.collector.note(other),
            }
            let shown =
                if matches!(record, Record::Event(_)) { &self.predictions[..self.reported] } else { &[] };
            if !each(record, shown) {
                return false;
            }
        }
        true
    }
}

impl Analysis {
    /// The models, each of which has to be shown all records in order, and the books, which take them afterwards. None
    /// if the analysis learns: what is learned from a call counts for the next one.
    pub fn apart(&mut self) -> Option<(Vec<ModelApart<'_>>, BooksApart<'_>)> {
        if self.learn {
            return None;
        }
        let Analysis { tracks, besides, predictions, counters, books, .. } = self;
        let reported = tracks.len();
        let tracks = tracks.iter_mut().chain(besides);
        let models = tracks.map(|track| ModelApart { track, counters: counters.clone() }).collect();
        Some((models, BooksApart { predictions, counters, books, reported }))
    }
}
