//! One file for each command that reads files and prints an answer.

pub mod compare;
pub mod design;
pub mod experiment;
pub mod fit;
mod recordings;
pub mod regress;
pub mod tune;
pub mod workflow;
pub mod worth;
