//! A daemon of root's among clients that lie: as root, and as a user whose programs may be recorded. It
//! answers all the while, takes a bounded memory, and ends when it is told to.
//!
//! The daemon and the clients are processes of their own, started from this test's program: their parts are
//! the ignored tests below. `CAWL_HOSTILE_SECONDS` makes it longer, `CAWL_HOSTILE_SEED` repeats one.

use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cawl_client::protocol::{Request, Status, View};
use cawl_client::query;
use cawl_core::Mode;
use cawl_kit::LIMIT;
use cawl_kit::served::message;
use cawl_wire::{Anchor, Ended, Event, FileId, FileKind, FileRecord, Goodbye, Hello, Kind, Op, Usage, Wchar};
use cawld::{Allowed, Daemon, EngineOptions, Node, socket};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// What the daemon may work until a status is answered, in processor time: that of a machine which is busy
/// with other things is long, and this program is not optimized.
const WORK: Duration = Duration::from_secs(10);
/// What the daemon may hold at most, in bytes.
const MEMORY: u64 = 1 << 30;
/// How much longer clients lie, while the daemon is told to end.
const LONGER: Duration = Duration::from_secs(2);
/// A user that nobody has.
const STRANGER: u32 = 64_123;

fn seconds() -> u64 {
    std::env::var("CAWL_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// This program as `part`, with a socket.
fn start(part: &str, socket: &Path, seed: u64, user: Option<u32>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("hostile::{part}"), "--ignored", "--nocapture"]);
    command.env("CAWL_HOSTILE_SOCKET", socket).env("CAWL_HOSTILE_SEED", seed.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.spawn().unwrap()
}

/// Processor time that it has used.
fn worked(process: &Child) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let after = text.rsplit_once(") ").unwrap().1;
    // In ticks of 10 ms.
    let ticks: u64 = after.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

fn socket() -> Option<PathBuf> {
    std::env::var_os("CAWL_HOSTILE_SOCKET").map(PathBuf::from)
}

#[test]
fn the_daemon_answers_among_clients_that_lie() {
    let seed = std::env::var("CAWL_HOSTILE_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(std::process::id().into());
    println!("CAWL_HOSTILE_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("s.sock");
    let mut daemon = start("daemon", &path, seed, None);
    let mut said = BufReader::new(daemon.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().ends_with("listening")), "it never listened");
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: clients of another user: only root can start them");
    }
    let users = [None, is_root.then_some(STRANGER), is_root.then_some(STRANGER + 1)];
    let users = users.into_iter().enumerate().filter(|(at, user)| *at == 0 || user.is_some());
    let mut clients: Vec<Child> =
        users.map(|(at, user)| start("client", &path, seed + at as u64, user)).collect();
    let (mut took, mut most_work) = (Vec::new(), Duration::ZERO);
    let until = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < until {
        let (asked, before) = (Instant::now(), worked(&daemon));
        let ask = || query::ask_within::<Status>(&path, &Request::Status(View::default()), LIMIT);
        let status = loop {
            match ask() {
                Ok(status) => break status,
                Err(error) => {
                    // It may have got no processor for so long, or have had no place for one more of root's.
                    let passes = ["busy", "hung up"].iter().any(|why| error.to_string().contains(why));
                    let is_alive = daemon.try_wait().unwrap().is_none();
                    assert!(passes && is_alive && worked(&daemon) - before < WORK, "seed {seed}: {error:#}");
                }
            }
        };
        took.push(asked.elapsed());
        most_work = most_work.max(worked(&daemon).saturating_sub(before));
        assert!(most_work < WORK, "seed {seed}: {most_work:?} of work until a status was answered");
        assert!(status.clients < 10_000);
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let most = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    took.sort();
    let [half, all_but_few, all] = [50, 99, 100].map(|part| took[(took.len() * part).div_ceil(100) - 1]);
    println!(
        "\na status took {half:?}, 99 of 100 {all_but_few:?}, {all:?} and {most_work:?} of work at most"
    );
    println!("the daemon took {} MiB at most", most >> 20);
    assert!(most < MEMORY, "seed {seed}: {} MiB", most >> 20);
    // The end of its input tells it to end. The clients go on lying.
    drop(daemon.stdin.take());
    let told = Instant::now();
    while daemon.try_wait().unwrap().is_none() {
        assert!(told.elapsed() < LIMIT, "seed {seed}: it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(daemon.wait().unwrap().success(), "seed {seed}");
    assert!(clients.iter_mut().all(|client| client.wait().unwrap().success()), "seed {seed}");
}

#[test]
#[ignore = "a part of the_daemon_answers_among_clients_that_lie"]
fn daemon() {
    let Some(path) = socket() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = EngineOptions {
        host_models: Some(cawl_core::MODELS.iter().map(|model| (*model).to_owned()).collect()),
        modes: vec![(cawl_core::MODELS[0].to_owned(), Mode::Assimilated)],
        learn: true,
        ..EngineOptions::new(cawl_host::uncalibrated_profile())
    };
    let daemon = {
        let _entered = runtime.enter();
        let is_root = nix::unistd::geteuid().is_root();
        let listener = if is_root { socket::listen_to_all(&path) } else { socket::listen(&path) };
        let allowed = if is_root { Allowed::all() } else { Allowed::default() };
        Daemon::start_as(listener.unwrap(), options, Node::default(), allowed).unwrap()
    };
    println!("listening");
    std::io::stdin().lines().for_each(drop);
    runtime.block_on(daemon.stop()).expect("its engine works to the end");
}

#[test]
#[ignore = "a part of the_daemon_answers_among_clients_that_lie"]
fn client() {
    let Some(path) = socket() else { return };
    let seed: u64 = std::env::var("CAWL_HOSTILE_SEED").unwrap().parse().unwrap();
    let mut liar = Liar { random: Random(seed | 1), path, kept: Vec::new() };
    let until = Instant::now() + Duration::from_secs(seconds()) + LONGER;
    while Instant::now() < until {
        liar.act();
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Numbers at which something goes wrong, and those among which things go on.
    fn number(&mut self) -> u64 {
        let (small, any, now) = (self.below(1 << 24), self.next(), cawl_host::now().0);
        let edges = [0, 1, 4095, 1 << 20, u64::from(u32::MAX), 1 << 32, 1 << 40, i64::MAX as u64, u64::MAX];
        match self.below(4) {
            0 => self.of(&edges),
            1 => any,
            2 => now,
            _ => small,
        }
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }
}

/// A client that says what no tracer says, and what a tracer would not say so.
struct Liar {
    random: Random,
    path: PathBuf,
    /// Connections that stay open.
    kept: Vec<UnixStream>,
}

impl Liar {
    fn act(&mut self) {
        let Ok(mut socket) = UnixStream::connect(&self.path) else { return };
        drop(socket.set_write_timeout(Some(Duration::from_secs(1))));
        if self.random.below(8) == 0 {
            self.ask(&mut socket);
        } else {
            self.trace(&mut socket);
        }
        if self.kept.len() < 100 {
            self.kept.push(socket);
        } else {
            let at = self.random.below(100) as usize;
            self.kept[at] = socket;
        }
    }

    /// Questions, and what looks like one.
    fn ask(&mut self, socket: &mut UnixStream) {
        let questions: [&[u8]; 6] = [
            b"{\"request\":\"forecast\"}\n",
            b"{\"request\":\"predict\",\"bytes\":18446744073709551615,\"chunk\":1,\"fsync\":true}\n",
            b"{\"request\":\"predict\",\"bytes\":1099511627776,\"sync\":true,\"at_s\":86400}\n",
            b"{\"request\":\"history\",\"last_s\":1e300,\"points\":18446744073709551615}\n",
            b"{\"request\":\"subscribe\",\"topics\":[\"status\",\"files\"],\"every_s\":0.01}\n",
            b"{\"request\":",
        ];
        for _ in 0..self.random.below(5) {
            drop(socket.write_all(self.random.of(&questions)));
        }
    }

    /// A session, true in part.
    fn trace(&mut self, socket: &mut UnixStream) {
        let random = &mut self.random;
        let honest = random.below(2) == 0;
        let now = cawl_host::now().0;
        let mut number = |true_one: u64| if honest { true_one } else { random.number() };
        let (started, ppid, run) = (number(now), number(1) as u32, number(0));
        let wchar = Wchar { process: Some(number(0)), thread: Some(number(0)) };
        let usage =
            Usage { user: number(0), first_ran: number(0), first_delayed: number(0), ..Usage::default() };
        let anchors = [number(now - 1000), number(now)].map(|nanos| Anchor { ticks: nanos, nanos });
        let (program, arguments) = (self.random.bytes(300), self.random.bytes(5000));
        let ring = self.random.below(8) == 0;
        let hello = Hello {
            pid: std::process::id(),
            ppid,
            uid: 0,
            run,
            started,
            wchar,
            usage,
            rank: None,
            ring,
            ticks: (self.random.below(4) == 0).then_some(anchors),
            program: &program,
            arguments: &arguments,
        };
        let mut payload = vec![0; 16 << 10];
        let length = hello.encode(&mut payload).unwrap();
        let hello = message(Kind::Hello, &payload[..length], 0);
        if ring {
            self.send_with_ring(socket, &hello);
        } else {
            drop(socket.write_all(&hello));
        }
        let most = self.random.of(&[1, 4, 32]);
        for _ in 0..self.random.below(most) {
            let said = match self.random.below(8) {
                0 | 1 => self.file(),
                2 => message(self.random.of(&[Kind::Bell, Kind::Welcome]), &[], self.random.number()),
                3 if !honest => self.random.bytes(3000),
                4 => self.goodbye(honest),
                _ => self.events(honest),
            };
            if socket.write_all(&said).is_err() {
                return;
            }
        }
    }

    /// Shared memory that is no ring, or a damaged one.
    fn send_with_ring(&mut self, socket: &UnixStream, hello: &[u8]) {
        let memory = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        let length = self.random.of(&[0, 1, 4096, 1 << 20, 1 << 40]);
        let _ = rustix::fs::ftruncate(&memory, length);
        let _ = rustix::io::pwrite(&memory, &self.random.bytes(8192), 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let _ = sendmsg(socket, &[IoSlice::new(hello)], &mut control, SendFlags::NOSIGNAL);
    }

    fn file_id(&mut self) -> FileId {
        let (dev, any) = (self.random.of(&[1, 0xfe00, 0x801]), self.random.number());
        let dev = if self.random.below(20) == 0 { any & 0xffff_ffff } else { dev };
        let ino = if self.random.below(4) == 0 { any } else { 1 + any % 64 };
        FileId { dev, ino, birth: self.random.below(3) as u32 }
    }

    fn file(&mut self) -> Vec<u8> {
        let path = self.random.bytes(5000);
        let file = FileRecord {
            file: self.file_id(),
            renamed: self.random.below(2) == 0,
            size: self.random.number(),
            block: self.random.number() as u32,
            mode: self.random.of(&[0o100_644, 0o040_755, u32::MAX]),
            path: &path[..path.len().min(FileRecord::PATH)],
        };
        let mut payload = vec![0; FileRecord::MAX];
        let length = file.encode(&mut payload).unwrap();
        message(Kind::File, &payload[..length], 0)
    }

    fn events(&mut self, honest: bool) -> Vec<u8> {
        let count = self.random.of(&[1, 10, 340]);
        let payload: Vec<u8> = (0..count).flat_map(|_| self.event(honest).encode()).collect();
        message(Kind::Events, &payload, self.random.number() & 0xff)
    }

    /// A call; an honest one might be, as far as anybody could tell.
    fn event(&mut self, honest: bool) -> Event {
        let random = &mut self.random;
        let now = cawl_host::now().0;
        let mut event = Event::new(random.of(Op::ALL));
        if honest {
            let duration = random.of(&[0, 1000, 1_000_000, 20_000_000]);
            let bytes = random.of(&[1, 100, 4096, 1 << 20, 1 << 26, 0x7fff_f000, 1 << 36]);
            (event.start, event.duration) = (now.saturating_sub(duration), duration);
            (event.requested, event.returned, event.kind) = (bytes, bytes as i64, FileKind::Regular);
            event.offset = random.of(&[0, 4096, 1 << 30, 1 << 40, u64::MAX]);
            (event.fd, event.pid, event.tid) =
                (random.below(30) as i32, std::process::id(), random.below(40) as u32);
            event.flags =
                random.next() as u32 & 0x3_ffff & if random.below(4) == 0 { u32::MAX } else { 0x40 };
            (event.pending_before, event.pending_after, event.buffer, event.aux) =
                (random.below(9000) as u32, random.below(9000) as u32, 8192, random.below(5) as u32);
        } else {
            (event.start, event.duration, event.offset) = (random.number(), random.number(), random.number());
            (event.requested, event.returned) = (random.number(), random.number() as i64);
            (event.pid, event.tid, event.fd) =
                (random.number() as u32, random.number() as u32, random.number() as i32);
            event.kind = FileKind::from_code(random.below(9) as u8).unwrap_or_default();
            (event.flags, event.aux, event.errno) =
                (random.number() as u32, random.number() as u32, random.number() as u16);
            (event.pending_before, event.pending_after, event.buffer) =
                (random.number() as u32, random.number() as u32, random.number() as u32);
        }
        let file = self.file_id();
        event.set_file(file);
        event
    }

    fn goodbye(&mut self, honest: bool) -> Vec<u8> {
        let random = &mut self.random;
        let now = cawl_host::now().0;
        let mut number = |true_one: u64| if honest { true_one } else { random.number() };
        let goodbye = Goodbye {
            ended: Ended::Exit,
            at: number(now),
            wchar: Wchar { process: Some(number(0)), thread: Some(number(0)) },
            usage: Usage { user: number(0), first_ran: number(0), ..Usage::default() },
            pending: number(0),
            unseen: number(0),
            past: 0,
        };
        let mut payload = vec![0; 256];
        let length = goodbye.encode(&mut payload).unwrap();
        message(Kind::Goodbye, &payload[..length], 0)
    }
}
