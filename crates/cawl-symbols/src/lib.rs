//! Copied stacks as functions and lines.
//!
//! The law of this crate: **a file is not believed.** It may be a guest's program, made to hurt. It is read
//! by pread, never mapped, in parts of bounded length; what its parsers do not bear ends the symbols of that
//! file only. And the bytes of a stack go nowhere: out of here come addresses as places in files, and their
//! names.

#![forbid(unsafe_code)]

mod elf;
mod expressions;
mod interpreter;
mod jit;
mod maps;
mod modules;
mod names;
mod process;

pub use jit::PerfMap;
pub use maps::{Mapping, parse as parse_maps};
pub use modules::{Module, Modules, Unwinding};
pub use process::{Found, Need, Process, RawStack, Spot, Way};
