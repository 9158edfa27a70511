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

/// The parts of memory that the kernel allocates from, on x86-64: below 16 MiB (the kernel gives out 3840
/// pages of it), below 4 GiB (of which 1 GiB is the devices'), and the rest.
const LOW_ZONES: [u64; 2] = [3840, 3 << 18];
const PAGE: u64 = 4096;
/// Bytes that describe a page (`struct page`).
const DESCRIPTION: u64 = 64;
/// `lowmem_reserve_ratio` of the low zones: what allocations that can use higher ones leave of them.
const RESERVE_RATIO: u64 = 256;

/// Memory that can be made dirty on an idle x86-64 machine with so much installed memory, in bytes: what the
/// kernel manages, less what it keeps free (`global_dirtyable_memory` in mm/page-writeback.c;
/// `calculate_totalreserve_pages`, `__setup_per_zone_wmarks` and `calculate_min_free_kbytes` in
/// mm/page_alloc.c; `set_recommended_min_free_kbytes` in mm/khugepaged.c; 6.18). What programs use of it is
/// not dirtyable, and not known here.
pub fn dirtyable(installed: Bytes) -> Bytes {
    let managed = installed.0 / PAGE - installed.0 / PAGE * DESCRIPTION / PAGE;
    let low = LOW_ZONES[0].min(managed);
    let middle = (LOW_ZONES[1] - LOW_ZONES[1] * DESCRIPTION / PAGE).min(managed - low);
    let zones = [low, middle, managed - low - middle];
    // For huge pages: two blocks of 512 pages in each zone, and nine for the types of pages that are kept
    // apart.
    let populated = zones.iter().filter(|zone| **zone > 0).count() as u64;
    let for_huge = (512 * populated * (2 + 9)).min(managed / 20);
    let least = ((managed * PAGE / 1024 * 16).isqrt().clamp(128, 262_144) * 1024 / PAGE).max(for_huge);
    let reserve = (0..zones.len()).map(|at| {
        let share = (u128::from(least) * u128::from(zones[at]) / u128::from(managed.max(1))) as u64;
        let high = share + 2 * (share / 4).max(zones[at] / 1000);
        let above = zones[at + 1..].iter().sum::<u64>() / RESERVE_RATIO;
        (above + high).min(zones[at])
    });
    Bytes((managed - reserve.sum::<u64>()) * PAGE)
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
        let pages = dirtyable(Bytes(24 << 30)).0 / PAGE;
        assert!((6_100_000..6_171_023).contains(&pages), "{pages}");
        // The first host of the CAWL paper, 384 GiB and 10 %: its model has the flusher begin between the
        // 37th and the 38th GiB.
        let limits = DirtyLimits::of([0.1, 0.4], dirtyable(Bytes(384 << 30)));
        assert!((37 << 30..=38 << 30).contains(&limits.background.0), "{limits:?}");
        assert_eq!(limits.hard.0 / limits.background.0, 4);
        let group = DirtyLimits::of([0.1, 0.4], Bytes(1 << 30));
        assert_eq!((limits.tighter(Some(group)), limits.tighter(None)), (group, limits));
        assert_eq!(group.tighter(Some(limits)), group);
        // No room between the two; hardly any memory.
        let limits = DirtyLimits::of([0.3, 0.2], Bytes(1000));
        assert_eq!((limits.background, limits.hard), (Bytes(100), Bytes(200)));
        for installed in [0, 1, 4096, 1 << 20, 1 << 24, 1 << 30, 1 << 44] {
            assert!(dirtyable(Bytes(installed)).0 <= installed);
        }
    }
}
