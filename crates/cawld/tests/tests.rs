//! The daemon within the test's own process: what its rings and its sockets are given.

mod hostile;
mod ring;
mod robust;
