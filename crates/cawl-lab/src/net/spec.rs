//! The constants of a link and of what is at its other end.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use cawl_core::{Bytes, CachePolicy, Nanos, Rate};

/// A mount of a filesystem that is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetSpec {
    /// Round trip of a request, with the way through FUSE.
    pub latency: Nanos,
    /// Data over the link in both directions together, in bytes per second.
    pub bandwidth: Rate,
    /// What this side keeps.
    pub policy: CachePolicy,
    /// Most data of a request (max_write, max_read of FUSE): whole pages, up to 1 MiB.
    pub request: Bytes,
    /// Room for files, by their lengths.
    pub size: Bytes,
}

/// A unit and how many of the base unit it has; the first one of a list is meant where none is given.
type Unit = (&'static str, f64);
const TIME: &[Unit] = &[("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATE: &[Unit] = &[("MB/s", 1e6), ("KB/s", 1e3), ("GB/s", 1e9)];
const REQUEST: &[Unit] = &[("K", 1024.0), ("M", 1024.0 * 1024.0)];
const SIZE: &[Unit] = &[("G", GIB), ("M", 1024.0 * 1024.0)];
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

const PAGE: u64 = 4096;
/// The kernel's limit of a request: fs.fuse.max_pages_limit, 256 by default.
const LARGEST: Bytes = Bytes::mib(1);

/// A number with one of these units, in the base unit; a finite one of zero or more.
fn quantity(word: &str, units: &[Unit]) -> anyhow::Result<f64> {
    let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let unit = word[digits.len()..].trim();
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let factor = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => units[0].1,
        None => bail!("{word:?}: the units are {}", known()),
    };
    let value: f64 = digits.parse().with_context(|| format!("{word:?} is not a number in {}", known()))?;
    ensure!(value.is_finite() && value >= 0.0, "{word:?} is not a number of zero or more");
    Ok(value * factor)
}

impl FromStr for NetSpec {
    type Err = anyhow::Error;

    /// `LATENCY,BANDWIDTH` in us, ms or s and KB/s, MB/s or GB/s (`150us,100MB/s`; without units µs and MB/s
    /// as for disks); then optionally any of `policy=none|read-only|write-through|write-back`,
    /// `request=4K…1M` and `size=GIB`, separated by commas.
    fn from_str(text: &str) -> anyhow::Result<NetSpec> {
        let mut words = text.split(',').map(str::trim);
        let mut next = |what: &str| {
            let word = words.next().filter(|word| !word.is_empty());
            word.with_context(|| format!("{what} is missing; give LATENCY,BANDWIDTH as in 150us,100MB/s"))
        };
        let latency = Nanos::new(quantity(next("the latency")?, TIME)?);
        let bandwidth = quantity(next("the bandwidth")?, RATE)?;
        ensure!(bandwidth > 0.0, "the bandwidth must be more than zero MB/s");
        let mut spec = NetSpec {
            latency,
            bandwidth: Rate::per_second(bandwidth),
            policy: CachePolicy::WriteThrough,
            request: Bytes::kib(128),
            size: Bytes::mib(8 * 1024),
        };
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| {
                format!("{word:?}: after the bandwidth come only policy=, request= and size=")
            })?;
            match name {
                "policy" => {
                    let named = CachePolicy::ALL.into_iter().find(|policy| policy.name() == value);
                    spec.policy = named.with_context(|| {
                        format!(
                            "{word:?}: give policy={}",
                            CachePolicy::ALL.map(CachePolicy::name).join(", ")
                        )
                    })?;
                }
                "request" => {
                    spec.request = Bytes::from_f64(quantity(value, REQUEST)?);
                    let whole = spec.request.0.is_multiple_of(PAGE) && !spec.request.is_zero();
                    ensure!(whole && spec.request <= LARGEST, "{word:?}: give whole pages, 4K to 1M");
                }
                "size" => {
                    spec.size = Bytes::from_f64(quantity(value, SIZE)?);
                    ensure!(!spec.size.is_zero(), "{word:?}: give more than nothing");
                }
                _ => bail!("{word:?}: give policy=, request=KIB or size=GIB"),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for NetSpec {
    /// The form that [`NetSpec::from_str`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}us,{}MB/s,policy={},request={}K,size={}G",
            self.latency.get() / 1e3,
            self.bandwidth.get() / 1e6,
            self.policy.name(),
            self.request.0 / 1024,
            self.size.as_f64() / GIB,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_options() {
        let spec: NetSpec = "150us,100MB/s".parse().unwrap();
        assert_eq!(spec.latency, Nanos::new(150e3));
        assert_eq!(spec.bandwidth, Rate::mb_per_second(100.0));
        assert_eq!((spec.policy, spec.request), (CachePolicy::WriteThrough, Bytes::kib(128)));
        assert_eq!("150,100".parse::<NetSpec>().unwrap(), spec);
        let other: NetSpec = "0.15ms, 0.1GB/s, policy=write-back, request=1M, size=512M".parse().unwrap();
        assert_eq!((other.latency, other.bandwidth), (spec.latency, spec.bandwidth));
        assert_eq!((other.policy, other.request), (CachePolicy::WriteBack, Bytes::mib(1)));
        assert_eq!(other.size, Bytes::mib(512));
        for policy in CachePolicy::ALL {
            let spec = NetSpec { policy, ..other };
            assert_eq!(spec.to_string().parse::<NetSpec>().unwrap(), spec);
        }
    }

    #[test]
    fn bad_links_are_refused_with_a_remedy() {
        for bad in [
            "",
            "150us",
            "fast,100MB/s",
            "150min,100MB/s",
            "150us,0MB/s",
            "150us,100Mbit",
            "NaN,1",
            "-1us,1",
            "150us,100MB/s,policy=sometimes",
            "150us,100MB/s,request=2M",
            "150us,100MB/s,request=6K",
            "150us,100MB/s,request=0",
            "150us,100MB/s,size=0",
            "150us,100MB/s,depth=4",
            "150us,100MB/s,policy",
        ] {
            assert!(bad.parse::<NetSpec>().is_err(), "{bad} was taken");
        }
        let error = "150us".parse::<NetSpec>().unwrap_err().to_string();
        assert!(error.contains("150us,100MB/s"), "{error}");
    }
}
