//! Setting a value of a profile by its name, as in `--set device.writeback=2G`.

use toml::{Table, Value};

use super::HostProfile;
use crate::quantity;

impl HostProfile {
    /// The measured constants of memory, device and calls: their names in the file, and their values.
    pub fn constants(&self) -> Vec<(String, f64)> {
        let whole: Table = self.to_toml().parse().unwrap_or_default();
        let mut found = Vec::new();
        for section in ["memory", "device", "calls"] {
            measured(section, whole.get(section), &mut found);
        }
        found
    }

    /// The profile with another value in the place of one, by its name in the file (`device.writeback`).
    /// Sizes and rates may be written as `2G`, times as `200us`. A measured constant is taken as certain.
    ///
    /// The error is a sentence for people.
    pub fn with(&self, name: &str, text: &str) -> Result<HostProfile, String> {
        let known: Table = self.to_toml().parse().map_err(|error| format!("{error}"))?;
        let value = number(text)?;
        let mut whole = Value::Table(known.clone());
        let place = name.splitn(3, '.').try_fold(&mut whole, |at, key| at.get_mut(key));
        match place.filter(|_| name.contains('.')) {
            Some(Value::Table(measured)) if measured.contains_key("value") => {
                for percentile in ["value", "p10", "p90"] {
                    measured.insert(percentile.to_owned(), Value::Float(value));
                }
            }
            Some(Value::Integer(whole)) => *whole = value as i64,
            Some(Value::Float(part)) => *part = value,
            Some(Value::Boolean(flag)) => *flag = value != 0.0,
            _ => return Err(unknown(name, &known)),
        }
        let text = toml::to_string(&whole).map_err(|error| format!("{error}"))?;
        HostProfile::from_toml(&text).map_err(|error| format!("`{name}` cannot be {value}: {error}"))
    }
}

/// Adds the measured constants of a table, and of the tables in it.
fn measured(name: &str, table: Option<&Value>, found: &mut Vec<(String, f64)>) {
    for (key, field) in table.and_then(Value::as_table).into_iter().flatten() {
        let name = format!("{name}.{key}");
        match field.get("value").and_then(Value::as_float) {
            Some(value) => found.push((name, value)),
            None => measured(&name, Some(field), found),
        }
    }
}

/// A plain number, or one with a unit: bytes, bytes per second, or ns.
fn number(text: &str) -> Result<f64, String> {
    if let Ok(number) = text.parse::<f64>()
        && number.is_finite()
    {
        return Ok(number);
    }
    let size = quantity::size(text.strip_suffix("/s").unwrap_or(text)).map(|bytes| bytes as f64);
    size.or_else(|_| quantity::span_with_unit(text).map(|seconds| seconds * 1e9))
        .map_err(|_| format!("`{text}` is no value; write a number, a size as 2G, or a time as 200us"))
}

fn unknown(name: &str, whole: &Table) -> String {
    let of = |(section, table): (&String, &Value)| {
        let names = table.as_table()?.keys().map(|key| format!("{section}.{key}"));
        Some(names.collect::<Vec<_>>())
    };
    let known: Vec<String> = whole.iter().filter_map(of).flatten().collect();
    format!("the profile has no value `{name}`; it has {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Measured, QueueConstants};
    use crate::units::{Nanos, Rate};

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
        assert_eq!(with("kernel.limits.hard", "8G").kernel.limits.hard.0, 8 << 30);
        assert_eq!(with("kernel.expire", "10s").kernel.expire, Nanos::seconds(10.0));
    }

    /// Each can be set by the name that it is listed with.
    #[test]
    fn constants_of_tables_in_tables_are_listed() {
        let mut profile = HostProfile::uncalibrated();
        profile.device.shared_queue = Some(QueueConstants {
            reads_wait: Measured::assumed(0.5),
            reads_wait_for_reads: None,
            wbt_latency: Nanos::millis(2.0),
            requests: 64,
            write_cache: true,
        });
        let constants = profile.constants();
        assert!(constants.contains(&("device.shared_queue.reads_wait".to_owned(), 0.5)), "{constants:?}");
        for (name, value) in constants {
            assert!(profile.with(&name, &value.to_string()).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_set_is_told_with_a_remedy() {
        let profile = HostProfile::uncalibrated();
        let wrong = |name, text| profile.with(name, text).expect_err("it cannot be set");
        assert!(wrong("device.speed", "1").contains("device.writeback"));
        assert!(wrong("speed", "1").contains("device.writeback"));
        assert!(wrong("device.fsync", "soon").contains("write a number"));
        assert!(wrong("device.write", "-1").contains("cannot be"));
        assert!(wrong("device.fsync.value.more", "1").contains("no value"));
    }
}
