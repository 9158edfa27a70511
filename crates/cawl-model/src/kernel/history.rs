//! The dirty level of the recent past, for calls that start before another call's predicted end.
//!
//! Levels are noted in order of time and interpolated between; what is dirtied at a past moment
//! raises all later levels. Nothing older than the latest start is kept, since starts arrive in order.

use std::collections::VecDeque;

use crate::units::{Pages, Seconds};

/// Most points kept; beyond that the oldest are forgotten.
const POINTS: usize = 4096;

/// Levels over time.
#[derive(Clone, Debug, Default)]
pub struct LevelHistory {
    points: VecDeque<(Seconds, Pages)>,
}

impl LevelHistory {
    /// Notes the level at `at`, if that is later than all noted so far.
    pub fn note(&mut self, at: Seconds, level: Pages) {
        if self.points.back().is_none_or(|last| last.0 < at) {
            if self.points.len() == POINTS {
                self.points.pop_front();
            }
            self.points.push_back((at, level));
        }
    }

    /// `pages` were dirtied at `at`: from then on the level is higher by that.
    pub fn raise(&mut self, at: Seconds, pages: Pages) {
        let Some(level) = self.level(at) else { return };
        let after = self.points.partition_point(|point| point.0 <= at);
        self.points.range_mut(after..).for_each(|point| point.1 += pages);
        let last = after.checked_sub(1).filter(|last| self.points[*last].0 >= at);
        if let Some(last) = last {
            self.points[last].1 += pages;
        } else if self.points.len() < POINTS {
            self.points.insert(after, (at, level + pages));
        }
    }

    /// The level at a past moment; None if it is not in the past.
    pub fn level(&self, at: Seconds) -> Option<Pages> {
        let after = self.points.partition_point(|point| point.0 <= at);
        let later = self.points.get(after)?;
        let Some(earlier) = after.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return Some(later.1);
        };
        let part = (at - earlier.0) / (later.0 - earlier.0).max(Seconds(1e-12));
        Some(earlier.1 + (later.1 - earlier.1) * part)
    }

    /// The highest level from a past moment on; 0 if none was noted.
    pub fn highest(&self, from: Seconds) -> Pages {
        let first = self.points.partition_point(|point| point.0 <= from).saturating_sub(1);
        self.points.range(first..).fold(Pages::ZERO, |highest, point| point.1.max(highest))
    }

    /// Forgets what lies before the last point at or before `at`.
    pub fn prune(&mut self, at: Seconds) {
        let keep = self.points.partition_point(|point| point.0 <= at).saturating_sub(1);
        self.points.drain(..keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_and_raises() {
        let level = |history: &LevelHistory, at| history.level(Seconds(at)).map(|level| level.0);
        let mut history = LevelHistory::default();
        history.note(Seconds(1.0), Pages(100.0));
        history.note(Seconds(2.0), Pages(200.0));
        assert_eq!(level(&history, 1.5), Some(150.0));
        history.raise(Seconds(1.5), Pages(50.0));
        assert_eq!((level(&history, 1.5), level(&history, 1.75)), (Some(200.0), Some(225.0)));
        history.raise(Seconds(1.5), Pages(8.0));
        assert_eq!(level(&history, 1.5), Some(208.0));
        assert_eq!(level(&history, 2.0), None);
        assert_eq!((history.highest(Seconds(1.75)).0, history.highest(Seconds(3.0)).0), (258.0, 258.0));
        history.prune(Seconds(2.5));
        assert_eq!(history.points.len(), 1);
    }
}
