//! The place of this machine's profiles, and the choice of one.
//!
//! `cawl-cli calibrate` writes one file per machine and device, `MACHINE-DEVICE.toml`, into cawl/profiles of
//! the user's data folder. Without `--profile`, `run`, `replay` and `cawld` take the one of the device under
//! the current folder; else the newest of this machine, whose memory and kernel are the same; else defaults.
//! `run` adds the device constants of further devices that the program may write to. What runs learn is kept
//! in the same file, beside what was measured ([`Keeper`]), and used in its place. The dirty limits and the
//! other settings of the kernel are always those of now.

pub mod fleet;
mod keep;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_core::{FilesystemKind, HostProfile, Origin, OtherDevice};
pub use keep::{Keeper, Lock};

use crate::machine;
use crate::place::Place;

/// A profile, with remarks on its choice.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The profile, with learned constants and the kernel's present settings.
    pub profile: HostProfile,
    /// Its file; None for defaults.
    pub file: Option<PathBuf>,
    /// Why it is not the profile of the device, if so.
    pub note: Option<String>,
    /// The places to calibrate: those without a profile or without [a part of it](HostProfile::unmeasured),
    /// and those whose profile [`CONTRADICTED`] consecutive runs have contradicted.
    pub unmet: Vec<usize>,
    /// Keeps learned constants of the device; None if the profile is another device's, or its file is
    /// invalid.
    pub keeper: Option<Keeper>,
}

/// Runs in a row in which learning contradicts a profile, after which the machine counts as changed.
pub const CONTRADICTED: u32 = 3;

const NO_FOLDER: &str =
    "there is no folder for profiles: set XDG_DATA_HOME or HOME; without them no profile is found";

/// A younger profile is not measured again, since the result would be the same. In seconds.
const YOUNG: u64 = 3600;

/// The profile for programs that write under `folder`.
pub fn choose(folder: &Path) -> Chosen {
    choose_for(Place::of(folder).ok().as_slice())
}

/// The profile for programs that write at the first of these places, with the device constants of the others.
pub fn choose_for(places: &[Place]) -> Chosen {
    let mut chosen = match (directory(), machine_id()) {
        (Some(directory), Some(machine)) => {
            let place = places.first();
            let own = place.map(|place| directory.join(file_name(&machine, &place.device)));
            let mut chosen = choose_in(&directory, &machine, place.map(|place| place.device.as_str()));
            let is_own = chosen.file.is_none() && chosen.note.is_none() || chosen.file == own;
            chosen.keeper =
                place.zip(own).filter(|_| is_own).and_then(|(place, file)| Keeper::new(place, file));
            let files =
                places.iter().map(|place| (place.number, directory.join(file_name(&machine, &place.device))));
            chosen.add(&files.collect::<Vec<_>>());
            chosen
        }
        (None, _) => Chosen::defaults(Some(format!("{NO_FOLDER}, and nothing learned is kept"))),
        (_, None) => Chosen::defaults(None),
    };
    crate::apply_settings(&mut chosen.profile);
    chosen
}

impl Chosen {
    fn defaults(note: Option<String>) -> Chosen {
        let profile = HostProfile::uncalibrated();
        Chosen { profile, file: None, note, unmet: Vec::new(), keeper: None }
    }

    /// Adds the constants of further devices from their files.
    fn add(&mut self, files: &[(u64, PathBuf)]) {
        for (at, (number, file)) in files.iter().enumerate() {
            match read_profile(file) {
                Ok(profile) => {
                    if profile.origin == Origin::Learned
                        || is_different(&profile)
                        || !profile.unmeasured().is_empty()
                    {
                        self.unmet.push(at);
                    }
                    if at > 0 && self.file.as_ref() != Some(file) {
                        self.profile.others.retain(|other| other.dev != *number);
                        let constants = profile.as_learned().device;
                        self.profile.others.push(OtherDevice { dev: *number, constants });
                    }
                }
                // An unreadable file is left to the user.
                Err(_) if file.exists() => {}
                Err(_) => self.unmet.push(at),
            }
        }
    }
}

/// True if several consecutive runs have contradicted the measured constants.
fn is_different(profile: &HostProfile) -> bool {
    let age = profile.created.map_or(u64::MAX, |created| machine::wall_clock().saturating_sub(created));
    profile.contradicted >= CONTRADICTED && age >= YOUNG
}

fn read_profile(file: &Path) -> anyhow::Result<HostProfile> {
    Ok(HostProfile::from_toml(&fs::read_to_string(file)?)?)
}

/// The file for the profile of a device of this machine.
pub fn file_of(device: &str) -> anyhow::Result<PathBuf> {
    let directory = directory().with_context(|| format!("{NO_FOLDER}; or name a file with -o"))?;
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
        match read_profile(path) {
            Ok(profile) => {
                // Of files in memory, the constants of memory are all that count.
                let in_memory = device.is_some_and(|device| FilesystemKind::of(device).is_in_memory());
                let elsewhere = own.as_ref() != Some(path) && !in_memory;
                let note = trouble.or_else(|| {
                    elsewhere.then(|| {
                        format!(
                            "the device {} was not calibrated; the device constants are those of {}",
                            device.unwrap_or("here"),
                            profile.name
                        )
                    })
                });
                let profile = profile.as_learned();
                return Chosen { profile, file: Some(path.clone()), note, ..Chosen::defaults(None) };
            }
            Err(error) => {
                trouble = trouble.or(Some(format!(
                    "the profile {} was not used ({error:#}); calibrate again",
                    path.display()
                )));
            }
        }
    }
    Chosen::defaults(trouble)
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

/// An identity of this machine among those that share a home.
fn machine_id() -> Option<String> {
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(machine::read);
    let name = nix::sys::utsname::uname().ok().map(|name| name.nodename().to_string_lossy().into_owned());
    let known = ids.into_iter().chain(name).map(|id| id.trim().to_owned());
    known.into_iter().find(|id| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
}

#[cfg(test)]
mod tests {
    use cawl_core::{Constant, Unit};

    use super::*;

    /// The page of constants is written from their table; `CAWL_WRITE_PAGES=1` in the environment does it.
    #[test]
    fn the_page_of_constants_is_the_table() {
        const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/CONSTANTS.md");
        let mut page = "# The constants of a machine\n\n\
            What a profile (TOML, `cawl-cli profile show`) can have, by table. *m*: measured by `cawl-cli calibrate`\n\
            ([CALIBRATION](CALIBRATION.md)); *l*: learned from calls. Rates are in bytes per second, times in ns, sizes in\n\
            bytes; a part has no unit. This page is written from the table in crates/cawl-model/src/profile.rs by\n\
            `CAWL_WRITE_PAGES=1 cargo test -p cawl-host page_of_constants`.\n"
            .to_owned();
        let mut table = String::new();
        HostProfile::complete().each(
            |_| String::new(),
            |constant| {
                let (of, _) = constant.name.split_once('.').expect("a table");
                if of != table {
                    page += &format!(
                        "\n## {of}\n\n| constant | unit | | what it is, and what stands for it |\n|---|---|---|---|\n"
                    );
                    of.clone_into(&mut table);
                }
                let unit = constant.figure.unit();
                let is_learned = Constant::names().any(|name| name == constant.name);
                let marks = match (!constant.row.label.is_empty(), is_learned) {
                    (true, true) => "*m* *l*",
                    (true, false) => "*m*",
                    (false, true) => "*l*",
                    (false, false) => "",
                };
                page += &format!(
                    "| `{}` | {} | {marks} | {} |\n",
                    constant.name,
                    if unit == Unit::Number { "–" } else { unit.name() },
                    constant.row.about.trim().replace("[`", "`").replace("`]", "`"),
                );
            },
        );
        if std::env::var_os("CAWL_WRITE_PAGES").is_some() {
            fs::write(PAGE, &page).unwrap();
        }
        assert!(fs::read_to_string(PAGE).unwrap() == page, "CONSTANTS.md is not that of the table");
    }

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
        std::fs::remove_file(dir.path().join("m1-tmpfs.toml")).unwrap();
        let in_memory = choose_in(dir.path(), "m1", Some("tmpfs"));
        assert_eq!((in_memory.profile.name.as_str(), in_memory.note), ("disk", None));
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
    fn further_devices_have_their_own_constants() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["vda", "sdb", "sdc", "sdd"].map(|device| dir.path().join(format!("m-{device}.toml")));
        let with_commit = |seconds: f64, contradicted: u32| {
            let mut profile = HostProfile { contradicted, ..HostProfile::uncalibrated() };
            profile.device.commit = cawl_core::Nanos::seconds(seconds);
            profile.to_toml()
        };
        put(dir.path(), "m-vda.toml", &with_commit(1.0, 2));
        put(dir.path(), "m-sdb.toml", &with_commit(2.0, CONTRADICTED));
        put(dir.path(), "m-sdd.toml", "schema = 1\nnonsense");
        let mut chosen = choose_in(dir.path(), "m", Some("vda"));
        let numbered: Vec<_> = (1..).zip(files).collect();
        chosen.add(&numbered);
        let commits = [1, 2, 3, 4].map(|dev| chosen.profile.device_of(dev).commit.as_seconds());
        assert_eq!(commits, [1.0, 2.0, 1.0, 1.0]);
        // The second was contradicted, the third never seen; the fourth is the user's to mend.
        assert_eq!(chosen.unmet, [1, 2]);
    }

    #[test]
    fn what_was_measured_just_now_is_not_measured_again() {
        let mut profile = HostProfile { contradicted: CONTRADICTED, ..HostProfile::uncalibrated() };
        assert!(is_different(&profile));
        profile.created = Some(machine::wall_clock());
        assert!(!is_different(&profile));
    }

    #[test]
    fn file_names_stay_in_the_folder() {
        assert_eq!(file_name("m", "cciss/c0d0"), "m-cciss_c0d0.toml");
        assert_eq!(file_name("m", ".."), "m-__.toml");
    }
}
