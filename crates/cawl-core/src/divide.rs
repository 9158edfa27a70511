//! Divides the observed time of a call among its causes.
//!
//! The law: a prediction has a part for each cause, and each part a width: how far its constant spreads. What
//! was observed is the most likely sum of the parts (normal about the prediction with these widths, so that
//! what is over or missing goes to each in proportion to the square of its width; Kunkel, "Analyzing and
//! Assessing I/O Performance", takes the cause whose time is nearest, which is the same with one part). A
//! part reaches [`REACH`] widths. What was measured apart from the model comes before that: run delay, the
//! time of a device's requests, and calls of other threads that held the same file. Then come causes that
//! were possible but not predicted. What is left no law explains.

use std::borrow::Cow;

use cawl_wire::{Event, FileId, FileKind};

use crate::call::{Class, kernel_bytes};
use crate::cause::{ByCause, Cause, CauseTimes, CostParts};
use crate::device_pace::{DevicePaces, Speeds};
use crate::model::{LONGEST_PAUSE, Prediction};
use crate::profile::{HostProfile, Measured};
use crate::record::{DeviceCounters, FileFacts};
use crate::run_delay::{Bounds, RunDelays};
use crate::units::{Nanos, Rate, Time};

/// Widths up to which a part may be off: beyond three standard deviations one call in a thousand lies.
const REACH: f64 = 3.0;
/// The least width, as a part of the prediction.
const MIN: f64 = 0.25;
/// Width of what was not measured, as a part of the prediction.
const UNMEASURED: f64 = 1.0;
/// What interrupts take from any call, in ns: a tick with its softirqs and those of a device.
const INTERRUPTS: f64 = 50_000.0;
/// Dirtied bytes between checks for a pause, at least: 32 KiB (`EXCEEDED_CHECK` of the model).
const CHECKED: f64 = 32_768.0;
/// Latest writes that are remembered to find calls that overlap.
const LATEST: usize = 16;

/// The path that discards what is written to it.
const NULL: &str = "/dev/null";

/// How far each part of a prediction may be off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths {
    /// Down and up, as parts of the prediction.
    parts: [ByCause<f64>; 2],
    /// What a byte of new pages costs more where the host has to supply it, at most, in ns.
    cold: f64,
    /// The longest that the device takes for what its queue holds, in ns.
    queue: f64,
    /// A commit of the journal, in ns.
    commit: f64,
    /// A tick, in ns: the shortest pause, and the longest that a thread runs while others wait for its
    /// processor.
    tick: f64,
}

/// Divides calls.
#[derive(Debug, Default)]
pub struct Divider {
    /// Of the present constants.
    pub widths: Widths,
    /// Identities of /dev/null, in the namespaces where it was opened.
    nulls: Vec<FileId>,
    paces: DevicePaces,
    speeds: Speeds,
    latest: [Write; LATEST],
    next: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Write {
    file: FileId,
    tid: u32,
    end: u64,
}

impl Widths {
    /// Those of predictions of single calls by this profile.
    pub fn of(profile: &HostProfile) -> Widths {
        Widths::at_least(MIN, profile)
    }

    /// Those of the constants themselves, but not less than this part of the prediction.
    pub fn at_least(least: f64, profile: &HostProfile) -> Widths {
        let ratios = |value, low, high| ratios(least, value, low, high);
        let inverse = |value, low, high| inverse(least, value, low, high);
        let (calls, memory, device) = (&profile.calls, &profile.memory, &profile.device);
        let times = |m: &Measured<Nanos>| ratios(m.value.get(), m.p10.map(Nanos::get), m.p90.map(Nanos::get));
        // A rate that is higher takes less time.
        let rates = |m: &Measured<Rate>| inverse(m.value.get(), m.p10.map(Rate::get), m.p90.map(Rate::get));
        let factor = |m: &Measured<f64>| inverse(m.value, m.p10, m.p90);
        let unmeasured = (UNMEASURED, UNMEASURED);
        let mut parts = [ByCause::default(); 2];
        for cause in Cause::ALL {
            let (down, up) = match cause {
                Cause::Call => times(&calls.write),
                Cause::Stream => rates(&memory.stream),
                Cause::Copy => rates(&memory.cached),
                Cause::LargeFolio => calls.block_far.as_ref().map_or(unmeasured, times),
                Cause::NewPages => rates(&memory.fresh),
                Cause::FreedPages => times(&calls.free),
                Cause::ColdMemory => memory.cold.as_ref().map_or(unmeasured, rates),
                Cause::PartialPage => rates(&device.read),
                Cause::Read => device.read_latency.as_ref().map_or(rates(&device.read), times),
                Cause::FlusherBeside => factor(&memory.flush_factor),
                Cause::Journal => times(&device.fsync),
                Cause::Queue | Cause::Transfer => rates(&device.write),
                Cause::Network => device.latency.as_ref().map_or(unmeasured, times),
                Cause::Seek => times(&device.seek),
                Cause::DeviceFlush => device.flush.as_ref().map_or(unmeasured, times),
                // A pause more or less, a writer more or less.
                Cause::Throttle | Cause::Lock | Cause::CopyUp => unmeasured,
                Cause::Preempted | Cause::Discard | Cause::Unexpected => (0.0, 0.0),
            };
            (parts[0][cause], parts[1][cause]) = (down, up);
        }
        let cold = memory
            .cold
            .as_ref()
            .map_or(0.0, |cold| 1e9 / cold.p10.unwrap_or(cold.value).get() - 1e9 / memory.fresh.value.get());
        Widths {
            parts,
            cold,
            queue: (device.queue / device.write.value).get(),
            commit: device.fsync.value.get(),
            tick: 1e9 / f64::from(profile.kernel.hz.max(1)),
        }
    }

    /// Down (0) or up (1); the spread of constants does not count for what was measured beside the model.
    fn narrowed(&self, way: usize, measured: &[Cause]) -> Cow<'_, ByCause<f64>> {
        let mut widths = Cow::Borrowed(&self.parts[way]);
        measured.iter().for_each(|cause| widths.to_mut()[*cause] = MIN);
        widths
    }

    /// How far off a cause's part may be either way, as a part of it.
    pub fn mean(&self, cause: Cause) -> f64 {
        self.parts[0][cause].midpoint(self.parts[1][cause])
    }
}

impl Divider {
    /// For predictions by this profile.
    pub fn new(profile: &HostProfile) -> Divider {
        Divider { widths: Widths::of(profile), speeds: Speeds::of(profile), ..Divider::default() }
    }

    /// An identity has this path.
    pub fn file(&mut self, facts: &FileFacts) {
        if facts.path == NULL && !self.nulls.contains(&facts.file()) && self.nulls.len() < LATEST {
            self.nulls.push(facts.file());
        }
    }

    pub fn device(&mut self, counters: &DeviceCounters) {
        self.paces.take(counters, &self.speeds);
    }

    /// Writes to this file go nowhere.
    pub fn is_discard(&self, event: &Event) -> bool {
        event.kind != FileKind::Regular && self.nulls.contains(&event.file())
    }

    /// Sets the time of a call by cause, which would take `own` undisturbed; the cause of its largest part,
    /// or None if it has no cost. `delays`: what the kernel counted for its thread. `times` has no time yet.
    pub fn divide(
        &mut self,
        event: &Event,
        class: Class,
        prediction: Option<&Prediction>,
        own: &CostParts,
        delays: &mut RunDelays,
        times: &mut CauseTimes,
    ) -> Option<Cause> {
        let cause = match (class, prediction) {
            (Class::Cost, Some(prediction)) => {
                let parts = self.parts(event, prediction, own, delays);
                return Some(whole(&parts, event.duration, times));
            }
            (Class::Cost, None) => Cause::Unexpected,
            (Class::Elsewhere, _) if self.is_discard(event) => Cause::Discard,
            _ => return None,
        };
        times[cause] = event.duration;
        Some(cause)
    }

    #[inline]
    fn parts(
        &mut self,
        event: &Event,
        prediction: &Prediction,
        own: &CostParts,
        delays: &mut RunDelays,
    ) -> ByCause<f64> {
        let mut parts = prediction.parts.ns();
        let mut measured: &[Cause] = &[];
        if parts.device() > 0.0 {
            measured = self.paces.correct(event.dev, &prediction.work, &self.speeds, &mut parts);
        }
        let duration = event.duration as f64;
        // Shorter than this, no call was delayed or slept for a tick.
        let long = duration > INTERRUPTS;
        let thread = (event.pid, event.tid, Time(event.start), Time(event.end()));
        let bounds = match long {
            true => delays.bounds(thread.0, thread.1, thread.2, thread.3),
            false => Bounds::NONE,
        };
        // What was measured counts before what was learned: constants and pauses that were learned beside
        // other work have some of its run delay in them.
        if long {
            let waits = own.device().get();
            let runs = own.total().get() - waits + parts[Cause::ColdMemory];
            // While its requests are in the device a thread is asleep, whatever the kernel counts as delay (a
            // late dequeue, since 6.12).
            let in_device = measured.iter().map(|cause| parts[*cause]).sum();
            let unsure = duration - runs.min(bounds.ran) - waits.min(bounds.slept).max(in_device);
            if unsure > INTERRUPTS {
                let most = Nanos::new(unsure);
                let taken = delays.take(thread.0, thread.1, thread.2, thread.3, most, waits > 0.0);
                parts.add_to(Cause::Preempted, taken.get());
            }
        }
        let delayed = parts[Cause::Preempted];
        // No pause is shorter than a tick.
        if (duration - delayed).min(bounds.slept) < self.widths.tick {
            parts.clear(Cause::Throttle);
        }
        let over = duration - parts.sum();
        if over < 0.0 {
            // What was measured stays.
            parts.clear(Cause::Preempted);
            self.shrink(&mut parts, measured, -over);
            parts.add_to(Cause::Preempted, delayed);
        } else {
            self.grow(&mut parts, measured, event, prediction, over);
        }
        if long && bounds != Bounds::NONE {
            let spent = self.fit(&mut parts, prediction, bounds);
            delays.spend(thread.0, thread.1, thread.2, thread.3, spent);
        }
        if kernel_bytes(event) > 0 {
            self.latest[self.next] = Write { file: event.file(), tid: event.tid, end: event.end() };
            self.next = (self.next + 1) % LATEST;
        }
        parts
    }

    /// No part that needs a processor is longer than the thread was on one, and no pause than it slept.
    /// Returns how long it was and did.
    fn fit(&self, parts: &mut ByCause<f64>, prediction: &Prediction, bounds: Bounds) -> Bounds {
        let waits = parts.device();
        // What a call that waits for the device does on a processor in addition is part of the wait.
        if waits > 0.0 {
            return Bounds { ran: 0.0, slept: waits + parts[Cause::Throttle] };
        }
        let apart = parts[Cause::Preempted] + parts[Cause::Unexpected];
        let (pause, lock) = (parts[Cause::Throttle], parts[Cause::Lock]);
        let own = parts.sum() - apart - pause - lock;
        let (awake, asleep) = (own - bounds.ran, pause - bounds.slept);
        // While who has the lock is on a processor, those who wait for it are, too (`rwsem_spin_on_owner`).
        let slept = pause + lock.min((bounds.slept - pause).max(0.0));
        let ran = own + pause + lock - slept;
        if awake > INTERRUPTS {
            // It slept instead.
            let factor = 1.0 - awake / own;
            for (cause, part) in Cause::ALL.map(|cause| (cause, parts[cause])) {
                if !matches!(cause, Cause::Throttle | Cause::Lock | Cause::Preempted | Cause::Unexpected) {
                    parts[cause] = part * factor;
                }
            }
            let pauses = prediction.may_pause && parts[Cause::Throttle] + awake >= self.widths.tick;
            let waits = if prediction.work.frees_unknown > 0.0 { Cause::Transfer } else { Cause::Unexpected };
            parts[if pauses { Cause::Throttle } else { waits }] += awake;
            return Bounds { ran: ran - awake, slept: slept + awake };
        }
        if asleep > INTERRUPTS {
            // It was on a processor instead.
            let fresh = prediction.work.fresh[0] + prediction.work.fresh[1];
            let cold = (fresh * self.widths.cold - parts[Cause::ColdMemory]).clamp(0.0, asleep);
            parts[Cause::Throttle] -= asleep;
            parts[Cause::ColdMemory] += cold;
            parts[Cause::Unexpected] += asleep - cold;
            return Bounds { ran: ran + asleep, slept: slept - asleep };
        }
        Bounds { ran, slept }
    }

    /// The call took `less` than predicted.
    fn shrink(&self, parts: &mut ByCause<f64>, measured: &[Cause], less: f64) {
        let widths = &self.widths.narrowed(0, measured);
        let squares = squares(parts, widths);
        let mut missing = less;
        if squares > 0.0 {
            let each = less / squares;
            parts.change(|cause, of| {
                let width = *of * widths[cause];
                let part = (each * width * width).min(*of);
                *of -= part;
                missing -= part;
            });
        }
        // Less is rounding.
        if missing < 1.0 {
            return;
        }
        // What a part could not give, all do.
        let left = parts.sum();
        if left > 0.0 {
            let factor = (1.0 - missing / left).max(0.0);
            *parts = parts.map(|part| part * factor);
        }
    }

    /// The call took `over` longer than predicted.
    fn grow(
        &self,
        parts: &mut ByCause<f64>,
        measured: &[Cause],
        event: &Event,
        prediction: &Prediction,
        over: f64,
    ) {
        let widths = &self.widths.narrowed(1, measured);
        let squares = squares(parts, widths);
        let mut rest = over;
        if over > INTERRUPTS && over > squares.sqrt() + INTERRUPTS {
            let held = (self.held(event) - parts[Cause::Lock]).clamp(0.0, rest);
            parts.add_to(Cause::Lock, held);
            rest -= held;
        }
        let mut left = rest;
        if squares > 0.0 {
            let each = rest / squares;
            parts.change(|cause, of| {
                let width = *of * widths[cause];
                let part = (each * width * width).min(REACH * width);
                *of += part;
                left -= part;
            });
        }
        // Rounding, as of most calls.
        if left < 1.0 {
            return;
        }
        for (cause, most) in self.possible(event, prediction, left) {
            let part = left.min(most).max(0.0);
            parts.add_to(cause, part);
            left -= part;
        }
        if left > INTERRUPTS {
            parts[Cause::Unexpected] += left;
        } else if left > 0.0 {
            // An interrupt belongs to nobody; it falls on what the call does most.
            let main = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            parts[main.map_or(Cause::Call, |(cause, _)| cause)] += left;
        }
    }

    /// Causes that may explain the `rest`, with the most that each explains, in ns.
    fn possible(&self, event: &Event, prediction: &Prediction, rest: f64) -> [(Cause, f64); 7] {
        let work = &prediction.work;
        // For the device itself; a writer into the cache may wait for the journal.
        let waits = prediction.parts.device() > prediction.parts[Cause::Journal] || work.commits();
        // A writer waits for a commit whose blocks are written behind what the device's queue holds. There is
        // one in many calls, but a pause in most: what one pause explains is a pause.
        let behind = prediction.may_commit && !waits && rest > LONGEST_PAUSE.get();
        let behind = if behind { self.widths.queue + self.widths.commit } else { 0.0 };
        let checks = (work.dirtied / CHECKED).ceil();
        let pauses = if prediction.may_pause && !waits { checks * LONGEST_PAUSE.get() } else { 0.0 };
        let pauses = if rest >= self.widths.tick { pauses } else { 0.0 };
        let fresh = work.fresh[0] + work.fresh[1];
        let cold = (fresh * self.widths.cold - prediction.parts[Cause::ColdMemory].get()).max(0.0);
        let queue = if waits && prediction.flushing { self.widths.queue } else { 0.0 };
        // The journal's thread waits for a processor, too, which no count of the caller's has: for what runs
        // there until its next tick.
        let journal = if work.commits() { self.widths.tick } else { 0.0 };
        // Writes that began later and took the file's lock first are not known yet; that others write to the
        // file is.
        let shared = rest > INTERRUPTS
            && self.others(event).any(|write| write.end.saturating_add(event.duration) > event.start);
        let lock = if shared { rest } else { 0.0 };
        let freed = if work.frees_unknown > 0.0 { rest } else { 0.0 };
        [
            (Cause::ColdMemory, cold),
            (Cause::Journal, behind),
            (Cause::Throttle, pauses),
            (Cause::Queue, queue),
            (Cause::Journal, journal),
            (Cause::Lock, lock),
            (Cause::FreedPages, freed),
        ]
    }

    /// How long another thread's write to the same file went on after this one began, in ns.
    fn held(&self, event: &Event) -> f64 {
        let end = self.others(event).map(|write| write.end).max().unwrap_or(0);
        end.min(event.end()).saturating_sub(event.start) as f64
    }

    /// The latest writes of other threads to the file of this write.
    fn others(&self, event: &Event) -> impl Iterator<Item = &Write> {
        let (file, tid, writes) = (event.file(), event.tid, kernel_bytes(event) > 0);
        self.latest.iter().filter(move |write| writes && write.tid != tid && write.file == file)
    }
}

fn squares(parts: &ByCause<f64>, widths: &ByCause<f64>) -> f64 {
    let squares = parts.iter().map(|(cause, part)| (part * widths[cause]) * (part * widths[cause]));
    squares.fold(0.0, |sum, square| sum + square)
}

/// Sets times to parts in whole ns that add up to `total`; the cause of the largest.
fn whole(parts: &ByCause<f64>, total: u64, times: &mut CauseTimes) -> Cause {
    let (mut sum, mut main) = (0_u64, (Cause::Call, 0));
    for (cause, part) in parts.iter() {
        // By way of i64, which is one instruction of a processor; u64 is seven.
        let ns = part as i64 as u64;
        if ns > 0 {
            times[cause] = ns;
            sum = sum.saturating_add(ns);
            main = if ns > main.1 { (cause, ns) } else { main };
        }
    }
    let mut main = main.0;
    // Rounding, which is a few ns; the largest part can bear it.
    times[main] = times[main].saturating_add(total.saturating_sub(sum));
    let mut over = sum.saturating_sub(total);
    while over > 0 {
        main = times.main();
        let part = over.min(times[main]);
        times[main] -= part;
        over -= part;
    }
    if sum > total { times.main() } else { main }
}

/// Widths down and up of a time, as parts of it; `least`: not less than this.
fn ratios(least: f64, value: f64, low: Option<f64>, high: Option<f64>) -> (f64, f64) {
    let measured = low.zip(high).filter(|_| value > 0.0);
    measured.map_or((UNMEASURED, UNMEASURED), |(low, high)| {
        ((1.0 - low / value).max(least), (high / value - 1.0).max(least))
    })
}

/// Widths down and up of the time that a rate or a factor means.
fn inverse(least: f64, value: f64, low: Option<f64>, high: Option<f64>) -> (f64, f64) {
    let inverted = |of: Option<f64>| of.filter(|of| *of > 0.0).map(|of| 1.0 / of);
    ratios(least, 1.0 / value, inverted(high), inverted(low))
}

#[cfg(test)]
mod tests;
