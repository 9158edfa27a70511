//! Calls from the output of `perf trace`.
//!
//! The law: **no line ends the import**, because the output is read by people, mixed with the program's own
//! and cut off at any place. Arguments that are 0 are not printed, so their names say which is which; names
//! of descriptors are what /proc said when perf came to print the call.

use cawl_core::Record;

use super::calls::{Calls, Gaps, UNTOLD, is_child, text};
use super::syscalls::{self, Value};
use super::tracepoints::after_comm;
use super::{ImportError, ImportSummary, Importer, SkipReason, nanoseconds};

/// Reads calls, one a line: `12.345 ( 0.005 ms): dd/7 write(fd: 1</tmp/a>, buf: 0x55d0, count: 4096) = 4096`;
/// with or without times of a day (-T), threads, names of descriptors, prefixes of flags and durations.
pub struct PerfTraceImporter {
    calls: Calls,
    /// Time of the first line with one, in ns.
    base: Option<u64>,
    understood: u64,
    /// The table at the end (-s, -S) has begun.
    in_summary: bool,
    /// Threads whose first lines came before the line of the clone that made them, and these lines with their
    /// numbers: perf prints a call with its end.
    orphans: Vec<u32>,
    held: Vec<(u32, u64, String)>,
}

/// Lines that wait for a clone, at most.
const MAX_HELD: usize = 10_000;

impl Default for PerfTraceImporter {
    fn default() -> PerfTraceImporter {
        let gaps = Gaps { pointers: true, durations: false, late_names: true };
        PerfTraceImporter {
            calls: Calls::new(gaps),
            base: None,
            understood: 0,
            in_summary: false,
            orphans: Vec::new(),
            held: Vec::new(),
        }
    }
}

/// What stands in front of a call. Times in ns.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head<'a> {
    start: Option<u64>,
    duration: Option<u64>,
    comm: &'a str,
    tid: Option<u32>,
}

impl PerfTraceImporter {
    fn text(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() || self.in_summary {
            return;
        }
        if let Some(events) = lost(text) {
            return self.calls.lost(events);
        }
        if text.starts_with("Summary of events") {
            self.in_summary = true;
            return;
        }
        let Some((head, rest)) = head(text) else {
            return match text.ends_with(')') && line.starts_with([' ', '\t']) {
                true => self.calls.other("frame of a stack"),
                false => self.calls.skip(SkipReason::Unreadable),
            };
        };
        let resumed = rest.strip_prefix("... [continued]: ");
        let Some((name, list)) = resumed.unwrap_or(rest).split_once('(').filter(|(name, _)| is_name(name))
        else {
            // Other events (--event, -F) stand among the calls.
            let end = rest.find(['(', ' ']).unwrap_or(rest.len());
            return match rest[..end].contains(':') {
                true => self.calls.other(rest[..end].trim_end_matches(':')),
                false => self.calls.skip(SkipReason::Unreadable),
            };
        };
        let tid = head.tid.unwrap_or(UNTOLD);
        let result = list.rsplit_once("= ").map(|(_, result)| result.trim());
        // A new thread or process begins with the end of the call that made it: nothing or 0 in perf's lines.
        let is_new = resumed.is_some() && is_child(name) && self.calls.under_way(tid).is_none();
        let is_new = is_new && result.is_none_or(|result| result == "0");
        if is_new && !self.calls.knows(tid) && !self.calls.expects_child() && self.held.len() < MAX_HELD {
            self.orphans.push(tid);
        }
        if self.orphans.contains(&tid) {
            self.held.push((tid, self.calls.line, line.to_owned()));
            if self.held.len() >= MAX_HELD {
                self.release(None);
            }
            return;
        }
        if let Some(start) = head.start {
            self.calls.now = start.saturating_sub(*self.base.get_or_insert(start));
            self.understood += 1;
        } else if resumed.is_none() {
            return self.calls.skip(SkipReason::Timeless);
        }
        if is_new {
            self.calls.meet(tid);
            self.calls.other(name);
        } else {
            self.calls.meet_in(tid, None);
            self.call(tid, name, list, &head, resumed.is_some());
        }
        if is_child(name) && !is_new {
            let made = match result {
                Some(result) => result.split(' ').next().and_then(|tid| tid.parse().ok()),
                None => self.orphans.first().copied(),
            };
            if made.is_some_and(|made| self.orphans.contains(&made)) {
                self.release(made);
            }
        }
        if !head.comm.is_empty() {
            self.calls.name(tid, head.comm);
        }
    }

    /// Reads the lines of a thread, for the clone that made it has been told of; None: nothing is waited for.
    fn release(&mut self, made: Option<u32>) {
        let is_free = |tid: u32| made.is_none_or(|made| made == tid);
        self.orphans.retain(|tid| !is_free(*tid));
        let held = std::mem::take(&mut self.held);
        let (free, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|(tid, ..)| is_free(*tid));
        self.held = held;
        let line = self.calls.line;
        for (tid, number, text) in free {
            if made.is_none() {
                self.calls.meet_in(tid, None);
            }
            self.calls.line = number;
            self.text(&text);
        }
        self.calls.line = line;
    }

    fn call(&mut self, tid: u32, name: &str, list: &str, head: &Head<'_>, resumed: bool) {
        if resumed {
            // `)) = 4`, `) = 4`: the first parenthesis is of the name.
            let Some((_, result)) = list.split_once("= ") else {
                return self.calls.skip(SkipReason::Unreadable);
            };
            if self.calls.under_way(tid).is_none() && head.start.is_none() {
                // What began before the recording.
                return self.calls.other(name);
            }
            self.calls.resume(tid, name, &with_duration(result, head.duration));
            return;
        }
        let list = without_buffer(name, list);
        let mut list = list.trim_end().to_owned();
        // Flags, which fcntl returns, are no figures that count: `= CLOEXEC`.
        if let Some((call, result)) = list.rsplit_once("= ")
            && result.starts_with(|c: char| c.is_ascii_uppercase())
        {
            list = format!("{call}= 0");
        }
        let (open, whole) = match list.strip_suffix("...") {
            Some(open) => (true, format!("{}) = ?", open.trim_end().trim_end_matches(')'))),
            None => (false, list.clone()),
        };
        let Some(call) = text::call(&whole) else { return self.calls.skip(SkipReason::Unreadable) };
        let arguments = syscalls::canonical(name, &values(name, &call.args));
        if matches!(name, "exit" | "exit_group") {
            let code = call.args.first().and_then(|arg| arg.rsplit(' ').next()?.parse().ok());
            return self.calls.exit(tid, name == "exit_group", code.unwrap_or(0));
        }
        if open {
            self.calls.begin(tid, name, &arguments);
        } else {
            let result = list.rsplit_once("= ").map_or("?", |(_, result)| result);
            self.calls.complete(tid, name, &(arguments + &with_duration(result, head.duration)));
        }
    }
}

impl Importer for PerfTraceImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        let text = self.calls.text(line);
        self.text(&text);
        self.calls.take(out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.understood == 0 {
            return Err(self.calls.none_is(
                "a call with a time in front; record with perf trace --sort-events -o FILE CMD, and give that FILE",
            ));
        }
        self.release(None);
        Ok(self.calls.finish("perf trace", out))
    }
}

/// `12.345 ( 0.005 ms): dd/7 `; the time may be `?`, the duration too or missing, and the thread may be
/// missing.
fn head(text: &str) -> Option<(Head<'_>, &str)> {
    let (time, rest) = text.split_once(' ')?;
    let start = match time {
        "?" => None,
        time => Some(milliseconds(time)?),
    };
    let mut rest = rest.trim_start();
    let mut duration = None;
    if let Some((span, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once("):")) {
        duration = span.trim().strip_suffix(" ms").and_then(milliseconds);
        rest = after.trim_start();
    }
    let mut head = Head { start, duration, ..Head::default() };
    let thread = |text: &str| text.split_once(' ')?.0.parse::<u32>().ok();
    if let Some((comm, tid)) = after_comm(rest, b'/', thread) {
        (head.comm, head.tid) = (comm, Some(tid));
        rest = rest[comm.len() + 1..].split_once(' ')?.1.trim_start();
    } else if let Some(tid) = thread(rest) {
        head.tid = Some(tid);
        rest = rest.split_once(' ')?.1.trim_start();
    }
    Some((head, rest))
}

/// Decimal milliseconds as ns; None for anything else.
fn milliseconds(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.contains('.') || text.contains(['e', 'E']) {
        return None;
    }
    nanoseconds(format!("{text}e-3").as_bytes()).ok()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// `LOST 42 events!`
fn lost(text: &str) -> Option<u64> {
    text.strip_prefix("LOST ")?.split_once(" events!")?.0.parse().ok()
}

/// Result and duration as strace has them.
fn with_duration(result: &str, duration: Option<u64>) -> String {
    match duration {
        Some(ns) => format!(") = {result} <{}.{:09}>", ns / 1_000_000_000, ns % 1_000_000_000),
        None => format!(") = {result}"),
    }
}

/// The arguments without the text of a buffer, which has no escapes (perf 6.12 and later): it ends where the
/// next argument begins for the last time, since only numbers follow.
fn without_buffer(name: &str, list: &str) -> String {
    let cut = || {
        let mut names = syscalls::arguments_of(name)?.skip_while(|name| *name != "buf");
        let (begin, next) = (list.find("buf: \"")?, format!("\", {}: ", names.nth(1)?));
        let end = list.rfind(&next).or_else(|| list.rfind("\")"))?;
        Some([list.get(..begin + 5)?, "0", list.get(end + 1..)?].concat())
    };
    cut().unwrap_or_else(|| list.to_owned())
}

/// The arguments in the order of the kernel's; what is not printed is 0.
fn values<'a>(name: &str, given: &[&'a str]) -> Vec<Option<Value<'a>>> {
    let Some(names) = syscalls::arguments_of(name) else { return Vec::new() };
    let names: Vec<&str> = names.collect();
    let mut values = vec![None; names.len()];
    for (at, text) in given.iter().enumerate() {
        let named = text.split_once(": ").and_then(|(argument, value)| {
            Some((names.iter().position(|name| *name == argument.trim())?, value.trim()))
        });
        // Without names (trace.show_arg_names = no) the place counts.
        let (at, value) = named.unwrap_or((at, text.trim()));
        let Some(slot) = values.get_mut(at) else { continue };
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse::<i64>().ok().map(|number| number as u64).or_else(|| value.parse().ok()),
        };
        *slot = match number {
            Some(number) => Some(Value::Number(number)),
            // Names from probe:vfs_getname have no quotes.
            None => Some(Value::Text(value)).filter(|_| !value.is_empty()),
        };
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_in_all_forms() {
        let of = |text| {
            let (head, rest) = head(text).unwrap_or_else(|| panic!("{text}"));
            (head.start, head.duration, head.comm, head.tid, rest)
        };
        let start = Some(12_345_000);
        assert_eq!(of("12.345 ( 0.005 ms): dd/7 x()"), (start, Some(5_000), "dd", Some(7), "x()"));
        assert_eq!(of("12.345 (         ): a/1 b/7 x()"), (start, None, "a/1 b", Some(7), "x()"));
        assert_eq!(of("12.345 (1000.5 ms): 7 x()"), (start, Some(1_000_500_000), "", Some(7), "x()"));
        assert_eq!(of("12.345 x()"), (start, None, "", None, "x()"));
        assert_eq!(
            of("? (     ?   ): dd/7  ... [continued]: x()"),
            (None, None, "dd", Some(7), "... [continued]: x()")
        );
        for text in ["", "x() = 0", "12 (0.1 ms): x()", "dd/7 x()", "-1.5 x()"] {
            assert!(head(text).is_none(), "{text}");
        }
        assert_eq!(lost("LOST 23 events!"), Some(23));
    }

    #[test]
    fn what_a_program_wrote_is_no_structure() {
        let list = r#"fd: 1, buf: "a", count: 9) = 9 (", count: 12) = 12"#;
        assert_eq!(without_buffer("write", list), "fd: 1, buf: 0, count: 12) = 12");
        assert_eq!(without_buffer("write", r#"fd: 1, buf: "") = 0"#), "fd: 1, buf: 0) = 0");
        assert_eq!(without_buffer("write", "fd: 1, count: 2) = 2"), "fd: 1, count: 2) = 2");
    }
}
