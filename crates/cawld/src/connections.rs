//! The open connections: their roles, room for new ones, and waiting until all have been read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cawl_core::{ARE_MISSING, Bytes, Nanos, Time};
use nix::sys::resource::{Resource, getrlimit};
use tokio::sync::{Notify, watch};

use crate::aside::Aside;
use crate::complaints::Complaints;
use crate::engine::Traces;
use crate::guests::{Allowed, Guests};
use crate::lock;
use crate::mappings::MappedFiles;
use crate::rooms::Rooms;
use crate::run_delays::Budget;
use crate::stacks::Stacks;

/// Programs count as writing this long after their latest batch.
const ACTIVE_FOR: Nanos = Nanos::millis(250.0);

/// Interval of reading a process's `wchar`, in case it is killed.
const WCHAR_EVERY: Nanos = Nanos::millis(100.0);

/// Longest wait at the end of a run for silent connections.
pub const SETTLE: Duration = Duration::from_secs(5);

/// Interval of looks at them meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Most connections that ask, and most that have sent nothing yet; beyond that, the one idle for longest of
/// its kind is closed. Tracers have all other places.
const ASKERS: usize = 256;

/// Most connections of other users without a role: of one user, and of all. Beyond that, the oldest of them
/// is closed.
const SILENT_GUESTS: [usize; 2] = [64, 192];

/// Descriptors kept for other purposes, and those of a connection: its socket and its ring.
const OTHER_DESCRIPTORS: u64 = 64;
const DESCRIPTORS: u64 = 2;

/// Most connections, whatever the limit on descriptors: each may hold a message and its calls, of 38 kB each.
const MAX: usize = 4096;

/// Connections that no tracer takes.
const PLACES: usize = 64;

/// The latest beginnings of tracers' sessions that are remembered: of a few seconds on a machine that does
/// nothing but start programs.
const BEGINNINGS: usize = 16_384;

/// The open connections and their shared state.
#[derive(Default)]
pub struct Connections {
    /// Time of the latest batch, in ns of CLOCK_MONOTONIC.
    pub active: AtomicU64,
    /// The runs that keep a trace.
    pub traces: Arc<Traces>,
    /// Files mapped by processes.
    pub mapped: MappedFiles,
    /// Stacks of calls.
    pub stacks: Arc<Stacks>,
    /// Runs work on other processes' files.
    pub aside: Aside,
    /// What looks at run delays may cost.
    pub run_delays: Budget,
    /// Memory for the rings of processes.
    pub rooms: Rooms,
    /// Other users.
    pub guests: Guests,
    /// What is logged of users.
    pub complaints: Complaints,
    /// Memory of the machine.
    pub memory: Bytes,
    /// Processes whose mappings could not be sampled.
    unmapped: AtomicU64,
    /// The number of the latest connection.
    latest: AtomicU32,
    open: Mutex<BTreeMap<u32, Connection>>,
    changed: Notify,
    /// Raised to make every session read its ring and socket.
    pub looks: watch::Sender<u64>,
    draining: AtomicBool,
    drain: Notify,
    /// Beginnings of tracers' sessions.
    began: Mutex<Beginnings>,
    /// Most connections by the limit on descriptors, and most of them that may ask.
    most: usize,
    askers: usize,
}

/// In which process a tracer began, and when.
#[derive(Default)]
struct Beginnings {
    known: BTreeSet<(u32, Time)>,
    /// The same, the latest last.
    order: VecDeque<(u32, Time)>,
}

#[derive(Default)]
struct Connection {
    role: Role,
    /// The user, unless it is root or the daemon's own.
    guest: Option<u32>,
    /// Start of this role.
    since: Time,
    /// Notified when it must close, to make room.
    close: Arc<Notify>,
    /// The latest value of `Connections::looks` that it has handled.
    looked: u64,
    batches: u64,
    wchar_read: Time,
}

/// The role of a connection.
#[derive(Clone, Copy, Default)]
pub enum Role {
    /// It has sent nothing yet.
    #[default]
    Unknown,
    /// It asks questions, and none is open.
    Client,
    /// It waits for an answer or for pushes.
    Asking,
    /// It traces this process.
    Tracer(u32),
}

impl Connection {
    /// True if it sends nothing and waits for nothing.
    fn is_silent(&self) -> bool {
        matches!(self.role, Role::Unknown | Role::Client)
    }
}

impl Connections {
    /// No connections; processes of these other users may be recorded outside of runs.
    pub fn new(traces: Arc<Traces>, allowed: Allowed, memory: Bytes) -> Connections {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let most = descriptors.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS;
        let most = usize::try_from(most).unwrap_or(MAX).clamp(4, MAX);
        let (askers, guests) = (ASKERS.min(most / 2), Guests::new(allowed));
        Connections { most, askers, traces, guests, memory, ..Connections::default() }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u32, Connection>> {
        lock(&self.open)
    }

    /// Adds a connection of the daemon's own user or root, or of a guest; returns its number, and the
    /// notification to close. None if there is no room. Room is made by closing the connection idle for
    /// longest; a guest's connection is closed for any other, and only for a guest's if it is a guest's.
    pub fn connect(&self, guest: Option<u32>) -> Option<(u32, Arc<Notify>)> {
        let id = 1 + self.latest.fetch_add(1, Ordering::Relaxed);
        let close = Arc::new(Notify::new());
        let mut connections = self.open();
        let count = |of: &dyn Fn(&Connection) -> bool| {
            connections.values().filter(|c| matches!(c.role, Role::Unknown) && of(c)).count()
        };
        let is_full = connections.len() >= self.most;
        let has_room = match guest {
            Some(_) if count(&|c| c.guest == guest) >= SILENT_GUESTS[0] => {
                close_oldest(&mut connections, |_, c| c.is_silent() && c.guest == guest)
            }
            Some(_) if is_full || count(&|c| c.guest.is_some()) >= SILENT_GUESTS[1] => {
                close_oldest(&mut connections, |_, c| c.is_silent() && c.guest.is_some())
            }
            Some(_) => true,
            None => {
                let unknown = count(&|c| c.guest.is_none()) >= self.askers;
                let freed = unknown
                    && close_oldest(&mut connections, |_, c| {
                        matches!(c.role, Role::Unknown) && c.guest.is_none()
                    });
                freed
                    || !is_full
                    || close_oldest(&mut connections, |_, c| c.is_silent() && c.guest.is_some())
                    || close_oldest(&mut connections, |_, c| c.is_silent())
            }
        };
        if !has_room {
            return None;
        }
        let (since, own) = (cawl_host::now(), Arc::clone(&close));
        connections.insert(id, Connection { guest, since, close: own, ..Connection::default() });
        Some((id, close))
    }

    /// True if the process has a tracer of its own that is connected.
    pub fn is_traced(&self, pid: u32) -> bool {
        self.open()
            .values()
            .any(|connection| matches!(connection.role, Role::Tracer(traced) if traced == pid))
    }

    /// A tracer began in a process, which may end before anyone asks.
    pub fn begins(&self, pid: u32, at: Time) {
        let Beginnings { known, order } = &mut *lock(&self.began);
        if order.len() == BEGINNINGS
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        known.insert((pid, at));
        order.push_back((pid, at));
    }

    /// When a tracer began in a process within this time, if one did.
    pub fn began(&self, pid: u32, (from, to): (Time, Option<Time>)) -> Option<Time> {
        let to = to.unwrap_or(Time(u64::MAX));
        lock(&self.began).known.range((pid, from)..=(pid, to)).next().map(|(_, at)| *at)
    }

    /// A number for a session that has no connection.
    pub fn new_session(&self) -> u32 {
        1 + self.latest.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection ended.
    pub fn disconnect(&self, id: u32) {
        self.open().remove(&id);
        self.changed.notify_waiters();
    }

    /// Returns when a connection changed, or after this time.
    pub async fn changed_within(&self, time: Duration) {
        drop(tokio::time::timeout(time, self.changed.notified()).await);
    }

    /// True if one more process may be traced: all together leave places for those who ask; a guest's take at
    /// most half of all, and all guests' three quarters, so that some are left for the daemon's own user.
    pub fn has_room_for(&self, guest: Option<u32>) -> bool {
        let connections = self.open();
        let tracers = || connections.values().filter(|c| matches!(c.role, Role::Tracer(_)));
        let of_guest = |uid| tracers().filter(|c| c.guest == Some(uid)).count() < self.most / 2;
        let of_guests = || tracers().filter(|c| c.guest.is_some()).count() < self.most / 4 * 3;
        tracers().count() < self.most - (self.most / 4).min(PLACES)
            && guest.is_none_or(|uid| of_guest(uid) && of_guests())
    }

    /// The connection asks questions. False if there is no room: all others wait for an answer.
    pub fn may_ask(&self, id: u32) -> bool {
        let mut connections = self.open();
        let others = connections
            .iter()
            .filter(|(other, c)| **other != id && matches!(c.role, Role::Client | Role::Asking));
        others.count() < self.askers
            || close_oldest(&mut connections, |other, c| other != id && matches!(c.role, Role::Client))
    }

    /// What a connection is for, from now on.
    pub fn settle_role(&self, id: u32, role: Role) {
        if let Some(connection) = self.open().get_mut(&id) {
            connection.role = role;
            connection.since = cawl_host::now();
        }
        self.changed.notify_waiters();
    }

    /// Counts a process whose mappings cannot be sampled; true for the first one.
    pub fn is_first_failure_of_mappings(&self) -> bool {
        let count = self.unmapped.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(count, "the mappings of a process cannot be looked at");
        count == 1
    }

    /// A session has read everything as of this value of `looks`.
    pub fn has_looked(&self, id: u32, look: u64) {
        if let Some(connection) = self.open().get_mut(&id) {
            connection.looked = look;
        }
        self.changed.notify_waiters();
    }

    /// True while programs write.
    pub fn is_active(&self) -> bool {
        cawl_host::now().since(Time(self.active.load(Ordering::Relaxed))) < ACTIVE_FOR
    }

    /// A batch was read. True at most every 100 ms: time to read the process's `wchar`.
    pub fn took_batch(&self, id: u32) -> bool {
        let now = cawl_host::now();
        let mut connections = self.open();
        let Some(connection) = connections.get_mut(&id) else { return false };
        connection.batches += 1;
        let due = now.since(connection.wchar_read) >= WCHAR_EVERY;
        if due {
            connection.wchar_read = now;
        }
        due
    }

    /// A session that ended still works.
    pub fn goes_on(&self, id: u32) {
        self.open().get_mut(&id).into_iter().for_each(|connection| connection.batches += 1);
    }

    /// Returns when the daemon is about to end: sessions then read the rest and stop.
    pub async fn draining(&self) {
        let mut told = std::pin::pin!(self.drain.notified());
        told.as_mut().enable();
        if !self.draining.load(Ordering::SeqCst) {
            told.await;
        }
    }

    /// Makes sessions read the rest, and waits for that.
    pub async fn drain_sessions(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.drain.notify_waiters();
        self.until_settled(|connection| !matches!(connection.role, Role::Tracer(_))).await;
    }

    /// Waits until every open connection is idle, asks questions, or belongs to a running process whose calls
    /// so far were read.
    ///
    /// Processes that ended have closed their sockets, but their data may not be read yet. Returns a note for
    /// the report with the number of connections given up.
    pub async fn settle(&self) -> Option<String> {
        self.looks.send_modify(|look| *look += 1);
        let look = *self.looks.borrow();
        let left = self
            .until_settled(|connection| match connection.role {
                Role::Unknown => connection.looked >= look,
                Role::Client | Role::Asking => true,
                Role::Tracer(pid) => connection.looked >= look && cawl_host::is_running(pid),
            })
            .await;
        (left > 0).then(|| {
            format!(
                "the daemon is behind: nothing of {left} processes came for {} s, so their last calls {ARE_MISSING}",
                SETTLE.as_secs()
            )
        })
    }

    /// Waits until this holds for every connection. Gives up when the remaining ones have sent nothing for
    /// SETTLE, so a backlog of any length is read. Returns the number given up.
    async fn until_settled(&self, is_settled: impl Fn(&Connection) -> bool) -> usize {
        let mut before = Vec::new();
        let mut waited = Duration::ZERO;
        loop {
            let changed = self.changed.notified();
            let left: Vec<(u32, u64)> = self
                .open()
                .iter()
                .filter(|(_, connection)| !is_settled(connection))
                .map(|(id, connection)| (*id, connection.batches))
                .collect();
            if left != before {
                waited = Duration::ZERO;
                before = left;
            }
            if before.is_empty() {
                return 0;
            }
            if waited >= SETTLE {
                tracing::warn!(connections = before.len(), "what they still hold is not waited for");
                return before.len();
            }
            // A process can end without a change of its connection, so look again at intervals.
            let look = tokio::time::Instant::now();
            drop(tokio::time::timeout(LOOK_AGAIN, changed).await);
            // Where the whole machine stood still, the connections had no time either.
            waited += look.elapsed().min(2 * LOOK_AGAIN);
        }
    }
}

/// Closes the one of these connections that is idle for longest; false if there is none.
fn close_oldest(
    connections: &mut BTreeMap<u32, Connection>,
    which: impl Fn(u32, &Connection) -> bool,
) -> bool {
    let silent = connections.iter().filter(|(id, connection)| which(**id, connection));
    let oldest = silent.min_by_key(|(id, connection)| (connection.since, **id)).map(|(id, _)| *id);
    let Some(oldest) = oldest.and_then(|id| connections.remove(&id)) else { return false };
    oldest.close.notify_one();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Connections {
        Connections::new(Arc::default(), Allowed::default(), Bytes::ZERO)
    }

    fn begin(connections: &Connections, guest: Option<u32>, role: Role) -> u32 {
        let (id, _) = connections.connect(guest).expect("room for another");
        connections.settle_role(id, role);
        id
    }

    #[test]
    fn a_tracer_belongs_to_one_image() {
        let connections = Connections::default();
        connections.begins(7, Time(100));
        for (image, found) in [
            ((Time(0), None), Some(Time(100))),
            ((Time(100), Some(Time(100))), Some(Time(100))),
            ((Time(0), Some(Time(99))), None),
            ((Time(101), None), None),
        ] {
            assert_eq!(connections.began(7, image), found);
        }
        assert_eq!(connections.began(8, (Time(0), None)), None);
        (0..BEGINNINGS).for_each(|at| connections.begins(9, Time(at as u64)));
        assert_eq!(connections.began(7, (Time(0), None)), None);
    }

    #[test]
    fn the_connection_silent_longest_makes_room() {
        let connections = none();
        let asking = begin(&connections, None, Role::Asking);
        let tracer = begin(&connections, None, Role::Tracer(1));
        let (oldest, closed) = connections.connect(None).unwrap();
        for _ in 0..3 * ASKERS {
            connections.connect(None).unwrap();
        }
        let connections = connections.open();
        assert_eq!(connections.len(), ASKERS + 2);
        assert!(connections.contains_key(&asking) && connections.contains_key(&tracer));
        assert!(!connections.contains_key(&oldest));
        drop(connections);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(closed.notified());
    }

    #[test]
    fn guests_make_way_and_displace_nobody_else() {
        let connections = none();
        let (own, _) = connections.connect(None).unwrap();
        let (guest, closed) = connections.connect(Some(7)).unwrap();
        for uid in 0..10 {
            for _ in 0..2 * SILENT_GUESTS[0] {
                connections.connect(Some(7 + uid)).unwrap();
            }
        }
        let count = |of: &dyn Fn(&Connection) -> bool| connections.open().values().filter(|c| of(c)).count();
        assert_eq!(count(&|c| c.guest.is_some()), SILENT_GUESTS[1]);
        assert!(count(&|c| c.guest == Some(16)) == SILENT_GUESTS[0]);
        assert!(connections.open().contains_key(&own) && !connections.open().contains_key(&guest));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(closed.notified());
        for _ in 0..ASKERS {
            connections.connect(None).unwrap();
        }
        assert_eq!(count(&|c| c.guest.is_none()), ASKERS);
        assert_eq!(count(&|c| c.guest.is_some()), SILENT_GUESTS[1]);
    }

    #[test]
    fn one_user_s_programs_take_half_of_the_connections() {
        let mut connections = none();
        connections.most = 400;
        let is_taken = |uid| {
            let room = connections.has_room_for(Some(uid));
            room.then(|| begin(&connections, Some(uid), Role::Tracer(1))).is_some()
        };
        let taken = |uid: u32| (0..).take_while(|_| is_taken(uid)).count();
        assert_eq!(taken(7), connections.most / 2);
        assert_eq!(taken(8), connections.most / 4 * 3 - connections.most / 2);
        assert!(connections.connect(None).is_some());
    }

    #[test]
    fn those_who_wait_for_an_answer_are_not_closed_and_take_no_tracers_room() {
        let connections = none();
        let ask = || {
            let (id, closed) = connections.connect(None).unwrap();
            let may = connections.may_ask(id);
            if may {
                connections.settle_role(id, Role::Client);
            } else {
                connections.disconnect(id);
            }
            (id, closed, may)
        };
        let asking: Vec<u32> = (0..ASKERS - 1).map(|_| ask().0).collect();
        asking.iter().for_each(|id| connections.settle_role(*id, Role::Asking));
        // There is room for one, for the latest.
        let (silent, closed, may) = ask();
        assert!(may);
        let (latest, _, may) = ask();
        assert!(may && !connections.open().contains_key(&silent));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(closed.notified());
        connections.settle_role(latest, Role::Asking);
        assert!(!ask().2);
        // Other connections are not affected.
        (0..20).for_each(|pid| _ = begin(&connections, None, Role::Tracer(pid)));
        assert_eq!(connections.open().len(), ASKERS + 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_is_waited_for_as_long_as_it_moves() {
        let connections = Arc::new(none());
        // A process that has ended, with calls still to be read.
        let id = begin(&connections, None, Role::Tracer(u32::MAX));
        let began = tokio::time::Instant::now();
        let bringing = Arc::clone(&connections);
        tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(SETTLE - Duration::from_secs(1)).await;
                bringing.took_batch(id);
            }
        });
        assert!(connections.settle().await.is_some_and(|note| note.contains("1 processes")));
        let took = began.elapsed();
        // All calls, and then SETTLE without any.
        let (coming, silence) = (10 * (SETTLE - Duration::from_secs(1)), SETTLE);
        assert!(took >= coming + silence && took < coming + 2 * silence, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_last_connection_is_waited_for_no_longer() {
        let connections = Arc::new(none());
        let id = begin(&connections, None, Role::Tracer(u32::MAX));
        let ending = Arc::clone(&connections);
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE / 2).await;
            ending.disconnect(id);
        });
        let began = tokio::time::Instant::now();
        assert_eq!(connections.settle().await, None);
        assert!(began.elapsed() < SETTLE);
    }
}
