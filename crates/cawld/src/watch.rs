//! Judges each call by the condition of `--trace-on`, and keeps excerpts around those that fulfil it.

use cawl_client::protocol::ExcerptsStatus;
use cawl_core::{Analysis, Causes, Condition, Nanos, Record, Time, kernel_bytes};
use cawl_host::trace::{ExcerptOptions, ExcerptStatus, Excerpts};
use cawl_wire::Event;

use crate::totals::Totals;

/// What to keep, and when.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The calls that are anomalies.
    pub condition: Condition,
    /// The excerpts.
    pub excerpts: ExcerptOptions,
}

/// The condition and its excerpts.
pub struct Watch {
    condition: Condition,
    options: ExcerptOptions,
    excerpts: Excerpts,
    logged: ExcerptStatus,
}

impl Watch {
    /// Begins to hold records.
    pub fn start(options: WatchOptions) -> std::io::Result<Watch> {
        let WatchOptions { condition, excerpts: options } = options;
        let excerpts = Excerpts::start(options.clone())?;
        Ok(Watch { condition, options, excerpts, logged: ExcerptStatus::default() })
    }

    /// Takes a record.
    pub fn push(&mut self, record: &Record) {
        self.excerpts.push(record);
    }

    pub fn take(&mut self, record: &Record, analysis: &Analysis, totals: Option<&Totals>) {
        self.push(record);
        let (Record::Event(event), Some(Causes { times: causes, .. })) = (record, analysis.causes()) else {
            return;
        };
        let predicted = analysis.answering().map(|prediction| prediction.cost);
        let path = |file| totals.and_then(|totals| totals.path(file));
        if self.condition.holds(event, causes, predicted, path) {
            let what = || describe(event, predicted, path(event.file()));
            self.excerpts.anomaly(Time(event.start), Time(event.end()), what);
        }
    }

    /// Passes what has gathered to the disk, and logs what became of earlier records.
    pub fn flush(&mut self) {
        self.excerpts.flush();
        let Some(status) = self.excerpts.news(&self.logged) else { return };
        if let Some(failure) = status.failure.as_ref().filter(|_| status.failure != self.logged.failure) {
            tracing::error!("calls around an anomaly cannot be kept: {failure}");
        }
        if let Some(latest) = status.latest.as_ref().filter(|_| status.latest != self.logged.latest) {
            let anomaly = status.anomaly.as_deref().unwrap_or_default();
            tracing::warn!("{anomaly}; the calls around it are kept in {}", latest.display());
        }
        self.logged = status;
    }

    /// What was kept so far.
    pub fn status(&self) -> ExcerptsStatus {
        let status = self.excerpts.status();
        ExcerptsStatus {
            condition: self.condition.text().to_owned(),
            folder: self.options.folder.display().to_string(),
            keep_s: self.options.keep.as_seconds(),
            room_bytes: self.options.room,
            anomalies: status.anomalies,
            files: status.files,
            bytes: status.bytes,
            missing: status.missing,
            latest: status.latest.map(|path| path.display().to_string()),
            anomaly: status.anomaly,
            failure: status.failure,
        }
    }
}

/// `write of 4096 B to /data/x by process 7 took 1.2 s, predicted 3.4 µs`.
fn describe(event: &Event, predicted: Option<Nanos>, path: Option<&str>) -> String {
    let bytes = match kernel_bytes(event) {
        0 => String::new(),
        bytes => format!(" of {}", cawl_core::Bytes(bytes)),
    };
    let path = path.map(|path| format!(" to {}", path.escape_debug())).unwrap_or_default();
    let predicted = predicted.map(|predicted| format!(", predicted {predicted}")).unwrap_or_default();
    let (op, pid, took) = (event.op.name(), event.pid, Nanos::new(event.duration as f64));
    format!("{op}{bytes}{path} by process {pid} took {took}{predicted}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cawl_core::{AnalysisOptions, FileFacts, HostFacts, HostProfile, Sample, Session};
    use cawl_host::trace::TraceReader;
    use cawl_wire::{FileKind, Op};

    use super::*;
    use crate::lane::Lane;

    const MS: u64 = 1_000_000;

    fn lane(condition: &str, folder: &Path) -> Lane {
        let profile = HostProfile::uncalibrated();
        let models = vec!["kernel".to_owned()];
        let options = AnalysisOptions { models, ..AnalysisOptions::default() };
        let excerpts = ExcerptOptions {
            folder: folder.to_owned(),
            keep: Nanos::millis(500.0),
            room: 64 << 20,
            condition: condition.to_owned(),
        };
        let watch = Watch::start(WatchOptions { condition: condition.parse().unwrap(), excerpts }).unwrap();
        let facts = HostFacts { host: "box".to_owned(), ..HostFacts::default() };
        let lane = Lane::new(&profile, &options, None, facts.clone()).unwrap();
        let mut lane = lane.with_tables(&profile).with_watch(Some(watch), &profile, facts);
        lane.begin(Session { id: 1, pid: 7, program: "db".to_owned(), ..Session::default() });
        for (ino, path) in [(1, "/data/db"), (2, "/log/x")] {
            let (mode, path) = (0o100_644, path.to_owned());
            lane.analyse(Record::File(FileFacts { dev: 5, ino, mode, path, ..FileFacts::default() }));
        }
        lane
    }

    /// Writes 4 KiB every ms, to two files in turn; the `stalls` take 60 to 2000 ms.
    fn work(lane: &mut Lane, calls: u64, stalls: &[u64]) {
        let mut now = 1_000_000;
        for n in 0..calls {
            let mut event = Event::new(Op::Write);
            (event.kind, event.dev, event.ino, event.pid, event.tid) =
                (FileKind::Regular, 5, 1 + n % 2, 7, 7);
            (event.start, event.offset) = (now * MS, n / 2 * 4096);
            (event.requested, event.returned, event.duration) = (4096, 4096, 3000);
            if let Some(at) = stalls.iter().position(|stall| *stall == n) {
                event.duration = [60, 500, 2000][at % 3] * MS;
            }
            lane.analyse(Record::Event(event));
            now += 1 + event.duration / MS;
            if n.is_multiple_of(10) {
                lane.analyse(Record::Sample(Sample { time: Time(now * MS), ..Sample::default() }));
                lane.flush();
            }
        }
    }

    /// The stalls in the excerpts, by the number of the call.
    fn kept(folder: &Path) -> Vec<u64> {
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let mut kept = Vec::new();
        for file in files {
            let mut reader = TraceReader::open(&file).unwrap();
            for record in reader.by_ref() {
                if let Record::Event(event) = record.unwrap()
                    && event.duration > 50 * MS
                {
                    kept.push(event.offset / 4096 * 2 + event.ino - 1);
                }
            }
            assert_eq!(reader.damage().describe(), None, "{}", file.display());
        }
        kept
    }

    #[test]
    fn injected_stalls_are_all_kept() {
        let stalls: Vec<u64> = (0..40).map(|n| 500 + n * 731).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut lane = lane("unexpected > 50ms", folder.path());
        work(&mut lane, 30_000, &stalls);
        // A thread of its own takes what is passed to the disk.
        let status = |lane: &Lane| lane.watch.as_ref().map(|watch| watch.status()).unwrap();
        cawl_kit::eventually("all stalls are kept", || {
            lane.flush();
            status(&lane).anomalies >= 40
        });
        let status = status(&lane);
        drop(lane);
        assert_eq!((status.anomalies, status.missing), (40, 0));
        assert_eq!(kept(folder.path()), stalls);
        let words = status.anomaly.unwrap();
        assert!(words.starts_with("write of 4 KiB to /") && words.contains("by process 7 took"), "{words}");
    }

    /// Parts of a condition that a call does not fulfil keep it out.
    #[test]
    fn files_and_operations_choose() {
        for (condition, expected) in [
            ("residual > 50ms and file ~ /log/*", vec![701]),
            ("observed > 50ms and not file ~ /log/*", vec![200]),
            ("observed > 50ms and op == fsync", vec![]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let mut lane = lane(condition, folder.path());
            // Farther apart than what is kept.
            work(&mut lane, 2000, &[200, 701]);
            drop(lane);
            let mut kept = kept(folder.path());
            kept.retain(|call| expected.contains(call) || expected.is_empty());
            assert_eq!(kept, expected, "{condition}");
        }
    }
}
