//! `whatif`: a trace's calls on paper, as they were and with changes.

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use cawl_core::{
    Analysis, Bytes, Change, DirtyLimits, GroupCache, HostFacts, HostProfile, Ledger, Machine, Nanos,
    OtherDevice, Ratio, Record, Rewrite, TraceFacts, WhatIf, dirtyable, kernel_bytes,
};
use cawl_host::trace::{TraceFile, WhenFull};

use super::are_same;
use super::on_paper::{Scenario, a_run, learning, run_all, watched};
use super::read_profile;
use super::saved::SavedTrace;
use crate::args::{Given, ModelArgs, WhatIfArgs, Word};
use crate::render::whatif::{Answer, Compared, Sensitivity};
use crate::{exit, outputs, render};

/// Calls that constants are learned from at most.
const LEARNED_FROM: u64 = 500_000;
/// Numbers of devices that files are moved to: no device of a Linux has them.
const MOVED_TO: u64 = 0xffff_ff00;
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
    let sets = |of: fn(&Word) -> bool| given.iter().any(|one| of(&one.word));
    if !args.each
        && sets(|word| matches!(word, Word::Limits(_)))
        && sets(|word| matches!(word, Word::Ratios(_) | Word::Ram(_)))
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
    let after = |given: &[Given]| with(&base, given, &measured, host.as_ref());
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
    let compared = |text: String, after: &Ledger| {
        Compared::new(text, after, Ratio::of(before, after, &base.machine.profile))
    };
    let text = |given: &[Given]| given.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join(" ");
    let mut answer = Answer::new(before, observed);
    if args.each {
        answer.each = given.iter().zip(after).map(|(one, after)| compared(one.text.clone(), after)).collect();
    } else if let Some((changed, others)) = after.split_first() {
        answer.after = Some(compared(text(given), changed));
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

/// The trace's profile with what the first calls teach, and whether they tell that memory came warm.
fn learned(trace: &mut SavedTrace) -> anyhow::Result<(HostProfile, bool)> {
    let mut analysis = Analysis::with(&trace.profile, &learning(true))?;
    let mut calls = 0;
    for record in trace.records() {
        let record = record?;
        analysis.take(&record);
        calls += u64::from(matches!(record, Record::Event(_)));
        if calls >= LEARNED_FROM {
            break;
        }
    }
    Ok((analysis.learned().0, analysis.came_warm()))
}

/// How long it takes to make the pieces of --split; many are told before.
fn pieces(given: &[Given], open: impl Fn() -> anyhow::Result<SavedTrace>) -> anyhow::Result<Nanos> {
    let mut most = Nanos::ZERO;
    for one in given {
        let Word::Calls(Change { rewrite: Rewrite::Split(size), .. }) = one.word else { continue };
        let mut pieces = 0;
        for record in open()?.records() {
            if let Record::Event(event) = record? {
                pieces += kernel_bytes(&event).div_ceil(size);
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

/// What these changes need to know of the trace.
pub(super) fn facts(
    given: &[Given],
    open: impl FnOnce() -> anyhow::Result<SavedTrace>,
) -> anyhow::Result<TraceFacts> {
    let needs = |one: &Given| matches!(&one.word, Word::Calls(change) if change.rewrite.needs_facts());
    let mut facts = TraceFacts::default();
    if given.iter().any(needs) {
        for record in open()?.records() {
            facts.take(&record?);
        }
    }
    Ok(facts)
}

/// A scenario with these changes. `measured`: the profile without what the trace taught. `host`: the machine
/// that was traced, if that is known.
fn with(
    base: &Scenario,
    given: &[Given],
    measured: &HostProfile,
    host: Option<&HostFacts>,
) -> anyhow::Result<Scenario> {
    let Scenario { mut machine, mut changes } = base.clone();
    if given.iter().any(|one| matches!(&one.word, Word::Calls(change) if change.rewrite.adds_flags())) {
        machine = machine.for_new_flags(measured);
    }
    let wrong = |why: String| anyhow::Error::from(exit::Usage(why));
    let (mut ratios, mut ram, mut cgroup) = (None, None, None);
    // Another machine is what the changes of a machine are changes of.
    let (machines, others): (Vec<&Given>, Vec<&Given>) =
        given.iter().partition(|one| matches!(one.word, Word::Profile(_)));
    for one in machines.into_iter().chain(others) {
        match &one.word {
            Word::Calls(change) => changes.push(change.clone()),
            Word::Move(glob, path) => {
                let dev = MOVED_TO + machine.profile.others.len() as u64;
                let constants = read_profile(path)?.device;
                machine.profile.others.push(OtherDevice { dev, constants });
                changes.push(Change { rewrite: Rewrite::Move(dev), on: Some(glob.clone()) });
            }
            Word::Set(name, value) => machine.profile = machine.profile.with(name, value).map_err(wrong)?,
            Word::Profile(path) => {
                machine.profile = read_profile(path)?;
                machine.limits = Some(machine.profile.kernel.limits);
            }
            Word::Limits(limits) => machine.limits = Some(*limits),
            Word::Ratios(of) => ratios = Some(*of),
            Word::Ram(bytes) => ram = Some(Bytes(*bytes)),
            Word::Cgroup(bytes) => cgroup = Some(Bytes(*bytes)),
            Word::Warm => machine.warm = true,
            Word::On(_) => {}
        }
    }
    let parts = ratios.or_else(|| host.map(ratios_of)).unwrap_or(DirtyLimits::DEFAULT_RATIOS);
    if ratios.is_some() || ram.is_some() {
        let memory = ram.map(dirtyable).or_else(|| host.map(|host| host.memory));
        let memory =
            memory.context("the trace does not tell how much memory its machine has; add --ram SIZE")?;
        machine.limits = Some(DirtyLimits::of(parts, memory));
    }
    // An empty one, whose programs take nothing but the cache.
    let empty = |memory| GroupCache { room: Some(memory), ..GroupCache::default() };
    machine.profile.kernel.group = cgroup.map(empty).or(machine.profile.kernel.group);
    machine.profile.kernel.cgroup =
        cgroup.map(|memory| DirtyLimits::of(parts, memory)).or(machine.profile.kernel.cgroup);
    if let Some(limits) = machine.limits {
        machine.profile.kernel.limits = limits;
    }
    machine.profile.check().map_err(|error| wrong(error.to_string()))?;
    Ok(Scenario { machine, changes })
}

fn ratios_of(host: &HostFacts) -> [f64; 2] {
    let of = |name: &str| {
        let found = host.dirty_settings.iter().find(|(setting, _)| setting == name);
        found.map(|(_, percent)| *percent as f64 / 100.0).filter(|part| *part > 0.0)
    };
    let [background, hard] = DirtyLimits::DEFAULT_RATIOS;
    [of("dirty_background_ratio").unwrap_or(background), of("dirty_ratio").unwrap_or(hard)]
}
