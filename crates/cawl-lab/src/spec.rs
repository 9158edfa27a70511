//! The constants of a disk: rates, times and size.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use cawl_core::{Bytes, Nanos, Rate, Time};

/// The constants of an emulated disk, as a program meets them that uses the block device with O_DIRECT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskSpec {
    /// Transfer rate of writes, in bytes per second.
    pub write: Rate,
    /// Transfer rate of reads, in bytes per second.
    pub read: Rate,
    /// Fixed time of a request.
    pub latency: Nanos,
    /// Additional time of a request that does not begin where the previous one ended.
    pub seek: Nanos,
    /// Time of a cache flush, without writing out the cache.
    pub flush: Nanos,
    /// Requests served at a time: their latencies overlap, their transfers do not.
    pub depth: u32,
    /// Size of the volatile write cache; none if zero. A write that fits into it costs only its latency.
    pub cache: Bytes,
    /// Size of the disk.
    pub size: Bytes,
    /// The disk stands still once in this time, for 50 ms to 2 s; never if zero.
    pub stall: Nanos,
}

/// What a disk is given as.
const DISKS: &str = "give ssd, hdd, nvme or BW,LAT,SEEK,FLUSH in MB/s, µs, ms, ms";

/// How long the disk stands still, in ms.
const STALLS: [u64; 6] = [50, 500, 100, 2000, 200, 1000];

impl DiskSpec {
    /// A SATA SSD.
    pub const SSD: DiskSpec = DiskSpec {
        write: Rate::mb_per_second(400.0),
        read: Rate::mb_per_second(500.0),
        latency: Nanos::new(30e3),
        seek: Nanos::ZERO,
        flush: Nanos::millis(0.5),
        depth: 4,
        cache: Bytes::ZERO,
        size: Bytes::mib(40 * 1024),
        stall: Nanos::ZERO,
    };
    /// A hard disk.
    pub const HDD: DiskSpec = DiskSpec {
        write: Rate::mb_per_second(150.0),
        read: Rate::mb_per_second(160.0),
        latency: Nanos::new(100e3),
        seek: Nanos::millis(8.0),
        flush: Nanos::millis(10.0),
        depth: 1,
        ..DiskSpec::SSD
    };
    /// An NVMe SSD.
    pub const NVME: DiskSpec = DiskSpec {
        write: Rate::mb_per_second(2000.0),
        read: Rate::mb_per_second(2500.0),
        latency: Nanos::new(15e3),
        flush: Nanos::new(50e3),
        depth: 8,
        ..DiskSpec::SSD
    };

    /// From when to when the disk stands still in the period that this moment is in.
    pub fn stall_at(&self, moment: Time) -> Option<(Time, Time)> {
        let period = self.stall.get() as u64;
        let number = moment.0.checked_div(period)?;
        let length = STALLS[number as usize % STALLS.len()] * 1_000_000;
        Some((Time(number * period), Time(number * period + length)))
    }
}

impl FromStr for DiskSpec {
    type Err = anyhow::Error;

    /// `ssd`, `hdd`, `nvme` or `BW,LAT,SEEK,FLUSH` in MB/s, µs, ms and ms; then optionally any of
    /// `read=MB/s`, `depth=N`, `cache=MIB`, `size=GIB` and `stall=SECONDS`, separated by commas.
    fn from_str(text: &str) -> anyhow::Result<DiskSpec> {
        let mut words = text.split(',').map(str::trim).peekable();
        let number = |word: &str| -> anyhow::Result<f64> {
            let value = word.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
            value.with_context(|| format!("{word:?} is no number of zero or more; {DISKS}"))
        };
        let preset = match words.peek() {
            Some(&"ssd") => Some(DiskSpec::SSD),
            Some(&"hdd") => Some(DiskSpec::HDD),
            Some(&"nvme") => Some(DiskSpec::NVME),
            _ => None,
        };
        let mut next = |what: &str| words.next().with_context(|| format!("{what} is missing; {DISKS}"));
        let mut spec = if let Some(preset) = preset {
            next("the disk")?;
            preset
        } else {
            let write = number(next("the bandwidth")?)?;
            if write <= 0.0 {
                bail!("the bandwidth must be more than zero MB/s");
            }
            let write = Rate::mb_per_second(write);
            let latency = Nanos::new(number(next("the latency")?)? * 1e3);
            let seek = Nanos::millis(number(next("the seek time")?)?);
            let flush = Nanos::millis(number(next("the flush time")?)?);
            let preset = if seek > Nanos::ZERO { DiskSpec::HDD } else { DiskSpec::SSD };
            DiskSpec { write, read: write, latency, seek, flush, ..preset }
        };
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| {
                format!("{word:?}: after the disk come only read=, depth=, cache=, size= and stall=")
            })?;
            let value = number(value)?;
            match name {
                "read" if value > 0.0 => spec.read = Rate::mb_per_second(value),
                "depth" if (1.0..=64.0).contains(&value) => spec.depth = value as u32,
                "cache" => spec.cache = Bytes::from_f64(value * 1024.0 * 1024.0),
                "size" if value > 0.0 => spec.size = Bytes::from_f64(value * 1024.0 * 1024.0 * 1024.0),
                // Longer than the longest stall.
                "stall" if value > 2.0 => spec.stall = Nanos::seconds(value),
                _ => bail!(
                    "{word:?}: give read=MB/s, depth=1…64, cache=MIB, size=GIB or stall=SECONDS above 2"
                ),
            }
        }
        Ok(spec)
    }
}

/// The text of a [`DiskSpec`], checked.
pub fn disk(text: &str) -> anyhow::Result<String> {
    text.parse::<DiskSpec>().map(|_| text.to_owned())
}

impl fmt::Display for DiskSpec {
    /// The form that [`DiskSpec::from_str`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.cache.as_f64() / 1024.0 / 1024.0;
        let gib = self.size.as_f64() / 1024.0 / 1024.0 / 1024.0;
        let stall = match self.stall {
            Nanos::ZERO => String::new(),
            every => format!(",stall={}", every.as_seconds()),
        };
        write!(
            f,
            "{},{},{},{},read={},depth={},cache={mib},size={gib}{stall}",
            self.write.get() / 1e6,
            self.latency.get() / 1e3,
            self.seek.get() / 1e6,
            self.flush.get() / 1e6,
            self.read.get() / 1e6,
            self.depth,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_custom_disks() {
        assert_eq!("ssd".parse::<DiskSpec>().unwrap(), DiskSpec::SSD);
        let small: DiskSpec = "hdd,size=1,depth=2".parse().unwrap();
        assert_eq!((small.size, small.depth, small.seek), (Bytes::mib(1024), 2, DiskSpec::HDD.seek));
        let custom: DiskSpec = "100, 50, 4, 2, cache=8".parse().unwrap();
        assert_eq!(custom.write, Rate::mb_per_second(100.0));
        assert_eq!((custom.latency, custom.seek), (Nanos::new(50e3), Nanos::millis(4.0)));
        assert_eq!((custom.flush, custom.cache), (Nanos::millis(2.0), Bytes::mib(8)));
        let stalls = DiskSpec { stall: Nanos::seconds(2.5), ..custom };
        for disk in [DiskSpec::SSD, DiskSpec::HDD, DiskSpec::NVME, custom, stalls] {
            assert_eq!(disk.to_string().parse::<DiskSpec>().unwrap(), disk);
        }
    }

    #[test]
    fn stalls_come_in_turn() {
        assert_eq!(DiskSpec::SSD.stall_at(Time(7)), None);
        let disk = DiskSpec { stall: Nanos::seconds(2.5), ..DiskSpec::SSD };
        let at = |ms: u64| disk.stall_at(Time(ms * 1_000_000));
        let millis = |from: u64, to: u64| Some((Time(from * 1_000_000), Time(to * 1_000_000)));
        assert_eq!([at(0), at(2_499), at(7_600)], [millis(0, 50), millis(0, 50), millis(7_500, 9_500)]);
        assert_eq!(at(15_000), millis(15_000, 15_050));
    }

    #[test]
    fn bad_disks_are_refused_with_a_remedy() {
        for bad in [
            "",
            "tape",
            "100",
            "100,1,1",
            "0,1,1,1",
            "ssd,size=0",
            "ssd,colour=1",
            "ssd,depth",
            "ssd,stall=1",
            "NaN,1,1,1",
        ] {
            assert!(bad.parse::<DiskSpec>().is_err(), "{bad} was taken");
        }
        let error = "100,1".parse::<DiskSpec>().unwrap_err().to_string();
        assert!(error.contains("BW,LAT,SEEK,FLUSH"), "{error}");
    }
}
