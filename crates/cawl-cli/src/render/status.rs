//! The status, as text.

use cawl_core::{Bytes, Nanos, Phase, Rate};
use cawld::protocol::Status;

use super::{bold, lines, table};

/// The whole answer.
pub fn text(status: &Status, terminal: bool) -> String {
    let state = match status.state {
        Phase::Free => "free",
        Phase::Flush => "flush",
        Phase::Throttle => "throttle",
    };
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| Rate::per_second(rate).to_string());
    let sampled = status.sampled_dirty_bytes.map_or("unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    let mut out = format!(
        "{} {} by model {}, profile {}\n",
        bold("state", terminal),
        bold(state, terminal),
        status.model,
        status.profile
    );
    let mut facts = table(&["", ""], 1);
    let rows = [
        ("dirty, modelled", Bytes(status.modelled_dirty_bytes).to_string()),
        ("dirty, sampled", sampled),
        ("background limit", Bytes(status.background_bytes).to_string()),
        ("hard limit", Bytes(status.hard_bytes).to_string()),
        ("writeback rate", rate(status.writeback_rate)),
        ("throttled rate", rate(status.throttled_rate)),
        ("clients", status.clients.to_string()),
        ("drops", status.drops.to_string()),
        ("up for", Nanos::seconds(status.uptime_s).to_string()),
    ];
    for (name, value) in rows {
        facts.add_row([name.to_owned(), value]);
    }
    out.push_str(lines(&facts).trim_start_matches('\n'));
    if !status.processes.is_empty() {
        let mut processes = table(&["PID", "PROGRAM", "CALLS", "BYTES"], 2);
        for process in &status.processes {
            processes.add_row([
                process.pid.to_string(),
                process.program.clone(),
                process.calls.to_string(),
                Bytes(process.bytes).to_string(),
            ]);
        }
        out.push('\n');
        out.push_str(&lines(&processes));
    }
    if !status.devices.is_empty() {
        let mut devices = table(&["DEVICE", "CALLS", "BYTES"], 1);
        for device in &status.devices {
            devices.add_row([
                device.device.clone(),
                device.calls.to_string(),
                Bytes(device.bytes).to_string(),
            ]);
        }
        out.push('\n');
        out.push_str(&lines(&devices));
    }
    out
}
