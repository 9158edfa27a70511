//! Events of shared mappings: what became dirty since the latest look.

use super::record;
use crate::base::clock;
use crate::base::guard::Inside;
use crate::state::mappings::{self, Mapping};
use cawl_wire::Op;

fn sample_each(inside: &Inside, mappings: impl Iterator<Item = &'static Mapping>) {
    let now = clock::now();
    for mapping in mappings {
        if let Some(news) = mapping.take_news() {
            record(inside, Op::MmapWrite, (now, now), None, news.bytes as i64, |event| {
                mapping.describe(event);
                (event.requested, event.aux) = (news.within, news.pieces);
            });
        }
    }
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
