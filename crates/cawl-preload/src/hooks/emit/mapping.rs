//! Events of shared mappings: what became dirty since the latest look.

use super::event;
use crate::base::clock;
use crate::base::guard::Inside;
use crate::session;
use crate::state::mappings::{self, Mapping};
use crate::transport::slot::Slot;
use cawl_wire::Op;

fn sample_each(inside: &Inside, mappings: impl Iterator<Item = &'static Mapping>) {
    let now = clock::now();
    for mapping in mappings {
        if let Some(news) = mapping.take_news()
            && let Some(slot) = session::open_slot(inside)
        {
            tell(inside, slot, mapping, now, news);
            session::finish(slot, now);
        }
    }
}

#[inline(never)]
fn tell(inside: &Inside, slot: &Slot, mapping: &Mapping, now: u64, news: u64) {
    let mut event = event(inside, Op::MmapWrite, now, now);
    mapping.describe(&mut event);
    event.requested = news;
    event.returned = news as i64;
    session::put(slot, &event, 0, 0);
}

/// Looks at every mapping of a range of addresses.
#[cold]
pub fn sample(inside: &Inside, start: usize, length: usize) {
    sample_each(inside, mappings::within(start, length));
}

/// Looks at every mapping there is.
#[cold]
pub fn sample_all(inside: &Inside) {
    if mappings::any() {
        sample_each(inside, mappings::all());
    }
}

/// Looks at the mappings of a file whose descriptor is about to be closed.
#[cold]
pub fn closing(inside: &Inside, dev: u64, ino: u64) {
    sample_each(inside, mappings::of_file(dev, ino));
}
