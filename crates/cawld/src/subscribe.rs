//! Pushes to subscribers, over socket and HTTP.
//!
//! The law of this module: **a subscriber is never waited for.** It has a queue of its own; when that is full
//! it is disconnected, and may subscribe again.

use std::time::Duration;

use anyhow::bail;
use cawl_client::protocol::{Listing, Request, Subscription, Topic, View};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::MissedTickBehavior;

use crate::asker::{AskError, Asker, json};

/// Shortest, longest and usual interval between pushes, in seconds.
const SHORTEST: f64 = 0.05;
const LONGEST: f64 = 3600.0;
const USUAL: f64 = 1.0;

/// Default number of rows.
const ROWS: usize = 20;

const TOPICS: [Topic; 4] = [Topic::Status, Topic::Processes, Topic::Files, Topic::Devices];

impl Asker {
    /// A place for one more subscriber, until it is dropped. An error if there are too many.
    pub fn subscribe(&self) -> Result<OwnedSemaphorePermit, AskError> {
        std::sync::Arc::clone(&self.subscribers).try_acquire_owned().map_err(|_| AskError::Busy)
    }
}

/// Puts pushes into the subscriber's queue until it disconnects: `encode` makes them of the topic's name and
/// of its data, both as JSON. An error if it does not keep up, or if the daemon ends.
pub async fn feed<T>(
    asker: &Asker,
    subscription: &Subscription,
    encode: impl Fn(&str, &str) -> T,
    queue: mpsc::Sender<T>,
) -> anyhow::Result<()> {
    let every = subscription.every_s.unwrap_or(USUAL);
    let every = if every.is_finite() { every.clamp(SHORTEST, LONGEST) } else { USUAL };
    let mut topics =
        if subscription.topics.is_empty() { TOPICS.to_vec() } else { subscription.topics.clone() };
    topics.sort_unstable();
    topics.dedup();
    let limit = Some(subscription.limit.unwrap_or(ROWS));
    let listing = Listing { sort: subscription.sort, limit, skip: 0 };
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = queue.closed() => return Ok(()),
        }
        for topic in &topics {
            let data = match topic {
                Topic::Status => asker.answer(Request::Status(View::default())).await?,
                Topic::Processes => asker.answer(Request::Processes(listing)).await?,
                Topic::Files => asker.answer(Request::Files(listing)).await?,
                Topic::Devices => asker.answer(Request::Devices).await?,
                Topic::Calls => {
                    let (calls, number) = asker.look_up(move |engine| engine.calls(seen)).await?;
                    seen = Some(number);
                    json(&calls)
                }
            };
            match queue.try_send(encode(&json(topic), &data)) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
                Err(mpsc::error::TrySendError::Full(_)) => {
                    bail!("a subscriber did not keep up and was dropped; it may subscribe again")
                }
            }
        }
    }
}
