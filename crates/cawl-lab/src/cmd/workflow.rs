//! `workflow`: how long tasks with files between them take.

mod answer;
mod chart;
mod run;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use cawl_console::exit::{Usage, usage};
use cawl_console::outputs::{self, Kind};
use cawl_core::{Machine, Nanos, NoScenario, Part, Request};
use cawl_host::output;

use answer::{Answer, Effect};

use crate::args::WorkflowArgs;
use crate::parallel;
use crate::workflow::{Cluster, Options, Outcome, Workflow, read, simulate};

const PAGE: Kind = Kind { name: "page of cawl", is: |head, _| head.contains("<title>cawl: ") };
const PERFETTO: Kind =
    Kind { name: "timeline of cawl", is: |head, _| head.starts_with("{\"traceEvents\":[") };

/// A part of the hosts is so many times as large, for the sensitivity.
const BOTH: [f64; 2] = [1.0 / 1.1, 1.1];
/// About what a call takes on paper, by which the time that is left is told.
const CALL: Nanos = Nanos::new(1500.0);

pub fn workflow(args: &WorkflowArgs) -> anyhow::Result<ExitCode> {
    args.page.iter().try_for_each(|file| outputs::check(file, &PAGE))?;
    args.perfetto.iter().try_for_each(|file| outputs::check(file, &PERFETTO))?;
    usage(args.page.is_none() || args.page != args.perfetto, || {
        "--page and --perfetto write different files; name two".to_owned()
    })?;
    let workflow = read(&args.file)?;
    if let Some(site) = args.real.site() {
        return run::run(args, &workflow, site);
    }
    let cluster = args.hosts.cluster()?;
    let mut scenarios = vec![(workflow.clone(), cluster.clone())];
    for (_, requests) in &args.tries {
        let changed = cluster.changed(requests).map_err(|error| match error.downcast_ref() {
            Some(NoScenario::Profile(_)) => error,
            _ => Usage(format!("{error:#}")).into(),
        })?;
        requests
            .iter()
            .filter_map(Request::remark)
            .for_each(|remark| cawl_console::tell(format_args!("cawl-lab: {remark}")));
        scenarios.push((workflow.clone(), changed));
    }
    if args.sensitivity {
        for part in Part::ALL {
            scenarios.extend(BOTH.map(|factor| (workflow.clone(), scaled(&cluster, part, factor))));
        }
        scenarios.extend(BOTH.map(|factor| {
            let mut other = workflow.clone();
            other.tasks.iter_mut().for_each(|task| task.compute = task.compute * (1.0 / factor));
            (other, cluster.clone())
        }));
    }
    let options = Options { model: &args.model, cached: args.hosts.cached };
    let mut outcomes = simulate_all(&scenarios, &options)?.into_iter();
    let outcome = outcomes.next().context("a workflow has an outcome")?;
    let mut answer = Answer::new(&workflow, &cluster, &args.model, &outcome);
    for ((change, _), changed) in args.tries.iter().zip(&mut outcomes) {
        answer.what_if.push(Effect::of_change(change, &outcome, &changed));
    }
    let parts = Part::ALL.map(Part::name).into_iter().chain(["processor speed"]);
    for part in parts.filter(|_| args.sensitivity) {
        let (smaller, larger) = outcomes.next().zip(outcomes.next()).context("two of each part")?;
        answer.sensitivity.push(Effect::of_part(part, BOTH, &outcome, [&smaller, &larger]));
    }
    for (file, text) in [
        (&args.page, chart::page as fn(&Workflow, &Cluster, &Outcome, &Answer) -> String),
        (&args.perfetto, chart::perfetto),
    ] {
        if let Some(file) = file {
            save(file, &text(&workflow, &cluster, &outcome, &answer))?;
        }
    }
    cawl_console::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))
}

/// The hosts with a part that is `factor` times as large.
fn scaled(cluster: &Cluster, part: Part, factor: f64) -> Cluster {
    let mut cluster = cluster.clone();
    for host in &mut cluster.hosts {
        let machine = Machine::new(host.profile.clone(), false);
        host.profile = part.scaled(&machine, factor).profile;
    }
    cluster
}

/// Runs them on paper, on all processors.
fn simulate_all(scenarios: &[(Workflow, Cluster)], options: &Options<'_>) -> anyhow::Result<Vec<Outcome>> {
    let calls: u64 = scenarios.iter().map(|(workflow, _)| workflow.calls()).sum();
    let tasks: usize = scenarios.iter().map(|(workflow, _)| workflow.tasks.len()).sum();
    let done = AtomicUsize::new(0);
    let shown = |_| format!("task {} of {tasks}", done.load(Ordering::Relaxed));
    parallel::each(scenarios, CALL * calls as f64, shown, |(workflow, cluster)| {
        let mut before = 0;
        let mut watch = |ended: usize| {
            done.fetch_add(ended - std::mem::replace(&mut before, ended), Ordering::Relaxed);
            Ok(())
        };
        simulate(workflow, cluster, options, &mut watch)
    })
}

fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    output::write(file, output::FOR_ALL, text)
        .with_context(|| format!("cannot write {}; name another file", file.display()))
}
