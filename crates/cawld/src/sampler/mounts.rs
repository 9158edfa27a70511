//! Notices that something was mounted or unmounted: the kernel tells whoever polls /proc/self/mountinfo.

use std::fs::File;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The table of mounts, as far as it changes.
pub struct Mounts(File);

impl Mounts {
    /// From now on; None where /proc has no such table.
    pub fn watch() -> Option<Mounts> {
        File::open("/proc/self/mountinfo").ok().map(Mounts)
    }

    /// True if the table has changed since it was last asked for. Costs one system call, however many mounts
    /// there are.
    pub fn changed(&mut self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut table = [PollFd::new(&self.0, PollFlags::PRI)];
        poll(&mut table, Some(&at_once)).is_ok() && table[0].revents().contains(PollFlags::PRI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_by_itself() {
        let mut mounts = Mounts::watch().expect("a /proc");
        // Other programs may mount something meanwhile, but not again and again.
        assert!((0..1000).any(|_| !mounts.changed()));
    }
}
