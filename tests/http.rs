//! `cawld --http`: the same answers, access, and what a scraper finds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, iter};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::Value;

use cawl_kit::{Dir, Running, built, eventually, find, python, skipped};

const TOKEN: &str = "a-token-of-enough-length";

/// A daemon that answers over HTTP.
struct Server<'a> {
    dir: &'a Dir,
    running: Running,
    address: String,
}

/// Status, header and body of an answer.
struct Answer {
    status: u16,
    header: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl<'a> Server<'a> {
    fn start(dir: &'a Dir, args: &[&str]) -> Server<'a> {
        let mut command = dir.command(built("cawld"));
        command.args(["--http", "127.0.0.1:0"]).args(args);
        let mut running = Running::start(command);
        let said = running.stderr_until("answering at http://");
        let address = said.rsplit_once("http://").expect("it was just there").1;
        let address = address.trim_end_matches('/').to_owned();
        Server { dir, running, address }
    }

    fn ask(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers in text");
        let (header, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let status = header.split(' ').nth(1).and_then(|status| status.parse().ok());
        Answer { status: status.expect("a status"), header: header.to_owned(), body: body.to_owned() }
    }

    fn request(&self, path: &str, headers: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n", self.address)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&self.request(path, ""))
    }

    fn end(self) {
        self.running.signal(Signal::SIGTERM);
        self.running.finish().success();
    }
}

fn token_file(dir: &Dir) -> String {
    let path = dir.path().join("token");
    fs::write(&path, format!("{TOKEN}\n")).expect("a new file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    path.to_str().expect("a readable path").to_owned()
}

#[test]
fn the_same_answers_and_only_reading() {
    let dir = Dir::new();
    let server = Server::start(&dir, &["--node", "n1", "--label", "rack=r7"]);
    let status = server.get("/api/v1/status");
    assert_eq!(status.status, 200);
    for header in ["content-security-policy: default-src 'self'", "nosniff", "no-store", "application/json"] {
        assert!(status.header.contains(header), "{header}: {}", status.header);
    }
    let status = status.json();
    assert_eq!(
        (&status["schema"], &status["node"], &status["labels"]["rack"]),
        (&1.into(), &"n1".into(), &"r7".into())
    );
    for (path, field) in [
        ("processes?sort=bytes&limit=3", "processes"),
        ("files?sort=rate", "files"),
        ("devices", "devices"),
        ("history?last_s=60&points=10", "points"),
        ("forecast", "rate"),
        ("predict?bytes=1000000&chunk=4096&fsync=true", "cost_s"),
        ("profile", "configured"),
        ("status?model=naive", "model"),
    ] {
        let answer = server.get(&format!("/api/v1/{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(!answer.json()[field].is_null(), "{path}: {}", answer.body);
    }
    for (path, status) in [
        ("status?model=no-such", 400),
        ("files?sort=no-such", 400),
        ("files?limit=-1", 400),
        ("predict", 400),
        ("predict?bytes=0", 400),
        ("predict?bytes=1&at_s=-1", 400),
        ("predict?bytes=1&device=vda", 400),
        ("subscribe?topics=no-such", 400),
        ("no-such", 404),
        ("../metrics", 404),
    ] {
        let answer = server.get(&format!("/api/v1/{path}"));
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.json()["error"].is_string(), "{path}: {}", answer.body);
    }
    // The daemon is busy with another one's question, of which each round asks one more.
    let mut others = Vec::new();
    eventually("who asks second is to come again", || {
        let mut other = TcpStream::connect(&server.address).expect("it listens");
        other.write_all(server.request("/api/v1/advise?for_s=2", "").as_bytes()).expect("it reads");
        others.push(other);
        let second = server.get("/api/v1/advise?for_s=0.1");
        second.status == 503 && second.header.contains("retry-after: ")
    });
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = server.ask(&server.request("/api/v1/status", "").replacen("GET", method, 1));
        assert_eq!(answer.status, 405, "{method}");
    }
    assert_eq!(server.get("/healthz").body, "ok\n");
    let page = server.get("/");
    assert!(page.status == 200 && page.header.contains("text/html") && page.body.contains("<!DOCTYPE html>"));
    server.end();
}

#[test]
fn events_are_pushed() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let mut stream = TcpStream::connect(&server.address).expect("it listens");
    let path = "/api/v1/subscribe?topics=status,devices&every_s=0.05";
    stream.write_all(server.request(path, "").as_bytes()).expect("it reads");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("text"));
    let mut header = iter::from_fn(|| lines.next()).take_while(|line| !line.is_empty());
    assert!(header.any(|line| line.contains("text/event-stream")));
    header.for_each(drop);
    for _ in 0..3 {
        for topic in ["event: status", "event: devices"] {
            lines.find(|line| line == topic).expect("it goes on");
            let data = lines.next().expect("data follow");
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
            assert_eq!(data["schema"], 1);
        }
    }
    server.end();
}

#[test]
fn what_is_no_request_is_no_matter() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let nonsense: [&[u8]; 6] = [
        b"",
        b"\0\0\0\0\r\n\r\n",
        b"GET",
        b"{\"request\":\"status\"}\n\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in nonsense {
        let mut stream = TcpStream::connect(&server.address).expect("it listens");
        // The server may close the connection at any byte.
        drop(stream.write_all(bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert_eq!(server.get("/healthz").status, 200);
    }
    server.end();
}

#[test]
fn a_token_is_asked_for_and_can_be_changed() {
    let dir = Dir::new();
    let file = token_file(&dir);
    let mut server = Server::start(&dir, &["--http-token-file", &file]);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/api/v1/status", "/metrics", "/api/v1/subscribe"] {
        let refused = server.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header.contains("www-authenticate: Bearer"), "{}", refused.header);
        assert_eq!(server.get(&format!("{path}?token=wrong")).status, 401);
    }
    assert_eq!(server.ask(&server.request("/api/v1/status", &bearer)).status, 200);
    assert_eq!(server.get(&format!("/metrics?token={TOKEN}")).status, 200);
    assert_eq!((server.get("/").status, server.get("/healthz").status), (200, 200));

    fs::write(&file, "another-token-of-enough-length").expect("it is ours");
    server.running.signal(Signal::SIGHUP);
    server.running.stderr_until("read again");
    assert_eq!(server.ask(&server.request("/api/v1/status", &bearer)).status, 401);
    assert_eq!(server.get("/api/v1/status?token=another-token-of-enough-length").status, 200);

    fs::write(&file, "short").expect("it is ours");
    server.running.signal(Signal::SIGHUP);
    server.running.stderr_until("what was stays in use");
    assert_eq!(server.get("/api/v1/status?token=another-token-of-enough-length").status, 200);
    server.end();
}

#[test]
fn what_cannot_be_safe_is_refused_at_the_start() {
    let dir = Dir::new();
    let refused = |args: &[&str], code: i32, why: &str| {
        let mut command = dir.command(built("cawld"));
        command.args(args);
        Running::start(command).finish().code(code).says(why);
    };
    refused(&["--http", "0.0.0.0:0"], 2, "--http-token-file");
    refused(&["--http", "0.0.0.0:0", "--http-open"], 2, "--http-token-file");
    refused(&["--http", "9420"], 2, "127.0.0.1:9420");
    refused(&["--http-open"], 2, "--http");
    refused(&["--label", "node=x"], 2, "cannot be a label");
    refused(&["--label", "a=1", "--label", "a=2"], 2, "given twice");
    let file = token_file(&dir);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    refused(&["--http", "127.0.0.1:0", "--http-token-file", &file], 1, "chmod 600");
    assert!(!dir.socket().exists(), "a daemon that does not start leaves nothing");
}

#[test]
fn other_names_are_refused() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    for host in ["evil.example", "localhost.evil.example:80"] {
        let answer = server.ask(&server.request("/api/v1/status", "").replace(&server.address, host));
        assert_eq!(answer.status, 403, "{host}");
    }
    assert_eq!(server.ask(&server.request("/metrics", "").replace("127.0.0.1", "localhost")).status, 200);
    server.end();
}

#[test]
fn another_user_reads_only_what_is_open() {
    if !geteuid().is_root() {
        return skipped("only root can be another user");
    }
    let (Some(setpriv), Some(curl)) = (find("setpriv"), find("curl")) else { return };
    let dir = Dir::new();
    let asks = |url: String| {
        let mut command = dir.command(&setpriv);
        command.current_dir("/").args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&curl).args(["-sS", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", &url]);
        Running::start(command).finish().success().stdout
    };
    let closed = Server::start(&dir, &[]);
    assert_eq!(asks(format!("http://{}/api/v1/status", closed.address)), "403");
    assert_eq!(asks(format!("http://{}/metrics", closed.address)), "403");
    assert_eq!(asks(format!("http://{}/healthz", closed.address)), "200");
    assert_eq!(closed.get("/api/v1/status").status, 200, "its own user is answered");
    closed.end();
    let open = Server::start(&dir, &["--http-open"]);
    assert_eq!(asks(format!("http://{}/api/v1/status", open.address)), "200");
    // Nor can they stop the daemon.
    let mut kill = dir.command(&setpriv);
    kill.args(["--reuid=65534", "--regid=65534", "--clear-groups", "kill", "-TERM"]);
    kill.arg(open.running.pid().to_string());
    assert!(!Running::start(kill).finish().status.success());
    assert_eq!(open.get("/healthz").status, 200);
    open.end();
}

#[test]
fn promtool_finds_nothing_wrong() {
    let Some(promtool) = find("promtool") else { return };
    let dir = Dir::new();
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/prometheus");
    for (command, file) in [
        (["check", "rules"], "alerts.yml"),
        (["test", "rules"], "alerts_test.yml"),
        (["check", "config"], "scrape.yml"),
    ] {
        let mut run = dir.command(&promtool);
        run.current_dir(&contrib).args(command);
        if file == "scrape.yml" {
            // The token's file would be on another machine.
            let text = fs::read_to_string(contrib.join(file)).expect("it is there");
            let text = text.replace("/etc/prometheus/cawl.token", "/dev/null");
            let text =
                text.replace("alerts.yml", contrib.join("alerts.yml").to_str().expect("a readable path"));
            let copy = dir.path().join(file);
            fs::write(&copy, text).expect("a new file");
            run.arg(copy);
        } else {
            run.arg(file);
        }
        Running::start(run).finish().success();
    }
    let server = Server::start(&dir, &["--label", "rack=r7"]);
    let older = server.ask(&server.request("/metrics", "Accept: text/plain\r\n"));
    assert_eq!(older.status, 200);
    let mut check = dir.command(&promtool);
    check.args(["check", "metrics"]);
    let mut check = Running::start(check);
    check.say(&older.body);
    let said = check.finish().success();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""), "{}", older.body);
    server.end();
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documented = fs::read_to_string(root.join("docs/reference/METRICS.md")).expect("it is there");
    let text = fs::read_to_string(root.join("contrib/grafana/cawl.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 8);
    let mut asked = 0;
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        let expression = target["expr"].as_str().expect("an expression");
        let at = expression.find("cawl_").expect("a metric of ours");
        let name: String =
            expression[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        assert!(documented.contains(&format!("| `{name}` |")), "{name}");
        asked += 1;
    }
    assert!(asked >= 12);
    let scraped = server.get("/metrics");
    assert!(scraped.header.contains("application/openmetrics-text; version=1.0.0"), "{}", scraped.header);
    assert!(scraped.body.ends_with("# EOF\n") && scraped.body.contains("cawl_dirty_bytes{node="));
    assert!(server.dir.socket().exists());
    server.end();
}

/// Another user asks over as many connections as there are; the daemon's own user is answered all the same.
#[test]
fn another_user_has_a_share_of_the_connections() {
    let (Some(python), Some(_)) = (python(), find("setpriv")) else { return };
    if !geteuid().is_root() {
        return skipped("only root can become someone else");
    }
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let script = "import socket,sys
host,port=sys.argv[1].split(':')
held=[socket.create_connection((host,int(port)),30) for _ in range(150)]
answered=0
for s in held:
    try:
        s.sendall(b'GET /app.css HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
        answered+=s.recv(1)!=b''
    except OSError: pass
print('answered',answered,'all',flush=True)
sys.stdin.read()
";
    let mut command = dir.command("setpriv");
    command.args(["--reuid=64124", "--regid=64124", "--clear-groups"]).arg(python);
    command.args(["-c", script, &server.address]);
    let mut holder = Running::start(command);
    let said = holder.stdout_until(" all");
    let answered: usize = said.split_whitespace().nth(1).and_then(|count| count.parse().ok()).unwrap();
    assert!((1..=32).contains(&answered), "{said}");
    for _ in 0..20 {
        assert_eq!(server.get("/healthz").status, 200);
    }
    holder.signal(Signal::SIGTERM);
    holder.finish();
    server.end();
}
