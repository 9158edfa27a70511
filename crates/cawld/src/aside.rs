//! Work that may hang: reading another program's files may ask a server that does not answer.
//!
//! The law of this module: **this work is never waited for beyond its time limit.** Threads of its own do it
//! and are never joined. One that hangs keeps its place until it returns, and the number of places is fixed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// Most threads that may hang at a time.
const PLACES: usize = 32;

/// Runs work that may hang.
pub struct Aside(Arc<Semaphore>);

impl Default for Aside {
    fn default() -> Aside {
        Aside(Arc::new(Semaphore::new(PLACES)))
    }
}

/// The work did not return in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub struct Late(Duration);

/// Running work.
pub struct Pending<T> {
    answer: oneshot::Receiver<T>,
    limit: Duration,
    until: Instant,
}

impl Aside {
    /// Begins work with a time limit; None while all places are taken.
    pub fn begin<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Pending<T>> {
        let place = Arc::clone(&self.0).try_acquire_owned().ok()?;
        let (reply, answer) = oneshot::channel();
        let until = Instant::now() + limit;
        let work = move || {
            // The asker may have given up.
            drop(reply.send(work()));
            drop(place);
        };
        std::thread::Builder::new().name("cawl-look".to_owned()).spawn(work).ok()?;
        Some(Pending { answer, limit, until })
    }
}

impl<T> Pending<T> {
    /// The answer. Cancellable: may be awaited again until there is one.
    pub async fn done(&mut self) -> Result<T, Late> {
        match tokio::time::timeout_at(self.until, &mut self.answer).await {
            Ok(Ok(answer)) => Ok(answer),
            // The sender is dropped without an answer only by a panic, after which none will come.
            Ok(Err(_)) | Err(_) => Err(Late(self.limit)),
        }
    }

    /// The answer if it has arrived, or an error if it is late.
    pub fn ready(&mut self) -> Option<Result<T, Late>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(Ok(answer)),
            Err(_) => (Instant::now() >= self.until).then_some(Err(Late(self.limit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_hangs_is_given_up_and_keeps_its_place() {
        let aside = Aside::default();
        let limit = Duration::from_secs(5);
        let (come_back, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        let mut pending = Vec::new();
        for _ in 0..PLACES {
            let hangs = Arc::clone(&hangs);
            pending.push(aside.begin(limit, move || hangs.lock().unwrap().recv().is_ok()).expect("a place"));
        }
        assert!(aside.begin(limit, || ()).is_none(), "there are no more places");
        assert_eq!(pending[0].ready(), None);
        assert_eq!(pending[0].done().await, Err(Late(limit)));
        assert_eq!(pending[1].ready(), Some(Err(Late(limit))));
        // They return after all.
        drop(come_back);
        let places = aside.0.acquire_many(PLACES as u32).await.unwrap();
        drop(places);
        tokio::time::resume();
        assert_eq!(aside.begin(limit, || 7).expect("a place").done().await, Ok(7));
    }
}
