//! The differences of two profiles.

use cawl_client::protocol::ConstantStatus;
use cawl_core::{Bytes, HostProfile, Measured, Nanos, Rate, constants_of};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{WIDTH, columns, compact, shown, table};

/// A value of a constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Figure {
    Number(f64),
    /// One of several names, as a filesystem's.
    Name(String),
}

/// A constant in two profiles. Rates in bytes per second, times in ns, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name, as in the profile: `device.writeback`.
    name: String,
    /// Unit of the values: `B/s`, `ns`, `B` or `1`; `name`: they are names.
    unit: String,
    /// Value in the first profile; None if it has none.
    before: Option<Figure>,
    /// Value in the second profile; None if it has none.
    after: Option<Figure>,
    /// 10th percentile in the second profile.
    p10: Option<f64>,
    /// 90th percentile in the second profile.
    p90: Option<f64>,
    /// Samples behind the second value; 0 for a default or a setting.
    samples: u64,
    /// The second value is a measured one, or stands for one.
    #[serde(skip)]
    is_measured: bool,
}

impl From<&ConstantStatus> for Difference {
    fn from(constant: &ConstantStatus) -> Difference {
        Difference {
            name: constant.name.clone(),
            unit: constant.unit.clone(),
            before: Some(Figure::Number(constant.configured)),
            after: Some(Figure::Number(constant.learned)),
            p10: constant.p10,
            p90: constant.p90,
            samples: constant.samples,
            is_measured: true,
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
            Some(known) => *known = Difference { before: known.before.take(), ..row },
            None => rows.push(row),
        }
    }
    rows
}

/// The constants of a profile, as the second of two.
fn constants(profile: &HostProfile) -> Vec<Difference> {
    let fields = json!(profile);
    let mut found = Vec::new();
    for table in ["memory", "device", "calls", "kernel"] {
        found.extend(those_of(table, table, &fields[table]));
    }
    for other in &profile.others {
        let (major, minor) = (nix::sys::stat::major(other.dev), nix::sys::stat::minor(other.dev));
        found.extend(those_of("device", &format!("others.{major}:{minor}"), &json!(other.constants)));
    }
    found
}

/// The constants of a kind of table that these fields of a profile have, named as in `table`.
fn those_of(kind: &str, table: &str, fields: &Value) -> impl Iterator<Item = Difference> {
    constants_of(kind).filter_map(move |(name, unit)| {
        let field =
            fields.pointer(&format!("/{}", name.replace('.', "/"))).filter(|field| !field.is_null())?;
        let (mut after, mut spread) = (Figure::Name(field.as_str().unwrap_or_default().to_owned()), None);
        match field {
            Value::String(_) => {}
            Value::Object(_) => {
                let measured = Measured::<f64>::deserialize(field).ok()?;
                (after, spread) = (Figure::Number(measured.value), Some(measured));
            }
            Value::Bool(flag) => after = Figure::Number(f64::from(*flag)),
            plain => after = Figure::Number(plain.as_f64()?),
        }
        Some(Difference {
            name: format!("{table}.{name}"),
            unit: unit.name().to_owned(),
            before: None,
            after: Some(after),
            p10: spread.and_then(|measured| measured.p10),
            p90: spread.and_then(|measured| measured.p90),
            samples: spread.map_or(0, |measured| measured.samples.into()),
            is_measured: spread.is_some(),
        })
    })
}

/// The constants that were measured, or should have been, as a table.
pub fn measured(profile: &HostProfile) -> String {
    let rows = constants(profile).into_iter().filter(|row| row.is_measured);
    let rows = rows.map(|row| {
        let samples = if row.samples == 0 { "assumed".to_owned() } else { row.samples.to_string() };
        vec![
            shown(&row.name).into_owned(),
            row.shows(&row.after),
            row.spread(row.p10),
            row.spread(row.p90),
            samples,
        ]
    });
    fitted(vec!["CONSTANT", "VALUE", "P10", "P90", "SAMPLES"], rows.collect())
}

/// The differences as a table; `names` are the headings of the two values.
pub fn text(rows: &[Difference], names: [&str; 2]) -> String {
    if rows.is_empty() {
        return "no constant differs\n".to_owned();
    }
    let cells = |row: &Difference| {
        let change = match (&row.before, &row.after) {
            (Some(Figure::Number(before)), Some(Figure::Number(after))) if *before != 0.0 => {
                signed((after - before) / before)
            }
            _ => "-".to_owned(),
        };
        vec![
            shown(&row.name).into_owned(),
            row.shows(&row.before),
            row.shows(&row.after),
            change,
            row.spread(row.p10),
            row.spread(row.p90),
            if row.samples == 0 { "-".to_owned() } else { compact::count(row.samples) },
        ]
    };
    let header = vec!["CONSTANT", names[0], names[1], "CHANGE", "P10", "P90", "SAMPLES"];
    fitted(header, rows.iter().map(cells).collect())
}

impl Difference {
    fn shows(&self, value: &Option<Figure>) -> String {
        match value {
            None => "-".to_owned(),
            Some(Figure::Name(name)) => shown(name).into_owned(),
            Some(Figure::Number(value)) => with_unit(*value, &self.unit),
        }
    }

    fn spread(&self, value: Option<f64>) -> String {
        value.map_or("-".to_owned(), |value| with_unit(value, &self.unit))
    }
}

/// A table, without percentiles where long names leave no room for them.
fn fitted(mut header: Vec<&str>, mut rows: Vec<Vec<String>>) -> String {
    let text = table(&header, [0], &rows);
    if text.lines().all(|line| columns(line) <= WIDTH) {
        return text;
    }
    let at = header.iter().position(|name| *name == "P10").unwrap_or(header.len());
    for row in &mut rows {
        row.splice(at..at + 2, []);
    }
    header.drain(at..at + 2);
    table(&header, [0], &rows)
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
    use cawl_core::{CachePolicy, FilesystemKind, NetworkConstants};

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
        after.memory.block_cache = Some(Bytes::mib(3));
        after.calls.over = Some(Measured::assumed(Nanos::new(40.0)));
        after.device.filesystem = Some(FilesystemKind::Xfs);
        after.device.network = Some(NetworkConstants::new(CachePolicy::WriteBack, Bytes::mib(1)));
        let rows = changed(differences(&before, &after));
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let network = ["policy", "request", "in_flight", "close_flushes", "open_keeps", "reads_partial"];
        let network = network.map(|name| format!("device.network.{name}"));
        let expected =
            ["device.writeback", "kernel.hz", "memory.cold", "memory.block_cache", "device.filesystem"];
        let expected = expected.into_iter().chain(network.iter().map(String::as_str)).chain(["calls.over"]);
        assert_eq!(names, expected.collect::<Vec<_>>());
        let (long, short): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.name.contains("network"));
        let text = text(&short, ["A", "B"]) + &text(&long, ["A", "B"]);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(line("device.writeback"), "device.writeback|400 MB/s|100 MB/s|-75 %|90 MB/s|110 MB/s|17");
        assert_eq!(line("kernel.hz"), "kernel.hz|250|1000|+300 %|-|-|-");
        assert_eq!(line("memory.cold"), "memory.cold|-|700 MB/s|-|-|-|-");
        assert_eq!(line("device.network.policy"), "device.network.policy|-|write-back|-|-|-|-");
        let mut long = short[..1].to_vec();
        long[0].name = "device.shared_queue.reads_wait_for_reads".to_owned();
        let long = super::text(&long, ["A", "B"]);
        assert!(!long.contains("P10") && long.lines().all(|line| columns(line) <= 80), "{long}");
        assert_eq!(super::text(&changed(differences(&before, &before)), ["A", "B"]), "no constant differs\n");
    }
}
