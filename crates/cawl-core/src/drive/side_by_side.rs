//! Models side by side: each in a thread of its own, the reader and the books in others.
//!
//! The law: nothing but time differs from [`Analysis::take`], record after record. Models do not see one another, so
//! each may be as far ahead as its queue allows; the books take what all have said of a record, in the order of records.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::Analysis;
use super::books::Counters;
use super::track::Track;
use crate::call::{Class, classify};
use crate::model::Prediction;
use crate::record::Record;
use crate::units::Bytes;

/// Records of a batch: large enough to be worth handing over, small enough for the processor's cache.
const BATCH: usize = 2048;
/// Batches that wait between two threads.
const WAITING: usize = 2;
/// How many calls a model is told of ahead. Memory answers about so many questions at a time.
const AHEAD: usize = 16;

/// What a track said of a batch.
struct Answers {
    /// Of each call in it that is not about something else.
    predictions: Vec<Option<Prediction>>,
    /// Of each sample that makes sense: the level modelled, and bytes made dirty so far.
    levels: Vec<(Option<Bytes>, Bytes)>,
}

impl Track {
    fn answer(&mut self, records: &[Record], counters: &mut Counters) -> Answers {
        let mut answers = Answers { predictions: Vec::with_capacity(records.len()), levels: Vec::new() };
        for (at, record) in records.iter().enumerate() {
            if at % AHEAD == 0 {
                self.touch(&records[at..records.len().min(at + AHEAD)]);
            }
            match record {
                Record::Event(event) => match classify(event) {
                    Class::Elsewhere => {}
                    class => answers.predictions.push(self.event(event, class)),
                },
                Record::Sample(sample) => {
                    if let Some(counted) = counters.take(sample) {
                        answers.levels.push((self.sample(&counted), self.dirtied()));
                    }
                }
                _ => {}
            }
        }
        answers
    }
}

impl Analysis {
    /// Takes records, which are read in another thread, until there are no more or `each` returns false; the models may
    /// have seen more by then. `each` is shown every record with the predictions made for it, as [`Analysis::take`]
    /// returns them. An error ends it, after what came before has been taken.
    pub fn take_all<E: Send>(
        &mut self,
        mut records: impl Iterator<Item = Result<Record, E>> + Send,
        mut each: impl FnMut(&Record, &[Option<Prediction>]) -> bool,
    ) -> Result<(), E> {
        if self.learn {
            // What is learned from a call counts for the next one.
            for record in records {
                let record = record?;
                if !each(&record, self.take(&record)) {
                    break;
                }
            }
            return Ok(());
        }
        let Analysis { tracks, besides, predictions, counters, books, .. } = self;
        let reported = tracks.len();
        thread::scope(|scope| {
            let (mut models, mut answers): (Vec<_>, Vec<Receiver<Answers>>) = (Vec::new(), Vec::new());
            for track in tracks.iter_mut().chain(besides) {
                let (to_model, records) = sync_channel::<Arc<Vec<Record>>>(WAITING);
                let (to_books, from_model) = sync_channel(WAITING);
                let mut counters = counters.clone();
                scope.spawn(move || {
                    for batch in records {
                        if to_books.send(track.answer(&batch, &mut counters)).is_err() {
                            return;
                        }
                    }
                });
                models.push(to_model);
                answers.push(from_model);
            }
            let (to_books, batches_read) = sync_channel(WAITING);
            scope.spawn(move || {
                loop {
                    let mut failed = None;
                    let all = records
                        .by_ref()
                        .map_while(|record| record.map_err(|error| failed = Some(error)).ok());
                    let batch = Arc::new(all.take(BATCH).collect::<Vec<_>>());
                    let last = batch.len() < BATCH;
                    // Whoever does not listen any more has been told to stop.
                    let sent = models.iter().all(|model| model.send(Arc::clone(&batch)).is_ok());
                    if !sent || to_books.send((batch, failed)).is_err() || last {
                        return;
                    }
                }
            });
            for (batch, failed) in batches_read {
                // A model that does not answer has panicked; so does the scope.
                let Ok(said) = answers.iter().map(Receiver::recv).collect::<Result<Vec<_>, _>>() else {
                    break;
                };
                let mut said: Vec<_> = said
                    .into_iter()
                    .map(|answers| (answers.predictions.into_iter(), answers.levels.into_iter()))
                    .collect();
                for record in batch.iter() {
                    predictions.clear();
                    match record {
                        Record::Event(event) => {
                            let class = classify(event);
                            predictions.extend(said.iter_mut().map(|(predictions, _)| match class {
                                Class::Elsewhere => None,
                                _ => predictions.next().flatten(),
                            }));
                            books.event(event, class, predictions, reported);
                        }
                        Record::Sample(sample) => {
                            if let Some(counted) = counters.take(sample) {
                                let levels =
                                    said.iter_mut().map(|(_, levels)| levels.next().unwrap_or_default());
                                let mut dirtied = Bytes::ZERO;
                                for (at, (modelled, so_far)) in levels.enumerate() {
                                    books.compared(at, modelled, &counted);
                                    dirtied = if at == 0 { so_far } else { dirtied };
                                }
                                books.sample(sample, dirtied);
                            }
                        }
                        other => books.collector.note(other),
                    }
                    let shown =
                        if matches!(record, Record::Event(_)) { &predictions[..reported] } else { &[] };
                    if !each(record, shown) {
                        return Ok(());
                    }
                }
                if let Some(error) = failed {
                    return Err(error);
                }
            }
            Ok(())
        })
    }
}
