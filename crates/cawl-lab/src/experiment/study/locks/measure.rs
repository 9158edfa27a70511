//! Runs the program whose threads take locks and write (locks.c), and reads what it says.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;

use anyhow::{Context, bail};
use cawl_measure::embedded::embedded;
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::Scratch;
use serde::Serialize;

use super::grid::{Cell, Io};

use super::super::Bench;

/// The program, as built by build.rs.
const PROGRAM: &[u8] = include_bytes!(env!("CAWL_LOCKS"));

/// Bytes of each write inside or outside the section, and of the file that they go to.
pub const WRITE: u64 = 64 << 10;
pub const FILE: u64 = 1 << 20;

/// What a thread's time went to, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Division {
    /// In writes.
    pub io: f64,
    /// Waiting for the lock, taking and releasing it.
    pub lock: f64,
    /// Ready, but without a processor.
    pub processor: f64,
    /// Computing, in the section and outside.
    pub computing: f64,
    /// Asleep, as it was told to.
    pub asleep: f64,
    /// Reading clocks, and counting.
    pub rest: f64,
}

impl Division {
    /// Adds another thread's.
    pub fn add(&mut self, other: &Division) {
        self.io += other.io;
        self.lock += other.lock;
        self.processor += other.processor;
        self.computing += other.computing;
        self.asleep += other.asleep;
        self.rest += other.rest;
    }

    /// As parts of `whole`.
    pub fn over(&self, whole: f64) -> Division {
        let Division { io, lock, processor, computing, asleep, rest } = *self;
        let [io, lock, processor, computing, asleep, rest] =
            [io, lock, processor, computing, asleep, rest].map(|part| part / whole);
        Division { io, lock, processor, computing, asleep, rest }
    }

    /// All parts, in the order of the tables.
    pub fn parts(&self) -> [f64; 6] {
        [self.io, self.lock, self.processor, self.computing, self.asleep, self.rest]
    }
}

/// A thread of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thread {
    pub sections: u64,
    /// From its first turn to its last, in seconds.
    pub wall: f64,
    #[serde(flatten)]
    pub division: Division,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub cell: Cell,
    /// From the first thread's first turn to the last one's last, in seconds.
    pub wall: f64,
    /// Processor time of all threads, in seconds.
    pub processor: f64,
    pub threads_told: Vec<Thread>,
}

impl Run {
    pub fn sections(&self) -> u64 {
        self.threads_told.iter().map(|thread| thread.sections).sum()
    }

    /// Of all threads.
    pub fn division(&self) -> Division {
        let mut all = Division::default();
        self.threads_told.iter().for_each(|thread| all.add(&thread.division));
        all
    }
}

/// A call of a thread that writes, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    pub thread: u32,
    pub file: usize,
    pub offset: u64,
    pub start: u64,
    pub duration: u64,
    /// How long it was on a processor, and how long it waited for one.
    pub ran: u64,
    pub delayed: u64,
}

/// Makes the files that the threads write over, one for each, on the disk and cached.
pub fn make_files(bench: &Bench, threads: u32) -> anyhow::Result<()> {
    for thread in 0..threads {
        Interrupted::by(bench.signal)?;
        let file = bench.scratch.file(&format!("locks-{thread}"))?;
        file.write_all_at(&vec![0; FILE as usize], 0)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Has the threads of a cell take turns for so many ms.
pub fn run(scratch: &Scratch, cell: Cell, length: u64) -> anyhow::Result<Run> {
    let bytes = if cell.io == Io::None { 0 } else { WRITE };
    let words = [
        cell.lock.name().to_owned(),
        cell.threads.to_string(),
        cell.work.name().to_owned(),
        cell.section.to_string(),
        cell.outside.name().to_owned(),
        cell.time.to_string(),
        cell.io.name().to_owned(),
        bytes.to_string(),
        length.to_string(),
    ];
    let told = told("sections", &words, &[scratch.path("")])?;
    turns(cell, &told).context(ODD)
}

/// Has `threads` threads make `calls` writes of `bytes` to these files, over parts of them or `appends`.
pub fn write(
    threads: u32,
    calls: u64,
    bytes: u64,
    appends: bool,
    direct: bool,
    files: &[PathBuf],
) -> anyhow::Result<Vec<Call>> {
    let (access, flags) = (if appends { "append" } else { "over" }, if direct { "direct" } else { "cached" });
    let words = [threads.to_string(), calls.to_string(), bytes.to_string()].into_iter();
    let words: Vec<String> = words.chain([access, flags].map(str::to_owned)).collect();
    told("writes", &words, files)?.lines().map(|line| call(line).context(ODD)).collect()
}

const ODD: &str = "the program whose threads take locks said something else";

/// What the program prints.
fn told(what: &str, words: &[String], paths: &[PathBuf]) -> anyhow::Result<String> {
    let (_program, mut command): (File, _) = embedded(c"cawl-locks", PROGRAM)?;
    let output = command
        .arg(what)
        .args(words)
        .args(paths)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .context("the program whose threads take locks cannot be run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() { output.status.to_string() } else { said.trim().to_owned() };
        bail!("the program whose threads take locks failed: {said}");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn turns(cell: Cell, text: &str) -> Option<Run> {
    let mut run = Run { cell, wall: 0.0, processor: 0.0, threads_told: Vec::new() };
    for line in text.lines() {
        if let Some(all) = line.strip_prefix("all ") {
            let [wall, processor] = numbers::<f64, 2>(all)?;
            (run.wall, run.processor) = (wall * 1e-9, processor * 1e-9);
        } else {
            let [sections, wall, io, lock, processor, computing, asleep] =
                numbers::<u64, 7>(line.strip_prefix("thread ")?)?;
            let rest = wall.saturating_sub(io + lock + processor + computing + asleep);
            let [wall, io, lock, processor, computing, asleep, rest] =
                [wall, io, lock, processor, computing, asleep, rest].map(|ns| ns as f64 * 1e-9);
            let division = Division { io, lock, processor, computing, asleep, rest };
            run.threads_told.push(Thread { sections, wall, division });
        }
    }
    (run.threads_told.len() == cell.threads as usize && run.wall > 0.0).then_some(run)
}

fn call(line: &str) -> Option<Call> {
    let [thread, file, offset, start, duration, ran, delayed] = numbers::<u64, 7>(line)?;
    Some(Call { thread: thread as u32, file: file as usize, offset, start, duration, ran, delayed })
}

fn numbers<T: FromStr, const N: usize>(text: &str) -> Option<[T; N]> {
    let all: Vec<T> = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    all.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::super::grid::{Lock, Work};
    use super::*;

    #[test]
    fn a_threads_time_is_divided_without_a_rest_that_is_lost() {
        let cell = Cell {
            threads: 2,
            lock: Lock::Mutex,
            work: Work::Computes,
            section: 30,
            outside: Work::Computes,
            time: 0,
            io: Io::None,
        };
        let text = "thread 3 1000 100 200 300 350 0\nthread 4 900 100 200 300 0 250\nall 1100 1500\n";
        let run = turns(cell, text).unwrap();
        assert_eq!((run.sections(), run.wall, run.processor), (7, 1100.0 * 1e-9, 1500.0 * 1e-9));
        for thread in &run.threads_told {
            assert!((thread.division.parts().iter().sum::<f64>() - thread.wall).abs() < 1e-12);
        }
        assert!((run.division().rest - 100e-9).abs() < 1e-12);
        let missing = text.lines().skip(1).collect::<Vec<_>>().join("\n");
        assert_eq!(turns(cell, &missing), None, "a thread is missing");
        assert_eq!(turns(cell, "thread 3 1000\n"), None);
        assert_eq!(turns(cell, "noise\n"), None);
    }

    #[test]
    fn a_call_has_all_its_numbers() {
        let told = call("1 0 4096 100 20 15 3").unwrap();
        assert_eq!((told.thread, told.offset, told.ran, told.delayed), (1, 4096, 15, 3));
        assert_eq!((call("1 0 4096 100 20 15"), call("1 0 4096 100 20 15 -3")), (None, None));
    }
}
