//! `cawl-lab`: an emulated disk by hand, until Ctrl-C.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::Bytes;
use cawl_host::limits::LoweredLimits;
use cawl_lab::{Filesystem, Ready, Stand};
use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Brings up a disk of given speed under the page cache of this machine; Ctrl-C takes it down.
///
/// Prints where it is mounted and which block device it is. Needs root, /dev/fuse, losetup and mkfs.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// ssd, hdd, nvme, or BW,LAT,SEEK,FLUSH in MB/s, µs, ms, ms, then read=, depth=, cache= and size=;
    /// none for lowered limits only
    #[arg(long, default_value = "ssd")]
    disk: String,
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

fn limits(text: &str) -> Result<(Bytes, Bytes), String> {
    let both = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    both.map(|(background, hard)| (Bytes(background), Bytes(hard)))
        .ok_or_else(|| "give two numbers of bytes, as in 67108864,134217728".to_owned())
}

fn main() -> ExitCode {
    match serve(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cawl-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args) -> anyhow::Result<()> {
    // From here on signals do not end the process but the waiting below; the guards then do their work.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    let _limits = match args.limits {
        Some((background, hard)) => Some(LoweredLimits::lower(background, hard, || true)?),
        None => None,
    };
    let stand = match args.disk.as_str() {
        "none" => None,
        disk => Some(Stand::bring_up(disk.parse()?, args.filesystem).context("the disk did not come up")?),
    };
    announce(args, stand.as_ref())?;
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

fn announce(args: &Args, stand: Option<&Stand>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let ready = stand.map_or_else(Ready::default, |stand| Ready {
        mount: stand.mount_point(),
        device: stand.device().to_owned(),
        floor: stand.overhead().write.0,
    });
    if args.supervised {
        serde_json::to_writer(&mut out, &ready)?;
        writeln!(out)?;
    } else if let Some(stand) = stand {
        let overhead = stand.overhead();
        writeln!(out, "{} on {}, mounted at {}", args.disk, ready.device.display(), ready.mount.display())?;
        writeln!(
            out,
            "without pacing: write {} + {:.3} ns/B, read {} + {:.3} ns/B, flush {}",
            overhead.write.0, overhead.write.1, overhead.read.0, overhead.read.1, overhead.flush
        )?;
    }
    Ok(out.flush()?)
}
