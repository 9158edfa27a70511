//! Processes of users other than the daemon's own: they may be recorded, and nothing else.
//!
//! The law of this module: **a guest's cost falls on the guest.** A user other than root and the daemon's own
//! is recorded only in a running run, or if `cawld` allows the user. The run's number is random, and its
//! programs have it in their environment. A guest gets no answers. Each guest has a queue of its own, so a
//! flood does not delay other users, and takes only a part of each of the daemon's tables.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cawl_wire::{Event, FileId};
use nix::unistd::User;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Semaphore, mpsc};

use crate::batch::Batch;
use crate::engine::Input;
use crate::lock;

/// Bytes of a user that may wait for the engine: four batches, so that the engine never waits for the next
/// one, and other users never wait long.
const ROOM: u32 = 256 << 10;
/// Least size that an input counts for.
const LEAST: usize = 256;
/// Most files of a user's programs with a row: a fifth of a report's. Calls on further files count as calls
/// on one.
const FILES: usize = 20_000;
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
    /// Users whose refusal was logged.
    refused: Mutex<BTreeSet<u32>>,
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
        Some(Arc::clone(users.entry(uid).or_insert_with(|| Arc::new(Guest::new()))))
    }

    /// Notes a refused user; true if the refusal should be logged.
    pub fn is_news(&self, uid: u32) -> bool {
        let mut refused = lock(&self.refused);
        if refused.len() >= USERS {
            refused.clear();
        }
        refused.insert(uid)
    }
}

/// A recorded user.
#[derive(Debug)]
pub struct Guest {
    room: Arc<Semaphore>,
    files: Mutex<BTreeSet<FileId>>,
    threads: AtomicUsize,
    notes: AtomicUsize,
}

impl Guest {
    fn new() -> Guest {
        Guest {
            room: Arc::new(Semaphore::new(ROOM as usize)),
            files: Mutex::default(),
            threads: AtomicUsize::new(0),
            notes: AtomicUsize::new(0),
        }
    }

    /// True if the file has a row, or gets one.
    fn has_file(&self, identity: FileId) -> bool {
        let mut files = lock(&self.files);
        files.contains(&identity) || (files.len() < FILES && files.insert(identity))
    }
}

/// The path from a session to the engine.
pub struct Line {
    engine: mpsc::Sender<Input>,
    /// The guest.
    pub guest: Option<Arc<Guest>>,
    /// The latest file with a row.
    latest: Mutex<FileId>,
}

impl Line {
    /// For a session of the daemon's own user or root, or of a guest.
    pub fn new(engine: mpsc::Sender<Input>, guest: Option<Arc<Guest>>) -> Line {
        Line { engine, guest, latest: Mutex::default() }
    }

    /// Sends an input when the queue has room for it.
    pub async fn send(&self, mut input: Input) -> Result<(), SendError<Input>> {
        let Some(guest) = &self.guest else { return self.engine.send(input).await };
        let weight = match &mut input {
            Input::Events { batch, .. } => {
                self.confine(guest, &mut batch.events);
                batch.size()
            }
            Input::File { file, .. } => {
                if !guest.has_file(file.file()) {
                    return Ok(());
                }
                file.path.len()
            }
            Input::Note { .. } if guest.notes.fetch_add(1, Ordering::Relaxed) >= NOTES => return Ok(()),
            _ => 0,
        };
        let weight = u32::try_from(weight.max(LEAST)).map_or(ROOM, |weight| weight.min(ROOM));
        match Arc::clone(&guest.room).acquire_many_owned(weight).await {
            Ok(room) => self.engine.send(Input::OfGuest { input: Box::new(input), room }).await,
            // It is never closed.
            Err(_) => self.engine.send(input).await,
        }
    }

    /// Turns calls on files without a row into calls on one file.
    fn confine(&self, guest: &Guest, events: &mut [Event]) {
        let mut latest = lock(&self.latest);
        for event in events {
            let identity = event.file();
            if identity == *latest || identity == FileId::default() {
                continue;
            }
            if guest.has_file(identity) {
                *latest = identity;
            } else {
                event.set_file(FileId::new(latest.dev, FURTHER));
            }
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
        }
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
    use cawl_wire::Op;

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
        assert!(guests.is_news(8) && !guests.is_news(8) && guests.is_news(9));
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
        let Some(Input::OfGuest { input, .. }) = inputs.recv().await else { panic!("no events") };
        let Input::Events { batch, .. } = *input else { panic!("no events") };
        let files: BTreeSet<FileId> = batch.events.iter().map(Event::file).collect();
        assert_eq!((files.len(), files.last()), (FILES + 1, Some(&FileId::new(5, FURTHER))));
        for n in 0..3 * NOTES {
            line.send(Input::Note { run: 1, note: n.to_string() }).await.unwrap();
        }
        assert_eq!(inputs.len(), NOTES);
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
