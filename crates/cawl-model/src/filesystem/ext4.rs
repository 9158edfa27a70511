//! ext2, ext3 and ext4 (fs/ext4 and fs/jbd2, 6.18).
//!
//! The journal is jbd2's: files of a transaction wait for its log, and extents are converted, so that they
//! count as written, only when it is there. Without one an fsync writes the inode alone, and who makes a file
//! passes over each inode of its group that was deleted in the latest minute (`recently_deleted`,
//! fs/ext4/ialloc.c), so that no name on the device comes to mean another file.

use super::{Filesystem, Traits};
use crate::release::Laws;
use crate::units::Seconds;

#[derive(Debug)]
pub(super) struct Ext4;

impl Filesystem for Ext4 {
    fn traits(&self, laws: Laws) -> Traits {
        Traits {
            waits_for_log: true,
            completes_extents: laws.converts_extents,
            has_single_pages: !laws.ext4_folios,
            walks_blocks: true,
            // `ext4_release_file`, `ext4_rename`.
            writes_cut_files: true,
            writes_renamed_files: true,
            folders_have_blocks: true,
            passes_deleted: true,
            ..Traits::of(laws)
        }
    }
}

/// Inodes of a group of blocks (mke2fs's default).
pub const GROUP: u64 = 8192;
/// Groups whose deletions are remembered.
const GROUPS: usize = 16;
/// Seconds for which a deleted inode is passed over at least (`RECENTCY_MIN`): six minutes as long as its
/// block of the table of inodes was not written since, which the flusher does within half a minute.
const RECENT: usize = 60;

/// A new file whose inode is at most so many below that of the one before goes down: those between are in
/// use.
const NEXT: u64 = 16;

/// Fewer inodes passed over are not told from a disturbance.
pub(crate) const PLAUSIBLE: f64 = 50.0;
/// Part of what a new file took longer than thought that the next ones are thought to.
const GAIN: f64 = 0.25;

/// The inodes of a device that were deleted lately, by groups: those met last come first.
///
/// A new file has the lowest inode that is free and not passed over. So which one it has tells which were:
/// all deleted ones below. Those deleted in the same second, or long ago, are given away again. Where a group
/// has no other left, all that are free were passed over, and the highest one is taken (`find_inode_bit`): so
/// new files go down from the group's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deleted(Vec<Group>);

#[derive(Clone, Debug)]
struct Group {
    number: u64,
    /// The latest second.
    now: u64,
    seconds: [Second; RECENT],
    before: Before,
    /// The inode of the latest new file, and whether that went down.
    latest: u64,
    goes_down: bool,
    /// How many more than thought of new files pass over, as the latest ones took; of those that go up, and
    /// down.
    unknown: [f64; 2],
}

/// Inodes deleted before the first call, all below this one. Where, and when in the latest minute, is not
/// known: evenly.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    passed: f64,
    inode: u64,
    /// When they were found.
    at: Seconds,
}

impl Before {
    /// How many of them lie below an inode of the group that begins with `first`, and are not free again.
    fn below(&self, inode: u64, first: u64, at: Seconds) -> f64 {
        let part = (inode - first) as f64 / (self.inode - first).max(1) as f64;
        self.passed * part.min(1.0) * (1.0 - (at - self.at) / Seconds(RECENT as f64)).max(0.0)
    }
}

/// Inodes deleted in a second, and the lowest and the highest of them: numbers have 32 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    inodes: u32,
    lowest: u32,
    highest: u32,
}

impl Group {
    fn advance(&mut self, now: u64) {
        for second in (self.now + 1..=now).take(RECENT) {
            self.seconds[second as usize % RECENT] = Second::default();
        }
        self.now = self.now.max(now);
    }
}

impl Deleted {
    fn group(&mut self, inode: u64, at: Seconds) -> Option<&mut Group> {
        let number = inode.checked_sub(1)? / GROUP;
        let group = self.0.iter_mut().find(|group| group.number == number)?;
        group.advance(at.0 as u64);
        Some(group)
    }

    /// The group of this inode, which is remembered from now on.
    fn met(&mut self, inode: u64, at: Seconds) -> Option<&mut Group> {
        if inode > 0 && self.group(inode, at).is_none() {
            self.0.truncate(GROUPS - 1);
            let group = Group {
                number: (inode - 1) / GROUP,
                now: at.0 as u64,
                seconds: [Second::default(); RECENT],
                before: Before { inode, ..Before::default() },
                latest: 0,
                goes_down: false,
                unknown: [0.0; 2],
            };
            self.0.insert(0, group);
        }
        self.group(inode, at)
    }

    /// A new file got this inode at a moment and passed over so many.
    pub(crate) fn found(&mut self, inode: u64, passed: u32, at: Seconds) {
        if let Some(group) = self.met(inode, at) {
            group.before = Before { passed: f64::from(passed).min(GROUP as f64), inode, at };
        }
    }

    /// This inode was deleted.
    pub(crate) fn add(&mut self, inode: u64, at: Seconds) {
        if let Some(group) = self.met(inode, at) {
            let inode = inode as u32;
            let Second { inodes, lowest, highest } = &mut group.seconds[group.now as usize % RECENT];
            *lowest = if *inodes == 0 { inode } else { inode.min(*lowest) };
            *highest = if *inodes == 0 { inode } else { inode.max(*highest) };
            *inodes = (*inodes + 1).min(GROUP as u32);
        }
    }

    /// This inode is given to a new file; how many were passed over on the way.
    pub(crate) fn give(&mut self, inode: u64, at: Seconds) -> f64 {
        let Some(group) = self.met(inode, at) else { return 0.0 };
        let first = group.number * GROUP + 1;
        let before = group.before.below(inode, first, at);
        let offset = inode - first;
        let latest = std::mem::replace(&mut group.latest, inode);
        let goes_down = offset == GROUP - 1 || (inode < latest && latest - inode <= NEXT);
        group.goes_down = goes_down;
        let unknown = group.unknown[usize::from(goes_down)];
        let (mut passed, inode) = (0, inode as u32);
        for second in &mut group.seconds {
            if inode > second.highest {
                passed += second.inodes;
            } else if inode >= second.lowest {
                second.inodes = second.inodes.saturating_sub(1);
            }
        }
        if goes_down {
            // Who deleted those below is not all known, nor how many are in use: half of these.
            let known: u32 = group.seconds.iter().map(|second| second.inodes).sum();
            return ((f64::from(known) + before).max(offset as f64 / 2.0) + unknown).clamp(0.0, GROUP as f64);
        }
        (f64::from(passed) + before + unknown).clamp(0.0, GROUP as f64)
    }

    /// A new file that got this inode was thought to pass over so many, and took as long as if it had passed
    /// over `more`.
    pub(crate) fn correct(&mut self, inode: u64, passed: f64, more: f64, at: Seconds) {
        let Some(group) = self.group(inode, at) else { return };
        let unknown = &mut group.unknown[usize::from(group.goes_down)];
        // One may have taken long for another reason.
        let most = (passed / 2.0).max(PLAUSIBLE);
        let step = GAIN * more.clamp(-most, most);
        if passed + more >= PLAUSIBLE {
            *unknown += step;
        } else if *unknown > 0.0 {
            *unknown = (*unknown + step.min(0.0)).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On 6.18 files made took 14 µs, and a second after others were deleted 0.107 µs for each of these.
    #[test]
    fn a_new_file_passes_over_the_deleted_inodes_below() {
        let mut deleted = Deleted::default();
        let remove = |deleted: &mut Deleted, from: u64, to: u64, at: Seconds| {
            (from..to).for_each(|inode| deleted.add(inode, at));
        };
        remove(&mut deleted, 312, 812, Seconds(0.5));
        assert_eq!(deleted.give(312, Seconds(0.9)), 0.0, "it is given away again");
        assert_eq!(deleted.give(812, Seconds(1.6)), 499.0);
        assert_eq!(deleted.give(300, Seconds(1.6)), 0.0, "none of them lies before it");
        assert_eq!(deleted.give(GROUP + 12, Seconds(1.6)), 0.0, "another group");
        remove(&mut deleted, 1012, 2012, Seconds(1.9));
        assert_eq!(deleted.give(2112, Seconds(3.1)), 1499.0);
        assert_eq!(deleted.give(2113, Seconds(60.5)), 1000.0, "those of the first second are free again");
        assert_eq!(deleted.give(312, Seconds(4000.0)), 0.0);
    }

    /// 9000 files made, deleted, and made again: the first one had the last inode of the group after 1700 µs.
    #[test]
    fn a_group_with_nothing_else_left_is_given_away_from_its_end() {
        let mut deleted = Deleted::default();
        (1..=GROUP).for_each(|inode| deleted.add(inode, Seconds(0.5)));
        assert_eq!(deleted.give(GROUP, Seconds(2.0)), (GROUP - 1) as f64);
        assert_eq!(deleted.give(GROUP - 1, Seconds(2.0)), (GROUP - 2) as f64);
        // Others have deleted those.
        assert_eq!(
            [500, 499, 490, 400].map(|inode| deleted.give(GROUP + inode, Seconds(2.0))),
            [0.0, 249.0, 244.5, 0.0]
        );
    }

    #[test]
    fn what_was_deleted_before_is_free_again_by_and_by() {
        let mut deleted = Deleted::default();
        deleted.found(GROUP + 5001, 3000, Seconds(0.2));
        let mut give = |inode, at| deleted.give(GROUP + inode, Seconds(at));
        assert_eq!([give(5001, 0.2), give(2501, 0.2), give(5002, 30.2)], [3000.0, 1500.0, 1500.0]);
        assert_eq!([give(1, 0.2), give(5003, 60.2), give(5004, 700.0)], [0.0; 3]);
        deleted.found(7, u32::MAX, Seconds(70.0));
        assert_eq!(deleted.give(8, Seconds(70.0)), GROUP as f64, "no group has more");
        deleted.found(0, 7, Seconds(70.0));
        deleted.found(1, 7, Seconds(70.0));
        assert_eq!(deleted.give(1, Seconds(70.0)), 0.0);
    }

    #[test]
    fn a_file_that_lives_shortly_has_the_inode_of_the_one_before() {
        let mut deleted = Deleted::default();
        for at in 0..20_000 {
            let at = Seconds(f64::from(at) / 10_000.0);
            assert!(deleted.give(100, at) <= 1.0);
            deleted.add(100, at);
        }
    }
}
