//! Folders of recorded runs: suite.json, and for each run NAME.csv and NAME.dirty, plain or gzipped, and
//! optionally NAME.trace.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::recorded::{RecordedRun, Suite, recorded_run, with_tracepoints};
use anyhow::Context;
use cawl_console::exit;
use cawl_console::inputs::unpacked;

/// Reads the named runs of a folder (all if none are named) except those to leave out.
pub fn read(dir: &Path, named: &[String], left_out: &[String]) -> anyhow::Result<Vec<RecordedRun>> {
    let suite = Suite::parse(&text(&dir.join("suite.json"))?)
        .with_context(|| format!("cannot use {}", dir.join("suite.json").display()))?;
    for name in named.iter().chain(left_out) {
        exit::usage(suite.runs.contains_key(name), || {
            let known: Vec<&str> = suite.runs.keys().map(String::as_str).collect();
            format!("{} has no run `{name}`; its runs are {}", dir.display(), known.join(", "))
        })?;
    }
    let wanted = |name: &String| (named.is_empty() || named.contains(name)) && !left_out.contains(name);
    let mut runs = Vec::new();
    for (name, args) in suite.runs.into_iter().filter(|(name, _)| wanted(name)) {
        let csv = text(&dir.join(format!("{name}.csv")))?;
        let dirty = text(&dir.join(format!("{name}.dirty")))?;
        let run = recorded_run(&name, args, &csv, &dirty);
        runs.push(run.with_context(|| format!("cannot use the recordings in {}", dir.display()))?);
    }
    exit::usage(!runs.is_empty(), || format!("--runs and --exclude leave no run of {}", dir.display()))?;
    Ok(runs)
}

/// Adds what the runs' tracepoints tell, where they were recorded. Not for runs that are to be predicted.
pub fn traced(dir: &Path, runs: Vec<RecordedRun>) -> anyhow::Result<Vec<RecordedRun>> {
    let with_trace = |run: RecordedRun| {
        let path = dir.join(format!("{}.trace", run.name));
        let there = path.exists() || path.with_extension("trace.gz").exists();
        if there { Ok(with_tracepoints(run, &text(&path)?)) } else { Ok(run) }
    };
    runs.into_iter().map(with_trace).collect()
}

/// The text of a file or of its gzipped form, unpacked.
fn text(path: &Path) -> anyhow::Result<String> {
    let mut gzipped = path.as_os_str().to_owned();
    gzipped.push(".gz");
    let gzipped = Path::new(&gzipped);
    let (file, path) = match File::open(path) {
        Ok(file) => (file, path),
        Err(error) if error.kind() == ErrorKind::NotFound && gzipped.exists() => {
            let file = File::open(gzipped).with_context(|| format!("cannot open {}", gzipped.display()))?;
            (file, gzipped)
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot open {} or its gzipped form", path.display()));
        }
    };
    unpacked(file).and_then(io::read_to_string).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    /// Reads a suite of one run with these calls; returns the error message or an empty string.
    fn said(name: &str, suite: &str, calls: &str, exclude: &[String]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs::write(dir.join("suite.json"), suite).unwrap();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(calls.as_bytes()).unwrap();
        let mut packed = packed.finish().unwrap();
        if name == "torn" {
            packed.truncate(packed.len() - 12);
        }
        fs::write(dir.join("a.csv.gz"), packed).unwrap();
        fs::write(dir.join("a.dirty"), "0 0 0 100 200 0 0\n").unwrap();
        read(dir, &[], exclude)
            .map_or_else(|error| format!("{error:#}"), |runs| format!("{} run", runs.len()))
    }

    #[test]
    fn what_is_wrong_is_told_once_and_names_the_file() {
        let suite = r#"{"scenarios":{"a":{"args":"-c 4096 -t 4096"}}}"#;
        let calls = "start_s,op,offset,size,duration_s\n0,write,0,4096,0.001\n";
        let whole = said("whole", suite, calls, &[]);
        assert_eq!(whole, "1 run");
        assert!(said("torn", suite, calls, &[]).contains("a.csv.gz: "));
        let none = said("none", suite, calls, &["a".to_owned()]);
        assert!(none.contains("leave no run"), "{none}");
        let broken = said("broken", "{", calls, &[]);
        assert_eq!(broken.matches("EOF").count(), 1, "{broken}");
    }
}
