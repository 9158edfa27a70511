//! The ways to the daemon: shared memory and a socket. It carries events and messages, and knows neither
//! files nor sessions: it answers that there is no room, that the daemon is to be woken, or how many events
//! were dropped.

pub mod ahead;
pub mod link;
mod place;
pub mod ring;
pub mod slot;
pub mod socket;
pub mod table;
