//! `whatif`: a trace's calls on paper, as they were and with changes.

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use cawl_core::advise::Sure;
use cawl_core::{
    Effect, HostFacts, HostProfile, Ledger, Machine, Nanos, Ratio, Record, Request, Rewrite, Scenario,
    WhatIf, kernel_bytes,
};
use cawl_host::trace::{TraceFile, WhenFull};

use super::are_same;
use super::on_paper::{a_run, facts, learned, run_all, watched, with};
use super::saved::SavedTrace;
use crate::args::{ModelArgs, WhatIfArgs};
use crate::render::whatif::{Answer, Compared, Sensitivity};
use crate::{exit, outputs, render};

/// What a piece of --split takes on paper, and pieces from which on this is told.
const A_PIECE: Nanos = Nanos::new(1200.0);
const MANY: u64 = 5_000_000;
/// By how much a constant is another one for `--sensitivity`.
const STEP: f64 = 1.1;

pub fn whatif(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let given = &args.changes.0;
    if given.is_empty() && !args.sensitivity {
        let why = "name a change, as --fsync none or --set device.writeback=2G; `cawl-cli whatif --help` lists them";
        return Err(exit::Usage(why.to_owned()).into());
    }
    let sets = |of: fn(&Effect) -> bool| given.iter().any(|one| of(&one.effect));
    if !args.each
        && sets(|effect| matches!(effect, Effect::Limits(_)))
        && sets(|effect| matches!(effect, Effect::Ratios(_) | Effect::Ram(_)))
    {
        let why = "--limits says what --dirty-ratio and --ram would compute; give the one or the other";
        return Err(exit::Usage(why.to_owned()).into());
    }
    if let Some(path) = &args.output {
        exit::usage(!are_same(&args.trace, path), || {
            format!("the changed trace would overwrite {}; name another file with -o", path.display())
        })?;
        outputs::check(path, &outputs::TRACE)?;
    }
    let open = || SavedTrace::open(&args.trace, &ModelArgs::default());
    let mut trace = open()?;
    let host = trace.host().cloned();
    let (profile, warm) = if args.no_learn { (trace.profile.clone(), false) } else { learned(&mut trace)? };
    let facts = facts(given, open)?;
    let base = Scenario { machine: Machine { profile, limits: None, warm }, changes: Vec::new() };
    let measured = trace.profile.clone();
    let after = |given: &[Request]| with(&base, given, &measured, host.as_ref());
    let mut scenarios = vec![base.clone()];
    let mut names = Vec::new();
    if args.sensitivity {
        let changed = after(given)?;
        let constants = changed.machine.profile.constants();
        scenarios.push(changed.clone());
        for (name, value) in constants {
            // A part of something cannot be more than all of it.
            let with = |factor: f64| {
                let profile = changed.machine.profile.with_value(&name, value * factor);
                profile.map(|profile| (factor, profile))
            };
            let Ok((factor, profile)) = with(STEP).or_else(|_| with(1.0 / STEP)) else { continue };
            scenarios.push(Scenario {
                machine: Machine { profile, ..changed.machine.clone() },
                ..changed.clone()
            });
            names.push((name, factor));
        }
    } else if args.each {
        for one in given {
            scenarios.push(after(std::slice::from_ref(one))?);
        }
    } else {
        scenarios.push(after(given)?);
    }
    let mut trace = open()?;
    let mut whatifs: Vec<WhatIf> = scenarios.iter().map(|one| one.begin(&facts)).collect();
    if args.output.is_some() {
        whatifs.iter_mut().skip(1).for_each(WhatIf::keep);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from).min(whatifs.len());
    let expected = a_run(&args.trace) * (whatifs.len() as f64 / threads as f64) + pieces(given, open)?;
    let (mut ledgers, observed) = run_all(watched(expected, "trying changes", trace.records()), whatifs)?;
    trace.reader.damage().describe().into_iter().for_each(render::tell);
    if let (Some(path), Some(changed), Some(ledger)) = (&args.output, scenarios.get(1), ledgers.get_mut(1)) {
        write(path, host, &changed.machine.profile, std::mem::take(&mut ledger.records))?;
    }
    let (before, after) = ledgers.split_first().context("nothing was run")?;
    anyhow::ensure!(before.calls > 0, "the trace has no calls that have a cost");
    let text = |given: &[Request]| given.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join(" ");
    let profile = &base.machine.profile;
    let seen = (before, Nanos::seconds(observed));
    let compared = |given: &[Request], after: &Ledger| {
        let ratio = Ratio::of(before, after, profile);
        // Nothing tells how right the paper is, where nothing was timed.
        let ratio = ratio.map(|ratio| {
            (ratio, (observed > 0.0).then(|| Sure::of_change(given.iter(), &ratio, profile, seen)))
        });
        Compared::new(text(given), after, ratio)
    };
    for one in given {
        if let Effect::Release(release) = one.effect {
            release.remark().iter().for_each(|remark| render::tell(format_args!("cawl-cli: {remark}")));
        }
    }
    let mut answer = Answer::new(before, observed);
    if args.each {
        answer.each =
            given.iter().zip(after).map(|(one, after)| compared(std::slice::from_ref(one), after)).collect();
    } else if let Some((changed, others)) = after.split_first() {
        answer.after = Some(compared(given, changed));
        let mut calls = changed.changed.iter().copied();
        for one in given {
            answer.changed(&one.text, one.changes_calls().then(|| calls.next()).flatten());
        }
        let effect = |((name, factor), other): ((String, f64), &Ledger)| {
            Sensitivity::new(name, factor, changed, other)
        };
        answer.sensitivity = names.into_iter().zip(others).map(effect).collect();
        answer.sensitivity.sort_by(|a, b| b.effect.abs().total_cmp(&a.effect.abs()));
    }
    render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))
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
