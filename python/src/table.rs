//! A table that other libraries take as it lies in memory.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Schema, SchemaRef};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::Error;

#[pyclass(frozen, module = "cawl")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    pub fn new(schema: Schema, batches: Vec<RecordBatch>) -> Table {
        Table { schema: Arc::new(schema), batches }
    }
}

fn told(error: impl ToString) -> PyErr {
    Error::new_err(error.to_string())
}

#[pymethods]
impl Table {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol allows to ignore it.
        drop(requested_schema);
        // Batches share their columns with the copies.
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema).map_err(told)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// A column of whole numbers as 64-bit floats in native order, NaN where there is no value; of texts the
    /// number of the text.
    fn floats<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let at = self.schema.index_of(name).map_err(|_| PyKeyError::new_err(name.to_owned()))?;
        let mut bytes = Vec::with_capacity(self.__len__() * 8);
        for batch in &self.batches {
            let column = batch.column(at);
            let mut add = |value: Option<f64>| bytes.extend(value.unwrap_or(f64::NAN).to_ne_bytes());
            match column.data_type() {
                DataType::Int64 => {
                    column
                        .as_primitive::<Int64Type>()
                        .iter()
                        .for_each(|value| add(value.map(|value| value as f64)));
                }
                DataType::Dictionary(..) => {
                    let keys = column.as_dictionary::<arrow_array::types::Int32Type>().keys();
                    keys.iter().for_each(|value| add(value.map(f64::from)));
                }
                other => return Err(told(format!("column {name} is {other}, not a number"))),
            }
        }
        Ok(PyBytes::new(py, &bytes))
    }

    /// The texts that the numbers of `floats` stand for.
    fn texts(&self, name: &str) -> PyResult<Vec<String>> {
        let at = self.schema.index_of(name).map_err(|_| PyKeyError::new_err(name.to_owned()))?;
        let Some(batch) = self.batches.first() else { return Ok(Vec::new()) };
        let column =
            batch.column(at).as_any_dictionary_opt().ok_or_else(|| told(format!("{name} is no text")))?;
        let values = column.values().as_string::<i32>();
        Ok(values.iter().map(|value| value.unwrap_or_default().to_owned()).collect())
    }
}
