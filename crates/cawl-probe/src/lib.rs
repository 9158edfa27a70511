//! The second eye: probes in the kernel that tell of the calls of processes that run, whatever they are made
//! of.
//!
//! The law of this crate: **the kernel tells, nothing is stopped, and nothing is left.** The probes are BPF
//! programs (bpf/probe.bpf.c, compiled by bpf/build) on tracepoints of system calls, of processes and of
//! io_uring. What they tell comes through a ring in memory; what finds no room there is counted. Programs,
//! maps and their links belong to this process: they are gone when it is, however it ends.
//!
//! [`Probe`] loads them and reads records; [`Translator`] makes the events of [`cawl_wire`] of these, which
//! are those that the tracer under LD_PRELOAD makes of the same calls.
#![forbid(unsafe_code)]

mod available;
mod figures;
mod files;
mod record;
mod syscalls;
mod translate;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};

pub use available::{Unavailable, check};
pub use files::{Named, Seen};
pub use record::{Call, Given, Identity, Image, Life, Naming, Record};
pub use translate::{Told, Translator};

/// The programs for the kernel.
static OBJECT: &[u8] = include_bytes!("bpf/probe.o");

/// Most control groups that are followed at once.
pub const GROUPS: usize = 16;

/// Programs and tracepoints without which there is no eye, and those that a kernel may lack.
const NEEDED: [(&str, &str); 5] = [
    ("process_fork", "sched_process_fork"),
    ("process_exec", "sched_process_exec"),
    ("process_exit", "sched_process_exit"),
    // The end of a call before its begin, or a call would be left in the table.
    ("sys_exit", "sys_exit"),
    ("sys_enter", "sys_enter"),
];
const URING: [(&str, &str); 2] =
    [("uring_complete", "io_uring_complete"), ("uring_submit", "io_uring_submit_req")];

/// What was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records that found no room in the ring.
    pub records: u64,
    /// Calls that found no room beside those that others were in.
    pub flights: u64,
    /// Processes beyond those that can be followed.
    pub processes: u64,
    /// Calls of 32-bit programs.
    pub compat: u64,
    /// Requests of libaio that could not be read.
    pub requests: u64,
}

impl Losses {
    /// Calls that are known to be missing.
    pub fn calls(&self) -> u64 {
        self.records + self.flights + self.requests
    }
}

/// A control group of version 2 as the kernel compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number: the inode number of its folder.
    pub id: u64,
    /// Folders between it and the root of its hierarchy, and itself; 0: the root.
    pub level: u32,
}

/// Probes that are attached.
pub struct Probe {
    ring: RingBuf<MapData>,
    followed: HashMap<MapData, u32, u8>,
    lost: PerCpuArray<MapData, u64>,
    /// Requests of io_uring are told of.
    pub sees_uring: bool,
    /// They are attached as long as they are here.
    programs: Option<Ebpf>,
}

impl Probe {
    /// Loads the probes and attaches them; they follow the processes of these groups. Further groups than
    /// [`GROUPS`] are left to the caller.
    pub fn attach(groups: &[Group]) -> Result<Probe, Unavailable> {
        available::check()?;
        let btf = Btf::from_sys_fs().map_err(|error| Unavailable::NoTypes(error.to_string()))?;
        let count = groups.len().min(GROUPS) as u32;
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            // Only the programs use the one of threads.
            .allow_unsupported_maps()
            .override_global("group_count", &count, true)
            .override_global("reader", &std::process::id(), true)
            .load(OBJECT)
            .map_err(|error| available::failed("its object cannot be loaded", &error))?;
        let mut rows: Array<_, u32> = map(programs.map_mut("classes"))?;
        for (number, row) in syscalls::rows() {
            rows.set(number, row, 0).map_err(|error| available::failed("its table", &error))?;
        }
        let mut table: Array<_, [u64; 2]> = map(programs.map_mut("groups"))?;
        for (at, group) in groups.iter().take(GROUPS).enumerate() {
            let value = [group.id, u64::from(group.level)];
            table.set(at as u32, value, 0).map_err(|error| available::failed("its table", &error))?;
        }
        let ring = map(programs.take_map("ring"))?;
        let followed = map(programs.take_map("followed"))?;
        let lost = map(programs.take_map("lost"))?;
        for (name, point) in NEEDED {
            start(&mut programs, name, point, &btf)?;
        }
        let sees_uring = URING.iter().all(|(name, point)| start(&mut programs, name, point, &btf).is_ok());
        Ok(Probe { ring, followed, lost, sees_uring, programs: Some(programs) })
    }

    /// Follows a process and the children that it makes from now on. False if there is no room.
    pub fn follow(&mut self, pid: u32) -> bool {
        self.followed.insert(pid, 1, 0).is_ok()
    }

    /// Ends the probes. What they told is still to be read.
    pub fn detach(&mut self) {
        self.programs = None;
    }

    /// Gives what was told since, at most so many records; returns their number.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(Record)) -> usize {
        let mut count = 0;
        while count < most
            && let Some(item) = self.ring.next()
        {
            // Both ends are of this crate: another record there is none.
            if let Some(record) = Record::decode(&item) {
                take(record);
            }
            count += 1;
        }
        count
    }

    /// What was not told so far.
    pub fn lost(&self) -> Losses {
        let sum = |at: u32| self.lost.get(&at, 0).map_or(0, |values| values.iter().sum::<u64>());
        Losses { records: sum(0), flights: sum(1), processes: sum(2), compat: sum(3), requests: sum(4) }
    }
}

fn map<M, T>(map: Option<M>) -> Result<T, Unavailable>
where
    T: TryFrom<M, Error = aya::maps::MapError>,
{
    let map = map.ok_or_else(|| Unavailable::Failed("a map is missing in the object".to_owned()))?;
    T::try_from(map).map_err(|error| available::failed("a map of it", &error))
}

fn start(programs: &mut Ebpf, name: &str, point: &str, btf: &Btf) -> Result<(), Unavailable> {
    let failed = |error: &dyn std::error::Error| available::failed(&format!("the tracepoint {point}"), error);
    let program = programs.program_mut(name);
    let program: &mut BtfTracePoint = program
        .ok_or_else(|| Unavailable::Failed(format!("the program {name} is missing in the object")))?
        .try_into()
        .map_err(|error: aya::programs::ProgramError| failed(&error))?;
    program.load(point, btf).map_err(|error| failed(&error))?;
    program.attach().map_err(|error| failed(&error))?;
    Ok(())
}
