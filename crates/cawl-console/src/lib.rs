//! What the programs of the workspace say to people, and how they end: the same in each of them.
//!
//! - [`print()`], [`answer`], [`tell`]: text and JSON to standard output and error; a closed one is no panic.
//! - [`table`], [`headed`], [`line()`]: lines and tables in 80 columns; [`compact`] has short quantities.
//! - [`shown`]: names that would command the terminal.
//! - [`inputs`]: profiles and packed tables; [`outputs`]: what is not of the same kind is not overwritten.
//! - [`with_synopsis`]: manual pages that tell the values of options.
//! - [`respelled`], [`parsed`]: options that had another spelling; errors of clap, whose words are escaped.
//! - [`exit`]: exit codes, and errors of usage.
//!
//! What a command has to say is rendered where the command is.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod compact;
pub mod exit;
pub mod inputs;
pub mod json;
mod manual;
pub mod outputs;
mod print;
mod shown;
mod spelling;
mod text;
mod wrap;

pub use manual::with_synopsis;
pub use print::{answer, data, draw, print, printed, tell, width};
pub use shown::{page, shown};
pub use spelling::{Respelled, parsed, respelled};
pub use text::{
    below_paths, bold, counted, difference, headed, line, named, percent, short, table, time, warn, warn_if,
};
pub use wrap::{GAP, WIDTH, columns, room, wrapped};
