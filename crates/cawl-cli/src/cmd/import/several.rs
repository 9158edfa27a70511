//! Several files of one recording, as of each process or rank: their lines, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::BufRead;
use std::path::PathBuf;

use anyhow::Context;
use cawl_import::Importer;

use super::{open, read_line};

/// The files, whose lines come in order of their times.
pub struct Several {
    files: Vec<One>,
    /// The files with lines, by the time of their next one.
    turns: BinaryHeap<Reverse<(u64, usize)>>,
    /// The file that the latest line came from.
    pub latest: usize,
    /// Why that file cannot be read behind its latest line.
    failed: Option<anyhow::Error>,
}

struct One {
    path: PathBuf,
    input: Box<dyn BufRead>,
    /// The next line, and its time.
    line: Vec<u8>,
    time: u64,
}

impl Several {
    pub fn open(paths: &[PathBuf], importer: &dyn Importer) -> anyhow::Result<Several> {
        let mut several = Several { files: Vec::new(), turns: BinaryHeap::new(), latest: 0, failed: None };
        for path in paths {
            let input = open(path).with_context(|| format!("cannot read {}", path.display()))?;
            several.files.push(One { path: path.clone(), input, line: Vec::new(), time: 0 });
            several.advance(several.files.len() - 1, importer)?;
        }
        Ok(several)
    }

    /// The next line of all; false if there is none. A file that cannot be read further is an error once.
    pub fn next(&mut self, line: &mut Vec<u8>, importer: &mut dyn Importer) -> anyhow::Result<bool> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let Some(Reverse((_, at))) = self.turns.pop() else { return Ok(false) };
        self.latest = at;
        std::mem::swap(line, &mut self.files[at].line);
        importer.select(at);
        self.failed = self.advance(at, importer).err();
        Ok(true)
    }

    /// Reads a file's next line.
    fn advance(&mut self, at: usize, importer: &dyn Importer) -> anyhow::Result<()> {
        let file = &mut self.files[at];
        let more = read_line(&mut *file.input, &mut file.line);
        if more.with_context(|| format!("cannot read {} further", file.path.display()))? {
            file.time = importer.time(&file.line).unwrap_or(file.time);
            self.turns.push(Reverse((file.time, at)));
        }
        Ok(())
    }
}
