//! Which calls of a trace a report is about; the models take all of them.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use cawl_wire::{Event, FileId, Op};
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::glob::Glob;
use crate::images::Images;
use crate::model::Map;
use crate::record::Record;
use crate::units::{Nanos, Time};

/// What calls must be to be selected; all are, by default. Of several files, processes, operations or causes
/// one is enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The path of their file, or the last part of it, fits.
    #[serde(rename = "file", default, with = "some")]
    pub files: Vec<Glob>,
    /// They are of this process or program.
    #[serde(rename = "process", default, with = "some")]
    pub processes: Vec<ProcessName>,
    /// They are of this operation.
    #[serde(rename = "op", default, with = "some", skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<OpName>,
    /// The largest part of their time is of this cause.
    #[serde(rename = "cause", default, with = "some", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// They begin no earlier than this after the first call.
    #[serde(rename = "from_ns")]
    pub from: Option<Nanos>,
    /// They begin before this after the first call.
    #[serde(rename = "to_ns")]
    pub to: Option<Nanos>,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { files, processes, ops, causes, from, to } = self;
        let causes: Vec<&str> = causes.iter().map(|cause| cause.name()).collect();
        let parts = [
            one_of("of files", files),
            one_of("of process", processes),
            one_of("of operation", ops),
            one_of("mostly of cause", &causes),
            from.map(|from| format!("from {from} on")),
            to.map(|to| format!("before {to}")),
        ];
        write!(f, "calls {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// `of files *.db or *.wal`.
fn one_of<T: fmt::Display>(what: &str, all: &[T]) -> Option<String> {
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    (!all.is_empty()).then(|| format!("{what} {}", all.join(" or ")))
}

/// Nothing, one, or a list, as JSON has it.
mod some {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Some<T> {
        Many(Vec<T>),
        One(T),
    }

    pub fn serialize<T: Serialize, S: Serializer>(all: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        match all {
            [] => serializer.serialize_none(),
            [one] => one.serialize(serializer),
            many => serializer.collect_seq(many),
        }
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        Ok(match Option::<Some<T>>::deserialize(from)? {
            None => Vec::new(),
            Option::Some(Some::One(one)) => vec![one],
            Option::Some(Some::Many(many)) => many,
        })
    }
}

/// The name of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OpName(Op);

/// A name that is no operation's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no operation `{0}`; the operations are {list}", list = ops())]
pub struct UnknownOp(String);

fn ops() -> String {
    // The others are no calls of a program.
    let names = Op::ALL.iter().filter(|op| !matches!(op, Op::Resident | Op::Uncertain)).map(|op| op.name());
    names.fold(String::new(), |list, name| if list.is_empty() { name.to_owned() } else { list + ", " + name })
}

impl FromStr for OpName {
    type Err = UnknownOp;

    fn from_str(name: &str) -> Result<OpName, UnknownOp> {
        let found = Op::ALL.iter().find(|op| op.name() == name);
        found.map(|op| OpName(*op)).ok_or_else(|| UnknownOp(name.to_owned()))
    }
}

impl TryFrom<String> for OpName {
    type Error = UnknownOp;

    fn try_from(name: String) -> Result<OpName, UnknownOp> {
        name.parse()
    }
}

impl From<OpName> for String {
    fn from(OpName(op): OpName) -> String {
        op.name().to_owned()
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// A process id, or a pattern of the name of a program, with or without its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProcessName {
    /// A process id.
    Pid(u32),
    /// A program.
    Program(Glob),
}

impl FromStr for ProcessName {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<ProcessName, Infallible> {
        Ok(name.parse().map_or_else(|_| ProcessName::Program(name.into()), ProcessName::Pid))
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessName::Pid(pid) => pid.fmt(f),
            ProcessName::Program(name) => name.fmt(f),
        }
    }
}

impl ProcessName {
    fn is(&self, pid: u32, program: &str) -> bool {
        match self {
            ProcessName::Pid(wanted) => *wanted == pid,
            ProcessName::Program(glob) => fits(glob, program),
        }
    }
}

/// What stands for the path in calls on names of which no file is told: folders, symbolic links, looks.
pub(crate) const NAMES: &str = "(names)";

/// True if the whole path fits, or its last part.
fn fits(glob: &Glob, path: &str) -> bool {
    glob.fits(path) || path.rsplit('/').next().is_some_and(|name| glob.fits(name))
}

/// Selects calls, with what it was told of files and processes.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    wanted: Selection,
    /// Files whose path fits, and process images that were asked for.
    files: Map<FileId, bool>,
    processes: Images<bool>,
    first: Option<u64>,
}

impl Selector {
    /// Of these calls.
    pub fn new(wanted: Selection) -> Selector {
        Selector { wanted, ..Selector::default() }
    }

    /// Takes the next record; false if it is a call that was not asked for, whatever its cause.
    pub fn take(&mut self, record: &Record) -> bool {
        let Selection { files, processes, .. } = &self.wanted;
        match record {
            Record::Event(event) => return self.is_wanted(event),
            Record::File(file) if !files.is_empty() => {
                // A file that was renamed keeps the calls of its former name.
                let fits = files.iter().any(|glob| fits(glob, &file.path));
                *self.files.entry(file.file()).or_default() |= fits;
            }
            Record::Session(session) if !processes.is_empty() => {
                let is = processes.iter().any(|process| process.is(session.pid, &session.program));
                self.processes.begin(session, is);
            }
            _ => {}
        }
        true
    }

    /// True if calls are asked for of whose time this cause is the largest part; None: they have no cost.
    pub(crate) fn wants(&self, main: Option<Cause>) -> bool {
        let causes = &self.wanted.causes;
        causes.is_empty() || main.is_some_and(|main| causes.contains(&main))
    }

    fn is_of_file(&self, event: &Event) -> bool {
        match event.ino {
            0 => self.wanted.files.iter().any(|glob| glob.fits(NAMES)),
            _ => self.files.get(&event.file()).copied().unwrap_or_default(),
        }
    }

    fn is_wanted(&mut self, event: &Event) -> bool {
        let since = event.start.saturating_sub(*self.first.get_or_insert(event.start)) as f64;
        let Selection { files, processes, ops, from, to, .. } = &self.wanted;
        from.is_none_or(|from| since >= from.get())
            && to.is_none_or(|to| since < to.get())
            && (ops.is_empty() || ops.iter().any(|op| op.0.name() == event.op.name()))
            && (files.is_empty() || self.is_of_file(event))
            // A trace that was imported tells no programs.
            && (processes.is_empty()
                || self.processes.at(event.pid, Time(event.start)).copied().unwrap_or_else(|| {
                    processes.iter().any(|process| process.is(event.pid, ""))
                }))
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
        let calls =
            [call(1, 7, 1_000), call(1, 8, 2_000), call(2, 8, 3_000), call(3, 9, 4_000), call(3, 0, 5_000)];
        (0..calls.len()).filter(|at| selector.take(&calls[*at])).collect()
    }

    #[test]
    fn calls_are_selected_by_file_process_and_time() {
        assert_eq!(selected(Selection::default()), [0, 1, 2, 3, 4]);
        let files = |globs: &[&str]| Selection {
            files: globs.iter().map(|it| Glob::from(*it)).collect(),
            ..Selection::default()
        };
        assert_eq!(selected(files(&["*.wal"])), [0]);
        assert_eq!(selected(files(&["*"])), [0, 1, 2, 4]);
        assert_eq!(selected(files(&["(names)"])), [4]);
        // The last part of a path is enough, if it is all of it.
        assert_eq!(selected(files(&["b.db"])), [1, 2]);
        assert_eq!(selected(files(&["a.w?l", "/data/b*"])), [0, 1, 2]);
        assert_eq!(selected(files(&["data", ".db"])), [0; 0]);
        let process =
            |name: &str| Selection { processes: name.parse().into_iter().collect(), ..Selection::default() };
        assert_eq!(selected(process("d?")), [0, 1]);
        assert_eq!(selected(process("/bin/*")), [0, 1]);
        assert_eq!(selected(process("dd")), [0, 1]);
        assert_eq!(selected(process("/bin/dd")), [0, 1]);
        assert_eq!(selected(process("2")), [2]);
        assert_eq!(selected(process("3")), [3, 4]);
        let span = |from: f64, to: f64| Selection {
            from: Some(Nanos::new(from)),
            to: Some(Nanos::new(to)),
            ..Selection::default()
        };
        assert_eq!(selected(span(1_000.0, 3_000.0)), [1, 2]);
        assert_eq!(selected(span(0.0, 0.0)), [0; 0]);
        let op =
            |name: &str| Selection { ops: vec![name.parse().expect("an operation")], ..Selection::default() };
        assert_eq!((selected(op("write")), selected(op("fsync"))), (vec![0, 1, 2, 3, 4], vec![]));
        let why = "writ".parse::<OpName>().expect_err("no operation").to_string();
        assert!(why.contains("no operation `writ`") && why.contains("fdatasync"), "{why}");
    }

    /// What comes after is told first, where connections are served side by side.
    #[test]
    fn a_call_before_an_exec_is_of_the_program_before() {
        let process = |name: &str| {
            let wanted = Selection { processes: name.parse().into_iter().collect(), ..Selection::default() };
            let mut selector = Selector::new(wanted);
            for (program, started) in [("sh", 0), ("gzip", 2_500)] {
                let session = Session {
                    pid: 1,
                    program: program.to_owned(),
                    started: Time(started),
                    ..Session::default()
                };
                selector.take(&Record::Session(session));
            }
            [2_000, 3_000].map(|start| selector.take(&call(1, 7, start)))
        };
        assert_eq!((process("sh"), process("gzip"), process("1")), ([true, false], [false, true], [true; 2]));
    }

    #[test]
    fn a_selection_is_told_and_read_again() {
        let of = |files: &[&str], ops: &[&str]| Selection {
            files: files.iter().map(|file| Glob::from(*file)).collect(),
            ops: ops.iter().filter_map(|op| op.parse().ok()).collect(),
            causes: ops.iter().map(|_| Cause::DeviceFlush).collect(),
            ..Selection::default()
        };
        for (selection, json) in [
            (of(&[], &[]), r#"{"file":null,"process":null,"from_ns":null,"to_ns":null}"#),
            (of(&["a"], &[]), r#"{"file":"a","process":null,"from_ns":null,"to_ns":null}"#),
            (
                of(&["a", "b"], &["fsync"]),
                r#"{"file":["a","b"],"process":null,"op":"fsync","cause":"device flush","from_ns":null,"to_ns":null}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&selection).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<Selection>(json).expect("a selection"), selection);
        }
        let told = of(&["a", "b"], &["fsync"]).to_string();
        assert_eq!(told, "calls of files a or b, of operation fsync, mostly of cause device flush");
        assert!(serde_json::from_str::<Selection>(r#"{"op":"jump"}"#).is_err());
    }
}
