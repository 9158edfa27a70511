//! Each call as the line of the system call that it is, or that its stream makes.

use std::io;

use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag, lock};

use super::super::Call;
use super::super::traffic::Transfer;
use super::processes::Descriptor;
use super::{NO_CALL, NO_NAME, Quoted, Shown, Strace, is_called};

/// Names of flags of an open file, as far as a trace has them.
const FLAGS: [(u32, &str); 8] = [
    (flag::CREATED, "|O_CREAT|O_EXCL"),
    (flag::TRUNC, "|O_TRUNC"),
    (flag::APPEND, "|O_APPEND"),
    (flag::DSYNC, "|O_DSYNC"),
    (flag::SYNC, "|O_SYNC"),
    (flag::DIRECT, "|O_DIRECT"),
    (flag::TMPFILE, "|O_TMPFILE"),
    (flag::CLOEXEC, "|O_CLOEXEC"),
];

const ADVICE: [&str; 6] = ["NORMAL", "RANDOM", "SEQUENTIAL", "WILLNEED", "DONTNEED", "NOREUSE"];

impl Strace {
    pub(super) fn tell(&mut self, call: &Call<'_>) -> io::Result<()> {
        use Op::*;
        let event = call.event;
        if !is_called(event.op) {
            if event.op != Resident {
                self.losses.count(event, NO_CALL);
            }
            return Ok(());
        }
        self.process(event)?;
        let (at, length) = (event.offset, event.requested);
        let shown = Shown(event, call.path);
        let name = Quoted(call.path.unwrap_or(""));
        match event.op {
            Open => self.open(event, call.path),
            Close => self.close(event, &shown),
            Dup => self.dup(event, &shown),
            Seek => self.seek(event, &shown),
            Write | Writev | Read | CopyRange | Sendfile | Splice | Pwrite | Pwritev | Pread => {
                self.moves(event, &shown)
            }
            StreamOpen | StreamWrite | StreamFlush | StreamSeek | StreamClose | StreamExit | StreamRead => {
                self.stream(event, call.path)
            }
            Truncate if event.fd >= 0 => self.line(event, format_args!("ftruncate({shown}, {at})"), 0),
            Truncate => self.line(event, format_args!("truncate({name}, {at})"), 0),
            Allocate => {
                self.line(event, format_args!("fallocate({shown}, {:#x}, {at}, {length})", event.aux), 0)
            }
            Unlink if call.path.is_some() && event.ino != 0 => {
                self.line(event, format_args!("unlink({name})"), 0)
            }
            Rename => self.rename(event),
            Fsync | Fdatasync | Syncfs => self.line(event, format_args!("{}({shown})", event.op.name()), 0),
            Sync => self.line(event, "sync()", 0),
            SyncRange => self.line(
                event,
                format_args!("sync_file_range({shown}, {at}, {length}, {:#x})", event.aux),
                0,
            ),
            Msync => self.line(event, format_args!("msync(0x7ffe00000000, {length}, MS_SYNC)"), 0),
            Advise => {
                let advice = ADVICE.get(event.aux as usize).copied().unwrap_or("NORMAL");
                self.line(event, format_args!("fadvise64({shown}, {at}, {length}, POSIX_FADV_{advice})"), 0)
            }
            Lock => self.lock(event, &shown),
            Fork | Spawn => self.child(event),
            Exec => {
                if let Some(process) = self.processes.get_mut(&event.pid) {
                    process.exec = Some(*event);
                }
                Ok(())
            }
            _ => {
                self.losses.count(event, NO_NAME);
                Ok(())
            }
        }
    }

    fn open(&mut self, event: &Event, path: Option<&str>) -> io::Result<()> {
        let fd = i32::try_from(event.returned).unwrap_or(event.fd);
        if event.errno == 0 {
            let process = self.process(event)?;
            process.table.remove(&fd);
            process.open(fd, event.has(flag::CLOEXEC));
        }
        let access = if event.has(flag::WRITABLE) { "O_RDWR" } else { "O_RDONLY" };
        let directory = if event.kind == FileKind::Directory { "|O_DIRECTORY" } else { "" };
        let more: String = FLAGS.iter().filter(|(bit, _)| event.has(*bit)).map(|(_, name)| *name).collect();
        let opened = Event { fd, ..*event };
        let shown = Shown(&opened, path);
        let name = Quoted(path.unwrap_or(""));
        self.line(event, format_args!("openat(AT_FDCWD, {name}, {access}{directory}{more}, 0666)"), &shown)?;
        let grew = event.errno == 0 && event.kind == FileKind::Regular && event.requested > 0;
        if grew && event.has(flag::WRITABLE) && event.op == Op::Open {
            let stat = format_args!("{{st_mode=S_IFREG|0644, st_size={}, ...}}", event.requested);
            self.add(event.tid, event.end(), format_args!("fstat({shown}, {stat}) = 0"))?;
        }
        Ok(())
    }

    fn close(&mut self, event: &Event, shown: &Shown<'_>) -> io::Result<()> {
        self.process(event)?.table.remove(&event.fd);
        self.line(event, format_args!("close({shown})"), 0)
    }

    fn dup(&mut self, event: &Event, shown: &Shown<'_>) -> io::Result<()> {
        let (to, closed_by_exec) = (event.returned as i32, event.has(flag::CLOEXEC));
        let process = self.process(event)?;
        if to == event.fd {
            process.open(to, closed_by_exec).closed_by_exec = closed_by_exec;
            let flag = if closed_by_exec { "FD_CLOEXEC" } else { "0" };
            return self.line(event, format_args!("fcntl({shown}, F_SETFD, {flag})"), 0);
        }
        let position = process.position(event.fd).clone();
        process.table.insert(to, Descriptor { position, closed_by_exec });
        let flags = if closed_by_exec { "O_CLOEXEC" } else { "0" };
        let event_of_new = Event { fd: to, ..*event };
        let new = Shown(&event_of_new, shown.1);
        self.line(event, format_args!("dup3({shown}, {to}, {flags})"), new)
    }

    fn seek(&mut self, event: &Event, shown: &Shown<'_>) -> io::Result<()> {
        if event.errno == 0 && event.offset != UNKNOWN_OFFSET {
            self.process(event)?.position(event.fd).set(event.offset);
        }
        let to = if event.offset == UNKNOWN_OFFSET { 0 } else { event.offset };
        self.line(event, format_args!("lseek({shown}, {to}, SEEK_SET)"), to)
    }

    /// Has a reader's position be that of the call, which moves it on by so many bytes.
    fn stand(&mut self, event: &Event, shown: &Shown<'_>, bytes: u64) -> io::Result<()> {
        let has_place = matches!(event.kind, FileKind::Regular | FileKind::Block);
        if !has_place || event.offset == UNKNOWN_OFFSET {
            return Ok(());
        }
        let stood = self.process(event)?.position(event.fd).replace(event.offset.saturating_add(bytes));
        if stood != event.offset && !event.has(flag::APPEND) {
            let at = event.offset;
            self.add(event.tid, event.start, format_args!("lseek({shown}, {at}, SEEK_SET) = {at}"))?;
        }
        Ok(())
    }

    fn moves(&mut self, event: &Event, shown: &Shown<'_>) -> io::Result<()> {
        let (returned, length, at) = (event.returned, event.requested, event.offset);
        if !matches!(event.op, Op::Pwrite | Op::Pwritev | Op::Pread) {
            self.stand(event, shown, returned.max(0) as u64)?;
        }
        let vector = format_args!("[{{iov_base=\"\"..., iov_len={length}}}], 1");
        match event.op {
            Op::Write => self.line(event, format_args!("write({shown}, \"\"..., {length})"), returned),
            Op::Read => self.line(event, format_args!("read({shown}, \"\"..., {length})"), returned),
            Op::Pwrite => {
                self.line(event, format_args!("pwrite64({shown}, \"\"..., {length}, {at})"), returned)
            }
            Op::Pread => {
                self.line(event, format_args!("pread64({shown}, \"\"..., {length}, {at})"), returned)
            }
            Op::Writev => self.line(event, format_args!("writev({shown}, {vector})"), returned),
            Op::Pwritev => {
                let flags = match (event.has(flag::SYNC), event.has(flag::DSYNC)) {
                    (true, _) => "RWF_SYNC",
                    (_, true) => "RWF_DSYNC",
                    _ => "0",
                };
                self.line(event, format_args!("pwritev2({shown}, {vector}, {at}, {flags})"), returned)
            }
            // What is read is not in a trace.
            Op::Sendfile => self.line(event, format_args!("sendfile({shown}, -1, NULL, {length})"), returned),
            op => self.line(
                event,
                format_args!("{}(-1, NULL, {shown}, NULL, {length}, 0)", op.name()),
                returned,
            ),
        }
    }

    /// What a stream's call had the C library ask of the kernel, in one call.
    fn stream(&mut self, event: &Event, path: Option<&str>) -> io::Result<()> {
        let shown = Shown(event, path);
        if event.op == Op::StreamOpen {
            let is_open = self.process(event)?.table.contains_key(&event.fd);
            // One that was made of a descriptor.
            return if is_open {
                Ok(())
            } else {
                self.open(&Event { returned: event.fd.into(), ..*event }, path)
            };
        }
        let mut rest = *event;
        if let Some(moved) = Transfer::of(event) {
            self.stand(event, &shown, moved.bytes)?;
            let name = if moved.writes { "write" } else { "read" };
            let bytes = moved.bytes;
            self.line(event, format_args!("{name}({shown}, \"\"..., {bytes})"), bytes)?;
            (rest.duration, rest.start) = (0, event.start);
        }
        match event.op {
            Op::StreamSeek if event.offset != UNKNOWN_OFFSET => self.seek(&rest, &shown),
            Op::StreamClose => self.close(&rest, &shown),
            _ => Ok(()),
        }
    }

    fn lock(&mut self, event: &Event, shown: &Shown<'_>) -> io::Result<()> {
        let is = |bit: u32| event.aux & bit != 0;
        let action = match event.aux & lock::ACTION {
            lock::SHARED => ["LOCK_SH", "F_RDLCK"],
            lock::UNLOCK => ["LOCK_UN", "F_UNLCK"],
            _ => ["LOCK_EX", "F_WRLCK"],
        };
        if is(lock::FLOCK) {
            return self.line(event, format_args!("flock({shown}, {})", action[0]), 0);
        }
        let command = if is(lock::DESCRIPTION) { "F_OFD_SETLKW" } else { "F_SETLKW" };
        let from = if event.offset == UNKNOWN_OFFSET { 0 } else { event.offset };
        let range = format_args!("l_whence=SEEK_SET, l_start={from}, l_len={}", event.requested);
        self.line(event, format_args!("fcntl({shown}, {command}, {{l_type={}, {range}}})", action[1]), 0)
    }

    fn child(&mut self, event: &Event) -> io::Result<()> {
        let forked = event.op == Op::Fork;
        if let (Ok(child @ 1..), 0) = (u32::try_from(event.returned), event.errno) {
            let made = self.process(event)?.child(forked);
            let images = self.processes.remove(&child).map(|known| known.images).unwrap_or_default();
            self.processes.insert(child, super::Process { images, ..made });
        }
        let text = if forked { "clone(child_stack=NULL, flags=SIGCHLD)" } else { "vfork()" };
        self.line(event, text, event.returned)
    }
}
