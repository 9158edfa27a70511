//! `calibrate`: measures the constants of machine and device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, ensure};
use cawl_core::{Bytes, Nanos};
use cawl_host::place::Place;
use cawl_host::profiles;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::{read_profile, save, stored_profile};
use crate::args::CalibrateArgs;
use crate::calibrate::{self, Effort, Options};
use crate::{exit, interrupt, outputs, render};

/// Calibrates, or checks a profile.
pub fn calibrate(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    if let Some(parent) = args.parent {
        prctl::set_pdeathsig(Signal::SIGTERM)?;
        // The parent may have ended before prctl took effect.
        ensure!(getppid().as_raw() == parent, "the process that started this calibration has ended");
    }
    interrupt::guard(|signal| if args.check { check(args, signal) } else { measure(args, signal) })
}

fn options(args: &CalibrateArgs) -> Options {
    let mut effort = match (args.quick || args.check, args.thorough) {
        _ if args.brief => Effort::BRIEF,
        (true, _) => Effort::QUICK,
        (_, true) => Effort::THOROUGH,
        _ => Effort::NORMAL,
    };
    if let Some(bytes) = args.max_bytes {
        effort.bytes = Bytes(bytes);
    }
    if let Some(seconds) = args.max_seconds {
        effort.time = effort.time.min(Nanos::seconds(seconds as f64 * 0.8));
    }
    Options { path: args.path.clone(), effort, lower_limits: args.lower_limits, known: None }
}

/// The profile to write or to check.
fn profile_file(args: &CalibrateArgs) -> anyhow::Result<PathBuf> {
    match &args.output {
        Some(file) => Ok(file.clone()),
        None => profiles::file_of(&Place::of(&args.path)?.device),
    }
}

fn measure(args: &CalibrateArgs, signal: Arc<AtomicUsize>) -> anyhow::Result<ExitCode> {
    let mut options = options(args);
    let file = profile_file(args)?;
    if args.output.is_some() {
        outputs::check(&file, &outputs::PROFILE)?;
    }
    if args.brief {
        options.known = read_profile(&file).ok();
    }
    let calibration = calibrate::calibrate(&options, signal)?;
    write(&file, &calibration.profile.to_toml(), args.output.is_none())?;
    // Told before the table is printed, since printing may fail.
    render::tell(format_args!("profile written to {}", file.display()));
    render::answer(args.json, &calibration, |terminal| Ok(calibrate::text(&calibration, terminal)))
}

fn check(args: &CalibrateArgs, signal: Arc<AtomicUsize>) -> anyhow::Result<ExitCode> {
    let options = options(args);
    let file = profile_file(args)?;
    let profile =
        stored_profile(&file).context("there is nothing to check; calibrate without --check first")?;
    let compared = calibrate::check(&options, &profile, signal)?;
    let holds = compared.iter().all(|constant| constant.holds);
    let answer = serde_json::json!({ "holds": holds, "constants": compared });
    let printed =
        render::answer(args.json, &answer, |terminal| Ok(calibrate::text_of_check(&compared, terminal)))?;
    if !holds {
        render::tell(format_args!("the profile {} no longer holds; calibrate again", file.display()));
        return Ok(ExitCode::from(exit::FAILED));
    }
    Ok(printed)
}

/// Writes the profile; one that runs update too is written under the lock of its folder.
fn write(file: &Path, text: &str, is_shared: bool) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder).with_context(|| {
            format!("cannot write the profile {}; name another file with -o", file.display())
        })?;
    }
    let _lock = folder.filter(|_| is_shared).map(profiles::Lock::of).transpose()?;
    save(file, text, true)
}
