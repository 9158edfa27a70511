//! Records a run: a program writes, the kernel's counters are sampled at the same time, and both are saved in
//! the files that `fit`, `compare` and `replay` read.
//!
//! The law: **what is judged is what was saved.** A recording is turned into text first, and the run that is
//! judged is parsed from that text, as any other reader would parse it.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::recorded::{RecordedRun, RunArgs, flags_of, recorded_run, run_args};
use anyhow::{Context, bail};
use cawl_core::{Bytes, HostProfile, Record, Sample, Time};
use cawl_host::place::Place;
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_host::tracefs::Instance;
use cawl_import::{CsvImporter, CsvOptions, Importer};
use cawl_measure::embedded::embedded;
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::Scratch;
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;

use super::report::save_json;
use crate::ground;

/// The writing program, as built by build.rs.
const PROGRAM: &[u8] = include_bytes!(env!("CAWL_WORKLOAD"));
/// Its output before the first call.
const READY: &[u8] = b"ready\n";
/// Time between two samples of the kernel's counters.
const PERIOD: Duration = Duration::from_millis(5);
/// The kernel's tracepoints of throttling.
const EVENTS: [&str; 2] = ["balance_dirty_pages", "bdi_dirty_ratelimit"];
/// Name of the file that is written.
const FILE: &str = "data";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scenario {
    /// Name of the run and of its files.
    #[serde(skip)]
    pub name: String,
    /// Arguments of the writing program, as in `suite.json`.
    pub args: String,
    pub env: String,
    /// Largest size of its file.
    #[serde(skip)]
    pub length: Bytes,
}

#[derive(Clone, Debug)]
pub struct Recording {
    /// The run, as parsed from its texts.
    pub run: RecordedRun,
    /// Write requests that the device did meanwhile, those of other programs among them.
    pub requests: Option<u64>,
    pub notes: Vec<String>,
}

pub struct Recorder<'a> {
    pub place: &'a Place,
    /// The folder of the written files, which are removed after each run.
    pub scratch: &'a Scratch,
    /// The profile for the traces.
    pub profile: &'a HostProfile,
    /// Whether to occupy free memory in small pieces during each run ([`Self::hold_pieces`]).
    pub hold: bool,
    /// Holds the number of a signal that asks to stop, or zero.
    pub signal: &'a AtomicUsize,
}

impl Recorder<'_> {
    /// Records a run and saves it in `folder`.
    pub fn record(&self, scenario: &Scenario, folder: &Path) -> anyhow::Result<Recording> {
        let args = run_args(&scenario.args, &scenario.env).map_err(|argument| {
            anyhow::anyhow!("the run {} has a wrong argument {argument}", scenario.name)
        })?;
        let mut notes = Vec::new();
        let texts = loop {
            ground::written_back(self.scratch, &mut notes, self.signal)?;
            // Anew for each run, since removed files leave other pieces behind.
            let held = self.hold.then(|| self.hold_pieces()).transpose()?;
            let drops = cawl_host::page_cache_drops();
            let texts = self.run(scenario, !args.rewrite);
            drop(held);
            // Removes its dirty pages too, unwritten.
            self.scratch.remove(FILE);
            let texts = texts.with_context(|| format!("the run {} failed", scenario.name))?;
            if drops == cawl_host::page_cache_drops() || !notes.is_empty() {
                break texts;
            }
            notes.push(format!(
                "{}: repeated, since the page cache was dropped during the run",
                scenario.name
            ));
        };
        let run = recorded_run(&scenario.name, args.clone(), &texts.csv, &texts.dirty)?;
        self.save(scenario, &args, &run.samples, &texts, folder)
            .with_context(|| format!("cannot write the recordings into {}", folder.display()))?;
        Ok(Recording { run, requests: texts.requests, notes })
    }

    /// Occupies free memory that lies in pieces smaller than a huge page, at most a quarter of the available
    /// memory, until the result is dropped. A run frees its own memory in huge pages; without this, small
    /// folios would come from these pieces first, which may be cold.
    fn hold_pieces(&self) -> anyhow::Result<Writer> {
        let (_program, mut command) = program()?;
        command.env("HOLD", (cawl_host::facts().available.0 / 4).to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = Writer(command.spawn().context(NOT_RUN)?);
        let mut said = [0; READY.len()];
        let out = holder.0.stdout.as_mut().context("the program that writes has no output")?;
        if out.read_exact(&mut said).is_err() {
            let status = holder.0.wait()?;
            // A signal from the terminal ends that program too.
            Interrupted::by(self.signal)?;
            check(&mut holder, status)?;
            bail!("the program that writes did not take memory");
        }
        Ok(holder)
    }

    /// Runs the program that writes; `makes` if it makes its file.
    fn run(&self, scenario: &Scenario, makes: bool) -> anyhow::Result<Texts> {
        let trace = Instance::begin_if_possible(&EVENTS, "")?;
        let mut out = File::from(memfd_create(c"cawl-calls", MFdFlags::MFD_CLOEXEC)?);
        let mut child = self.start(scenario, &out)?;
        let mut samples = Vec::new();
        let mut zero = None;
        let mut before = None;
        let status = loop {
            if zero.is_none() && out.metadata()?.len() >= READY.len() as u64 {
                zero = Some(cawl_host::now());
                before = self.place.device_counters();
            }
            if zero.is_some() {
                samples.extend(cawl_host::sample());
            }
            if let Some(status) = child.0.try_wait()? {
                break status;
            }
            Interrupted::by(self.signal)?;
            std::thread::sleep(PERIOD);
        };
        check(&mut child, status)?;
        let after = self.place.device_counters();
        let zero = zero.context("the program that writes said nothing")?;
        let mut said = String::new();
        out.rewind()?;
        out.read_to_string(&mut said)?;
        let text = said.strip_prefix("ready\n").context("the program that writes said something else")?;
        Ok(Texts {
            csv: calls(text, zero, makes)?,
            dirty: samples.iter().map(|sample| sampled(sample, zero)).collect(),
            requests: after.zip(before).map(|(after, before)| after.writes.saturating_sub(before.writes)),
            kernel: trace.as_ref().map(Instance::take).transpose()?,
        })
    }

    fn start(&self, scenario: &Scenario, out: &File) -> anyhow::Result<Writer> {
        let (_program, mut command) = program()?;
        command.args(scenario.args.split_whitespace()).arg(self.scratch.path(FILE));
        command.envs(scenario.env.split_whitespace().filter_map(|setting| setting.split_once('=')));
        // Cold memory of a virtual machine would slow the run down.
        command.env("WARM", self.warm(scenario.length).0.to_string());
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(Stdio::piped());
        Ok(Writer(command.spawn().context(NOT_RUN)?))
    }

    /// Memory to touch before a run: the size of its file and a reserve, at most half of the available
    /// memory.
    fn warm(&self, length: Bytes) -> Bytes {
        let some = length.0 + (64 << 20);
        Bytes(some.min(cawl_host::facts().available.0 / 2))
    }

    fn save(
        &self,
        scenario: &Scenario,
        args: &RunArgs,
        samples: &[Sample],
        texts: &Texts,
        folder: &Path,
    ) -> anyhow::Result<()> {
        let file = |ending: &str| folder.join(format!("{}.{ending}", scenario.name));
        pack(&file("csv.gz"), &texts.csv)?;
        pack(&file("dirty.gz"), &texts.dirty)?;
        if let Some(kernel) = &texts.kernel {
            pack(&file("trace.gz"), kernel)?;
        }
        let mut trace = TraceFile::create(&file("cawl"), WhenFull::Wait)?;
        for record in records(scenario, args, self.profile, samples, texts)? {
            trace.push(&record);
        }
        match trace.finish() {
            Some(failure) => bail!(failure),
            None => Ok(()),
        }
    }
}

/// A recording as text; time 0 is the first sample.
struct Texts {
    csv: String,
    dirty: String,
    requests: Option<u64>,
    kernel: Option<String>,
}

const NOT_RUN: &str = "the program that writes cannot be run";

/// The writing program, as long as the file is open, with an empty environment.
fn program() -> anyhow::Result<(File, Command)> {
    let (program, mut command) = embedded(c"cawl-workload", PROGRAM)?;
    command.env_clear();
    Ok((program, command))
}

/// The running program; dropping it ends it.
pub struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        // Both fail if it has already ended and been reaped.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn check(child: &mut Writer, status: ExitStatus) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut errors) = child.0.stderr.take() {
        errors.read_to_string(&mut said)?;
    }
    bail!("the program that writes ended with {status}: {}", said.trim())
}

/// The calls as a csv table, in seconds from `zero`; `makes` if the program makes its file.
fn calls(text: &str, zero: Time, makes: bool) -> anyhow::Result<String> {
    let mut csv = String::from("start_s,op,offset,size,duration_s,flags\n");
    if makes {
        // Right before it is ready; from then on the journal has something to commit.
        csv += "0,open,,0,0,O_TRUNC\n";
    }
    for line in text.lines() {
        let mut words = line.split(' ');
        let op = words.next().unwrap_or("");
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let &[offset, size, start, duration] = numbers.as_slice() else { bail!("not a call: {line:?}") };
        let start = seconds(start.saturating_sub(zero.0));
        csv += &format!("{start},{op},{offset},{size},{},\n", seconds(duration));
    }
    Ok(csv)
}

fn sampled(sample: &Sample, zero: Time) -> String {
    let Sample { time, dirty, writeback, background, hard, written, dirtied } = sample;
    let time = seconds(time.0.saturating_sub(zero.0));
    format!("{time} {dirty} {writeback} {background} {hard} {written} {dirtied}\n")
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The records of a trace: host, profile, then calls and samples by time.
fn records(
    scenario: &Scenario,
    args: &RunArgs,
    profile: &HostProfile,
    samples: &[Sample],
    texts: &Texts,
) -> anyhow::Result<Vec<Record>> {
    let options = CsvOptions {
        flags: flags_of(args),
        program: scenario.name.clone(),
        path: FILE.to_owned(),
        ..CsvOptions::default()
    };
    let mut importer = CsvImporter::new(options);
    let mut calls = Vec::new();
    for line in texts.csv.lines() {
        importer.line(line.as_bytes(), &mut calls)?;
    }
    importer.finish(&mut calls)?;
    let mut facts = cawl_host::facts();
    facts.started = Time::default();
    let mut records = vec![Record::Host(Box::new(facts)), Record::Profile(Box::new(profile.clone()))];
    let mut samples = samples.iter().copied().peekable();
    for record in calls {
        if let Record::Event(event) = &record {
            while let Some(sample) = samples.next_if(|sample| sample.time.0 < event.start) {
                records.push(Record::Sample(sample));
            }
        }
        records.push(record);
    }
    records.extend(samples.map(Record::Sample));
    Ok(records)
}

fn pack(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut packed = GzEncoder::new(File::create(path)?, Compression::default());
    packed.write_all(text.as_bytes())?;
    packed.finish()?;
    Ok(())
}

/// A folder of recordings of one machine, as `suite.json` describes it.
#[derive(Debug, Serialize)]
pub struct SuiteFile {
    #[serde(skip)]
    folder: PathBuf,
    device: String,
    kernel: String,
    dirty_background_bytes: Bytes,
    dirty_bytes: Bytes,
    /// Clock of the kernel's events: that of calls and samples, but not relative to zero.
    trace_clock: &'static str,
    scenarios: std::collections::BTreeMap<String, Scenario>,
}

impl SuiteFile {
    /// A new folder.
    pub fn create(folder: &Path, device: &str, profile: &HostProfile) -> anyhow::Result<SuiteFile> {
        fs::create_dir_all(folder).with_context(|| {
            format!("cannot make the folder {}; name one that can be written to with --out", folder.display())
        })?;
        Ok(SuiteFile {
            folder: folder.to_owned(),
            device: device.to_owned(),
            kernel: cawl_host::facts().kernel,
            dirty_background_bytes: profile.kernel.limits.background,
            dirty_bytes: profile.kernel.limits.hard,
            trace_clock: "mono",
            scenarios: std::collections::BTreeMap::new(),
        })
    }

    /// Records a run and adds it.
    pub fn add(&mut self, recorder: &Recorder<'_>, scenario: &Scenario) -> anyhow::Result<Recording> {
        let recording = recorder.record(scenario, &self.folder)?;
        self.scenarios.insert(scenario.name.clone(), scenario.clone());
        save_json(&self.folder, "suite.json", self)?;
        Ok(recording)
    }
}
