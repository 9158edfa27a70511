//! Columns that grow batch by batch. Texts are dictionaries: all batches share one list of texts.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use crate::table::Table;

/// Rows of a batch.
pub const ROWS: usize = 1 << 17;

/// What no table can hold is as much as it can.
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A growing column; `finish` makes an array of a batch and begins the next.
pub enum Column {
    /// All rows have a value.
    Int(Vec<i64>),
    /// A value that is None is null.
    Optional(Vec<Option<i64>>),
    Bool(Vec<bool>),
    /// Numbers of texts; -1 is null.
    Text(Vec<i32>),
}

impl Column {
    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Int(values) => {
                Arc::new(Int64Array::from(std::mem::replace(values, Vec::with_capacity(ROWS))))
            }
            Column::Optional(values) => {
                let values = std::mem::replace(values, Vec::with_capacity(ROWS));
                Arc::new(values.into_iter().collect::<Int64Array>())
            }
            Column::Bool(values) => {
                Arc::new(BooleanArray::from(std::mem::replace(values, Vec::with_capacity(ROWS))))
            }
            Column::Text(values) => {
                let values = std::mem::replace(values, Vec::with_capacity(ROWS));
                if values.contains(&-1) {
                    Arc::new(values.into_iter().map(|key| (key >= 0).then_some(key)).collect::<Int32Array>())
                } else {
                    Arc::new(Int32Array::from(values))
                }
            }
        }
    }
}

/// Finished batches of columns; those of texts are the numbers so far.
#[derive(Default)]
pub struct Batches(Vec<Vec<ArrayRef>>);

impl Batches {
    pub fn add<'a>(&mut self, columns: impl Iterator<Item = &'a mut Column>) {
        self.0.push(columns.map(Column::finish).collect());
    }

    /// The table: names of columns in order, and the texts of those that are texts.
    pub fn table(self, names: &[(&str, Option<Vec<String>>)]) -> Result<Table, ArrowError> {
        let texts: Vec<Option<ArrayRef>> = names
            .iter()
            .map(|(_, texts)| {
                texts.as_ref().map(|texts| Arc::new(StringArray::from_iter_values(texts)) as ArrayRef)
            })
            .collect();
        let dictionary = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let first = self.0.first();
        let fields = names.iter().enumerate().map(|(at, (name, texts))| {
            let is_bool = first.is_some_and(|columns| columns[at].data_type() == &DataType::Boolean);
            let kind = match texts {
                Some(_) => dictionary(),
                None if is_bool => DataType::Boolean,
                None => DataType::Int64,
            };
            Field::new(*name, kind, true)
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let shared = Arc::new(schema.clone());
        let batches = self.0.into_iter().map(|columns| {
            let columns = columns.into_iter().zip(&texts).map(|(column, texts)| {
                let Some(texts) = texts else { return Ok(column) };
                let keys = Int32Array::from(column.to_data());
                Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(texts))?) as ArrayRef)
            });
            RecordBatch::try_new(Arc::clone(&shared), columns.collect::<Result<Vec<_>, ArrowError>>()?)
        });
        Ok(Table::new(schema, batches.collect::<Result<_, _>>()?))
    }
}
