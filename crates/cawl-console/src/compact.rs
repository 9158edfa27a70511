//! Quantities in at most eight columns (rates: nine), for narrow tables. Zero is a dash.

/// Bytes in binary multiples: `1.25 GiB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// Bytes per second in decimal multiples: `343 MB/s`.
pub fn rate(rate: f64) -> String {
    scaled(if rate < 1.0 { 0.0 } else { rate }, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"])
}

/// Bytes per second in decimal multiples; what is less than one is `0 B/s`.
pub fn rate_or_zero(rate: f64) -> String {
    if rate < 1.0 { "0 B/s".to_owned() } else { self::rate(rate) }
}

/// A number: `12345`, `1.23 M`.
pub fn count(count: u64) -> String {
    match count {
        0..10_000_000 => count.to_string(),
        _ => scaled(count as f64 / 1e6, 1000.0, &["M", "G", "T"]),
    }
}

/// A span of time: `337 ms`, `12.3 s`, `2.5 h`.
pub fn seconds(seconds: f64) -> String {
    if seconds.is_nan() || seconds < 1e-9 {
        return "-".to_owned();
    }
    let (value, unit) = match seconds {
        s if s < 999.5e-9 => (s * 1e9, "ns"),
        s if s < 999.5e-6 => (s * 1e6, "µs"),
        s if s < 999.5e-3 => (s * 1e3, "ms"),
        s if s < 999.5 => (s, "s"),
        s if s < 59_970.0 => (s / 60.0, "min"),
        s if s < 3_598_200.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    format!("{} {unit}", three(value))
}

/// Time from now: `now`, `12.3 s`, `never`.
pub fn until(seconds: Option<f64>) -> String {
    match seconds {
        None => "never".to_owned(),
        Some(s) if s <= 0.0 => "now".to_owned(),
        Some(s) => self::seconds(s),
    }
}

/// Time from now, after a verb: `now`, `in 12.3 s`, `never`.
pub fn within(seconds: Option<f64>) -> String {
    match seconds {
        Some(s) if s > 0.0 => format!("in {}", self::seconds(s)),
        other => until(other),
    }
}

/// A fraction as a percentage of at most seven columns.
pub fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        p if p.abs() < 9.95 => format!("{p:.1} %"),
        p if p.abs() < 9_999.0 => format!("{p:.0} %"),
        p if p > 0.0 => ">9999 %".to_owned(),
        _ => "-".to_owned(),
    }
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    if value.is_nan() || value <= 0.0 {
        return "-".to_owned();
    }
    let mut unit = 0;
    // A value that would be rounded up to the next unit is shown in that unit.
    while value >= base - 0.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    format!("{} {}", three(value), units[unit])
}

/// Three significant digits, without trailing zeros after the point.
pub fn three(value: f64) -> String {
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        assert_eq!(bytes(0), "-");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1_342_177_280), "1.25 GiB");
        assert_eq!(bytes((1 << 20) - 1), "1 MiB");
        assert_eq!(rate(343.2e6), "343 MB/s");
        assert_eq!(rate(0.3), "-");
        assert_eq!(
            (seconds(0.3372), seconds(0.0), seconds(12.34)),
            ("337 ms".into(), "-".into(), "12.3 s".into())
        );
        assert_eq!((seconds(0.9996), seconds(9000.0)), ("1 s".into(), "150 min".into()));
        assert_eq!(
            (until(None), until(Some(0.0)), until(Some(3.0))),
            ("never".into(), "now".into(), "3 s".into())
        );
        assert_eq!(
            (percent(0.042), percent(1.5), percent(-0.876)),
            ("4.2 %".into(), "150 %".into(), "-88 %".into())
        );
    }

    #[test]
    fn nothing_is_wider_than_said() {
        let mut value: f64 = 1.0;
        while value < 1e18 {
            for near in [value - 1.0, value, value * 1.023, value * 1.234, value * 9.9996] {
                let texts = [bytes(near as u64), count(near as u64), seconds(near * 1e-9)];
                for (text, most) in texts.into_iter().map(|text| (text, 8)).chain([(rate(near.min(9e17)), 9)])
                {
                    assert!(text.chars().count() <= most, "{near}: `{text}`");
                }
            }
            value *= 10.0;
        }
    }
}
