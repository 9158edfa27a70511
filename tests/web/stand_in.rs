//! A stand-in for the daemon's HTTP side: the page itself, canned answers, a stream that can be interrupted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use cawl_client::protocol::HistorySpan;
use cawl_core::Regime;
use cawld::web;
use serde::Serialize;
use serde_json::{Value, json};

use super::{canned, day};

/// The script in the browser, which posts its results to `/told`.
const DRIVER: &str = concat!(include_str!("checks.js"), include_str!("driver.js"));

struct State {
    busy: bool,
    token: Option<String>,
    cut: Mutex<bool>,
    streams: Mutex<Vec<TcpStream>>,
    told: Sender<Value>,
}

/// The server, until the test's process ends.
pub struct StandIn {
    pub address: SocketAddr,
    /// The driver's results.
    pub told: Receiver<Value>,
}

impl StandIn {
    pub fn start(busy: bool, token: Option<&str>) -> StandIn {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
        let address = listener.local_addr().expect("it is bound");
        let (send, told) = channel();
        let state = Arc::new(State {
            busy,
            token: token.map(str::to_owned),
            cut: Mutex::default(),
            streams: Mutex::default(),
            told: send,
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                // A browser may close the connection at any time.
                std::thread::spawn(move || drop(state.serve(stream)));
            }
        });
        StandIn { address, told }
    }
}

fn answer(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: {}\r\nConnection: close\r\n\r\n{body}",
        body.len(),
        web::POLICY,
    )
}

fn json_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("an answer is JSON")
}

impl State {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
        let (mut length, mut bearer) = (0, None);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap_or(0),
                "authorization" => bearer = value.strip_prefix("Bearer ").map(str::to_owned),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;

        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let asked = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        match path {
            "/" => {
                let page = web::PAGE
                    .replace("</head>", "<script type=\"module\" src=\"/driver.js\"></script></head>");
                return answer(&mut stream, "200 OK", "text/html", &page);
            }
            "/app.css" => return answer(&mut stream, "200 OK", "text/css", web::STYLE),
            "/app.js" => return answer(&mut stream, "200 OK", "text/javascript", web::SCRIPT),
            "/driver.js" => return answer(&mut stream, "200 OK", "text/javascript", DRIVER),
            "/cut" | "/mend" => {
                *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = path == "/cut";
                for cut in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                    cut.shutdown(Shutdown::Both)?;
                }
                return answer(&mut stream, "200 OK", "text/plain", "");
            }
            "/told" => {
                let told =
                    serde_json::from_slice(&body).unwrap_or_else(|error| json!({"fault": error.to_string()}));
                // The receiver is gone if the test has failed.
                drop(self.told.send(told));
                return answer(&mut stream, "200 OK", "text/plain", "");
            }
            _ => {}
        }
        if *self.cut.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(());
        }
        if self.token.is_some() && bearer.or_else(|| asked("token")) != self.token {
            return answer(
                &mut stream,
                "401 Unauthorized",
                "application/json",
                r#"{"error":"a token is needed"}"#,
            );
        }
        let number = |name: &str| asked(name).and_then(|text| text.parse::<f64>().ok());
        let question = path.strip_prefix("/api/v1/").unwrap_or_default();
        if question == "subscribe" {
            return self.push(stream);
        }
        match self.answer_to(question, number) {
            Some(body) => answer(&mut stream, "200 OK", "application/json", &body),
            None => answer(&mut stream, "404 Not Found", "application/json", r#"{"error":"no such thing"}"#),
        }
    }

    /// The canned answer to a question; `number`: what an option of it says.
    fn answer_to(&self, question: &str, number: impl Fn(&str) -> Option<f64>) -> Option<String> {
        Some(match question {
            "status" => json_of(&canned::status(self.busy, canned::NOW, Regime::Free)),
            "processes" => json_of(&canned::processes(self.busy)),
            "files" => json_of(&canned::files(self.busy)),
            "profile" => json_of(&canned::profile()),
            "advise" => json_of(&canned::advice(number("for_s").unwrap_or_default())),
            // Longer spans come from a whole day as the daemon keeps it.
            "history" if self.busy && number("last_s").is_some_and(|last| last > 3600.0) => {
                let points = number("points").map(|points| points as usize);
                json_of(&day::history(&HistorySpan { last_s: number("last_s"), points }))
            }
            "history" => json_of(&canned::history(
                self.busy,
                number("last_s").unwrap_or(600.0),
                number("points").unwrap_or(600.0) as usize,
            )),
            "predict" => json_of(&canned::predicted(
                number("bytes").unwrap_or_default() as u64,
                number("chunk").unwrap_or(1.0) as u64,
            )),
            _ => return None,
        })
    }

    /// Some seconds of a machine that begins to throttle, at once; then silence on an open stream.
    fn push(&self, mut stream: TcpStream) -> std::io::Result<()> {
        // Before the page knows that it is connected, since it may cut the connection then.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.try_clone()?);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
        let state = if self.busy { Regime::Throttle } else { Regime::Free };
        for second in 1..=4 {
            let status = canned::status(self.busy, canned::NOW + f64::from(second), state);
            write!(stream, "event: status\ndata: {}\n\n", json_of(&status))?;
        }
        if self.busy {
            write!(stream, "event: calls\ndata: {}\n\n", json_of(&canned::calls()))?;
        }
        Ok(())
    }
}
