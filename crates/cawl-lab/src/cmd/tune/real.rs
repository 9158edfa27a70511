//! Patterns written for real: the calls that the model was asked about.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context;
use cawl_core::{Nanos, Time};
use cawl_host::direct::AlignedBuffer;
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::Scratch;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use crate::tune::{Access, Act, Order, Setting, Way, Workload, acts};

/// The files of a workload; removed when dropped.
pub struct Files<'a> {
    scratch: &'a Scratch,
    workload: Workload,
    data: AlignedBuffer,
    /// Holds the number of a signal that asks to stop, or zero.
    signal: &'a AtomicUsize,
}

impl<'a> Files<'a> {
    /// Makes the files as they are before the workload.
    pub fn prepare(
        scratch: &'a Scratch,
        workload: Workload,
        signal: &'a AtomicUsize,
    ) -> anyhow::Result<Files<'a>> {
        let files = Files { scratch, workload, data: AlignedBuffer::new(1 << 20), signal };
        let is_new = workload.order == Order::New;
        for name in files.names().into_iter().filter(|_| !is_new) {
            let file = scratch.file(&name)?;
            files.fill(&file, workload.size()).with_context(|| format!("cannot fill {name}"))?;
        }
        Ok(files)
    }

    fn names(&self) -> Vec<String> {
        (0..self.workload.writers).map(|writer| format!("writer-{writer}")).collect()
    }

    fn fill(&self, file: &File, size: u64) -> io::Result<()> {
        let data = self.data.bytes();
        for at in (0..size).step_by(data.len()) {
            file.write_all_at(&data[..(size - at).min(data.len() as u64) as usize], at)?;
        }
        file.sync_all()
    }

    /// Runs the workload once; None where the filesystem has no direct writes.
    pub fn run(&self, setting: Setting) -> anyhow::Result<Option<Nanos>> {
        let Some(files) = self.open(setting.access)? else { return Ok(None) };
        let ready = Barrier::new(files.len());
        let write = |(writer, file): (usize, &File)| -> io::Result<(Time, Time)> {
            let data = AlignedBuffer::new(self.workload.record.0 as usize);
            let mut stream = match setting.way {
                Way::Stream(buffer) => Stream::new(file, buffer as usize),
                Way::Write(_) => Stream::new(file, 0),
            };
            let acts = acts(self.workload, setting, writer as u32);
            ready.wait();
            let begin = cawl_host::now();
            for act in acts {
                if self.signal.load(Ordering::Relaxed) != 0 {
                    break;
                }
                match act {
                    Act::Write { offset, bytes } => {
                        file.write_all_at(&data.bytes()[..bytes as usize], offset)?
                    }
                    Act::Put { offset, bytes } => stream.put(&data.bytes()[..bytes as usize], offset)?,
                    Act::Flush | Act::Close => stream.flush()?,
                    Act::Sync => file.sync_all()?,
                }
            }
            Ok((begin, cawl_host::now()))
        };
        let times: io::Result<Vec<(Time, Time)>> = match &files[..] {
            [file] => write((0, file)).map(|times| vec![times]),
            files => thread::scope(|scope| {
                let begin = |one| scope.spawn(move || write(one));
                let writers: Vec<_> = files.iter().enumerate().map(begin).collect();
                let ended = writers.into_iter().map(|writer| writer.join());
                ended.map(|times| times.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            }),
        };
        let times = times.context("cannot write in the folder; is the disk full?")?;
        Interrupted::by(self.signal)?;
        self.restore(&files)?;
        let begin = times.iter().map(|(begin, _)| *begin).min();
        let end = times.iter().map(|(_, end)| *end).max();
        Ok(end.zip(begin).map(|(end, begin)| end.since(begin)))
    }

    /// Opens the files; nothing of the filesystem is dirty, and nothing of them cached.
    fn open(&self, access: Access) -> anyhow::Result<Option<Vec<File>>> {
        let flags = match access {
            Access::Cached => OFlag::empty(),
            Access::Dsync => OFlag::O_DSYNC,
            Access::Sync => OFlag::O_SYNC,
            Access::Direct => OFlag::O_DIRECT,
            Access::DirectDsync => OFlag::O_DIRECT | OFlag::O_DSYNC,
        };
        let mut files = Vec::new();
        for name in self.names() {
            if self.workload.order == Order::New {
                drop(self.scratch.file(&name)?);
            }
            let file = match self.scratch.again(&name, flags) {
                Ok(file) => file,
                Err(_) if flags.contains(OFlag::O_DIRECT) => {
                    self.forget();
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            files.push(file);
        }
        self.scratch.sync()?;
        for file in &files {
            posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        Ok(Some(files))
    }

    /// Makes the files again what they were.
    fn restore(&self, files: &[File]) -> anyhow::Result<()> {
        match self.workload.order {
            Order::New => self.forget(),
            Order::Append => files.iter().try_for_each(|file| file.set_len(self.workload.size()))?,
            Order::Overwrite | Order::Random => {}
        }
        Ok(())
    }

    fn forget(&self) {
        if self.workload.order == Order::New {
            self.names().iter().for_each(|name| self.scratch.remove(name));
        }
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        self.names().iter().for_each(|name| self.scratch.remove(name));
    }
}

/// A stream as glibc's are (`_IO_new_file_xsputn`): a full buffer is written, whole buffers pass it by.
struct Stream<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    size: usize,
    /// Where the buffer's content goes.
    begin: u64,
}

impl<'a> Stream<'a> {
    fn new(file: &'a File, size: usize) -> Stream<'a> {
        Stream { file, buffer: Vec::with_capacity(size), size, begin: 0 }
    }

    fn put(&mut self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.begin = offset;
        } else if self.begin + self.buffer.len() as u64 != offset {
            self.flush()?;
            self.begin = offset;
        }
        let mut take = |buffer: &mut Vec<u8>, bytes: usize| {
            let (taken, rest) = data.split_at(bytes);
            buffer.extend_from_slice(taken);
            data = rest;
            offset += bytes as u64;
            rest.len()
        };
        let room = self.size - self.buffer.len();
        let mut left = take(&mut self.buffer, 0);
        if left <= room {
            take(&mut self.buffer, left);
            return Ok(());
        }
        if !self.buffer.is_empty() {
            left = take(&mut self.buffer, room);
            self.flush()?;
        }
        let whole = left - left % self.size.max(1);
        self.file.write_all_at(&data[..whole], offset)?;
        self.begin = offset + whole as u64;
        self.buffer.extend_from_slice(&data[whole..]);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.begin)?;
        self.begin += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{Bytes, SyncsKept};

    use cawl_measure::scratch;

    /// Records of all sizes through buffers of all sizes leave what was put.
    #[test]
    fn a_stream_writes_what_it_was_given() {
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        for size in [0, 1, 100, 4096, 1 << 20] {
            for record in [1_usize, 99, 4096, 5000, 40_000] {
                let file = tempfile::tempfile().unwrap();
                let mut stream = Stream::new(&file, size);
                let end = record * (20_000 / record).max(2);
                for at in (0..end).step_by(record) {
                    stream.put(&data[at..at + record], at as u64).unwrap();
                    assert!(stream.buffer.len() <= size.max(1), "{size} {record}");
                }
                stream.flush().unwrap();
                let mut read = vec![0; end];
                file.read_exact_at(&mut read, 0).unwrap();
                assert!(
                    read == data[..end] && file.metadata().unwrap().len() == end as u64,
                    "{size} {record}"
                );
            }
        }
    }

    #[test]
    fn every_pattern_is_written_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(dir.path(), scratch::TUNE).unwrap();
        let signal = AtomicUsize::new(0);
        let before = || fs_names(dir.path());
        let empty = before();
        for order in Order::ALL {
            let workload = Workload { order, record: Bytes(4096), records: 5, writers: 2 };
            let files = Files::prepare(&scratch, workload, &signal).unwrap();
            for access in Access::ALL {
                let way = Way::Write(4096);
                let setting = Setting { way, syncs: SyncsKept::OneIn(2), access, limits: None };
                if let Some(took) = files.run(setting).unwrap() {
                    assert!(took > Nanos::ZERO);
                }
            }
            let stream = Setting {
                way: Way::Stream(8192),
                syncs: SyncsKept::Last,
                access: Access::Cached,
                limits: None,
            };
            assert!(files.run(stream).unwrap().is_some());
            if order != Order::New {
                let size = std::fs::metadata(scratch.path("writer-1")).unwrap().len();
                assert_eq!(size, workload.size(), "{order:?}");
            }
            drop(files);
            assert_eq!(before(), empty, "{order:?}");
        }
        drop(scratch);
        assert!(fs_names(dir.path()).is_empty());
    }

    fn fs_names(folder: &std::path::Path) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            names.push(entry.file_name().to_string_lossy().into_owned());
            if entry.path().is_dir() {
                names.extend(fs_names(&entry.path()));
            }
        }
        names.sort();
        names
    }
}
