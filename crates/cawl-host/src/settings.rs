//! What a machine is and how its kernel is set, so far as a profile has it: pages, processors and their
//! caches, ticks, limits.
//!
//! The law: **what the kernel tells in files is read below a root**, so that a test shows other machines.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use cawl_core::{Bytes, HostProfile, Laws, Nanos, Release, Time, host_text};
use nix::time::ClockId;
use nix::unistd::{SysconfVar, sysconf};

/// Sizes of the processor's caches; None where the kernel does not tell, as in some virtual machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// The one that a core has for itself before the last one.
    pub core: Option<Bytes>,
    /// The last one, as the processors that share it have it together.
    pub last: Option<Bytes>,
}

/// What only calls tell of a machine.
#[derive(Clone, Copy, Debug)]
struct Told {
    page: Bytes,
    cpus: u32,
    hz: Option<u32>,
    release: Option<Release>,
}

/// The profile of a machine that was never calibrated: defaults, with the kernel's settings as they are.
pub fn uncalibrated_profile() -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    apply_settings(&mut profile);
    profile
}

/// Sets the kernel's present settings, and what the machine is, in a profile; what cannot be read stays.
pub fn apply_settings(profile: &mut HostProfile) {
    let told = Told { page: page(), cpus: cpus(), hz: hz(), release: release() };
    apply(Path::new("/"), told, profile);
}

fn apply(root: &Path, told: Told, profile: &mut HostProfile) {
    let Caches { core, last } = caches_under(root);
    let memory = &mut profile.memory;
    (memory.core_cache, memory.last_cache) = (core.or(memory.core_cache), last.or(memory.last_cache));
    let kernel = &mut profile.kernel;
    (kernel.page, kernel.cpus, kernel.release) = (told.page, told.cpus, told.release);
    kernel.hz = told.hz.unwrap_or(kernel.hz);
    let laws = laws_under(root, told.release);
    kernel.fine_stamps = laws.fine_stamps;
    kernel.lru_gen = laws.generations;
    if !laws.large_folios {
        kernel.folio = kernel.page;
    }
    let counters = host_text::vmstat(&read(root, "proc/vmstat"), Time(0));
    if let Some(limits) = counters.map(|sample| sample.limits(kernel.page))
        && limits.background < limits.hard
    {
        kernel.limits = limits;
    }
    let time = |name| {
        number(root, &format!("proc/sys/vm/{name}")).map(|hundredths| Nanos::millis(hundredths as f64 * 10.0))
    };
    kernel.expire = time("dirty_expire_centisecs").unwrap_or(kernel.expire);
    kernel.wakeup = time("dirty_writeback_centisecs").unwrap_or(kernel.wakeup);
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn number(root: &Path, path: &str) -> Option<u64> {
    read(root, path).trim().parse().ok()
}

/// The processor's name, where the kernel tells it; on AArch64 the numbers of who made it and of its kind.
pub fn processor() -> Option<String> {
    processor_under(Path::new("/"))
}

fn processor_under(root: &Path) -> Option<String> {
    let text = read(root, "proc/cpuinfo");
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let numbered = || Some(format!("implementer {} part {}", value("CPU implementer")?, value("CPU part")?));
    value("model name").map(str::to_owned).or_else(numbered)
}

/// Sizes of this machine's caches.
pub fn caches() -> Caches {
    caches_under(Path::new("/"))
}

/// More levels, and more caches of a processor, than there are.
const LEVELS: usize = 8;

/// Those of the first and of the last processor, the larger ones: where there are two kinds of cores, these
/// are of both.
fn caches_under(root: &Path) -> Caches {
    let folder = "sys/devices/system/cpu";
    let online = read(root, &format!("{folder}/online"));
    let last = online.trim().rsplit([',', '-']).next().unwrap_or_default();
    let mut sizes = [0; LEVELS];
    for (cpu, index) in ["0", last].iter().flat_map(|cpu| (0..LEVELS).map(move |index| (cpu, index))) {
        let fact = |name: &str| read(root, &format!("{folder}/cpu{cpu}/cache/index{index}/{name}"));
        let size = fact("size").trim().strip_suffix('K').and_then(|kib| kib.parse::<u64>().ok());
        let level = fact("level").trim().parse().ok().and_then(|level: usize| sizes.get_mut(level));
        if let Some((of, size)) = level.zip(size).filter(|_| fact("type").trim() != "Instruction") {
            *of = size.saturating_mul(1024).max(*of);
        }
    }
    let mut found = sizes.into_iter().enumerate().skip(1).filter(|(_, size)| *size > 0).rev();
    let last = found.next();
    // A core's own is the second level, where the last one is further away.
    let core = found.find(|(level, _)| *level <= 2);
    let bytes = |of: Option<(usize, u64)>| of.map(|(_, size)| Bytes(size));
    Caches { core: bytes(core), last: bytes(last) }
}

/// The release of Linux that runs.
pub fn release() -> Option<Release> {
    nix::sys::utsname::uname().ok()?.release().to_string_lossy().parse().ok()
}

/// What of its laws differs by release; `large_folios` are there with CONFIG_TRANSPARENT_HUGEPAGE.
pub fn laws() -> Laws {
    laws_under(Path::new("/"), release())
}

fn laws_under(root: &Path, release: Option<Release>) -> Laws {
    let large_folios = root.join("sys/kernel/mm/transparent_hugepage").exists();
    Laws { generations: lru_gen_under(root), ..Laws::of(release.unwrap_or(Release::LATEST), large_folios) }
}

/// The multi-generational LRU is in use.
pub fn lru_gen() -> bool {
    lru_gen_under(Path::new("/"))
}

/// A mask of its parts, as 0x0007: the first is what moves pages, the others look for those that are mapped.
fn lru_gen_under(root: &Path) -> bool {
    let mask = read(root, "sys/kernel/mm/lru_gen/enabled");
    u32::from_str_radix(mask.trim().trim_start_matches("0x"), 16).is_ok_and(|mask| mask & 1 == 1)
}

/// Size of a page.
pub fn page() -> Bytes {
    Bytes(sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |page| page as u64))
}

/// Processors online.
pub fn cpus() -> u32 {
    sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().map_or(1, |cpus| cpus.max(1) as u32)
}

/// CONFIG_HZ, from the kernel's configuration, else from its coarse clock, which moves once a tick.
pub fn hz() -> Option<u32> {
    // The configuration is long, and constant.
    static HZ: OnceLock<Option<u32>> = OnceLock::new();
    *HZ.get_or_init(|| {
        let release = nix::sys::utsname::uname().ok()?.release().to_string_lossy().into_owned();
        let tick = nix::time::clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok();
        let tick = tick.map(|tick| tick.tv_sec() as f64 + tick.tv_nsec() as f64 / 1e9);
        hz_under(Path::new("/"), &release, tick)
    })
}

/// `tick`: of the coarse clock, in seconds.
fn hz_under(root: &Path, release: &str, tick: Option<f64>) -> Option<u32> {
    let mut text = String::new();
    if let Ok(file) = File::open(root.join("proc/config.gz")) {
        // As far as it can be read.
        drop(flate2::read::GzDecoder::new(file).read_to_string(&mut text));
    } else {
        text = read(root, &format!("boot/config-{release}"));
    }
    let by_clock = || tick.filter(|tick| *tick > 0.0).map(|tick| (1.0 / tick).round() as u32);
    host_text::config_hz(&text).or_else(by_clock)
}

#[cfg(test)]
mod tests;
