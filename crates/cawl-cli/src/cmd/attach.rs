//! `attach`: follows programs that run already, by probes in the kernel, and reports at the end.

use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use cawl_client::protocol::RunEnd;
use cawl_core::Nanos;
use cawl_host::place::Place;
use cawl_host::target::Name;
use cawld::kernel::Target;
use tokio::signal::unix::SignalKind;

use super::recording::{self, Backend};
use crate::args::AttachArgs;
use crate::interrupt::Stop;
use crate::meet::Devices;
use crate::{group, render};

/// Attaches, and reports once it is told to end, or nothing is left to follow.
pub fn attach(args: &AttachArgs) -> anyhow::Result<ExitCode> {
    let runtime = recording::runtime()?;
    let ended = runtime.block_on(follow(args));
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn follow(args: &AttachArgs) -> anyhow::Result<()> {
    recording::check(&args.record)?;
    let names = args.target.names();
    let (target, processes) = find(&names)?;
    let told = in_words(&names, &processes);
    let mut spec = recording::spec(&args.record, told.clone())?;
    let mut notes: Vec<String> = recording::only(&args.record).into_iter().collect();
    let devices = Devices::of_processes(&processes);
    let chosen = devices.profile();
    if args.record.model.profile.is_none() {
        notes.extend(devices.unmeasured(&chosen.unmet).map(unmeasured));
        notes.extend(chosen.note);
    }
    let limits = chosen.profile.kernel.limits;
    let (group, said) = group::bounds(group::of_all(&processes), devices.places(), limits);
    spec.group = group;
    notes.extend(said);
    let mut stop = Stop::from_now(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])?;
    let keeper = chosen.keeper.filter(|_| !args.record.no_save);
    let backend = Backend::start(None, spec, chosen.profile, keeper, &mut notes).await?;
    let probes = match backend.attach(target).await {
        Ok(probes) => probes,
        Err(error) => {
            backend.abandon().await;
            recording::forget(&args.record);
            return Err(error);
        }
    };
    if target_is_gone(&names, &processes) {
        drop(recording::detach(probes, &stop).await);
        backend.abandon().await;
        recording::forget(&args.record);
        bail!("{} has ended before the probes were attached", render::shown(&told));
    }
    let terminal = std::io::stderr().is_terminal();
    render::tell(format_args!("attached to {}; {}", render::shown(&told), end(args.span)));
    let span = async {
        match args.span {
            Some(span) => tokio::time::sleep(Duration::from_nanos(span.get() as u64)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = probes.first.ended() => {}
        () = span => {}
        // The terminal has written ^C on a line of its own.
        () = stop.asked() => if terminal { render::tell(format_args!("")) },
    }
    notes.extend(recording::detach(probes, &stop).await);
    let end = RunEnd { outcome: None, notes, running: Vec::new() };
    recording::deliver(backend.finish(end, &mut stop).await?, &args.record, false)
}

/// True if only processes were named, and none of them is left.
fn target_is_gone(names: &[Name], processes: &[u32]) -> bool {
    names.iter().all(|name| matches!(name, Name::Process(_)))
        && !processes.iter().any(|pid| cawl_host::is_running(*pid))
}

/// What the names stand for, and all its processes.
fn find(names: &[Name]) -> anyhow::Result<(Target, Vec<u32>)> {
    let (mut target, mut all) = (Target::default(), BTreeSet::new());
    for name in names {
        let found = name.find()?;
        if found.groups.is_empty() {
            target.processes.extend(&found.processes);
        }
        target.cgroups.extend(found.groups);
        all.extend(found.processes);
    }
    Ok((target, all.into_iter().collect()))
}

/// What is followed, in words: `postgres (4711) and 6 more processes`.
fn in_words(names: &[Name], processes: &[u32]) -> String {
    // The first process that was named, else one that no other of them made.
    let named = names.iter().find_map(|name| if let Name::Process(pid) = name { Some(*pid) } else { None });
    let made = |pid: &&u32| processes.contains(&cawl_host::parent(**pid));
    let oldest = processes.iter().find(|pid| !made(pid)).or(processes.first());
    let Some(first) = named.or(oldest.copied()) else { return String::new() };
    let name = fs::read_to_string(format!("/proc/{first}/comm")).unwrap_or_default();
    let first = format!("{} ({first})", name.trim_end());
    match processes.len() - 1 {
        0 => first,
        1 => format!("{first} and 1 more process"),
        more => format!("{first} and {more} more processes"),
    }
}

/// When the report comes.
fn end(span: Option<Nanos>) -> String {
    match span {
        None => "Ctrl-C ends it and prints the report".to_owned(),
        Some(span) => format!("the report comes in {span}, or at Ctrl-C"),
    }
}

fn unmeasured(place: &Place) -> String {
    let folder = place.folder.to_string_lossy();
    format!(
        "the mount {} ({}) is not measured, so its speeds are defaults: run 'cawl-cli calibrate {folder}' once, while \
         little is written there",
        place.mount, place.filesystem
    )
}
