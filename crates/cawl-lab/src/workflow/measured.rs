//! A workflow for real, beside what the models say of it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;

use cawl_core::{Estimate, HostProfile, MODELS, MemoryFacts, Nanos, Rate, Time, median};
use cawl_measure::calibrate::interference::Watch;
use cawl_measure::interrupt::Interrupted;
use cawl_measure::progress::Progress;
use cawl_measure::slow_limit::{self, Budget};
use serde::Serialize;

use super::run::Runner;
use super::{Cluster, Options, Outcome, Ran, Times, Workflow, simulate};
use crate::ground::{Ground, Site};

/// An error up to this, or up to so many noise floors, is within the goal.
const NEAR: f64 = 0.1;
const FLOORS: f64 = 1.5;

/// How a workflow is run.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub site: Site<'a>,
    /// The models' profile; None: that of the disk.
    pub profile: Option<HostProfile>,
    /// None: those of this machine.
    pub processors: Option<u32>,
    /// What is there before is in the page cache.
    pub cached: bool,
    pub repeats: usize,
}

/// Runs, and predictions of them.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub workflow: String,
    /// Names and values.
    pub machine: Vec<(String, String)>,
    pub processors: u32,
    pub cached: bool,
    /// Processors that other programs kept busy during each run, if enough to disturb.
    pub disturbed: Vec<Option<f64>>,
    /// Makespan of each run.
    pub makespans_s: Vec<f64>,
    /// Their median.
    pub makespan_s: f64,
    /// |other − run| / run, with the next run in the place of a prediction, median; None of one run.
    pub floor: Option<f64>,
    /// Sums over the tasks, medians of the runs.
    pub sums: Parts,
    /// In the order of reports.
    pub models: Vec<Predicted>,
    /// The run of median makespan, and the first model's.
    pub tasks: Vec<Beside>,
    pub notes: Vec<String>,
}

/// What a model says.
#[derive(Debug, Serialize)]
pub struct Predicted {
    pub model: String,
    pub makespan_s: f64,
    /// (predicted − measured) / measured.
    pub error: f64,
    /// The same where tasks compute as long as in the run of median makespan: that of their calls alone.
    pub error_of_calls: f64,
    /// |error| is at most a tenth, or 1.5 floors.
    pub is_within: bool,
    pub sums: Parts,
    /// Tasks that did not begin at the end of the same task as in the run of median makespan.
    pub reordered: usize,
}

/// Seconds in calls that read, computing, in calls that write, and of these waiting for a processor.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parts {
    pub reading_s: f64,
    pub computing_s: f64,
    pub writing_s: f64,
    pub preempted_s: f64,
}

/// A task as it ran, and as predicted.
#[derive(Debug, Serialize)]
pub struct Beside {
    pub name: String,
    pub measured: Part,
    pub predicted: Part,
}

/// When, and with what.
#[derive(Debug, Serialize)]
pub struct Part {
    pub begin_s: f64,
    pub end_s: f64,
    #[serde(flatten)]
    pub parts: Parts,
}

/// Runs a workflow, and predicts its makespan by every model.
///
/// # Errors
/// Where the disk or the limits cannot be had, a task fails, or a signal comes.
pub fn measure(workflow: &Workflow, plan: Plan<'_>, signal: &Arc<AtomicUsize>) -> anyhow::Result<Measured> {
    let Plan { site, profile, cached, repeats, .. } = plan;
    let mut ground = Ground::prepare(&site, profile, signal)?;
    let here = || thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let processors = plan.processors.unwrap_or_else(here);
    let runner = Runner::new(workflow, processors, &ground.place.folder, signal)?;
    let predict = |workflow: &Workflow, model: &str, profile: &HostProfile, memory: Option<&MemoryFacts>| {
        let mut cluster = Cluster::single(processors, profile.clone());
        cluster.hosts.iter_mut().for_each(|host| host.memory = memory.cloned());
        simulate(workflow, &cluster, &Options { model, cached }, &mut |_| Ok(Interrupted::by(signal)?))
    };
    let expected = predict(workflow, MODELS[0], &ground.profile, None)?.makespan();
    let mut progress = Progress::new((expected + site.settle) * repeats as f64);
    let (mut runs, mut disturbed, mut base_rates) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=repeats {
        progress.begin("files that are read first");
        runner.make_inputs()?;
        if ground.lowered.is_some() {
            let budget = Budget::of_time(site.settle);
            let settled = slow_limit::follow(&runner.scratch, ground.before, budget, &mut progress, signal)?;
            ground.notes.extend(settled.note);
            base_rates.extend(settled.base_rate.map(Rate::get));
        }
        progress.begin(format!("run {run} of {repeats}"));
        let watch = Watch::begin();
        runs.push(runner.run(cached)?);
        disturbed.push(watch.disturbed());
    }
    // It is no constant of the device: the kernel changes it from run to run.
    if let Some(found) = Estimate::of(&base_rates) {
        ground.profile.device.base_rate = Some(found.measured(Rate::per_second));
    }
    let (runs, memory): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    // A calibration seldom meets memory that the host has taken back.
    let slower = Vec::from_iter(memory.iter().filter_map(|memory| memory.slower));
    if let Some(slower) = Estimate::of(&slower) {
        let fresh = 1.0 / ground.profile.memory.fresh.value.get();
        let cold = slower.measured(|slower| Rate::per_second(1.0 / (fresh + slower)));
        ground.profile.memory.cold = Some(cold);
    }
    let at = middle(&runs);
    let (middle, memory) = (&runs[at], memory[at].free.as_ref());
    let mut as_run = workflow.clone();
    as_run.tasks.iter_mut().zip(&middle.tasks).for_each(|(task, ran)| task.compute = ran.times.computing);
    let predict = |model: &'static str| {
        let calls = predict(&as_run, model, &ground.profile, memory)?.makespan();
        Ok((model, predict(workflow, model, &ground.profile, memory)?, calls))
    };
    let predicted = MODELS.iter().copied().map(predict).collect::<anyhow::Result<Vec<_>>>()?;
    let mut notes = [&workflow.notes[..], &ground.notes].concat();
    notes.extend(runs.iter().flat_map(|run| run.notes.clone()));
    let most = disturbed.iter().flatten().copied().fold(0.0, f64::max);
    if most > 0.0 {
        notes.push(format!("disturbed: other programs computed meanwhile, on up to {most:.1} processors"));
    }
    notes.sort();
    notes.dedup();
    let machine = ground.machine();
    Ok(Measured { processors, cached, disturbed, machine, notes, ..beside(workflow, &runs, &predicted) })
}

/// The run of median makespan.
fn middle(runs: &[Outcome]) -> usize {
    let mut order = Vec::from_iter(0..runs.len());
    order.sort_by(|a, b| runs[*a].makespan().get().total_cmp(&runs[*b].makespan().get()));
    order[(order.len() - 1) / 2]
}

fn beside(workflow: &Workflow, runs: &[Outcome], predicted: &[(&str, Outcome, Nanos)]) -> Measured {
    let makespans_s = Vec::from_iter(runs.iter().map(|run| run.makespan().as_seconds()));
    let makespan_s = median(&makespans_s).unwrap_or_default();
    let floor = floor(&makespans_s);
    let middle = &runs[middle(runs)];
    let sums = |run: &Outcome| Parts::of(&run.sum(0..run.tasks.len()));
    let of_runs = |pick: fn(&Parts) -> f64| {
        median(&Vec::from_iter(runs.iter().map(|run| pick(&sums(run))))).unwrap_or_default()
    };
    let models = predicted.iter().map(|(model, on_paper, calls)| {
        let predicted_s = on_paper.makespan().as_seconds();
        let error = predicted_s / makespan_s - 1.0;
        let pairs = on_paper.tasks.iter().zip(&middle.tasks);
        Predicted {
            model: (*model).to_owned(),
            makespan_s: predicted_s,
            error,
            error_of_calls: calls.as_seconds() / makespan_s - 1.0,
            is_within: error.abs() <= (FLOORS * floor.unwrap_or_default()).max(NEAR),
            sums: sums(on_paper),
            reordered: pairs.filter(|(paper, run)| paper.by != run.by).count(),
        }
    });
    let first = predicted.first().map(|(_, on_paper, _)| on_paper.tasks.as_slice()).unwrap_or_default();
    let tasks = workflow.tasks.iter().zip(&middle.tasks).zip(first);
    Measured {
        workflow: workflow.name.clone(),
        machine: Vec::new(),
        processors: 0,
        cached: false,
        disturbed: Vec::new(),
        floor,
        sums: Parts {
            reading_s: of_runs(|parts| parts.reading_s),
            computing_s: of_runs(|parts| parts.computing_s),
            writing_s: of_runs(|parts| parts.writing_s),
            preempted_s: of_runs(|parts| parts.preempted_s),
        },
        models: models.collect(),
        tasks: tasks
            .map(|((task, run), paper)| Beside {
                name: task.name.clone(),
                measured: Part::of(run),
                predicted: Part::of(paper),
            })
            .collect(),
        notes: Vec::new(),
        makespan_s,
        makespans_s,
    }
}

/// The error of each run as a prediction of the one before it, median.
fn floor(makespans: &[f64]) -> Option<f64> {
    let next = makespans.iter().cycle().skip(1);
    let errors = Vec::from_iter(makespans.iter().zip(next).map(|(run, other)| (other / run - 1.0).abs()));
    median(&errors).filter(|_| makespans.len() > 1)
}

impl Parts {
    fn of(times: &Times) -> Parts {
        Parts {
            reading_s: times.reading.as_seconds(),
            computing_s: times.computing.as_seconds(),
            writing_s: times.writing.as_seconds(),
            preempted_s: times.preempted.as_seconds(),
        }
    }
}

impl Part {
    fn of(ran: &Ran) -> Part {
        let at = |moment: Time| moment.since(Time(0)).as_seconds();
        Part { begin_s: at(ran.begin), end_s: at(ran.end), parts: Parts::of(&ran.times) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_their_floor() {
        assert_eq!(floor(&[10.0]), None);
        assert!((floor(&[10.0, 11.0, 10.0]).unwrap() - 1.0 / 11.0).abs() < 1e-12);
        let workflow = Workflow { tasks: Vec::new(), ..Workflow::default() };
        let of = |seconds: f64| Outcome {
            tasks: vec![Ran { end: Time((seconds * 1e9) as u64), ..Ran::default() }],
            notes: Vec::new(),
        };
        let predicted = [11.5, 13.0].map(|seconds| ("kernel", of(seconds), Nanos::seconds(10.5)));
        let found = beside(&workflow, &[of(10.0), of(12.0), of(10.5)], &predicted);
        assert_eq!(found.makespan_s, 10.5);
        // 20 %, 12.5 % and 4.8 %: 1.5 floors are 18.75 %.
        assert!((found.floor.unwrap() - 0.125).abs() < 1e-12);
        assert!(
            found.models[0].is_within
                && !found.models[1].is_within
                && found.models[0].error_of_calls.abs() < 1e-9,
            "{:?}",
            found.models
        );
    }
}
