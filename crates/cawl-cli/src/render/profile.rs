//! The differences of two profiles.

use cawl_client::protocol::ConstantStatus;
use cawl_core::{Bytes, HostProfile, Measured, Nanos, Rate};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{compact, shown, table};

/// A constant in two profiles. Rates in bytes per second, times in ns, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name, as in the profile: `device.writeback`.
    name: String,
    /// Unit of the values: `B/s`, `ns`, `B` or `1`.
    unit: String,
    /// Value in the first profile; None if it has none.
    before: Option<f64>,
    /// Value in the second profile; None if it has none.
    after: Option<f64>,
    /// 10th percentile in the second profile.
    p10: Option<f64>,
    /// 90th percentile in the second profile.
    p90: Option<f64>,
    /// Samples behind the second value; 0 for a default or a setting.
    samples: u64,
}

impl From<&ConstantStatus> for Difference {
    fn from(constant: &ConstantStatus) -> Difference {
        Difference {
            name: constant.name.clone(),
            unit: constant.unit.clone(),
            before: Some(constant.configured),
            after: Some(constant.learned),
            p10: constant.p10,
            p90: constant.p90,
            samples: constant.samples,
        }
    }
}

/// The constants whose values differ.
pub fn changed(mut rows: Vec<Difference>) -> Vec<Difference> {
    rows.retain(|row| row.before != row.after);
    rows
}

/// Every constant of both profiles, in the order of the file; those that only the second has come last.
pub fn differences(before: &HostProfile, after: &HostProfile) -> Vec<Difference> {
    let only_before = |row: Difference| Difference {
        before: row.after,
        after: None,
        p10: None,
        p90: None,
        samples: 0,
        ..row
    };
    let mut rows: Vec<Difference> = constants(before).into_iter().map(only_before).collect();
    for row in constants(after) {
        match rows.iter_mut().find(|known| known.name == row.name) {
            Some(known) => *known = Difference { before: known.before, ..row },
            None => rows.push(row),
        }
    }
    rows
}

/// The constants of each table of a profile with their units, in the order of the file.
const MEMORY: &str = "stream B/s, fresh B/s, cold B/s, cold_share 1, cached B/s, hot B/s, hot_large B/s, \
                      near B/s, read B/s, read_hot B/s, read_fresh B/s, flush_factor 1, \
                      cached_flush_factor 1, folio B/s, hot_size B";
const DEVICE: &str = "write B/s, read B/s, read_latency ns, sequential_read B/s, cached_read B/s, \
                      cached_read_latency ns, readahead B, completes_together 1, writeback B/s, \
                      latency ns, direct ns, allocation ns, partial ns, delayed_allocation ns, \
                      sync_call ns, fsync ns, flush ns, idle ns, request ns, folio ns, seek ns, block B, \
                      queue B, base_rate B/s, commit ns, min_ratio 1, max_ratio 1, strict_limit 1, \
                      syncs_stamps 1, shared_queue.reads_wait 1, shared_queue.reads_wait_for_reads 1, shared_queue.wbt_latency ns, \
                      shared_queue.requests 1, shared_queue.write_cache 1";
const CALLS: &str = "write ns, empty ns, odd ns, folio ns, inode ns, clean ns, away ns, jump ns, read ns, \
                     empty_read ns, read_folio ns, read_folio_far ns, read_apart ns, read_away ns, fault ns, buffer ns, open ns, create ns, close ns, stream ns";
const KERNEL: &str = "limits.background B, limits.hard B, expire ns, wakeup ns, page B, stream_buffer B, hz 1, \
                      fine_stamps 1, cpus 1, folio B, cgroup.background B, cgroup.hard B";

/// The constants of a profile, as the second of two.
fn constants(profile: &HostProfile) -> Vec<Difference> {
    let fields = json!(profile);
    let mut found = Vec::new();
    for (table, names) in [("memory", MEMORY), ("device", DEVICE), ("calls", CALLS), ("kernel", KERNEL)] {
        found.extend(constants_of(table, &fields[table], names));
    }
    for other in &profile.others {
        let (major, minor) = (nix::sys::stat::major(other.dev), nix::sys::stat::minor(other.dev));
        found.extend(constants_of(&format!("others.{major}:{minor}"), &json!(other.constants), DEVICE));
    }
    found
}

/// The named constants that these fields of a profile have.
fn constants_of(table: &str, fields: &Value, names: &str) -> impl Iterator<Item = Difference> {
    names.split(", ").filter_map(|constant| constant.split_once(' ')).filter_map(move |(name, unit)| {
        let field =
            fields.pointer(&format!("/{}", name.replace('.', "/"))).filter(|field| !field.is_null())?;
        let Measured { value, p10, p90, samples } = match field {
            Value::Object(_) => Measured::deserialize(field).ok()?,
            Value::Bool(flag) => Measured::assumed(f64::from(*flag)),
            plain => Measured::assumed(plain.as_f64()?),
        };
        let (name, unit) = (format!("{table}.{name}"), unit.to_owned());
        Some(Difference { name, unit, before: None, after: Some(value), p10, p90, samples: samples.into() })
    })
}

/// The differences as a table; `names` are the headings of the two values.
pub fn text(rows: &[Difference], names: [&str; 2]) -> String {
    if rows.is_empty() {
        return "no constant differs\n".to_owned();
    }
    let cells = |row: &Difference| {
        let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| with_unit(value, &row.unit));
        let change = row.before.zip(row.after).filter(|(before, _)| *before != 0.0);
        [
            shown(&row.name).into_owned(),
            show(row.before),
            show(row.after),
            change.map_or("-".to_owned(), |(before, after)| signed((after - before) / before)),
            show(row.p10),
            show(row.p90),
            if row.samples == 0 { "-".to_owned() } else { compact::count(row.samples) },
        ]
    };
    let header = ["CONSTANT", names[0], names[1], "CHANGE", "P10", "P90", "SAMPLES"];
    table(&header, [0], rows.iter().map(cells))
}

fn signed(change: f64) -> String {
    let text = compact::percent(change);
    if change > 0.0 && !text.starts_with('>') { format!("+{text}") } else { text }
}

/// A value with its unit; units of later versions are shown as they are.
fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "B/s" => Rate::per_second(value).to_string(),
        "ns" => Nanos::new(value).to_string(),
        "B" => Bytes::from_f64(value).to_string(),
        "1" => format!("{}", (value * 1e4).round() / 1e4),
        other => format!("{value} {}", shown(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_profiles_differ_in() {
        let before = HostProfile::uncalibrated();
        let mut after = before.clone();
        after.device.writeback = Measured {
            value: Rate::mb_per_second(100.0),
            p10: Some(Rate::mb_per_second(90.0)),
            p90: Some(Rate::mb_per_second(110.0)),
            samples: 17,
        };
        after.memory.cold = Some(Measured::assumed(Rate::mb_per_second(700.0)));
        after.kernel.hz = 1000;
        let rows = changed(differences(&before, &after));
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["device.writeback", "kernel.hz", "memory.cold"]);
        let text = text(&rows, ["A", "B"]);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(line("device.writeback"), "device.writeback|400 MB/s|100 MB/s|-75 %|90 MB/s|110 MB/s|17");
        assert_eq!(line("kernel.hz"), "kernel.hz|250|1000|+300 %|-|-|-");
        assert_eq!(line("memory.cold"), "memory.cold|-|700 MB/s|-|-|-|-");
        assert_eq!(super::text(&changed(differences(&before, &before)), ["A", "B"]), "no constant differs\n");
    }

    /// A constant that is added to the profile must be compared too.
    #[test]
    fn no_constant_is_forgotten() {
        let mut profile = HostProfile::uncalibrated();
        profile.memory.cold = Some(profile.memory.fresh);
        profile.device.base_rate = Some(profile.device.write);
        profile.kernel.cgroup = Some(profile.kernel.limits);
        fn count(value: &serde_json::Value) -> usize {
            match value {
                serde_json::Value::Object(map) if map.contains_key("value") => 1,
                serde_json::Value::Object(map) => map.values().map(count).sum(),
                serde_json::Value::Number(_) | serde_json::Value::Bool(_) => 1,
                _ => 0,
            }
        }
        let tables = serde_json::to_value(&profile).unwrap();
        let expected: usize =
            ["memory", "device", "calls", "kernel"].iter().map(|name| count(&tables[name])).sum();
        assert_eq!(constants(&profile).len(), expected);
    }
}
