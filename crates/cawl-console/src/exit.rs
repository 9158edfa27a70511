//! How a command ends.

use std::process::ExitCode;

/// Something went wrong; the message says what to do.
pub const FAILED: u8 = 1;
/// The arguments cannot be used, as clap has it.
pub const WRONG_USAGE: u8 = 2;

/// The code of an answer from all of a trace, or from what could be read of a damaged one.
pub fn of_whole(is_whole: bool) -> ExitCode {
    if is_whole { ExitCode::SUCCESS } else { FAILED.into() }
}

/// What is wrong with the arguments, where that takes more than one of them to see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// That error, unless something holds.
pub fn usage(holds: bool, why: impl FnOnce() -> String) -> anyhow::Result<()> {
    if holds { Ok(()) } else { Err(Usage(why()).into()) }
}

/// The code of an error.
pub fn of_error(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if error.is::<Usage>() { WRONG_USAGE } else { FAILED })
}
