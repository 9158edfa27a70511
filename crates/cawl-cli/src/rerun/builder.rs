//! Makes a script from the steps of a trace.
//!
//! Each thread keeps its own thinking, as on paper (cawl-core's whatif.rs). What a thread waits for comes
//! earlier in the trace, so no two can wait for each other.

mod calls;

use std::collections::{BTreeMap, HashMap};

use anyhow::bail;
use cawl_core::{Base, Bytes, Class, EndKind, Record, classify};
use cawl_wire::{Event, FileKind, Op};

use super::descriptors::{At, Description, Table, Uses};
use super::files::Files;
use super::script::{FOLDER, Fill, NONE, Origin, Process, SOURCE, STEP, Script, Step, Thread, code, how};
use super::why::Why;

/// The bits of a process's number that the trace knows; above them is the number of the copy (`--writers`).
const PIDS: u32 = (1 << 22) - 1;
/// Calls between two looks at the memory.
const LOOK: u64 = 1 << 16;

/// A process with what it has open.
struct Life {
    /// The thread whose latest call ended last, and when.
    latest: Option<(u32, u64)>,
    /// It is over; its number may be given to another.
    ended: bool,
    table: Table,
    /// How long it came before its parent's spawn returned, in ns.
    early: f64,
}

#[derive(Default)]
pub struct Builder {
    script: Script,
    lives: Vec<Life>,
    /// Thinking that no step has yet, of each thread.
    thinking: Vec<f64>,
    /// The latest process of each number, and threads of processes.
    pids: HashMap<u32, u32>,
    tids: HashMap<(u32, u32), u32>,
    sessions: HashMap<u32, u32>,
    parents: HashMap<u32, u32>,
    files: Files,
    descriptions: Vec<Description>,
    /// The description that the next step moves.
    moving: Option<usize>,
    /// What was done with each process's places, and last with each name.
    uses: HashMap<(u32, u32), Uses>,
    named: HashMap<u32, At>,
    /// The latest step of the second thread that the first one has waited for.
    ordered: HashMap<(u32, u32), u64>,
    steps: u64,
    /// As many steps have room in memory.
    most: u64,
    pub left_out: BTreeMap<(Op, Why), u64>,
}

impl Builder {
    /// `memory`: what is available. The script is there twice while it is handed over.
    pub fn new(memory: Bytes) -> Builder {
        Builder { files: Files::new(), most: memory.0 / (2 * STEP as u64), ..Builder::default() }
    }

    /// Takes a record, before its steps.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::File(facts)
                if matches!(FileKind::from_mode(facts.mode), FileKind::Regular | FileKind::Other) =>
            {
                self.files.set_facts(facts);
            }
            Record::Session(session) => {
                self.sessions.insert(session.id, session.pid);
                self.parents.insert(session.pid, session.ppid);
            }
            _ => {}
        }
    }

    /// Takes a record, after its steps.
    pub fn settle(&mut self, record: &Record) {
        let Record::End(end) = record else { return };
        let Some(pid) = self.sessions.remove(&end.id) else { return };
        let copies = self.pids.iter().filter(|(number, _)| *number & PIDS == pid);
        let mut copies: Vec<u32> = copies.map(|(_, process)| *process).collect();
        copies.sort_unstable();
        for process in copies {
            if end.how == EndKind::Exec {
                self.execed(process);
            } else if !self.lives[process as usize].ended {
                self.lives[process as usize].ended = true;
                self.script.processes[process as usize].flushes = end.how == EndKind::Exit;
            }
        }
    }

    fn execed(&mut self, process: u32) {
        let Some((thread, _)) = self.lives[process as usize].latest else { return };
        for fd in self.lives[process as usize].table.until_exec() {
            self.close_silently(thread, fd);
        }
    }

    pub fn step(&mut self, step: &cawl_core::Step) -> anyhow::Result<()> {
        let thread = self.thread(step);
        if let Base::End(pid) = step.base
            && let Some(process) = self.pids.get(&pid).copied()
        {
            self.lives[process as usize].ended = true;
            self.synchronise(thread, Step { arg: process, ..Step::new(code::WAIT) });
        }
        self.thinking[thread as usize] += step.think;
        if let Some(event) = &step.call {
            self.call(event, thread);
            let process = self.process(thread) as usize;
            let latest = &mut self.lives[process].latest;
            if latest.is_none_or(|(_, end)| event.end() >= end) {
                *latest = Some((thread, event.end()));
            }
        }
        if self.steps > self.most {
            bail!(
                "the trace has too many calls for this machine's memory: a rerun takes {} bytes for each, and {} are \
                 available; leave some out with --only or --drop",
                2 * STEP,
                Bytes(self.most * 2 * STEP as u64)
            );
        }
        if self.steps.is_multiple_of(LOOK) && self.files.names.len() as u64 > self.most {
            bail!(
                "the trace has too many files for this machine's memory; leave some out with --only or --drop"
            );
        }
        Ok(())
    }

    pub fn finish(mut self) -> (Script, BTreeMap<(Op, Why), u64>) {
        for thread in 0..self.thinking.len() as u32 {
            self.pause(thread);
        }
        let Builder { mut script, files, lives, left_out, .. } = self;
        script.names = files.names;
        script.fills = files.fills;
        script.slots = lives.iter().map(|life| life.table.places()).max().unwrap_or(0);
        if script.source > 0 {
            script.fills.insert(0, Fill { file: SOURCE, size: script.source });
        }
        (script, left_out)
    }

    // Threads and processes.

    fn process(&self, thread: u32) -> u32 {
        self.script.threads[thread as usize].process
    }

    fn table(&mut self, thread: u32) -> &mut Table {
        let process = self.process(thread);
        &mut self.lives[process as usize].table
    }

    /// The thread of a step, made if it is new.
    fn thread(&mut self, step: &cawl_core::Step) -> u32 {
        let (pid, tid) = step.thread;
        let goes_on = matches!(step.base, Base::Itself | Base::End(_));
        let known = self.pids.get(&pid).copied();
        let known = known.filter(|process| goes_on || !self.lives[*process as usize].ended);
        if let Some(process) = known {
            if let Some(thread) = self.tids.get(&(process, tid)) {
                return *thread;
            }
            return self.begin(process, tid, step.base);
        }
        let parent = match step.base {
            Base::Process(parent) if self.parents.get(&(pid & PIDS)) == Some(&(parent & PIDS)) => {
                self.pids.get(&parent).copied()
            }
            _ => None,
        };
        let forks = parent.and_then(|parent| {
            let life = &self.lives[parent as usize];
            life.latest.filter(|_| !life.ended).map(|(thread, _)| thread)
        });
        let process = match forks {
            // Its fork went unseen (vfork).
            Some(thread) => {
                let process = self.child(thread, pid, true);
                let step = Step { arg: process, flags: how::SILENT, ..Step::new(Op::Fork as u8) };
                self.synchronise(thread, step);
                process
            }
            None => self.new_process(pid, Table::default(), Origin::First),
        };
        self.begin(process, tid, step.base)
    }

    /// A process that a thread forks. `execs`: it has become another program.
    fn child(&mut self, parent: u32, pid: u32, execs: bool) -> u32 {
        let mut table = self.table(parent).clone();
        if execs {
            for fd in table.until_exec() {
                table.close(fd);
            }
        }
        self.new_process(pid, table, Origin::Forked)
    }

    fn new_process(&mut self, pid: u32, table: Table, origin: Origin) -> u32 {
        let process = self.lives.len() as u32;
        self.lives.push(Life { latest: None, ended: false, table, early: 0.0 });
        self.script.processes.push(Process { first: NONE, threads: 0, origin, flushes: true });
        self.pids.insert(pid, process);
        process
    }

    /// A thread begins: the first of its process, or where another one starts it.
    fn begin(&mut self, process: u32, tid: u32, base: Base) -> u32 {
        let thread = self.script.threads.len() as u32;
        self.script.threads.push(Thread { process, steps: Vec::new() });
        self.thinking.push(0.0);
        self.tids.insert((process, tid), thread);
        let is_first = self.script.processes[process as usize].threads == 0;
        let from = match base {
            Base::Process(pid) => self.pids.get(&pid).and_then(|from| self.lives[*from as usize].latest),
            _ => None,
        };
        let info = &mut self.script.processes[process as usize];
        info.threads += 1;
        if is_first {
            info.first = thread;
            self.thinking[thread as usize] = self.lives[process as usize].early;
        }
        let own = self.lives[process as usize].latest;
        self.lives[process as usize].latest.get_or_insert((thread, 0));
        if is_first && self.script.processes[process as usize].origin == Origin::Forked {
            return thread;
        }
        if let Some((from, _)) = from.or(own) {
            if is_first {
                self.script.processes[process as usize].origin = Origin::Started;
            }
            self.synchronise(from, Step { arg: thread, ..Step::new(code::START) });
        }
        thread
    }

    // Steps.

    fn push(&mut self, thread: u32, step: Step) {
        for before in self.before(thread, &step) {
            self.order(thread, before);
        }
        let at = (thread, self.script.threads[thread as usize].steps.len() as u64);
        self.done(at, &step);
        self.steps += 1;
        self.script.threads[thread as usize].steps.push(step);
    }

    /// The step of another thread comes before the next one of this thread.
    fn order(&mut self, thread: u32, (other, step): At) {
        let ordered = self.ordered.entry((thread, other)).or_default();
        // Steps count from 1 here.
        if other != thread && *ordered <= step {
            *ordered = step + 1;
            self.steps += 1;
            let order = Step { arg: other, offset: step, ..Step::new(code::ORDER) };
            self.script.threads[thread as usize].steps.push(order);
        }
    }

    /// What a step comes after, since the program must have seen to it: a descriptor is used while it is
    /// open, names change as they did, and who shares a position moves it in turn.
    fn before(&self, thread: u32, step: &Step) -> Vec<At> {
        let mut all = Vec::new();
        let process = self.process(thread);
        for (place, changes) in places(step) {
            let Some(uses) = self.uses.get(&(process, place)) else { continue };
            all.extend(uses.changed);
            if changes {
                all.extend(&uses.since);
            }
        }
        all.extend(names(step).filter_map(|name| self.named.get(&name)));
        all.extend(self.moving.and_then(|description| self.descriptions[description].mover));
        all
    }

    fn done(&mut self, at: At, step: &Step) {
        let process = self.process(at.0);
        for (place, changes) in places(step) {
            let uses = self.uses.entry((process, place)).or_default();
            if changes {
                *uses = Uses { changed: Some(at), since: Vec::new() };
            } else {
                match uses.since.iter_mut().find(|(thread, _)| *thread == at.0) {
                    Some(latest) => *latest = at,
                    None => uses.since.push(at),
                }
            }
        }
        for name in names(step) {
            self.named.insert(name, at);
        }
        if let Some(description) = self.moving.take() {
            self.descriptions[description].mover = Some(at);
        }
    }

    /// What was thought so far is over before other threads see this one.
    fn pause(&mut self, thread: u32) {
        let think = self.thinking[thread as usize];
        // Where calls overlap it is less than nothing, and what comes next is earlier.
        if think > 0.0 {
            self.thinking[thread as usize] = 0.0;
            self.push(thread, Step { think: think as i64, ..Step::new(code::PAUSE) });
        }
    }

    fn synchronise(&mut self, thread: u32, step: Step) {
        self.pause(thread);
        self.push(thread, step);
    }

    fn silent(&mut self, thread: u32, step: Step) {
        self.push(thread, Step { flags: step.flags | how::SILENT, ..step });
    }

    /// A call, after the thread's thinking.
    fn make(&mut self, thread: u32, event: &Event, step: Step) {
        let think = std::mem::take(&mut self.thinking[thread as usize]).max(0.0) as i64;
        let cost = if classify(event) == Class::Cost { how::COST } else { 0 };
        self.push(thread, Step { think, op: event.op as u8, flags: step.flags | cost, ..step });
    }

    fn leave_out(&mut self, thread: u32, event: &Event, why: Why) {
        *self.left_out.entry((event.op, why)).or_default() += 1;
        self.thinking[thread as usize] += event.duration as f64;
    }
}

/// The places of the player's table that a step is about, and whether it opens or closes them.
fn places(step: &Step) -> impl Iterator<Item = (u32, bool)> {
    use Op::*;
    let op = Op::from_code(step.op);
    let opens = matches!(op, Some(Open | StreamOpen)) && step.flags & how::ON_DESCRIPTOR == 0;
    let closes = matches!(op, Some(Close | StreamClose));
    let own = (step.slot != NONE).then_some((step.slot, opens || closes));
    own.into_iter().chain((op == Some(Dup)).then_some((step.arg, true)))
}

/// The names that a step makes, takes away or looks up.
fn names(step: &Step) -> impl Iterator<Item = u32> {
    use Op::*;
    let op = Op::from_code(step.op);
    let by_name = match op {
        Some(Open | StreamOpen) => {
            step.flags & (how::ON_DESCRIPTOR | how::NAMELESS) == 0 && step.file != FOLDER
        }
        Some(Truncate) => step.flags & how::BY_NAME != 0,
        Some(Unlink | Rename) => true,
        _ => false,
    };
    let to = (op == Some(Rename)).then_some(step.arg);
    by_name.then_some(step.file).into_iter().chain(to)
}
