//! Sizes and times as people write them, on command lines and in conditions. An error is a sentence for the
//! person who wrote one.

use crate::limits::{DirtyLimits, dirtyable};
use crate::units::{Bytes, Nanos};

/// A number of bytes: `512`, `4K`, `1.5G`, `64MiB` are 1024-fold, `100kB`, `2GB` 1000-fold.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no number of bytes; write it as 512M, 4GiB, 1.5G or 100MB");
    let (number, unit) = split(text);
    let (letter, ending) = unit.split_at(unit.chars().next().map_or(0, char::len_utf8));
    let power = match letter {
        "" | "B" if ending.is_empty() => 0,
        "K" | "k" => 1,
        "M" | "m" => 2,
        "G" | "g" => 3,
        "T" | "t" => 4,
        "P" | "p" => 5,
        _ => return Err(wrong()),
    };
    let base: u64 = match ending {
        "" | "i" | "iB" => 1024,
        "B" => 1000,
        _ => return Err(wrong()),
    };
    let factor = base.pow(power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let bytes = decimal(number).ok_or_else(wrong)? * factor as f64;
    // Beyond 2^53 an f64 does not hold each byte.
    if bytes <= (1_u64 << 53) as f64 { Ok(bytes.round() as u64) } else { Err(wrong()) }
}

/// Bytes as they are given on a command line: `4K`, `1M`, `1000`.
pub fn short(bytes: u64) -> String {
    let unit = [(30, "G"), (20, "M"), (10, "K")]
        .into_iter()
        .find(|(bits, _)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

/// A number of things in a note: `1 call`, `2 calls`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// As [`size`], but not zero.
pub fn size_above_zero(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("give more than zero bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once(',').ok_or_else(|| "give two values with a comma between them".to_owned())
}

/// Two sizes, the background limit and the hard one: `16M,1G`.
pub fn limits(text: &str) -> Result<DirtyLimits, String> {
    let (background, hard) = pair(text)?;
    let limits = DirtyLimits { background: Bytes(size(background)?), hard: Bytes(size_above_zero(hard)?) };
    let is_ordered = limits.background < limits.hard;
    is_ordered.then_some(limits).ok_or_else(|| "the background limit must be below the hard limit".to_owned())
}

/// Memory of a machine, in bytes: so much that some of it can be dirty.
pub fn ram(text: &str) -> Result<u64, String> {
    let bytes = size_above_zero(text)?;
    let DirtyLimits { background, hard } =
        DirtyLimits::of(DirtyLimits::DEFAULT_RATIOS, dirtyable(Bytes(bytes), Bytes(4096)));
    let has_room = background < hard;
    has_room.then_some(bytes).ok_or_else(|| "no Linux runs in so little memory; give 64M or more".to_owned())
}

/// Two percentages, of the background limit and the hard one, as fractions: `10,40`.
pub fn ratios(text: &str) -> Result<[f64; 2], String> {
    let (background, hard) = pair(text)?;
    let percent = |text: &str| text.parse::<f64>().ok().filter(|part| (0.0..=100.0).contains(part));
    let ratios = percent(background).zip(percent(hard)).filter(|(background, hard)| background < hard);
    let (background, hard) = ratios.ok_or("give two percentages, the lower first: 10,40")?;
    Ok([background / 100.0, hard / 100.0])
}

/// A span of time in seconds, where a plain number is known to be that: `10`, `10s`, `+10s`, `250ms`, `50us`,
/// `1.5m`, `2h`.
pub fn span(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no span of time; write it as 10s, 250ms, 5m or 1h");
    let (number, unit) = split(text.strip_prefix('+').unwrap_or(text));
    let factor = match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    Ok(decimal(number).ok_or_else(wrong)? * factor)
}

/// A time with its unit, in seconds: a plain number would be seconds, where most would think of milliseconds.
pub fn span_with_unit(text: &str) -> Result<f64, String> {
    match text.ends_with(char::is_alphabetic) {
        true => span(text),
        false => Err("a time with its unit is expected: 200us, 7ms, 1.5s".to_owned()),
    }
}

/// As [`span_with_unit`], above zero.
pub fn duration(text: &str) -> Result<Nanos, String> {
    match Nanos::seconds(span_with_unit(text)?) {
        Nanos::ZERO => Err("give a time above zero".to_owned()),
        time => Ok(time),
    }
}

/// An interval in seconds, within the daemon's range.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds = span_with_unit(text)?;
    if (0.05..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("give an interval between 50ms and 1d".to_owned())
    }
}

/// A number and what follows it, without the blanks between them.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Digits with at most one decimal point; no sign, no exponent.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.starts_with(|c: char| c.is_ascii_digit()) && text.len() <= 24;
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let good = [
            ("0", 0),
            ("7", 7),
            ("7B", 7),
            ("4K", 4 << 10),
            ("4k", 4 << 10),
            ("512M", 512 << 20),
            ("512 MiB", 512 << 20),
            ("4GiB", 4 << 30),
            ("4Gi", 4 << 30),
            ("2T", 2 << 40),
            ("1P", 1 << 50),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("100kB", 100_000),
            ("2GB", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in good {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        let bad = [
            "",
            "M",
            "G1",
            "-1",
            "+1",
            "1e9",
            ".5G",
            "1.2.3G",
            "4X",
            "4KX",
            "4iB",
            "4BB",
            "1,5G",
            "４G",
            "4µ",
            "99999999999G",
            "9000000.5T",
            "NaN",
            "inf",
        ];
        for text in bad {
            assert!(size(text).unwrap_err().contains("512M"), "{text}");
        }
        assert!(size_above_zero("0K").is_err());
        assert_eq!([0, 1, 2].map(|count| counted(count, "row")), ["0 rows", "1 row", "2 rows"]);
        assert_eq!(size_above_zero("1K"), Ok(1024));
    }

    #[test]
    fn spans() {
        let good = [
            ("10", 10.0),
            ("+10s", 10.0),
            ("250ms", 0.25),
            ("5us", 5.0 * 1e-6),
            ("5µs", 5.0 * 1e-6),
            ("7 ns", 7.0 * 1e-9),
            ("1.5m", 90.0),
            ("2h", 7200.0),
            ("0", 0.0),
        ];
        for (text, seconds) in good {
            assert_eq!(span(text), Ok(seconds), "{text}");
        }
        for text in ["", "s", "-1s", "++1", "1e3", "10 years", "1w", "NaN"] {
            assert!(span(text).is_err(), "{text}");
        }
        assert_eq!((interval("0.5s"), span_with_unit("+10s")), (Ok(0.5), Ok(10.0)));
        assert_eq!(duration("0.2ms"), Ok(Nanos::new(200_000.0)));
        assert_eq!(duration("20µs"), Ok(Nanos::new(20_000.0)));
        for text in ["0s", "7", "-5ms", ""] {
            assert!(duration(text).is_err(), "{text}");
        }
        // Seconds, where most would think of milliseconds.
        for text in ["1", "0.5", "+10"] {
            assert!(interval(text).unwrap_err().contains("with its unit") && span_with_unit(text).is_err());
        }
        assert!(interval("0").is_err() && interval("10ms").is_err() && interval("2d").is_err());
    }
}
