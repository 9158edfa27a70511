//! From ticks of the processor's counter to nanoseconds of CLOCK_MONOTONIC.
//!
//! The law of this module: a tracer sends readings of both clocks at least every 10 ms of its activity; time
//! is linear between two of these anchors, and extrapolated beyond the last one.

use std::collections::VecDeque;

use cawl_wire::Anchor;

use crate::batch::Batch;

/// Most anchors kept.
const KEPT: usize = 64;

/// The clock of one process.
pub struct Ticks {
    anchors: VecDeque<Anchor>,
    line: Line,
}

/// A linear piece of the conversion.
#[derive(Clone, Copy)]
struct Line {
    from: Anchor,
    /// End of this line in ticks.
    until: u64,
    /// Nanoseconds in a tick.
    slope: f64,
}

impl Line {
    fn at(&self, ticks: u64) -> u64 {
        // A false reading may be anywhere.
        let ahead = ticks.wrapping_sub(self.from.ticks) as i64;
        let moved = ahead as f64 * self.slope;
        // Half away from zero, as `round` does it: that would be a call into the C library, twice for each
        // event.
        self.from.nanos.saturating_add_signed((moved + 0.5f64.copysign(moved)) as i64)
    }

    fn holds(&self, ticks: u64) -> bool {
        (self.from.ticks..self.until).contains(&ticks)
    }
}

/// Nanoseconds per tick between two anchors; one if they are invalid.
fn slope(from: Anchor, to: Anchor) -> f64 {
    if to.ticks > from.ticks && to.nanos >= from.nanos {
        (to.nanos - from.nanos) as f64 / (to.ticks - from.ticks) as f64
    } else {
        1.0
    }
}

impl Ticks {
    /// A clock with the two anchors of a hello.
    pub fn new([first, last]: [Anchor; 2]) -> Ticks {
        let line = Line { from: first, until: 0, slope: 1.0 };
        let mut ticks = Ticks { anchors: VecDeque::from([first]), line };
        ticks.learn(last);
        ticks
    }

    fn learn(&mut self, anchor: Anchor) {
        let at = self.anchors.partition_point(|other| other.ticks < anchor.ticks);
        // Time does not go back; an anchor that does is ignored.
        let before = at.checked_sub(1).and_then(|before| self.anchors.get(before));
        let fits = before.is_none_or(|before| before.nanos <= anchor.nanos)
            && self
                .anchors
                .get(at)
                .is_none_or(|after| after.nanos >= anchor.nanos && after.ticks > anchor.ticks);
        if fits {
            self.anchors.insert(at, anchor);
            if self.anchors.len() > KEPT {
                // The first stays: it makes the longest line.
                self.anchors.remove(1);
            }
            self.line.until = 0;
        }
    }

    /// The time in ns.
    pub fn nanos(&mut self, ticks: u64) -> u64 {
        if !self.line.holds(ticks) {
            self.line = self.find(ticks);
        }
        self.line.at(ticks)
    }

    fn find(&self, ticks: u64) -> Line {
        let (first, last) = (self.anchors[0], self.anchors[self.anchors.len() - 1]);
        let next = self.anchors.partition_point(|anchor| anchor.ticks <= ticks);
        match (next.checked_sub(1).map(|at| self.anchors[at]), self.anchors.get(next)) {
            (Some(from), Some(to)) => Line { from, until: to.ticks, slope: slope(from, *to) },
            (Some(_), None) => Line { from: last, until: u64::MAX, slope: slope(first, last) },
            (None, _) => Line { from: first, until: 0, slope: slope(first, last) },
        }
    }

    /// Converts a batch's times to ns, with its anchors. Lines never go down, so the order stays.
    pub fn convert(&mut self, batch: &mut Batch) {
        batch.anchors.drain(..).for_each(|anchor| self.learn(anchor));
        for event in &mut batch.events {
            let began = self.nanos(event.start);
            let ended = self.nanos(event.start.saturating_add(event.duration));
            (event.start, event.duration) = (began, ended.saturating_sub(began));
        }
        for calls in &mut batch.coalesced {
            let took = self.nanos(calls.first.saturating_add(calls.duration));
            calls.duration = took.saturating_sub(self.nanos(calls.first));
            for moment in [&mut calls.first, &mut calls.last, &mut calls.end] {
                *moment = self.nanos(*moment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use cawl_wire::{Event, Op};

    fn anchor(ticks: u64, nanos: u64) -> Anchor {
        Anchor { ticks, nanos }
    }

    #[test]
    fn any_reading_is_taken() {
        let numbers = [0, 1, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
        for (ticks, nanos, then) in
            numbers.iter().flat_map(|a| numbers.iter().flat_map(|b| numbers.iter().map(|c| (*a, *b, *c))))
        {
            let first = anchor(ticks, nanos);
            Ticks::new([first, anchor(ticks / 2, then)]).nanos(then);
            Ticks::new([first, first]).nanos(then);
        }
        let mut ticks = Ticks::new([anchor(u64::MAX, u64::MAX), anchor(0, 0)]);
        numbers.iter().for_each(|at| _ = ticks.nanos(*at));
        for n in 0..1000u64 {
            ticks.learn(anchor(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), n));
            ticks.nanos(n << 50);
        }
        assert!(ticks.anchors.len() <= KEPT);
    }

    #[test]
    fn between_anchors_time_is_a_straight_line() {
        let mut ticks = Ticks::new([anchor(1000, 500), anchor(3000, 1500)]);
        assert_eq!(ticks.nanos(1000), 500);
        assert_eq!(ticks.nanos(2000), 1000);
        assert_eq!(ticks.nanos(5000), 2500, "and goes on");
        assert_eq!(ticks.nanos(0), 0, "and comes from somewhere");
        ticks.learn(anchor(5000, 2600));
        assert_eq!(ticks.nanos(4000), 2050);
        assert_eq!(ticks.nanos(3000), 1500);
        ticks.learn(anchor(6000, 10));
        assert_eq!(ticks.nanos(5000), 2600, "what goes back is not believed");
    }

    #[test]
    fn a_batch_is_converted_by_its_own_anchors() {
        let mut ticks = Ticks::new([anchor(0, 1000), anchor(1000, 1500)]);
        let event = Event { start: 2000, duration: 100, ..Event::new(Op::Write) };
        let anchors = vec![anchor(4000, 3000), anchor(5000, 3500)];
        let mut batch = Batch { events: vec![event], anchors, ..Batch::default() };
        ticks.convert(&mut batch);
        assert_eq!((batch.events[0].start, batch.events[0].duration), (2000, 50));
        assert!(batch.anchors.is_empty());
    }
}
