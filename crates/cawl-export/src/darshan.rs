//! A log of Darshan (version 3.21, which its tools read from 3.2.1 on) with the modules POSIX and DXT_POSIX.
//!
//! A log is a header, then packed regions: the job, names of files, and what each module has of each process
//! and file. Modules tell the transfers of a file one after another: what waits for that is bounded, and a
//! file then has a further record.

mod posix;

use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, BufWriter, Seek, Write};

use cawl_core::{HostFacts, Record, Report, Session};
use cawl_wire::FileKind;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::traffic::{FAILED, Losses, Transfer, is_silent};
use super::{About, Call, Exporter, Output};
use posix::Counters;

const VERSION: &[u8; 8] = b"3.21\0\0\0\0";
const MAGIC: i64 = 6_567_223;
/// Stands behind the last region, where Darshan does not look.
const MARK: &str = "log of cawl-cli export\n";

/// Modules that a header has places for, and which of them are ours, with the versions of their records.
const MODULES: usize = 16;
const POSIX: (usize, u32) = (1, 4);
const DXT_POSIX: (usize, u32) = (9, 1);

/// Bytes of the header, of the job, of what is fixed of it, and of a name of a host.
const HEADER: usize = 360;
const JOB: usize = 4096;
const METADATA: usize = 1024;
const HOST: usize = 64;

/// Transfers that wait for others of their file, at most; each takes 32 bytes.
const MAX_WAITING: usize = 1 << 18;

const NO_COUNTER: &str = "left out: Darshan has no counter for them";

/// True of a log that was exported, which begins and ends so.
pub fn is_one(head: &str, tail: &str) -> bool {
    head.starts_with("3.21\0") && tail.ends_with(MARK)
}

pub struct Darshan {
    out: Output,
    host: HostFacts,
    /// Packed records of DXT_POSIX: their place in the log is behind what is known at the end.
    traced: ZlibEncoder<BufWriter<File>>,
    waiting: usize,
    /// By process and file.
    files: FxHashMap<(i64, u64), Used>,
    /// Name of each number of a file.
    names: FxHashMap<u64, String>,
    ranks: FxHashMap<u32, i64>,
    /// One more than the highest rank.
    processes: i64,
    program: Option<Session>,
    /// The first call's start and the last end, in ns of CLOCK_MONOTONIC.
    span: Option<(u64, u64)>,
    losses: Losses,
}

#[derive(Default)]
struct Used {
    counters: Counters,
    /// Reads and writes that are in no record yet.
    segments: [Vec<Segment>; 2],
}

/// Place, length in bytes, start and end in seconds.
type Segment = (u64, u64, f64, f64);

impl Darshan {
    pub fn new(out: Output, about: &About<'_>) -> io::Result<Darshan> {
        let packed = BufWriter::new(tempfile::tempfile()?);
        Ok(Darshan {
            out,
            host: about.host.cloned().unwrap_or_default(),
            traced: ZlibEncoder::new(packed, Compression::fast()),
            waiting: 0,
            files: FxHashMap::default(),
            names: FxHashMap::default(),
            ranks: FxHashMap::default(),
            processes: 0,
            program: None,
            span: None,
            losses: Losses::default(),
        })
    }

    /// The rank of a process: that of the parallel program, or its number in the order of their first calls.
    fn rank(&mut self, pid: u32) -> i64 {
        let rank = *self.ranks.entry(pid).or_insert(self.processes);
        self.processes = self.processes.max(rank + 1);
        rank
    }

    /// Writes the transfers that wait, as further records.
    fn trace(&mut self) -> io::Result<()> {
        self.waiting = 0;
        let mut host = [0; HOST];
        let name = self.host.host.as_bytes();
        let length = name.len().min(HOST - 1);
        host[..length].copy_from_slice(&name[..length]);
        for ((rank, id), used) in &mut self.files {
            let [reads, writes] = &mut used.segments;
            if reads.is_empty() && writes.is_empty() {
                continue;
            }
            let mut record = Vec::with_capacity(104 + 32 * (reads.len() + writes.len()));
            record.extend(id.to_le_bytes());
            record.extend(rank.to_le_bytes());
            record.extend(0_i64.to_le_bytes());
            record.extend(host);
            record.extend((writes.len() as i64).to_le_bytes());
            record.extend((reads.len() as i64).to_le_bytes());
            for (offset, bytes, start, end) in std::mem::take(writes).into_iter().chain(std::mem::take(reads))
            {
                for word in [offset, bytes, start.to_bits(), end.to_bits()] {
                    record.extend(word.to_le_bytes());
                }
            }
            self.traced.write_all(&record)?;
        }
        Ok(())
    }

    fn counted(&mut self, call: &Call<'_>, path: &str, moved: Option<&Transfer>) -> io::Result<bool> {
        let event = call.event;
        let id = FxBuildHasher.hash_one(path);
        let rank = self.rank(event.pid);
        let (first, latest) = self.span.get_or_insert((event.start, event.end()));
        *latest = event.end().max(*latest);
        let seconds = |at: u64| at.saturating_sub(*first) as f64 / 1e9;
        let (start, end) = (seconds(event.start), seconds(event.end()));
        let used = self.files.entry((rank, id)).or_default();
        let is_counted = used.counters.count(event, moved, (start, end));
        self.names.entry(id).or_insert_with(|| path.to_owned());
        if let Some(moved) = moved {
            used.segments[usize::from(moved.writes)].push((moved.offset, moved.bytes, start, end));
            self.waiting += 1;
            if self.waiting == MAX_WAITING {
                self.trace()?;
            }
        }
        Ok(is_counted)
    }

    /// The region of the job: when it ran, in how many processes, what it was, and what was mounted where.
    fn job(&self) -> Vec<u8> {
        let (first, end) = self.span.unwrap_or_default();
        let epoch = self.host.wall_clock as i64;
        let wall = |at: u64| {
            epoch + (at as i64).saturating_sub(self.host.started.0 as i64).div_euclid(1_000_000_000)
        };
        let program = self.program.as_ref();
        let mut job = Vec::with_capacity(JOB);
        let id = program.map_or(0, |session| session.pid.into());
        [0, wall(first), wall(end), self.processes.max(1), id]
            .iter()
            .for_each(|word: &i64| job.extend(word.to_le_bytes()));
        job.extend(format!("lib_ver=cawl {}\n", env!("CARGO_PKG_VERSION")).bytes());
        job.resize(40 + METADATA, 0);
        let command = program.map_or_else(String::new, |session| {
            let words = [&session.program].into_iter().chain(&session.arguments);
            words.map(|word| word.replace(char::is_control, " ")).collect::<Vec<_>>().join(" ")
        });
        job.extend(command.bytes().take(JOB / 2));
        for mounted in &self.host.filesystems {
            let line = format!("\n{}\t{}", mounted.kind, mounted.mount);
            if job.len() + line.len() < JOB && !mounted.mount.contains(char::is_whitespace) {
                job.extend(line.bytes());
            }
        }
        job.resize(JOB, 0);
        job
    }
}

impl Exporter for Darshan {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if let Record::Session(session) = record {
            if let Some(rank) = session.rank {
                self.ranks.insert(session.pid, rank.number.into());
                self.processes = self.processes.max(i64::from(rank.number) + 1);
            }
            // On a busy machine a child may be told of before its parent.
            if self.program.as_ref().is_none_or(|first| session.started < first.started) {
                self.program = Some(session.clone());
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let event = call.event;
        let moved = if event.errno == 0 { Transfer::placed(event) } else { Err(FAILED) };
        let is_file = matches!(event.kind, FileKind::Regular | FileKind::Block);
        match (moved, call.path.filter(|_| is_file)) {
            (Err(why), _) => self.losses.count(event, why),
            (Ok(moved), Some(path)) => {
                if !self.counted(call, path, moved.as_ref())? && !is_silent(event.op) {
                    self.losses.count(event, NO_COUNTER);
                }
            }
            _ if is_silent(event.op) => {}
            _ => self.losses.count(event, NO_COUNTER),
        }
        Ok(())
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        self.trace()?;
        self.traced.try_finish()?;
        let packer = self.traced.get_mut();
        packer.flush()?;
        let length = packer.get_mut().stream_position()?;
        packer.get_mut().rewind()?;
        let mut names = Vec::new();
        for (id, name) in &self.names {
            names.extend(id.to_le_bytes());
            names.extend(name.bytes().filter(|byte| *byte != 0).chain([0]));
        }
        let mut counted = Vec::new();
        for ((rank, id), used) in &self.files {
            counted.extend(id.to_le_bytes());
            counted.extend(rank.to_le_bytes());
            used.counters.encode(&mut counted);
        }
        let [job, names, counted] = [self.job(), names, counted].map(|region| packed(&region));
        let mut place = (HEADER + job.len()) as u64;
        let mut next = |length: u64| {
            place += length;
            (place - length, length)
        };
        let name_map = next(names.len() as u64);
        let mut modules = [((0, 0), 0); MODULES];
        modules[POSIX.0] = (next(counted.len() as u64), POSIX.1);
        modules[DXT_POSIX.0] = (next(length), DXT_POSIX.1);
        self.out.write_all(VERSION)?;
        self.out.write_all(&MAGIC.to_le_bytes())?;
        // Packed by zlib, padding, and no module is incomplete.
        self.out.write_all(&[0; 8])?;
        for (at, length) in [name_map].into_iter().chain(modules.map(|(map, _)| map)) {
            self.out.write_all(&at.to_le_bytes())?;
            self.out.write_all(&length.to_le_bytes())?;
        }
        for (_, version) in modules {
            self.out.write_all(&version.to_le_bytes())?;
        }
        for region in [job, names, counted] {
            self.out.write_all(&region)?;
        }
        io::copy(self.traced.get_mut().get_mut(), &mut self.out)?;
        self.out.write_all(MARK.as_bytes())?;
        self.out.flush()
    }

    fn losses(&self) -> Vec<String> {
        self.losses.notes()
    }
}

fn packed(region: &[u8]) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    // A vector takes everything.
    packer.write_all(region).and_then(|()| packer.finish()).unwrap_or_default()
}
