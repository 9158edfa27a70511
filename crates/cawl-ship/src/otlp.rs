//! A collector of OpenTelemetry, or what else takes OTLP as JSON over HTTP.
//!
//! The protocol says which answers allow another attempt: 429, 502, 503 and 504, after the wait that they
//! name. What is answered otherwise must not be sent again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::redirect::Policy;
use reqwest::{Client, Request};
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
/// Bytes of an answer that are read, about.
const READ: usize = 1 << 16;

/// The receiver.
pub struct Collector {
    base: String,
    headers: Vec<(String, String)>,
    client: Client,
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
        // A redirect would lose the body, or show the headers, which may have a key, to another host.
        let client = Client::builder().redirect(Policy::none()).timeout(TIMEOUT);
        let client = client.build().context("no client of HTTP")?;
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

    fn request(&self, path: &str, body: String) -> anyhow::Result<Request> {
        let request =
            self.client.post(format!("{}/{path}", self.base)).header("Content-Type", "application/json");
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        Ok(request.body(body).build()?)
    }

    /// Status, the wait that is asked for, and what the answer says.
    async fn post(&self, request: Request) -> anyhow::Result<(u16, Option<Duration>, Vec<u8>)> {
        let mut answer = self.client.execute(request).await?;
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
        let status = answer.status().as_u16();
        let mut said = Vec::new();
        while said.len() < READ {
            let Some(part) = answer.chunk().await? else { break };
            said.extend_from_slice(&part);
        }
        Ok((status, after.map(Duration::from_secs), said))
    }
}

impl Deliver for Collector {
    fn deliver(&mut self, file: &Path, key: &str) -> Result<u64, Failure> {
        let read = || {
            let text = std::fs::read_to_string(file)?;
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
            return Ok(rejected(&said, rows));
        }
        let said = plain(String::from_utf8_lossy(&said).trim());
        let hint = match status {
            300..=399 => " (it sends elsewhere: give cawld the address that it names)",
            404 | 405 => " (the address may be wrong: it is the base, before /v1/metrics and /v1/traces)",
            _ => "",
        };
        let error = anyhow!("status {status}{hint}: {said}").context(cannot());
        Err(match status {
            // Nobody took it, and the address can be mended.
            300..=399 | 429 | 502..=504 => Failure::Later(error, after),
            _ => Failure::Refused(error, rows),
        })
    }
}

/// The begin of a receiver's text, for a terminal.
fn plain(text: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().take(TOLD).map(escaped).collect()
}

/// Data points or spans that were not taken of a request that was, of so many, which is said.
fn rejected(answer: &[u8], rows: u64) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    // 64 bits are a string in the JSON of protobuf, or a number.
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0);
    let count = number(&partial["rejectedDataPoints"]).saturating_add(number(&partial["rejectedSpans"]));
    let count = count.min(rows);
    let why = plain(partial["errorMessage"].as_str().unwrap_or_default());
    if count > 0 || !why.is_empty() {
        tell(&format!("the collector did not take {count} data points or spans: {why}"));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{plain, rejected};

    #[test]
    fn what_a_partial_success_says_is_counted() {
        let most = br#"{"partialSuccess":{"rejectedSpans":"18446744073709551615","rejectedDataPoints":9}}"#;
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"old"}}"#, 9), 3);
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":2}}"#, 9), 2);
        assert_eq!(rejected(most, 9), 9);
        assert_eq!(rejected(br#"{"partialSuccess":{}}"#, 9), 0);
        assert_eq!((rejected(b"{}", 9), rejected(b"<html>", 9)), (0, 0));
        assert_eq!(plain("a\x1b[31m\nb"), "a\\u{1b}[31m\\nb");
    }
}
