//! `predict`: the cost of a write before it is made.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use cawl_client::protocol::{Plan, Predicted, Request, Status, View};
use cawl_client::query;
use cawl_core::{Bytes, DirtyLimits, dirtyable};
use nix::sys::stat::{major, minor};
use serde::Serialize;
use serde_json::Value;

use super::{parsed, profile_of, socket_of, stored_profile};
use crate::args::PredictArgs;
use crate::offline::{self, Counted};
use crate::render;

pub fn predict(args: &PredictArgs) -> anyhow::Result<ExitCode> {
    let device = match &args.path {
        Some(path) => Some(device_of(path)?),
        None => args.device.clone(),
    };
    let plan = Plan {
        bytes: args.bytes,
        chunk: Some(args.chunk),
        sync: args.sync,
        fsync: args.fsync,
        at_s: args.at,
        device,
        view: View { model: args.model.clone(), mode: None },
    };
    if args.offline {
        return without_daemon(args, &plan);
    }
    match asked(args, &plan) {
        // A daemon that was named must answer; only the default one may be absent.
        Err(error) if args.daemon.socket.is_none() && query::is_absent(&error) => {
            render::tell(format_args!(
                "cawl-cli: no daemon is running; predicted from the profile and the kernel's present counters"
            ));
            without_daemon(args, &plan)
        }
        answered => answered,
    }
}

fn asked(args: &PredictArgs, plan: &Plan) -> anyhow::Result<ExitCode> {
    let socket = socket_of(&args.daemon)?;
    let answer: Value = query::ask(&socket, &Request::Predict(plan.clone()))?;
    render::answer(args.json, &answer, |terminal| {
        let status: Status = query::ask(&socket, &Request::Status(View::default()))?;
        Ok(render::predict::text(plan, &parsed(&answer)?, Some(status.hard_bytes), terminal))
    })
}

/// The answer from the profile and the kernel's counters.
fn without_daemon(args: &PredictArgs, plan: &Plan) -> anyhow::Result<ExitCode> {
    let mut profile = match &args.profile {
        Some(file) => stored_profile(file)?,
        None => {
            profile_of(args.path.as_deref(), "speeds are defaults, and the answer is an order of magnitude")
        }
    };
    if let Some(ram) = args.ram {
        let ratios = args.ratios.unwrap_or(DirtyLimits::DEFAULT_RATIOS);
        profile.kernel.limits = DirtyLimits::of(ratios, dirtyable(Bytes(ram)));
        profile.check().with_context(|| format!("{} of memory are no machine", Bytes(ram)))?;
    }
    // The dirty level of this machine does not belong to another machine.
    let counted = if args.profile.is_some() || args.ram.is_some() { None } else { Counted::here() };
    let predicted = offline::predict(plan, &profile, counted.as_ref())?;
    let DirtyLimits { background, hard } = profile.kernel.limits;
    let answer = Answer { predicted, background_bytes: background.0, hard_bytes: hard.0 };
    render::answer(args.json, &answer, |terminal| {
        let limits = render::predict::limits(profile.kernel.limits, terminal);
        Ok(render::predict::text(plan, &answer.predicted, Some(hard.0), terminal) + &limits)
    })
}

/// What `--json` prints without a daemon.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    predicted: Predicted,
    background_bytes: u64,
    hard_bytes: u64,
}

/// The device of a file, or of the nearest existing folder above it.
fn device_of(path: &Path) -> anyhow::Result<String> {
    let path = std::path::absolute(path)?;
    let mut at: PathBuf = path.clone();
    loop {
        match std::fs::metadata(&at) {
            Ok(meta) => return Ok(format!("{}:{}", major(meta.dev()), minor(meta.dev()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && at.pop() => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot tell which device {} is on; name it with --device", path.display())
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_exist_yet_lies_where_its_folder_does() {
        let dir = tempfile::tempdir().unwrap();
        let own = device_of(dir.path()).unwrap();
        assert!(
            own.split_once(':').is_some_and(|(major, minor)| {
                major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok()
            })
        );
        assert_eq!(device_of(&dir.path().join("new/folder/file")).unwrap(), own);
        std::fs::write(dir.path().join("plain"), "").unwrap();
        let error = device_of(&dir.path().join("plain/file")).unwrap_err();
        assert!(format!("{error:#}").contains("--device"), "{error:#}");
    }
}
