//! A workflow for real, on this machine.
//!
//! The law: **nothing is left behind.** Files lie in a scratch folder, which is removed on every way out, and
//! tasks end with the run.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cawl_core::{Bytes, CostParts, MemoryFacts, Time, ZoneFacts};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::{self, Scratch};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::task::{Done, Order};
use super::{Outcome, Queue, Ran, Times, Workflow};
use crate::ground::written_back;

/// How long a signal may wait.
const PERIOD: Duration = Duration::from_millis(100);

/// Time between passes over free memory (`PAGE_REPORTING_DELAY`, mm/page_reporting.c), with some more.
const PERIOD_OF_PASSES: Duration = Duration::from_millis(2200);
/// Time between looks at it, and after which a pass that tells no more has ended.
const LOOKS: Duration = Duration::from_millis(20);
const STILL: Duration = Duration::from_millis(200);

/// Bytes of cold memory of which the cost is measured.
const ENOUGH: u64 = 1 << 30;

/// The machine's memory at the begin of a run.
#[derive(Clone, Debug)]
pub struct Memory {
    pub free: Option<MemoryFacts>,
    /// How many seconds a byte takes longer that the host has taken back, if one was met.
    pub slower: Option<f64>,
}

/// A workflow with its files.
pub struct Runner<'a> {
    workflow: &'a Workflow,
    processors: u32,
    /// The folder of the files.
    pub scratch: Scratch,
    signal: &'a AtomicUsize,
}

impl<'a> Runner<'a> {
    /// Prepares runs with so many processors, in a new folder in `folder`.
    ///
    /// # Errors
    /// Where it cannot be made, or the files need more than half of the free space.
    pub fn new(
        workflow: &'a Workflow,
        processors: u32,
        folder: &Path,
        signal: &'a AtomicUsize,
    ) -> anyhow::Result<Runner<'a>> {
        let scratch = Scratch::create(folder, scratch::EXPERIMENT)?;
        let all = workflow.length().0;
        scratch
            .require(Bytes(all.saturating_mul(2)))
            .context("the workflow's files need at most half of the free space")?;
        Ok(Runner { workflow, processors, scratch, signal })
    }

    /// Makes those of the files that no task writes before it reads them, as far as they are not there.
    pub fn make_inputs(&self) -> anyhow::Result<()> {
        let data = vec![1; 1 << 20];
        for file in self.inputs().filter(|file| !self.path(*file).exists()) {
            let mut made = self.scratch.file(&name(file))?;
            let mut left = self.workflow.files[file].size.0 as usize;
            while left > 0 {
                Interrupted::by(self.signal)?;
                let bytes = left.min(data.len());
                made.write_all(&data[..bytes]).context("cannot make the files that are read first")?;
                left -= bytes;
            }
        }
        Ok(())
    }

    /// Runs all tasks, and removes the files that they wrote. `cached`: what is there before is in the page
    /// cache.
    ///
    /// # Errors
    /// Where a task fails, with its message, and where a signal comes.
    pub fn run(&self, cached: bool) -> anyhow::Result<(Outcome, Memory)> {
        let mut notes = Vec::new();
        written_back(&self.scratch, &mut notes, self.signal)?;
        for file in self.inputs() {
            let mut made = self.scratch.again(&name(file), nix::fcntl::OFlag::empty())?;
            if cached {
                std::io::copy(&mut made, &mut std::io::sink())?;
            } else {
                // Of clean pages only.
                made.sync_all()?;
                posix_fadvise(made.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            }
        }
        let slower = self.touch_memory();
        let free = behind_a_pass().map(|found| MemoryFacts { time: Time(0), ..found });
        let tasks = self.tasks()?;
        let written = self.workflow.tasks.iter().flat_map(|task| &task.writes);
        written.for_each(|file| self.scratch.remove(&name(*file)));
        Ok((Outcome { tasks, notes }, Memory { free, slower }))
    }

    /// Touches as much memory as the files have, twice: a run gets what was touched, and the first time is
    /// slower by what the host has taken back, of which it meets at least [`ENOUGH`] where there is so much.
    /// Returns how many seconds a byte of that takes longer, if it met so much.
    fn touch_memory(&self) -> Option<f64> {
        let found = cawl_host::free::sample();
        let bytes = |of| found.as_ref().map_or(0, |found| pages(found, of)) * cawl_host::page().0;
        let (free, cold) = (bytes(|zone| Some(&zone.free)), bytes(|zone| zone.cold.as_ref()));
        // Warm memory is taken first.
        let warm = free.saturating_sub(cold);
        let all = self.workflow.length().0;
        let all = if cold >= ENOUGH { all.max(warm + ENOUGH) } else { all };
        let all = all.min(cawl_host::facts().available.0 / 2);
        let touch = || {
            let begun = cawl_host::now();
            std::hint::black_box(vec![1_u8; all as usize]);
            cawl_host::now().since(begun)
        };
        let longer = touch().saturating_sub(touch());
        let met = all.saturating_sub(warm).min(cold);
        (met >= ENOUGH).then(|| longer.as_seconds() / met as f64)
    }

    fn inputs(&self) -> impl Iterator<Item = usize> {
        let inputs = self.workflow.inputs();
        (0..inputs.len()).filter(move |file| inputs[*file])
    }

    fn path(&self, file: usize) -> PathBuf {
        self.scratch.path(&name(file))
    }

    fn tasks(&self) -> anyhow::Result<Vec<Ran>> {
        let mut queue = Queue::new(self.workflow, &[self.processors]);
        let mut ran = vec![Ran::default(); self.workflow.tasks.len()];
        let mut running = HashMap::new();
        let ends = mpsc::channel();
        let mut by = None;
        loop {
            while let Some((task, host)) = queue.next() {
                ran[task].by = by;
                running.insert(task, self.start(task, queue.occupied(task, host), ends.0.clone())?);
            }
            if running.is_empty() {
                break;
            }
            let (task, said) = self.wait(&ends.1)?;
            let started = running.remove(&task).context("a task that was not started has ended")?;
            let done = self.done(started, &said);
            let Done { begin, end, reading, computing, writing, preempted } =
                done.with_context(|| format!("the task {} failed", self.workflow.tasks[task].name))?;
            (ran[task].begin, ran[task].end) = (begin, end);
            ran[task].times = Times { reading, computing, writing, preempted, causes: CostParts::default() };
            for ready in queue.ended(task, 0) {
                ran[ready].ready = end;
            }
            by = Some(task);
        }
        let zero = ran.iter().map(|task| task.begin).min().unwrap_or_default();
        for moment in ran.iter_mut().flat_map(|task| [&mut task.ready, &mut task.begin, &mut task.end]) {
            *moment = Time(moment.0.saturating_sub(zero.0));
        }
        Ok(ran)
    }

    /// Starts a task. A thread of its own waits for what it says.
    fn start(&self, task: usize, threads: u32, ended: Sender<(usize, String)>) -> anyhow::Result<Started> {
        let of = &self.workflow.tasks[task];
        let files = |list: &[usize]| {
            list.iter().map(|file| (self.path(*file), self.workflow.files[*file].size)).collect()
        };
        let order = Order {
            parent: std::process::id() as i32,
            reads: files(&of.reads),
            compute: of.compute,
            threads,
            writes: files(&of.writes),
            block: of.block,
            fsync: of.fsync,
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("task").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = Started(command.spawn().context("cannot start a task")?);
        let pipes = (started.0.stdin.take(), started.0.stdout.take());
        let (mut to, mut from) = pipes.0.zip(pipes.1).context("a task has pipes")?;
        // A task that has ended at once says why.
        drop(to.write_all((serde_json::to_string(&order)? + "\n").as_bytes()));
        std::thread::Builder::new().spawn(move || {
            let mut said = String::new();
            drop(from.read_to_string(&mut said));
            drop(ended.send((task, said)));
        })?;
        Ok(started)
    }

    /// The next task that ends, and what it said.
    fn wait(&self, ends: &Receiver<(usize, String)>) -> anyhow::Result<(usize, String)> {
        loop {
            match ends.recv_timeout(PERIOD) {
                Ok(end) => return Ok(end),
                Err(RecvTimeoutError::Timeout) => Interrupted::by(self.signal)?,
                Err(RecvTimeoutError::Disconnected) => bail!("no task can end"),
            }
        }
    }

    fn done(&self, mut started: Started, said: &str) -> anyhow::Result<Done> {
        let status = started.0.wait()?;
        // A signal from the terminal ends the task, too.
        Interrupted::by(self.signal)?;
        if !status.success() {
            let mut why = String::new();
            if let Some(mut errors) = started.0.stderr.take() {
                errors.read_to_string(&mut why)?;
            }
            bail!("{status}: {}", why.trim().trim_start_matches("cawl-lab: "));
        }
        serde_json::from_str(said).context("it said something else than its times")
    }
}

/// Pages in these blocks of memory.
fn pages(memory: &MemoryFacts, of: fn(&ZoneFacts) -> Option<&Vec<u64>>) -> u64 {
    let blocks = memory.zones.iter().flat_map(|zone| of(zone).into_iter().flatten().enumerate());
    blocks.map(|(order, blocks)| blocks << order).sum()
}

/// Free memory right behind a pass in which the kernel told the host of a part of it: when the next one
/// begins is known then, and nothing else tells. At once where that cannot be seen.
fn behind_a_pass() -> Option<MemoryFacts> {
    let cold = |memory: &MemoryFacts| pages(memory, |zone| zone.cold.as_ref());
    let mut found = cawl_host::free::sample()?;
    let is_told = found.zones.iter().any(|zone| zone.cold.is_some());
    let (begun, mut grown) = (Instant::now(), None);
    while is_told && grown.map_or(begun.elapsed() < PERIOD_OF_PASSES, |at: Instant| at.elapsed() < STILL) {
        std::thread::sleep(LOOKS);
        let next = cawl_host::free::sample()?;
        if cold(&next) > cold(&found) {
            grown = Some(Instant::now());
        }
        found = next;
    }
    Some(found)
}

/// The name of a file in the folder; that of the workflow may be a path.
fn name(file: usize) -> String {
    format!("file-{file}")
}

/// A running task; dropping it ends it.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // Both fail if it has already ended and been reaped.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
