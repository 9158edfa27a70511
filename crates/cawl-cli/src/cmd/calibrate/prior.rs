//! `calibrate --from`: profiles of equal machines in the place of a calibration.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::ensure;
use cawl_core::HostProfile;
use cawl_core::prior::{self, Merged, Nearest};
use cawl_host::place::{Backing, Place};
use cawl_host::profiles::fleet::{self, Collected, Skipped};
use cawl_measure::calibrate::{self, Calibration};

use super::{is_better, options, profile_file, write};
use crate::args::CalibrateArgs;
use crate::cmd::apart;
use crate::render::calibrate::FromOthers;
use crate::{exit, outputs, render};

/// Merges the profiles of the folder, checks the result here, and writes it.
pub fn from(args: &CalibrateArgs, folder: &Path, signal: Arc<AtomicUsize>) -> anyhow::Result<ExitCode> {
    let place = Place::of(&args.path)?;
    exit::usage(place.backing != Backing::Network, || {
        format!(
            "the files of {} are elsewhere, and other machines' ways there are others; calibrate it without \
             --from",
            place.mount
        )
    })?;
    let file = profile_file(args)?;
    if args.output.is_some() {
        outputs::check(&file, &outputs::PROFILE)?;
    } else {
        ensure!(
            !is_better(&file),
            "this machine has a calibration of its own, {}, which is better than others'; remove it first, or \
             name another file with -o",
            file.display()
        );
    }
    exit::usage(folder.is_dir() || !folder.exists(), || {
        format!(
            "{} is a file; --from takes a folder with the profiles of other machines, for one of them too",
            folder.display()
        )
    })?;
    let Collected { members, skipped } = fleet::collected(folder)?;
    let used: Vec<_> = members.iter().map(|of| folder.join(format!("{}.toml", of.label))).collect();
    apart(&used, args.output.as_ref())?;
    for Skipped { file, why } in &skipped {
        render::tell(render::wrapped(&format!("left out: {}: {why}", file.display()), 0));
    }
    let mut here = HostProfile::uncalibrated();
    calibrate::put_settings(&mut here, &place);
    let equal = prior::equal(&members, &here).map_err(|nearest| unlike(folder, nearest))?;
    let Merged { mut profile, members: merged, outliers } = prior::merge(&equal).map_err(|odd| {
        let names: Vec<&str> = odd.iter().map(|odd| odd.label.as_str()).collect();
        anyhow::anyhow!(
            "the {} profiles of machines like this one disagree so much that {} would be left out ({}); calibrate \
             this machine without --from",
            equal.len(),
            odd.len(),
            names.join(", ")
        )
    })?;
    calibrate::put_settings(&mut profile, &place);
    profile.created = Some(cawl_host::wall_clock());
    let own = match args.no_check {
        true => None,
        false => Some(calibrate::calibrate(&options(args), signal)?),
    };
    let contradicted =
        own.as_ref().map(|own| prior::contradictions(&profile, &own.profile)).unwrap_or_default();
    let mut notes = few(merged.len());
    let mut seconds = None;
    let mut unsure = Vec::new();
    let holds = !prior::is_odd(&contradicted);
    if let Some(own) = own {
        if holds {
            unsure = prior::unsure(&profile, &own.profile);
            profile = prior::narrowed(&profile, &own.profile);
        }
        let Calibration { notes: of_own, seconds: took, .. } = own;
        // The bytes of the check are fixed, and with fewer repeats it is as good.
        notes.extend(of_own.into_iter().filter(|note| !note.ends_with("--max-bytes for more")));
        seconds = Some(took);
    }
    if holds {
        write(&file, &profile.to_toml(), args.output.is_none())?;
        render::tell(format_args!("profile written to {}", file.display()));
    }
    let others = members.len() - equal.len();
    let schema = 1;
    let found = FromOthers {
        schema,
        holds,
        merged,
        outliers,
        others,
        skipped,
        contradicted,
        checked: seconds.is_some() && unsure.is_empty(),
        unsure,
        seconds,
        notes,
        profile,
    };
    let printed =
        render::answer(args.json, &found, |terminal| Ok(render::calibrate::text_of_prior(&found, terminal)))?;
    ensure!(
        holds,
        "this machine is not like the others: no profile was written; calibrate it without --from, or take theirs \
         with --no-check"
    );
    Ok(printed)
}

fn unlike(folder: &Path, (count, differs): Nearest) -> anyhow::Error {
    if count == 0 {
        return anyhow::anyhow!(
            "there is no measured profile in {}; collect those of ~/.local/share/cawl/profiles of other machines, \
             after `cawl-cli calibrate` there",
            folder.display()
        );
    }
    let facts = differs.iter().map(|(what, there, here)| format!("{what} (theirs {there}, here {here})"));
    let (they, differ) = if count == 1 { ("the nearest one", "differs") } else { ("the nearest", "differ") };
    let count = if count == 1 { String::new() } else { format!(" {count}") };
    anyhow::anyhow!(
        "no profile in {} is of a machine like this one; {they}{count} {differ} in {}; calibrate this machine \
         without --from",
        folder.display(),
        facts.collect::<Vec<_>>().join(", ")
    )
}

/// What few machines do not tell.
fn few(machines: usize) -> Vec<String> {
    let note = match machines {
        1 => "one machine does not tell how much its kind differs: 30 % are assumed",
        2 => "of two machines nobody can tell which one is odd",
        _ => return Vec::new(),
    };
    vec![note.to_owned()]
}
