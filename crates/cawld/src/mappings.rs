//! Stores through shared mappings, while the program makes no call that would tell of them.
//!
//! The tracer looks at its program's mappings when the program calls msync, munmap, close or ends. Between
//! those calls this module looks: it finds a process's writable shared mappings of files in /proc/PID/maps,
//! asks the kernel how much of those files is dirty (cachestat, Linux 6.5), and makes an estimated
//! `MmapWrite` of what has been added since the latest look, less what the process wrote to the file by
//! calls.
//!
//! Looking takes as long as the program's memory is large, and for ever where its files lie on a server that
//! does not answer. So it is done aside ([`Aside`]), without a lock, and gives numbers; what they mean is
//! reckoned when they are there.
//!
//! What was told here the tracer finds again at its next look, if it is still dirty then; it is taken off
//! there. Several processes may have mapped the same file; what one of them told is not told again by
//! another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cawl_core::host_text::{self, SharedMapping};
use cawl_wire::{Event, FileKind, Op, flag};
use nix::errno::Errno;
use tokio::time::Instant;

use crate::aside::{Aside, Late, Pending};

/// Time between looks at a process that has such mappings, and the longest at one that has none.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(8);
/// Files that are looked at in one process.
const MOST: usize = 256;
/// How long a look is waited for: of files on a server it can take seconds.
const LIMIT: Duration = Duration::from_secs(10);

// cachestat.c
#[expect(
    unsafe_code,
    reason = "it takes numbers and answers with one; a bad descriptor is an error like another"
)]
unsafe extern "C" {
    safe fn cawl_dirty_pages(fd: i32, offset: u64, length: u64) -> i64;
}

/// A file's device and inode number.
type Identity = (u64, u64);

/// What all sessions know of files that are mapped.
#[derive(Default)]
pub struct Levels(Mutex<BTreeMap<Identity, Level>>);

#[derive(Default)]
struct Level {
    /// Dirty bytes at the latest look of any process.
    dirty: u64,
    /// Bytes written by calls since.
    written: u64,
    /// Processes that follow it.
    users: u32,
}

impl Levels {
    fn levels(&self) -> MutexGuard<'_, BTreeMap<Identity, Level>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mapped file, when it was looked at.
#[derive(Debug)]
struct Seen {
    identity: Identity,
    /// Place in the file of the mapping's first byte.
    offset: u64,
    /// Dirty bytes of the file.
    dirty: u64,
    /// Of a file that was not followed before: dirty bytes among the pages that the process has touched, less
    /// what it may have written by calls.
    touched: u64,
}

/// What a look at a process's mappings found.
type Look = io::Result<Vec<Seen>>;

/// Why stores of a process are not seen any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the report must say.
    pub note: String,
    /// The process's files are the reason, not the machine.
    pub is_its_own: bool,
}

/// The mappings of one process.
pub struct Mappings<'a> {
    pid: u32,
    levels: &'a Levels,
    aside: &'a Aside,
    /// Files followed, and the part of what is dirty now that was told here.
    files: BTreeMap<Identity, u64>,
    pause: Duration,
    next: Option<Instant>,
    /// A look that is under way, and what one has found.
    pending: Option<Pending<Look>>,
    found: Option<Result<Look, Late>>,
    /// Nothing can be seen.
    failed: bool,
}

impl<'a> Mappings<'a> {
    /// Of this process.
    pub fn new(pid: u32, levels: &'a Levels, aside: &'a Aside) -> Mappings<'a> {
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

    /// The process has a regular file, and may map it.
    pub fn has_file(&mut self) {
        if !self.failed {
            self.pause = SHORTEST;
            self.next.get_or_insert_with(|| Instant::now() + SHORTEST);
        }
    }

    /// Returns when it is time for [`Mappings::look`]; never, if there can be nothing.
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

    /// Begins a look, or takes what one has found: the events of what became dirty, and why it was the last
    /// look.
    pub fn look(&mut self) -> (Vec<Event>, Option<Failure>) {
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
        // While there is no place for it, it can wait: the tracer tells what is dirty at the end.
        self.next = Some(Instant::now() + LONGEST);
    }

    fn give_up(&mut self, error: &dyn std::error::Error, is_its_own: bool) -> Option<Failure> {
        self.failed = true;
        self.next = None;
        let note = format!(
            "stores through mappings of process {} are known only when it calls msync, munmap or close, or ends: {error}",
            self.pid
        );
        // If it has ended, its session will, too.
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

    /// Bytes that stores have made dirty since the latest look.
    fn news(&mut self, seen: &Seen) -> u64 {
        let (identity, dirty) = (seen.identity, seen.dirty);
        let mut levels = self.levels.levels();
        let told = self.files.entry(identity);
        let is_new = matches!(told, std::collections::btree_map::Entry::Vacant(_));
        let told = told.or_default();
        let level = levels.entry(identity).or_default();
        level.users += u32::from(is_new);
        let news = if is_new && level.users == 1 {
            // Others may have written the file before.
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
        let mut levels = self.levels.levels();
        if let Some(level) = levels.get_mut(&identity) {
            level.users -= 1;
            if level.users == 0 {
                levels.remove(&identity);
            }
        }
    }

    /// Calls of the process: what the tracer tells of these files is less what was told here, and what calls
    /// write is no store.
    pub fn pass(&mut self, calls: &mut Vec<Event>) {
        if self.files.is_empty() {
            return;
        }
        let mut levels = self.levels.levels();
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

impl Level {
    /// A call on the file, of which `told` bytes were told here; false if nothing is left of it.
    fn pass(&mut self, call: &mut Event, told: &mut u64) -> bool {
        let returned = call.returned.max(0) as u64;
        match call.op {
            Op::MmapWrite => {
                let again = returned.min(*told);
                *told -= again;
                call.returned -= again as i64;
                call.requested = call.returned.max(0) as u64;
                self.dirty += call.requested;
                return call.requested > 0;
            }
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev => self.written += returned,
            Op::CopyRange | Op::Sendfile | Op::Splice | Op::AioWrite => self.written += returned,
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

/// Looks at a process's mapped files; `known` are followed already.
fn look(pid: u32, known: &BTreeSet<Identity>) -> Look {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    // Large, so only when there is something new.
    let mut smaps = None;
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for mapping in host_text::shared_mappings(&text).take(MOST) {
        // A file that is gone, or was replaced by another, says nothing.
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
                // Files in memory, and filesystems that do not let it be known.
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
        // If the name is another file's by now, it must not be waited for nor be told.
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
        let (levels, aside) = (Levels::default(), Aside::default());
        let mut first = Mappings::new(u32::MAX, &levels, &aside);
        let mut second = Mappings::new(u32::MAX, &levels, &aside);
        // Nothing is known of such a process, so nothing is its doing.
        assert_eq!(first.news(&seen(1000)), 0);
        assert_eq!(first.news(&seen(5000)), 4000);
        assert_eq!(second.news(&seen(5000)), 0);
        assert_eq!(second.news(&seen(6000)), 1000);
        // The tracer of the first sees all that is dirty.
        let mut calls = vec![call(Op::MmapWrite, 6000), call(Op::Write, 300)];
        first.pass(&mut calls);
        let told: Vec<i64> = calls.iter().map(|call| call.returned).collect();
        assert_eq!(told, [2000, 300]);
        // 2000 more were told by the tracer, 300 came by a call.
        assert_eq!(first.news(&seen(8500)), 200);
        let mut calls = vec![call(Op::MmapWrite, 100)];
        first.pass(&mut calls);
        assert!(calls.is_empty());
        // Written back meanwhile, and stored again.
        assert_eq!((first.news(&seen(0)), first.news(&seen(700))), (0, 700));
        drop(first);
        assert_eq!(second.news(&seen(800)), 100);
        drop(second);
        assert!(levels.levels().is_empty());
    }

    #[test]
    fn what_was_touched_before_the_first_look_is_told() {
        let (levels, aside) = (Levels::default(), Aside::default());
        let mut mapped = Mappings::new(u32::MAX, &levels, &aside);
        assert_eq!(mapped.news(&Seen { touched: 600, ..seen(1000) }), 600);
        // Another process maps the same file: what is dirty was told, or was there before.
        let mut other = Mappings::new(u32::MAX, &levels, &aside);
        assert_eq!(other.news(&Seen { touched: 600, ..seen(1000) }), 0);
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_looked_at_is_given_up() {
        let (levels, aside) = (Levels::default(), Aside::default());
        let mut mapped = Mappings::new(u32::MAX, &levels, &aside);
        assert!(mapped.next.is_none());
        mapped.has_file();
        assert!(mapped.next.is_some());
        assert_eq!(mapped.look(), (Vec::new(), None));
        mapped.due().await;
        assert_eq!(mapped.look(), (Vec::new(), None));
        mapped.has_file();
        assert!(mapped.next.is_none() && mapped.failed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_given_up_and_told_once() {
        let (levels, aside) = (Levels::default(), Aside::default());
        let mut mapped = Mappings::new(std::process::id(), &levels, &aside);
        mapped.has_file();
        let (_come_back, hangs) = std::sync::mpsc::channel::<()>();
        mapped.begin(move || Ok(hangs.recv().map_or(Vec::new(), |()| vec![seen(1000)])));
        // It can be given up for something else and asked again.
        drop(tokio::time::timeout(LIMIT / 2, mapped.due()).await);
        assert!(mapped.pending.is_some());
        mapped.due().await;
        let (calls, failure) = mapped.look();
        assert!(calls.is_empty());
        let failure = failure.expect("it is told");
        assert!(failure.is_its_own && failure.note.ends_with("no answer within 10 s"), "{failure:?}");
        mapped.has_file();
        assert!(tokio::time::timeout(LIMIT, mapped.due()).await.is_err(), "there are no more looks");
    }
}
