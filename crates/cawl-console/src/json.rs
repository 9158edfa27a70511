//! JSON for people and programs: members of the outer objects and rows of tables have a line each.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::shown::is_command;

/// Writes the value and a line feed.
pub fn write(mut out: impl Write, value: &impl Serialize) -> io::Result<()> {
    // What a value is made of is compiled once for each type of output: this is one.
    let out: &mut dyn Write = &mut out;
    value.serialize(&mut Serializer::with_formatter(&mut *out, Lines::default()))?;
    out.write_all(b"\n")
}

/// Writes the value without a line feed in it, and one behind it.
pub fn line(mut out: impl Write, value: &impl Serialize) -> io::Result<()> {
    let out: &mut dyn Write = &mut out;
    value.serialize(&mut Serializer::with_formatter(&mut *out, OneLine))?;
    out.write_all(b"\n")
}

/// Everything on one line.
struct OneLine;

impl Formatter for OneLine {
    fn write_f64<W: Write + ?Sized>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        unsigned_zero(out, value)
    }

    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        escaped(out, fragment)
    }
}

/// Writes a number, and no `-0.0`, as the sum of nothing is.
fn unsigned_zero(out: &mut (impl Write + ?Sized), value: f64) -> io::Result<()> {
    CompactFormatter.write_f64(out, value + 0.0)
}

/// Writes a part of a text. What controls a terminal, or the direction of text, is escaped as in text.
fn escaped(out: &mut (impl Write + ?Sized), fragment: &str) -> io::Result<()> {
    fragment.split_inclusive(is_command).try_for_each(|part| {
        let plain = part.trim_end_matches(is_command);
        out.write_all(plain.as_bytes())?;
        // None of them is above U+FFFF.
        part[plain.len()..].chars().try_for_each(|c| write!(out, "\\u{:04x}", u32::from(c)))
    })
}

/// How deep an object is whose members have a line each, and how deep a table's row at most.
const OUTER: usize = 2;
const ROW: usize = 4;

#[derive(Default)]
struct Lines {
    /// The open objects and arrays, the outer first.
    open: Vec<Open>,
}

struct Open {
    array: bool,
    lines: bool,
}

impl Lines {
    fn line(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        out.write_all(b"\n")?;
        self.open.iter().filter(|open| open.lines).try_for_each(|_| out.write_all(b"  "))
    }

    fn close(&mut self, out: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        if self.open.pop().is_some_and(|open| open.lines) {
            self.line(out)?;
        }
        out.write_all(bracket)
    }
}

impl Formatter for Lines {
    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open.push(Open { array: true, lines: false });
        out.write_all(b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b"," })
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        let may_be_a_row = self.open.len() < ROW;
        if may_be_a_row && let Some(table) = self.open.last_mut().filter(|parent| parent.array) {
            table.lines = true;
            self.line(out)?;
        }
        self.open.push(Open { array: false, lines: false });
        out.write_all(b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b"," })?;
        let depth = self.open.len();
        let is_outer = depth <= OUTER && self.open.iter().all(|open| !open.array);
        if let Some(object) = self.open.last_mut().filter(|_| is_outer) {
            object.lines = true;
            return self.line(out);
        }
        out.write_all(if first { b"" } else { b" " })
    }

    fn write_f64<W: Write + ?Sized>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        unsigned_zero(out, value)
    }

    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        escaped(out, fragment)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn no_name_controls_the_terminal() {
        let value = json!({ "a\u{9b}2J": "größe \u{202e}\u{7f}fdp\u{2069}" });
        let mut text = Vec::new();
        super::write(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "{\n  \"a\\u009b2J\": \"größe \\u202e\\u007ffdp\\u2069\"\n}\n");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        let mut text = Vec::new();
        super::line(&mut text, &value).unwrap();
        assert_eq!(text, "{\"a\\u009b2J\":\"größe \\u202e\\u007ffdp\\u2069\"}\n".as_bytes());
    }

    #[test]
    fn a_row_is_a_line() {
        let value = json!({
            "empty": [], "none": {}, "numbers": [1, 2.5, -0.0, null],
            "explain": { "causes": [{ "name": "copy", "calls": 1 }, { "name": "lock", "calls": 2 }] },
            "files": [{ "ops": [{ "op": "write" }], "path": "a \"b\"\n" }],
        });
        let mut text = Vec::new();
        super::write(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        let expected = r#"{
  "empty": [],
  "explain": {
    "causes": [
      {"calls": 1, "name": "copy"},
      {"calls": 2, "name": "lock"}
    ]
  },
  "files": [
    {"ops": [{"op": "write"}], "path": "a \"b\"\n"}
  ],
  "none": {},
  "numbers": [1,2.5,0.0,null]
}
"#;
        assert_eq!(text, expected);
    }
}
