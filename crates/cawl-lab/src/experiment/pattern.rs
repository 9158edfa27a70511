//! What repeats in the costs of synchronous calls, and which limit of the device's queue has that period.

use cawl_core::{Bytes, named};
use cawl_host::place::Place;
use serde::Serialize;

use super::period;

/// A period in the costs of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Period {
    pub calls: f64,
    /// Bytes of as many calls; with growing calls, by how much they grow.
    pub bytes: f64,
    /// What has this period.
    pub reason: Reason,
}

named! {
    /// What has the period of a run.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    Reason {
        /// A block of the filesystem or of the device: some calls begin one, others end one.
        Block = "blocks written in part",
        /// `max_sectors_kb`: a call has a request more for each of it.
        MaxSectors = "a request more for each max_sectors",
        /// `max_segments`: a call has a request more for each as many pages.
        MaxSegments = "a request more for each max_segments",
        /// No limit of the queue: that of calls of one size is met by all of them or by none.
        NotTheQueue = "no limit of the queue",
    }
}

/// The periods of synchronous calls of these sizes, equal or in equal steps, by their costs in each repeat.
pub fn periods(sizes: &[Bytes], costs: &[Vec<f64>], place: &Place, page: Bytes) -> Vec<Period> {
    let [first, second, ..] = sizes else { return Vec::new() };
    let growth = second.as_f64() - first.as_f64();
    let limits = limits(place, page);
    let period = |calls: f64| {
        let bytes = calls * if growth > 0.0 { growth } else { first.as_f64() };
        // Calls of one size differ only in where they begin.
        let candidates = if growth > 0.0 { &limits[..] } else { &limits[..1] };
        // Half a cycle in all calls.
        let tolerance = 0.5 * calls / sizes.len().min(period::MAX_CALLS) as f64;
        let is_it = |limit: f64| (bytes / limit - 1.0).abs() <= tolerance;
        let found = candidates.iter().find(|(limit, _)| limit.is_some_and(is_it));
        Period { calls, bytes, reason: found.map_or(Reason::NotTheQueue, |(_, reason)| *reason) }
    };
    period::periods(costs).into_iter().map(period).collect()
}

/// Bytes that each limit stands for. Segments are counted as single pages, which is what a program's memory
/// is without huge pages.
fn limits(place: &Place, page: Bytes) -> [(Option<f64>, Reason); 3] {
    let queue = place.queue();
    let block = place.physical_block.unwrap_or(page).0.max(page.0);
    [
        (Some(block as f64), Reason::Block),
        (queue.map(|queue| queue.sectors.as_f64()), Reason::MaxSectors),
        (queue.map(|queue| queue.segments as f64 * page.as_f64()), Reason::MaxSegments),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_queue_is_the_reason_where_calls_grow() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::of(folder.path()).unwrap();
        let page = Bytes(4096);
        let [(block, _), (sectors, _), (segments, _)] = limits(&place, page);
        let block = block.unwrap() as u64;
        // Costs of 240 calls from `from` bytes on that grow by `growth`; the machine's noise has no period.
        let of = |from: u64, growth: u64, cost: &dyn Fn(u64, u64) -> f64| {
            let sizes: Vec<Bytes> = (0..240).map(|index| Bytes(from + index * growth)).collect();
            let noise = |index: u64| (index * index * 2_654_435_761 % 1009) as f64 / 1009.0;
            let costs = (0..).zip(&sizes).map(|(index, size)| cost(index, size.0) + noise(index)).collect();
            let found = periods(&sizes, &[costs], &place, page);
            found.iter().map(|period| period.reason).collect::<Vec<_>>()
        };
        // Twelve periods of twenty calls, in which the cost rises and falls back.
        let split =
            |limit: u64| of(limit, limit / 20, &|_, size| (size % limit) as f64 / limit as f64 * 20.0);
        for (limit, reason) in [
            (Some(block as f64), Reason::Block),
            (sectors, Reason::MaxSectors),
            (segments, Reason::MaxSegments),
        ] {
            let Some(limit) = limit else { continue };
            assert_eq!(split(limit as u64), [reason], "{limit} bytes");
        }
        assert_eq!(split(77 * block), [Reason::NotTheQueue]);
        // Calls of one size have the same number of requests.
        let every =
            |calls: u64| of(block / 4, 0, &|index, _| if index.is_multiple_of(calls) { 30.0 } else { 1.0 });
        assert_eq!((every(4), every(10)), (vec![Reason::Block], vec![Reason::NotTheQueue]));
    }
}
