//! Calls from tracepoints of the kernel: one line when a call begins, one when it ends, with numbers only.
//!
//! The law: **enter and exit are joined by thread.** A call lasts from one line to the other. Threads of a
//! process share descriptors, as far as the lines or the flags of clone tell who belongs to whom.

use cawl_core::Record;

use super::calls::{Calls, Gaps, is_child};
use super::syscalls::{self, Value};
use super::{ImportError, ImportSummary, SkipReason, shown};

/// What stands in front of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// Name of the thread, if it is known.
    pub comm: Option<&'a str>,
    pub tid: u32,
    /// The process, if the line tells it.
    pub pid: Option<u32>,
    /// Time in ns, on a clock of the kernel; None if it is not in seconds.
    pub time: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event<'a> {
    Enter {
        name: &'a str,
        arguments: Vec<Option<Value<'a>>>,
    },
    Exit {
        name: &'a str,
        result: i64,
    },
    /// Nothing about calls.
    Other(&'a str),
}

/// A field that is not what it should be: its number within the event, from 1, and what is wrong.
type Fault = (usize, String);

/// Joins events to calls.
pub(super) struct Tracepoints {
    pub calls: Calls,
    /// The command that makes the recording, for messages.
    remedy: &'static str,
    base: Option<u64>,
    understood: u64,
}

impl Tracepoints {
    pub fn new(remedy: &'static str) -> Tracepoints {
        let gaps = Gaps { pointers: true, durations: true, late_names: false };
        Tracepoints { calls: Calls::new(gaps), remedy, base: None, understood: 0 }
    }

    /// A line with an event: `sys_enter_write: fd: 0x00000001, …`, `sys_enter: NR 1 (1, …)`,
    /// `sys_write(fd: 1, …)`, `sys_write -> 0x10`.
    pub fn event(&mut self, head: &Head<'_>, text: &str) -> Result<(), ImportError> {
        let event =
            event(text).map_err(|(field, fault)| ImportError { line: self.calls.line, field, fault })?;
        let (Event::Enter { name, .. } | Event::Exit { name, .. }) = event else {
            let Event::Other(name) = event else { return Ok(()) };
            self.calls.other(name);
            return Ok(());
        };
        let Some(time) = head.time else {
            self.calls.skip(SkipReason::Timeless);
            return Ok(());
        };
        self.understood += 1;
        self.calls.now = time.saturating_sub(*self.base.get_or_insert(time));
        let tid = head.tid;
        // A new thread or process begins with the end of the call that made it.
        let is_birth = matches!(event, Event::Exit { result: 0, .. }) && is_child(name);
        if is_birth && self.calls.under_way(tid).is_none() {
            self.calls.meet(tid);
            self.called(head);
            return Ok(());
        }
        self.calls.meet_in(tid, head.pid);
        match event {
            Event::Enter { name, arguments } => {
                self.called(head);
                if matches!(name, "exit" | "exit_group") {
                    let code = arguments.first().copied().flatten();
                    let code = if let Some(Value::Number(code)) = code { code as i32 } else { 0 };
                    self.calls.exit(tid, name == "exit_group", code);
                } else {
                    self.calls.begin(tid, name, &syscalls::canonical(name, &arguments));
                }
            }
            Event::Exit { name, result } => {
                let executing = Some(tid).filter(|_| name.starts_with("exec") && result == 0);
                if let Some(by) = executing.and_then(|tid| self.calls.executing(tid)).filter(|by| *by != tid)
                {
                    self.calls.superseded(tid, by);
                }
                self.calls.resume(tid, name, &returned(result));
                self.called(head);
            }
            Event::Other(_) => {}
        }
        Ok(())
    }

    fn called(&mut self, head: &Head<'_>) {
        if let Some(comm) = head.comm {
            self.calls.name(head.tid, comm);
        }
    }

    pub fn finish(&mut self, tool: &str, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.understood == 0 {
            let what = "the begin or end of a system call with a time in seconds";
            return Err(self.calls.none_is(format_args!("{what}; {}", self.remedy)));
        }
        Ok(self.calls.finish(tool, out))
    }
}

/// What stands behind the arguments of a call that returned this.
pub(super) fn returned(result: i64) -> String {
    match result {
        // ERESTARTSYS and its kin: it is begun anew after a signal.
        -516..=-512 => ") = ?".to_owned(),
        -4095..=-1 => format!(") = -1 (errno {})", -result),
        result => format!(") = {result}"),
    }
}

fn event(text: &str) -> Result<Event<'_>, Fault> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (event, rest) = text.split_at(end);
    let rest = rest.strip_prefix(':').map_or(rest, str::trim_start);
    let number = |text: &str| {
        hexadecimal(text).ok_or_else(|| (1, format!("result \"{}\" is no number", shown(text.as_bytes()))))
    };
    if let ("sys_enter" | "sys_exit", Some(raw)) = (event, rest.strip_prefix("NR ")) {
        return of_number(event == "sys_enter", raw);
    }
    if let Some(name) = event.strip_prefix("sys_enter_") {
        return Ok(Event::Enter { name, arguments: arguments(name, rest)? });
    }
    if let Some(name) = event.strip_prefix("sys_exit_").filter(|name| *name != "group") {
        return Ok(Event::Exit { name, result: number(rest)? as i64 });
    }
    // As the kernel itself prints them.
    let Some(name) = event.strip_prefix("sys_") else { return Ok(Event::Other(event)) };
    if let Some(result) = rest.strip_prefix(" -> ") {
        return Ok(Event::Exit { name, result: number(result)? as i64 });
    }
    match rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(list) => Ok(Event::Enter { name, arguments: arguments(name, list)? }),
        None => Err((0, format!("\"{}\" is cut off: no arguments in parentheses", shown(text.as_bytes())))),
    }
}

/// `1 (1, 55d0, 1000, 0, 0, 0)`, `1 = 4096`.
fn of_number(is_enter: bool, raw: &str) -> Result<Event<'_>, Fault> {
    let end = raw.find(' ').unwrap_or(raw.len());
    let fault = |field: usize, what: &str| (field, format!("\"{}\" is no {what}", shown(raw.as_bytes())));
    let number: i64 =
        raw[..end].parse().map_err(|_| fault(1, "number of a call with its arguments or result"))?;
    let rest = raw[end..].trim();
    // -1: a call that a tracer or a filter turned down.
    let name = u64::try_from(number).ok().and_then(syscalls::name_of).unwrap_or("a call without name here");
    if !is_enter {
        let result = rest.strip_prefix("= ").and_then(|result| result.parse().ok());
        return Ok(Event::Exit { name, result: result.ok_or_else(|| fault(2, "result"))? });
    }
    let list = rest.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let list = list.ok_or_else(|| fault(2, "list of arguments"))?;
    let numbers = list.split(',').enumerate().map(|(at, text)| {
        hexadecimal(text)
            .map(|number| Some(Value::Number(number)))
            .ok_or_else(|| fault(at + 2, "hexadecimal argument"))
    });
    Ok(Event::Enter { name, arguments: numbers.collect::<Result<_, _>>()? })
}

/// `fd: 1, buf: 55d0, count: 1000`; from Linux 6.19 on with texts, in which anything may stand:
/// `filename: 0x7f00 "/tmp/a"`.
fn arguments<'a>(name: &str, list: &'a str) -> Result<Vec<Option<Value<'a>>>, Fault> {
    let mut values = Vec::new();
    let Some(names) = syscalls::arguments_of(name) else { return Ok(values) };
    let names: Vec<&str> = names.collect();
    let mut rest = list.trim();
    for (at, argument) in names.iter().enumerate() {
        if rest.is_empty() && at > 0 {
            break;
        }
        let fault = |what: &str| {
            (at + 1, format!("argument \"{argument}\" of {name}: \"{}\" {what}", shown(rest.as_bytes())))
        };
        let (given, after) = rest.split_once(": ").ok_or_else(|| fault("has no value"))?;
        // With the option verbose of ftrace, types stand in front.
        if given.rsplit([' ', '*']).next() != Some(argument) {
            return Err(fault("is another argument"));
        }
        // A text has no escapes: it ends where the next argument begins for the last time.
        let next = names.get(at + 1).map(|next| format!(", {next}: "));
        let first = next.as_ref().and_then(|next| after.find(next)).or_else(|| after.find(", "));
        let end = match first {
            Some(first) if !after[..first].contains('"') => first,
            _ => next.and_then(|next| after.rfind(&next)).unwrap_or(after.len()),
        };
        let value = after[..end].trim();
        rest = after[end..].trim_start_matches(", ");
        let (number, text) = value.split_at(value.find(' ').unwrap_or(value.len()));
        let text = text.trim();
        values.push(Some(match hexadecimal(number) {
            Some(_) if text.starts_with('"') && text.len() > 1 && text.ends_with('"') => Value::Text(text),
            Some(number) => Value::Number(number),
            None if is_names(value) => Value::Text(value),
            None => return Err(fault("is no hexadecimal number")),
        }));
    }
    Ok(values)
}

fn is_names(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '|');
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(is_of_name)
}

/// A hexadecimal number, with or without 0x.
fn hexadecimal(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 16).ok() }
}

/// The thread and the process in what stands in front of an event, `comm` and both numbers with what is
/// between, as `find` takes the numbers apart. A name has at most 15 bytes and may look like anything,
/// numbers included: the last place where numbers can be read is where they are.
pub(super) fn after_comm<'a, T>(
    text: &'a str,
    separator: u8,
    find: impl Fn(&'a str) -> Option<T>,
) -> Option<(&'a str, T)> {
    let most = text.len().min(MAX_COMM + 1);
    let mut places = (0..most).rev().filter(|&at| text.as_bytes()[at] == separator);
    places.find_map(|at| Some((text[..at].trim_end(), find(&text[at + 1..])?)))
}

/// Bytes of a thread's name, at most (TASK_COMM_LEN).
const MAX_COMM: usize = 15;

/// A name that stands for one that is not known.
pub(super) fn comm(text: &str) -> Option<&str> {
    Some(text).filter(|comm| !comm.is_empty() && *comm != "<...>" && !comm.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(text: &str) -> Vec<Option<Value<'_>>> {
        match event(text) {
            Ok(Event::Enter { arguments, .. }) => arguments,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn one_event_in_the_words_of_each_tool() {
        let (fd, buf, count) =
            (Some(Value::Number(1)), Some(Value::Number(0x55d0)), Some(Value::Number(0x1000)));
        for text in [
            "sys_write(fd: 1, buf: 55d0, count: 1000)",
            "sys_write(unsigned int fd: 1, const char * buf: 55d0, size_t count: 1000)",
            "sys_enter_write:      fd: 0x00000001, buf: 0x000055d0, count: 0x00001000",
            "sys_write(fd: 1, buf: 0x55d0 (68:22:0a) \"h\", count: 0x1\", count: 0x1000)",
        ] {
            assert_eq!(entered(text), [fd, buf, count], "{text}");
        }
        let raw = entered("sys_enter: NR 1 (1, 55d0, 1000, 0, 0, ffffffff)");
        assert_eq!((&raw[..3], raw.len()), (&[fd, buf, count][..], 6));
        let opened = entered(
            "sys_openat(dfd: 0xffffff9c, filename: 0x7f00 \"/tmp/a, b\", flags: O_RDONLY|O_CLOEXEC, mode: 0)",
        );
        assert_eq!(
            opened[1..3],
            [Some(Value::Text("\"/tmp/a, b\"")), Some(Value::Text("O_RDONLY|O_CLOEXEC"))]
        );
        for (text, name, result) in [
            ("sys_write -> 0x1000", "write", 4096),
            ("sys_exit_write:       0xfffffffffffffffe", "write", -2),
            ("sys_exit: NR 74 = -5", syscalls::name_of(74).unwrap_or("a call without name here"), -5),
            ("sys_exit_exit_group: 0x0", "exit_group", 0),
        ] {
            assert_eq!(event(text), Ok(Event::Exit { name, result }), "{text}");
        }
        assert_eq!(event("sched_switch: prev_comm=dd"), Ok(Event::Other("sched_switch")));
        assert_eq!(entered("sys_sync()"), []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        for (text, field, says) in [
            ("sys_write(fd: 1, buf: 55d0, count: many)", 3, "argument \"count\" of write"),
            ("sys_enter_write: fd: 0x1, count: 0x2", 2, "is another argument"),
            ("sys_enter: NR 1 (1, x)", 3, "hexadecimal argument"),
            ("sys_enter: NR one (1)", 1, "number of a call"),
            ("sys_exit: NR 1 = ", 2, "result"),
            ("sys_exit_write: ", 1, "result \"\" is no number"),
            ("sys_write(fd: 1, buf: 55d0", 0, "cut off"),
        ] {
            let (at, fault) = event(text).expect_err(text);
            assert!(at == field && fault.contains(says), "{text}: {at} {fault}");
        }
    }

    #[test]
    fn names_of_threads_may_look_like_anything() {
        let find = |text: &str| text.split(' ').next().and_then(|tid| tid.parse::<u32>().ok());
        assert_eq!(after_comm("a-1 x-2-77 [001]", b'-', find), Some(("a-1 x-2", 77)));
        assert_eq!(after_comm("é-7-8 [001]", b'-', find), Some(("é-7", 8)));
        assert_eq!(after_comm("no number", b'-', find), None);
    }
}
