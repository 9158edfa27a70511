//! Writing: records gather in memory, blocks go to the file whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use cawl_core::{ARE_MISSING, Record};

use super::{
    BLOCK_HEADER_LEN, BLOCK_MAGIC, BLOCK_MAX, BLOCK_TARGET, FILE_HEADER_LEN, LZ4, RAW, TRACE_MAGIC,
    TRACE_VERSION, codec,
};
use crate::allowance;
use crate::output::{FOR_ITS_OWNER, Output};

/// A plain file with content that does not begin as a trace does.
fn is_something_else(path: &Path) -> io::Result<bool> {
    if !fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
        return Ok(false);
    }
    let mut head = Vec::new();
    File::open(path)?.take(TRACE_MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(head != TRACE_MAGIC)
}

pub(super) fn file_header() -> [u8; FILE_HEADER_LEN] {
    let mut header = [0; FILE_HEADER_LEN];
    header[..8].copy_from_slice(&TRACE_MAGIC);
    header[8..10].copy_from_slice(&TRACE_VERSION.to_le_bytes());
    header
}

/// A block: header, then the payload, compressed where that makes it smaller.
pub(super) fn encode_block(raw: &[u8], sequence: u32) -> Vec<u8> {
    let packed = lz4_flex::block::compress(raw);
    let (encoding, stored) = if packed.len() < raw.len() { (LZ4, packed.as_slice()) } else { (RAW, raw) };
    let mut block = Vec::with_capacity(BLOCK_HEADER_LEN + stored.len());
    block.extend_from_slice(&BLOCK_MAGIC);
    block.extend_from_slice(&[encoding, 0, 0, 0]);
    block.extend_from_slice(&sequence.to_le_bytes());
    block.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    block.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&block);
    checksum.update(stored);
    block.extend_from_slice(&checksum.finalize().to_le_bytes());
    block.extend_from_slice(stored);
    block
}

/// The behaviour at the limit of unwritten bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The writer waits, as an importer can. The file gets its name when all of it was written; nothing is
    /// left of one that could not be.
    Wait,
    /// Calls and samples are left out of the file and counted, so that nothing waits for the disk: the models
    /// and the report have them. A note stands where they are missing, and the closing mark counts them.
    LeaveOut,
}

/// A trace file written by a thread of its own, so that a slow disk does not delay the models.
///
/// An error ends the file after its last whole block; [`TraceFile::failure`] has it, and later records are
/// not kept.
pub struct TraceFile {
    path: PathBuf,
    raw: Vec<u8>,
    records: u64,
    when_full: WhenFull,
    /// True if the limit was reached at the latest attempt.
    full: bool,
    /// Records left out: in all, and in the present gap.
    missing: u64,
    gap: u64,
    blocks: Option<SyncSender<Vec<u8>>>,
    /// Bytes of records handed over and not yet on the disk.
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    /// The file of a writer that waits.
    output: Option<Output>,
    failure: Arc<Mutex<Option<String>>>,
}

/// Bytes of records that may wait for the disk.
pub(super) const WAITING: usize = 64 << 20;
/// The blocks that they make: all but the first are full.
const QUEUE: usize = 1 + WAITING / BLOCK_TARGET;
/// What describes calls is kept while calls are left out, up to this many bytes.
const KEPT: usize = BLOCK_MAX / 2;

impl TraceFile {
    /// Creates (or empties) the file at `path`. A new one is for its owner alone: it names the files of
    /// programs. What exists and is no trace is not overwritten.
    pub fn create(path: &Path, when_full: WhenFull) -> io::Result<TraceFile> {
        if is_something_else(path)? {
            let why = "it exists and is no trace; name another file, or remove it first";
            return Err(io::Error::new(ErrorKind::AlreadyExists, why));
        }
        let whole = when_full == WhenFull::Wait;
        let output = whole.then(|| Output::create(path, FOR_ITS_OWNER)).transpose()?;
        let mut file = match &output {
            Some(output) => output.file().try_clone()?,
            None => File::options().write(true).create(true).truncate(true).mode(FOR_ITS_OWNER).open(path)?,
        };
        file.write_all(&file_header())?;
        let trace = TraceFile::start(path, when_full, move |block| append(&mut file, block))?;
        Ok(TraceFile { output, ..trace })
    }

    /// A trace whose blocks go to `append`, which is called by a thread of its own.
    pub(super) fn start(
        path: &Path,
        when_full: WhenFull,
        mut append: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<TraceFile> {
        let (blocks, queue) = sync_channel::<Vec<u8>>(QUEUE);
        let failure = Arc::new(Mutex::new(None));
        let waiting = Arc::new(AtomicUsize::new(0));
        let (told, written) = (Arc::clone(&failure), Arc::clone(&waiting));
        let thread = std::thread::Builder::new().name("cawl-trace".to_owned()).spawn(move || {
            let mut failed = false;
            for (raw, sequence) in queue.into_iter().zip(0..) {
                if !failed && let Err(error) = append(&encode_block(&raw, sequence)) {
                    failed = true;
                    *told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
                        Some(allowance::with_remedy(&error.into()));
                }
                written.fetch_sub(raw.len(), Ordering::Relaxed);
            }
        })?;
        Ok(TraceFile {
            path: path.to_owned(),
            raw: Vec::with_capacity(BLOCK_TARGET + 1024),
            records: 0,
            when_full,
            full: false,
            missing: 0,
            gap: 0,
            blocks: Some(blocks),
            waiting,
            thread: Some(thread),
            output: None,
            failure,
        })
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record) {
        let is_measured =
            matches!(record, Record::Event(_) | Record::Sample(_) | Record::RunDelay(_) | Record::Device(_));
        if self.full && (is_measured || self.raw.len() >= KEPT) {
            self.missing += 1;
            self.gap += 1;
            return;
        }
        codec::put(&mut self.raw, record);
        self.records += 1;
        if self.raw.len() >= BLOCK_TARGET {
            self.hand_over();
        }
    }

    /// Passes the buffered records to the writing thread, unless that has enough to do and more fits into the
    /// block.
    pub fn flush(&mut self) {
        if self.raw.len() >= BLOCK_TARGET || self.waiting.load(Ordering::Relaxed) == 0 {
            self.hand_over();
        }
    }

    /// Passes the buffered records to the writing thread, if there is room.
    fn hand_over(&mut self) {
        if self.raw.is_empty() {
            return;
        }
        let waiting = self.waiting.load(Ordering::Relaxed);
        self.full = self.when_full == WhenFull::LeaveOut && waiting + self.raw.len() > WAITING;
        let Some(blocks) = self.blocks.as_ref().filter(|_| !self.full) else { return };
        let raw = std::mem::replace(&mut self.raw, Vec::with_capacity(BLOCK_TARGET + 1024));
        self.waiting.fetch_add(raw.len(), Ordering::Relaxed);
        // The queue is full only for a writer that may wait. Its thread drains it even after an error, so
        // that a block is lost only if the thread is gone.
        drop(blocks.send(raw));
        self.note_gap();
    }

    /// Adds a note to the trace that records are missing at this place.
    fn note_gap(&mut self) {
        if self.gap > 0 {
            let note = Record::Note(format!(
                "{} calls and samples {ARE_MISSING} from the trace at one place: the disk under it did not keep up",
                self.gap
            ));
            codec::put(&mut self.raw, &note);
            self.records += 1;
            self.gap = 0;
        }
    }

    /// What ended the file early, or is missing from it, in a sentence with the file's name.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let path = self.path.display();
        match &*failure {
            Some(error) if self.output.is_some() => Some(self.unwritten(error)),
            Some(error) => Some(format!(
                "the trace {path} ends early: {error}; calls after that point are in the report but not in the file"
            )),
            None if self.missing > 0 => Some(format!(
                "the trace {path} lacks {} calls and samples: its disk did not keep up; they are in the report, but \
                 a replay will differ; put the trace on a faster disk",
                self.missing
            )),
            None => None,
        }
    }

    /// Closes the trace and waits for it to be written; tells what ended it early, or is missing from it.
    pub fn finish(mut self) -> Option<String> {
        self.note_gap();
        codec::put_close(&mut self.raw, self.records + self.missing);
        self.when_full = WhenFull::Wait;
        self.hand_over();
        self.blocks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        match (self.failure(), self.output.take()) {
            (None, Some(output)) => output.keep().err().map(|error| self.unwritten(&error)),
            (failure, _) => failure,
        }
    }

    fn unwritten(&self, error: &dyn std::fmt::Display) -> String {
        let path = self.path.display();
        format!(
            "cannot write the trace {path}: {error}; nothing is left of it; name another file, or make room"
        )
    }
}

/// Appends a block whole, or cuts the file back to where it was.
pub(super) fn append(file: &mut File, block: &[u8]) -> io::Result<()> {
    let before = file.stream_position()?;
    file.write_all(block).inspect_err(|_| {
        // A reader would skip a torn block anyway.
        let _ = file.set_len(before);
    })
}
