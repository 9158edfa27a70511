//! OpenTelemetry (`--otlp`): the metrics of `/metrics` and spans of calls, as requests of OTLP in files, for
//! `cawl-ship` to post.
//!
//! The law of this module: **nothing waits for a file.** A file is `v1/metrics/…` or `v1/traces/…`, as the
//! path that it is posted to; its first line has facts, its second line is the request.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use cawl_client::protocol::{OutputStatus, Status};
use cawl_core::{Record, Shown};
use cawl_host::clock::Clocks;
use cawl_host::spool::{Spool, SpoolOptions};
use serde_json::{Map, Value};

use crate::metrics;
use crate::spooled::{Queue, Spooler};
use crate::totals::Totals;
use cawl_export::otlp::{Spans, Told};

/// Bytes of files that wait at most.
pub const ROOM: u64 = 256 << 20;
/// Moments that wait for the writer at most.
const QUEUE: usize = 4;
/// Interval of looks at what was delivered.
const LOOK: Duration = Duration::from_secs(1);
/// Processes that ended and that become spans of a moment, besides those of its calls.
const ENDED: usize = 1000;

/// Where metrics and spans go.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    /// The collector; without a password.
    pub to: String,
    /// The folder that the files are written to.
    pub folder: PathBuf,
    /// Interval of metrics and spans.
    pub every: Duration,
    /// Name of the node.
    pub node: String,
    /// Its labels.
    pub labels: Vec<(String, String)>,
}

/// A moment's metrics and spans.
struct Moment {
    status: Box<Status>,
    at: u64,
    /// Of CLOCK_MONOTONIC.
    until: u64,
    told: Told,
}

/// The engine's side.
pub struct OtlpTo {
    options: OtlpOptions,
    spans: Spans,
    writer: Spooler<Moment>,
}

impl OtlpTo {
    /// Starts the writer, on the machine of this name.
    pub fn start(options: OtlpOptions, host: &str) -> io::Result<OtlpTo> {
        let OtlpOptions { to, folder, node, labels, .. } = options.clone();
        let labels = [("node".to_owned(), node.clone())].into_iter().chain(labels).collect();
        let spool = SpoolOptions { folder, own: PathBuf::new(), node, ending: ".json", room: ROOM };
        let (clocks, host) = (Clocks::now(), host.to_owned());
        let spans = Spans::new(&host, epoch(&clocks), labels, ENDED);
        let work = move |spool, moments| work(spool, &host, clocks.real.0, &moments);
        Ok(OtlpTo { options, spans, writer: Spooler::start(("cawl-otlp", QUEUE), to, spool, work)? })
    }

    /// Takes a record, and what was shown of it if it is a call.
    pub fn take(&mut self, record: &Record, shown: &Shown<'_>, totals: Option<&Totals>) {
        self.spans.take(record, shown, |event| totals?.path(event.file()));
    }

    /// Hands over what there is to tell; with `all` also processes that still run.
    pub fn tell(&mut self, status: Status, all: bool) {
        let clocks = Clocks::now();
        let told = self.spans.drain(all, Some(epoch(&clocks)));
        let mut status = Box::new(status);
        status.node.clone_from(&self.options.node);
        status.labels = self.options.labels.iter().cloned().collect();
        let moment = Moment { status, at: clocks.real.0, until: clocks.monotonic.0, told };
        self.writer.send(moment, |moment| {
            let points = metrics::otlp::request(&moment.status, "", 0, 0).1 as u64;
            points + moment.told.spans() as u64 + moment.told.left_out
        });
    }

    /// What became of data points and spans.
    pub fn status(&self) -> OutputStatus {
        self.writer.status()
    }
}

/// Time of day at CLOCK_MONOTONIC's 0, in ns since 1970.
fn epoch(clocks: &Clocks) -> u64 {
    clocks.real.0.saturating_sub(clocks.monotonic.0)
}

/// Writes moments until there is no sender.
fn work(mut spool: Spool, host: &str, began: u64, moments: &Queue<Moment>) {
    loop {
        let Moment { status, at, until, told } = match moments.next(&mut spool, LOOK) {
            Ok(moment) => moment,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        // A clock that was set back does not let counters end before they began.
        let (metrics, points) = metrics::otlp::request(&status, host, began, at.max(began));
        put(&mut spool, "metrics", points, until, &metrics);
        let spans = told.spans();
        if spans > 0 {
            put(&mut spool, "traces", spans, until, &told.request());
        }
        if told.left_out > 0 {
            spool.take(told.left_out, 0);
            spool.lose(told.left_out, None);
        }
    }
}

fn put(spool: &mut Spool, signal: &str, rows: usize, until: u64, request: &Value) {
    let rows = rows as u64;
    spool.take(rows, until);
    if let Err(error) = write(spool, signal, rows, request) {
        tracing::error!("{signal} for OpenTelemetry are left out: {error}");
        spool.lose(rows, Some(&error));
    }
}

fn write(spool: &mut Spool, signal: &str, rows: u64, request: &Value) -> io::Result<()> {
    let begun = spool.begin()?;
    let mut out = io::BufWriter::new(begun.file());
    let facts = spool.facts(rows).into_iter().chain([("rows", rows.to_string())]);
    let facts: Map<_, _> = facts.map(|(name, value)| (name.to_owned(), value.into())).collect();
    serde_json::to_writer(&mut out, &facts)?;
    out.write_all(b"\n")?;
    serde_json::to_writer(&mut out, request)?;
    out.write_all(b"\n")?;
    out.flush()?;
    drop(out);
    spool.keep(begun, &Path::new("v1").join(signal), rows)
}
