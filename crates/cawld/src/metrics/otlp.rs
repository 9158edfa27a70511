//! The same metrics as a request of OTLP in JSON: counters are cumulative sums, called as in OpenMetrics
//! without `_total`, so that exporters to Prometheus give them the names of `/metrics`.

use cawl_client::protocol::Status;
use serde_json::{Value, json};

use super::{FAMILIES, Family, Kind, Labelled};
use cawl_export::otlp::{scope, text};

/// A request for `/v1/metrics`, and the number of its data points. Times in ns since 1970: when the counters
/// began, and when the status was.
pub fn request(status: &Status, host: &str, began: u64, at: u64) -> (Value, usize) {
    let mut points = 0;
    let mut metric = |family: &Family| {
        let values = (family.values)(status);
        points += values.len();
        (!values.is_empty()).then(|| metric(family, &values, began, at))
    };
    let metrics: Vec<Value> = FAMILIES.iter().filter_map(&mut metric).collect();
    let own = [
        ("service.name", "cawld"),
        ("service.version", &status.version),
        ("service.instance.id", &status.node),
        ("host.name", host),
        ("node", &status.node),
    ];
    let labels = status.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let attributes: Vec<Value> = own.into_iter().chain(labels).map(|(key, value)| text(key, value)).collect();
    let metrics = json!([{ "scope": scope(), "metrics": metrics }]);
    let resource = json!({ "resource": { "attributes": attributes }, "scopeMetrics": metrics });
    (json!({ "resourceMetrics": [resource] }), points)
}

fn metric(family: &Family, values: &[Labelled<'_>], began: u64, at: u64) -> Value {
    let point = |(labels, value): &Labelled<'_>| {
        let attributes: Vec<Value> = labels.iter().map(|(key, value)| text(key, value)).collect();
        let (began, at) = (began.to_string(), at.to_string());
        json!({ "attributes": attributes, "startTimeUnixNano": began, "timeUnixNano": at, "asDouble": value })
    };
    let points: Vec<Value> = values.iter().map(point).collect();
    // As UCUM has them.
    let unit = match family.unit {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        other => other,
    };
    let mut metric = json!({ "name": family.name, "unit": unit, "description": family.help });
    match family.kind {
        Kind::Gauge => metric["gauge"] = json!({ "dataPoints": points }),
        Kind::Counter => {
            // Cumulative.
            metric["sum"] = json!({ "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": points });
        }
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Format, text};

    #[test]
    fn each_sample_of_the_text_is_a_point() {
        let mut status = Status { node: "n".to_owned(), calls: 7, ..Status::default() };
        status.labels.insert("rack".to_owned(), "7".to_owned());
        let (request, points) = request(&status, "h", 3, 5);
        let text = text(&status, Format::OpenMetrics);
        assert_eq!(points, text.lines().filter(|line| !line.starts_with('#')).count());
        let metrics = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        let calls = metrics.iter().find(|metric| metric["name"] == "cawl_calls").unwrap();
        let expected = json!({ "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [{
            "attributes": [], "startTimeUnixNano": "3", "timeUnixNano": "5", "asDouble": 7.0,
        }] });
        assert_eq!(calls["sum"], expected);
        let uptime = metrics.iter().find(|metric| metric["name"] == "cawl_uptime_seconds").unwrap();
        assert_eq!(
            (&uptime["unit"], uptime["gauge"]["dataPoints"].as_array().unwrap().len()),
            (&json!("s"), 1)
        );
    }
}
