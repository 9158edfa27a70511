//! Where the time of calls went, by `cawl-cli run` and by the kernel's own account of the same run.
//!
//! What happened is a trace with an [`Account`] beside it. `cargo test` replays those in
//! crates/cawl-lab/recordings.

mod account;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, ensure};
use cawl_core::{
    Analysis, AnalysisOptions, Bytes, Cause, CauseTimes, HostProfile, LiveOptions, Mode, Record,
};
use cawl_host::trace::TraceReader;
use cawl_wire::Event;
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use serde_json::Value;

pub use account::Account;
use account::{Listening, account};

use super::traces::keep;
use super::{Bench, Figure, device_number, no_tracing};
use crate::writer::Written;
use crate::{DiskSpec, Filesystem, lowered_limits};

/// The dirty limits under which writers are throttled.
const LIMITS: (Bytes, Bytes) = (Bytes::mib(60), Bytes::mib(120));

/// What a run is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pauses.
    Throttle,
    /// Calls that wait for the device.
    Waits,
    /// Run delay.
    Preempted,
    /// A device that stands still.
    Stalls,
}

/// A program beside the kernel's account.
pub(super) struct Run {
    pub(super) name: &'static str,
    kind: Kind,
    disk: &'static str,
    program: &'static str,
}

/// The calls of a trace with their time by cause.
pub struct Replayed {
    /// All calls together, in seconds.
    pub causes: Vec<(Cause, f64)>,
    calls: Vec<(Event, CauseTimes)>,
}

impl Replayed {
    /// Analyses a trace as the live run was analysed.
    pub fn of(trace: &Path) -> anyhow::Result<Replayed> {
        let mut reader = TraceReader::open(trace)?;
        let (mut profile, mut live) = (HostProfile::uncalibrated(), None);
        let (mut analysis, mut calls, mut sum) = (None, Vec::new(), CauseTimes::default());
        while let Some(record) = reader.next_record()? {
            match record {
                Record::Profile(of) => profile = *of,
                Record::Live(options) => live = Some(options),
                Record::Host(_) | Record::Note(_) => {}
                record => {
                    let analysis = match &mut analysis {
                        Some(analysis) => analysis,
                        none => none.insert(begin(&profile, live.take())?),
                    };
                    let causes = analysis.take(&record).causes;
                    if let (Record::Event(event), Some(causes)) = (&record, causes) {
                        sum.add(causes);
                        calls.push((*event, *causes));
                    }
                }
            }
        }
        let causes = sum.iter().map(|(cause, ns)| (cause, ns as f64 * 1e-9)).collect();
        Ok(Replayed { causes, calls })
    }

    /// Of calls that a stall overlaps: seconds of that, and what of it is in these causes. Of the others that
    /// no late request overlaps: how many there are, and how many have `unexpected` as their main cause.
    fn stalls(&self, account: &Account, causes: &[Cause]) -> ((f64, f64), (usize, usize)) {
        let (mut within, mut others) = ((0.0, 0.0), (0, 0));
        for (event, times) in &self.calls {
            let overlap =
                |&(from, to): &(u64, u64)| event.end().min(to).saturating_sub(event.start.max(from));
            let stalled: u64 = account.stalls.iter().map(overlap).sum();
            if stalled == 0 && account.late.iter().map(overlap).any(|late| late > 0) {
                continue;
            }
            if stalled > 0 {
                let in_causes = causes.iter().map(|cause| times[*cause]).sum::<u64>().min(stalled);
                within = (within.0 + stalled as f64 * 1e-9, within.1 + in_causes as f64 * 1e-9);
            } else {
                others = (others.0 + 1, others.1 + usize::from(times.main() == Cause::Unexpected));
            }
        }
        (within, others)
    }

    fn seconds(&self, wanted: &[Cause]) -> f64 {
        self.causes.iter().filter(|(cause, _)| wanted.contains(cause)).map(|(_, seconds)| seconds).sum()
    }

    /// Causes over the kernel's account.
    pub fn figures(&self, kind: Kind, account: &Account) -> Vec<Figure> {
        use Cause::*;
        let ratio = |what: &str, causes: &[Cause], seconds: f64, tolerance: f64| {
            let told = self.seconds(causes);
            eprintln!("  {what}: told {told:.4} s, the kernel {seconds:.4} s");
            Figure::new(what, 1.0, told / seconds, tolerance, 0.0)
        };
        match kind {
            Kind::Throttle => vec![ratio("throttle / asleep in pauses", &[Throttle], account.throttle, 0.1)],
            Kind::Waits => {
                let device = [Queue, Transfer, Seek];
                let mut figures =
                    vec![ratio("queue, transfer, seek / data in flight", &device, account.data, 0.15)];
                let journal = [Journal, DeviceFlush];
                figures.push(match account.commit > account.flush {
                    true => ratio("journal, device flush / commits", &journal, account.commit, 0.15),
                    false => ratio("device flush / flushes", &journal, account.flush, 0.15),
                });
                figures
            }
            Kind::Preempted => vec![ratio("preempted / run delay", &[Preempted], account.run_delay, 0.15)],
            Kind::Stalls => {
                let ((stalled, found), (calls, odd)) = self.stalls(account, &[Unexpected, Transfer]);
                eprintln!("  stalled {stalled:.3} s, found {found:.3} s; {odd} of {calls} others unexpected");
                let part = found / stalled;
                let others = 1.0 + odd as f64 / calls.max(1) as f64;
                vec![
                    Figure::new("part of stalls that is unexpected or transfer", 1.0, part, 0.05, 0.0),
                    Figure::new("1 + part of other calls that is unexpected", 1.0, others, 0.001, 0.0),
                ]
            }
        }
    }
}

fn begin(profile: &HostProfile, live: Option<LiveOptions>) -> anyhow::Result<Analysis> {
    let LiveOptions { models, mode, learn, .. } = live.context("the trace is of no live run")?;
    ensure!(mode == Mode::Assimilated && learn, "the run did not learn");
    let options = AnalysisOptions { models, mode, learn, as_calibrated: true, ..AnalysisOptions::default() };
    Ok(Analysis::with(profile, &options)?)
}

/// Runs a program under `cawl-cli run`, beside the kernel's tracepoints.
pub(super) fn measure(bench: &Bench, run: &Run) -> anyhow::Result<Vec<Figure>> {
    let home = tempfile::tempdir()?;
    let spec: DiskSpec = run.disk.parse()?;
    let disk = bench.disk(spec, Filesystem::Ext4)?;
    let folder = &disk.ready.mount;
    // Meets the device before the limits are lowered, as it does before any first run.
    let one = ["run", "--", "dd", "if=/dev/zero", "bs=4k", "count=1", "status=none"];
    bench.cawl(home.path(), folder, one)?;
    let _limits = match run.kind {
        Kind::Throttle => Some(lowered_limits(&bench.lab, LIMITS.0, LIMITS.1)?),
        _ => None,
    };
    let number = device_number(&disk.ready.device)?;
    // As the kernel has it, which filters of events compare with.
    let device = nix::sys::stat::major(number) << 20 | nix::sys::stat::minor(number);
    let device = matches!(run.kind, Kind::Waits | Kind::Stalls).then_some(device);
    let listening = Listening::begin(device)?.with_context(no_tracing)?;
    let (trace, report) = (home.path().join("trace"), home.path().join("report.json"));
    let written = [format!("--trace={}", trace.display()), format!("--report={}", report.display())];
    let program = run.program.replace("LAB", &bench.lab.display().to_string());
    let arguments = ["run", &written[0], &written[1], "--"].into_iter().chain(program.split_whitespace());
    let busy = (run.kind == Kind::Preempted).then(Busy::begin);
    let began = cawl_host::now();
    let said = bench.cawl(home.path(), folder, arguments)?;
    let ended = cawl_host::now();
    drop(busy);
    let heard = listening.end()?;
    let replayed = Replayed::of(&trace)?;
    let threads: BTreeSet<u32> = replayed.calls.iter().map(|(event, _)| event.tid).collect();
    let mut account = account(&heard, &threads);
    if let Ok(written) = serde_json::from_str::<Vec<Written>>(&said) {
        account.run_delay = written.iter().map(|thread| thread.run_delay.as_seconds()).sum();
    }
    let mut moment = began;
    while moment < ended && run.kind == Kind::Stalls {
        account.stalls.extend(spec.stall_at(moment).map(|(from, to)| (from.0, to.0)));
        moment = moment + spec.stall;
    }
    if let Some(folder) = bench.recordings()? {
        keep(&trace, &folder.join(format!("{}.cawl", run.name)), |_| ())?;
        fs::write(folder.join(format!("{}.json", run.name)), serde_json::to_vec_pretty(&account)?)?;
    }
    let told: Value = serde_json::from_slice(&fs::read(&report)?)?;
    let told = told["explain"]["causes"].as_array().context("the report has no causes")?;
    for (cause, seconds) in &replayed.causes {
        let live = told.iter().find(|row| row["name"] == cause.name());
        let live = live.and_then(|row| row["observed_s"].as_f64()).unwrap_or(0.0);
        ensure!((live - seconds).abs() < 1e-3, "{}: live {live} s, replayed {seconds} s", cause.name());
    }
    eprintln!("{}: {account:?}", run.name);
    Ok(replayed.figures(run.kind, &account))
}

/// Busy loops, one for each processor, until dropped.
struct Busy {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn begin() -> Busy {
        let ends = Arc::new(AtomicBool::new(false));
        let count = std::thread::available_parallelism().map_or(2, usize::from);
        let spin = |ends: Arc<AtomicBool>| move || while !ends.load(Ordering::Relaxed) {};
        let threads = (0..count).map(|_| std::thread::spawn(spin(Arc::clone(&ends)))).collect();
        Busy { ends, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // A loop does not panic.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Mounts tracefs for this process and its children alone, if it is not mounted. Before any thread is
/// started.
pub fn mount_tracefs() -> anyhow::Result<()> {
    const AT: &str = "/sys/kernel/tracing";
    let none = None::<&str>;
    if !Path::new(AT).join("instances").is_dir() {
        nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
        nix::mount::mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        // Without it, the checks that need it say so.
        let _ = nix::mount::mount(Some("tracefs"), AT, Some("tracefs"), MsFlags::empty(), none);
    }
    Ok(())
}

/// A steady disk, on which the kernel's law and not the machine's speed determines pauses.
const STEADY: &str = "150,50,0,1,size=2";
const SYNCED: &str = "400,100,0,0.5,size=2";

const fn run(name: &'static str, kind: Kind, disk: &'static str, program: &'static str) -> Run {
    Run { name, kind, disk, program }
}

/// Programs under `cawl-cli run`, each a check of its own.
pub(super) static RUNS: [Run; 8] = [
    run("causes-throttle-dd", Kind::Throttle, STEADY, "dd if=/dev/zero of=out bs=1M count=600 status=none"),
    run(
        "causes-throttle-threads",
        Kind::Throttle,
        STEADY,
        "LAB write . --threads 4 --block 262144 --calls 600",
    ),
    run("causes-throttle-small", Kind::Throttle, STEADY, "LAB write . --block 4096 --calls 100000"),
    run("causes-fsync", Kind::Waits, SYNCED, "LAB write . --block 262144 --calls 800 --sync fsync"),
    run("causes-dsync", Kind::Waits, SYNCED, "LAB write . --block 65536 --calls 1000 --sync dsync"),
    run("causes-again", Kind::Waits, SYNCED, "LAB write . --block 65536 --calls 1500 --sync again"),
    run("causes-preempted", Kind::Preempted, STEADY, "LAB write . --block 65536 --calls 6000"),
    run(
        "causes-stalls",
        Kind::Stalls,
        "400,100,0,0.5,size=2,stall=2.5",
        "LAB write . --block 65536 --seconds 15 --sync dsync",
    ),
];
