//! A selection that no call fits, and what might have been meant.

use std::collections::BTreeSet;
use std::path::Path;

use cawl_core::{ProcessName, Record, Report};

use crate::render;

/// Names that are suggested.
const NEAREST: usize = 3;
/// Paths that are remembered at most.
const PATHS: usize = 100_000;

/// What a trace has.
#[derive(Default)]
pub struct Known {
    has_calls: bool,
    paths: BTreeSet<String>,
    programs: BTreeSet<String>,
}

impl Known {
    /// Takes the next record.
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Event(_) => self.has_calls = true,
            Record::Session(session) => drop(self.programs.insert(session.program.clone())),
            Record::File(file) if self.paths.len() < PATHS => drop(self.paths.insert(file.path.clone())),
            _ => {}
        }
    }

    /// An error if calls were selected of which there are none.
    pub fn check(&self, report: &Report, trace: &Path) -> anyhow::Result<()> {
        let Some(selection) = report.selection.as_ref().filter(|_| report.calls == 0) else { return Ok(()) };
        anyhow::ensure!(self.has_calls, "the trace has no calls");
        let programs = selection.processes.iter().filter_map(|name| match name {
            ProcessName::Program(glob) => Some(nearest(&self.programs, &glob.to_string())),
            ProcessName::Pid(_) => None,
        });
        let paths = selection.files.iter().map(|glob| nearest(&self.paths, &glob.to_string()));
        let near = |what: &str, near: Vec<&str>| match &near[..] {
            [] => String::new(),
            near => format!("; the nearest {what} are {}", render::shown(&near.join(", "))),
        };
        let near = near("paths", paths.flatten().collect()) + &near("programs", programs.flatten().collect());
        anyhow::bail!(
            "no call was selected{near}; `cawl-cli replay --calls {}` lists them all",
            trace.display()
        )
    }
}

/// The names that resemble a pattern most.
fn nearest<'a>(names: &'a BTreeSet<String>, pattern: &str) -> Vec<&'a str> {
    let text = pattern.replace(['*', '?'], "");
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let likeness =
        |path: &str| strsim::jaro_winkler(&text, path).max(strsim::jaro_winkler(&last(&text), &last(path)));
    let mut names: Vec<(f64, &str)> = names.iter().map(|name| (likeness(name), &**name)).collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    names.into_iter().take(NEAREST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::FileFacts;

    #[test]
    fn paths_of_nearly_that_name_come_first() {
        let mut known = Known::default();
        for path in ["/etc/passwd", "/data/app/orders.db-wal", "/data/app/orders.db", "/tmp/x"] {
            known.take(&Record::File(FileFacts { path: path.to_owned(), ..FileFacts::default() }));
        }
        assert_eq!(
            nearest(&known.paths, "order.db")[..2],
            ["/data/app/orders.db", "/data/app/orders.db-wal"]
        );
        assert_eq!(nearest(&known.paths, "/data/*/oders.db")[0], "/data/app/orders.db");
    }
}
