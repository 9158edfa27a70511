//! `advise`: the changes that are worth it, of a trace or of what a daemon records.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use cawl_client::protocol::{Recorded, Recording, Request};
use cawl_client::query::{PATIENCE, ask_within};
use cawl_core::advise::{Candidate, Case, Tried, rank};
use cawl_core::{Analysis, Explain, HostProfile, Machine, Nanos, Record, Report, TraceFacts, quoted};
use cawl_measure::progress::Progress;

use super::on_paper::{LEARNED_FROM, Scenario, a_run, learning, run_all, taught, watched};
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
    let answer = advice(args, trace, None)?;
    render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))
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
    let answer = advice(args, &trace, Some(waited.as_seconds()))?;
    render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))
}

/// What the calls of a trace suggest, and what it comes to on paper. `recorded`: by a daemon, for so many
/// seconds.
fn advice(args: &AdviseArgs, path: &Path, recorded: Option<f64>) -> anyhow::Result<Answer> {
    let open = || SavedTrace::open(path, &ModelArgs::default());
    let mut trace = open()?;
    let begun = Instant::now();
    let seen = look(&mut trace, args, a_run(path))?;
    let Seen { report, profile, warm, facts, left_out } = &seen;
    if !left_out {
        trace.reader.damage().describe().into_iter().for_each(render::tell);
    }
    let machine = Machine { profile: profile.clone(), limits: None, warm: *warm };
    let once = Nanos::seconds(begun.elapsed().as_secs_f64() / 2.0);
    let run = |scenarios: Vec<Scenario>| -> anyhow::Result<_> {
        let expected = once * scenarios.len() as f64;
        let mut trace = open()?;
        let whatifs = scenarios.iter().map(|one| one.begin(facts)).collect();
        run_all(watched(expected, "trying changes", first(trace.records(), args.calls)), whatifs)
    };
    let case = Case::new(report, profile);
    let mut candidates = case.candidates();
    let base = Scenario { machine, changes: Vec::new() };
    let scenarios = |of: &[Candidate]| -> anyhow::Result<Vec<Scenario>> {
        of.iter().map(|one| base.with(&one.requests, &trace.profile, report.host.as_ref())).collect()
    };
    let all = [vec![base.clone()], scenarios(&candidates)?].concat();
    let (ledgers, observed) = run(all)?;
    let mut ledgers = ledgers.into_iter();
    let before = ledgers.next().context("nothing was run")?;
    anyhow::ensure!(before.calls > 0, "the trace has no calls that have a cost");
    anyhow::ensure!(
        observed > 0.0,
        "the trace has no durations, so that nothing tells where time was lost: record them (strace -T), or \
         predict single changes with `cawl-cli whatif`"
    );
    let mut tried: Vec<Tried> = Vec::new();
    loop {
        let pairs = std::mem::take(&mut candidates).into_iter().zip(ledgers);
        tried.extend(pairs.map(|(candidate, after)| Tried { candidate, after }));
        // Combinations are tried once.
        candidates = if tried.iter().any(Tried::is_combined) {
            Vec::new()
        } else {
            case.combinations(&before, &tried)
        };
        if candidates.is_empty() {
            break;
        }
        ledgers = run(scenarios(&candidates)?)?.0.into_iter();
    }
    let explain = report.explain.as_ref().context("the report has no causes")?;
    let observed = Nanos::seconds(observed);
    let advice = rank(&before, observed, profile, &tried);
    let least = tried.iter().map(|one| one.after.total).fold(before.total, Nanos::min);
    let trace = if recorded.is_some() { "TRACE".to_owned() } else { quoted(&path.display().to_string()) };
    let mut answer = Answer::new(explain, &before, observed, advice, (tried.len() as u64, least), trace);
    answer.first_calls = args.calls.filter(|_| *left_out);
    answer.recorded_s = recorded;
    answer.notes.extend(stragglers(explain));
    Ok(answer)
}

/// What a first look at the calls found.
struct Seen {
    report: Report,
    /// The trace's profile, with what its calls teach.
    profile: HostProfile,
    /// Its calls tell that memory came warm.
    warm: bool,
    facts: TraceFacts,
    /// There are more calls than were to be looked at.
    left_out: bool,
}

fn look(trace: &mut SavedTrace, args: &AdviseArgs, expected: Nanos) -> anyhow::Result<Seen> {
    let mut analysis = Analysis::with(&trace.profile, &learning(!args.no_learn))?;
    let (mut facts, mut calls, mut learned) = (TraceFacts::default(), 0, None);
    for record in watched(expected, "looking for patterns", trace.records()) {
        let record = record?;
        analysis.take(&record);
        facts.take(&record);
        calls += u64::from(matches!(record, Record::Event(_)));
        if calls == LEARNED_FROM && learned.is_none() {
            learned = Some(taught(&analysis));
        }
        if args.calls.is_some_and(|most| calls > most) {
            break;
        }
    }
    let (profile, warm) = match args.no_learn {
        true => (trace.profile.clone(), false),
        false => learned.unwrap_or_else(|| taught(&analysis)),
    };
    let left_out = args.calls.is_some_and(|most| calls > most);
    Ok(Seen { report: analysis.report(), profile, warm, facts, left_out })
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
