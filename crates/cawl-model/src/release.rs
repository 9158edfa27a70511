//! What of the kernel's laws differs by its release.
//!
//! The law: **a release is data.** A law that another release lacks is a row of [`LAWS`]; all others are the same
//! from 6.1 to 6.18, by comparison of mm/page-writeback.c, fs/fs-writeback.c and mm/filemap.c.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::filesystem::FilesystemKind;

/// A release of Linux, as 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Release(pub u32, pub u32);

crate::table::name!(Release);

impl Release {
    /// The one that all laws are of.
    pub const LATEST: Release = Release(6, 18);
    /// Those whose laws were measured (docs/science/ACCURACY.md, "Releases").
    pub const MEASURED: [Release; 3] = [Release(6, 1), Release(6, 12), Release::LATEST];

    /// That its laws were not measured, for a report: they are those of the latest release before it that was, or
    /// of the first one.
    pub fn remark(self) -> Option<String> {
        let before = Self::MEASURED.iter().rev().find(|measured| **measured <= self);
        let measured = *before.unwrap_or(&Self::MEASURED[0]);
        (measured != self).then(|| format!("laws of {measured}, not verified on {self}"))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

impl FromStr for Release {
    type Err = String;

    /// The begin of what uname says: `6.12.117-deb13-amd64`.
    fn from_str(text: &str) -> Result<Release, String> {
        let mut parts = text.split(['.', '-']).map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Release(major, minor)),
            _ => Err(format!("{text:?} is no release of Linux; give one as 6.12")),
        }
    }
}

impl TryFrom<String> for Release {
    type Error = String;

    fn try_from(text: String) -> Result<Release, String> {
        text.parse()
    }
}

impl From<Release> for String {
    fn from(release: Release) -> String {
        release.to_string()
    }
}

/// A law that not every release has.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// What it is about.
    pub name: &'static str,
    /// Where the kernel has it.
    pub function: &'static str,
    /// The first release with it.
    pub since: Release,
    /// What was before.
    pub before: &'static str,
    at: fn(&mut Laws) -> &mut bool,
}

/// All of them; docs/science/MODEL.md, "Releases", has the same table.
pub const LAWS: [Law; 4] = [
    Law {
        name: "ticks at multiples of their length",
        function: "tick_init_jiffy_update",
        // A fix that stable releases got, too: 6.1.192 has it, older ones of 6.1 may not.
        since: Release(6, 1),
        before: "ticks begin at boot",
        at: |laws| &mut laws.aligned_ticks,
    },
    Law {
        name: "large folios of xfs",
        function: "iomap_write_begin, fgf_set_order",
        since: Release(6, 6),
        before: "single pages are written",
        at: |laws| &mut laws.xfs_folios,
    },
    Law {
        name: "fine time stamps",
        function: "inode_set_ctime_current",
        since: Release(6, 13),
        before: "a stamp changes with the tick",
        at: |laws| &mut laws.fine_stamps,
    },
    Law {
        name: "large folios of ext4",
        function: "ext4_set_inode_mapping_order",
        since: Release(6, 16),
        before: "single pages",
        at: |laws| &mut laws.ext4_folios,
    },
];

/// Which laws hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laws {
    /// ext4 has large folios.
    pub ext4_folios: bool,
    /// Writes to xfs allocate large folios.
    pub xfs_folios: bool,
    /// Time stamps that a program has read change with the next write.
    pub fine_stamps: bool,
    /// Ticks, at which pauses end, lie at multiples of their length on CLOCK_MONOTONIC.
    pub aligned_ticks: bool,
    /// There are large folios at all.
    pub large_folios: bool,
}

impl Laws {
    /// Those of a release; `large_folios`: it has them at all (CONFIG_TRANSPARENT_HUGEPAGE).
    pub fn of(release: Release, large_folios: bool) -> Laws {
        let mut laws = Laws::default();
        for law in LAWS {
            *(law.at)(&mut laws) = release >= law.since;
        }
        laws.large_folios = large_folios;
        laws.ext4_folios &= large_folios;
        laws.xfs_folios &= large_folios;
        laws
    }

    /// All folios of this filesystem's files are single pages.
    pub fn has_single_pages(self, kind: FilesystemKind) -> bool {
        kind.has_single_pages()
            || match kind {
                FilesystemKind::Ext4 | FilesystemKind::Overlay => !self.ext4_folios,
                FilesystemKind::Xfs => !self.xfs_folios,
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_from_what_uname_says() {
        assert_eq!("6.12.117-deb13-amd64".parse(), Ok(Release(6, 12)));
        assert_eq!("6.18-rc3".parse(), Ok(Release(6, 18)));
        assert!("Linux".parse::<Release>().is_err() && "6".parse::<Release>().is_err());
    }

    #[test]
    fn laws_come_with_their_release() {
        let [old, middle, latest] = [(6, 1), (6, 12), (6, 18)].map(|(a, b)| Laws::of(Release(a, b), true));
        assert_eq!(old, Laws { large_folios: true, aligned_ticks: true, ..Laws::default() });
        assert!(middle.xfs_folios && !middle.ext4_folios && !middle.fine_stamps);
        assert!(latest.xfs_folios && latest.ext4_folios && latest.fine_stamps);
        let single = Laws::of(Release::LATEST, false);
        assert!(
            single.has_single_pages(FilesystemKind::Ext4) && single.has_single_pages(FilesystemKind::Xfs)
        );
        assert!(
            !latest.has_single_pages(FilesystemKind::Ext4) && latest.has_single_pages(FilesystemKind::Btrfs)
        );
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../docs/science/MODEL.md");
        for Law { name, function, since, before, .. } in LAWS {
            let functions = function.replace(", ", "`, `");
            let row = format!("| {name} | `{functions}` | {since} | {before} |");
            assert!(page.lines().any(|line| line == row), "{row}");
        }
    }

    #[test]
    fn what_nobody_measured_is_said() {
        let remark = |a, b| Release(a, b).remark();
        assert_eq!([remark(6, 1), remark(6, 12), remark(6, 18)], [None, None, None]);
        assert_eq!(remark(6, 9).as_deref(), Some("laws of 6.1, not verified on 6.9"));
        assert_eq!(remark(5, 10).as_deref(), Some("laws of 6.1, not verified on 5.10"));
        assert_eq!(remark(7, 2).as_deref(), Some("laws of 6.18, not verified on 7.2"));
    }
}
