//! The tables of the daemon's own lane for questions: sums, the past day, and a sample of the latest calls.

use cawl_core::{Bytes, CallSums, Causes, Class, ModelState, Nanos, Prediction, Record, Sample, classify};
use cawl_host::clock::Clocks;

use crate::call_sample::CallSample;
use crate::history::{History, Sums};
use crate::totals::Totals;

/// The tables for questions.
#[derive(Default)]
pub struct QueryTables {
    /// Sums by process, file and device.
    pub totals: Totals,
    /// The past day.
    pub history: History,
    /// A sample of the latest calls.
    pub call_sample: CallSample,
    /// The calls and the events lost that are already in the history.
    told: (CallSums, u64),
    /// The latest sample.
    sample: Option<Sample>,
    /// Number of samples compared with the model.
    compared: u64,
    /// The kernel's pauses already in the history, and the number of pauses lost.
    paused: Option<(Nanos, u64)>,
    page: u64,
}

impl QueryTables {
    /// Empty tables of a machine with pages of this size.
    pub fn new(page: u64) -> QueryTables {
        QueryTables { page, ..QueryTables::default() }
    }

    /// Takes a record, in order of time, with the answering model's prediction of the latest call, and its
    /// causes.
    pub fn take(&mut self, record: &Record, prediction: Option<&Prediction>, causes: Option<Causes<'_>>) {
        match record {
            Record::Event(event) => {
                // Without an observed time there is no comparison.
                let prediction = prediction.filter(|_| classify(event) != Class::Untimed);
                self.totals.call(event, prediction, causes);
                if let Some(prediction) = prediction {
                    self.call_sample.call(event, prediction, causes.map(|causes| causes.main));
                }
            }
            Record::Sample(sample) => {
                self.history.sampled(sample.dirty_bytes(Bytes(self.page)));
                // Both count since boot.
                let written = |before: Sample| sample.written.saturating_sub(before.written) * self.page;
                let written = self.sample.map_or(0, written);
                self.history.add(&Sums { written, ..Sums::default() });
                self.sample = Some(*sample);
            }
            Record::File(file) => self.totals.name(file),
            Record::End(end) => self.totals.end(end.id),
            _ => {}
        }
    }

    /// Takes the number of samples compared, and the difference of model and kernel at the latest.
    pub fn apart(&mut self, latest: Option<(u64, Bytes)>) {
        if let Some((compared, apart)) = latest.filter(|(compared, _)| *compared != self.compared) {
            self.compared = compared;
            self.history.apart(apart);
        }
    }

    /// Takes the kernel's pauses since sampling began, and the number of pauses lost.
    pub fn paused(&mut self, told: Option<(Nanos, u64)>) {
        let before = self.paused.unwrap_or_default();
        let more = told.map(|(paused, _)| paused.saturating_sub(before.0));
        self.history.add(&Sums { paused: more, ..Sums::default() });
        // The first reading has no predecessor, and an incomplete one is no bound.
        let whole = told.is_some_and(|(_, untold)| self.paused.is_some() && untold == before.1);
        self.totals.paused(more.filter(|_| whole));
        self.paused = told;
    }

    /// Time has passed: takes the first model's state, and the number of events lost.
    pub fn pass(&mut self, clocks: &Clocks, state: &ModelState, drops: u64) {
        let (total, (calls, lost)) = (self.totals.total.sums, self.told);
        self.history.add(&Sums {
            calls: total.since(&calls),
            written: 0,
            // Read once a second: a point without a reading has no pauses.
            paused: self.paused.map(|_| Nanos::ZERO),
            drops: drops.saturating_sub(lost),
        });
        self.told = (total, drops);
        self.history.modelled(state.dirty, state.limits, state.regime);
        self.history.pass(clocks);
        self.call_sample.pass(clocks.monotonic);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use cawl_core::{
        AnalysisOptions, Cause, EndKind, HostFacts, HostProfile, Mode, Session, SessionEnd, Tally, Time,
    };
    use cawl_wire::{Event, FileKind, Op};

    use crate::lane::Lane;
    use crate::merge::Source;
    use cawl_client::protocol::{HistorySpan, Sort};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_sample_counts_once_and_pauses_since_the_look_before() {
        let mut tables = QueryTables::new(4096);
        let clocks = |second: u64| {
            let now = Time(second * SECOND);
            Clocks { monotonic: now, boot: now, real: now }
        };
        let model = cawl_core::build("naive", &HostProfile::uncalibrated()).expect("a model");
        let state = model.state();
        tables.pass(&clocks(100), &state, 0);
        for (compared, apart) in [(1, 10), (1, 10), (2, 40)] {
            tables.apart(Some((compared, Bytes(apart))));
        }
        tables.apart(None);
        for total in [2.0, 2.0, 5.0] {
            tables.paused(Some((Nanos::seconds(total), 0)));
        }
        tables.pass(&clocks(101), &state, 0);
        tables.pass(&clocks(102), &state, 0);
        let points = tables.history.answer(&HistorySpan::default(), &clocks(102)).points;
        assert_eq!((points[0].dirty_error_bytes, points[0].paused_s), (Some(25), Some(5.0)));
        assert_eq!(
            (points[1].dirty_error_bytes, points[1].paused_s),
            (None, Some(0.0)),
            "no look, no pauses"
        );
    }

    /// Untraced writers keep the level at nine tenths of the limit: only a model that follows the samples can
    /// explain a throttled writer.
    #[test]
    fn throttled_time_is_told_by_the_model_that_answers() {
        let profile = HostProfile::uncalibrated();
        let throttled = |for_questions: Vec<(String, Mode)>| {
            let models = vec!["kernel".to_owned()];
            let options = AnalysisOptions { models, for_questions, ..AnalysisOptions::default() };
            let mut lane =
                Lane::new(&profile, &options, None, HostFacts::default()).unwrap().with_tables(&profile);
            for n in 1..=400 {
                let now = Time(1000 * SECOND + n * SECOND / 20);
                let (background, hard) = (16_384, 32_768);
                let sample = Sample { time: now, dirty: 30_000, background, hard, ..Sample::default() };
                lane.analyse(Record::Sample(sample));
                let mut event = Event::new(Op::Write);
                (event.kind, event.dev, event.ino, event.pid) = (FileKind::Regular, 5, 1, 7);
                (event.start, event.offset) = (now.0 + 1000, n << 20);
                (event.requested, event.returned, event.duration) = (1 << 20, 1 << 20, 40_000_000);
                lane.analyse(Record::Event(event));
            }
            let totals = &mut lane.tables.as_deref_mut().unwrap().totals;
            totals.settle();
            assert_eq!(totals.total.sums.time.observed().total(), 400 * 40_000_000, "all time has a cause");
            let throttled = totals.total.sums.time.observed()[Cause::Throttle] as f64 / 1e9;
            (totals.total.cost(Time(1020 * SECOND)).throttled_s, throttled)
        };
        let (alone, told) =
            (throttled(Vec::new()), throttled(vec![("kernel".to_owned(), Mode::Assimilated)]));
        assert!(told.0 > 8.0 && alone.0 < 2.0, "{told:?} s of 16 s, {alone:?} s without samples");
        assert!(told.1 > 8.0, "as a cause: {told:?} s of 16 s");
    }

    /// Resident memory of this process in bytes.
    fn resident(page: u64) -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * page
    }

    /// A day of work in compressed time: programs come and go, each writes files of its own, and the machine
    /// sleeps an hour at noon while the wall clock is set back. Model and tables are full by noon.
    #[test]
    fn a_day_takes_bounded_room_and_every_sum_is_right() {
        // In a process of its own, since memory is that of the whole process.
        const ALONE: &str = "CAWL_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.args(["--exact", "query_tables::tests::a_day_takes_bounded_room_and_every_sum_is_right"]);
            let done = alone.env(ALONE, "1").output().unwrap();
            let told = String::from_utf8_lossy(&done.stdout);
            return assert!(done.status.success() && told.contains("1 passed"), "{told}");
        }
        let profile = HostProfile::uncalibrated();
        let options =
            AnalysisOptions { models: vec!["kernel".to_owned()], mode: Mode::Lockstep, ..Default::default() };
        let page = profile.kernel.page.0;
        let mut lane =
            Lane::new(&profile, &options, None, HostFacts::default()).unwrap().with_tables(&profile);
        let start = 1_000_000;
        let (mut slept, mut calls, mut bytes) = (0, 0, 0);
        let clocks = |second: u64, slept: u64| Clocks {
            monotonic: Time((start + second) * SECOND),
            boot: Time((start + second + slept) * SECOND),
            real: Time(if slept > 0 { SECOND } else { 1_700_000_000 * SECOND }),
        };
        let mut held = [0; 2];
        for second in 0..86_400 - 3600 {
            if second == 12 * 3600 {
                held[0] = resident(page);
            }
            slept = if second > 12 * 3600 { 3600 } else { 0 };
            let id = second as u32;
            let now = clocks(second, slept).monotonic;
            let sample = Sample { time: now, dirty: second % 100, written: second, ..Sample::default() };
            lane.merge.push(Source::Samples, now, Record::Sample(sample));
            // Enough programs for more files than tables and model hold before noon.
            if second % 4 == 0 {
                lane.begin(Session { id, pid: 100 + id % 1000, started: now, ..Session::default() });
                let call = |ino: u64| {
                    let mut event = Event::new(Op::Write);
                    (event.kind, event.dev, event.ino, event.pid) =
                        (FileKind::Regular, 5, ino, 100 + id % 1000);
                    (event.start, event.requested, event.returned, event.duration) = (now.0, 10, 10, 1000);
                    event
                };
                lane.hold_calls(id, &Arc::new((0..4).map(|n| call(second * 4 + n)).collect()), 0);
                (calls, bytes) = (calls + 4, bytes + 40);
                lane.end(SessionEnd::new(id, now, EndKind::Exit));
            }
            while !lane.release(Time(u64::MAX), usize::MAX) {}
            lane.pass(&clocks(second, slept), second / 1000);
        }
        held[1] = resident(page);
        let grown = held[1].saturating_sub(held[0]);
        assert!(grown < 32 << 20, "{grown} B more in the evening than at noon");
        let end = clocks(86_400 - 3600, slept);
        lane.pass(&end, 83);
        let tables = lane.tables.as_deref().unwrap();
        assert_eq!(tables.totals.total.sums.count, Tally { calls, bytes });
        assert!(tables.totals.processes(Sort::Lost, 0..10, end.monotonic).0.is_empty());
        let (files, more) = tables.totals.files(Sort::Lost, 0..usize::MAX, end.monotonic);
        assert!(files.len() <= 2 * 8192, "{}", files.len());
        assert_eq!(more, 0);
        assert_eq!(
            files.len() as u64 + tables.totals.files_omitted,
            calls,
            "each call was to a file of its own"
        );
        let span = HistorySpan { last_s: Some(86_400.0), points: Some(100_000) };
        let points = tables.history.answer(&span, &end).points;
        assert!(points.len() <= 1440 + 1, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.calls).sum::<u64>(), calls);
        assert_eq!(points.iter().map(|point| point.drops).sum::<u64>(), 83);
        assert_eq!(points.iter().map(|point| point.written_bytes).sum::<u64>(), (86_400 - 3600 - 1) * page);
        assert_eq!(points.iter().map(|point| point.span_s).sum::<f64>(), 86_400.0 - 3600.0);
        assert!(points.is_sorted_by_key(|point| point.time_s), "whatever the wall clock did");
    }
}
