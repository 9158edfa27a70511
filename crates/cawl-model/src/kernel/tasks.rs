//! Threads as the throttling sees them (`task_struct`).
//!
//! The counters of the calling thread are at hand, those of the others in an LRU map: a thread that was
//! forgotten begins like a new one.

use super::super::lru::LruMap;
use super::super::throttle::{Domain, FIRST_CHECK, Line, max_pause, min_pause, poll_interval};
use crate::units::{Hz, Jiffies, PageRate, Seconds};

/// Process and thread.
pub(super) type Key = (u32, u32);

/// A thread's counters, in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Pages dirtied since the last check.
    pub(super) nr_dirtied: u64,
    /// Pages dirtied as its processor counts them (`bdp_ratelimits`): each task is taken to have its own.
    pub(super) unchecked: u64,
    /// Pages between checks.
    pub(super) nr_dirtied_pause: u64,
    /// When its last pause ended; None before the first check.
    pub(super) paused_when: Option<Jiffies>,
    /// How long that was; 0 since it was let go on without one.
    pub(super) slept: Seconds,
    /// When its latest call that has a cost was over, but for what it waited.
    pub(super) left: Seconds,
}

impl Default for Task {
    fn default() -> Task {
        let (nr_dirtied_pause, left) = (FIRST_CHECK, Seconds::NEG_INFINITY);
        Task { nr_dirtied: 0, unchecked: 0, nr_dirtied_pause, paused_when: None, slept: Seconds::ZERO, left }
    }
}

impl Task {
    /// Below freerun of all domains: the task goes on, with a new quota.
    pub(super) fn run_free<'a>(&mut self, domains: impl Iterator<Item = &'a Domain>, jiffy: Jiffies) {
        let quota = domains.map(|domain| poll_interval(domain.dirty, domain.thresh)).min();
        self.paused_when = Some(jiffy);
        self.nr_dirtied = 0;
        self.slept = Seconds::ZERO;
        self.nr_dirtied_pause = quota.unwrap_or(1);
    }

    /// `balance_dirty_pages` above freerun: how long the task sleeps now, by what it owes at `rate`, of the
    /// device's `base` rate; None: it goes on.
    pub(super) fn pause(
        &mut self,
        jiffy: Jiffies,
        hz: Hz,
        base: PageRate,
        rate: PageRate,
        line: &Line,
    ) -> Option<Jiffies> {
        let longest = max_pause(line.dirty, line.bandwidth, hz);
        let pacing = min_pause(line.bandwidth, longest, rate, base, hz);
        let mut now = jiffy;
        let mut pause = longest;
        if rate > PageRate::ZERO {
            let period = Jiffies((hz.0 * self.nr_dirtied as f64 / rate.0).floor());
            pause = period - self.paused_when.map_or(Jiffies::ZERO, |when| now - when);
            if pause < pacing.min_pause {
                if pause < Seconds(-1.0) * hz {
                    self.paused_when = Some(now);
                    self.nr_dirtied = 0;
                } else if period > Jiffies::ZERO {
                    self.paused_when = Some(self.paused_when.unwrap_or_default() + period);
                    self.nr_dirtied = 0;
                } else if self.nr_dirtied_pause <= self.nr_dirtied {
                    self.nr_dirtied_pause += self.nr_dirtied;
                }
                return None;
            }
            if pause > longest {
                now += (pause - longest).min(longest);
                pause = longest;
            }
        }
        self.paused_when = Some(now + pause);
        self.nr_dirtied = 0;
        self.nr_dirtied_pause = pacing.pages.max(1);
        Some(pause)
    }
}

/// All threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// The one that calls.
    pub(super) current: Task,
    key: Option<Key>,
    others: LruMap<Key, Task>,
    /// More than one was seen.
    pub(super) several: bool,
}

impl Tasks {
    /// Makes this thread the one that calls.
    pub(super) fn switch(&mut self, key: Key) {
        if self.key == Some(key) {
            return;
        }
        let next = self.others.take(&key).unwrap_or_default();
        let last = std::mem::replace(&mut self.current, next);
        if let Some(last_key) = self.key.replace(key) {
            self.others.put(last_key, last);
            self.several = true;
        }
    }

    /// A thread's counters.
    pub(super) fn peek(&self, key: Key) -> Task {
        if self.key == Some(key) { self.current } else { self.others.peek(&key).copied().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::lru::CAPACITY;
    use super::*;

    #[test]
    fn counters_follow_their_thread() {
        let mut tasks = Tasks::default();
        tasks.switch((1, 1));
        tasks.current.nr_dirtied = 7;
        tasks.switch((1, 2));
        assert_eq!((tasks.current.nr_dirtied, tasks.several), (0, true));
        tasks.switch((1, 1));
        assert_eq!(tasks.current.nr_dirtied, 7);
    }

    #[test]
    fn threads_that_ended_are_forgotten() {
        let mut tasks = Tasks::default();
        for tid in 0..10 * CAPACITY as u32 {
            tasks.switch((1, tid));
            assert!(tasks.others.len() <= 2 * CAPACITY);
        }
    }
}
