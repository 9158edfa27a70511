//! Tables, pages and files of results: the one place where results become text.

use std::path::Path;

use anyhow::Context;
use cawl_console::{headed, named, shown, table, warn};
use cawl_host::output;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

const STYLE: &str = "body{font-family:sans-serif;max-width:72em;margin:2em auto;padding:0 1em;line-height:1.4;color:#111}\
 table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
 td:first-child,th:first-child{text-align:left;white-space:nowrap}caption{text-align:left;font-weight:bold}svg{max-width:100%;height:auto}\
 .note{color:#8a4b00}";

/// A table; its first column is aligned left.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<H: Into<String>>(
        caption: impl Into<String>,
        header: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Table {
        let header = header.into_iter().map(H::into).collect();
        Table { caption: caption.into(), header, rows: rows.into_iter().collect() }
    }

    pub fn markup(&self) -> Markup {
        html! {
            table {
                caption { (self.caption) }
                tr { @for head in &self.header { th { (head) } } }
                @for row in &self.rows { tr { @for cell in row { td { (cell) } } } }
            }
        }
    }

    /// Adds it to what the terminal shows.
    pub fn write(&self, out: &mut String, terminal: bool) {
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        out.extend(["\n", &self.caption]);
        headed(out, &table(&header, [0], self.rows.clone()), terminal);
    }
}

pub type Machine = Vec<(String, String)>;

pub fn machine(machine: &Machine, terminal: bool) -> String {
    machine.iter().map(|(name, value)| named(name, 13, &shown(value), terminal)).collect()
}

/// Remarks for the terminal.
pub fn notes(notes: &[String], terminal: bool) -> String {
    notes.iter().map(|note| format!("{} {note}\n", warn("note:", terminal))).collect()
}

/// A page of one file, with the machine and remarks before its `body`.
pub fn page(title: &str, heading: &str, machine: &Machine, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "cawl: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (heading) }
                table { @for (name, value) in machine { tr { td { (name) } td { (value) } } } }
                (body)
            }
        }
    };
    page.into_string()
}

/// Writes a file of the results.
pub fn save(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let file = folder.join(name);
    output::write(&file, output::FOR_ALL, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Writes results as JSON.
pub fn save_json(folder: &Path, name: &str, results: &impl Serialize) -> anyhow::Result<()> {
    save(folder, name, serde_json::to_string_pretty(results)? + "\n")
}
