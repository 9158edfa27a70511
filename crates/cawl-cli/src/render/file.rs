//! The report as a file, whose name says in which form.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use cawl_core::Report;

use super::{html, json, page};

/// Writes the report: .json is data, .html a page, anything else the text for a terminal or none.
pub fn write(report: &Report, path: &Path, text: impl FnOnce(bool) -> String) -> anyhow::Result<()> {
    let written = match path.extension().and_then(OsStr::to_str) {
        Some("json") => File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            json::write(&mut out, report).and_then(|()| out.flush())
        }),
        Some("html") => fs::write(path, html::page(report)),
        _ => fs::write(path, &*page(&text(false), false)),
    };
    written.with_context(|| {
        format!("cannot write the report {}; name another file with --report", path.display())
    })
}
