//! Output for people: aligned tables, readable units, colour only on a terminal.

pub mod advise;
pub mod beside;
pub mod calibrate;
pub mod calls;
pub mod causes;
pub mod check;
pub mod compact;
pub mod density;
pub mod explain;
pub mod file;
mod html;
pub mod json;
pub mod one_call;
pub mod patterns;
pub mod predict;
pub mod profile;
pub mod ranks;
pub mod regress;
pub mod report;
pub mod rerun;
pub mod rows;
mod shown;
pub mod status;
pub mod tune;
pub mod watch;
pub mod whatif;
mod wrap;

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::Nanos;
use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};
use serde::Serialize;

use shown::{BOLD, PLAIN, YELLOW};
pub use shown::{page, shown};
pub use wrap::wrapped;
use wrap::{WIDTH, columns, room};

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

/// Blanks between columns of a table.
const GAP: usize = 2;

/// A plain table, without blanks at the ends of lines: these columns are aligned left, the others right.
pub fn table<R: Into<Row>>(
    header: &[&str],
    left: impl IntoIterator<Item = usize>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16)).set_cell_alignment(CellAlignment::Right);
    }
    for index in left {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Adds a table after an empty line, its first line in bold.
pub fn headed(out: &mut String, table: &str, terminal: bool) {
    let (header, rest) = table.split_once('\n').unwrap_or((table, ""));
    out.extend(["\n", &bold(header, terminal), "\n", rest]);
}

/// A table whose rows, where their file is another one, stand below its path.
pub fn below_paths<F: PartialEq>(table: &str, files: impl Iterator<Item = (F, String)>) -> String {
    let (header, rows) = table.split_once('\n').unwrap_or((table, ""));
    let (mut text, mut last) = (format!("{header}\n"), None);
    for (line, (file, path)) in rows.lines().zip(files) {
        if last.as_ref() != Some(&file) {
            text.extend([&short(&shown(&path), WIDTH), "\n"]);
            last = Some(file);
        }
        text.extend([line, "\n"]);
    }
    text
}

/// A line of a text for people, in 80 columns: its name, in bold, in a column of this width.
pub fn named(name: &str, width: usize, text: &str, terminal: bool) -> String {
    format!("{}{}\n", bold(&format!("{name:<width$}"), terminal), wrapped(text, width))
}

/// A line of a report.
pub fn line(out: &mut String, name: &str, text: &str, terminal: bool) {
    const NAME: usize = 11;
    out.push_str(&named(name, NAME, text, terminal));
}

/// A number of things: `1 cause`, `2 causes`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{} {one}{}", compact::count(count), if count == 1 { "" } else { "s" })
}

pub fn time(seconds: f64) -> String {
    Nanos::seconds(seconds).to_string()
}

/// A difference of times, in seconds, with its sign.
pub fn difference(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "+" };
    format!("{sign}{}", time(seconds.abs()))
}

/// A fraction as a percentage.
pub fn percent(fraction: Option<f64>) -> String {
    match fraction {
        None => "-".to_owned(),
        Some(f) if f >= 10.0 => format!("{:.0} %", f * 100.0),
        Some(f) => format!("{:.1} %", f * 100.0),
    }
}

/// Text in bold, where the output is a terminal.
pub fn bold(text: &str, terminal: bool) -> String {
    if terminal { format!("{BOLD}{text}{PLAIN}") } else { text.to_owned() }
}

/// Text in yellow, where the output is a terminal.
pub fn warn(text: &str, terminal: bool) -> String {
    if terminal { format!("{YELLOW}{text}{PLAIN}") } else { text.to_owned() }
}

/// [`warn`] on a condition.
pub fn warn_if(text: &str, condition: bool, terminal: bool) -> String {
    warn(text, terminal && condition)
}

/// The end of a path, at most `width` columns.
pub fn short(path: &str, width: usize) -> String {
    if columns(path) <= width {
        return path.to_owned();
    }
    // The dots take one.
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let wide = wrap::width(*c);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let end = path.chars().rev().take_while(fits).map(char::len_utf8).sum::<usize>();
    format!("…{}", &path[path.len() - end..])
}
