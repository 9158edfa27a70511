//! `top`: a live screen.

use std::process::ExitCode;

use super::socket_of;
use crate::args::TopArgs;

pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    crate::top::run(&socket_of(&args.daemon)?, args.every, args.sort)
}
