//! A call as strace prints it, `name(` behind it, taken apart. Calls of other tools are put in this form.
//!
//! The law: **structure is found by reading from the left, never by searching.** What a program wrote
//! stands in quotes in the middle of the line and may look like anything, `) = 5 <0.1>` included.

use cawl_core::host_text::unescape;

use super::names::{errno, integer};
use crate::nanoseconds;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// The arguments, trimmed.
    pub args: Vec<&'a str>,
    pub result: Outcome<'a>,
    /// Duration in ns, if the line has one.
    pub duration: Option<u64>,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
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
pub(crate) fn call(text: &str) -> Option<Call<'_>> {
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

/// `4</path> <0.1>`, `-1 ENOSPC (No space left …) <0.1>`, `? ERESTARTSYS (…)`, `0x8401 (flags …)`.
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
