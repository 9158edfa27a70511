//! Calls on a model's own clock.

use cawl_wire::Event;

use super::{CostModel, Prediction, build};
use crate::profile::HostProfile;
use crate::units::{Nanos, Time};

/// Threads whose calls begin where the ones before were predicted to end: what calls cost by a model alone,
/// without any that were observed.
///
/// ```
/// use cawl_model::{Bytes, HostProfile, OpenLoop};
/// use cawl_wire::{Event, FileKind, Op};
///
/// let mut open_loop = OpenLoop::new("kernel", &HostProfile::uncalibrated()).expect("one of cawl_model::MODELS");
/// let mut call = Event::new(Op::Write);
/// (call.dev, call.ino, call.kind) = (1, 1, FileKind::Regular);
/// (call.requested, call.returned) = (Bytes::mib(1).0, 1 << 20);
/// let cost = open_loop.cost(call);
/// assert_eq!(open_loop.elapsed(call.tid).get(), cost.get().round());
/// ```
pub struct OpenLoop {
    model: Box<dyn CostModel>,
    begin: Time,
    /// Where each thread is that has made a call.
    threads: Vec<(u32, Time)>,
}

impl OpenLoop {
    /// With the model of this name, on a machine that has been running for a second; None if there is none.
    pub fn new(model: &str, profile: &HostProfile) -> Option<OpenLoop> {
        Some(OpenLoop::of(build(model, profile)?, Time(1_000_000_000)))
    }

    /// With this model, whose threads begin at this time.
    pub fn of(model: Box<dyn CostModel>, begin: Time) -> OpenLoop {
        OpenLoop { model, begin, threads: Vec::new() }
    }

    /// The thread's next call, whatever `event.start` is; None where the model has no opinion, and no time
    /// passes then.
    pub fn step(&mut self, event: Event) -> Option<Prediction> {
        let now = self.now(event.tid);
        let prediction = self.model.step(&Event { start: now.0, ..event })?;
        self.wait(event.tid, prediction.cost);
        Some(prediction)
    }

    /// What the thread's next call costs; nothing where the model has no opinion.
    pub fn cost(&mut self, event: Event) -> Nanos {
        self.step(event).map_or(Nanos::ZERO, |prediction| prediction.cost)
    }

    /// The thread makes no call for this time.
    pub fn wait(&mut self, thread: u32, span: Nanos) {
        let now = self.now(thread) + span;
        match self.threads.iter_mut().find(|(number, _)| *number == thread) {
            Some((_, clock)) => *clock = now,
            None => self.threads.push((thread, now)),
        }
    }

    /// When the thread's next call begins.
    pub fn now(&self, thread: u32) -> Time {
        let clock = self.threads.iter().find(|(number, _)| *number == thread);
        clock.map_or(self.begin, |(_, now)| *now)
    }

    /// What the thread has taken until now.
    pub fn elapsed(&self, thread: u32) -> Nanos {
        self.now(thread).since(self.begin)
    }
}

#[cfg(test)]
mod tests {
    use cawl_wire::{FileKind, Op};

    use super::*;
    use crate::units::Bytes;

    fn write(tid: u32) -> Event {
        let mut call = Event::new(Op::Write);
        (call.tid, call.dev, call.ino, call.kind) = (tid, 1, tid.into(), FileKind::Regular);
        (call.requested, call.returned) = (Bytes::kib(64).0, 64 << 10);
        call
    }

    #[test]
    fn each_thread_has_its_own_clock() {
        let mut open_loop = OpenLoop::new("naive", &HostProfile::uncalibrated()).unwrap();
        let cost = open_loop.cost(write(1));
        assert!(cost > Nanos::ZERO);
        assert_eq!((open_loop.now(2), open_loop.elapsed(2)), (Time(1_000_000_000), Nanos::ZERO));
        open_loop.wait(2, Nanos::seconds(1.0));
        open_loop.cost(write(2));
        assert_eq!(open_loop.now(1), Time(1_000_000_000) + cost);
        assert_eq!(open_loop.elapsed(2), (Time(1_000_000_000) + cost).since(Time::default()));
        // Of what it has no opinion on, no time passes.
        assert!(open_loop.step(Event { tid: 1, ..Event::new(Op::Open) }).is_none());
        assert_eq!(open_loop.now(1), Time(1_000_000_000) + cost);
        assert!(OpenLoop::new("none", &HostProfile::uncalibrated()).is_none());
    }
}
