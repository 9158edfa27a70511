//! The completion of requests. The law of the emulated disk:
//!
//! - a request is ready for transfer one latency after its submission; latencies of requests served at the
//!   same time overlap
//! - there is one arm and one channel: seeks and transfers are sequential, each at its rate
//! - a request that begins where the previous one ended needs no seek
//! - a flush waits for all transfers before it, then takes its own time
//! - a disk that stands still completes nothing until it goes on
//! - a write that fits into the volatile cache is complete after its latency; the cache empties at the rate
//!   of writes, and a flush waits until it is empty
//!
//! Times are absolute, so that errors do not add up. The path from the caller through the block layer to this
//! process and back takes time itself, the [`Overhead`]; it is subtracted, so that a program that uses the
//! block device meets the constants.

use cawl_core::{Bytes, Nanos, Time};

use crate::overhead::{Direction, Overhead, before};
use crate::spec::DiskSpec;

#[derive(Debug)]
pub struct Law {
    spec: DiskSpec,
    overhead: Overhead,
    /// Time at which arm and channel are free.
    free: Time,
    /// End of the last request.
    head: u64,
}

impl Law {
    pub fn new(spec: DiskSpec) -> Law {
        Law { spec, overhead: Overhead::default(), free: Time::default(), head: 0 }
    }

    /// Subtracts this overhead from every request from now on.
    pub fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    /// Completion time of a transfer that arrived at `arrived`.
    pub fn transfer(&mut self, direction: Direction, offset: u64, length: Bytes, arrived: Time) -> Time {
        let rate = match direction {
            Direction::Write => self.spec.write,
            Direction::Read => self.spec.read,
        };
        let submitted = before(arrived, self.overhead.of(direction, length));
        let ready = submitted + self.spec.latency;
        let seek = if offset == self.head { Nanos::ZERO } else { self.spec.seek };
        self.head = offset.saturating_add(length.0);
        let ready = self.goes_on(ready);
        self.free = self.goes_on(ready.max(self.free) + (seek + length / rate));
        let cached =
            direction == Direction::Write && self.free.since(ready) <= self.spec.cache / self.spec.write;
        if cached { ready } else { self.free }
    }

    /// Completion time of a flush that arrived at `arrived`.
    pub fn flush(&mut self, arrived: Time) -> Time {
        let submitted = before(arrived, self.overhead.flush);
        self.free = self.goes_on(submitted.max(self.free) + self.spec.flush);
        self.free
    }

    /// This moment, or the end of the stall that it is in.
    fn goes_on(&self, moment: Time) -> Time {
        self.spec.stall_at(moment).map_or(moment, |(_, end)| moment.max(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::Rate;

    const MB: u64 = 1_000_000;

    fn disk() -> DiskSpec {
        DiskSpec {
            write: Rate::mb_per_second(100.0),
            read: Rate::mb_per_second(200.0),
            latency: Nanos::millis(1.0),
            seek: Nanos::millis(5.0),
            flush: Nanos::millis(2.0),
            ..DiskSpec::SSD
        }
    }

    fn millis(ms: f64) -> Time {
        Time::default() + Nanos::millis(ms)
    }

    #[test]
    fn one_request_at_a_time_pays_latency_and_transfer() {
        let mut law = Law::new(disk());
        let first = law.transfer(Direction::Write, 0, Bytes(MB), millis(0.0));
        assert_eq!(first, millis(11.0));
        let second = law.transfer(Direction::Write, MB, Bytes(MB), first);
        assert_eq!(second, millis(22.0));
        assert_eq!(law.transfer(Direction::Read, 2 * MB, Bytes(MB), second), millis(28.0));
    }

    #[test]
    fn latencies_overlap_and_transfers_do_not() {
        let mut law = Law::new(disk());
        let mut done = Time::default();
        for i in 0..100 {
            done = law.transfer(Direction::Write, i * MB, Bytes(MB), millis(0.0));
        }
        assert_eq!(done, millis(1001.0));
    }

    #[test]
    fn a_jump_costs_a_seek_and_a_flush_waits() {
        let mut law = Law::new(disk());
        let sought = law.transfer(Direction::Write, 7 * MB, Bytes(MB), millis(0.0));
        assert_eq!(sought, millis(16.0));
        assert_eq!(law.flush(millis(3.0)), millis(18.0));
        assert_eq!(law.flush(millis(30.0)), millis(32.0));
    }

    #[test]
    fn the_overhead_is_taken_off() {
        let mut law = Law::new(disk());
        let overhead = Overhead { write: (Nanos::millis(0.5), 1e-3), ..Overhead::default() };
        law.set_overhead(overhead);
        // 0.5 ms and 1 ns per 1000 bytes before its arrival.
        let done = law.transfer(Direction::Write, 0, Bytes(MB), millis(101.0));
        assert_eq!(done, millis(111.5 - 0.001));
    }

    #[test]
    fn nothing_is_completed_during_a_stall() {
        let mut law = Law::new(DiskSpec { stall: Nanos::seconds(2.5), ..disk() });
        // The first stall of 50 ms begins at 0, the second one of 500 ms at 2500.
        let done = [2.0, 100.0, 2495.0].map(|at| law.transfer(Direction::Write, 0, Bytes(MB), millis(at)));
        assert_eq!(done, [millis(60.0), millis(116.0), millis(3000.0)]);
        assert_eq!(law.flush(millis(3001.0)), millis(3003.0));
    }

    #[test]
    fn the_cache_takes_what_fits() {
        let mut law = Law::new(DiskSpec { cache: Bytes(3 * MB), ..disk() });
        let arrivals: Vec<Time> =
            (0..5).map(|i| law.transfer(Direction::Write, i * MB, Bytes(MB), millis(0.0))).collect();
        assert_eq!(arrivals[..3], [millis(1.0); 3]);
        assert!(arrivals[3] > millis(40.0) && arrivals[4] > arrivals[3]);
        assert_eq!(law.flush(millis(5.0)), millis(53.0));
        let later = law.transfer(Direction::Write, 5 * MB, Bytes(MB), millis(100.0));
        assert_eq!(later, millis(101.0));
    }
}
