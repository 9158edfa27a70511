//! The report as a file, whose name says in which form.

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use cawl_core::Report;
use cawl_host::output::{FOR_ALL, Output};

use super::{html, json, page};

/// Writes the report: .json is data, .html a page, anything else the text for a terminal or none.
pub fn write(report: &Report, path: &Path, text: impl FnOnce(bool) -> String) -> anyhow::Result<()> {
    let written = Output::create(path, FOR_ALL).and_then(|mut output| {
        match path.extension().and_then(OsStr::to_str) {
            Some("json") => {
                let mut out = BufWriter::new(&mut output);
                json::write(&mut out, report).and_then(|()| out.flush())?;
            }
            Some("html") => output.write_all(html::page(report).as_bytes())?,
            _ => output.write_all(page(&text(false), false).as_bytes())?,
        }
        output.keep()
    });
    written.with_context(|| {
        format!("cannot write the report {}; name another file with --report", path.display())
    })
}
