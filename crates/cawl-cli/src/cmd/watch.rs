//! `watch`: a line per interval.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use cawl_client::protocol::{Status, Subscription, Topic};
use cawl_client::query;
use serde::Deserialize;
use serde_json::Value;

use super::socket_of;
use crate::args::WatchArgs;
use crate::render;
use crate::render::watch::Lines;

/// Time between two attempts to reach a daemon that ended.
const RETRY: Duration = Duration::from_secs(1);

/// Subscribes and prints `count` lines. A daemon that ended is waited for, since it may be restarted; one
/// that never answered is an error.
pub fn watch(args: &WatchArgs) -> anyhow::Result<ExitCode> {
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
        let lost = match query::subscribe::<Value>(&path, subscription.clone()) {
            Err(error) => error,
            Ok(pushes) => {
                let mut lost = None;
                for pushed in pushes {
                    let pushed = match pushed {
                        Ok(pushed) => pushed,
                        Err(error) => {
                            lost = Some(error);
                            break;
                        }
                    };
                    let Some((data, status)) = status_in(pushed) else { continue };
                    (was_there, told) = (true, false);
                    let line =
                        if args.json { serde_json::to_string(&data)? + "\n" } else { lines.next(&status) };
                    left -= 1;
                    if !print(line)? || left == 0 {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                lost.unwrap_or_else(|| anyhow::anyhow!("the daemon at {} hung up", path.display()))
            }
        };
        if !was_there {
            return Err(lost);
        }
        if !told {
            told = true;
            render::tell(format_args!("cawl-cli: {lost:#}; waiting for it to come back"));
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
