//! Where the control of a writer settles that keeps a device busy: its base rate after a long time.
//!
//! The law: the writer dirties its quota, is checked, and sleeps as long as it owes, while the device writes
//! at a steady rate. Position ratio and base rate follow as in `balance_dirty_pages`. Nothing else of the
//! machine changes in this state, so nothing else is simulated: no page, no flusher, no commit.

use super::super::writeback::Machine;
use super::Kernel;
use super::balance::tightest;
use super::tasks::Task;
use crate::profile::{HostProfile, Measured};
use crate::units::{Jiffies, Pages, Rate, Seconds};

/// Time of undisturbed writing at most, and without a step of the base rate.
const MAX_TIME: Seconds = Seconds(600.0);
const STILL: Seconds = Seconds(600.0);

/// `dirty_ratelimit` of the profile's device when it stands still, from a first value on.
fn settled(profile: &HostProfile, from: Rate) -> Rate {
    let mut profile = profile.clone();
    profile.device.base_rate = Some(Measured::assumed(from));
    let mut kernel = Kernel::new(&profile);
    let at = kernel.device(0);
    let Kernel { machine, constants, writers, .. } = &mut kernel;
    let (hz, rate, folio) = (machine.hz, machine.devices[at].rate, constants.folio);
    let allocated = constants.fresh_page + constants.fresh_folio / folio as f64;
    let copy = (constants.page as f64 * constants.copy_byte + allocated) * constants.flush_slowdown;
    let mut task = Task::default();
    let (mut level, mut dirtied, mut written) = (Pages::ZERO, Pages::ZERO, Pages::ZERO);
    let (mut now, mut moved) = (Seconds::ZERO, Seconds::ZERO);
    while now < MAX_TIME && now < moved + STILL {
        let pages = task.nr_dirtied_pause.clamp(1, writers.check_interval).next_multiple_of(folio);
        task.nr_dirtied += pages;
        let mut took = pages as f64 * copy;
        let pages = Pages::of(pages);
        dirtied += pages;
        let end = now + took;
        let jiffy = (end * hz).floor();
        let reached = level + pages - rate * took;
        let domains = [Some(&machine.global), machine.group.as_ref()]
            .map(|limits| limits.map(|limits| Machine::domain(limits, reached.max(Pages::ZERO))));
        if domains.iter().flatten().all(|domain| domain.dirty < domain.freerun()) {
            task.run_free(domains.iter().flatten(), jiffy);
        } else {
            let (domain, line, ratio) =
                tightest(machine, at, &domains, domains[0].map_or(Pages::ZERO, |all| all.dirty));
            let before = machine.devices[at].limit.base;
            (machine.devices[at].dirtied, machine.devices[at].written) = (dirtied.whole(), written.whole());
            machine.update_rates(at, &domain, &line, ratio, end);
            let base = machine.devices[at].limit.base;
            if base != before {
                moved = end;
            }
            if let Some(pause) = task.pause(jiffy, hz, base, (base * ratio).floor(), &line) {
                took = (jiffy + pause + Jiffies(1.0)) / hz - now;
            }
        }
        now += took;
        let done = (rate * took).min(level + pages);
        written += done;
        level += pages - done;
    }
    Rate::per_second(machine.devices[at].limit.base.0 * constants.page as f64)
}

/// `device.base_rate` where the kernel does not tell it: where the model's own control settles when a device
/// that writes back at the profile's rate is kept busy. Pauses are whole ticks, so a whole band of base rates
/// lets writers go at the device's rate, and the control has no reason to move within it. The lower end
/// counts: what disturbs a device slows it down, raises the level over the setpoint and lowers the estimate
/// of its bandwidth, so that the base rate is stepped down; nothing steps it up within the band, since it is
/// never above that estimate.
pub fn settled_base_rate(profile: &HostProfile) -> Measured<Rate> {
    let rate = profile.device.writeback.value;
    let (below, above) = (settled(profile, rate * 0.5), settled(profile, rate * 2.0));
    Measured {
        value: below,
        p10: Some(below * 0.9),
        p90: Some(below.max(above)),
        samples: profile.device.writeback.samples,
    }
}
