//! The kernel's throttling of writers, as functions: mm/page-writeback.c in our own words.
//!
//! The law: a task may dirty pages at `dirty_ratelimit × pos_ratio`. `pos_ratio` (2 at freerun, 1 at the
//! setpoint, 0 at the limit) pulls the dirty level to the setpoint; `dirty_ratelimit` follows the rate at
//! which the device cleans. Quantities are pages, jiffies and pages per second as in the kernel, in
//! floating point where the kernel uses fixed point.

/// Pages between checks of a task that has not been checked yet (`init_task`: 128 KiB).
pub const FIRST_CHECK: u64 = 32;

/// `writeback_set_ratelimit`: pages that a processor may dirty before a task on it is checked, whatever its
/// quota.
pub fn check_interval(thresh: f64, cpus: u32) -> u64 {
    ((thresh / (f64::from(cpus.max(1)) * 32.0)) as u64).max(16)
}

/// A domain's limits and level, in pages: `struct dirty_throttle_control`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Domain {
    /// Dirty pages, those under writeback included.
    pub dirty: f64,
    /// Background threshold (`bg_thresh`).
    pub background: f64,
    /// Hard threshold (`thresh`).
    pub thresh: f64,
    /// `hard_dirty_limit`: follows `thresh` up at once and down slowly.
    pub limit: f64,
}

impl Domain {
    /// `dirty_freerun_ceiling`: no throttling up to here.
    pub fn freerun(&self) -> f64 {
        ((self.thresh + self.background) / 2.0).floor()
    }

    /// The level the control aims at.
    pub fn setpoint(&self) -> f64 {
        (self.freerun() + self.limit) / 2.0
    }

    /// `pos_ratio_polynom` about the global setpoint; 0 at the limit.
    pub fn pos_ratio(&self) -> f64 {
        if self.dirty >= self.limit { 0.0 } else { polynom(self.setpoint(), self.dirty, self.limit) }
    }
}

/// A device's place in a domain, in pages (`wb_dirty`, `wb_thresh`, `wb_bg_thresh`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Its dirty pages, those under writeback included.
    pub dirty: f64,
    /// Its share of the hard threshold.
    pub thresh: f64,
    /// Its share of the background threshold.
    pub background: f64,
    /// `avg_write_bandwidth`, in pages per second.
    pub bandwidth: f64,
    /// The device must keep to its own share whatever the others do (BDI_CAP_STRICTLIMIT).
    pub strict: bool,
}

/// `pos_ratio_polynom`: 1 + ((setpoint − dirty)/(limit − setpoint))³ between 0 and 2.
pub fn polynom(setpoint: f64, dirty: f64, limit: f64) -> f64 {
    let x = (setpoint - dirty) / (limit - setpoint).max(1.0);
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
        if line.dirty >= line.thresh || setpoint <= 0.0 || setpoint >= line.thresh {
            return 0.0;
        }
        return global.min(polynom(setpoint, line.dirty, line.thresh));
    }
    let thresh = line.thresh.min(domain.thresh);
    let share = thresh / domain.thresh.max(1.0);
    let setpoint = domain.setpoint() * share;
    let span = (domain.thresh - thresh + 8.0 * line.bandwidth) * share;
    let intercept = setpoint + span;
    let mut ratio = if line.dirty < intercept - span / 4.0 {
        global * (intercept - line.dirty) / span.max(1.0)
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
        let first = line.dirty < 8.0;
        return if first { (2.0 * domain.pos_ratio()).min(2.0) } else { position_ratio(domain, line) };
    }
    let granted = (domain.limit - domain.dirty).max(0.0) / 8.0;
    position_ratio(domain, &Line { thresh: line.thresh.max(granted), ..*line })
}

/// `dirty_poll_interval`: pages until the next check in free run, 2^(⌊log2(thresh − dirty)⌋ / 2).
pub fn poll_interval(dirty: f64, thresh: f64) -> u64 {
    let room = (thresh - dirty) as u64;
    if room > 0 { 1 << (room.ilog2() >> 1) } else { 1 }
}

/// `wb_max_pause`, in jiffies: long enough not to let the device run dry, 200 ms at most.
pub fn max_pause(line_dirty: f64, bandwidth: f64, hz: f64) -> f64 {
    let unit = ((1.0 + (hz / 8.0).floor()) as u64).next_power_of_two() as f64;
    let t = (line_dirty / (1.0 + (bandwidth / unit).floor())).floor() + 1.0;
    t.min((hz / 5.0).floor().max(1.0))
}

/// What `wb_min_pause` decides: the shortest pause worth taking (jiffies) and the pages to the next check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Pauses shorter than this are skipped and carried over, in jiffies.
    pub min_pause: f64,
    /// `nr_dirtied_pause` after the pause.
    pub pages: u64,
}

/// `wb_min_pause`: aims at pauses of 10 ms, longer with many writers, and at half the longest pause.
pub fn min_pause(bandwidth: f64, max_pause: f64, task_rate: f64, base_rate: f64, hz: f64) -> Pacing {
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
    let min_pause = if pages >= POLL { 1.0 + (t / 2.0).floor() } else { t };
    Pacing { min_pause, pages: pages as u64 }
}

/// `write_bandwidth` and `avg_write_bandwidth` of a device, in pages per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// The estimate over about three seconds.
    pub write: f64,
    /// The estimate, smoothed once more.
    pub average: f64,
}

impl Bandwidth {
    /// `wb_update_write_bandwidth`: `written` pages in `elapsed` seconds.
    pub fn update(&mut self, written: f64, elapsed: f64, hz: f64) {
        let period = ((3.0 * hz) as u64).next_power_of_two() as f64 / hz;
        if elapsed > period {
            (self.write, self.average) = (written / elapsed, (written / elapsed).max(1.0));
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
        self.average = self.average.max(1.0);
        self.write = new;
    }
}

/// `dirty_ratelimit` of a device and the last balanced rate, in pages per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateLimit {
    /// The base rate of every task that dirties pages of the device.
    pub base: f64,
    /// `balanced_dirty_ratelimit` as of the last update.
    pub balanced: f64,
}

impl RateLimit {
    /// `wb_update_dirty_ratelimit`: walks one eighth of the way to the balanced rate, less when near,
    /// and only when position and rate agree on the direction.
    pub fn update(&mut self, domain: &Domain, line: &Line, ratio: f64, dirtied_rate: f64) {
        let task_rate = self.base * ratio + 1.0;
        let balanced = (task_rate * line.bandwidth / dirtied_rate.max(1.0)).min(line.bandwidth);
        let (dirty, setpoint) = match line.strict {
            false => (domain.dirty, domain.setpoint()),
            true => (line.dirty, (line.thresh + line.background) / 2.0),
        };
        let step = if dirty < setpoint {
            self.balanced.min(balanced).min(task_rate) - self.base
        } else {
            self.base - self.balanced.max(balanced).max(task_rate)
        }
        .max(0.0)
        .floor();
        let shift = (self.base / (2.0 * step + 1.0)).floor();
        let step = if shift < 64.0 { ((step / shift.exp2()).floor() / 8.0).ceil() } else { 0.0 };
        if self.base < balanced {
            self.base += step;
        } else {
            self.base = (self.base - step).max(1.0);
        }
        self.balanced = balanced;
    }
}

#[cfg(test)]
mod tests {
    mod traced;

    use super::*;

    fn domain(dirty: f64) -> Domain {
        Domain { dirty, background: 131_072.0, thresh: 262_144.0, limit: 262_144.0 }
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
        let domain = Domain { dirty: 98_309.0, background: 65_536.0, thresh: 131_072.0, limit: 131_072.0 };
        let line = Line {
            dirty: 98_304.0,
            thresh: 131_072.0 * 114_673.0 / 114_688.0,
            background: 65_536.0,
            bandwidth: 113_265.0 / 4.0,
            strict: false,
        };
        let ratio = position_ratio(&domain, &line);
        assert!((ratio - 273_724.0 / 127_640.0).abs() < 0.001, "{ratio}");
    }

    /// Nothing dirty is no reason to let a strict device's writers go on twice as fast as all others.
    #[test]
    fn a_strict_device_goes_no_faster_than_the_machine() {
        let domain = Domain { dirty: 229_376.0, ..domain(0.0) };
        let mut line = Line { dirty: 0.0, thresh: 1000.0, background: 500.0, bandwidth: 1e4, strict: true };
        assert_eq!(position_ratio(&domain, &line), 1.0);
        line.dirty = 1000.0;
        assert_eq!(position_ratio(&domain, &line), 0.0);
    }

    /// Before 6.14. The domain is at its setpoint, so that its ratio is 1: a strict device's first pages go
    /// at twice that, further ones not at all where its share is nothing. Another device is granted an eighth
    /// of the 32 768 pages below the limit.
    #[test]
    fn the_first_pages_of_an_idle_device_before_6_14() {
        let domain = domain(229_376.0);
        let mut line = Line { dirty: 7.0, thresh: 0.0, background: 0.0, bandwidth: 1e4, strict: true };
        assert_eq!((ungranted_position_ratio(&domain, &line), position_ratio(&domain, &line)), (2.0, 0.0));
        line.dirty = 8.0;
        assert_eq!(ungranted_position_ratio(&domain, &line), 0.0);
        line.strict = false;
        let granted = Line { thresh: 4096.0, ..line };
        assert_eq!(ungranted_position_ratio(&domain, &line), position_ratio(&domain, &granted));
    }

    #[test]
    fn poll_interval_is_about_the_root_of_the_room() {
        assert_eq!(poll_interval(0.0, 262_144.0), 512);
        assert_eq!(poll_interval(196_608.0, 262_144.0), 256);
        assert_eq!(poll_interval(262_144.0, 262_144.0), 1);
        assert_eq!(poll_interval(300_000.0, 262_144.0), 1);
    }

    /// With two processors and limits of 128 and 256 MiB, tasks were traced at 1024 pages though their quota
    /// was 1065.
    #[test]
    fn processors_share_a_32nd_of_the_threshold() {
        assert_eq!(check_interval(65_536.0, 2), 1024);
        assert_eq!((check_interval(262_144.0, 1), check_interval(100.0, 4)), (8192, 16));
    }

    #[test]
    fn pacing_as_traced() {
        let pacing = min_pause(57_000.0, 50.0, 145_000.0, 57_039.0, 250.0);
        assert_eq!(pacing.pages, 445);
        assert_eq!(pacing.min_pause, 2.0);
    }

    #[test]
    fn bandwidth_converges() {
        let mut bandwidth = Bandwidth { write: 25_600.0, average: 25_600.0 };
        for _ in 0..400 {
            bandwidth.update(12_000.0, 0.2, 250.0);
        }
        assert!((bandwidth.average - 60_000.0).abs() < 600.0, "{bandwidth:?}");
    }

    #[test]
    fn the_base_rate_follows_the_device() {
        let mut limit = RateLimit { base: 25_600.0, balanced: 25_600.0 };
        for _ in 0..300 {
            let at = domain(210_000.0);
            let line = Line {
                dirty: at.dirty,
                thresh: at.thresh,
                background: at.background,
                bandwidth: 60_000.0,
                strict: false,
            };
            let ratio = position_ratio(&at, &line);
            limit.update(&at, &line, ratio, limit.base * ratio);
        }
        assert!((limit.base - 60_000.0).abs() < 6_000.0, "{limit:?}");
    }
}
