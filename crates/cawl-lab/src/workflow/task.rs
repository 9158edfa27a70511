//! A task as a process: `cawl-lab task`, with an [`Order`] as a line of JSON on standard input, and what came
//! of it on standard output.
//!
//! The start of the process is not in the task's times.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use cawl_core::{Bytes, Nanos, Time};
use cawl_host::clock::thread_time;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};

/// What a task does.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The process that waits for it; the task ends with it.
    pub parent: i32,
    /// Files that it reads from begin to end, and their sizes.
    pub reads: Vec<(PathBuf, Bytes)>,
    /// Processor time of each of its threads.
    pub compute: Nanos,
    pub threads: u32,
    /// Files that it writes from their begin, and their sizes.
    pub writes: Vec<(PathBuf, Bytes)>,
    /// Bytes of a call.
    pub block: Bytes,
    /// Each written file is synced before it is closed.
    pub fsync: bool,
}

/// How it went; moments of CLOCK_MONOTONIC.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    pub begin: Time,
    pub end: Time,
    pub reading: Nanos,
    pub computing: Nanos,
    pub writing: Nanos,
    /// Run delay: of the first thread, and of the one of the computing threads that has the most.
    pub preempted: Nanos,
}

/// Does what standard input orders, and prints a [`Done`].
pub fn perform() -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("this is no order of a task")?;
    ensure!((1..=1 << 30).contains(&order.block.0), "a call has 1 byte to 1 GiB");
    // The parent may have ended before prctl took effect.
    ensure!(getppid().as_raw() == order.parent, "the process that started this task has ended");
    println!("{}", serde_json::to_string(&done(&order)?)?);
    Ok(())
}

fn done(order: &Order) -> anyhow::Result<Done> {
    let mut data = vec![1; order.block.0 as usize];
    let before = run_delay();
    let begin = cawl_host::now();
    for (path, size) in &order.reads {
        read(path, *size, &mut data).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let read = cawl_host::now();
    let beside = compute(order.compute, order.threads)?;
    let computed = cawl_host::now();
    for (path, size) in &order.writes {
        write(path, *size, &data, order.fsync).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let end = cawl_host::now();
    Ok(Done {
        begin,
        end,
        reading: read.since(begin),
        computing: computed.since(read),
        writing: end.since(computed),
        preempted: run_delay().saturating_sub(before) + beside,
    })
}

fn read(path: &Path, size: Bytes, data: &mut [u8]) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut left = size.0 as usize;
    while left > 0 {
        let most = left.min(data.len());
        match file.read(&mut data[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => left -= bytes,
        }
    }
    Ok(())
}

fn write(path: &Path, size: Bytes, data: &[u8], fsync: bool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let mut left = size.0 as usize;
    while left > 0 {
        let bytes = left.min(data.len());
        file.write_all(&data[..bytes])?;
        left -= bytes;
    }
    if fsync { file.sync_all() } else { Ok(()) }
}

/// Has so many threads compute, each for this processor time. Returns the longest run delay of those that are
/// not this thread.
fn compute(span: Nanos, threads: u32) -> anyhow::Result<Nanos> {
    if threads <= 1 {
        spin(span);
        return Ok(Nanos::ZERO);
    }
    let one = || {
        spin(span);
        run_delay()
    };
    std::thread::scope(|scope| {
        let started = (0..threads).map(|_| std::thread::Builder::new().spawn_scoped(scope, one));
        let started = started.collect::<io::Result<Vec<_>>>().context("cannot start threads")?;
        let mut delays = started.into_iter().map(|thread| thread.join());
        delays.try_fold(Nanos::ZERO, |most, delay| {
            Ok(most.max(delay.map_err(|_| anyhow::anyhow!("a thread panicked"))?))
        })
    })
}

/// Computes until this thread has had so much processor time more.
fn spin(span: Nanos) {
    let until = thread_time() + span;
    let mut number = 1_u64;
    while thread_time() < until {
        // Knuth's MMIX generator; some microseconds.
        for _ in 0..5000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        std::hint::black_box(number);
    }
}

/// How long this thread waited for a processor so far.
fn run_delay() -> Nanos {
    let tid = nix::unistd::gettid().as_raw() as u32;
    cawl_host::schedstat(std::process::id(), tid).map_or(Nanos::ZERO, |(_, delayed)| delayed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_computes_and_writes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, [7; 1000]).unwrap();
        let mut order = Order {
            parent: 0,
            reads: vec![(from.clone(), Bytes(1000))],
            compute: Nanos::millis(2.0),
            threads: 2,
            writes: vec![(to.clone(), Bytes(2500))],
            block: Bytes(1024),
            fsync: true,
        };
        let found = done(&order).unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().len(), 2500);
        assert!(found.computing >= Nanos::millis(2.0));
        let parts = found.reading + found.computing + found.writing;
        assert!((parts.get() - found.end.since(found.begin).get()).abs() < 1.0, "{found:?}");

        order.reads[0].1 = Bytes(1001);
        let error = format!("{:#}", done(&order).unwrap_err());
        assert!(error.contains(&format!("cannot read {}", from.display())), "{error}");
    }
}
