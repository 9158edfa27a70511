//! One file for each command that reads files and prints an answer.

pub mod experiment;
pub mod regress;
