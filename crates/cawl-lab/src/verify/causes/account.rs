//! The kernel's own account of a run, from its tracepoints.
//!
//! `throttle`: from `writeback:balance_dirty_pages` with a pause to `sched:sched_wakeup` of the same task:
//! what comes after the wake-up is run delay. Inside calls that make data durable
//! (`ext4:ext4_sync_file_enter` to `_exit`): `commit` while `jbd2_start_commit` to `jbd2_end_commit` runs,
//! `flush` while only a flush of the device's cache is in flight (`block:block_rq_issue` to `_complete`), and
//! `data` while only data are. Time in which nothing is under way (a thread of the kernel has to wake up)
//! belongs to what comes next in the call, at its end to what was last; but from the caller's own wake-up on
//! it is run delay.

use std::collections::{BTreeMap, BTreeSet};

use cawl_host::tracefs::Instance;
use serde::{Deserialize, Serialize};

/// Events of pauses and of waking up.
const PAUSES: [&str; 1] = ["balance_dirty_pages"];
const WAKEUPS: [&str; 1] = ["sched/sched_wakeup"];
/// Events of one device.
const DEVICE: [&str; 6] = [
    "ext4/ext4_sync_file_enter",
    "ext4/ext4_sync_file_exit",
    "jbd2/jbd2_start_commit",
    "jbd2/jbd2_end_commit",
    "block/block_rq_issue",
    "block/block_rq_complete",
];

/// Seconds from which on a request is late on a device that takes a millisecond for any.
const LATE: f64 = 0.005;

/// Seconds of a program's calls as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Asleep in `balance_dirty_pages`.
    pub throttle: f64,
    /// The pauses as the kernel chose them, in whole ticks; a sleep ends up to a tick later.
    pub pauses: f64,
    /// Data in flight and no commit running, or about to be.
    pub data: f64,
    /// A commit running or about to, its flushes included.
    pub commit: f64,
    /// What of that was a flush.
    pub commit_flush: f64,
    /// A flush in flight and no commit running, or about to be.
    pub flush: f64,
    /// Inside calls that make data durable.
    pub sync: f64,
    /// Waiting for a processor.
    pub run_delay: f64,
    /// Times, in ns, at which the device stood still.
    pub stalls: Vec<(u64, u64)>,
    /// Times, in ns, of requests that took longer than 5 ms.
    #[serde(default)]
    pub late: Vec<(u64, u64)>,
}

/// The tracepoints that an account is taken from.
pub(super) struct Listening {
    instances: Vec<Instance>,
}

impl Listening {
    /// To what happens on a device, with its number in the kernel; None: pauses only.
    pub(super) fn begin(device: Option<u64>) -> anyhow::Result<Option<Listening>> {
        let of_device = device.map(|number| format!("dev == {number}"));
        let mut wanted = vec![(&PAUSES[..], "pause > 0"), (&WAKEUPS[..], "")];
        wanted.extend(of_device.as_deref().map(|filter| (&DEVICE[..], filter)));
        let begun: Result<Option<Vec<_>>, _> =
            wanted.into_iter().map(|(events, filter)| Instance::begin_if_possible(events, filter)).collect();
        Ok(begun?.map(|instances| Listening { instances }))
    }

    /// What was heard, in order of time.
    pub(super) fn end(&self) -> anyhow::Result<Vec<Happened>> {
        let mut heard = Vec::new();
        for instance in &self.instances {
            let text = instance.take()?;
            anyhow::ensure!(!text.contains("LOST"), "the kernel's trace has gaps");
            heard.extend(text.lines().filter_map(Happened::read));
        }
        heard.sort_by(|a, b| a.at.total_cmp(&b.at));
        Ok(heard)
    }
}

/// One event of the kernel's trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Happened {
    /// Task that was running.
    tid: u32,
    /// In seconds.
    at: f64,
    event: String,
    fields: String,
}

impl Happened {
    /// `comm-tid [cpu] flags seconds: event: fields`; the name of the task may have blanks in it.
    fn read(line: &str) -> Option<Happened> {
        let (task, rest) = line.split_once(" [")?;
        let (_, tid) = task.rsplit_once('-')?;
        let (_, rest) = rest.split_once("] ")?;
        let mut parts = rest.splitn(3, ": ");
        let at = parts.next()?.split_whitespace().last()?.parse().ok()?;
        let event = parts.next()?.trim().to_owned();
        Some(Happened { tid: tid.trim().parse().ok()?, at, event, fields: parts.next()?.to_owned() })
    }

    /// A number among the fields: `name=7`.
    fn number(&self, name: &str) -> Option<f64> {
        self.fields
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }

    /// Kind, first sector and sectors of a request.
    fn request(&self) -> Option<(&str, u64, u64)> {
        let kind = self.fields.split_whitespace().nth(1)?;
        let (_, place) = self.fields.split_once(") ")?;
        let mut words = place.split_whitespace();
        let first = words.next()?.parse().ok()?;
        Some((kind, first, words.nth(1)?.parse().ok()?))
    }
}

/// The account of these threads.
pub(super) fn account(heard: &[Happened], threads: &BTreeSet<u32>) -> Account {
    let mut account = Account::default();
    let mut asleep = BTreeMap::new();
    let (mut data, mut flushes, mut commits, mut inside) = (BTreeSet::new(), 0u32, 0u32, BTreeSet::new());
    let (mut before, mut gap, mut issued) = (0.0, 0.0, BTreeMap::new());
    let mut woken: BTreeSet<u32> = BTreeSet::new();
    // What was under way last: data, a commit, a flush.
    let mut last: Option<fn(&mut Account) -> &mut f64> = None;
    for happened in heard {
        let span = (happened.at - before) * inside.len() as f64;
        before = happened.at;
        account.sync += span;
        let now: Option<fn(&mut Account) -> &mut f64> = match (commits > 0, flushes > 0, data.is_empty()) {
            (true, flushing, _) => {
                account.commit_flush += if flushing { span } else { 0.0 };
                Some(|account| &mut account.commit)
            }
            (_, true, _) => Some(|account| &mut account.flush),
            (.., false) => Some(|account| &mut account.data),
            _ => None,
        };
        if let Some(of) = now {
            *of(&mut account) += span + std::mem::take(&mut gap);
            last = now;
        } else if woken.is_empty() {
            gap += span;
        }
        let tid = happened.tid;
        woken.remove(&tid);
        match happened.event.as_str() {
            "balance_dirty_pages" if threads.contains(&tid) => {
                account.pauses += happened.number("pause").unwrap_or(0.0) * 1e-3;
                asleep.insert(tid, happened.at);
            }
            "sched_wakeup" => {
                let pid = happened.number("pid").unwrap_or(0.0) as u32;
                account.throttle += asleep.remove(&pid).map_or(0.0, |since| happened.at - since);
                woken.extend(inside.get(&pid).copied());
            }
            "ext4_sync_file_enter" if threads.contains(&tid) => drop(inside.insert(tid)),
            "ext4_sync_file_exit" => {
                inside.remove(&tid);
                if let Some(of) = last.filter(|_| inside.is_empty()) {
                    *of(&mut account) += std::mem::take(&mut gap);
                }
            }
            "jbd2_start_commit" => commits += 1,
            "jbd2_end_commit" => commits = commits.saturating_sub(1),
            "block_rq_issue" => match happened.request() {
                Some((kind, _, 0)) if kind.starts_with('F') => {
                    flushes += 1;
                    issued.insert(u64::MAX, happened.at);
                }
                Some((_, first, 1..)) => {
                    data.insert(first);
                    issued.insert(first, happened.at);
                }
                _ => {}
            },
            "block_rq_complete" => match happened.request() {
                Some((kind, _, 0)) if kind.starts_with("FF") => {
                    flushes = flushes.saturating_sub(1);
                    account.completed(issued.remove(&u64::MAX), happened.at);
                }
                Some((_, first, sectors @ 1..)) => {
                    data.retain(|at| !(first..first + sectors).contains(at));
                    account.completed(issued.remove(&first), happened.at);
                }
                _ => {}
            },
            _ => {}
        }
    }
    account
}

impl Account {
    /// A request was completed.
    fn completed(&mut self, issued: Option<f64>, at: f64) {
        if let Some(issued) = issued.filter(|issued| at - issued > LATE) {
            self.late.push(((issued * 1e9) as u64, (at * 1e9) as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD: &str = "\
       opt cgu.0-9   [001] ..... 10.000000: balance_dirty_pages: bdi 7:0: paused=0 pause=8 period=8
              dd-7   [001] ..... 11.000000: balance_dirty_pages: bdi 7:0: paused=0 pause=8 period=8
          <idle>-0   [001] d.h.. 11.011000: sched_wakeup: comm=dd pid=7 prio=120 target_cpu=000
              dd-7   [000] ..... 12.000000: ext4_sync_file_enter: dev 7,0 ino 12 parent 2 datasync 0
              dd-7   [000] ..... 12.001000: block_rq_issue: 7,0 W 4096 () 800 + 8 none,0,0 [dd]
          <idle>-0   [000] ..s.. 12.003000: block_rq_complete: 7,0 W () 800 + 8 none,0,0 [0]
    jbd2/loop0-8-5   [000] ..... 12.004000: jbd2_start_commit: dev 7,0 transaction 3 sync 0
 kworker/0:1H-4      [000] ..... 12.005000: block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [kworker/0:1H]
          <idle>-0   [000] ..s.. 12.006000: block_rq_complete: 7,0 FF () 18446744073709551615 + 0 none,0,0 [0]
    jbd2/loop0-8-5   [000] ..... 12.008000: jbd2_end_commit: dev 7,0 transaction 3 sync 0 head 1
              dd-7   [000] ..... 12.009000: ext4_sync_file_exit: dev 7,0 ino 12 ret 0
 kworker/0:1H-4      [000] ..... 12.010000: block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [kworker/0:1H]";

    #[test]
    fn seconds_of_each_kind() {
        let heard: Vec<_> = HEARD.lines().filter_map(Happened::read).collect();
        assert_eq!(heard.len(), HEARD.lines().count());
        let told = account(&heard, &BTreeSet::from([7]));
        // Data are in flight from 12.000 to 12.003, and the commit is under way to 12.009.
        let Account { throttle, pauses, data, commit, commit_flush, flush, sync, .. } = told;
        let told = [throttle, pauses, data, commit, commit_flush, flush, sync];
        assert_eq!(told.map(|seconds| (seconds * 1e6).round()), [11e3, 8e3, 3e3, 6e3, 1e3, 0.0, 9e3]);
    }
}
