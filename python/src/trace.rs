//! Traces as tables. `read` takes what was recorded; `causes` runs the models over it, which takes longer.
//! Columns have the names of docs/reference/EXPORT.md.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;

use arrow_schema::ArrowError;
use cawl_core::{
    Analysis, AnalysisOptions, CallState, Cause, FileFacts, HostProfile, Images, LiveOptions, MODELS, Mode,
    Record, Time, kernel_bytes,
};
use cawl_host::profiles;
use cawl_host::trace::{TraceError, TraceReader};
use cawl_wire::{Event, FileId, FileKind, Op, UNKNOWN_OFFSET, flag};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::columns::{Batches, Column, ROWS, int};
use crate::table::Table;

/// Records of a batch from the reader.
const BATCH: usize = 4096;
/// After so many batches the progress is shown, and Ctrl-C seen.
const SHOWN: usize = 64;

/// Numbers of texts.
#[derive(Default)]
struct Texts {
    numbers: FxHashMap<String, i32>,
    all: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> i32 {
        if text.is_empty() {
            return -1;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as i32;
        self.numbers.insert(text.to_owned(), number);
        self.all.push(text.to_owned());
        number
    }
}

fn failed(path: &Path, error: TraceError) -> PyErr {
    match error {
        TraceError::Io(error) => {
            let error = std::io::Error::new(
                error.kind(),
                format!("cannot read the trace {}: {error}", path.display()),
            );
            error.into()
        }
        other => Error::new_err(format!("cannot read the trace {}: {other}", path.display())),
    }
}

fn arrow(error: ArrowError) -> PyErr {
    Error::new_err(format!("the table cannot be made: {error}"))
}

/// The call of a record; what the tracer tells of a file is none of the program's.
fn call_of(record: &Record) -> Option<&Event> {
    match record {
        Record::Event(event) => Some(event).filter(|event| event.op != Op::Resident),
        _ => None,
    }
}

/// Gives all records to `take`, which another thread reads; what is wrong with the trace, in words.
fn each_record(
    path: &Path,
    progress: Option<&Py<PyAny>>,
    mut take: impl FnMut(&Record) -> PyResult<()> + Send,
) -> PyResult<Option<String>> {
    let mut reader = TraceReader::open(path).map_err(|error| failed(path, error))?;
    thread::scope(|scope| {
        let (sender, batches) = sync_channel::<(Vec<Record>, Option<TraceError>)>(4);
        let (taken, spare) = std::sync::mpsc::channel::<Vec<Record>>();
        let reading = scope.spawn(move || {
            loop {
                let mut batch = spare.try_recv().unwrap_or_default();
                batch.clear();
                let error = reader.read(&mut batch, BATCH).err();
                let last = error.is_some() || batch.len() < BATCH;
                if sender.send((batch, error)).is_err() || last {
                    return reader.damage().describe();
                }
            }
        });
        let mut calls = 0;
        for (at, (batch, error)) in batches.iter().enumerate() {
            for record in &batch {
                calls += u64::from(call_of(record).is_some());
                take(record)?;
            }
            let last = error.is_some() || batch.len() < BATCH;
            let _ = taken.send(batch);
            if let Some(error) = error {
                return Err(failed(path, error));
            }
            if last || at % SHOWN == SHOWN - 1 {
                let calls = std::mem::take(&mut calls);
                Python::attach(|py| {
                    py.check_signals()?;
                    progress.map_or(Ok(()), |progress| progress.call1(py, (calls,)).map(drop))
                })?;
            }
        }
        drop(batches);
        reading
            .join()
            .map_err(|_| Error::new_err("a fault of cawl while it read the trace; please report it"))
    })
}

/// Bytes that the call moved; the file's length after an open; of a range that it is about, the length.
fn size(event: &Event) -> Option<u64> {
    match event.op {
        op if op.moves_bytes() => Some(event.returned.max(0) as u64),
        Op::Open | Op::Allocate | Op::SyncRange | Op::Advise | Op::Lock => Some(event.requested),
        _ => None,
    }
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Unknown => "",
        FileKind::Regular => "regular",
        FileKind::Directory => "directory",
        FileKind::Block => "block",
        FileKind::Char => "char",
        FileKind::Fifo => "pipe",
        FileKind::Socket => "socket",
        FileKind::Other => "other",
    }
}

const FLAGS: [(u32, &str); 5] = [
    (flag::APPEND, "O_APPEND"),
    (flag::SYNC, "O_SYNC"),
    (flag::DSYNC, "O_DSYNC"),
    (flag::DIRECT, "O_DIRECT"),
    (flag::TRUNC, "O_TRUNC"),
];

/// Names of each combination of flags; the first is of none.
fn flag_texts() -> Vec<String> {
    let named = |bits: u32| {
        let names = FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join("|")
    };
    (0..1 << FLAGS.len()).map(named).collect()
}

/// A file, and what calls did with it.
struct FileRow {
    facts: FileFacts,
    path: i32,
    calls: i64,
    bytes: i64,
    duration: i64,
}

#[derive(Default)]
struct Files {
    rows: Vec<FileRow>,
    at: FxHashMap<FileId, usize>,
    /// Most calls are on the file of the one before.
    latest: Option<(FileId, usize)>,
}

impl Files {
    fn told(&mut self, facts: &FileFacts, paths: &mut Texts) {
        let path = paths.number(&facts.path);
        let at = self.row(facts.file(), paths);
        if path >= 0 {
            self.rows[at].path = path;
        }
        self.rows[at].facts = facts.clone();
    }

    fn row(&mut self, file: FileId, paths: &mut Texts) -> usize {
        if let Some((latest, at)) = self.latest
            && latest == file
        {
            return at;
        }
        let Files { rows, at, .. } = self;
        let at = *at.entry(file).or_insert_with(|| {
            let facts = FileFacts { dev: file.dev, ino: file.ino, birth: file.birth, ..FileFacts::default() };
            // As in reports.
            let path = paths.number(&format!("dev {} inode {}", file.dev, file.ino));
            rows.push(FileRow { facts, path, calls: 0, bytes: 0, duration: 0 });
            rows.len() - 1
        });
        self.latest = Some((file, at));
        at
    }
}

fn ints() -> Column {
    Column::Int(Vec::new())
}

fn texts() -> Column {
    Column::Text(Vec::new())
}

fn optional() -> Column {
    Column::Optional(Vec::new())
}

/// The calls of a trace as recorded.
struct Calls {
    /// call, start, duration, pid, tid, bytes.
    ints: [Vec<i64>; 6],
    /// op, program, path, kind, flags.
    texts: [Vec<i32>; 5],
    /// offset, size, errno.
    optional: [Vec<Option<i64>>; 3],
    estimated: Vec<bool>,
    batches: Batches,
    count: i64,
    kinds: Texts,
    paths: Texts,
    programs: Texts,
    program_of: Images<i32>,
    files: Files,
}

impl Calls {
    fn new() -> Calls {
        Calls {
            ints: Default::default(),
            texts: Default::default(),
            optional: Default::default(),
            estimated: Vec::new(),
            batches: Batches::default(),
            count: 0,
            kinds: Texts::default(),
            paths: Texts::default(),
            programs: Texts::default(),
            program_of: Images::default(),
            files: Files::default(),
        }
    }

    fn call(&mut self, event: &Event) {
        self.count += 1;
        let (file, bytes) = (event.file(), int(kernel_bytes(event)));
        let mut path = -1;
        if file != FileId::default() {
            let at = self.files.row(file, &mut self.paths);
            let row = &mut self.files.rows[at];
            path = row.path;
            row.calls += 1;
            row.bytes = row.bytes.saturating_add(bytes);
            row.duration = row.duration.saturating_add(int(event.duration));
        }
        let ints =
            [self.count, int(event.start), int(event.duration), event.pid.into(), event.tid.into(), bytes];
        self.ints.iter_mut().zip(ints).for_each(|(column, value)| column.push(value));
        let op = Op::ALL.iter().position(|op| *op == event.op).map_or(-1, |at| at as i32);
        let flags = (event.flags as usize % (1 << FLAGS.len())) as i32;
        let texts = [
            op,
            self.program_of.at(event.pid, Time(event.start)).copied().unwrap_or(-1),
            path,
            self.kinds.number(kind(event.kind)),
            if flags == 0 { -1 } else { flags },
        ];
        self.texts.iter_mut().zip(texts).for_each(|(column, value)| column.push(value));
        let optional = [
            Some(event.offset).filter(|offset| *offset != UNKNOWN_OFFSET).map(int),
            size(event).map(int),
            Some(i64::from(event.errno)).filter(|errno| *errno != 0),
        ];
        self.optional.iter_mut().zip(optional).for_each(|(column, value)| column.push(value));
        self.estimated.push(event.has(flag::ESTIMATED));
        if self.estimated.len() == ROWS {
            self.batch();
        }
    }

    /// What a batch holds so far becomes arrays, in the order of docs/reference/EXPORT.md.
    fn batch(&mut self) {
        let [call, start, duration, pid, tid, bytes] = std::mem::take(&mut self.ints).map(Column::Int);
        let [op, program, path, kind, flags] = std::mem::take(&mut self.texts).map(Column::Text);
        let [offset, size, errno] = std::mem::take(&mut self.optional).map(Column::Optional);
        let estimated = Column::Bool(std::mem::take(&mut self.estimated));
        let mut all = [
            call, start, duration, op, pid, tid, program, path, kind, offset, size, bytes, errno, flags,
            estimated,
        ];
        self.batches.add(all.iter_mut());
    }
}

/// What `read` gives: calls, samples, files, damage, the machine's profile as TOML.
type Read = (Table, Table, Table, Option<String>, Option<String>);

/// Reads a trace: what was recorded.
#[pyfunction]
#[pyo3(signature = (path, progress = None))]
pub fn read(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<Read> {
    py.detach(|| read_trace(&path, progress.as_ref()))
}

fn read_trace(path: &Path, progress: Option<&Py<PyAny>>) -> PyResult<Read> {
    let mut calls = Calls::new();
    let mut samples: [Column; 7] = std::array::from_fn(|_| ints());
    let (mut page, mut machine) = (4096, None);
    let damage = each_record(path, progress, |record| {
        match record {
            Record::Event(_) => call_of(record).into_iter().for_each(|event| calls.call(event)),
            Record::File(facts) => {
                calls.files.told(facts, &mut calls.paths);
            }
            Record::Session(session) => {
                let program = calls.programs.number(&session.program);
                calls.program_of.begin(session, program);
            }
            Record::Profile(profile) => {
                page = profile.kernel.page.0;
                machine = Some(profile.to_toml());
            }
            Record::Sample(sample) => {
                let pages = [
                    sample.dirty,
                    sample.writeback,
                    sample.background,
                    sample.hard,
                    sample.written,
                    sample.dirtied,
                ];
                let bytes = pages.map(|pages| pages.saturating_mul(page));
                let row = std::iter::once(sample.time.0).chain(bytes);
                for (column, value) in samples.iter_mut().zip(row) {
                    if let Column::Int(values) = column {
                        values.push(int(value));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    calls.batch();
    let Calls { batches, kinds, paths, programs, files, .. } = calls;
    let ops = Op::ALL.iter().map(|op| op.name().to_owned()).collect();
    let names = [
        ("call", None),
        ("start_ns", None),
        ("duration_ns", None),
        ("op", Some(ops)),
        ("pid", None),
        ("tid", None),
        ("program", Some(programs.all)),
        ("path", Some(paths.all.clone())),
        ("kind", Some(kinds.all)),
        ("offset", None),
        ("size", None),
        ("bytes", None),
        ("errno", None),
        ("flags", Some(flag_texts())),
        ("estimated", None),
    ];
    let calls = batches.table(&names).map_err(arrow)?;
    let mut batches = Batches::default();
    batches.add(samples.iter_mut());
    let names = ["time_ns", "dirty", "writeback", "background", "hard", "written", "dirtied"];
    let samples = batches.table(&names.map(|name| (name, None))).map_err(arrow)?;
    Ok((calls, samples, files_table(files, paths.all).map_err(arrow)?, damage, machine))
}

fn files_table(files: Files, paths: Vec<String>) -> Result<Table, ArrowError> {
    let all = |value: fn(&FileRow) -> i64| Column::Int(files.rows.iter().map(value).collect());
    let path = Column::Text(files.rows.iter().map(|row| row.path).collect());
    let mut columns = [
        path,
        all(|row| int(row.facts.dev)),
        all(|row| int(row.facts.ino)),
        all(|row| int(row.facts.size.0)),
        all(|row| row.calls),
        all(|row| row.bytes),
        all(|row| row.duration),
    ];
    let mut batches = Batches::default();
    batches.add(columns.iter_mut());
    let names = ["device", "inode", "first_size", "calls", "bytes", "duration_ns"].map(|name| (name, None));
    batches.table(&[&[("path", Some(paths))], &names[..]].concat())
}

/// Profile and options of a trace, which come before its first call; as `cawl-cli export` chooses them.
fn analysis_of(path: &Path) -> PyResult<Analysis> {
    let mut reader = TraceReader::open(path).map_err(|error| failed(path, error))?;
    let (mut profile, mut live): (Option<HostProfile>, Option<LiveOptions>) = (None, None);
    while let Some(record) = reader.next_record().map_err(|error| failed(path, error))? {
        match record {
            Record::Profile(recorded) => profile = Some(*recorded),
            Record::Live(options) => live = Some(options),
            Record::Host(_) | Record::Note(_) => {}
            _ => break,
        }
    }
    let profile = profile.unwrap_or_else(|| profiles::choose(Path::new(".")).profile);
    let told =
        |error: String| Error::new_err(format!("cannot analyse the trace {}: {error}", path.display()));
    profile.check().map_err(|error| told(error.to_string()))?;
    let chosen = live.map(|live| (live.models, live.mode, live.learn, live.stacks));
    let (models, mode, learn, stacks) =
        chosen.unwrap_or_else(|| (vec![MODELS[0].to_owned()], Mode::Lockstep, false, None));
    // As `run` and `explain` do: what a call takes undisturbed is the lower of both predictions.
    let options =
        AnalysisOptions { models, mode, learn, stacks, as_calibrated: true, ..AnalysisOptions::default() };
    Analysis::with(&profile, &options).map_err(|error| told(error.to_string()))
}

/// What the models say of the calls of a trace, a row a call.
#[pyfunction]
#[pyo3(signature = (path, progress = None))]
pub fn causes(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<Table> {
    py.detach(|| causes_of(&path, progress.as_ref()))
}

fn causes_of(path: &Path, progress: Option<&Py<PyAny>>) -> PyResult<Table> {
    let mut analysis = analysis_of(path)?;
    let states: Vec<String> = STATES.iter().map(|state| state.name().to_owned()).collect();
    let causes: Vec<String> = Cause::ALL.iter().map(|cause| cause.name().to_owned()).collect();
    let mut columns = vec![ints(), texts(), optional(), optional(), optional(), optional(), texts()];
    columns.extend(causes.iter().map(|_| optional()));
    let (mut batches, mut rows) = (Batches::default(), 0);
    each_record(path, progress, |record| {
        let shown = analysis.take(record);
        if call_of(record).is_none() {
            return Ok(());
        }
        let told = shown.predictions.first().and_then(Option::as_ref);
        let nanos = |span: cawl_core::Nanos| int(span.get().round() as u64);
        let numbers = [
            told.map(|told| nanos(told.cost)),
            told.and_then(|told| told.interval).map(|(low, _)| nanos(low)),
            told.and_then(|told| told.interval).map(|(_, high)| nanos(high)),
            told.map(|told| int(told.dirty.0)),
        ];
        let state = told.and_then(|told| STATES.iter().position(|state| *state == told.state));
        let cause =
            shown.causes.and_then(|causes| Cause::ALL.iter().position(|cause| *cause == causes.main()));
        let mut numbers =
            numbers.into_iter().chain(Cause::ALL.map(|cause| shown.causes.map(|all| int(all[cause]))));
        let mut names = [state, cause].into_iter();
        for column in &mut columns {
            match column {
                Column::Int(values) => values.push(int(shown.number)),
                Column::Optional(values) => values.push(numbers.next().flatten()),
                Column::Text(values) => values.push(names.next().flatten().map_or(-1, |at| at as i32)),
                Column::Bool(_) => {}
            }
        }
        rows += 1;
        if rows % ROWS == 0 {
            batches.add(columns.iter_mut());
        }
        Ok(())
    })?;
    batches.add(columns.iter_mut());
    let parts: Vec<String> = causes.iter().map(|name| name.replace(' ', "_") + "_ns").collect();
    let mut names = vec![
        ("call", None),
        ("state", Some(states)),
        ("predicted_ns", None),
        ("low_ns", None),
        ("high_ns", None),
        ("dirty", None),
        ("cause", Some(causes)),
    ];
    names.extend(parts.iter().map(|name| (name.as_str(), None)));
    batches.table(&names).map_err(arrow)
}

const STATES: [CallState; 6] = [
    CallState::Free,
    CallState::Flush,
    CallState::Throttle,
    CallState::Sync,
    CallState::Read,
    CallState::Buffered,
];
