//! The stream: the cost of a call that stays in its buffer, measured by an embedded C program, since programs
//! use the C library's streams.

use std::process::Stdio;

use anyhow::{Context, bail};
use cawl_core::{Estimate, Line};

use crate::embedded::embedded;

/// The program, as built by build.rs.
const PROGRAM: &[u8] = include_bytes!(env!("CAWL_STREAM"));

/// Times per byte and per call, in ns.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Per byte.
    pub copy: Option<Estimate>,
    /// Per call.
    pub call: Option<Estimate>,
    /// Of the first call of a stream beyond the read that it makes.
    pub buffer: Option<Estimate>,
}

/// Runs the program and fits its figures.
pub fn measure() -> anyhow::Result<Stream> {
    let (_program, mut command) = embedded(c"cawl-stream", PROGRAM)?;
    let output = command
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("the program that measures streams cannot be run")?;
    if !output.status.success() {
        bail!("the program that measures streams failed: {}", output.status);
    }
    Ok(fit(&String::from_utf8_lossy(&output.stdout)))
}

/// A line through each round of `SIZE NANOSECONDS` lines; sizes grow within a round. The lines of
/// `buffer NANOSECONDS` are samples, of which the first one warms up.
fn fit(text: &str) -> Stream {
    let mut rounds: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut buffers = Vec::new();
    for (size, time) in text.lines().filter_map(|line| line.split_once(' ')) {
        if size == "buffer" {
            buffers.extend(time.parse::<f64>().map(|time| time.max(0.0)));
            continue;
        }
        let (Ok(size), Ok(time)) = (size.parse(), time.parse()) else { continue };
        match rounds.last_mut() {
            Some(round) if round.last().is_some_and(|(last, _)| *last < size) => round.push((size, time)),
            _ => rounds.push(vec![(size, time)]),
        }
    }
    let lines: Vec<Line> = rounds.iter().filter_map(|round| Line::through(round)).collect();
    let estimate = |part: fn(&Line) -> f64| Estimate::of(&lines.iter().map(part).collect::<Vec<_>>());
    let buffer = Estimate::of(buffers.get(1..).unwrap_or_default());
    Stream { copy: estimate(|line| line.slope), call: estimate(|line| line.intercept), buffer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_told_apart() {
        let stream = fit(
            "buffer 5000\n8 11\n1000 110\nbuffer 900\n8 11\n1000 110\nnoise\n8 13\n1000 112\nbuffer 910\n",
        );
        assert_eq!(stream.buffer.map(|buffer| (buffer.value, buffer.samples)), Some((905.0, 2)));
        let call = stream.call.unwrap();
        assert_eq!(call.samples, 3);
        assert!((call.value - 10.2).abs() < 0.1 && (stream.copy.unwrap().value - 0.0998).abs() < 1e-3);
    }

    #[test]
    fn the_program_runs() {
        let stream = measure().unwrap();
        assert!(stream.copy.unwrap().value > 0.0 && stream.call.unwrap().samples > 5);
        assert!(stream.buffer.unwrap().value > 0.0);
    }
}
