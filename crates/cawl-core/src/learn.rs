//! Learns the constants of a profile from calls as they are observed (docs/science/LIVE.md).
//!
//! The law: **predict first, learn afterwards.** An observation is shown to the [`Learner`] after every model
//! has predicted it, and changes constants only for the calls that follow. Each constant is learned where it
//! determines the cost, by what the model says the call had to do ([`Work`]); which regime the machine is in
//! is told by the model and by the kernel's counters, and where they disagree nothing is learned.
//!
//! | constants | learned from |
//! |---|---|
//! | `calls.write`, `folio`, `inode`, `away`, `clean`, `memory.cached`, `fresh`, `folio` | writes and copies into the cache while the flusher is idle |
//! | `memory.cold` | writes of new pages while the host supplies memory ([`supply`]) |
//! | `memory.flush_factor` | the same while it works |
//! | `calls.stream`, `memory.stream` | stream calls that stay in their buffer |
//! | `device.write`, `latency`, `sync_call`, `fsync`, `flush`, `idle`, `request`, `folio`, `seek`, `delayed_allocation` | calls that wait for the device |
//! | `calls.read`, `read_folio_far`, `fault`, `read_away`, `memory.read`, `read_fresh` | reads from the page cache |
//! | `device.read`, `sequential_read`, `read_latency` | reads that wait for what they asked the device for |
//! | `calls.open`, `create`, `close` | opens and closes |
//! | `calls.free` | calls that take pages out of the cache |
//! | `device.writeback` | Δ`nr_written` while the flusher is busy |

mod bank;
mod constants;
mod evidence;
mod keep;
mod recursive;
mod supply;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cawl_wire::{Event, Op};

use crate::call::{kernel_bytes, moved_bytes};
use crate::cause::Cause;
use crate::model::{CallState, Prediction, ReadWork, Work};
use crate::profile::{HostProfile, OtherDevice};
use crate::record::Sample;
use crate::units::{Bytes, Nanos, Seconds};
use bank::{Bank, Memories};
pub use constants::Constant;
use supply::Supply;

/// A write into the page cache: seconds of calls.
const COPYING: Memories = Memories { members: [0.03, 0.3, 3.0, 30.0], block: 0.1, summed: 50e-6 };
/// A call that waits for the device: seconds of calls.
const WAITING: Memories = Memories { members: [0.1, 1.0, 10.0, 100.0], block: 0.3, summed: 0.0 };
/// Writeback: seconds in which the flusher is busy.
const WRITEBACK: Memories = Memories { members: [0.5, 2.0, 8.0, 32.0], block: 1.0, summed: 0.0 };
/// Pages under writeback that keep a device busy: what the flusher hands over at a time.
const BUSY: u64 = 2048;
/// Span of the counters from which a writeback rate is taken, in ns; shorter if the device is busy no longer.
const SPAN: u64 = 200_000_000;
/// No call counts as more than this many times the part of its memory that it takes up.
const WEIGHTIEST: f64 = 0.25;
/// Calls after which it is known what is ordinary on this machine: dear memory may be all it has.
const FAMILIAR: u64 = 100;
/// Factor from which on the flusher counts as slowing copying down.
const SLOWS: f64 = 1.01;
/// A copy this many times faster than predicted copies nothing.
const TOO_FAST: f64 = 8.0;
/// Calls of fewer bytes tell what a call and its folios cost, and nothing for good of a byte: what a small
/// call takes longer in one program than in another is as much as its bytes take.
const LARGE: u64 = 64 << 10;
/// Part of its cost from which on a call tells what the pages take that it frees.
const FREES: f64 = 0.8;
/// Relative change from which on the models are told.
const NOTEWORTHY: f64 = 0.005;

/// What was observed of new pages whose memory the host had to supply.
#[derive(Clone, Debug, Default)]
pub struct ColdMemory {
    /// By operation: bytes of such pages, and how much longer they took than warm ones.
    pub by_op: BTreeMap<Op, (Bytes, Nanos)>,
    /// Bytes of all new pages whose calls tell whether they were cold.
    told: Bytes,
}

/// The largest part of new pages that are cold where memory comes warm.
const STRAY: f64 = 0.1;

impl ColdMemory {
    /// What calls tell is that memory came warm.
    pub fn came_warm(&self) -> bool {
        let cold = self.by_op.values().map(|(bytes, _)| bytes.as_f64()).sum::<f64>();
        self.told > Bytes::ZERO && cold < STRAY * self.told.as_f64()
    }

    fn met(&mut self, op: Op, bytes: Bytes, longer: Nanos) {
        let sums = self.by_op.entry(op).or_default();
        *sums = (sums.0 + bytes, sums.1 + longer);
    }
}

/// Learns constants.
#[derive(Clone, Debug)]
pub struct Learner {
    configured: HostProfile,
    /// The profile with what was learned.
    pub profile: HostProfile,
    copying: Bank<8>,
    /// What the host takes for a byte of new pages, and whether it is needed now.
    host: Bank<1>,
    supply: Supply,
    /// What was observed of cold memory.
    pub cold: ColdMemory,
    slowdown: Bank<1>,
    stream: Bank<2>,
    reading: Bank<6>,
    fetching: Bank<3>,
    opening: Bank<4>,
    naming: Bank<2>,
    waiting: Bank<11>,
    writeback: Bank<1>,
    /// Banks of the profile's `others` (waiting, writeback, fetching), and which device was written to last.
    others: Vec<(Bank<11>, Bank<1>, Bank<3>)>,
    latest: u64,
    /// The kernel's dirty level and what was written since, in bytes.
    level: Option<Bytes>,
    since: Bytes,
    /// Where a span of busy writeback began, and where pages were last completed in it.
    busy: Option<(Sample, Sample)>,
    before: Option<Sample>,
    /// Pages were under writeback of late.
    flushing: bool,
    /// Device (`st_dev`) whose calls count for what is kept.
    keeps: Option<u64>,
    dirtied: Dirtied,
}

/// Bytes made dirty of late.
#[derive(Clone, Copy, Debug, Default)]
struct Dirtied {
    all: f64,
    /// On devices with constants of their own.
    on_others: f64,
    /// Not on the device that is kept.
    elsewhere: f64,
}

/// Bytes made dirty on other devices say nothing as long as they are no more than this part of all.
const FEW: f64 = 0.1;

/// How a learner forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// What is older fades: constants are those of now, as the next call needs them.
    Fading,
    /// Nothing fades: constants are the most likely ones of all calls together. What calls do not tell apart
    /// stays as it was known, so these are for calls of another kind.
    Lasting,
}

impl Memory {
    fn of(self, memories: Memories) -> Memories {
        match self {
            Memory::Fading => memories,
            Memory::Lasting => Memories { members: [f64::INFINITY; 4], ..memories },
        }
    }
}

impl Learner {
    /// Begins with what this profile knows.
    pub fn new(profile: &HostProfile) -> Learner {
        Learner::with(profile, Memory::Fading)
    }

    /// Begins with what this profile knows, and with a memory of this kind.
    pub fn with(profile: &HostProfile, memory: Memory) -> Learner {
        let [copying, waiting, writeback] = [COPYING, WAITING, WRITEBACK].map(|kind| memory.of(kind));
        let of_other = |other: &OtherDevice| {
            let own = HostProfile { device: other.constants.clone(), ..profile.clone() };
            (
                Bank::of(&constants::WAITING, &own, waiting).sceptical(),
                Bank::of(&constants::WRITEBACK, &own, writeback),
                Bank::of(&constants::FETCHING, &own, waiting).reopening(),
            )
        };
        Learner {
            others: profile.others.iter().map(of_other).collect(),
            latest: 0,
            configured: profile.clone(),
            profile: profile.clone(),
            copying: Bank::of(&constants::COPYING, profile, copying),
            host: Bank::of(&constants::HOST, profile, copying),
            supply: Supply::default(),
            cold: ColdMemory::default(),
            slowdown: Bank::of(&constants::SLOWDOWN, profile, copying),
            stream: Bank::of(&constants::STREAM, profile, copying),
            reading: Bank::of(&constants::READING, profile, copying),
            fetching: Bank::of(&constants::FETCHING, profile, waiting).reopening(),
            opening: Bank::of(&constants::OPENING, profile, copying),
            naming: Bank::of(&constants::NAMING, profile, copying),
            waiting: Bank::of(&constants::WAITING, profile, waiting).sceptical(),
            writeback: Bank::of(&constants::WRITEBACK, profile, writeback),
            level: None,
            since: Bytes::ZERO,
            busy: None,
            before: None,
            flushing: false,
            keeps: None,
            dirtied: Dirtied::default(),
        }
    }

    /// The memory of new pages comes cold now, or warm; None: no call tells.
    pub fn supply(&self) -> Option<bool> {
        self.supply.tells.then(|| self.supply.is_cold())
    }

    /// A call was predicted and took as long as the event says. True if constants changed.
    pub fn call(&mut self, event: &Event, prediction: &Prediction) -> bool {
        let Prediction { parts, work, .. } = prediction;
        if work.dirtied > 0.0 || parts.device() > Nanos::ZERO {
            self.latest = event.dev;
        }
        self.since += Bytes(kernel_bytes(event)).max(Bytes::from_f64(work.dirtied));
        let observed = event.duration as f64 * 1e-9;
        let is_small = moved_bytes(event) < LARGE;
        self.copying.silent[1..=2].fill(is_small);
        (self.reading.silent[1], self.reading.silent[3]) = (is_small, is_small);
        self.host.silent = [is_small];
        if work.freed > 0.0 && parts[Cause::FreedPages].get() >= FREES * prediction.cost.get() {
            self.count(self.keeps == Some(event.dev));
            return work.frees_unknown == 0.0 && self.freed(observed, prediction);
        }
        if work.read != ReadWork::default() && work.discards == 0.0 {
            self.count(self.keeps == Some(event.dev));
            return self.about(event.dev, |learner| learner.read(observed, prediction, event.op));
        }
        if work.source > Seconds::ZERO && !is_plain_copy(observed, prediction) {
            return false;
        }
        let copies = work.copied[0] + work.copied[1] > 0.0;
        let has_its_own = self.profile.others.iter().any(|other| other.dev == event.dev);
        let counts = self.keeps == Some(event.dev);
        self.dirtied.all += work.dirtied;
        self.dirtied.on_others += if has_its_own { work.dirtied } else { 0.0 };
        self.dirtied.elsewhere += if counts { 0.0 } else { work.dirtied };
        self.count(counts);
        if parts[Cause::Lock] > Nanos::ZERO {
            // How long another thread kept it waiting, no constant of its own tells.
            false
        } else if parts.device() > Nanos::ZERO {
            let settled = parts[Cause::Throttle] == Nanos::ZERO
                && (work.fsyncs + work.flushes > 0.0 || !self.pressed());
            settled && self.about(event.dev, |learner| learner.waited(observed, prediction))
        } else if copies {
            self.copied(observed, prediction, event.op)
        } else {
            // To close a stream is more than a call on it.
            event.op == Op::StreamWrite && work.stays_in_stream() && self.buffered(observed, work)
        }
    }

    /// A read, an open or close, or a change of a name.
    fn read(&mut self, observed: f64, prediction: &Prediction, op: Op) -> bool {
        let Prediction { parts, work, .. } = prediction;
        let (read, cost) = (&work.read, prediction.cost.as_seconds());
        if read.opens + read.closes + read.names + read.stats > 0.0 {
            if parts.device() > Nanos::ZERO {
                return false;
            }
            // Names that are not cached and names of new directories make an open dearer than any.
            if read.names + read.stats > 0.0 {
                return read.opens == 0.0 && self.named(observed, prediction);
            }
            let h = [read.opens, read.creates, read.closes, 0.0];
            let observed = cut(observed, self.opening.expect(&h) + read.believed.0, &COPYING);
            return self.opening.observe(&h, observed - read.believed.0, observed)
                && self.opening.adopt(&constants::OPENING, &mut self.profile);
        }
        let waited = parts[Cause::Read].as_seconds();
        let beside = parts.device() + parts[Cause::Stream];
        if read.arrived > 0.0
            && waited == 0.0
            && beside == Nanos::ZERO
            && self.supplied(observed, prediction, op)
        {
            return true;
        }
        if prediction.has_waited(Seconds(observed)) {
            // A stream keeps the device busy between its waits, too.
            let h = [read.latencies, read.transferred, read.ahead];
            let observed = observed.min(cost + WAITING.members[0]);
            // What an idle device takes to wake up is believed.
            let wake = work.idle * self.profile.device.idle.map_or(0.0, |idle| idle.value.as_seconds());
            let rest = (observed - (cost - waited) - wake).max(0.0) + read.since.0;
            // What was there before says only that it took no longer.
            let met = prediction.has_met(Seconds(observed)) || self.fetching.expect(&h) > rest;
            return met
                && self.fetching.observe(&h, rest, rest)
                && self.fetching.adopt(&constants::FETCHING, &mut self.profile);
        }
        // It waited for something.
        if prediction.is_late(Seconds(observed))
            || waited > 0.0
            || parts.device() > Nanos::ZERO
            || work.source > Seconds::ZERO
            || parts[Cause::ColdMemory] > Nanos::ZERO
        {
            return false;
        }
        let h = [read.calls, read.bytes, read.folios, read.fresh, read.faults, read.away];
        let others = parts[Cause::Stream].as_seconds();
        let observed = cut(observed, cost, &COPYING);
        self.reading.observe(&h, observed - others, observed)
            && self.reading.adopt(&constants::READING, &mut self.profile)
    }

    /// A read of pages that the device has filled and no processor has touched: the host maps each of them,
    /// if it had to supply it. True if the regime has changed, or is that one.
    fn supplied(&mut self, observed: f64, prediction: &Prediction, op: Op) -> bool {
        let Prediction { parts, work, cost, .. } = prediction;
        let arrived = work.read.arrived;
        let warm = cost.as_seconds() - parts[Cause::ColdMemory].as_seconds();
        let cold = warm + arrived * self.host.theta()[0];
        let before = self.supply();
        self.supply.observe(arrived, observed, warm, cold);
        if !self.supply.is_cold() {
            return before != self.supply();
        }
        self.cold.met(op, Bytes::from_f64(arrived), Nanos::seconds(observed - warm));
        let observed = cut(observed, cold, &COPYING);
        // A page that the device has filled is only mapped: no example of what a new one costs.
        self.host.counts = false;
        if self.host.observe(&[arrived], observed - warm, observed) {
            self.adopt_copying();
        }
        true
    }

    /// A call on names alone: what it frees beside is believed.
    fn named(&mut self, observed: f64, prediction: &Prediction) -> bool {
        let observed = cut(observed, prediction.cost.as_seconds(), &COPYING);
        let read = &prediction.work.read;
        let rest = observed - prediction.parts[Cause::FreedPages].as_seconds() - read.believed.0;
        self.naming.observe(&[read.names, read.stats], rest, observed)
            && self.naming.adopt(&constants::NAMING, &mut self.profile)
    }

    /// A call that takes pages out of the cache, and does little else.
    fn freed(&mut self, observed: f64, prediction: &Prediction) -> bool {
        let (cost, freed) = (prediction.cost.as_seconds(), prediction.parts[Cause::FreedPages].as_seconds());
        let h = [0.0, 0.0, 0.0, prediction.work.freed];
        let observed = cut(observed - (cost - freed), freed, &COPYING);
        self.opening.observe(&h, observed, observed)
            && self.opening.adopt(&constants::OPENING, &mut self.profile)
    }

    /// Learns about this device: its constants are in the place of the profile's own for as long.
    fn about(&mut self, dev: u64, learn: impl FnOnce(&mut Learner) -> bool) -> bool {
        let at = self.profile.others.iter().position(|other| other.dev == dev);
        self.exchange(at);
        let changed = learn(self);
        self.exchange(at);
        changed
    }

    fn exchange(&mut self, at: Option<usize>) {
        let Some(at) = at else { return };
        std::mem::swap(&mut self.profile.device, &mut self.profile.others[at].constants);
        std::mem::swap(&mut self.waiting, &mut self.others[at].0);
        std::mem::swap(&mut self.writeback, &mut self.others[at].1);
        std::mem::swap(&mut self.fetching, &mut self.others[at].2);
    }

    /// Writers may be held back by now, whatever the model says.
    fn pressed(&self) -> bool {
        let kernel = &self.profile.kernel;
        let freerun = kernel.limits.tighter(kernel.cgroup).freerun();
        self.level.is_some_and(|level| level + self.since > freerun)
    }

    fn copied(&mut self, observed: f64, prediction: &Prediction, op: Op) -> bool {
        let Prediction { parts, work, .. } = prediction;
        let fresh = work.fresh[0] + work.fresh[1];
        let &[call, byte, page, padded, inode, away, clean, folio] = self.copying.theta();
        let &[slowdown] = self.slowdown.theta();
        let &[host] = self.host.theta();
        // What the stream's buffer costs is believed, too.
        let copying = |at: usize| {
            let folios = work.folios[at] * folio + work.padded[at] * padded + work.clean[at] * clean;
            work.copied[at] * byte + work.fresh[at] * page + folios + work.believed[at].0
        };
        let first = work.inodes * inode + work.away * away;
        let plain = work.calls * call + first + copying(0);
        let while_flushing = copying(1);
        let rest = observed - parts[Cause::Stream].as_seconds();
        let warm = plain + while_flushing * slowdown;
        let cold = warm + fresh * host;
        // No pause is shorter than a tick: a faster call was not held back. What should have been faster,
        // while the flusher is about, was.
        let held =
            prediction.state == CallState::Throttle || self.pressed() || self.flushing && cold < self.tick();
        if rest >= self.tick() && held {
            return false;
        }
        let before = self.supply();
        // What was measured, or learned by runs before, is what is ordinary.
        let memory = &self.configured.memory;
        let familiar = memory.fresh.samples > 0 || memory.cold.is_some() || self.copying.samples >= FAMILIAR;
        if fresh > 0.0 && familiar {
            self.supply.observe(fresh, rest, warm, cold);
        }
        let changed = before != self.supply();
        if self.supply.tells {
            self.cold.told += Bytes::from_f64(fresh);
        }
        if self.supply.is_cold() && fresh > 0.0 {
            self.cold.met(op, Bytes::from_f64(fresh), Nanos::seconds(rest - warm));
        }
        let expected = if self.supply.is_cold() { cold } else { warm };
        let observed = cut(observed, expected + parts[Cause::Stream].as_seconds(), &COPYING);
        let rest = observed - parts[Cause::Stream].as_seconds();
        let told = if self.supply.is_cold() && fresh > 0.0 {
            self.host.observe(&[fresh], rest - warm, observed)
        } else {
            // A flusher that slows no writer down leaves the rest to the constants of an idle one.
            let slows = while_flushing > 0.0 && slowdown > SLOWS;
            // What the rest of the call costs is not known well enough to tell a factor from a small part of
            // it.
            let told =
                while_flushing > plain && self.slowdown.observe(&[while_flushing], rest - plain, observed);
            let both = |of: [f64; 2]| of[0] + of[1];
            let [copied, fresh, padded] = [work.copied, work.fresh, work.padded].map(both);
            let [clean, folios] = [work.clean, work.folios].map(both);
            let h = [work.calls, copied, fresh, padded, work.inodes, work.away, clean, folios];
            !slows && self.copying.observe(&h, rest - both(work.believed.map(|time| time.0)), observed)
                || told
        };
        (told && self.adopt_copying()) | changed
    }

    /// A tick of the kernel's clock, in seconds.
    fn tick(&self) -> f64 {
        1.0 / f64::from(self.profile.kernel.hz.max(1))
    }

    fn buffered(&mut self, observed: f64, work: &Work) -> bool {
        let h = [work.stream_calls, work.stream_bytes];
        let observed = cut(observed, self.stream.expect(&h), &COPYING);
        self.stream.observe(&h, observed, observed)
            && self.stream.adopt(&constants::STREAM, &mut self.profile)
    }

    fn waited(&mut self, observed: f64, prediction: &Prediction) -> bool {
        let work = &prediction.work;
        let &Work { transferred, syncs, fsyncs, seeks, latencies, flushes, .. } = work;
        let &Work { idle, requests, handed, allocated, discards, .. } = work;
        let h = [
            transferred,
            syncs,
            fsyncs,
            seeks,
            latencies,
            flushes,
            idle,
            requests,
            handed,
            allocated,
            discards,
        ];
        if h == [0.0; 11] {
            // Waiting for others, which no constant explains.
            return false;
        }
        let expected = self.waiting.expect(&h);
        // Everything but what these constants explain is believed: copying, waiting for others.
        let rest =
            cut(observed, prediction.cost.as_seconds(), &WAITING) - (prediction.cost.as_seconds() - expected);
        self.waiting.observe(&h, rest, observed) && self.waiting.adopt(&constants::WAITING, &mut self.profile)
    }

    /// The kernel's counters. True if constants changed.
    pub fn sample(&mut self, sample: &Sample) -> bool {
        let page = self.profile.kernel.page;
        self.profile.kernel.limits = sample.limits(page);
        (self.level, self.since) = (Some(sample.dirty_bytes(page)), Bytes::ZERO);
        let busy = sample.writeback >= BUSY;
        let moved = self.before.is_none_or(|before| before.written != sample.written);
        self.before = Some(*sample);
        self.flushing = sample.writeback > 0 || moved;
        if !busy {
            let span = self.busy.take().filter(|(began, latest)| is_turned_over(began, latest));
            return span.is_some_and(|(began, latest)| self.written(&began, &latest));
        }
        if !moved {
            return false;
        }
        // Spans begin and end where pages were completed: a journal's commit completes many at once.
        let began = self.busy.map_or(*sample, |(began, _)| began);
        self.busy = Some((began, *sample));
        if sample.time.0.saturating_sub(began.time.0) < SPAN || !is_turned_over(&began, sample) {
            return false;
        }
        self.busy = Some((*sample, *sample));
        self.written(&began, sample)
    }

    /// The device was busy between two samples.
    fn written(&mut self, began: &Sample, ended: &Sample) -> bool {
        let seconds = ended.time.0.saturating_sub(began.time.0) as f64 * 1e-9;
        let pages = ended.written.saturating_sub(began.written) as f64;
        let written = pages * self.profile.kernel.page.as_f64();
        let Dirtied { all, on_others, elsewhere } = self.dirtied;
        self.dirtied = Dirtied { all: all * 0.5, on_others: on_others * 0.5, elsewhere: elsewhere * 0.5 };
        self.writeback.counts = self.keeps.is_some() && all > 0.0 && elsewhere <= FEW * all;
        let learn = |learner: &mut Learner| {
            learner.writeback.observe(&[seconds], written, seconds)
                && learner.writeback.adopt(&constants::WRITEBACK, &mut learner.profile)
        };
        // The count is of all devices: it tells of one where nearly all went to that.
        if seconds <= 0.0 {
            false
        } else if on_others <= FEW * all {
            learn(self)
        } else {
            on_others >= (1.0 - FEW) * all && self.about(self.latest, learn)
        }
    }
}

/// What was under writeback when a span began is written: completions come many together, and a moment of
/// the queue says nothing of how fast it empties.
fn is_turned_over(began: &Sample, ended: &Sample) -> bool {
    ended.written.saturating_sub(began.written) >= began.writeback
}

/// A copy was neither read from the device nor made by sharing blocks.
fn is_plain_copy(observed: f64, prediction: &Prediction) -> bool {
    let cost = prediction.cost.as_seconds();
    prediction.parts.device() == Nanos::ZERO
        && observed < cost + prediction.work.source.0 / 2.0
        && observed * TOO_FAST > cost
}

/// An observation, cut down to what its memory can bear.
fn cut(observed: f64, expected: f64, memories: &Memories) -> f64 {
    observed.min(expected * 4.0 + WEIGHTIEST * memories.members[0])
}
