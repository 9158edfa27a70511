//! What tests of formats share.

use std::collections::BTreeMap;

use cawl_core::Record;
use cawl_wire::Event;

use crate::{ImportError, ImportSummary, Importer};

/// What an input led to.
pub(crate) struct Imported {
    pub records: Vec<Record>,
    pub summary: ImportSummary,
}

/// All of some inputs, by name and text, one after the other.
pub(crate) fn import_all(
    mut importer: impl Importer,
    inputs: &[(&str, &str)],
) -> Result<Imported, ImportError> {
    let mut records = Vec::new();
    for (name, _) in inputs {
        importer.begin(name).map_err(|fault| ImportError { line: 0, field: 0, fault })?;
    }
    for (at, (_, text)) in inputs.iter().enumerate() {
        importer.select(at);
        for line in text.split_inclusive('\n') {
            importer.line(line.as_bytes(), &mut records)?;
        }
    }
    let summary = importer.finish(&mut records)?;
    Ok(Imported { records, summary })
}

/// All of one input.
pub(crate) fn import(importer: impl Importer, text: &str) -> Imported {
    import_all(importer, &[("", text)]).unwrap()
}

/// Line, field and text of an error.
pub(crate) fn fault(importer: impl Importer, text: &str) -> (u64, usize, String) {
    let error = import_all(importer, &[("", text)]).map(|_| ()).unwrap_err();
    (error.line, error.field, error.fault)
}

/// The error of this text is at this place, and says so.
#[track_caller]
pub(crate) fn is_fault(importer: impl Importer, text: &str, place: (u64, usize), says: &str) {
    let (line, field, told) = fault(importer, text);
    assert!((line, field) == place && told.contains(says), "{line}, {field}: {told}");
}

impl Imported {
    pub fn events(&self) -> Vec<Event> {
        let event = |record: &Record| if let Record::Event(event) = record { Some(*event) } else { None };
        self.records.iter().filter_map(event).collect()
    }

    /// Operation, path, offset and bytes done of each call.
    pub fn calls(&self) -> Vec<String> {
        let mut paths = BTreeMap::new();
        let mut calls = Vec::new();
        for record in &self.records {
            match record {
                Record::File(facts) => drop(paths.insert(facts.ino, facts.path.clone())),
                Record::Event(event) if event.op.moves_bytes() => calls.push(format!(
                    "{} {} {} {}",
                    event.op.name(),
                    paths[&event.ino],
                    event.offset,
                    event.returned
                )),
                Record::Event(event) => calls.push(format!("{} {}", event.op.name(), paths[&event.ino])),
                _ => {}
            }
        }
        calls
    }

    /// Reasons of lines that are no calls, with their number.
    pub fn skipped(&self) -> Vec<String> {
        self.summary.skipped.iter().map(|skipped| format!("{} {}", skipped.lines, skipped.reason)).collect()
    }
}
