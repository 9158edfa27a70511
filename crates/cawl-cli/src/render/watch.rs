//! The status as one line, like vmstat's.

use cawl_client::protocol::Status;
use cawl_core::Regime;

const HEADER_EVERY: u64 = 20;

const HEADER: &str = "\
time              ---dirty MiB--- % of ------MB/s------ ----s/s---- s till err %
UTC      state    modeled sampled hard dirtying written calls  lost  thrtl total
";

#[derive(Default)]
pub struct Lines {
    printed: u64,
    in_calls: Option<InCalls>,
}

/// Time in calls since the daemon started, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InCalls {
    at: f64,
    observed: f64,
    lost: f64,
}

impl InCalls {
    pub fn of(status: &Status) -> InCalls {
        InCalls { at: status.uptime_s, observed: status.cost.observed_s, lost: status.cost.lost_s }
    }

    /// Seconds in calls and seconds lost, both per second since `before`; None after a restart of the daemon.
    pub fn since(&self, before: &InCalls) -> Option<(f64, f64)> {
        let span = self.at - before.at;
        (span > 0.0).then(|| {
            let rate = |now: f64, then: f64| ((now - then) / span).max(0.0);
            (rate(self.observed, before.observed), rate(self.lost, before.lost))
        })
    }
}

impl Lines {
    /// The next line, with a header every 20 lines.
    pub fn next(&mut self, status: &Status) -> String {
        let now = InCalls::of(status);
        let rates = self.in_calls.replace(now).and_then(|before| now.since(&before));
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
        let mb = |rate: f64| format!("{:.1}", rate / 1e6);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let hard = (status.hard_bytes > 0)
            .then(|| format!("{:.0}", status.modelled_dirty_bytes as f64 / status.hard_bytes as f64 * 100.0));
        let throttle = status.forecast.and_then(|forecast| forecast.throttle_s);
        let line = format!(
            "{} {:<8} {:>7} {:>7} {:>4} {:>8} {:>7} {:>5} {:>5} {:>6} {:>5}\n",
            time_of_day(status.time_s),
            regime(status.state),
            mib(status.modelled_dirty_bytes),
            or_dash(status.sampled_dirty_bytes.map(mib)),
            or_dash(hard),
            mb(status.dirtying_rate + status.untraced_rate),
            or_dash(status.sampled_writeback_rate.or(status.writeback_rate).map(mb)),
            or_dash(rates.map(|(observed, _)| format!("{observed:.2}"))),
            or_dash(rates.map(|(_, lost)| format!("{lost:.2}"))),
            or_dash(throttle.map(|seconds| format!("{seconds:.1}"))),
            or_dash(status.error.total.map(|error| format!("{:.1}", error * 100.0))),
        );
        let header = if self.printed.is_multiple_of(HEADER_EVERY) { HEADER } else { "" };
        self.printed += 1;
        format!("{header}{line}")
    }
}

pub fn regime(regime: Regime) -> &'static str {
    match regime {
        Regime::Free => "free",
        Regime::Flush => "flush",
        Regime::Throttle => "throttle",
    }
}

/// The time of day in UTC, of seconds since 1970.
pub fn time_of_day(seconds: f64) -> String {
    let of_day = seconds.max(0.0) as u64 % 86_400;
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_client::protocol::{Cost, ErrorStatus, Forecast};

    fn status(uptime: f64, lost_s: f64) -> Status {
        Status {
            time_s: 1_700_000_000.0,
            uptime_s: uptime,
            modelled_dirty_bytes: 96 << 20,
            sampled_dirty_bytes: Some(95 << 20),
            hard_bytes: 128 << 20,
            state: Regime::Throttle,
            dirtying_rate: 100e6,
            untraced_rate: 20e6,
            sampled_writeback_rate: Some(98.04e6),
            forecast: Some(Forecast { throttle_s: Some(0.0), ..Forecast::default() }),
            error: ErrorStatus { total: Some(0.042), ..ErrorStatus::default() },
            cost: Cost { observed_s: lost_s + uptime, lost_s, ..Cost::default() },
            ..Status::default()
        }
    }

    #[test]
    fn a_line() {
        let mut lines = Lines::default();
        let first = lines.next(&status(10.0, 1.0));
        assert!(first.starts_with(HEADER), "{first}");
        assert!(first.ends_with(" 96.0    95.0   75    120.0    98.0     -     -    0.0   4.2\n"), "{first}");
        let second = lines.next(&status(12.0, 4.0));
        let fields: Vec<&str> = second.split_whitespace().collect();
        let expected =
            ["22:13:20", "throttle", "96.0", "95.0", "75", "120.0", "98.0", "2.50", "1.50", "0.0", "4.2"];
        assert_eq!(fields, expected);
        // A restarted daemon counts from zero.
        assert!(lines.next(&status(1.0, 0.0)).contains(" - "));
    }

    #[test]
    fn eighty_columns_and_a_header_now_and_then() {
        let mut lines = Lines::default();
        let text: String = (0..=HEADER_EVERY).map(|n| lines.next(&status(n as f64, 0.0))).collect();
        assert_eq!(text.matches("UTC").count(), 2);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().skip(2).take(10).all(|width| *width == 80), "{widths:?}");
        assert!(HEADER.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_is_unknown_is_a_dash() {
        let line = Lines::default().next(&Status::default());
        let last = line.lines().last().unwrap();
        assert_eq!(last.split_whitespace().filter(|field| *field == "-").count(), 7, "{last}");
    }
}
