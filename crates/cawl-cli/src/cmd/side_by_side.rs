//! An analysis whose models run concurrently: each in a thread of its own, the reader in another.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use cawl_core::{Analysis, Answers, Record, Shown};

/// Records of a batch: enough to pay for the hand-over, few enough for the processor's cache.
const BATCH: usize = 2048;
/// Most batches in a channel.
const WAITING: usize = 2;

/// Takes records until there are no more or `each` returns false; the models may be ahead by then. `each`
/// gets every record with what [`Analysis::take`] says of it. An error ends it after the
/// records before it were taken.
pub fn take_all<E: Send>(
    analysis: &mut Analysis,
    mut records: impl Iterator<Item = Result<Record, E>> + Send,
    mut each: impl FnMut(&Record, Shown<'_>) -> bool,
) -> Result<(), E> {
    let (parts, mut findings) = analysis.split();
    thread::scope(|scope| {
        let (mut models, mut answers): (Vec<_>, Vec<Receiver<Answers>>) = (Vec::new(), Vec::new());
        for mut model in parts {
            let (to_model, records) = sync_channel::<Arc<Vec<Record>>>(WAITING);
            let (to_findings, from_model) = sync_channel(WAITING);
            scope.spawn(move || {
                for batch in records {
                    if to_findings.send(model.answer(&batch)).is_err() {
                        return;
                    }
                }
            });
            models.push(to_model);
            answers.push(from_model);
        }
        let (to_findings, batches) = sync_channel(WAITING);
        scope.spawn(move || {
            loop {
                let mut failed = None;
                let all =
                    records.by_ref().map_while(|record| record.map_err(|error| failed = Some(error)).ok());
                let batch = Arc::new(all.take(BATCH).collect::<Vec<_>>());
                let last = batch.len() < BATCH;
                // A receiver that is gone has ended early.
                let sent = models.iter().all(|model| model.send(Arc::clone(&batch)).is_ok());
                if !sent || to_findings.send((batch, failed)).is_err() || last {
                    return;
                }
            }
        });
        for (batch, failed) in batches {
            // A model that does not answer has panicked; the scope passes that on.
            let Ok(said) = answers.iter().map(Receiver::recv).collect::<Result<Vec<_>, _>>() else { break };
            if !findings.take(&batch, &said, &mut each) {
                break;
            }
            if let Some(error) = failed {
                return Err(error);
            }
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
                let result =
                    take_all(&mut beside, records.iter().cloned().map(Ok).chain(error), |record, shown| {
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
            take_all(&mut analysis(learn), endless, enough).unwrap();
            assert_eq!(shown, count.max(1));
        }
    }
}
