//! A program that does nothing but write, to be traced: `cawl-lab write`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cawl_core::Nanos;
use clap::{Args, ValueEnum};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

/// What a thread does after each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// Nothing
    None,
    /// fsync
    Fsync,
    /// The file has O_DSYNC
    Dsync,
    /// fdatasync, and the same block again: nothing to commit
    Again,
}

/// What to write.
#[derive(Args, Debug)]
pub struct WriterArgs {
    /// Folder of the files, one for each thread
    folder: PathBuf,
    /// Number of threads
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Bytes of a write
    #[arg(long)]
    block: usize,
    /// Writes of each thread at most
    #[arg(long, default_value_t = u64::MAX)]
    calls: u64,
    /// Seconds after which no write begins
    #[arg(long, default_value_t = f64::INFINITY)]
    seconds: f64,
    /// What makes the data durable
    #[arg(long, value_enum, default_value = "none")]
    sync: Sync,
}

/// What the kernel counted for a thread while it wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    /// Its number.
    pub tid: u32,
    /// How long it waited for a processor.
    pub run_delay: Nanos,
}

/// Writes, and prints a line of JSON with a [`Written`] for each thread.
pub fn write(args: &WriterArgs) -> anyhow::Result<()> {
    // The first thread of a process is looked at once more when it has ended, others are not.
    if args.threads == 1 {
        println!("{}", serde_json::to_string(&[one(args, 0)?])?);
        return Ok(());
    }
    let threads = together(args.threads as usize, |number| one(args, number))?;
    println!("{}", serde_json::to_string(&threads)?);
    Ok(())
}

/// Has so many threads work at once, each with its number.
pub(crate) fn together<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> anyhow::Result<T> + std::marker::Sync,
) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|done| done.map_err(|_| anyhow::anyhow!("a thread panicked"))?).collect()
    })
}

fn one(args: &WriterArgs, number: usize) -> anyhow::Result<Written> {
    let file = open(&args.folder, number, args.sync)?;
    let data = vec![1; args.block];
    let tid = nix::unistd::gettid().as_raw() as u32;
    let pid = std::process::id();
    let delay = || cawl_host::schedstat(pid, tid).map_or(Nanos::ZERO, |(_, delayed)| delayed);
    let (before, began) = (delay(), cawl_host::now());
    let mut offset = 0;
    for _ in 0..args.calls {
        if cawl_host::now().since(began).as_seconds() >= args.seconds {
            break;
        }
        file.write_all_at(&data, offset)?;
        match args.sync {
            Sync::None | Sync::Dsync => {}
            Sync::Fsync => file.sync_all()?,
            Sync::Again => file.sync_data()?,
        }
        if args.sync != Sync::Again {
            offset += args.block as u64;
        }
    }
    Ok(Written { tid, run_delay: delay().saturating_sub(before) })
}

fn open(folder: &Path, number: usize, sync: Sync) -> std::io::Result<File> {
    let flags = if sync == Sync::Dsync { OFlag::O_DSYNC.bits() } else { 0 };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(flags);
    options.open(folder.join(format!("written-{number}")))
}
