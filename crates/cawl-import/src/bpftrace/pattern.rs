//! The pattern of a line: fields in braces, with units in their names, and the text between them.
//!
//! The law: **text between fields matches itself, white space any amount of it.** Numbers and names of calls
//! have no white space; a thread's name and a path may have, and end where the rest of the pattern matches.

use std::str::FromStr;

use crate::{nanoseconds, shown};

/// What a field of a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Times, with the power of ten that makes them seconds.
    Start(i8),
    End(i8),
    Duration(i8),
    Pid,
    Tid,
    Comm,
    Op,
    Path,
    Fd,
    Offset,
    Size,
    Ret,
    Flags,
    /// Something that is of no interest.
    Ignored,
}

impl Field {
    fn of(name: &str) -> Option<Field> {
        const UNITS: [(&str, i8); 4] = [("_ns", -9), ("_us", -6), ("_ms", -3), ("_s", 0)];
        let unit = UNITS.iter().find_map(|(unit, power)| Some((name.strip_suffix(unit)?, *power)));
        Some(match (name, unit) {
            (_, Some(("start", power))) => Field::Start(power),
            (_, Some(("end", power))) => Field::End(power),
            (_, Some(("duration", power))) => Field::Duration(power),
            ("pid", _) => Field::Pid,
            ("tid", _) => Field::Tid,
            ("comm", _) => Field::Comm,
            ("op", _) => Field::Op,
            ("path", _) => Field::Path,
            ("fd", _) => Field::Fd,
            ("offset", _) => Field::Offset,
            ("size", _) => Field::Size,
            ("ret", _) => Field::Ret,
            ("flags", _) => Field::Flags,
            ("_", _) => Field::Ignored,
            _ => return None,
        })
    }

    /// What is wrong with a text as this field's value.
    fn fault(self, text: &str) -> Option<&'static str> {
        match self {
            Field::Start(power) | Field::End(power) | Field::Duration(power) => time(text, power).err(),
            Field::Comm | Field::Path | Field::Ignored => None,
            Field::Op if text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => None,
            Field::Op => Some("no name of a call"),
            Field::Pid | Field::Tid => {
                number(text).and_then(|id| u32::try_from(id).ok()).is_none().then_some("no id")
            }
            _ => number(text).is_none().then_some("no whole number"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Space,
    Field(Field, String),
}

/// The form of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    pieces: Vec<Piece>,
}

/// What the fields of a line say.
pub(super) struct Matched<'a> {
    values: Vec<(Field, &'a str)>,
}

impl FromStr for Pattern {
    type Err = String;

    /// `{start_ns} {op}({fd}) = {ret}`.
    fn from_str(text: &str) -> Result<Pattern, String> {
        let mut pieces = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if rest.starts_with(char::is_whitespace) {
                pieces.push(Piece::Space);
                rest = rest.trim_start();
            } else if let Some(inner) = rest.strip_prefix('{') {
                let Some((name, after)) = inner.split_once('}') else {
                    return Err(format!("\"{{{}\" has no closing brace", shown(inner.as_bytes())));
                };
                let Some(field) = Field::of(name) else {
                    return Err(format!(
                        "field {{{}}} is not known; there are start, end and duration with _ns, _us, _ms or _s, pid, \
                         tid, comm, op, path, fd, offset, size, ret, flags, and _ for what is of no interest",
                        shown(name.as_bytes())
                    ));
                };
                if let Some(Piece::Field(_, before)) = pieces.last() {
                    return Err(format!("nothing separates {{{before}}} from {{{name}}}"));
                }
                let is_twice = |piece: &Piece| matches!(piece, Piece::Field(other, _) if *other == field);
                if field != Field::Ignored && pieces.iter().any(is_twice) {
                    return Err(format!("field {{{name}}} stands twice"));
                }
                pieces.push(Piece::Field(field, name.to_owned()));
                rest = after;
            } else {
                let end = rest.find(|c: char| c == '{' || c.is_whitespace()).unwrap_or(rest.len());
                pieces.push(Piece::Text(rest[..end].to_owned()));
                rest = &rest[end..];
            }
        }
        let pattern = Pattern { pieces };
        let has = |is: fn(&Field) -> bool| pattern.fields().any(|(field, _)| is(&field));
        if !has(|field| *field == Field::Op) {
            return Err("field {op} is missing: which call it is".to_owned());
        }
        if !has(|field| matches!(field, Field::Start(_) | Field::End(_))) {
            return Err(
                "field {start_ns} or {end_ns} is missing (or with _us, _ms, _s): when it was".to_owned()
            );
        }
        Ok(pattern)
    }
}

impl Pattern {
    fn fields(&self) -> impl Iterator<Item = (Field, &str)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Field(field, name) => Some((*field, name.as_str())),
            _ => None,
        })
    }

    /// What the fields of a line say; or the number of the field that is wrong, from 1 (0: the text before
    /// the first), and what is wrong.
    pub(super) fn matched<'a>(&self, line: &'a str) -> Result<Matched<'a>, (usize, String)> {
        let mut values = Vec::with_capacity(self.pieces.len() / 2 + 1);
        matched(&self.pieces, line.trim(), &mut values)?;
        Ok(Matched { values })
    }
}

/// Matches the rest of a line with the rest of a pattern. `values` has what came before.
fn matched<'a>(
    pieces: &[Piece],
    text: &'a str,
    values: &mut Vec<(Field, &'a str)>,
) -> Result<(), (usize, String)> {
    let at = values.len();
    let Some((piece, pieces)) = pieces.split_first() else {
        return if text.is_empty() {
            Ok(())
        } else {
            Err((at, format!("\"{}\" is left over", shown(text.as_bytes()))))
        };
    };
    let (field, name) = match piece {
        Piece::Field(field, name) => (*field, name),
        piece => {
            let after = past(piece, text).ok_or_else(|| {
                let wanted = if let Piece::Text(wanted) = piece { wanted } else { " " };
                (at, format!("\"{}\" stands in place of \"{wanted}\"", shown(text.as_bytes())))
            })?;
            return matched(pieces, after, values);
        }
    };
    let mut fault = None;
    let mut from = 0;
    loop {
        // The value ends where the next piece is found.
        let end = pieces.first().map_or(Some(text.len()), |next| find(next, text, from));
        let Some(end) = end.filter(|end| *end <= text.len()) else {
            let missing =
                (at + 1, format!("what follows {{{name}}} is not in \"{}\"", shown(text.as_bytes())));
            return Err(fault.unwrap_or(missing));
        };
        let value = text[..end].trim();
        if let Some(what) = field.fault(value) {
            return Err((at + 1, format!("{{{name}}}: \"{}\" is {what}", shown(value.as_bytes()))));
        }
        values.push((field, value));
        match matched(pieces, &text[end..], values) {
            Ok(()) => return Ok(()),
            Err(other) => {
                values.truncate(at);
                // Only names and paths have white space and the like in them.
                let goes_on = matches!(field, Field::Comm if end < MAX_COMM) || field == Field::Path;
                if !goes_on || pieces.is_empty() {
                    return Err(fault.unwrap_or(other));
                }
                fault = fault.or(Some(other));
                from = end + text[end..].chars().next().map_or(1, char::len_utf8);
            }
        }
    }
}

/// Bytes of a thread's name, at most.
const MAX_COMM: usize = 16;

/// What follows a piece at the begin of a text.
fn past<'a>(piece: &Piece, text: &'a str) -> Option<&'a str> {
    match piece {
        Piece::Text(wanted) => text.strip_prefix(wanted.as_str()),
        _ => Some(text.trim_start()).filter(|after| after.len() < text.len()),
    }
}

/// Where a piece stands in a text, from a place on.
fn find(piece: &Piece, text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let at = match piece {
        Piece::Text(wanted) => rest.find(wanted.as_str()),
        _ => rest.find(char::is_whitespace),
    };
    at.map(|at| from + at)
}

impl Matched<'_> {
    pub fn text(&self, field: Field) -> Option<&str> {
        self.values.iter().find(|(of, _)| *of == field).map(|(_, text)| *text)
    }

    pub fn number(&self, field: Field) -> Option<i64> {
        self.text(field).and_then(number)
    }

    /// When the call began, in ns.
    pub fn start(&self) -> u64 {
        let start = self.time(|field| if let Field::Start(power) = field { Some(power) } else { None });
        let end = || self.time(|field| if let Field::End(power) = field { Some(power) } else { None });
        start.or_else(|| Some(end()?.saturating_sub(self.duration().unwrap_or(0)))).unwrap_or(0)
    }

    /// How long it took, in ns.
    pub fn duration(&self) -> Option<u64> {
        let time = |of: fn(Field) -> Option<i8>| self.time(of);
        time(|field| if let Field::Duration(power) = field { Some(power) } else { None }).or_else(|| {
            let start = time(|field| if let Field::Start(power) = field { Some(power) } else { None })?;
            let end = time(|field| if let Field::End(power) = field { Some(power) } else { None })?;
            Some(end.saturating_sub(start))
        })
    }

    fn time(&self, of: impl Fn(Field) -> Option<i8>) -> Option<u64> {
        self.values.iter().find_map(|(field, text)| time(text, of(*field)?).ok())
    }
}

/// A time in seconds by this power of ten, as ns.
fn time(text: &str, power: i8) -> Result<u64, &'static str> {
    if text.contains(['e', 'E']) {
        return Err("no time");
    }
    nanoseconds(format!("{text}e{power}").as_bytes()).map_err(|_| "no time, or not from 0 to 584 years")
}

/// A whole number, decimal or 0x hexadecimal; of 64 bits, with a sign or without.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as i64),
        None => text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|number| number as i64)),
    }
}
