//! The processes that a program leaves running.
//!
//! They are found by the variables that `run` put into their environment, traced or not. A process that
//! overwrote its environment, as daemons do to show a title, is known only to the daemon that records its
//! calls.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cawl_client::protocol::RunProcess;
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt::Stop;
use crate::render::{self, shown};

/// Interval of looks whether known processes have ended, and of searches for new ones.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Interval of looks at a process within exec, and most of them.
const EXEC_LOOK_EVERY: Duration = Duration::from_millis(1);
const EXEC_LOOKS: usize = 100;

/// Most processes named on the terminal.
const NAMED: usize = 4;

pub struct Family {
    /// Entries of their environment.
    marks: [Vec<u8>; 2],
}

impl Family {
    /// The family of the processes that report to this socket as this run.
    pub fn new(socket: &Path, run: u64) -> Family {
        let socket = [b"CAWL_SOCKET=", socket.as_os_str().as_bytes()].concat();
        Family { marks: [socket, format!("CAWL_RUN={run}").into_bytes()] }
    }

    /// Its running processes, as far as their environment tells.
    pub fn running(&self) -> Vec<RunProcess> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found = pids.filter(|pid| self.has(*pid) && cawl_host::is_running(*pid));
        found.map(|pid| RunProcess { pid, program: name(pid) }).collect()
    }

    /// A process that ended has no environment, and that of another user's process is not readable.
    fn has(&self, pid: u32) -> bool {
        let environment = environment(pid);
        self.marks.iter().all(|mark| environment.split(|byte| *byte == 0).any(|entry| entry == mark))
    }

    /// Waits until all have ended, with those found later; a request to stop returns the remaining ones.
    /// `ask`: the processes that the daemon knows.
    pub async fn wait<F>(&self, ask: impl Fn() -> F, stop: &mut Stop) -> Vec<RunProcess>
    where
        F: Future<Output = anyhow::Result<Vec<RunProcess>>>,
    {
        let style = ProgressStyle::with_template("{wide_msg}").expect("a valid template");
        let line = ProgressBar::new_spinner().with_style(style);
        let mut told = false;
        loop {
            let mut found = self.running();
            // A process that starts another and ends during the search hides both; a second search finds the
            // child.
            if found.is_empty() {
                found = self.running();
            }
            let mut left: Left = found.into_iter().map(|process| (process.pid, process)).collect();
            // The daemon is asked after the search: a process that overwrote its environment before that has
            // connected by now.
            let answer = tokio::select! {
                answer = ask() => answer,
                () = stop.asked() => return left.into_values().collect(),
            };
            let of_daemon = answer.unwrap_or_else(|error| {
                // The daemon may be of a version without this question, or gone.
                if !std::mem::replace(&mut told, true) {
                    line.suspend(|| {
                        render::tell(format_args!(
                            "cawl-cli: waiting only for processes with this run's variables in their environment: \
                             {error:#}"
                        ));
                    });
                }
                Vec::new()
            });
            left.extend(of_daemon.into_iter().map(|process| (process.pid, process)));
            if left.is_empty() {
                return Vec::new();
            }
            let searched = Instant::now();
            while !left.is_empty() && searched.elapsed() < SEARCH_EVERY {
                line.set_message(text(&left));
                tokio::select! {
                    () = stop.asked() => return left.into_values().collect(),
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                left.retain(|pid, _| cawl_host::is_running(*pid));
            }
        }
    }
}

/// The processes waited for, by pid.
type Left = BTreeMap<u32, RunProcess>;

/// The environment of a process. Between exec and the first instruction of the new program it has neither
/// environment nor arguments: that moment is waited out.
fn environment(pid: u32) -> Vec<u8> {
    let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    for _ in 0..EXEC_LOOKS {
        let environment = read("environ");
        // Threads of the kernel have no program.
        let in_exec = environment.is_empty()
            && fs::read_link(format!("/proc/{pid}/exe")).is_ok()
            && read("cmdline").is_empty()
            && cawl_host::is_running(pid);
        if !in_exec {
            return environment;
        }
        std::thread::sleep(EXEC_LOOK_EVERY);
    }
    Vec::new()
}

/// The name of a process, without its arguments.
fn name(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/comm"))
        .map(|name| String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
        .unwrap_or_default()
}

/// The line on a terminal that says what is waited for.
fn text(left: &Left) -> String {
    let named = left.values().take(NAMED).map(|RunProcess { pid, program }| {
        let program = program.rsplit('/').next().unwrap_or_default();
        let stopped = if cawl_host::is_stopped(*pid) { ", stopped" } else { "" };
        format!("{} ({pid}{stopped})", shown(program))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if left.len() > NAMED { ", …" } else { "" };
    let processes = if left.len() == 1 { "process" } else { "processes" };
    format!("waiting for {} {processes}: {named}{more}; Ctrl-C ends the wait", left.len())
}
