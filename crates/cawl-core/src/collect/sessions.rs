//! Sessions: what each wrote as far as seen, and as the kernel counts it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use cawl_wire::{Event, Op, RankVariable};

use crate::buffers::Language;
use crate::call::wchar_bytes;
use crate::processes::{ProcessReport, RankReport, grown, ranks};
use crate::record::{EndKind, RunDelay, Session, SessionEnd, Wchar};
use crate::report::{SessionReport, SessionTotals};
use crate::tally::Tally;
use crate::units::{Nanos, Time};

/// How many sessions that ended are listed. When there are twice as many, those that ended first become
/// sums: a daemon sees processes come and go for months.
pub(super) const SESSIONS: usize = 4096;

/// All sessions of an analysis.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) list: Vec<ListedSession>,
    ended: usize,
    /// The sums of the sessions that are not listed.
    pub(super) folded: SessionTotals,
    /// [`Sessions::untraced`] of the sessions that are not listed, in bytes.
    folded_untraced: u64,
    /// [`Sessions::uncounted`] of the sessions that are not listed.
    folded_uncounted: u64,
    /// Sessions of each pid, in order: exec begins a new one, and pids are used again.
    by_pid: HashMap<u32, Vec<usize>>,
    /// The latest look-up: a pid, when its calls belong to one session, and the index of that.
    latest: Option<(u32, Range<Time>, usize)>,
    /// From the first begin to the last end of all.
    pub(super) span: Option<(Time, Time)>,
}

/// A process image: what it wrote as far as seen, and as the kernel counts it.
#[derive(Default)]
pub(super) struct ListedSession {
    /// Without arguments.
    image: Session,
    /// Bytes written by children that are not listed any more.
    children: u64,
    /// The calls that the report is about, and the bytes of all.
    count: Tally,
    seen: u64,
    /// Time in its calls, in ns.
    observed_ns: u64,
    /// Time that its threads waited for a processor.
    delayed: Nanos,
    /// Whether another thread than the process's first made a call.
    threaded: bool,
    end: Option<SessionEnd>,
}

/// A process, to its parent.
struct Child {
    born: Time,
    ended: Option<Time>,
    /// Bytes that it and the children it waited for wrote.
    written: u64,
}

impl Sessions {
    pub(super) fn begin(&mut self, session: &Session) {
        self.latest = None;
        self.last_for(session.started);
        // Connections are served side by side: an image may be announced after the one it ran before.
        let of_pid = self.by_pid.entry(session.pid).or_default();
        let place = of_pid.partition_point(|i| self.list[*i].image.started <= session.started);
        of_pid.insert(place, self.list.len());
        let image = Session {
            program: session.program.clone(),
            arguments: Vec::new(),
            traceparent: None,
            ..*session
        };
        let before = place.checked_sub(1).map(|place| of_pid[place]);
        self.list.push(ListedSession { image, ..ListedSession::default() });
        if let Some(before) = before {
            self.bound(before, session.wchar);
        }
    }

    /// Bounds the counters of an image that called exec by those that the process's `next` image began with:
    /// a daemon that reads them for a process that may not, reads them late.
    fn bound(&mut self, index: usize, next: Wchar) {
        let least = |late: Option<u64>, next: Option<u64>| late.map(|late| late.min(next.unwrap_or(late)));
        if let Some(end) = self.list[index].end.as_mut().filter(|end| end.how == EndKind::Exec) {
            let process = least(end.wchar.process, next.process);
            end.wchar = Wchar { process, thread: least(end.wchar.thread, next.thread) };
        }
    }

    /// Some session began or ended.
    fn last_for(&mut self, at: Time) {
        let (from, to) = self.span.unwrap_or((at, at));
        self.span = Some((from.min(at), to.max(at)));
    }

    pub(super) fn end(&mut self, end: &SessionEnd) {
        self.last_for(end.at);
        if let Some(index) = self.list.iter().rposition(|listed| listed.image.id == end.id) {
            let listed = &mut self.list[index];
            self.ended += usize::from(listed.end.is_none());
            listed.end = Some(*end);
            let images = self.by_pid.get(&listed.image.pid).into_iter().flatten();
            let next = images.skip_while(|image| **image != index).nth(1);
            if let Some(next) = next.map(|next| self.list[*next].image.wchar) {
                self.bound(index, next);
            }
            if self.ended >= 2 * SESSIONS {
                self.fold();
            }
        }
    }

    /// A call. One that is not `selected` counts for the coverage only.
    #[inline]
    pub(super) fn call(&mut self, event: &Event, selected: bool) {
        let calls = Tally { calls: 1, bytes: wchar_bytes(event) };
        self.calls(event, Time(event.start), calls, event.duration, selected);
    }

    /// Calls like this one from `at` on, with the bytes that the kernel counted for them, and their time in
    /// ns.
    pub(super) fn calls(&mut self, event: &Event, at: Time, calls: Tally, ns: u64, selected: bool) {
        if let Some(index) = self.index(event.pid, at) {
            let listed = &mut self.list[index];
            listed.seen = listed.seen.saturating_add(calls.bytes);
            // The C library's own threads make the writes of POSIX aio.
            let is_others = event.op == Op::AioWrite && event.aux == 1;
            listed.threaded |= event.tid != event.pid || is_others;
            if selected {
                listed.count.add_all(calls);
                listed.observed_ns = listed.observed_ns.saturating_add(ns);
            }
        }
    }

    /// A thread waited for a processor.
    pub(super) fn delayed(&mut self, delay: &RunDelay) {
        if let Some(index) = self.index(delay.pid, delay.from) {
            self.list[index].delayed += delay.delayed;
        }
    }

    /// What each listed session spent its time on, until `now` if it runs, and the same by rank.
    pub(super) fn processes(&self, now: Time) -> (Vec<ProcessReport>, Option<RankVariable>, Vec<RankReport>) {
        let processes: Vec<ProcessReport> = self.list.iter().map(|listed| listed.process(now)).collect();
        let ranked = self.list.iter().zip(&processes);
        let ranked = ranked.filter_map(|(listed, process)| Some((listed.image.rank?, process)));
        let (variable, ranks) = ranks(ranked);
        (processes, variable, ranks)
    }

    /// Index of the session that a call belongs to: the latest of its pid that had begun by then. Calls
    /// may be taken after the next session of the same pid was announced.
    fn index(&mut self, pid: u32, at: Time) -> Option<usize> {
        if let Some((last, span, index)) = &self.latest
            && *last == pid
            && span.contains(&at)
        {
            return Some(*index);
        }
        let of_pid = self.by_pid.get(&pid)?;
        let begin = |place: usize| self.list[of_pid[place]].image.started;
        let place = self.place(of_pid, at);
        let end = if place + 1 < of_pid.len() { begin(place + 1) } else { Time(u64::MAX) };
        let index = of_pid[place];
        self.latest = Some((pid, begin(place)..end, index));
        Some(index)
    }

    /// Place of the latest of these images that had begun by then.
    fn place(&self, of_pid: &[usize], at: Time) -> usize {
        of_pid.partition_point(|index| self.list[*index].image.started <= at).saturating_sub(1)
    }

    /// The language of the program that a process ran at a time, as far as known.
    pub(super) fn language(&self, pid: u32, at: Time) -> Option<Language> {
        let of_pid = self.by_pid.get(&pid)?;
        self.list[*of_pid.get(self.place(of_pid, at))?].image.language()
    }

    /// Turns all but the latest [`SESSIONS`] of the sessions that ended into sums.
    fn fold(&mut self) {
        let ends = self.list.iter().enumerate();
        let mut ended: Vec<_> = ends.filter_map(|(index, listed)| Some((listed.end?.at, index))).collect();
        ended.sort_unstable();
        ended.truncate(ended.len().saturating_sub(SESSIONS));
        let mut leaving = vec![false; self.list.len()];
        ended.iter().for_each(|(_, index)| leaving[*index] = true);
        let children = self.children();
        for (listed, _) in self.list.iter().zip(&leaving).filter(|(_, leaves)| **leaves) {
            self.folded.add(&listed.report(listed.written_by(&children)));
            let untraced = listed.untraced(listed.written_by(&children));
            self.folded_untraced = self.folded_untraced.saturating_add(untraced);
        }
        let gone = || self.by_pid.values().filter(|images| leaving[images[images.len() - 1]]);
        let uncounted = gone().filter(|images| self.is_uncounted(images)).count() as u64;
        // What a child wrote is still to be taken off its parent's count.
        let orphan = |images: &Vec<usize>| {
            let (ppid, child) = self.child(images)?;
            let mut parents = self.by_pid.get(&ppid)?.iter().copied();
            Some((parents.find(|parent| self.list[*parent].had(&child))?, child.written))
        };
        let orphans: Vec<(usize, u64)> = gone().filter_map(orphan).collect();
        self.folded_uncounted += uncounted;
        for (parent, written) in orphans {
            let children = &mut self.list[parent].children;
            *children = children.saturating_add(written);
        }
        let mut leaves = leaving.iter().copied();
        self.list.retain(|_| !leaves.next().unwrap_or(false));
        self.ended -= ended.len();
        self.latest = None;
        self.by_pid.clear();
        for (index, listed) in self.list.iter().enumerate() {
            self.by_pid.entry(listed.image.pid).or_default().push(index);
        }
        for images in self.by_pid.values_mut() {
            images.sort_by_key(|index| self.list[*index].image.started);
        }
    }

    /// The process with these images, as its parent sees it, if it has ended.
    fn child(&self, images: &[usize]) -> Option<(u32, Child)> {
        // A process's last image tells what it and its own children wrote in all.
        let last = &self.list[*images.last()?];
        let end = last.end.filter(|end| end.how != EndKind::Running)?;
        let counted = end.wchar.process.map(|written| written.saturating_add(end.pending));
        let child = Child {
            born: self.list[images[0]].image.started,
            // When a process ended without a word is known only by when the daemon saw it.
            ended: if matches!(end.how, EndKind::Vanished | EndKind::Confined) { None } else { Some(end.at) },
            // Where nobody could count it, it is at least what was seen.
            written: counted.unwrap_or_else(|| images.iter().map(|image| self.list[*image].seen).sum()),
        };
        Some((last.image.ppid, child))
    }

    /// The children of each process, those that wrote most first: one that was not waited for should not pass
    /// for one that was.
    fn children(&self) -> Children {
        let mut children = Children::new();
        for (ppid, child) in self.by_pid.values().filter_map(|images| self.child(images)) {
            children.entry(ppid).or_default().push(child);
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|child| (Reverse(child.written), child.born));
        }
        children
    }

    /// Every session, with what its children wrote taken off its count.
    pub(super) fn reports(&self) -> Vec<SessionReport> {
        let children = self.children();
        self.list.iter().map(|listed| listed.report(listed.written_by(&children))).collect()
    }

    /// Processes of which nobody read what they wrote in all: neither they or the daemon, nor their parent,
    /// whose counters have those of the children it waited for. An untraced program after an exec is one of
    /// them; a process whose counters were never told, as in an import, is not.
    pub(super) fn uncounted(&self) -> u64 {
        let uncounted = self.by_pid.values().filter(|images| self.is_uncounted(images));
        self.folded_uncounted + uncounted.count() as u64
    }

    fn is_uncounted(&self, images: &[usize]) -> bool {
        let last = |images: &[usize]| images.last().map(|last| &self.list[*last]);
        let counts = |end: &SessionEnd| end.how != EndKind::Exec && end.wchar.process.is_some();
        let told = last(images).filter(|last| last.image.wchar.process.is_some());
        let Some((end, ppid)) = told.and_then(|last| Some((last.end?, last.image.ppid))) else {
            return false;
        };
        let parent = self.by_pid.get(&ppid).and_then(|images| last(images)?.end);
        !counts(&end) && !parent.is_some_and(|parent| counts(&parent) && parent.at >= end.at)
    }

    /// Bytes that the sessions' processes waited for and that no session wrote: those of children that were
    /// not traced.
    pub(super) fn untraced(&self) -> u64 {
        let children = self.children();
        self.list.iter().fold(self.folded_untraced, |sum, listed| {
            sum.saturating_add(listed.untraced(listed.written_by(&children)))
        })
    }
}

/// By the parent's pid.
type Children = HashMap<u32, Vec<Child>>;

impl ListedSession {
    /// True if the child ended under this image.
    fn had(&self, child: &Child) -> bool {
        let at = child.ended.unwrap_or(child.born);
        self.image.started <= at && at < self.end.map_or(Time(u64::MAX), |end| end.at)
    }

    /// Bytes that this image wrote, as the kernel counts them. The figure of its first thread is exact as
    /// long as no other made a call; else it is that of the process, less what its `children` wrote, which
    /// the kernel adds when they are waited for. A child that was not waited for shows: too little would be
    /// left.
    fn counted(&self, children: impl Iterator<Item = u64>) -> Option<u64> {
        let (start, end) = (self.image.wchar, self.end?);
        let written = |from, to| Some(grown(from, to)?.saturating_add(end.pending));
        if let Some(alone) = written(start.thread, end.wchar.thread).filter(|_| !self.threaded) {
            return Some(alone);
        }
        let all = written(start.process, end.wchar.process)?;
        Some(
            std::iter::once(self.children).chain(children).fold(all, |all, child| {
                all.checked_sub(child).filter(|own| *own >= self.seen).unwrap_or(all)
            }),
        )
    }

    /// What the children that ended under this image wrote.
    fn written_by<'a>(&'a self, children: &'a Children) -> impl Iterator<Item = u64> + 'a {
        let own = children.get(&self.image.pid).map_or(&[][..], Vec::as_slice);
        own.iter().filter(|child| self.had(child)).map(|child| child.written)
    }

    /// Bytes of children that were waited for and not traced. Where other threads made calls, nobody can tell
    /// these from theirs, and they are in [`counted`](Self::counted).
    fn untraced(&self, children: impl Iterator<Item = u64>) -> u64 {
        let others = || {
            let (start, end) = (self.image.wchar, self.end.filter(|_| !self.threaded)?);
            let own = grown(start.thread, end.wchar.thread)?;
            Some(grown(start.process, end.wchar.process)?.saturating_sub(own))
        };
        let known = children.fold(self.children, u64::saturating_add);
        others().map_or(0, |others| others.saturating_sub(known))
    }

    fn process(&self, now: Time) -> ProcessReport {
        ProcessReport {
            run_delay_s: self.delayed.as_seconds(),
            calls: self.count.calls,
            bytes: self.count.bytes,
            calls_s: self.observed_ns as f64 / 1e9,
            ..ProcessReport::of(&self.image, self.end.as_ref(), now)
        }
    }

    fn report(&self, children: impl Iterator<Item = u64>) -> SessionReport {
        let wchar = self.counted(children);
        SessionReport {
            pid: self.image.pid,
            program: self.image.program.clone(),
            ended: self.end.map_or(EndKind::Running, |end| end.how),
            calls: self.count.calls,
            seen_bytes: self.seen,
            wchar_bytes: wchar,
            coverage: wchar.and_then(|wchar| ratio(self.seen, wchar)),
            dropped: self.end.map_or(0, |end| end.dropped),
            unseen: self.end.map_or(0, |end| end.unseen),
        }
    }
}

/// A part of a whole; None of nothing.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
