//! The books of one process image.

use cawl_wire::Event;

use super::ratio;
use crate::record::{EndKind, SessionEnd, Wchar};
use crate::report::SessionReport;
use crate::units::Time;

/// A process image: what it wrote as far as seen, and as the kernel counts it.
pub(super) struct SessionBooks {
    pub(super) id: u32,
    pub(super) pid: u32,
    pub(super) ppid: u32,
    pub(super) started: Time,
    pub(super) wchar: Wchar,
    pub(super) program: String,
    /// Bytes written by children that are not listed any more.
    pub(super) children: u64,
    pub(super) calls: u64,
    pub(super) seen: u64,
    /// Whether another thread than the process's first made a call.
    pub(super) threaded: bool,
    pub(super) end: Option<SessionEnd>,
}

/// A process, to its parent.
pub(super) struct Child {
    pub(super) born: Time,
    pub(super) ended: Option<Time>,
    /// Bytes that it and the children it waited for wrote.
    pub(super) written: u64,
}

impl SessionBooks {
    /// True if the child ended under this image.
    pub(super) fn had(&self, child: &Child) -> bool {
        let at = child.ended.unwrap_or(child.born);
        self.started <= at && at < self.end.map_or(Time(u64::MAX), |end| end.at)
    }

    /// Calls like this one, and the bytes that the kernel counted for all of them.
    pub(super) fn calls(&mut self, event: &Event, calls: u64, wchar: u64) {
        self.calls += calls;
        self.seen = self.seen.saturating_add(wchar);
        self.threaded |= event.tid != event.pid;
    }

    /// Bytes that this image wrote, as the kernel counts them. The figure of its first thread is exact as
    /// long as no other made a call; else it is that of the process, less what its `children` wrote, which
    /// the kernel adds when they are waited for. Who was not waited for shows by there being too little left.
    pub(super) fn counted(&self, children: impl Iterator<Item = u64>) -> Option<u64> {
        let (start, end) = (self.wchar, self.end?);
        let grown =
            |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?).saturating_add(end.pending));
        if let Some(alone) = grown(start.thread, end.wchar.thread).filter(|_| !self.threaded) {
            return Some(alone);
        }
        let all = grown(start.process, end.wchar.process)?;
        Some(
            std::iter::once(self.children).chain(children).fold(all, |all, child| {
                all.checked_sub(child).filter(|own| *own >= self.seen).unwrap_or(all)
            }),
        )
    }

    pub(super) fn report(&self, children: impl Iterator<Item = u64>) -> SessionReport {
        let wchar = self.counted(children);
        SessionReport {
            pid: self.pid,
            program: self.program.clone(),
            ended: self.end.map_or(EndKind::Running, |end| end.how),
            calls: self.calls,
            seen_bytes: self.seen,
            wchar_bytes: wchar,
            coverage: wchar.and_then(|wchar| ratio(self.seen, wchar)),
            dropped: self.end.map_or(0, |end| end.dropped),
            unseen: self.end.map_or(0, |end| end.unseen),
        }
    }
}
