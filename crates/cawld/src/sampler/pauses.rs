//! The kernel's pauses of writers, by the tracepoint `writeback:balance_dirty_pages` (mm/page-writeback.c),
//! for root.

use cawl_core::Nanos;
use cawl_host::tracefs::{Instance, TraceFsError};

const EVENT: &str = "balance_dirty_pages";
/// Buffer for each processor in KiB: some thousand pauses, and none is shorter than a tick.
const ROOM: u32 = 512;
/// Most bytes read at a time.
const MAX: usize = 1 << 20;

/// The pauses of all writers of this machine, traced by cawl or not.
pub struct Pauses {
    trace: Instance,
    text: Vec<u8>,
    /// Sum since the start.
    pub total: Nanos,
    /// Pauses lost for lack of buffer.
    pub lost: u64,
}

impl Pauses {
    /// Begins; an error says why tracing is not possible.
    pub fn begin() -> Result<Pauses, TraceFsError> {
        let trace = Instance::begin(ROOM, &[EVENT], "pause > 0")?;
        Ok(Pauses { trace, text: Vec::new(), total: Nanos::ZERO, lost: 0 })
    }

    /// Reads the trace since the last call.
    pub fn read(&mut self) {
        self.text.extend(self.trace.take_some(MAX).unwrap_or_default());
        let Some(end) = self.text.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines: Vec<u8> = self.text.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            let (pause, lost) = said(line);
            self.total += pause;
            self.lost += lost;
        }
    }
}

/// What a line of the trace tells: a pause, and the number of events lost.
fn said(line: &str) -> (Nanos, u64) {
    if let Some(lost) = line.split_once("[LOST ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()) {
        return (Nanos::ZERO, lost);
    }
    let pause = line.split_once(" balance_dirty_pages: ").and_then(|(_, fields)| {
        fields.split(' ').find_map(|field| field.strip_prefix("pause=")?.parse::<i64>().ok())
    });
    // In ms, as the tracepoint converts it; not negative.
    (Nanos::millis(pause.unwrap_or(0) as f64), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_trace() {
        let line = "              dd-812     [001] .....  4242.123456: balance_dirty_pages: bdi 254:0: limit=32768 \
                    setpoint=28000 dirty=29000 wb_setpoint=28000 wb_dirty=29000 dirty_ratelimit=1024 \
                    task_ratelimit=980 dirtied=32 dirtied_pause=32 paused=0 pause=36 period=36 think=0 cgroup_ino=1";
        assert_eq!(said(line), (Nanos::millis(36.0), 0));
        assert_eq!(said(&line.replace("pause=36", "pause=-4")), (Nanos::ZERO, 0));
        assert_eq!(said("CPU:1 [LOST 1234 EVENTS]"), (Nanos::ZERO, 1234));
        for other in ["", "# tracer: nop", "x: bdi_dirty_ratelimit: pause=7"] {
            assert_eq!(said(other), (Nanos::ZERO, 0), "{other}");
        }
    }
}
