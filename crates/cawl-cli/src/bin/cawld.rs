//! `cawld`: the daemon as a program of its own. It lies in this package so that one `cargo install` gives both programs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cawld::program::main()
}
