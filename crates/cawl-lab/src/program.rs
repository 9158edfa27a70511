//! What the commands do that have no module of their own: a disk or mount by hand, `verify`, `run`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use cawl_console::{exit, parsed, respelled, tell};
use cawl_host::limits::LoweredLimits;
use cawl_measure::interrupt::Interrupted;
use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Args, RESPELLED, Task, VerifyArgs};
use crate::emulated::Ready;
use crate::guard::missing;
use crate::net::{self, NetMount, Requests};
use crate::real;
use crate::stand::Stand;
use crate::verify::{self, Bench, Verdict};
use crate::{cmd, kernel, reader, workflow, writer};

/// Runs the command line of this process and returns its exit code.
pub fn main() -> ExitCode {
    let args = parsed(respelled(std::env::args_os(), &RESPELLED), Args::try_parse_from);
    let done = match &args.command {
        Some(Task::Experiment(args)) => cmd::experiment::experiment(args),
        Some(Task::Fit(args)) => cmd::fit::fit(args),
        Some(Task::Compare(args)) => cmd::compare::compare(args),
        Some(Task::Worth(args)) => cmd::worth::worth(args),
        Some(Task::Regress(args)) => cmd::regress::regress(args),
        Some(Task::Tune(args)) => cmd::tune::tune(args),
        Some(Task::Design(args)) => cmd::design::design(args),
        Some(Task::Workflow(args)) => cmd::workflow::workflow(args),
        Some(Task::Run { place, command }) => real::run(*place, command).map(ExitCode::from),
        Some(Task::Kernel(args)) => kernel::run(args).map(ExitCode::from),
        Some(Task::Relay { link, command }) => succeeded(real::relay(*link, command)),
        Some(Task::Verify(args)) => verify(args).map(exit::of_whole),
        Some(Task::Keep { trace, copy, names: true }) => succeeded(verify::traces::keep_names(trace, copy)),
        Some(Task::Keep { trace, copy, .. }) => succeeded(verify::traces::keep(trace, copy, |_| ())),
        Some(Task::Perform) => succeeded(workflow::task::perform()),
        Some(Task::Write(args)) => succeeded(writer::write(args)),
        Some(Task::Read(args)) => succeeded(reader::read(args)),
        Some(Task::Probe { mount, largest, rounds }) => succeeded(probe(mount, *largest, *rounds)),
        None => succeeded(serve(&args)),
    };
    done.unwrap_or_else(|error| {
        tell(format_args!("cawl-lab: {error:#}"));
        if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
            interrupted.end();
        }
        exit::of_error(&error)
    })
}

fn succeeded(done: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    done.map(|()| ExitCode::SUCCESS)
}

/// False if a check is broken.
fn verify(args: &VerifyArgs) -> anyhow::Result<bool> {
    if let [first, names @ ..] = &args.names[..]
        && first == "strangers"
    {
        return verify::strangers::verify(&verify::command_line(&std::env::current_exe()?)?, names);
    }
    let names = verify::chosen(&args.names, args.brief)?;
    if let Some(lacks) = missing() {
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

fn probe(mount: &Path, largest: usize, rounds: usize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(&net::probe(mount, largest, rounds)?)?);
    Ok(())
}
