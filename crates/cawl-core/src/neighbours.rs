//! The calls just before and after a call in its thread, for the worst calls of a report.
//!
//! The table of threads is bounded: two threads whose numbers differ by a multiple of [`THREADS`] share a
//! place, and each forgets the other's calls.

use cawl_wire::Event;

use crate::units::Nanos;

/// Most calls kept on each side of a call.
pub(crate) const AROUND: usize = 3;

/// Threads whose latest calls are known.
const THREADS: usize = 256;

/// A call with its prediction by the first model, if that has an opinion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) event: Event,
    pub(crate) predicted: Option<Nanos>,
}

/// The latest calls of a thread, in a ring.
#[derive(Clone, Debug, Default)]
struct Thread {
    pid: u32,
    tid: u32,
    calls: [Option<Near>; AROUND + 1],
    latest: usize,
    /// Calls that are still to be told after one that was asked about.
    wanted: usize,
}

/// The latest calls of threads.
#[derive(Debug)]
pub(crate) struct Neighbours(Vec<Thread>);

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours(vec![Thread::default(); THREADS])
    }
}

impl Neighbours {
    /// Takes a call; true if an earlier one of its thread is to have it as a neighbour.
    pub(crate) fn take(&mut self, event: &Event, predicted: Option<Nanos>) -> bool {
        let thread = &mut self.0[event.tid as usize % THREADS];
        if (thread.pid, thread.tid) != (event.pid, event.tid) {
            *thread = Thread { pid: event.pid, tid: event.tid, ..Thread::default() };
        }
        thread.latest = (thread.latest + 1) % (AROUND + 1);
        thread.calls[thread.latest] = Some(Near { event: *event, predicted });
        let is_wanted = thread.wanted > 0;
        thread.wanted = thread.wanted.saturating_sub(1);
        is_wanted
    }

    /// The calls before this one, which was the latest that was taken; those after it are wanted.
    pub(crate) fn before(&mut self, event: &Event) -> Vec<Near> {
        let thread = &mut self.0[event.tid as usize % THREADS];
        thread.wanted = AROUND;
        let ring = (1..=AROUND).map(|at| thread.calls[(thread.latest + at) % (AROUND + 1)]);
        ring.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::Op;

    fn call(tid: u32, start: u64) -> Event {
        let mut event = Event::new(Op::Write);
        (event.pid, event.tid, event.start) = (1, tid, start);
        event
    }

    #[test]
    fn neighbours_are_of_the_same_thread_in_order() {
        let mut neighbours = Neighbours::default();
        for start in 0..20 {
            assert!(!neighbours.take(&call(start as u32 % 2, start), None));
        }
        let starts = |near: Vec<Near>| near.iter().map(|near| near.event.start).collect::<Vec<_>>();
        assert_eq!(starts(neighbours.before(&call(1, 19))), [13, 15, 17]);
        let wanted: Vec<bool> = (20..32).map(|at| neighbours.take(&call(at as u32 % 2, at), None)).collect();
        let odd: Vec<bool> = wanted.iter().copied().skip(1).step_by(2).collect();
        assert_eq!(odd, [true, true, true, false, false, false]);
        assert!(wanted.iter().step_by(2).all(|wanted| !wanted), "of the other thread none");
        // The first call of a thread has none before it, and one that shares a place starts anew.
        neighbours.take(&call(1 + THREADS as u32, 40), None);
        assert_eq!(starts(neighbours.before(&call(1 + THREADS as u32, 40))), [0; 0]);
    }
}
