//! Seconds by cause.

use std::collections::BTreeMap;

use cawl_core::{ByCause, Cause, CauseTimes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Observed seconds of calls, by cause. In JSON the causes that have any, by name; names that a reader does
/// not know are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CauseSeconds(ByCause<f64>);

impl CauseSeconds {
    /// The seconds of a cause.
    pub fn of(&self, cause: Cause) -> f64 {
        self.0[cause]
    }

    /// The causes that have any, with their seconds, in the order of reports.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, f64)> + '_ {
        self.0.iter().filter(|(_, seconds)| *seconds > 0.0)
    }

    /// The sum.
    pub fn total(&self) -> f64 {
        self.iter().map(|(_, seconds)| seconds).sum()
    }

    /// What came since an earlier sum; nothing where the daemon was started anew between.
    pub fn since(&self, before: &CauseSeconds) -> CauseSeconds {
        let mut since = CauseSeconds::default();
        for cause in Cause::ALL {
            since.0[cause] = (self.0[cause] - before.0[cause]).max(0.0);
        }
        since
    }
}

impl From<&CauseTimes> for CauseSeconds {
    fn from(times: &CauseTimes) -> CauseSeconds {
        CauseSeconds(times.map(|ns| ns as f64 / 1e9))
    }
}

impl Serialize for CauseSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(cause, seconds)| (cause.name(), seconds)))
    }
}

impl<'de> Deserialize<'de> for CauseSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CauseSeconds, D::Error> {
        let named = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let mut seconds = CauseSeconds::default();
        for (name, value) in named {
            if let Ok(cause) = name.parse::<Cause>() {
                seconds.0[cause] = value;
            }
        }
        Ok(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_causes_that_took_time_are_told_and_unknown_ones_are_ignored() {
        let mut times = CauseTimes::default();
        (times[Cause::Copy], times[Cause::NewPages]) = (500_000_000, 2_000_000_000);
        let seconds = CauseSeconds::from(&times);
        let text = serde_json::to_string(&seconds).expect("JSON");
        assert_eq!(text, r#"{"copy":0.5,"new pages":2.0}"#);
        let read = |text: &str| serde_json::from_str::<CauseSeconds>(text).expect("seconds");
        assert_eq!(read(&text), seconds);
        assert_eq!(read(r#"{"copy":0.5,"new pages":2.0,"of tomorrow":7.0}"#), seconds);
        assert_eq!((read("{}"), seconds.total()), (CauseSeconds::default(), 2.5));
        assert_eq!(seconds.since(&read(r#"{"copy":0.25,"lock":9}"#)).total(), 2.25);
    }
}
