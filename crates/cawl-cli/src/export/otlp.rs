//! A run as traces of OpenTelemetry: a request of OTLP in JSON, when all calls are known.

use std::io::{self, Write};

use cawl_core::{Causes, Record, Report};
use cawld::otlp::Spans;

use super::{About, Call, Exporter, Output};

/// How an export begins and what it has.
pub fn is_one(head: &str) -> bool {
    head.starts_with("{\"resourceSpans\":") && head.contains("\"cawl.")
}

pub struct Otlp {
    out: Output,
    spans: Spans,
}

impl Otlp {
    pub fn new(out: Output, about: &About<'_>) -> Otlp {
        let wall = about.host.map_or(0, |host| host.wall_clock * 1_000_000_000);
        let epoch = wall.saturating_sub(about.host.map_or(0, |host| host.started.0));
        let host = about.host.map_or("", |host| &host.host);
        Otlp { out, spans: Spans::new(host, epoch, Vec::new(), usize::MAX) }
    }
}

impl Exporter for Otlp {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Session(session) => self.spans.begin(session),
            Record::End(end) => self.spans.end(end),
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        if let (Some(times), Some(own)) = (call.causes, call.own) {
            let predicted = call.prediction().map(|prediction| prediction.cost);
            self.spans.call(call.event, Causes { times, own, main: times.main() }, predicted, || call.path);
        }
        Ok(())
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &self.spans.drain(true, None).request())?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}
