//! Folders of recorded runs ([`RecordedRun`]).
//!
//! The law: a folder of recordings says everything in three texts, and nothing is guessed. `NAME.csv` holds
//! the calls (see [`CsvImporter`]), `NAME.dirty` the samples, one a line (seconds, then in pages nr_dirty,
//! nr_writeback, nr_dirty_background_threshold, nr_dirty_threshold, nr_written, nr_dirtied), and `suite.json`
//! the arguments of each run: `-f d` stands for O_DIRECT, `-f s` for O_SYNC, `-l` for fwrite, `-s` for fsync,
//! `REWRITE=1` for a file that was written, synced and cached before. Its `device` describes the disk:
//! `seek=4` among its words, or the third of four numbers with commas between, is the seek time in ms.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail};
use cawl_core::{Rate, Record, Sample, Time};
use cawl_import::{CsvImporter, CsvOptions, Importer};
use cawl_wire::{Event, FileKind, Op, flag};
use serde::Deserialize;

use super::run::{RecordedRun, RunArgs};

/// Checks by which a run was throttled rather than touched by the throttling of others.
const THROTTLED: u32 = 16;

/// What `suite.json` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// Names of the runs and how they were made, in the order of their names.
    pub runs: BTreeMap<String, RunArgs>,
}

impl Suite {
    /// Reads `suite.json`.
    pub fn parse(json: &str) -> anyhow::Result<Suite> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            device: String,
            scenarios: BTreeMap<String, Scenario>,
        }
        #[derive(Deserialize)]
        struct Scenario {
            args: String,
            #[serde(default)]
            env: String,
        }
        // As text, not as a source: it would be told twice.
        let file: File =
            serde_json::from_str(json).map_err(|error| anyhow!("suite.json cannot be read: {error}"))?;
        let seek = seek(&file.device);
        let mut runs = BTreeMap::new();
        for (name, scenario) in file.scenarios {
            let args = run_args(&scenario.args, &scenario.env)
                .map_err(|argument| anyhow!("suite.json: run {name}: `{argument}` makes no sense"))?;
            runs.insert(name, RunArgs { seek, ..args });
        }
        Ok(Suite { runs })
    }
}

/// Reads a run's arguments and environment; on failure, the argument at fault.
pub fn run_args(args: &str, env: &str) -> Result<RunArgs, String> {
    let mut run = RunArgs::default();
    let mut words = args.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "-l" => run.stream = true,
            "-s" => run.fsync = true,
            "-r" => run.random = true,
            _ => {
                let value = words.next().ok_or(word)?;
                match word {
                    "-c" => run.chunk = value.parse().map_err(|_| value)?,
                    "-t" => run.total = value.parse().map_err(|_| value)?,
                    "-b" => run.back = (value.parse::<f64>().map_err(|_| value)? * 1000.0) as u32,
                    "-f" => (run.direct, run.sync) = (value.contains('d'), value.contains('s')),
                    "-d" => drop(value.parse::<f64>().map_err(|_| value)?),
                    _ => return Err(word.to_owned()),
                }
            }
        }
    }
    run.rewrite = env.split_whitespace().any(|setting| setting == "REWRITE=1");
    Ok(run)
}

/// Flags ([`flag`]) that a run's file was open with.
pub fn flags_of(args: &RunArgs) -> u32 {
    (u32::from(args.direct) * flag::DIRECT) | (u32::from(args.sync) * flag::SYNC)
}

/// Reads a run from the text of its calls and of its samples.
pub fn recorded_run(name: &str, args: RunArgs, csv: &str, dirty: &str) -> anyhow::Result<RecordedRun> {
    let about = || format!("the calls of {name}");
    let options = CsvOptions { flags: flags_of(&args), program: name.to_owned(), ..CsvOptions::default() };
    let mut importer = CsvImporter::new(options);
    let mut records = Vec::new();
    for line in csv.lines() {
        importer.line(line.as_bytes(), &mut records).with_context(about)?;
    }
    importer.finish(&mut records).with_context(about)?;
    let of_call = |record| if let Record::Event(event) = record { Some(event) } else { None };
    let mut events: Vec<Event> = records.into_iter().filter_map(of_call).collect();
    if args.rewrite
        && let Some(first) = events.first().copied()
    {
        events.insert(0, cached_before(&first, args.total));
    }
    let samples = samples(name, dirty)?;
    Ok(RecordedRun { name: name.to_owned(), args, events, samples, base_rate: None })
}

/// A run with what the tracepoints `writeback:balance_dirty_pages` tell of the base rate (`dirty_ratelimit`,
/// in KiB/s): those of the device that has the most of them, and more than a few, since others are written to
/// at the same time.
pub fn with_tracepoints(run: RecordedRun, trace: &str) -> RecordedRun {
    let mut devices: BTreeMap<&str, (u32, f64)> = BTreeMap::new();
    for line in trace.lines().filter(|line| line.contains("balance_dirty_pages:")) {
        let mut words = line.split_whitespace().skip_while(|word| *word != "bdi").skip(1);
        let device = words.next();
        let rate = words.find_map(|word| word.strip_prefix("dirty_ratelimit=")?.parse::<f64>().ok());
        if let (Some(device), Some(rate)) = (device, rate) {
            let seen = devices.entry(device).or_default();
            *seen = (seen.0 + 1, rate * 1024.0);
        }
    }
    let most = devices.into_values().max_by_key(|seen| seen.0).filter(|seen| seen.0 >= THROTTLED);
    RecordedRun { base_rate: most.map(|seen| Rate::per_second(seen.1)), ..run }
}

/// What is said about a disk of its seek time, in ns; 0 if that makes no sense.
fn seek(device: &str) -> u64 {
    let named = device.split_whitespace().find_map(|word| word.strip_prefix("seek="));
    // Bandwidth, latency, seek, flush, as the emulated disk of the tests is told.
    let third = device.split(',').nth(2).filter(|_| device.split(',').count() >= 4);
    let ms: f64 = named.or(third).and_then(|text| text.trim().parse().ok()).unwrap_or(0.0);
    (ms * 1e6) as u64
}

/// The state a rewritten file begins in, as a call that brings it about: all of it was read.
fn cached_before(first: &Event, bytes: u64) -> Event {
    let mut read = Event::new(Op::Pread);
    (read.dev, read.ino, read.pid, read.tid) = (first.dev, first.ino, first.pid, first.tid);
    (read.offset, read.requested, read.returned) = (0, bytes, bytes as i64);
    read.kind = FileKind::Regular;
    read
}

fn samples(name: &str, text: &str) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let lines = text.lines().count();
    for (number, line) in (1..).zip(text.lines()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let counts: Vec<u64> = fields.iter().skip(1).filter_map(|field| field.parse().ok()).collect();
        let seconds = fields.first().and_then(|field| field.parse::<f64>().ok());
        match (seconds, counts.as_slice()) {
            (Some(seconds), &[dirty, writeback, background, hard, written, dirtied]) => {
                samples.push(Sample {
                    time: Time((seconds * 1e9) as u64),
                    dirty,
                    writeback,
                    background,
                    hard,
                    written,
                    dirtied,
                })
            }
            // The sampler may have been stopped in the middle of its last line.
            _ if number == lines => {}
            _ => bail!("the samples of {name}, line {number}: seven numbers are needed"),
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite() {
        let json = r#"{"device": "x", "scenarios": {"a": {"args": "-c 10 -t 100 -f ds -b 0.5", "env": ""},
            "b": {"args": "-l -c 4", "env": "REWRITE=1 SPIN=1"}}}"#;
        let suite = Suite::parse(json).unwrap();
        let expected =
            RunArgs { chunk: 10, total: 100, direct: true, sync: true, back: 500, ..RunArgs::default() };
        assert_eq!(suite.runs["a"], expected);
        assert!(suite.runs["b"].stream && suite.runs["b"].rewrite);
        assert!(Suite::parse(r#"{"scenarios": {"a": {"args": "-q 1"}}}"#).is_err());
        let disk = r#"{"device": "bw=150 seek=4.5 flush=8", "scenarios": {"a": {"args": "-c 1"}}}"#;
        assert_eq!((suite.runs["a"].seek, Suite::parse(disk).unwrap().runs["a"].seek), (0, 4_500_000));
        assert_eq!(
            (seek("120,80,3,20"), seek("hdd"), seek("a,b,c,d"), seek("bw=1 seek=")),
            (3_000_000, 0, 0, 0)
        );
    }

    #[test]
    fn tracepoints_tell_the_last_base_rate_of_the_device_that_is_written_to() {
        let line = |bdi: &str, rate: u32| {
            format!(
                " w-1 [0] ..... 5.1: balance_dirty_pages: bdi {bdi}: limit=9 dirty_ratelimit={rate} task_ratelimit=7\n"
            )
        };
        let text =
            [line("254:0", 5), line("7:0", 900).repeat(20), line("254:0", 6).repeat(3), line("7:0", 700)];
        let other = " w-1 [0] ..... 5.2: bdi_dirty_ratelimit: bdi 7:0: dirty_ratelimit=1\n";
        let run = with_tracepoints(RecordedRun::default(), &(text.concat() + &line("254:0", 4) + other));
        assert_eq!(run.base_rate, Some(Rate::per_second(700.0 * 1024.0)));
        assert_eq!(with_tracepoints(RecordedRun::default(), &line("254:0", 4).repeat(3)).base_rate, None);
    }

    #[test]
    fn a_run() {
        let args = RunArgs { direct: true, ..RunArgs::default() };
        let csv = "start_s,op,offset,size,duration_s\n0.1,write,0,4096,0.001\n";
        let dirty = "0.05 1 2 3 4 5 6\n0.2 1 2 3 4 5 6\n0.3 1";
        let run = recorded_run("x", args, csv, dirty).unwrap();
        assert_eq!((run.events.iter().filter(|e| e.op == Op::Write).count(), run.samples.len()), (1, 2));
        assert!(run.events.iter().find(|e| e.op == Op::Write).unwrap().has(flag::DIRECT));
        assert!(matches!(run.records().next(), Some(Record::Sample(_)) | Some(Record::Event(_))));
        assert!(recorded_run("x", RunArgs::default(), csv, "0.05 1 2\n1 1 1 1 1 1 1\n").is_err());
    }
}
