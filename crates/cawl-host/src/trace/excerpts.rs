//! Excerpts: traces of the calls around anomalies only, in a folder that stays below a size.
//!
//! The latest records wait in memory. When a call is named an anomaly, those of the time before it are
//! written, and what follows until that much time has passed without another one. A thread holds and writes
//! them, so that the models wait for no disk.
//!
//! The law of this module: **what is missing in an excerpt is counted in it.**

mod folder;
mod keeper;
mod window;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use cawl_core::{Nanos, Record, Time};

use super::writer::WAITING;
use super::{BLOCK_TARGET, codec};
use folder::Folder;
use keeper::Keeper;
use window::Block;

/// Memory of the records that wait for an anomaly: 2.7 million calls.
const MEMORY: usize = 256 << 20;

/// Least room for a folder: an excerpt has at most a quarter of it.
pub const MIN_ROOM: u64 = 4 << 20;

/// What excerpts have, and where they lie.
#[derive(Clone, Debug, PartialEq)]
pub struct ExcerptOptions {
    /// The folder; it is made if it is missing.
    pub folder: PathBuf,
    /// The time kept before and after an anomaly.
    pub keep: Nanos,
    /// Bytes that the folder's excerpts take at most; [`MIN_ROOM`] at least. The oldest are removed.
    pub room: u64,
    /// Why they are kept, for their reports: the condition.
    pub condition: String,
}

/// What was kept so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcerptStatus {
    /// Anomalies since the start.
    pub anomalies: u64,
    /// Excerpts in the folder, and their bytes.
    pub files: u64,
    /// In bytes.
    pub bytes: u64,
    /// Calls and samples that belong into an excerpt and are in none.
    pub missing: u64,
    /// The latest excerpt.
    pub latest: Option<PathBuf>,
    /// What the latest anomaly was.
    pub anomaly: Option<String>,
    /// Why the latest excerpt could not be written.
    pub failure: Option<String>,
}

/// A call that is worth an excerpt.
#[derive(Clone, Debug)]
struct Anomaly {
    begin: Time,
    end: Time,
    /// The call, in words.
    what: String,
}

/// Keeps excerpts of a stream of records.
pub struct Excerpts {
    block: Block,
    /// True if too much waited for the thread at the latest attempt.
    full: bool,
    /// Calls and samples left out since then.
    gap: u64,
    blocks: Option<Sender<Block>>,
    /// Bytes handed over that the thread has not taken.
    waiting: Arc<AtomicUsize>,
    status: Arc<Mutex<ExcerptStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl Excerpts {
    /// Begins to hold records. An error names the folder.
    pub fn start(options: ExcerptOptions) -> io::Result<Excerpts> {
        Excerpts::with_memory(options, MEMORY)
    }

    fn with_memory(options: ExcerptOptions, memory: usize) -> io::Result<Excerpts> {
        let folder = Folder::open(&options.folder, options.room)?;
        let (status, waiting) = (Arc::new(Mutex::default()), Arc::new(AtomicUsize::new(0)));
        let (blocks, queue) = channel::<Block>();
        let mut keeper = Keeper::new(options, folder, memory, Arc::clone(&status));
        let taken = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("cawl-excerpts".to_owned()).spawn(move || {
            for block in queue {
                let size = block.raw.len();
                keeper.take(block);
                taken.fetch_sub(size, Ordering::Relaxed);
            }
            keeper.finish();
        })?;
        Ok(Excerpts {
            block: Block::new(Time(0)),
            full: false,
            gap: 0,
            blocks: Some(blocks),
            waiting,
            status,
            thread: Some(thread),
        })
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record) {
        let time = match record {
            Record::Event(event) => Some(event.start),
            Record::Sample(sample) => Some(sample.time.0),
            Record::RunDelay(delay) => Some(delay.to.0),
            Record::Device(counters) => Some(counters.time.0),
            _ => None,
        };
        if self.full && time.is_some() {
            self.gap += 1;
            return;
        }
        let block = &mut self.block;
        codec::put(&mut block.raw, record);
        block.records += 1;
        match time {
            Some(time) => {
                block.last = block.last.max(Time(time));
                block.calls += 1;
            }
            None => block.described.push(record.clone()),
        }
        if block.raw.len() >= BLOCK_TARGET {
            self.hand_over(WAITING);
        }
    }

    /// The latest call was an anomaly; the words are only asked for where they are needed.
    pub fn anomaly(&mut self, begin: Time, end: Time, what: impl FnOnce() -> String) {
        let block = &mut self.block;
        block.anomalies += 1;
        match &mut block.anomaly {
            Some(first) => (first.begin, first.end) = (first.begin.min(begin), first.end.max(end)),
            None => block.anomaly = Some(Anomaly { begin, end, what: what() }),
        }
    }

    /// Passes the buffered records to the thread.
    pub fn flush(&mut self) {
        self.flush_unless(WAITING);
    }

    /// Passes the buffered records to the thread, unless more than `most` bytes would wait for it.
    fn flush_unless(&mut self, most: usize) {
        if self.block.records > 0 || self.block.anomalies > 0 {
            self.hand_over(most);
        }
    }

    fn hand_over(&mut self, most: usize) {
        let size = self.block.raw.len();
        self.full = self.waiting.load(Ordering::Relaxed) + size > most;
        // What describes calls is kept; there is little of it.
        let Some(blocks) = self.blocks.as_ref().filter(|_| !self.full) else { return };
        let next = Block::new(self.block.last);
        let mut block = std::mem::replace(&mut self.block, next);
        block.missing = std::mem::take(&mut self.gap);
        self.waiting.fetch_add(size, Ordering::Relaxed);
        drop(blocks.send(block));
    }

    /// What was kept so far.
    pub fn status(&self) -> ExcerptStatus {
        lock(&self.status).clone()
    }

    /// What was kept so far, if there is another excerpt or failure than `before`.
    pub fn news(&self, before: &ExcerptStatus) -> Option<ExcerptStatus> {
        let status = lock(&self.status);
        let is_news = status.latest != before.latest || status.failure != before.failure;
        is_news.then(|| status.clone())
    }
}

impl Drop for Excerpts {
    /// Writes the records of a running excerpt, and closes it.
    fn drop(&mut self) {
        // The last block goes to the thread whatever waits; the count is the thread's to lower.
        self.flush_unless(usize::MAX);
        self.blocks = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn lock(status: &Mutex<ExcerptStatus>) -> MutexGuard<'_, ExcerptStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
