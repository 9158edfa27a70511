//! Sorts the calls of many threads by time.
//!
//! Each thread delivers its calls in order, but in batches and late. [`Merge`] holds calls, in the memory of
//! their batch, until no earlier one is expected, then releases them by start time. A later arrival is
//! released at once: a late call is better than a lost one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cawl_core::{Record, Time};
use cawl_wire::Event;

/// A source of ordered records: a thread, or one of the daemon's own sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Samples,
    Ends,
    /// A thread, by session and thread id.
    Thread(u32, u32),
}

/// Records waiting for their turn.
#[derive(Default)]
pub struct Merge {
    queues: BTreeMap<Source, Queue>,
    /// The sources with records, by the time of their first one.
    turns: BTreeSet<(Time, Source)>,
    /// Calls that wait.
    pub calls: usize,
}

/// The records of one source.
#[derive(Default)]
struct Queue {
    calls: VecDeque<Stretch>,
    others: VecDeque<(Time, Record)>,
    /// Its place in the turns.
    turn: Option<Time>,
}

/// Consecutive calls of one thread in a batch; at least one.
struct Stretch {
    batch: Arc<Vec<Event>>,
    left: Range<usize>,
}

impl Stretch {
    fn first(&self) -> &Event {
        &self.batch[self.left.start]
    }
}

impl Queue {
    fn first_call(&self) -> Option<Time> {
        self.calls.front().map(|stretch| Time(stretch.first().start))
    }

    fn first(&self) -> Option<Time> {
        let other = self.others.front().map(|(time, _)| *time);
        self.first_call().into_iter().chain(other).min()
    }

    /// Removes the first one, which has this time.
    fn pop(&mut self, first: Time) -> Option<Record> {
        if self.first_call() != Some(first) {
            return self.others.pop_front().map(|(_, record)| record);
        }
        let stretch = self.calls.front_mut()?;
        let call = *stretch.first();
        stretch.left.start += 1;
        if stretch.left.is_empty() {
            self.calls.pop_front();
        }
        Some(Record::Event(call))
    }
}

impl Merge {
    fn add(&mut self, source: Source, add: impl FnOnce(&mut Queue)) {
        let queue = self.queues.entry(source).or_default();
        add(queue);
        let first = queue.first();
        if queue.turn != first {
            if let Some(before) = queue.turn {
                self.turns.remove(&(before, source));
            }
            self.turns.extend(first.map(|first| (first, source)));
            queue.turn = first;
        }
    }

    /// Adds a record that happened at `time`.
    pub fn push(&mut self, source: Source, time: Time, record: Record) {
        self.add(source, |queue| queue.others.push_back((time, record)));
    }

    /// Adds calls of one session, in the order in which their threads made them.
    pub fn push_calls(&mut self, session: u32, calls: &Arc<Vec<Event>>) {
        self.calls += calls.len();
        let mut begin = 0;
        for part in calls.chunk_by(|one, next| one.tid == next.tid) {
            let stretch = Stretch { batch: Arc::clone(calls), left: begin..begin + part.len() };
            begin = stretch.left.end;
            self.add(Source::Thread(session, part[0].tid), |queue| queue.calls.push_back(stretch));
        }
    }

    /// Releases the records before `until` in order of time, at most `most`, and none after one that `take`
    /// says is enough; true if that was all.
    pub fn release(&mut self, until: Time, most: usize, mut take: impl FnMut(Record) -> bool) -> bool {
        let mut left = most;
        while left > 0
            && let Some(&(earliest, source)) = self.turns.first().filter(|(time, _)| *time < until)
            && let Some(queue) = self.queues.get_mut(&source)
        {
            self.turns.pop_first();
            // The time of the next source's turn.
            let second = self.turns.first().map_or(until, |(time, _)| until.min(*time));
            let mut limit = second.max(earliest);
            while left > 0
                && let Some(time) = queue.first().filter(|time| *time <= limit && *time < until)
                && let Some(record) = queue.pop(time)
            {
                self.calls -= usize::from(matches!(record, Record::Event(_)));
                left = if take(record) { 0 } else { left - 1 };
                limit = second;
            }
            queue.turn = queue.first();
            self.turns.extend(queue.turn.map(|first| (first, source)));
        }
        if left > 0 {
            self.queues.retain(|_, queue| queue.turn.is_some());
        }
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use cawl_wire::Op;
    use proptest::prelude::*;

    use super::*;

    fn note(text: &str) -> Record {
        Record::Note(text.to_owned())
    }

    /// Notes of threads: thread, time, text.
    fn push(merge: &mut Merge, notes: &[(u32, u64, &str)]) {
        for (thread, time, name) in notes {
            merge.push(Source::Thread(1, *thread), Time(*time), note(name));
        }
    }

    fn released(merge: &mut Merge, until: u64) -> String {
        let mut out = String::new();
        merge.release(Time(until), usize::MAX, |record| {
            if let Record::Note(text) = record {
                out.push_str(&text);
            }
            false
        });
        out
    }

    #[test]
    fn threads_are_interleaved_by_time() {
        let mut merge = Merge::default();
        push(&mut merge, &[(1, 10, "a"), (1, 30, "c"), (1, 50, "e"), (2, 20, "b"), (2, 40, "d")]);
        assert_eq!(released(&mut merge, 40), "abc");
        merge.push(Source::Samples, Time(45), note("s"));
        assert_eq!(released(&mut merge, 1000), "dse");
        // What comes late is not lost, and equal times make progress.
        push(&mut merge, &[(3, 5, "l"), (1, 60, "x"), (1, 60, "y"), (2, 60, "z")]);
        assert_eq!(released(&mut merge, u64::MAX), "lxyz");
    }

    #[test]
    fn pieces_come_in_the_same_order() {
        let mut merge = Merge::default();
        push(&mut merge, &[(1, 10, "a"), (1, 30, "c"), (1, 31, "d"), (2, 20, "b"), (2, 40, "e")]);
        let mut out = String::new();
        let mut pieces = 0;
        let mut more = true;
        while more {
            more = !merge.release(Time(40), 2, |record| {
                let Record::Note(text) = record else { panic!("{record:?}") };
                out.push_str(&text);
                text == "a"
            });
            pieces += 1;
        }
        assert_eq!((out.as_str(), pieces), ("abcd", 3));
    }

    /// A plain implementation for comparison: asks each source at every turn.
    #[derive(Default)]
    struct Plain(BTreeMap<Source, VecDeque<(Time, u32)>>);

    impl Plain {
        fn release(&mut self, until: Time, most: usize) -> (Vec<u32>, bool) {
            let mut out = Vec::new();
            while out.len() < most {
                let firsts = || self.0.iter().filter_map(|(source, queue)| Some((queue.front()?.0, *source)));
                let Some(turn) = firsts().min().filter(|(time, _)| *time < until) else { break };
                let second = firsts().filter(|other| *other != turn).map(|(time, _)| time).min();
                let second = second.map_or(until, |second| second.min(until));
                // A late record is released alone; of equal times the same source continues.
                let mut limit = second.max(turn.0);
                let queue = self.0.get_mut(&turn.1).unwrap();
                while out.len() < most
                    && let Some((_, name)) = queue.pop_front_if(|(time, _)| *time <= limit && *time < until)
                {
                    out.push(name);
                    limit = second;
                }
            }
            let all = out.len() < most;
            (out, all)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Of these threads, at these times.
        Calls(u32, Vec<(u32, u64)>),
        Sample(u64),
        End(u64),
        Release(u64, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let call = (0u32..5, 0u64..40);
        prop_oneof![
            4 => (0u32..3, prop::collection::vec(call, 1..8)).prop_map(|(session, calls)| Step::Calls(session, calls)),
            1 => (0u64..40).prop_map(Step::Sample),
            1 => (0u64..40).prop_map(Step::End),
            3 => (0u64..45, prop_oneof![0usize..4, Just(usize::MAX)])
                .prop_map(|(until, most)| Step::Release(until, most)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn the_order_is_that_of_asking_every_source(mut steps in prop::collection::vec(step(), 1..60)) {
            steps.push(Step::Release(u64::MAX, usize::MAX));
            let (mut merge, mut plain) = (Merge::default(), Plain::default());
            let mut name = 0;
            for step in steps {
                let mut add = |source, time| {
                    name += 1;
                    plain.0.entry(source).or_default().push_back((Time(time), name));
                    name
                };
                match step {
                    Step::Calls(session, calls) => {
                        let call = |(tid, start): (u32, u64)| {
                            let aux = add(Source::Thread(session, tid), start);
                            Event { tid, start, aux, ..Event::new(Op::Write) }
                        };
                        merge.push_calls(session, &Arc::new(calls.into_iter().map(call).collect()));
                    }
                    Step::Sample(time) => {
                        let name = add(Source::Samples, time).to_string();
                        merge.push(Source::Samples, Time(time), note(&name));
                    }
                    Step::End(time) => {
                        let name = add(Source::Ends, time).to_string();
                        merge.push(Source::Ends, Time(time), note(&name));
                    }
                    Step::Release(until, most) => {
                        let mut out = Vec::new();
                        let all = merge.release(Time(until), most, |record| {
                            match record {
                                Record::Event(event) => out.push(event.aux),
                                Record::Note(name) => out.push(name.parse().unwrap()),
                                other => panic!("{other:?}"),
                            }
                            false
                        });
                        prop_assert_eq!((out, all), plain.release(Time(until), most));
                    }
                }
            }
            prop_assert!(merge.queues.is_empty() && merge.turns.is_empty() && merge.calls == 0);
        }
    }
}
