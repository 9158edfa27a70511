//! Performs the calls of a trace for real.
//!
//! cawl-core hands over the steps of the trace's threads, changed as for `whatif`; [`Builder`] makes a script
//! of them, and [`play`] has a program of its own make the calls.

mod builder;
mod descriptors;
mod files;
mod folder;
mod player;
mod script;
mod why;

pub use builder::Builder;
pub use folder::Folder;
pub use player::{Order, play};
pub use script::how;
pub use why::unmakeable;
