//! What `run` and `attach` keep and report.

use std::path::{Path, PathBuf};

use cawl_core::Glob;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::{ClassesArgs, EXPERT, ModelArgs, report_file};

/// What is recorded, kept and reported.
#[derive(Args)]
pub struct RecordArgs {
    /// Keep every call in a trace for `replay`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the report to a file instead of stderr; .html, .json or .txt
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(report_file))]
    pub report: Option<PathBuf>,
    /// The report with all processes, files, quantiles and errors
    #[arg(long)]
    pub long: bool,
    /// Record calls on files only whose path or name fits: '*.db', '/data/*', ./file; may be repeated
    #[arg(long, value_name = "GLOB", value_parser = some_glob)]
    pub only: Vec<Glob>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub classes: ClassesArgs,
    /// Whether the models learn constants from observed calls: on or off
    #[arg(long, help_heading = EXPERT, value_name = "on|off", default_value = "on",
          value_parser = ["on", "off"])]
    pub learn: String,
    /// Do not keep what was learned in the profile for the next run; with --profile nothing is kept either
    #[arg(long, help_heading = EXPERT)]
    pub no_save: bool,
}

fn some_glob(text: &str) -> Result<Glob, String> {
    let is_relative = text.starts_with("./") || text.starts_with("../");
    match std::env::current_dir() {
        _ if text.is_empty() => Err("give a pattern".to_owned()),
        // Files have the names that the kernel has for them.
        Ok(folder) if is_relative => Ok(below(&folder, text).as_str().into()),
        _ => Ok(text.into()),
    }
}

/// A pattern that begins in this folder.
fn below(folder: &Path, text: &str) -> String {
    let (mut folder, mut rest) = (Some(folder), text);
    loop {
        if let Some(text) = rest.strip_prefix("../") {
            (folder, rest) = (folder.and_then(Path::parent), text);
        } else if let Some(text) = rest.strip_prefix("./") {
            rest = text;
        } else {
            return folder.unwrap_or(Path::new("/")).join(rest).to_string_lossy().into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_may_begin_here() {
        for (text, whole) in
            [("./x", "/a/b/x"), ("././*.db", "/a/b/*.db"), ("../x", "/a/x"), ("../../../x", "/x")]
        {
            assert_eq!(below(Path::new("/a/b"), text), whole);
        }
        assert_eq!(some_glob("x/./y"), Ok("x/./y".into()));
    }
}
