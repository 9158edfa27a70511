//! The thread's part: which records an excerpt gets, and its file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cawl_core::{ARE_MISSING, Nanos, Record, Time};
use cawl_wire::FileId;

use super::super::codec::{self, Entry};
use super::super::writer::{append, encode_block, file_header};
use super::folder::Folder;
use super::window::{Block, Head, Window};
use super::{ExcerptOptions, ExcerptStatus, lock};

/// After a failure the next attempt comes when so much time has passed.
const RETRY: Nanos = Nanos::millis(1000.0);

/// Holds the latest records, and writes excerpts of them.
pub(super) struct Keeper {
    options: ExcerptOptions,
    /// Bytes that the records in memory take at most.
    memory: usize,
    window: Window,
    folder: Folder,
    /// The excerpt written last; closed if there was nothing more to write.
    excerpt: Option<Excerpt>,
    /// The latest record's time.
    now: Time,
    /// Excerpts have what began before.
    until: Time,
    /// After a failure: not to be tried again before.
    retry: Time,
    /// Calls and samples that made room for others before their time, and the time of the last.
    early: (u64, Time),
    /// Calls and samples that belong into the excerpt, are in none, and are not in a note yet.
    missing: u64,
    status: Arc<Mutex<ExcerptStatus>>,
}

impl Keeper {
    pub fn new(
        options: ExcerptOptions,
        folder: Folder,
        memory: usize,
        status: Arc<Mutex<ExcerptStatus>>,
    ) -> Keeper {
        let keeper = Keeper {
            options,
            memory,
            window: Window::default(),
            folder,
            excerpt: None,
            now: Time(0),
            until: Time(0),
            retry: Time(0),
            early: (0, Time(0)),
            missing: 0,
            status,
        };
        keeper.tell(|_| {});
        keeper
    }

    /// Takes the next block.
    pub fn take(&mut self, block: Block) {
        let keep = self.options.keep;
        self.now = self.now.max(block.last);
        if let Some(anomaly) = &block.anomaly {
            let since = before(anomaly.begin, keep);
            if since > self.until {
                // It has nothing in common with the excerpt before.
                self.finish();
                (self.excerpt, self.missing) = (None, 0);
                while self.window.pop_beyond(since, usize::MAX).is_some() {}
            }
            if self.early.1 >= since {
                self.lose(self.early.0);
                self.early.0 = 0;
            }
            self.until = self.until.max(Time(anomaly.end.0.saturating_add(keep.get() as u64)));
            self.tell(|status| {
                status.anomalies += block.anomalies;
                status.anomaly = Some(anomaly.what.clone());
            });
        }
        self.window.push(block, keep * 0.125);
        if self.now >= self.retry
            && let Err(error) = self.write()
        {
            self.fail(&error);
        }
        self.forget();
    }

    /// Forgets blocks that are too old, or too many. An anomaly is known at its end, so that one as long as
    /// `keep` still has the time before its begin.
    fn forget(&mut self) {
        let since = before(self.now, self.options.keep * 2.0);
        while let Some(block) = self.window.pop_beyond(since, self.memory) {
            let calls = block.calls + block.missing;
            if block.first < self.until {
                self.lose(calls);
            } else if block.last >= since {
                self.early = (self.early.0 + calls, block.last);
            }
        }
        if self.early.1 < since {
            self.early.0 = 0;
        }
    }

    /// Writes the blocks that belong into the excerpt, and closes it if none can follow now.
    fn write(&mut self) -> io::Result<()> {
        while let Some(block) = self.window.front().filter(|block| block.first < self.until) {
            let size = block.raw.len() as u64;
            if let Some(excerpt) = &mut self.excerpt {
                excerpt.reopen(&mut self.folder)?;
                if excerpt.file.metadata()?.nlink() == 0 {
                    let calls = excerpt.calls;
                    self.excerpt = None;
                    self.lose(calls);
                    continue;
                }
                if excerpt.length + size > self.folder.most() && excerpt.calls > 0 {
                    excerpt.close(&mut self.folder)?;
                    self.excerpt = None;
                }
            }
            if self.excerpt.is_none() {
                let why = lock(&self.status).anomaly.clone().unwrap_or_default();
                self.excerpt =
                    Some(Excerpt::create(&mut self.folder, &self.window.head, &self.options, &why)?);
            }
            // Both are there.
            let (Some(excerpt), Some(block)) = (&mut self.excerpt, self.window.front()) else { break };
            excerpt.add(&mut self.folder, &self.window.head, block, self.missing + block.missing)?;
            self.missing = 0;
            self.window.pop();
            self.tell(|status| status.failure = None);
        }
        if let Some(excerpt) = self.excerpt.as_mut().filter(|_| self.window.front().is_some()) {
            excerpt.close(&mut self.folder)?;
            self.tell(|_| {});
        }
        Ok(())
    }

    /// Closes the excerpt.
    pub fn finish(&mut self) {
        let closed = self
            .write()
            .and_then(|()| self.excerpt.as_mut().map_or(Ok(()), |excerpt| excerpt.close(&mut self.folder)));
        if let Err(error) = closed {
            self.fail(&error);
        }
    }

    /// An excerpt could not be written: what it has stays, and another is begun later.
    fn fail(&mut self, error: &io::Error) {
        self.retry = Time(self.now.0 + RETRY.get() as u64);
        if self.excerpt.take().is_some_and(|excerpt| excerpt.calls == 0) {
            self.folder.discard_latest();
        }
        self.tell(|status| status.failure = Some(error.to_string()));
    }

    /// Calls and samples are missing.
    fn lose(&mut self, calls: u64) {
        self.missing += calls;
        self.tell(|status| status.missing += calls);
    }

    fn tell(&self, change: impl FnOnce(&mut ExcerptStatus)) {
        let mut status = lock(&self.status);
        change(&mut status);
        (status.files, status.bytes) = self.folder.sums();
        if let Some(excerpt) = &self.excerpt {
            status.latest = Some(excerpt.path.clone());
        }
    }
}

/// A trace of some calls, complete in itself.
struct Excerpt {
    file: File,
    path: PathBuf,
    length: u64,
    /// Number of the next block.
    sequence: u32,
    records: u64,
    /// Calls and samples among them.
    calls: u64,
    /// Its length without the block that closes it, if it is closed.
    closed: Option<u64>,
    /// What its records have named.
    files: HashSet<FileId>,
    stacks: HashSet<u32>,
    pids: HashSet<u32>,
}

impl Excerpt {
    fn create(folder: &mut Folder, head: &Head, options: &ExcerptOptions, why: &str) -> io::Result<Excerpt> {
        let (file, path) = folder.create()?;
        let mut excerpt = Excerpt {
            file,
            path,
            length: 0,
            sequence: 0,
            records: 0,
            calls: 0,
            closed: None,
            files: HashSet::new(),
            stacks: HashSet::new(),
            pids: HashSet::new(),
        };
        let note = Record::Note(format!(
            "this is a part of what was traced, from {} before an anomaly until {} after it (`{}`): {why}",
            options.keep, options.keep, options.condition
        ));
        let begin: Vec<Record> = head.machine().cloned().chain([note]).collect();
        let begun = excerpt.append(folder, &file_header()).and_then(|()| excerpt.describe(folder, &begin));
        begun.inspect_err(|_| folder.discard_latest())?;
        Ok(excerpt)
    }

    /// Adds a block, and before it what a reader must know.
    fn add(&mut self, folder: &mut Folder, head: &Head, block: &Block, missing: u64) -> io::Result<()> {
        let mut before = self.unknown(head, block);
        if missing > 0 {
            before.push(Record::Note(format!(
                "{missing} calls and samples {ARE_MISSING} before this place: they did not fit into the memory \
                 or the folder of the traces"
            )));
        }
        self.describe(folder, &before)?;
        self.block(folder, &block.raw)?;
        self.records += block.records;
        self.calls += block.calls;
        Ok(())
    }

    /// Sessions, names and stacks that the calls of a block need, and no earlier record had.
    fn unknown(&mut self, head: &Head, block: &Block) -> Vec<Record> {
        let mut unknown = Vec::new();
        let (mut file, mut pid) = (FileId::default(), 0);
        let mut rest = &block.raw[..];
        while let Some(Entry::Record(record)) = codec::take(&mut rest) {
            match record {
                Record::Event(event) => {
                    if event.pid != pid && self.pids.insert(event.pid) {
                        unknown.extend(head.session(event.pid));
                    }
                    if event.file() != file && self.files.insert(event.file()) {
                        unknown.extend(head.file(event.file()));
                    }
                    if event.stack != 0 && self.stacks.insert(event.stack) {
                        unknown.extend(head.stack(event.stack));
                    }
                    (file, pid) = (event.file(), event.pid);
                }
                Record::Session(session) => drop(self.pids.insert(session.pid)),
                Record::File(file) if !file.renamed => drop(self.files.insert(file.file())),
                _ => {}
            }
        }
        unknown
    }

    fn describe(&mut self, folder: &mut Folder, records: &[Record]) -> io::Result<()> {
        let mut raw = Vec::new();
        records.iter().for_each(|record| codec::put(&mut raw, record));
        if !raw.is_empty() {
            self.block(folder, &raw)?;
            self.records += records.len() as u64;
        }
        Ok(())
    }

    fn block(&mut self, folder: &mut Folder, raw: &[u8]) -> io::Result<()> {
        self.append(folder, &encode_block(raw, self.sequence))?;
        self.sequence += 1;
        Ok(())
    }

    fn append(&mut self, folder: &mut Folder, bytes: &[u8]) -> io::Result<()> {
        folder.make_room(bytes.len() as u64)?;
        append(&mut self.file, bytes)?;
        self.length += bytes.len() as u64;
        folder.has(self.length);
        Ok(())
    }

    /// Marks it as complete.
    fn close(&mut self, folder: &mut Folder) -> io::Result<()> {
        if self.closed.is_none() {
            let length = self.length;
            let mut raw = Vec::new();
            codec::put_close(&mut raw, self.records);
            self.block(folder, &raw)?;
            self.closed = Some(length);
        }
        Ok(())
    }

    /// Takes the mark away, since another anomaly comes soon.
    fn reopen(&mut self, folder: &mut Folder) -> io::Result<()> {
        if let Some(length) = self.closed.take() {
            self.file.set_len(length)?;
            self.file.seek(SeekFrom::Start(length))?;
            (self.length, self.sequence) = (length, self.sequence - 1);
            folder.has(length);
        }
        Ok(())
    }
}

fn before(time: Time, span: Nanos) -> Time {
    Time(time.0.saturating_sub(span.get() as u64))
}
