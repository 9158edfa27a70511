//! Starts and stops a network mount.
//!
//! Like a disk, it runs in a process of its own, which never waits for it: others measure and unmount it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cawl_core::{Bytes, Nanos};
use fuser::{BackgroundSession, MountOption};
use nix::fcntl::OFlag;

use super::server::{Server, Session};
use super::spec::NetSpec;
use crate::clock;
use crate::command::run;
use crate::leftovers::Folder;
use crate::overhead::{self, Overhead, REQUESTS, ROUNDS, SMALL, UNDISTURBED};

/// Requests under way at a time; the kernel keeps as many in the background (FUSE's max_background).
const THREADS: usize = 16;

/// A running network mount. Dropping it stops it.
#[derive(Debug)]
pub struct NetMount {
    folder: Folder,
    server: Arc<Server>,
    overhead: Overhead,
    /// As long as it is open, processors wake up quickly.
    _awake: Option<File>,
    /// After the folder, since its threads end when everything is unmounted.
    _session: BackgroundSession,
}

impl NetMount {
    /// Starts a mount. `program` is `cawl-lab`, whose `probe` measures it.
    pub fn bring_up(program: &Path, spec: NetSpec) -> anyhow::Result<NetMount> {
        clock::wake_precisely();
        let awake = clock::keep_awake().inspect_err(|error| {
            eprintln!(
                "cawl-lab: processors may sleep, and waits be longer by that: /dev/cpu_dma_latency: {error}"
            );
        });
        let (folder, server) = (Folder::make()?, Server::new(spec));
        let at = folder.mount();
        let most = MountOption::CUSTOM(format!("max_read={}", spec.request.0));
        let session = Folder::serve(Session(Arc::clone(&server)), &at, THREADS, Some(most))?;
        let overhead = Overhead::default();
        let mut mount = NetMount { folder, server, overhead, _awake: awake.ok(), _session: session };
        let measured = |largest, rounds| overhead_of(program, &at, largest, rounds);
        mount.overhead = measured(spec.request.0 as usize, ROUNDS)?;
        mount.server.pace(mount.overhead);
        // Who has waited for long may be woken later, so what is left is measured with the waits.
        let small = Bytes(SMALL as u64);
        let one = [spec.latency, spec.latency + small / spec.bandwidth];
        let rounds = Nanos::seconds(1.0).get() / (one[1].get() * REQUESTS as f64);
        let paced = measured(SMALL, (rounds as usize).clamp(1, ROUNDS))?;
        let Overhead { write, read, flush } = mount.overhead;
        let more = |before: Nanos, paced: Nanos, should: Nanos| (before + paced).saturating_sub(should);
        mount.server.pace(Overhead {
            write: (more(write.0, paced.write.0, one[1]), write.1),
            read: (more(read.0, paced.read.0, one[1]), read.1),
            flush: more(flush, paced.flush, one[0]),
        });
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.folder.mount()
    }

    /// The cost of a request without pacing.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }
}

impl Drop for NetMount {
    fn drop(&mut self) {
        self.server.hurry();
    }
}

/// What [`probe`] finds in a process of its own, of ordinary priority as the programs that use the mount.
fn overhead_of(program: &Path, mount: &Path, largest: usize, rounds: usize) -> anyhow::Result<Overhead> {
    let mut probe = Command::new("chrt");
    probe.args(["--other", "0"]).arg(program).arg("probe").arg(mount);
    let told = run(probe.arg(largest.to_string()).arg(rounds.to_string()))?;
    Ok(serde_json::from_str(&told)?)
}

/// Measures requests to a mount past the page cache, the largest of `largest` bytes; leaves nothing there.
pub fn probe(mount: &Path, largest: usize, rounds: usize) -> anyhow::Result<Overhead> {
    let path = mount.join("probe");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).custom_flags(OFlag::O_DIRECT.bits());
    let file = options.open(&path)?;
    // To close a descriptor asks FLUSH, and waits for it.
    let found = overhead::measure(&file, largest, rounds, UNDISTURBED, || file.try_clone().map(drop));
    fs::remove_file(&path)?;
    Ok(found?)
}
