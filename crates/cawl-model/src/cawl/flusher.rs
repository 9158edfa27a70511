//! Alg. 1, `background_flush`: while too much is dirty or something has expired, the device cleans the
//! oldest inactive bytes, as far as the time allows.

use super::extents::Extents;
use crate::limits::DirtyLimits;
use crate::units::{Bytes, Nanos, Rate};

/// The kernel's flusher, and the device it writes to.
#[derive(Clone, Debug)]
pub(super) struct Flusher {
    /// Rate at which it cleans (`bw_dev`).
    pub(super) rate: Rate,
    /// The dirty limits in force.
    pub(super) limits: DirtyLimits,
    /// Age at which data has to be written; None: never.
    expire: Option<Nanos>,
    /// Up to where its time is used up. Behind the model's clock by less than a byte's worth of work.
    clock: Nanos,
}

/// Most extents: as many as 8 GiB has pages. Beyond that the oldest count as written, so memory is bounded.
const MAX_EXTENTS: usize = if cfg!(test) { 1 << 8 } else { 1 << 21 };

impl Flusher {
    /// A flusher that has done nothing yet.
    pub(super) fn new(rate: Rate, limits: DirtyLimits, expire: Option<Nanos>) -> Flusher {
        Flusher { rate, limits, expire, clock: Nanos::ZERO }
    }

    /// True while it has something to do: `dirty ≥ bg`, or something expired.
    pub(super) fn works(&self, cache: &Extents, now: Nanos) -> bool {
        let dirty = cache.dirty();
        !dirty.is_zero() && (dirty >= self.limits.background || self.expired(cache, now))
    }

    /// Alg. 1, `background_flush`, for the time up to `to`.
    ///
    /// It starts at the moment there is something to do and stops at the byte at which there is not, so
    /// many small steps come to the same as a large one.
    pub(super) fn run(&mut self, cache: &mut Extents, to: Nanos) {
        while cache.len() > MAX_EXTENTS {
            cache.balance();
            cache.clean_oldest(Bytes(u64::MAX));
        }
        while self.clock < to {
            if !self.works(cache, self.clock) {
                // Idle until the oldest data expires, if that is within the time.
                self.clock = match cache.oldest().zip(self.expire) {
                    Some((since, expire)) => self.clock.max(since + expire).min(to),
                    None => to,
                };
                continue;
            }
            let budget = self.rate * (to.saturating_sub(self.clock));
            let wanted = if self.expired(cache, self.clock) {
                Bytes(u64::MAX)
            } else {
                cache.dirty().saturating_sub(self.limits.background) + Bytes(1)
            };
            cache.balance();
            let cleaned = cache.clean_oldest(wanted.min(budget));
            if cleaned.is_zero() {
                return;
            }
            self.clock += cleaned / self.rate;
        }
    }

    /// No more than `most` is dirty any longer: the device has written the rest, whatever its rate is held to
    /// be.
    pub(super) fn catch_up(&self, cache: &mut Extents, most: Bytes) {
        while cache.dirty() > most {
            cache.balance();
            cache.clean_oldest(cache.dirty().saturating_sub(most));
        }
    }

    /// The device is busy with something else for as long, and the flusher waits.
    pub(super) fn wait(&mut self, busy: Nanos) {
        self.clock += busy;
    }

    fn expired(&self, cache: &Extents, now: Nanos) -> bool {
        match cache.oldest().zip(self.expire) {
            Some((since, expire)) => now >= since + expire,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: cawl_wire::FileId = cawl_wire::FileId::new(1, 1);

    fn s(seconds: f64) -> Nanos {
        Nanos::seconds(seconds)
    }

    /// 10 B/s, background limit 100 bytes, expiry after 30 s.
    fn flusher() -> Flusher {
        let limits = DirtyLimits { background: Bytes(100), hard: Bytes(200) };
        Flusher::new(Rate::per_second(10.0), limits, Some(s(30.0)))
    }

    fn cache(extents: &[(u64, f64)]) -> Extents {
        let mut cache = Extents::new(Nanos::ZERO);
        let mut at = 0;
        for &(size, since) in extents {
            cache.insert(FILE, at, at + size, s(since));
            at += size;
        }
        cache
    }

    #[test]
    fn expired_extents_are_cleaned_from_the_moment_they_expire() {
        let (mut flusher, mut cache) = (flusher(), cache(&[(40, 0.0), (20, 10.0)]));
        flusher.run(&mut cache, s(31.0));
        assert_eq!(cache.dirty(), Bytes(50));
        flusher.run(&mut cache, s(39.0));
        assert_eq!(cache.dirty(), Bytes(20));
        flusher.run(&mut cache, s(41.0));
        assert_eq!(cache.dirty(), Bytes(10));
    }

    #[test]
    fn what_it_catches_up_with_may_lie_anywhere() {
        let (flusher, mut cache) = (flusher(), cache(&[(40, 0.0), (50, 1.0), (60, 2.0)]));
        cache.insert(cawl_wire::FileId::new(1, 2), 0, 30, s(3.0));
        cache.insert(FILE, 0, 40, s(4.0));
        flusher.catch_up(&mut cache, Bytes(25));
        assert_eq!(cache.dirty(), Bytes(25));
    }

    #[test]
    fn extents_are_bounded() {
        let (mut flusher, mut cache) = (flusher(), Extents::new(Nanos::ZERO));
        for extent in 0..MAX_EXTENTS as u64 + 3 {
            cache.insert(FILE, 2 * extent, 2 * extent + 1, s(0.0));
        }
        flusher.run(&mut cache, Nanos::ZERO);
        assert_eq!((cache.len(), cache.dirty()), (MAX_EXTENTS, Bytes(MAX_EXTENTS as u64)));
    }

    #[test]
    fn active_data_is_cleaned_once_it_is_the_majority() {
        let (mut flusher, mut cache) = (flusher(), cache(&[(150, 0.0)]));
        cache.insert(FILE, 0, 150, s(1.0));
        flusher.run(&mut cache, s(60.0));
        assert_eq!(cache.dirty(), Bytes(0));
    }
}
