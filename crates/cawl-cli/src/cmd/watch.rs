//! `watch`: a line per interval.

use std::io::{self, Write};
use std::process::ExitCode;

use cawld::protocol::{Push, Status, Subscription, Topic};
use cawld::query;
use serde::Deserialize;
use serde_json::Value;

use super::socket_of;
use crate::args::WatchArgs;
use crate::render;
use crate::render::watch::Lines;

/// Subscribes and prints until enough.
pub fn watch(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let path = socket_of(&args.daemon)?;
    let subscription =
        Subscription { topics: vec![Topic::Status], every_s: Some(args.every), ..Subscription::default() };
    let wanted = usize::try_from(args.count.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let mut out = io::stdout().lock();
    let mut print = |text: String| {
        // Each line at once: somebody may be waiting for it.
        let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            other => render::printed(other).map(|_| true),
        }
    };
    if args.json {
        for pushed in query::subscribe::<Value>(&path, subscription)?.take(wanted) {
            let Some(status) = status_in(pushed?) else { continue };
            if !print(serde_json::to_string(&status)? + "\n")? {
                break;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Lines::default();
    for pushed in query::subscribe::<Push>(&path, subscription)?.take(wanted) {
        let Push::Status(status) = pushed? else { continue };
        if !print(lines.next(&status))? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The status in a push, as it came, if that is what it is.
fn status_in(mut push: Value) -> Option<Value> {
    let data = push.get_mut("data")?.take();
    Status::deserialize(&data).is_ok().then_some(data)
}
