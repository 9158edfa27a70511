//! The differences of two profiles.

use cawl_client::protocol::ConstantStatus;
use cawl_core::{Bytes, DeviceConstants, HostProfile, Measured, Nanos, Rate};
use serde::Serialize;

use super::{compact, lines, shown, table};

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

/// Every constant of both profiles, in the order of the file.
pub fn differences(before: &HostProfile, after: &HostProfile) -> Vec<Difference> {
    let (before, mut after) = (constants(before), constants(after));
    let mut rows: Vec<Difference> = before
        .into_iter()
        .map(|constant| {
            let at = after.iter().position(|other| other.name == constant.name);
            let other = at.map(|at| after.remove(at));
            Difference {
                before: Some(constant.value),
                ..Difference::new(constant.name, constant.unit, other)
            }
        })
        .collect();
    let added = |constant: Constant| Difference::new(constant.name.clone(), constant.unit, Some(constant));
    rows.extend(after.into_iter().map(added));
    rows
}

impl Difference {
    fn new(name: String, unit: &str, after: Option<Constant>) -> Difference {
        let percentiles = after.as_ref().map_or((None, None), |constant| (constant.p10, constant.p90));
        Difference {
            name,
            unit: unit.to_owned(),
            before: None,
            after: after.as_ref().map(|constant| constant.value),
            p10: percentiles.0,
            p90: percentiles.1,
            samples: after.map_or(0, |constant| constant.samples),
        }
    }
}

/// A constant of a profile.
struct Constant {
    name: String,
    unit: &'static str,
    value: f64,
    p10: Option<f64>,
    p90: Option<f64>,
    samples: u64,
}

/// Constants with a common prefix.
struct Group<'a> {
    prefix: String,
    found: &'a mut Vec<Constant>,
}

impl Group<'_> {
    fn measured<T: Copy>(
        &mut self,
        name: &str,
        unit: &'static str,
        of: &Measured<T>,
        get: impl Fn(T) -> f64,
    ) {
        self.found.push(Constant {
            name: format!("{}.{name}", self.prefix),
            unit,
            value: get(of.value),
            p10: of.p10.map(&get),
            p90: of.p90.map(&get),
            samples: u64::from(of.samples),
        });
    }

    fn rate(&mut self, name: &str, of: &Measured<Rate>) {
        self.measured(name, "B/s", of, Rate::get);
    }

    fn time(&mut self, name: &str, of: &Measured<Nanos>) {
        self.measured(name, "ns", of, Nanos::get);
    }

    fn time_if_known(&mut self, name: &str, of: Option<&Measured<Nanos>>) {
        if let Some(of) = of {
            self.time(name, of);
        }
    }

    fn plain(&mut self, name: &str, unit: &'static str, value: f64) {
        self.measured(name, unit, &Measured::assumed(value), |value| value);
    }
}

fn constants(profile: &HostProfile) -> Vec<Constant> {
    let mut found = Vec::new();
    let mut group = Group { prefix: "memory".to_owned(), found: &mut found };
    let memory = &profile.memory;
    group.rate("stream", &memory.stream);
    group.rate("fresh", &memory.fresh);
    if let Some(cold) = &memory.cold {
        group.rate("cold", cold);
    }
    if let Some(share) = &memory.cold_share {
        group.measured("cold_share", "1", share, |share| share);
    }
    group.rate("cached", &memory.cached);
    if let Some(hot) = &memory.hot {
        group.rate("hot", hot);
    }
    group.measured("flush_factor", "1", &memory.flush_factor, |factor| factor);
    if let Some(factor) = &memory.cached_flush_factor {
        group.measured("cached_flush_factor", "1", factor, |factor| factor);
    }
    if let Some(folio) = &memory.folio {
        group.rate("folio", folio);
    }
    group.plain("hot_size", "B", memory.hot_size.as_f64());
    device(&mut found, "device".to_owned(), &profile.device);
    let mut group = Group { prefix: "calls".to_owned(), found: &mut found };
    group.time("write", &profile.calls.write);
    let calls = &profile.calls;
    let known = [("folio", &calls.folio), ("inode", &calls.inode), ("away", &calls.away)];
    known.iter().for_each(|(name, time)| group.time_if_known(name, time.as_ref()));
    group.time("stream", &profile.calls.stream);
    let kernel = &profile.kernel;
    let mut group = Group { prefix: "kernel".to_owned(), found: &mut found };
    group.plain("limits.background", "B", kernel.limits.background.as_f64());
    group.plain("limits.hard", "B", kernel.limits.hard.as_f64());
    group.plain("expire", "ns", kernel.expire.get());
    group.plain("wakeup", "ns", kernel.wakeup.get());
    group.plain("page", "B", kernel.page.as_f64());
    group.plain("stream_buffer", "B", kernel.stream_buffer.as_f64());
    group.plain("hz", "1", f64::from(kernel.hz));
    group.plain("cpus", "1", f64::from(kernel.cpus));
    group.plain("folio", "B", kernel.folio.as_f64());
    if let Some(limits) = &kernel.cgroup {
        group.plain("cgroup.background", "B", limits.background.as_f64());
        group.plain("cgroup.hard", "B", limits.hard.as_f64());
    }
    for other in &profile.others {
        let (major, minor) = (nix::sys::stat::major(other.dev), nix::sys::stat::minor(other.dev));
        device(&mut found, format!("others.{major}:{minor}"), &other.constants);
    }
    found
}

fn device(found: &mut Vec<Constant>, prefix: String, device: &DeviceConstants) {
    let mut group = Group { prefix, found };
    group.rate("write", &device.write);
    group.rate("read", &device.read);
    group.rate("writeback", &device.writeback);
    group.time_if_known("latency", device.latency.as_ref());
    group.time("sync_call", &device.sync_call);
    group.time("fsync", &device.fsync);
    group.time_if_known("flush", device.flush.as_ref());
    group.time("seek", &device.seek);
    group.plain("block", "B", device.block.as_f64());
    group.plain("queue", "B", device.queue.as_f64());
    if let Some(rate) = &device.base_rate {
        group.rate("base_rate", rate);
    }
    group.plain("commit", "ns", device.commit.get());
    group.plain("min_ratio", "1", device.min_ratio);
    group.plain("max_ratio", "1", device.max_ratio);
    group.plain("strict_limit", "1", f64::from(u8::from(device.strict_limit)));
}

/// The differences as a table; `names` are the headings of the two values.
pub fn text(rows: &[Difference], names: [&str; 2]) -> String {
    if rows.is_empty() {
        return "no constant differs\n".to_owned();
    }
    let mut drawn = table(&["CONSTANT", names[0], names[1], "CHANGE", "P10", "P90", "SAMPLES"], 1);
    for row in rows {
        let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| with_unit(value, &row.unit));
        let change = row.before.zip(row.after).filter(|(before, _)| *before != 0.0);
        drawn.add_row([
            shown(&row.name).into_owned(),
            show(row.before),
            show(row.after),
            change.map_or("-".to_owned(), |(before, after)| signed((after - before) / before)),
            show(row.p10),
            show(row.p90),
            if row.samples == 0 { "-".to_owned() } else { compact::count(row.samples) },
        ]);
    }
    lines(&drawn)
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
