//! How many requests came over the link.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Requests by their kind, since the mount came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the kinds are FUSE's")]
pub struct Requests {
    pub lookup: u64,
    pub getattr: u64,
    pub setattr: u64,
    pub create: u64,
    pub open: u64,
    pub read: u64,
    pub write: u64,
    pub flush: u64,
    pub release: u64,
    pub fsync: u64,
    pub unlink: u64,
    /// Folders, links, names moved, room asked for.
    pub other: u64,
}

impl Requests {
    /// Name of a file in the root of each mount that has them as JSON. No folder lists it; to read it costs
    /// and counts nothing.
    pub const FILE: &str = ".requests";

    /// What has come from a mount so far. An error means that it is none, or that it has ended.
    pub fn of(mount: &Path) -> anyhow::Result<Requests> {
        let text = fs::read(mount.join(Requests::FILE)).context("no mount of cawl-lab --net")?;
        Ok(serde_json::from_slice(&text)?)
    }
}

impl fmt::Display for Requests {
    /// One line of JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
