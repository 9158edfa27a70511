//! The session with the daemon: when it is opened, what a fork makes of it, and how it ends.

mod actions;
mod end;
pub mod environment;
pub mod fitness;
mod fork;
mod held;
pub mod locked;
mod open;
mod opened;
mod ready;
pub mod search;
mod stop;
pub mod target;

pub use crate::base::hot::active;
pub use end::{before_silence, flush, goodbye, no_silence, prepare_threads, silence};
pub use fork::{forked, is_dormant, is_ours, tell_if_unreachable, wake};
pub use open::{begin, prepare, prepare_name};
pub use ready::{
    finish, learn, learn_continued, make_way, may_tell_name, open_slot, opened, push, put, put_beside,
};
