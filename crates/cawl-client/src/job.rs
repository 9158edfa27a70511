//! Conversion between protocol and core: a plan becomes a job, the cost of a job an answer.

use cawl_core::{Bytes, CallState, JobCost, Nanos, Rate};

use crate::protocol::{PROTOCOL, Plan, Predicted, Source};

/// Default bytes per call.
const CHUNK: Bytes = Bytes::mib(1);

impl Plan {
    /// The planned job in the core's terms, with other writers at this rate; an error says what is invalid.
    pub fn job(&self, others: Rate) -> Result<cawl_core::Job, String> {
        if !(self.at_s >= 0.0 && self.at_s.is_finite()) {
            return Err("a job begins 0 or more seconds from now".to_owned());
        }
        Ok(cawl_core::Job {
            bytes: Bytes(self.bytes),
            chunk: self.chunk.map_or(CHUNK, Bytes),
            sync: self.sync,
            fsync: self.fsync,
            after: Nanos::seconds(self.at_s),
            device: self.device.as_deref().map(device).transpose()?,
            others,
        })
    }
}

impl Predicted {
    /// A model's prediction as an answer.
    pub fn of(model: &str, cost: &JobCost, source: Source) -> Predicted {
        let states = CallState::ALL.into_iter().zip(cost.states).filter(|(_, time)| *time > Nanos::ZERO);
        Predicted {
            schema: PROTOCOL,
            source,
            model: model.to_owned(),
            calls: cost.calls,
            cost_s: cost.cost.as_seconds(),
            p10_s: cost.interval.map(|(low, _)| low.as_seconds()),
            p90_s: cost.interval.map(|(_, high)| high.as_seconds()),
            worst_call_s: cost.worst.as_seconds(),
            states_s: states.map(|(state, time)| (state.name().to_owned(), time.as_seconds())).collect(),
            peak_dirty_bytes: cost.peak.0,
            final_dirty_bytes: cost.last.0,
            fsync_s: cost.fsync.as_seconds(),
            cold_s: cost.cold.as_seconds(),
        }
    }
}

/// `st_dev` of "major:minor".
fn device(text: &str) -> Result<u64, String> {
    let parts =
        text.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (major, minor): (u32, u32) = parts.ok_or_else(|| {
        format!("`{text}` is not a device; name it as major:minor, like 254:1 in /proc/partitions")
    })?;
    Ok(nix::sys::stat::makedev(major.into(), minor.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_answers_name_them() {
        assert_eq!(cawl_core::host_text::device_parts(device("254:17").unwrap()), (254, 17));
        for bad in ["vda", "254", "254:", "-1:2", "254:1:2", ""] {
            assert!(device(bad).is_err(), "{bad}");
        }
    }
}
