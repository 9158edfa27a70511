//! Sums by minute (`--sums-to`): a row for each process, file and cause, as a small file for `cawl-ship` to
//! deliver.
//!
//! The law of this module: **nothing waits for a file**, and a minute is bounded for any program.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use cawl_client::protocol::OutputStatus;
use cawl_core::{Cause, CauseTimes, Record, coalesced_bytes, kernel_bytes};
use cawl_host::clock::{Clocks, utc};
use cawl_host::spool::{Spool, SpoolOptions};
use cawl_wire::ring::CoalescedCalls;
use cawl_wire::{Event, FileId};
use rustc_hash::FxHashMap;

use crate::names::Names;
use crate::spooled::{Queue, Spooler};
use crate::totals::Totals;

/// Processes and files of a minute; further ones are one row of each cause, without process and file.
const ROWS: usize = 8192;
/// Minutes that wait for the writer at most.
const QUEUE: usize = 4;
/// Calls come so late at most; a minute is over so much after its end.
const LATE: i128 = 1_000_000_000;
/// Interval of looks at the counts, where no minute ends.
const LOOK: Duration = Duration::from_millis(500);

const MINUTE: i128 = 60 * 1_000_000_000;
/// Causes, and one more for calls that have none.
const CAUSES: usize = Cause::ALL.len() + 1;

/// Where the sums go.
#[derive(Clone, Debug)]
pub struct SumsOptions {
    /// The database; without a password.
    pub to: String,
    /// The folder that the files are written to.
    pub folder: PathBuf,
    /// Bytes that the files take at most.
    pub room: u64,
    /// Name of the node.
    pub node: String,
}

/// Process, image and file.
type Key = (u32, usize, FileId);

struct Sums {
    pid: u32,
    program: Option<Arc<str>>,
    path: Option<Arc<str>>,
    /// Calls and bytes by their main cause, and ns by each cause.
    by_cause: [[u64; 3]; CAUSES],
}

struct Minute {
    /// Its beginning, in seconds since 1970-01-01 UTC.
    unix: i64,
    /// The latest call began then (CLOCK_MONOTONIC, ns).
    until: u64,
    sums: Vec<Sums>,
}

impl Minute {
    /// The rows that have something: pid, program, path, cause, and what was summed up.
    fn rows(&self) -> impl Iterator<Item = (&Sums, &'static str, [u64; 3])> {
        let name = |at: usize| Cause::ALL.get(at).map_or("none", |cause| cause.name());
        self.sums.iter().flat_map(move |sums| {
            let parts = sums.by_cause.iter().enumerate().filter(|(_, part)| **part != [0; 3]);
            parts.map(move |(at, part)| (sums, name(at), *part))
        })
    }
}

/// The engine's side.
pub struct SumsTo {
    names: Names,
    sums: FxHashMap<Key, Sums>,
    /// Time of day less CLOCK_MONOTONIC as of the beginning of the present minute, and which one it is.
    minute: Option<(i128, i128)>,
    until: u64,
    writer: Spooler<Minute>,
}

impl SumsTo {
    /// Starts the writer.
    pub fn start(options: SumsOptions) -> io::Result<SumsTo> {
        let SumsOptions { to, folder, room, node } = options;
        let spool = SpoolOptions { folder, own: PathBuf::new(), node, ending: ".csv", room };
        let writer = Spooler::start(("cawl-sums", QUEUE), to, spool, |spool, minutes| work(spool, &minutes))?;
        Ok(SumsTo { names: Names::default(), sums: FxHashMap::default(), minute: None, until: 0, writer })
    }

    /// Takes a record, and the causes of its time if it is a call that has some.
    pub fn take(&mut self, record: &Record, causes: Option<&CauseTimes>, totals: Option<&Totals>) {
        let Record::Event(event) = record else { return self.names.take(record) };
        let by_cause = self.row(event, totals);
        let main = causes.map_or(CAUSES - 1, |causes| causes.main() as usize);
        by_cause[main][0] += 1;
        by_cause[main][1] += kernel_bytes(event);
        match causes {
            Some(causes) => {
                Cause::ALL.into_iter().for_each(|cause| by_cause[cause as usize][2] += causes[cause])
            }
            None => by_cause[main][2] += event.duration,
        }
    }

    /// Takes coalesced calls; `discarded`: they wrote to /dev/null.
    pub fn coalesced(&mut self, calls: &CoalescedCalls, discarded: bool, totals: Option<&Totals>) {
        let cause = if discarded { Cause::Discard as usize } else { CAUSES - 1 };
        let [count, bytes, ns] = &mut self.row(&Event { start: calls.first, ..calls.like }, totals)[cause];
        *count += calls.calls;
        *bytes += coalesced_bytes(calls);
        *ns += calls.duration;
    }

    fn row(&mut self, event: &Event, totals: Option<&Totals>) -> &mut [[u64; 3]; CAUSES] {
        let start = i128::from(event.start);
        if self.minute.is_some_and(|(offset, minute)| (start + offset).div_euclid(MINUTE) > minute) {
            self.end();
        }
        self.minute.get_or_insert_with(|| {
            let now = Clocks::now();
            let offset = i128::from(now.real.0) - i128::from(now.monotonic.0);
            (offset, (start + offset).div_euclid(MINUTE))
        });
        self.until = self.until.max(event.start);
        let program = self.names.program(event);
        let image = program.as_ref().map_or(0, |program| Arc::as_ptr(program).cast::<u8>() as usize);
        let key = (event.pid, image, event.file());
        if self.sums.len() < ROWS || self.sums.contains_key(&key) {
            let names = &mut self.names;
            let sums = self.sums.entry(key).or_insert_with(|| Sums {
                pid: event.pid,
                program,
                path: names.path(event, totals),
                by_cause: [[0; 3]; CAUSES],
            });
            return &mut sums.by_cause;
        }
        let others = self.sums.entry(Key::default());
        let others =
            others.or_insert_with(|| Sums { pid: 0, program: None, path: None, by_cause: [[0; 3]; CAUSES] });
        &mut others.by_cause
    }

    /// Ends a minute that is over by now.
    pub fn pass(&mut self, clocks: &Clocks) {
        let now = i128::from(clocks.monotonic.0);
        if self.minute.is_some_and(|(offset, minute)| now + offset > (minute + 1) * MINUTE + LATE) {
            self.end();
        }
    }

    fn end(&mut self) {
        let Some((_, minute)) = self.minute.take() else { return };
        let unix = i64::try_from(minute * 60).unwrap_or(0).max(0);
        let minute =
            Minute { unix, until: self.until, sums: self.sums.drain().map(|(_, sums)| sums).collect() };
        self.writer.send(minute, |minute| minute.rows().count() as u64);
    }

    /// What became of the sums.
    pub fn status(&self) -> OutputStatus {
        self.writer.status()
    }
}

impl Drop for SumsTo {
    /// The writer then waits for the last file.
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes minutes until there is no sender.
fn work(mut spool: Spool, minutes: &Queue<Minute>) {
    loop {
        match minutes.next(&mut spool, LOOK) {
            Ok(minute) => {
                let rows = minute.rows().count() as u64;
                spool.take(rows, minute.until);
                if let Err(error) = write(&mut spool, &minute, rows) {
                    tracing::error!("the sums of a minute are left out: {error}");
                    spool.lose(rows, Some(&error));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A line of facts as JSON, and a table as csv.
fn write(spool: &mut Spool, minute: &Minute, rows: u64) -> io::Result<()> {
    let begun = spool.begin()?;
    let mut out = io::BufWriter::new(begun.file());
    let facts = spool
        .facts(rows)
        .into_iter()
        .chain([("rows", rows.to_string()), ("minute", minute.unix.to_string())]);
    let facts: serde_json::Map<_, _> = facts.map(|(name, value)| (name.to_owned(), value.into())).collect();
    serde_json::to_writer(&mut out, &facts)?;
    out.write_all(b"\nnode,daemon_start,file,row,minute,pid,program,path,cause,calls,bytes,ns\n")?;
    let text = |name: &str| format!("\"{}\"", name.replace('"', "\"\"").replace('\0', ""));
    let [year, month, day, hour, of_hour, _] = utc(minute.unix);
    let (file, at) = (spool.sequence(), format!("{year:04}-{month:02}-{day:02}T{hour:02}:{of_hour:02}:00Z"));
    let (node, start) = (text(spool.node()), spool.start());
    for (row, (sums, cause, [calls, bytes, ns])) in minute.rows().enumerate() {
        // Quotes tell an empty text from none.
        let name = |name: &Option<Arc<str>>| name.as_deref().map(text).unwrap_or_default();
        let (row, pid, program, path) = (row + 1, sums.pid, name(&sums.program), name(&sums.path));
        writeln!(
            out,
            "{node},{start},{file},{row},{at},{pid},{program},{path},{cause},{calls},{bytes},{ns}"
        )?;
    }
    out.flush()?;
    drop(out);
    spool.keep(begun, Path::new(""), rows)
}
