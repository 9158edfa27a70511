//! `workflow --run`: for real.

use std::process::ExitCode;

use cawl_console::answer;
use cawl_console::inputs::read_profile;
use cawl_measure::interrupt;

use crate::args::WorkflowArgs;
use crate::ground::Site;
use crate::workflow::{Plan, Workflow, measure};

/// Runs it, predicts it and prints both.
pub fn run(args: &WorkflowArgs, workflow: &Workflow, site: Site<'_>) -> anyhow::Result<ExitCode> {
    interrupt::guard(|signal| {
        let profile = args.profile.as_deref().map(read_profile).transpose()?;
        let WorkflowArgs { processors, cached, .. } = *args;
        let plan = Plan { site, profile, processors, cached, repeats: args.real.repeats };
        let found = measure(workflow, plan, &signal)?;
        answer(args.json, &found, |terminal| Ok(found.text(terminal)))
    })
}
