//! A network mount: files that are elsewhere, behind a link of given latency and bandwidth, under a real
//! kernel's page cache.
//!
//! The law: **a program meets the latency with each request that its calls make, and the bandwidth with their
//! data**; which calls make requests is the kernel's decision, by the
//! [`CachePolicy`](cawl_core::CachePolicy).
//!
//! ```text
//! test ── pipe ──▶ cawl-lab, the process that serves it
//!   │                 ├ link.rs: when a request is complete
//!   └ files ─▶ page ─▶ FUSE ─▶ server.rs ─▶ tree.rs, in memory
//!             cache
//! ```

mod link;
mod mount;
mod requests;
mod server;
mod spec;
mod tree;

pub use mount::{NetMount, probe};
pub use requests::Requests;
pub use spec::NetSpec;
