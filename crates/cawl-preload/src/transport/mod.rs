//! The ways to the daemon: shared memory and a socket. It carries events and messages, of which the names of
//! files are bytes to it, and knows of a session only whether it is open: if the daemon is gone, it ends the
//! session (`link::give_up`).

mod interpreter;
pub mod link;
pub mod modules;
pub mod patience;
pub mod pending_messages;
mod place;
mod pool;
pub mod ring;
pub mod slot;
pub mod socket;
pub mod stack;
pub mod table;
