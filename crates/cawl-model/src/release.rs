//! What of the kernel's laws differs by its release.
//!
//! The law: **a release is data.** A law that another release lacks is a row of [`LAWS`];
//! docs/science/MODEL.md, "Releases", has what else differs from 4.18 on, and what does not.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

    /// The first one whose sources were compared.
    const COMPARED: Release = Release(4, 18);

    /// That its laws were not measured, for a report: they are those of its own sources, or of the nearest
    /// release whose sources were compared.
    pub fn remark(self) -> Option<String> {
        let compared = self.clamp(Self::COMPARED, Self::LATEST);
        (!Self::MEASURED.contains(&self))
            .then(|| format!("laws by the sources of {compared}, not verified on {self}"))
    }
}

/// What a report says of laws that are those of `profile`, or else of the latest release, of calls that were
/// made on `traced`.
pub fn remarks(profile: Option<Release>, traced: Option<Release>) -> impl Iterator<Item = String> {
    let used = profile.unwrap_or(Release::LATEST);
    let of_others = match traced {
        None => Some(format!("no release of Linux in the trace: laws of {used}; whatif --kernel has others")),
        Some(traced) => (traced != used).then(|| {
            format!("laws of {used}, as the profile has it, of calls on {traced}; whatif --kernel has others")
        }),
    };
    of_others.into_iter().chain(used.remark())
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
pub const LAWS: [Law; 14] = [
    Law {
        name: "ticks at multiples of their length",
        function: "tick_init_jiffy_update",
        // A fix of 6.4 that long-term releases got down to 5.4. Those that had ended by then (5.19) lack it.
        since: Release(5, 4),
        before: "ticks begin at boot",
        at: |laws| &mut laws.aligned_ticks,
    },
    Law {
        name: "written extents are converted",
        function: "ext4_end_io_rsv_work",
        // dioread_nolock by default: extents are allocated as unwritten.
        since: Release(5, 6),
        before: "pages count as written one by one, whatever the log",
        at: |laws| &mut laws.converts_extents,
    },
    Law {
        name: "estimates begin with writeback",
        function: "wb_bandwidth_estimate_start, do_writepages",
        since: Release(5, 15),
        before: "the first estimate after a second without one is skipped",
        at: |laws| &mut laws.idle_estimates,
    },
    Law {
        name: "check before the copy, xfs",
        function: "iomap_write_iter",
        since: Release(6, 0),
        before: "after it",
        at: |laws| &mut laws.xfs_checks_first,
    },
    Law {
        name: "large folios of xfs",
        function: "iomap_write_begin, fgf_set_order",
        since: Release(6, 6),
        before: "single pages are written",
        at: |laws| &mut laws.xfs_folios,
    },
    Law {
        name: "growth is not journalled",
        function: "ext4_da_do_write_end",
        since: Release(6, 6),
        before: "each page by which a file grows changes its inode",
        at: |laws| &mut laws.unlogged_growth,
    },
    Law {
        name: "counts of a group are late",
        function: "mem_cgroup_wb_stats",
        since: Release(6, 9),
        before: "they are exact",
        at: |laws| &mut laws.late_counts,
    },
    Law {
        name: "young inodes are left",
        function: "requeue_inode",
        since: Release(6, 10),
        before: "the periodic flusher goes on with an inode that has used up its chunk",
        at: |laws| &mut laws.leaves_young,
    },
    Law {
        name: "check before the copy",
        function: "generic_perform_write",
        since: Release(6, 11),
        before: "after it",
        at: |laws| &mut laws.checks_first,
    },
    Law {
        name: "fine time stamps",
        function: "inode_set_ctime_current",
        since: Release(6, 13),
        before: "a stamp changes with the tick",
        at: |laws| &mut laws.fine_stamps,
    },
    Law {
        name: "idle devices are granted room",
        function: "__wb_calc_thresh",
        since: Release(6, 14),
        before: "only the position ratio has it",
        at: |laws| &mut laws.grants_room,
    },
    Law {
        name: "a page read five times stays marked",
        function: "lru_gen_inc_refs, lru_gen_refault",
        since: Release(6, 14),
        before: "until it moves or is reclaimed",
        at: |laws| &mut laws.keeps_workingset,
    },
    Law {
        name: "large folios of ext4",
        function: "ext4_set_inode_mapping_order",
        since: Release(6, 16),
        before: "single pages",
        at: |laws| &mut laws.ext4_folios,
    },
    Law {
        name: "windows end where a folio may",
        function: "page_cache_async_ra",
        since: Release(6, 17),
        before: "windows are not cut",
        at: |laws| &mut laws.cuts_windows,
    },
];

/// Which laws hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laws {
    /// Ticks, at which pauses end, lie at multiples of their length on CLOCK_MONOTONIC.
    pub aligned_ticks: bool,
    /// ext4 converts an extent when all of it is written and the log lets it; its pages count as written
    /// then.
    pub converts_extents: bool,
    /// The estimate of a device's bandwidth begins anew when the flusher begins after a rest, and is brought
    /// up to date after each turn of an inode. Before, it was after each pass of the flusher, and the first
    /// one was lost.
    pub idle_estimates: bool,
    /// A writer to xfs is checked before it copies.
    pub xfs_checks_first: bool,
    /// Writes to xfs allocate large folios.
    pub xfs_folios: bool,
    /// A file that grows changes its inode with its time stamps and when blocks are allocated, not with each
    /// page.
    pub unlogged_growth: bool,
    /// The dirty pages of a control group that writers go by are those of the latest time at which all
    /// processors' counts were added up, which the kernel does every two seconds.
    pub late_counts: bool,
    /// The flusher leaves an inode that is younger than it cares for, though the inode has used up its chunk.
    pub leaves_young: bool,
    /// A writer to other filesystems is checked before it copies.
    pub checks_first: bool,
    /// Time stamps that a program has read change with the next write.
    pub fine_stamps: bool,
    /// A device without completions has a part of the room below the limits for its threshold.
    pub grants_room: bool,
    /// ext4 has large folios.
    pub ext4_folios: bool,
    /// A window that is read ahead ends where a folio of its size may begin.
    pub cuts_windows: bool,
    /// There are large folios at all.
    pub large_folios: bool,
    /// The multi-generational LRU keeps the mark of a page that was read five times, and has its other laws
    /// of 6.14.
    pub keeps_workingset: bool,
    /// The multi-generational LRU is in use, of any release.
    pub generations: bool,
}

impl Default for Laws {
    /// Those of the latest release.
    fn default() -> Laws {
        Laws::of(Release::LATEST, true)
    }
}

impl Laws {
    /// Those of before all rows of [`LAWS`].
    const FIRST: Laws = Laws {
        aligned_ticks: false,
        converts_extents: false,
        idle_estimates: false,
        xfs_checks_first: false,
        xfs_folios: false,
        unlogged_growth: false,
        late_counts: false,
        leaves_young: false,
        checks_first: false,
        fine_stamps: false,
        grants_room: false,
        ext4_folios: false,
        cuts_windows: false,
        large_folios: false,
        keeps_workingset: false,
        generations: false,
    };

    /// Those of a release; `large_folios`: it has them at all (CONFIG_TRANSPARENT_HUGEPAGE).
    pub fn of(release: Release, large_folios: bool) -> Laws {
        let mut laws = Laws::FIRST;
        for law in LAWS {
            *(law.at)(&mut laws) = release >= law.since;
        }
        laws.large_folios = large_folios;
        laws.ext4_folios &= large_folios;
        laws.xfs_folios &= large_folios;
        laws
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
        assert!(old.xfs_checks_first && !old.checks_first && !old.leaves_young && !old.xfs_folios);
        assert!(middle.xfs_folios && middle.checks_first && !middle.ext4_folios && !middle.fine_stamps);
        let paper = [(4, 18), (5, 10)].map(|(a, b)| Laws::of(Release(a, b), true));
        assert_eq!(paper[0], Laws { large_folios: true, ..Laws::FIRST });
        assert_eq!(paper[1], Laws { aligned_ticks: true, converts_extents: true, ..paper[0] });
        assert!(
            LAWS.is_sorted_by_key(|law| law.since) && LAWS.iter().all(|law| law.since <= Release::LATEST)
        );
        assert!(latest.xfs_folios && latest.ext4_folios && latest.fine_stamps);
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
    fn laws_of_another_release_than_that_of_the_calls_are_said() {
        let said = |profile, traced| remarks(profile, traced).collect::<Vec<_>>();
        let [old, other, latest] = [Release(6, 1), Release(6, 9), Release::LATEST];
        assert!(said(Some(old), Some(old)).is_empty() && said(None, Some(latest)).is_empty());
        assert!(said(None, None)[0].starts_with("no release of Linux in the trace: laws of 6.18;"));
        assert!(
            said(Some(latest), Some(other))[0]
                .starts_with("laws of 6.18, as the profile has it, of calls on 6.9")
        );
        assert_eq!(said(Some(other), Some(other)), [other.remark().unwrap()]);
        assert_eq!(said(Some(other), None).len(), 2);
    }

    #[test]
    fn what_nobody_measured_is_said() {
        let remark = |a, b| Release(a, b).remark();
        assert_eq!([remark(6, 1), remark(6, 12), remark(6, 18)], [None, None, None]);
        assert_eq!(remark(6, 9).as_deref(), Some("laws by the sources of 6.9, not verified on 6.9"));
        assert_eq!(remark(2, 6).as_deref(), Some("laws by the sources of 4.18, not verified on 2.6"));
        assert_eq!(remark(7, 2).as_deref(), Some("laws by the sources of 6.18, not verified on 7.2"));
    }
}
