//! `status`: the state of the machine as a running daemon models it.

use std::process::ExitCode;

use serde_json::Value;

use cawl_client::protocol::Request;
use cawl_client::query;

use super::{parsed, socket_of};
use crate::args::StatusArgs;
use crate::render;

pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let answer: Value = query::ask(&socket_of(&args.daemon)?, &Request::Status(args.view.view()))?;
    render::answer(args.json, &answer, |terminal| Ok(render::status::text(&parsed(&answer)?, terminal)))
}
