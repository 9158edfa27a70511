//! Who has how many of the connections.
//!
//! The law of this module: **nobody takes another one's place.** The daemon's own user and root have places
//! of their own; of the others each user of this machine, and each address, has a share. Who has all of it is
//! closed at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use super::guard::is_own;
use crate::lock;

/// Most connections of the daemon's own user and root.
const OWN: usize = 128;
/// Most connections of all others, and of one of them.
const OTHERS: usize = 96;
const EACH: usize = 32;

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The daemon's own user's, or root's.
    Own,
    /// Another user's of this machine.
    User(u32),
    /// Nobody's that is known here.
    Address(IpAddr),
}

impl Whose {
    /// Of a connection from there, whose socket this user owns.
    pub fn of(peer: SocketAddr, user: Option<u32>) -> Whose {
        match user {
            Some(user) if is_own(user) => Whose::Own,
            Some(user) => Whose::User(user),
            None => Whose::Address(peer.ip().to_canonical()),
        }
    }
}

/// The open connections.
#[derive(Debug, Default)]
pub struct Shares(Mutex<BTreeMap<Whose, usize>>);

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    shares: Arc<Shares>,
    whose: Whose,
}

impl Shares {
    /// A place for another connection; None if there is none.
    pub fn take(self: &Arc<Self>, whose: Whose) -> Option<Place> {
        let mut open = lock(&self.0);
        let own = open.get(&whose).copied().unwrap_or(0);
        let others =
            || open.iter().filter(|(whose, _)| **whose != Whose::Own).map(|(_, open)| open).sum::<usize>();
        let has_room = match whose {
            Whose::Own => own < OWN,
            _ => own < EACH && others() < OTHERS,
        };
        has_room.then(|| {
            *open.entry(whose).or_default() += 1;
            Place { shares: Arc::clone(self), whose }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.shares.0);
        if let Some(left) = open.get_mut(&self.whose) {
            *left -= 1;
            if *left == 0 {
                open.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_another_one_s_place() {
        let shares = Arc::new(Shares::default());
        let peer = |last: u8| SocketAddr::from(([192, 0, 2, last], 80));
        let stranger = nix::unistd::geteuid().as_raw() + 7;
        let take = |whose| std::iter::from_fn(|| shares.take(whose)).take(1000).collect::<Vec<_>>();
        let one = take(Whose::of(peer(1), Some(stranger)));
        let two = take(Whose::of(peer(1), Some(stranger + 1)));
        let three = take(Whose::of(peer(1), None));
        assert_eq!((one.len(), two.len(), three.len()), (EACH, EACH, EACH));
        assert!(take(Whose::of(peer(2), None)).is_empty());
        let own = take(Whose::of(peer(1), Some(0)));
        assert_eq!(own.len(), OWN);
        drop(one);
        assert_eq!(take(Whose::of(peer(2), None)).len(), EACH);
        drop((two, three, own));
        assert!(lock(&shares.0).is_empty());
    }
}
