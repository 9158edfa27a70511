//! Range and marks of an axis.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// An axis of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    /// Values of the marks.
    pub marks: Vec<f64>,
    /// True for a logarithmic axis.
    pub logarithmic: bool,
}

/// Ratio of the largest to the smallest value from which on an axis is logarithmic.
const WIDE: f64 = 20.0;

impl Axis {
    /// An axis of costs: linear from zero, or logarithmic for a wide range.
    pub fn of_costs(values: &[f64]) -> Axis {
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let most = positive().fold(0.0, f64::max).max(1.0);
        let least = positive().fold(most, f64::min);
        if most / least < WIDE {
            return Axis::linear(0.0, most * 1.08, 6);
        }
        Axis::logarithmic(least, most)
    }

    /// A logarithmic axis of values above zero, with marks at decades, and at 2 and 5 if it is short.
    pub fn logarithmic(least: f64, most: f64) -> Axis {
        let (from, to) = (least.log10() - 0.1, most.log10() + 0.1);
        let steps: &[f64] = if to - from > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = from.floor() as i32..=to.ceil() as i32;
        let marks = decades.flat_map(|decade| steps.iter().map(move |step| f64::from(decade) + step.log10()));
        Axis { from, to, marks: marks.filter(|mark| (from..=to).contains(mark)).collect(), logarithmic: true }
    }

    /// A linear axis with about `marks` marks at round numbers.
    pub fn linear(from: f64, to: f64, marks: usize) -> Axis {
        Axis::stepped(from, to, round((to - from) / marks as f64))
    }

    /// A linear axis from zero with about `marks` marks, at multiples of a power of two, for bytes.
    pub fn of_bytes(to: f64, marks: usize) -> Axis {
        Axis::stepped(0.0, to, (to / marks as f64).max(1.0).log2().ceil().exp2())
    }

    fn stepped(from: f64, to: f64, step: f64) -> Axis {
        let first = (from / step).ceil() as i64;
        let marks = (first..).map(|index| index as f64 * step).take_while(|mark| *mark <= to);
        Axis { from, to, marks: marks.collect(), logarithmic: false }
    }

    /// A linear axis from zero with these marks.
    pub fn marked(to: f64, marks: Vec<f64>) -> Axis {
        Axis { from: 0.0, to, marks, logarithmic: false }
    }

    /// The place of a value on the axis.
    pub fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(f64::MIN_POSITIVE).log10().max(self.from) } else { value }
    }

    pub fn value(&self, place: f64) -> f64 {
        if self.logarithmic { 10f64.powf(place) } else { place }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let part = if self.to > self.from { (place - self.from) / (self.to - self.from) } else { 0.0 };
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// The next larger of 1, 2, 5, 10, 20…
fn round(step: f64) -> f64 {
    let decade = 10f64.powf(step.max(f64::MIN_POSITIVE).log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| step <= digit * decade);
    digit.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_marks() {
        assert_eq!(Axis::linear(0.0, 64.0, 6).marks, [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(Axis::of_bytes(4.0 * 1048576.0, 4).marks.len(), 5);
        let narrow = Axis::of_costs(&[3.0, 5.0]);
        assert!(!narrow.logarithmic && narrow.from == 0.0 && narrow.to > 5.0);
    }

    #[test]
    fn values_far_apart_are_drawn_by_their_logarithms() {
        let wide = Axis::of_costs(&[50.0, 30_000.0]);
        assert!(wide.logarithmic && wide.place(1000.0) == 3.0 && (wide.value(2.0) - 100.0).abs() < 1e-9);
        assert!(wide.marks.iter().all(|mark| (wide.from..=wide.to).contains(mark)) && wide.marks.len() >= 3);
        assert_eq!(wide.place(0.0), wide.from);
    }

    #[test]
    fn nothing_to_draw_is_no_trouble() {
        for axis in [Axis::of_costs(&[]), Axis::of_costs(&[0.0]), Axis::of_bytes(0.0, 4)] {
            assert!(axis.marks.len() < 20 && axis.from <= axis.to);
        }
    }
}
