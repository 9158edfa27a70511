//! A connection with a delay: what comes in goes to a command's input, and its output comes back, each byte
//! half a latency later and no faster than the bandwidth. It stands where ssh expects a proxy.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::Context;
use cawl_core::{Bytes, Nanos, Time};

use super::Link;
use crate::clock;

/// Data of one read at most.
const PIECE: usize = 64 << 10;

/// Connects standard input and output with a command until the command closes its output.
pub fn relay(link: Link, command: &[OsString]) -> anyhow::Result<()> {
    clock::wake_precisely();
    let (program, arguments) = command.split_first().context("there is no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let to = child.stdin.take().context("its input is a pipe")?;
    let from = child.stdout.take().context("its output is a pipe")?;
    let (own_in, own_out) =
        (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    // Ends when either side has gone.
    thread::spawn(move || carry(link, File::from(own_in), to));
    carry(link, from, File::from(own_out))?;
    child.wait()?;
    Ok(())
}

/// Carries one direction until its end.
fn carry(link: Link, from: impl Read + Send + 'static, mut to: impl Write) -> io::Result<()> {
    let (sender, pieces) = channel();
    let reader = thread::spawn(move || take(link, from, &sender));
    for (due, data) in pieces {
        clock::wait_until(due);
        to.write_all(&data)?;
    }
    reader.join().unwrap_or(Ok(()))
}

/// Takes what comes, and says when it is through.
fn take(link: Link, mut from: impl Read, to: &Sender<(Time, Vec<u8>)>) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut free = Time::default();
    loop {
        let length = from.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        free = cawl_host::now().max(free) + Bytes(length as u64) / link.bandwidth;
        let due = free + Nanos::new(link.latency.get() / 2.0);
        if to.send((due, piece[..length].to_vec())).is_err() {
            return Ok(());
        }
    }
}
