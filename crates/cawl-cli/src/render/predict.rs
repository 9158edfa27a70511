//! The predicted cost of a write as text.

use cawl_client::protocol::{Plan, Predicted};
use cawl_core::{Bytes, DirtyLimits, Rate};

use super::{counted, named, shown, time};

/// Columns of the names.
const NAME: usize = 12;

/// The states in the order of their cost.
const STATES: [&str; 4] = ["free", "flush", "throttle", "sync"];

/// The whole answer. `device`: its name, `hard`: the hard limit in bytes, if known.
pub fn text(
    plan: &Plan,
    device: Option<&str>,
    answer: &Predicted,
    hard: Option<u64>,
    terminal: bool,
) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| out += &named(name, NAME, text, terminal);
    line("job", &job(plan, device.or(plan.device.as_deref()), answer));
    let interval = match (answer.p10_s, answer.p90_s) {
        (Some(p10), Some(p90)) => format!(" (8 of 10 times between {} and {})", time(p10), time(p90)),
        _ => String::new(),
    };
    line("cost", &format!("{}{interval}", time(answer.cost_s)));
    if answer.cost_s > 0.0 {
        line("mean rate", &Rate::per_second(plan.bytes as f64 / answer.cost_s).to_string());
    }
    line("by state", &states(answer));
    if answer.cold_s > 0.01 * answer.cost_s {
        line("cold memory", &format!("{} of it", time(answer.cold_s)));
    }
    line("worst call", &time(answer.worst_call_s));
    let of_hard = |bytes: u64| match hard {
        Some(hard @ 1..) => format!(" ({:.0} % of the hard limit)", bytes as f64 / hard as f64 * 100.0),
        _ => String::new(),
    };
    line("dirty peak", &format!("{}{}", Bytes(answer.peak_dirty_bytes), of_hard(answer.peak_dirty_bytes)));
    let left = Bytes(answer.final_dirty_bytes);
    line("at its end", &format!("{left} dirty"));
    // Included in the cost if the plan has an fsync.
    let more = if plan.fsync { "" } else { "another " };
    line("fsync", &format!("{more}{}", time(answer.fsync_s)));
    out
}

/// The dirty limits that were predicted with.
pub fn limits(limits: DirtyLimits, terminal: bool) -> String {
    named("limits", NAME, &format!("background {}, hard {}", limits.background, limits.hard), terminal)
}

fn job(plan: &Plan, device: Option<&str>, answer: &Predicted) -> String {
    let chunk = plan.chunk.unwrap_or(1 << 20).min(plan.bytes);
    let calls = counted(answer.calls, "call");
    let mut text = format!("{} in {calls} of {}", Bytes(plan.bytes), Bytes(chunk));
    if plan.sync {
        text += ", O_SYNC";
    }
    if plan.fsync {
        text += ", fsync at the end";
    }
    if plan.at_s > 0.0 {
        text += &format!(", beginning in {}", time(plan.at_s));
    }
    if let Some(device) = device {
        text += &format!(", to device {}", shown(device));
    }
    format!("{text}; by model {}", shown(&answer.model))
}

/// The known states in their order, then any of later versions.
fn states(answer: &Predicted) -> String {
    let later = answer.states_s.keys().map(String::as_str).filter(|name| !STATES.contains(name));
    let parts: Vec<String> = STATES
        .into_iter()
        .chain(later)
        .filter_map(|name| Some((name, *answer.states_s.get(name)?)))
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(name, seconds)| format!("{} {}", shown(name), time(seconds)))
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        serde_json::from_str(r#"{"bytes": 4294967296}"#).unwrap()
    }

    fn answer() -> Predicted {
        Predicted {
            model: "kernel".to_owned(),
            calls: 4096,
            cost_s: 12.5,
            p10_s: Some(11.0),
            p90_s: Some(14.0),
            worst_call_s: 0.2,
            states_s: [("throttle", 12.0), ("free", 0.5), ("sync", 0.0)]
                .map(|(n, s)| (n.to_owned(), s))
                .into(),
            peak_dirty_bytes: 96 << 20,
            final_dirty_bytes: 90 << 20,
            fsync_s: 0.9,
            ..Predicted::default()
        }
    }

    #[test]
    fn a_job() {
        let told = text(&plan(), None, &answer(), Some(128 << 20), false);
        let expected = "\
job         4 GiB in 4096 calls of 1 MiB; by model kernel
cost        12.5 s (8 of 10 times between 11 s and 14 s)
mean rate   343.6 MB/s
by state    free 500 ms, throttle 12 s
worst call  200 ms
dirty peak  96 MiB (75 % of the hard limit)
at its end  90 MiB dirty
fsync       another 900 ms
";
        assert_eq!(told, expected);
    }

    #[test]
    fn all_that_was_asked_for_is_repeated() {
        let plan = Plan { sync: true, fsync: true, at_s: 10.0, device: Some("254:1".to_owned()), ..plan() };
        let told = text(&plan, Some("vda"), &Predicted { p90_s: None, ..answer() }, None, false);
        assert!(told.contains("O_SYNC, fsync at the end, beginning in\n"), "{told}");
        assert!(told.contains("            10 s, to device vda; by"), "{told}");
        assert!(told.contains("cost        12.5 s\n") && told.contains("fsync       900 ms\n"), "{told}");
        assert!(told.contains("dirty peak  96 MiB\n"), "{told}");
    }
}
