//! Calls of which something was told that may not be true, because the program went past every hook: how
//! many, on which files.

use std::collections::BTreeMap;

use cawl_wire::{FileId, uncertain};
use serde::{Deserialize, Serialize};

use crate::record::Doubt;
use crate::tally::Tally;
use crate::units::Bytes;

/// How many files are told apart, and how many of them a sentence names.
const FILES: usize = 1000;
const NAMED: usize = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    all: Uncertain,
    files: BTreeMap<FileId, Tally>,
}

impl Doubts {
    /// Counts one more.
    pub(crate) fn add(&mut self, doubt: &Doubt) {
        let more = Tally { calls: doubt.calls, bytes: doubt.bytes };
        let sum = match doubt.why {
            uncertain::MOVED => &mut self.all.moved,
            uncertain::ORDER => &mut self.all.order,
            _ => &mut self.all.other_file,
        };
        sum.add_all(more);
        let file = FileId { dev: doubt.dev, ino: doubt.ino, birth: doubt.birth };
        if self.files.len() < FILES || self.files.contains_key(&file) {
            self.files.entry(file).or_default().add_all(more);
        }
    }

    /// What there is to say, if anything.
    pub(crate) fn report(&self, path: impl Fn(FileId) -> String) -> Option<Uncertain> {
        let file = |(file, tally): (&FileId, &Tally)| UncertainFile {
            path: path(*file),
            calls: tally.calls,
            bytes: tally.bytes,
        };
        let mut files: Vec<_> = self.files.iter().map(file).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.calls));
        (!files.is_empty()).then(|| Uncertain { files, ..self.all.clone() })
    }
}

/// Calls of which something was told that may not be true. A call counts once for each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncertain {
    /// They were possibly on other files than told: the descriptor led elsewhere.
    pub other_file: Tally,
    /// They were possibly at other places: the descriptor had been moved.
    pub moved: Tally,
    /// Threads made them through one descriptor at the same moment: each has possibly the place of another.
    pub order: Tally,
    /// The files that they were told of, most calls first.
    pub files: Vec<UncertainFile>,
}

/// A file with such calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncertainFile {
    /// Its path.
    pub path: String,
    /// The calls.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Uncertain {
    /// A sentence for the notes of a report. Where calls were `dropped`, these may have opened and moved what
    /// the tracer found elsewhere than told.
    pub fn text(&self, dropped: bool) -> String {
        let past = if dropped { "changed by calls that were dropped" } else { "changed past the C library" };
        let parts = [
            (self.other_file, "were possibly on other files", format!("descriptors were {past}")),
            (self.moved, "possibly at other places", format!("positions were {past}")),
            (self.order, "possibly at the place of another", "threads shared a descriptor".to_owned()),
        ];
        let parts = parts.iter().filter(|(tally, ..)| tally.calls > 0).map(|(tally, what, why)| {
            let calls = if tally.calls == 1 { "call" } else { "calls" };
            format!("{} {calls}, {} {what} ({why})", tally.calls, Bytes(tally.bytes))
        });
        let names: Vec<&str> = self.files.iter().take(NAMED).map(|file| file.path.as_str()).collect();
        let more = match self.files.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let parts = parts.collect::<Vec<_>>().join("; ");
        format!("uncertain: {parts}; told of {}{more}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_are_summed_by_reason_and_by_file_and_said_in_a_sentence() {
        let mut doubts = Doubts::default();
        assert_eq!(doubts.report(|_| String::new()), None);
        let doubt =
            |ino, why, calls, bytes| Doubt { pid: 1, fd: 3, dev: 1, ino, birth: 0, calls, bytes, why };
        doubts.add(&doubt(7, uncertain::OTHER_FILE, 11, 48 << 10));
        doubts.add(&doubt(7, 99, 1, 0));
        doubts.add(&doubt(8, uncertain::MOVED, 1, 1 << 10));
        let report = doubts.report(|file| format!("/{}", file.ino)).unwrap();
        assert_eq!(report.other_file, Tally { calls: 12, bytes: 48 << 10 });
        let files: Vec<_> = report.files.iter().map(|file| (file.path.as_str(), file.calls)).collect();
        assert_eq!(files, [("/7", 12), ("/8", 1)]);
        assert_eq!(
            report.text(false),
            "uncertain: 12 calls, 48 KiB were possibly on other files (descriptors were changed past the C \
             library); 1 call, 1 KiB possibly at other places (positions were changed past the C library); \
             told of /7, /8"
        );
        let text = report.text(true);
        assert!(text.contains("(positions were changed by calls that were dropped)"), "{text}");
    }
}
