//! Run delay: how long threads waited for a processor while they could run, as the kernel counts it
//! (`sched_info.run_delay`, /proc/PID/task/TID/schedstat), kept until the calls of that time come.
//!
//! The law of this module: **a delay is taken once.** The kernel tells how long a thread was delayed in an
//! interval, not when; what one call took of it is not there for another. The same holds for the time that it
//! was on a processor, and for the rest of the interval, in which it slept.

use std::collections::VecDeque;

use crate::model::LruMap;
use crate::record::RunDelay;
use crate::units::{Nanos, Time};

/// Intervals kept of each thread. When there are more, the first two become one, so that a call of any length
/// finds all the delay of its time.
const INTERVALS: usize = 32;

/// The run delay of threads that no call has taken yet.
#[derive(Default)]
pub struct RunDelays {
    threads: LruMap<(u32, u32), VecDeque<Interval>>,
    /// True once anything was added: most machines are idle enough.
    any: bool,
}

/// Run delay of one thread, in its order.
struct Interval {
    from: Time,
    to: Time,
    /// What no call has taken yet: run delay, time on a processor, sleep.
    left: Nanos,
    ran: Nanos,
    slept: Nanos,
    /// Time of the calls until now.
    called: Nanos,
}

/// How long a thread was on a processor during a call at most, and how long it slept, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// On a processor.
    pub ran: f64,
    /// Asleep.
    pub slept: f64,
}

impl Bounds {
    /// Nothing is known.
    pub const NONE: Bounds = Bounds { ran: f64::INFINITY, slept: f64::INFINITY };
}

impl RunDelays {
    /// Adds the delay of an interval. Those of one thread come in order.
    pub fn add(&mut self, delay: &RunDelay) {
        let RunDelay { pid, tid, from, to, ran, delayed } = *delay;
        self.any = true;
        // The kernel counts a wait when it is over. What finds no room in the interval began before it.
        let span = to.since(from);
        let mut before = (ran + delayed).saturating_sub(span);
        let slept = span.saturating_sub(ran + delayed);
        let from = Time(from.0.saturating_sub(before.get() as u64));
        let intervals = self.threads.of((pid, tid));
        // Until it was counted, it looked like sleep.
        for earlier in intervals.iter_mut().rev().take_while(|earlier| earlier.to > from) {
            let part = before.min(earlier.slept);
            earlier.slept = earlier.slept.saturating_sub(part);
            before = before.saturating_sub(part);
        }
        if intervals.len() >= INTERVALS
            && let (Some(first), Some(second)) = (intervals.pop_front(), intervals.front_mut())
        {
            second.from = first.from.min(second.from);
            second.left += first.left;
            second.ran += first.ran;
            second.slept += first.slept;
            second.called += first.called;
        }
        intervals.push_back(Interval { from, to, left: delayed, ran, slept, called: Nanos::ZERO });
    }

    /// What a thread did between these moments, at most. Time of which nothing is known may have been either.
    pub fn bounds(&self, pid: u32, tid: u32, from: Time, to: Time) -> Bounds {
        let Some(intervals) = self.threads.peek(&(pid, tid)).filter(|_| self.any) else {
            return Bounds::NONE;
        };
        let (mut ran, mut slept, mut known) = (Nanos::ZERO, Nanos::ZERO, from);
        for interval in intervals.iter().filter(|interval| interval.to > from && interval.from < to) {
            let overlap = interval.to.min(to).since(interval.from.max(from));
            let unknown = interval.from.since(known);
            ran += interval.ran.min(overlap) + unknown;
            slept += interval.slept.min(overlap) + unknown;
            known = known.max(interval.to);
        }
        let unknown = to.since(known);
        Bounds { ran: (ran + unknown).get(), slept: (slept + unknown).get() }
    }

    /// A call took this of what its thread did between these moments.
    pub fn spend(&mut self, pid: u32, tid: u32, from: Time, to: Time, spent: Bounds) {
        if !self.any || self.threads.peek(&(pid, tid)).is_none() {
            return;
        }
        let (mut ran, mut slept) = (Nanos::new(spent.ran), Nanos::new(spent.slept));
        for interval in self.threads.of((pid, tid)).iter_mut().take_while(|interval| interval.from < to) {
            let overlap = interval.to.min(to).since(interval.from.max(from));
            interval.called += overlap;
            for (left, spent) in [(&mut interval.ran, &mut ran), (&mut interval.slept, &mut slept)] {
                let part = left.min(overlap).min(*spent);
                *left = left.saturating_sub(part);
                *spent = spent.saturating_sub(part);
            }
        }
    }

    /// Takes what is left of the run delay of a thread between these moments, at most so much. The moments of
    /// one thread's calls must be in order: what lies before `from` is forgotten. `waits`: the call waits for
    /// a device, and sleeps rather than it is delayed.
    pub fn take(&mut self, pid: u32, tid: u32, from: Time, to: Time, most: Nanos, waits: bool) -> Nanos {
        let mut taken = Nanos::ZERO;
        if !self.any || self.threads.peek(&(pid, tid)).is_none() {
            return taken;
        }
        let intervals = self.threads.of((pid, tid));
        while intervals.front().is_some_and(|interval| interval.to <= from) {
            intervals.pop_front();
        }
        for interval in intervals.iter_mut().take_while(|interval| interval.from < to) {
            let overlap = interval.to.min(to).since(interval.from.max(from));
            let thinking = if waits { interval.thinking(overlap, to) } else { Nanos::ZERO };
            let left = interval.left.saturating_sub(thinking);
            let part = left.min(overlap).min(most.saturating_sub(taken));
            interval.left = interval.left.saturating_sub(part);
            taken += part;
        }
        taken
    }
}

impl Interval {
    /// The delay that fell between calls, if a call until `to`, of this interval's time, slept as long as the
    /// thread did, and the thread is in calls for the part of the interval that it was until now.
    fn thinking(&self, overlap: Nanos, to: Time) -> Nanos {
        let until_now = self.to.min(to).since(self.from).get();
        let share = ((self.called + overlap).get() / until_now.max(1.0)).min(1.0);
        let thinking = self.to.since(self.from) * (1.0 - share);
        thinking.saturating_sub(self.ran).saturating_sub(self.slept.saturating_sub(overlap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(of: &[(u64, u64, f64)]) -> RunDelays {
        let mut delays = RunDelays::default();
        for &(from, to, delayed) in of {
            delays.add(&delay(7, from, to, delayed));
        }
        delays
    }

    fn delay(tid: u32, from: u64, to: u64, delayed: f64) -> RunDelay {
        let (from, to, delayed) = (Time(from), Time(to), Nanos::new(delayed));
        RunDelay { pid: 7, tid, from, to, ran: Nanos::ZERO, delayed }
    }

    const ALL: Nanos = Nanos::new(1e18);

    fn take(delays: &mut RunDelays, from: u64, to: u64, most: f64) -> f64 {
        delays.take(7, 7, Time(from), Time(to), Nanos::new(most), false).get()
    }

    #[test]
    fn a_delay_is_taken_once() {
        let mut delays = delays(&[(0, 100, 60.0)]);
        // At most what is asked for, at most the part of the interval, at most what is left.
        assert_eq!(take(&mut delays, 0, 10, 5.0), 5.0);
        assert_eq!(take(&mut delays, 10, 30, 1e9), 20.0);
        assert_eq!(take(&mut delays, 30, 90, 1e9), 35.0);
        assert_eq!(take(&mut delays, 90, 100, 1e9), 0.0);
    }

    #[test]
    fn a_long_call_takes_of_all_its_intervals() {
        let mut delays = delays(&[(0, 10, 4.0), (10, 20, 0.5), (30, 40, 7.0)]);
        assert_eq!(take(&mut delays, 5, 35, 1e9), 4.0 + 0.5 + 5.0);
        assert_eq!(take(&mut delays, 35, 50, 1e9), 2.0);
    }

    #[test]
    fn what_lies_before_a_call_is_of_no_call() {
        let mut delays = delays(&[(0, 10, 4.0), (10, 20, 4.0)]);
        assert_eq!(take(&mut delays, 10, 12, 1e9), 2.0);
        assert_eq!(take(&mut delays, 0, 10, 1e9), 0.0);
    }

    #[test]
    fn a_wait_is_counted_when_it_is_over() {
        // From 5 to 35, of which the first look at 20 saw nothing; from 35 to 40 the thread ran.
        let mut delays = delays(&[(0, 20, 0.0)]);
        delays.add(&RunDelay { ran: Nanos::new(5.0), ..delay(7, 20, 40, 30.0) });
        assert_eq!(take(&mut delays, 4, 37, 1e9), 30.0);
    }

    /// 10 ms of calls in an interval of 50 ms, of which the thread ran 20, slept 10 and was delayed for 20.
    #[test]
    fn a_call_that_may_have_slept_leaves_the_delay_to_the_thinking() {
        let taken = |slept: f64, waits: bool, from: u64| {
            let mut delays = RunDelays::default();
            delays.add(&RunDelay { ran: Nanos::new(30.0 - slept), ..delay(7, 0, 50, 20.0) });
            delays.take(7, 7, Time(from), Time(50), ALL, waits).get()
        };
        assert_eq!([taken(10.0, true, 40), taken(10.0, false, 40)], [0.0, 10.0]);
        // It slept 4 only.
        assert_eq!(taken(4.0, true, 40), 6.0);
        // The thread did nothing else.
        assert_eq!(taken(10.0, true, 0), 20.0);
    }

    #[test]
    fn sleep_is_what_is_left_of_an_interval() {
        let mut delays = delays(&[(0, 20, 6.0)]);
        delays.add(&RunDelay { ran: Nanos::new(5.0), ..delay(7, 20, 40, 5.0) });
        let bounds = |delays: &RunDelays, from, to| delays.bounds(7, 7, Time(from), Time(to));
        assert_eq!(bounds(&delays, 0, 20), Bounds { ran: 0.0, slept: 14.0 });
        // Of the second interval at most what overlaps; of what comes after it nothing is known.
        assert_eq!(bounds(&delays, 37, 50), Bounds { ran: 3.0 + 10.0, slept: 3.0 + 10.0 });
        delays.spend(7, 7, Time(0), Time(40), Bounds { ran: 1.0, slept: 16.0 });
        assert_eq!(bounds(&delays, 0, 40), Bounds { ran: 4.0, slept: 8.0 });
        // A wait that is counted late was no sleep.
        delays.add(&RunDelay { ran: Nanos::new(5.0), ..delay(7, 40, 50, 8.0) });
        assert_eq!(bounds(&delays, 20, 40).slept, 5.0);
        assert_eq!(delays.bounds(7, 8, Time(0), Time(9)), Bounds::NONE);
    }

    #[test]
    fn threads_have_their_own() {
        let mut delays = delays(&[(0, 10, 4.0)]);
        delays.add(&delay(8, 0, 10, 3.0));
        assert_eq!(delays.take(7, 9, Time(0), Time(10), ALL, false), Nanos::ZERO);
        assert_eq!(delays.take(8, 8, Time(0), Time(10), ALL, false), Nanos::ZERO);
        assert_eq!(delays.take(7, 8, Time(0), Time(10), ALL, false), Nanos::new(3.0));
        assert_eq!(delays.take(7, 7, Time(0), Time(10), ALL, false), Nanos::new(4.0));
    }

    #[test]
    fn however_many_there_are_none_is_lost_of_a_long_call() {
        let intervals: Vec<_> = (0..10 * INTERVALS as u64).map(|n| (10 * n, 10 * n + 10, 3.0)).collect();
        let mut delays = delays(&intervals);
        assert_eq!(delays.threads.peek(&(7, 7)).map(VecDeque::len), Some(INTERVALS));
        assert_eq!(take(&mut delays, 0, 100 * INTERVALS as u64, 1e18), 30.0 * INTERVALS as f64);
    }
}
