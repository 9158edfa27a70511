//! An analysis whose models run concurrently: each in a thread of its own, the reader in another.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread;

use cawl_core::{Analysis, Answers, Record, Shown};

/// Records of a batch: enough to pay for the hand-over; few enough that what the models say of it, which is
/// five times as long, stays in the processor's cache until the findings have taken it.
const BATCH: usize = 2048;
/// Most batches in a channel: no thread waits for another because that has a long batch.
const WAITING: usize = 4;

/// A thread's models, to the findings: what they say, and the way back for what was taken of it. Memory goes
/// round, as the kernel takes longer to supply it than a model to fill it.
struct Model {
    answers: Receiver<Answers>,
    taken: Sender<Answers>,
}

/// Takes records until there are no more or `each` returns false; the models may be ahead by then. `read`
/// adds the next ones to a batch, as many as it is told, or fewer at the end. `each` gets every record with
/// what [`Analysis::take`] says of it. An error ends it after the records before it were taken.
pub fn take_all<E: Send>(
    analysis: &mut Analysis,
    mut read: impl FnMut(&mut Vec<Record>, usize) -> Result<(), E> + Send,
    mut each: impl FnMut(&Record, Shown<'_>) -> bool,
) -> Result<(), E> {
    let (parts, mut findings) = analysis.split();
    thread::scope(|scope| {
        let (mut to_models, mut models) = (Vec::new(), Vec::new());
        for mut part in parts {
            let (to_model, batches) = sync_channel::<Arc<Vec<Record>>>(WAITING);
            let (to_findings, answers) = sync_channel(WAITING);
            let (taken, spare) = channel();
            scope.spawn(move || {
                for batch in batches {
                    let mut answers = spare.try_recv().unwrap_or_default();
                    part.answer(&batch, &mut answers);
                    // The findings, which come last, give it back to the reader.
                    drop(batch);
                    if to_findings.send(answers).is_err() {
                        return;
                    }
                }
            });
            to_models.push(to_model);
            models.push(Model { answers, taken });
        }
        let (to_findings, batches) = sync_channel(WAITING);
        let (taken, spare) = channel::<Vec<Record>>();
        scope.spawn(move || {
            loop {
                let mut batch = spare.try_recv().unwrap_or_default();
                batch.clear();
                let failed = read(&mut batch, BATCH).err();
                let last = batch.len() < BATCH;
                let batch = Arc::new(batch);
                // A receiver that is gone has ended early.
                let sent = to_models.iter().all(|model| model.send(Arc::clone(&batch)).is_ok());
                if !sent || to_findings.send((batch, failed)).is_err() || last {
                    return;
                }
            }
        });
        for (batch, failed) in batches {
            // A model that does not answer has panicked; the scope passes that on.
            let said = models.iter().map(|model| model.answers.recv()).collect::<Result<Vec<_>, _>>();
            let Ok(said) = said else { break };
            if !findings.take(&batch, &said, &mut each) {
                break;
            }
            if let Some(error) = failed {
                return Err(error);
            }
            // One who is gone needs no memory.
            for (model, answers) in models.iter().zip(said) {
                let _ = model.taken.send(answers);
            }
            let _ = Arc::into_inner(batch).map(|batch| taken.send(batch));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{AnalysisOptions, HostProfile, Mode};
    use cawl_wire::{Event, FileKind, Op};

    fn call(at: u64) -> Record {
        let mut event = Event::new(Op::Pwrite);
        (event.start, event.duration, event.offset) =
            (1 + at * 10_000, 1000 + at % 7, at * 7919 % 5000 * 4096);
        (event.requested, event.returned, event.kind) = (4096, 4096, FileKind::Regular);
        Record::Event(event)
    }

    fn analysis(learn: bool) -> Analysis {
        let options = AnalysisOptions { mode: Mode::Assimilated, learn, ..AnalysisOptions::default() };
        Analysis::with(&HostProfile::uncalibrated(), &options).unwrap()
    }

    /// Reads from an iterator.
    fn reading<E>(
        mut from: impl Iterator<Item = Result<Record, E>>,
    ) -> impl FnMut(&mut Vec<Record>, usize) -> Result<(), E> {
        move |records, most| {
            for record in from.by_ref().take(most) {
                records.push(record?);
            }
            Ok(())
        }
    }

    #[test]
    fn all_is_taken_in_order_up_to_an_error_or_an_end() {
        for (learn, count) in [(false, 0), (false, 3 * BATCH), (false, 3 * BATCH + 5), (true, 3 * BATCH + 5)]
        {
            let mut plain = analysis(learn);
            let records: Vec<Record> = (0..count as u64).map(call).collect();
            let expected: Vec<_> =
                records.iter().map(|record| plain.take(record).predictions.to_vec()).collect();
            for fails in [false, true] {
                let (mut beside, mut said) = (analysis(learn), Vec::new());
                let error = fails.then_some(Err("the disk is gone"));
                let records_of = records.iter().cloned().map(Ok).chain(error);
                let result = take_all(&mut beside, reading(records_of), |record, shown| {
                    assert_eq!(record, &records[said.len()]);
                    said.push(shown.predictions.to_vec());
                    true
                });
                assert_eq!((result.is_err(), said == expected), (fails, true), "{count} records");
                let report = |analysis: &Analysis| serde_json::to_string(&analysis.report()).unwrap();
                assert_eq!(report(&beside), report(&plain));
            }
            // After `each` returned false it gets no more records.
            let mut shown = 0;
            let endless = (0..).map(|at| Ok::<_, ()>(call(at)));
            let enough = |_: &Record, _: Shown<'_>| {
                shown += 1;
                shown < count
            };
            take_all(&mut analysis(learn), reading(endless), enough).unwrap();
            assert_eq!(shown, count.max(1));
        }
    }
}
