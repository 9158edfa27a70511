//! When requests over a link are complete. The law of the emulated link:
//!
//! - each request takes one latency, the round trip; those of requests served at the same time overlap
//! - data of writes and reads follow one another over the link, each at its bandwidth, before their latency
//! - a request without data waits for no transfer
//!
//! Times are absolute, so that errors do not add up. The way from the caller through FUSE to this process and
//! back takes time itself, the [`Overhead`]; it is subtracted where the latency allows, so that a program
//! meets the latency with it.

use cawl_core::{Bytes, Time};

use super::spec::NetSpec;
use crate::overhead::{Direction, Overhead, before};

#[derive(Debug)]
pub struct Link {
    spec: NetSpec,
    overhead: Overhead,
    /// When the last transfer is through.
    free: Time,
}

impl Link {
    pub fn new(spec: NetSpec) -> Link {
        Link { spec, overhead: Overhead::default(), free: Time::default() }
    }

    /// Subtracts this overhead from every request from now on.
    pub fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    /// Completion time of a request without data that arrived at `arrived`.
    pub fn message(&self, arrived: Time) -> Time {
        before(arrived, self.overhead.flush) + self.spec.latency
    }

    /// Completion time of a read or write that arrived at `arrived`.
    pub fn transfer(&mut self, direction: Direction, length: Bytes, arrived: Time) -> Time {
        let submitted = before(arrived, self.overhead.of(direction, length));
        self.free = submitted.max(self.free) + length / self.spec.bandwidth;
        self.free + self.spec.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::Nanos;

    const MB: Bytes = Bytes(1_000_000);

    fn link() -> Link {
        Link::new("1ms,100MB/s".parse().unwrap())
    }

    fn millis(ms: f64) -> Time {
        Time::default() + Nanos::millis(ms)
    }

    #[test]
    fn each_request_pays_the_latency_and_data_their_way() {
        let mut link = link();
        assert_eq!(link.message(millis(0.0)), millis(1.0));
        let first = link.transfer(Direction::Write, MB, millis(1.0));
        assert_eq!(first, millis(12.0));
        assert_eq!(link.transfer(Direction::Read, MB, first), millis(23.0));
    }

    #[test]
    fn latencies_overlap_and_transfers_do_not() {
        let mut link = link();
        let done: Vec<_> = (0..10).map(|_| link.transfer(Direction::Write, MB, millis(0.0))).collect();
        assert_eq!((done[0], done[9]), (millis(11.0), millis(101.0)));
        // A small one passes them.
        assert_eq!(link.message(millis(5.0)), millis(6.0));
    }

    #[test]
    fn the_overhead_is_taken_off() {
        let mut link = link();
        let overhead =
            Overhead { write: (Nanos::millis(0.5), 1e-3), flush: Nanos::millis(0.1), ..Overhead::default() };
        link.set_overhead(overhead);
        // 0.5 ms and 1 ns per 1000 bytes before its arrival.
        assert_eq!(link.transfer(Direction::Write, MB, millis(101.0)), millis(111.5 - 0.001));
        assert_eq!(link.message(millis(7.0)), millis(7.9));
        // A latency that the way alone exceeds is past when the request arrives.
        let mut fast = Link::new("10us,100MB/s".parse().unwrap());
        fast.set_overhead(overhead);
        assert!(fast.message(millis(7.0)) < millis(7.0));
    }
}
