//! The calls with the largest figures of a kind, with their neighbours.

use cawl_wire::Event;

use crate::cause::CauseTimes;
use crate::model::Prediction;
use crate::neighbours::{AROUND, Near, Neighbours};

/// How many calls a report lists.
const WORST: usize = 10;

/// One of the calls.
pub(super) struct Ranked {
    /// The figure, in ns.
    by: f64,
    /// Its number among all calls, from 1.
    pub(super) number: u64,
    pub(super) event: Event,
    pub(super) prediction: Prediction,
    pub(super) causes: CauseTimes,
    /// Of the same thread.
    pub(super) before: Vec<Near>,
    pub(super) after: Vec<Near>,
}

/// The calls with the largest figures, largest first.
#[derive(Default)]
pub(super) struct Worst(pub(super) Vec<Ranked>);

impl Worst {
    /// A call with this figure is among those with the largest.
    #[inline]
    pub(super) fn has_room(&self, by: f64) -> bool {
        self.0.get(WORST - 1).is_none_or(|least| by > least.by)
    }

    /// Keeps a call, if its figure is among the largest.
    #[cold]
    #[inline(never)]
    pub(super) fn rank(
        &mut self,
        by: f64,
        number: u64,
        (event, prediction, causes): (&Event, &Prediction, &CauseTimes),
        neighbours: Option<&mut Neighbours>,
    ) {
        let Worst(list) = self;
        let at = list.partition_point(|other| other.by >= by);
        let before = neighbours.map_or_else(Vec::new, |neighbours| neighbours.before(event));
        let (event, prediction, causes, after) = (*event, *prediction, *causes, Vec::new());
        list.insert(at, Ranked { by, number, event, prediction, causes, before, after });
        list.truncate(WORST);
    }

    /// A neighbour of calls of its thread, all of which came before it.
    pub(super) fn is_after(&mut self, near: &Near) {
        let thread = |event: &Event| (event.pid, event.tid);
        let of_thread = self.0.iter_mut().filter(|call| thread(&call.event) == thread(&near.event));
        for call in of_thread.filter(|call| call.after.len() < AROUND) {
            call.after.push(*near);
        }
    }
}
