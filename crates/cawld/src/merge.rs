//! Puts the calls of many threads back into one order.
//!
//! Each thread delivers its calls in order, but in batches and late. [`Merge`] holds calls until
//! nothing earlier is to be expected any more, then releases them by start time. What comes later than
//! that is released at once: a late call is better than a lost one.

use std::collections::{BTreeMap, VecDeque};

use cawl_core::{Record, Time};
use cawl_wire::Event;

use crate::held::Held;

/// Who delivers records in order: a thread, or one of the daemon's own sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The sampler.
    Samples,
    /// Ends of sessions.
    Ends,
    /// A thread, by session and thread id.
    Thread(u32, u32),
}

/// Records waiting for their turn.
#[derive(Default)]
pub struct Merge {
    queues: BTreeMap<Source, Queue>,
}

/// What one source delivered.
#[derive(Default)]
struct Queue {
    calls: Held,
    others: VecDeque<(Time, Record)>,
}

impl Queue {
    /// The time of the first one.
    fn first(&self) -> Option<Time> {
        let other = self.others.front().map(|(time, _)| *time);
        self.calls.first().into_iter().chain(other).min()
    }

    /// Takes out the first one, which is that of this time.
    fn pop(&mut self, first: Time) -> Option<Record> {
        if self.calls.first() == Some(first) {
            return self.calls.pop().map(Record::Event);
        }
        self.others.pop_front().map(|(_, record)| record)
    }
}

impl Merge {
    /// Adds a record that happened at `time`.
    pub fn push(&mut self, source: Source, time: Time, record: Record) {
        self.queues.entry(source).or_default().others.push_back((time, record));
    }

    /// Adds calls of one session, in the order in which their threads made them.
    pub fn push_calls(&mut self, session: u32, calls: impl Iterator<Item = Event>) {
        let mut calls = calls.peekable();
        while let Some(first) = calls.peek() {
            // Calls of a thread come in runs: one search for each.
            let tid = first.tid;
            let queue = self.queues.entry(Source::Thread(session, tid)).or_default();
            while let Some(call) = calls.next_if(|call| call.tid == tid) {
                queue.calls.push(call);
            }
        }
    }

    /// Hands out, in order of time, what happened before `until`, at most `most` records; true if
    /// that was all.
    pub fn release(&mut self, until: Time, most: usize, mut take: impl FnMut(Record)) -> bool {
        let mut left = most;
        while left > 0 {
            // The source whose turn it is, and the moment the next one's comes.
            let mut first: Option<(Time, Source)> = None;
            let mut second = until;
            for (source, queue) in &self.queues {
                let Some(time) = queue.first() else { continue };
                match first {
                    Some((earliest, _)) if time >= earliest => second = second.min(time),
                    _ => {
                        if let Some((earliest, _)) = first {
                            second = second.min(earliest);
                        }
                        first = Some((time, *source));
                    }
                }
            }
            let Some((earliest, source)) = first.filter(|(time, _)| *time < until) else { break };
            let Some(queue) = self.queues.get_mut(&source) else { break };
            let mut limit = second.max(earliest);
            while left > 0
                && let Some(time) = queue.first().filter(|time| *time <= limit && *time < until)
                && let Some(record) = queue.pop(time)
            {
                take(record);
                limit = second;
                left -= 1;
            }
        }
        if left > 0 {
            self.queues.retain(|_, queue| queue.first().is_some());
        }
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Record {
        Record::Note(text.to_owned())
    }

    fn released(merge: &mut Merge, until: u64) -> String {
        let mut out = String::new();
        merge.release(Time(until), usize::MAX, |record| {
            if let Record::Note(text) = record {
                out.push_str(&text);
            }
        });
        out
    }

    #[test]
    fn threads_are_interleaved_by_time() {
        let mut merge = Merge::default();
        for (thread, time, name) in [(1, 10, "a"), (1, 30, "c"), (1, 50, "e"), (2, 20, "b"), (2, 40, "d")] {
            merge.push(Source::Thread(1, thread), Time(time), note(name));
        }
        assert_eq!(released(&mut merge, 40), "abc");
        merge.push(Source::Samples, Time(45), note("s"));
        assert_eq!(released(&mut merge, 1000), "dse");
        assert_eq!(released(&mut merge, u64::MAX), "");
    }

    #[test]
    fn pieces_come_in_the_same_order() {
        let mut merge = Merge::default();
        for (thread, time, name) in [(1, 10, "a"), (1, 30, "c"), (1, 31, "d"), (2, 20, "b"), (2, 40, "e")] {
            merge.push(Source::Thread(1, thread), Time(time), note(name));
        }
        let mut out = String::new();
        let mut pieces = 0;
        let mut more = true;
        while more {
            more = !merge.release(Time(40), 2, |record| {
                if let Record::Note(text) = record {
                    out.push_str(&text);
                }
            });
            pieces += 1;
        }
        assert_eq!((out.as_str(), pieces), ("abcd", 3));
    }

    #[test]
    fn what_comes_late_is_not_lost() {
        let mut merge = Merge::default();
        merge.push(Source::Thread(1, 1), Time(100), note("b"));
        assert_eq!(released(&mut merge, 200), "b");
        merge.push(Source::Thread(1, 2), Time(50), note("a"));
        assert_eq!(released(&mut merge, 200), "a");
    }

    #[test]
    fn equal_times_make_progress() {
        let mut merge = Merge::default();
        for thread in 0..3 {
            merge.push(Source::Thread(0, thread), Time(5), note("x"));
            merge.push(Source::Thread(0, thread), Time(5), note("y"));
        }
        assert_eq!(released(&mut merge, 6).len(), 6);
    }
}
