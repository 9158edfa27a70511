//! `experiment`: the paper's evaluation on this machine.

use std::process::ExitCode;

use super::read_profile;
use crate::args::ExperimentArgs;
use crate::{experiment, interrupt, render};

/// Records, judges, draws and prints.
pub fn experiment(args: &ExperimentArgs) -> anyhow::Result<ExitCode> {
    interrupt::guard(|signal| {
        let profile = args.profile.as_deref().map(read_profile).transpose()?;
        let found = experiment::run(args, profile, &signal)?;
        let code = render::answer(args.json, &found, |terminal| Ok(experiment::text(&found, terminal)))?;
        render::tell(format_args!("pictures and tables are in {}", args.out.join("index.html").display()));
        Ok(code)
    })
}
