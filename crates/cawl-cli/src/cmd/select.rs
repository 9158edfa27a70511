//! A selection that no call fits, and what might have been meant.

use std::collections::BTreeSet;
use std::path::Path;

use cawl_core::{ProcessName, Record, Report, Selection, Selector};

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
    ops: BTreeSet<&'static str>,
    /// Each part of the selection by itself, but for causes; and all together.
    parts: Vec<Part>,
}

struct Part {
    what: Selection,
    selector: Selector,
    fits: bool,
}

impl Known {
    /// Nothing yet, where these calls are asked for.
    pub fn of(selection: Option<&Selection>) -> Known {
        let Some(all) = selection else { return Known::default() };
        let Selection { files, processes, ops, from, to, .. } = all.clone();
        let none = Selection::default;
        let parts = [
            Selection { files, ..none() },
            Selection { processes, ..none() },
            Selection { ops, ..none() },
            Selection { from, to, ..none() },
        ];
        let together = Selection { causes: Vec::new(), ..all.clone() };
        let parts = parts.into_iter().filter(|what| *what != none()).chain([together]);
        let part = |what: Selection| Part { selector: Selector::new(what.clone()), what, fits: false };
        Known { parts: parts.map(part).collect(), ..Known::default() }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record) {
        for part in &mut self.parts {
            part.fits |= part.selector.take(record) && matches!(record, Record::Event(_));
        }
        match record {
            Record::Event(event) => {
                self.has_calls = true;
                self.ops.insert(event.op.name());
            }
            Record::Session(session) => drop(self.programs.insert(session.program.clone())),
            Record::File(file) if self.paths.len() < PATHS => drop(self.paths.insert(file.path.clone())),
            _ => {}
        }
    }

    /// An error if calls were selected of which there are none.
    pub fn check(&self, report: &Report, trace: &Path) -> anyhow::Result<()> {
        let Some(selection) = report.selection.as_ref().filter(|_| report.calls == 0) else { return Ok(()) };
        anyhow::ensure!(self.has_calls, "the trace has no calls");
        anyhow::bail!(
            "no call was selected: {}; `cawl-cli replay --calls {}` lists them all",
            render::shown(&self.nothing(selection)),
            trace.display()
        )
    }

    /// Why there are none of these.
    fn nothing(&self, selection: &Selection) -> String {
        let named = |near: &str, of: Vec<&str>| match &of[..] {
            [] => String::new(),
            of => format!("; {near} are {}", of.join(", ")),
        };
        let (mut why, mut near) = (Vec::new(), String::new());
        let (together, each) =
            self.parts.split_last().map_or((None, &[][..]), |(last, each)| (Some(last), each));
        for Part { what, .. } in each.iter().filter(|part| !part.fits) {
            why.push(format!("there are no {what}"));
            let programs = what.processes.iter().filter_map(|name| match name {
                ProcessName::Program(glob) => Some(nearest(&self.programs, &glob.to_string())),
                ProcessName::Pid(_) => None,
            });
            let paths = what.files.iter().map(|glob| nearest(&self.paths, &glob.to_string()));
            near += &named("the nearest paths", paths.flatten().collect());
            near += &named("the nearest programs", programs.flatten().collect());
            let ops = self.ops.iter().copied().filter(|_| !what.ops.is_empty());
            near += &named("its operations", ops.collect());
        }
        match together.filter(|together| !together.fits) {
            _ if !why.is_empty() => why.join(", and ") + &near,
            Some(together) => format!("each part fits some, none fits all of: {}", together.what),
            None => format!("none takes most of its time for that cause: {selection}"),
        }
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
    use cawl_core::{Cause, FileFacts, Glob};
    use cawl_wire::{Event, Op};

    #[test]
    fn the_part_that_fits_nothing_is_told() {
        let why = |files: &[&str], ops: &[&str], cause: Option<Cause>| {
            let selection = Selection {
                files: files.iter().map(|file| Glob::from(*file)).collect(),
                ops: ops.iter().map(|op| op.parse().unwrap()).collect(),
                causes: cause.into_iter().collect(),
                ..Selection::default()
            };
            let mut known = Known::of(Some(&selection));
            for (ino, path, op) in [(7, "/t.db", Op::Fdatasync), (8, "/log", Op::Fsync)] {
                known.take(&Record::File(FileFacts { ino, path: path.to_owned(), ..FileFacts::default() }));
                known.take(&Record::Event(Event { ino, ..Event::new(op) }));
            }
            known.nothing(&selection)
        };
        let of_op = why(&["t.db"], &["write"], None);
        let told = "there are no calls of operation write; its operations are fdatasync, fsync";
        assert!(of_op.contains(told), "{of_op}");
        let of_file = why(&["u.db"], &["fsync"], None);
        assert!(of_file.contains("there are no calls of files u.db; the nearest paths are"), "{of_file}");
        let both = why(&["u.db"], &["write"], None);
        assert!(both.contains("of files u.db, and there are no calls of operation write"), "{both}");
        let together = why(&["t.db"], &["fsync"], None);
        assert!(
            together.contains("each part fits some, none fits all of: calls of files t.db, of op"),
            "{together}"
        );
        let cause = why(&["t.db"], &[], Some(Cause::Journal));
        assert!(cause.contains("for that cause: calls of files t.db, mostly of cause journal"), "{cause}");
    }

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
