//! A Parquet file, written by groups of rows.

use std::io::{self, Error, Write};
use std::sync::Arc;

use cawl_core::Report;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use rustc_hash::FxHashMap;

use crate::columns::{Column, Columns, Kind, Value};
use crate::{Call, Exporter};

/// Where a file goes: behind a pointer, since the writer of Parquet is compiled once for each type.
type Out = Box<dyn Write + Send>;

/// A Parquet file that is being written. A group of rows is in memory.
pub struct Parquet {
    columns: Arc<Columns>,
    cells: Vec<Cells>,
    rows: usize,
    group: usize,
    writer: SerializedFileWriter<Out>,
}

/// A column's values in the present group, and for each row whether it has one: its definition level.
struct Cells {
    values: Values,
    levels: Option<Vec<i16>>,
}

enum Values {
    Int(Vec<i64>),
    Bool(Vec<bool>),
    /// Equal texts are one.
    Text(Vec<ByteArray>, FxHashMap<String, ByteArray>),
}

impl Parquet {
    /// Rows of a group: as many as DuckDB reads at a time.
    pub const GROUP: usize = 122_880;

    /// Begins a file with `group` rows in each group; `facts` go to its metadata, as `cawl.NAME`.
    pub fn new(
        columns: Arc<Columns>,
        out: Out,
        facts: Vec<(&str, String)>,
        group: usize,
    ) -> io::Result<Parquet> {
        let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("calls").with_fields(fields).build().map_err(failed)?;
        let facts = facts.into_iter().map(fact);
        let units = KeyValue::new(
            "cawl.units".to_owned(),
            "call: number in the trace or since the daemon started, from 1; columns that end in _ns: nanoseconds; start_ns: of CLOCK_MONOTONIC; offset, size, bytes, dirty: bytes"
                .to_owned(),
        );
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Most columns of numbers are zeros or all different: a dictionary would cost time and save
            // nothing.
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            // What readers skip groups by.
            .set_column_statistics_enabled("start_ns".into(), EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(facts.chain([units]).collect()));
        let texts = columns.iter().filter(|column| column.kind == Kind::Text);
        let properties = texts.fold(properties, |properties, column| {
            properties.set_column_dictionary_enabled(column.name.as_str().into(), true)
        });
        let writer =
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        let cells = columns.iter().map(Cells::new).collect();
        Ok(Parquet { columns, cells, rows: 0, group, writer })
    }

    /// Adds a row.
    pub fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        for (cells, (_, value)) in self.cells.iter_mut().zip(self.columns.row(call)) {
            cells.push(value);
        }
        self.rows += 1;
        if self.rows == self.group { self.group() } else { Ok(()) }
    }

    /// Bytes of the groups that were written.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Ends the file; further `facts` go to its metadata.
    pub fn finish(&mut self, facts: Vec<(&str, String)>) -> io::Result<()> {
        self.group()?;
        facts.into_iter().map(fact).for_each(|fact| self.writer.append_key_value_metadata(fact));
        self.writer.finish().map_err(failed)?;
        self.writer.inner_mut().flush()
    }

    /// Writes the rows that were gathered.
    fn group(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        self.cells.iter_mut().try_for_each(|cells| cells.write(&mut group)).map_err(failed)?;
        group.close().map(drop).map_err(failed)
    }
}

impl Exporter for Parquet {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        Parquet::call(self, call)
    }

    fn finish(&mut self, _report: &Report, notes: &[String]) -> io::Result<()> {
        let notes = (!notes.is_empty()).then(|| ("notes", notes.join("\n")));
        Parquet::finish(self, notes.into_iter().collect())
    }
}

fn fact((name, value): (&str, String)) -> KeyValue {
    KeyValue::new(format!("cawl.{name}"), value)
}

impl Cells {
    fn new(column: &Column) -> Cells {
        let values = match column.kind {
            Kind::Int => Values::Int(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::Text => Values::Text(Vec::new(), FxHashMap::default()),
        };
        Cells { values, levels: column.optional.then(Vec::new) }
    }

    fn push(&mut self, value: Value<'_>) {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(value != Value::Null));
        }
        match (&mut self.values, value) {
            (Values::Int(values), Value::Int(value)) => values.push(value),
            (Values::Bool(values), Value::Bool(value)) => values.push(value),
            (Values::Text(values, known), Value::Text(text)) => {
                let value = known.get(text).cloned().unwrap_or_else(|| {
                    let value = ByteArray::from(text);
                    known.insert(text.to_owned(), value.clone());
                    value
                });
                values.push(value);
            }
            // A column has values of its kind, or none.
            _ => {}
        }
    }

    /// Writes the values as the next column, and forgets them.
    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, Out>) -> Result<(), ParquetError> {
        let levels = self.levels.as_deref();
        match &mut self.values {
            Values::Int(values) => column::<Int64Type>(group, values, levels)?,
            Values::Bool(values) => column::<BoolType>(group, values, levels)?,
            Values::Text(values, known) => {
                column::<ByteArrayType>(group, values, levels)?;
                known.clear();
            }
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        Ok(())
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Out>,
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut next = group.next_column()?.ok_or_else(|| ParquetError::General("no such column".to_owned()))?;
    next.typed::<T>().write_batch(values, levels, None)?;
    values.clear();
    next.close()
}

fn field(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Int => (Physical::INT64, None),
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(field))
}

/// The error of the file, if it is one: a full disk, a closed pipe.
fn failed(error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::other(other),
        },
        other => Error::other(other),
    }
}
