//! `files` and `processes`: what is written, by whom, and what it costs.

use std::process::ExitCode;

use cawld::protocol::{Listing, Request};
use cawld::query;

use super::socket_of;
use crate::args::TableArgs;
use crate::render;

/// Asks for the files and prints them.
pub fn files(args: &TableArgs) -> anyhow::Result<ExitCode> {
    let path = socket_of(&args.daemon)?;
    let request = Request::Files(listing(args));
    if args.json {
        return render::json(&query::ask(&path, &request)?);
    }
    render::print(&render::rows::files(&query::ask(&path, &request)?, render::width()))
}

/// Asks for the programs and prints them.
pub fn processes(args: &TableArgs) -> anyhow::Result<ExitCode> {
    let path = socket_of(&args.daemon)?;
    let request = Request::Processes(listing(args));
    if args.json {
        return render::json(&query::ask(&path, &request)?);
    }
    render::print(&render::rows::processes(&query::ask(&path, &request)?, render::width()))
}

fn listing(args: &TableArgs) -> Listing {
    Listing { sort: args.sort, limit: Some(args.limit as usize) }
}
