//! Looks at what the kernel's scheduler counted for the threads of a process.
//!
//! The law of this module: **at most a 200th of a processor, for all sessions together.** A thread that made
//! calls is looked at every 20 ms, before these calls are sent, so that the delay of their time is known
//! first. Another one, which may be in a long call, is looked at every 100 ms, and less often while its
//! counters stand still.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use cawl_core::{Nanos, RunDelay, Time};
use cawl_wire::Usage;

use crate::batch::Batch;

/// Shortest interval between two looks at a thread, in ns.
const EVERY: u64 = 20_000_000;
/// Interval between two looks at a thread without calls, in ns: at first, and at last.
const WITHOUT_CALLS: u64 = 100_000_000;
const STANDING: u64 = 1_000_000_000;
/// After a call of this length, in ns, a look does not wait: the call is not held for much longer.
const LONG: u64 = 100_000_000;
/// One over the largest share of a processor.
const SHARE: u64 = 200;
/// Threads of a process looked at; others are not, until one of these has ended.
const THREADS: usize = 256;

/// The processor time that looks may take: the moment, in ns, before which there is no further one.
#[derive(Default)]
pub struct Budget(AtomicU64);

impl Budget {
    fn allows(&self, now: Time) -> bool {
        self.0.load(Ordering::Relaxed) <= now.0
    }

    /// A look at `now` took this processor time.
    fn spend(&self, now: Time, cost: Nanos) {
        let pause = SHARE.saturating_mul(cost.get() as u64);
        let later = |next: u64| Some(next.max(now.0).saturating_add(pause));
        // The closure always has a value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

/// The threads of a process.
pub struct RunDelays<'a> {
    pid: u32,
    began: Time,
    budget: &'a Budget,
    threads: BTreeMap<u32, Thread>,
}

/// A thread at the latest look.
struct Thread {
    at: Time,
    ran: Nanos,
    delayed: Nanos,
    /// Time until the next look, in ns.
    pause: u64,
}

/// What the kernel has counted for a thread: time on a processor, and time waiting for one.
type Counters = Option<(Nanos, Nanos)>;

impl<'a> RunDelays<'a> {
    /// Of a process whose image began then, with these counters: those of the image before it.
    pub fn new(pid: u32, began: Time, counted: &Usage, budget: &'a Budget) -> RunDelays<'a> {
        let (ran, delayed) = first_thread(counted);
        let first = Thread { at: began, ran, delayed, pause: EVERY };
        RunDelays { pid, began, budget, threads: BTreeMap::from([(pid, first)]) }
    }

    /// Looks at the threads that are due. Those of `batch` have made calls.
    pub fn sample(&mut self, batch: &Batch) -> Vec<RunDelay> {
        let now = cawl_host::now();
        let events = batch.events.chunk_by(|one, next| one.tid == next.tid);
        let events = events.map(|calls| (calls[0].tid, calls.iter().any(|call| call.duration >= LONG)));
        let callers = events.chain(batch.coalesced.iter().map(|calls| (calls.like.tid, false)));
        if self.called(callers, now) { self.read_within_budget(now, false) } else { Vec::new() }
    }

    /// Looks at all threads once more. The process has ended at `at` with these counters; the kernel may have
    /// forgotten it.
    pub fn look_last(&mut self, at: Time, counted: &Usage) -> Vec<RunDelay> {
        let (pid, (ran, delayed)) = (self.pid, first_thread(counted));
        let first = self.threads.get_mut(&pid).filter(|first| first.at < at && ran > Nanos::ZERO);
        let mut delays: Vec<_> =
            first.and_then(|first| first.counts(pid, pid, at, ran, delayed)).into_iter().collect();
        if self.threads.keys().any(|tid| *tid != pid) {
            delays.extend(self.read_within_budget(cawl_host::now(), true));
        }
        delays
    }

    fn read_within_budget(&mut self, now: Time, all: bool) -> Vec<RunDelay> {
        if !self.budget.allows(now) {
            return Vec::new();
        }
        let before = cawl_host::clock::thread_time();
        let delays = self.read(now, all, cawl_host::schedstat);
        self.budget.spend(now, cawl_host::clock::thread_time().since(before));
        delays
    }

    /// Notes threads that made calls, long ones or not; true if any thread is due.
    fn called(&mut self, callers: impl Iterator<Item = (u32, bool)>, now: Time) -> bool {
        for (tid, long) in callers {
            let (count, pause) = (self.threads.len(), if long { 0 } else { EVERY });
            match self.threads.entry(tid) {
                Entry::Occupied(mut thread) => {
                    let thread = thread.get_mut();
                    thread.pause = thread.pause.min(pause);
                }
                Entry::Vacant(place) if count < THREADS => {
                    // Its counters began with it, under this image.
                    let (at, none) = (self.began, Nanos::ZERO);
                    place.insert(Thread { at, ran: none, delayed: none, pause });
                }
                Entry::Vacant(_) => {}
            }
        }
        self.threads.values().any(|thread| thread.is_due(now))
    }

    /// Reads the counters of the threads that are due, or of all. Those that have none have ended and are
    /// forgotten, but for the first one.
    fn read(&mut self, now: Time, all: bool, counters: impl Fn(u32, u32) -> Counters) -> Vec<RunDelay> {
        let mut delays = Vec::new();
        let pid = self.pid;
        self.threads.retain(|tid, thread| {
            if !all && !thread.is_due(now) {
                return true;
            }
            let Some((ran, delayed)) = counters(pid, *tid) else {
                // Of the first thread the last words may yet tell.
                thread.pause = u64::MAX;
                return *tid == pid;
            };
            delays.extend(thread.counts(pid, *tid, now, ran, delayed));
            true
        });
        delays
    }
}

fn first_thread(counted: &Usage) -> (Nanos, Nanos) {
    (Nanos::new(counted.first_ran as f64), Nanos::new(counted.first_delayed as f64))
}

impl Thread {
    /// It has counted this by now. Returns the delay since the latest look; None of one that stood still:
    /// then nothing is known that its calls do not tell.
    fn counts(&mut self, pid: u32, tid: u32, now: Time, ran: Nanos, delayed: Nanos) -> Option<RunDelay> {
        let stood = ran == self.ran && delayed == self.delayed;
        let pause = if stood { (2 * self.pause).min(STANDING) } else { WITHOUT_CALLS };
        let new = Thread { at: now, ran, delayed, pause: pause.max(WITHOUT_CALLS) };
        let before = std::mem::replace(self, new);
        (!stood).then(|| RunDelay {
            pid,
            tid,
            from: before.at,
            to: now,
            ran: ran.saturating_sub(before.ran),
            delayed: delayed.saturating_sub(before.delayed),
        })
    }

    fn is_due(&self, now: Time) -> bool {
        now.0 >= self.at.0.saturating_add(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn watched(budget: &Budget) -> RunDelays<'_> {
        // No process has this number.
        RunDelays::new(u32::MAX, Time(5 * MS), &Usage::default(), budget)
    }

    /// Of all threads but the first, which has ended.
    fn counted(ran: u64, delayed: u64) -> impl Fn(u32, u32) -> Counters {
        move |pid, tid| {
            (tid != pid).then_some((Nanos::new((ran * MS) as f64), Nanos::new((delayed * MS) as f64)))
        }
    }

    #[test]
    fn an_interval_goes_from_look_to_look() {
        let budget = Budget::default();
        let mut watched = watched(&budget);
        assert!(!watched.called([].into_iter(), Time(24 * MS)));
        // Nothing is known of a thread before: all it has counted was under this image.
        assert!(watched.called([(7, false)].into_iter(), Time(30 * MS)));
        let first = watched.read(Time(30 * MS), false, counted(10, 3));
        let (ran, delayed) = (Nanos::millis(10.0), Nanos::millis(3.0));
        let wanted = RunDelay { pid: u32::MAX, tid: 7, from: Time(5 * MS), to: Time(30 * MS), ran, delayed };
        assert_eq!(first, [wanted]);
        assert!(!watched.called([(7, false)].into_iter(), Time(49 * MS)));
        assert!(watched.called([(7, false)].into_iter(), Time(50 * MS)));
        let next = watched.read(Time(50 * MS), false, counted(11, 5));
        let (ran, delayed) = (Nanos::millis(1.0), Nanos::millis(2.0));
        assert_eq!(next, [RunDelay { from: Time(30 * MS), to: Time(50 * MS), ran, delayed, ..wanted }]);
        // A call that lasted until now is not held for long.
        assert!(watched.called([(7, true)].into_iter(), Time(51 * MS)));
        // One that stood still has no record.
        assert!(watched.read(Time(80 * MS), true, counted(11, 5)).is_empty());
        assert_eq!(watched.threads[&7].at, Time(80 * MS));
    }

    #[test]
    fn a_thread_without_calls_is_looked_at_less_often_while_it_stands_still() {
        let budget = Budget::default();
        let mut watched = watched(&budget);
        watched.called([(7, false)].into_iter(), Time(100 * MS));
        watched.read(Time(100 * MS), false, counted(1, 0));
        let due = |watched: &mut RunDelays<'_>, now: u64| watched.called([].into_iter(), Time(now * MS));
        assert!(!due(&mut watched, 199) && due(&mut watched, 200));
        // It runs, in a long call perhaps.
        watched.read(Time(200 * MS), false, counted(50, 50));
        assert!(!due(&mut watched, 299) && due(&mut watched, 300));
        let mut now = 300;
        for pause in [200, 400, 800, 1000, 1000] {
            watched.read(Time(now * MS), false, counted(50, 50));
            assert!(!due(&mut watched, now + pause - 1) && due(&mut watched, now + pause));
            now += pause;
        }
        watched.called([(7, false)].into_iter(), Time(now * MS));
        assert_eq!(watched.threads[&7].pause, EVERY);
    }

    #[test]
    fn a_process_that_the_kernel_has_forgotten_tells_its_delay_itself() {
        let budget = Budget::default();
        let counted = |ran: u64, delayed: u64| Usage {
            first_ran: ran * MS,
            first_delayed: delayed * MS,
            ..Usage::default()
        };
        let pid = u32::MAX;
        let mut watched = RunDelays::new(pid, Time(5 * MS), &counted(10, 1), &budget);
        assert!(watched.read(Time(30 * MS), false, |_, _| None).is_empty());
        let (ran, delayed) = (Nanos::millis(2.0), Nanos::millis(7.0));
        let wanted = RunDelay { pid, tid: pid, from: Time(5 * MS), to: Time(15 * MS), ran, delayed };
        assert_eq!(watched.look_last(Time(15 * MS), &counted(12, 8)), [wanted]);
        // It did not end, as after an exec that failed.
        assert_eq!(watched.look_last(Time(15 * MS), &counted(12, 8)), []);
        let wanted = RunDelay { from: Time(15 * MS), to: Time(25 * MS), ..wanted };
        assert_eq!(watched.look_last(Time(25 * MS), &counted(14, 15)), [wanted]);
        // Nothing is known.
        assert_eq!(watched.look_last(Time(35 * MS), &Usage::default()), []);
    }

    #[test]
    fn threads_that_ended_make_room() {
        let budget = Budget::default();
        let mut watched = watched(&budget);
        watched.called((0..2 * THREADS as u32).map(|tid| (tid, false)), Time(100 * MS));
        assert_eq!(watched.threads.len(), THREADS);
        watched.read(Time(100 * MS), false, |_, tid| (tid % 2 == 0).then_some((Nanos::ZERO, Nanos::ZERO)));
        // And the first one.
        assert_eq!(watched.threads.len(), THREADS / 2 + 1);
    }

    #[test]
    fn looks_take_their_share_and_no_more() {
        let budget = Budget::default();
        assert!(budget.allows(Time(MS)));
        budget.spend(Time(MS), Nanos::millis(0.1));
        assert!(!budget.allows(Time(20 * MS)) && budget.allows(Time(21 * MS)));
        // Sessions side by side.
        budget.spend(Time(5 * MS), Nanos::millis(0.1));
        assert!(!budget.allows(Time(40 * MS)) && budget.allows(Time(41 * MS)));
    }

    #[test]
    fn this_process_is_delayed_by_what_the_kernel_says() {
        let budget = Budget::default();
        let pid = std::process::id();
        let mut watched = RunDelays::new(pid, Time(1), &Usage::default(), &budget);
        let told = watched.sample(&Batch::default());
        // Where the kernel does not account it, nothing is known and nothing is told.
        assert_eq!(told.len(), usize::from(cawl_host::schedstat(pid, pid).is_some()));
        assert!(told.iter().all(|delay| delay.tid == pid && delay.from < delay.to));
    }
}
