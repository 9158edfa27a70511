//! First meetings: `run` calibrates each device without a profile that the program may write to, once.
//!
//! The law: **the program starts, and soon.** Another process measures (`calibrate --brief`) and ends within
//! two seconds, or four where the device writes back other programs' data. `run` waits no longer, since a
//! device that does not answer cannot be interrupted. A failure becomes a note in the report, and the next
//! run tries again.

mod open;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use cawl_core::{Bytes, DeletedFacts, HostProfile, Origin, Seconds, passed_over};
use cawl_host::allowance;
use cawl_host::new_inode::{self, NewInode};
use cawl_host::place::{Backing, Place};
use cawl_host::profiles::{self, Chosen};
use cawl_measure::calibrate::patience;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{AccessFlags, Pid, access};

use crate::render;

/// Most devices calibrated before a program starts.
const DEVICES: usize = 3;
/// Most arguments of the program that are checked for paths.
const ARGUMENTS: usize = 256;
/// Least free space on a filesystem to be measured.
const MIN: Bytes = Bytes::mib(1 << 10);
/// Least bytes for a profile.
const ROOM: u64 = 64 << 10;
/// Failures in a row after which there is no other attempt for a time.
const FAILURES: usize = 2;
const LEFT_ALONE: Duration = Duration::from_secs(60 * 60);
/// What the lock file says of a device that was too busy to be measured.
const BUSY: &str = "it was writing back data of other programs; the next run measures it";

/// Why a constant is missing from a measurement that did not fail.
const NO_TIME: &str = "no time was left in the 2 s";

/// The devices that a program may write to; that of the current folder comes first.
pub struct Devices {
    places: Vec<Place>,
    /// For each device, folders to measure in, in order of preference.
    folders: Vec<Vec<PathBuf>>,
}

impl Devices {
    /// The devices of the current folder, of temporary files, and of paths in the arguments.
    pub fn of(command: &[OsString]) -> Devices {
        let temporary = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let temporary = temporary.unwrap_or_else(|| "/tmp".into());
        let named = command.iter().skip(1).take(ARGUMENTS).flat_map(|argument| paths(argument));
        let mut devices = Devices { places: Vec::new(), folders: Vec::new() };
        for path in [PathBuf::from("."), temporary.clone()].into_iter().chain(named) {
            let Some((number, folder)) = nearest(&path) else { continue };
            if let Some(at) = devices.places.iter().position(|place| place.number == number) {
                // First, since a file made in the current folder would wake its watchers (editors, build
                // tools).
                let at_front = if path == temporary { 0 } else { devices.folders[at].len() };
                devices.folders[at].insert(at_front, folder);
            } else if let Ok(place) = Place::of(&folder)
                && (devices.places.is_empty() || is_measured(&place) || place.backing == Backing::Network)
            {
                devices.places.push(place);
                devices.folders.push(vec![folder]);
            }
        }
        devices
    }

    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// What was deleted lately, where the program may make files on an ext4 without a journal.
    pub fn deleted(&self) -> Vec<DeletedFacts> {
        let passes = |(place, _): &(&Place, _)| place.lacks_journal && place.filesystem == "ext4";
        let folders = self.places.iter().zip(&self.folders).filter(passes);
        let folders: Vec<PathBuf> = folders.flat_map(|(_, folders)| folders).cloned().collect();
        let facts = |made: NewInode| {
            let (passed, _) = passed_over(Seconds(made.took), Seconds(made.open));
            DeletedFacts { dev: made.dev, inode: made.inode, passed }
        };
        let found = if folders.is_empty() { Vec::new() } else { new_inode::make_in(folders) };
        found.into_iter().map(facts).filter(|facts| facts.passed > 0).collect()
    }

    pub fn profile(&self) -> Chosen {
        profiles::choose_for(&self.places)
    }

    /// Measures the measurable ones of `unmet`. True if there are new profiles.
    pub fn measure(&self, unmet: &[usize], notes: &mut Vec<String>) -> bool {
        let mut found = false;
        for at in self.measurable(unmet).take(DEVICES) {
            let device = &self.places[at].device;
            let Some(folder) = self.folders[at].iter().find(|folder| may_be_filled(folder)) else { continue };
            match profiles::file_of(device).and_then(|file| once(device, folder, &file)) {
                Ok(is_new) => found |= is_new,
                Err(error) => {
                    // What was measured of memory is kept.
                    found = true;
                    notes.push(format!("{device}: {}", allowance::with_remedy(&error)));
                }
            }
        }
        found
    }

    /// Those of `unmet` that can be measured unasked. The profile of a disk has the constants of memory too.
    fn measurable(&self, unmet: &[usize]) -> impl Iterator<Item = usize> {
        let in_memory = |place: &Place| place.backing == Backing::Memory;
        let all_in_memory = self.places.iter().all(in_memory);
        let is_one = move |at: &usize| {
            let place = &self.places[*at];
            is_measured(place) && (all_in_memory || !in_memory(place))
        };
        unmet.iter().copied().filter(is_one)
    }

    /// Those of `unmet` that lie behind a network, which are measured only when asked for.
    pub fn strangers<'a>(&'a self, unmet: &'a [usize]) -> impl Iterator<Item = &'a Place> {
        unmet.iter().map(|at| &self.places[*at]).filter(|place| place.backing == Backing::Network)
    }
}

/// Paths that an argument may hold: all of it, and the part after `=`.
fn paths(argument: &OsStr) -> impl Iterator<Item = PathBuf> {
    let bytes = argument.as_bytes();
    let value = bytes.iter().position(|byte| *byte == b'=').map(|at| &bytes[at + 1..]);
    [Some(bytes), value].into_iter().flatten().map(|path| OsStr::from_bytes(path).into())
}

/// The nearest existing folder of a path, with its device number; None for a device, a pipe and the like.
fn nearest(path: &Path) -> Option<(u64, PathBuf)> {
    let mut at = std::path::absolute(path).ok()?;
    loop {
        match fs::metadata(&at) {
            Ok(meta) if meta.is_dir() => return Some((meta.dev(), at)),
            // A symbolic link may lead to another folder.
            Ok(meta) if meta.is_file() => {
                return Some((meta.dev(), at.canonicalize().ok()?.parent()?.to_owned()));
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                if !at.pop() {
                    return None;
                }
            }
            _ => return None,
        }
    }
}

/// True for filesystems that are measured unasked: not those that may lie behind a network, as many FUSE
/// filesystems do, nor those without files, as /proc.
fn is_measured(place: &Place) -> bool {
    match place.backing {
        Backing::Disk | Backing::Pool => true,
        Backing::Memory => matches!(place.filesystem.as_str(), "tmpfs" | "ramfs"),
        Backing::Stacked => place.filesystem == "overlay",
        Backing::Network => false,
    }
}

/// Bytes that are free where this folder is, and whether they can be written; none where that is not known.
fn room(folder: &Path) -> (u64, bool) {
    let room = |stat: Statvfs| {
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        (free, !stat.flags().contains(FsFlags::ST_RDONLY))
    };
    statvfs(folder).map(room).unwrap_or_default()
}

/// True for a folder that this user may write to, with enough free space.
fn may_be_filled(folder: &Path) -> bool {
    let (free, writable) = room(folder);
    free >= MIN.0 && writable && access(folder, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// Measures a device, unless another run measures it now or an attempt failed lately. True if there is a new
/// profile.
fn once(device: &str, folder: &Path, file: &Path) -> anyhow::Result<bool> {
    let about = || format!("no profile can be kept at {}", file.display());
    let profiles = file.parent().unwrap_or(file);
    fs::create_dir_all(profiles).with_context(about)?;
    ensure!(room(profiles).0 >= ROOM, "{}: the disk is full; make room there", about());
    // The lock file also holds the errors of failed measurements, one a line.
    let mark = file.with_extension("lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&mark);
    let mut lock = match Flock::lock(opened.with_context(about)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((opened, _)) => return Ok(wait_for(opened)),
    };
    let mut failures = String::new();
    lock.read_to_string(&mut failures)?;
    let age = lock.metadata()?.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
    let was_busy = failures.ends_with(&format!("{BUSY}\n"));
    if failures.lines().count() >= FAILURES && !was_busy && age < LEFT_ALONE
        || was_busy && cawl_host::writes_back()
    {
        return Ok(false);
    }
    // What one attempt had no time for, or was found to be wrong, is measured anew.
    let is_first = failures.is_empty() && !file.exists();
    let when = if is_first { ", once" } else { " again" };
    render::tell(format_args!("calibrating {device}{when}: 2 s; --no-calibrate skips it"));
    let measured = measure_apart(folder)
        .context("not calibrated")
        .and_then(|()| is_whole(&HostProfile::from_toml(&fs::read_to_string(file)?)?, folder));
    match &measured {
        Ok(()) => drop(fs::remove_file(&mark)),
        Err(error) => {
            if age >= LEFT_ALONE {
                lock.set_len(0)?;
            }
            lock.seek(SeekFrom::End(0))?;
            // Without room for it the next run measures again.
            drop(writeln!(lock, "{error:#}"));
        }
    }
    measured.map(|()| true)
}

/// An error that names what a measurement in this folder had no time for.
fn is_whole(profile: &HostProfile, folder: &Path) -> anyhow::Result<()> {
    ensure!(profile.origin != Origin::Learned, "only memory was measured: {BUSY}");
    let missing = profile.unmeasured();
    ensure!(
        missing.is_empty(),
        "not measured: {} ({NO_TIME}); a later run measures again, or now `cawl-cli calibrate {}`",
        missing.join(", "),
        folder.display()
    );
    Ok(())
}

/// Waits for another run that measures the same device; true when that is done.
fn wait_for(mut opened: File) -> bool {
    let deadline = Instant::now() + patience();
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        opened = match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(_) => return true,
            Err((opened, _)) => opened,
        };
    }
    false
}

/// Measures in this folder from another process.
fn measure_apart(folder: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cawl-cli").args(["calibrate", "--brief", "--parent", &std::process::id().to_string()]);
    command.arg("--").arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("no process for it can be started")?;
    let mut stderr = child.stderr.take().context("it has no output")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let (tell, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        drop(stderr.read_to_string(&mut said));
        // The process is not reaped here, so that its pid is not reused.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        drop(tell.send(said));
    });
    let patience = patience();
    let Ok(said) = ended.recv_timeout(patience) else {
        // A process that waits for the device ends when the device answers; until then it cannot be reaped.
        drop(child.kill());
        bail!("the device had not answered after {} s", patience.as_secs());
    };
    if !child.wait()?.success() {
        let last = said.lines().last().unwrap_or("it failed");
        bail!("{}", last.strip_prefix("cawl-cli: ").unwrap_or(last));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cawl_core::Thoroughness;

    use super::*;

    #[test]
    fn what_is_not_measured_is_named() {
        let uncalibrated = HostProfile::uncalibrated();
        let brief =
            |origin| HostProfile { measured: Some(Thoroughness::Brief), origin, ..uncalibrated.clone() };
        let told =
            |origin| is_whole(&brief(origin), Path::new("/data")).expect_err("no constant").to_string();
        let part = told(Origin::Calibrated);
        assert!(part.starts_with("not measured: ") && part.contains("device.fsync"), "{part}");
        assert!(part.ends_with("`cawl-cli calibrate /data`"), "{part}");
        assert!(told(Origin::Learned).starts_with("only memory was measured: it was writing back"));
        is_whole(&uncalibrated, Path::new("/data")).expect("it claims nothing");
    }

    #[test]
    fn paths_stand_among_arguments_and_after_equals_signs() {
        let found = |argument: &str| paths(OsStr::new(argument)).collect::<Vec<_>>();
        assert_eq!(found("/a/b"), [Path::new("/a/b")]);
        assert_eq!(found("of=/a/b"), [Path::new("of=/a/b"), Path::new("/a/b")]);
        assert_eq!(found("--out=c=d"), [Path::new("--out=c=d"), Path::new("c=d")]);
    }

    #[test]
    fn the_nearest_folder_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        fs::write(real.join("file"), "").unwrap();
        let folder = |path: &Path| nearest(path).map(|(_, folder)| folder);
        assert_eq!(folder(&real.join("no/such/file")), Some(real.clone()));
        assert_eq!(folder(&real.join("file")), Some(real.clone()));
        assert_eq!(folder(&real.join("file/below")), Some(real.clone()));
        std::os::unix::fs::symlink(real.join("file"), real.join("link")).unwrap();
        assert_eq!(folder(&real.join("link")), Some(real));
        assert_eq!(folder(Path::new("/dev/null")), None);
    }

    #[test]
    fn a_device_counts_once_however_often_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let of = format!("of={}", dir.path().join("new").display());
        let devices = Devices::of(&["dd", "if=/dev/zero", "/proc/self/maps", &of, &of].map(OsString::from));
        let mut numbers: Vec<u64> = devices.places.iter().map(|place| place.number).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), devices.places.len());
        assert!(numbers.contains(&fs::metadata(dir.path()).unwrap().dev()));
        assert!(devices.places.iter().all(|place| place.filesystem != "proc"));
        assert_eq!(devices.places[0].number, fs::metadata(".").unwrap().dev());
    }
}
