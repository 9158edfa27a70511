//! A process that the probes follow.

use std::sync::Arc;

use cawl_core::{Session, SessionEnd, Time, Usage, Wchar, host_text};
use cawl_wire::Usage as Counted;

use crate::batch::Batch;
use crate::connections::Connections;
use crate::mappings::Mappings;
use crate::run_delays::RunDelays;

/// Longest name and arguments that are kept, in bytes, and most arguments.
const LONGEST: usize = 4096;
const ARGUMENTS: usize = 256;

/// A process that is followed, under one image.
pub struct Process<'a> {
    /// The number of its session.
    pub session: u32,
    /// The part of what is followed that it belongs to.
    pub part: u32,
    /// When its image began, or some time before that, if it was met.
    pub began: Time,
    pub program: String,
    /// The process that made it.
    pub parent: u32,
    /// Calls that were not sent to the engine yet.
    pub batch: Batch,
    /// Stores through its mappings.
    pub mappings: Mappings<'a>,
    /// What its threads waited for a processor.
    pub run_delays: RunDelays<'a>,
    /// Bytes that its threads wrote which ended since it is followed, and of calls that were seen before
    /// `counted`; None: the kernel does not count.
    pub ended_wrote: Option<u64>,
    /// Processor time of those threads in ns, in user mode and in the kernel.
    pub ended_usage: (u64, u64),
    /// Lost calls that are counted with this session.
    pub dropped: u64,
    /// When it was read what its threads had written.
    pub counted: Time,
    /// The last look did not find it running.
    pub is_missing: bool,
    /// It is followed no longer: calls that ended later are not its session's. With what it had written then.
    pub until: Option<(Time, Option<u64>)>,
}

impl<'a> Process<'a> {
    /// A process that is met or begins, whose threads had written this. What is not given /proc tells, if it
    /// is not too late.
    pub fn new(
        (pid, part): (u32, u32),
        (began, started): (Time, Time),
        (parent, program): (Option<u32>, Option<String>),
        written: Option<u64>,
        connections: &'a Arc<Connections>,
    ) -> (Process<'a>, Session) {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = arguments[..arguments.len().min(LONGEST)]
            .split(|byte| *byte == 0)
            .filter(|argument| !argument.is_empty())
            .take(ARGUMENTS)
            .map(host_text::name);
        let typed = arguments.next();
        // Busybox becomes itself again, under the name that it was called by.
        let is_itself = program.as_deref() == Some("/proc/self/exe");
        let program = if is_itself { typed.or(program) } else { program.or(typed) };
        let program = program.unwrap_or_else(|| format!("process {pid}"));
        let session = Session {
            id: connections.new_session(),
            pid,
            ppid: parent.unwrap_or_else(|| cawl_host::parent(pid)),
            started,
            wchar: own(written),
            usage: cawl_host::usage(pid),
            rank: None,
            program: program.clone(),
            arguments: arguments.collect(),
            language: None,
            traceparent: cawl_host::traceparent(pid),
        };
        let process = Process {
            session: session.id,
            part,
            began,
            program,
            parent: session.ppid,
            batch: Batch::default(),
            mappings: Mappings::new(pid, &connections.mapped, &connections.aside),
            run_delays: RunDelays::new(pid, started, &Counted::default(), &connections.run_delays),
            ended_wrote: written.map(|_| 0),
            ended_usage: (0, 0),
            dropped: 0,
            counted: Time(0),
            is_missing: false,
            until: None,
        };
        (process, session)
    }

    /// What was at this time belongs to its session.
    pub fn has(&self, at: u64) -> bool {
        self.until.is_none_or(|(until, _)| at <= until.0)
    }

    /// Its end, when its threads wrote this in all.
    pub fn end(
        &self,
        at: Time,
        how: cawl_core::EndKind,
        written: Option<u64>,
        usage: Option<Usage>,
    ) -> SessionEnd {
        SessionEnd {
            wchar: own(written),
            usage,
            dropped: self.dropped,
            ..SessionEnd::new(self.session, at, how)
        }
    }
}

/// Bytes of a process without those of its children: of all its threads as if it had one.
fn own(written: Option<u64>) -> Wchar {
    Wchar { process: written, thread: written }
}

/// Bytes that the running threads of a process wrote.
pub fn running_wrote(pid: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut sum = 0_u64;
    for thread in threads.flatten() {
        let text = std::fs::read_to_string(thread.path().join("io")).ok()?;
        sum = sum.saturating_add(host_text::wchar(&text)?);
    }
    Some(sum)
}

/// Threads of a process that run: a process can outlive its first one.
pub fn threads(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|thread| cawl_host::is_running(*thread)).count()
}

/// A program's name from a path or a comm.
pub fn text(bytes: &[u8]) -> String {
    host_text::name(bytes).trim_end_matches('\0').to_owned()
}
