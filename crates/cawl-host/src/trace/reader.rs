//! Reading: block after block, in constant memory, past damage.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use cawl_core::{Births, Record, Told};
use cawl_wire::{Op, flag};

use super::codec::{self, Entry};
use super::{
    BLOCK_HEADER_LEN, BLOCK_MAGIC, BLOCK_MAX, FILE_HEADER_LEN, LZ4, RAW, TRACE_MAGIC, TRACE_VERSION,
    TraceError,
};

/// The first version whose calls have the births of files.
const BIRTHS_SINCE: u16 = 2;
/// The first version in which the pending fields of stream reads are about what was read ahead.
const READS_AHEAD_SINCE: u16 = 8;

/// Bytes of the records that describe calls (sessions, files, notes, …), unpacked: so many, and so many for
/// each byte of the file. Their texts are kept, and LZ4 packs up to 255 into one.
const DESCRIBED: (u64, u64) = (64 << 20, 32);

/// What a reader could not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Bytes that belong to no whole block.
    pub bytes: u64,
    /// Blocks missing between whole ones, by their numbers.
    pub blocks: u64,
    /// Records missing, by the closing record.
    pub records: u64,
    /// The trace has no closing record: its writer was killed, its disk was full, or its end is lost.
    pub unclosed: bool,
}

impl Damage {
    /// A sentence for the report, if there is something to say.
    pub fn describe(&self) -> Option<String> {
        match (self.bytes, self.blocks + self.records, self.unclosed) {
            (0, 0, false) => None,
            (0, 0, true) => {
                Some("the trace was not closed: its writer was killed or the disk was full, the last calls are missing".into())
            }
            (0, records, false) if self.blocks == 0 => Some(format!(
                "the trace lacks {records} calls and samples: the disk under it did not keep up while it was written"
            )),
            (bytes, _, unclosed) => Some(format!(
                "the trace is damaged: {bytes} bytes could not be read, {} between whole ones {} \
                 missing{}",
                if self.blocks == 1 { "1 block".to_owned() } else { format!("{} blocks", self.blocks) },
                if self.blocks == 1 { "is" } else { "are" },
                // Only the closing record has the number of records.
                if unclosed {
                    ", and its end is lost".to_owned()
                } else {
                    format!(", {} records are lost", self.records)
                }
            )),
        }
    }
}

/// Reads a trace record by record.
pub struct TraceReader<R> {
    input: R,
    /// Bytes read but not yet used; [`TraceReader::at`] is the first of them.
    window: Vec<u8>,
    at: usize,
    /// Begins with the current block, of `filled` bytes; `taken` of them were delivered.
    block: Vec<u8>,
    filled: usize,
    taken: usize,
    next_sequence: u32,
    /// Bytes of whole blocks as they are stored, and of records that describe calls.
    stored: u64,
    described: u64,
    delivered: u64,
    damage: Damage,
    closed: bool,
    end_of_input: bool,
    /// The pending fields of stream reads tell of what was read ahead.
    reads_ahead: bool,
    /// For a trace without births.
    births: Option<Births>,
    /// To be delivered before anything else.
    waiting: Option<Record>,
}

impl TraceReader<BufReader<File>> {
    /// Opens the trace at `path`.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        TraceReader::new(BufReader::with_capacity(1 << 20, File::open(path)?))
    }

    /// Adds the next `most` records, or those that are left. Before an error the records before it are added.
    /// Of this kind of reader only: so it is compiled, and optimized, with this crate.
    pub fn read(&mut self, records: &mut Vec<Record>, most: usize) -> Result<(), TraceError> {
        for _ in 0..most {
            match self.next_record()? {
                Some(record) => records.push(record),
                None => break,
            }
        }
        Ok(())
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the file header.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut header = [0; FILE_HEADER_LEN];
        input.read_exact(&mut header).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => TraceError::NotATrace,
            _ => TraceError::Io(error),
        })?;
        if header[..8] != TRACE_MAGIC {
            return Err(TraceError::NotATrace);
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version > TRACE_VERSION {
            return Err(TraceError::Version(version));
        }
        Ok(TraceReader {
            input,
            window: Vec::new(),
            at: 0,
            block: Vec::new(),
            filled: 0,
            taken: 0,
            next_sequence: 0,
            stored: 0,
            described: 0,
            delivered: 0,
            damage: Damage::default(),
            closed: false,
            end_of_input: false,
            reads_ahead: version >= READS_AHEAD_SINCE,
            births: (version < BIRTHS_SINCE).then(Births::default),
            waiting: None,
        })
    }

    /// The next record; None at the end, after which [`TraceReader::damage`] is complete.
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.waiting.take() {
                return Ok(Some(record));
            }
            while self.taken < self.filled {
                let mut rest = &self.block[self.taken..self.filled];
                let entry = codec::take(&mut rest);
                let left = rest.len();
                match entry {
                    Some(Entry::Record(mut record)) => {
                        let length = (self.filled - left - self.taken) as u64;
                        self.taken = self.filled - left;
                        self.delivered += 1;
                        if !matches!(record, Record::Event(_) | Record::Sample(_) | Record::RunDelay(_)) {
                            self.described += length;
                            if self.described > DESCRIBED.0 + DESCRIBED.1 * self.stored {
                                return Err(TraceError::Bloated(self.described));
                            }
                        }
                        if let Record::Event(event) = &mut record
                            && !self.reads_ahead
                            && event.op == Op::StreamRead
                        {
                            event.flags &= !flag::STREAM_KNOWN;
                        }
                        match self.births.as_mut().map_or(Told::AsItIs, |births| births.take(&mut record)) {
                            Told::AsItIs => return Ok(Some(record)),
                            Told::After(first) => {
                                self.waiting = Some(record);
                                return Ok(Some(first));
                            }
                            Told::Later => {}
                        }
                    }
                    Some(Entry::Close(records)) => {
                        self.taken = self.filled - left;
                        self.closed = true;
                        self.damage.records = records.saturating_sub(self.delivered);
                    }
                    None => {
                        // The checksum is right, so a later version wrote this: the rest is skipped.
                        self.damage.bytes += (self.filled - self.taken) as u64;
                        self.taken = self.filled;
                    }
                }
            }
            if !self.next_block()? {
                return Ok(None);
            }
        }
    }

    /// What could not be delivered so far.
    pub fn damage(&self) -> Damage {
        Damage { unclosed: !self.closed, ..self.damage }
    }

    /// Finds and unpacks the next whole block; false at the end of the input.
    fn next_block(&mut self) -> Result<bool, TraceError> {
        loop {
            self.fill(BLOCK_HEADER_LEN)?;
            if self.window.len() - self.at < BLOCK_HEADER_LEN {
                self.damage.bytes += (self.window.len() - self.at) as u64;
                self.at = self.window.len();
                return Ok(false);
            }
            match self.try_block()? {
                Some(sequence) => {
                    self.damage.blocks += u64::from(sequence.saturating_sub(self.next_sequence));
                    self.next_sequence = sequence.saturating_add(1);
                    return Ok(true);
                }
                None => {
                    // No block begins here: look for one a byte further on.
                    self.at += 1;
                    self.damage.bytes += 1;
                }
            }
        }
    }

    /// Unpacks the block that begins at the window's first byte, if a whole one does; its number.
    fn try_block(&mut self) -> Result<Option<u32>, TraceError> {
        let header = &self.window[self.at..self.at + BLOCK_HEADER_LEN];
        if header[..4] != BLOCK_MAGIC {
            return Ok(None);
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (encoding, sequence, stored, raw, checksum) =
            (header[4], word(8), word(12) as usize, word(16) as usize, word(20));
        if stored > BLOCK_MAX || raw > BLOCK_MAX || (encoding == RAW && raw != stored) {
            return Ok(None);
        }
        self.fill(BLOCK_HEADER_LEN + stored)?;
        let Some(whole) = self.window.get(self.at..self.at + BLOCK_HEADER_LEN + stored) else {
            return Ok(None);
        };
        let (header, payload) = whole.split_at(BLOCK_HEADER_LEN);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[..20]);
        hasher.update(payload);
        if hasher.finalize() != checksum {
            return Ok(None);
        }
        (self.taken, self.filled) = (0, 0);
        if self.block.len() < raw {
            self.block.resize(raw, 0);
        }
        let block = &mut self.block[..raw];
        let whole = match encoding {
            RAW => {
                block.copy_from_slice(payload);
                true
            }
            LZ4 => lz4_flex::block::decompress_into(payload, block).is_ok_and(|len| len == raw),
            _ => false,
        };
        if !whole {
            return Ok(None);
        }
        self.filled = raw;
        self.stored += (BLOCK_HEADER_LEN + stored) as u64;
        self.at += BLOCK_HEADER_LEN + stored;
        Ok(Some(sequence))
    }

    /// Reads until the window holds `len` bytes from its first unused one, or the input ends.
    fn fill(&mut self, len: usize) -> Result<(), TraceError> {
        if self.window.len() - self.at >= len || self.end_of_input {
            return Ok(());
        }
        self.window.drain(..self.at);
        self.at = 0;
        let missing = len - self.window.len();
        let more = (&mut self.input).take(missing as u64).read_to_end(&mut self.window)?;
        self.end_of_input = more < missing;
        Ok(())
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}
