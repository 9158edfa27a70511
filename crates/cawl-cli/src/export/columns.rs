//! The columns of a table of calls, which are the same in csv, JSON and Parquet; docs/EXPORT.md explains
//! them.

use cawl_core::{Cause, kernel_bytes};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};

use super::Call;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Bool,
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Not known, or there is none.
    Null,
    Int(i64),
    Bool(bool),
    Text(&'a str),
}

pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// False if every call has a value.
    pub optional: bool,
    field: Field,
}

/// Where the value of a column comes from.
#[derive(Clone, Copy)]
enum Field {
    Number,
    Start,
    Duration,
    Op,
    Pid,
    Tid,
    Program,
    Path,
    Kind,
    Offset,
    Size,
    Bytes,
    Errno,
    Flags,
    Estimated,
    State,
    Predicted(usize),
    Low,
    High,
    Dirty,
    Main,
    Cause(Cause),
}

/// The columns that every table begins with: name, kind, may be null, source.
const FIRST: [(&str, Kind, bool, Field); 21] = [
    ("call", Kind::Int, false, Field::Number),
    ("start_ns", Kind::Int, false, Field::Start),
    ("duration_ns", Kind::Int, false, Field::Duration),
    ("op", Kind::Text, false, Field::Op),
    ("pid", Kind::Int, false, Field::Pid),
    ("tid", Kind::Int, false, Field::Tid),
    ("program", Kind::Text, true, Field::Program),
    ("path", Kind::Text, true, Field::Path),
    ("kind", Kind::Text, true, Field::Kind),
    ("offset", Kind::Int, true, Field::Offset),
    ("size", Kind::Int, true, Field::Size),
    ("bytes", Kind::Int, false, Field::Bytes),
    ("errno", Kind::Int, true, Field::Errno),
    ("flags", Kind::Text, true, Field::Flags),
    ("estimated", Kind::Bool, false, Field::Estimated),
    ("state", Kind::Text, true, Field::State),
    ("predicted_ns", Kind::Int, true, Field::Predicted(0)),
    ("low_ns", Kind::Int, true, Field::Low),
    ("high_ns", Kind::Int, true, Field::High),
    ("dirty", Kind::Int, true, Field::Dirty),
    ("cause", Kind::Text, true, Field::Main),
];

/// Flags of an open file as a table has them, by bit.
const FLAGS: [(u32, &str); 5] = [
    (flag::APPEND, "O_APPEND"),
    (flag::SYNC, "O_SYNC"),
    (flag::DSYNC, "O_DSYNC"),
    (flag::DIRECT, "O_DIRECT"),
    (flag::TRUNC, "O_TRUNC"),
];

pub struct Columns {
    all: Vec<Column>,
    /// Names of each combination of flags.
    flags: Vec<String>,
}

impl Columns {
    pub fn new(models: &[&str]) -> Columns {
        let column = |name: String, kind, optional, field| Column { name, kind, optional, field };
        let further = models.iter().enumerate().skip(1);
        let causes = Cause::ALL.into_iter().map(|cause| (cause, cause.name().replace(' ', "_")));
        let all = FIRST
            .into_iter()
            .map(|(name, kind, optional, field)| column(name.to_owned(), kind, optional, field))
            .chain(causes.map(|(cause, name)| column(name + "_ns", Kind::Int, true, Field::Cause(cause))))
            .chain(further.map(|(at, model)| {
                column(format!("predicted_by_{model}_ns"), Kind::Int, true, Field::Predicted(at))
            }))
            .collect();
        let named = |bits: u32| {
            let names = FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
            names.collect::<Vec<_>>().join("|")
        };
        Columns { all, flags: (0..1 << FLAGS.len()).map(named).collect() }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Column> {
        self.all.iter()
    }

    /// What a timeline has of a call, beside operation, thread and times: the values of some columns, and of
    /// each cause that has a part.
    pub fn arguments<'a>(&'a self, call: &'a Call<'_>) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let shown = |(column, value): &(&Column, Value<'_>)| match column.field {
            Field::Number => true,
            Field::Path | Field::Offset | Field::Bytes | Field::Errno | Field::Flags => *value != Value::Null,
            Field::State | Field::Predicted(_) => *value != Value::Null,
            Field::Cause(_) => !matches!(value, Value::Null | Value::Int(0)),
            _ => false,
        };
        self.row(call).filter(shown).map(|(column, value)| (column.name.as_str(), value))
    }

    pub fn row<'a>(&'a self, call: &'a Call<'_>) -> impl Iterator<Item = (&'a Column, Value<'a>)> {
        self.all.iter().map(|column| (column, self.value(column.field, call)))
    }

    fn value<'a>(&'a self, field: Field, call: &'a Call<'_>) -> Value<'a> {
        let event = call.event;
        let nanos = |of: Option<cawl_core::Nanos>| of.map(|span| span.get().round() as u64);
        let prediction = || call.prediction();
        match field {
            Field::Number => int(call.number),
            Field::Start => int(event.start),
            Field::Duration => int(event.duration),
            Field::Op => Value::Text(event.op.name()),
            Field::Pid => int(event.pid.into()),
            Field::Tid => int(event.tid.into()),
            Field::Program => text(call.program),
            Field::Path => text(call.path),
            Field::Kind => text(kind(event.kind)),
            Field::Offset if event.offset == UNKNOWN_OFFSET => Value::Null,
            Field::Offset => int(event.offset),
            Field::Size => optional(size(event)),
            Field::Bytes => int(kernel_bytes(event)),
            Field::Errno => optional((event.errno != 0).then(|| event.errno.into())),
            // The bits are the first ones of an event's flags, in this order.
            Field::Flags => text(self.flags.get(event.flags as usize % self.flags.len()).map(String::as_str)),
            Field::Estimated => Value::Bool(event.has(flag::ESTIMATED)),
            Field::State => text(prediction().map(|p| p.state.name())),
            Field::Predicted(model) => {
                optional(nanos(call.predictions.get(model).copied().flatten().map(|p| p.cost)))
            }
            Field::Low => optional(nanos(prediction().and_then(|p| p.interval).map(|(low, _)| low))),
            Field::High => optional(nanos(prediction().and_then(|p| p.interval).map(|(_, high)| high))),
            Field::Dirty => optional(prediction().map(|p| p.dirty.0)),
            Field::Main => text(call.causes.map(|causes| causes.main().name())),
            Field::Cause(cause) => optional(call.causes.map(|causes| causes[cause])),
        }
    }
}

/// What no table can hold is as much as it can.
fn int(value: u64) -> Value<'static> {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn optional(value: Option<u64>) -> Value<'static> {
    value.map_or(Value::Null, int)
}

fn text(value: Option<&str>) -> Value<'_> {
    value.filter(|value| !value.is_empty()).map_or(Value::Null, Value::Text)
}

/// Bytes that the call moved; the file's length after an open; of a range that it is about, the length.
fn size(event: &Event) -> Option<u64> {
    match event.op {
        op if op.moves_bytes() => Some(event.returned.max(0) as u64),
        Op::Open | Op::Allocate | Op::SyncRange | Op::Advise => Some(event.requested),
        _ => None,
    }
}

fn kind(kind: FileKind) -> Option<&'static str> {
    Some(match kind {
        FileKind::Unknown => return None,
        FileKind::Regular => "regular",
        FileKind::Directory => "directory",
        FileKind::Block => "block",
        FileKind::Char => "char",
        FileKind::Fifo => "pipe",
        FileKind::Socket => "socket",
        FileKind::Other => "other",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_documented_in_order() {
        let page = include_str!("../../../../docs/EXPORT.md");
        let mut rest = &page[page.find("| column | unit |").expect("a table of columns")..];
        for column in Columns::new(&["kernel"]).iter() {
            let name = format!("`{}`", column.name);
            let at = rest.find(&name).unwrap_or_else(|| panic!("{name} is not explained, or too early"));
            rest = &rest[at + name.len()..];
        }
    }

    #[test]
    fn flags_are_the_first_bits() {
        let all = FLAGS.iter().fold(0, |bits, (bit, _)| bits | bit);
        assert_eq!(all as usize + 1, Columns::new(&[]).flags.len());
    }
}
