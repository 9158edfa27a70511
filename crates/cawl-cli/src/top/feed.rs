//! The daemon's pushes; after a lost connection it is asked again every second.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
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
    current: Arc<Mutex<Current>>,
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
        Feed { path: path.to_owned(), every, send, current: Arc::default() }
    }

    /// Subscribes, replacing an earlier subscription.
    pub fn subscribe(&self, sort: Sort) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        if let Some(connection) = current.connection.take() {
            connection.hang_up();
        }
        let subscription = Subscription {
            topics: vec![Topic::Status, Topic::Processes, Topic::Files],
            every_s: Some(self.every),
            limit: Some(ROWS),
            sort,
        };
        let follower = Follower {
            path: self.path.clone(),
            subscription,
            number: current.number,
            current: Arc::clone(&self.current),
            send: self.send.clone(),
        };
        std::thread::spawn(move || follower.follow());
    }
}

/// One subscription, in a thread of its own.
struct Follower {
    path: PathBuf,
    subscription: Subscription,
    number: u64,
    current: Arc<Mutex<Current>>,
    send: Sender<Input>,
}

impl Follower {
    /// Sends pushes until another subscription replaces it or the app is gone.
    fn follow(self) {
        while let Some(why) = self.until_lost() {
            let told = self.send.send(Input::Lost(format!("{why:#}")));
            std::thread::sleep(RETRY);
            if told.is_err() || !self.is_current() {
                return;
            }
        }
    }

    /// Sends pushes until the connection is lost; None if this subscription has ended.
    fn until_lost(&self) -> Option<anyhow::Error> {
        let pushes = match query::subscribe::<Push>(&self.path, self.subscription.clone()) {
            Ok(pushes) => pushes,
            Err(why) => return Some(why),
        };
        match pushes.hang_up() {
            Ok(connection) => {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                if current.number != self.number {
                    return None;
                }
                current.connection = Some(connection);
            }
            Err(why) => return Some(why.into()),
        }
        for pushed in pushes {
            if !self.is_current() {
                return None;
            }
            match pushed {
                Ok(push) => self.send.send(Input::Pushed(Box::new(push))).ok()?,
                Err(why) => return Some(why),
            }
        }
        None
    }

    fn is_current(&self) -> bool {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).number == self.number
    }
}
