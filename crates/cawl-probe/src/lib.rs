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
use aya_obj::btf::BtfKind;

pub use available::{Unavailable, check};
pub use files::{Named, Seen};
pub use record::{Call, End, Given, Identity, Image, Life, Naming, Record};
pub use translate::{Requests, Told, Translator};

/// The programs for the kernel.
static OBJECT: &[u8] = include_bytes!("bpf/probe.o");

/// Most control groups that the kernel compares at once.
const GROUPS: usize = 16;

/// Programs and tracepoints without which there is no eye, and those that a kernel may lack.
const NEEDED: [(&str, &str); 5] = [
    ("process_fork", "sched_process_fork"),
    ("process_exec", "sched_process_exec"),
    ("process_exit", "sched_process_exit"),
    // The end of a call before its begin, or a call would be left in the table.
    ("sys_exit", "sys_exit"),
    ("sys_enter", "sys_enter"),
];
/// Requests: the end first, too. Before Linux 6.4 the begin had another name.
const COMPLETE: (&str, &str) = ("uring_complete", "io_uring_complete");
const SUBMIT: [(&str, &str); 2] =
    [("uring_submit", "io_uring_submit_req"), ("uring_submit", "io_uring_submit_sqe")];
/// Requests that are refused before they begin.
const REFUSED: (&str, &str) = ("uring_failed", "io_uring_req_failed");
/// Stores through mappings: since Linux 5.18.
const STORES: (&str, &str) = ("stored", "writeback_dirty_folio");
/// Processes that come into a group of version 1.
const JOINS: (&str, &str) = ("joined", "cgroup_attach_task");
/// How long a file was that is gone, or cut off, only a filesystem can tell. One that is a module is not
/// asked.
const LENGTHS: [(&str, &str); 3] =
    [("evict", "ext4_evict_inode"), ("released", "ext4_da_release_space"), ("cut", "ext4_truncate_enter")];

/// What was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls that found no room in the ring.
    pub records: u64,
    /// Calls that found no room beside those that others were in.
    pub flights: u64,
    /// Processes beyond those that can be followed.
    pub processes: u64,
    /// Calls of 32-bit programs.
    pub compat: u64,
    /// Requests of libaio that could not be read.
    pub requests: u64,
    /// Beginnings and ends of processes and threads that found no room in the ring.
    pub lives: u64,
}

impl Losses {
    /// Calls that are known to be missing.
    pub fn calls(&self) -> u64 {
        self.records + self.flights + self.requests
    }
}

/// A control group as the kernel compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number: the inode number of its folder.
    pub id: u64,
    /// Of version 2: folders between it and the root of its hierarchy, and itself; 0: the root.
    pub level: u32,
    /// The number of its hierarchy, as in /proc/PID/cgroup: 0 is that of version 2.
    pub hierarchy: u32,
}

/// Probes that are attached.
pub struct Probe {
    ring: RingBuf<MapData>,
    filter: Array<MapData, u8>,
    followed: HashMap<MapData, u32, u8>,
    lost: PerCpuArray<MapData, u64>,
    dropped: HashMap<MapData, u32, u64>,
    /// Control groups that are followed, as in the first rows of the kernel's table, and their count there.
    groups: Vec<Group>,
    rows: Array<MapData, [u64; 2]>,
    count: Array<MapData, u32>,
    /// Requests of io_uring are told of.
    pub sees_uring: bool,
    /// Stores through mappings are told of.
    pub sees_stores: bool,
    /// Groups of version 1 are compared, too.
    sees_joins: bool,
    /// They are attached as long as they are here.
    programs: Option<Ebpf>,
}

impl Probe {
    /// Loads the probes and attaches them. Nothing is followed yet.
    pub fn attach() -> Result<Probe, Unavailable> {
        available::check()?;
        let btf = Btf::from_sys_fs().map_err(|error| Unavailable::NoTypes(error.to_string()))?;
        let (object, has_cast) = with_casts(&btf);
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            // Only the programs use the one of threads.
            .allow_unsupported_maps()
            .override_global("reader", &std::process::id(), true)
            .override_global("has_cast", &u32::from(has_cast), true)
            .load(&object)
            .map_err(|error| available::failed("its object cannot be loaded", &error))?;
        let mut rows: Array<_, u32> = map(programs.map_mut("classes"))?;
        for (number, row) in syscalls::rows() {
            rows.set(number, row, 0).map_err(|error| available::failed("its table", &error))?;
        }
        let filter = map(programs.take_map("filter"))?;
        let ring = map(programs.take_map("ring"))?;
        let followed = map(programs.take_map("followed"))?;
        let lost = map(programs.take_map("lost"))?;
        let dropped = map(programs.take_map("dropped"))?;
        let (rows, count) = (map(programs.take_map("groups"))?, map(programs.take_map(".bss"))?);
        for (name, point) in NEEDED {
            start(&mut programs, name, point, &btf)?;
        }
        let mut has = |(name, point): (&str, &str)| start(&mut programs, name, point, &btf).is_ok();
        let sees_uring = has(COMPLETE) && SUBMIT.into_iter().any(&mut has);
        let _ = has(REFUSED);
        let sees_stores = has(STORES);
        let sees_joins = has(JOINS);
        let _ = LENGTHS.map(&mut has);
        let programs = Some(programs);
        Ok(Probe {
            ring,
            filter,
            followed,
            lost,
            dropped,
            groups: Vec::new(),
            rows,
            count,
            sees_uring,
            sees_stores,
            sees_joins,
            programs,
        })
    }

    /// Follows a process and the children that it makes from now on. False if there is no room.
    pub fn follow(&mut self, pid: u32) -> bool {
        self.followed.insert(pid, 1, 0).is_ok() && self.filter.set(pid % self.filter.len(), 1, 0).is_ok()
    }

    /// Follows a process no longer: another may get its number.
    pub fn unfollow(&mut self, pid: u32) {
        // The kernel has taken out most that ended.
        let _ = self.followed.remove(&pid);
    }

    /// True if this process is followed.
    pub fn follows(&self, pid: u32) -> bool {
        self.followed.get(&pid, 0).is_ok()
    }

    /// Follows the processes of a control group: of version 2 from their next call on, of version 1 those
    /// that come into it from now on. False if there is no room, or if the kernel does not tell of these.
    pub fn follow_group(&mut self, group: Group) -> bool {
        (group.hierarchy == 0 || self.sees_joins) && self.groups.len() < GROUPS && {
            self.groups.push(group);
            self.put_groups(self.groups.len() - 1)
        }
    }

    /// Meets no further processes of a control group.
    pub fn leave_group(&mut self, group: Group) {
        if let Some(at) = self.groups.iter().position(|known| *known == group) {
            self.groups.swap_remove(at);
            self.put_groups(at);
        }
    }

    /// Puts the row in which the list of groups changed into the kernel's table, and then their number.
    fn put_groups(&mut self, changed: usize) -> bool {
        let row = |group: &Group| [group.id, u64::from(group.hierarchy) << 32 | u64::from(group.level)];
        let row = self.groups.get(changed).map(row);
        row.is_none_or(|row| self.rows.set(changed as u32, row, 0).is_ok())
            && self.count.set(0, self.groups.len() as u32, 0).is_ok()
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
        let [records, flights, processes, compat, requests, lives] = [0, 1, 2, 3, 4, 5].map(sum);
        Losses { records, flights, processes, compat, requests, lives }
    }

    /// Calls that were lost since the last time, by process. What is lost meanwhile may be in none.
    pub fn take_dropped(&mut self) -> Vec<(u32, u64)> {
        let told: Vec<(u32, u64)> = self.dropped.iter().flatten().collect();
        told.iter().for_each(|(pid, _)| drop(self.dropped.remove(pid)));
        told
    }
}

/// The object for this kernel: with the number of its function bpf_rdonly_cast, whose call aya cannot
/// relocate, in the place of the mark CAST of bpf/probe.h. A kernel before Linux 6.2 lacks it: what is given
/// comes back, and the programs copy what they read. True with it.
fn with_casts(btf: &Btf) -> (Vec<u8>, bool) {
    const CALL: [u8; 8] = [0x85, 0, 0, 0, 0x57, 0xCA, 0xA5, 0x7C];
    let number = btf.id_by_type_name_kind("bpf_rdonly_cast", BtfKind::Func).ok();
    let instead = match number.map(u32::to_le_bytes) {
        // A call of a function of the kernel (BPF_PSEUDO_KFUNC_CALL).
        Some([a, b, c, d]) => [0x85, 0x20, 0, 0, a, b, c, d],
        // r0 = r1
        None => [0xBF, 0x10, 0, 0, 0, 0, 0, 0],
    };
    let mut object = OBJECT.to_vec();
    object.chunks_exact_mut(8).filter(|code| *code == CALL).for_each(|code| code.copy_from_slice(&instead));
    (object, number.is_some())
}

fn map<M, T>(map: Option<M>) -> Result<T, Unavailable>
where
    T: TryFrom<M, Error = aya::maps::MapError>,
{
    let map = map.ok_or_else(|| Unavailable::Failed("a map is missing in the object".to_owned()))?;
    T::try_from(map).map_err(|error| available::failed("a map of it", &error))
}

fn start(programs: &mut Ebpf, name: &str, point: &str, btf: &Btf) -> Result<(), Unavailable> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        available::failed(&format!("the tracepoint {point}"), error)
    };
    let program = programs.program_mut(name);
    let program: &mut BtfTracePoint = program
        .ok_or_else(|| Unavailable::Failed(format!("the program {name} is missing in the object")))?
        .try_into()
        .map_err(|error: aya::programs::ProgramError| failed(&error))?;
    program.load(point, btf).map_err(|error| failed(&error))?;
    program.attach().map_err(|error| failed(&error))?;
    Ok(())
}
