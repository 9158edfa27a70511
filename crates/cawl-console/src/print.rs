//! Where text goes: standard output and error.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use crate::json;
use crate::shown::page;

/// Prints a line to stderr. A closed or full stderr must not change the exit code; `eprintln!` would panic.
pub fn tell(text: impl Display) {
    draw(&page(&format!("{text}\n"), io::stderr().is_terminal()));
}

/// Shows text on stderr as it is; errors are ignored.
pub fn draw(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}

/// Prints a text for people to stdout.
pub fn print(text: &str) -> anyhow::Result<ExitCode> {
    data(&page(text, io::stdout().is_terminal()))
}

/// Prints data for programs to stdout, as it is.
pub fn data(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints an answer to stdout: as JSON, or as the text that `text` makes of it, for a terminal or not.
pub fn answer(
    as_json: bool,
    answer: &impl Serialize,
    text: impl FnOnce(bool) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    if !as_json {
        return print(&text(io::stdout().is_terminal())?);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    printed(json::write(&mut out, answer).and_then(|()| out.flush()))
}

/// Columns of the terminal, if stdout is one.
pub fn width() -> Option<usize> {
    let (columns, _) = crossterm::terminal::size().ok().filter(|_| io::stdout().is_terminal())?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// The exit code of writing to stdout. A closed pipe counts as success: its reader may stop early (`| head`).
pub fn printed(result: io::Result<()>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).context("cannot write the output"),
    }
}
