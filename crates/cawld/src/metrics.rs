//! `/metrics`: the status in OpenMetrics text, or in the older Prometheus text for those who ask for that.
//! docs/reference/METRICS.md lists every name; a test compares the list with [`FAMILIES`].
//!
//! The law of this module: **labels are bounded.** Devices and fixed words only; never a pid or a path.

pub mod otlp;

use std::fmt::Write;

use cawl_client::protocol::{Cost, DeviceStatus, Forecast, OutputStatus, Status};
use cawl_core::{Cause, Regime};

/// Devices told apart, those written to most.
const DEVICES: usize = 32;

/// Kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up, from the start of the daemon.
    Counter,
}

/// Metrics of one name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name, without `_total`.
    pub name: &'static str,
    pub kind: Kind,
    /// Its unit, with which the name ends; empty if it has none.
    pub unit: &'static str,
    /// What it tells.
    pub help: &'static str,
    /// Its labelled values in a status; what is not known has none.
    values: for<'a> fn(&'a Status) -> Vec<Labelled<'a>>,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

type Labelled<'a> = (Labels<'a>, f64);

/// All of them, in the order of the text.
pub const FAMILIES: &[Family] = {
    use Kind::{Counter, Gauge};
    // One line each, as a table.
    macro_rules! families {
        ($($kind:ident $name:literal $unit:literal $help:literal $values:expr;)*) => {
            &[$(Family { name: $name, kind: $kind, unit: $unit, help: $help, values: $values }),*]
        };
    }
    families! {
        Gauge "cawl_build" "" "Always 1; version, model, mode and profile in labels" build;
        Gauge "cawl_uptime_seconds" "seconds" "Since the daemon started" |s| one(s.uptime_s);
        Gauge "cawl_dirty_bytes" "bytes" "Dirty bytes, writeback included, by source: modelled or sampled"
            |s| by("source", [("modelled", Some(s.modelled_dirty_bytes as f64)), ("sampled", float(s.sampled_dirty_bytes))]);
        Gauge "cawl_dirty_limit_bytes" "bytes" "Dirty limits: background, freerun (throttling begins) and hard"
            |s| by("limit", [
                ("background", float(Some(s.background_bytes))),
                ("freerun", float(Some(s.freerun_bytes))),
                ("hard", float(Some(s.hard_bytes))),
            ]);
        Gauge "cawl_state" "" "1 for the modelled regime of the machine, 0 for the others" state;
        Gauge "cawl_writeback_bytes_per_second" "" "Rate at which dirty pages are cleaned, by source"
            |s| by("source", [("modelled", s.writeback_rate), ("sampled", s.sampled_writeback_rate)]);
        Gauge "cawl_dirtying_bytes_per_second" "" "Rate at which pages are made dirty, by writers: traced or untraced"
            |s| by("writers", [("traced", Some(s.dirtying_rate)), ("untraced", Some(s.untraced_rate))]);
        Gauge "cawl_throttled_bytes_per_second" "" "Rate at which throttled writers are let through; absent if none are"
            |s| maybe(s.throttled_rate);
        Gauge "cawl_model_error_ratio" "ratio" "Error of one-step predictions over the latest 60 s of writing, by kind"
            |s| by("error", [("total", s.error.total), ("windowed", s.error.windowed), ("dirty", s.error.dirty)]);
        Gauge "cawl_forecast_seconds" "seconds" "Until this happens at the present rate; absent if never" forecast;
        Gauge "cawl_clients" "" "Programs being traced" |s| one(s.clients as f64);
        Counter "cawl_calls" "" "Calls recorded" |s| one(s.calls as f64);
        Counter "cawl_written_bytes" "bytes" "Bytes written to files by traced programs" |s| one(s.bytes as f64);
        Counter "cawl_call_seconds" "seconds" "Time in calls: observed, predicted, and of the observed what is throttling and what is waiting for the device; and what was observed by cause"
            call_seconds;
        Counter "cawl_dropped_events" "" "Events lost on the way" |s| one(s.drops as f64);
        Counter "cawl_anomalies" "" "Calls that fulfilled the condition of --trace-on"
            |s| maybe(s.excerpts.as_ref().map(|e| e.anomalies as f64));
        Gauge "cawl_excerpts_bytes" "bytes" "Size of the traces around them"
            |s| maybe(s.excerpts.as_ref().map(|e| e.bytes as f64));
        Counter "cawl_excerpts_missing_calls" "" "Calls and samples missing in these traces"
            |s| maybe(s.excerpts.as_ref().map(|e| e.missing as f64));
        Counter "cawl_output_rows" "" "Rows of --calls-to, --sums-to, --otlp: written, dropped, lost or refused"
            output_rows;
        Counter "cawl_output_files" "" "Files of --calls-to, --sums-to, --otlp: written, dropped or refused"
            output_files;
        Gauge "cawl_output_bytes" "bytes" "Bytes in the folder of --calls-to, --sums-to and --otlp"
            |s| outputs(s).map(|(output, told)| (vec![("output", output)], told.bytes as f64)).collect();
        Gauge "cawl_sampler_interval_seconds" "seconds" "Between two looks at the kernel's counters"
            |s| one(s.sampler.interval_s);
        Gauge "cawl_sampler_cpu_ratio" "ratio" "Part of one processor that sampling takes" |s| one(s.sampler.cpu_fraction);
        Gauge "cawl_io_pressure_ratio" "ratio" "Part of the latest 10 s in which some task waited for I/O"
            |s| maybe(s.sampler.pressure);
        Counter "cawl_paused_seconds" "seconds" "Time the kernel let writers pause, over all tasks of the machine"
            |s| maybe(s.sampler.paused_s);
        Counter "cawl_device_calls" "" "Calls that wrote to a device" |s| by_device(s, |d| Some(d.calls as f64));
        Counter "cawl_device_written_bytes" "bytes" "Bytes written to a device by traced programs"
            |s| by_device(s, |d| Some(d.bytes as f64));
        Counter "cawl_device_call_seconds" "seconds" "Time in calls to a device, as cawl_call_seconds" device_times;
        Gauge "cawl_device_write_bytes_per_second" "" "Rate at which a device writes, of all writers"
            |s| by_device(s, |d| d.write_rate);
        Gauge "cawl_device_busy_ratio" "ratio" "Part of the time a device was busy" |s| by_device(s, |d| d.busy);
        Gauge "cawl_device_dirty_bytes" "bytes" "Dirty bytes of a device, writeback included, as the kernel counts them"
            |s| by_device(s, |d| float(d.dirty_bytes));
    }
};

fn float(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

fn one(value: f64) -> Vec<Labelled<'static>> {
    vec![(Vec::new(), value)]
}

fn maybe(value: Option<f64>) -> Vec<Labelled<'static>> {
    value.map(one).unwrap_or_default()
}

/// A labelled value for each word that has a value.
fn by<const N: usize>(
    label: &'static str,
    values: [(&'static str, Option<f64>); N],
) -> Vec<Labelled<'static>> {
    values.into_iter().filter_map(|(word, value)| Some((vec![(label, word)], value?))).collect()
}

fn times(cost: &Cost) -> [(&'static str, Option<f64>); 5] {
    let Cost { observed_s, predicted_s, throttled_s, sync_s, lost_s, .. } = *cost;
    [
        ("observed", observed_s),
        ("predicted", predicted_s),
        ("throttled", throttled_s),
        ("sync", sync_s),
        ("lost", lost_s),
    ]
    .map(|(word, seconds)| (word, Some(seconds)))
}

/// By time, and by cause.
fn call_seconds(status: &Status) -> Vec<Labelled<'_>> {
    let mut values = by("time", times(&status.cost));
    values.extend(by("cause", Cause::ALL.map(|cause| (cause.name(), Some(status.causes_s.of(cause))))));
    values
}

/// Tables of calls, sums by minute, and what goes to a collector, where they are made.
fn outputs(status: &Status) -> impl Iterator<Item = (&'static str, &OutputStatus)> {
    let all = [("calls", &status.calls_to), ("sums", &status.sums_to), ("otlp", &status.otlp)];
    all.into_iter().filter_map(|(name, told)| Some((name, told.as_ref()?)))
}

fn by_result(status: &Status, results: fn(&OutputStatus) -> Vec<(&'static str, u64)>) -> Vec<Labelled<'_>> {
    let labelled = |(output, told)| {
        let of = move |(result, count)| (vec![("output", output), ("result", result)], count as f64);
        results(told).into_iter().map(of)
    };
    outputs(status).flat_map(labelled).collect()
}

fn output_rows(status: &Status) -> Vec<Labelled<'_>> {
    by_result(status, |s| {
        vec![
            ("written", s.rows_written),
            ("dropped", s.rows_dropped),
            ("lost", s.rows_lost),
            ("refused", s.rows_refused),
        ]
    })
}

fn output_files(status: &Status) -> Vec<Labelled<'_>> {
    by_result(status, |s| {
        vec![("written", s.files_written), ("dropped", s.files_dropped), ("refused", s.files_refused)]
    })
}

fn build(status: &Status) -> Vec<Labelled<'_>> {
    let (version, model, profile) = (&*status.version, &*status.model, &*status.profile);
    let labels = [("version", version), ("model", model), ("mode", status.mode.name()), ("profile", profile)];
    vec![(labels.to_vec(), 1.0)]
}

fn state(status: &Status) -> Vec<Labelled<'_>> {
    let words = [("free", Regime::Free), ("flush", Regime::Flush), ("throttle", Regime::Throttle)];
    by("state", words.map(|(word, regime)| (word, Some(f64::from(u8::from(status.state == regime))))))
}

fn forecast(status: &Status) -> Vec<Labelled<'_>> {
    let Forecast { background_s, throttle_s, clean_s, .. } = status.forecast.unwrap_or_default();
    by("until", [("background", background_s), ("throttle", throttle_s), ("clean", clean_s)])
}

/// The devices written to most, and their labels.
fn devices(status: &Status) -> impl Iterator<Item = (Labels<'_>, &DeviceStatus)> {
    status.devices.iter().take(DEVICES).map(|d| (vec![("device", &*d.device), ("name", &*d.name)], d))
}

fn by_device(status: &Status, value: fn(&DeviceStatus) -> Option<f64>) -> Vec<Labelled<'_>> {
    devices(status).filter_map(|(labels, device)| Some((labels, value(device)?))).collect()
}

fn device_times(status: &Status) -> Vec<Labelled<'_>> {
    let mut values = Vec::new();
    for (labels, device) in devices(status) {
        for (times, seconds) in by("time", times(&device.cost)) {
            values.push((labels.iter().copied().chain(times).collect(), seconds));
        }
    }
    values
}

/// Labels of ours, which a node's labels must not be called.
pub const LABELS: &[&str] = &[
    "node", "source", "limit", "state", "writers", "error", "until", "time", "cause", "device", "name",
    "version", "model", "mode", "profile", "instance", "job", "output", "result",
];

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Prometheus,
}

impl Format {
    /// The one that an Accept header asks for: OpenMetrics, unless only the older one is named.
    pub fn accepted(accept: Option<&str>) -> Format {
        let accept = accept.unwrap_or("");
        if accept.contains("text/plain") && !accept.contains("application/openmetrics-text") {
            Format::Prometheus
        } else {
            Format::OpenMetrics
        }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// True for a name that a label can have.
pub fn is_label(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !name.starts_with("__")
        && !LABELS.contains(&name)
}

pub fn text(status: &Status, format: Format) -> String {
    let mut common = vec![("node", status.node.as_str())];
    common.extend(status.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut text = Text { out: String::new(), common, format };
    for family in FAMILIES {
        let values = (family.values)(status);
        if !values.is_empty() {
            text.family(family, &values);
        }
    }
    if format == Format::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

/// A text being written.
struct Text<'a> {
    out: String,
    common: Vec<(&'a str, &'a str)>,
    format: Format,
}

impl Text<'_> {
    fn family(&mut self, family: &Family, values: &[Labelled<'_>]) {
        let (kind, ending) = match family.kind {
            Kind::Gauge => ("gauge", ""),
            Kind::Counter => ("counter", "_total"),
        };
        // In OpenMetrics a counter's family is called without the `_total` of its samples.
        let sample = format!("{}{ending}", family.name);
        let name = if self.format == Format::OpenMetrics { family.name } else { sample.as_str() };
        self.line(format_args!("# TYPE {name} {kind}"));
        if self.format == Format::OpenMetrics && !family.unit.is_empty() {
            self.line(format_args!("# UNIT {name} {}", family.unit));
        }
        self.line(format_args!("# HELP {name} {}", family.help));
        for (labels, value) in values {
            self.out.push_str(&sample);
            let all = self.common.iter().chain(labels).enumerate();
            for (at, (label, value)) in all {
                self.out.push(if at == 0 { '{' } else { ',' });
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                self.out.push_str(&format!("{label}=\"{value}\""));
            }
            self.line(format_args!("}} {value}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A String takes everything.
        let _ = writeln!(self.out, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_client::protocol::ErrorStatus;

    fn status() -> Status {
        Status {
            node: "a \"b\" \\ c\nd".to_owned(),
            labels: [("rack".to_owned(), "7".to_owned())].into(),
            sampled_dirty_bytes: Some(5),
            sampled_writeback_rate: Some(2.5),
            writeback_rate: Some(1e9),
            throttled_rate: Some(1.0),
            state: Regime::Flush,
            error: ErrorStatus { total: Some(0.1), windowed: Some(0.2), dirty: Some(0.3), calls: 9 },
            forecast: Some(Forecast { throttle_s: Some(3.5), ..Forecast::default() }),
            sampler: cawl_client::protocol::SamplerStatus {
                pressure: Some(0.5),
                paused_s: Some(1.5),
                ..Default::default()
            },
            excerpts: Some(cawl_client::protocol::ExcerptsStatus::default()),
            calls_to: Some(OutputStatus::default()),
            devices: (0..100)
                .map(|n| DeviceStatus {
                    device: format!("8:{n}"),
                    busy: Some(0.5),
                    write_rate: Some(1.0),
                    dirty_bytes: Some(4096),
                    ..DeviceStatus::default()
                })
                .collect(),
            ..Status::default()
        }
    }

    #[test]
    fn the_text_is_as_openmetrics_wants_it() {
        let text = text(&status(), Format::OpenMetrics);
        assert!(text.ends_with("\n# EOF\n") && !text.contains("NaN") && !text.contains("inf"));
        for family in FAMILIES {
            let at = text.find(&format!("# TYPE {} ", family.name)).expect(family.name);
            let own: Vec<&str> = text[at..]
                .lines()
                .take_while(|l| !l.starts_with("# TYPE") || *l == &text[at..at + l.len()])
                .collect();
            assert!(own.iter().any(|line| line.starts_with("# HELP")), "{own:?}");
            let (ending, unit) = (if family.kind == Kind::Counter { "_total{" } else { "{" }, family.unit);
            assert!(unit.is_empty() || family.name.ends_with(unit), "{}", family.name);
            assert!(own.iter().any(|line| line.starts_with(&format!("{}{ending}", family.name))), "{own:?}");
        }
        assert!(text.contains("node=\"a \\\"b\\\" \\\\ c\\nd\",rack=\"7\""), "{text}");
        assert!(text.contains("cawl_state{") && text.contains("state=\"flush\"} 1\n"));
        assert_eq!(text.lines().filter(|line| line.starts_with("cawl_device_busy_ratio{")).count(), DEVICES);
    }

    #[test]
    fn who_only_knows_the_older_format_gets_it() {
        let older = text(&status(), Format::accepted(Some("text/plain;version=0.0.4,*/*;q=0.1")));
        assert!(older.contains("# TYPE cawl_calls_total counter") && !older.contains("# UNIT"));
        assert_eq!(Format::accepted(None), Format::OpenMetrics);
        let both = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Format::accepted(Some(both)), Format::OpenMetrics);
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let text = text(&Status::default(), Format::OpenMetrics);
        for absent in ["\"sampled\"", "cawl_forecast", "cawl_model_error", "cawl_device", "cawl_throttled"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }

    #[test]
    fn labels_that_would_clash_are_refused() {
        assert!(is_label("rack") && is_label("_r2"));
        for bad in ["", "2r", "a-b", "__x", "node", "device", "ä"] {
            assert!(!is_label(bad), "{bad}");
        }
    }

    #[test]
    fn every_family_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/METRICS.md");
        let document = std::fs::read_to_string(path).unwrap();
        for family in FAMILIES {
            let ending = if family.kind == Kind::Counter { "_total" } else { "" };
            let row = format!("| `{}{ending}` |", family.name);
            assert!(document.contains(&row), "{row} is not in docs/reference/METRICS.md");
        }
        let rows = document.lines().filter(|line| line.starts_with("| `cawl_")).count();
        assert_eq!(rows, FAMILIES.len(), "docs/reference/METRICS.md lists metrics that there are not");
    }
}
