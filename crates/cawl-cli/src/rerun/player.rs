//! The program that makes the calls (player.c): a process of its own, so that its threads and forks are as
//! recorded, and so that the tracer sees it as it sees any program.

use std::io::{BufReader, BufWriter, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use cawl_core::Nanos;
use cawl_measure::embedded::embedded;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::script::{STEP, Script, Step, part};

const PROGRAM: &[u8] = include_bytes!(env!("CAWL_PLAYER"));
/// Its name among processes, and in a trace of it.
const NAME: &str = "cawl-rerun";
const PAGE: f64 = 4096.0;
/// Time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// By which factor the content can be compressed; 1: not at all.
    pub compress: f64,
    /// Files are made and filled.
    pub fills: bool,
    /// Calls are made.
    pub plays: bool,
}

/// A process group that ends with the value.
struct Group(Child);

impl Group {
    fn end(pid: u32) {
        // It may have ended.
        let _ = killpg(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        Group::end(self.0.id());
        drop(self.0.wait());
    }
}

/// Makes the calls of a script, which is consumed; `each` gets the steps with their times. Returns the time
/// from the beginning to the last end.
///
/// # Errors
/// When a call failed, with its name and a remedy; after a signal, that the calls were ended.
pub fn play(
    folder: &Path,
    script: &mut Script,
    order: Order,
    signal: &AtomicUsize,
    each: impl FnMut(&Step),
) -> anyhow::Result<Nanos> {
    let (_program, mut command) = embedded(c"cawl-rerun", PROGRAM)?;
    command.arg0(NAME).current_dir(folder).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut group = Group(command.spawn().context("the program that makes the calls cannot be run")?);
    let pid = group.0.id();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
                if signal.load(Ordering::Relaxed) != 0 {
                    Group::end(pid);
                }
            }
        });
        let result = converse(&mut group.0, script, order, each);
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn converse(
    child: &mut Child,
    script: &mut Script,
    order: Order,
    mut each: impl FnMut(&Step),
) -> anyhow::Result<Nanos> {
    const LOST: &str = "the processes of the rerun were killed; is there enough memory?";
    let (input, output) = (child.stdin.take().context(LOST)?, child.stdout.take().context(LOST)?);
    let random = ((PAGE / order.compress / 8.0).ceil() * 8.0).clamp(0.0, PAGE) as u32;
    let steps = if order.plays { script.len() } else { 0 };
    let wrote = script.write(&mut BufWriter::with_capacity(1 << 18, input), random, order.fills, order.plays);
    // A player that does not read the script has said why.
    wrote.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })?;
    let mut output = BufReader::with_capacity(1 << 18, output);
    let mut message = [0; 24 + STEP];
    output.read_exact(&mut message).context(LOST)?;
    let [kind, about, error] = [0, 8, 16].map(|at| u64::from_ne_bytes(part(&message, at)));
    let mut bytes = part(&message, 24);
    let errno = Errno::from_raw(error as i32);
    match kind {
        1 => {}
        2 => return Err(failed(&Step::of(&bytes), &script.names, errno)),
        3 => {
            let name = &script.names[about as usize];
            bail!("cannot make and fill {name} in the folder: {}; {}", errno.desc(), remedy(errno, false))
        }
        _ => bail!(LOST),
    }
    for _ in 0..steps {
        output.read_exact(&mut bytes).context(LOST)?;
        each(&Step::of(&bytes));
    }
    Ok(Nanos::new(about as f64))
}

/// The message about a call.
fn failed(step: &Step, names: &[String], errno: Errno) -> anyhow::Error {
    let call = step.call().map_or("a preparation of a call", cawl_wire::Op::name);
    let name = names.get(step.file as usize).map_or("a file", String::as_str);
    let of =
        if step.size > 0 { format!(" of {} bytes at {}", step.size, step.offset) } else { String::new() };
    let writes = step.call().is_some_and(cawl_wire::Op::moves_bytes);
    anyhow::anyhow!("{call} on {name}{of} failed: {}; {}", errno.desc(), remedy(errno, writes))
}

fn remedy(errno: Errno, writes: bool) -> &'static str {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => "free some space, or name a folder on another disk with --dir",
        Errno::EINVAL if writes => {
            "with O_DIRECT, sizes and offsets must be multiples of the device's block; leave out --direct on"
        }
        Errno::EIO => "the device has failed; name a folder on another one with --dir",
        Errno::EMFILE | Errno::ENFILE => "raise the limit on open files (ulimit -n)",
        Errno::EAGAIN | Errno::ENOMEM => {
            "there is no memory, or the limit on processes is too low (ulimit -u)"
        }
        Errno::EFBIG => "the filesystem, or a limit (ulimit -f), does not allow files so large",
        Errno::EACCES | Errno::EPERM | Errno::EROFS => "name a folder that you may write to with --dir",
        _ => "name a folder on another filesystem with --dir, or leave these calls out with --drop",
    }
}
