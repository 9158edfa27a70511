//! `whatif --sensitivity`: which part of the machine matters, over the traces of one program or of a fleet.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;

use cawl_core::advise::Sure;
use cawl_core::{Ledger, Part, Ratio, Scenario};

use super::{Before, in_words, open, pieces, remarks};
use crate::args::WhatIfArgs;
use crate::cmd::on_paper::{a_run, run_all, watched};
use crate::render::whatif::{Answer, Compared, Sensitivity, SensitivityOfPart};
use crate::{exit, render};

/// By how much a constant or part is another one.
const STEP: f64 = 1.1;

/// Sums over the traces.
#[derive(Default)]
struct Sums {
    observed: f64,
    before: Ledger,
    /// With the changes that were given.
    changed: Ledger,
    /// With each part changed, too.
    parts: [Ledger; Part::ALL.len()],
    /// What each constant adds to the time in calls, in ns, when it is larger by this factor.
    constants: BTreeMap<String, (f64, f64)>,
    /// What the changes do to one trace.
    told: Option<(Ratio, Option<Sure>)>,
}

pub fn sensitivity(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    let given = &args.changes.0;
    let mut sums = Sums::default();
    let mut is_whole = true;
    let traces: Vec<_> = std::iter::once(&args.trace).chain(&args.also).collect();
    for path in &traces {
        let before = Before::of(path, given, args.no_learn)?;
        let changed = before.after(given)?;
        let of = |machine| Scenario { machine, changes: changed.changes.clone() };
        let parts = Part::ALL.map(|part| of(part.scaled(&changed.machine, STEP)));
        let (names, constants): (Vec<_>, Vec<_>) = constants(&changed).into_iter().unzip();
        let scenarios = [before.base.clone(), changed].into_iter().chain(parts).chain(constants);
        let whatifs: Vec<_> = scenarios.map(|one| one.begin(&before.facts)).collect();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(whatifs.len());
        let each = a_run(path) * (whatifs.len() as f64 / threads as f64);
        let mut trace = open(path)?;
        let expected = each + pieces(given, || open(path))?;
        let (ledgers, observed) = run_all(watched(expected, "changing parts", trace.records()), whatifs)?;
        is_whole &= trace.is_whole();
        let mut ledgers = ledgers.into_iter();
        let mut next = || ledgers.next().unwrap_or_default();
        let (was, is) = (next(), next());
        anyhow::ensure!(was.calls > 0, "the trace {} has no calls that have a cost", path.display());
        sums.observed += observed;
        sums.told = in_words(given, (&was, &is), &before.base.machine.profile, observed);
        sums.parts.iter_mut().for_each(|sum| sum.add(next()));
        for (name, factor) in names {
            let more = next().total.get() - is.total.get();
            sums.constants.entry(name).or_insert((factor, 0.0)).1 += more;
        }
        sums.before.add(was);
        sums.changed.add(is);
    }
    let Sums { observed, before, changed, parts, constants, told } = sums;
    let mut answer = Answer::new(&before, observed);
    answer.notes = remarks(given);
    answer.traces = traces.len();
    let text = given.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join(" ");
    let mut calls = changed.changed.iter().copied();
    for one in given {
        answer.changed(&one.text, one.changes_calls().then(|| calls.next()).flatten());
    }
    let of_part = |(part, after): (Part, &Ledger)| SensitivityOfPart::new(part, STEP, &changed, after);
    answer.parts = Part::ALL.into_iter().zip(&parts).map(of_part).collect();
    let total = changed.total.get();
    let effect = |(constant, (factor, more)): (String, (f64, f64))| Sensitivity {
        constant,
        factor,
        effect: if total > 0.0 { more / total } else { 0.0 },
    };
    answer.sensitivity = constants.into_iter().map(effect).collect();
    answer.sensitivity.sort_by(|a, b| b.effect.abs().total_cmp(&a.effect.abs()));
    // Each machine has percentiles of its own.
    let mut after = Compared::new(text, &changed, told.filter(|_| traces.len() == 1));
    after.ratio = (before.total.get() > 0.0).then(|| total / before.total.get());
    answer.after = Some(after);
    let printed = render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))?;
    Ok(exit::printed(printed, is_whole))
}

/// The scenario with each constant changed, and by which factor.
fn constants(changed: &Scenario) -> Vec<((String, f64), Scenario)> {
    let profile = &changed.machine.profile;
    let one = |(name, value): (String, f64)| {
        // A part of something cannot be more than all of it.
        let with = |factor: f64| profile.with_value(&name, value * factor).map(|profile| (factor, profile));
        let (factor, profile) = with(STEP).or_else(|_| with(1.0 / STEP)).ok()?;
        let mut scenario = changed.clone();
        scenario.machine.profile = profile;
        Some(((name, factor), scenario))
    };
    profile.constants().into_iter().filter_map(one).collect()
}
