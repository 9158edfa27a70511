//! The constants of a profile, by name.
//!
//! The law: **whoever lists constants goes by this table**, so that none is left out and each has a unit.

use toml::{Table, Value};

use super::{HostProfile, ProfileError};
use crate::named::named;
use crate::quantity;

named! {
    /// What a constant is a quantity of.
    Unit {
        /// Bytes per second.
        Rate = "B/s",
        /// Nanoseconds.
        Time = "ns",
        /// Bytes.
        Size = "B",
        /// A number without a unit; of a flag 0 or 1.
        Number = "1",
        /// One of several names.
        Name = "name",
    }
}

const MEMORY: &str = "stream B/s, fresh B/s, cold B/s, cold_share 1, cached B/s, hot B/s, hot_large B/s, \
                      near B/s, read B/s, read_hot B/s, read_fresh B/s, block_cache B, folio B/s, \
                      flush_factor 1, cached_flush_factor 1, hot_size B";
const DEVICE: &str = "write B/s, read B/s, read_latency ns, sequential_read B/s, completes_together 1, \
                      cached_read B/s, cached_read_latency ns, readahead B, shared_queue.reads_wait 1, \
                      shared_queue.reads_wait_for_reads 1, shared_queue.wbt_latency ns, \
                      shared_queue.requests 1, shared_queue.write_cache 1, writeback B/s, latency ns, \
                      direct ns, allocation ns, partial ns, delayed_allocation ns, sync_call ns, fsync ns, \
                      flush ns, idle ns, request ns, folio ns, discard B/s, seek ns, block B, queue B, base_rate B/s, \
                      commit ns, min_ratio 1, max_ratio 1, strict_limit 1, filesystem name, syncs_stamps 1, \
                      network.policy name, network.request B, network.read_request B, network.in_flight 1, \
                      network.push B, network.close_flushes 1, network.open_keeps 1, \
                      network.reads_partial 1, network.open ns, network.create ns, network.close ns, \
                      network.commit ns, network.unlink ns, network.rename ns, network.truncate ns, \
                      network.drop_page ns, network.call ns, network.fresh B/s, network.cached B/s, \
                      network.near B/s, network.read_call ns, network.read B/s, network.read_near B/s, \
                      network.activate ns";
const CALLS: &str = "write ns, folio ns, inode ns, away ns, away_soon ns, jump ns, over ns, clean ns, \
                     block ns, block_far ns, empty ns, odd ns, read ns, empty_read ns, read_folio ns, \
                     read_folio_far ns, read_apart ns, read_away ns, fault ns, buffer ns, open ns, \
                     create ns, close ns, free ns, stream ns";
const KERNEL: &str = "limits.background B, limits.hard B, expire ns, wakeup ns, page B, stream_buffer B, \
                      hz 1, fine_stamps 1, cpus 1, folio B, cgroup.background B, cgroup.hard B, \
                      group.room B, group.inactive B, group.active B";

/// The tables of a profile with their constants.
const TABLES: [(&str, &str); 4] =
    [("memory", MEMORY), ("device", DEVICE), ("calls", CALLS), ("kernel", KERNEL)];

/// The constants of a table of the file (`memory`, `device`, `calls`, `kernel`), by their names in it, in its
/// order.
pub fn constants_of(table: &str) -> impl Iterator<Item = (&'static str, Unit)> {
    let names = TABLES.iter().filter(move |(name, _)| *name == table);
    names.flat_map(|(_, names)| names.split(", ")).filter_map(|constant| {
        let (name, unit) = constant.split_once(' ')?;
        Some((name, Unit::ALL.into_iter().find(|one| one.name() == unit)?))
    })
}

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

impl HostProfile {
    /// The constants of memory, device and calls that were measured, or stand beside such as what a network
    /// or a shared queue takes: their names in the file, and their values.
    pub fn constants(&self) -> Vec<(String, f64)> {
        let whole: Table = self.to_toml().parse().unwrap_or_default();
        let value = |table: &str, name: &str| {
            let place = name.split('.').try_fold(whole.get(table)?, |at, key| at.get(key))?;
            match place {
                Value::Table(measured) => measured.get("value")?.as_float(),
                // What is fixed by the kernel or the filesystem is no constant of theirs.
                plain if name.contains('.') || ["block_cache", "hot_size", "queue"].contains(&name) => {
                    plain.as_float().or_else(|| Some(plain.as_integer()? as f64))
                }
                _ => None,
            }
        };
        let of = |table: &'static str| {
            constants_of(table).map(move |(name, _)| (format!("{table}.{name}"), (table, name)))
        };
        let all = ["memory", "device", "calls"].into_iter().flat_map(of);
        all.filter_map(|(whole, (table, name))| Some((whole, value(table, name)?))).collect()
    }

    /// The profile with another value in the place of one, by its name in the file (`device.writeback`).
    /// Sizes and rates may be written as `2G`, times as `200us`.
    ///
    /// The error is a sentence for people.
    pub fn with(&self, name: &str, text: &str) -> Result<HostProfile, String> {
        let unit = name.split_once('.').and_then(|(table, name)| {
            constants_of(table).find_map(|(known, unit)| (known == name).then_some(unit))
        });
        let value = unit.map_or(Ok(0.0), |unit| unit.read(text));
        let value = value.map_err(|what| format!("`{name}` cannot be {text}: it is {what}"))?;
        self.with_value(name, value)
    }

    /// The profile with this value of a constant, in the file's unit; a measured one is taken as certain.
    pub fn with_value(&self, name: &str, value: f64) -> Result<HostProfile, String> {
        let known: Table = self.to_toml().parse().map_err(|error| format!("{error}"))?;
        let mut whole = Value::Table(known.clone());
        let place = name.split('.').try_fold(&mut whole, |at, key| at.get_mut(key));
        let is_one = |(table, name)| constants_of(table).any(|(known, _)| known == name);
        let Some(place) = place.filter(|_| name.split_once('.').is_some_and(is_one)) else {
            return Err(unknown(name, &known));
        };
        match place {
            Value::Table(measured) => {
                for percentile in ["value", "p10", "p90"] {
                    measured.insert(percentile.to_owned(), Value::Float(value));
                }
            }
            Value::Integer(whole) => *whole = value as i64,
            Value::Boolean(flag) => *flag = value != 0.0,
            other => *other = Value::Float(value),
        }
        let changed = toml::to_string(&whole).map_err(|error| format!("{error}"))?;
        HostProfile::from_toml(&changed).map_err(|error| match error {
            ProfileError::Nonsense(bounds) => format!("`{name}` cannot be {value}: {bounds}"),
            // Of the text that was read, which is not the user's, only what is wrong with it.
            error => {
                format!(
                    "`{name}` cannot be {value}: {}",
                    error.to_string().lines().last().unwrap_or_default()
                )
            }
        })
    }
}

fn unknown(name: &str, whole: &Table) -> String {
    let has = |table: &str, name: &str| {
        name.split('.').try_fold(whole.get(table)?, |at, key| at.get(key)).map(|_| format!("{table}.{name}"))
    };
    let of = |(table, _): &(&'static str, &str)| {
        let table = *table;
        constants_of(table).filter_map(move |(name, _)| has(table, name)).collect::<Vec<_>>()
    };
    let known: Vec<String> = TABLES.iter().flat_map(of).collect();
    // Those of the same table, if there is one of that name.
    let table = name.split('.').next().unwrap_or_default();
    let near: Vec<&str> = known.iter().map(String::as_str).filter(|known| known.starts_with(table)).collect();
    let has = if near.is_empty() { known.join(", ") } else { near.join(", ") };
    format!("the profile has no value `{name}`; it has {has}")
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

    #[test]
    fn each_constant_is_explained() {
        let page = include_str!("../../../../docs/science/MODEL.md");
        let table = page.split("| parameter |").nth(1).and_then(|rest| rest.split("\n\n").next());
        let table = table.expect("a table of parameters");
        for (group, name) in
            TABLES.iter().flat_map(|(group, _)| constants_of(group).map(|one| (*group, one.0)))
        {
            let full = format!("{group}.{name}");
            let (above, last) = full.rsplit_once('.').expect("two parts");
            let is_told = [&full, above, last].iter().any(|name| table.contains(&format!("`{name}`")));
            assert!(is_told, "{full}");
        }
    }

    /// A constant that is added to the profile must be named here too: what a table of the file can have says
    /// the error for something that it cannot have.
    #[test]
    fn no_constant_is_forgotten() {
        let tables = [
            ("memory", ""),
            ("device", ""),
            ("device", "shared_queue."),
            ("device", "network."),
            ("calls", ""),
            ("kernel", ""),
            ("kernel", "group."),
        ];
        for (table, inner) in tables {
            let mut whole = Value::Table(HostProfile::uncalibrated().to_toml().parse().expect("a table"));
            let mut at = whole.get_mut(table).and_then(Value::as_table_mut).expect("it is there");
            for key in inner.split_terminator('.') {
                let empty = || Value::Table(Table::new());
                at = at.entry(key).or_insert_with(empty).as_table_mut().expect("a table");
            }
            at.insert("surprise".to_owned(), Value::Integer(1));
            let error = HostProfile::from_toml(&toml::to_string(&whole).expect("TOML"))
                .expect_err("it has no such value")
                .to_string();
            let (_, fields) = error.split_once("expected one of ").unwrap_or_else(|| panic!("{error}"));
            let fields: Vec<&str> = fields.split('`').skip(1).step_by(2).collect();
            assert!(fields.len() > 1, "{error}");
            for field in fields {
                let (name, deeper) = (format!("{inner}{field}"), format!("{inner}{field}."));
                let is_known =
                    constants_of(table).any(|(known, _)| known == name || known.starts_with(&deeper));
                assert!(is_known || field == "after_wait", "{table}.{name} is missing");
            }
        }
    }
}
