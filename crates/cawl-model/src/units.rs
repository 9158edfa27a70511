//! Quantities with their units in the type, so that wrong algebra does not compile.
//!
//! `Bytes / Rate = Nanos`, `Rate * Nanos = Bytes`, `Time - Time = Nanos`. A [`Nanos`] is never NaN,
//! negative or infinite, and a [`Rate`] is always positive and finite: both constructors see to it, so
//! no prediction built from them can be anything else.
//!
//! The kernel's laws reckon with [`Seconds`], [`Pages`] and what follows from these: any number, fractions,
//! debts and moments that never come among them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};

use serde::{Deserialize, Deserializer, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// This less `other`, or zero.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// True for zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As a float, for ratios.
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// A fractional count, rounded down; NaN and negative counts are zero.
    pub const fn from_f64(bytes: f64) -> Bytes {
        Bytes(bytes as u64)
    }
}

impl fmt::Display for Bytes {
    /// Binary multiples, four significant digits: `4 KiB`, `1.25 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut value = self.as_f64();
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{} {}", significant(value), UNITS[unit]))
    }
}

/// A span of time in nanoseconds, fractions included; finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Nanos(f64);

impl Nanos {
    /// No time.
    pub const ZERO: Nanos = Nanos(0.0);
    /// The longest span: 584 years, the range of a 64-bit count.
    pub const MAX: Nanos = Nanos(u64::MAX as f64);

    /// A span of `ns` nanoseconds. NaN and negative values are zero, values over [`Nanos::MAX`] are that.
    pub const fn new(ns: f64) -> Nanos {
        if ns > 0.0 { if ns < Nanos::MAX.0 { Nanos(ns) } else { Nanos::MAX } } else { Nanos::ZERO }
    }

    /// A span of `s` seconds.
    pub const fn seconds(s: f64) -> Nanos {
        Nanos::new(s * 1e9)
    }

    /// A span of `ms` milliseconds.
    pub const fn millis(ms: f64) -> Nanos {
        Nanos::new(ms * 1e6)
    }

    /// In nanoseconds.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// In seconds.
    pub const fn as_seconds(self) -> f64 {
        self.0 / 1e9
    }

    /// This less `other`, or zero.
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos::new(self.0 - other.0)
    }

    /// The longer of two.
    pub const fn max(self, other: Nanos) -> Nanos {
        if self.0 >= other.0 { self } else { other }
    }

    /// The shorter of two.
    pub const fn min(self, other: Nanos) -> Nanos {
        if self.0 <= other.0 { self } else { other }
    }
}

impl<'de> Deserialize<'de> for Nanos {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
        let ns = f64::deserialize(from)?;
        if ns.is_finite() && ns >= 0.0 {
            Ok(Nanos::new(ns))
        } else {
            Err(serde::de::Error::custom("a span of time must be zero or more nanoseconds"))
        }
    }
}

impl fmt::Display for Nanos {
    /// Decimal multiples, four significant digits: `140 ns`, `1.9 µs`, `12.5 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&thousands(self.0, ["ns", "µs", "ms", "s"]))
    }
}

/// A rate in bytes per second; positive and finite.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Rate(f64);

impl Rate {
    /// The slowest rate: one byte a second.
    pub const MIN: Rate = Rate(1.0);
    /// The fastest rate: one petabyte a second.
    pub const MAX: Rate = Rate(1e15);

    /// A rate of `b` bytes per second, kept between [`Rate::MIN`] and [`Rate::MAX`]; NaN is the slowest.
    pub const fn per_second(b: f64) -> Rate {
        if b > Rate::MIN.0 { if b < Rate::MAX.0 { Rate(b) } else { Rate::MAX } } else { Rate::MIN }
    }

    /// A rate of `mb` million bytes per second.
    pub const fn mb_per_second(mb: f64) -> Rate {
        Rate::per_second(mb * 1e6)
    }

    /// In bytes per second.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// What a byte takes.
    pub const fn byte(self) -> Seconds {
        Seconds(1.0 / self.0)
    }

    /// The faster of two.
    pub const fn max(self, other: Rate) -> Rate {
        if self.0 >= other.0 { self } else { other }
    }
}

impl Default for Rate {
    /// The slowest.
    fn default() -> Rate {
        Rate::MIN
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
        let b = f64::deserialize(from)?;
        if (Rate::MIN.0..=Rate::MAX.0).contains(&b) {
            Ok(Rate(b))
        } else {
            Err(serde::de::Error::custom("a rate must be between 1 and 1e15 bytes per second"))
        }
    }
}

impl fmt::Display for Rate {
    /// Decimal multiples, as disks are sold: `343 MB/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&thousands(self.0, ["B/s", "kB/s", "MB/s", "GB/s"]))
    }
}

/// A moment, in nanoseconds of the clock that the events carry (CLOCK_MONOTONIC when traced live).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The span since `earlier`, or zero if that is later.
    pub const fn since(self, earlier: Time) -> Nanos {
        Nanos::new(self.0.saturating_sub(earlier.0) as f64)
    }
}

/// What an operator makes of two quantities.
macro_rules! algebra {
    ($($operator:ident $function:ident ($left:ident: $Left:ty, $right:ident: $Right:ty) -> $Result:ty
        = $result:expr;)*) => {
        $(impl $operator<$Right> for $Left {
            type Output = $Result;

            #[inline]
            fn $function(self, other: $Right) -> $Result {
                let ($left, $right) = (self, other);
                $result
            }
        })*
    };
}

algebra! {
    Add add (a: Bytes, b: Bytes) -> Bytes = Bytes(a.0.saturating_add(b.0));
    Div div (bytes: Bytes, rate: Rate) -> Nanos = Nanos::new(bytes.as_f64() / rate.0 * 1e9);
    Add add (a: Nanos, b: Nanos) -> Nanos = Nanos::new(a.0 + b.0);
    Mul mul (span: Nanos, factor: f64) -> Nanos = Nanos::new(span.0 * factor);
    Div div (a: Nanos, b: Nanos) -> f64 = a.0 / b.0;
    Mul mul (rate: Rate, factor: f64) -> Rate = Rate::per_second(rate.0 * factor);
    Mul mul (rate: Rate, span: Nanos) -> Bytes = Bytes::from_f64(rate.0 * span.as_seconds());
    Div div (a: Rate, b: Rate) -> f64 = a.0 / b.0;
    // Rounded to the nearest nanosecond.
    Add add (moment: Time, span: Nanos) -> Time = Time(moment.0.saturating_add(span.0.round() as u64));
    Sub sub (moment: Time, earlier: Time) -> Nanos = moment.since(earlier);
}

/// Quantities of the kernel's laws: any number of a unit.
macro_rules! reckoned {
    ($($(#[$doc:meta])* $Quantity:ident)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        #[repr(transparent)]
        pub struct $Quantity(pub f64);

        impl $Quantity {
            /// None.
            pub const ZERO: $Quantity = $Quantity(0.0);
            /// More than there ever is.
            pub const INFINITY: $Quantity = $Quantity(f64::INFINITY);
            /// Less than there ever is.
            pub const NEG_INFINITY: $Quantity = $Quantity(f64::NEG_INFINITY);

            /// The larger of two.
            pub const fn max(self, other: $Quantity) -> $Quantity {
                $Quantity(self.0.max(other.0))
            }

            /// The smaller of two.
            pub const fn min(self, other: $Quantity) -> $Quantity {
                $Quantity(self.0.min(other.0))
            }

            /// Rounded down to a whole number.
            pub fn floor(self) -> $Quantity {
                $Quantity(self.0.floor())
            }
        }

        algebra! {
            Add add (a: $Quantity, b: $Quantity) -> $Quantity = $Quantity(a.0 + b.0);
            Sub sub (a: $Quantity, b: $Quantity) -> $Quantity = $Quantity(a.0 - b.0);
            Rem rem (a: $Quantity, b: $Quantity) -> $Quantity = $Quantity(a.0 % b.0);
            Div div (a: $Quantity, b: $Quantity) -> f64 = a.0 / b.0;
            Mul mul (a: $Quantity, times: f64) -> $Quantity = $Quantity(a.0 * times);
            Mul mul (times: f64, a: $Quantity) -> $Quantity = $Quantity(times * a.0);
            Div div (a: $Quantity, parts: f64) -> $Quantity = $Quantity(a.0 / parts);
        }

        impl SubAssign for $Quantity {
            #[inline]
            fn sub_assign(&mut self, other: $Quantity) {
                *self = *self - other;
            }
        })*
    };
}

reckoned! {
    /// A span of time in seconds, or a moment by the clock of the model, which began at 0.
    Seconds
    /// A number of pages.
    Pages
    /// A rate in pages per second.
    PageRate
    /// A span of time in ticks of the kernel's timer, or a moment by them.
    Jiffies
    /// Ticks of the kernel's timer per second.
    Hz
}

algebra! {
    // Of bytes that may be parts.
    Div div (bytes: f64, rate: Rate) -> Seconds = Seconds(bytes / rate.0);
    Div div (pages: Pages, rate: PageRate) -> Seconds = Seconds(pages.0 / rate.0);
    Div div (pages: Pages, span: Seconds) -> PageRate = PageRate(pages.0 / span.0);
    Mul mul (rate: PageRate, span: Seconds) -> Pages = Pages(rate.0 * span.0);
    Mul mul (span: Seconds, hz: Hz) -> Jiffies = Jiffies(span.0 * hz.0);
    Div div (ticks: Jiffies, hz: Hz) -> Seconds = Seconds(ticks.0 / hz.0);
}

impl Pages {
    /// Whole pages.
    pub const fn of(count: u64) -> Pages {
        Pages(count as f64)
    }

    /// Whole pages of this, none if it is negative.
    pub const fn whole(self) -> u64 {
        self.0 as u64
    }
}

impl From<Nanos> for Seconds {
    fn from(span: Nanos) -> Seconds {
        Seconds(span.as_seconds())
    }
}

impl From<Seconds> for Nanos {
    fn from(span: Seconds) -> Nanos {
        Nanos::seconds(span.0)
    }
}

/// What follows from adding two of a quantity.
macro_rules! sums {
    ($($Quantity:ident)*) => {
        $(impl AddAssign for $Quantity {
            #[inline]
            fn add_assign(&mut self, other: $Quantity) {
                *self = *self + other;
            }
        }

        impl Sum for $Quantity {
            fn sum<I: Iterator<Item = $Quantity>>(iter: I) -> $Quantity {
                iter.fold($Quantity::ZERO, Add::add)
            }
        })*
    };
}

sums! { Bytes Nanos Seconds Pages PageRate Jiffies }

/// A value in the largest of these units, each a thousand times the one before, that leaves it at one or
/// more.
fn thousands(value: f64, [first, second, third, last]: [&str; 4]) -> String {
    let (value, unit) = match value {
        _ if value < 1e3 => (value, first),
        _ if value < 1e6 => (value / 1e3, second),
        _ if value < 1e9 => (value / 1e6, third),
        _ => (value / 1e9, last),
    };
    format!("{} {unit}", significant(value))
}

/// For counts that are left out where there is nothing to count.
pub fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// Up to four significant digits, without trailing zeros.
fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algebra() {
        assert_eq!(Bytes::mib(100) / Rate::per_second(Bytes::mib(50).as_f64()), Nanos::seconds(2.0));
        assert_eq!(Rate::mb_per_second(3.0) * Nanos::seconds(2.0), Bytes(6_000_000));
        assert_eq!(Time(5) - Time(9), Nanos::ZERO);
        assert_eq!(Time(5) + Nanos::new(1.6), Time(7));
        assert_eq!(Bytes(3).saturating_sub(Bytes(5)), Bytes::ZERO);
    }

    #[test]
    fn nothing_is_nan_negative_or_infinite() {
        for bad in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
            assert_eq!(Nanos::new(bad), Nanos::ZERO);
            assert_eq!(Rate::per_second(bad), Rate::MIN);
        }
        assert_eq!(Nanos::new(f64::INFINITY), Nanos::MAX);
        assert_eq!(Rate::per_second(f64::INFINITY), Rate::MAX);
        assert_eq!(Nanos::MAX + Nanos::MAX, Nanos::MAX);
    }

    #[test]
    fn human_units() {
        assert_eq!(Bytes(4096).to_string(), "4 KiB");
        assert_eq!(Bytes(1_342_177_280).to_string(), "1.25 GiB");
        assert_eq!(Nanos::new(140.0).to_string(), "140 ns");
        assert_eq!(Nanos::new(1_900.0).to_string(), "1.9 µs");
        assert_eq!(Nanos::seconds(12.5).to_string(), "12.5 s");
        assert_eq!(Rate::mb_per_second(343.0).to_string(), "343 MB/s");
        assert_eq!(format!("{:>8}", Bytes(4096)), "   4 KiB");
    }

    #[test]
    fn malformed_quantities_are_refused() {
        assert!(serde_json::from_str::<Rate>("0").is_err());
        assert!(serde_json::from_str::<Rate>("1e300").is_err());
        assert!(serde_json::from_str::<Nanos>("-1").is_err());
        assert_eq!(serde_json::from_str::<Rate>("250").unwrap(), Rate::per_second(250.0));
    }
}
