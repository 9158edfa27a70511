//! DFTracer's events, a JSON object a line, packed if the file's name says so (.pfw.gz).

use std::hash::BuildHasher;
use std::io::{self, Write};

use cawl_core::Report;
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};
use flate2::{Compression, GzBuilder, write::GzEncoder};
use nix::fcntl::OFlag;
use rustc_hash::{FxBuildHasher, FxHashSet};
use serde_json::{Map, Value, json};

use super::traffic::Losses;
use super::{About, Call, Exporter, Output};

/// Stands in the head of a packed file, and is the first fact of any.
const MARK: &str = "cawl-cli dftracer";

const NO_CALL: &str = "left out: no call of the program's";

/// True of an export that begins so.
pub fn is_one(head: &str) -> bool {
    head.starts_with(['{', '\u{1f}']) && head.contains(MARK)
}

/// Where lines go: as they are, or packed.
enum Lines {
    Plain(Output),
    Packed(GzEncoder<Output>),
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Lines::Plain(out) => out.write(bytes),
            Lines::Packed(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Lines::Plain(out) => out.flush(),
            Lines::Packed(out) => out.try_finish().and_then(|()| out.get_mut().flush()),
        }
    }
}

pub struct DfTracer {
    out: Lines,
    /// Time of day of CLOCK_MONOTONIC's 0, in ns since 1970.
    epoch: u64,
    host: String,
    named: FxHashSet<u64>,
    losses: Losses,
}

impl DfTracer {
    pub fn new(out: Output, about: &About<'_>) -> io::Result<DfTracer> {
        let packer = || GzBuilder::new().comment(MARK);
        let out = match about.packed {
            true => Lines::Packed(packer().write(out, Compression::default())),
            false => Lines::Plain(out),
        };
        let known =
            about.host.map(|host| (host.host.as_str(), host.wall_clock * 1_000_000_000, host.started.0));
        let (name, wall, started) = known.unwrap_or_default();
        let (host, epoch) = (hash(name), wall.saturating_sub(started));
        let mut tracer =
            DfTracer { out, epoch, host, named: FxHashSet::default(), losses: Losses::default() };
        tracer.tell("PR", "exported_by", MARK)?;
        let host = tracer.host.clone();
        tracer.tell("HH", name, &host)?;
        for (name, value) in about.facts() {
            tracer.tell("PR", name, &value)?;
        }
        Ok(tracer)
    }

    /// A line that is no event: what a hash means, or a fact.
    fn tell(&mut self, what: &str, name: &str, value: &str) -> io::Result<()> {
        let args = json!({ "hhash": self.host, "name": name, "value": value });
        self.line(&json!({ "name": what, "cat": "dftracer", "pid": 0, "tid": 0, "ph": "M", "args": args }))
    }

    fn line(&mut self, line: &Value) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

impl Exporter for DfTracer {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let event = call.event;
        let (name, is_stream) = match event.op {
            Op::Resident | Op::StreamExit | Op::MmapWrite | Op::AioWrite | Op::AioFsync => {
                if event.op != Op::Resident {
                    self.losses.count(event, NO_CALL);
                }
                return Ok(());
            }
            Op::Truncate if event.fd >= 0 => ("ftruncate", false),
            Op::Lock => ("fcntl", false),
            op => (op.name(), (Op::StreamWrite as u8..=Op::StreamOpen as u8).contains(&(op as u8))),
        };
        let is_stream = is_stream || event.op == Op::StreamRead;
        let mut args = Map::new();
        args.insert("hhash".to_owned(), self.host.as_str().into());
        if let Some(path) = call.path.filter(|_| event.kind != FileKind::Unknown || event.ino != 0) {
            let id = FxBuildHasher.hash_one(path);
            if self.named.insert(id) {
                self.tell("FH", path, &hash(path))?;
            }
            args.insert("fhash".to_owned(), hash(path).into());
        }
        let returned = if event.errno == 0 { event.returned } else { -1 };
        args.insert("ret".to_owned(), returned.into());
        let has_place = event.offset != UNKNOWN_OFFSET && !matches!(event.op, Op::Rename | Op::Open);
        let place = if event.op == Op::Truncate { "length" } else { "offset" };
        let flags = open_flags(event).bits() as u64;
        let more = [
            (place, has_place.then_some(event.offset)),
            // SEEK_SET
            ("whence", (event.op == Op::Seek).then_some(0)),
            ("count", event.op.moves_bytes().then_some(event.requested)),
            ("fd", (event.op != Op::Open).then(|| u64::try_from(event.fd).ok()).flatten()),
            ("flags", (event.op == Op::Open || flags != 0).then_some(flags)),
            ("errno", (event.errno != 0).then_some(event.errno.into())),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                args.insert(name.to_owned(), value.into());
            }
        }
        if event.op == Op::StreamOpen {
            let modes = [(flag::APPEND, "a"), (flag::TRUNC, "w"), (flag::WRITABLE, "r+")];
            let mode = modes.iter().find(|(bits, _)| event.has(*bits)).map_or("r", |(_, mode)| mode);
            args.insert("mode".to_owned(), mode.into());
        }
        if let Some(causes) = call.causes {
            args.insert("cause".to_owned(), causes.main().name().into());
        }
        let micros = |at: u64| self.epoch.saturating_add(at) / 1000;
        let (start, end) = (micros(event.start), micros(event.end()));
        let line = json!({
            "id": call.number, "name": name, "cat": if is_stream { "STDIO" } else { "POSIX" },
            "pid": event.pid, "tid": event.tid, "ts": start, "dur": end - start, "ph": "X", "args": args,
        });
        self.line(&line)
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        self.out.flush()
    }

    fn losses(&self) -> Vec<String> {
        self.losses.notes()
    }
}

/// The flags of open for a file that is open as in a call.
fn open_flags(event: &Event) -> OFlag {
    const FLAGS: [(u32, OFlag); 6] = [
        (flag::WRITABLE, OFlag::O_RDWR),
        (flag::TRUNC, OFlag::O_TRUNC),
        (flag::APPEND, OFlag::O_APPEND),
        (flag::SYNC, OFlag::O_SYNC),
        (flag::DSYNC, OFlag::O_DSYNC),
        (flag::DIRECT, OFlag::O_DIRECT),
    ];
    FLAGS.iter().filter(|(bits, _)| event.has(*bits)).map(|(_, flag)| *flag).collect()
}

/// A name as events refer to it.
fn hash(name: &str) -> String {
    format!("{:016x}", FxBuildHasher.hash_one(name))
}
