//! A few values by name, as reports have them for each of a hundred thousand files.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cause::CauseTimes;

/// Values by name, in the order of names; in JSON a map. Takes as much memory as its entries, where a
/// `BTreeMap` begins with room for eleven.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByName<T>(Box<[(Cow<'static, str>, T)]>);

impl<T> ByName<T> {
    fn sorted(mut entries: Vec<(Cow<'static, str>, T)>) -> ByName<T> {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        ByName(entries.into())
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<Cow<'static, str>>, T> FromIterator<(N, T)> for ByName<T> {
    /// Names must differ.
    fn from_iter<I: IntoIterator<Item = (N, T)>>(entries: I) -> ByName<T> {
        ByName::sorted(entries.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl<T: Serialize> Serialize for ByName<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByName<T>, D::Error> {
        Ok(BTreeMap::<String, T>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Seconds by cause, as reports have them: those that are not zero, by name.
pub(crate) fn seconds_by_cause(times: &CauseTimes) -> ByName<f64> {
    let named = times.iter().filter(|(_, ns)| *ns > 0);
    named.map(|(cause, ns)| (cause.name(), ns as f64 / 1e9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_in_json() {
        let states: ByName<u64> = [("throttle", 2), ("free", 7)].into_iter().collect();
        let text = serde_json::to_string(&states).expect("JSON");
        assert_eq!(text, r#"{"free":7,"throttle":2}"#);
        assert_eq!(serde_json::from_str::<ByName<u64>>(&text).expect("a map"), states);
        assert_eq!((states.get("free"), states.get("flush"), states.values().sum()), (Some(&7), None, 9));
        assert!(!states.is_empty() && ByName::<u64>::default().is_empty());
    }
}
