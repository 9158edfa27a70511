//! Machines other than this one: what their /proc and /sys say, written by hand from the kernel's
//! documentation (Documentation/ABI/testing/sysfs-devices-system-cpu, filesystems/proc.rst).

use std::io::Write;

use super::*;
use tempfile::TempDir;

const CPU: &str = "sys/devices/system/cpu";
/// Level, type, size of the caches of a large processor.
const LARGE: [(u32, &str, &str); 4] = [
    (1, "Data\n", "32K\n"),
    (1, "Instruction\n", "64K\n"),
    (2, "Unified\n", "1024K\n"),
    (3, "Unified\n", "32768K\n"),
];

/// A machine's files.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    fn with(self, path: &str, text: &str) -> Machine {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// With processors up to `last`, of which this one has caches: level, type, size.
    fn with_caches(mut self, last: u32, cpu: u32, caches: &[(u32, &str, &str)]) -> Machine {
        let online = if last == 0 { "0\n".to_owned() } else { format!("0-{last}\n") };
        self = self.with(&format!("{CPU}/online"), &online);
        for (index, (level, kind, size)) in caches.iter().enumerate() {
            let folder = format!("{CPU}/cpu{cpu}/cache/index{index}");
            let level = format!("{level}\n");
            for (name, text) in [("level", &*level), ("type", kind), ("size", size)] {
                self = self.with(&format!("{folder}/{name}"), text);
            }
        }
        self
    }

    /// With so many pages as dirty limits.
    fn with_limits(self, background: u64, hard: u64) -> Machine {
        let text = format!(
            "nr_free_pages 1\nnr_dirty 3\nnr_writeback 0\nnr_dirty_threshold {hard}\n\
             nr_dirty_background_threshold {background}\n"
        );
        self.with("proc/vmstat", &text)
    }

    fn caches(&self) -> Caches {
        caches_under(self.0.path())
    }

    fn profile(&self, page: u64, cpus: u32, hz: u32) -> HostProfile {
        let told = Told { page: Bytes(page), cpus, hz: Some(hz), release: Some(Release(6, 12)) };
        let mut profile = HostProfile::uncalibrated();
        apply(self.0.path(), told, &mut profile);
        profile.check().unwrap();
        profile
    }
}

fn sizes(core: u64, last: u64) -> Caches {
    Caches { core: Some(Bytes::kib(core)), last: Some(Bytes::kib(last)) }
}

/// Eight nodes, and a last cache for each eight processors: what one core can use is one of them.
#[test]
fn a_large_server() {
    let machine = Machine::new().with_caches(255, 0, &LARGE).with_caches(255, 255, &LARGE);
    let machine = machine
        .with_limits(26_214_400, 52_428_800)
        .with(&format!("{CPU}/cpu0/cache/index3/shared_cpu_list"), "0-7\n");
    assert_eq!(machine.caches(), sizes(1024, 32_768));
    let profile = machine.with("proc/sys/vm/dirty_expire_centisecs", "500\n").profile(4096, 256, 1000);
    assert_eq!((profile.kernel.cpus, profile.kernel.hz), (256, 1000));
    assert_eq!(profile.kernel.limits.background, Bytes(100 << 30));
    assert_eq!((profile.kernel.expire, profile.kernel.wakeup), (Nanos::seconds(5.0), Nanos::seconds(5.0)));
    // No /sys/kernel/mm/transparent_hugepage.
    assert_eq!(profile.kernel.folio, profile.kernel.page);
    assert_eq!(profile.memory.last_cache, Some(Bytes::mib(32)));
    // A profile tells it to others, and one without it is read.
    assert_eq!(HostProfile::from_toml(&profile.to_toml()).unwrap(), profile);
}

/// One processor, 1 GiB, and no files about caches: what the profile had stays.
#[test]
fn a_small_virtual_machine() {
    let machine = Machine::new().with_caches(0, 0, &[]).with_limits(23_000, 46_000);
    assert_eq!(machine.caches(), Caches::default());
    let profile = machine.profile(4096, 1, 250);
    let usual = HostProfile::uncalibrated();
    assert_eq!((profile.memory.last_cache, profile.memory.core_cache), (None, None));
    assert_eq!((&profile.memory, &profile.calls), (&usual.memory, &usual.calls));
    assert_eq!(profile.kernel.limits.hard, Bytes(46_000 * 4096));
    // Nothing can be read.
    assert_eq!(Machine::new().profile(4096, 1, 100).kernel.limits, usual.kernel.limits);
    // What a profile has stays where the machine does not tell.
    let told = Told { page: Bytes(4096), cpus: 1, hz: None, release: None };
    let mut known = usual.clone();
    known.memory.last_cache = Some(Bytes::mib(8));
    apply(Machine::new().0.path(), told, &mut known);
    assert_eq!((known.memory.last_cache, known.kernel.hz), (Some(Bytes::mib(8)), usual.kernel.hz));
}

/// Pages of 64 and of 16 KiB: counters are in pages.
#[test]
fn large_pages() {
    for (page, hz) in [(64 << 10, 250), (16 << 10, 100)] {
        let machine = Machine::new().with_caches(127, 0, &LARGE).with_limits(1000, 2000);
        let machine = machine.with("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        let profile = machine.profile(page, 128, hz);
        assert_eq!((profile.kernel.page, profile.kernel.limits.hard), (Bytes(page), Bytes(2000 * page)));
        assert_eq!(profile.kernel.folio, HostProfile::uncalibrated().kernel.folio);
        assert_eq!(profile.memory.core_cache, Some(Bytes::mib(1)));
    }
    let text = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
    let machine = Machine::new().with("proc/cpuinfo", text);
    assert_eq!(processor_under(machine.0.path()).as_deref(), Some("implementer 0x41 part 0xd0c"));
    let machine = machine.with("proc/cpuinfo", "vendor_id\t: X\nmodel name\t: A Processor\n");
    assert_eq!(processor_under(machine.0.path()).as_deref(), Some("A Processor"));
    assert_eq!(processor_under(Machine::new().0.path()), None);
}

/// A profile tells it; one that was written before it was asked for is of the classic lists.
#[test]
fn the_multi_generational_lru_is_asked_for() {
    let with = |mask: &str| Machine::new().with("sys/kernel/mm/lru_gen/enabled", mask).profile(4096, 1, 250);
    let found = ["0x0007\n", "0x0001\n", "0x0006\n", "0x0000\n", ""].map(|mask| with(mask).kernel.lru_gen);
    assert_eq!(found, [true, true, false, false, false]);
    let told = with("0x0007\n").to_toml();
    assert!(HostProfile::from_toml(&told).unwrap().kernel.laws().generations);
    let old: String =
        told.lines().filter(|line| !line.contains("lru_gen")).map(|line| format!("{line}\n")).collect();
    assert!(old.len() < told.len() && !HostProfile::from_toml(&old).unwrap().kernel.laws().generations);
}

/// Two levels only, the second shared by four cores; and two kinds of cores, of which the last one is larger.
#[test]
fn caches_of_other_shapes() {
    let two = [(1, "Data\n", "32K\n"), (1, "Instruction\n", "48K\n"), (2, "Unified\n", "1024K\n")];
    assert_eq!(Machine::new().with_caches(3, 0, &two).caches(), sizes(32, 1024));
    let little = [(1, "Data\n", "32K\n"), (2, "Unified\n", "128K\n"), (3, "Unified\n", "8192K\n")];
    let big = [(1, "Data\n", "64K\n"), (2, "Unified\n", "512K\n"), (3, "Unified\n", "8192K\n")];
    assert_eq!(Machine::new().with_caches(7, 0, &little).with_caches(7, 7, &big).caches(), sizes(512, 8192));
    // A fourth level, beyond what cores share.
    let four = [(2, "Unified\n", "256K\n"), (3, "Unified\n", "6144K\n"), (4, "Unified\n", "131072K\n")];
    assert_eq!(Machine::new().with_caches(7, 0, &four).caches(), sizes(256, 131_072));
    let one = Machine::new().with_caches(0, 0, &[(1, "Unified\n", "16K\n")]);
    assert_eq!(one.caches(), Caches { core: None, last: Some(Bytes::kib(16)) });
    // AArch64 may know levels and no sizes; and a text may be anything.
    for size in ["", "much\n", "99999999999999999999K\n"] {
        assert_eq!(Machine::new().with_caches(1, 0, &[(2, "Unified\n", size)]).caches(), Caches::default());
    }
    // Some processors are off.
    let off = Machine::new().with_caches(7, 5, &big).with(&format!("{CPU}/online"), "0,2-5\n");
    assert_eq!(off.caches(), sizes(512, 8192));
}

#[test]
fn ticks() {
    let plain = |text: &str| Machine::new().with("boot/config-6.12.0-test", text);
    let of = |machine: &Machine, tick| hz_under(machine.0.path(), "6.12.0-test", tick);
    for hz in [100, 250, 300, 1000] {
        let text = format!("CONFIG_HZ_{hz}=y\nCONFIG_HZ={hz}\nCONFIG_NO_HZ_FULL=y\n");
        assert_eq!(of(&plain(&text), None), Some(hz));
        let machine = Machine::new();
        let folder = machine.0.path().join("proc");
        fs::create_dir(&folder).unwrap();
        let file = File::create(folder.join("config.gz")).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap();
        assert_eq!(of(&machine, None), Some(hz));
        // No configuration: the resolution of the coarse clock, in whole nanoseconds.
        let tick = f64::from(1_000_000_000 / hz) / 1e9;
        assert_eq!(of(&Machine::new(), Some(tick)), Some(hz));
        assert_eq!(of(&plain("CONFIG_SMP=y\n"), Some(tick)), Some(hz));
    }
    assert_eq!([of(&Machine::new(), None), of(&Machine::new(), Some(0.0))], [None, None]);
}

#[test]
fn this_machine() {
    let profile = uncalibrated_profile();
    assert!(profile.check().is_ok() && profile.kernel.page == page() && hz().is_some());
    let Caches { core, last } = caches();
    assert!(core.is_none_or(|core| last.is_some_and(|last| core < last)), "{core:?} {last:?}");
}
