//! `experiment`: the paper's evaluation on this machine.

use std::process::ExitCode;

use cawl_console::inputs::read_profile;
use cawl_console::{answer, exit, tell};
use cawl_measure::interrupt;

use crate::args::ExperimentArgs;
use crate::experiment;

/// Records, judges, draws and prints.
pub fn experiment(args: &ExperimentArgs) -> anyhow::Result<ExitCode> {
    interrupt::guard(|signal| {
        let profile = args.profile.as_deref().map(read_profile).transpose()?;
        let code = match args.study().map_err(exit::Usage)? {
            Some(study) => {
                let found = experiment::study::run(args, study, profile, &signal)?;
                answer(args.json, &found, |terminal| Ok(found.text(terminal)))?
            }
            None => {
                let found = experiment::run(args, profile, &signal)?;
                answer(args.json, &found, |terminal| Ok(experiment::text(&found, terminal)))?
            }
        };
        tell(format_args!("pictures and tables are in {}", args.out.join("index.html").display()));
        Ok(code)
    })
}
