//! `status`: the state of the machine as a running daemon models it.

use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::Value;

use cawl_client::protocol::{Request, Status};
use cawl_client::query;

use super::socket_of;
use crate::args::StatusArgs;
use crate::render;

/// Asks and prints.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let path = socket_of(&args.daemon)?;
    let request = Request::Status(args.view.view());
    if args.json {
        return render::json(&query::ask::<Value>(&path, &request)?);
    }
    let status: Status = query::ask(&path, &request)?;
    render::print(&render::status::text(&status, std::io::stdout().is_terminal()))
}
