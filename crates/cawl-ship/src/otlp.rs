//! A collector of OpenTelemetry, or what else takes OTLP as JSON over HTTP.
//!
//! The protocol says which answers allow another attempt: 429, 502, 503 and 504, after the wait that they
//! name. What is answered otherwise must not be sent again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use http::Request;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, ReqwestConnector};
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::folder::{Deliver, Failure};
use crate::tell;

/// The variable with headers, `name=value,…`, as exporters of OpenTelemetry have it.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Time for a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Letters of an answer that are told.
const TOLD: usize = 300;

/// The receiver.
pub struct Collector {
    base: String,
    headers: Vec<(String, String)>,
    client: HttpClient,
    runtime: Runtime,
}

/// The first line of a file.
#[derive(Deserialize)]
struct Facts {
    rows: String,
}

impl Collector {
    /// At `http://…` or `https://…`, before `/v1/metrics`.
    pub fn new(url: &str) -> anyhow::Result<Collector> {
        let options = ClientOptions::new().with_allow_http(true).with_timeout(TIMEOUT);
        let client = ReqwestConnector::default().connect(&options).context("no client of HTTP")?;
        let header = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim().to_owned(), value.into_owned()))
        };
        let told = std::env::var(HEADERS).unwrap_or_default();
        let pairs = told.split(',').filter(|pair| !pair.trim().is_empty());
        let headers: Option<Vec<_>> = pairs.map(header).collect();
        let headers = headers.with_context(|| format!("{HEADERS} is to have name=value,…"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let collector = Collector { base: url.trim_end_matches('/').to_owned(), headers, client, runtime };
        let what = || format!("the address or {HEADERS} cannot be used");
        collector.request("v1/metrics", String::new()).with_context(what)?;
        Ok(collector)
    }

    fn request(&self, path: &str, body: String) -> anyhow::Result<HttpRequest> {
        let request =
            Request::post(format!("{}/{path}", self.base)).header("Content-Type", "application/json");
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        Ok(request.body(body.into())?)
    }

    /// Status, the wait that is asked for, and what the answer says.
    async fn post(&self, request: HttpRequest) -> anyhow::Result<(u16, Option<Duration>, Vec<u8>)> {
        let answer = self.client.execute(request).await?;
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
        let status = answer.status().as_u16();
        Ok((status, after.map(Duration::from_secs), answer.into_body().bytes().await?.to_vec()))
    }
}

impl Deliver for Collector {
    fn deliver(&mut self, file: &Path, key: &str) -> Result<u64, Failure> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let read = || {
            let (facts, body) = text.split_once('\n').context("it has no request")?;
            let rows = serde_json::from_str::<Facts>(facts)?.rows.parse::<u64>()?;
            let (path, _) = key.rsplit_once('/').context("its folder does not say what it is")?;
            anyhow::Ok((rows, self.request(path, body.to_owned())?))
        };
        let (rows, request) = read()
            .with_context(|| format!("{} is no file of `cawld --otlp`", file.display()))
            .map_err(|error| Failure::Refused(error, 0))?;
        let cannot = || format!("cannot deliver {} to {}", file.display(), self.base);
        let (status, after, said) = self.runtime.block_on(self.post(request)).with_context(cannot)?;
        if (200..300).contains(&status) {
            return Ok(rejected(&said));
        }
        let said: String = String::from_utf8_lossy(&said).trim().chars().take(TOLD).collect();
        let hint = match status {
            404 | 405 => " (the address may be wrong: it is the base, before /v1/metrics and /v1/traces)",
            _ => "",
        };
        let error = anyhow!("status {status}{hint}: {said}").context(cannot());
        Err(match status {
            429 | 502..=504 => Failure::Later(error, after),
            _ => Failure::Refused(error, rows),
        })
    }
}

/// Data points or spans that were not taken of a request that was, which is said.
fn rejected(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    // 64 bits are a string in the JSON of protobuf, or a number.
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0);
    let count = number(&partial["rejectedDataPoints"]) + number(&partial["rejectedSpans"]);
    let why = partial["errorMessage"].as_str().unwrap_or_default();
    if count > 0 || !why.is_empty() {
        let why: String = why.chars().take(TOLD).collect();
        tell(&format!("the collector did not take {count} data points or spans: {why}"));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::rejected;

    #[test]
    fn what_a_partial_success_says_is_counted() {
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"old"}}"#), 3);
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":2}}"#), 2);
        assert_eq!(rejected(br#"{"partialSuccess":{}}"#), 0);
        assert_eq!(rejected(b"{}"), 0);
        assert_eq!(rejected(b"<html>"), 0);
    }
}
