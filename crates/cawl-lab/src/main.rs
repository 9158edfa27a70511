//! `cawl-lab`: an emulated disk or network mount by hand, until Ctrl-C; `cawl-lab verify`: what only a
//! machine can show.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::Bytes;
use cawl_host::emulated::Ready;
use cawl_host::limits::LoweredLimits;
use cawl_lab::reader::{self, ReaderArgs};
use cawl_lab::real::{self, Link, Place};
use cawl_lab::verify::{self, Bench, Verdict};
use cawl_lab::writer::{self, WriterArgs};
use cawl_lab::{Filesystem, NetMount, NetSpec, Requests, Stand};
use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Brings up a disk or a network mount of given speed under this machine's page cache; Ctrl-C takes it down.
///
/// Prints where it is mounted and which block device it is. Needs root and /dev/fuse; a disk also losetup
/// and mkfs.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Task>,
    /// ssd, hdd, nvme, or BW,LAT,SEEK,FLUSH in MB/s, µs, ms, ms, then read=, depth=, cache=, size= and
    /// stall=; none for lowered limits only
    #[arg(long, default_value = "ssd")]
    disk: String,
    /// A network mount instead: LATENCY,BANDWIDTH as in 150us,100MB/s, then policy=none, read-only,
    /// write-through or write-back, request=4K to 1M (128K) and size=GIB
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["disk", "filesystem"])]
    net: Option<NetSpec>,
    /// What to make on it
    #[arg(long, value_enum, default_value = "ext4")]
    filesystem: Filesystem,
    /// Lower the kernel's dirty limits meanwhile, background and hard, in bytes
    #[arg(long, value_name = "BACKGROUND,HARD", value_parser = limits)]
    limits: Option<(Bytes, Bytes)>,
    /// Print one line of JSON when ready, and go when standard input ends
    #[arg(long)]
    supervised: bool,
}

#[derive(Subcommand)]
enum Task {
    /// Measures what should be as the disks and the model say, and prints a table
    ///
    /// Exit code 1 if something is broken; figures outside their tolerance are `slow` and fail nothing.
    Verify(VerifyArgs),
    /// Does nothing but write, to be traced; prints what the kernel counted for each thread
    Write(WriterArgs),
    /// Does nothing but read blocks of a file at random places, to be traced
    Read(ReaderArgs),
    /// Runs a command on a network filesystem, with the mount as its working directory; nothing is left of it
    ///
    /// The exit code is the command's. NFS is mounted in user-mode-linux, whose root is this machine's; the
    /// command's output comes when it has ended.
    Run {
        /// sshfs or nfs, then LATENCY,BANDWIDTH as in sshfs,150us,100MB/s; or an emulated mount as of --net
        place: Place,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Copies a trace, with what the analysis needs and without names of this machine, to be kept
    Keep {
        trace: PathBuf,
        copy: PathBuf,
        /// With the last part of each file's name, and what is known of the filesystems
        #[arg(long)]
        names: bool,
    },
    /// Connects with a command, delayed, for ssh
    #[command(hide = true)]
    Relay {
        link: Link,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Measures requests to a mount that does not pace yet, for the process that serves it
    #[command(hide = true)]
    Probe { mount: PathBuf, largest: usize, rounds: usize },
}

#[derive(Parser)]
struct VerifyArgs {
    /// Checks whose names begin like this; all if none is given; or `strangers`, then programs, groups or
    /// roots of its table
    names: Vec<String>,
    /// How often each is made; its median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// The shortest checks, once
    #[arg(long, conflicts_with = "repeats")]
    brief: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write recordings of writers into this folder
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
}

fn limits(text: &str) -> Result<(Bytes, Bytes), String> {
    let both = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    both.map(|(background, hard)| (Bytes(background), Bytes(hard)))
        .ok_or_else(|| "give two numbers of bytes, as in 67108864,134217728".to_owned())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Some(Task::Run { place, command }) => match run(*place, command) {
            Ok(code) => return code.into(),
            Err(error) => Err(error),
        },
        Some(Task::Relay { link, command }) => real::relay(*link, command).map(|()| true),
        Some(Task::Verify(args)) => verify(args),
        Some(Task::Keep { trace, copy, names: true }) => {
            verify::causes::keep_names(trace, copy).map(|()| true)
        }
        Some(Task::Keep { trace, copy, .. }) => verify::causes::keep(trace, copy, |_| ()).map(|()| true),
        Some(Task::Write(args)) => writer::write(args).map(|()| true),
        Some(Task::Read(args)) => reader::read(args).map(|()| true),
        Some(Task::Probe { mount, largest, rounds }) => probe(mount, *largest, *rounds).map(|()| true),
        None => serve(&args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cawl-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False if a check is broken.
fn verify(args: &VerifyArgs) -> anyhow::Result<bool> {
    if let [first, names @ ..] = &args.names[..]
        && first == "strangers"
    {
        return verify::strangers::verify(&verify::command_line(&std::env::current_exe()?)?, names);
    }
    let names = verify::chosen(&args.names, args.brief)?;
    if let Some(lacks) = cawl_lab::missing() {
        eprintln!("SKIPPED: cawl-lab verify: {lacks}");
        return Ok(true);
    }
    LoweredLimits::put_back_left()?;
    verify::causes::mount_tracefs()?;
    let lab = std::env::current_exe()?;
    let bench = Bench { cli: verify::command_line(&lab)?, lab, record: args.record.clone() };
    let repeats = if args.brief { 1 } else { args.repeats as usize };
    let mut rows = Vec::new();
    if !args.json {
        println!("{}", verify::HEADER);
    }
    for name in names {
        for row in verify::verify(&bench, name, repeats)? {
            if !args.json {
                println!("{}", row.line());
            }
            rows.push(row);
        }
    }
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        let [ok, slow, broken] = [Verdict::Ok, Verdict::Slow, Verdict::Broken].map(count);
        println!("\n{ok} ok, {slow} slow, {broken} broken; medians of {repeats}");
    }
    Ok(count(Verdict::Broken) == 0)
}

fn serve(args: &Args) -> anyhow::Result<()> {
    // From here on signals do not end the process but the waiting below; the guards then do their work.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    let _limits = match args.limits {
        Some((background, hard)) => Some(LoweredLimits::lower(background, hard, || true)?),
        None => None,
    };
    let served = match (args.net, args.disk.as_str()) {
        (Some(spec), _) => {
            let program = std::env::current_exe()?;
            Served::Net(NetMount::bring_up(&program, spec).context("the network mount did not come up")?)
        }
        (None, "none") => Served::Nothing,
        (None, disk) => {
            Served::Disk(Stand::bring_up(disk.parse()?, args.filesystem).context("the disk did not come up")?)
        }
    };
    announce(args, &served)?;
    if args.supervised {
        std::thread::spawn(move || {
            // Whatever arrives means nothing; the end means that nobody needs the disk any more.
            drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
            handle.close();
        });
    }
    signals.forever().next();
    Ok(())
}

/// What runs until the end.
enum Served {
    Disk(Stand),
    Net(NetMount),
    Nothing,
}

fn announce(args: &Args, served: &Served) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (ready, overhead) = match served {
        Served::Disk(stand) => {
            let ready =
                Ready { mount: stand.mount_point(), device: stand.device().into(), ..Ready::default() };
            (ready, stand.overhead())
        }
        Served::Net(mount) => (Ready { mount: mount.mount_point(), ..Ready::default() }, mount.overhead()),
        Served::Nothing => Default::default(),
    };
    if args.supervised {
        serde_json::to_writer(&mut out, &Ready { floor: overhead.write.0, ..ready })?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    let at = ready.mount.display();
    match (served, &args.net) {
        (Served::Disk(_), _) => {
            writeln!(out, "{} on {}, mounted at {at}", args.disk, ready.device.display())?;
            writeln!(out, "without pacing: {overhead}, flush {}", overhead.flush)?;
        }
        (Served::Net(_), Some(spec)) => {
            writeln!(out, "{spec}, mounted at {at}, requests counted in {at}/{}", Requests::FILE)?;
            writeln!(out, "overhead: {overhead}, without data {}", overhead.flush)?;
            if overhead.write.0 > spec.latency {
                writeln!(out, "the latency here is at least {}", overhead.write.0)?;
            }
        }
        _ => {}
    }
    Ok(out.flush()?)
}

fn run(place: Place, command: &[OsString]) -> anyhow::Result<u8> {
    real::run(&std::env::current_exe()?, place, command)
}

fn probe(mount: &Path, largest: usize, rounds: usize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(&cawl_lab::probe(mount, largest, rounds)?)?);
    Ok(())
}
