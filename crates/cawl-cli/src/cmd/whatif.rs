//! `whatif`: a trace's calls on paper, as they were and with changes.

mod sensitivity;

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use cawl_core::advise::Sure;
use cawl_core::{
    HostFacts, HostProfile, Ledger, Machine, Nanos, Ratio, Record, Request, Rewrite, Scenario, TraceFacts,
    WhatIf, kernel_bytes,
};
use cawl_host::trace::{TraceFile, WhenFull};

use super::apart;
use super::on_paper::{a_run, facts, learned, run_all, watched, with};
use super::saved::SavedTrace;
use crate::args::{ModelArgs, WhatIfArgs};
use crate::render::whatif::{Answer, Compared};
use crate::{exit, outputs, render};

/// What a piece of --split takes on paper, and pieces from which on this is told.
const A_PIECE: Nanos = Nanos::new(1200.0);
const MANY: u64 = 5_000_000;
pub fn whatif(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let given = &args.changes.0;
    if given.is_empty() && !args.sensitivity {
        let why = "name a change, as --fsync none or --set device.writeback=2G; `cawl-cli whatif --help` lists them";
        return Err(exit::Usage(why.to_owned()).into());
    }
    if args.sensitivity {
        return sensitivity::sensitivity(args);
    }
    let path = &args.trace;
    apart([path], args.output.as_ref())?;
    if let Some(output) = &args.output {
        outputs::check(output, &outputs::TRACE)?;
    }
    let before = Before::of(path, given, args.no_learn)?;
    let Before { base, facts, host, .. } = &before;
    let open = || open(path);
    let mut scenarios = vec![base.clone()];
    if args.each {
        for one in given {
            scenarios.push(before.after(std::slice::from_ref(one))?);
        }
    } else {
        scenarios.push(before.after(given)?);
    }
    let mut trace = open()?;
    let mut whatifs: Vec<WhatIf> = scenarios.iter().map(|one| one.begin(facts)).collect();
    if args.output.is_some() {
        whatifs.iter_mut().skip(1).for_each(WhatIf::keep);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from).min(whatifs.len());
    let expected = a_run(path) * (whatifs.len() as f64 / threads as f64) + pieces(given, open)?;
    let (mut ledgers, observed) = run_all(watched(expected, "trying changes", trace.records()), whatifs)?;
    let is_whole = trace.is_whole();
    if let (Some(path), Some(changed), Some(ledger)) = (&args.output, scenarios.get(1), ledgers.get_mut(1)) {
        write(path, host.clone(), &changed.machine.profile, std::mem::take(&mut ledger.records))?;
    }
    let (before, after) = ledgers.split_first().context("nothing was run")?;
    anyhow::ensure!(before.calls > 0, "the trace has no calls that have a cost");
    let text = |given: &[Request]| given.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join(" ");
    let compared = |given: &[Request], after: &Ledger| {
        Compared::new(text(given), after, in_words(given, (before, after), &base.machine.profile, observed))
    };
    let mut answer = Answer::new(before, observed);
    answer.notes = remarks(given);
    if args.each {
        answer.each =
            given.iter().zip(after).map(|(one, after)| compared(std::slice::from_ref(one), after)).collect();
    } else if let Some(changed) = after.first() {
        answer.after = Some(compared(given, changed));
        let mut calls = changed.changed.iter().copied();
        for one in given {
            answer.changed(&one.text, one.changes_calls().then(|| calls.next()).flatten());
        }
    }
    let printed = render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))?;
    Ok(exit::printed(printed, is_whole))
}

/// By what the calls are longer or shorter, and how sure that is, if they were timed.
fn in_words(
    given: &[Request],
    (before, after): (&Ledger, &Ledger),
    profile: &HostProfile,
    observed: f64,
) -> Option<(Ratio, Option<Sure>)> {
    let ratio = Ratio::of(before, after, profile)?;
    let seen = (before, Nanos::seconds(observed));
    // Nothing tells how right the paper is, where nothing was timed.
    let sure = (observed > 0.0).then(|| Sure::of_change(given.iter(), &ratio, profile, seen));
    Some((ratio, sure))
}

/// What is not known of changes, which is also told.
fn remarks(given: &[Request]) -> Vec<String> {
    let remarks = given.iter().filter_map(Request::remark);
    remarks.inspect(|remark| render::tell(format_args!("cawl-cli: {remark}"))).collect()
}

/// A trace as it was, on its machine.
struct Before {
    /// The calls on a machine with what they taught.
    base: Scenario,
    measured: HostProfile,
    host: Option<HostFacts>,
    facts: TraceFacts,
}

impl Before {
    fn of(path: &Path, given: &[Request], no_learn: bool) -> anyhow::Result<Before> {
        let mut trace = open(path)?;
        let (host, measured) = (trace.host().cloned(), trace.profile.clone());
        let (profile, warm) = if no_learn { (measured.clone(), false) } else { learned(&mut trace)? };
        let facts = facts(given, || open(path))?;
        let base = Scenario { machine: Machine::new(profile, warm), changes: Vec::new() };
        Ok(Before { base, measured, host, facts })
    }

    fn after(&self, given: &[Request]) -> anyhow::Result<Scenario> {
        with(&self.base, given, &self.measured, self.host.as_ref())
    }
}

fn open(path: &Path) -> anyhow::Result<SavedTrace> {
    SavedTrace::open(path, &ModelArgs::default())
}

/// Writes a changed trace of this machine.
fn write(
    path: &Path,
    host: Option<HostFacts>,
    profile: &HostProfile,
    records: Vec<Record>,
) -> anyhow::Result<()> {
    let about = || format!("cannot write the trace {}", path.display());
    let mut trace = TraceFile::create(path, WhenFull::Wait).with_context(about)?;
    let head = host.map(|host| Record::Host(Box::new(host))).into_iter();
    let head = head.chain([Record::Profile(Box::new(profile.clone()))]);
    head.chain(records).for_each(|record| trace.push(&record));
    trace.finish().map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
}

/// How long it takes to make the pieces of --split; many are told before.
fn pieces(given: &[Request], open: impl Fn() -> anyhow::Result<SavedTrace>) -> anyhow::Result<Nanos> {
    let mut most = Nanos::ZERO;
    for one in given {
        let Some(Rewrite::Split(size)) = one.rewrite() else { continue };
        let mut pieces = 0;
        for record in open()?.records() {
            if let Record::Event(event) = record? {
                pieces += kernel_bytes(&event).div_ceil(*size);
            }
        }
        let time = A_PIECE * pieces as f64;
        if pieces >= MANY {
            let count = render::compact::count(pieces);
            render::tell(format_args!(
                "cawl-cli: {} makes {count} calls, which takes about {time}",
                one.text
            ));
        }
        most = most.max(time);
    }
    Ok(most)
}
