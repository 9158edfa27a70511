//! `advise`: the changes that are worth it, of a trace or of what a daemon records.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use cawl_client::protocol::{Recorded, Recording, Request};
use cawl_client::query::{PATIENCE, ask_within};
use cawl_core::advise::{Look, Looked, search};
use cawl_core::{Explain, Nanos, Record, Scenario, quoted};
use cawl_measure::progress::Progress;

use super::on_paper::{a_run, run_all, watched};
use super::saved::SavedTrace;
use crate::args::{AdviseArgs, ModelArgs};
use crate::render::advise::Answer;
use crate::{exit, render};

/// The state folder of cawld's service.
const SERVICE: &str = "/var/lib/cawl";
/// Interval of the progress while a daemon records.
const TICK: Duration = Duration::from_millis(100);

pub fn advise(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let Some(trace) = &args.trace else { return of_daemon(args) };
    tell(args, advice(args, trace, None)?)
}

fn of_daemon(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let neither = || exit::Usage("name a trace, or the socket of a running cawld with --socket".to_owned());
    let socket = args.socket.as_deref().ok_or_else(neither)?;
    // A service sees its own folder, if not this user's.
    let service = Path::new(SERVICE);
    let folder = tempfile::Builder::new().prefix("cawl-advise").tempdir_in(service);
    let folder = folder.or_else(|_| tempfile::Builder::new().prefix("cawl-advise").tempdir());
    let folder = folder.context("cannot make a folder for the recorded calls")?;
    let trace = folder.path().join("calls.trace");
    let request = Request::Record(Recording { trace: trace.clone(), for_s: args.span.as_seconds() });
    let mut progress = Progress::new(args.span);
    let (answered, recorded) = channel();
    let (path, limit) = (socket.to_owned(), PATIENCE + Duration::from_secs_f64(args.span.as_seconds()));
    thread::spawn(move || drop(answered.send(ask_within::<Recorded>(&path, &request, limit))));
    progress.begin("recording");
    let recorded = loop {
        match recorded.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => progress.show(),
            other => break other.context("the question was lost")?,
        }
    };
    drop(progress);
    let Recorded { calls, .. } = recorded?;
    let waited = args.span;
    anyhow::ensure!(
        calls > 0,
        "no program that reports to this daemon made a call in {waited}; try a longer --for"
    );
    tell(args, advice(args, &trace, Some(waited.as_seconds()))?)
}

fn tell(args: &AdviseArgs, (answer, is_whole): (Answer, bool)) -> anyhow::Result<ExitCode> {
    let printed = render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))?;
    Ok(exit::printed(printed, is_whole))
}

/// What the calls of a trace suggest, and what it comes to on paper. `recorded`: by a daemon, for so many
/// seconds. False if not all of the trace could be read.
fn advice(args: &AdviseArgs, path: &Path, recorded: Option<f64>) -> anyhow::Result<(Answer, bool)> {
    let open = || SavedTrace::open(path, &ModelArgs::default());
    let mut trace = open()?;
    let begun = Instant::now();
    let (looked, left_out) = first_pass(&mut trace, args, a_run(path))?;
    // Of a trace that was not read to its end it is not known.
    let is_whole = left_out || trace.is_whole();
    let once = Nanos::seconds(begun.elapsed().as_secs_f64() / 2.0);
    let run = |scenarios: Vec<Scenario>| -> anyhow::Result<_> {
        let expected = once * scenarios.len() as f64;
        let mut trace = open()?;
        let whatifs = scenarios.iter().map(|one| one.begin(&looked.facts)).collect();
        run_all(watched(expected, "trying changes", first(trace.records(), args.calls)), whatifs)
    };
    let found = search(&looked, run)?;
    let explain = looked.report.explain.as_ref().context("the report has no causes")?;
    let trace = if recorded.is_some() { "TRACE".to_owned() } else { quoted(&path.display().to_string()) };
    let mut answer = Answer::new(found, looked.report.span_s, trace);
    answer.first_calls = args.calls.filter(|_| left_out);
    answer.recorded_s = recorded;
    answer.notes.extend(stragglers(explain));
    Ok((answer, is_whole))
}

/// A first look at the calls, and whether there are more than were to be looked at.
fn first_pass(trace: &mut SavedTrace, args: &AdviseArgs, expected: Nanos) -> anyhow::Result<(Looked, bool)> {
    let mut look = Look::new(&trace.profile, !args.no_learn)?;
    for record in watched(expected, "looking for patterns", trace.records()) {
        look.take(&record?);
        if args.calls.is_some_and(|most| look.calls() > most) {
            break;
        }
    }
    let left_out = args.calls.is_some_and(|most| look.calls() > most);
    Ok((look.finish(), left_out))
}

/// Records up to so many calls.
fn first(
    records: impl Iterator<Item = anyhow::Result<Record>> + Send,
    most: Option<u64>,
) -> impl Iterator<Item = anyhow::Result<Record>> + Send {
    let mut calls = 0;
    records.take_while(move |record| {
        calls += u64::from(matches!(record, Ok(Record::Event(_))));
        most.is_none_or(|most| calls <= most)
    })
}

/// The ranks that others wait for: no change of a call helps there.
fn stragglers(explain: &Explain) -> Option<String> {
    let others: Vec<f64> =
        explain.ranks.iter().filter(|rank| !rank.straggler).map(|rank| rank.calls_s).collect();
    let slowest =
        explain.ranks.iter().filter(|rank| rank.straggler).map(|rank| rank.calls_s).fold(0.0, f64::max);
    let typical = cawl_core::median(&others)?;
    let named: Vec<String> = explain.stragglers.iter().map(u32::to_string).collect();
    let waited = slowest - typical;
    (!named.is_empty() && waited > 0.0).then(|| {
        let [slowest, typical, waited] = [slowest, typical, waited].map(Nanos::seconds);
        let ranks = named.join(", ");
        format!(
            "rank {ranks} takes up to {slowest} in calls, the others {typical} (median): where these wait for it, \
             {waited} of each is lost; divide the data evenly"
        )
    })
}
