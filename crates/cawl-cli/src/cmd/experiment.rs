//! `experiment`: the paper's evaluation on this machine.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use cawl_core::{Bytes, Nanos};

use super::read_profile;
use crate::args::{Calibration, ExperimentArgs};
use crate::calibrate::Effort;
use crate::experiment::{self, Options};
use crate::{interrupt, render};

/// Dirty limits for an emulated disk and for --lower-limits.
const LOW: (Bytes, Bytes) = (Bytes::mib(128), Bytes::mib(256));

/// Records, judges, draws and prints.
pub fn experiment(args: &ExperimentArgs) -> anyhow::Result<ExitCode> {
    interrupt::guard(|signal| measure(args, signal))
}

fn measure(args: &ExperimentArgs, signal: Arc<AtomicUsize>) -> anyhow::Result<ExitCode> {
    let profile = args.profile.as_deref().map(read_profile).transpose()?;
    let lower = args.lower_limits || args.disk.is_some();
    let options = Options {
        experiments: args.names.clone(),
        path: args.path.clone(),
        disk: args.disk.clone(),
        scale: args.scale,
        out: args.out.clone(),
        repeats: args.repeats.into(),
        profile,
        effort: match args.calibration {
            Calibration::Quick => Effort::QUICK,
            Calibration::Normal => Effort::NORMAL,
            Calibration::Thorough => Effort::THOROUGH,
        },
        limits: args.limits.or(lower.then_some(LOW)),
        settle: Nanos::seconds(args.settle.into()),
    };
    let evaluation = experiment::run(&options, signal)?;
    let code = if args.json {
        render::json(&evaluation)?
    } else {
        render::print(&experiment::text(&evaluation, std::io::stdout().is_terminal()))?
    };
    render::tell(format_args!("pictures and tables are in {}", options.out.join("index.html").display()));
    Ok(code)
}
