//! Output for people: aligned tables, readable units, colour only on a terminal.

pub mod advise;
pub mod calibrate;
pub mod calls;
pub mod causes;
pub mod check;
pub mod comparison;
pub mod density;
pub mod diff;
pub mod explain;
pub mod file;
mod html;
pub mod one_call;
pub mod patterns;
pub mod predict;
pub mod profile;
pub mod ranks;
pub mod report;
pub mod rerun;
pub mod rows;
pub mod stacks;
pub mod status;
pub mod watch;
pub mod whatif;

use cawl_console::{GAP, WIDTH, below_paths, columns, room};
pub use cawl_console::{
    answer, bold, compact, counted, data, difference, draw, headed, json, line, named, page, percent, print,
    printed, short, shown, table, tell, time, warn, warn_if, width, wrapped,
};
