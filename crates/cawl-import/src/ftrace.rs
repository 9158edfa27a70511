//! Calls from the text of ftrace's `trace` and `trace_pipe`, and of `trace-cmd report`.
//!
//! The law: **only what has the form of an event is one.** Such a line is read or ends the import; other
//! lines are counted, since the text is kept by people, and begins and ends anywhere.

use cawl_core::Record;

use super::tracepoints::{Head, Tracepoints, after_comm, comm};
use super::{ImportError, ImportSummary, Importer, SkipReason, nanoseconds};

/// Reads events of `syscalls` or `raw_syscalls`, one a line:
/// `dd-7 [001] ..... 12.345678: sys_write(fd: 1, buf: 55d0, count: 1000)`.
pub struct FtraceImporter {
    events: Tracepoints,
}

impl Default for FtraceImporter {
    fn default() -> FtraceImporter {
        FtraceImporter {
            events: Tracepoints::new(
                "record with trace-cmd record -e syscalls CMD, trace-cmd report > FILE, and give that FILE",
            ),
        }
    }
}

impl Importer for FtraceImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        let calls = &mut self.events.calls;
        let text = calls.text(line);
        let text = text.trim();
        match after_comm(text, b'-', head) {
            Some((name, (head, event))) => {
                self.events.event(&Head { comm: comm(name), ..head }, event)?;
                self.events.calls.take(out);
            }
            None => match lost(text) {
                Some(0) => {}
                Some(events) => calls.lost(events),
                None if is_chatter(text) => {}
                None => calls.skip(SkipReason::Unreadable),
            },
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        self.events.finish("ftrace", out)
    }
}

/// What stands between a thread's name and the event: `7  (   7) [001] d..2. 12.345678: `, of which all but
/// number, processor and time depends on options and version.
fn head(text: &str) -> Option<(Head<'_>, &str)> {
    let (tid, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let tid = tid.parse().ok()?;
    let mut rest = rest.trim_start();
    let mut pid = None;
    // Of record-tgid; `-------` where the process is not known.
    if let Some((process, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        pid = process.trim().parse().ok();
        rest = after.trim_start();
    }
    let (cpu, after) = rest.strip_prefix('[')?.split_once(']')?;
    cpu.trim().parse::<u32>().ok()?;
    let (mut word, mut rest) = after.trim_start().split_once(' ')?;
    if !word.ends_with(':') {
        (word, rest) = rest.trim_start().split_once(' ')?;
    }
    let word = word.strip_suffix(':')?;
    word.bytes().all(|b| b.is_ascii_digit() || b == b'.').then_some(())?;
    let time = nanoseconds(word.as_bytes()).ok().filter(|_| word.contains('.'));
    Some((Head { comm: None, tid, pid, time }, rest.trim_start()))
}

/// Events that a line says are missing: `CPU:1 [LOST 42 EVENTS]`, `CPU:1 [42 EVENTS DROPPED]`, where the
/// number may be missing, and `# entries-in-buffer/entries-written: 10/52   #P:2` at the begin of `trace`.
fn lost(text: &str) -> Option<u64> {
    if let Some(entries) = text.strip_prefix("# entries-in-buffer/entries-written: ") {
        let (kept, written) = entries.split_whitespace().next()?.split_once('/')?;
        return Some(written.parse::<u64>().ok()?.saturating_sub(kept.parse().ok()?));
    }
    let (_, inner) = text.strip_prefix("CPU:")?.strip_suffix(']')?.split_once(" [")?;
    let number = inner.trim_start_matches("LOST").trim_end_matches("DROPPED").trim();
    let number = number.strip_suffix("EVENTS")?.trim();
    if number.is_empty() { Some(1) } else { number.parse().ok() }
}

/// What the tools say beside the events.
fn is_chatter(text: &str) -> bool {
    text.is_empty()
        || text.starts_with('#')
        || ["cpus=", "version = ", "CPU ", "cpu "].iter().any(|begin| text.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_all_versions() {
        let expected = Head { comm: Some("dd"), tid: 7, pid: None, time: Some(12_345_678_000) };
        for text in [
            "dd-7     [001] ..... 12.345678: sys_sync()",
            "dd-7     [001] d..2. 12.345678: sys_sync()",
            "dd-7     [001]  12.345678: sys_sync()",
            "dd-7     (-------) [001] .N... 12.345678: sys_sync()",
            "dd-7     [001] ..... 12.345678000: sys_sync()",
        ] {
            let (name, (head, event)) = after_comm(text, b'-', head).expect(text);
            assert_eq!((Head { comm: comm(name), ..head }, event), (expected, "sys_sync()"), "{text}");
        }
        let (name, (of, _)) = after_comm("a b [1]-2-7 (  5) [0] .... 1.5: x: y", b'-', head).expect("a head");
        assert_eq!((name, of.tid, of.pid), ("a b [1]-2", 7, Some(5)));
        let (_, (of, _)) = after_comm("dd-7 [001] .... 123456789: sys_sync()", b'-', head).expect("a head");
        assert_eq!(of.time, None);
        for text in ["", "dd-7", "dd-7 [001]", "dd-7 [001] .... 1.5:", "sys_write(fd: 1)", "x-1 [y] 1.5: z"] {
            assert!(after_comm(text, b'-', head).is_none(), "{text}");
        }
    }

    #[test]
    fn lost_events_are_counted() {
        for (text, events) in [
            ("CPU:1 [LOST 42 EVENTS]", Some(42)),
            ("CPU:1 [LOST EVENTS]", Some(1)),
            ("CPU:7 [204600 EVENTS DROPPED]", Some(204_600)),
            ("CPU:7 [EVENTS DROPPED]", Some(1)),
            ("# entries-in-buffer/entries-written: 10/52   #P:2", Some(42)),
            ("# tracer: nop", None),
        ] {
            assert_eq!(lost(text), events, "{text}");
        }
    }
}
