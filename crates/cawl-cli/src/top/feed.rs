//! The daemon's pushes; after a lost connection it is asked again every second.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cawl_client::protocol::{Push, Sort, Subscription, Topic};
use cawl_client::query::{self, HangUp};

use super::Input;

/// Time between two attempts to reach a daemon.
const RETRY: Duration = Duration::from_secs(1);

/// Most rows asked for.
const ROWS: usize = 500;

/// A subscription that can be replaced.
pub struct Feed {
    path: PathBuf,
    every: f64,
    send: Sender<Input>,
    current: Mutex<Current>,
}

/// The current subscription; an earlier one ends when it sees the change.
#[derive(Default)]
struct Current {
    number: u64,
    connection: Option<HangUp>,
}

impl Feed {
    /// A feed from the daemon at `path` every `every` seconds.
    pub fn new(path: &Path, every: f64, send: Sender<Input>) -> Feed {
        Feed { path: path.to_owned(), every, send, current: Mutex::default() }
    }

    /// Subscribes in a thread of its own, replacing an earlier subscription.
    pub fn subscribe(self: &Arc<Feed>, sort: Sort) {
        let mut current = self.current();
        current.number += 1;
        if let Some(connection) = current.connection.take() {
            connection.hang_up();
        }
        let (feed, number) = (Arc::clone(self), current.number);
        std::thread::spawn(move || feed.follow(number, sort));
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends pushes until another subscription replaces this one or the app is gone.
    fn follow(&self, number: u64, sort: Sort) {
        while let Some(why) = self.until_lost(number, sort) {
            let told = self.send.send(Input::Lost(format!("{why:#}")));
            std::thread::sleep(RETRY);
            if told.is_err() || self.current().number != number {
                return;
            }
        }
    }

    /// Sends pushes until the connection is lost; None if this subscription has ended.
    fn until_lost(&self, number: u64, sort: Sort) -> Option<anyhow::Error> {
        let topics = vec![Topic::Status, Topic::Processes, Topic::Files];
        let subscription = Subscription { topics, every_s: Some(self.every), limit: Some(ROWS), sort };
        let connected = query::subscribe::<Push>(&self.path, subscription)
            .and_then(|pushes| Ok((pushes.hang_up()?, pushes)));
        let (connection, pushes) = match connected {
            Ok(connected) => connected,
            Err(why) => return Some(why),
        };
        let mut current = self.current();
        if current.number != number {
            return None;
        }
        current.connection = Some(connection);
        drop(current);
        for pushed in pushes {
            if self.current().number != number {
                return None;
            }
            match pushed {
                Ok(push) => self.send.send(Input::Pushed(Box::new(push))).ok()?,
                Err(why) => return Some(why),
            }
        }
        None
    }
}
