//! Calls from the output of `perf script` for tracepoints of system calls.
//!
//! The law: **only what has the form of an event is one.** Such a line is read or ends the import; others
//! (stacks, headers) are counted.

use cawl_core::Record;

use super::calls::UNTOLD;
use super::tracepoints::{Head, Tracepoints, after_comm, comm};
use super::{ImportError, ImportSummary, Importer, SkipReason, nanoseconds};

/// Reads events of `syscalls` or `raw_syscalls`, one a line:
/// `dd 7 [001] 12.345678: syscalls:sys_enter_write: fd: 0x00000001, buf: 0x000055d0, count: 0x00001000`.
pub struct PerfScriptImporter {
    events: Tracepoints,
}

impl Default for PerfScriptImporter {
    fn default() -> PerfScriptImporter {
        PerfScriptImporter {
            events: Tracepoints::new(
                "record with perf record -e raw_syscalls:* CMD, perf script -F comm,pid,tid,cpu,time,event,trace \
                 --show-lost-events > FILE, and give that FILE",
            ),
        }
    }
}

impl Importer for PerfScriptImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        let calls = &mut self.events.calls;
        let text = calls.text(line);
        let text = text.trim();
        let Some((name, (head, event))) = sample(text) else {
            match text {
                "" => {}
                _ if text.starts_with('#') => {}
                _ if is_frame(text) => calls.other("frame of a stack"),
                _ => calls.skip(SkipReason::Unreadable),
            }
            return Ok(());
        };
        if let Some(events) = lost(event) {
            calls.lost(events);
            return Ok(());
        }
        let (group, rest) = event.split_once(':').unwrap_or((event, ""));
        match group {
            // Beside tracepoints of system calls there are other events: group:name: …
            "syscalls" | "raw_syscalls" => self.events.event(&Head { comm: comm(name), ..head }, rest)?,
            _ => calls.other(event.split([' ', '(']).next().unwrap_or("").trim_end_matches(':')),
        }
        self.events.calls.take(out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        self.events.finish("perf script", out)
    }
}

/// The name of a thread, what follows it, and the event. All but the time may be missing (-F).
fn sample(text: &str) -> Option<(&str, (Head<'_>, &str))> {
    after_comm(text, b' ', |rest| head(rest, true)).or_else(|| Some(("", head(text, false)?)))
}

/// `7 [001] 12.345678: `, `6/7 12.345678901: `.
fn head(text: &str, numbered: bool) -> Option<(Head<'_>, &str)> {
    let mut head = Head { tid: UNTOLD, ..Head::default() };
    let (mut word, mut rest) = text.split_once(' ')?;
    if !word.ends_with(':') {
        let (pid, tid) = word.split_once('/').map_or((None, word), |(pid, tid)| (Some(pid), tid));
        (head.tid, head.pid) = (tid.parse().ok()?, pid.map(str::parse).transpose().ok()?);
        (word, rest) = rest.trim_start().split_once(' ')?;
        let is_cpu = word.starts_with('[') && word.ends_with(']');
        if is_cpu {
            (word, rest) = rest.trim_start().split_once(' ')?;
        }
    } else if numbered {
        return None;
    }
    let word = word.strip_suffix(':').filter(|word| word.bytes().all(|b| b.is_ascii_digit() || b == b'.'))?;
    head.time = Some(nanoseconds(word.as_bytes()).ok().filter(|_| word.contains('.'))?);
    Some((head, rest.trim_start()))
}

/// `PERF_RECORD_LOST lost 42` (--show-lost-events), `PERF_RECORD_LOST_SAMPLES lost 42`.
fn lost(event: &str) -> Option<u64> {
    let rest = event.strip_prefix("PERF_RECORD_LOST")?;
    rest.split_once("lost ")?.1.split_whitespace().next()?.parse().ok()
}

/// `7f00 __GI___libc_write+0x10 (/usr/lib64/libc.so.6)`.
fn is_frame(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or("");
    first.len() > 1 && first.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_with_and_without_their_fields() {
        let event = "syscalls:sys_enter_sync: ";
        for (front, name, pid, tid) in
            [("dd     7 [001]", "dd", None, 7), ("a b 3     6/7", "a b 3", Some(6), 7), ("7", "", None, 7)]
        {
            let line = format!("{front} 12.345678:  {event}");
            let (found, (head, rest)) = sample(&line).expect("a sample");
            assert_eq!((found, head.pid, head.tid, rest), (name, pid, tid, event), "{line}");
            assert_eq!(head.time, Some(12_345_678_000));
        }
        let (_, (head, event)) = sample("12.345678901: x:y: z").expect("a sample");
        assert_eq!((head.tid, head.time, event), (UNTOLD, Some(12_345_678_901), "x:y: z"));
        for text in
            ["", "dd 7", "dd 7 [001] 12:", "dd seven [001] 12.5: x:y:", "7f00 write+0x10 (/lib/libc.so)"]
        {
            assert!(sample(text).is_none(), "{text}");
        }
        assert_eq!(lost("PERF_RECORD_LOST lost 42"), Some(42));
    }
}
