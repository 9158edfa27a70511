//! Modes of the cost of calls, and classes of calls, as tables.

use cawl_core::{CallClass, CostMode, Density, Explain};

use super::{bold, compact, counted, headed, table};

/// Columns of a curve.
const CURVE: usize = 40;
/// Operations with a smaller part of the time are left out.
const NOTEWORTHY: f64 = 0.01;

/// The modes of each operation: of its cost per byte, or per call where it writes none; and of observed over
/// predicted time, where there are several. In 80 columns; nothing without calls.
pub fn text(explain: &Explain, terminal: bool) -> String {
    let mut out = String::new();
    let whole: f64 = explain.densities.iter().filter_map(|of| Some(of.per_call.as_ref()?.seconds)).sum();
    let told = explain
        .densities
        .iter()
        .filter(|of| of.per_call.as_ref().is_some_and(|density| density.seconds >= NOTEWORTHY * whole));
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for of in told {
        let (density, unit) = match (&of.per_byte, &of.per_call) {
            (Some(density), _) => (density, "/B"),
            (None, Some(density)) => (density, ""),
            (None, None) => continue,
        };
        rows.push(modes(&of.op, density, |ns| cost(ns) + unit));
        curves.push(curve(density, |ns| cost(ns) + unit));
        if let Some(density) = of.over_predicted.as_ref().filter(|density| density.modes.len() > 1) {
            rows.push(modes("  over predicted", density, |ratio| format!("×{}", compact::three(ratio))));
            curves.push(curve(density, |ratio| format!("×{}", compact::three(ratio))));
        }
    }
    if rows.is_empty() {
        return out;
    }
    let header = ["MODES OF COST", "PEAK", "FROM", "TO", "CALLS", "TIME", "CAUSE"];
    let table = table(&header, [0, 6], rows.iter().flatten());
    let mut lines = table.lines();
    out.extend(["\n", &bold(lines.next().unwrap_or_default(), terminal), "\n"]);
    for (modes, curve) in rows.iter().zip(curves) {
        lines.by_ref().take(modes.len()).for_each(|line| out.extend([line, "\n"]));
        out.extend(["  ", &curve, "\n"]);
    }
    out
}

fn modes(name: &str, density: &Density, value: impl Fn(f64) -> String) -> Vec<[String; 7]> {
    let row = |(at, mode): (usize, &CostMode)| {
        [
            if at == 0 { name.to_owned() } else { String::new() },
            value(mode.peak),
            value(mode.from),
            value(mode.to),
            compact::percent(mode.share),
            compact::percent(mode.time_share),
            mode.cause.clone(),
        ]
    };
    density.modes.iter().enumerate().map(row).collect()
}

/// Nanoseconds in three digits: `0.34 ns`, `12.5 ms`.
fn cost(ns: f64) -> String {
    if ns < 1.0 { format!("{} ns", compact::three(ns)) } else { compact::seconds(ns * 1e-9) }
}

/// The density as a line of blocks, the least of which still is a part of the calls.
fn curve(density: &Density, value: impl Fn(f64) -> String) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let points = density.density.len();
    let columns = CURVE.min(points).max(1);
    let heights: Vec<f32> = (0..columns)
        .map(|at| &density.density[at * points / columns..(at + 1) * points / columns])
        .map(|part| part.iter().copied().fold(0.0, f32::max))
        .collect();
    let most = heights.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let block = |height: &f32| match height / most {
        part if part < 1e-3 => ' ',
        part => BLOCKS[((part * 8.0) as usize).min(7)],
    };
    let blocks: String = heights.iter().map(block).collect();
    let end = density.from * density.ratio.powi(points as i32 - 1);
    format!("{} {blocks} {}", value(density.from), value(end))
}

/// Classes of calls by observed time; nothing without any.
pub fn classes(explain: &Explain, terminal: bool) -> String {
    let rows = class_rows(explain);
    if rows.is_empty() {
        return String::new();
    }
    let header = ["CLASS OF CALLS", "CALLS", "BYTES", "TIME", "CAUSE"];
    let mut out = String::new();
    headed(&mut out, &table(&header, [0, 4], rows), terminal);
    unclassed(explain).into_iter().for_each(|line| out.extend([&line, "\n"]));
    out
}

/// Span, calls, bytes, time and cause of each class.
pub(super) fn class_rows(explain: &Explain) -> Vec<[String; 5]> {
    let row = |class: &CallClass| {
        let span = match (class.from_s > 0.0, class.to_s) {
            (_, None) => format!("from {}", compact::seconds(class.from_s)),
            (false, Some(to)) => format!("below {}", compact::seconds(to)),
            (true, Some(to)) => format!("{} to {}", compact::seconds(class.from_s), compact::seconds(to)),
        };
        [
            span,
            compact::count(class.calls),
            compact::bytes(class.bytes),
            compact::seconds(class.seconds),
            class.cause.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    explain.classes.iter().map(row).collect()
}

pub(super) fn unclassed(explain: &Explain) -> Option<String> {
    let calls = counted(explain.unclassed_calls, "call");
    let text = format!("and {calls} to /dev/null, added up before their times were read");
    (explain.unclassed_calls > 0).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{Analysis, AnalysisOptions, HostProfile, Mode, Nanos, Record};
    use cawl_wire::{Event, FileKind, Op};

    #[test]
    fn modes_and_classes_are_told_in_80_columns() {
        let classes_of = [0.2, 0.4, 7.0, 25.0].map(Nanos::millis).to_vec();
        let models = vec!["kernel".to_owned()];
        let options = AnalysisOptions {
            models,
            mode: Mode::Lockstep,
            classes: classes_of,
            ..AnalysisOptions::default()
        };
        let mut analysis = Analysis::with(&HostProfile::uncalibrated(), &options).unwrap();
        let mut start = 1;
        for at in 0..300_u64 {
            let slow = at % 3 == 0;
            let duration = if slow { 3_200_000 } else { 350_000 } * (90 + at % 20) / 100;
            start += 10_000_000;
            let event = Event {
                dev: 1,
                ino: 1,
                kind: FileKind::Regular,
                pid: 7,
                tid: 7,
                start,
                ..Event::new(Op::Write)
            };
            let event = Event { offset: at << 20, returned: 1 << 20, duration, ..event };
            analysis.take(&Record::Event(event));
            analysis.take(&Record::Event(Event {
                op: Op::Fsync,
                returned: 0,
                start: start + 5_000_000,
                ..event
            }));
        }
        let explain = analysis.report().explain.expect("there were calls");
        let both = text(&explain, false) + &classes(&explain, false);
        assert!(both.lines().all(|line| line.chars().count() <= 80), "{both}");
        for told in [
            "MODES OF COST",
            "0.33 ns/B",
            "3.04 ns/B",
            "fsync",
            "67 %",
            "below 200 µs",
            "400 µs to 7 ms",
            "from 25 ms",
        ] {
            assert!(both.contains(told), "{told}: {both}");
        }
        assert!(both.contains('█'));
        assert_eq!(explain.modes.iter().filter(|mode| mode.op == "write").count(), 2);
        assert_eq!(classes(&Explain::default(), false) + &text(&Explain::default(), false), "");
    }
}
