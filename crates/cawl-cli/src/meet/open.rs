//! The devices that processes write to which run already. Nothing is measured beside them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cawl_core::host_text;
use cawl_host::place::{Backing, Place};

use super::{Devices, is_measured};

/// Most descriptors that are looked at, of all processes.
const DESCRIPTORS: usize = 1 << 14;

impl Devices {
    /// Those of the regular files that the processes have open for writing, by their number, then those of
    /// their current folders.
    pub fn of_processes(processes: &[u32]) -> Devices {
        let mut files: BTreeMap<u64, (usize, PathBuf)> = BTreeMap::new();
        let all = processes.iter().flat_map(|pid| {
            fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|entry| entry.path())
        });
        for (number, folder) in all.take(DESCRIPTORS).filter_map(|link| written(&link)) {
            files.entry(number).or_insert((0, folder)).0 += 1;
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        let files = files.into_iter().map(|(number, (_, folder))| (number, folder));
        let folders = processes.iter().filter_map(|pid| {
            let link = format!("/proc/{pid}/cwd");
            Some((fs::metadata(&link).ok()?.dev(), fs::read_link(&link).ok()?))
        });
        let mut devices = Devices { places: Vec::new(), folders: Vec::new() };
        for (number, folder) in files.chain(folders) {
            if devices.places.iter().all(|place| place.number != number)
                && let Some(place) = seen_from_here(number, &folder)
                && (is_measured(&place) || place.backing == Backing::Network)
            {
                devices.places.push(place);
                devices.folders.push(vec![folder]);
            }
        }
        devices
    }

    /// Those of `unmet` that someone should measure.
    pub fn unmeasured<'a>(&'a self, unmet: &'a [usize]) -> impl Iterator<Item = &'a Place> {
        self.measurable(unmet).map(|at| &self.places[at]).chain(self.strangers(unmet))
    }
}

/// The device of a regular file that is open for writing, and the file's folder, as its process sees it.
fn written(link: &Path) -> Option<(u64, PathBuf)> {
    let text = fs::read_to_string(link.to_str()?.replacen("/fd/", "/fdinfo/", 1)).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return None;
    }
    let meta = fs::metadata(link).ok().filter(fs::Metadata::is_file)?;
    Some((meta.dev(), fs::read_link(link).ok()?.parent()?.to_owned()))
}

/// The place of a device: that of the folder, or where the process sees another filesystem there, as in a
/// container, that of the device's mount here.
fn seen_from_here(number: u64, folder: &Path) -> Option<Place> {
    let place = |folder: &Path| Place::of(folder).ok().filter(|place| place.number == number);
    place(folder).or_else(|| {
        let mounts = host_text::mountinfo(&fs::read_to_string("/proc/self/mountinfo").ok()?);
        mounts.iter().filter(|mount| mount.dev == number).find_map(|mount| place(Path::new(&mount.mount)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_for_writing_counts_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("file")).unwrap();
        let own = std::process::id();
        let devices = Devices::of_processes(&[own]);
        let number = file.metadata().unwrap().dev();
        let place = devices.places.iter().find(|place| place.number == number);
        assert!(place.is_none_or(|place| !place.device.is_empty()));
        let numbers: std::collections::BTreeSet<u64> =
            devices.places.iter().map(|place| place.number).collect();
        assert_eq!(numbers.len(), devices.places.len());
        assert!(devices.places.iter().all(|place| !place.is_kernels_own()));
        let link = |fd: i32| PathBuf::from(format!("/proc/{own}/fd/{fd}"));
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let wanted = (number, dir.path().canonicalize().unwrap());
        assert_eq!(written(&link(fd)), Some(wanted));
        let reader = fs::File::open(dir.path().join("file")).unwrap();
        assert_eq!(written(&link(std::os::fd::AsRawFd::as_raw_fd(&reader))), None);
        assert!(Devices::of_processes(&[u32::MAX]).places.is_empty());
    }
}
