//! Stores through shared mappings, between the calls that would show them.
//!
//! The tracer counts its program's stores at msync, munmap, close and the end. Between those this module
//! samples: it reads a process's writable shared mappings in /proc/PID/maps, asks the kernel for the dirty
//! part of their files (cachestat, Linux 6.5), and makes an estimated `MmapWrite` of what was added since the
//! last sample, minus the bytes the process wrote by calls.
//!
//! A sample takes time in proportion to the program's memory, and may hang on files of a server that does not
//! answer. So it is taken aside ([`Aside`]), without a lock, and returns numbers, which are evaluated on
//! arrival.
//!
//! The tracer counts pages again that were counted here, if they are still dirty; its counts are reduced by
//! them. Pages of a file that several processes have mapped count once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use cawl_core::host_text::{self, SharedMapping};
use cawl_wire::{Event, FileKind, Op, flag};
use nix::errno::Errno;
use tokio::time::Instant;

use crate::aside::{Aside, Late, Pending};
use crate::lock;

/// Interval of samples of a process with these mappings, and the longest of one without any.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(8);
/// Most files sampled in one process.
const MAX: usize = 256;
/// Time limit of a sample: of files on a server it can take seconds.
const LIMIT: Duration = Duration::from_secs(10);

#[expect(
    unsafe_code,
    reason = "it takes numbers and answers with one; a bad descriptor is an error like another"
)]
// SAFETY: the signature is that of cachestat.c.
unsafe extern "C" {
    safe fn cawl_dirty_pages(fd: i32, offset: u64, length: u64) -> i64;
}

/// A file's device and inode number.
type Identity = (u64, u64);

/// The state of mapped files, shared by all sessions.
#[derive(Default)]
pub struct MappedFiles(Mutex<BTreeMap<Identity, MappedFile>>);

#[derive(Default)]
struct MappedFile {
    /// Dirty bytes at the last sample of any process.
    dirty: u64,
    /// Bytes written by calls since.
    written: u64,
    /// Processes that follow it.
    users: u32,
}

/// A sample of a mapped file.
#[derive(Debug)]
struct Seen {
    identity: Identity,
    /// Offset in the file of the mapping's first byte.
    offset: u64,
    /// Dirty bytes of the file.
    dirty: u64,
    /// For a new file: dirty bytes among the pages touched by the process, minus the bytes it may have
    /// written by calls.
    touched: u64,
}

/// The sample of a process's mappings.
type Look = io::Result<Vec<Seen>>;

/// Why the mappings of a process are no longer sampled.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// A note for the report.
    pub note: String,
    /// True if the process's files are the reason, false if the machine is.
    pub is_its_own: bool,
}

/// The mappings of one process.
pub struct Mappings<'a> {
    pid: u32,
    levels: &'a MappedFiles,
    aside: &'a Aside,
    /// Known files, with the present dirty bytes that were counted here.
    files: BTreeMap<Identity, u64>,
    pause: Duration,
    next: Option<Instant>,
    /// The running sample, and a finished one.
    pending: Option<Pending<Look>>,
    found: Option<Result<Look, Late>>,
    /// True if sampling failed.
    failed: bool,
}

impl<'a> Mappings<'a> {
    /// Of this process.
    pub fn new(pid: u32, levels: &'a MappedFiles, aside: &'a Aside) -> Mappings<'a> {
        Mappings {
            pid,
            levels,
            aside,
            files: BTreeMap::new(),
            pause: SHORTEST,
            next: None,
            pending: None,
            found: None,
            failed: false,
        }
    }

    /// The process has a regular file, which it may map.
    pub fn has_file(&mut self) {
        if !self.failed {
            self.pause = SHORTEST;
            self.next.get_or_insert_with(|| Instant::now() + SHORTEST);
        }
    }

    /// Returns when it is time for [`Mappings::look`]; never, without files.
    pub async fn due(&mut self) {
        if let Some(pending) = &mut self.pending {
            self.found = Some(pending.done().await);
            self.pending = None;
        } else if let Some(next) = self.next {
            tokio::time::sleep_until(next).await;
        } else {
            std::future::pending().await
        }
    }

    /// Begins a sample, or takes a finished one: the events of newly dirty bytes, and why sampling ends.
    pub fn sample(&mut self) -> (Vec<Event>, Option<Failure>) {
        let Some(found) = self.found.take() else {
            let (pid, known) = (self.pid, self.files.keys().copied().collect());
            self.begin(move || look(pid, &known));
            return (Vec::new(), None);
        };
        let mut calls = Vec::new();
        let failure = match found {
            Ok(Ok(seen)) => {
                self.take(&seen, &mut calls);
                self.pause = if self.files.is_empty() { (2 * self.pause).min(LONGEST) } else { SHORTEST };
                self.next = Some(Instant::now() + self.pause);
                None
            }
            Ok(Err(error)) => self.give_up(&error, false),
            Err(late) => self.give_up(&late, true),
        };
        (calls, failure)
    }

    fn begin(&mut self, look: impl FnOnce() -> Look + Send + 'static) {
        self.pending = self.aside.begin(LIMIT, look);
        // Without a free place it waits: the tracer counts dirty pages at the end.
        self.next = Some(Instant::now() + LONGEST);
    }

    fn give_up(&mut self, error: &dyn std::error::Error, is_its_own: bool) -> Option<Failure> {
        self.failed = true;
        self.next = None;
        let note = format!(
            "stores through mappings of process {} are known only when it calls msync, munmap or close, or ends: {error}",
            self.pid
        );
        // If it has ended, so will its session.
        cawl_host::is_running(self.pid).then_some(Failure { note, is_its_own })
    }

    fn take(&mut self, seen: &[Seen], calls: &mut Vec<Event>) {
        for file in seen {
            let news = self.news(file);
            if news > 0 {
                let now = cawl_host::now();
                let mut event = Event::new(Op::MmapWrite);
                (event.start, event.pid, event.tid) = (now.0, self.pid, self.pid);
                ((event.dev, event.ino), event.offset) = (file.identity, file.offset);
                (event.requested, event.returned) = (news, news as i64);
                event.kind = FileKind::Regular;
                event.flags = flag::ESTIMATED | flag::WRITABLE;
                calls.push(event);
            }
        }
        let seen: BTreeSet<Identity> = seen.iter().map(|file| file.identity).collect();
        let gone: Vec<Identity> = self.files.keys().filter(|file| !seen.contains(file)).copied().collect();
        gone.into_iter().for_each(|identity| self.leave(identity));
    }

    /// Bytes made dirty by stores since the last sample.
    fn news(&mut self, seen: &Seen) -> u64 {
        let (identity, dirty) = (seen.identity, seen.dirty);
        let mut levels = lock(&self.levels.0);
        let told = self.files.entry(identity);
        let is_new = matches!(told, std::collections::btree_map::Entry::Vacant(_));
        let told = told.or_default();
        let level = levels.entry(identity).or_default();
        level.users += u32::from(is_new);
        let news = if is_new && level.users == 1 {
            // Other processes may have written the file before.
            seen.touched
        } else {
            dirty.saturating_sub(level.dirty).saturating_sub(level.written)
        };
        (level.dirty, level.written) = (dirty, 0);
        *told = (*told + news).min(dirty);
        news
    }

    fn leave(&mut self, identity: Identity) {
        self.files.remove(&identity);
        let mut levels = lock(&self.levels.0);
        if let Some(level) = levels.get_mut(&identity) {
            level.users -= 1;
            if level.users == 0 {
                levels.remove(&identity);
            }
        }
    }

    /// Takes calls of the process: the tracer's counts of these files are reduced by the bytes counted here,
    /// and bytes written by calls are no stores.
    pub fn pass(&mut self, calls: &mut Vec<Event>) {
        if self.files.is_empty() {
            return;
        }
        let mut levels = lock(&self.levels.0);
        let files = &mut self.files;
        calls.retain_mut(|call| {
            let identity = (call.dev, call.ino);
            match (files.get_mut(&identity), levels.get_mut(&identity)) {
                (Some(told), Some(level)) => level.pass(call, told),
                _ => true,
            }
        });
    }
}

impl MappedFile {
    /// Reduces a call on the file by the `told` bytes counted here; false if nothing is left.
    fn pass(&mut self, call: &mut Event, told: &mut u64) -> bool {
        use Op::*;
        let returned = call.returned.max(0) as u64;
        match call.op {
            MmapWrite => {
                let again = returned.min(*told);
                *told -= again;
                call.returned -= again as i64;
                let left = call.returned.max(0) as u64;
                if call.aux == 0 {
                    call.requested = left;
                }
                self.dirty += left;
                return left > 0;
            }
            Write | Pwrite | Writev | Pwritev | CopyRange | Sendfile | Splice | AioWrite => {
                self.written += returned;
            }
            _ => self.written += call.flushed().unwrap_or(0),
        }
        true
    }
}

impl Drop for Mappings<'_> {
    fn drop(&mut self) {
        while let Some((&identity, _)) = self.files.first_key_value() {
            self.leave(identity);
        }
    }
}

/// Samples a process's mapped files; `known` are those seen before.
fn look(pid: u32, known: &BTreeSet<Identity>) -> Look {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    // Large, so read only for new files.
    let mut smaps = None;
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for mapping in host_text::shared_mappings(&text).take(MAX) {
        // A file that was removed or replaced is skipped.
        let Some((file, identity)) = open(pid, &mapping) else { continue };
        if !seen.insert(identity) {
            continue;
        }
        let pages = cawl_dirty_pages(file.as_raw_fd(), 0, 0);
        let Ok(pages) = u64::try_from(pages) else {
            match Errno::from_raw(-pages as i32) {
                Errno::ENOSYS => {
                    return Err(io::Error::other("this kernel has no cachestat (Linux 6.5)"));
                }
                // Files in memory, and filesystems without cachestat.
                _ => continue,
            }
        };
        let dirty = pages * cawl_host::page().0;
        let touched = if known.contains(&identity) {
            0
        } else {
            let smaps = smaps
                .get_or_insert_with(|| fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default());
            let touched = host_text::smaps_dirty(smaps, mapping.range).unwrap_or(0).min(dirty);
            touched.saturating_sub(cawl_host::wchar(pid).process.unwrap_or(u64::MAX))
        };
        found.push(Seen { identity, offset: mapping.offset, dirty, touched });
    }
    Ok(found)
}

/// The mapped file: by the mapping itself, which takes privileges, else by its name.
fn open(pid: u32, mapping: &SharedMapping<'_>) -> Option<(File, Identity)> {
    let exact = format!("/proc/{pid}/map_files/{}", mapping.range);
    // As the process sees it, which may have another root.
    let named = format!("/proc/{pid}/root{}", mapping.path);
    [exact, named].iter().find_map(|path| {
        // The name may belong to another file by now.
        let file = cawl_host::open_regular(Path::new(path)).ok()?;
        let meta = file.metadata().ok()?;
        (meta.ino() == mapping.ino).then(|| (file, (meta.dev(), meta.ino())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = (5, 7);

    fn call(op: Op, bytes: i64) -> Event {
        Event { dev: FILE.0, ino: FILE.1, returned: bytes, requested: bytes as u64, ..Event::new(op) }
    }

    fn seen(dirty: u64) -> Seen {
        Seen { identity: FILE, offset: 0, dirty, touched: 0 }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let (levels, aside) = (MappedFiles::default(), Aside::default());
        let mut first = Mappings::new(u32::MAX, &levels, &aside);
        let mut second = Mappings::new(u32::MAX, &levels, &aside);
        // Without an earlier sample, nothing counts as a store.
        assert_eq!(first.news(&seen(1000)), 0);
        assert_eq!(first.news(&seen(5000)), 4000);
        assert_eq!(second.news(&seen(5000)), 0);
        assert_eq!(second.news(&seen(6000)), 1000);
        // The tracer of the first process counts all dirty bytes.
        let mut calls = vec![call(Op::MmapWrite, 6000), call(Op::Write, 300)];
        first.pass(&mut calls);
        let told: Vec<i64> = calls.iter().map(|call| call.returned).collect();
        assert_eq!(told, [2000, 300]);
        // 2000 more were counted by the tracer, 300 written by a call.
        assert_eq!(first.news(&seen(8500)), 200);
        let mut calls = vec![call(Op::MmapWrite, 100)];
        first.pass(&mut calls);
        assert!(calls.is_empty());
        // Written back, and stored again.
        assert_eq!((first.news(&seen(0)), first.news(&seen(700))), (0, 700));
        drop(first);
        assert_eq!(second.news(&seen(800)), 100);
        drop(second);
        assert!(lock(&levels.0).is_empty());
    }

    #[test]
    fn what_was_touched_before_the_first_look_is_told() {
        let (levels, aside) = (MappedFiles::default(), Aside::default());
        let mut mapped = Mappings::new(u32::MAX, &levels, &aside);
        assert_eq!(mapped.news(&Seen { touched: 600, ..seen(1000) }), 600);
        // Another process maps the same file: its dirty bytes were counted, or were there before.
        let mut other = Mappings::new(u32::MAX, &levels, &aside);
        assert_eq!(other.news(&Seen { touched: 600, ..seen(1000) }), 0);
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_looked_at_is_given_up() {
        let (levels, aside) = (MappedFiles::default(), Aside::default());
        let mut mapped = Mappings::new(u32::MAX, &levels, &aside);
        assert!(mapped.next.is_none());
        mapped.has_file();
        assert!(mapped.next.is_some());
        assert_eq!(mapped.sample(), (Vec::new(), None));
        mapped.due().await;
        assert_eq!(mapped.sample(), (Vec::new(), None));
        mapped.has_file();
        assert!(mapped.next.is_none() && mapped.failed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_given_up_and_told_once() {
        let (levels, aside) = (MappedFiles::default(), Aside::default());
        let mut mapped = Mappings::new(std::process::id(), &levels, &aside);
        mapped.has_file();
        let (_come_back, hangs) = std::sync::mpsc::channel::<()>();
        mapped.begin(move || Ok(hangs.recv().map_or(Vec::new(), |()| vec![seen(1000)])));
        // The wait can be cancelled and repeated.
        drop(tokio::time::timeout(LIMIT / 2, mapped.due()).await);
        assert!(mapped.pending.is_some());
        mapped.due().await;
        let (calls, failure) = mapped.sample();
        assert!(calls.is_empty());
        let failure = failure.expect("it is told");
        assert!(failure.is_its_own && failure.note.ends_with("no answer within 10 s"), "{failure:?}");
        mapped.has_file();
        assert!(tokio::time::timeout(LIMIT, mapped.due()).await.is_err(), "there are no more looks");
    }
}
