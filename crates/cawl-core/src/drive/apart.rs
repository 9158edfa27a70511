//! An analysis taken apart, so that whoever has threads can let each model work in one.
//!
//! Models do not see one another, so each may be ahead of the others; the books take what all have said of a record,
//! in the order of records. What is done with a record is the code of [`Analysis::take`], over a batch.

use super::Analysis;
use super::books::Books;
use super::track::{Said, Track};
use crate::descriptors::Descriptors;
use crate::model::Prediction;
use crate::record::Record;

/// How many calls a model is told of ahead. Memory answers about so many questions at a time.
const AHEAD: usize = 16;

/// One model of an analysis.
pub struct ModelApart<'a> {
    track: &'a mut Track,
    descriptors: Descriptors,
}

/// What a model said of each record of a batch.
pub struct Answers(Vec<Said>);

impl ModelApart<'_> {
    /// Takes the next records.
    pub fn answer(&mut self, records: &[Record]) -> Answers {
        let mut said = Vec::with_capacity(records.len());
        for near in records.chunks(AHEAD) {
            self.track.touch(near);
            said.extend(near.iter().map(|record| {
                self.descriptors.take(record);
                self.track.take(record, &self.descriptors)
            }));
        }
        Answers(said)
    }
}

/// All of an analysis but its models.
pub struct BooksApart<'a> {
    books: &'a mut Books,
    descriptors: &'a mut Descriptors,
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
        let mut said: Vec<_> = said.into_iter().map(|Answers(said)| said.into_iter()).collect();
        records.iter().all(|record| {
            self.descriptors.take(record);
            self.books.take(record, said.iter_mut().filter_map(Iterator::next));
            each(record, self.books.shown(record))
        })
    }
}

impl Analysis {
    /// The models, each of which has to be shown all records in order, and the books, which take them afterwards. None
    /// if the analysis learns: what is learned from a call counts for the next one.
    pub fn apart(&mut self) -> Option<(Vec<ModelApart<'_>>, BooksApart<'_>)> {
        if self.learn {
            return None;
        }
        let Analysis { tracks, besides, calibrated, descriptors, books, .. } = self;
        let tracks = tracks.iter_mut().chain(besides).chain(calibrated);
        let models = tracks.map(|track| ModelApart { track, descriptors: descriptors.clone() }).collect();
        Some((models, BooksApart { books, descriptors }))
    }
}
