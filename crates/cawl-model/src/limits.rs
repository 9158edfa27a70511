//! The kernel's dirty limits: what profiles, samples and models all speak of.

use crate::table::constants;
use crate::units::Bytes;

constants! {
    /// The kernel's two dirty limits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    DirtyLimits {
        /// Above it the flusher works in the background (`nr_dirty_background_threshold`), in bytes.
        background: Bytes => setting;
        /// What dirty bytes are kept below by throttling writers (`nr_dirty_threshold`), in bytes.
        hard: Bytes => setting;
    }
}

impl DirtyLimits {
    /// Background and hard limit as parts of dirtyable memory where nobody has set them
    /// (`dirty_background_ratio`, `vm_dirty_ratio` in mm/page-writeback.c, 6.18).
    pub const DEFAULT_RATIOS: [f64; 2] = [0.1, 0.2];

    /// Midpoint of the two, where throttling begins: `dirty_freerun_ceiling` in mm/page-writeback.c, and
    /// what the CAWL paper calls the setpoint (§4.4).
    pub const fn freerun(self) -> Bytes {
        Bytes(self.background.0.midpoint(self.hard.0))
    }

    /// Those of the two domains that throttle first; `group` are the limits of a memory cgroup.
    pub fn tighter(self, group: Option<DirtyLimits>) -> DirtyLimits {
        group.filter(|group| group.freerun() < self.freerun()).unwrap_or(self)
    }

    /// The limits of so much dirtyable memory, with the ratios as fractions of 1: `domain_dirty_limits` in
    /// mm/page-writeback.c.
    pub fn of([background, hard]: [f64; 2], dirtyable: Bytes) -> DirtyLimits {
        let part = |part: f64| Bytes((dirtyable.as_f64() * part) as u64);
        let (background, hard) = (part(background), part(hard));
        // As the kernel does with settings that leave no room between the two.
        let background = if background >= hard { Bytes(hard.0 / 2) } else { background };
        DirtyLimits { background, hard }
    }
}

/// The parts of memory that the kernel allocates from: on x86-64 below 16 MiB (the kernel gives out 15 MiB of
/// it), everywhere below 4 GiB (of which 1 GiB is the devices'), and the rest. In bytes.
const LOW_ZONES: [u64; 2] = [15 << 20, 3 << 30];
/// Bytes of a page on x86-64; of AArch64 it may also be 16 or 64 KiB.
const SMALLEST: u64 = 4096;
/// Bytes that describe a page (`struct page`).
const DESCRIPTION: u64 = 64;
/// `lowmem_reserve_ratio` of the low zones: what allocations that can use higher ones leave of them.
const RESERVE_RATIO: u64 = 256;

/// Memory that can be made dirty on an idle machine with one node, with so much installed memory and pages of
/// this length, in bytes: what the kernel manages, less what it keeps free (`global_dirtyable_memory` in
/// mm/page-writeback.c; `calculate_totalreserve_pages`, `__setup_per_zone_wmarks` and
/// `calculate_min_free_kbytes` in mm/page_alloc.c; `set_recommended_min_free_kbytes` in mm/khugepaged.c;
/// 6.18). What programs use of it is not dirtyable, and not known here.
pub fn dirtyable(installed: Bytes, page: Bytes) -> Bytes {
    let page = page.0.next_power_of_two().clamp(SMALLEST, 1 << 20);
    let [lowest, below] = LOW_ZONES.map(|bytes| bytes / page);
    let lowest = if page == SMALLEST { lowest } else { 0 };
    let managed = installed.0 / page - installed.0 / page * DESCRIPTION / page;
    let low = lowest.min(managed);
    let middle = (below - below * DESCRIPTION / page).min(managed - low);
    let zones = [low, middle, managed - low - middle];
    // For huge pages, each described by one page of 8 B for each of its pages: two of them in each zone, and
    // nine for the types of pages that are kept apart.
    let populated = zones.iter().filter(|zone| **zone > 0).count() as u64;
    let for_huge = (page / 8 * populated * (2 + 9)).min(managed / 20);
    let least = ((managed * page / 1024 * 16).isqrt().clamp(128, 262_144) * 1024 / page).max(for_huge);
    let reserve = (0..zones.len()).map(|at| {
        let share = (u128::from(least) * u128::from(zones[at]) / u128::from(managed.max(1))) as u64;
        let high = share + 2 * (share / 4).max(zones[at] / 1000);
        let above = zones[at + 1..].iter().sum::<u64>() / RESERVE_RATIO;
        (above + high).min(zones[at])
    });
    Bytes((managed - reserve.sum::<u64>()) * page)
}

constants! {
    /// What a control group keeps of files in memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    GroupCache {
        /// What the group and all above it can still take, in bytes; None where none of them has a limit.
        room: Option<Bytes> => setting;
        /// Pages of files on its inactive list, in bytes.
        inactive: Bytes => setting;
        /// Pages of files on its active list, in bytes.
        active: Bytes => setting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_machine_follow_from_its_memory() {
        // 24 GiB of a virtual machine with 6.18: `MemFree` and the file pages less 5 772 765 dirtyable pages
        // are 40 812 pages; 24 684 092 KiB are managed.
        let dirtyable = |bytes| super::dirtyable(Bytes(bytes), Bytes(4096));
        let pages = dirtyable(24 << 30).0 / 4096;
        assert!((6_100_000..6_171_023).contains(&pages), "{pages}");
        // The first host of the CAWL paper, 384 GiB and 10 %: its model has the flusher begin between the
        // 37th and the 38th GiB.
        let limits = DirtyLimits::of([0.1, 0.4], dirtyable(384 << 30));
        assert!((37 << 30..=38 << 30).contains(&limits.background.0), "{limits:?}");
        assert_eq!(limits.hard.0 / limits.background.0, 4);
        let group = DirtyLimits::of([0.1, 0.4], Bytes(1 << 30));
        assert_eq!((limits.tighter(Some(group)), limits.tighter(None)), (group, limits));
        assert_eq!(group.tighter(Some(limits)), group);
        // No room between the two; hardly any memory.
        let limits = DirtyLimits::of([0.3, 0.2], Bytes(1000));
        assert_eq!((limits.background, limits.hard), (Bytes(100), Bytes(200)));
        for installed in [0, 1, 4096, 1 << 20, 1 << 24, 1 << 30, 1 << 44] {
            for page in [0, 4096, 16 << 10, 64 << 10, u64::MAX / 4] {
                assert!(super::dirtyable(Bytes(installed), Bytes(page)).0 <= installed);
            }
        }
    }

    /// From 1 GiB to 1 TiB, on pages of 4 to 64 KiB.
    #[test]
    fn what_is_kept_free_depends_on_memory_and_pages() {
        let kept =
            |installed: u64, page| 1.0 - dirtyable(Bytes(installed), Bytes(page)).as_f64() / installed as f64;
        let (small, large) = (1 << 30, 1 << 40);
        // 44 MiB for huge pages in two zones, half of that above it as the high watermark, 16 MiB of
        // descriptions.
        assert!((0.07..0.09).contains(&kept(small, 4096)), "{}", kept(small, 4096));
        // Descriptions of 16 GiB; the watermarks are thousandths.
        assert!((0.017..0.025).contains(&kept(large, 4096)), "{}", kept(large, 4096));
        // 22 huge pages of 512 MiB would be more than a twentieth, of which the high watermark is half as
        // much again.
        assert!((0.07..0.09).contains(&kept(64 << 30, 64 << 10)), "{}", kept(64 << 30, 64 << 10));
        assert!(kept(large, 64 << 10) < kept(large, 4096), "larger pages have fewer descriptions");
    }
}
