//! `status --watch`: a line per interval.

use std::io::{self, Write};
use std::iter;
use std::process::ExitCode;
use std::time::Duration;

use cawl_client::protocol::{Status, Subscription, Topic};
use cawl_client::query;
use serde::Deserialize;
use serde_json::Value;

use super::socket_of;
use crate::args::StatusArgs;
use crate::render;
use crate::render::watch::Lines;

/// Time between two attempts to reach a daemon that ended.
const RETRY: Duration = Duration::from_secs(1);

/// Subscribes and prints `count` lines. A daemon that ended is waited for, since it may be restarted; one
/// that never answered is an error.
pub fn watch(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let path = socket_of(&args.daemon)?;
    let subscription =
        Subscription { topics: vec![Topic::Status], every_s: Some(args.every), ..Subscription::default() };
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut out = io::stdout().lock();
    let mut print = |text: String| {
        // Each line is flushed: it may be read by a pipe.
        let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            other => render::printed(other).map(|_| true),
        }
    };
    let mut lines = Lines::default();
    let (mut was_there, mut told) = (false, false);
    loop {
        let pushes: Box<dyn Iterator<Item = anyhow::Result<Value>>> =
            match query::subscribe(&path, subscription.clone()) {
                Ok(pushes) => Box::new(pushes),
                Err(error) => Box::new(iter::once(Err(error))),
            };
        // The last one is an error.
        for pushed in pushes {
            match pushed.map(status_in) {
                Ok(None) => {}
                Ok(Some((data, status))) => {
                    (was_there, told) = (true, false);
                    let line = match args.json {
                        true => {
                            let mut line = Vec::new();
                            render::json::line(&mut line, &data)?;
                            String::from_utf8(line)?
                        }
                        false => lines.next(&status),
                    };
                    left -= 1;
                    if !print(line)? || left == 0 {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                Err(lost) if !was_there => return Err(lost),
                Err(lost) if !told => {
                    told = true;
                    render::tell(format_args!("cawl-cli: {lost:#}; waiting for it to come back"));
                }
                Err(_) => {}
            }
        }
        std::thread::sleep(RETRY);
    }
}

/// The status in a push, raw and parsed; None for other pushes.
fn status_in(mut push: Value) -> Option<(Value, Status)> {
    let data = push.get_mut("data")?.take();
    let status = Status::deserialize(&data).ok()?;
    Some((data, status))
}
