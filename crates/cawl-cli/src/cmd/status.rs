//! `status`: how things stand, as a running daemon sees them.

use std::io::IsTerminal;
use std::process::ExitCode;

use cawld::protocol::{Request, Status, View};
use cawld::query;
use cawld::socket;

use crate::args::StatusArgs;
use crate::render;

/// Asks and prints.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let path = args.socket.clone().map_or_else(socket::default_path, Ok)?;
    let status: Status = query::ask(&path, &Request::Status(View::default()))?;
    if args.json {
        render::print(&(serde_json::to_string_pretty(&status)? + "\n"))
    } else {
        render::print(&render::status::text(&status, std::io::stdout().is_terminal()))
    }
}
