//! Reads the *text* of files under /proc and /sys; fetching the text is the daemon's business.

pub mod cgroup;

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::record::{DeviceCounters, Filesystem, Sample};
use crate::units::{Bytes, Nanos, Time};

/// The counters of /proc/vmstat that matter here; None if the text has no dirty limits. Each sample and each
/// status reads it, and two thirds of it are other counters: `vmstat_start` (mm/vmstat.c; 6.18) writes the limits
/// after those of pages, so that they end it.
pub fn vmstat(text: &str, time: Time) -> Option<Sample> {
    let mut sample = Sample { time, ..Sample::default() };
    let mut limits = 0;
    // Lines are short: a loop over bytes is quicker than a search for each end of line.
    for line in text.as_bytes().split(|&byte| byte == b'\n') {
        let Some((name, value)) = line
            .strip_prefix(b"nr_")
            .and_then(|line| line.split_at_checked(line.iter().position(|&byte| byte == b' ')?))
        else {
            continue;
        };
        let field = match name {
            b"dirty" => &mut sample.dirty,
            b"writeback" => &mut sample.writeback,
            b"written" => &mut sample.written,
            b"dirtied" => &mut sample.dirtied,
            b"dirty_threshold" => &mut sample.hard,
            b"dirty_background_threshold" => &mut sample.background,
            _ => continue,
        };
        *field = str::from_utf8(value).ok()?.trim().parse().ok()?;
        limits += u32::from(name.ends_with(b"threshold"));
        if limits == 2 {
            return Some(sample);
        }
    }
    None
}

/// A zone of memory in /proc/zoneinfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneText<'a> {
    /// `Node 0, zone   Normal`, as /proc/buddyinfo begins its line, too.
    pub name: &'a str,
    /// Low watermark, in pages.
    pub low: u64,
    /// High watermark, in pages.
    pub high: u64,
    /// Pages beyond its watermarks that are kept from allocations that the highest zone can serve.
    pub reserve: u64,
    /// Free pages.
    pub free: u64,
    /// Pages that the kernel gives out.
    pub managed: u64,
    /// Pages on the node's lists of files, inactive and active; 0 but for the node's first zone.
    pub files: [u64; 2],
    /// Number of its first page.
    pub first: u64,
    /// Pages from the first to the last one.
    pub spanned: u64,
}

/// The zones in /proc/zoneinfo that have pages.
pub fn zoneinfo(text: &str) -> Vec<ZoneText<'_>> {
    let mut zones: Vec<ZoneText> = Vec::new();
    for line in text.lines() {
        if line.starts_with("Node ") {
            zones.push(ZoneText { name: line.trim_end(), ..ZoneText::default() });
        }
        let Some(zone) = zones.last_mut() else { continue };
        let mut words = line.split_ascii_whitespace();
        let field = match words.next() {
            Some("low") => &mut zone.low,
            Some("high") => &mut zone.high,
            Some("nr_inactive_file") => &mut zone.files[0],
            Some("nr_active_file") => &mut zone.files[1],
            Some("protection:") => {
                // For allocations from each zone on; the last is the highest.
                let number = |word: &str| word.trim_matches(['(', ',', ')']).parse().ok();
                zone.reserve = words.next_back().and_then(number).unwrap_or(0);
                continue;
            }
            Some("pages") => match words.next() {
                Some("free") => &mut zone.free,
                _ => continue,
            },
            Some("managed") => &mut zone.managed,
            Some("spanned") => &mut zone.spanned,
            Some("start_pfn:") => &mut zone.first,
            _ => continue,
        };
        *field = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    zones.retain(|zone| zone.spanned > 0);
    zones
}

/// Pages that can be made dirty, as /proc/zoneinfo has them: free ones and those of files, less what the
/// kernel keeps free (`global_dirtyable_memory`, mm/page-writeback.c; `calculate_totalreserve_pages`,
/// mm/page_alloc.c; 6.18).
pub fn dirtyable(zoneinfo_text: &str) -> u64 {
    let zones = zoneinfo(zoneinfo_text);
    let sum = |of: fn(&ZoneText) -> u64| zones.iter().map(of).sum::<u64>();
    let kept = sum(|zone| zone.high.saturating_add(zone.reserve).min(zone.managed));
    sum(|zone| zone.free).saturating_sub(kept) + sum(|zone| zone.files[0] + zone.files[1])
}

/// Free blocks of each order in a zone of this name, in /proc/buddyinfo.
pub fn buddyinfo(text: &str, zone: &str) -> Option<Vec<u64>> {
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let name = words(zone);
    let line = text.lines().map(words).find(|line| line.starts_with(&name))?;
    line[name.len()..].iter().map(|word| word.parse().ok()).collect()
}

/// True if the features of a virtio device, as sysfs shows them, have this bit.
pub fn has_feature(features: &str, bit: usize) -> bool {
    features.as_bytes().get(bit) == Some(&b'1')
}

/// A counter of /proc/vmstat, such as `drop_pagecache`.
pub fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// What a block device has done since boot, from its `stat` file in sysfs (sectors are of 512 bytes). Kernels
/// before 5.5 count no flushes.
pub fn device_counters(stat: &str, time: Time, dev: u64) -> Option<DeviceCounters> {
    let counts: Vec<u64> = stat.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let ms = |at: usize| counts.get(at).map(|ms| Nanos::millis(*ms as f64));
    Some(DeviceCounters {
        time,
        dev,
        writes: *counts.get(4)?,
        bytes: Bytes(counts.get(6)?.saturating_mul(512)),
        writing: ms(7)?,
        flushes: counts.get(15).copied().unwrap_or(0),
        flushing: ms(16).unwrap_or_default(),
        busy: ms(9)?,
    })
}

/// What a block device has done since boot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskCounters {
    /// Its number, as `st_dev` of files on it.
    pub dev: u64,
    /// As the kernel names it.
    pub name: String,
    /// Bytes written.
    pub written: Bytes,
    /// Time in which it had something to do.
    pub busy: Nanos,
}

/// The devices of /proc/diskstats (Documentation/admin-guide/iostats.rst), those that never wrote left out.
pub fn diskstats(text: &str) -> Vec<DiskCounters> {
    let disk = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (major, minor) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next()?.to_owned();
        let counts: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let written = Bytes(counts.get(6)?.saturating_mul(512));
        let busy = Nanos::millis(*counts.get(9)? as f64);
        Some(DiskCounters { dev: device_number(major, minor), name, written, busy })
    };
    text.lines().filter_map(disk).filter(|disk| !disk.written.is_zero()).collect()
}

/// Part of the latest 10 s in which some task was held up: `some avg10` of a file in /proc/pressure.
pub fn pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = line.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// Time that all programs have computed in user mode since boot, those of low priority included: /proc/stat.
pub fn user_time(text: &str) -> Option<Nanos> {
    let mut figures = text.lines().find_map(|line| line.strip_prefix("cpu "))?.split_whitespace();
    let mut next = || figures.next()?.parse::<f64>().ok();
    Some(Nanos::millis((next()? + next()?) * TICK))
}

/// USER_HZ in ms, which programs are told whatever the kernel's own tick is.
const TICK: f64 = 10.0;

/// Processor time in user mode and in the kernel, to 10 ms: /proc/PID/stat, or /proc/PID/task/TID/stat.
pub fn processor_time(text: &str) -> Option<(Nanos, Nanos)> {
    // The name is in parentheses and may contain anything; the state follows the last one.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut figures = rest.split(' ').skip(11);
    let mut next = || Some(Nanos::millis(figures.next()?.parse::<u64>().ok()? as f64 * TICK));
    Some((next()?, next()?))
}

/// Time that a thread ran, and time that it could have run and had no processor, in ns:
/// /proc/PID/task/TID/schedstat.
pub fn schedstat(text: &str) -> Option<(Nanos, Nanos)> {
    let mut figures = text.split_ascii_whitespace();
    let mut next = || Some(Nanos::new(figures.next()?.parse::<u64>().ok()? as f64));
    Some((next()?, next()?))
}

/// A figure of /proc/meminfo, such as `MemTotal`.
pub fn meminfo(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::kib(kib))
}

/// `wchar` of /proc/PID/io, in bytes.
pub fn wchar(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.trim().parse().ok())
}

/// A writable shared mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMapping<'a> {
    /// Its addresses, as /proc writes them.
    pub range: &'a str,
    /// Place in the file of the first byte, in bytes.
    pub offset: u64,
    /// Inode number.
    pub ino: u64,
    /// The file's name, seen from the process's root; the kernel adds ` (deleted)` to one that is gone.
    pub path: &'a str,
}

/// The writable shared mappings of files in /proc/PID/maps. Shared memory without a file in a folder is none:
/// memfd, System V, /dev/zero.
pub fn shared_mappings(text: &str) -> impl Iterator<Item = SharedMapping<'_>> {
    text.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (rights, rest) = rest.split_once(' ')?;
        if !rights.starts_with("rw") || !rights.ends_with('s') {
            return None;
        }
        let (offset, rest) = rest.split_once(' ')?;
        let (_device, rest) = rest.split_once(' ')?;
        let (ino, path) = rest.split_once(' ')?;
        let path = path.trim_start();
        let is_memory = ["/memfd:", "/SYSV", "/dev/zero"].iter().any(|name| path.starts_with(name));
        let mapping = SharedMapping {
            range,
            offset: u64::from_str_radix(offset, 16).ok()?,
            ino: ino.parse().ok()?,
            path,
        };
        (path.starts_with('/') && !is_memory && mapping.ino != 0).then_some(mapping)
    })
}

/// Dirty bytes of one mapping in /proc/PID/smaps, where `range` are its addresses.
pub fn smaps_dirty(text: &str, range: &str) -> Option<u64> {
    let lines = text.lines().skip_while(|line| !line.starts_with(range)).skip(1);
    let figures = lines.take_while(|line| !line.starts_with("VmFlags:")).filter_map(|line| {
        let figure = line.strip_prefix("Shared_Dirty:").or_else(|| line.strip_prefix("Private_Dirty:"))?;
        figure.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    figures.map(|kib| kib * 1024).reduce(|sum, more| sum + more)
}

/// The signals that a process ignores, from /proc/PID/status: bit 0 is signal 1.
pub fn ignored_signals(text: &str) -> Option<u64> {
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// CONFIG_HZ of a kernel configuration.
pub fn config_hz(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.trim().parse().ok())
}

/// Version and patch level of a kernel release, as of "6.18.44-vm"; zero where there is no number.
pub fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The mounts of /proc/self/mountinfo (man 5 proc): device number, mount point, type, options and the
/// source when it is a device. What lies on the device is left for the caller to fill in.
pub fn mountinfo(text: &str) -> Vec<Filesystem> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Filesystem> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let dev = before.nth(2)?;
    let (major, minor) = dev.split_once(':')?;
    let mount = before.nth(1)?;
    let mut after = after.split(' ');
    let kind = after.next()?;
    let source = after.next().unwrap_or("");
    Some(Filesystem {
        dev: device_number(major.parse().ok()?, minor.parse().ok()?),
        mount: unescape(mount).into_owned(),
        kind: kind.to_owned(),
        options: after.next().unwrap_or("").to_owned(),
        device: source.strip_prefix("/dev/").unwrap_or("").to_owned(),
        ..Filesystem::default()
    })
}

/// The folder of an overlay's upper layer, in the options of its mount; None if it has none. The filesystem
/// escapes commas (`ovl_parse_param_upperdir`), and mountinfo both.
pub fn upper_folder(options: &str) -> Option<String> {
    let found = options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
    let escaped = unescape(found);
    let mut letters = escaped.chars();
    let plain = std::iter::from_fn(|| match letters.next()? {
        '\\' => letters.next(),
        letter => Some(letter),
    });
    Some(plain.collect())
}

/// `st_dev` of a device, as glibc's makedev packs it.
pub const fn device_number(major: u64, minor: u64) -> u64 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32)
}

/// Major and minor number of an `st_dev`.
pub const fn device_parts(dev: u64) -> (u64, u64) {
    (((dev >> 8) & 0xfff) | ((dev >> 32) & !0xfff), (dev & 0xff) | ((dev >> 12) & 0xffff_ff00))
}

/// A name, of which bytes that are not UTF-8 become `\xhh`: names that differ in these stay apart.
pub fn name(bytes: &[u8]) -> String {
    let mut name = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(name, "\\x{byte:02x}");
        }
    }
    name
}

/// Undoes `\n`, `\"`, `\ooo`, `\xhh` and similar escapes, in which mountinfo and strace write bytes that are
/// no plain text.
pub fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.bytes().peekable();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (radix, most, mut value) = match bytes.next() {
            Some(b'n') => (0, 0, b'\n'),
            Some(b't') => (0, 0, b'\t'),
            Some(b'r') => (0, 0, b'\r'),
            Some(b'v') => (0, 0, 0x0b),
            Some(b'f') => (0, 0, 0x0c),
            Some(b'x') => (16, 2, 0),
            Some(digit @ b'0'..=b'7') => (8, 2, digit - b'0'),
            Some(other) => (0, 0, other),
            None => break,
        };
        for _ in 0..most {
            let Some(digit) = bytes.peek().and_then(|&b| char::from(b).to_digit(radix)) else { break };
            value = value.wrapping_mul(radix as u8).wrapping_add(digit as u8);
            bytes.next();
        }
        out.push(value);
    }
    Cow::Owned(name(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_name_that_are_no_text_are_kept() {
        assert_eq!(name("/größe\u{fffd}".as_bytes()), "/größe\u{fffd}");
        assert_eq!(name(b"a\xff\xe2\x82b\xc3"), r"a\xff\xe2\x82b\xc3");
        assert_eq!(unescape(r"a\377\xfe\303\266"), r"a\xff\xfeö");
    }

    /// A zone of /proc/zoneinfo: free pages, high watermark, pages given out, and what it keeps for others.
    fn zone(name: &str, files: Option<u64>, [free, high, managed, kept]: [u64; 4]) -> String {
        let files = files.map_or(String::new(), |pages| {
            format!("  per-node stats\n      nr_inactive_file {pages}\n      nr_active_file {pages}\n      nr_dirty 3\n")
        });
        format!(
            "Node {name}\n{files}  pages free     {free}\n        boost    0\n        min      {}\n        \
             low      {}\n        high     {high}\n        spanned  {managed}\n        managed  {managed}\n        \
             protection: (0, 0, {kept}, {kept})\n      nr_free_pages {free}\n  pagesets\n    cpu: 0\n              \
             count:    5\n              high:     14\n  start_pfn:           1\n",
            high / 2,
            high / 3 * 2
        )
    }

    #[test]
    fn what_can_be_dirty_is_free_or_a_file_s() {
        // 1 GiB: a lower zone, and one that holds almost all.
        let small = zone("0, zone      DMA", Some(40_000), [3000, 240, 3840, 960])
            + &zone("0, zone    DMA32", None, [100_000, 16_000, 246_000, 0]);
        assert_eq!(dirtyable(&small), 103_000 - (240 + 960) - 16_000 + 80_000);
        // 1 TiB on eight nodes, whose lower zones are the first one's.
        let mut large = zone("0, zone      DMA", Some(5_000_000), [3840, 20, 3840, 120_000])
            + &zone("0, zone    DMA32", None, [700_000, 3700, 752_000, 125_000]);
        for node in 0..8 {
            let files = (node > 0).then_some(5_000_000);
            large += &zone(&format!("{node}, zone   Normal"), files, [20_000_000, 33_000, 33_000_000, 0]);
        }
        let free = 8 * 20_000_000 + 700_000 + 3840;
        assert_eq!(dirtyable(&large), free - 8 * 33_000 - 3840 - 128_700 + 80_000_000);
        // More is kept than is free.
        assert_eq!(dirtyable(&zone("0, zone   Normal", Some(7), [10, 100, 1000, 0])), 14);
    }

    #[test]
    fn zones_and_their_free_blocks() {
        let text = "Node 0, zone    DMA32\n  per-node stats\n      nr_inactive_file 7\n      nr_active_file 9\n\
                    \x20 pages free     705576\n        min      2116\n        low      2888\n        high     3660\n\
                    \x20       spanned  1044480\n        protection: (0, 0, 21071, 21071)\n    cpu: 0\n\
                    \x20             high:     1444\n  start_pfn:           4096\nNode 0, zone  Movable\n\
                    \x20       low      32\n        spanned  0\n";
        let zone = ZoneText {
            name: "Node 0, zone    DMA32",
            low: 2888,
            high: 3660,
            reserve: 21_071,
            free: 705_576,
            managed: 0,
            files: [7, 9],
            first: 4096,
            spanned: 1_044_480,
        };
        assert_eq!(zoneinfo(text), [zone]);
        assert_eq!(dirtyable(""), 0);
        let text = "Node 0, zone      DMA      0      1\nNode 0, zone    DMA32   3543   2163\n";
        assert_eq!(buddyinfo(text, "Node 0, zone    DMA32"), Some(vec![3543, 2163]));
        assert_eq!(buddyinfo(text, "Node 0, zone   Normal"), None);
        assert!(has_feature("011001", 5) && !has_feature("011001", 0) && !has_feature("", 5));
    }

    #[test]
    fn the_upper_folder_of_an_overlay() {
        let of = |options: &str| upper_folder(options);
        assert_eq!(of("rw,lowerdir=/l,upperdir=/u/v,workdir=/w").as_deref(), Some("/u/v"));
        assert_eq!(of(r"lowerdir=/l,upperdir=/a\134\054b\040c,uuid=on").as_deref(), Some("/a,b c"));
        assert_eq!(of("ro,lowerdir=/l:/m"), None);
    }

    #[test]
    fn vmstat_needs_both_limits() {
        let text = "nr_free_pages 1\nnr_dirty 15\nnr_writeback 2\nnr_dirtied 100\nnr_written 90\n\
                    nr_dirty_threshold 262144\nnr_dirty_background_threshold 131072\n";
        let sample = vmstat(text, Time(7)).unwrap();
        assert_eq!(
            (sample.dirty, sample.writeback, sample.hard, sample.background),
            (15, 2, 262_144, 131_072)
        );
        assert_eq!(sample.dirty_bytes(Bytes(4096)), Bytes(17 * 4096));
        assert!(vmstat("nr_dirty 15\n", Time(7)).is_none());
        assert!(vmstat(&text.replace("15", "many"), Time(7)).is_none());
    }

    #[test]
    fn small_files() {
        assert_eq!(meminfo("MemTotal:       24684096 kB\n", "MemTotal"), Some(Bytes::kib(24_684_096)));
        assert_eq!(meminfo("MemTotalX: 1 kB\n", "MemTotal"), None);
        let stat = "cpu  1519069 146143 468793 629422 65815 0 6135 10158 0 0\ncpu0 752341 72574 0 0\n";
        assert_eq!(user_time(stat), Some(Nanos::millis(16_652_120.0)));
        assert_eq!(user_time("cpu0 752341 72574\n"), None);
        assert_eq!(schedstat("151633 2940332 2\n"), Some((Nanos::new(151_633.0), Nanos::new(2_940_332.0))));
        assert_eq!(schedstat("151633\n"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 5 900 900 20 0 1 0 80 0 0\n";
        assert_eq!(processor_time(stat), Some((Nanos::millis(120.0), Nanos::millis(50.0))));
        assert_eq!(processor_time("7 (a) S 1 7\n"), None);
        assert_eq!(wchar("rchar: 1\nwchar: 42\nsyscr: 3\n"), Some(42));
        assert_eq!(ignored_signals("SigBlk:\t0\nSigIgn:\t0000000000000003\n"), Some(3));
        assert_eq!(ignored_signals("SigIgn:\tmany\n"), None);
        assert_eq!(config_hz("# CONFIG_HZ_100 is not set\nCONFIG_HZ=250\n"), Some(250));
    }

    #[test]
    fn counters() {
        assert_eq!(counter("nr_dirty 3\ndrop_pagecache 12\ndrop_slab 1\n", "drop_pagecache"), Some(12));
        assert_eq!(counter("drop_pagecachex 12\n", "drop_pagecache"), None);
        let stat = "  10 0 80 5  7 0 2048 9 0 12 2 0 0 0 0 3 4\n";
        let wanted = DeviceCounters {
            time: Time(1),
            dev: 2,
            writes: 7,
            bytes: Bytes::mib(1),
            writing: Nanos::millis(9.0),
            flushes: 3,
            flushing: Nanos::millis(4.0),
            busy: Nanos::millis(12.0),
        };
        assert_eq!(device_counters(stat, Time(1), 2), Some(wanted));
        let older = device_counters(&stat[..stat.len() - 10], Time(1), 2).expect("enough");
        assert_eq!((older.flushes, older.flushing, older.busy), (0, Nanos::ZERO, wanted.busy));
        assert_eq!(device_counters("1 2", Time(1), 2), None);
    }

    #[test]
    fn disks_and_pressure() {
        let text =
            " 254 0 vda 10 0 80 5 7 1 2048 9 0 12 14 0 0 0 0\n   7 0 loop0 5 0 8 1 0 0 0 0 0 1 1\n 8 x\n";
        let disks = diskstats(text);
        assert_eq!(disks.len(), 1);
        assert_eq!((disks[0].dev, disks[0].name.as_str()), (device_number(254, 0), "vda"));
        assert_eq!((disks[0].written, disks[0].busy), (Bytes::mib(1), Nanos::millis(12.0)));
        let text =
            "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=3.00 avg60=0 avg300=0 total=1\n";
        assert_eq!(pressure(text), Some(0.125));
        assert_eq!(pressure("some avg10=many\n"), None);
        assert_eq!(pressure("full avg10=1.00\n"), None);
    }

    #[test]
    fn mounts() {
        let text = "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                    30 29 0:25 / /mnt/a\\040b rw - tmpfs tmpfs rw,size=4k\n garbage\n";
        let mounts = mountinfo(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].dev, mounts[0].device.as_str()), (device_number(254, 0), "vda"));
        assert_eq!((mounts[1].mount.as_str(), mounts[1].device.as_str()), ("/mnt/a b", ""));
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor) in [(254, 0), (8, 17), (259, 70_000), (5_000, 1)] {
            assert_eq!(device_parts(device_number(major, minor)), (major, minor));
        }
    }

    #[test]
    fn mappings_that_can_be_stored_to() {
        let text = "7f0000000000-7f0000100000 rw-s 00001000 fe:00 42    /data/a b (deleted)\n\
                    7f0000100000-7f0000200000 r--s 00000000 fe:00 43    /data/read-only\n\
                    7f0000200000-7f0000300000 rw-p 00000000 fe:00 44    /data/private\n\
                    7f0000300000-7f0000400000 rw-s 00000000 00:01 45    /memfd:cawl (deleted)\n\
                    7f0000400000-7f0000500000 rw-s 00000000 00:01 0 \n\
                    nonsense\n";
        let found: Vec<_> = shared_mappings(text).collect();
        let range = "7f0000000000-7f0000100000";
        assert_eq!(found, [SharedMapping { range, offset: 4096, ino: 42, path: "/data/a b (deleted)" }]);
        let smaps =
            format!("{range} rw-s\nRss: 9 kB\nShared_Dirty:   4 kB\nPrivate_Dirty:  8 kB\nVmFlags: rd\n");
        assert_eq!(smaps_dirty(&format!("1-2 rw-s\nPrivate_Dirty: 1 kB\n{smaps}"), range), Some(12 << 10));
        assert_eq!(smaps_dirty(&smaps, "3-4"), None);
    }
}
