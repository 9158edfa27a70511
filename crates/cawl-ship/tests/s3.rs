//! Uploads. The server keeps its objects in a file, so that it may be killed, too.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use cawl_kit::{Dir, Running, eventually, find};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::proxy::Proxy;
use crate::{ship, shipping, write};

/// A server with one bucket, `calls`.
struct Server<'a> {
    dir: &'a Dir,
    port: u16,
    running: Option<Running>,
}

impl<'a> Server<'a> {
    /// None, and said so, if it is not installed.
    fn start(dir: &'a Dir) -> Option<Server<'a>> {
        find("gofakes3")?;
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let mut server = Server { dir, port, running: None };
        server.again();
        server.ask("PUT", "/calls");
        Some(server)
    }

    /// Starts it, at the same port and with the same objects.
    fn again(&mut self) {
        let mut command = self.dir.command("gofakes3");
        command.args(["-backend", "bolt", "-bolt.db"]).arg(self.dir.path().join("objects"));
        command.arg("-host").arg(format!("127.0.0.1:{}", self.port));
        self.running = Some(Running::start(command));
        eventually("the server answers", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn kill(&mut self) {
        let running = self.running.take().expect("it runs");
        running.signal(Signal::SIGKILL);
        running.finish();
    }

    /// The body of an answer.
    fn ask(&self, method: &str, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            .expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let status = String::from_utf8_lossy(&answer[..head]).into_owned();
        assert!(status.contains(" 200 "), "{method} {path}: {status}");
        answer.split_off(head + 4)
    }

    /// All objects.
    fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let list = String::from_utf8(self.ask("GET", "/calls?max-keys=1000")).expect("text");
        let keys =
            list.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()));
        // A server that decodes a path takes a `%` of a key for the beginning of one.
        keys.map(|key| (key.clone(), self.ask("GET", &format!("/calls/{}", key.replace('%', "%25")))))
            .collect()
    }
}

/// What the program needs to know of a server at this port.
pub fn with_keys(command: &mut Command, port: u16) {
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").env("AWS_REGION", "eu-1");
    command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
}

/// A folder with files as of a daemon: of 3 and 40 MiB, and strangers.
fn spool(dir: &Dir) -> (PathBuf, BTreeMap<String, Vec<u8>>) {
    let folder = dir.path().join("spool");
    let mut files = BTreeMap::new();
    for (number, megabytes) in [(1, 3), (2, 40), (3, 0)] {
        let key =
            format!("node=a%2Fb/date=2026-11-29/hour=14/a%2Fb-20261129T143103Z-0123abcd-{number:06}.parquet");
        let bytes: Vec<u8> =
            (0..megabytes << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let path = folder.join(&key);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, &bytes).expect("a file");
        files.insert(format!("pre/fix/{key}"), bytes);
    }
    fs::write(folder.join("stranger.parquet"), "mine").expect("a file");
    fs::write(folder.join(".cawl-a%2Fb-20261129T143103Z-0123abcd-000004.tmp"), "half").expect("a file");
    (folder, files)
}

fn same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected, "bytes differ");
}

#[test]
fn whole_files_go_up_and_away() {
    let dir = Dir::new();
    let Some(server) = Server::start(&dir) else { return };
    let (folder, files) = spool(&dir);
    let mut command = shipping(&dir, &folder, "s3://calls/pre/fix/");
    with_keys(&mut command, server.port);
    Running::start(command).finish().success();
    same(&server.objects(), &files);
    let left: Vec<_> = fs::read_dir(&folder).expect("a folder").collect();
    assert_eq!(left.len(), 2, "strangers stay, and no empty folder does: {left:?}");
    // An empty folder is no error; a bucket that is not there is one, and so is a server.
    let mut command = shipping(&dir, &folder, "s3://calls");
    with_keys(&mut command, server.port);
    Running::start(command).finish().success();
    let (folder, _) = spool(&dir);
    let mut command = shipping(&dir, &folder, "s3://nobodys");
    with_keys(&mut command, server.port);
    Running::start(command).finish().code(1).says("cannot upload");
    assert!(folder.join("node=a%2Fb").exists(), "what was not taken stays");
}

#[test]
fn a_kill_in_the_middle_of_an_upload_loses_and_doubles_nothing() {
    for whom in ["program", "server"] {
        for at in [1 << 20, 20 << 20] {
            let dir = Dir::new();
            let Some(mut server) = Server::start(&dir) else { return };
            let (folder, files) = spool(&dir);
            let proxy = Proxy::start(server.port);
            proxy.limit(at);
            let start = || {
                let mut command = shipping(&dir, &folder, "s3://calls/pre/fix");
                with_keys(&mut command, proxy.port);
                Running::start(command)
            };
            let mut running = start();
            proxy.reached();
            if whom == "program" {
                running.signal(Signal::SIGKILL);
                running.finish().signal(Signal::SIGKILL);
                for (key, bytes) in server.objects() {
                    assert!(files.get(&key) == Some(&bytes), "{key} is not whole");
                }
                running = start();
            } else {
                server.kill();
                server.again();
            }
            running.finish().success();
            same(&server.objects(), &files);
            assert!(!folder.join("node=a%2Fb").exists());
        }
    }
}

/// Rows of the objects by the daemon's start, and what the objects say was lost or dropped.
fn rows(objects: &BTreeMap<String, Vec<u8>>, dir: &Dir) -> BTreeMap<String, (u64, u64)> {
    let mut of: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut files: Vec<_> = objects.iter().collect();
    files.sort_by_key(|(key, _)| key.rsplit('/').next().map(ToOwned::to_owned));
    for (key, bytes) in files {
        let path = dir.path().join("object");
        fs::write(&path, bytes).expect("a file");
        let reader =
            SerializedFileReader::new(fs::File::open(&path).expect("it is there")).expect("it is whole");
        let meta = reader.metadata().file_metadata();
        let facts = meta.key_value_metadata().expect("facts");
        let fact =
            |name: &str| facts.iter().find(|fact| fact.key == name).and_then(|fact| fact.value.clone());
        let number = |name: &str| fact(name).map_or(0, |text| text.parse::<u64>().expect("a number"));
        let (rows, missing) = of.entry(fact("cawl.daemon_start").expect("a start")).or_default();
        *rows += meta.num_rows() as u64;
        *missing = (*missing).max(number("cawl.rows_dropped") + number("cawl.rows_lost_before"));
        assert_eq!(number("cawl.rows_written"), *rows, "{key}: none is missing before it");
    }
    of
}

fn shipper_of(daemon: Pid) -> Option<Pid> {
    let told = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).ok()?;
    let all = fs::read_dir(format!("/proc/{daemon}/task"))
        .ok()?
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: String = all.chain([told]).collect::<Vec<_>>().join(" ");
    let mut children = children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    children
        .find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cawl-ship\n"))
}

#[test]
fn a_daemon_s_rows_are_in_the_bucket_or_counted_whoever_is_killed() {
    let dir = Dir::new();
    let Some(server) = Server::start(&dir) else { return };
    assert!(Path::new(&ship()).exists());
    let proxy = Proxy::start(server.port);
    let start = || {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.args([
            "--calls-to",
            "s3://calls/all",
            "--calls-every",
            "20K,300ms",
            "--node",
            "n",
            "--socket",
        ]);
        command.arg(dir.socket()).env("STATE_DIRECTORY", dir.path().join("state"));
        // Where the test was built, it is beside cawld or not.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", ship().parent().expect("a folder").display()));
        with_keys(&mut command, proxy.port);
        let mut running = Running::start(command);
        running.stderr_until("listening at");
        running
    };
    let status = || {
        let mut command = dir.cawl(&["status", "--json", "--socket"]);
        command.arg(dir.socket());
        let text = Running::start(command).finish().success().stdout;
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let taken = |count: u64| {
        let mut taken = 0;
        eventually("rows are taken", || {
            let status = status();
            taken = status["calls_to"]["rows"].as_u64().unwrap_or(0);
            taken >= count && status["calls"] == taken
        });
        taken
    };
    let mut daemon = start();
    eventually("it has started", || shipper_of(daemon.pid()).is_some());
    // cawl-ship is killed in the middle of an upload, and started again.
    proxy.limit(30 << 10);
    write(&dir, 3000);
    proxy.reached();
    let first = shipper_of(daemon.pid()).expect("it runs");
    nix::sys::signal::kill(first, Signal::SIGKILL).expect("it is there");
    daemon.stderr_until("cawl-ship was ended by signal 9");
    eventually("it runs again", || shipper_of(daemon.pid()).is_some_and(|pid| pid != first));
    write(&dir, 3000);
    let before = taken(6000);
    daemon.signal(Signal::SIGKILL);
    daemon.finish().signal(Signal::SIGKILL);
    let daemon = start();
    write(&dir, 1000);
    let after = taken(1000);
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success();
    eventually("all files are taken", || !dir.path().join("state/calls/node=n").exists());
    let of = rows(&server.objects(), &dir);
    let of: Vec<_> = of.into_values().collect();
    let [(first, dropped), (second, missing)] = of[..] else { panic!("two daemons: {of:?}") };
    assert_eq!((first + missing, dropped), (before, 0), "{of:?}");
    assert_eq!(second, after);
}
