//! Asks a daemon, on the same socket as the tracers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;

use crate::protocol::{Failure, Request};
use crate::socket;

/// Asks the daemon at `path` and waits for the answer.
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> anyhow::Result<T> {
    let absent = || format!("no daemon answers at {}; start one with `cawld`", path.display());
    socket::check_owner(path).with_context(absent)?;
    let mut stream = UnixStream::connect(path).with_context(absent)?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    let mut answer = String::new();
    let asked =
        stream.write_all(line.as_bytes()).and_then(|()| BufReader::new(stream).read_line(&mut answer));
    if !matches!(asked, Ok(1..)) {
        anyhow::bail!(
            "the daemon at {} hung up without an answer: it may have ended, or belong to another user",
            path.display()
        );
    }
    if let Ok(Failure { error }) = serde_json::from_str(&answer) {
        anyhow::bail!("the daemon at {} answers: {error}", path.display());
    }
    serde_json::from_str(&answer)
        .with_context(|| format!("the daemon at {} gave an answer this version cannot read", path.display()))
}
