//! The tracer in front of real programs, with a daemon that only remembers (`cawl_kit::witness`), and rules
//! that hold for its source and its machine code. Each module says what it is about.
#![forbid(unsafe_code)]

mod complete;
mod confined;
mod every;
mod files;
mod frames;
mod hooks;
mod hostile;
mod image;
mod limits;
mod memory;
mod past_hooks;
mod processes;
mod raw;
mod reads;
mod ring;
mod rules;
mod stack;
mod starts;
mod stdio;
mod table;
