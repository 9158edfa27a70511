//! Processes of users other than the daemon's own: they may be recorded, and nothing else.
//!
//! The law of this module: **a guest's cost falls on the guest.** A user other than root and the daemon's own
//! is recorded only in a running run, or if `cawld` allows the user. The run's number is random, and its
//! programs have it in their environment. A guest gets no answers. Each guest has a queue of its own, so a
//! flood does not delay other users, and takes only a part of each of the daemon's tables. What a guest says
//! of a file is about a file of that guest: no row, and no page of a model, is shared with another user's.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cawl_wire::{Event, FileId, Op};
use nix::unistd::User;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Semaphore, mpsc};

use crate::batch::Batch;
use crate::engine::Input;
use crate::foreign::FOREIGN;
use crate::lock;
use crate::possible::Moved;

/// Bytes of a user that may wait for the engine: four batches, so that the engine never waits for the next
/// one, and other users never wait long.
const ROOM: u32 = 256 << 10;
/// Least size that an input counts for.
const MIN: usize = 256;
/// Most files of a user's programs with a row: a fifth of a report's. Calls on further files count as calls
/// on one.
const FILES: usize = 20_000;
/// Most files of all users with a row, and bytes of their names: half of a report's rows stay for the
/// daemon's own user. Names beyond that are left out.
const ALL_FILES: usize = 50_000;
const ALL_NAMES: usize = 32 << 20;
/// Most devices that a user's files lie on, and those of all users: each is a device of the models.
const DEVICES: usize = 16;
const ALL_DEVICES: usize = 64;
/// Bytes of the names of one user's files.
const NAMES: usize = 8 << 20;
/// Most threads of a user that the models distinguish at a time, an eighth of all; further threads of a
/// process count as one.
const THREADS: usize = 2048;
/// Most notes in reports that a user's programs may cause; further ones are logged only.
const NOTES: usize = 10;
/// Most users remembered.
const USERS: usize = 1024;

/// Inode number of all files beyond [`FILES`].
const FURTHER: u64 = u64::MAX;

/// Users whose programs a root daemon records outside of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(Vec<RangeInclusive<u32>>);

impl Allowed {
    /// Every user.
    pub fn all() -> Allowed {
        Allowed(vec![0..=u32::MAX])
    }

    /// These users and the others.
    pub fn and(mut self, other: Allowed) -> Allowed {
        self.0.extend(other.0);
        self
    }

    /// True if no user is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, uid: u32) -> bool {
        self.0.iter().any(|users| users.contains(&uid))
    }
}

/// A user's name, a number, or a range of numbers as user namespaces have them: `100000-165535`.
impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        let number = |text: &str| text.parse::<u32>().ok();
        let range = || {
            let (first, last) = text.split_once('-')?;
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(first..=last)
        };
        let named = || User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
        let users = number(text).map(|uid| uid..=uid).or_else(range).or_else(|| named().map(|uid| uid..=uid));
        users
            .map(|users| Allowed(vec![users]))
            .ok_or_else(|| format!("there is no user `{text}`; give a name, a uid, or a range FIRST-LAST"))
    }
}

/// The daemon's state of other users.
#[derive(Debug, Default)]
pub struct Guests {
    allowed: Allowed,
    users: Mutex<BTreeMap<u32, Arc<Guest>>>,
    /// What all users' files take.
    all: Arc<Taken>,
}

/// What files take: their number, and bytes of their names.
#[derive(Debug, Default)]
struct Taken {
    files: AtomicUsize,
    names: AtomicUsize,
    devices: Mutex<BTreeSet<u64>>,
}

impl Guests {
    /// Guests, with these users allowed.
    pub fn new(allowed: Allowed) -> Guests {
        Guests { allowed, ..Guests::default() }
    }

    /// The user's entry, if the user may be recorded in this run (or outside of any).
    pub fn admit(&self, uid: u32, run_goes_on: bool) -> Option<Arc<Guest>> {
        if !run_goes_on && !self.allowed.has(uid) {
            return None;
        }
        let mut users = lock(&self.users);
        if users.len() >= USERS && !users.contains_key(&uid) {
            // Users without sessions.
            users.retain(|_, guest| Arc::strong_count(guest) > 1);
        }
        let new = || Arc::new(Guest::new(uid, Arc::clone(&self.all)));
        Some(Arc::clone(users.entry(uid).or_insert_with(new)))
    }
}

/// A recorded user.
#[derive(Debug)]
pub struct Guest {
    uid: u32,
    room: Arc<Semaphore>,
    /// The files with a row, and the lengths of their names.
    files: Mutex<BTreeMap<FileId, usize>>,
    /// The devices they lie on.
    devices: Mutex<BTreeSet<u64>>,
    /// Bytes of these names.
    names: AtomicUsize,
    all: Arc<Taken>,
    /// Makes the identities of the user's files. Nobody can tell which ones these will be.
    scope: RandomState,
    /// What the calls of the user's programs moved.
    pub moved: Arc<Moved>,
    threads: AtomicUsize,
    notes: AtomicUsize,
}

impl Guest {
    fn new(uid: u32, all: Arc<Taken>) -> Guest {
        Guest {
            uid,
            room: Arc::new(Semaphore::new(ROOM as usize)),
            files: Mutex::default(),
            devices: Mutex::default(),
            names: AtomicUsize::new(0),
            all,
            scope: RandomState::new(),
            moved: Arc::new(Moved::new()),
            threads: AtomicUsize::new(0),
            notes: AtomicUsize::new(0),
        }
    }

    /// True if the file has a row, or gets one.
    fn has_file(&self, identity: FileId) -> bool {
        let mut files = lock(&self.files);
        if files.contains_key(&identity) {
            return true;
        }
        let fits = |devices: &Mutex<BTreeSet<u64>>, most| {
            let mut devices = lock(devices);
            devices.contains(&identity.dev) || devices.len() < most && devices.insert(identity.dev)
        };
        let has_room = files.len() < FILES
            && self.all.files.load(Ordering::Relaxed) < ALL_FILES
            && fits(&self.all.devices, ALL_DEVICES)
            && fits(&self.devices, DEVICES);
        if has_room {
            files.insert(identity, 0);
            self.all.files.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// True if a file with a row may have a name of this length from now on.
    fn may_be_called(&self, identity: FileId, length: usize) -> bool {
        let mut files = lock(&self.files);
        let Some(now) = files.get_mut(&identity) else { return false };
        let more = length.saturating_sub(*now);
        let fits = |taken: &AtomicUsize, most| taken.load(Ordering::Relaxed) + more <= most;
        let may = more == 0 || fits(&self.names, NAMES) && fits(&self.all.names, ALL_NAMES);
        // A file that was renamed has two names, so a shorter one gives no room back.
        if may {
            *now += more;
            self.names.fetch_add(more, Ordering::Relaxed);
            self.all.names.fetch_add(more, Ordering::Relaxed);
        }
        may
    }

    /// The identity of a file that the user's programs tell of: one that nobody else's file has.
    fn scoped(&self, file: FileId) -> FileId {
        if file == FileId::default() {
            return file;
        }
        if file.birth == 0 {
            // Who cannot tell means a file with this number that was told of.
            let same = FileId::new(file.dev, file.ino)..=FileId { birth: u32::MAX, ..file };
            if let Some((known, _)) = lock(&self.files).range(same).next_back() {
                return *known;
            }
        }
        FileId { birth: self.scope.hash_one(file.birth) as u32 | FOREIGN, ..file }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.all.files.fetch_sub(lock(&self.files).len(), Ordering::Relaxed);
        self.all.names.fetch_sub(self.names.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The path from a session to the engine.
pub struct Line {
    engine: mpsc::Sender<Input>,
    pub guest: Option<Arc<Guest>>,
    /// The latest file with a row: as told, and as it is known.
    latest: Mutex<(FileId, FileId)>,
}

impl Line {
    /// For a session of the daemon's own user or root, or of a guest.
    pub fn new(engine: mpsc::Sender<Input>, guest: Option<Arc<Guest>>) -> Line {
        Line { engine, guest, latest: Mutex::default() }
    }

    /// Sends an input when the queue has room for it.
    pub async fn send(&self, mut input: Input) -> Result<(), SendError<Input>> {
        let Some(guest) = &self.guest else {
            match &mut input {
                Input::Events { batch, .. } => {
                    for event in &mut batch.events {
                        event.birth &= !FOREIGN;
                        event.buffer &= if event.renamed().is_some() { !FOREIGN } else { u32::MAX };
                    }
                }
                Input::File { file, .. } => file.birth &= !FOREIGN,
                _ => {}
            }
            return self.engine.send(input).await;
        };
        let weight = match &mut input {
            Input::Events { batch, .. } => {
                self.confine(guest, &mut batch.events);
                batch.size()
            }
            Input::File { file, .. } => {
                let identity = guest.scoped(file.file());
                (file.birth, file.owner) = (identity.birth, guest.uid);
                if !guest.has_file(identity) || !guest.may_be_called(identity, file.path.len()) {
                    return Ok(());
                }
                file.path.len()
            }
            Input::Note { .. } if guest.notes.fetch_add(1, Ordering::Relaxed) >= NOTES => return Ok(()),
            _ => 0,
        };
        let weight = u32::try_from(weight.max(MIN)).map_or(ROOM, |weight| weight.min(ROOM));
        match Arc::clone(&guest.room).acquire_many_owned(weight).await {
            Ok(room) => self.engine.send(Input::OfGuest { input: Box::new(input), room }).await,
            // It is never closed.
            Err(_) => self.engine.send(input).await,
        }
    }

    /// Makes calls those on the guest's own files, and those on files without a row calls on one file.
    fn confine(&self, guest: &Guest, events: &mut [Event]) {
        let mut latest = lock(&self.latest);
        for event in events {
            if let Some((renamed, _)) = event.renamed() {
                event.buffer = guest.scoped(renamed).birth;
            }
            let told = event.file();
            if told == FileId::default() {
                continue;
            }
            if told != latest.0 {
                let own = guest.scoped(told);
                if !guest.has_file(own) {
                    event.set_file(guest.scoped(FileId::new(latest.0.dev, FURTHER)));
                    continue;
                }
                *latest = (told, own);
            }
            event.set_file(latest.1);
        }
    }
}

/// The numbers of a process and its threads in the daemon's pid namespace.
///
/// The tracer sends those of its own pid namespace; the kernel tells the process's number in ours. Other
/// threads than the first keep their numbers, which cannot be translated.
pub struct Numbers {
    told: u32,
    here: u32,
    guest: Option<Arc<Guest>>,
    threads: BTreeSet<u32>,
}

impl Numbers {
    /// For a process that sends the number `told`, and has the number `here`.
    pub fn new(told: u32, here: u32, guest: Option<Arc<Guest>>) -> Numbers {
        Numbers { told, here, guest, threads: BTreeSet::new() }
    }

    /// Translates the numbers in a batch.
    pub fn translate(&mut self, batch: &mut Batch) {
        if self.told == self.here && self.guest.is_none() {
            return;
        }
        for event in batch.events.iter_mut().chain(batch.coalesced.iter_mut().map(|calls| &mut calls.like)) {
            (event.pid, event.tid) = (self.here, self.thread(event.tid));
            if matches!(event.op, Op::Fork | Op::Spawn) && !self.may_be_its_child(event.returned) {
                event.returned = 0;
            }
        }
    }

    /// False if a guest names another user's process as its child.
    fn may_be_its_child(&self, child: i64) -> bool {
        let Some(guest) = &self.guest else { return true };
        // One that has ended already is nobody's.
        let process = std::fs::metadata(format!("/proc/{child}"));
        child <= 0 || process.map_or(true, |process| process.uid() == guest.uid)
    }

    fn thread(&mut self, told: u32) -> u32 {
        let tid = match told {
            first if first == self.told => return self.here,
            // Another thread whose number there is the first thread's number here.
            other if other == self.here => self.told,
            other => other,
        };
        let Some(guest) = &self.guest else { return tid };
        if self.threads.contains(&tid) {
            return tid;
        }
        if guest.threads.fetch_add(1, Ordering::Relaxed) >= THREADS {
            guest.threads.fetch_sub(1, Ordering::Relaxed);
            return self.here;
        }
        self.threads.insert(tid);
        tid
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        if let Some(guest) = &self.guest {
            guest.threads.fetch_sub(self.threads.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::is_foreign;
    use cawl_core::FileFacts;

    #[test]
    fn users_by_name_number_and_range() {
        let allowed = |text: &str| text.parse::<Allowed>();
        assert!(allowed("root").unwrap().has(0) && !allowed("root").unwrap().has(1));
        assert!(allowed("7").unwrap().has(7) && !allowed("7").unwrap().has(8));
        let range = allowed("100000-165535").unwrap();
        assert!(range.has(100_000) && range.has(165_535) && !range.has(99_999) && !range.has(165_536));
        for wrong in ["", "no such user", "9-7", "-1", "4294967296", "1-x"] {
            assert!(allowed(wrong).unwrap_err().contains("FIRST-LAST"), "{wrong}");
        }
        assert!(!Allowed::default().has(0) && Allowed::all().has(u32::MAX));
    }

    #[test]
    fn a_guest_shows_a_run_that_goes_on_or_is_allowed() {
        let guests = Guests::new("7".parse().unwrap());
        assert!(guests.admit(7, false).is_some() && guests.admit(8, true).is_some());
        assert!(guests.admit(8, false).is_none());
        assert!(Arc::ptr_eq(&guests.admit(7, false).unwrap(), &guests.admit(7, true).unwrap()));
    }

    /// The next input, which is a guest's.
    async fn of_guest(inputs: &mut mpsc::Receiver<Input>) -> Input {
        let Some(Input::OfGuest { input, .. }) = inputs.recv().await else { panic!("no input of a guest") };
        *input
    }

    fn batch(count: u64, of: impl Fn(u64) -> Event) -> Batch {
        Batch { events: (0..count).map(of).collect(), ..Batch::default() }
    }

    #[tokio::test]
    async fn one_user_s_flood_waits_and_leaves_room_for_others() {
        let (engine, mut inputs) = mpsc::channel(1024);
        let guests = Guests::new(Allowed::all());
        let line = |uid| Line::new(engine.clone(), guests.admit(uid, false));
        let calls = || batch(682, |_| Event::new(Op::Write));
        let size = calls().size();
        let input = move |session| Input::Events { session, batch: calls(), dropped: 0 };
        let (first, second) = (line(1), line(2));
        let flood = tokio::spawn(async move {
            for _ in 0..1000 {
                first.send(input(1)).await.unwrap();
            }
        });
        while inputs.len() < ROOM as usize / size {
            tokio::task::yield_now().await;
        }
        // The other user's input is sent at once, and waits for less than one user's queue.
        second.send(input(2)).await.unwrap();
        let mut before = 0;
        loop {
            match inputs.recv().await.unwrap() {
                Input::OfGuest { input, .. } if matches!(*input, Input::Events { session: 1, .. }) => {
                    before += 1
                }
                _ => break,
            }
        }
        assert!(before * size <= ROOM as usize, "{before}");
        flood.abort();
    }

    #[tokio::test]
    async fn files_and_notes_of_a_user_are_bounded() {
        let (engine, mut inputs) = mpsc::channel(64);
        let line = Line::new(engine, Guests::new(Allowed::all()).admit(1, false));
        // A reused inode number is another file.
        let write = |n| Event { dev: 5, ino: n / 2 + 1, birth: n as u32 % 2 + 1, ..Event::new(Op::Write) };
        let all = batch(FILES as u64 + 10, write);
        line.send(Input::Events { session: 1, batch: all, dropped: 0 }).await.unwrap();
        let Input::Events { batch, .. } = of_guest(&mut inputs).await else { panic!("no events") };
        let files: BTreeSet<FileId> = batch.events.iter().map(Event::file).collect();
        let last = files.last().map(|file| (file.dev, file.ino));
        assert_eq!((files.len(), last), (FILES + 1, Some((5, FURTHER))));
        for n in 0..3 * NOTES {
            line.send(Input::Note { run: 1, note: n.to_string() }).await.unwrap();
        }
        assert_eq!(inputs.len(), NOTES);
    }

    /// Whatever a user's programs call a file, it is one of their own.
    #[tokio::test]
    async fn users_share_no_file_and_their_names_are_bounded() {
        let (engine, mut inputs) = mpsc::channel(4096);
        let guests = Guests::new(Allowed::all());
        let named = |n: u64, length: usize| FileFacts {
            dev: 5,
            ino: n,
            birth: 7,
            path: "x".repeat(length),
            ..FileFacts::default()
        };
        let mut seen = BTreeSet::from([named(1, 1).file()]);
        for uid in [1, 2] {
            let line = Line::new(engine.clone(), guests.admit(uid, false));
            let own = batch(2, |_| Event { dev: 5, ino: 1, birth: 7, ..Event::new(Op::Write) });
            line.send(Input::File { session: 1, file: named(1, 9) }).await.unwrap();
            line.send(Input::Events { session: 1, batch: own, dropped: 0 }).await.unwrap();
            let Input::File { file, .. } = of_guest(&mut inputs).await else { panic!("no file") };
            let Input::Events { batch, .. } = of_guest(&mut inputs).await else { panic!("no events") };
            assert_eq!(file.owner, uid);
            assert!(batch.events.iter().all(|event| event.file() == file.file()));
            assert!(seen.insert(file.file()), "it is another user's file");
            assert!(is_foreign(file.file()) && !is_foreign(named(1, 1).file()));
        }
        let line = Line::new(engine, guests.admit(3, false));
        let mut bytes = 0;
        for n in 0..2 * (NAMES as u64 >> 12) {
            line.send(Input::File { session: 1, file: named(n, 4096) }).await.unwrap();
            bytes += if inputs.try_recv().is_ok() { 4096 } else { 0 };
        }
        assert_eq!(bytes, NAMES);
        drop((line, guests));
    }

    #[test]
    fn numbers_of_another_namespace() {
        let mut numbers = Numbers::new(1, 4242, None);
        let mut batch =
            batch(3, |n| Event { pid: 1, tid: [1, 7, 4242][n as usize], ..Event::new(Op::Write) });
        numbers.translate(&mut batch);
        let found: Vec<_> = batch.events.iter().map(|event| (event.pid, event.tid)).collect();
        assert_eq!(found, [(4242, 4242), (4242, 7), (4242, 1)]);
    }

    #[test]
    fn a_guest_has_so_many_threads() {
        let guest = Guests::new(Allowed::all()).admit(1, false).unwrap();
        let mut numbers = Numbers::new(9, 9, Some(Arc::clone(&guest)));
        let mut batch =
            batch(2 * THREADS as u64, |n| Event { pid: 666, tid: 100 + n as u32, ..Event::new(Op::Write) });
        numbers.translate(&mut batch);
        let found: BTreeSet<_> = batch.events.iter().map(|event| (event.pid, event.tid)).collect();
        assert_eq!(found.len(), THREADS + 1);
        assert!(found.iter().all(|(pid, _)| *pid == 9));
        drop(numbers);
        assert_eq!(guest.threads.load(Ordering::Relaxed), 0);
    }
}
