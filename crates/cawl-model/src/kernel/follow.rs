//! Lockstep: a call is over when the observed clock says so, not when the model thinks.
//!
//! The law: **the model's time is the observed time.** What a call costs is looked up on a copy, which lives
//! through the call as the model thinks it goes. The model itself then lives through it until the observed
//! end: bytes are dirtied and copied, but a pause or a wait goes no further than the call went. So nothing
//! has to be undone, and no later call finds the model ahead of the observed clock.
//!
//! A call that cannot be made to wait needs no copy: only the time of its copying may be wrong.
//!
//! Writers that go on where the model would make them sleep say something about the dirty level, too: the
//! kernel does not make them sleep at or below freerun, and does not let them go on at the limit. Where they
//! sleep less than predicted for longer than any pause lasts, and than 50 ticks, the device has written what
//! is above freerun.
//!
//! Where no counters are told, time that only a sleep in `balance_dirty_pages` (6.18) explains counts at
//! once: as long as a writer sleeps longer than thought the device has not got ahead of the model, as long as
//! it sleeps less the device has. So the level goes as the model's own control makes it go, not as errors of
//! its rates add up.

use cawl_wire::{Event, Op, flag};

use super::super::{Disturbance, LONGEST_PAUSE, Prediction};
use super::pending_reads::LatestWait;
use super::sync::waits;
use super::write::EXCEEDED_CHECK;
use super::{Call, Kernel};
use crate::call::{Class, classify, cuts_off, is_file_read, is_of_name_or_length, kernel_bytes};
use crate::cause::Cause;
use crate::units::{Jiffies, Nanos, PageRate, Pages, Seconds, Time};

/// So many times as long as reading takes, a read may be late for what the device does.
const MAX_LATE: f64 = 4.0;

/// By so many ticks at least must pauses be shorter than predicted, all in all, before that is no chance.
const TICKS: Jiffies = Jiffies(50.0);

/// It moves data; others, which open, close or change a file, are never made to pause.
fn is_moving(event: &Event) -> bool {
    !matches!(event.op, Op::Open | Op::StreamOpen | Op::Close) && !is_of_name_or_length(event)
}

impl Kernel {
    /// Predicts a call, then lives through it until `end`.
    pub(super) fn follow_call(&mut self, event: &Event, end: Time) -> Option<Prediction> {
        if classify(event).with_cost(|| is_of_name_or_length(event)) != Class::Cost {
            return self.step_call(event);
        }
        self.machine.reclaim();
        let start = self.seconds(event.start);
        let until = self.seconds(end.0).max(start);
        if self.may_wait(event, start) {
            self.follow_waiting(event, start, until)
        } else {
            self.follow_free(event, start, until)
        }
    }

    /// Predicts a call that nothing holds back, and lives through it up to `until`.
    fn follow_free(&mut self, event: &Event, start: Seconds, until: Seconds) -> Option<Prediction> {
        let before = self.machine.now.max(start);
        let wait = self.reads.latest_wait();
        let mut call = self.begin(event);
        self.run(&mut call, event, Seconds::INFINITY);
        self.writers.over(&call, until);
        let prediction = self.prediction_of(&call, event);
        self.machine.rewind(until.max(before));
        if !call.work.stays_in_stream() {
            self.writers.tasks.current.left = until;
        }
        if let Some(prediction) = &prediction {
            self.judge_copy(event, prediction, until - start);
            self.judge_read(event, prediction, (start, until), wait);
            self.judge_late_read(&call, prediction, until - start);
            self.judge_new_inode(&call, event, until - start - Seconds::from(prediction.cost));
            if prediction.parts[Cause::Lock] == Nanos::ZERO {
                self.judge_rest(event, until, until - start - Seconds::from(prediction.cost));
            }
        }
        prediction
    }

    /// Predicts a call that the device or the throttling may hold back, and lives through it up to `until`.
    fn follow_waiting(&mut self, event: &Event, start: Seconds, until: Seconds) -> Option<Prediction> {
        let prediction = self.copy().step_call(event);
        if let Some(prediction) = &prediction {
            self.judge_copy(event, prediction, until - start);
        }
        let wait = self.reads.latest_wait();
        let mut call = self.begin(event);
        self.run(&mut call, event, until);
        self.writers.over(&call, until);
        self.machine.advance(call.at);
        // How long it waits for another thread says nothing of pauses.
        let alone = |prediction: &&Prediction| prediction.parts[Cause::Lock] == Nanos::ZERO;
        if let Some(prediction) = prediction.as_ref().filter(alone) {
            let cost = Seconds::from(prediction.cost);
            self.judge_read(event, prediction, (start, until), wait);
            self.judge_late_read(&call, prediction, until - start);
            if prediction.parts[Cause::Read] > Nanos::ZERO {
                self.reads.shift(&mut self.machine, call.device, until - start - cost);
                return Some(*prediction);
            }
            let waits = waits(event) || !is_moving(event) || prediction.parts[Cause::Network] > Nanos::ZERO;
            let late = until - start - cost;
            let has_paused = prediction.parts[Cause::Throttle] > Nanos::ZERO;
            if !waits && self.machine.counts_late() {
                // When the group was counted is not known, so that a pause says nothing of the level.
                if late.0.abs() > LONGEST_PAUSE.as_seconds() {
                    self.machine.count_allowed(until);
                } else if late * self.machine.hz >= Jiffies(1.0) && !has_paused {
                    self.machine.bound_room();
                }
            } else if !waits {
                if !self.machine.foreign.told {
                    self.machine.stand_still(call.device, late);
                }
                if !has_paused {
                    self.judge_sleep(call.device, until, late);
                }
            }
            if has_paused && !self.is_groups(&call) {
                self.judge_pauses(&call, Seconds::ZERO - late);
            }
        }
        prediction
    }

    /// What a read from `start` until `end` says of those to come.
    fn judge_read(
        &mut self,
        event: &Event,
        prediction: &Prediction,
        (start, end): (Seconds, Seconds),
        wait: LatestWait,
    ) {
        let took = end - start;
        let reader = (event.pid, self.filesystems.below(event.dev));
        let is_cold = self.memory.supply == Some(true);
        self.reads.judge(&mut self.machine, reader, prediction, (took, start + took), (wait, is_cold));
    }

    /// What a read needs is thought to be there; if it `took` as long as a wait does, that comes only now,
    /// and what the device was asked for later, after it.
    fn judge_late_read(&mut self, call: &Call, prediction: &Prediction, took: Seconds) {
        let read = &prediction.work.read;
        if prediction.parts[Cause::Read] == Nanos::ZERO && prediction.has_waited(took) {
            // Nobody's delay makes the device slower by more than that.
            let most = MAX_LATE * self.reads.speed(self.machine.device(call)).apart(read.ahead);
            self.reads.shift(
                &mut self.machine,
                call.device,
                (took - Seconds::from(prediction.cost)).min(most) + read.there,
            );
        }
    }

    /// A call that the model would not make to wait took longer by `late` than predicted, while the
    /// device writes: from a tick on it is taken for a pause.
    fn judge_rest(&mut self, event: &Event, until: Seconds, late: Seconds) {
        let dev = self.filesystems.below(event.dev);
        let (now, devices) = (self.machine.now, &self.machine.devices);
        if late * self.machine.hz >= Jiffies(1.0)
            && let Some(at) = devices.iter().position(|device| device.id == dev && device.writes_back(now))
        {
            if !self.machine.foreign.told {
                self.machine.stand_still(at, late);
            }
            if is_moving(event) && !is_file_read(event) {
                self.judge_sleep(at, until, late);
                // It was checked in this call.
                self.writers.tasks.current.nr_dirtied = 0;
            }
        }
    }

    /// A call for which the model had no pause took longer by `late` than predicted, until `until`: from a
    /// tick on it was one, so that the task owes anew from its end. Otherwise that time would count as spent
    /// elsewhere, and pay for all later pauses as well (`balance_dirty_pages`: `current->dirty_paused_when`).
    fn judge_sleep(&mut self, at: usize, until: Seconds, late: Seconds) {
        let (hz, now, task) = (self.machine.hz, self.machine.now, &mut self.writers.tasks.current);
        let device = &mut self.machine.devices[at];
        if late * hz >= Jiffies(1.0) && task.paused_when.is_some() && device.writes_back(now) {
            task.paused_when = Some((until * hz).floor());
            device.unslept = (device.unslept - late).max(Seconds::ZERO);
        }
    }

    /// The machine would let the call go on, and only the count of its group does not, which may be old.
    fn is_groups(&mut self, call: &Call) -> bool {
        let level = Pages::of(self.machine.level()) + self.machine.foreign_at(call.at);
        self.machine.counts_late() && level < self.machine.global.freerun()
    }

    /// Writers to the call's device went on earlier by `early` than they should have.
    fn judge_pauses(&mut self, call: &Call, early: Seconds) {
        let unslept = &mut self.machine.devices[call.device].unslept;
        *unslept = (*unslept + early).max(Seconds::ZERO);
        // A pause is a tick longer or shorter than it should be, at random.
        let most = (TICKS / self.machine.hz).max(LONGEST_PAUSE.into());
        if *unslept > most || call.unlikely {
            *unslept = Seconds::ZERO;
            let foreign = self.machine.foreign_at(call.at);
            let others = self.machine.level() - self.machine.devices[call.device].level();
            let most = (self.machine.freerun() - foreign).max(Pages::ZERO).whole();
            self.machine.relieve(call.device, most.saturating_sub(others));
        }
    }

    /// The device or the throttling may hold this call back. True where that is not known.
    fn may_wait(&self, event: &Event, start: Seconds) -> bool {
        if waits(event) || event.has(flag::SYNC | flag::DSYNC | flag::DIRECT) || self.may_read(event, start) {
            return true;
        }
        if is_file_read(event) {
            return false;
        }
        let buffered = match event.op {
            _ if is_of_name_or_length(event) && self.may_wait_to_free(event) => return true,
            Op::Open | Op::StreamOpen if cuts_off(event) && self.may_wait_to_free(event) => return true,
            Op::Close | Op::StreamClose if self.closes_a_change(event) => return true,
            Op::StreamWrite | Op::StreamFlush | Op::StreamSeek | Op::StreamClose => {
                // Not more than what the stream held in addition.
                self.profile.kernel.stream_buffer.0.max(u64::from(event.buffer))
            }
            _ => 0,
        };
        let bytes = buffered + kernel_bytes(event).max(event.returned.max(0) as u64);
        let folio = self.constants.folio;
        let pages = self.constants.page_of(bytes) + 2 * folio;
        let task = self.writers.tasks.peek((event.pid, event.tid));
        let dev = self.filesystems.below(event.dev);
        let devices = &self.machine.devices;
        let of_device = devices.iter().find(|device| device.id == dev);
        if of_device.is_some_and(|device| device.remote.is_some()) {
            return true;
        }
        if of_device.is_some_and(|device| device.may_log(start + LONGEST_PAUSE.into())) {
            return true;
        }
        let exceeded = of_device.is_some_and(|device| device.exceeded);
        let quota = if exceeded { EXCEEDED_CHECK } else { task.nr_dirtied_pause };
        if task.nr_dirtied + pages < quota && task.unchecked + pages < self.writers.check_interval {
            return false;
        }
        let strict = of_device.is_none_or(|device| device.bounds.strict);
        let mut level = Pages::of(devices.iter().map(|device| device.level()).sum());
        if self.writers.tasks.several && self.machine.now > start {
            // It begins before another one is over, and finds the level of its own time.
            level = level.max(self.writers.history.highest(start));
        }
        let drift = self.machine.foreign.drift.max(PageRate::ZERO) * Seconds::from(Disturbance::LASTS);
        let highest = level + Pages::of(pages) + self.machine.foreign_at(start) + drift;
        strict || highest > self.machine.freerun()
    }
}
