//! `balance_dirty_pages`: may this task go on, or must it sleep first?
//!
//! The law: below freerun of every domain that applies, go on. From there on the task owes
//! `pages / task_ratelimit` of time since its last pause; what it has spent elsewhere counts
//! (think-time compensation), too little to bother is carried over, and one sleep is `max_pause` at most.
//! At the limit it sleeps until there is room. Sleeps are in jiffies and end on a tick.

use super::super::throttle::{Domain, Line, position_ratio, ungranted_position_ratio};
use super::super::writeback::Machine;
use super::Call;
use super::writers::Writers;
use crate::cause::Cause;
use crate::units::{Jiffies, PageRate, Pages, Seconds};

/// Part of the way from the setpoint to the limit up to which untraced pages are believed to fill it.
const BELIEVED: f64 = 0.9;

impl Writers {
    /// Checks the call's task, which has dirtied its quota.
    pub(super) fn balance(&mut self, machine: &mut Machine, call: &mut Call) {
        while call.patience > 0 {
            let (level, device_level) = self.levels(machine, call);
            let foreign = machine.foreign_at(call.at);
            let in_group = machine.count_group(call.at, level);
            let domains = domains(machine, level, foreign, in_group);
            let device_level =
                if machine.is_busiest(call.device) { device_level + foreign } else { device_level };
            let device_level = device_level.max(Pages::ZERO);
            if machine.machine_over_background(call.device, 0) {
                machine.start_background(call.device);
            }
            let strict = machine.devices[call.device].bounds.strict;
            let calm = domains.iter().flatten().all(|domain| {
                if strict {
                    let line = machine.line(call.device, domain, device_level);
                    line.dirty <= ((line.thresh + line.background) / 2.0).floor()
                } else {
                    // At freerun one goes on, but others have a dirty page, too: nine of ten tracepoints
                    // count some.
                    domain.dirty < domain.freerun()
                }
            });
            if calm {
                self.tasks.current.run_free(domains.iter().flatten(), (call.at * machine.hz).floor());
                return;
            }
            if !machine.devices[call.device].busy() {
                machine.start_background(call.device);
            }
            let (domain, line, ratio) = tightest(machine, call.device, &domains, device_level);
            machine.devices[call.device].exceeded =
                line.dirty > line.thresh && (domain.dirty > domain.thresh || strict);
            machine.update_rates(call.device, &domain, &line, ratio, call.at);
            if self.pause(machine, call, &line, ratio) {
                let is_groups = machine.counts_late() && domain.limit < machine.global.limit;
                if is_groups && ratio <= 0.0 && call.at >= call.until {
                    machine.count_allowed(call.at);
                }
                return;
            }
            call.patience -= 1;
        }
    }

    /// The group has no place for `pages` more that are dirty: who allocates them waits in reclaim until as
    /// many are written (`shrink_folio_list`, `reclaim_throttle`).
    pub(super) fn wait_for_room(&mut self, machine: &mut Machine, call: &mut Call, pages: u64) {
        let Some(room) = machine.room else { return };
        let over = |machine: &mut Machine| (machine.level() + pages).saturating_sub(room.max(pages));
        let wait = Pages::of(over(machine)) / machine.devices[call.device].speed();
        if wait <= Seconds::ZERO {
            return;
        }
        machine.start_all(call.device);
        call.spent[Cause::Throttle] += wait;
        call.spread.pause = call.spread.pause.max(wait);
        call.pass(wait);
        self.pass_to(machine, call.at);
        // It goes on, so that there is room.
        let left = machine.devices[call.device].level().saturating_sub(over(machine));
        machine.relieve(call.device, left);
    }

    /// Dirty pages of the machine and of the call's device, at the time of the call.
    fn levels(&self, machine: &mut Machine, call: &Call) -> (Pages, Pages) {
        let level = Pages::of(machine.level());
        let of_device = Pages::of(machine.devices[call.device].level());
        let then = if self.tasks.several { self.history.level(call.at) } else { None };
        match then {
            Some(then) => (then.max(Pages::ZERO), (of_device + then - level).max(Pages::ZERO)),
            None => (level, of_device),
        }
    }

    /// Sleeps or not, by what the task owes. True if it may go on.
    fn pause(&mut self, machine: &mut Machine, call: &mut Call, line: &Line, ratio: f64) -> bool {
        let hz = machine.hz;
        let jiffy = (call.at * hz).floor();
        let base = machine.devices[call.device].limit.base;
        let rate = (base * ratio).floor();
        let Some(pause) = self.tasks.current.pause(jiffy, hz, base, rate, line) else { return true };
        // A timer never fires early: the sleep ends on the tick after.
        let wake = (jiffy + pause + Jiffies(1.0)) / hz;
        let slept = (wake - call.at).max(Seconds::ZERO);
        // While a commit withholds completions, the level stands still: the writer waits for that.
        let held = machine.devices[call.device].held(call.at);
        if held {
            call.spent[Cause::Journal] += slept;
            call.spread.held += slept;
        } else {
            call.spent[Cause::Throttle] += slept;
        }
        call.spread.pause = call.spread.pause.max(slept);
        self.tasks.current.slept = slept;
        machine.devices[call.device].paused = call.at;
        call.pass(slept);
        if held && (wake - call.at) * hz >= Jiffies(1.0) {
            // It went on a tick early: the completions count by now.
            machine.end_log(call.device);
        }
        if call.at >= call.until {
            // It is known to have gone on by then.
            let ended = (call.at * hz).floor();
            self.tasks.current.paused_when = Some(ended);
            call.unlikely |= rate <= PageRate::ZERO;
        }
        self.pass_to(machine, call.at);
        rate > PageRate::ZERO || call.at >= call.until
    }
}

/// The machine's domain with the pages of untraced writers. The kernel keeps the level below its limit,
/// so that an estimate of these pages that says otherwise is wrong: it counts for most of the way to the
/// limit only.
fn disturbed(machine: &Machine, level: Pages, foreign: Pages) -> Domain {
    let mut domain = Machine::domain(&machine.global, (level + foreign).max(Pages::ZERO));
    let setpoint = domain.setpoint();
    let highest = setpoint + BELIEVED * (domain.limit - setpoint);
    if foreign > Pages::ZERO && domain.dirty > highest {
        domain.dirty = highest.max(level);
    }
    domain
}

fn domains(machine: &Machine, level: Pages, foreign: Pages, in_group: Pages) -> [Option<Domain>; 2] {
    [
        Some(disturbed(machine, level, foreign)),
        machine.group.as_ref().map(|group| Machine::domain(group, in_group)),
    ]
}

/// Of the machine's domain and the group's the one with the lower position ratio counts, with the device's
/// line in it and that ratio.
pub(super) fn tightest(
    machine: &Machine,
    device: usize,
    domains: &[Option<Domain>; 2],
    device_level: Pages,
) -> (Domain, Line, f64) {
    let judged = |domain: &Domain| {
        let line = machine.line(device, domain, device_level);
        let law = if machine.laws.grants_room { position_ratio } else { ungranted_position_ratio };
        (*domain, line, law(domain, &line))
    };
    let global = judged(&domains[0].unwrap_or(Machine::domain(&machine.global, device_level)));
    match domains[1].as_ref().map(judged) {
        Some(group) if group.2 < global.2 => group,
        _ => global,
    }
}
