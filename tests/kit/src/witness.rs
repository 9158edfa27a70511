//! A daemon that only remembers what tracers said, and programs run under the tracer alone, without
//! `cawl-cli`.

use crate::library;
use cawl_wire::ring::{self, CoalescedCalls, Follower, Memory, Position, RingHeader, Taker};
use cawl_wire::{
    Anchor, EVENT_LEN, Ended, Event, FileId, FileRecord, Goodbye, HEADER_LEN, Header, Hello, Kind, Op, Wchar,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::HashMap;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// All that one process image said.
#[derive(Debug, Default)]
pub struct Session {
    /// Its process id.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// The run it named.
    pub run: u64,
    /// What the kernel had counted at the hello.
    pub wchar: Wchar,
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: String,
    /// Paths of files by their number.
    pub files: HashMap<FileId, String>,
    /// Names that files were given.
    pub renamed: Vec<String>,
    /// Its calls.
    pub events: Vec<Event>,
    /// How it said it ended.
    pub goodbyes: Vec<Goodbye>,
    /// Calls it said it had dropped.
    pub dropped: u64,
    /// Events about a file that had not been told about.
    pub nameless: usize,
    /// It came with shared memory.
    pub ringed: bool,
    /// Rings that were ever used.
    pub slots: usize,
    /// Cells of its rings that were used, those of names, of moments of time and of the ends of chunks
    /// included.
    pub cells: u64,
    /// Moments of time in its rings, six cells each.
    pub moments: u64,
}

impl Session {
    /// Events about files whose path ends like this.
    pub fn about(&self, ending: &str) -> Vec<&Event> {
        let is = |event: &&Event| self.path(event).ends_with(ending);
        self.events.iter().filter(is).collect()
    }

    /// Each thread's events came in the order in which they happened.
    pub fn in_order(&self) -> bool {
        let mut last = HashMap::new();
        self.events.iter().all(|event| last.insert(event.tid, event.start).is_none_or(|at| at <= event.start))
    }

    /// The path of an event's file, or nothing.
    pub fn path(&self, event: &Event) -> &str {
        self.files.get(&event.file()).map_or("", String::as_str)
    }

    /// Calls of an operation.
    pub fn count(&self, op: Op) -> usize {
        self.events.iter().filter(|event| event.op == op).count()
    }

    /// Bytes that reached the kernel, by the events. A splice is not counted by the kernel's `wchar`.
    pub fn bytes(&self) -> u64 {
        self.events.iter().map(bytes).sum()
    }

    /// Bytes that were in streams at the end.
    pub fn pending(&self) -> u64 {
        self.events.iter().filter(|event| event.op == Op::StreamExit).filter_map(Event::flushed).sum()
    }

    /// Nothing was lost on the way.
    #[track_caller]
    pub fn assert_intact(&self) {
        assert_eq!(self.dropped, 0, "{}: dropped", self.program);
        assert_eq!(self.nameless, 0, "{}: events about files not told about", self.program);
        assert_eq!(self.run, 7);
        assert_ne!(self.wchar, Wchar::default());
        if let Some(goodbye) = self.goodbyes.last() {
            assert_eq!(goodbye.unseen, 0, "{}: unseen", self.program);
            assert_eq!(self.pending(), goodbye.pending, "{}: pending", self.program);
        }
    }

    fn tell(&self) -> String {
        let mut text = format!(
            "{} {:?} pid {} of {}: {} bytes\n",
            self.program,
            self.arguments,
            self.pid,
            self.ppid,
            self.bytes()
        );
        for event in self.events.iter().rev().take(40).rev() {
            text += &format!(
                "  {:?} fd {} at {} asked {} got {} pending {}-{} of {} {}\n",
                event.op,
                event.fd,
                event.offset as i64,
                event.requested,
                event.returned,
                event.pending_before,
                event.pending_after,
                event.buffer,
                self.path(event)
            );
        }
        text
    }
}

/// Everything that the kernel counted was seen, and nothing else. A parent's count holds those of the
/// children it waited for, so the whole tree is compared at its root.
#[track_caller]
pub fn assert_complete(sessions: &[Session]) {
    sessions.iter().for_each(Session::assert_intact);
    let told = || sessions.iter().map(Session::tell).collect::<String>();
    let of_root = |session: &&Session| session.ppid == std::process::id();
    let began = sessions.iter().filter(of_root).filter_map(|session| session.wchar.process).min();
    let ended = sessions
        .iter()
        .filter(of_root)
        .flat_map(|session| &session.goodbyes)
        .filter_map(|bye| bye.wchar.process)
        .max();
    let (Some(began), Some(ended)) = (began, ended) else { panic!("the root said nothing: {}", told()) };
    let seen: u64 = sessions
        .iter()
        .map(|session| session.bytes() + if of_root(&session) { 0 } else { session.pending() })
        .sum();
    assert_eq!(seen, ended - began, "bytes seen against bytes counted by the kernel:\n{}", told());
}

/// Bytes that a call brought to the kernel.
pub fn bytes(event: &Event) -> u64 {
    match event.op {
        Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev | Op::CopyRange | Op::Sendfile => {
            event.returned.max(0) as u64
        }
        Op::StreamWrite | Op::StreamFlush | Op::StreamSeek | Op::StreamClose => event.flushed().unwrap_or(0),
        _ => 0,
    }
}

/// How the daemon answers a hello.
#[derive(Clone, Copy, PartialEq)]
pub enum Answer {
    /// As a daemon does.
    Welcome,
    /// The same, and shared memory is read all the time and not only at the end.
    Read,
    /// With this version in the header.
    Refuse(u16),
    /// Never, and the connection is dropped after the hello.
    HangUp,
    /// Never, and the connection stays.
    Nothing,
}

/// What the test itself says when the programs have ended; no tracer begins like this.
const NO_MORE: u8 = 0xFF;

/// The daemon that only remembers.
pub struct Daemon {
    /// Where it listens.
    pub socket: PathBuf,
    ended: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<Session>>,
}

impl Daemon {
    /// Listens in a folder.
    pub fn start(dir: &Path, answer: Answer) -> Daemon {
        let socket = dir.join("socket");
        let listener = UnixListener::bind(&socket).expect("bind");
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut sessions = Vec::new();
            for stream in listener.incoming() {
                let stream = stream.expect("accept");
                let mut first = [0u8; 1];
                match receive(&stream, &mut first) {
                    (1, _) if first[0] == NO_MORE => break,
                    (1, memory) => {
                        let count = Arc::clone(&count);
                        sessions.push(std::thread::spawn(move || {
                            let session = session(first[0], memory, stream, answer);
                            count.fetch_add(1, Ordering::SeqCst);
                            session
                        }));
                    }
                    // Who was interrupted before it said anything.
                    _ => {}
                }
            }
            sessions.into_iter().map(|thread| thread.join().expect("session")).collect()
        });
        Daemon { socket, ended, thread }
    }

    /// A command that will be traced.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = crate::program(program);
        crate::preload(&mut command, &library());
        command.env("CAWL_SOCKET", &self.socket).env("CAWL_RUN", "7").env("LC_ALL", "C.UTF-8");
        command
    }

    /// The same where a process may outlive the one that was waited for: after `count` sessions ended.
    pub fn finish_when(self, count: usize) -> Vec<Session> {
        while self.ended.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
        self.finish()
    }

    /// What was said, once every traced process has ended.
    pub fn finish(self) -> Vec<Session> {
        UnixStream::connect(&self.socket)
            .and_then(|mut stream| stream.write_all(&[NO_MORE]))
            .expect("the daemon");
        self.thread.join().expect("daemon")
    }
}

/// The first bytes, and the memory that comes with them.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> (usize, Option<File>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let Ok(got) = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, flags) else {
        return (0, None);
    };
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (got.bytes, memory.map(File::from))
}

struct Shared(File);

impl Memory for Shared {
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        self.0.read_exact_at(out, at).is_ok()
    }

    fn write(&self, at: u64, word: u64) {
        self.0.write_all_at(&word.to_le_bytes(), at).expect("write");
    }
}

/// Rings, and what was read from them.
struct Rings {
    memory: Shared,
    header: RingHeader,
    followers: Vec<Follower>,
    found: Found,
}

/// What was read.
#[derive(Default)]
struct Found {
    events: Vec<Event>,
    files: HashMap<FileId, String>,
    renamed: Vec<String>,
    /// Events about files that their own ring had not named.
    nameless: usize,
    moments: u64,
}

impl Rings {
    fn new(memory: File) -> Rings {
        let length = memory.metadata().expect("metadata").len();
        let memory = Shared(memory);
        let mut bytes = [0; RingHeader::LEN];
        assert!(memory.read(0, &mut bytes));
        let header = RingHeader::decode(&bytes, length).expect("header");
        memory.write(ring::ROOM_AT as u64, u64::MAX);
        Rings { memory, header, followers: Vec::new(), found: Found::default() }
    }

    fn tail(&self, slot: u32) -> Position {
        Position::unpack(self.word(self.header.control(slot) + ring::TAIL_AT as u64))
    }

    /// Cells that were ever written, or left out at the end of a chunk.
    fn cells(&self) -> u64 {
        let before = |tail: Position| u64::from(tail.chunk - Position::START.chunk);
        let of = |tail: Position| before(tail) * u64::from(ring::CHUNK_CELLS) + u64::from(tail.cell);
        (0..self.followers.len() as u32).map(|slot| of(self.tail(slot))).sum()
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        assert!(self.memory.read(at, &mut bytes));
        u64::from_le_bytes(bytes)
    }

    fn read(&mut self) {
        for slot in self.followers.len() as u32..self.word(ring::USED_AT as u64) as u32 {
            self.followers.push(Follower::new(slot));
        }
        let mut cells = vec![[0; ring::CELL_LEN]; ring::CHUNK_CELLS as usize];
        for slot in 0..self.followers.len() {
            let tail = self.tail(slot as u32);
            let follower = &mut self.followers[slot];
            loop {
                let read = follower.read(&self.memory, self.header, tail, &mut cells, &mut self.found);
                if read.expect("cells") == 0 {
                    break;
                }
                follower.release(&self.memory, self.header);
            }
        }
    }
}

/// Each call.
impl Taker for Found {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn is_coalescible(&self, _event: &Event) -> bool {
        false
    }

    fn event(&mut self, event: &Event) {
        // A copy of a process has mappings of files that it has not looked at.
        let is_store = matches!(event.op, Op::MmapWrite | Op::Msync);
        self.nameless += usize::from(event.ino != 0 && !is_store && !self.files.contains_key(&event.file()));
        self.events.push(*event);
    }

    fn file(&mut self, file: &FileRecord<'_>) {
        let path = String::from_utf8_lossy(file.path).into_owned();
        if file.renamed {
            self.files.entry(file.file).or_insert_with(|| path.clone());
            self.renamed.push(path);
        } else {
            self.files.insert(file.file, path);
        }
    }

    fn anchor(&mut self, _anchor: Anchor) {
        self.moments += 1;
    }

    fn damaged(&mut self) {
        panic!("a damaged record");
    }

    fn coalesced(&mut self, calls: &CoalescedCalls) {
        panic!("{calls:?}, though each call is wanted");
    }
}

fn session(first: u8, memory: Option<File>, mut stream: UnixStream, answer: Answer) -> Session {
    let mut session = Session::default();
    let mut header = [0u8; HEADER_LEN];
    header[0] = first;
    stream.read_exact(&mut header[1..]).expect("first header");
    let mut hello = vec![0u8; Header::decode(&header).expect("header").len as usize];
    stream.read_exact(&mut hello).expect("hello");
    let mut reply = Header { kind: Kind::Welcome, len: 0, dropped: 0 }.encode();
    if let Answer::Refuse(version) = answer {
        reply[4..6].copy_from_slice(&version.to_le_bytes());
        reply[6] = Kind::Refused as u8;
    }
    if matches!(answer, Answer::Welcome | Answer::Read | Answer::Refuse(_)) {
        let _ = stream.write_all(&reply);
    }
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let rings = memory.map(|memory| {
        std::thread::spawn(move || {
            let mut rings = Rings::new(memory);
            loop {
                let last = ended.load(Ordering::SeqCst);
                if last || answer == Answer::Read {
                    rings.read();
                }
                if last {
                    return rings;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        })
    });
    let mut said = [&header[..], &hello].concat();
    // Taken off the socket as fast as it comes, and understood afterwards.
    if matches!(answer, Answer::Welcome | Answer::Read | Answer::Nothing) {
        let _ = stream.read_to_end(&mut said);
    }
    drop(stream);
    understand(&said, &mut session);
    if let Some(rings) = rings {
        over.store(true, Ordering::SeqCst);
        let rings = rings.join().expect("rings");
        session.ringed = true;
        session.slots = rings.followers.len();
        session.cells = rings.cells();
        session.moments = rings.found.moments;
        session.dropped = session.dropped.max(rings.word(ring::DROPPED_AT as u64));
        session.renamed.extend(rings.found.renamed);
        session.files.extend(rings.found.files);
        let events = rings.found.events;
        // A file that another thread opened is named in that one's ring.
        let is_nameless = |event: &&Event| event.ino != 0 && !session.files.contains_key(&event.file());
        session.nameless += events.iter().filter(is_nameless).count();
        if session.slots == 1 {
            session.nameless += rings.found.nameless;
        }
        session.events.extend(events);
    }
    session
}

/// Adds the messages of a connection to what was said.
fn understand(said: &[u8], session: &mut Session) {
    let mut rest = said;
    while !rest.is_empty() {
        let (header, tail) = rest.split_first_chunk().expect("whole header");
        let head = Header::decode(header).expect("header");
        let (payload, tail) = tail.split_at(head.len as usize);
        rest = tail;
        session.dropped = head.dropped;
        match head.kind {
            Kind::Hello => {
                let hello = Hello::decode(payload).expect("hello");
                session.pid = hello.pid;
                session.ppid = hello.ppid;
                session.run = hello.run;
                session.wchar = hello.wchar;
                session.program = String::from_utf8_lossy(hello.program).into_owned();
                session.arguments = String::from_utf8_lossy(hello.arguments).into_owned();
            }
            Kind::File => {
                let file = FileRecord::decode(payload).expect("file");
                let path = String::from_utf8_lossy(file.path).into_owned();
                if file.renamed {
                    session.files.entry(file.file).or_insert_with(|| path.clone());
                    session.renamed.push(path);
                } else {
                    session.files.insert(file.file, path);
                }
            }
            Kind::Events => {
                for record in payload.as_chunks::<EVENT_LEN>().0 {
                    if Anchor::decode(record).is_some() {
                        continue;
                    }
                    let event = Event::decode(record).expect("event");
                    if event.ino != 0 && !session.files.contains_key(&event.file()) {
                        session.nameless += 1;
                    }
                    session.events.push(event);
                }
            }
            Kind::Goodbye => session.goodbyes.push(Goodbye::decode(payload).expect("goodbye")),
            Kind::Bell => {}
            Kind::Welcome | Kind::Refused => panic!("a tracer does not answer"),
        }
    }
}

/// A directory for one test.
pub fn dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("cawl-preload-").tempdir().expect("directory")
}

/// Runs a program in a fresh directory without and with the tracer, compares all that can be seen of it,
/// and returns what was said.
#[track_caller]
pub fn compare(program: &Path, arguments: &[&str], prepare: impl Fn(&Path)) -> Vec<Session> {
    let (bare, traced, place) = (dir(), dir(), dir());
    prepare(bare.path());
    prepare(traced.path());
    let run = |mut command: Command, at: &Path| -> Output {
        command.args(arguments).current_dir(at).output().expect("run")
    };
    let mut plain = crate::program(program);
    plain.env("LC_ALL", "C.UTF-8");
    let expected = run(plain, bare.path());
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let got = run(daemon.command(program), traced.path());
    let sessions = daemon.finish();
    assert_eq!(String::from_utf8_lossy(&got.stderr), String::from_utf8_lossy(&expected.stderr));
    assert_eq!(String::from_utf8_lossy(&got.stdout), String::from_utf8_lossy(&expected.stdout));
    assert_eq!(got.status, expected.status);
    let (written, wanted) = (tree(traced.path()), tree(bare.path()));
    let names = |tree: &[(PathBuf, Vec<u8>)]| tree.iter().map(|file| file.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&written), names(&wanted));
    for (one, other) in written.iter().zip(&wanted) {
        assert!(
            one.1 == other.1,
            "{} differs from the untraced run: {:.2000} and {:.2000}",
            one.0.display(),
            String::from_utf8_lossy(&one.1),
            String::from_utf8_lossy(&other.1)
        );
    }
    sessions
}

/// Every file below a directory, with its content.
pub fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fn walk(root: &Path, dir: &Path, out: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in std::fs::read_dir(dir).expect("read_dir") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                walk(root, &path, out);
            } else {
                let name = path.strip_prefix(root).expect("prefix").to_owned();
                out.push((name, std::fs::read(&path).unwrap_or_default()));
            }
        }
    }
    let mut out = Vec::new();
    walk(dir, dir, &mut out);
    out.sort();
    out
}

/// How a session says it ended.
pub fn ended(session: &Session) -> Option<Ended> {
    session.goodbyes.last().map(|goodbye| goodbye.ended)
}
