//! The thread that writes tables of calls.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use cawl_export::{Columns, Parquet};
use cawl_host::clock::{Clocks, utc};
use cawl_host::spool::{Begun, Spool, encoded};

use super::CallsOptions;
use super::row::Row;
use crate::spooled::Queue;

/// After a failure, rows are dropped for this time before the next file is begun.
const RETRY: Duration = Duration::from_secs(1);
/// Rows of a group at most, which is in memory: some 15 MB.
const GROUP: u64 = 32_768;
/// Bytes of a row, about, for files that are smaller than such a group.
const ROW: u64 = 128;
/// Interval of looks at the counts, where no rows come.
const LOOK: Duration = Duration::from_millis(500);

const HOUR: i128 = 3600 * 1_000_000_000;

/// Writes rows to files.
pub struct Writer {
    options: CallsOptions,
    columns: Arc<Columns>,
    models: String,
    spool: Spool,
    /// Calls analysed.
    calls: Arc<AtomicU64>,
    open: Option<Open>,
    /// After a failure: not to be tried again before.
    retry: Option<Instant>,
    /// The clocks, which a test sets.
    clocks: fn() -> Clocks,
}

/// The file that is being written. The clock may be set at any time, so it keeps one time of day.
struct Open {
    parquet: Parquet,
    begun: Begun,
    at: Instant,
    /// Time of day less CLOCK_MONOTONIC, in ns, as of its beginning.
    offset: i128,
    /// Hours since 1970-01-01 UTC.
    hour: i128,
    rows: u64,
}

impl Writer {
    /// Writes calls with predictions of these models.
    pub fn new(options: CallsOptions, models: &[&str], spool: Spool, calls: Arc<AtomicU64>) -> Writer {
        Writer {
            options,
            columns: Arc::new(Columns::new(models).with_weight()),
            models: models.join(","),
            spool,
            calls,
            open: None,
            retry: None,
            clocks: Clocks::now,
        }
    }

    /// Works until there is no sender.
    pub fn work(mut self, batches: &Queue<Vec<Row>>) {
        loop {
            match batches.next(&mut self.spool, LOOK) {
                Ok(batch) => {
                    let until = batch.last().map_or(0, |row| row.event.start);
                    self.spool.take(batch.len() as u64, until);
                    batch.iter().for_each(|row| self.push(row));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.open.as_ref().is_some_and(|open| open.at.elapsed() >= self.options.every.1) {
                self.close();
            }
        }
        self.close();
    }

    fn push(&mut self, row: &Row) {
        let start = i128::from(row.event.start);
        if self.open.as_ref().is_some_and(|open| (start + open.offset).div_euclid(HOUR) != open.hour) {
            self.close();
        }
        if self.open.is_none() {
            if self.retry.is_some_and(|retry| Instant::now() < retry) {
                return self.spool.lose(1, None);
            }
            match self.begin(start) {
                Ok(open) => self.open = Some(open),
                Err(error) => return self.fail(1, &error),
            }
        }
        let Some(open) = &mut self.open else { return };
        open.rows += 1;
        let written = open.parquet.call(&row.call());
        let (rows, bytes) = (open.rows, open.parquet.bytes());
        if let Err(error) = written {
            self.open = None;
            self.fail(rows, &error);
        } else if bytes >= self.options.every.0 {
            self.close();
        }
    }

    fn begin(&self, start: i128) -> io::Result<Open> {
        let now = (self.clocks)();
        let offset = i128::from(now.real.0) - i128::from(now.monotonic.0);
        let begun = self.spool.begin()?;
        let mut facts = self.options.facts.clone();
        facts.extend([
            ("model", self.models.clone()),
            ("rule", self.options.rule.text().to_owned()),
            ("traced_at_ns", now.monotonic.0.to_string()),
            ("traced_at_unix_s", format!("{}.{:09}", now.real.0 / 1_000_000_000, now.real.0 % 1_000_000_000)),
        ]);
        let group = (self.options.every.0 / ROW).clamp(1, GROUP) as usize;
        let file = Box::new(begun.file().try_clone()?);
        let parquet = Parquet::new(Arc::clone(&self.columns), file, facts, group)?;
        let hour = (start + offset).div_euclid(HOUR);
        Ok(Open { parquet, begun, at: Instant::now(), offset, hour, rows: 0 })
    }

    fn close(&mut self) {
        let Some(Open { mut parquet, begun, hour, rows, .. }) = self.open.take() else { return };
        let [year, month, day, of_day, ..] = utc(i64::try_from(hour * 3600).unwrap_or(i64::MAX));
        let partition = PathBuf::from(format!("node={}", encoded(&self.options.node)))
            .join(format!("date={year:04}-{month:02}-{day:02}"))
            .join(format!("hour={of_day:02}"));
        let mut facts = self.spool.facts(rows);
        facts.push(("rows", rows.to_string()));
        facts.push(("calls_analysed", self.calls.load(Ordering::Relaxed).to_string()));
        let kept = parquet.finish(facts).and_then(|()| self.spool.keep(begun, &partition, rows));
        if let Err(error) = kept {
            self.fail(rows, &error);
        }
    }

    /// A file could not be written: its rows are dropped, and those of the next moment.
    fn fail(&mut self, rows: u64, error: &io::Error) {
        if self.retry.is_none_or(|retry| retry.elapsed() > RETRY) {
            tracing::error!("calls are left out of {}: {error}", self.options.folder.display());
        }
        self.spool.lose(rows, Some(error));
        self.retry = Some(Instant::now() + RETRY);
    }
}

#[cfg(test)]
mod tests;
