//! A workflow on paper.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use anyhow::anyhow;
use cawl::cause::PLACE;
use cawl::cost::cawl_cost;
use cawl::machine::{CAWL_CREATE, CAWL_READ, CAWL_TRUNCATE, CAWL_WRITE, cawl_file, cawl_machine, cawl_task};
use cawl::status::{Outcome as Answer, text_of};
use cawl_core::{Cause, DeviceConstants, HostProfile, Measured, Nanos, Rate, Time};
use cawl_wire::Op;

use super::{Cluster, Host, Outcome, Queue, Ran, Workflow};

/// The number of the device on which all files lie.
const DEVICE: u64 = 1;

/// How a workflow is run on paper.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The model, one of [`cawl_core::MODELS`].
    pub model: &'a str,
    /// What is there before is in the page caches.
    pub cached: bool,
}

/// Steps after which a simulation is watched.
const STEPS: u64 = 4096;

/// Runs all tasks on paper. `watch` is told from time to time how many have ended; its error ends the
/// simulation.
///
/// # Errors
/// Where there is no such model, or it failed.
pub fn simulate(
    workflow: &Workflow,
    cluster: &Cluster,
    options: &Options<'_>,
    watch: &mut dyn FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let mut paper = Paper::new(workflow, cluster, options)?;
    paper.begin(Time(0), None);
    let (mut ended, mut steps) = (0, 0_u64);
    while let Some(Reverse((now, _, task))) = paper.next.pop() {
        steps += 1;
        if steps.is_multiple_of(STEPS) {
            watch(ended)?;
        }
        match paper.act(task, now)? {
            Some(span) => paper.wait(task, now + span),
            None => {
                ended += 1;
                watch(ended)?;
                paper.end(task, now);
            }
        }
    }
    Ok(Outcome { tasks: paper.tasks, notes: Vec::new() })
}

struct Paper<'a> {
    workflow: &'a Workflow,
    cluster: &'a Cluster,
    options: &'a Options<'a>,
    queue: Queue,
    /// What each task does next, and when; of equal moments, in the order in which they were foreseen.
    next: BinaryHeap<Reverse<(Time, u64, usize)>>,
    foreseen: u64,
    at_work: Vec<AtWork>,
    tasks: Vec<Ran>,
    hosts: Vec<OnPaper>,
    /// Of each file: who wrote it last, and how often that was another host than before.
    written: Vec<(Option<usize>, u64)>,
    share: Share,
}

/// A host's machine.
struct OnPaper {
    machine: cawl_machine,
    /// The latest state of each file that the machine knows.
    known: HashMap<usize, u64>,
}

/// Where a task stands.
#[derive(Clone, Copy, Default)]
struct AtWork {
    writes: bool,
    /// It computes until its next step.
    computes: bool,
    /// The place in its list of files.
    file: usize,
    act: Act,
    descriptor: i32,
    /// Bytes of the file that are still to be moved.
    left: u64,
}

#[derive(Clone, Copy, Default)]
enum Act {
    #[default]
    Open,
    Move,
    Sync,
    Close,
}

impl AtWork {
    /// What comes next where so much of the file is left.
    fn after_data(&self, fsync: bool) -> Act {
        match self.left {
            0 if self.writes && fsync => Act::Sync,
            0 => Act::Close,
            _ => Act::Move,
        }
    }
}

impl<'a> Paper<'a> {
    fn new(
        workflow: &'a Workflow,
        cluster: &'a Cluster,
        options: &'a Options<'a>,
    ) -> anyhow::Result<Paper<'a>> {
        let processors: Vec<u32> = cluster.hosts.iter().map(|host| host.processors).collect();
        let machine = |host: usize| {
            let Host { profile, memory, .. } = &cluster.hosts[host];
            let mut machine = sound(cawl_machine::new(profile, options.model))?;
            if let Some(memory) = memory {
                sound(machine.with_model(|model| model.free_memory(memory)))?;
            }
            Ok(OnPaper { machine, known: HashMap::new() })
        };
        Ok(Paper {
            workflow,
            cluster,
            options,
            queue: Queue::new(workflow, &processors),
            next: BinaryHeap::new(),
            foreseen: 0,
            at_work: vec![AtWork::default(); workflow.tasks.len()],
            tasks: vec![Ran::default(); workflow.tasks.len()],
            hosts: (0..processors.len()).map(machine).collect::<anyhow::Result<_>>()?,
            written: vec![(None, 0); workflow.files.len()],
            share: Share::new(cluster),
        })
    }

    /// The tasks that can begin, do.
    fn begin(&mut self, now: Time, by: Option<usize>) {
        while let Some((task, host)) = self.queue.next() {
            let ran = &mut self.tasks[task];
            (ran.host, ran.begin, ran.by) = (host, now, by);
            self.share.begin(host);
            self.wait(task, now);
        }
    }

    fn wait(&mut self, task: usize, until: Time) {
        self.foreseen += 1;
        self.next.push(Reverse((until, self.foreseen, task)));
    }

    fn end(&mut self, task: usize, now: Time) {
        self.tasks[task].end = now;
        self.share.end(self.tasks[task].host);
        for ready in self.queue.ended(task, self.tasks[task].host) {
            self.tasks[ready].ready = now;
        }
        self.begin(now, Some(task));
    }

    /// The next step of a task, and what it takes; None if it has none.
    fn act(&mut self, task: usize, now: Time) -> anyhow::Result<Option<Nanos>> {
        let of = &self.workflow.tasks[task];
        let at = &mut self.at_work[task];
        if std::mem::take(&mut at.computes) {
            self.share.begin(self.tasks[task].host);
        }
        let files = if at.writes { &of.writes } else { &of.reads };
        let Some(file) = files.get(at.file).copied() else {
            if at.writes {
                return Ok(None);
            }
            *at = AtWork { writes: true, computes: true, ..AtWork::default() };
            self.tasks[task].times.computing = of.compute;
            self.share.end(self.tasks[task].host);
            return Ok(Some(of.compute));
        };
        let host = self.tasks[task].host;
        if let Some(profile) = self.share.part(host, &self.cluster.hosts[host].profile) {
            sound(self.hosts[host].machine.with_model(|model| model.recalibrate(&profile)))?;
        }
        let mut cost = cawl_cost { size: size_of::<cawl_cost>() as u32, ..cawl_cost::default() };
        let number = task as u32 + 1;
        let on = (cawl_task { process: number, thread: number }, at.descriptor);
        let machine = &mut self.hosts[host].machine;
        let answer = match at.act {
            Act::Open => {
                at.left = self.workflow.files[file].size.0;
                at.act = at.after_data(of.fsync);
                let writes = at.writes;
                let opened = self.open(file, host, (on.0, writes), now, &mut cost)?;
                self.at_work[task].descriptor = opened;
                Ok(())
            }
            Act::Move => {
                let bytes = at.left.min(of.block.0);
                at.left -= bytes;
                at.act = at.after_data(of.fsync);
                match at.writes {
                    true => machine.write(Op::Write, on, bytes, None, now.0, &mut cost),
                    false => machine.read(on, bytes, None, now.0, &mut cost),
                }
            }
            Act::Sync => {
                at.act = Act::Close;
                machine.flush(Op::Fsync, on, now.0, &mut cost)
            }
            Act::Close => {
                *at = AtWork { writes: at.writes, file: at.file + 1, ..AtWork::default() };
                machine.close(on.0, on.1, now.0, &mut cost)
            }
        };
        sound(answer)?;
        let writes = self.at_work[task].writes;
        Ok(Some(self.spent(task, writes, &cost)))
    }

    /// Opens a file, which the host may not know yet.
    fn open(
        &mut self,
        file: usize,
        host: usize,
        (task, writes): (cawl_task, bool),
        now: Time,
        cost: &mut cawl_cost,
    ) -> anyhow::Result<i32> {
        let size = self.workflow.files[file].size.0;
        let (by, state) = &mut self.written[file];
        if writes && by.replace(host).is_some_and(|before| before != host) {
            *state += 1;
        }
        let (is_written, state) = (by.is_some(), *state);
        let OnPaper { machine, known } = &mut self.hosts[host];
        // What another host wrote is another file for the page cache of this one.
        let inode = (state * self.workflow.files.len() as u64) + file as u64 + 1;
        let id = cawl_file { device: DEVICE, inode };
        if known.insert(file, state) != Some(state) && !writes {
            sound(machine.add_file(id, size, self.options.cached && !is_written))?;
        }
        let how = if writes { CAWL_WRITE | CAWL_CREATE | CAWL_TRUNCATE } else { CAWL_READ };
        sound(machine.open(task, id, how, now.0, cost))
    }

    /// Books a call of a task. Returns what it took.
    fn spent(&mut self, task: usize, writes: bool, cost: &cawl_cost) -> Nanos {
        let ran = &mut self.tasks[task];
        let span = Nanos::new(cost.cost_ns);
        for (cause, place) in Cause::ALL.into_iter().zip(PLACE) {
            ran.times.causes[cause] += Nanos::new(cost.parts_ns[usize::from(place)]);
        }
        *(if writes { &mut ran.times.writing } else { &mut ran.times.reading }) += span;
        span
    }
}

/// What the hosts share: the server's bandwidth, of which each that has a task at its files has an equal
/// part.
struct Share {
    /// The server's; None where nothing is shared.
    bandwidth: Option<Rate>,
    /// Of each host: tasks at their files.
    tasks: Vec<u32>,
    /// Hosts that have such tasks.
    active: u32,
    /// Of each host: for how many its constants hold.
    told: Vec<u32>,
}

impl Share {
    fn new(cluster: &Cluster) -> Share {
        let of_one = |host: &Host| host.profile.device.write.value.max(host.profile.device.read.value);
        let most = cluster.hosts.iter().map(of_one).fold(Rate::MIN, Rate::max);
        let bandwidth = cluster.shared.map(|shared| shared.bandwidth.unwrap_or(most));
        let count = cluster.hosts.len();
        Share { bandwidth, tasks: vec![0; count], active: 0, told: vec![0; count] }
    }

    fn begin(&mut self, host: usize) {
        self.tasks[host] += 1;
        self.active += u32::from(self.tasks[host] == 1);
    }

    fn end(&mut self, host: usize) {
        self.tasks[host] -= 1;
        self.active -= u32::from(self.tasks[host] == 0);
    }

    /// The host's constants for its part, where they are others than those that it has.
    fn part(&mut self, host: usize, profile: &HostProfile) -> Option<HostProfile> {
        let all = self.bandwidth.filter(|_| self.told[host] != self.active)?;
        self.told[host] = self.active;
        let most = all * (1.0 / f64::from(self.active.max(1)));
        let mut profile = profile.clone();
        let DeviceConstants { write, read, sequential_read, cached_read, writeback, base_rate, .. } =
            &mut profile.device;
        let options = [sequential_read, cached_read, base_rate].into_iter().flatten();
        for rate in [write, read, writeback].into_iter().chain(options) {
            if rate.value > most {
                *rate = Measured { value: most, p10: None, p90: None, ..*rate };
            }
        }
        Some(profile)
    }
}

fn sound<T>(answer: Answer<T>) -> anyhow::Result<T> {
    answer.map_err(|failure| anyhow!("the model: {}: {}", text_of(failure.status), failure.detail))
}
