//! The constants of a profile, by name.

use super::{HostProfile, NetworkConstants, ProfileError};
use crate::profile::{CachePolicy, GroupCache, QueueConstants};
use crate::quantity;
use crate::table::{Constants, Figure, Measured, Row, Unit};
use crate::units::Bytes;

impl Unit {
    /// Reads a value as people write it. A plain number is one of bytes, or of what has no unit: nobody would
    /// know what it is of a rate or a time, unless it is 0.
    fn read(self, text: &str) -> Result<f64, &'static str> {
        let plain = text.parse::<f64>().ok().filter(|number| number.is_finite());
        let zero = plain.filter(|number| *number == 0.0);
        let size = |text| quantity::size(text).ok().map(|bytes| bytes as f64);
        match self {
            Unit::Rate => zero
                .or_else(|| size(text.strip_suffix("/s").unwrap_or(text)).filter(|_| plain.is_none()))
                .ok_or("a rate with its unit, as 2G or 500MB/s"),
            Unit::Time => {
                let span = || quantity::span_with_unit(text).ok().map(|seconds| seconds * 1e9);
                zero.or_else(span).ok_or("a time with its unit, as 200us or 5ms")
            }
            Unit::Size => plain.or_else(|| size(text)).ok_or("a size, as 64K or 2G"),
            Unit::Number => plain.ok_or("a number without a unit"),
            Unit::Name => Err("a name, which only the profile's file can change"),
        }
    }
}

/// A constant of a profile, as it is shown.
pub struct ShownConstant<'a> {
    /// Its name in the file: `device.network.open`.
    pub name: &'a str,
    /// Its row of the table.
    pub row: Row,
    /// Its value.
    pub figure: &'a dyn Figure,
}

/// Shows the constants of a table and of those within it.
fn show(table: &dyn Constants, above: &str, each: &mut dyn FnMut(ShownConstant)) {
    table.each(&mut |row, figure| {
        let name = format!("{above}.{}", row.name);
        match figure.table() {
            Some(inner) => show(inner, &name, each),
            None => each(ShownConstant { name: &name, row, figure }),
        }
    });
}

impl HostProfile {
    /// The tables of the file, by their names.
    fn tables(&self) -> [(&'static str, &dyn Constants); 4] {
        let HostProfile { memory, device, calls, kernel, .. } = self;
        [("memory", memory), ("device", device), ("calls", calls), ("kernel", kernel)]
    }

    /// Shows every constant, in the order of the file; those of other devices under the name that `others`
    /// gives them.
    pub fn each(&self, others: impl Fn(u64) -> String, mut each: impl FnMut(ShownConstant)) {
        self.tables().into_iter().for_each(|(name, table)| show(table, name, &mut each));
        for other in &self.others {
            show(&other.constants, &format!("others.{}", others(other.dev)), &mut each);
        }
    }

    /// The constant of this name in the file (`device.writeback`); None: there is no such one.
    pub fn find(&mut self, name: &str) -> Option<&mut dyn Figure> {
        let (table, name) = name.split_once('.')?;
        match table {
            "memory" => self.memory.find(name),
            "device" => self.device.find(name),
            "calls" => self.calls.find(name),
            "kernel" => self.kernel.find(name),
            _ => None,
        }
    }

    /// The value of the constant of this name, in its unit; None where the profile does not have it.
    pub fn value(&self, name: &str) -> Option<Measured<f64>> {
        self.clone().find(name)?.number()
    }

    /// The constants of memory, device and calls that a better machine could have otherwise: their names in
    /// the file, and their values.
    pub fn constants(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        self.each(
            |_| String::new(),
            |shown| {
                let is_other = shown.name.starts_with("others.");
                let number = shown.figure.number().filter(|_| !shown.row.setting && !is_other);
                all.extend(number.map(|number| (shown.name.to_owned(), number.value)));
            },
        );
        all
    }

    /// The profile with another value in the place of one, by its name in the file (`device.writeback`).
    /// Sizes and rates may be written as `2G`, times as `200us`.
    ///
    /// The error is a sentence for people.
    pub fn with(&self, name: &str, text: &str) -> Result<HostProfile, String> {
        let unit =
            self.clone().find(name).filter(|figure| figure.table().is_none()).map(|figure| figure.unit());
        let value = unit.map_or(Ok(0.0), |unit| unit.read(text));
        let value = value.map_err(|what| format!("`{name}` cannot be {text}: it is {what}"))?;
        self.with_value(name, value)
    }

    /// The profile with this value of a constant, in its unit; a measured one is taken as certain.
    pub fn with_value(&self, name: &str, value: f64) -> Result<HostProfile, String> {
        let mut changed = self.clone();
        let Some((figure, known)) =
            changed.find(name).and_then(|figure| figure.number().map(|known| (figure, known)))
        else {
            return Err(self.unknown(name));
        };
        figure.set(Measured { value, p10: Some(value), p90: Some(value), ..known });
        // A size or a count is the whole number below.
        let off = figure.number().map_or(f64::NAN, |set| (set.value - value).abs());
        let whole = matches!(figure.unit(), Unit::Size | Unit::Number);
        let bounds = match changed.check() {
            Ok(()) if off <= 1e-12 * value.abs() || whole && off < 1.0 => return Ok(changed),
            Err(ProfileError::Nonsense(bounds)) => bounds,
            _ => "no machine has that",
        };
        Err(format!("`{name}` cannot be {value}: {bounds}"))
    }

    /// Says that there is no constant of this name, and which there are: those of its table, if it has one.
    fn unknown(&self, name: &str) -> String {
        let mut known = Vec::new();
        self.each(
            |_| String::new(),
            |shown| known.extend(shown.figure.value().map(|_| shown.name.to_owned())),
        );
        let table = name.split('.').next().unwrap_or_default();
        let near: Vec<String> = known.iter().filter(|known| known.starts_with(table)).cloned().collect();
        let has = if near.is_empty() { known } else { near };
        format!("the profile has no value `{name}`; it has {}", has.join(", "))
    }

    /// An uncalibrated machine with all tables that a profile may have, so that each constant has its row.
    pub fn complete() -> HostProfile {
        let mut profile = HostProfile::uncalibrated();
        profile.device.network = Some(NetworkConstants::new(CachePolicy::WriteBack, Bytes::mib(1)));
        profile.device.shared_queue = Some(QueueConstants::none());
        (profile.kernel.cgroup, profile.kernel.group) =
            (Some(profile.kernel.limits), Some(GroupCache::default()));
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{CachePolicy, Measured, NetworkConstants, QueueConstants};
    use crate::units::{Bytes, Nanos, Rate};

    #[test]
    fn a_value_is_set_by_its_name() {
        let profile = HostProfile::uncalibrated();
        let with = |name, text| profile.with(name, text).expect("it can be set");
        assert_eq!(
            with("device.writeback", "2G").device.writeback.value,
            Rate::per_second(2.0 * (1u64 << 30) as f64)
        );
        assert_eq!(with("device.writeback", "100MB/s").device.writeback.p90, Some(Rate::per_second(1e8)));
        assert_eq!(with("device.fsync", "5ms").device.fsync.value, Nanos::millis(5.0));
        // Not MiB.
        assert_eq!(with("kernel.expire", "5m").kernel.expire, Nanos::seconds(300.0));
        assert_eq!(with("kernel.limits.hard", "8G").kernel.limits.hard.0, 8 << 30);
        assert_eq!(with("kernel.expire", "10s").kernel.expire, Nanos::seconds(10.0));
        // Without a unit: bytes, numbers, and nothing at all.
        assert_eq!(with("device.queue", "1048576").device.queue, Bytes::mib(1));
        assert_eq!(with("memory.flush_factor", "0.5").memory.flush_factor.value, 0.5);
        assert_eq!(with("device.fsync", "0").device.fsync.value, Nanos::ZERO);
    }

    #[test]
    fn what_cannot_be_set_is_told_with_a_remedy() {
        let profile = HostProfile::uncalibrated();
        for (name, text, says) in [
            ("device.speed", "1", "device.writeback"),
            ("speed", "1", "device.writeback"),
            ("device.fsync.value.more", "1", "no value"),
            ("device.fsync", "soon", "a time with its unit, as"),
            ("device.fsync", "5", "a time with its unit, as 200us or 5ms"),
            ("device.write", "100", "a rate with its unit, as 2G or 500MB/s"),
            ("device.write", "1e8", "a rate with its unit, as"),
            ("device.write", "-1", "cannot be"),
            ("device.write", "5ms", "a rate with its unit, as"),
            ("device.fsync", "2G", "a time with its unit, as"),
            ("device.fsync", "10MB/s", "a time with its unit, as"),
            ("device.queue", "3s", "a size, as"),
            ("device.queue", "3G/s", "a size, as"),
            ("memory.flush_factor", "1K", "without a unit"),
            ("memory.flush_factor", "2", "cannot be 2: memory.flush_factor must be above 0"),
            ("kernel.limits.hard", "1K", "kernel.limits.background must be below hard"),
        ] {
            let why = profile.with(name, text).expect_err("it cannot be set");
            assert!(why.contains(says), "{name}={text}: {why}");
        }
    }

    #[test]
    fn those_of_a_network_and_a_queue_are_among_them() {
        let mut profile = HostProfile::uncalibrated();
        let mut network = NetworkConstants::new(CachePolicy::WriteBack, Bytes::mib(1));
        network.open = Some(Measured::assumed(Nanos::millis(1.0)));
        profile.device.network = Some(network);
        let reads_wait = Measured::assumed(0.5);
        profile.device.shared_queue = Some(QueueConstants {
            reads_wait,
            reads_wait_for_reads: None,
            wbt_latency: Nanos::millis(2.0),
            requests: 64,
            write_cache: true,
        });
        profile.memory.block_cache = Some(Bytes::mib(3));
        let all = profile.constants();
        for (name, value) in [
            ("device.network.open", 1e6),
            ("device.network.request", 1_048_576.0),
            ("device.network.in_flight", 12.0),
            ("device.shared_queue.reads_wait", 0.5),
            ("device.shared_queue.requests", 64.0),
            ("memory.block_cache", 3_145_728.0),
            ("memory.hot_size", 1_048_576.0),
            ("device.queue", profile.device.queue.0 as f64),
            ("device.write", profile.device.write.value.get()),
        ] {
            assert_eq!(
                all.iter().find(|(known, _)| known == name).map(|(_, value)| *value),
                Some(value),
                "{name}"
            );
            profile.with_value(name, value * 1.1).expect("it can be another one");
        }
        // Neither settings of the kernel nor names.
        assert!(all.iter().all(|(name, _)| name != "device.commit" && name != "device.network.policy"));
    }
}
