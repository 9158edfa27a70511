//! The columns of a table of calls, which are the same in csv, JSON and Parquet; docs/reference/EXPORT.md
//! explains them.

use cawl_core::{Cause, Nanos, kernel_bytes};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};

use crate::Call;

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers of 64 bits.
    Int,
    /// True or false.
    Bool,
    /// UTF-8.
    Text,
}

/// The value of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Not known, or there is none.
    Null,
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// UTF-8.
    Text(&'a str),
}

/// A column of a table.
pub struct Column {
    /// Its name, which ends with its unit where that is ns.
    pub name: String,
    /// What it has.
    pub kind: Kind,
    /// False if every call has a value.
    pub optional: bool,
    /// A timeline has it, too, where there is a value.
    in_timelines: bool,
    source: Source,
}

/// Where the value of a column comes from.
#[derive(Clone, Copy)]
enum Source {
    Call(Read),
    Predicted(usize),
    Cause(Cause),
}

type Read = for<'a> fn(&'a Columns, &'a Call<'_>) -> Value<'a>;

/// The columns that every table begins with: name, kind, may be null, in timelines too, value.
const FIRST: [(&str, Kind, bool, bool, Read); 21] = [
    ("call", Kind::Int, false, true, |_, call| int(call.number)),
    ("start_ns", Kind::Int, false, false, |_, call| int(call.event.start)),
    ("duration_ns", Kind::Int, false, false, |_, call| int(call.event.duration)),
    ("op", Kind::Text, false, false, |_, call| Value::Text(call.event.op.name())),
    ("pid", Kind::Int, false, false, |_, call| int(call.event.pid.into())),
    ("tid", Kind::Int, false, false, |_, call| int(call.event.tid.into())),
    ("program", Kind::Text, true, false, |_, call| text(call.program)),
    ("path", Kind::Text, true, true, |_, call| text(call.path)),
    ("kind", Kind::Text, true, false, |_, call| text(kind(call.event.kind))),
    ("offset", Kind::Int, true, true, |_, call| {
        optional(Some(call.event.offset).filter(|offset| *offset != UNKNOWN_OFFSET))
    }),
    ("size", Kind::Int, true, true, |_, call| optional(size(call.event))),
    ("bytes", Kind::Int, false, true, |_, call| int(kernel_bytes(call.event))),
    ("errno", Kind::Int, true, true, |_, call| {
        optional(Some(call.event.errno.into()).filter(|errno| *errno != 0))
    }),
    // The bits are the first ones of an event's flags, in this order.
    ("flags", Kind::Text, true, true, |columns, call| {
        text(columns.flags.get(call.event.flags as usize % columns.flags.len()).map(String::as_str))
    }),
    ("estimated", Kind::Bool, false, false, |_, call| Value::Bool(call.event.has(flag::ESTIMATED))),
    ("state", Kind::Text, true, true, |_, call| text(call.prediction().map(|p| p.state.name()))),
    ("predicted_ns", Kind::Int, true, true, |_, call| nanos(call.prediction().map(|p| p.cost))),
    ("low_ns", Kind::Int, true, false, |_, call| {
        nanos(call.prediction().and_then(|p| p.interval).map(|(low, _)| low))
    }),
    ("high_ns", Kind::Int, true, false, |_, call| {
        nanos(call.prediction().and_then(|p| p.interval).map(|(_, high)| high))
    }),
    ("dirty", Kind::Int, true, false, |_, call| optional(call.prediction().map(|p| p.dirty.0))),
    ("cause", Kind::Text, true, false, |_, call| text(call.causes.map(|causes| causes.main().name()))),
];

/// Flags of an open file as a table has them, by bit.
const FLAGS: [(u32, &str); 5] = [
    (flag::APPEND, "O_APPEND"),
    (flag::SYNC, "O_SYNC"),
    (flag::DSYNC, "O_DSYNC"),
    (flag::DIRECT, "O_DIRECT"),
    (flag::TRUNC, "O_TRUNC"),
];

/// How the header of a table begins.
pub fn header() -> String {
    FIRST.map(|(name, ..)| name).join(",")
}

/// All columns, in the order of the table.
pub struct Columns {
    all: Vec<Column>,
    /// Names of each combination of flags.
    flags: Vec<String>,
}

impl Columns {
    /// The columns of a table with predictions of these models.
    pub fn new(models: &[&str]) -> Columns {
        let first = FIRST.map(|(name, kind, optional, in_timelines, read)| {
            let name = name.to_owned();
            Column { name, kind, optional, in_timelines, source: Source::Call(read) }
        });
        let further = |name: String, source| Column {
            name: name.replace(' ', "_") + "_ns",
            kind: Kind::Int,
            optional: true,
            in_timelines: true,
            source,
        };
        let causes = Cause::ALL.map(|cause| further(cause.name().to_owned(), Source::Cause(cause)));
        let models = models.iter().enumerate().skip(1);
        let models =
            models.map(|(at, model)| further(format!("predicted_by_{model}"), Source::Predicted(at)));
        let stack = Column {
            name: "stack".to_owned(),
            kind: Kind::Text,
            optional: true,
            in_timelines: true,
            source: Source::Call(|_, call| text(call.way)),
        };
        let all = first.into_iter().chain(causes).chain(models).chain([stack]).collect();
        let named = |bits: u32| {
            let names = FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
            names.collect::<Vec<_>>().join("|")
        };
        Columns { all, flags: (0..1 << FLAGS.len()).map(named).collect() }
    }

    /// Adds the number of calls that a row stands for.
    pub fn with_weight(mut self) -> Columns {
        self.all.push(Column {
            name: "weight".to_owned(),
            kind: Kind::Int,
            optional: false,
            in_timelines: false,
            source: Source::Call(|_, call| int(call.weight.into())),
        });
        self
    }

    /// The columns, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Column> {
        self.all.iter()
    }

    /// What a timeline has of a call, beside operation, thread and times: the values of some columns, and of
    /// each cause that has a part.
    pub fn arguments<'a>(&'a self, call: &'a Call<'_>) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let shown = |(column, value): &(&Column, Value<'_>)| match (column.source, value) {
            (_, Value::Null) | (Source::Cause(_), Value::Int(0)) => false,
            _ => column.in_timelines,
        };
        self.row(call).filter(shown).map(|(column, value)| (column.name.as_str(), value))
    }

    /// A call's cells, in order.
    pub fn row<'a>(&'a self, call: &'a Call<'_>) -> impl Iterator<Item = (&'a Column, Value<'a>)> {
        self.all.iter().map(|column| (column, self.value(column.source, call)))
    }

    fn value<'a>(&'a self, source: Source, call: &'a Call<'_>) -> Value<'a> {
        match source {
            Source::Call(read) => read(self, call),
            Source::Predicted(model) => {
                nanos(call.predictions.get(model).copied().flatten().map(|told| told.cost))
            }
            Source::Cause(cause) => optional(call.causes.map(|causes| causes[cause])),
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

fn nanos(span: Option<Nanos>) -> Value<'static> {
    optional(span.map(|span| span.get().round() as u64))
}

fn text(value: Option<&str>) -> Value<'_> {
    value.filter(|value| !value.is_empty()).map_or(Value::Null, Value::Text)
}

/// Bytes that the call moved; the file's length after an open; of a range that it is about, the length.
fn size(event: &Event) -> Option<u64> {
    match event.op {
        op if op.moves_bytes() => Some(event.returned.max(0) as u64),
        Op::Open | Op::Allocate | Op::SyncRange | Op::Advise | Op::Lock => Some(event.requested),
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
        let page = include_str!("../../../docs/reference/EXPORT.md");
        let mut rest = &page[page.find("| column | unit |").expect("a table of columns")..];
        for column in Columns::new(&["kernel"]).with_weight().iter() {
            let name = format!("`{}`", column.name);
            let at = rest.find(&name).unwrap_or_else(|| panic!("{name} is not explained, or too early"));
            rest = &rest[at + name.len()..];
        }
    }

    #[test]
    fn a_read_hands_over_no_bytes() {
        let mut event = Event::new(Op::Read);
        (event.kind, event.requested, event.returned) = (FileKind::Regular, 4096, 4096);
        let call = Call {
            number: 1,
            event: &event,
            path: None,
            program: None,
            predictions: &[],
            causes: None,
            own: None,
            stack: &[],
            way: None,
            weight: 1,
        };
        let columns = Columns::new(&[]);
        let value = |name| columns.row(&call).find(|(column, _)| column.name == name).map(|(_, value)| value);
        assert!(matches!([value("size"), value("bytes")], [Some(Value::Int(4096)), Some(Value::Int(0))]));
    }

    #[test]
    fn flags_are_the_first_bits() {
        let all = FLAGS.iter().fold(0, |bits, (bit, _)| bits | bit);
        assert_eq!(all as usize + 1, Columns::new(&[]).flags.len());
    }
}
