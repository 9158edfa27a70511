//! Threads that write files for others to take away, and what their folders tell of themselves.
//!
//! The law of this module: **nothing waits for a file.** What finds no room in a thread's queue is dropped
//! and counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use cawl_client::protocol::OutputStatus;
use cawl_host::spool::{Shared, Spool, SpoolOptions, lock};

/// The engine's side of such a thread.
pub struct Spooler<T> {
    to: String,
    room: u64,
    queue: Option<SyncSender<T>>,
    /// Rows that found no room, and that the thread has not counted yet.
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    status: Shared,
}

/// The thread's side.
pub struct Queue<T> {
    pub things: Receiver<T>,
    pub dropped: Arc<AtomicU64>,
}

impl<T: Send + 'static> Spooler<T> {
    /// Starts the thread, for which at most `most` things wait.
    pub fn start(
        (name, most): (&str, usize),
        to: String,
        options: SpoolOptions,
        work: impl FnOnce(Spool, Queue<T>) + Send + 'static,
    ) -> io::Result<Spooler<T>> {
        let (status, room) = (Shared::default(), options.room);
        let spool = Spool::open(options, Arc::clone(&status))?;
        let (queue, things) = sync_channel(most);
        let dropped = Arc::<AtomicU64>::default();
        let own = Queue { things, dropped: Arc::clone(&dropped) };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(spool, own))?;
        Ok(Spooler { to, room, queue: Some(queue), dropped, thread: Some(thread), status })
    }

    /// Hands something over; `rows` counts those of what finds no room.
    pub fn send(&self, thing: T, rows: impl FnOnce(T) -> u64) {
        let sent = self.queue.as_ref().map(|queue| queue.try_send(thing));
        if let Some(Err(TrySendError::Full(thing) | TrySendError::Disconnected(thing))) = sent {
            self.dropped.fetch_add(rows(thing), Ordering::Relaxed);
        }
    }

    /// What became of the rows.
    pub fn status(&self) -> OutputStatus {
        let waiting = self.dropped.load(Ordering::Relaxed);
        let status = lock(&self.status).clone();
        OutputStatus {
            to: self.to.clone(),
            rows: status.rows_taken + waiting,
            rows_written: status.rows_written,
            rows_dropped: status.rows_dropped + waiting,
            rows_lost: status.rows_lost,
            files_written: status.files_written,
            files_dropped: status.files_dropped,
            rows_refused: status.rows_refused,
            files_refused: status.files_refused,
            bytes: status.bytes,
            room_bytes: self.room,
            latest: status.latest.map(|path| path.display().to_string()),
            failure: status.failure.or(status.undelivered),
        }
    }
}

impl<T> Drop for Spooler<T> {
    /// Waits for the last file.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl<T> Queue<T> {
    /// What comes within a time; then the folder is looked at, and what was dropped is counted.
    pub fn next(&self, spool: &mut Spool, within: Duration) -> Result<T, RecvTimeoutError> {
        let next = self.things.recv_timeout(within);
        spool.poll();
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            spool.take(dropped, 0);
            spool.lose(dropped, None);
        }
        next
    }
}
