//! Columns of tables that other programs made, as a person says what they mean: `start=ts:ms,op=kind`.

use std::str::FromStr;

use cawl_wire::Op;

use super::super::names;
use super::super::shown;
use super::{ALL, COLUMNS, DURATION, END, Layout, OFFSET, OP, Row, SIZE, START, Unit};

/// What may be named; a column's number is its place in this list.
const FIELDS: [&str; ALL] =
    ["start", "op", "offset", "size", "duration", "pid", "tid", "path", "flags", "kind", "program", "end"];

/// Which columns of a table mean what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The column's name or number, and its unit, by field.
    named: Box<[Option<Named>; ALL]>,
}

/// A column, and the unit of its numbers where one was given.
type Named = (Name, Option<Unit>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// As in the header.
    Text(String),
    /// From 0, of a table without header.
    Number(usize),
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Columns, String> {
        let mut columns = Columns::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (field, name) = part
                .split_once('=')
                .ok_or_else(|| format!("\"{part}\" is not FIELD=COLUMN, such as start=ts or size=len:K"))?;
            let at = FIELDS.iter().position(|known| *known == field.trim()).ok_or_else(|| {
                format!("field \"{}\" is not known; use {}", field.trim(), FIELDS.join(", "))
            })?;
            let (name, unit) = match name.rsplit_once(':').map(|(name, unit)| (name, parsed(at, unit))) {
                Some((name, Some(unit))) => (name, Some(unit)),
                _ => (name, None),
            };
            let number = name.strip_prefix('#').and_then(|number| number.parse::<usize>().ok());
            let name = match number {
                Some(0) => return Err("columns are numbered from #1".to_owned()),
                Some(number) => Name::Number(number - 1),
                None => Name::Text(name.trim().to_owned()),
            };
            if columns.named[at].replace((name, unit)).is_some() {
                return Err(format!("field {} is there twice", FIELDS[at]));
            }
        }
        if columns.named[START].is_none() || columns.named[OP].is_none() {
            return Err("start and op must be named, as in start=ts:ms,op=kind".to_owned());
        }
        let numbers =
            columns.named.iter().flatten().filter(|(name, _)| matches!(name, Name::Number(_))).count();
        if numbers != 0 && numbers != columns.named.iter().flatten().count() {
            return Err(
                "a table has a header or not: give all columns as names, or all as numbers (#1)".to_owned()
            );
        }
        Ok(columns)
    }
}

/// A unit by name, if such a field has it.
fn parsed(field: usize, unit: &str) -> Option<Unit> {
    match field {
        START | DURATION | END => Some(Unit::Time(match unit {
            "s" => 9,
            "ms" => 6,
            "us" | "µs" => 3,
            "ns" => 0,
            _ => return None,
        })),
        OFFSET | SIZE => Some(Unit::Bytes(match unit {
            "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "sectors" => 512,
            _ => return None,
        })),
        _ => None,
    }
}

impl Columns {
    /// The table has no header.
    pub(super) fn by_number(&self) -> bool {
        matches!(self.named[START], Some((Name::Number(_), _)))
    }

    /// Which field of a row holds what; `row` is the first of the table.
    pub(super) fn layout(&self, row: &Row<'_>) -> Result<Layout, (usize, String)> {
        let mut layout = Layout { fields: row.len(), foreign: true, ..Layout::default() };
        for (column, named) in self.named.iter().enumerate() {
            let Some((name, unit)) = named else { continue };
            let place = match name {
                Name::Number(number) => Some(*number).filter(|number| *number < row.len()),
                Name::Text(name) => (0..row.len()).find(|at| row.field(*at).trim_ascii() == name.as_bytes()),
            };
            if place.is_none() {
                let all: Vec<String> = (0..row.len()).map(|at| shown(row.field(at).trim_ascii())).collect();
                let units = match spelled(name).contains(':') {
                    true => "; units are s, ms, us, ns, or B, K, M, sectors",
                    false => "",
                };
                let name = spelled(name);
                return Err((
                    0,
                    format!("there is no column {name}; the table has {}{units}", all.join(", ")),
                ));
            }
            layout.place[column] = place;
            layout.unit[column] = unit.unwrap_or(layout.unit[column]);
        }
        Ok(layout)
    }

    /// A message about a column, with the name that the table has for it.
    pub(super) fn renamed(&self, column: usize, fault: String) -> String {
        let known = COLUMNS.get(column).copied().unwrap_or("end");
        let rest = fault.strip_prefix(known).filter(|rest| !rest.starts_with(char::is_alphabetic));
        match (&self.named[column], rest) {
            (Some((name, _)), Some(rest)) => format!("{}{rest}", spelled(name)),
            (None, Some(rest)) => {
                format!("{}{rest} and name it with --columns {}=…", FIELDS[column], FIELDS[column])
            }
            _ => fault,
        }
    }
}

fn spelled(name: &Name) -> String {
    match name {
        Name::Text(text) => text.clone(),
        Name::Number(number) => format!("#{}", number + 1),
    }
}

/// What stands between the fields of a line: comma, semicolon or tab, whichever there are most of.
pub(super) fn separator(line: &[u8]) -> u8 {
    let count = |separator: &u8| line.iter().filter(|byte| *byte == separator).count();
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

/// An operation as any program may name it.
pub(super) fn operation(name: &[u8]) -> Option<Op> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    match name.as_str() {
        "r" | "rd" => Some(Op::Read),
        "w" | "wr" => Some(Op::Write),
        name => names::operation(name),
    }
}
