//! `profile`: the constants of this machine, and those that the daemon or earlier runs learned.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use cawl_client::protocol::{ProfileAnswer, Request};
use cawl_client::query;
use cawl_core::HostProfile;
use cawl_host::profiles::{self, Chosen};

use super::{read_profile, save, socket_of, stored_profile};
use crate::args::{DaemonArgs, ExportArgs, ProfileArgs, ProfileCommand, ProfileDiffArgs, ShowArgs};
use crate::render;
use crate::render::profile::{Difference, changed, differences};
use crate::render::report::days;

pub fn profile(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        ProfileCommand::Show(args) => show(args),
        ProfileCommand::Diff(args) => diff(args),
        ProfileCommand::Export(args) => export(args),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let Chosen { profile, file, note, .. } = profiles::choose(Path::new("."));
    let file = file.map_or("no profile of this machine".to_owned(), |file| file.display().to_string());
    let age = profile.created.map(|made| cawl_host::wall_clock().saturating_sub(made));
    let age = age.map(|age| format!(", {} old", days(age))).unwrap_or_default();
    let of =
        (profile.merged > 0).then(|| format!(" of {}", render::counted(profile.merged.into(), "profile")));
    let origin = format!("{:?}{}", profile.origin, of.unwrap_or_default()).to_lowercase();
    let note = note.map(|note| format!("; {note}")).unwrap_or_default();
    render::tell(format_args!("{file}: {origin}{age}{note}"));
    render::answer(args.json, &profile, |_| Ok(profile.to_toml()))
}

fn diff(args: &ProfileDiffArgs) -> anyhow::Result<ExitCode> {
    // The profile file holds what runs learned, with or without a daemon.
    let own = args.before.is_none() && has_no_daemon(&args.daemon);
    let own = own.then(own_file).transpose()?;
    let before = args.before.as_ref().or(own.as_ref());
    let (names, rows) = match (before, &args.after) {
        (None, _) => {
            let answer: ProfileAnswer = query::ask(&socket_of(&args.daemon)?, &Request::Profile)?;
            let rows = answer.constants.iter().map(Difference::from).collect();
            (["CONFIGURED", "LEARNED"], rows)
        }
        (Some(file), None) if has_no_daemon(&args.daemon) => (["MEASURED", "LEARNED"], learned(file)?),
        (Some(before), None) => {
            let before = read_profile(before)?;
            let answer: ProfileAnswer = query::ask(&socket_of(&args.daemon)?, &Request::Profile)?;
            let in_use = HostProfile::from_toml(&answer.learned)
                .context("the daemon's profile cannot be read; use a cawl-cli of its version")?;
            (["FILE", "IN USE"], differences(&before, &in_use))
        }
        (Some(before), Some(after)) => {
            (["A", "B"], differences(&read_profile(before)?, &read_profile(after)?))
        }
    };
    let rows: Vec<Difference> = changed(rows);
    let answer = serde_json::json!({ "schema": 1, "constants": rows });
    render::answer(args.json, &answer, |_| Ok(render::profile::text(&rows, names)))
}

/// This machine's profile.
fn own_file() -> anyhow::Result<PathBuf> {
    profiles::choose(Path::new(".")).file.context(
        "no daemon runs, and this machine has no profile: start one with `cawld`, or measure a profile with \
         `cawl-cli calibrate`",
    )
}

/// True if no daemon was named and none listens at the default socket.
fn has_no_daemon(daemon: &DaemonArgs) -> bool {
    daemon.socket.is_none() && socket_of(daemon).is_ok_and(|path| UnixStream::connect(path).is_err())
}

/// Measured constants against learned ones of one profile.
fn learned(file: &Path) -> anyhow::Result<Vec<Difference>> {
    let measured = stored_profile(file)?;
    Ok(differences(&measured, &measured.clone().as_learned()))
}

fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let text = if has_no_daemon(&args.daemon) {
        let profile = stored_profile(&own_file()?)?;
        if args.configured { profile.to_toml() } else { profile.as_learned().to_toml() }
    } else {
        let answer: ProfileAnswer = query::ask(&socket_of(&args.daemon)?, &Request::Profile)?;
        if args.configured { answer.configured } else { answer.learned }
    };
    // A profile that this version cannot parse is not written.
    HostProfile::from_toml(&text)
        .context("the daemon's profile cannot be read; use a cawl-cli of its version")?;
    match &args.output {
        None => render::data(&text),
        Some(file) => {
            save(file, &text, args.force)?;
            render::tell(format_args!("profile written to {}", file.display()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_told_to() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        save(&file, "one", false).unwrap();
        assert!(save(&file, "two", false).unwrap_err().to_string().contains("--force"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
        save(&file, "three", true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "three");
        // Nothing is left beside it.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(save(&dir.path().join("no/such/p.toml"), "x", false).is_err());
    }
}
