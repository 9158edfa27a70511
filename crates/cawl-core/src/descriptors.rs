//! Which files are still within reach: by a name, or by a descriptor of some process.
//!
//! The law: **a file is gone when its last link and its last descriptor are**, and its dirty pages go with
//! it, unwritten. A fork copies descriptors, an exec closes those marked for it, and the end of a process,
//! however it comes, closes all.
//!
//! Known are descriptors that can write, and those that were used. What is not known to be closed counts as
//! open until the process ends.

use std::collections::BTreeMap;

use cawl_wire::{Event, FileId, FileKind, Op, flag};

use crate::model::Map;
use crate::record::{EndKind, Record};

/// Processes that are remembered; twice as many for a moment.
const PROCESSES: usize = 1 << 14;
/// Descriptors that are remembered over all processes.
const DESCRIPTORS: usize = 1 << 20;

/// Descriptors of all processes.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    processes: Map<u32, Process>,
    files: Map<FileId, Held>,
    sessions: BTreeMap<u32, u32>,
    /// Descriptors in all.
    count: usize,
    uses: u64,
    /// Process and descriptor of the latest call on an inherited one.
    inherited: Option<(u32, i32)>,
    /// What models are shown in the place of the latest record, if that is a call.
    held: Option<Event>,
    /// Files that are gone since the latest record.
    pub gone: Vec<FileId>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    open: BTreeMap<i32, Open>,
    /// The number of its latest change.
    used: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    file: FileId,
    /// An exec closes it.
    until_exec: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    descriptors: u32,
    /// No link is left.
    unlinked: bool,
}

impl Descriptors {
    /// Takes the next record.
    pub fn take(&mut self, record: &Record) {
        self.gone.clear();
        self.held = None;
        match record {
            Record::Event(event) => self.held = self.event(event),
            Record::Session(session) if self.sessions.len() < 2 * PROCESSES => {
                self.sessions.insert(session.id, session.pid);
            }
            Record::End(end) => {
                if let Some(pid) = self.sessions.remove(&end.id) {
                    self.ended(pid, end.how == EndKind::Exec);
                }
            }
            _ => {}
        }
    }

    /// The latest call as models are shown it.
    pub fn shown<'a>(&'a self, event: &'a Event) -> &'a Event {
        self.held.as_ref().unwrap_or(event)
    }

    /// Takes a call. Models are shown it as it came, or as answered: a file that loses its last link is
    /// [held](flag::HELD) while it has a descriptor, and the [last](flag::LAST) close of a file may make it
    /// [gone](flag::GONE).
    fn event(&mut self, event: &Event) -> Option<Event> {
        let opened = Open { file: event.file(), until_exec: event.has(flag::CLOEXEC) };
        match event.op {
            Op::Open | Op::StreamOpen if event.errno == 0 => self.open(event, event.fd, opened),
            Op::Close | Op::StreamClose => {
                self.inherited = None;
                // It was given a name since it was opened without one.
                if event.op == Op::Close
                    && event.has(flag::TMPFILE)
                    && event.aux > 0
                    && let Some(held) = self.files.get_mut(&opened.file)
                {
                    held.unlinked = false;
                }
                self.close(event.pid, event.fd);
                let gone = if self.gone.contains(&opened.file) { flag::GONE } else { 0 };
                let is_last = !self.files.contains_key(&opened.file);
                return is_last.then_some(Event { flags: event.flags | flag::LAST | gone, ..*event });
            }
            Op::Dup if event.returned >= 0 => self.open(event, event.returned as i32, opened),
            Op::Fork if event.returned > 0 => self.forked(event.pid, event.returned as u32),
            Op::Unlink | Op::Rename if event.takes_last_link() => {
                let held = self.files.get_mut(&opened.file)?;
                held.unlinked = true;
                return Some(Event { flags: event.flags | flag::HELD, ..*event });
            }
            _ if event.has(flag::INHERITED) && event.kind == FileKind::Regular && event.fd >= 0 => {
                let used = (event.pid, event.fd);
                if self.inherited != Some(used) {
                    self.inherited = Some(used);
                    let known =
                        self.processes.get(&event.pid).and_then(|process| process.open.get(&event.fd));
                    if known.is_none_or(|open| open.file != opened.file) {
                        self.open(event, event.fd, opened);
                    }
                }
            }
            _ => {}
        }
        None
    }

    /// A descriptor leads to a file now, or to something else.
    fn open(&mut self, event: &Event, fd: i32, open: Open) {
        self.inherited = None;
        if event.kind != FileKind::Regular || fd < 0 || self.count >= DESCRIPTORS {
            return self.close(event.pid, fd);
        }
        let held = self.files.entry(open.file).or_default();
        held.descriptors += 1;
        held.unlinked |= event.has(flag::TMPFILE);
        self.uses += 1;
        let process = self.processes.entry(event.pid).or_default();
        process.used = self.uses;
        self.count += 1;
        if let Some(before) = process.open.insert(fd, open) {
            self.count -= 1;
            self.release(before.file);
        }
        if self.processes.len() > 2 * PROCESSES {
            self.forget();
        }
    }

    fn close(&mut self, pid: u32, fd: i32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some(open) = process.open.remove(&fd) {
            if process.open.is_empty() {
                self.processes.remove(&pid);
            }
            self.count -= 1;
            self.release(open.file);
        }
    }

    fn release(&mut self, file: FileId) {
        let Some(held) = self.files.get_mut(&file) else { return };
        held.descriptors -= 1;
        if held.descriptors == 0 {
            if held.unlinked {
                self.gone.push(file);
            }
            self.files.remove(&file);
        }
    }

    fn forked(&mut self, parent: u32, child: u32) {
        // The process that had the number before has ended unseen.
        self.ended(child, false);
        let Some(process) = self.processes.get(&parent) else { return };
        let mut copy = process.clone();
        if self.count + copy.open.len() > DESCRIPTORS {
            return;
        }
        self.uses += 1;
        copy.used = self.uses;
        self.count += copy.open.len();
        for open in copy.open.values() {
            self.files.entry(open.file).or_default().descriptors += 1;
        }
        self.processes.insert(child, copy);
        if self.processes.len() > 2 * PROCESSES {
            self.forget();
        }
    }

    /// A process has ended, or become another program.
    fn ended(&mut self, pid: u32, by_exec: bool) {
        self.inherited = None;
        let Some(mut process) = self.processes.remove(&pid) else { return };
        let kept = |open: &Open| by_exec && !open.until_exec;
        for open in process.open.values().filter(|open| !kept(open)) {
            self.count -= 1;
            self.release(open.file);
        }
        process.open.retain(|_, open| kept(open));
        if !process.open.is_empty() {
            self.processes.insert(pid, process);
        }
    }

    /// Processes of which no end was told: those longest without a change.
    fn forget(&mut self) {
        let mut used: Vec<(u64, u32)> =
            self.processes.iter().map(|(pid, process)| (process.used, *pid)).collect();
        used.sort_unstable();
        used.truncate(used.len() - PROCESSES);
        used.into_iter().for_each(|(_, pid)| self.ended(pid, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Session, SessionEnd};
    use crate::units::Time;

    const FILE: FileId = FileId { dev: 1, ino: 2, birth: 3 };

    fn call(op: Op, pid: u32, fd: i32) -> Event {
        let mut event = Event::new(op);
        event.set_file(FILE);
        (event.pid, event.fd, event.kind, event.flags) = (pid, fd, FileKind::Regular, flag::WRITABLE);
        event
    }

    #[derive(Default)]
    struct Machine(Descriptors);

    impl Machine {
        /// True if the file is gone after it. Models are told so of a close.
        fn does(&mut self, event: Event) -> bool {
            self.0.take(&Record::Event(event));
            let is_gone = self.0.gone == [FILE];
            let shown = self.0.shown(&event);
            assert_eq!(shown.has(flag::GONE), is_gone && event.op == Op::Close);
            assert!(shown.has(flag::LAST) || !shown.has(flag::GONE));
            is_gone
        }

        fn dups(&mut self, pid: u32, fd: i32, to: i32, flags: u32) -> bool {
            self.does(Event { returned: to.into(), flags, ..call(Op::Dup, pid, fd) })
        }

        fn forks(&mut self, pid: u32, child: u32) -> bool {
            self.does(Event { returned: child.into(), ..call(Op::Fork, pid, -1) })
        }

        /// True if the file is held by a descriptor.
        fn unlinks(&mut self) -> bool {
            let unlink = call(Op::Unlink, 1, -1);
            self.0.take(&Record::Event(unlink));
            self.0.shown(&unlink).has(flag::HELD)
        }

        fn begins(&mut self, id: u32, pid: u32) {
            self.0.take(&Record::Session(Session { id, pid, ..Session::default() }));
        }

        fn ends(&mut self, id: u32, how: EndKind) -> bool {
            let (at, wchar) = (Time(0), Default::default());
            self.0.take(&Record::End(SessionEnd {
                id,
                at,
                how,
                wchar,
                usage: None,
                pending: 0,
                dropped: 0,
                unseen: 0,
            }));
            self.0.gone == [FILE]
        }
    }

    #[test]
    fn a_file_is_gone_with_its_last_link_and_descriptor() {
        let mut machine = Machine::default();
        assert!(!machine.unlinks(), "no process has it open");
        assert!(!machine.does(call(Op::Open, 1, 3)));
        assert!(!machine.dups(1, 3, 4, 0));
        let one = call(Op::Close, 1, 3);
        assert!(!machine.does(one) && !machine.0.shown(&one).has(flag::LAST));
        assert!(machine.unlinks());
        assert!(machine.does(call(Op::Close, 1, 4)));
        assert!(!machine.does(call(Op::Close, 1, 4)), "it is gone once");
        // A file that keeps its name stays.
        machine.does(call(Op::Open, 1, 3));
        assert!(!machine.does(one) && machine.0.shown(&one).has(flag::LAST));
    }

    #[test]
    fn each_process_has_descriptors_of_its_own() {
        let mut machine = Machine::default();
        machine.begins(1, 1);
        machine.begins(2, 2);
        machine.does(call(Op::Open, 1, 3));
        machine.forks(1, 2);
        assert!(machine.unlinks());
        assert!(!machine.does(call(Op::Close, 2, 3)), "the parent has it still");
        machine.forks(1, 2);
        assert!(!machine.does(call(Op::Close, 1, 3)), "the child has it now");
        assert!(machine.ends(2, EndKind::Vanished), "killed");
        assert_eq!((machine.0.count, machine.0.files.len(), machine.0.processes.len()), (0, 0, 0));
    }

    #[test]
    fn an_exec_closes_what_is_marked_for_it() {
        for (flags, mark, gone) in
            [(0, None, false), (flag::CLOEXEC, None, true), (0, Some(flag::CLOEXEC), true)]
        {
            let mut machine = Machine::default();
            machine.begins(1, 1);
            machine.does(Event { flags, ..call(Op::Open, 1, 3) });
            if let Some(flags) = mark {
                machine.dups(1, 3, 3, flags);
            }
            machine.unlinks();
            assert_eq!(machine.ends(1, EndKind::Exec), gone);
            machine.begins(2, 1);
            assert_eq!(machine.ends(2, EndKind::Exit), !gone);
        }
    }

    #[test]
    fn another_file_at_the_same_number_closes_what_was_there() {
        let mut machine = Machine::default();
        machine.does(call(Op::Open, 1, 3));
        machine.unlinks();
        let mut other = Event { returned: 3, ..call(Op::Dup, 1, 5) };
        other.ino += 1;
        assert!(machine.does(other));
        machine.does(call(Op::Open, 1, 4));
        machine.unlinks();
        assert!(machine.does(Event { returned: 4, kind: FileKind::Fifo, ..call(Op::Dup, 1, 5) }));
    }

    #[test]
    fn a_file_without_a_name_is_gone_when_it_is_closed_unless_it_was_given_one() {
        for (links, gone) in [(0, true), (1, false)] {
            let mut machine = Machine::default();
            let flags = flag::TMPFILE | flag::WRITABLE;
            machine.does(Event { flags, ..call(Op::Open, 1, 3) });
            assert_eq!(machine.does(Event { flags, aux: links, ..call(Op::Close, 1, 3) }), gone);
        }
    }

    #[test]
    fn who_inherited_a_descriptor_has_it_when_it_is_used() {
        let mut machine = Machine::default();
        machine.does(Event { flags: flag::INHERITED, ..call(Op::Write, 1, 1) });
        assert!(machine.unlinks());
        assert!(machine.does(call(Op::Close, 1, 1)));
    }

    #[test]
    fn processes_that_never_end_are_forgotten() {
        let mut machine = Machine::default();
        for pid in 0..3 * PROCESSES as u32 {
            machine.does(call(Op::Open, pid, 3));
        }
        assert!(machine.0.processes.len() <= 2 * PROCESSES);
        assert_eq!(machine.0.count, machine.0.processes.len());
    }
}
