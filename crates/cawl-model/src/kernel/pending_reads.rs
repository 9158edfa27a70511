//! What devices are asked to read, and when that comes.
//!
//! The law: reads and synchronous writes have a device one after another, and while it reads, it writes
//! nothing back. Three things no call tells, and a device is taken to go on as its latest reads did. *When
//! requests are complete*: one after another, a window at a time, or all that was asked for together, as
//! where a virtual machine's host looks at its queue once. *Whether they come from the device's own cache.*
//! *How much later or earlier than thought they come*: what it was asked for next is as much later.

use cawl_wire::Event;

use super::super::cache::REQUEST;
use super::super::writeback::{Device, Machine};
use super::Call;
use crate::Prediction;
use crate::cause::Cause;
use crate::constants::Speed;
use crate::lru::LruMap;
use crate::profile::HostProfile;
use crate::readahead::Readahead;
use crate::units::Seconds;
use crate::work::ReadWork;

/// Reads in a row that contradict how a device is taken to complete requests, and windows, before it is taken
/// to do otherwise.
const AGAINST: u32 = 3;
const WINDOWS_AGAINST: u32 = 2;
/// How much closer the other speed of a device must be to what was observed before it is believed.
const CLEARLY: f64 = 2.0;

/// The latest wait of the row of reads under way: which row, the pages of it that had come, and when.
pub(super) type LatestWait = (u64, Option<(u64, Seconds)>);

/// Pages of a file that the device is reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRead {
    pub(super) device: usize,
    pub(super) file: u32,
    pub(super) first: u64,
    pub(super) end: u64,
    /// When the device was asked.
    asked: Seconds,
    /// When its first byte comes, and how long a page takes.
    pub(super) begins: Seconds,
    pub(super) page: Seconds,
    /// Pages that the device was asked for before in a row without a rest; 0 for the first ones of a row.
    pub(super) before: u64,
    /// What the host takes to supply the memory of a page when it is first touched.
    pub(super) cold: Seconds,
    /// It has come, whatever the model thinks of the device.
    pub(super) came: bool,
    /// A reader has waited for other pages since it was asked for.
    pub(super) waited: bool,
}

/// How a device completes requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// One after another.
    InTurn,
    /// Those of a window together.
    ByWindow,
    /// All that it was asked for by then.
    Together,
}

/// That of a device (`st_dev`), and how many reads in a row have contradicted it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    device: u64,
    way: Way,
    requests: u32,
    windows: u32,
}

impl Completion {
    /// A read that was predicted to wait so long took so many more than without that; true if the way
    /// has changed.
    fn judge(&mut self, work: &ReadWork, waited: Seconds, more: Seconds) -> bool {
        let before = self.way;
        let count = |against: &mut u32, contradicts: bool, most: u32| {
            *against = if contradicts { *against + 1 } else { 0 };
            *against >= most
        };
        let none_came = more < waited / 4.0;
        if work.later > Seconds::ZERO {
            match self.way {
                Way::InTurn if waited <= work.later / 2.0 => {}
                Way::InTurn if count(&mut self.requests, none_came, AGAINST) => self.way = Way::ByWindow,
                Way::InTurn => {}
                _ if count(&mut self.requests, more > work.later / 2.0, AGAINST) => self.way = Way::InTurn,
                _ => {}
            }
        } else if work.again > Seconds::ZERO {
            let waits = waited > work.again / 4.0;
            match self.way {
                Way::ByWindow if waits && count(&mut self.windows, none_came, WINDOWS_AGAINST) => {
                    self.way = Way::Together;
                }
                Way::Together if count(&mut self.windows, more > work.again / 4.0, WINDOWS_AGAINST) => {
                    self.way = Way::ByWindow;
                }
                _ => {}
            }
        }
        if self.way != before {
            (self.requests, self.windows) = (0, 0);
        }
        self.way != before
    }
}

impl PendingRead {
    /// When this page is there: requests are complete as a whole.
    pub(super) fn ready(&self, page: u64) -> Seconds {
        let last = self.first + (page - self.first + 1).next_multiple_of(REQUEST);
        self.begins + (last.min(self.end) - self.first) as f64 * self.page
    }
}

/// A descriptor that is read from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    pub(super) file: u32,
    pub(super) window: Readahead,
}

/// All that is being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// By process and descriptor.
    pub(super) readers: LruMap<(u32, i32), Reader>,
    pub(super) pending: Vec<PendingRead>,
    /// Processes whose latest read of a file of unknown state came from the device.
    pub(super) uncached: LruMap<u32, ()>,
    /// Devices (`st_dev`) whose latest read came from their own cache.
    pub(super) from_cache: Vec<u64>,
    /// How devices complete requests.
    pub(super) completions: Vec<Completion>,
    /// The row of reads under way: its device, and how many pages that was asked for.
    pub(super) row: (usize, u64),
    /// Pages of the row that had come, and when, at the end of the latest wait.
    pub(super) latest: Option<(u64, Seconds)>,
    /// How many rows there were.
    pub(super) rows: u64,
    /// Pages of the row that the call under way needs.
    pub(super) reached: u64,
}

impl Reads {
    fn way(&self, device: u64) -> Way {
        self.completions.iter().find(|of| of.device == device).map_or(Way::InTurn, |of| of.way)
    }

    /// A device is met that completes the requests of a window together, or not, as far as is known.
    pub(super) fn meet(&mut self, device: u64, together: bool) {
        let way = if together { Way::ByWindow } else { Way::InTurn };
        self.completions.push(Completion { device, way, requests: 0, windows: 0 });
    }

    /// A descriptor leads to a file anew.
    pub(super) fn opened(&mut self, event: &Event) {
        self.readers.take(&(event.pid, event.fd));
    }

    /// The device begins to read these pages of the call's file, ahead of the reader or for it alone, after
    /// what it does for others.
    pub(super) fn ask(
        &mut self,
        machine: &mut Machine,
        call: &mut Call,
        (first, end): (u64, u64),
        ahead: bool,
    ) -> PendingRead {
        let page = call.constants.page;
        let device = machine.device(call);
        let speed = device.timing.read_speed(self.is_from_cache(device), ahead);
        let writes = machine.writes_ahead(call.device);
        let device = machine.device_mut(call);
        let behind = device.timing.reads_wait;
        let head = std::mem::replace(&mut device.head, (call.file, end.saturating_mul(page)));
        let goes_on = head == (call.file, first.saturating_mul(page)) && writes == Seconds::ZERO;
        let (latency, seek) = if goes_on {
            (speed.latency.min(device.timing.latency), Seconds::ZERO)
        } else {
            (speed.latency, speed.seek)
        };
        let page_time = page as f64 * speed.byte;
        let rested = device.occupied < call.at + latency;
        // The arm comes back to what is written, too.
        let writes = if writes > Seconds::ZERO { writes + seek } else { Seconds::ZERO };
        let begins = (call.at + latency).max(device.occupied.max(call.at) + writes) + seek;
        let transfer = (end - first) as f64 * page_time;
        device.occupied = begins + transfer;
        // What is served at the same time takes as long again, and no longer than one after the other.
        let others = (begins - seek - writes - call.at - latency).max(Seconds::ZERO);
        let apart = if goes_on { Seconds::ZERO } else { others * (1.0 - behind) };
        let begins = begins - (apart - transfer).max(Seconds::ZERO);
        let done = begins + transfer;
        let at = call.device;
        machine.begin_read(at, begins - seek, done, (end - first).div_ceil(REQUEST));
        let is_own = others > Seconds::ZERO && behind < 1.0 && !goes_on;
        if rested || self.row.0 != at || !ahead || is_own {
            (self.row, self.latest) = ((at, 0), None);
            self.rows += 1;
        }
        let before = self.row.1;
        self.row.1 += end - first;
        PendingRead {
            device: at,
            file: call.file,
            first,
            end,
            asked: call.at,
            begins,
            page: page_time,
            before,
            cold: Seconds::ZERO,
            came: false,
            waited: false,
        }
    }

    /// How a device reads ahead, as its latest read did.
    pub(super) fn speed(&self, device: &Device) -> Speed {
        device.timing.read_speed(self.is_from_cache(device), true)
    }

    /// The device's latest read came from its own cache.
    pub(super) fn is_from_cache(&self, device: &Device) -> bool {
        self.from_cache.contains(&device.id)
    }

    /// Waits until this page has come; the page behind those that have come with it.
    pub(super) fn wait_for_page(
        &mut self,
        machine: &mut Machine,
        call: &mut Call,
        coming: PendingRead,
        page: u64,
    ) -> u64 {
        let request = (coming.first + (page - coming.first + 1).next_multiple_of(REQUEST)).min(coming.end);
        let way = self.way(machine.device(call).id);
        let all = coming.before + coming.end - coming.first;
        let (until, ready, pages) = match way {
            Way::InTurn => (request, coming.ready(page), all - (coming.end - request)),
            Way::ByWindow => (coming.end, coming.ready(coming.end - 1), all),
            Way::Together => (coming.end, machine.device(call).occupied, self.row.1),
        };
        let ready = if coming.came && way != Way::InTurn { Seconds::ZERO } else { ready };
        self.note_speed(call, &coming, pages);
        if page >= coming.first + REQUEST {
            call.work.read.later = (request - page) as f64 * coming.page;
        } else if coming.waited && page == coming.first {
            call.work.read.again = (coming.end - coming.first) as f64 * coming.page;
        }
        let waits = ready > call.at;
        call.work.read.there = (call.at - ready).max(Seconds::ZERO);
        // If the call was observed not to wait, this window had come before; later ones may not have.
        let together = way == Way::Together && waits && call.until - call.at >= (ready - call.at) / 2.0;
        for of in self.pending.iter_mut().filter(|of| of.device == call.device) {
            let is_this = of.first == coming.first && of.file == coming.file;
            of.came |= together || is_this && way != Way::InTurn;
            of.waited |= waits;
        }
        if waits {
            machine.wait_for_read(call, ready);
            self.latest = Some((pages, call.at));
        }
        until
    }

    /// Notes in the call's work how fast the device reads, by a wait for `coming` after which `pages` of the
    /// row have come: the bytes since the previous wait, or since a first window was asked for, and the
    /// seconds that have passed. Not if no further pages come, or if that was not known of an earlier wait of
    /// the call.
    fn note_speed(&mut self, call: &mut Call, coming: &PendingRead, pages: u64) {
        self.reached = pages;
        let read = &mut call.work.read;
        let is_first = !read.told && read.ahead == 0.0;
        match self.latest {
            Some((latest, when)) if latest < pages => {
                read.told |= is_first;
                read.since += (call.at - when).max(Seconds::ZERO);
                read.ahead += ((pages - latest) * call.constants.page) as f64;
            }
            None if coming.before == 0 && is_first => {
                read.told = true;
                read.since += (call.at - coming.asked).max(Seconds::ZERO);
                read.latencies += 1.0;
                read.ahead += (pages * call.constants.page) as f64;
            }
            _ => read.told = false,
        }
    }

    /// The latest wait of the row under way.
    pub(super) fn latest_wait(&self) -> LatestWait {
        (self.rows, self.latest)
    }

    /// What a read that `took` so long says of those to come, where `before` was the latest wait.
    pub(super) fn judge(
        &mut self,
        machine: &mut Machine,
        (pid, dev): (u32, u64),
        prediction: &Prediction,
        (took, end): (Seconds, Seconds),
        (before, is_cold): (LatestWait, bool),
    ) {
        let (work, cost) = (&prediction.work, Seconds::from(prediction.cost));
        if !prediction.has_met(took) && before.0 == self.rows {
            self.latest = before.1;
        } else if prediction.has_waited(took) {
            self.latest = Some((self.reached, end));
        }
        let waited = Seconds::from(prediction.parts[Cause::Read]);
        if work.source > Seconds::ZERO && took > cost + work.source / 2.0 && !is_cold {
            self.uncached.put(pid, ());
        } else if waited > Seconds::ZERO && took < cost - waited / 2.0 && work.other_speed >= Seconds::ZERO {
            self.uncached.take(&pid);
        }
        let completion = self.completions.iter_mut().find(|of| of.device == dev);
        if completion.is_some_and(|of| of.judge(&work.read, waited, took - (cost - waited))) {
            // What was asked for has come.
            let device = machine.devices.iter().position(|device| device.id == dev);
            self.pending.iter_mut().filter(|of| Some(of.device) == device).for_each(|of| of.came = true);
            device.into_iter().for_each(|at| machine.devices[at].occupied = machine.now);
        }
        let off = |cost: Seconds| (took / cost.max(Seconds(1e-9))).ln().abs();
        if work.other_speed != Seconds::ZERO && off(cost + work.other_speed) * CLEARLY < off(cost) {
            let devices = &mut self.from_cache;
            if devices.contains(&dev) {
                devices.retain(|of| *of != dev);
            } else {
                devices.push(dev);
            }
        }
    }

    /// What devices are reading comes at the rates of this profile from now on.
    pub(super) fn hasten(&mut self, machine: &mut Machine, profile: &HostProfile) {
        let now = machine.now;
        for (at, device) in machine.devices.iter_mut().enumerate() {
            let after = profile.device_of(device.profiled);
            let part = device.timing.read_rate / after.sequential_read.unwrap_or(after.read).value;
            if part == 1.0 || self.from_cache.contains(&device.id) {
                continue;
            }
            // Only what is still to be transferred takes more or less time, what else delays the device does
            // not.
            let mut transfers = Seconds::ZERO;
            let stretch = |left: Seconds, transfers: Seconds| left + left.min(transfers) * (part - 1.0);
            for coming in self.pending.iter_mut().filter(|of| of.device == at) {
                // What of it has come, has come.
                let left = coming.ready(coming.end - 1) - now;
                if left > Seconds::ZERO {
                    let pages = (coming.end - coming.first) as f64;
                    transfers += pages * coming.page;
                    coming.page = coming.page * part;
                    coming.begins = now + stretch(left, transfers) - pages * coming.page;
                }
            }
            if device.occupied > now {
                device.occupied = now + stretch(device.occupied - now, transfers);
            }
        }
    }

    /// The device came `late` after its time, or before if negative: so will what it is reading now.
    pub(super) fn shift(&mut self, machine: &mut Machine, device: usize, late: Seconds) {
        let of = &mut machine.devices[device];
        if self.way(of.id) == Way::Together {
            let time = |coming: &PendingRead| (coming.end - coming.first) as f64 * coming.page;
            let left = self.pending.iter().filter(|of| of.device == device && !of.came).map(time);
            of.occupied = machine.now + left.sum::<Seconds>();
        } else {
            of.occupied += late;
            self.pending.iter_mut().for_each(|coming| coming.begins += late);
        }
    }
}

impl Machine {
    pub(super) fn wait_for_read(&mut self, call: &mut Call, ready: Seconds) {
        if ready > call.at {
            let wake = self.device(call).wake(call, Cause::Read);
            call.spent[Cause::Read] += ready - call.at;
            self.wait_until(call, ready + wake);
        }
    }
}
