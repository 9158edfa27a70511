//! `calibrate`: measures the constants of machine and device, or takes those of equal machines.

mod prior;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, ensure};
use cawl_core::{Bytes, HostProfile, Nanos, Origin, Thoroughness};
use cawl_host::place::{Backing, Place};
use cawl_host::profiles;
use cawl_measure::calibrate::{self, Calibration, Effort, Options};
use cawl_measure::interrupt;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::{read_profile, save, stored_profile};
use crate::args::CalibrateArgs;
use crate::{exit, outputs, render};

/// Calibrates, or checks a profile.
pub fn calibrate(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    if let Some(parent) = args.parent {
        prctl::set_pdeathsig(Signal::SIGTERM)?;
        // The parent may have ended before prctl took effect.
        ensure!(getppid().as_raw() == parent, "the process that started this calibration has ended");
    }
    interrupt::guard(|signal| match &args.from {
        Some(folder) => prior::from(args, folder, signal),
        None if args.check => check(args, signal),
        None => measure(args, signal),
    })
}

fn options(args: &CalibrateArgs) -> Options {
    let mut effort = match (args.quick || args.check, args.thorough) {
        _ if args.brief || args.from.is_some() => Effort::BRIEF,
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
    let least = calibrate::MIN_WRITTEN;
    exit::usage(options.effort.bytes >= least, || {
        format!("with less than {least} nothing of the device can be measured; give a higher --max-bytes")
    })?;
    if args.output.is_some() {
        outputs::check(&file, &outputs::PROFILE)?;
    }
    if args.brief {
        // What `run` measures again, runs have contradicted.
        ensure!(
            args.parent.is_some() || !is_better(&file),
            "{} was measured for longer, and --brief would replace it; leave --brief out, remove it first, \
             or name another file with -o",
            file.display()
        );
        options.known = read_profile(&file).ok();
    }
    let calibration = calibrate::calibrate(&options, signal)?;
    if !args.brief {
        is_enough(&calibration, &file)?;
    }
    write(&file, &calibration.profile.to_toml(), args.output.is_none())?;
    // Told before the table is printed, since printing may fail.
    render::tell(format_args!("profile written to {}", file.display()));
    render::answer(args.json, &calibration, |terminal| Ok(render::calibrate::text(&calibration, terminal)))
}

/// True of a profile that was measured here for longer than at a first meeting.
fn is_better(file: &Path) -> bool {
    stored_profile(file).is_ok_and(|before| {
        before.origin == Origin::Calibrated && before.measured != Some(Thoroughness::Brief)
    })
}

/// Something of the device was measured, and all that the profile before has measured.
fn is_enough(calibration: &Calibration, file: &Path) -> anyhow::Result<()> {
    let now = calibration.profile.essential();
    let Calibration { written, seconds, place, .. } = calibration;
    let limits = format!(
        "in {written} and {seconds:.0} s; give a higher --max-bytes or --max-seconds, or neither, or --brief"
    );
    let before = read_profile(file).ok().filter(|before| before.name == calibration.profile.name);
    let before = before.as_ref().map(HostProfile::essential).into_iter().flatten();
    let lost: Vec<_> = before.zip(now).filter(|(was, is)| was.1 && !is.1).map(|(was, _)| was.0).collect();
    ensure!(
        lost.is_empty(),
        "the profile {} is as before: {}, which it has, could not be measured again {limits}",
        file.display(),
        lost.join(", ")
    );
    let has_device = !matches!(place.backing, Backing::Memory | Backing::Network);
    let found = now.iter().any(|(name, measured)| *measured && name.starts_with("device."));
    ensure!(
        found || !has_device,
        "no profile was written: nothing of {} was measured {limits}",
        place.device
    );
    Ok(())
}

fn check(args: &CalibrateArgs, signal: Arc<AtomicUsize>) -> anyhow::Result<ExitCode> {
    let options = options(args);
    let file = profile_file(args)?;
    let profile =
        stored_profile(&file).context("there is nothing to check; calibrate without --check first")?;
    let compared = calibrate::check(&options, &profile, signal)?;
    let holds = compared.iter().all(|constant| constant.holds);
    let answer = serde_json::json!({ "holds": holds, "constants": compared });
    let printed = render::answer(args.json, &answer, |terminal| {
        Ok(render::calibrate::text_of_check(&compared, terminal))
    })?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{Measured, Rate};

    #[test]
    fn a_good_profile_is_not_replaced_by_assumptions() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("profile.toml");
        let mut place = Place::of(dir.path()).unwrap();
        place.backing = Backing::Disk;
        let of = |profile: &HostProfile, place: &Place| {
            let (profile, place) = (profile.clone(), place.clone());
            let extra = calibrate::Extra::default();
            let calibration =
                Calibration { place, profile, extra, notes: Vec::new(), seconds: 1.0, written: Bytes(1024) };
            is_enough(&calibration, &file).map_err(|error| error.to_string())
        };
        let assumed = HostProfile::uncalibrated();
        let error = of(&assumed, &place).unwrap_err();
        assert!(error.contains("nothing of") && error.contains("--max-bytes"), "{error}");
        let mut measured = assumed.clone();
        measured.device.fsync.samples = 3;
        assert_eq!(of(&measured, &place), Ok(()));
        measured.device.write = Measured { samples: 5, ..Measured::assumed(Rate::mb_per_second(900.0)) };
        fs::write(&file, measured.to_toml()).unwrap();
        assert_eq!(of(&measured, &place), Ok(()));
        measured.device.write = assumed.device.write;
        let error = of(&measured, &place).unwrap_err();
        assert!(error.contains("device.write, which it has") && error.contains("as before"), "{error}");
        fs::remove_file(&file).unwrap();
        place.backing = Backing::Memory;
        assert_eq!(of(&assumed, &place), Ok(()));
    }
}
