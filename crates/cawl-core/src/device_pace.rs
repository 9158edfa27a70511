//! How fast a block device works, by the kernel's count of its requests.
//!
//! A call that makes data durable shows one time for the transfer, the journal's commit and the flush. The
//! kernel counts the time of write requests and of flushes apart from each other (`stat` of a block device,
//! Documentation/block/stat.rst, 6.18), which divides that time. Two traits of the count matter
//! (block/blk-flush.c): a flush without data counts as a write request, too, which takes as long as the
//! flush; and the request of a commit's last block lasts through its flushes. So the time of writes less that
//! of flushes is the time in which data are transferred.

use std::collections::{BTreeMap, VecDeque};

use crate::cause::{ByCause, Cause};
use crate::model::Work;
use crate::profile::{DeviceConstants, HostProfile};
use crate::record::DeviceCounters;
use crate::statistics::median;
use crate::units::Nanos;

/// Windows whose median counts: one in which the device stood still changes nothing.
const WINDOWS: usize = 5;
/// Requests, and flushes, of a window at least.
const FEWEST: u64 = 4;
/// Flushes of a commit: one before its last block, and one after it unless the device writes that block
/// through its cache.
const OF_COMMIT: (f64, f64) = (1.0, 2.0);

/// What the constants of a device say of a transfer, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    latency: f64,
    byte: f64,
    /// Requests take longer by their place, so that their number does not tell their time.
    seeks: bool,
}

/// The constants of all devices of a profile, as calibrated: what is learned from calls can tell transfers
/// from flushes no better than these calls do.
#[derive(Clone, Debug, Default)]
pub struct Speeds {
    own: Speed,
    others: Vec<(u64, Speed)>,
}

/// How fast devices work.
#[derive(Debug, Default)]
pub struct DevicePaces {
    devices: BTreeMap<u64, Device>,
}

#[derive(Debug, Default)]
struct Device {
    /// Where the window begins.
    began: Option<DeviceCounters>,
    /// Calls of the window that commit, and that only flush.
    commits: f64,
    bare: f64,
    /// Of each window: time of a transfer over that of the constants; time of a flush, in ns; flushes of a
    /// commit.
    transfer: VecDeque<f64>,
    flush: VecDeque<f64>,
    of_commit: VecDeque<f64>,
}

impl Speeds {
    /// Those of a profile.
    pub fn of(profile: &HostProfile) -> Speeds {
        let speed = |device: &DeviceConstants| Speed {
            latency: device.latency.as_ref().map_or(0.0, |latency| latency.value.get()),
            byte: 1e9 / device.write.value.get(),
            seeks: device.seek.value > device.latency.as_ref().map_or_else(Default::default, |l| l.value),
        };
        let others = profile.others.iter().map(|other| (other.dev, speed(&other.constants)));
        Speeds { own: speed(&profile.device), others: others.collect() }
    }

    fn of_device(&self, dev: u64) -> Speed {
        self.others.iter().find(|(other, _)| *other == dev).map_or(self.own, |(_, speed)| *speed)
    }
}

impl DevicePaces {
    /// The counters of a device, in the order of time.
    pub fn take(&mut self, counters: &DeviceCounters, speeds: &Speeds) {
        let device = self.devices.entry(counters.dev).or_default();
        // Counters that are smaller than before are those of another device in its place.
        let Some(began) = device.began.filter(|began| began.writes <= counters.writes) else {
            device.restart(counters);
            return;
        };
        let writes = counters.writes - began.writes;
        if writes < FEWEST {
            return;
        }
        let time = |now: Nanos, before| now.saturating_sub(before).get();
        let writing = time(counters.writing, began.writing);
        let flushes = counters.flushes.saturating_sub(began.flushes);
        let flushing = time(counters.flushing, began.flushing);
        // Requests that overlap have no time of their own.
        if writing <= counters.time.since(began.time).get() {
            let speed = speeds.of_device(counters.dev);
            let bytes = counters.bytes.saturating_sub(began.bytes).as_f64();
            let constant = (writes as f64 - device.bare).max(0.0) * speed.latency + bytes * speed.byte;
            let transferring = writing - flushing;
            // A device whose flushes are not counted has them among its writes.
            if transferring > 0.0
                && bytes > 0.0
                && !speed.seeks
                && (flushes > 0 || device.commits + device.bare == 0.0)
            {
                device.transfer.push_back(transferring / constant);
            }
            if flushes >= FEWEST {
                device.flush.push_back(flushing / flushes as f64);
                if device.commits >= 1.0 {
                    let each = (flushes as f64 - device.bare) / device.commits;
                    device.of_commit.push_back(each.clamp(OF_COMMIT.0, OF_COMMIT.1));
                }
            }
            for values in [&mut device.transfer, &mut device.flush, &mut device.of_commit] {
                while values.len() > WINDOWS {
                    values.pop_front();
                }
            }
        }
        device.restart(counters);
    }

    /// Corrects the parts of a call that waits for the device, which had to do this, and counts it. Which of
    /// its parts the kernel's count determines.
    pub fn correct(
        &mut self,
        dev: u64,
        work: &Work,
        speeds: &Speeds,
        parts: &mut ByCause<f64>,
    ) -> &'static [Cause] {
        let Some(device) = self.devices.get_mut(&dev) else { return &[] };
        let waits = [Cause::Journal, Cause::Transfer, Cause::DeviceFlush];
        let wait = |parts: &ByCause<f64>| waits.map(|cause| parts[cause]).iter().sum::<f64>();
        let predicted = wait(parts);
        let flushes = parts[Cause::DeviceFlush] > 0.0;
        let commits = flushes && work.commits();
        device.commits += f64::from(u8::from(commits));
        device.bare += f64::from(u8::from(flushes && !commits));
        let count = if commits { middle(&device.of_commit) } else { Some(1.0) };
        let flush = middle(&device.flush).zip(count).map(|(flush, count)| flush * count).filter(|_| flushes);
        if let Some(flush) = flush {
            parts[Cause::DeviceFlush] = flush;
        }
        let pace = middle(&device.transfer).filter(|_| work.transferred > 0.0 && parts[Cause::Queue] == 0.0);
        if let Some(pace) = pace {
            let Speed { latency, byte, .. } = speeds.of_device(dev);
            let transfer = |requests: f64| requests * latency + work.transferred * byte;
            // A synchronous write has its request's latency in its commit.
            parts[Cause::Transfer] = pace * transfer(work.latencies.max(1.0));
        }
        if commits && flush.is_some() {
            parts[Cause::Journal] = (parts[Cause::Journal] + predicted - wait(parts)).max(0.0);
        }
        match (pace, flush) {
            (Some(_), Some(_)) => &[Cause::Transfer, Cause::DeviceFlush],
            (Some(_), None) => &[Cause::Transfer],
            (None, Some(_)) => &[Cause::DeviceFlush],
            (None, None) => &[],
        }
    }
}

impl Device {
    /// A window begins.
    fn restart(&mut self, counters: &DeviceCounters) {
        (self.began, self.commits, self.bare) = (Some(*counters), 0.0, 0.0);
    }
}

fn middle(values: &VecDeque<f64>) -> Option<f64> {
    median(&values.iter().copied().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Rate, Time};

    /// 100 µs and 2.5 ns for a byte.
    fn speeds() -> Speeds {
        let mut profile = HostProfile::uncalibrated();
        profile.device.write.value = Rate::mb_per_second(400.0);
        profile.device.latency = Some(crate::profile::Measured::assumed(Nanos::new(100e3)));
        Speeds::of(&profile)
    }

    /// The counters after so many calls of 64 KiB with a flush, `commit` or not, with these times of a data
    /// transfer and a flush, in ms.
    fn after(calls: u64, commit: bool, transfer: f64, flush: f64) -> DeviceCounters {
        let (writes, flushes, bytes) = if commit { (3, 2, 84) } else { (2, 1, 64) };
        let n = calls as f64;
        // A journal's two requests together take as long as one of 20 KiB would, and a latency.
        let data = if commit { transfer * 2.0 } else { transfer };
        let flushing = flush * f64::from(flushes);
        DeviceCounters {
            dev: 1,
            writes: calls * writes,
            bytes: Bytes(calls * bytes * 1024),
            writing: Nanos::millis((data + flushing) * n),
            flushes: calls * u64::from(flushes as u8),
            flushing: Nanos::millis(flushing * n),
            time: Time((n * 3e6) as u64),
            ..DeviceCounters::default()
        }
    }

    fn call(paces: &mut DevicePaces, work: &Work) -> ByCause<f64> {
        let mut parts = ByCause::default();
        (parts[Cause::Transfer], parts[Cause::DeviceFlush]) = (264e3, 500e3);
        paces.correct(1, work, &speeds(), &mut parts);
        parts
    }

    #[test]
    fn a_slow_transfer_is_told_from_a_slow_flush() {
        let work = Work { transferred: 65536.0, latencies: 1.0, flushes: 1.0, ..Work::default() };
        let mut paces = DevicePaces::default();
        assert_eq!(call(&mut paces, &work)[Cause::DeviceFlush], 500e3);
        for window in 0..10 {
            // The device stands still in one of them.
            let transfer = if window == 7 { 50.0 } else { 0.45 };
            let mut counters = after(100 * window, false, 0.45, 0.8);
            if window == 7 {
                counters.writing += Nanos::millis(transfer * 100.0);
            }
            paces.take(&counters, &speeds());
            (0..100).for_each(|_| _ = call(&mut paces, &work));
        }
        let parts = call(&mut paces, &work);
        assert!((parts[Cause::Transfer] / 450e3 - 1.0).abs() < 0.02, "{}", parts[Cause::Transfer]);
        assert!((parts[Cause::DeviceFlush] / 800e3 - 1.0).abs() < 0.02, "{}", parts[Cause::DeviceFlush]);
    }

    #[test]
    fn what_neither_transfer_nor_flush_takes_is_the_journal_s() {
        let (commit, flush) =
            (Work { transferred: 65536.0, fsyncs: 1.0, ..Work::default() }, Work::default());
        let mut paces = DevicePaces::default();
        let correct = |paces: &mut DevicePaces, work: &Work| {
            // The constants of calls that are all alike: the sum is right, and each of them wrong.
            let mut parts = ByCause::default();
            (parts[Cause::Transfer], parts[Cause::DeviceFlush]) = (1800e3, 200e3);
            let measured = paces.correct(1, work, &speeds(), &mut parts);
            (parts, measured)
        };
        // Half of the calls commit: three flushes for two calls.
        for n in 0..4 {
            let (one, other) = (after(50 * n, true, 0.264, 0.5), after(50 * n, false, 0.0, 0.5));
            paces.take(
                &DeviceCounters {
                    writes: one.writes + other.writes,
                    flushes: one.flushes + other.flushes,
                    writing: one.writing + other.writing,
                    flushing: one.flushing + other.flushing,
                    time: Time(one.time.0 + other.time.0),
                    ..one
                },
                &speeds(),
            );
            for _ in 0..50 {
                correct(&mut paces, &commit);
                correct(&mut paces, &flush);
            }
        }
        let (parts, measured) = correct(&mut paces, &commit);
        assert_eq!(measured, [Cause::Transfer, Cause::DeviceFlush]);
        assert!((parts[Cause::DeviceFlush] / 1e6 - 1.0).abs() < 0.02, "{}", parts[Cause::DeviceFlush]);
        assert!((parts.sum() - 2e6).abs() < 1.0 && parts[Cause::Journal] > 500e3, "{parts:?}");
        let (parts, measured) = correct(&mut paces, &flush);
        assert_eq!(measured, [Cause::DeviceFlush]);
        assert!((parts[Cause::DeviceFlush] / 500e3 - 1.0).abs() < 0.02, "{}", parts[Cause::DeviceFlush]);
        assert_eq!(parts[Cause::Journal], 0.0);
    }

    #[test]
    fn a_commit_has_two_flushes_and_the_journal_s_requests() {
        let work = Work { transferred: 65536.0, syncs: 1.0, ..Work::default() };
        let mut paces = DevicePaces::default();
        for window in 0..4 {
            paces.take(&after(100 * window, true, 0.528, 0.5), &speeds());
            (0..100).for_each(|_| _ = call(&mut paces, &work));
        }
        let parts = call(&mut paces, &work);
        // 84 KiB and three latencies in 1.056 ms: twice the constants.
        let wanted = 2.0 * 264e3;
        assert!((parts[Cause::Transfer] / wanted - 1.0).abs() < 0.05, "{}", parts[Cause::Transfer]);
        assert!((parts[Cause::DeviceFlush] / 1e6 - 1.0).abs() < 0.02, "{}", parts[Cause::DeviceFlush]);
    }

    #[test]
    fn counters_that_begin_anew_are_followed() {
        let work = Work { transferred: 65536.0, latencies: 1.0, flushes: 1.0, ..Work::default() };
        let mut paces = DevicePaces::default();
        paces.take(&DeviceCounters { writes: u64::MAX, ..after(1, false, 0.45, 0.8) }, &speeds());
        for window in 0..4 {
            paces.take(&after(100 * window, false, 0.45, 0.8), &speeds());
            (0..100).for_each(|_| _ = call(&mut paces, &work));
        }
        assert!((call(&mut paces, &work)[Cause::Transfer] / 450e3 - 1.0).abs() < 0.02);
    }

    #[test]
    fn requests_that_overlap_tell_nothing() {
        let work = Work { transferred: 65536.0, latencies: 1.0, flushes: 1.0, ..Work::default() };
        let mut paces = DevicePaces::default();
        for window in 0..4 {
            let counters = after(100 * window, false, 0.45, 0.8);
            paces.take(&DeviceCounters { time: Time(counters.time.0 / 3), ..counters }, &speeds());
            (0..100).for_each(|_| _ = call(&mut paces, &work));
        }
        assert_eq!(call(&mut paces, &work)[Cause::Transfer], 264e3);
    }
}
