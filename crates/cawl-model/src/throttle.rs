//! The kernel's throttling of writers, as functions: mm/page-writeback.c in our own words.
//!
//! The law: a task may dirty pages at `dirty_ratelimit × pos_ratio`. `pos_ratio` (2 at freerun, 1 at the
//! setpoint, 0 at the limit) pulls the dirty level to the setpoint; `dirty_ratelimit` follows the rate at
//! which the device cleans. Quantities are those of the kernel, in floating point where it uses fixed point.

use crate::units::{Hz, Jiffies, PageRate, Pages, Seconds};

/// Pages between checks of a task that has not been checked yet (`init_task`: 128 KiB).
pub const FIRST_CHECK: u64 = 32;

/// `writeback_set_ratelimit`: pages that a processor may dirty before a task on it is checked, whatever its
/// quota.
pub fn check_interval(thresh: Pages, cpus: u32) -> u64 {
    (thresh / (f64::from(cpus.max(1)) * 32.0)).whole().max(16)
}

/// A domain's limits and level: `struct dirty_throttle_control`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Domain {
    /// Dirty pages, those under writeback included.
    pub dirty: Pages,
    /// Background threshold (`bg_thresh`).
    pub background: Pages,
    /// Hard threshold (`thresh`).
    pub thresh: Pages,
    /// `hard_dirty_limit`: follows `thresh` up at once and down slowly.
    pub limit: Pages,
}

impl Domain {
    /// `dirty_freerun_ceiling`: no throttling up to here.
    pub fn freerun(&self) -> Pages {
        ((self.thresh + self.background) / 2.0).floor()
    }

    /// The level the control aims at.
    pub fn setpoint(&self) -> Pages {
        (self.freerun() + self.limit) / 2.0
    }

    /// `pos_ratio_polynom` about the global setpoint; 0 at the limit.
    pub fn pos_ratio(&self) -> f64 {
        if self.dirty >= self.limit { 0.0 } else { polynom(self.setpoint(), self.dirty, self.limit) }
    }
}

/// A device's place in a domain (`wb_dirty`, `wb_thresh`, `wb_bg_thresh`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Its dirty pages, those under writeback included.
    pub dirty: Pages,
    /// Its share of the hard threshold.
    pub thresh: Pages,
    /// Its share of the background threshold.
    pub background: Pages,
    /// `avg_write_bandwidth`.
    pub bandwidth: PageRate,
    /// The device must keep to its own share whatever the others do (BDI_CAP_STRICTLIMIT).
    pub strict: bool,
}

/// `pos_ratio_polynom`: 1 + ((setpoint − dirty)/(limit − setpoint))³ between 0 and 2.
pub fn polynom(setpoint: Pages, dirty: Pages, limit: Pages) -> f64 {
    let x = (setpoint - dirty) / (limit - setpoint).max(Pages(1.0));
    (1.0 + x * x * x).clamp(0.0, 2.0)
}

/// `wb_position_ratio`: the domain's ratio scaled by the device's own line, which falls with slope
/// −1/(8 × bandwidth) for a single device, never below a quarter; with strictlimit the lower of the two
/// cubics counts.
pub fn position_ratio(domain: &Domain, line: &Line) -> f64 {
    let global = domain.pos_ratio();
    if global <= 0.0 {
        return 0.0;
    }
    if line.strict {
        let setpoint = (line.thresh + line.background) / 2.0;
        if line.dirty >= line.thresh || setpoint <= Pages::ZERO || setpoint >= line.thresh {
            return 0.0;
        }
        return global.min(polynom(setpoint, line.dirty, line.thresh));
    }
    let thresh = line.thresh.min(domain.thresh);
    let share = thresh / domain.thresh.max(Pages(1.0));
    let setpoint = domain.setpoint() * share;
    let span = (domain.thresh - thresh + line.bandwidth * Seconds(8.0)) * share;
    let intercept = setpoint + span;
    let mut ratio = if line.dirty < intercept - span / 4.0 {
        global * (intercept - line.dirty) / span.max(Pages(1.0))
    } else {
        global / 4.0
    };
    let reserve = thresh / 2.0;
    if line.dirty < reserve {
        ratio *= if line.dirty > reserve / 8.0 { reserve / line.dirty } else { 8.0 };
    }
    ratio
}

/// `wb_position_ratio` before 6.14, where a device's threshold is its share alone: an idle device is granted
/// an eighth of the room below the limit here, and a strict one goes up to twice as fast with its first
/// pages.
pub fn ungranted_position_ratio(domain: &Domain, line: &Line) -> f64 {
    if line.strict {
        let first = line.dirty < Pages(8.0);
        return if first { (2.0 * domain.pos_ratio()).min(2.0) } else { position_ratio(domain, line) };
    }
    let granted = (domain.limit - domain.dirty).max(Pages::ZERO) / 8.0;
    position_ratio(domain, &Line { thresh: line.thresh.max(granted), ..*line })
}

/// `dirty_poll_interval`: pages until the next check in free run, 2^(⌊log2(thresh − dirty)⌋ / 2).
pub fn poll_interval(dirty: Pages, thresh: Pages) -> u64 {
    let room = (thresh - dirty).whole();
    if room > 0 { 1 << (room.ilog2() >> 1) } else { 1 }
}

/// `wb_max_pause`: long enough not to let the device run dry, 200 ms at most.
pub fn max_pause(Pages(dirty): Pages, PageRate(bandwidth): PageRate, Hz(hz): Hz) -> Jiffies {
    let unit = ((1.0 + (hz / 8.0).floor()) as u64).next_power_of_two() as f64;
    let t = (dirty / (1.0 + (bandwidth / unit).floor())).floor() + 1.0;
    Jiffies(t.min((hz / 5.0).floor().max(1.0)))
}

/// What `wb_min_pause` decides: the shortest pause worth taking and the pages to the next check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Pauses shorter than this are skipped and carried over.
    pub min_pause: Jiffies,
    /// `nr_dirtied_pause` after the pause.
    pub pages: u64,
}

/// `wb_min_pause`: aims at pauses of 10 ms, longer with many writers, and at half the longest pause.
pub fn min_pause(
    PageRate(bandwidth): PageRate,
    Jiffies(max_pause): Jiffies,
    PageRate(task_rate): PageRate,
    PageRate(base_rate): PageRate,
    Hz(hz): Hz,
) -> Pacing {
    const POLL: f64 = 32.0;
    let log2 = |rate: f64| f64::from((rate as u64).max(1).ilog2());
    let round_hz = (hz as u64).next_power_of_two() as f64;
    let mut t = (hz / 100.0).floor().max(1.0);
    let (hi, lo) = (log2(bandwidth), log2(base_rate));
    if hi > lo {
        t += ((hi - lo) * (10.0 * hz) / 1024.0).floor();
    }
    t = t.min(1.0 + (max_pause / 2.0).floor());
    let mut pages = (base_rate * t / round_hz).floor();
    if pages < POLL {
        t = max_pause;
        pages = (base_rate * t / round_hz).floor();
        if pages > POLL {
            pages = POLL;
            t = (hz * POLL / base_rate).floor();
        }
    }
    if (hz * pages / (task_rate + 1.0)).floor() > max_pause {
        t = max_pause;
        pages = (task_rate * t / round_hz).floor();
    }
    let min_pause = Jiffies(if pages >= POLL { 1.0 + (t / 2.0).floor() } else { t });
    Pacing { min_pause, pages: pages as u64 }
}

/// `write_bandwidth` and `avg_write_bandwidth` of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// The estimate over about three seconds.
    pub write: PageRate,
    /// The estimate, smoothed once more.
    pub average: PageRate,
}

impl Bandwidth {
    /// `wb_update_write_bandwidth`: what was `written` in the time that has `elapsed`.
    pub fn update(&mut self, written: Pages, elapsed: Seconds, hz: Hz) {
        let period = Jiffies(((3.0 * hz.0) as u64).next_power_of_two() as f64) / hz;
        if elapsed > period {
            (self.write, self.average) = (written / elapsed, (written / elapsed).max(PageRate(1.0)));
            return;
        }
        let old = self.write;
        let new = (written + old * (period - elapsed)) / period;
        if self.average > old && old >= new {
            self.average -= (self.average - old) / 8.0;
        }
        if self.average < old && old <= new {
            self.average += (old - self.average) / 8.0;
        }
        self.average = self.average.max(PageRate(1.0));
        self.write = new;
    }
}

/// `dirty_ratelimit` of a device and the last balanced rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateLimit {
    /// The base rate of every task that dirties pages of the device.
    pub base: PageRate,
    /// `balanced_dirty_ratelimit` as of the last update.
    pub balanced: PageRate,
}

impl RateLimit {
    /// `wb_update_dirty_ratelimit`: walks one eighth of the way to the balanced rate, less when near,
    /// and only when position and rate agree on the direction.
    pub fn update(&mut self, domain: &Domain, line: &Line, ratio: f64, dirtied_rate: PageRate) {
        let task_rate = self.base * ratio + PageRate(1.0);
        let balanced = (task_rate.0 * line.bandwidth / dirtied_rate.0.max(1.0)).min(line.bandwidth);
        let (dirty, setpoint) = match line.strict {
            false => (domain.dirty, domain.setpoint()),
            true => (line.dirty, (line.thresh + line.background) / 2.0),
        };
        let step = if dirty < setpoint {
            self.balanced.min(balanced).min(task_rate) - self.base
        } else {
            self.base - self.balanced.max(balanced).max(task_rate)
        }
        .max(PageRate::ZERO)
        .floor();
        let shift = (self.base / (2.0 * step + PageRate(1.0))).floor();
        let step = if shift < 64.0 { ((step / shift.exp2()).floor().0 / 8.0).ceil() } else { 0.0 };
        let step = PageRate(step);
        if self.base < balanced {
            self.base += step;
        } else {
            self.base = (self.base - step).max(PageRate(1.0));
        }
        self.balanced = balanced;
    }
}

#[cfg(test)]
mod tests {
    mod traced;

    use super::*;

    fn domain(dirty: f64) -> Domain {
        let [dirty, background, limit] = [dirty, 131_072.0, 262_144.0].map(Pages);
        Domain { dirty, background, thresh: limit, limit }
    }

    fn line([dirty, thresh, background]: [f64; 3], bandwidth: f64, strict: bool) -> Line {
        let [dirty, thresh, background] = [dirty, thresh, background].map(Pages);
        Line { dirty, thresh, background, bandwidth: PageRate(bandwidth), strict }
    }

    #[test]
    fn the_cubic_is_two_at_freerun_one_at_setpoint_zero_at_the_limit() {
        assert_eq!(domain(196_608.0).pos_ratio(), 2.0);
        assert_eq!(domain(229_376.0).pos_ratio(), 1.0);
        assert_eq!(domain(262_144.0).pos_ratio(), 0.0);
        assert_eq!(domain(300_000.0).pos_ratio(), 0.0);
        assert!(domain(262_143.0).pos_ratio() > 0.0);
    }

    /// Against a recorded `balance_dirty_pages` tracepoint: rates 127 640 and 273 724 KB/s.
    #[test]
    fn position_ratio_as_traced() {
        let [dirty, background, limit] = [98_309.0, 65_536.0, 131_072.0].map(Pages);
        let domain = Domain { dirty, background, thresh: limit, limit };
        let thresh = 131_072.0 * 114_673.0 / 114_688.0;
        let line = line([98_304.0, thresh, 65_536.0], 113_265.0 / 4.0, false);
        let ratio = position_ratio(&domain, &line);
        assert!((ratio - 273_724.0 / 127_640.0).abs() < 0.001, "{ratio}");
    }

    /// Nothing dirty is no reason to let a strict device's writers go on twice as fast as all others.
    #[test]
    fn a_strict_device_goes_no_faster_than_the_machine() {
        let domain = Domain { dirty: Pages(229_376.0), ..domain(0.0) };
        let mut line = line([0.0, 1000.0, 500.0], 1e4, true);
        assert_eq!(position_ratio(&domain, &line), 1.0);
        line.dirty = Pages(1000.0);
        assert_eq!(position_ratio(&domain, &line), 0.0);
    }

    /// Before 6.14. The domain is at its setpoint, so that its ratio is 1: a strict device's first pages go
    /// at twice that, further ones not at all where its share is nothing. Another device is granted an eighth
    /// of the 32 768 pages below the limit.
    #[test]
    fn the_first_pages_of_an_idle_device_before_6_14() {
        let domain = domain(229_376.0);
        let mut line = line([7.0, 0.0, 0.0], 1e4, true);
        assert_eq!((ungranted_position_ratio(&domain, &line), position_ratio(&domain, &line)), (2.0, 0.0));
        line.dirty = Pages(8.0);
        assert_eq!(ungranted_position_ratio(&domain, &line), 0.0);
        line.strict = false;
        let granted = Line { thresh: Pages(4096.0), ..line };
        assert_eq!(ungranted_position_ratio(&domain, &line), position_ratio(&domain, &granted));
    }

    #[test]
    fn poll_interval_is_about_the_root_of_the_room() {
        assert_eq!(poll_interval(Pages(0.0), Pages(262_144.0)), 512);
        assert_eq!(poll_interval(Pages(196_608.0), Pages(262_144.0)), 256);
        assert_eq!(poll_interval(Pages(262_144.0), Pages(262_144.0)), 1);
        assert_eq!(poll_interval(Pages(300_000.0), Pages(262_144.0)), 1);
    }

    /// With two processors and limits of 128 and 256 MiB, tasks were traced at 1024 pages though their quota
    /// was 1065.
    #[test]
    fn processors_share_a_32nd_of_the_threshold() {
        assert_eq!(check_interval(Pages(65_536.0), 2), 1024);
        assert_eq!((check_interval(Pages(262_144.0), 1), check_interval(Pages(100.0), 4)), (8192, 16));
    }

    #[test]
    fn pacing_as_traced() {
        let pacing =
            min_pause(PageRate(57_000.0), Jiffies(50.0), PageRate(145_000.0), PageRate(57_039.0), Hz(250.0));
        assert_eq!(pacing.pages, 445);
        assert_eq!(pacing.min_pause, Jiffies(2.0));
    }

    #[test]
    fn bandwidth_converges() {
        let mut bandwidth = Bandwidth { write: PageRate(25_600.0), average: PageRate(25_600.0) };
        for _ in 0..400 {
            bandwidth.update(Pages(12_000.0), Seconds(0.2), Hz(250.0));
        }
        assert!((bandwidth.average.0 - 60_000.0).abs() < 600.0, "{bandwidth:?}");
    }

    #[test]
    fn the_base_rate_follows_the_device() {
        let mut limit = RateLimit { base: PageRate(25_600.0), balanced: PageRate(25_600.0) };
        for _ in 0..300 {
            let at = domain(210_000.0);
            let line = line([210_000.0, 262_144.0, 131_072.0], 60_000.0, false);
            let ratio = position_ratio(&at, &line);
            limit.update(&at, &line, ratio, limit.base * ratio);
        }
        assert!((limit.base.0 - 60_000.0).abs() < 6_000.0, "{limit:?}");
    }
}
