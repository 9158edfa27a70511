//! Notices mounts and unmounts, by poll on /proc/self/mountinfo.

use std::fs::File;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The watched table of mounts.
pub struct Mounts(File);

impl Mounts {
    /// Watches from now on; None without that table.
    pub fn watch() -> Option<Mounts> {
        File::open("/proc/self/mountinfo").ok().map(Mounts)
    }

    /// True if the table has changed since the last call. Costs one system call for any number of mounts.
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
        // Other programs may mount something, but not all the time.
        assert!((0..1000).any(|_| !mounts.changed()));
    }
}
