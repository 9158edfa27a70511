//! What the time of a call is divided among.
//!
//! The causes are those of Kunkel ("Analyzing and Assessing I/O Performance": t = m + p + n + c + d, and a
//! class of calls that no law explains), told apart as far as the kernel's code does.

use std::iter::Sum;
use std::num::NonZero;
use std::ops::{AddAssign, Index, IndexMut};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::named;
use crate::units::Nanos;

named! {
    /// Why a call took time.
    #[derive(PartialOrd, Ord)]
    Cause {
        /// Entering the kernel, and what it does once for each call.
        Call = "call",
        /// The C library's stream: the call, and copying into its buffer.
        Stream = "stream",
        /// Copying into the page cache, from the processor's cache or from memory.
        Copy = "copy",
        /// Going through the blocks of a large folio of which the call writes a part.
        LargeFolio = "large folio",
        /// Allocating pages and entering them into the page cache.
        NewPages = "new pages",
        /// Taking pages out of the page cache: a file is cut off, or its last link goes.
        FreedPages = "freed pages",
        /// Memory that the host of a virtual machine has to supply first.
        ColdMemory = "cold memory",
        /// Reading a page that is written in part, or the source of a copy.
        PartialPage = "partial page read",
        /// The device reads what is not cached, the latency of the request included.
        Read = "read",
        /// An overlay copies a file of a lower layer that is opened for writing.
        CopyUp = "copy up",
        /// What copying takes longer while the flusher works.
        FlusherBeside = "flusher beside",
        /// Pauses in `balance_dirty_pages`.
        Throttle = "throttle",
        /// A commit of the filesystem's journal, or waiting for one.
        Journal = "journal",
        /// Waiting for requests that the device had before.
        Queue = "queue",
        /// The device writes the data, or discards what was freed, the latency of the request included.
        Transfer = "transfer",
        /// The device moves to another place.
        Seek = "seek",
        /// The device's write cache is flushed.
        DeviceFlush = "device flush",
        /// The way over the network, and what the server takes.
        Network = "network",
        /// Another thread writes to the same file.
        Lock = "lock",
        /// Ready to run, but another thread has the processor (run delay).
        Preempted = "preempted",
        /// Writing to /dev/null.
        Discard = "discard",
        /// What no law explains.
        Unexpected = "unexpected",
    }
}

impl Cause {
    /// True for waits for the device.
    pub const fn is_device(self) -> bool {
        use Cause::*;
        matches!(
            self,
            PartialPage | Read | CopyUp | Journal | Queue | Transfer | Seek | DeviceFlush | Network
        )
    }

    /// True for what a call takes by itself: with warm memory, nothing dirty, and the device idle.
    pub const fn is_own(self) -> bool {
        use Cause::*;
        matches!(
            self,
            Call | Stream
                | Copy
                | LargeFolio
                | NewPages
                | FreedPages
                | PartialPage
                | Read
                | CopyUp
                | Journal
                | Transfer
                | Seek
                | DeviceFlush
                | Network
                | Discard
        )
    }
}

/// A name that is no cause's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no cause `{0}`; the causes are {list}", list = list())]
pub struct UnknownCause(String);

/// The names of all causes. (An array of known length, joined, keeps LLVM busy for minutes.)
fn list() -> String {
    let names = Cause::ALL.iter().map(|cause| cause.name());
    names.fold(String::new(), |list, name| if list.is_empty() { name.to_owned() } else { list + ", " + name })
}

impl FromStr for Cause {
    type Err = UnknownCause;

    /// A name of reports; `-` stands for a space, too.
    fn from_str(name: &str) -> Result<Cause, UnknownCause> {
        let wanted = name.replace('-', " ");
        let found = Cause::ALL.into_iter().find(|cause| cause.name() == wanted);
        found.ok_or_else(|| UnknownCause(name.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A value for each cause.
///
/// Most calls have three or four causes, and each is summed many times over: the causes that were given a
/// value are marked, and the others are not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByCause<T> {
    values: [T; Cause::ALL.len()],
    given: CauseSet,
}

/// What a call should cost, by cause.
pub type CostParts = ByCause<Nanos>;

/// The observed time of calls by cause, in ns.
pub type CauseTimes = ByCause<u64>;

/// A set of causes; iterates in the order of reports.
#[derive(Clone, Copy, Debug, Default)]
struct CauseSet(u32);

impl CauseSet {
    /// Those a call waits for the device by.
    const DEVICE: CauseSet = CauseSet(CauseSet::mask(true));
    /// Those of what a call takes by itself.
    const OWN: CauseSet = CauseSet(CauseSet::mask(false));
    /// The cause of each bit. As many as a set has bits, so that no index has to be checked; those beyond the
    /// last cause are never set.
    const OF_BIT: [Cause; u32::BITS as usize] = {
        let mut all = [Cause::Unexpected; u32::BITS as usize];
        let mut at = 0;
        while at < Cause::ALL.len() {
            all[at] = Cause::ALL[at];
            at += 1;
        }
        all
    };

    /// The bits of the device's causes, or of a call's own.
    const fn mask(device: bool) -> u32 {
        let (mut mask, mut at) = (0, 0);
        while at < Cause::ALL.len() {
            let cause = Cause::ALL[at];
            if if device { cause.is_device() } else { cause.is_own() } {
                mask |= 1 << at;
            }
            at += 1;
        }
        mask
    }
}

impl Iterator for CauseSet {
    type Item = Cause;

    #[inline]
    fn next(&mut self) -> Option<Cause> {
        let first = NonZero::new(self.0)?.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(CauseSet::OF_BIT[first as usize])
    }
}

impl<T> Index<Cause> for ByCause<T> {
    type Output = T;

    fn index(&self, cause: Cause) -> &T {
        &self.values[cause as usize]
    }
}

impl<T> IndexMut<Cause> for ByCause<T> {
    fn index_mut(&mut self, cause: Cause) -> &mut T {
        self.given.0 |= 1 << cause as u32;
        &mut self.values[cause as usize]
    }
}

impl<T: PartialEq> PartialEq for ByCause<T> {
    fn eq(&self, other: &ByCause<T>) -> bool {
        self.values == other.values
    }
}

impl<T: Copy> ByCause<T> {
    /// Each cause that was given a value, with it, in the order of reports.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, T)> + '_ {
        self.among(CauseSet(u32::MAX))
    }

    /// Each of these causes that was given a value, with it, in the order of reports.
    fn among(&self, causes: CauseSet) -> impl Iterator<Item = (Cause, T)> + '_ {
        CauseSet(self.given.0 & causes.0).map(|cause| (cause, self[cause]))
    }

    /// Changes the value of each cause that was given one, in the order of reports.
    #[inline]
    pub fn change(&mut self, mut each: impl FnMut(Cause, &mut T)) {
        self.given.for_each(|cause| each(cause, &mut self.values[cause as usize]));
    }

    /// Adds another call's values, each to what there is.
    #[inline]
    fn sum_up<U: Copy>(&mut self, other: &ByCause<U>, mut add: impl FnMut(&mut T, U)) {
        self.given.0 |= other.given.0;
        other.iter().for_each(|(cause, value)| add(&mut self.values[cause as usize], value));
    }

    /// What becomes of each value; nothing remains nothing.
    pub fn map<U: Default>(&self, mut each: impl FnMut(T) -> U) -> ByCause<U> {
        let mut mapped = ByCause { values: Default::default(), given: self.given };
        self.iter().for_each(|(cause, value)| mapped.values[cause as usize] = each(value));
        mapped
    }
}

impl<T: Default, const N: usize> From<[(Cause, T); N]> for ByCause<T> {
    /// These values; the other causes have nothing.
    fn from(values: [(Cause, T); N]) -> ByCause<T> {
        let mut all = ByCause { values: Default::default(), given: CauseSet::default() };
        values.into_iter().for_each(|(cause, value)| all[cause] = value);
        all
    }
}

impl<T: Copy + Default + PartialOrd + AddAssign + Sum> ByCause<T> {
    /// Adds to a cause's part. A cause without one is given none by adding nothing.
    pub fn add_to(&mut self, cause: Cause, part: T) {
        if part > T::default() {
            self[cause] += part;
        }
    }

    /// The cause has no part.
    pub fn clear(&mut self, cause: Cause) {
        self.values[cause as usize] = T::default();
        self.given.0 &= !(1 << cause as u32);
    }

    /// Sum over all causes.
    pub fn sum(&self) -> T {
        self.iter().map(|(_, part)| part).sum()
    }

    /// Waiting for the device: transfer, seek, flush, journal.
    pub fn device(&self) -> T {
        self.among(CauseSet::DEVICE).map(|(_, part)| part).sum()
    }
}

impl CostParts {
    /// Sum of the parts.
    pub fn total(&self) -> Nanos {
        self.iter().map(|(_, part)| part).sum()
    }

    /// Getting bytes into the page cache, page allocation included, memory being warm.
    pub fn copying(&self) -> Nanos {
        self[Cause::Copy] + self[Cause::NewPages] + self[Cause::FlusherBeside]
    }

    /// Sets what a call of these parts takes by itself ([`Cause::is_own`]); by the lower of two predictions,
    /// if there is another, as constants that are learned beside other work have that in them.
    pub fn set_undisturbed(&mut self, parts: &CostParts, other: Option<&CostParts>) {
        for (cause, part) in parts.among(CauseSet::OWN).filter(|(_, part)| *part > Nanos::ZERO) {
            self[cause] = other.map_or(part, |other| part.min(other[cause]));
        }
    }

    /// The parts in ns. Copied as a whole: one by one takes 15 ns a call longer.
    pub fn ns(&self) -> ByCause<f64> {
        ByCause { values: self.values.map(Nanos::get), given: self.given }
    }

    /// Adds another call's parts.
    pub fn add(&mut self, other: &CostParts) {
        self.sum_up(other, |sum, part| *sum += part);
    }
}

impl Serialize for CostParts {
    /// The parts that are not zero, in ns, by name.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().filter(|(_, part)| *part > Nanos::ZERO))
    }
}

impl CauseTimes {
    /// Sum over all causes, in ns.
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |sum, (_, ns)| sum.saturating_add(ns))
    }

    /// The cause with the largest part; of equal ones the first.
    pub fn main(&self) -> Cause {
        let mut main = (Cause::Call, 0);
        for (cause, ns) in self.iter() {
            if ns > main.1 {
                main = (cause, ns);
            }
        }
        main.0
    }

    /// Adds another call's times.
    pub fn add(&mut self, other: &CauseTimes) {
        self.sum_up(other, |sum, ns| *sum = sum.saturating_add(ns));
    }
}

/// A call's observed time by cause.
#[derive(Clone, Copy, Debug)]
pub struct Causes<'a> {
    /// What it took.
    pub times: &'a CauseTimes,
    /// What it would take undisturbed.
    pub own: &'a CostParts,
    /// The cause of the largest part ([`CauseTimes::main`]).
    pub main: Cause,
}

impl Causes<'_> {
    /// What it lost: observed less undisturbed.
    pub fn lost(&self) -> Nanos {
        let of = |(cause, time): (Cause, Nanos)| time.min(Nanos::new(self.times[cause] as f64));
        Nanos::new(self.times.total() as f64).saturating_sub(self.own.iter().map(of).sum())
    }
}

/// Sums over calls by cause: what they took, and what they would have taken undisturbed.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeSums {
    observed: CauseTimes,
    undisturbed: CostParts,
}

impl TimeSums {
    /// Adds the sums of calls that stand for others, which took so many times as long.
    pub fn add_scaled(&mut self, calls: &TimeSums, factor: f64) {
        let more = |ns: u64| (ns as f64 * factor).round() as u64;
        self.observed.sum_up(&calls.observed, |sum, ns| *sum = sum.saturating_add(more(ns)));
        self.undisturbed.sum_up(&calls.undisturbed, |sum, part| *sum += part * factor);
    }

    /// Adds a call.
    pub fn add(&mut self, causes: Causes<'_>) {
        self.observed.add(causes.times);
        self.undisturbed.sum_up(causes.own, |sum, part| *sum += part);
    }

    /// Adds the sums of other calls.
    pub fn add_all(&mut self, calls: &TimeSums) {
        self.observed.add(&calls.observed);
        self.undisturbed.sum_up(&calls.undisturbed, |sum, part| *sum += part);
    }

    /// What came since earlier sums.
    pub fn since(&self, before: &TimeSums) -> TimeSums {
        let mut since = *self;
        since.observed.sum_up(&before.observed, |sum, then| *sum = sum.saturating_sub(then));
        since.undisturbed.sum_up(&before.undisturbed, |sum, then| *sum = sum.saturating_sub(then));
        since
    }

    /// Adds calls that took `ns` for one cause, which nothing disturbs.
    pub fn add_calls(&mut self, cause: Cause, ns: u64) {
        self.observed[cause] = self.observed[cause].saturating_add(ns);
        self.undisturbed[cause] += Nanos::new(ns as f64);
    }

    /// What they took.
    pub fn observed(&self) -> &CauseTimes {
        &self.observed
    }

    /// What they would have taken undisturbed for a cause: not more than was observed.
    pub fn undisturbed_of(&self, cause: Cause) -> Nanos {
        self.undisturbed[cause].min(Nanos::new(self.observed[cause] as f64))
    }

    /// What the calls would have taken undisturbed, over all causes.
    pub fn undisturbed(&self) -> Nanos {
        // The sum of nothing is -0.0.
        self.undisturbed.iter().map(|(cause, _)| self.undisturbed_of(cause)).sum::<Nanos>() + Nanos::ZERO
    }

    /// What was lost: observed less undisturbed.
    pub fn lost(&self) -> Nanos {
        Nanos::new(self.observed.total() as f64).saturating_sub(self.undisturbed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_found_by_its_name() {
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            assert_eq!(cause.name().parse(), Ok(cause));
            assert_eq!(cause.name().replace(' ', "-").parse(), Ok(cause));
        }
        let refused = "cold".parse::<Cause>().expect_err("no cause").to_string();
        assert!(refused.contains("`cold`") && refused.contains("cold memory"), "{refused}");
    }

    #[test]
    fn the_main_cause_has_the_largest_part() {
        let mut times = CauseTimes::default();
        assert_eq!((times.main(), times.total()), (Cause::Call, 0));
        (times[Cause::Copy], times[Cause::Lock], times[Cause::Throttle]) = (5, 7, 7);
        assert_eq!((times.main(), times.total()), (Cause::Throttle, 19));
    }
}
