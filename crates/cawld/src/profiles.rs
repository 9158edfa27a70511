//! Where this machine's profiles lie, and which one is meant when none is named.
//!
//! `cawl-cli calibrate` writes one file per machine and device, `MACHINE-DEVICE.toml`, into cawl/profiles of
//! the user's data folder. Without `--profile`, `run`, `replay` and `cawld` take the one of the device under
//! the current folder; else the newest of this machine, whose memory and kernel are the same; else defaults.
//! The dirty limits and the other settings of the kernel are always those of now.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_core::HostProfile;

use crate::host;
use crate::place::Place;

/// A profile, and what its user must know about how it was chosen.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The profile, with the kernel's settings of now.
    pub profile: HostProfile,
    /// Its file; None for defaults.
    pub file: Option<PathBuf>,
    /// Why it is not the one it should be.
    pub note: Option<String>,
}

/// The profile for programs that write under `folder`.
pub fn choose(folder: &Path) -> Chosen {
    let mut chosen = match (directory(), machine_id()) {
        (Some(directory), Some(machine)) => {
            let device = Place::of(folder).ok().map(|place| place.device);
            choose_in(&directory, &machine, device.as_deref())
        }
        _ => Chosen { profile: HostProfile::uncalibrated(), file: None, note: None },
    };
    host::apply_settings(&mut chosen.profile);
    chosen
}

/// The file for the profile of a device of this machine.
pub fn file_of(device: &str) -> anyhow::Result<PathBuf> {
    let directory = directory()
        .context("there is no folder for profiles: set XDG_DATA_HOME or HOME, or name a file with -o")?;
    let machine = machine_id().context("this machine has no id and no name; name a file with -o")?;
    Ok(directory.join(file_name(&machine, device)))
}

fn choose_in(directory: &Path, machine: &str, device: Option<&str>) -> Chosen {
    let own = device.map(|device| directory.join(file_name(machine, device)));
    let mut others: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            let rest = name.strip_prefix(machine).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|rest| rest.ends_with(".toml"))
        })
        .collect();
    others.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).and_then(|meta| meta.modified()).ok()));
    let mut trouble = None;
    for path in own.iter().filter(|path| path.is_file()).chain(&others) {
        let read = fs::read_to_string(path)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(HostProfile::from_toml(&text)?));
        match read {
            Ok(profile) => {
                let elsewhere = own.as_ref() != Some(path);
                let note = trouble.or_else(|| {
                    elsewhere.then(|| {
                        format!(
                            "the device {} was not calibrated; the device constants are those of {}",
                            device.unwrap_or("here"),
                            profile.name
                        )
                    })
                });
                return Chosen { profile, file: Some(path.clone()), note };
            }
            Err(error) => {
                trouble = trouble.or(Some(format!(
                    "the profile {} was not used ({error:#}); calibrate again",
                    path.display()
                )));
            }
        }
    }
    Chosen { profile: HostProfile::uncalibrated(), file: None, note: trouble }
}

fn file_name(machine: &str, device: &str) -> String {
    // Device names may have slashes (cciss/c0d0) and types dots.
    let device: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{machine}-{device}.toml")
}

/// Folder of the profiles.
fn directory() -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(absolute);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(absolute);
    Some(data.or_else(|| home.map(|home| home.join(".local/share")))?.join("cawl/profiles"))
}

/// What tells this machine from others that share a home.
fn machine_id() -> Option<String> {
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(host::read);
    let name = nix::sys::utsname::uname().ok().map(|name| name.nodename().to_string_lossy().into_owned());
    let known = ids.into_iter().chain(name).map(|id| id.trim().to_owned());
    known.into_iter().find(|id| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(directory: &Path, name: &str, text: &str) {
        fs::write(directory.join(name), text).unwrap();
    }

    #[test]
    fn the_device_s_own_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let named = |name: &str| {
            let mut profile = HostProfile::uncalibrated();
            profile.name = name.to_owned();
            profile.to_toml()
        };
        put(dir.path(), "m1-vda.toml", &named("disk"));
        put(dir.path(), "m1-tmpfs.toml", &named("memory"));
        put(dir.path(), "m2-vda.toml", &named("another machine"));
        let chosen = choose_in(dir.path(), "m1", Some("vda"));
        assert_eq!((chosen.profile.name.as_str(), chosen.note), ("disk", None));
        let other = choose_in(dir.path(), "m1", Some("sdb"));
        assert!(other.profile.name != "another machine" && other.note.unwrap().contains("sdb"));
        assert_eq!(choose_in(dir.path(), "m3", Some("vda")).file, None);
    }

    #[test]
    fn a_broken_one_is_passed_over_and_told() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "m-vda.toml", "schema = 1\nnonsense");
        let chosen = choose_in(dir.path(), "m", Some("vda"));
        assert_eq!(chosen.file, None);
        assert!(chosen.note.unwrap().contains("calibrate again"));
    }

    #[test]
    fn file_names_stay_in_the_folder() {
        assert_eq!(file_name("m", "cciss/c0d0"), "m-cciss_c0d0.toml");
        assert_eq!(file_name("m", ".."), "m-__.toml");
    }
}
