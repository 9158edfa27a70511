//! `status --files` and `--processes`: tables of what is written and what it costs.

use std::path::Path;
use std::process::ExitCode;

use cawl_client::protocol::{Listing, Request, Sort};
use cawl_client::query;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{parsed, socket_of};
use crate::args::StatusArgs;
use crate::render;

pub fn files(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    show(args, Request::Files, "files", render::rows::files)
}

pub fn processes(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    show(args, Request::Processes, "processes", render::rows::processes)
}

fn show<T: DeserializeOwned>(
    args: &StatusArgs,
    request: fn(Listing) -> Request,
    field: &str,
    text: fn(&T, Sort, Option<usize>) -> String,
) -> anyhow::Result<ExitCode> {
    let answer = whole(&socket_of(&args.daemon)?, args, request, field)?;
    render::answer(args.json, &answer, |_| Ok(text(&parsed(&answer)?, args.sort, render::width())))
}

/// The first rows, up to the limit; the daemon answers one page at a time. A row that moves between two pages
/// may be missing or appear twice.
fn whole(
    path: &Path,
    args: &StatusArgs,
    request: fn(Listing) -> Request,
    field: &str,
) -> anyhow::Result<Value> {
    let wanted = args.limit as usize;
    let mut rows = Vec::new();
    loop {
        let (limit, skip) = (Some(wanted - rows.len()), rows.len());
        let mut answer: Value = query::ask(path, &request(Listing { sort: args.sort, limit, skip }))?;
        let page = answer[field].as_array_mut().map(std::mem::take).unwrap_or_default();
        let is_last = page.is_empty() || answer["more"].as_u64().unwrap_or(0) == 0;
        rows.extend(page);
        if is_last || rows.len() >= wanted {
            answer[field] = Value::Array(rows);
            return Ok(answer);
        }
    }
}
