//! Records of the ring, as bpf/probe.h lays them out.

/// A file as the kernel knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Device, in the kernel's own encoding: 12 bits for the major number, 20 for the minor.
    pub dev: u32,
    /// Generation of the inode.
    pub generation: u32,
    /// Number of names.
    pub links: u32,
    /// Kind and permissions (`i_mode`).
    pub mode: u16,
}

/// A call, or a request of io_uring or libaio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// When it began and ended, in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// What it returned: a negative errno of one that failed.
    pub result: i64,
    /// Number of the system call, or opcode of io_uring.
    pub number: u32,
    /// Its row: class and places of its arguments.
    pub row: u32,
    /// Its arguments.
    pub args: [u64; 6],
    /// Address of the open file in the kernel; 0: it is about none.
    pub file: u64,
    /// The file's position in bytes, before and after the call.
    pub before: u64,
    /// See `before`.
    pub after: u64,
    /// The file.
    pub identity: Identity,
    /// `f_flags`.
    pub flags: u32,
    /// `f_mode`.
    pub mode: u32,
    /// The descriptor led to another file after the call.
    pub changed: bool,
}

/// Which file it is, and its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// Process that was told of it.
    pub tgid: u32,
    /// The file.
    pub identity: Identity,
    /// Its path, from the process's root directory.
    pub path: Vec<u8>,
    /// Pages of it that were cached.
    pub cached: u64,
    /// The filesystem's magic number.
    pub magic: u64,
}

/// A name that a call was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Thread that made the call, whose record follows.
    pub tid: u32,
    /// The folder that a relative name begins at.
    pub folder: Identity,
    /// 0: the call's first name; 1: its second.
    pub which: u32,
    /// The name.
    pub name: Vec<u8>,
}

/// What ended with a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The thread alone.
    #[default]
    Thread,
    /// The process.
    Process,
    /// The process; of threads that ended with it more may be told.
    MaybeProcess,
}

/// A process that was made, met or ended, or a thread that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The process; of a fork the parent.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// When, in ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// Bytes that the thread had written by calls.
    pub wchar: u64,
    /// Its processor time in programs and in the kernel, in ns, by ticks.
    pub user: u64,
    /// See `user`.
    pub system: u64,
    /// All of it, in ns, exactly up to the latest tick.
    pub runtime: u64,
    /// Of a fork the child; of one that is met 1 if it has no other thread.
    pub other: u32,
    /// Of an end, what ended.
    pub end: End,
    /// `exit_code`: the signal in the lowest 7 bits.
    pub code: i32,
    /// Its name, as in /proc/PID/comm.
    pub name: [u8; 16],
}

impl Life {
    /// What the threads of a process that is met had written by calls until then, if that is known.
    pub fn wrote(&self) -> Option<u64> {
        (self.other == 1).then_some(self.wchar)
    }

    /// `user` and `system` in proportion, so that together they are `runtime`, as the kernel tells them of a
    /// thread that runs (`cputime_adjust`, 6.18).
    pub fn times(&self) -> (u64, u64) {
        let ticks = u128::from(self.user) + u128::from(self.system);
        let system =
            (u128::from(self.system) * u128::from(self.runtime)).checked_div(ticks).unwrap_or(0) as u64;
        (self.runtime - system, system)
    }
}

/// A process that became another program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The process.
    pub tgid: u32,
    /// When, in ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// Bytes that its thread had written by calls.
    pub wchar: u64,
    /// The file that was executed.
    pub program: Vec<u8>,
}

/// What the probes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A call ended.
    Call(Call),
    /// A file is about to be in a call for the first time.
    Named(Naming),
    /// A name that the call was given whose record follows.
    Given(Given),
    /// A process that is followed made another.
    Fork(Life),
    /// It became another program.
    Exec(Image),
    /// A thread ended.
    Exit(Life),
    /// A process of a group that is followed was met.
    Found(Life),
}

/// Bytes of a record; None beyond its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn at<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }
    fn u32(&self, at: usize) -> Option<u32> {
        self.at(at).map(u32::from_ne_bytes)
    }
    fn u64(&self, at: usize) -> Option<u64> {
        self.at(at).map(u64::from_ne_bytes)
    }
    fn identity(&self, at: usize) -> Option<Identity> {
        Some(Identity {
            ino: self.u64(at)?,
            size: self.u64(at + 8)?,
            dev: self.u32(at + 16)?,
            generation: self.u32(at + 20)?,
            links: self.u32(at + 24)?,
            mode: self.at(at + 28).map(u16::from_ne_bytes)?,
        })
    }
    /// Bytes up to the first zero.
    fn text(&self, at: usize) -> Vec<u8> {
        self.0.get(at..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }
}

impl Record {
    /// A record of the ring; None if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let from = Bytes(bytes);
        let (tgid, tid) = (from.u32(4)?, from.u32(8)?);
        Some(match from.u32(0)? {
            1 => Record::Call(call(&from, tgid, tid)?),
            2 => {
                let length = from.u32(52)? as usize;
                let names = bytes.get(72..72 + length)?;
                let (cached, magic) = (from.u64(56)?, from.u64(64)?);
                let path = path(names, from.u32(48)? != 0);
                Record::Named(Naming { tgid, identity: from.identity(16)?, path, cached, magic })
            }
            3 => {
                let (folder, which) = (from.identity(16)?, from.u32(48)?);
                Record::Given(Given { tid, folder, which, name: from.text(72) })
            }
            kind @ (4 | 6 | 7) => {
                let life = Life {
                    tgid,
                    tid,
                    at: from.u64(16)?,
                    wchar: from.u64(24)?,
                    user: from.u64(32)?,
                    system: from.u64(40)?,
                    runtime: from.u64(48)?,
                    other: from.u32(56)?,
                    end: match from.u32(56)? {
                        0 => End::Thread,
                        1 => End::Process,
                        _ => End::MaybeProcess,
                    },
                    code: from.u32(60)? as i32,
                    name: from.at(64)?,
                };
                match kind {
                    4 => Record::Fork(life),
                    6 => Record::Exit(life),
                    _ => Record::Found(life),
                }
            }
            5 => {
                Record::Exec(Image { tgid, at: from.u64(16)?, wchar: from.u64(24)?, program: from.text(32) })
            }
            _ => return None,
        })
    }
}

fn call(from: &Bytes<'_>, tgid: u32, tid: u32) -> Option<Call> {
    // The flight: what was noted when the call began.
    let at = |inside: usize| 32 + inside;
    let mut args = [0; 6];
    for (index, argument) in args.iter_mut().enumerate() {
        *argument = from.u64(at(8 + 8 * index))?;
    }
    Some(Call {
        tgid,
        tid,
        start: from.u64(at(0))?,
        end: from.u64(16)?,
        result: from.u64(24)? as i64,
        args,
        file: from.u64(at(56))?,
        before: from.u64(at(72))?,
        after: from.u64(at(80))?,
        identity: from.identity(at(88))?,
        number: from.u32(at(120))?,
        row: from.u32(at(124))?,
        flags: from.u32(at(128))?,
        mode: from.u32(at(132))?,
        changed: from.u32(at(136))? != 0,
    })
}

/// A path from the names of its entries, the lowest first, each with a zero; `is_cut`: its beginning is
/// missing.
fn path(names: &[u8], is_cut: bool) -> Vec<u8> {
    let mut path = if is_cut { "…".as_bytes().to_vec() } else { Vec::new() };
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_turned_round() {
        assert_eq!(path(b"c.txt\0b\0a\0", false), b"/a/b/c.txt");
        assert_eq!(path(b"", false), b"/");
        assert_eq!(path(b"b\0a\0", true), "…/a/b".as_bytes());
    }

    #[test]
    fn ticks_share_what_was_run() {
        let times = |user, system, runtime| Life { user, system, runtime, ..Life::default() }.times();
        assert_eq!(times(0, 0, 700), (700, 0));
        assert_eq!(times(3, 1, 1000), (750, 250));
        assert_eq!(times(0, 9, 100), (0, 100));
        assert_eq!(times(u64::MAX, u64::MAX, u64::MAX), (u64::MAX / 2 + 1, u64::MAX / 2));
    }

    #[test]
    fn no_bytes_are_a_record_that_is_cut() {
        let mut whole = vec![0; 176];
        whole[0] = 1;
        assert!(matches!(Record::decode(&whole), Some(Record::Call(_))));
        for length in 0..172 {
            assert_eq!(Record::decode(&whole[..length]), None, "{length}");
        }
        for kind in 0..=255 {
            whole[0] = kind;
            whole[52..56].fill(255);
            drop(Record::decode(&whole));
        }
    }
}
