//! `workflow --run`: for real.

use std::process::ExitCode;

use cawl_console::answer;
use cawl_console::inputs::read_profile;
use cawl_measure::interrupt;

use crate::args::{HostsArgs, WorkflowArgs};
use crate::experiment::report::{self, Table};
use crate::ground::Site;
use crate::workflow::{Measured, Parts, Plan, Workflow, measure};

/// Runs it, predicts it and prints both.
pub fn run(args: &WorkflowArgs, workflow: &Workflow, site: Site<'_>) -> anyhow::Result<ExitCode> {
    interrupt::guard(|signal| {
        let profile = args.hosts.profile.as_deref().map(read_profile).transpose()?;
        let HostsArgs { processors, cached, .. } = args.hosts;
        let plan = Plan { site, profile, processors, cached, repeats: args.real.repeats };
        let found = measure(workflow, plan, &signal)?;
        answer(args.json, &found, |terminal| Ok(text(&found, terminal)))
    })
}

fn text(found: &Measured, terminal: bool) -> String {
    let percent = |part: f64| format!("{:+.1} %", part * 100.0);
    let row = |name: &str, makespan: f64, errors: [String; 3], sums: &Parts| {
        let Parts { reading_s, computing_s, writing_s, preempted_s } = *sums;
        let spans = [makespan, reading_s, computing_s, writing_s, preempted_s];
        let spans = spans.map(|span| format!("{span:.2} s"));
        [&[name.to_owned()], &spans[..1], &errors, &spans[1..]].concat()
    };
    let floor = found.floor.map_or(String::new(), |floor| format!("floor {:.1} %", floor * 100.0));
    let mut rows =
        vec![row("measured", found.makespan_s, [floor, String::new(), String::new()], &found.sums)];
    rows.extend(found.models.iter().map(|model| {
        let verdict = if model.is_within { "within" } else { "beyond" };
        let errors = [percent(model.error), verdict.to_owned(), percent(model.error_of_calls)];
        row(&model.model, model.makespan_s, errors, &model.sums)
    }));
    let runs = Vec::from_iter(found.makespans_s.iter().map(|span| format!("{span:.2} s"))).join(", ");
    let caption = format!("{}: {} tasks; runs of {runs}", found.workflow, found.tasks.len());
    let header = ["", "makespan", "error", "", "of calls", "reading", "computing", "writing", "run delay"];
    let mut out = report::machine(&found.machine, terminal);
    Table::new(caption, header, rows).write(&mut out, terminal);
    out + &report::notes(&found.notes, terminal)
}
