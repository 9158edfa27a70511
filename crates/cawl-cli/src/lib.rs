//! `cawl-cli`: runs a program and reports per call what each write should cost, what it did cost, and why.
#![deny(unsafe_code)]
// These macros panic when the output is closed or full; render.rs has the alternative.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod cmd;
mod descendants;
mod group;
mod interrupt;
mod meet;
mod offline;
mod outputs;
mod render;
mod rerun;
mod start;
mod top;
mod tracer;
#[cfg(test)]
#[path = "../tracer_build.rs"]
mod tracer_build;

use std::ffi::OsString;
use std::process::ExitCode;

use cawl_host::allowance;
use cawl_measure::interrupt::Interrupted;

use args::{Args, Command};

/// Runs the command line of this process and returns its exit code.
pub fn main() -> ExitCode {
    interrupt::outlive_file_limit();
    let result = match Args::of_process().command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Attach(args) => cmd::attach::attach(&args),
        Command::Replay(args) => cmd::replay::replay(&args),
        Command::Explain(args) => cmd::explain::explain(&args),
        Command::Diff(args) => cmd::diff::diff(&args),
        Command::Export(args) => cmd::export::export(&args),
        Command::WhatIf(args) => cmd::whatif::whatif(&args),
        Command::Advise(args) => cmd::advise::advise(&args),
        Command::Check(args) => cmd::check::check(&args),
        Command::Rerun(args) => cmd::rerun::rerun(&args),
        Command::Import(args) => cmd::import::import(&args),
        Command::Calibrate(args) => cmd::calibrate::calibrate(&args),
        Command::Doctor(args) => cmd::doctor::doctor(&args),
        Command::Status(args) => cmd::status::status(&args),
        Command::Top(args) => cmd::top::top(&args),
        Command::Predict(args) => cmd::predict::predict(&args),
        Command::Profile(args) => cmd::profile::profile(&args),
        Command::Service(args) => cmd::service::service(&args),
        Command::Completions(args) => cmd::help::completions(&args),
        Command::Man(args) => cmd::help::man(&args),
    };
    result.unwrap_or_else(|error| {
        render::tell(format_args!(
            "cawl-cli: {}",
            in_line(allowance::with_remedy(&error), std::env::args_os())
        ));
        if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
            interrupted.end();
        }
        exit::of_error(&error)
    })
}

/// The message, in which names from the command line begin no line of their own.
fn in_line(message: String, arguments: impl Iterator<Item = OsString>) -> String {
    let names = arguments.map(|argument| argument.to_string_lossy().into_owned());
    names.filter(|name| name.contains('\n')).fold(message, |message, name| {
        // Of `--option=VALUE` the value is a name.
        let value = name.split_once('=').map_or("", |(_, value)| value).to_owned();
        let whole = message.replace(&name, &render::shown(&name));
        if value.contains('\n') { whole.replace(&value, &render::shown(&value)) } else { whole }
    })
}

/// Exit codes of `cawl-cli` beside those of every command; `run` otherwise passes on that of the program.
/// docs/reference/CLI.md lists them.
mod exit {
    use std::process::ExitCode;

    pub use cawl_console::exit::*;

    /// The code of what was printed, of all of a trace or of what could be read of a damaged one.
    pub fn printed(code: ExitCode, is_whole: bool) -> ExitCode {
        if is_whole { code } else { FAILED.into() }
    }

    /// The program exists but cannot be executed, as in a shell.
    pub const CANNOT_EXECUTE: u8 = 126;
    /// There is no such program, as in a shell.
    pub const NOT_FOUND: u8 = 127;
}

#[cfg(test)]
mod tests {
    use super::in_line;

    #[test]
    fn names_of_the_command_line_begin_no_line() {
        let told = |argument: &str| in_line("a\nno x\ny".to_owned(), [argument.into()].into_iter());
        assert_eq!(told("x\ny"), "a\nno x\\ny");
        assert_eq!(told("--report=x\ny"), "a\nno x\\ny");
        assert_eq!(told("x"), "a\nno x\ny");
    }
}
