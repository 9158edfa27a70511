//! What each process spent its time on, and the processes of a parallel program by rank.

use std::collections::BTreeMap;

use cawl_wire::{Rank, RankVariable};
use serde::{Deserialize, Serialize};

use crate::record::{Session, SessionEnd};
use crate::statistics::median;
use crate::units::{Nanos, Time};

/// One process image. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// Name the program was started by.
    pub program: String,
    /// Its number among the processes of a parallel program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// From its start, or its exec, to its end.
    pub wall_s: f64,
    /// Processor time in user mode of all its threads; None where it is not known.
    pub user_s: Option<f64>,
    /// Processor time in the kernel of all its threads; None where it is not known.
    pub system_s: Option<f64>,
    /// Wall less user and system: it slept, or waited for a processor. None where that is not known, and
    /// where other threads than its first used more than a hundredth of the wall time.
    pub waiting_s: Option<f64>,
    /// Time that threads waited for a processor, as far as it was recorded.
    pub run_delay_s: f64,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes that they handed to the kernel, to any kind of file.
    pub bytes: u64,
    /// Time in these calls, of all its threads.
    pub calls_s: f64,
    /// Switches to another thread, to wait for something; None where they are not known.
    pub voluntary_switches: Option<u64>,
    /// Switches to another thread that was given the processor.
    pub involuntary_switches: Option<u64>,
}

/// Part of the wall time from which on other threads make the waiting time unknown.
const OTHERS: f64 = 0.01;

impl ProcessReport {
    /// The times of an image that began so, and ended so or still runs at `now`. Processor time counts from
    /// the first image of a process, so it is a difference.
    pub fn of(session: &Session, end: Option<&SessionEnd>, now: Time) -> ProcessReport {
        let wall = end.map_or(now, |end| end.at).since(session.started);
        let mut report = ProcessReport {
            pid: session.pid,
            program: session.program.clone(),
            rank: session.rank.map(|rank| rank.number),
            wall_s: wall.as_seconds(),
            ..ProcessReport::default()
        };
        if let (Some(from), Some(to)) = (session.usage, end.and_then(|end| end.usage)) {
            let (user, system) = (to.user.saturating_sub(from.user), to.system.saturating_sub(from.system));
            let others = to.others.saturating_sub(from.others);
            let alone = others <= Nanos::new(wall.get() * OTHERS);
            report.user_s = Some(user.as_seconds());
            report.system_s = Some(system.as_seconds());
            report.waiting_s = alone.then(|| wall.saturating_sub(user + system).as_seconds());
            report.voluntary_switches = grown(from.voluntary, to.voluntary);
            report.involuntary_switches = grown(from.involuntary, to.involuntary);
        }
        report
    }
}

/// What a counter counted from one reading to the next, if both are known.
pub(crate) fn grown(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    Some(to?.saturating_sub(from?))
}

/// The processes with one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// Their number in the parallel program.
    pub rank: u32,
    /// How many process images: what a rank's process starts has its rank.
    pub processes: u64,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes that they handed to the kernel, to any kind of file.
    pub bytes: u64,
    /// Time in these calls, in seconds.
    pub calls_s: f64,
    /// The others wait for it ([`ranks`]).
    pub straggler: bool,
}

/// How much longer than the mean a straggler takes: the threshold of Drishti's check for stragglers
/// (`imbalance_stragglers`).
const OVER_MEAN: f64 = 0.15;
/// Deviations above the median that do not make a straggler: the usual three, for ranks that differ anyway.
const DEVIATIONS: f64 = 3.0;
/// The standard deviation over the median absolute deviation of a normal distribution.
const MAD: f64 = 1.4826;
/// With fewer ranks none is unusual.
const FEWEST: usize = 3;

/// The processes by rank, and the variable that told it: the most trustworthy one that any of them has.
///
/// A straggler is a rank whose time in calls is over 1.15 times the mean *and* over the median by more than
/// three standard deviations, estimated by the median absolute deviation, which stragglers do not move.
pub fn ranks<'a>(
    processes: impl Iterator<Item = (Rank, &'a ProcessReport)> + Clone,
) -> (Option<RankVariable>, Vec<RankReport>) {
    let variable = processes.clone().map(|(rank, _)| rank.variable).min();
    let mut ranks: BTreeMap<u32, RankReport> = BTreeMap::new();
    for (Rank { number, .. }, process) in processes.filter(|(rank, _)| Some(rank.variable) == variable) {
        let rank = ranks.entry(number).or_default();
        rank.rank = number;
        rank.processes += 1;
        rank.calls += process.calls;
        rank.bytes = rank.bytes.saturating_add(process.bytes);
        rank.calls_s += process.calls_s;
    }
    let mut ranks: Vec<RankReport> = ranks.into_values().collect();
    if ranks.len() >= FEWEST {
        let times: Vec<f64> = ranks.iter().map(|rank| rank.calls_s).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let middle = median(&times).unwrap_or(0.0);
        let apart: Vec<f64> = times.iter().map(|time| (time - middle).abs()).collect();
        let deviation = median(&apart).unwrap_or(0.0);
        let bound = ((1.0 + OVER_MEAN) * mean).max(middle + DEVIATIONS * MAD * deviation);
        ranks.iter_mut().for_each(|rank| rank.straggler = rank.calls_s > bound);
    }
    (variable, ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EndKind, Usage};

    fn usage(user: f64, system: f64, others: f64) -> Option<Usage> {
        let [user, system, others] = [user, system, others].map(Nanos::seconds);
        Some(Usage { user, system, others, voluntary: Some(5), involuntary: Some(7) })
    }

    #[test]
    fn an_image_has_its_own_part_of_the_process_s_time() {
        // The image before this exec had two threads, which used 3 s.
        let session = Session { pid: 7, started: Time(5), usage: usage(2.0, 1.0, 0.5), ..Session::default() };
        let mut end = SessionEnd::new(0, Time(4_000_000_005), EndKind::Exit);
        let times = |end: &SessionEnd| {
            let report = ProcessReport::of(&session, Some(end), Time(0));
            assert_eq!((report.pid, report.wall_s), (7, 4.0));
            (report.user_s, report.system_s, report.waiting_s)
        };
        assert_eq!(times(&end), (None, None, None));
        end.usage = usage(2.5, 2.0, 0.5);
        assert_eq!(times(&end), (Some(0.5), Some(1.0), Some(2.5)));
        // Another thread hardly ran; another one did.
        end.usage = usage(2.5, 2.0, 0.54);
        assert_eq!(times(&end).2, Some(2.5));
        end.usage = usage(4.5, 2.0, 2.5);
        assert_eq!(times(&end), (Some(2.5), Some(1.0), None));
        // Never less than nothing, where clocks differ.
        end.usage = usage(6.0, 3.0, 0.5);
        assert_eq!(times(&end).2, Some(0.0));
    }

    #[test]
    fn an_image_that_runs_has_lasted_until_now() {
        let session = Session { started: Time(1_000_000_000), ..Session::default() };
        assert_eq!(ProcessReport::of(&session, None, Time(3_000_000_000)).wall_s, 2.0);
    }

    fn by_rank(processes: &[(&str, f64)]) -> (Option<RankVariable>, Vec<RankReport>) {
        let processes: Vec<(Rank, ProcessReport)> = processes
            .iter()
            .map(|(rank, calls_s)| {
                let rank = Rank::of_variable(rank.as_bytes()).expect("a rank");
                (rank, ProcessReport { calls_s: *calls_s, calls: 2, bytes: 10, ..ProcessReport::default() })
            })
            .collect();
        ranks(processes.iter().map(|(rank, process)| (*rank, process)))
    }

    fn slow(seconds: &[f64]) -> Vec<u32> {
        let names: Vec<String> = (0..seconds.len()).map(|rank| format!("PMI_RANK={rank}")).collect();
        let processes: Vec<(&str, f64)> =
            names.iter().map(String::as_str).zip(seconds.iter().copied()).collect();
        by_rank(&processes).1.iter().filter(|rank| rank.straggler).map(|rank| rank.rank).collect()
    }

    #[test]
    fn one_of_eight_is_named() {
        assert_eq!(slow(&[1.0, 1.1, 0.9, 1.0, 1.0, 3.0, 1.05, 0.95]), [5]);
        assert_eq!(slow(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.4, 1.0, 1.0]), [5]);
        assert_eq!(slow(&[1.0, 1.0, 9.0, 1.0, 1.0, 8.0, 1.0, 1.0]), [2, 5]);
    }

    #[test]
    fn ranks_that_hardly_differ_or_all_differ_are_not() {
        // Under 15 % above the mean, though no other differs at all.
        assert_eq!(slow(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.1, 1.0, 1.0]), [0; 0]);
        // Evenly spread.
        assert_eq!(slow(&[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4]), [0; 0]);
        assert_eq!(slow(&[1.0, 2.0]), [0; 0]);
        assert_eq!(slow(&[0.0; 8]), [0; 0]);
    }

    #[test]
    fn what_a_rank_starts_belongs_to_it_and_the_launcher_to_none() {
        let (variable, ranks) = by_rank(&[
            ("SLURM_PROCID=0", 50.0),
            ("OMPI_COMM_WORLD_RANK=1", 1.0),
            ("OMPI_COMM_WORLD_RANK=0", 1.0),
            ("OMPI_COMM_WORLD_RANK=1", 2.0),
        ]);
        assert_eq!(variable, Some(RankVariable::Ompi));
        let figures: Vec<_> =
            ranks.iter().map(|r| (r.rank, r.processes, r.calls, r.bytes, r.calls_s)).collect();
        assert_eq!(figures, [(0, 1, 2, 10, 1.0), (1, 2, 4, 20, 3.0)]);
    }
}
