//! Lines of the log that users cause.
//!
//! The law of this module: **no user fills the log.** Of each user so many lines are written in an hour, none
//! of them twice; how many were left out is told afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;

use crate::lock;

const PERIOD: Duration = Duration::from_secs(3600);
/// Lines of another user in that time, and of the daemon's own and root.
const LINES: usize = 20;
const OWN_LINES: usize = 1000;
/// Most users told apart.
const USERS: usize = 1024;
/// All further ones.
const OTHERS: u32 = u32::MAX;

/// What was logged of each user.
#[derive(Debug, Default)]
pub struct Complaints {
    users: Mutex<BTreeMap<u32, Logged>>,
    hash: RandomState,
}

#[derive(Debug)]
struct Logged {
    since: Instant,
    /// Hashes of the lines.
    lines: BTreeSet<u64>,
    left_out: u64,
}

impl Complaints {
    /// Logs a warning that this user caused, unless there were too many.
    pub fn warn(&self, uid: u32, line: &str) {
        for line in self.due(uid, line, Instant::now()) {
            tracing::warn!(uid, "{line}");
        }
    }

    /// Logs how many lines were left out so far.
    pub fn finish(&self) {
        for (uid, logged) in std::mem::take(&mut *lock(&self.users)) {
            logged.rest().iter().for_each(|line| tracing::warn!(uid, "{line}"));
        }
    }

    fn due(&self, uid: u32, line: &str, now: Instant) -> Vec<String> {
        let mut users = lock(&self.users);
        let mut due = Vec::new();
        let is_over = |logged: &Logged| now.duration_since(logged.since) >= PERIOD;
        let known = if users.contains_key(&uid) || users.len() < USERS { uid } else { OTHERS };
        if users.get(&known).is_some_and(is_over) {
            due.extend(users.remove(&known).and_then(|logged| logged.rest()));
            users.retain(|_, logged| logged.left_out > 0 || !is_over(logged));
        }
        let new = || Logged { since: now, lines: BTreeSet::new(), left_out: 0 };
        let logged = users.entry(known).or_insert_with(new);
        let most = if uid == 0 || uid == geteuid().as_raw() { OWN_LINES } else { LINES };
        let hash = self.hash.hash_one(line);
        if logged.lines.len() < most && logged.lines.insert(hash) {
            due.push(line.to_owned());
        } else {
            logged.left_out += 1;
        }
        due
    }
}

impl Logged {
    fn rest(&self) -> Option<String> {
        (self.left_out > 0).then(|| format!("{} more lines of this user were left out", self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_user_are_bounded_and_the_rest_is_counted() {
        let complaints = Complaints::default();
        let began = Instant::now();
        let stranger = geteuid().as_raw() + 7;
        let lines = |uid, now| (0..1000).flat_map(|n| complaints.due(uid, &n.to_string(), now)).count();
        assert_eq!(lines(stranger, began), LINES);
        assert_eq!(lines(stranger, began + PERIOD / 2), 0);
        assert_eq!(complaints.due(stranger + 1, "x", began), ["x"]);
        assert!(complaints.due(stranger + 1, "x", began).is_empty(), "it was said");
        let later = complaints.due(stranger, "x", began + PERIOD);
        assert_eq!(later, ["1980 more lines of this user were left out", "x"]);
        assert_eq!(lines(0, began), OWN_LINES);
        // However many users there are.
        (0..3 * USERS as u32).for_each(|uid| drop(complaints.due(1 << 20 | uid, "y", began)));
        assert!(lock(&complaints.users).len() <= USERS + 1);
    }
}
