//! Runs the program whose threads take locks and write (locks.c), and reads what it says.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;

use anyhow::{Context, bail};
use cawl_measure::embedded::embedded;
use cawl_measure::scratch::Scratch;

use super::{Cell, Division, Io, Run, Thread, WRITE};

/// The program, as built by build.rs.
const PROGRAM: &[u8] = include_bytes!(env!("CAWL_LOCKS"));

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

/// Has the threads of a cell take turns for so many ms.
pub(super) fn turns(scratch: &Scratch, cell: Cell, length: u64) -> anyhow::Result<Run> {
    let Cell { threads, lock, work, section, outside, time, io } = cell;
    let bytes = if io == Io::None { 0 } else { WRITE };
    let [lock, work, outside, io] = [lock.name(), work.name(), outside.name(), io.name()];
    let words = format!("{lock} {threads} {work} {section} {outside} {time} {io} {bytes} {length}");
    let told = output_of("sections", &words, &[scratch.path("")])?;
    run(cell, &told).context(ODD)
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
    let words = format!("{threads} {calls} {bytes} {access} {flags}");
    output_of("writes", &words, files)?.lines().map(|line| call(line).context(ODD)).collect()
}

const ODD: &str = "the program whose threads take locks said something else";

/// What the program prints.
fn output_of(what: &str, words: &str, paths: &[PathBuf]) -> anyhow::Result<String> {
    let (_program, mut command): (File, _) = embedded(c"cawl-locks", PROGRAM)?;
    let output = command
        .arg(what)
        .args(words.split(' '))
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

fn run(cell: Cell, text: &str) -> Option<Run> {
    let mut run = Run { cell, wall: 0.0, processor: 0.0, threads_told: Vec::new() };
    for line in text.lines() {
        if let Some(all) = line.strip_prefix("all ") {
            [run.wall, run.processor] = numbers::<f64, 2>(all)?.map(|ns| ns * 1e-9);
        } else {
            let [sections, wall, parts @ ..] = numbers::<u64, 7>(line.strip_prefix("thread ")?)?;
            let rest = wall.saturating_sub(parts.iter().sum());
            let [io, lock, processor, computing, asleep] = parts;
            let parts = [io, lock, processor, computing, asleep, rest].map(|ns| ns as f64 * 1e-9);
            run.threads_told.push(Thread { sections, wall: wall as f64 * 1e-9, division: Division(parts) });
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
    use super::super::{NOTHING, plain};
    use super::*;

    #[test]
    fn a_threads_time_is_divided_without_a_rest_that_is_lost() {
        let cell = plain(2, 30, NOTHING);
        let text = "thread 3 1000 100 200 300 350 0\nthread 4 900 100 200 300 0 250\nall 1100 1500\n";
        let told = run(cell, text).unwrap();
        assert_eq!((told.sections(), told.wall, told.processor), (7, 1100.0 * 1e-9, 1500.0 * 1e-9));
        for thread in &told.threads_told {
            assert!((thread.division.0.iter().sum::<f64>() - thread.wall).abs() < 1e-12);
        }
        assert!((told.division().0[5] - 100e-9).abs() < 1e-12);
        let missing = text.lines().skip(1).collect::<Vec<_>>().join("\n");
        assert_eq!(run(cell, &missing), None, "a thread is missing");
        assert_eq!(run(cell, "thread 3 1000\n"), None);
        assert_eq!(run(cell, "noise\n"), None);
    }

    #[test]
    fn a_call_has_all_its_numbers() {
        let told = call("1 0 4096 100 20 15 3").unwrap();
        assert_eq!((told.thread, told.offset, told.ran, told.delayed), (1, 4096, 15, 3));
        assert_eq!((call("1 0 4096 100 20 15"), call("1 0 4096 100 20 15 -3")), (None, None));
    }
}
