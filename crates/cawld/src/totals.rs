//! Calls and their cost by process, file and device, as far as calls have been processed.
//!
//! The law of this module: **bounded for any program.** Files that were not written to lately and that cost
//! little make room for others, and stay in a count; a row is found without a search of the others.

mod account;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use cawl_client::protocol::{DeviceStatus, FileStatus, ProcessStatus, Sort};
use cawl_core::{
    CallState, CallSums, Cause, Causes, FileFacts, FileRow, FileTable, Nanos, Prediction, Session, Tally,
    Time, coalesced_bytes, host_text, kernel_bytes,
};
use cawl_wire::ring::CoalescedCalls;
use cawl_wire::{Event, FileId, FileKind, flag};

use crate::foreign::is_foreign;
pub use account::Account;
use account::SECOND;

/// Files with a row; up to twice as many at times. Then half of these are kept because they were written to
/// last, and half because they cost most.
const FILES: usize = 8192;

/// Devices with a row.
const DEVICES: usize = 256;

/// The part of a call's time that the model attributes to throttling; a throttled call also copies.
fn held_back(observed: Nanos, prediction: &Prediction) -> Nanos {
    let throttle = prediction.parts[Cause::Throttle];
    if prediction.state == CallState::Sync || throttle <= Nanos::ZERO {
        return Nanos::ZERO;
    }
    observed * (throttle / prediction.cost)
}

/// The share of the modelled throttling that the kernel confirms. The kernel's pauses are those of all tasks
/// of the machine, so traced programs cannot have lost more.
#[derive(Clone, Copy, Debug, Default)]
struct Confirmed {
    /// Modelled since the last reading.
    latest: Nanos,
    /// Fading sums over the last readings, by the model and by the kernel.
    modelled: Nanos,
    paused: Nanos,
}

impl Confirmed {
    /// Weight that a reading leaves to the earlier ones: the kernel's figures come once a second.
    const FADING: f64 = 0.8;

    /// Takes a reading: the pauses since the previous one.
    fn sample(&mut self, paused: Nanos) {
        self.modelled = self.modelled * Self::FADING + std::mem::take(&mut self.latest);
        self.paused = self.paused * Self::FADING + paused;
    }

    fn part(&self) -> f64 {
        if self.modelled > self.paused { self.paused / self.modelled } else { 1.0 }
    }
}

/// A traced process image.
struct Process {
    pid: u32,
    program: String,
    /// Calls as read, before they are in order.
    arrived: Tally,
    account: Account,
}

#[derive(Default)]
struct FileSums {
    /// The number of the latest call that concerned it.
    touched: u64,
    account: Account,
}

type File = FileRow<FileSums>;

/// What calls have in common whose sum counts in the same places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    pid: u32,
    /// The file, if they count there.
    file: Option<FileId>,
    second: u64,
}

/// The sums.
#[derive(Default)]
pub struct Totals {
    /// The sum of all calls.
    pub total: Account,
    processes: BTreeMap<u32, Process>,
    /// The latest session of each pid.
    by_pid: HashMap<u32, u32>,
    files: FileTable<FileSums, { 2 * FILES }>,
    /// The sum of the latest calls, which is not in the sums yet, and where it belongs: a program makes many
    /// calls of a kind, each of which would change four sums.
    latest: CallSums,
    place: Option<Place>,
    /// Files that made room for others.
    pub files_omitted: u64,
    devices: BTreeMap<u64, Account>,
    confirmed: Confirmed,
}

impl Totals {
    /// Takes the kernel's pauses since the last reading; None if unknown.
    pub fn paused(&mut self, paused: Option<Nanos>) {
        match paused {
            Some(paused) => self.confirmed.sample(paused),
            None => self.confirmed = Confirmed::default(),
        }
    }

    /// A process image begins.
    pub fn begin(&mut self, session: &Session) {
        self.settle();
        self.by_pid.insert(session.pid, session.id);
        let process = Process {
            pid: session.pid,
            program: session.program.clone(),
            arrived: Tally::default(),
            account: Account::default(),
        };
        self.processes.insert(session.id, process);
    }

    /// Calls of a process have arrived.
    pub fn arrived(&mut self, session: u32, tally: Tally) {
        if let Some(process) = self.processes.get_mut(&session) {
            process.arrived.add_all(tally);
        }
    }

    /// A process image ended.
    pub fn end(&mut self, session: u32) {
        self.settle();
        if let Some(process) = self.processes.remove(&session)
            && self.by_pid.get(&process.pid) == Some(&session)
        {
            self.by_pid.remove(&process.pid);
        }
    }

    /// Which file an identity means.
    pub fn name(&mut self, file: &FileFacts) {
        // A rename does not imply a write.
        if file.renamed && self.files.get(file.file()).is_none() {
            return;
        }
        self.settle();
        let at = self.file(file.file());
        let row = &mut self.files.rows[at];
        row.counts.touched = self.total.sums.count.calls;
        row.name.set_path(file);
    }

    /// The files whose names are known.
    pub fn named(&self) -> impl Iterator<Item = FileFacts> {
        const REGULAR: u32 = 0o100_000;
        let named = self.files.rows.iter().filter(|row| row.name.path().starts_with('/'));
        named.map(|row| {
            let FileId { dev, ino, birth } = row.identity;
            let path = row.name.path().to_owned();
            FileFacts { dev, ino, birth, path, mode: REGULAR, ..FileFacts::default() }
        })
    }

    /// A file's path, if it has a row and was named.
    pub fn path(&self, file: FileId) -> Option<&str> {
        self.files.get(file).map(|row| row.name.path()).filter(|path| !path.is_empty())
    }

    /// Takes a call, in order of time. It is in the sums after [`Totals::settle`].
    pub fn call(&mut self, event: &Event, prediction: Option<&Prediction>, causes: Option<Causes<'_>>) {
        let bytes = kernel_bytes(event);
        let is_in_file = event.kind == FileKind::Regular && (bytes > 0 || prediction.is_some());
        let file = is_in_file.then(|| event.file());
        let place = Some(Place { pid: event.pid, file, second: event.start / SECOND });
        if self.place != place {
            self.settle();
            self.place = place;
        }
        let sums = &mut self.latest;
        if event.has(flag::ESTIMATED) {
            sums.estimated += bytes;
        }
        if let Some(prediction) = prediction {
            let observed = Nanos::new(event.duration as f64);
            sums.add(bytes, observed, prediction.cost);
            if prediction.state == CallState::Sync {
                sums.sync += observed;
            }
            let held = held_back(observed, prediction);
            if held > Nanos::ZERO {
                // The confirmed share of it.
                sums.throttled += held * self.confirmed.part();
                self.confirmed.latest += held;
            }
        } else {
            sums.count.add(bytes);
        }
        causes.into_iter().for_each(|causes| sums.time.add(causes));
        if event.takes_last_link() {
            self.files.unlink(event.file());
        }
    }

    /// The calls that were taken are in the sums.
    pub fn settle(&mut self) {
        let Some(Place { pid, file, second }) = self.place.take() else { return };
        let mut calls = std::mem::take(&mut self.latest);
        let session = self.by_pid.get(&pid);
        if let Some(process) = session.and_then(|session| self.processes.get_mut(session)) {
            process.account.add(&calls, second);
        }
        if file.is_none() {
            calls.count.bytes = 0;
        }
        self.total.add(&calls, second);
        let Some(file) = file else { return };
        let mut at = self.file(file);
        if self.files.rows[at].counts.account.sums.count.calls == 0 {
            at = self.files.succeed(at);
        }
        let sums = &mut self.files.rows[at].counts;
        sums.touched = self.total.sums.count.calls;
        sums.account.add(&calls, second);
        if self.devices.contains_key(&file.dev) || self.devices.len() < DEVICES {
            self.devices.entry(file.dev).or_default().add(&calls, second);
        }
    }

    /// Coalesced calls of a session, which went to no file; `discarded` if to /dev/null.
    pub fn coalesced(&mut self, session: u32, calls: &CoalescedCalls, discarded: bool) {
        let count = Tally { calls: calls.calls, bytes: coalesced_bytes(calls) };
        let mut sums = CallSums { count, ..CallSums::default() };
        if discarded {
            sums.time.add_calls(Cause::Discard, calls.duration);
        }
        if let Some(process) = self.processes.get_mut(&session) {
            process.arrived.add_all(count);
            process.account.add(&sums, calls.last / SECOND);
        }
        sums.count.bytes = 0;
        self.total.add(&sums, calls.last / SECOND);
    }

    fn file(&mut self, identity: FileId) -> usize {
        loop {
            match self.files.index(identity) {
                Some(at) => return at,
                None => self.make_room(),
            }
        }
    }

    /// Keeps the files that cost most and those written to last.
    fn make_room(&mut self) {
        let rows = &mut self.files.rows;
        rows.sort_unstable_by_key(|file| std::cmp::Reverse(file.counts.touched));
        let costly = |file: &File| file.counts.account.sums.observed.get();
        rows[FILES / 2..].sort_unstable_by(|a, b| costly(b).total_cmp(&costly(a)));
        let left_out = rows.drain(FILES..).filter(|file| file.counts.account.sums.count.calls > 0);
        self.files_omitted += left_out.count() as u64;
        self.files.reindex();
    }

    /// Processes in this order, the rows of `page`, and the number of rows after them.
    pub fn processes(&self, sort: Sort, page: Range<usize>, now: Time) -> (Vec<ProcessStatus>, u64) {
        let (rows, more) = ranked(self.processes.values(), |process| process.account.key(sort, now), page);
        let status = |process: &Process| ProcessStatus {
            pid: process.pid,
            program: process.program.clone(),
            calls: process.arrived.calls,
            bytes: process.arrived.bytes,
            cost: process.account.cost(now),
            causes_s: process.account.causes_s(),
        };
        (rows.into_iter().map(status).collect(), more)
    }

    /// Files in this order, the rows of `page`, and the number of rows after them.
    pub fn files(&self, sort: Sort, page: Range<usize>, now: Time) -> (Vec<FileStatus>, u64) {
        let written = self.files.rows.iter().filter(|file| file.counts.account.sums.count.calls > 0);
        let (rows, more) = ranked(written, |file| file.counts.account.key(sort, now), page);
        let status = |file: &File| {
            let (FileId { dev, ino, .. }, account) = (file.identity, &file.counts.account);
            // A row must not pass for that of the file which really has the number.
            let inode = if is_foreign(file.identity) { 0 } else { ino };
            FileStatus {
                path: file.name.path().to_owned(),
                first_path: file.name.first_path().map(str::to_owned),
                device: device(dev),
                inode,
                calls: account.sums.count.calls,
                bytes: account.sums.count.bytes,
                estimated_bytes: account.sums.estimated,
                cost: account.cost(now),
                causes_s: account.causes_s(),
            }
        };
        (rows.into_iter().map(status).collect(), more)
    }

    /// The devices, most written to first, with their loads by all programs, as far as known.
    pub fn devices(&self, loads: &BTreeMap<u64, DeviceStatus>, now: Time) -> Vec<DeviceStatus> {
        let status = |(dev, account): (&u64, &Account)| DeviceStatus {
            device: device(*dev),
            calls: account.sums.count.calls,
            bytes: account.sums.count.bytes,
            cost: account.cost(now),
            causes_s: account.causes_s(),
            ..loads.get(dev).cloned().unwrap_or_default()
        };
        let mut devices: Vec<_> = self.devices.iter().map(status).collect();
        devices.sort_by_key(|device| std::cmp::Reverse(device.bytes));
        devices
    }
}

/// "major:minor".
fn device(dev: u64) -> String {
    let (major, minor) = host_text::device_parts(dev);
    format!("{major}:{minor}")
}

/// The rows of `page`, largest keys first, and the number of rows after them. Linear in the number of rows up
/// to the end of the page. Equal keys keep their order, so that pages of an unchanged table have no row
/// twice.
fn ranked<'a, T>(
    rows: impl Iterator<Item = &'a T>,
    key: impl Fn(&T) -> f64,
    page: Range<usize>,
) -> (Vec<&'a T>, u64) {
    let mut keyed: Vec<(f64, usize, &T)> = rows.enumerate().map(|(at, row)| (key(row), at, row)).collect();
    let largest =
        |a: &(f64, usize, &T), b: &(f64, usize, &T)| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1));
    let more = keyed.len().saturating_sub(page.end);
    if more > 0 {
        keyed.select_nth_unstable_by(page.end, largest);
        keyed.truncate(page.end);
    }
    keyed.sort_unstable_by(largest);
    (keyed.into_iter().skip(page.start).map(|(_, _, row)| row).collect(), more as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_client::protocol::CauseSeconds;
    use cawl_core::{CauseTimes, CostParts};
    use cawl_wire::Op;

    fn write(ino: u64, second: u64, bytes: i64, ms: u64) -> Event {
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev, event.ino, event.pid) = (FileKind::Regular, 5, ino, 1);
        (event.start, event.returned, event.duration) = (second * SECOND, bytes, ms * 1_000_000);
        event
    }

    /// Takes a call whose time the model's two causes share equally; one of them would be undisturbed.
    fn call(totals: &mut Totals, event: &Event, prediction: Option<&Prediction>) {
        let half = event.duration / 2;
        let causes = CauseTimes::from([(Cause::Copy, half), (Cause::Throttle, event.duration - half)]);
        let own = CostParts::from([(Cause::Copy, Nanos::new(half as f64))]);
        let causes = Causes { times: &causes, own: &own, main: causes.main() };
        totals.call(event, prediction, prediction.map(|_| causes));
    }

    fn throttled() -> Prediction {
        let parts =
            CostParts::from([(Cause::Copy, Nanos::millis(0.25)), (Cause::Throttle, Nanos::millis(0.75))]);
        Prediction { state: CallState::Throttle, cost: parts.total(), parts, ..Prediction::default() }
    }

    #[test]
    fn sums_by_process_file_and_device() {
        let mut totals = Totals::default();
        totals.begin(&Session { id: 9, pid: 1, program: "p".to_owned(), ..Session::default() });
        call(&mut totals, &write(7, 10, 4096, 4), Some(&throttled()));
        let sync = Prediction { state: CallState::Sync, ..throttled() };
        call(&mut totals, &write(8, 10, 100, 5), Some(&sync));
        // It goes where the one before it went.
        call(&mut totals, &write(8, 10, 100, 5), None);
        totals.settle();
        let now = Time(11 * SECOND);
        let (processes, more) = totals.processes(Sort::Lost, 0..10, now);
        let cost = processes[0].cost;
        assert_eq!((processes.len(), more), (1, 0));
        assert_eq!((cost.observed_s, cost.predicted_s), (0.009, 0.002));
        assert_eq!((cost.throttled_s, cost.sync_s, cost.rate), (0.003, 0.005, 4296.0 / 2.0));
        assert_eq!(cost.lost_s, 0.0045, "half of the observed time");
        let (files, more) = totals.files(Sort::Bytes, 0..1, now);
        assert_eq!((files[0].inode, files[0].bytes, files.len(), more), (7, 4096, 1, 1));
        assert_eq!(totals.files(Sort::Lost, 0..9, now).0[0].inode, 8);
        let devices = totals.devices(&BTreeMap::new(), now);
        assert_eq!(devices[0].bytes, 4296);
        // Half of 4 and 5 ms by each cause; the file written to first has the 4 ms.
        let half = |ms: u64| CauseTimes::from([(Cause::Copy, ms * 500_000), (Cause::Throttle, ms * 500_000)]);
        assert_eq!(files[0].causes_s, CauseSeconds::from(&half(4)));
        assert_eq!(*totals.total.sums.time.observed(), half(9));
        let all = CauseSeconds::from(&half(9));
        assert_eq!((processes[0].causes_s, devices[0].causes_s), (all, all));
        assert_eq!(totals.total.sums.count, Tally { calls: 3, bytes: 4296 });
        totals.end(9);
        assert!(totals.processes(Sort::Lost, 0..10, now).0.is_empty() && totals.by_pid.is_empty());
    }

    /// The model attributes 0.75 s of every second to throttling; the kernel's pauses are a third of that.
    #[test]
    fn no_more_is_lost_to_throttling_than_the_kernel_lets_writers_pause() {
        let lost_in = |seconds: Range<u64>, totals: &mut Totals, paused: Option<Nanos>| {
            let before = totals.total.sums.throttled;
            for second in seconds {
                call(totals, &write(7, second, 4096, 1000), Some(&throttled()));
                totals.paused(paused);
            }
            totals.settle();
            totals.total.sums.throttled.saturating_sub(before).as_seconds()
        };
        let mut totals = Totals::default();
        let quarter = Some(Nanos::millis(250.0));
        lost_in(0..30, &mut totals, quarter);
        let confirmed = lost_in(30..130, &mut totals, quarter);
        assert!((confirmed - 25.0).abs() < 0.5, "{confirmed} s of 25");
        // Other writers are paused too: the modelled time stays.
        lost_in(130..160, &mut totals, Some(Nanos::seconds(3.0)));
        assert_eq!(lost_in(160..260, &mut totals, Some(Nanos::seconds(3.0))), 75.0);
        // Unknown pauses.
        lost_in(260..261, &mut totals, None);
        assert_eq!(lost_in(261..361, &mut totals, None), 75.0);
    }

    #[test]
    fn pages_together_are_the_whole_table() {
        let mut totals = Totals::default();
        for ino in 0..1000 {
            // Many cost the same.
            call(&mut totals, &write(ino, 1, 1, ino % 7), Some(&throttled()));
        }
        totals.settle();
        let of = |page: Range<usize>| -> Vec<u64> {
            totals.files(Sort::Lost, page, Time(SECOND)).0.into_iter().map(|file| file.inode).collect()
        };
        let pages: Vec<u64> = (0..1000).step_by(30).flat_map(|at| of(at..at + 30)).collect();
        assert_eq!(pages, of(0..1000));
        assert_eq!(totals.files(Sort::Lost, 990..995, Time(SECOND)).1, 5);
        let beyond = totals.files(Sort::Lost, 1200..usize::MAX, Time(SECOND));
        assert!(beyond.0.is_empty() && beyond.1 == 0);
    }

    #[test]
    fn files_are_bounded_and_the_important_ones_stay() {
        let mut totals = Totals::default();
        call(&mut totals, &write(0, 1, 1, 1000), Some(&throttled()));
        let files = 50_000;
        for ino in 1..files {
            call(&mut totals, &write(ino, 1, 1, 1), Some(&throttled()));
        }
        totals.settle();
        assert!(totals.files.rows.len() <= 2 * FILES);
        let now = Time(SECOND);
        let (rows, more) = totals.files(Sort::Observed, 0..3, now);
        assert_eq!(rows[0].inode, 0, "it cost most");
        assert_eq!(more + totals.files_omitted + 3, files);
        assert!(totals.files.get(FileId::new(5, files - 1)).is_some(), "it was the last");
        assert_eq!(totals.total.sums.count.calls, files);
    }
}
