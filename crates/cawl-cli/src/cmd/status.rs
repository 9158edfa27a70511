//! `status`: the state of the machine as a running daemon models it, or one of its tables, or lines of it.

use std::process::ExitCode;

use serde_json::Value;

use cawl_client::protocol::Request;
use cawl_client::query;

use super::{parsed, socket_of, tables, watch};
use crate::args::StatusArgs;
use crate::render;

pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    match args {
        StatusArgs { files: true, .. } => return tables::files(args),
        StatusArgs { processes: true, .. } => return tables::processes(args),
        StatusArgs { watch: true, .. } => return watch::watch(args),
        _ => {}
    }
    let answer: Value = query::ask(&socket_of(&args.daemon)?, &Request::Status(args.view.view()))?;
    render::answer(args.json, &answer, |terminal| Ok(render::status::text(&parsed(&answer)?, terminal)))
}
