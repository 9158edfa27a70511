//! The daemon and shared memory: honest programs, many at once, and ones that write nonsense.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cawl_client::protocol::RunEnd;
use cawl_client::protocol::RunSpec;
use cawl_core::{EndKind, Outcome, Record, Report};
use cawl_host::trace::TraceReader;
use cawl_wire::ring::{
    Begun, CELL_LEN, CHUNK_CELLS, CHUNKS, Call, DROPPED_AT, Expected, HEAD_AT, NAME_CELLS, NAME_HEAD,
    Position, RingHeader, SHAPE, TAIL_AT, USED_AT, name_cells, name_head, whole,
};
use cawl_wire::{
    Anchor, Ended, Event, FileId, FileKind, FileRecord, Goodbye, Header, Hello, Kind, Op, Usage, Wchar,
};
use cawld::{Daemon, EngineOptions, socket};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

const HEADER: RingHeader = RingHeader { slots: 8, chunks: 8 * CHUNKS as u32 };

fn memory(seals: SealFlags) -> File {
    let fd = rustix::fs::memfd_create("ring", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    file.set_len(HEADER.total()).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.write_all_at(&HEADER.encode(), 0).unwrap();
    file
}

fn honest() -> File {
    memory(SealFlags::SHRINK | SealFlags::GROW)
}

/// A program's end of a session.
struct Program {
    socket: UnixStream,
    pid: u32,
}

impl Program {
    fn hello(path: &Path, run: u64, pid: u32, memory: BorrowedFd<'_>, ticks: bool) -> Program {
        Program::hello_at(0, path, run, pid, memory, ticks)
    }

    /// Of a program whose ticks count from `nanos`.
    fn hello_at(nanos: u64, path: &Path, run: u64, pid: u32, memory: BorrowedFd<'_>, ticks: bool) -> Program {
        let socket = UnixStream::connect(path).unwrap();
        let anchors = [Anchor { ticks: 0, nanos }, Anchor { ticks: 3000, nanos: nanos + 1000 }];
        let ticks = ticks.then_some(anchors);
        let (ppid, uid, started, wchar) = (1, 0, 0, Wchar::default());
        let hello = Hello {
            pid,
            ppid,
            uid,
            run,
            started,
            wchar,
            ring: true,
            ticks,
            program: b"p",
            ..Hello::default()
        };
        let mut payload = [0; 256];
        let length = hello.encode(&mut payload).unwrap();
        let header = Header { kind: Kind::Hello, len: length as u32, dropped: 0 }.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = [memory];
        assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        let parts = [IoSlice::new(&header), IoSlice::new(&payload[..length])];
        rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
        Program { socket, pid }
    }

    fn goodbye(mut self) {
        let goodbye = Goodbye {
            ended: Ended::Exit,
            at: 1,
            wchar: Wchar::default(),
            usage: Usage::default(),
            pending: 0,
            unseen: 0,
            past: 0,
        };
        let mut payload = [0; 128];
        let length = goodbye.encode(&mut payload).unwrap();
        let header = Header { kind: Kind::Goodbye, len: length as u32, dropped: 0 }.encode();
        // The daemon may have hung up on a program that told nonsense.
        let _ = self.socket.write_all(&[&header[..], &payload[..length]].concat());
    }
}

/// Writes events into a slot as a tracer does; returns how many found room.
struct Thread<'a> {
    memory: &'a File,
    slot: u32,
    pid: u32,
    position: Position,
    begun: Begun,
    /// Those of this slot.
    free: Vec<u16>,
    index: u16,
    expected: Expected,
    kind: FileKind,
}

impl Thread<'_> {
    fn new(memory: &File, slot: u32, pid: u32) -> Thread<'_> {
        memory.write_all_at(&(slot + 1).to_le_bytes(), USED_AT as u64).unwrap();
        let position = Position { chunk: 0, cell: CHUNK_CELLS };
        Thread {
            memory,
            slot,
            pid,
            position,
            begun: Begun::START,
            free: (0..CHUNKS).rev().map(|index| (slot as usize * CHUNKS + index) as u16).collect(),
            index: 0,
            expected: Expected::default(),
            kind: FileKind::Unknown,
        }
    }

    fn put(&mut self, number: u64) -> bool {
        let control = HEADER.control(self.slot);
        if SHAPE.ends_at(self.position.cell) {
            let mut head = [0; 8];
            self.memory.read_exact_at(&mut head, control + HEAD_AT as u64).unwrap();
            let head = Position::unpack(u64::from_le_bytes(head));
            while self.begun.is_oldest_read(head) {
                let mut index = [0; 2];
                self.memory.read_exact_at(&mut index, HEADER.order(self.slot, self.begun.oldest)).unwrap();
                self.free.push(u16::from_le_bytes(index));
                self.begun.oldest += 1;
            }
            let next = self.begun.next;
            let Some(taken) = self.begun.may_begin(SHAPE).then(|| self.free.pop()).flatten() else {
                return false;
            };
            self.memory.write_all_at(&taken.to_le_bytes(), HEADER.order(self.slot, next)).unwrap();
            self.index = taken;
            self.position = Position { chunk: next, cell: 0 };
            self.begun.next += 1;
        }
        let mut event = Event::new(Op::Write);
        // No two threads at the same time: whose call comes first would be anybody's guess.
        let start = 3000 + 300 * number + 35 * u64::from(self.slot % 8);
        (event.pid, event.tid, event.start, event.duration) = (self.pid, self.slot, start, 30);
        (event.requested, event.returned) = (1, 1);
        (event.kind, event.ino) = (self.kind, self.kind as u64);
        let Event { start, duration, offset, requested, returned, .. } = event;
        let call = Call { start, duration, offset, requested, returned, pending: None };
        let chunk = self.position.chunk;
        // Every tenth is told whole.
        let short = self.expected.shorten(chunk, &call).filter(|_| !number.is_multiple_of(10));
        let record = match short {
            Some(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            None => whole(chunk, &event.encode()).to_vec(),
        };
        self.expected = Expected::after(&event);
        let at = HEADER.chunk(self.index.into()) + u64::from(self.position.cell) * CELL_LEN as u64;
        self.memory.write_all_at(&record, at).unwrap();
        self.position.cell += (record.len() / CELL_LEN) as u32;
        self.memory.write_all_at(&self.position.pack().to_le_bytes(), control + TAIL_AT as u64).unwrap();
        true
    }
}

impl Thread<'_> {
    /// A name, in the chunk that a call has begun.
    fn name(&mut self, file: &FileRecord<'_>) {
        let mut record = vec![0; NAME_CELLS as usize * CELL_LEN];
        let length = file.encode(&mut record[NAME_HEAD..]).unwrap() as u16;
        record[..NAME_HEAD].copy_from_slice(&name_head(self.position.chunk, length));
        let at = HEADER.chunk(self.index.into()) + u64::from(self.position.cell) * CELL_LEN as u64;
        self.memory.write_all_at(&record, at).unwrap();
        self.position.cell += name_cells(length);
        let tail = HEADER.control(self.slot) + TAIL_AT as u64;
        self.memory.write_all_at(&self.position.pack().to_le_bytes(), tail).unwrap();
    }
}

/// A daemon, what is done to it, and its report.
async fn report(act: impl FnOnce(&Path, u64) + Send + 'static) -> Report {
    report_of(RunSpec::default(), act).await
}

/// The same for a run of this kind.
async fn report_of(spec: RunSpec, act: impl FnOnce(&Path, u64) + Send + 'static) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let options = EngineOptions::new(cawl_host::uncalibrated_profile());
    let daemon = Daemon::start(socket::listen(&path).unwrap(), options).unwrap();
    let run = daemon.begin_run(spec).await.unwrap();
    tokio::task::spawn_blocking(move || act(&path, run)).await.unwrap();
    let outcome = Some(Outcome { pid: NOBODY, code: None, signal: Some(9), wchar: None });
    daemon.end_run(run, RunEnd { outcome, ..RunEnd::default() }, std::future::pending()).await.unwrap()
}

/// No process has such a number, so nobody waits for it.
const NOBODY: u32 = 1 << 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_program_left_is_taken() {
    let report = report(|path, run| {
        let memory = honest();
        let program = Program::hello(path, run, NOBODY, memory.as_fd(), true);
        let mut thread = Thread::new(&memory, 0, program.pid);
        assert!((0..10_000).all(|number| thread.put(number)));
        memory.write_all_at(&7u64.to_le_bytes(), DROPPED_AT as u64).unwrap();
    })
    .await;
    assert_eq!((report.calls, report.drops), (10_000, 7));
    assert!(report.sessions[0].ended == EndKind::Vanished);
    // A tick is a third of a nanosecond here; the last call began 3 million ticks after the first.
    assert!((report.span_s - 1e-3).abs() < 1e-6, "{}", report.span_s);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_a_killed_program_named_is_known() {
    let report = report(|path, run| {
        let memory = honest();
        let program = Program::hello(path, run, NOBODY, memory.as_fd(), true);
        let mut thread = Thread::new(&memory, 0, program.pid);
        assert!(thread.put(0));
        thread.kind = FileKind::Regular;
        let file = FileId::new(0, FileKind::Regular as u64);
        let mode = 0o100_644;
        thread.name(&FileRecord { file, renamed: false, size: 0, block: 4096, mode, path: b"/a/name" });
        thread.expected = Expected::default();
        assert!((1..100).all(|number| thread.put(number)));
    })
    .await;
    let named: Vec<_> = report.files.iter().filter(|file| file.path == "/a/name").collect();
    assert_eq!((report.calls, named.len()), (100, 1), "{:?}", report.files);
}

/// Who keeps a trace gets each call, others may get calls to /dev/null added up: the report is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_added_up_are_reported_as_if_told_each() {
    // Calls of long ago are taken as they come, and how far each thread has come when the daemon looks would
    // decide whose of two calls is first. These are as far ahead as a tracer's clock may be, and wait.
    let act = |path: &Path, run: u64| {
        let memory = honest();
        let mut threads = [0, 1].map(|slot| Thread::new(&memory, slot, NOBODY));
        let kinds = [FileKind::Char, FileKind::Regular, FileKind::Fifo];
        for number in 0..30_000 {
            threads[0].kind = kinds[number as usize / 10_000];
            threads[1].kind = kinds[number as usize / 10 % 3];
            assert!(threads.iter_mut().all(|thread| thread.put(number)));
        }
        let soon = cawl_host::now().0 + 900_000_000;
        Program::hello_at(soon, path, run, NOBODY, memory.as_fd(), true);
    };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let spec = RunSpec { trace: Some(trace.clone()), ..RunSpec::default() };
    let reports = [report_of(spec, act).await, report(act).await];
    let [each, several] = reports.map(|mut report| {
        // What the kernel says of the machine is its own affair.
        report.host = None;
        // Its clock goes on, and the threads' order is not the same, by which the time on paper differs.
        if let Some(advice) = &mut report.advice {
            (advice.paper_s, advice.best_s) = (0.0, 0.0);
        }
        if let Some(explain) = &mut report.explain {
            (explain.processes, explain.worst) = (Vec::new(), Vec::new());
            explain.best.best_s = 0.0;
        }
        for call in &mut report.worst {
            (call.before, call.after, call.tid, call.call) = (Vec::new(), Vec::new(), 0, 0);
            call.at_s = 0.0;
        }
        (report.span_s, report.timeline) = (0.0, None);
        for model in &mut report.models {
            model.dirty_error = None;
            (model.summary.dirty_error, model.summary.dirty_samples) = (None, 0);
        }
        serde_json::to_value(report).unwrap()
    });
    assert_eq!((&each["calls"], &each["elsewhere"]["calls"]), (&60_000.into(), &40_000.into()));
    assert_eq!(each, several);
    let told = TraceReader::open(&trace).unwrap().map(Result::unwrap);
    assert_eq!(told.filter(|record| matches!(record, Record::Event(_))).count(), 60_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_programs_at_once() {
    let report = report(|path, run| {
        std::thread::scope(|scope| {
            for number in 0..64 {
                scope.spawn(move || {
                    let memory = honest();
                    let program = Program::hello(path, run, NOBODY + number, memory.as_fd(), number % 2 == 0);
                    let mut thread = Thread::new(&memory, number % HEADER.slots, program.pid);
                    for call in 0..6000 {
                        while !thread.put(call) {
                            std::thread::yield_now();
                        }
                    }
                    program.goodbye();
                });
            }
        });
    })
    .await;
    assert_eq!((report.calls, report.drops, report.sessions.len()), (64 * 6000, 0, 64));
    assert!(report.sessions.iter().all(|session| session.calls == 6000 && session.ended == EndKind::Exit));
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_a_ring_is_refused_and_said() {
    let report = report(|path, run| {
        let (pipe, _write) = rustix::pipe::pipe().unwrap();
        Program::hello(path, run, NOBODY + 1, pipe.as_fd(), false).goodbye();
        Program::hello(path, run, NOBODY + 2, tempfile::tempfile().unwrap().as_fd(), false).goodbye();
        Program::hello(path, run, NOBODY + 3, memory(SealFlags::GROW).as_fd(), false).goodbye();
        let other = honest();
        other.write_all_at(b"X", 0).unwrap();
        Program::hello(path, run, NOBODY + 4, other.as_fd(), false).goodbye();
        let short = File::from(rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap());
        short.write_all_at(&HEADER.encode(), 0).unwrap();
        rustix::fs::fcntl_add_seals(&short, SealFlags::SHRINK).unwrap();
        Program::hello(path, run, NOBODY + 5, short.as_fd(), false).goodbye();
    })
    .await;
    assert_eq!(report.notes.len(), 5, "{:?}", report.notes);
    assert_eq!((report.sessions.len(), report.calls), (5, 0));
}

/// Whatever stands in the memory, the daemon goes on and an honest program beside it loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_in_memory_hurts_only_its_own_session() {
    let report = report(|path, run| {
        let memory = honest();
        let program = Program::hello(path, run, NOBODY, memory.as_fd(), true);
        let mut thread = Thread::new(&memory, 0, program.pid);
        let mut state = 88_172_645_463_325_252u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..150 {
            let nonsense = honest();
            let hostile = Program::hello(path, run, NOBODY + 1, nonsense.as_fd(), round % 2 == 0);
            for _ in 0..40 {
                let slot = (random() % 8) as u32;
                let control = HEADER.control(slot);
                let word = match random() % 4 {
                    0 => random(),
                    1 => Position { chunk: (random() % 514) as u32, cell: (random() % 5000) as u32 }.pack(),
                    2 => [0, 1, 1 << 32, u64::MAX, u64::from(CHUNK_CELLS), 1 << 63][random() as usize % 6],
                    _ => (1 << 32) | (random() % 4097),
                };
                let at = match random() % 6 {
                    0 => USED_AT as u64,
                    1 => HEADER.order(slot, random() as u32),
                    2 => control + HEAD_AT as u64,
                    3 => HEADER.chunk((random() % 64) as u32) + random() % (1 << 16),
                    _ => control + TAIL_AT as u64,
                };
                let word = if at == USED_AT as u64 { random() % 10 } else { word };
                nonsense.write_all_at(&word.to_le_bytes(), at).unwrap();
            }
            if round % 3 == 0 {
                hostile.goodbye();
            }
            assert!(thread.put(round));
        }
        program.goodbye();
    })
    .await;
    let session = report.sessions.iter().find(|session| session.pid == NOBODY).unwrap();
    assert_eq!((session.calls, session.dropped), (150, 0));
    assert_eq!(report.sessions.len(), 151);
    assert!(!report.notes.is_empty());
}
