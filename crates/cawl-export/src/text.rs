//! Tables as text: csv by RFC 4180, and JSON, one object a line.

use std::io::{self, Write};

use cawl_core::Report;

use super::{Call, Columns, Exporter, Output, Value};

/// A table with a header. A cell without a value is empty.
pub struct Csv {
    columns: Columns,
    out: Output,
}

impl Csv {
    pub fn new(columns: Columns, mut out: Output) -> io::Result<Csv> {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        writeln!(out, "{}", names.join(","))?;
        Ok(Csv { columns, out })
    }
}

impl Exporter for Csv {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        for (at, (_, value)) in self.columns.row(call).enumerate() {
            if at > 0 {
                self.out.write_all(b",")?;
            }
            match value {
                Value::Null => {}
                Value::Int(value) => number(&mut self.out, value)?,
                Value::Bool(value) => write!(self.out, "{value}")?,
                Value::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                    write!(self.out, "\"{}\"", text.replace('"', "\"\""))?;
                }
                Value::Text(text) => self.out.write_all(text.as_bytes())?,
            }
        }
        self.out.write_all(b"\n")
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        self.out.flush()
    }
}

/// An object for each call, with all columns.
pub struct Json {
    pub columns: Columns,
    pub out: Output,
}

impl Exporter for Json {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        for (at, (column, value)) in self.columns.row(call).enumerate() {
            self.out.write_all(if at == 0 { b"{\"" } else { b",\"" })?;
            // No name of a column needs an escape.
            self.out.write_all(column.name.as_bytes())?;
            self.out.write_all(b"\":")?;
            match value {
                Value::Null => self.out.write_all(b"null")?,
                Value::Int(value) => number(&mut self.out, value)?,
                Value::Bool(value) => write!(self.out, "{value}")?,
                Value::Text(text) => serde_json::to_writer(&mut self.out, text)?,
            }
        }
        self.out.write_all(b"}\n")
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        self.out.flush()
    }
}

/// True of such a table that begins so.
pub fn is_json(head: &str) -> bool {
    let begins = ["{\"call\":", "\"start_ns\":", "\"duration_ns\":", "\"op\":\""];
    let cells = head.split(',').zip(begins);
    cells.filter(|(cell, begin)| cell.starts_with(begin)).count() == begins.len()
}

/// Most cells are a zero.
fn number(out: &mut Output, value: i64) -> io::Result<()> {
    if value == 0 { out.write_all(b"0") } else { write!(out, "{value}") }
}
