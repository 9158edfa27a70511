//! One line of strace output, taken apart.
//!
//! The law: **structure is found by reading from the left, never by searching.** What a program wrote
//! stands in quotes in the middle of the line and may look like anything, `) = 5 <0.1>` included.

use cawl_core::host_text::unescape;

use super::names::{errno, integer};
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
pub(super) const MOST_RELATIVE: u64 = 100_000_000_000_000_000;

/// When a line of strace output was written; None if it does not say.
pub fn line_time(line: &[u8]) -> Option<LineTime> {
    let (Prefix { tid, time, of_day, .. }, _) = prefix(std::str::from_utf8(line).ok()?);
    Some(match (tid, time?) {
        (Some(_), _) => LineTime::OfThread,
        (None, ns) if !of_day && ns < MOST_RELATIVE => LineTime::Relative,
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
        /// The call's name.
        name: &'a str,
        /// What stands behind the opening parenthesis, without `<unfinished ...>`.
        rest: &'a str,
        /// The call goes on in a later line.
        open: bool,
    },
    /// The rest of a call begun on an earlier line.
    Resumed {
        /// The call's name.
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

/// A complete call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// The arguments, trimmed.
    pub args: Vec<&'a str>,
    /// The result.
    pub result: Outcome<'a>,
    /// Duration in ns, if the line has one.
    pub duration: Option<u64>,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// A number, and the text behind it: `</path>`, `(flags O_RDONLY)`.
    Value(i64, &'a str),
    /// -1, and the errno, 0 if its name is not known.
    Failed(u16),
    /// `?`: no result.
    None,
}

impl Call<'_> {
    /// The argument, or an empty text.
    pub fn arg(&self, at: usize) -> &str {
        self.args.get(at).copied().unwrap_or("")
    }
}

/// Takes apart what stands behind `name(`: arguments, result and duration. None if it is cut off.
pub(super) fn call(text: &str) -> Option<Call<'_>> {
    let bytes = text.as_bytes();
    let mut args = Vec::with_capacity(8);
    let (mut at, mut from, mut depth) = (0, 0, 0u32);
    let close = loop {
        match *bytes.get(at)? {
            b'"' => at = past_string(bytes, at)?,
            b'/' if bytes.get(at + 1) == Some(&b'*') => at += text.get(at + 2..)?.find("*/")? + 4,
            b'<' if at > 0 && annotates(bytes, at) => at = past_annotation(bytes, at)?,
            b'(' | b'[' | b'{' => (depth, at) = (depth + 1, at + 1),
            b')' if depth == 0 => break at,
            b')' | b']' | b'}' => (depth, at) = (depth.saturating_sub(1), at + 1),
            b',' if depth == 0 => {
                args.push(text.get(from..at)?.trim());
                (at, from) = (at + 1, at + 1);
            }
            _ => at += 1,
        }
    };
    let last = text.get(from..close)?.trim();
    if !(last.is_empty() && args.is_empty()) {
        args.push(last);
    }
    let (result, duration) = result(text.get(close + 1..)?.trim_start().strip_prefix('=')?.trim_start())?;
    Some(Call { args, result, duration })
}

/// True if the `<` at `at` opens what -y adds to a descriptor: `3<`, `AT_FDCWD<`.
fn annotates(bytes: &[u8], at: usize) -> bool {
    (bytes[at - 1].is_ascii_digit() || bytes[..at].ends_with(b"AT_FDCWD")) && bytes.get(at + 1) != Some(&b'<')
}

/// Where the annotation that opens at `at` is over; strace escapes `<` and `>` inside paths.
fn past_annotation(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0u32;
    for (i, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'<' => depth += 1,
            // `<TCP:[1.2.3.4:5->6.7.8.9:10]>` has an arrow in it.
            b'>' if bytes[i - 1] == b'-' => {}
            b'>' if depth == 1 => return Some(i + 1),
            b'>' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where the string that opens at `at` is over.
fn past_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// `4</path> <0.1>`, `-1 ENOSPC (No space left on device) <0.1>`, `? ERESTARTSYS (…)`, `0x8401 (flags …)`.
fn result(text: &str) -> Option<(Outcome<'_>, Option<u64>)> {
    let text = text.trim_end();
    let (text, duration) = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((before, span)) if span.contains('.') => match nanoseconds(span.as_bytes()) {
            Ok(ns) => (before.trim_end(), Some(ns)),
            Err(_) => (text, None),
        },
        _ => (text, None),
    };
    if text.starts_with('?') {
        return Some((Outcome::None, duration));
    }
    let end = text.find(['<', ' ']).unwrap_or(text.len());
    let (digits, rest) = (&text[..end], text[end..].trim_start());
    let value = integer(digits)?;
    if value == -1 && (rest.starts_with('E') || rest.starts_with("(errno")) {
        return Some((Outcome::Failed(errno(rest)), duration));
    }
    Some((Outcome::Value(value, rest), duration))
}

/// A descriptor argument: its number and what -y says of it.
pub(super) fn descriptor(text: &str) -> Option<(i32, Option<&str>)> {
    let digits = text.split('<').next()?;
    Some((digits.trim().parse().ok()?, annotation(text)))
}

/// What stands between `<` and `>` behind a descriptor, `(deleted)` dropped.
pub(super) fn annotation(text: &str) -> Option<&str> {
    let open = text.find('<')?;
    let close = past_annotation(text.as_bytes(), open)?;
    let inner = text.get(open + 1..close - 1)?;
    Some(inner.strip_suffix(" (deleted)").unwrap_or(inner))
}

/// A quoted string with its escapes undone. None if there is none, or if strace cut it short.
pub(super) fn string(text: &str) -> Option<String> {
    let end = past_string(text.as_bytes(), text.starts_with('"').then_some(0)?)?;
    if text[end..].starts_with("...") {
        return None;
    }
    Some(unescape(text.get(1..end - 1)?).into_owned())
}

/// The strings of a list like `["sh", "-c", "echo 1"...]`; what strace cut short ends in `…`.
pub(super) fn strings(list: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = list;
    while let Some(open) = rest.find('"') {
        let Some(end) = past_string(rest.as_bytes(), open) else { break };
        let mut text = unescape(&rest[open + 1..end - 1]).into_owned();
        rest = &rest[end..];
        if rest.starts_with("...") {
            text.push('…');
        }
        out.push(text);
    }
    out
}

/// True if -y says that the descriptor's file has no name any more.
pub(super) fn is_deleted(text: &str) -> bool {
    text.ends_with("(deleted)") || text.ends_with("(deleted)>")
}

/// The number behind `key=`, as in `{st_mode=S_IFREG|0644, st_size=240, ...}`.
pub(super) fn member(text: &str, key: &str) -> Option<u64> {
    let value = text.get(text.find(key)? + key.len()..)?.strip_prefix('=')?;
    integer(&value[..value.find([',', '}', ']', ' ']).unwrap_or(value.len())]).map(|value| value as u64)
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

    #[test]
    fn written_text_is_not_structure() {
        let text = r#"3</tmp/a>, "x\", 1) = 5 <0.1> {[(", 12) = 12 <0.000047>"#;
        let call = call(text).unwrap();
        assert_eq!(call.args, ["3</tmp/a>", r#""x\", 1) = 5 <0.1> {[(""#, "12"]);
        assert_eq!((call.result, call.duration), (Outcome::Value(12, ""), Some(47_000)));
    }

    #[test]
    fn structures_are_one_argument() {
        let writev = call(r#"1, [{iov_base="a,b", iov_len=3}, {iov_base="]", iov_len=1}], 2) = 4"#).unwrap();
        assert_eq!(writev.args.len(), 3);
        assert_eq!((writev.result, writev.duration), (Outcome::Value(4, ""), None));
        let exec = call(r#""/bin/sh", ["sh"], 0x7ff /* 35 ) vars */) = 0 <0.5>"#).unwrap();
        assert_eq!(exec.args.len(), 3);
        let socket = call("3<TCP:[127.0.0.1:5->127.0.0.1:6]>, \"\", 0) = 0").unwrap();
        assert_eq!(socket.args.len(), 3);
        assert_eq!(call(") = 0").unwrap().args.len(), 0);
    }

    #[test]
    fn results() {
        let of = |text| result(text).map(|(outcome, _)| outcome);
        assert_eq!(of("-1 ENOSPC (No space left on device) <0.1>"), Some(Outcome::Failed(28)));
        assert_eq!(of("-1 (errno 524)"), Some(Outcome::Failed(524)));
        assert_eq!(of("? ERESTARTSYS (To be restarted if SA_RESTART is set)"), Some(Outcome::None));
        assert_eq!(of("? <unavailable>"), Some(Outcome::None));
        assert_eq!(of("3</tmp/a b> <0.000001>"), Some(Outcome::Value(3, "</tmp/a b>")));
        assert_eq!(
            of("0x8401 (flags O_WRONLY|O_APPEND)"),
            Some(Outcome::Value(0x8401, "(flags O_WRONLY|O_APPEND)"))
        );
        assert_eq!(of("18446744073709551615"), Some(Outcome::Value(-1, "")));
        assert_eq!(of("nonsense"), None);
    }

    #[test]
    fn cut_off_lines_are_not_calls() {
        for text in ["", "1, \"abc", "1, \"abc\\", "3</tmp/a", "1)", "1) =", "1, [2) = 0, ", "1 /* x"] {
            assert_eq!(call(text), None, "{text}");
        }
    }

    #[test]
    fn descriptors_and_strings() {
        assert_eq!(descriptor("3</tmp/a>(deleted)"), Some((3, Some("/tmp/a"))));
        assert_eq!(descriptor("1</dev/null<char 1:3>>"), Some((1, Some("/dev/null<char 1:3>"))));
        assert_eq!(descriptor("-1"), Some((-1, None)));
        assert_eq!(descriptor("AT_FDCWD</tmp>"), None);
        assert_eq!(annotation("AT_FDCWD</tmp>"), Some("/tmp"));
        assert_eq!(string(r#""a\n\"\303\244\x41\\""#), Some("a\n\"äA\\".to_owned()));
        assert_eq!(string(r#""abc"..."#), None);
        assert_eq!(string("0x7ffe"), None);
    }
}
