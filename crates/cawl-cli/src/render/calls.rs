//! One line per call.

use std::io::{self, Write};

use cawl_core::{Bytes, Nanos, Shown, is_durationless, moved_bytes};
use cawl_wire::{Event, Op, UNKNOWN_OFFSET};
use serde::Serialize;

use super::shown;

pub struct CallPrinter {
    models: Vec<&'static str>,
    json: bool,
    first: Option<u64>,
    is_headed: bool,
}

/// A call in JSON. Times in seconds, sizes in bytes.
#[derive(Serialize)]
struct CallLine<'a> {
    /// Its number in the trace, from 1.
    call: u64,
    time_s: f64,
    pid: u32,
    tid: u32,
    op: &'a str,
    path: &'a str,
    offset: Option<u64>,
    size: u64,
    /// None: nobody recorded it.
    observed_s: Option<f64>,
    predictions: Vec<PredictionLine<'a>>,
}

#[derive(Serialize)]
struct PredictionLine<'a> {
    model: &'a str,
    state: &'a str,
    dirty: u64,
    predicted_s: f64,
}

impl CallPrinter {
    pub fn new(models: &[&'static str], json: bool) -> CallPrinter {
        CallPrinter { models: models.to_vec(), json, first: None, is_headed: false }
    }

    /// Prints a call, if it is one that the report is about.
    pub fn print(
        &mut self,
        out: &mut impl Write,
        event: &Event,
        path: &str,
        Shown { number, predictions, selected, .. }: Shown<'_>,
    ) -> io::Result<()> {
        let time = event.start.saturating_sub(*self.first.get_or_insert(event.start)) as f64 / 1e9;
        if !selected {
            return Ok(());
        }
        let offset = (event.offset != UNKNOWN_OFFSET).then_some(event.offset);
        let size = match event.op {
            Op::StreamWrite => event.returned.max(0) as u64,
            _ if event.returned >= 0 => moved_bytes(event),
            _ => event.requested,
        };
        let observed = (!is_durationless(event)).then(|| Nanos::new(event.duration as f64));
        if self.json {
            let predictions = self.models.iter().zip(predictions).filter_map(|(model, p)| {
                p.map(|p| PredictionLine {
                    model,
                    state: p.state.name(),
                    dirty: p.dirty.0,
                    predicted_s: p.cost.as_seconds(),
                })
            });
            let line = CallLine {
                call: number,
                time_s: time,
                pid: event.pid,
                tid: event.tid,
                op: event.op.name(),
                path,
                offset,
                size,
                observed_s: observed.map(|observed| observed.as_seconds()),
                predictions: predictions.collect(),
            };
            return super::json::line(out, &line);
        }
        if !std::mem::replace(&mut self.is_headed, true) {
            write!(
                out,
                "{:>9} {:>14} {:>8} {:<10} {:>14} {:>10} {:<9} {:>10} {:>10}",
                "CALL", "TIME", "PID", "OP", "OFFSET", "SIZE", "STATE", "DIRTY", "OBSERVED"
            )?;
            for model in &self.models {
                write!(out, " {:>10}", model.to_uppercase())?;
            }
            writeln!(out, "  FILE")?;
        }
        let primary = predictions.first().copied().flatten();
        write!(
            out,
            "{number:>9} {time:>12.6} s {:>8} {:<10} {:>14} {:>10} {:<9} {:>10} {:>10}",
            event.pid,
            event.op.name(),
            offset.map_or("-".to_owned(), |offset| offset.to_string()),
            Bytes(size),
            primary.map_or("-", |p| p.state.name()),
            primary.map_or("-".to_owned(), |p| p.dirty.to_string()),
            observed.map_or("-".to_owned(), |observed| observed.to_string()),
        )?;
        for prediction in predictions {
            write!(out, " {:>10}", prediction.map_or("-".to_owned(), |p| p.cost.to_string()))?;
        }
        writeln!(out, "  {}", shown(path))
    }
}
