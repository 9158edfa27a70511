//! `cawld`, the daemon. It is in this package so that one `cargo install` installs both programs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cawld::program::main()
}
