//! A machine of its own: user-mode-linux. Its root is this machine's, so it has the same programs; it boots
//! in seconds, and nothing is changed here.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::command::{self, Lacking};

/// The kernel of Debian's package user-mode-linux.
pub(crate) const PACKAGED: &str = "linux.uml";

/// What a machine is to do.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    /// A folder here, where it leaves what it finds; `$out` in the script.
    pub out: &'a Path,
    /// Process 1, for sh; it ends with `halt -f -p`.
    pub script: &'a str,
    /// The file that is /dev/ubda, if there is a disk.
    pub disk: Option<&'a Path>,
    /// Most time for all of it.
    pub patience: Duration,
    /// A program: Linux built with ARCH=um.
    pub kernel: PathBuf,
    /// Processors; one before 6.19, whatever this is.
    pub processors: u32,
    /// Bytes of memory, which lie in a file in `memory_in`.
    pub memory: u64,
    /// A folder here; best one in memory, else what the machine writes is written to a disk here.
    pub memory_in: &'a Path,
}

impl<'a> Machine<'a> {
    /// A machine of 2 GiB without a disk, of the packaged kernel.
    pub fn new(out: &'a Path, script: &'a str, patience: Duration) -> Self {
        Machine {
            out,
            script,
            disk: None,
            patience,
            kernel: PACKAGED.into(),
            processors: 1,
            memory: 2 << 30,
            memory_in: out,
        }
    }

    /// Boots the machine, and waits until it has stopped. An error is [`Lacking`] if there is no such kernel.
    pub fn boot(&self) -> anyhow::Result<()> {
        let out = self.out;
        let init = out.join("init");
        fs::write(&init, format!("#!/bin/sh\nout={}\n{}", quoted(&out.to_string_lossy()), self.script))?;
        command::run(Command::new("chmod").arg("+x").arg(&init))?;
        let kernel = self.kernel.display();
        if cawl_host::inspect::find(self.kernel.as_os_str()).is_none() {
            return Err(Lacking(format!("there is no {kernel}; apt-get install user-mode-linux")).into());
        }
        let words = first(self.processors);
        let mut machine = Command::new(words[0]);
        machine.args(&words[1..]).arg(&self.kernel);
        machine.args(["rootfstype=hostfs", "rootflags=/", "rw", "con=null", "con0=fd:0,fd:1"]);
        machine.arg(format!("mem={}", self.memory)).arg(format!("init={}", init.display()));
        if self.processors > 1 {
            // Several processors need the faster way into the kernel, which 6.16 brought.
            machine.args([format!("ncpus={}", self.processors), "seccomp=auto".into()]);
        }
        if let Some(image) = self.disk {
            machine.arg(format!("ubd0={}", image.display()));
        }
        // It keeps a socket in the home's .uml.
        machine.arg(format!("uml_dir={}/", out.display())).env("HOME", out).env("TMPDIR", self.memory_in);
        machine.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = machine.spawn().context(words[0])?;
        let deadline = Instant::now() + self.patience;
        while child.try_wait()?.is_none() {
            if words[0] == PINNED {
                free_helpers(child.id());
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                anyhow::bail!("{kernel} did not stop within {} s", self.patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Passes on what a command there left in `out`: `stdout`, `stderr`, `code`. An error has its `log`.
    pub fn pass_on(&self) -> anyhow::Result<u8> {
        let left = |name: &str| fs::read(self.out.join(name));
        let log = left("log").unwrap_or_default();
        let code = left("code").map_err(|_| anyhow::anyhow!("{}", String::from_utf8_lossy(&log)));
        let code = code.context("user-mode-linux did not run the command; its log")?;
        std::io::stdout().write_all(&left("stdout")?)?;
        std::io::stderr().write_all(&left("stderr")?)?;
        Ok(String::from_utf8_lossy(&code).trim().parse().unwrap_or(1))
    }
}

/// Pins what it runs to a processor.
const PINNED: &str = "taskset";

/// What to run the machine by: before other programs here, where that is allowed, and behind the disk that
/// serves it, since what they take is no time of the machine's. A low niceness is not enough: each call goes
/// from process to process. These take turns, and a machine of one processor is three times as fast on one
/// here.
fn first(processors: u32) -> &'static [&'static str] {
    const FIRST: &[&str] = &[PINNED, "--cpu-list", "0", "chrt", "--fifo", "5"];
    let words = if processors == 1 { FIRST } else { &FIRST[3..] };
    let probe = Command::new(words[0]).args(&words[1..]).arg("true").stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) { words } else { &["nice", "-n", "-15"] }
}

/// Lets the machine's helpers, as that of its disk, run on all processors: a program in it that computes
/// would keep them from its own. They are children that it does not trace, or threads.
fn free_helpers(machine: u32) {
    let traced = |task: &str| {
        let status = fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
        !status.lines().any(|line| line == "TracerPid:\t0")
    };
    let folder = format!("/proc/{machine}/task");
    let children = fs::read_to_string(format!("{folder}/{machine}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter(|child| !traced(child)).map(str::to_owned);
    let threads = fs::read_dir(&folder).into_iter().flatten().flatten();
    let threads = threads.filter_map(|entry| entry.file_name().into_string().ok());
    let mut all = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        let _ = all.set(cpu);
    }
    for helper in children.chain(threads.filter(|thread| *thread != machine.to_string())) {
        if let Ok(number) = helper.parse() {
            // It may have ended.
            let _ = sched_setaffinity(Pid::from_raw(number), &all);
        }
    }
}

/// Makes an image of a disk: a sparse file.
pub(crate) fn image(at: &Path, bytes: u64) -> std::io::Result<()> {
    fs::File::create(at)?.set_len(bytes)
}

/// Words for sh.
pub(crate) fn command_line(words: &[std::ffi::OsString]) -> String {
    words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word for sh.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
