//! What the daemon's own lane keeps for those who ask: books, the past, and the latest calls.

use cawl_core::{ModelState, Prediction, Record, Sample, Session, Tally, Time};

use crate::books::Books;
use crate::clock::Clocks;
use crate::history::{History, Sums};
use crate::latest::Latest;

/// Books of what goes on.
#[derive(Default)]
pub struct Live {
    /// By process, file and device.
    pub books: Books,
    /// The past day.
    pub history: History,
    /// Some of the latest calls.
    pub latest: Latest,
    /// Totals that the history has.
    told: Sums,
    /// The latest sample.
    sample: Option<Sample>,
    page: u64,
}

impl Live {
    /// Empty books of a machine with pages of this size.
    pub fn new(page: u64) -> Live {
        Live { page, ..Live::default() }
    }

    /// A process image begins.
    pub fn begin(&mut self, session: &Session) {
        self.books.begin(session);
    }

    /// Calls of a process have arrived.
    pub fn arrived(&mut self, session: u32, tally: Tally) {
        self.books.arrived(session, tally);
    }

    /// A record, in order of time, and what the models said of it if it is a call.
    pub fn take(&mut self, record: &Record, predictions: &[Option<Prediction>]) {
        match record {
            Record::Event(event) => {
                let prediction = predictions.first().and_then(Option::as_ref);
                self.books.call(event, prediction);
                if let Some(prediction) = prediction {
                    self.latest.call(event, prediction);
                }
            }
            Record::Sample(sample) => {
                self.history.sampled(sample.dirty_bytes(cawl_core::Bytes(self.page)));
                // Both count since boot.
                let written = |before: Sample| sample.written.saturating_sub(before.written) * self.page;
                let written = self.sample.map_or(0, written);
                self.history.add(&Sums { written, ..Sums::default() });
                self.sample = Some(*sample);
            }
            Record::File(file) => self.books.name(file),
            Record::End(end) => self.books.end(end.id),
            _ => {}
        }
    }

    /// Time has passed; the first model stands there, and so many events were lost in all.
    pub fn pass(&mut self, clocks: &Clocks, state: &ModelState, drops: u64) {
        let total = &self.books.total;
        let now = Sums {
            calls: total.calls,
            bytes: total.bytes,
            observed: total.observed,
            predicted: total.predicted,
            throttled: total.throttled,
            sync: total.sync,
            written: 0,
            drops,
        };
        self.history.add(&now.since(&self.told));
        self.told = now;
        self.history.modelled(state.dirty, state.limits, state.phase);
        self.history.pass(clocks);
        self.latest.pass(clocks.monotonic);
    }

    /// Bytes per second that traced programs write to files.
    pub fn rate(&self, now: Time) -> f64 {
        self.books.total.rate(now)
    }
}
