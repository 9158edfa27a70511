//! A trace of the daemon's own lane for a time.

use cawl_host::trace::TraceFile;

use super::{Engine, HOST_LANE};

impl Engine {
    /// Calls are written to a trace from now on; how many there were before. An error says why they cannot be.
    pub(crate) fn begin_recording(&mut self, trace: TraceFile) -> Result<u64, String> {
        let (facts, (_, profile, _)) = (self.facts_now(), self.profiles());
        let lane =
            self.lanes.get_mut(&HOST_LANE).ok_or("this daemon serves a single run, which has a trace")?;
        if lane.trace.is_some() {
            return Err(
                "this daemon keeps a trace already: --trace, or another recording; use that".to_owned()
            );
        }
        lane.record(trace, &profile, facts);
        Ok(lane.calls())
    }

    /// No more are written; the trace, and how many calls there were.
    pub(crate) fn end_recording(&mut self) -> Option<(TraceFile, u64)> {
        let lane = self.lanes.get_mut(&HOST_LANE)?;
        Some((lane.trace.take()?, lane.calls()))
    }
}
