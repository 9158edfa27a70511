//! The status as text of at most 80 columns.

use cawl_client::protocol::{DeviceStatus, ExcerptsStatus, OutputStatus, ProcessStatus, Status};
use cawl_core::{Bytes, Cause, Rate};

use super::causes;
use super::compact::{self, within};
use super::rows::short_program;
use super::watch::regime;
use super::{bold, counted, named, percent, short, shown, table, time, warn_if};

/// Columns of a bar between its brackets.
const BAR: usize = 34;

pub fn text(status: &Status, terminal: bool) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| out += &named(name, 12, text, terminal);
    line("state", &headline(status, terminal));
    line("profile", &profile(status, terminal));
    let of_hard = |bytes: u64| (status.hard_bytes > 0).then(|| bytes as f64 / status.hard_bytes as f64);
    let level =
        |bytes: u64| format!("{} {}, {} of hard", bar(status, bytes), Bytes(bytes), percent(of_hard(bytes)));
    line("modelled", &level(status.modelled_dirty_bytes));
    line("sampled", &status.sampled_dirty_bytes.map_or("unknown".to_owned(), level));
    let [background, freerun, hard] =
        [status.background_bytes, status.freerun_bytes, status.hard_bytes].map(Bytes);
    line("limits", &format!("flush above {background}, throttle above {freerun}, hard {hard}"));
    let (traced, others) = (rate(status.dirtying_rate), rate(status.untraced_rate));
    line("dirtying", &format!("{traced} by traced programs, {others} by others"));
    line("writeback", &writeback(status));
    if let Some(rate) = status.throttled_rate {
        line("let through", &warn_if(&Rate::per_second(rate).to_string(), true, terminal));
    }
    if let Some(next) = &status.forecast {
        let (flush, throttle) = (within(next.background_s), within(next.throttle_s));
        let rate = compact::rate_or_zero(next.rate);
        line("forecast", &format!("at {rate}: flush {flush}, throttle {throttle}"));
        let clean = next.clean_s.map_or("not within 1 h".to_owned(), |_| within(next.clean_s));
        line("clean", &format!("{clean} if writing stops"));
    }
    line("error", &error(status));
    line("sampler", &sampler(status));
    if let Some(stall) = status.sampler.pressure {
        let stall = percent(Some(stall));
        line("I/O stall", &format!("some task waited for I/O in {stall} of the latest 10 s"));
    }
    if let Some(paused) = status.sampler.paused_s {
        let paused = time(paused);
        line("pauses", &format!("writers of this machine were paused for {paused} since the start"));
    } else if let Some(why) = &status.sampler.pauses_missing {
        line("pauses", "not traced, so the time of throttling is the model's estimate:");
        line("", &shown(why));
    }
    if status.causes_s.total() > 0.0 {
        let (all, most) = (status.causes_s.total(), causes::largest(&status.causes_s, 4));
        let part =
            |(cause, seconds): &(Cause, f64)| format!("{} {}", cause.name(), percent(Some(seconds / all)));
        let parts: Vec<String> = most.iter().map(part).collect();
        line("causes", &format!("of {}: {}", compact::seconds(all), parts.join(", ")));
    }
    line("programs", &format!("{} connected", status.clients));
    let (up, written) = (compact::seconds(status.uptime_s), Bytes(status.bytes));
    let calls = counted(status.calls, "call");
    line("recorded", &format!("{calls}, also on pipes and devices, {written} to files, in {up}"));
    for (at, text) in status.excerpts.iter().flat_map(|kept| excerpts(kept, terminal)).enumerate() {
        line(if at == 0 { "anomalies" } else { "" }, &text);
    }
    let outputs = [("calls to", &status.calls_to), ("sums to", &status.sums_to), ("otlp", &status.otlp)];
    for (name, told) in outputs {
        for (at, text) in told.iter().flat_map(|told| output(told, terminal)).enumerate() {
            line(if at == 0 { name } else { "" }, &text);
        }
    }
    line("drops", &warn_if(&status.drops.to_string(), status.drops > 0, terminal));
    if !status.processes.is_empty() {
        out += &format!("\n{}", processes(&status.processes));
    }
    if !status.devices.is_empty() {
        out += &format!("\n{}", devices(&status.devices));
    }
    out
}

/// Lines about traces of the calls around anomalies.
fn excerpts(kept: &ExcerptsStatus, terminal: bool) -> Vec<String> {
    let mut lines = vec![
        format!("{}: {}", counted(kept.anomalies, "call"), shown(&kept.condition)),
        format!("{}, {} in {}", counted(kept.files, "trace"), Bytes(kept.bytes), shown(&kept.folder)),
    ];
    if kept.missing > 0 {
        let missing = format!("{} calls and samples are missing in them", kept.missing);
        lines.push(warn_if(&missing, true, terminal));
    }
    lines.extend(kept.failure.iter().map(|failure| warn_if(&shown(failure), true, terminal)));
    lines
}

/// Lines about files that others take away.
fn output(told: &OutputStatus, terminal: bool) -> Vec<String> {
    let (rows, files) = (counted(told.rows_written, "row"), counted(told.files_written, "file"));
    let (bytes, room) = (Bytes(told.bytes), Bytes(told.room_bytes));
    let now = match (told.to.contains("://"), told.bytes) {
        (true, 0) => "no file waits".to_owned(),
        (true, _) => format!("files of {bytes} wait for it, {room} at most"),
        (false, _) => format!("{bytes} of {room} are there"),
    };
    let mut lines = vec![shown(&told.to).into_owned(), format!("{rows} in {files}; {now}")];
    if told.rows_dropped > 0 {
        let (rows, files) = (counted(told.rows_dropped, "row"), counted(told.files_dropped, "file"));
        lines.push(warn_if(&format!("dropped: {rows}, {files} that could not be written"), true, terminal));
    }
    if told.rows_lost > 0 {
        let rows = counted(told.rows_lost, "row");
        lines.push(warn_if(&format!("lost with earlier daemons that were killed: {rows}"), true, terminal));
    }
    if told.rows_refused > 0 || told.files_refused > 0 {
        let (rows, files) = (counted(told.rows_refused, "row"), counted(told.files_refused, "file"));
        lines.push(warn_if(&format!("refused by who got them: {rows}, {files}"), true, terminal));
    }
    lines.extend(told.failure.iter().map(|failure| warn_if(&shown(failure), true, terminal)));
    lines
}

fn headline(status: &Status, terminal: bool) -> String {
    let node = if status.node.is_empty() { String::new() } else { format!(" on {}", shown(&status.node)) };
    let (state, model) = (bold(regime(status.state), terminal), shown(&status.model));
    let mut text = format!("{state}{node}, by model {model} ({})", status.mode.name());
    for (name, value) in &status.labels {
        text += &format!(", {}={}", shown(name), shown(value));
    }
    text
}

fn profile(status: &Status, terminal: bool) -> String {
    let is_default = status.profile == "uncalibrated";
    let why = if is_default { ": speeds are defaults until they are learned" } else { "" };
    warn_if(&format!("{}{why}", shown(&status.profile)), is_default, terminal)
}

/// A bar from zero to the hard limit with the other limits marked: `[####|###|...]`.
fn bar(status: &Status, level: u64) -> String {
    let at = |bytes: u64| match status.hard_bytes {
        0 => 0,
        hard => ((bytes as f64 / hard as f64 * BAR as f64).round() as usize).min(BAR),
    };
    let (full, marks) = (at(level), [at(status.background_bytes), at(status.freerun_bytes)]);
    let cell = |column: usize| match column {
        c if c > 0 && marks.contains(&c) => '|',
        c if c < full => '#',
        _ => '.',
    };
    format!("[{}]", (0..BAR).map(cell).collect::<String>())
}

fn writeback(status: &Status) -> String {
    let modelled = status.writeback_rate.map_or("none".to_owned(), rate);
    match status.sampled_writeback_rate {
        Some(sampled) => format!("{modelled} modelled, {} by the kernel's count", rate(sampled)),
        None => format!("{modelled} modelled"),
    }
}

/// A rate; unlike [`Rate`], it can be zero.
fn rate(rate: f64) -> String {
    if rate < 1.0 { "0 B/s".to_owned() } else { Rate::per_second(rate).to_string() }
}

fn error(status: &Status) -> String {
    let error = &status.error;
    if error.calls == 0 && error.dirty.is_none() {
        return "nothing was written lately".to_owned();
    }
    let [total, windowed, dirty] = [error.total, error.windowed, error.dirty].map(percent);
    let calls = compact::count(error.calls);
    format!("{total} off, {windowed} in windows, over the latest {calls} calls; dirty level {dirty}")
}

fn sampler(status: &Status) -> String {
    let sampler = &status.sampler;
    if sampler.interval_s == 0.0 {
        return "off".to_owned();
    }
    let (interval, part) = (time(sampler.interval_s), sampler.cpu_fraction * 100.0);
    format!("every {interval}, {part:.2} % of a processor")
}

fn processes(processes: &[ProcessStatus]) -> String {
    let row = |process: &ProcessStatus| {
        [
            process.pid.to_string(),
            short_program(&shown(&process.program), 22),
            compact::count(process.calls),
            compact::bytes(process.bytes),
            compact::rate(process.cost.rate),
            compact::seconds(process.cost.throttled_s),
            compact::seconds(process.cost.sync_s),
        ]
    };
    let header = ["PID", "PROGRAM", "CALLS", "BYTES", "RATE", "THROTTLED", "SYNC"];
    table(&header, [0, 1], processes.iter().map(row))
}

fn devices(devices: &[DeviceStatus]) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |device: &DeviceStatus| {
        [
            device.device.clone(),
            short(&shown(&device.name), 11),
            compact::count(device.calls),
            compact::bytes(device.bytes),
            or_dash(device.write_rate.map(compact::rate)),
            or_dash(device.busy.map(compact::percent)),
            compact::seconds(device.cost.throttled_s),
            compact::seconds(device.cost.sync_s),
        ]
    };
    let header = ["DEVICE", "NAME", "CALLS", "BYTES", "WRITES", "BUSY", "THROTTLED", "SYNC"];
    table(&header, [0, 1], devices.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_client::protocol::{CauseSeconds, Cost, ErrorStatus, Forecast, SamplerStatus};
    use cawl_core::Regime;

    /// A status with every field at its widest.
    fn busy() -> Status {
        let cost = Cost {
            observed_s: 99.0,
            predicted_s: 98.0,
            throttled_s: 77.0,
            sync_s: 12.0,
            lost_s: 80.0,
            rate: 123.4e6,
        };
        Status {
            node: "vm1".to_owned(),
            model: "kernel".to_owned(),
            profile: "lab".to_owned(),
            state: Regime::Throttle,
            modelled_dirty_bytes: 96 << 20,
            sampled_dirty_bytes: Some(95 << 20),
            background_bytes: 32 << 20,
            freerun_bytes: 80 << 20,
            hard_bytes: 128 << 20,
            dirtying_rate: 123.456e6,
            untraced_rate: 1.5e6,
            writeback_rate: Some(98.7e6),
            sampled_writeback_rate: Some(97.65e6),
            throttled_rate: Some(98e6),
            forecast: Some(Forecast {
                rate: 124.956e6,
                background_s: Some(0.0),
                throttle_s: Some(12.34),
                clean_s: Some(1.234),
                ..Forecast::default()
            }),
            error: ErrorStatus {
                total: Some(0.042),
                windowed: Some(0.081),
                dirty: Some(0.005),
                calls: 12_345_678,
            },
            sampler: SamplerStatus {
                interval_s: 0.0125,
                cpu_fraction: 0.0034,
                sources: ["vmstat", "meminfo", "diskstats", "pressure", "bdi", "tracepoints"]
                    .map(str::to_owned)
                    .to_vec(),
                pressure: Some(0.12),
                paused_s: Some(1234.5),
                pauses_lost: Some(0),
                pauses_missing: None,
            },
            clients: 3,
            calls: 12_345_678,
            bytes: 1 << 40,
            drops: 5,
            uptime_s: 200.0,
            processes: vec![ProcessStatus {
                pid: 4_194_304,
                program: format!("/usr/{}/writer", "x".repeat(50)),
                calls: 12_345_678,
                bytes: 1 << 40,
                cost,
                causes_s: CauseSeconds::default(),
            }],
            devices: vec![DeviceStatus {
                device: "254:1048575".to_owned(),
                name: "nvme0n1p2".to_owned(),
                calls: 12_345_678,
                bytes: 1 << 40,
                cost,
                causes_s: CauseSeconds::default(),
                write_rate: Some(98.7e6),
                busy: Some(0.99),
                dirty_bytes: Some(1 << 30),
                kernel_writeback_rate: Some(97.6e6),
            }],
            ..Status::default()
        }
    }

    #[test]
    fn everything_is_told_in_eighty_columns() {
        let text = text(&busy(), false);
        for told in [
            "throttle on vm1, by model kernel",
            "[#########|###########|####........] 96 MiB, 75.0 % of hard",
            "flush above 32 MiB, throttle above 80 MiB, hard 128 MiB",
            "123.5 MB/s by traced programs, 1.5 MB/s by others",
            "98.7 MB/s modelled, 97.65 MB/s by the kernel's count",
            "let through 98 MB/s",
            "at 125 MB/s: flush now, throttle in 12.3 s",
            "clean       in 1.23 s if writing stops",
            "4.2 % off, 8.1 % in windows, over the latest 12.3 M calls; dirty\n            level 0.5 %\n",
            "every 12.5 ms, 0.34 % of a processor\n",
            "some task waited for I/O in 12.0 % of the latest 10 s",
            "programs    3 connected",
            "12.3 M calls, also on pipes and devices, 1 TiB to files, in 200 s",
            "drops       5",
            "writer",
            "nvme0n1p2",
        ] {
            assert!(text.contains(told), "`{told}` is not in\n{text}");
        }
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn what_the_daemon_may_not_do_is_told() {
        let mut status = busy();
        let why = "/sys/kernel/tracing is read-only for cawld (ProtectKernelTunables=)";
        (status.sampler.paused_s, status.sampler.pauses_missing) = (None, Some(why.to_owned()));
        let text = text(&status, false);
        assert!(text.contains("pauses      not traced") && text.contains(why), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn an_old_daemon_s_answer_is_told_too() {
        let text = text(&Status { profile: "uncalibrated".to_owned(), ..Status::default() }, false);
        assert!(
            text.contains("unknown") && text.contains("defaults") && text.contains("nothing was written")
        );
        assert!(!text.contains("let through") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn what_waits_for_a_receiver_is_told() {
        let of = |to: &str, bytes| {
            let to = to.to_owned();
            output(&OutputStatus { to, bytes, room_bytes: 1 << 28, ..OutputStatus::default() }, false)[1]
                .clone()
        };
        assert_eq!(of("http://h:4318", 0), "0 rows in 0 files; no file waits");
        assert_eq!(
            of("http://h:4318", 4096),
            "0 rows in 0 files; files of 4 KiB wait for it, 256 MiB at most"
        );
        assert_eq!(of("/var/calls", 4096), "0 rows in 0 files; 4 KiB of 256 MiB are there");
    }

    #[test]
    fn a_bar_ends_at_the_hard_limit() {
        let mut status = busy();
        status.modelled_dirty_bytes = 1 << 40;
        assert!(
            text(&status, false).contains("[#########|###########|############]"),
            "{}",
            text(&status, false)
        );
    }
}
