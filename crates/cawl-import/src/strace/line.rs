//! One line of strace output, taken apart.
//!
//! The law: **structure is found by reading from the left, never by searching.** What a program wrote
//! stands in quotes in the middle of the line and may look like anything.

use crate::nanoseconds;

/// What stands in front of a line's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Thread id, if the line names one.
    pub tid: Option<u32>,
    /// Time in ns: since 1970, or since midnight if `of_day`.
    pub time: Option<u64>,
    /// The time is a time of day (-t, -tt).
    pub of_day: bool,
    /// The time is in whole seconds (-t).
    pub whole_seconds: bool,
}

/// Takes `[pid N]`, a plain leading number and the time off the front of a line.
pub(super) fn prefix(line: &str) -> (Prefix, &str) {
    let mut prefix = Prefix::default();
    let mut rest = line.trim_start();
    if let Some((tid, after)) = rest.strip_prefix("[pid").and_then(|text| text.split_once(']')) {
        // With -Y the command's name follows the number.
        if let Ok(tid) = word(tid.trim()).0.split('<').next().unwrap_or("").parse() {
            prefix.tid = Some(tid);
            rest = after.trim_start();
        }
    } else {
        let (first, after) = word(rest);
        let number = first.split('<').next().unwrap_or("");
        if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && !after.is_empty() {
            // The largest thread id of Linux is 2^22; a larger number is a time in whole seconds.
            match number.parse() {
                Ok(tid @ 0..=0x40_0000) => (prefix.tid, rest) = (Some(tid), after),
                _ => {
                    (prefix.time, rest) = (nanoseconds(number.as_bytes()).ok(), after);
                    prefix.whole_seconds = true;
                }
            }
        }
    }
    let (first, after) = word(rest);
    if let Some((time, of_day)) = clock(first).filter(|_| prefix.time.is_none()) {
        (prefix.time, prefix.of_day) = (Some(time), of_day);
        prefix.whole_seconds = !first.contains('.');
        rest = after;
    }
    // With -r in addition, how much later that is than the line before.
    if prefix.time.is_some()
        && let Some((_, after)) = rest.strip_prefix("(+").and_then(|text| text.split_once(')'))
    {
        rest = after.trim_start();
    }
    // With -i the instruction's address, with -n the call's number.
    while let Some((number, after)) = rest.strip_prefix('[').and_then(|text| text.split_once("] "))
        && number.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b' ' | b'?'))
    {
        rest = after.trim_start();
    }
    (prefix, rest)
}

/// When a line of strace output was written, without regard to what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTime {
    /// In ns since 1970, or since midnight if `of_day`.
    At {
        /// The time.
        ns: u64,
        /// It is a time of day.
        of_day: bool,
    },
    /// Since another line, which is not told (-r).
    Relative,
    /// The line names a thread: it is not of a file that is one thread's.
    OfThread,
}

/// A time in front that is shorter than this, in ns, counts from the line before (-r): since 1970 there were
/// more seconds than a recording has.
pub(super) const MAX_RELATIVE: u64 = 100_000_000_000_000_000;

/// When a line of strace output was written; None if it does not say.
pub fn line_time(line: &[u8]) -> Option<LineTime> {
    let (Prefix { tid, time, of_day, .. }, _) = prefix(std::str::from_utf8(line).ok()?);
    Some(match (tid, time?) {
        (Some(_), _) => LineTime::OfThread,
        (None, ns) if !of_day && ns < MAX_RELATIVE => LineTime::Relative,
        (None, ns) => LineTime::At { ns, of_day },
    })
}

/// `seconds.fraction` or `HH:MM:SS[.fraction]`, in ns.
fn clock(text: &str) -> Option<(u64, bool)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let Some((hours, rest)) = text.split_once(':') else {
        return nanoseconds(text.as_bytes()).ok().filter(|_| text.contains('.')).map(|ns| (ns, false));
    };
    let (minutes, seconds) = rest.split_once(':')?;
    let hours: u64 = hours.parse().ok().filter(|&hours| hours < 24)?;
    let minutes: u64 = minutes.parse().ok().filter(|&minutes| minutes < 60)?;
    let seconds = nanoseconds(seconds.as_bytes()).ok().filter(|&ns| ns < 61_000_000_000)?;
    Some(((hours * 60 + minutes) * 60_000_000_000 + seconds, true))
}

/// The first word and what follows it.
fn word(text: &str) -> (&str, &str) {
    match text.find([' ', '\t']) {
        Some(end) => (&text[..end], text[end..].trim_start()),
        None => (text, ""),
    }
}

/// What a line without its prefix says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// A call from `name(` on; complete, unless `open`.
    Call {
        name: &'a str,
        /// What stands behind the opening parenthesis, without `<unfinished ...>`.
        rest: &'a str,
        /// The call goes on in a later line.
        open: bool,
    },
    /// The rest of a call begun on an earlier line.
    Resumed {
        name: &'a str,
        /// What continues the earlier line.
        rest: &'a str,
    },
    /// `+++ exited with N +++`.
    Exited(i32),
    /// `+++ killed by SIGNAL +++`.
    Killed(&'a str),
    /// `+++ superseded by execve in pid N +++`: that thread continues under this one's id.
    Superseded(u32),
    /// A signal or a stop: nothing to do with calls.
    Signal,
    /// A message of strace's own.
    Chatter,
    /// Something else.
    Unreadable,
}

/// What `text` (a line without prefix) says.
pub(super) fn content(text: &str) -> Content<'_> {
    let text = text.trim_end();
    if let Some(inner) = text.strip_prefix("+++ ").and_then(|text| text.strip_suffix("+++")) {
        return ended(inner.trim());
    }
    if text.starts_with("--- ") && text.ends_with("---") {
        return Content::Signal;
    }
    if text.starts_with("strace: ") || text.starts_with("[ Process PID=") {
        return Content::Chatter;
    }
    if let Some((name, rest)) = text.strip_prefix("<... ").and_then(|text| text.split_once(" resumed>")) {
        // Older versions print ") " or ", " between.
        return Content::Resumed { name, rest };
    }
    let Some((name, rest)) = text.split_once('(') else { return Content::Unreadable };
    let is_name = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'?' || b == b'#');
    if !is_name {
        return Content::Unreadable;
    }
    match rest.strip_suffix("<unfinished ...>").or_else(|| rest.strip_suffix("<detached ...>")) {
        Some(rest) => Content::Call { name, rest: rest.trim_end(), open: true },
        None => Content::Call { name, rest, open: false },
    }
}

fn ended(text: &str) -> Content<'_> {
    if let Some(code) = text.strip_prefix("exited with ") {
        return code.parse().map_or(Content::Unreadable, Content::Exited);
    }
    if let Some(signal) = text.strip_prefix("killed by ") {
        return Content::Killed(word(signal).0);
    }
    if let Some(tid) = text.strip_prefix("superseded by execve in pid ") {
        return tid.parse().map_or(Content::Unreadable, Content::Superseded);
    }
    Content::Unreadable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let of = |line| prefix(line).0;
        let at = Some(1_700_000_000_000_001_000);
        assert_eq!(of("1700000000.000001 brk(NULL) = 0"), Prefix { time: at, ..Prefix::default() });
        assert_eq!(of("8884  1700000000.000001 brk(NULL) = 0").tid, Some(8884));
        assert_eq!(of("[pid  8957] 1700000000.000001 brk(NULL) = 0").tid, Some(8957));
        assert_eq!(of("[pid 12<sh>] 1700000000.000001 brk(NULL) = 0").tid, Some(12));
        let day = of("12 01:00:00.5 brk(NULL) = 0");
        assert_eq!((day.time, day.of_day, day.tid), (Some(3_600_500_000_000), true, Some(12)));
        assert_eq!(prefix("close(1.5, 3) = 0"), (Prefix::default(), "close(1.5, 3) = 0"));
        assert_eq!(prefix("99"), (Prefix::default(), "99"));
        assert_eq!(prefix("1700000000.5 [00007ffff7e0] [  59] brk(NULL) = 0").1, "brk(NULL) = 0");
        assert_eq!(line_time(b"7 1700000000.5 brk(NULL) = 0"), Some(LineTime::OfThread));
        assert_eq!(line_time(b"     0.5 brk(NULL) = 0"), Some(LineTime::Relative));
        assert_eq!(line_time(b"hello, world"), None);
        let (day, call) = prefix("7 01:00:00 (+     0.000123) brk(NULL) = 0");
        assert_eq!((day.time, day.whole_seconds, call), (Some(3_600_000_000_000), true, "brk(NULL) = 0"));
        assert_eq!(of("     0.000012 brk(NULL) = 0").time, Some(12_000));
        assert!(
            of("1700000000 brk(NULL) = 0").whole_seconds && !of("1700000000.0 brk(NULL) = 0").whole_seconds
        );
    }

    #[test]
    fn kinds_of_line() {
        assert_eq!(content("+++ exited with 3 +++"), Content::Exited(3));
        assert_eq!(content("+++ killed by SIGSEGV (core dumped) +++"), Content::Killed("SIGSEGV"));
        assert_eq!(content("+++ superseded by execve in pid 7 +++"), Content::Superseded(7));
        assert_eq!(content("--- SIGCHLD {si_signo=SIGCHLD} ---"), Content::Signal);
        assert_eq!(content("strace: Process 8 attached"), Content::Chatter);
        assert_eq!(content("vfork( <unfinished ...>"), Content::Call { name: "vfork", rest: "", open: true });
        assert_eq!(
            content("<... close resumed>) = 0 <0.1>"),
            Content::Resumed { name: "close", rest: ") = 0 <0.1>" }
        );
        assert_eq!(content("hello (world)"), Content::Unreadable);
        assert_eq!(content(""), Content::Unreadable);
    }
}
