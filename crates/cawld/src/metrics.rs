//! `/metrics`: the status in OpenMetrics text, or in the older Prometheus text for those who ask for that.
//! docs/METRICS.md lists every name; a test compares the list with [`FAMILIES`].
//!
//! The law of this module: **labels are bounded.** Devices and fixed words only; never a pid or a path.

use std::fmt::Write;

use cawl_core::Phase;

use crate::protocol::{Cost, Status};

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
    /// Its kind.
    pub kind: Kind,
    /// Its unit, with which the name ends; empty if it has none.
    pub unit: &'static str,
    /// What it tells.
    pub help: &'static str,
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit, help }
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit, help }
}

/// All of them, in the order of the text.
pub const FAMILIES: &[Family] = &[
    gauge("cawl_build", "", "Always 1; version, model, mode and profile in labels"),
    gauge("cawl_uptime_seconds", "seconds", "Since the daemon started"),
    gauge("cawl_dirty_bytes", "bytes", "Dirty bytes, writeback included, by source: modelled or sampled"),
    gauge(
        "cawl_dirty_limit_bytes",
        "bytes",
        "Dirty limits: background, freerun (throttling begins) and hard",
    ),
    gauge("cawl_state", "", "1 for the modelled regime of the machine, 0 for the others"),
    gauge("cawl_writeback_bytes_per_second", "", "Rate at which dirty pages are cleaned, by source"),
    gauge(
        "cawl_dirtying_bytes_per_second",
        "",
        "Rate at which pages are made dirty, by writers: traced or untraced",
    ),
    gauge(
        "cawl_throttled_bytes_per_second",
        "",
        "Rate at which throttled writers are let through; absent if none are",
    ),
    gauge(
        "cawl_model_error_ratio",
        "ratio",
        "Error of one-step predictions over the latest 60 s of writing, by kind",
    ),
    gauge("cawl_forecast_seconds", "seconds", "Until this happens at the present rate; absent if never"),
    gauge("cawl_clients", "", "Programs being traced"),
    counter("cawl_calls", "", "Calls recorded"),
    counter("cawl_written_bytes", "bytes", "Bytes written to files by traced programs"),
    counter(
        "cawl_call_seconds",
        "seconds",
        "Time in calls: observed, predicted, and observed in throttled and sync ones",
    ),
    counter("cawl_dropped_events", "", "Events lost on the way"),
    gauge("cawl_sampler_interval_seconds", "seconds", "Between two looks at the kernel's counters"),
    gauge("cawl_sampler_cpu_ratio", "ratio", "Part of one processor that sampling takes"),
    gauge("cawl_io_pressure_ratio", "ratio", "Part of the latest 10 s in which some task waited for I/O"),
    counter(
        "cawl_paused_seconds",
        "seconds",
        "Time the kernel let writers pause, over all tasks of the machine",
    ),
    counter("cawl_device_calls", "", "Calls that wrote to a device"),
    counter("cawl_device_written_bytes", "bytes", "Bytes written to a device by traced programs"),
    counter("cawl_device_call_seconds", "seconds", "Time in calls to a device, as cawl_call_seconds"),
    gauge("cawl_device_write_bytes_per_second", "", "Rate at which a device writes, whoever asked"),
    gauge("cawl_device_busy_ratio", "ratio", "Part of the time a device was busy"),
    gauge(
        "cawl_device_dirty_bytes",
        "bytes",
        "Dirty bytes of a device, writeback included, as the kernel counts them",
    ),
];

/// Labels of ours, which a node's labels must not be called.
pub const LABELS: &[&str] = &[
    "node", "source", "limit", "state", "writers", "error", "until", "time", "device", "name", "version",
    "model", "mode", "profile", "instance", "job",
];

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
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

    /// Its Content-Type.
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

/// The status as text.
pub fn text(status: &Status, format: Format) -> String {
    let mut common = vec![("node", status.node.as_str())];
    common.extend(status.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut text = Text { out: String::new(), common, format };
    for family in FAMILIES {
        let samples = samples(family.name, status);
        if !samples.is_empty() {
            text.family(family, &samples);
        }
    }
    if format == Format::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

/// Labels and a value.
type Sample<'a> = (Vec<(&'static str, &'a str)>, f64);

fn samples<'a>(name: &str, status: &'a Status) -> Vec<Sample<'a>> {
    let one = |value: f64| vec![(Vec::new(), value)];
    // What is not known has no sample.
    let some = |label: &'static str, values: &[(&'static str, Option<f64>)]| -> Vec<Sample<'a>> {
        values.iter().filter_map(|(word, value)| Some((vec![(label, *word)], (*value)?))).collect()
    };
    let maybe = |value: Option<f64>| value.map(one).unwrap_or_default();
    let times = |cost: &Cost| {
        [
            ("observed", cost.observed_s),
            ("predicted", cost.predicted_s),
            ("throttled", cost.throttled_s),
            ("sync", cost.sync_s),
        ]
    };
    let devices = || status.devices.iter().take(DEVICES);
    let by_device = |value: fn(&crate::protocol::DeviceStatus) -> Option<f64>| -> Vec<Sample<'a>> {
        devices()
            .filter_map(|d| Some((vec![("device", &*d.device), ("name", &*d.name)], value(d)?)))
            .collect()
    };
    match name {
        "cawl_build" => {
            let (version, model, profile) = (&*status.version, &*status.model, &*status.profile);
            let labels =
                [("version", version), ("model", model), ("mode", status.mode.name()), ("profile", profile)];
            vec![(labels.to_vec(), 1.0)]
        }
        "cawl_uptime_seconds" => one(status.uptime_s),
        "cawl_dirty_bytes" => {
            let modelled = Some(status.modelled_dirty_bytes as f64);
            let sampled = status.sampled_dirty_bytes.map(|bytes| bytes as f64);
            some("source", &[("modelled", modelled), ("sampled", sampled)])
        }
        "cawl_dirty_limit_bytes" => {
            let of = |bytes: u64| Some(bytes as f64);
            let (background, freerun) = (of(status.background_bytes), of(status.freerun_bytes));
            some(
                "limit",
                &[("background", background), ("freerun", freerun), ("hard", of(status.hard_bytes))],
            )
        }
        "cawl_state" => {
            let is = |phase: Phase| Some(f64::from(u8::from(status.state == phase)));
            let (free, flush) = (is(Phase::Free), is(Phase::Flush));
            some("state", &[("free", free), ("flush", flush), ("throttle", is(Phase::Throttle))])
        }
        "cawl_writeback_bytes_per_second" => {
            let (modelled, sampled) = (status.writeback_rate, status.sampled_writeback_rate);
            some("source", &[("modelled", modelled), ("sampled", sampled)])
        }
        "cawl_dirtying_bytes_per_second" => {
            let (traced, untraced) = (Some(status.dirtying_rate), Some(status.untraced_rate));
            some("writers", &[("traced", traced), ("untraced", untraced)])
        }
        "cawl_throttled_bytes_per_second" => maybe(status.throttled_rate),
        "cawl_model_error_ratio" => {
            let error = &status.error;
            some("error", &[("total", error.total), ("windowed", error.windowed), ("dirty", error.dirty)])
        }
        "cawl_forecast_seconds" => {
            let forecast = status.forecast.unwrap_or_default();
            let (background, throttle) = (forecast.background_s, forecast.throttle_s);
            some("until", &[("background", background), ("throttle", throttle), ("clean", forecast.clean_s)])
        }
        "cawl_clients" => one(status.clients as f64),
        "cawl_calls" => one(status.calls as f64),
        "cawl_written_bytes" => one(status.bytes as f64),
        "cawl_call_seconds" => some("time", &times(&status.cost).map(|(word, value)| (word, Some(value)))),
        "cawl_dropped_events" => one(status.drops as f64),
        "cawl_sampler_interval_seconds" => one(status.sampler.interval_s),
        "cawl_sampler_cpu_ratio" => one(status.sampler.cpu_fraction),
        "cawl_io_pressure_ratio" => maybe(status.sampler.pressure),
        "cawl_paused_seconds" => maybe(status.sampler.paused_s),
        "cawl_device_calls" => by_device(|device| Some(device.calls as f64)),
        "cawl_device_written_bytes" => by_device(|device| Some(device.bytes as f64)),
        "cawl_device_call_seconds" => devices()
            .flat_map(|d| {
                times(&d.cost).map(|(word, value)| {
                    (vec![("device", &*d.device), ("name", &*d.name), ("time", word)], value)
                })
            })
            .collect(),
        "cawl_device_write_bytes_per_second" => by_device(|device| device.write_rate),
        "cawl_device_busy_ratio" => by_device(|device| device.busy),
        "cawl_device_dirty_bytes" => by_device(|device| device.dirty_bytes.map(|bytes| bytes as f64)),
        _ => Vec::new(),
    }
}

/// A text being written.
struct Text<'a> {
    out: String,
    common: Vec<(&'a str, &'a str)>,
    format: Format,
}

impl Text<'_> {
    fn family(&mut self, family: &Family, samples: &[Sample<'_>]) {
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
        for (labels, value) in samples {
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
    use crate::protocol::{DeviceStatus, ErrorStatus, Forecast};

    /// A status that has everything.
    fn status() -> Status {
        Status {
            node: "a \"b\" \\ c\nd".to_owned(),
            labels: [("rack".to_owned(), "7".to_owned())].into(),
            sampled_dirty_bytes: Some(5),
            sampled_writeback_rate: Some(2.5),
            writeback_rate: Some(1e9),
            throttled_rate: Some(1.0),
            state: Phase::Flush,
            error: ErrorStatus { total: Some(0.1), windowed: Some(0.2), dirty: Some(0.3), calls: 9 },
            forecast: Some(Forecast { throttle_s: Some(3.5), ..Forecast::default() }),
            sampler: crate::protocol::SamplerStatus {
                pressure: Some(0.5),
                paused_s: Some(1.5),
                ..Default::default()
            },
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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
        let document = std::fs::read_to_string(path).unwrap();
        for family in FAMILIES {
            let ending = if family.kind == Kind::Counter { "_total" } else { "" };
            let row = format!("| `{}{ending}` |", family.name);
            assert!(document.contains(&row), "{row} is not in docs/METRICS.md");
        }
        let rows = document.lines().filter(|line| line.starts_with("| `cawl_")).count();
        assert_eq!(rows, FAMILIES.len(), "docs/METRICS.md lists metrics that there are not");
    }
}
