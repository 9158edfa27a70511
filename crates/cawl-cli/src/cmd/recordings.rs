//! Folders of recorded runs: suite.json, and NAME.csv and NAME.dirty for each run, plain or gzipped; NAME.trace if there
//! is one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use cawl_core::{RecordedRun, Suite};
use flate2::read::MultiGzDecoder;

/// Reads the runs of a folder; all of them if none are named, in any case without those to leave out.
pub fn read(dir: &Path, named: &[String], left_out: &[String]) -> anyhow::Result<Vec<RecordedRun>> {
    let suite = Suite::parse(&text(&dir.join("suite.json"))?)
        .with_context(|| format!("cannot use {}", dir.join("suite.json").display()))?;
    for name in named.iter().chain(left_out) {
        if !suite.runs.contains_key(name) {
            let known: Vec<&str> = suite.runs.keys().map(String::as_str).collect();
            bail!("{} has no run `{name}`; its runs are {}", dir.display(), known.join(", "));
        }
    }
    let wanted = |name: &String| (named.is_empty() || named.contains(name)) && !left_out.contains(name);
    let mut runs = Vec::new();
    for (name, args) in suite.runs.into_iter().filter(|(name, _)| wanted(name)) {
        let csv = text(&dir.join(format!("{name}.csv")))?;
        let dirty = text(&dir.join(format!("{name}.dirty")))?;
        let run = RecordedRun::parse(&name, args, &csv, &dirty);
        runs.push(run.with_context(|| format!("cannot use the recordings in {}", dir.display()))?);
    }
    Ok(runs)
}

/// The runs with what their tracepoints tell, where there are any. Not for runs that are to be predicted.
pub fn traced(dir: &Path, runs: Vec<RecordedRun>) -> anyhow::Result<Vec<RecordedRun>> {
    let with_trace = |run: RecordedRun| {
        let path = dir.join(format!("{}.trace", run.name));
        let there = path.exists() || path.with_extension("trace.gz").exists();
        if there { Ok(run.traced(&text(&path)?)) } else { Ok(run) }
    };
    runs.into_iter().map(with_trace).collect()
}

/// A file's text, or that of its gzipped form, unpacked if it begins like gzip.
fn text(path: &Path) -> anyhow::Result<String> {
    let mut gzipped = path.as_os_str().to_owned();
    gzipped.push(".gz");
    let file = File::open(path)
        .or_else(|_| File::open(&gzipped))
        .with_context(|| format!("cannot open {} or its gzipped form", path.display()))?;
    let mut file = BufReader::new(file);
    let packed = file.fill_buf().is_ok_and(|head| head.starts_with(&[0x1f, 0x8b]));
    let mut text = String::new();
    let read = if packed {
        MultiGzDecoder::new(file).read_to_string(&mut text)
    } else {
        file.read_to_string(&mut text)
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}
