//! Calls from the output of `strace -f -ttt -T -y`.
//!
//! The law: **no line ends the import**, because strace's output is read by people, mixed with the program's
//! own and cut off at any place.
//!
//! Times count from the first line; the summary's `epoch` is that moment.

mod line;

use std::collections::HashMap;

use cawl_core::Record;

use self::line::{Content, Prefix};
pub use self::line::{LineTime, line_time};
use super::calls::{Calls, UNTOLD};
use super::{ImportError, ImportSummary, Importer, SkipReason};

/// Reads the output of `strace -f -ttt -T -y`, to a file or to a terminal, of any version from 4.8 on; with
/// other forms of times (-tt, -t, -r), too.
#[derive(Default)]
pub struct StraceImporter {
    calls: Calls,
    understood: u64,
    /// Time of the first line, in ns since 1970 or midnight.
    base: Option<u64>,
    /// Nanoseconds added to times of day for midnights that have passed.
    days: u64,
    of_day: bool,
    /// Times count from the line before (-r), or are whole seconds (-t).
    relative: bool,
    whole_seconds: bool,
    /// Where times are whole seconds: when each thread's latest call ended, in ns since the base.
    ends: HashMap<u32, u64>,
    /// strace names threads in this output.
    named: bool,
    /// The number strace gives to the process that began without one.
    alias: Option<u32>,
    anonymous: bool,
    /// A message of strace's own came in the middle of this thread's line; the rest is the next line.
    glued: Option<(u32, String)>,
}

impl StraceImporter {
    fn text(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if let Some((before, child)) = interrupted(line) {
            return self.interrupted(before, child);
        }
        let (prefix, rest) = line::prefix(line);
        let mut content = line::content(rest);
        if let Some((tid, name)) = self.glued.take()
            && prefix == Prefix::default()
            && content == Content::Unreadable
        {
            if rest.trim_end() != "<unfinished ...>" {
                self.resume(tid, &name, line.trim_end());
            }
            return;
        }
        // Where times count from the line before, each line moves them on.
        let moves = content == Content::Signal || content == Content::Unreadable && self.relative;
        if moves {
            self.tell_time(prefix);
        }
        match content {
            Content::Unreadable => return self.calls.skip(SkipReason::Unreadable),
            Content::Chatter => {
                if let Some(child) = attached(rest) {
                    self.named = true;
                    self.calls.meet(child);
                }
                return;
            }
            Content::Signal => return,
            _ => {}
        }
        if prefix.tid.is_none() && prefix.time.is_none() {
            // A program's own output may have the form of a call, too.
            return self.calls.skip(SkipReason::Timeless);
        }
        let timed = self.tell_time(prefix);
        let Some(tid) = self.thread(prefix.tid, &content) else {
            return self.calls.skip(SkipReason::Anonymous);
        };
        if !timed && matches!(content, Content::Call { .. } | Content::Resumed { .. }) {
            return self.calls.skip(SkipReason::Timeless);
        }
        self.whole_seconds |= prefix.whole_seconds;
        if prefix.whole_seconds
            && let Some(end) = self.ends.get(&tid)
        {
            self.calls.now = self.calls.now.max(*end);
        }
        self.understood += u64::from(timed);
        // A process killed inside a call: `write(1, "x", 1 <unfinished ...>) = ?`.
        if let Content::Call { name, rest, open: false } = content
            && let Some(at) =
                rest.rfind("<unfinished ...>").filter(|&at| rest[at + 16..].trim().starts_with(')'))
            && rest[at..].trim_end().ends_with('?')
        {
            content = Content::Call { name, rest: &rest[..at], open: true };
        }
        match content {
            Content::Call { name, rest, open: true } => self.calls.begin(tid, name, rest),
            Content::Call { name, rest, open: false } => {
                let end = self.calls.complete(tid, name, rest);
                self.ended(tid, end);
            }
            Content::Resumed { name, rest } => self.resume(tid, name, rest),
            Content::Exited(code) => self.calls.ended(tid, Some(code), None),
            Content::Killed(signal) => self.calls.ended(tid, None, Some(signal)),
            Content::Superseded(by) => self.calls.superseded(tid, by),
            Content::Signal | Content::Chatter | Content::Unreadable => {}
        }
    }

    fn resume(&mut self, tid: u32, name: &str, rest: &str) {
        let end = self.calls.resume(tid, name, rest);
        self.ended(tid, end);
    }

    /// A call ended at this time, in ns since the base, if it is one that is followed.
    fn ended(&mut self, tid: u32, end: Option<u64>) {
        if let Some(end) = end.filter(|_| self.whole_seconds) {
            self.calls.skip(SkipReason::WholeSeconds);
            self.ends.insert(tid, end);
        }
    }

    /// `clone(flags=CLONE_VMstrace: Process 8 attached`: the call goes on in the next line.
    fn interrupted(&mut self, before: &str, child: u32) {
        let (prefix, rest) = line::prefix(before);
        if let Content::Call { name, rest, open: false } = line::content(rest) {
            let content = Content::Call { name, rest, open: true };
            if self.tell_time(prefix)
                && let Some(tid) = self.thread(prefix.tid, &content)
            {
                self.understood += 1;
                self.calls.begin(tid, name, rest);
                self.glued = Some((tid, name.to_owned()));
            }
        } else {
            self.calls.skip(SkipReason::Unreadable);
        }
        self.named = true;
        self.calls.meet(child);
    }

    /// Takes over the line's time; false if it has none.
    fn tell_time(&mut self, prefix: Prefix) -> bool {
        const DAY: u64 = 86_400_000_000_000;
        let Some(mut time) = prefix.time else { return false };
        if !prefix.of_day && time < line::MAX_RELATIVE {
            self.relative = true;
            self.calls.now = self.calls.now.saturating_add(time);
            return true;
        }
        let base = *self.base.get_or_insert(time);
        self.of_day |= prefix.of_day;
        if prefix.of_day {
            time = time.saturating_add(self.days);
            if time.saturating_add(DAY / 2) < base.saturating_add(self.calls.now) {
                self.days = self.days.saturating_add(DAY);
                time = time.saturating_add(DAY);
            }
        }
        self.calls.now = time.saturating_sub(base);
        true
    }

    /// The thread a line is about; makes it known if it is not. None if several come into question.
    fn thread(&mut self, tid: Option<u32>, content: &Content<'_>) -> Option<u32> {
        let Some(tid) = tid else {
            let only = {
                let mut seen = self.calls.seen();
                match (self.named, seen.next(), seen.next()) {
                    (false, ..) | (true, None, None) => UNTOLD,
                    (true, Some(only), None) => only,
                    _ => return None,
                }
            };
            if only == UNTOLD && !self.calls.knows(only) {
                self.anonymous = true;
                self.calls.meet(only);
            }
            return Some(only);
        };
        self.named = true;
        if self.alias == Some(tid) {
            return Some(UNTOLD);
        }
        if !self.calls.knows(tid) && self.anonymous && self.alias.is_none() {
            let own = self.calls.under_way(UNTOLD);
            let resumes = matches!(content, Content::Resumed { name, .. } if own == Some(*name));
            if resumes || !self.calls.expects_child() {
                self.alias = Some(tid);
                return Some(UNTOLD);
            }
        }
        self.calls.meet(tid);
        Some(tid)
    }
}

impl Importer for StraceImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        let text = self.calls.text(line);
        self.text(&text);
        self.calls.take(out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.understood == 0 {
            return Err(self.calls.none_is(
                "a call with a time in front; record with strace -f -ttt -T -y -o FILE, and give that FILE",
            ));
        }
        let mut summary = self.calls.finish("strace", out);
        let tells_epoch = !self.of_day && !self.relative;
        summary.epoch = self.base.filter(|_| tells_epoch);
        Ok(summary)
    }
}

/// The child in `strace: Process 8 attached`.
fn attached(text: &str) -> Option<u32> {
    text.trim_end().strip_prefix("strace: Process ")?.strip_suffix(" attached")?.parse().ok()
}

/// A line in whose middle strace tells of a child: what stands before, and the child.
fn interrupted(line: &str) -> Option<(&str, u32)> {
    let line = line.trim_end();
    if !line.ends_with(" attached") {
        return None;
    }
    let at = line.rfind("strace: Process ").filter(|&at| at > 0)?;
    Some((&line[..at], attached(&line[at..])?))
}

#[cfg(test)]
mod tests;
