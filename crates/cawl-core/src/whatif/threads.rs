//! What threads do between their calls, as the trace tells it.

use std::collections::BTreeMap;

use cawl_wire::{Event, Op};

use crate::model::Map;
use crate::record::{EndKind, Record};
use crate::units::Time;

/// Process and thread.
pub type Thread = (u32, u32);

/// Where a thread stands before it thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Where it left off.
    Itself,
    /// It is new: where this process stands.
    Process(u32),
    /// It is the first of all: at this moment.
    Moment(Time),
    /// It has waited for this process, which did other things after its last call.
    End(u32),
}

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Who.
    pub thread: Thread,
    /// Where it stands before it thinks.
    pub base: Base,
    /// How long it thinks, in ns; less than nothing where calls overlap.
    pub think: f64,
    /// The call that it makes then.
    pub call: Option<Event>,
    /// How long the trace's call waited that a change has left out or lets go on at once, in ns.
    pub spared: u64,
}

impl Step {
    pub(super) fn at_once(thread: Thread, call: Event) -> Step {
        Step { thread, base: Base::Itself, think: 0.0, call: Some(call), spared: 0 }
    }

    /// The step without its call.
    pub(super) fn thinking(self) -> Step {
        Step { call: None, ..self }
    }
}

#[derive(Debug, Default)]
pub(super) struct Threads {
    /// When the latest call of each ended, and the process that it started, if any.
    latest_calls: BTreeMap<Thread, (Time, Option<u32>)>,
    /// The process of each session, and when it began.
    sessions: BTreeMap<u32, (u32, Time)>,
    parents: Map<u32, u32>,
    /// The latest thread that made a call.
    latest: Option<Thread>,
}

impl Threads {
    /// Takes a record; `each` gets the steps that it means.
    pub(super) fn take(&mut self, record: &Record, mut each: impl FnMut(Step)) {
        match record {
            Record::Event(event) => each(self.call(event)),
            Record::Session(session) => {
                let (pid, started) = (session.pid, session.started);
                self.sessions.insert(session.id, (pid, started));
                self.parents.insert(pid, session.ppid);
            }
            Record::End(end) => {
                let image = self.sessions.remove(&end.id);
                if let Some(image) = image.filter(|_| end.how != EndKind::Exec) {
                    self.ended(image, end.at, each);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, event: &Event) -> Step {
        let thread = (event.pid, event.tid);
        let (base, since) = match self.latest_calls.get(&thread) {
            Some((end, _)) => (Base::Itself, *end),
            None => self.beginning(event),
        };
        let child = matches!(event.op, Op::Fork | Op::Spawn).then_some(event.returned as u32);
        self.latest_calls.insert(thread, (Time(event.end()), child));
        self.latest = Some(thread);
        Step { thread, base, think: event.start as f64 - since.0 as f64, call: Some(*event), spared: 0 }
    }

    /// What a new thread came from: its process, the parent's, or whoever made the latest call.
    fn beginning(&self, event: &Event) -> (Base, Time) {
        let parent = self.parents.get(&event.pid).copied();
        let from = [Some(event.pid), parent, self.latest.map(|latest| latest.0)];
        let found = from.into_iter().flatten().find_map(|pid| Some((Base::Process(pid), self.end_of(pid)?)));
        found.unwrap_or((Base::Moment(Time(event.start)), Time(event.start)))
    }

    /// When the latest call of a process ended.
    fn end_of(&self, pid: u32) -> Option<Time> {
        self.of(pid).map(|(_, (end, _))| *end).max()
    }

    fn of(&self, pid: u32) -> impl Iterator<Item = (&Thread, &(Time, Option<u32>))> {
        self.latest_calls.range((pid, 0)..=(pid, u32::MAX))
    }

    /// A process has ended. A thread of its parent that made no call in its time has waited for it. The call
    /// that started it may return later.
    fn ended(&mut self, (pid, started): (u32, Time), at: Time, mut each: impl FnMut(Step)) {
        let Some(end) = self.end_of(pid) else { return };
        let at = at.max(end);
        if let Some(parent) = self.parents.get(&pid).copied() {
            let waits = |(end, child): &(Time, Option<u32>)| *end <= started || *child == Some(pid);
            let waited: Vec<(Thread, Time)> = self
                .of(parent)
                .filter(|(_, call)| waits(call))
                .map(|(thread, (end, _))| (*thread, *end))
                .collect();
            for (thread, own) in waited {
                self.latest_calls.insert(thread, (at.max(own), None));
                let think = at.since(end).get();
                each(Step { thread, base: Base::End(pid), think, call: None, spared: 0 });
            }
        }
        let ended: Vec<Thread> = self.of(pid).map(|(thread, _)| *thread).collect();
        // Its number may be given to another process; who came from it counts from here.
        if ended.iter().all(|thread| self.latest != Some(*thread)) {
            self.latest_calls.retain(|thread, _| !ended.contains(thread));
        }
    }
}
