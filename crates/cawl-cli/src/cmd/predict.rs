//! `predict`: the cost of a write before it is made.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use cawl_client::protocol::{Plan, Predicted, Request, Status, View};
use cawl_client::query;
use cawl_core::{Bytes, DirtyLimits, dirtyable};
use cawl_host::place::{Backing, Place};
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use serde_json::Value;

use super::{parsed, profile_of, socket_of, stored_profile};
use crate::args::PredictArgs;
use crate::offline::{self, Counted};
use crate::{exit, render};

pub fn predict(args: &PredictArgs) -> anyhow::Result<ExitCode> {
    let place = args.path.as_deref().map(place_of).transpose()?;
    let device = match &place {
        Some(place) => Some(format!("{}:{}", major(place.number), minor(place.number))),
        None => args.device.clone(),
    };
    // What a file has already it needs no room for.
    let has = args.path.as_ref().and_then(|path| Some(std::fs::metadata(path).ok()?.blocks() * 512));
    place.iter().for_each(|place| name_room(args.bytes.saturating_sub(has.unwrap_or(0)), place));
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
        return without_daemon(args, &plan, place.as_ref());
    }
    match asked(args, &plan, place.as_ref()) {
        // A daemon that was named must answer; only the default one may be absent.
        Err(error) if args.daemon.socket.is_none() && query::is_absent(&error) => {
            render::tell(format_args!(
                "cawl-cli: no daemon is running; predicted from the profile and the kernel's present counters"
            ));
            without_daemon(args, &plan, place.as_ref())
        }
        answered => answered,
    }
}

fn asked(args: &PredictArgs, plan: &Plan, place: Option<&Place>) -> anyhow::Result<ExitCode> {
    let socket = socket_of(&args.daemon)?;
    let answer: Value = query::ask(&socket, &Request::Predict(plan.clone()))?;
    render::answer(args.json, &answer, |terminal| {
        let status: Status = query::ask(&socket, &Request::Status(View::default()))?;
        let device = place.map(|place| place.device.as_str());
        Ok(render::predict::text(plan, device, &parsed(&answer)?, Some(status.hard_bytes), terminal))
    })
}

/// The answer from the profile and the kernel's counters.
fn without_daemon(args: &PredictArgs, plan: &Plan, place: Option<&Place>) -> anyhow::Result<ExitCode> {
    let mut profile = match &args.profile {
        Some(file) => stored_profile(file)?,
        None => {
            let folder = place.map(|place| place.folder.as_path());
            profile_of("cawl-cli", folder, "speeds are defaults, and the answer is an order of magnitude")
        }
    };
    if let Some(place) = place.filter(|place| place.backing == Backing::Memory) {
        profile.device.filesystem = Some(place.kind);
    }
    if let Some(ram) = args.ram {
        let ratios = args.ratios.unwrap_or(DirtyLimits::DEFAULT_RATIOS);
        profile.kernel.limits = DirtyLimits::of(ratios, dirtyable(Bytes(ram), profile.kernel.page));
        profile.check().with_context(|| format!("{} of memory are no machine", Bytes(ram)))?;
    }
    // The dirty level of this machine does not belong to another machine.
    let counted = if args.profile.is_some() || args.ram.is_some() { None } else { Counted::here() };
    let predicted = offline::predict(plan, &profile, counted.as_ref())?;
    let DirtyLimits { background, hard } = profile.kernel.limits;
    let answer = Answer { predicted, background_bytes: background.0, hard_bytes: hard.0 };
    render::answer(args.json, &answer, |terminal| {
        let limits = render::predict::limits(profile.kernel.limits, terminal);
        let device = place.map(|place| place.device.as_str());
        Ok(render::predict::text(plan, device, &answer.predicted, Some(hard.0), terminal) + &limits)
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

/// Tells of a write for which the filesystem has no room.
fn name_room(bytes: u64, place: &Place) {
    let free =
        statvfs(&place.folder).map(|stat| stat.blocks_available().saturating_mul(stat.fragment_size()));
    if let Ok(free) = free
        && free < bytes
    {
        let (folder, filesystem) = (place.folder.to_string_lossy(), &place.filesystem);
        render::tell(format_args!(
            "cawl-cli: {} do not fit: {} are free at {} ({filesystem} on {})",
            Bytes(bytes),
            Bytes(free),
            render::shown(&folder),
            place.device
        ));
    }
}

/// Where a file is, or would be: in the nearest existing folder above it, which is told if it is not the
/// file's.
fn place_of(path: &Path) -> anyhow::Result<Place> {
    let path = std::path::absolute(path)?;
    let mut at: &Path = &path;
    let meta = loop {
        match std::fs::metadata(at) {
            Ok(meta) => break meta,
            Err(error) => match at.parent().filter(|_| error.kind() == std::io::ErrorKind::NotFound) {
                Some(above) => at = above,
                None => {
                    return Err(error).with_context(|| {
                        format!("cannot tell which device {} is on; name it with --device", path.display())
                    });
                }
            },
        }
    };
    let wrong = |why: String| exit::Usage(format!("{why}; name a file or folder on a disk or in memory"));
    if !meta.is_file() && !meta.is_dir() {
        return Err(wrong(format!("{} is no file and no folder", at.display())).into());
    }
    let place = Place::of(at)?;
    if place.is_kernels_own() {
        let what = "whose files are the kernel's own: a write there is no write of data";
        return Err(wrong(format!("{} is on {}, {what}", path.display(), place.filesystem)).into());
    }
    if at != path {
        let is_folder = path.parent().is_some_and(|folder| at != folder);
        let (what, missing) =
            if is_folder { ("folder ", path.parent().unwrap_or(&path)) } else { ("", &*path) };
        let (missing, at) = (missing.display(), at.display());
        render::tell(format_args!(
            "cawl-cli: there is no {what}{missing}; predicted as if it were made in {at}"
        ));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_exist_yet_lies_where_its_folder_does() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let own = place_of(&folder).unwrap();
        for new in ["new", "new/folder/file"] {
            let place = place_of(&folder.join(new)).unwrap();
            assert_eq!((place.number, place.folder), (own.number, folder.clone()));
        }
        std::fs::write(folder.join("plain"), "").unwrap();
        let error = place_of(&folder.join("plain/file")).unwrap_err();
        assert!(format!("{error:#}").contains("--device"), "{error:#}");
        assert_eq!(place_of(Path::new("/dev/shm/new")).unwrap().backing, Backing::Memory);
        for wrong in ["/proc/self/new", "/sys/new", "/dev/null"] {
            assert!(place_of(Path::new(wrong)).unwrap_err().is::<exit::Usage>(), "{wrong}");
        }
    }
}
