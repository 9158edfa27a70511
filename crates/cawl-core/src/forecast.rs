//! What comes next, and what a job of writing would cost: asked of a copy of a model, which is shown
//! made-up writers.
//!
//! The law: **an answer takes bounded work**, whatever is asked (docs/science/LIVE.md). Large jobs are
//! written in pieces of a 64th of the hard limit; what lies beyond eight limits' worth costs what the later
//! half of them did, since by then the throttle holds the level where it stays.

mod job;
mod scene;

pub use job::{Job, JobCost, JobError, predict};
pub use scene::Scene;

use crate::units::{Bytes, Nanos, Rate};

/// Most steps of a forecast.
const STEPS: usize = 2048;
/// Parts of the hard limit in which the dirty level is made to grow.
const PARTS: u64 = 512;
/// Longest step, so that old data is written back as the kernel would.
const LONGEST: Nanos = Nanos::seconds(2.0);
/// How far ahead is looked.
const HORIZON: Nanos = Nanos::seconds(3600.0);
/// A forecast has seen enough when this many times the hard limit was written after the flusher began.
const ENOUGH: u64 = 8;

/// What happens if everybody goes on writing at one rate; all times from now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The rate assumed, in bytes per second; [`Rate::MIN`] for no writer.
    pub rate: Rate,
    /// Until the level is above the background limit; zero if it is, None if not within an hour.
    pub background: Option<Nanos>,
    /// Until the level is above freerun, where writers are throttled; zero if it is, None if not within an
    /// hour.
    pub throttle: Option<Nanos>,
    /// Until nothing is dirty if writing stops now, to within 1/64; None if not within an hour.
    pub clean: Option<Nanos>,
}

/// Looks ahead: everybody together makes pages dirty at `rate`.
pub fn forecast(scene: Scene, rate: Rate) -> Forecast {
    let mut scene = scene.begun();
    scene.model.coarsen();
    let clean = until_clean(scene.fork());
    let mut found = Forecast { rate, background: None, throttle: None, clean };
    let begin = scene.now;
    if rate == Rate::MIN {
        // Without writers the level falls, and what it is below now it stays below.
        let state = scene.model.state();
        found.background = (state.dirty > state.limits.background).then_some(Nanos::ZERO);
        found.throttle = (state.dirty > state.limits.freerun()).then_some(Nanos::ZERO);
        return found;
    }
    let mut flushed = Bytes::ZERO;
    for _ in 0..STEPS {
        let state = scene.model.state();
        let elapsed = scene.now.since(begin);
        let (background, freerun) = (state.limits.background, state.limits.freerun());
        if state.dirty > background {
            found.background.get_or_insert(elapsed);
        }
        if state.dirty > freerun {
            found.throttle = Some(elapsed);
            return found;
        }
        let enough = Bytes(state.limits.hard.0.saturating_mul(ENOUGH));
        if elapsed >= HORIZON || flushed > enough {
            break;
        }
        // The level grows no faster than this, so no crossing is stepped over by more than a part.
        let goal = if found.background.is_none() { background } else { freerun };
        let least = Bytes(state.limits.hard.0 / PARTS + 1);
        let room = goal.saturating_sub(state.dirty).max(least);
        let step = (room / rate).min(LONGEST);
        scene.pass(step);
        scene.soil(rate * step);
        if found.background.is_some() {
            flushed += rate * step;
        }
    }
    // Writing faster than the device, but hardly: the rest of the way is straight.
    let state = scene.model.state();
    let elapsed = scene.now.since(begin);
    if let (Some(_), Some(device)) = (found.background, state.writeback)
        && rate > device
    {
        let room = state.limits.freerun().saturating_sub(state.dirty);
        let left = room / Rate::per_second(rate.get() - device.get());
        found.throttle = Some(elapsed + left).filter(|at| *at <= HORIZON);
    }
    found
}

fn until_clean(mut scene: Scene) -> Option<Nanos> {
    let begin = scene.now;
    // At the end of time it passes no more.
    for _ in 0..STEPS {
        let elapsed = scene.now.since(begin);
        if scene.model.state().dirty.is_zero() {
            return Some(elapsed);
        }
        if elapsed >= HORIZON {
            break;
        }
        scene.pass((elapsed * (1.0 / 64.0)).max(Nanos::millis(20.0)));
    }
    None
}

#[cfg(test)]
mod tests;
