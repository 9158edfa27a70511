//! The report as a file, whose name says in which form.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context;
use cawl_core::Report;

/// Writes the report: .json is data, .html a page, anything else the text for a terminal.
pub fn write(report: &Report, long: bool, path: &Path) -> anyhow::Result<()> {
    let text = match path.extension().and_then(OsStr::to_str) {
        Some("json") => json(report)?,
        Some("html") => super::html::page(report),
        _ => super::page(&super::explain::report(report, long, false), false).into_owned(),
    };
    std::fs::write(path, text).with_context(|| {
        format!("cannot write the report {}; name another file with --report", path.display())
    })
}

/// The report in lines, but for the timeline: its columns have thousands of numbers.
fn json(report: &Report) -> serde_json::Result<String> {
    let timeline = report.timeline.as_ref().map(serde_json::to_string).transpose()?;
    let mut text = serde_json::to_string_pretty(&Report { timeline: None, ..report.clone() })?;
    if let Some(timeline) = timeline {
        text.truncate(text.len() - "\n}".len());
        text.push_str(&format!(",\n  \"timeline\": {timeline}\n}}"));
    }
    Ok(text + "\n")
}
