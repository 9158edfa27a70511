//! Formats in which a line is a row, and of which several files may be read as one.

use cawl_core::Record;
use cawl_core::quantity::counted;

use super::rows::{Kind, Rows};
use super::{ImportError, ImportSummary, Importer, bare, nanoseconds, shown, whole_number};

/// The field within the line, from 1 (0: the line as a whole), and what is wrong with it.
pub(crate) type Fault = (usize, String);

/// A whole number in a field of a line; the fault says what the field is.
pub(crate) fn number(field: usize, what: &str, text: &str, most: u64) -> Result<u64, Fault> {
    let within = if most < u64::MAX { format!(" from 0 to {most}") } else { String::new() };
    let fault = || (field, format!("{what} is \"{}\", not a whole number{within}", shown(text)));
    whole_number(text).filter(|value| *value <= most).ok_or_else(fault)
}

/// A time in seconds in a field of a line, in ns; the fault says what the field is.
pub(crate) fn seconds(field: usize, what: &str, text: &str) -> Result<u64, Fault> {
    nanoseconds(text.as_bytes()).map_err(|why| (field, format!("{what} is \"{}\", {why}", shown(text))))
}

/// What a line is, in a format.
pub(crate) trait Format {
    /// What the format has that others have not.
    const KIND: Kind;
    /// What is told if there is no call at all.
    const EMPTY: &'static str;

    /// There is one more input, of this name, which is empty if it is not known. An error says why it is none
    /// of this format.
    fn begin(&mut self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    /// The lines that follow are those of this input, from 0.
    fn select(&mut self, _input: usize) {}

    /// Takes a line without its ending, which is not blank. An error leaves everything as it was.
    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault>;

    /// There are no more lines: tells what is missing.
    fn finish(&mut self, rows: &mut Rows);

    /// When the line's call was, in ns, near enough to join several inputs.
    fn time(&self, _line: &str) -> Option<u64> {
        None
    }
}

/// Reads a format of which each line is a row.
pub struct ByLine<F> {
    format: F,
    rows: Rows,
    /// Lines read of each input.
    lines: Vec<u64>,
    /// The input whose lines come.
    input: usize,
}

/// Reads this format.
pub(crate) fn by_line<F: Format>(format: F) -> ByLine<F> {
    ByLine { format, rows: Rows::new(F::KIND), lines: Vec::new(), input: 0 }
}

impl<F: Format + Default> Default for ByLine<F> {
    fn default() -> ByLine<F> {
        by_line(F::default())
    }
}

impl<F: Format> Importer for ByLine<F> {
    fn begin(&mut self, name: &str) -> Result<(), String> {
        self.lines.push(0);
        self.format.begin(name)
    }

    fn select(&mut self, input: usize) {
        self.input = input;
        self.rows.select(input);
        self.format.select(input);
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        if self.lines.is_empty() {
            let begun = self.begin("");
            begun.map_err(|fault| ImportError { line: 0, field: 0, fault })?;
        }
        let lines = &mut self.lines[self.input];
        *lines += 1;
        let text = String::from_utf8_lossy(bare(line, *lines == 1));
        let text = text.trim_end();
        if text.trim_start().is_empty() {
            return Ok(());
        }
        let line = *lines;
        let taken = self.format.line(text, line, &mut self.rows, out);
        taken.map_err(|(field, fault)| ImportError { line, field, fault })
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        let lines = self.lines.iter().sum();
        if self.rows.calls() == 0 {
            let fault = format!("there is no call in {}; {}", counted(lines, "line"), F::EMPTY);
            return Err(ImportError {
                line: self.lines.get(self.input).copied().unwrap_or(0),
                field: 0,
                fault,
            });
        }
        self.format.finish(&mut self.rows);
        Ok(self.rows.finish(lines, out))
    }

    fn time(&self, line: &[u8]) -> Option<u64> {
        self.format.time(std::str::from_utf8(line).ok()?.trim())
    }
}
