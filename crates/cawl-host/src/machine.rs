//! Reads the machine's state: /proc, /sys and the clock. `cawl_core::host_text` parses the texts.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cawl_core::{Filesystem, FilesystemKind, HostFacts, Nanos, Sample, Time, Usage, Wchar, host_text};
use nix::fcntl::OFlag;
use nix::time::ClockId;

use crate::clock;
use crate::settings::{cpus, hz, page};

/// Now, on the clock of events: CLOCK_MONOTONIC.
pub fn now() -> Time {
    clock::read(ClockId::CLOCK_MONOTONIC)
}

/// Seconds since 1970-01-01 UTC.
pub fn wall_clock() -> u64 {
    clock::read(ClockId::CLOCK_REALTIME).0 / 1_000_000_000
}

/// The kernel's counters now; None where /proc/vmstat lacks the dirty limits.
pub fn sample() -> Option<Sample> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    host_text::vmstat(&text, now())
}

/// True while a flusher is at work on this machine: at least 8 MiB are under writeback.
pub fn writes_back() -> bool {
    sample().is_some_and(|sample| sample.writeback * page().0 >= 8 << 20)
}

/// How often the page cache has been dropped since boot.
pub fn page_cache_drops() -> u64 {
    host_text::counter(&read("/proc/vmstat"), "drop_pagecache").unwrap_or(0)
}

/// The kernel's counters of a process, until it is reaped.
pub fn wchar(pid: u32) -> Wchar {
    let figure = |path: String| host_text::wchar(&fs::read_to_string(path).ok()?);
    Wchar { process: figure(format!("/proc/{pid}/io")), thread: figure(format!("/proc/{pid}/task/{pid}/io")) }
}

/// Processor time of a process, to 10 ms, until it is reaped.
pub fn usage(pid: u32) -> Option<Usage> {
    let times = |path: String| host_text::processor_time(&fs::read_to_string(path).ok()?);
    let (user, system) = times(format!("/proc/{pid}/stat"))?;
    let (own_user, own_system) = times(format!("/proc/{pid}/task/{pid}/stat"))?;
    let others = (user + system).saturating_sub(own_user + own_system);
    // All four are rounded.
    let others = if others > Nanos::millis(20.0) { others } else { Nanos::ZERO };
    Some(Usage { user, system, others, voluntary: None, involuntary: None })
}

/// How long a thread of a process ran, and waited for a processor, as the kernel counts it; until it is
/// reaped.
pub fn schedstat(pid: u32, tid: u32) -> Option<(Nanos, Nanos)> {
    let mut text = [0; 128];
    let length = File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?.read(&mut text).ok()?;
    host_text::schedstat(std::str::from_utf8(&text[..length]).ok()?)
}

/// True while the process runs; a zombie does not, a stopped one does.
pub fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

/// When the process began, in clock ticks since the machine started; None once all of its threads have ended,
/// or are about to. Another process that gets its number has another time.
pub fn alive_since(pid: u32) -> Option<u64> {
    // `PF_EXITING` (include/linux/sched.h).
    const EXITING: u64 = 4;
    let field = |stat: &str, at: usize| stat.split(' ').nth(at)?.parse::<u64>().ok();
    let lives = |stat: &str| field(stat, 6).is_some_and(|flags| flags & EXITING == 0);
    let first = stat(pid)?;
    let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut any = || tasks.any(|task| task.file_name().to_str().and_then(stat_of).is_some_and(|s| lives(&s)));
    if lives(&first) || any() { field(&first, 19) } else { None }
}

/// True if the process is stopped, by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some(b'T' | b't'))
}

/// The process's parent; 0 if that is not known.
pub fn parent(pid: u32) -> u32 {
    stat(pid).and_then(|stat| stat.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
}

/// The trace that a process was given: `TRACEPARENT` of its environment. None if it has none, or may not be
/// read.
pub fn traceparent(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environment.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"TRACEPARENT="))?;
    // Longer ones are no identifiers.
    String::from_utf8(value.to_vec()).ok().filter(|value| value.len() < 256)
}

/// The letter of the process's state; None if there is no process.
fn state(pid: u32) -> Option<u8> {
    stat(pid)?.bytes().next()
}

fn stat(pid: u32) -> Option<String> {
    stat_of(&pid.to_string())
}

/// /proc/PID/stat from the state on; of a process or thread.
fn stat_of(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything; the state follows the last one.
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

/// Opens a regular file by an untrusted name, for reading. The file's type is checked first: opening a device
/// can have effects, and opening a pipe can block.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let open =
        |path: &Path, flags: OFlag| OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let place = open(path, OFlag::O_PATH)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    open(Path::new(&path), OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
}

/// Locks a file until it is closed; false if another process holds it for longer than `patient` says. It
/// polls, so that a signal can end the wait.
pub(crate) fn lock(file: &File, mut patient: impl FnMut() -> bool) -> io::Result<bool> {
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if patient() => std::thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(true),
        }
    }
}

/// True if this process ignores the signal of this number.
pub fn is_ignored(signal: i32) -> bool {
    let mask = host_text::ignored_signals(&read("/proc/self/status")).unwrap_or(0);
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

/// Facts of this machine for a replay elsewhere. Takes milliseconds with many mounts.
pub fn facts() -> HostFacts {
    let uname = nix::sys::utsname::uname().ok();
    let text =
        |name: Option<&std::ffi::OsStr>| name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let sample = sample().unwrap_or_default();
    let page = page();
    let limits = sample.limits(page);
    HostFacts {
        kernel: text(uname.as_ref().map(|u| u.release())),
        host: text(uname.as_ref().map(|u| u.nodename())),
        hz: hz(),
        cpus: cpus(),
        page: page.0,
        memory: host_text::meminfo(&meminfo, "MemTotal").unwrap_or_default(),
        available: host_text::meminfo(&meminfo, "MemAvailable").unwrap_or_default(),
        background: limits.background,
        hard: limits.hard,
        dirty_settings: DIRTY_SETTINGS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), number(&format!("/proc/sys/vm/{name}"))?)))
            .collect(),
        wall_clock: wall_clock(),
        started: now(),
        filesystems: filesystems(),
        deleted: Vec::new(),
        lru_gen: crate::settings::lru_gen(),
    }
}

const DIRTY_SETTINGS: [&str; 7] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_ratio",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
    "dirtytime_expire_seconds",
];

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub(crate) fn number(path: &str) -> Option<u64> {
    read(path).trim().parse().ok()
}

/// Mounted filesystems with a device, with the device's data from sysfs, and those that wait for none.
fn filesystems() -> Vec<Filesystem> {
    let mut mounts = host_text::mountinfo(&read("/proc/self/mountinfo"));
    let in_memory = |mount: &Filesystem| FilesystemKind::of(&mount.kind).is_in_memory();
    mounts.retain(|mount| !mount.device.is_empty() || mount.kind == "overlay" || in_memory(mount));
    mounts.sort_by_key(|mount| (mount.dev, mount.mount.len()));
    mounts.dedup_by_key(|mount| mount.dev);
    for mount in &mut mounts {
        mount.over = upper(mount).and_then(|upper| Some(fs::metadata(upper).ok()?.dev()));
        if let Some(device) = sysfs_folder(mount.dev) {
            complete(mount, &device);
        }
    }
    mounts
}

/// The folder of an overlay's upper layer, if that is to be seen from here.
pub(crate) fn upper(mount: &Filesystem) -> Option<PathBuf> {
    let folder = host_text::upper_folder(&mount.options).filter(|_| mount.kind == "overlay")?;
    Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute() && folder.is_dir())
}

/// The folder of a block device in sysfs.
pub(crate) fn sysfs_folder(device: u64) -> Option<PathBuf> {
    let (major, minor) = host_text::device_parts(device);
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The folder of a device's queue. A partition has none of its own; its disk has.
pub(crate) fn queue_folder(device: &Path) -> Option<PathBuf> {
    [device.join("queue"), device.join("../queue")].into_iter().find(|queue| queue.is_dir())
}

/// Adds what sysfs has in the device's folder; returns the folder of its queue.
pub(crate) fn complete(mount: &mut Filesystem, device: &Path) -> Option<PathBuf> {
    let queue = queue_folder(device)?;
    let fact = |name: &str| fs::read_to_string(queue.join(name)).ok().map(|text| text.trim().to_owned());
    mount.block = fact("logical_block_size").and_then(|size| size.parse().ok());
    mount.rotational = fact("rotational").map(|flag| flag != "0");
    mount.write_cache = fact("write_cache").map(|text| text == "write back");
    mount.scheduler = fact("scheduler").and_then(|text| {
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    });
    Some(queue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::Bytes;

    #[test]
    fn this_machine_makes_sense() {
        let facts = facts();
        assert!(facts.memory > Bytes::mib(64) && facts.cpus > 0 && !facts.kernel.is_empty());
        assert!(now() <= now());
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
        assert_eq!(parent(std::process::id()), std::os::unix::process::parent_id());
        assert!(wchar(std::process::id()).process >= wchar(std::process::id()).thread);
        assert_eq!(wchar(u32::MAX), Wchar::default());
        assert!(usage(std::process::id()).is_some() && usage(u32::MAX).is_none());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "data").unwrap();
        let mut text = String::new();
        open_regular(&path("file")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "data");
        // To open this one would wait for a writer.
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/dev/tty", path("link")).unwrap();
        for other in ["fifo", "link", "."] {
            assert!(open_regular(&path(other)).unwrap_err().to_string().contains("regular"), "{other}");
        }
        assert!(open_regular(&path("none")).is_err());
    }
}
