//! `design`: which machine to buy. Every combination of the alternatives is run on paper; those that no other
//! one beats both in price and in time are the front.
//!
//! What is run is behind [`Work`]: traces ([`Traces`]), or workflows ([`Workflows`]), whose hosts all change.

mod choices;
mod traces;
mod workflows;

use cawl_core::{Nanos, Ratio, Request};
use clap::ValueEnum;

use crate::parallel;

pub use choices::{Design, Machine};
pub use traces::Traces;
pub use workflows::Workflows;

/// A dearer machine must save this part of the time of a cheaper one: less is in the arithmetic.
const WORTH: f64 = 1e-3;

/// What work takes on a machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// In calls, all threads together.
    pub calls: Nanos,
    /// Of that, what they would not take undisturbed.
    pub lost: Nanos,
    /// From begin to end.
    pub elapsed: Nanos,
    /// Time in calls over that on the machine as it is, with its interval, where that is known.
    pub ratio: Option<Ratio>,
}

/// The time that machines are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// From the first call to the last
    Elapsed,
    /// In calls, all threads together
    Calls,
    /// Lost in calls: throttling, the device's queue, cold memory
    Lost,
}

impl By {
    pub fn of(self, times: &Times) -> Nanos {
        match self {
            By::Elapsed => times.elapsed,
            By::Calls => times.calls,
            By::Lost => times.lost,
        }
    }

    /// What tables and pictures call it.
    pub fn name(self) -> &'static str {
        match self {
            By::Elapsed => "elapsed",
            By::Calls => "in calls",
            By::Lost => "lost",
        }
    }
}

/// Something that takes its time on a machine.
pub trait Work: Sync {
    /// What it takes on the machine as it is.
    fn now(&self) -> Times;
    /// What its calls took when they were traced, where they were.
    fn observed(&self) -> Option<Nanos> {
        None
    }
    /// An error if it cannot be run on a machine with these changes.
    fn check(&self, changes: &[Request]) -> anyhow::Result<()>;
    /// What it takes on a machine with these changes.
    fn times(&self, changes: &[Request]) -> anyhow::Result<Times>;
    /// About how long [`Work::times`] takes.
    fn expected(&self) -> Nanos;
}

/// What the work takes on each machine, on as many threads as there are processors.
pub fn run(machines: &[Machine<'_>], work: &dyn Work) -> anyhow::Result<Vec<Times>> {
    let shown = |begun: usize| format!("machine {begun} of {}", machines.len());
    let expected = work.expected() * machines.len() as f64;
    parallel::each(machines, expected, shown, |machine| work.times(&machine.changes()?))
}

/// Which of these prices and times are on the front, in the order of prices: no other is as cheap and
/// faster, or cheaper and as fast.
pub fn front(points: &[(f64, Nanos)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    let key = |at: &usize| (points[*at].0, points[*at].1.get());
    order.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    let mut best: Option<(f64, f64)> = None;
    order.retain(|at| {
        let point = key(at);
        let is_on = best.is_none_or(|best| point == best || point.1 < best.1 * (1.0 - WORTH));
        best = if is_on { Some(point) } else { best };
        is_on
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_what_nothing_beats() {
        let front = |points: &[(f64, f64)]| {
            super::front(
                &points.iter().map(|(price, time)| (*price, Nanos::seconds(*time))).collect::<Vec<_>>(),
            )
        };
        // Cheapest last; one dearer and slower, one as dear and slower, one as fast and dearer.
        assert_eq!(
            front(&[(3.0, 1.0), (4.0, 1.5), (3.0, 2.0), (5.0, 1.0), (1.0, 4.0), (2.0, 2.0)]),
            [4, 5, 0]
        );
        // Equals are both on it; a saving in the arithmetic is none.
        assert_eq!(front(&[(1.0, 2.0), (1.0, 2.0), (2.0, 1.9999), (3.0, 1.9)]), [0, 1, 3]);
        assert_eq!(front(&[(1.0, 0.0), (0.0, 0.0)]), [1]);
        assert!(front(&[]).is_empty());
    }

    /// A machine that is as slow as its price is low.
    struct Reciprocal;

    impl Work for Reciprocal {
        fn now(&self) -> Times {
            Times::default()
        }

        fn check(&self, _: &[Request]) -> anyhow::Result<()> {
            Ok(())
        }

        fn times(&self, changes: &[Request]) -> anyhow::Result<Times> {
            anyhow::ensure!(changes.len() < 2, "no more");
            Ok(Times { elapsed: Nanos::seconds(1.0 + changes.len() as f64), ..Times::default() })
        }

        fn expected(&self) -> Nanos {
            Nanos::ZERO
        }
    }

    #[test]
    fn every_machine_has_its_times() {
        let text = "[[choice]]\nname = \"disk\"\noption = [{ name = \"a\", price = 1 },\n\
                    { name = \"b\", price = 2, change = \"warm\" }]\n";
        let design = |more: &str| Design::parse(&format!("{text}{more}"), "design.toml".as_ref()).unwrap();
        let (one, times) = (design(""), |design: &Design| run(&design.machines(), &Reciprocal));
        let elapsed = times(&one).unwrap().iter().map(|times| times.elapsed.as_seconds()).collect::<Vec<_>>();
        assert_eq!(elapsed, [1.0, 2.0]);
        let two = "[[choice]]\nname = \"bay\"\noption = [{ name = \"c\", price = 1, change = \"warm\" }]\n";
        assert_eq!(times(&design(two)).unwrap_err().to_string(), "no more");
    }
}
