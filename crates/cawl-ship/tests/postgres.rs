//! Runs and sums in PostgreSQL.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use cawl_kit::{Dir, Finished, Running, eventually, skipped};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::Value;

use crate::certificate::certificate;
use crate::{ship, shipping, write};

/// A server of the test's own, at a socket in its folder.
struct Server {
    dir: Dir,
    bin: PathBuf,
    port: u16,
}

impl Server {
    /// None, and said so, if it is not installed.
    fn start() -> Option<Server> {
        let versions = fs::read_dir("/usr/lib/postgresql").ok();
        let bins = versions.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path().join("bin")));
        let Some(bin) = bins.filter(|bin| bin.join("initdb").exists()).max() else {
            skipped("postgresql is not installed");
            return None;
        };
        // It does not run as root.
        let dir = if geteuid().is_root() { Dir::of("postgres")? } else { Dir::new() };
        let server = Server { dir, bin, port: 5432 };
        server.program("initdb", &["-D", "db", "-U", "me", "-A", "trust", "-N", "-E", "UTF8"]).success();
        let settings =
            format!("listen_addresses = ''\nunix_socket_directories = '{}'\nfsync = off\n", server.socket());
        let path = server.dir.work().join("db/postgresql.auto.conf");
        fs::write(path, settings).expect("a file");
        server.again();
        Some(server)
    }

    fn again(&self) {
        self.program("pg_ctl", &["-D", "db", "-w", "-l", "log", "start"]).success();
    }

    fn stop(&self) {
        self.program("pg_ctl", &["-D", "db", "-w", "-m", "immediate", "stop"]).success();
    }

    fn socket(&self) -> String {
        self.dir.path().join("run").display().to_string()
    }

    fn program(&self, name: &str, args: &[&str]) -> Finished {
        // What stays must not hold the test's pipes.
        let mut shell = self.dir.command("sh");
        let words: Vec<String> = std::iter::once(self.bin.join(name).display().to_string())
            .chain(args.iter().map(|arg| format!("'{arg}'")))
            .collect();
        shell.args([
            "-c",
            &format!("{} > out 2>&1 < /dev/null || {{ cat out log; exit 1; }}", words.join(" ")),
        ]);
        Running::start(shell).finish()
    }

    fn url(&self) -> String {
        format!("postgres:///postgres?user=me&host={}", self.socket().replace('/', "%2F"))
    }

    /// The lines of an answer, with `|` between columns.
    fn ask(&self, question: &str) -> Vec<String> {
        let mut command = self.dir.command(self.bin.join("psql"));
        command.args([
            "-h",
            &self.socket(),
            "-p",
            &self.port.to_string(),
            "-U",
            "me",
            "-d",
            "postgres",
            "-tAc",
            question,
        ]);
        Running::start(command).finish().success().stdout.lines().map(ToOwned::to_owned).collect()
    }

    fn number(&self, question: &str) -> i64 {
        let answer = self.ask(question);
        answer.first().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{question}: {answer:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.dir.work().join("db/postmaster.pid").exists() {
            drop(self.program("pg_ctl", &["-D", "db", "-w", "-m", "immediate", "stop"]));
        }
    }
}

/// `cawl-cli` with `cawl-ship` in PATH, as its own user.
fn cli(dir: &Dir, args: &[&str]) -> Command {
    let mut command = dir.cawl(args);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", ship().parent().expect("a folder").display()));
    command
}

/// A trace of so many writes to a file whose name needs care.
fn trace(dir: &Dir, count: u32) -> PathBuf {
    let count = format!("count={count}");
    let (finished, _) = dir.run(&[], &["dd", "if=/dev/zero", "of=a, \"b\"\n#end {}\n\\.", "bs=4k", &count]);
    finished.success();
    dir.trace()
}

fn rows(dir: &Dir, trace: &Path) -> Vec<Value> {
    let mut command = dir.cawl(&["export"]);
    command.arg(trace).args(["--to", "json"]);
    let text = Running::start(command).finish().success().stdout;
    text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

#[test]
fn a_run_is_there_once_however_often_it_is_exported() {
    let Some(server) = Server::start() else { return };
    let dir = Dir::new();
    let trace = trace(&dir, 500);
    let rows = rows(&dir, &trace);
    let export = |url: &str| {
        let mut command = cli(&dir, &["export"]);
        command.arg(&trace).args(["--to", url]);
        Running::start(command).finish()
    };
    for _ in 0..2 {
        export(&server.url()).success().says("are now in the database, as run ");
        assert_eq!(server.number("select count(*) from cawl_calls"), rows.len() as i64);
    }
    assert_eq!(server.number("select calls from cawl_runs"), rows.len() as i64);
    assert_eq!(server.ask("select version from cawl_schema"), ["1"]);
    let host = nix::sys::utsname::uname().expect("a name").nodename().to_string_lossy().into_owned();
    assert_eq!(
        server.ask("select host, abs(extract(epoch from traced_at - now())) < 3600 from cawl_runs"),
        [format!("{host}|t")]
    );
    // Each cell.
    let cells = server.ask("select to_jsonb(cawl_calls) - 'run' from cawl_calls order by call");
    for (cell, row) in cells.iter().zip(&rows) {
        let mut cell: Value = serde_json::from_str(cell).expect("JSON");
        // Columns of models that did not run.
        cell.as_object_mut().expect("a row").retain(|name, _| row.get(name).is_some());
        assert_eq!(&cell, row);
    }
    // Another trace is another run; this one is replaced with other models.
    let other = Dir::new();
    let second = self::trace(&other, 30);
    let mut command = cli(&other, &["export"]);
    command.arg(&second).args(["--to", &server.url()]);
    Running::start(command).finish().success();
    let mut command = cli(&dir, &["export"]);
    command.arg(&trace).args(["--to", &server.url(), "--lockstep", "--model", "naive,kernel"]);
    Running::start(command).finish().success();
    assert_eq!(server.ask("select model from cawl_runs where calls > 400"), ["naive,kernel"]);
    assert_eq!(server.number("select count(*) from cawl_runs"), 2);
    // What fails leaves what was.
    let wrong = server.url().replace("/postgres?", "/nobody?");
    export(&wrong).code(1).says("cannot connect to the database").says("nothing of it was kept");
    server.ask("update cawl_schema set version = 2");
    export(&server.url()).code(1).says("version 2 of the schema");
    assert_eq!(server.number("select count(*) from cawl_runs"), 2);
}

#[test]
fn a_run_that_is_cut_off_leaves_the_one_before() {
    let Some(server) = Server::start() else { return };
    let dir = Dir::new();
    let trace = trace(&dir, 2000);
    let mut command = cli(&dir, &["export"]);
    command.arg(&trace).args(["--to", &server.url()]);
    Running::start(command).finish().success();
    let (run, count) =
        (server.ask("select run from cawl_runs"), server.number("select count(*) from cawl_calls"));
    // The csv ends in the middle, as where cawl-cli is killed: at a line's end, and within one.
    let mut command = dir.cawl(&["export"]);
    command.arg(&trace).args(["--to", "csv"]);
    let csv = Running::start(command).finish().success().stdout;
    for end in [csv.len(), csv.len() / 2] {
        let mut command = dir.command(ship());
        command.args(["-", &server.url(), "--run", &run[0]]);
        let mut running = Running::start(command);
        running.say(&csv[..end]);
        running.finish().code(1).says("ended too early");
        assert_eq!(server.number("select count(*) from cawl_calls"), count);
    }
    // The server goes in the middle.
    let mut command = dir.command(ship());
    command.args(["-", &server.url(), "--run", &run[0]]);
    let mut running = Running::start(command);
    running.say(&csv[..csv.len() / 2]);
    eventually("it has begun", || server.number("select count(*) from pg_stat_progress_copy") == 1);
    server.stop();
    running.finish().code(1);
    server.again();
    assert_eq!(server.number("select count(*) from cawl_calls"), count);
}

#[test]
fn sums_have_no_gap_and_no_double_after_a_restart_of_any_side() {
    let Some(server) = Server::start() else { return };
    let dir = Dir::new();
    let state = dir.path().join("state");
    let start = || {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.args(["--sums-to", &server.url(), "--node", "n \"1\"", "--socket"]).arg(dir.socket());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", ship().parent().expect("a folder").display()));
        command.env("STATE_DIRECTORY", &state);
        let mut running = Running::start(command);
        running.stderr_until("listening at");
        running
    };
    let mut calls = 0;
    let mut bytes = 0;
    for part in 0..3 {
        let daemon = start();
        if part == 1 {
            server.stop();
        }
        write(&dir, 1000);
        let mut command = dir.cawl(&["status", "--json", "--socket"]);
        command.arg(dir.socket());
        let text = Running::start(command).finish().success().stdout;
        let status: Value = serde_json::from_str(&text).expect("JSON");
        assert!(status["sums_to"]["to"].as_str().is_some_and(|to| !to.contains("host=")), "{status:#}");
        // The end of the daemon is the end of a minute.
        daemon.signal(Signal::SIGTERM);
        daemon.finish().success();
        // Also of pipes and the like, which are coalesced.
        calls += status["calls"].as_i64().expect("a number");
        bytes += 1000 * 4096;
        if part == 1 {
            let files = fs::read_dir(state.join("sums")).expect("a folder");
            let waits = |name: String| name.ends_with(".csv");
            assert!(files.filter_map(|file| file.ok()?.file_name().into_string().ok()).any(waits));
            server.again();
        }
    }
    let delivered = || fs::read_dir(state.join("sums")).expect("a folder").count() == 0;
    eventually("all files are delivered", delivered);
    assert_eq!(server.number("select count(distinct daemon_start) from cawl_sums"), 3);
    assert_eq!(server.number("select sum(bytes) from cawl_sums where path like '%/out'"), bytes);
    assert!(server.number("select sum(calls) from cawl_sums") >= calls);
    assert_eq!(
        server.number("select count(*) from cawl_sums where ns > 0 and cause = 'copy' and path like '%/out'"),
        3
    );
    assert_eq!(
        server.ask("select distinct node, program from cawl_sums where path like '%/out'"),
        ["n \"1\"|dd"]
    );
    assert_eq!(server.number("select count(*) from cawl_sum_files f where rows <>
        (select count(*) from cawl_sums s where (s.node, s.daemon_start, s.file) = (f.node, f.daemon_start, f.file))"), 0);
    // The dashboard's questions are answered, and those with rows have some.
    let dashboard = include_str!("../../../contrib/grafana/cawl-postgres.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    for panel in panels {
        let sql = panel["targets"][0]["rawSql"].as_str().expect("a question");
        let sql = sql
            .replace("$__timeFilter(minute)", "minute > now() - interval '1 day'")
            .replace("$node", "'n \"1\"'");
        let rows = server.ask(&sql);
        assert_eq!(rows.is_empty(), panel["title"] == "What is missing", "{sql}: {rows:?}");
    }
    assert!(panels.len() > 5);
    // Numbers without a gap.
    assert_eq!(
        server.number(
            "select count(*) from (select max(file) - count(*) as gap from cawl_sum_files group by
        daemon_start) g where gap <> 0"
        ),
        0
    );
}

#[test]
fn a_file_that_is_delivered_again_changes_nothing() {
    let Some(server) = Server::start() else { return };
    let dir = Dir::new();
    let folder = dir.path().join("sums");
    fs::create_dir(&folder).expect("a folder");
    let file = |number: u32, rows: u32| {
        let facts = format!(
            "{{\"node\":\"n\",\"daemon_start\":\"s\",\"sequence\":\"{number}\",\"rows\":\"2\",\"rows_written\":\"2\",\
             \"rows_dropped\":\"0\"}}\nnode,daemon_start,file,row,minute,pid,program,path,cause,calls,bytes,ns\n"
        );
        let row =
            |row| format!("\"n\",s,{number},{row},2026-11-29T14:31:00Z,7,\"p\",\"a \"\"b\"\"\",copy,1,2,3\n");
        let text = facts + &(0..rows).map(row).collect::<String>();
        fs::write(folder.join(format!("n-20261129T143103Z-0123abcd-{number:06}.csv")), text).expect("a file");
    };
    // Killed between delivery and removal: the file is there again.
    for _ in 0..2 {
        file(1, 2);
        Running::start(shipping(&dir, &folder, &server.url())).finish().success();
        assert_eq!(server.ask("select count(*), sum(ns), min(path) from cawl_sums"), ["2|6|a \"b\""]);
    }
    // One with other rows than it says, and one that no table can take, are refused as a whole, each with its
    // reason; those behind them are delivered.
    file(2, 3);
    file(3, 2);
    let path = folder.join("n-20261129T143103Z-0123abcd-000003.csv");
    let bad = fs::read_to_string(&path).expect("a file").replace(",copy,1,2,3", ",copy,1,2,three");
    fs::write(path, bad).expect("a file");
    fs::write(folder.join("n-20261129T143103Z-0123abcd-000004.csv"), "nonsense").expect("a file");
    file(5, 2);
    Running::start(shipping(&dir, &folder, &server.url()))
        .finish()
        .code(1)
        .says("it has 3 rows and was to have 2")
        .says("invalid input syntax for type bigint")
        .says("its first line has no facts")
        .says("3 files were refused");
    assert_eq!(server.ask("select count(*), min(file), max(file) from cawl_sums"), ["4|1|5"]);
    assert_eq!(server.number("select count(*) from cawl_sum_files"), 2);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
    let aside = folder.join(".cawl-refused");
    assert_eq!(fs::read_to_string(aside.join("count")).expect("a count"), "files=3 rows=4\n");
    assert_eq!(fs::read_dir(aside).expect("a folder").count(), 7);
    // A database that is not there is nobody's refusal: the file stays.
    file(6, 2);
    let wrong = server.url().replace("/postgres?", "/nobody?");
    Running::start(shipping(&dir, &folder, &wrong)).finish().code(1).says("cannot connect");
    assert!(folder.join("n-20261129T143103Z-0123abcd-000006.csv").exists());
}

#[test]
fn a_connection_is_encrypted_and_checked_where_that_is_asked_for() {
    let Some(mut server) = Server::start() else { return };
    let Some((key, certificate)) = certificate(&server.dir) else { return };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    server.stop();
    let rules = server.dir.work().join("db/pg_hba.conf");
    let encrypted = fs::read_to_string(&rules).expect("its rules").replace("\nhost ", "\nhostssl ");
    fs::write(rules, encrypted).expect("a file");
    let more = format!(
        "port = {port}\nlisten_addresses = 'localhost'\nssl = on
ssl_key_file = '{}'\nssl_cert_file = '{}'\n",
        key.display(),
        certificate.display()
    );
    let path = server.dir.work().join("db/postgresql.auto.conf");
    let before = fs::read_to_string(&path).expect("its settings");
    fs::write(path, before + &more).expect("a file");
    server.again();
    server.port = port;
    let dir = Dir::new();
    let trace = trace(&dir, 30);
    let export = |host: &str, query: &str| {
        let mut command = cli(&dir, &["export"]);
        command.arg(&trace).args(["--to", &format!("postgres://me@{host}:{port}/postgres{query}")]);
        Running::start(command).finish()
    };
    // The server takes none that is not encrypted.
    export("localhost", "?sslmode=disable").code(1).says("no encryption");
    export("localhost", "").success();
    export("localhost", "?sslmode=require").success();
    // Nobody vouches for the certificate, but itself, and it is for another name than an address.
    let roots =
        format!("?sslmode=verify-full&sslrootcert={}", certificate.display().to_string().replace('/', "%2F"));
    export("localhost", "?sslmode=verify-full").code(1).says("cannot connect to the database");
    export("127.0.0.1", &roots).code(1).says("cannot connect to the database");
    export("localhost", &roots).success();
    export("localhost", "?sslmode=verify-ca")
        .code(1)
        .says("sslmode is to be disable, prefer, require or verify-full");
    export("localhost", "?sslrootcert=x").code(1).says("sslrootcert needs sslmode=verify-full");
    assert_eq!(server.number("select count(*) from cawl_runs"), 1);
}
