//! Profiles of many machines, collected in a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_core::HostProfile;
use cawl_core::prior::{self, Member};
use serde::Serialize;

use crate::machine;

/// No profile is longer.
const LONGEST: u64 = 1 << 20;
/// Folders within folders, at most.
const DEEPEST: usize = 8;

/// A file or folder that tells nothing of other machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its path.
    pub file: PathBuf,
    /// Why.
    pub why: String,
}

/// Measured profiles of a folder.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The profiles, each called by its path in the folder.
    pub members: Vec<Member>,
    /// The other files that end in `.toml`, and folders that cannot be read.
    pub skipped: Vec<Skipped>,
}

/// Reads all files that end in `.toml`, also of folders in it; links to folders are not followed.
///
/// # Errors
///
/// If the folder cannot be read.
pub fn collected(folder: &Path) -> anyhow::Result<Collected> {
    let about = || format!("cannot read the folder {}; name one that you may read", folder.display());
    let (mut files, mut found) = (Vec::new(), Collected::default());
    find(folder, DEEPEST, &mut files, &mut found.skipped).with_context(about)?;
    files.sort();
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for file in files {
        let label = file.strip_prefix(folder).unwrap_or(&file).with_extension("").display().to_string();
        let read = read(&file).and_then(|text| {
            let profile = HostProfile::from_toml(&text).map_err(|error| anyhow::anyhow!(error.brief()))?;
            anyhow::ensure!(!texts.contains_key(&text), "it is a copy of {}", texts[&text]);
            texts.insert(text, label.clone());
            prior::unfit(&profile).map_or(Ok(profile), |why| Err(anyhow::anyhow!(why)))
        });
        match read {
            Ok(profile) => found.members.push(Member { label, profile }),
            Err(error) => {
                found.skipped.push(Skipped { file, why: format!("{error:#}") });
            }
        }
    }
    Ok(found)
}

fn find(
    folder: &Path,
    deeper: usize,
    files: &mut Vec<PathBuf>,
    skipped: &mut Vec<Skipped>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            let found = match deeper.checked_sub(1) {
                Some(deeper) => find(&path, deeper, files, skipped),
                None => Err(io::Error::other("it is too deep below others")),
            };
            let skip = |error: io::Error| Skipped { file: path, why: error.to_string() };
            skipped.extend(found.err().map(skip));
        } else if path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    machine::open_regular(file)?.take(LONGEST + 1).read_to_string(&mut text)?;
    anyhow::ensure!(text.len() as u64 <= LONGEST, "it is longer than a profile");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{MachineKind, Origin};
    use nix::unistd::{Uid, setfsuid};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_no_profile_of_a_machine_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let mut profile = HostProfile::uncalibrated();
        put("never.toml", &profile.to_toml());
        profile.origin = Origin::Calibrated;
        put("old.toml", &profile.to_toml());
        profile.machine = Some(MachineKind { processor: None, storage: "sd".into() });
        let text = profile.to_toml();
        fs::create_dir(dir.path().join("b")).unwrap();
        put("b/node1.toml", &text);
        put("copy.toml", &text);
        put("later.toml", &text.replace("schema = 1", "schema = 9"));
        put("cut.toml", &text[..text.len() / 2]);
        put(
            "no_field.toml",
            &text.lines().filter(|line| !line.starts_with("page")).collect::<Vec<_>>().join("\n"),
        );
        put("notes.txt", "no profile");
        fs::write(dir.path().join("bytes.toml"), [0xff, 0xfe]).unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let found = collected(dir.path()).unwrap();
        let labels: Vec<&str> = found.members.iter().map(|member| member.label.as_str()).collect();
        assert_eq!(labels, ["b/node1"]);
        let why = |name: &str| {
            let skipped = found.skipped.iter().find(|skipped| skipped.file.ends_with(name));
            skipped.unwrap_or_else(|| panic!("{name} is not named")).why.clone()
        };
        for (name, says) in [
            ("never.toml", "no calibration"),
            ("old.toml", "calibrate again"),
            ("copy.toml", "a copy of b/node1"),
            ("later.toml", "newer cawl-cli"),
            ("cut.toml", "it is cut off"),
            ("no_field.toml", "missing field `page`; it is cut off"),
            ("bytes.toml", "UTF-8"),
            ("pipe.toml", "not a regular file"),
        ] {
            assert!(why(name).contains(says) && !why(name).contains(['\n', '|']), "{name}: {}", why(name));
        }
        assert!(why("cut.toml").starts_with("line "), "{}", why("cut.toml"));
        assert_eq!(found.skipped.len(), 8);
        assert!(collected(&dir.path().join("none")).is_err());
    }

    /// A user without rights of root, where it is root that tests.
    #[test]
    fn what_cannot_be_read_is_named_and_the_others_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let mut profile = HostProfile::uncalibrated();
        profile.origin = Origin::Calibrated;
        profile.machine = Some(MachineKind { processor: None, storage: "sd".into() });
        let closed =
            |path: &str, mode| fs::set_permissions(dir.path().join(path), Permissions::from_mode(mode));
        fs::create_dir(dir.path().join("closed")).unwrap();
        for name in ["closed/a.toml", "b.toml", "c.toml"] {
            fs::write(dir.path().join(name), profile.to_toml()).unwrap();
        }
        fs::create_dir_all(dir.path().join("0/1/2/3/4/5/6/7/8")).unwrap();
        for (path, mode) in [("", 0o755), ("closed", 0), ("b.toml", 0)] {
            closed(path, mode).unwrap();
        }
        // Of this thread alone.
        setfsuid(Uid::from_raw(65_534));
        let found = collected(dir.path());
        let whole = collected(&dir.path().join("closed")).unwrap_err().to_string();
        setfsuid(Uid::effective());
        closed("closed", 0o700).unwrap();
        let Collected { members, skipped } = found.unwrap();
        assert_eq!(members.iter().map(|member| member.label.as_str()).collect::<Vec<_>>(), ["c"]);
        let mut why: Vec<_> =
            skipped.iter().map(|of| (of.file.strip_prefix(dir.path()).unwrap(), of.why.as_str())).collect();
        why.sort();
        let denied = "Permission denied (os error 13)";
        let deep = (Path::new("0/1/2/3/4/5/6/7/8"), "it is too deep below others");
        assert_eq!(why, [deep, (Path::new("b.toml"), denied), (Path::new("closed"), denied)]);
        assert!(whole.contains("closed; name one that you may read"), "{whole}");
    }
}
