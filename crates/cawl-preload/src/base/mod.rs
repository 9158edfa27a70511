//! What needs nothing of the tracer: the kernel, the clock, the thread's own record and its guard, the
//! settings, the program's memory and the functions that the hooks stand in front of.

pub mod clock;
pub mod counters;
pub mod files;
pub mod gate;
pub mod guard;
pub mod hot;
pub mod interrupted;
#[cfg_attr(test, allow(dead_code))]
pub mod level;
pub mod memory;
pub mod notes;
pub mod page_cache;
#[cfg_attr(test, allow(dead_code))]
pub mod real;
#[cfg_attr(test, allow(dead_code))]
pub mod room;
pub mod settings;
pub mod symbols;
pub mod sys;
pub mod thread;
pub mod time;
#[cfg_attr(test, allow(dead_code))]
pub mod words;
