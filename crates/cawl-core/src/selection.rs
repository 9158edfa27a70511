//! Which calls of a trace a report is about; the models take all of them.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use cawl_wire::{Event, FileId};
use serde::{Deserialize, Serialize};

use crate::glob::Glob;
use crate::model::Map;
use crate::record::Record;
use crate::units::Nanos;

/// What calls must be to be selected; all are, by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The path of their file fits.
    pub file: Option<Glob>,
    /// They are of this process or program.
    pub process: Option<ProcessName>,
    /// They begin no earlier than this after the first call.
    #[serde(rename = "from_ns")]
    pub from: Option<Nanos>,
    /// They begin before this after the first call.
    #[serde(rename = "to_ns")]
    pub to: Option<Nanos>,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.file.as_ref().map(|file| format!("of files {file}")),
            self.process.as_ref().map(|process| format!("of process {process}")),
            self.from.map(|from| format!("from {from} on")),
            self.to.map(|to| format!("before {to}")),
        ];
        write!(f, "calls {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// A process id, or the name of a program, with or without its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProcessName {
    /// A process id.
    Pid(u32),
    /// A program.
    Program(String),
}

impl FromStr for ProcessName {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<ProcessName, Infallible> {
        Ok(name.parse().map_or_else(|_| ProcessName::Program(name.to_owned()), ProcessName::Pid))
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessName::Pid(pid) => pid.fmt(f),
            ProcessName::Program(name) => f.write_str(name),
        }
    }
}

impl ProcessName {
    fn is(&self, pid: u32, program: &str) -> bool {
        match self {
            ProcessName::Pid(wanted) => *wanted == pid,
            ProcessName::Program(name) => name == program || program.rsplit('/').next() == Some(name),
        }
    }
}

/// Selects calls, with what it was told of files and processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    wanted: Selection,
    /// Files whose path fits, and processes that were asked for.
    files: Map<FileId, bool>,
    processes: Map<u32, bool>,
    first: Option<u64>,
}

impl Selector {
    pub(crate) fn new(wanted: Selection) -> Selector {
        Selector { wanted, ..Selector::default() }
    }

    /// Takes the next record; false if it is a call that was not asked for.
    pub(crate) fn take(&mut self, record: &Record) -> bool {
        match record {
            Record::Event(event) => return self.is_wanted(event),
            Record::File(file) => {
                if let Some(glob) = &self.wanted.file {
                    // A file that was renamed keeps the calls of its former name.
                    let fits = glob.fits(&file.path);
                    *self.files.entry(file.file()).or_default() |= fits;
                }
            }
            Record::Session(session) => {
                if let Some(process) = &self.wanted.process {
                    self.processes.insert(session.pid, process.is(session.pid, &session.program));
                }
            }
            _ => {}
        }
        true
    }

    fn is_wanted(&mut self, event: &Event) -> bool {
        let since = event.start.saturating_sub(*self.first.get_or_insert(event.start)) as f64;
        let Selection { file, process, from, to } = &self.wanted;
        from.is_none_or(|from| since >= from.get())
            && to.is_none_or(|to| since < to.get())
            && (file.is_none() || self.files.get(&event.file()).copied().unwrap_or_default())
            && process.as_ref().is_none_or(|process| {
                // A trace that was imported tells no programs.
                self.processes.get(&event.pid).copied().unwrap_or_else(|| process.is(event.pid, ""))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FileFacts, Session};
    use cawl_wire::Op;

    fn call(pid: u32, ino: u64, start: u64) -> Record {
        let mut event = Event::new(Op::Write);
        (event.pid, event.ino, event.start) = (pid, ino, start);
        Record::Event(event)
    }

    /// The calls that are selected, by number.
    fn selected(wanted: Selection) -> Vec<usize> {
        let mut selector = Selector::new(wanted);
        let file =
            |ino, path: &str| Record::File(FileFacts { ino, path: path.to_owned(), ..FileFacts::default() });
        for record in [
            Record::Session(Session { pid: 1, program: "/bin/dd".to_owned(), ..Session::default() }),
            Record::Session(Session { pid: 2, program: "tar".to_owned(), ..Session::default() }),
            file(7, "/data/a.wal"),
            file(8, "/data/b.db"),
        ] {
            assert!(selector.take(&record));
        }
        let calls = [call(1, 7, 1_000), call(1, 8, 2_000), call(2, 8, 3_000), call(3, 9, 4_000)];
        (0..calls.len()).filter(|at| selector.take(&calls[*at])).collect()
    }

    #[test]
    fn calls_are_selected_by_file_process_and_time() {
        assert_eq!(selected(Selection::default()), [0, 1, 2, 3]);
        let file = |glob: &str| Selection { file: Some(Glob::from(glob)), ..Selection::default() };
        assert_eq!(selected(file("*.wal")), [0]);
        assert_eq!(selected(file("*")), [0, 1, 2]);
        let process = |name: &str| Selection { process: name.parse().ok(), ..Selection::default() };
        assert_eq!(selected(process("dd")), [0, 1]);
        assert_eq!(selected(process("/bin/dd")), [0, 1]);
        assert_eq!(selected(process("2")), [2]);
        assert_eq!(selected(process("3")), [3]);
        let span = |from: f64, to: f64| Selection {
            from: Some(Nanos::new(from)),
            to: Some(Nanos::new(to)),
            ..Selection::default()
        };
        assert_eq!(selected(span(1_000.0, 3_000.0)), [1, 2]);
        assert_eq!(selected(span(0.0, 0.0)), [0; 0]);
    }
}
